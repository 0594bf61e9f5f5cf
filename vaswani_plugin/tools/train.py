"""``vaswani-train``: trains with the paper's settings on one worker or many, and resumes by itself.

It chooses how the recipe's effective batch is shared out, starts one ``fairseq-train`` a GPU (or CPU worker) with the
variables that ``torchrun`` sets, too, and ends them together. Everything that makes a run safe is in the plugin itself
(``checkpoints.py``, ``preemption.py``), so that the toolkit's own ``fairseq-train`` has it as well.

    vaswani-train data/bin --save-dir checkpoints --source-lang en --target-lang de
    vaswani-train data/bin --save-dir checkpoints --cpu --target-batch 4096 -- --lr 5e-3 --dropout 0.3

Options after ``--`` go to ``fairseq-train`` as they are and win over the recipe's.
"""

from __future__ import annotations

import argparse
import os
import shlex
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, List, Optional, Sequence, Tuple

from vaswani_plugin.preemption import SAVED_STATUS
from vaswani_plugin.tools.batch_plan import PAPER_BATCH, USUAL_TOKENS, BatchPlan, plan_batch
from vaswani_plugin.tools.cli import CommandError, run_command
from vaswani_plugin.tools.supervisor import Command, supervise

#: The paper's training (sections 5.3 and 5.4) in the toolkit's words.
RECIPE = [
    "--task", "vaswani_translation", "--share-all-embeddings",
    "--criterion", "vaswani_label_smoothed_cross_entropy", "--label-smoothing", "0.1",
    "--optimizer", "adam", "--adam-betas", "(0.9, 0.98)", "--adam-eps", "1e-9",
    "--lr-scheduler", "vaswani_inverse_sqrt", "--warmup-updates", "4000",
    "--no-progress-bar", "--log-format", "simple", "--log-interval", "100",
]  # fmt: skip

#: Options of fairseq-train that follow from ours, and the one to give instead.
OURS = {
    "--save-dir": "--save-dir", "--arch": "--arch", "-a": "--arch", "--max-update": "--max-update", "--seed": "--seed",
    "--max-tokens": "--max-tokens", "--update-freq": "--update-freq", "--cpu": "--cpu", "--fp16": "--fp16",
    "--bf16": "--bf16", "--batch-size": "--max-tokens", "--max-sentences": "--max-tokens",
    "--tensorboard-logdir": "--tensorboard", "--user-dir": "nothing: the plugin is loaded always",
    "--distributed-world-size": "--gpus or --workers", "--distributed-rank": "--node-rank",
    "--distributed-init-method": "--master", "--distributed-port": "--master",
    "--distributed-no-spawn": "--gpus or --workers", "--device-id": "CUDA_VISIBLE_DEVICES",
}  # fmt: skip


def positive(text: str) -> int:
    """A whole number above 0."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number above 0, not '{text}'")
    return int(text)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of what comes before ``--``."""
    parser = argparse.ArgumentParser(
        prog="vaswani-train",
        usage="%(prog)s DATA --save-dir DIR [options] [-- OPTIONS OF fairseq-train]",
        description="Trains with the paper's settings on one worker or many, and resumes by itself.",
        epilog=f"Exit status: 0 the training is complete; {SAVED_STATUS} it was asked to stop (SIGTERM, SIGUSR1, "
        "Ctrl-C), has saved, and goes on when the same command is given again; 1 it failed; 2 wrong options.",
        allow_abbrev=False,
    )
    parser.add_argument("data", metavar="DATA", help="folder of the toolkit's binary data")
    parser.add_argument("--save-dir", type=Path, required=True, metavar="DIR", help="checkpoints and train.log")
    parser.add_argument("--arch", default="vaswani_base", metavar="NAME", help="architecture (default: %(default)s)")
    parser.add_argument("--source-lang", metavar="LANG", help="default: as the data's names say")
    parser.add_argument("--target-lang", metavar="LANG", help="default: as the data's names say")
    parser.add_argument("--max-update", type=positive, default=100_000, metavar="N", help="default: %(default)s")
    parser.add_argument("--seed", type=positive, default=1, metavar="N", help="default: %(default)s")
    half = parser.add_mutually_exclusive_group()
    half.add_argument("--fp16", action="store_true", help="float16 (on a CPU with weights in float16, too: for trials)")
    half.add_argument("--bf16", action="store_true", help="matrix products in bfloat16, weights in float32")
    parser.add_argument("--curves", action="store_true", help="draw DIR/curves.png at the end")
    parser.add_argument("--tensorboard", action="store_true", help="write TensorBoard logs under DIR/tensorboard")
    parser.add_argument("--dry-run", action="store_true", help="print the plan and the commands, start nothing")
    parser.add_argument(
        "--grace", type=positive, default=600, metavar="SECONDS", help="for saving when asked to stop (default: 600)"
    )
    _add_workers(parser.add_argument_group("workers"))
    _add_batch(parser.add_argument_group("batch"))
    _add_checkpoints(parser.add_argument_group("checkpoints, beside the last and the best"))
    return parser


def _add_workers(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--gpus", type=positive, metavar="N", help="GPUs of a machine (default: all)")
    group.add_argument("--cpu", action="store_true", help="train on the processor")
    group.add_argument("--workers", type=positive, default=1, metavar="N", help="with --cpu: processes (default: 1)")
    group.add_argument("--nodes", type=positive, default=1, metavar="N", help="machines (default: 1)")
    group.add_argument("--node-rank", type=int, default=0, metavar="R", help="which of them this is, from 0")
    group.add_argument("--master", metavar="HOST:PORT", help="where machine 0 is reached; for several machines")


def _add_batch(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--target-batch", type=positive, default=PAPER_BATCH, metavar="TOKENS",
        help="tokens of an update over all workers (default: the paper's %(default)s)",
    )  # fmt: skip
    group.add_argument(
        "--max-tokens", type=positive, metavar="TOKENS",
        help=f"tokens that a worker takes at once (default: what meets the target with at most {USUAL_TOKENS})",
    )  # fmt: skip
    group.add_argument(
        "--update-freq", type=positive, metavar="N",
        help="such portions of a worker for one update (default: what meets the target)",
    )  # fmt: skip


def _add_checkpoints(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--save-interval-updates", type=positive, metavar="N", help="save every N updates as well")
    group.add_argument("--keep-interval-updates", type=positive, metavar="N", help="keep the last N of those")
    group.add_argument("--keep-last-epochs", type=positive, metavar="N", help="keep the last N epochs (default: all)")
    group.add_argument("--keep-best", type=positive, metavar="N", help="keep the N best")


@dataclass(frozen=True)
class Place:
    """Where the workers are.

    Attributes:
        cpu: whether they train on processors.
        local: workers on this machine.
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


def toolkit_options(args: argparse.Namespace, plan: BatchPlan, more: Sequence[str]) -> List[str]:
    """Return the words of ``fairseq-train`` after its name.

    Raises:
        CommandError: one of ``more`` is an option that follows from ours.
    """
    for word in more:
        instead = OURS.get(word.split("=")[0])
        if instead:
            raise CommandError(f"{word.split('=')[0]} after -- has no place there; give {instead} before it")
    user_dir = str(Path(__file__).resolve().parents[1])
    words = [args.data, "--user-dir", user_dir, "--save-dir", str(args.save_dir), "--arch", args.arch, *RECIPE]
    for name in ("source_lang", "target_lang", "save_interval_updates", "keep_interval_updates", "keep_last_epochs"):
        if getattr(args, name) is not None:
            words += [f"--{name.replace('_', '-')}", str(getattr(args, name))]
    if args.keep_best:
        words += ["--keep-best-checkpoints", str(args.keep_best)]
    words += ["--max-tokens", str(plan.max_tokens), "--update-freq", str(plan.update_freq)]
    words += ["--max-update", str(args.max_update), "--seed", str(args.seed)]
    if args.cpu:
        words.append("--cpu")
    if args.fp16:
        words.append("--memory-efficient-fp16" if args.cpu else "--fp16")  # the toolkit's --fp16 asks for CUDA
    if args.bf16:
        words += ["--compute-dtype", "bf16"]
    if args.tensorboard:
        words += ["--tensorboard-logdir", str(args.save_dir / "tensorboard")]
    return [*words, *more]


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


def _split(words: Sequence[str]) -> Tuple[List[str], List[str]]:
    """What is before the first ``--``, and what is after it."""
    words = list(words)
    at = words.index("--") if "--" in words else len(words)
    return words[:at], words[at + 1 :]


def train(args: argparse.Namespace, more: Sequence[str]) -> int:
    """Train as the options say; returns the exit status.

    Raises:
        CommandError: wrong options, or a worker failed.
    """
    place = place_of(args)
    plan = plan_batch(place.workers, args.target_batch, args.max_tokens, args.update_freq)
    options = toolkit_options(args, plan, more)
    commands = commands_of(place, options)
    print(f"effective batch: {plan}", flush=True)
    if args.dry_run:
        for command in commands:
            variables = " ".join(f"{name}={shlex.quote(value)}" for name, value in sorted(command.variables.items()))
            print(f"{variables} fairseq-train {shlex.join(options)}")
        return 0
    if not Path(args.data).is_dir():
        raise CommandError(f"{args.data}: no such folder")
    args.save_dir.mkdir(parents=True, exist_ok=True)
    log_path = args.save_dir / ("train.log" if place.node_rank == 0 else f"train.{place.node_rank}.log")
    with open(log_path, "a", encoding="utf-8") as log:
        print(f"effective batch: {plan}", file=log, flush=True)
        try:
            return supervise(commands, place.workers, log, args.grace)
        finally:
            if args.curves and place.node_rank == 0:
                _draw(log_path, args)


def _draw(log_path: Path, args: argparse.Namespace) -> None:
    from vaswani_plugin.tools import curves

    curves.main([str(log_path), "--labels", args.arch, "--output", str(args.save_dir / "curves.png")])


def main(words: Optional[Sequence[str]] = None) -> int:
    """Run the command; returns the exit status."""
    ours, more = _split(sys.argv[1:] if words is None else words)
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
