"""``vaswani-train``: trains with the paper's settings on one worker or many, and resumes by itself.

It chooses how the recipe's effective batch is shared out, starts one ``fairseq-train`` a GPU (or CPU worker) with the
variables that ``torchrun`` sets, too, and ends them together. Started by ``torchrun``, it is one of the workers. What
makes a run safe is in the plugin itself (``checkpoints.py``, ``preemption.py``), so that ``fairseq-train`` has it, too.

    vaswani-train data/bin --save-dir checkpoints --source-lang en --target-lang de
    vaswani-train data/bin --save-dir checkpoints --cpu --target-batch 4096 -- --lr 5e-3 --dropout 0.3

Options after ``--`` go to ``fairseq-train`` as they are and win over the recipe's.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shlex
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, List, Optional, Sequence, Tuple

from vaswani_plugin.preemption import SAVED_STATUS
from vaswani_plugin.tools import worker
from vaswani_plugin.tools.batch_plan import BatchPlan, plan_batch
from vaswani_plugin.tools.cli import CommandError, alone, run_command, split_at_dashes
from vaswani_plugin.tools.supervisor import Command, supervise
from vaswani_plugin.tools.train_options import build_parser, require_data, toolkit_options

#: What torchrun sets beside the variables that we set as well.
_TORCHRUN = "TORCHELASTIC_RUN_ID"


@dataclass(frozen=True)
class Place:
    """Where the workers are.

    Attributes:
        cpu: whether they train on processors.
        local: workers on this machine; under torchrun, all of them.
        nodes, node_rank: machines, and which of them this is.
        master: host and port of worker 0.
    """

    cpu: bool
    local: int
    nodes: int
    node_rank: int
    master: Tuple[str, int]

    @property
    def workers(self) -> int:
        """Workers on all machines."""
        return self.local * self.nodes


def place_of(args: argparse.Namespace) -> Place:
    """Decide where the workers are.

    Raises:
        CommandError: options that contradict each other, or GPUs that are not there.
    """
    if args.cpu and args.gpus:
        raise CommandError("--cpu and --gpus exclude each other; --workers is the number of processes on a CPU")
    if not args.cpu and args.workers > 1:
        raise CommandError("--workers goes with --cpu; --gpus is the number of workers on GPUs")
    if _TORCHRUN in os.environ:
        if args.gpus or args.workers > 1 or args.nodes > 1 or args.master:
            raise CommandError("torchrun starts the workers; --gpus, --workers, --nodes and --master do not go with it")
        if args.curves:
            raise CommandError("--curves draws train.log, which torchrun does not write; vaswani-curves draws any log")
        return Place(args.cpu, int(os.environ["WORLD_SIZE"]), 1, 0, ("", 0))
    if not 0 <= args.node_rank < args.nodes:
        raise CommandError(f"--node-rank must be from 0 to {args.nodes - 1} with --nodes {args.nodes}")
    if args.nodes > 1 and not args.master:
        raise CommandError("several machines need --master HOST:PORT, the same on each")
    local = args.workers if args.cpu else _gpus(args.gpus, args.dry_run)
    return Place(args.cpu, local, args.nodes, args.node_rank, _master(args.master, args.dry_run))


def _gpus(asked: Optional[int], dry_run: bool) -> int:
    if dry_run and asked:
        return asked
    import torch

    there = torch.cuda.device_count()
    if not there:
        raise CommandError("there is no GPU here; --cpu trains on the processor")
    if asked and asked > there:
        raise CommandError(f"--gpus {asked}: there are only {there} here")
    return asked or there


def _master(given: Optional[str], dry_run: bool) -> Tuple[str, int]:
    if given:
        host, _, port = given.rpartition(":")
        if not host or not port.isdecimal():
            raise CommandError(f"--master must be HOST:PORT, not '{given}'")
        return host, int(port)
    if dry_run:
        return "127.0.0.1", 29500
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return "127.0.0.1", int(probe.getsockname()[1])


def commands_of(place: Place, options: Sequence[str]) -> List[Command]:
    """Return the workers to start on this machine, with the variables by which they find each other."""
    words = [sys.executable, "-m", "vaswani_plugin.tools.worker", str(os.getpid()), *options]
    threads = max(1, (os.cpu_count() or 1) // place.local)
    shared: Dict[str, str] = {
        "PYTHONUNBUFFERED": "1",
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(threads)),
        "MASTER_ADDR": place.master[0],
        "MASTER_PORT": str(place.master[1]),
        "WORLD_SIZE": str(place.workers),
    }
    if place.cpu:
        shared["CUDA_VISIBLE_DEVICES"] = ""
    return [
        Command(rank, words, {**shared, "RANK": str(rank), "LOCAL_RANK": str(local)})
        for local, rank in enumerate(range(place.node_rank * place.local, (place.node_rank + 1) * place.local))
    ]


def train(args: argparse.Namespace, more: Sequence[str]) -> int:
    """Train as the options say; returns the exit status.

    Raises:
        CommandError: wrong options, or a worker failed.
    """
    place = place_of(args)
    plan = plan_batch(place.workers, args.target_batch, args.max_tokens, args.update_freq)
    options = toolkit_options(args, plan, more)
    if not args.dry_run:
        require_data(args, more)
        if args.save_dir.exists() and not args.save_dir.is_dir():
            raise CommandError(f"--save-dir {args.save_dir}: not a folder")
    if args.tensorboard and not any(importlib.util.find_spec(name) for name in ("tensorboard", "tensorboardX")):
        raise CommandError("--tensorboard needs a package that writes its logs: pip install tensorboardX")
    if _TORCHRUN in os.environ:
        return _be_a_worker(args, plan, options)
    commands = commands_of(place, options)
    print(f"effective batch: {plan}", flush=True)
    if args.dry_run:
        for command in commands:
            variables = " ".join(f"{name}={shlex.quote(value)}" for name, value in sorted(command.variables.items()))
            print(f"{variables} fairseq-train {shlex.join(options)}")
        return 0
    log_path = args.save_dir / ("train.log" if place.node_rank == 0 else f"train.{place.node_rank}.log")
    refusal = f"another training is writing into {args.save_dir}; choose another --save-dir"
    with alone(args.save_dir / f".lock.{place.node_rank}", refusal), open(log_path, "a", encoding="utf-8") as log:
        print(f"effective batch: {plan}", file=log, flush=True)
        try:
            return supervise(commands, place.workers, log, args.grace)
        finally:
            if args.curves and place.node_rank == 0:
                _draw(log_path, args)


def _be_a_worker(args: argparse.Namespace, plan: BatchPlan, options: Sequence[str]) -> int:
    """Be one of torchrun's workers, which ends with the torchrun that started it."""
    if os.environ.get("RANK") == "0":
        print(f"effective batch: {plan}", flush=True)
    if args.dry_run:
        return 0
    worker.die_with(os.getppid())
    sys.argv = ["fairseq-train", *options]
    return worker.train()


def _draw(log_path: Path, args: argparse.Namespace) -> None:
    from vaswani_plugin.tools import curves

    curves.main([str(log_path), "--labels", args.arch, "--output", str(args.save_dir / "curves.png")])


def main(words: Optional[Sequence[str]] = None) -> int:
    """Run the command; returns the exit status."""
    ours, more = split_at_dashes(sys.argv[1:] if words is None else words)
    args = build_parser().parse_args(ours)
    status = 0

    def body() -> None:
        nonlocal status
        status = train(args, more)
        if status == SAVED_STATUS:
            stopped = f"stopped and saved in {args.save_dir}; the same command goes on (exit status {SAVED_STATUS})"
            print(f"vaswani-train: {stopped}", file=sys.stderr)

    return run_command("vaswani-train", body) or status


if __name__ == "__main__":
    sys.exit(main())
