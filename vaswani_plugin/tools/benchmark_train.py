"""``vaswani-benchmark train``: how fast this machine trains, by the toolkit alone and by this plugin.

Every system is the toolkit's trainer with the options of a user: its transformer, criterion and Adam, or ours. They
have the same sizes and the same random sentences in the same batches, of about Multi30k's lengths. They take turns
within one run, their medians count, and each has a process of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import statistics
import tempfile
from pathlib import Path
from typing import Any, Dict, List, Sequence, Tuple

import torch

from vaswani_plugin.architectures import ARCHITECTURES
from vaswani_plugin.tools import benchmark_report as report
from vaswani_plugin.tools.benchmark_process import Worker, note, started
from vaswani_plugin.tools.benchmark_train_worker import Job, request
from vaswani_plugin.tools.cli import CommandError, help_texts, names_among, plural, positive, progress
from vaswani_plugin.tools.parallel import available_cores
from vaswani_plugin.tools.pictures import check_format
from vaswani_plugin.tools.training_flops import fraction_of_peak

#: Every system by the name that --systems takes: what it is, and its precision.
SYSTEMS: Dict[str, Tuple[str, str]] = {
    "fairseq": ("fairseq", "fp32"),
    "fairseq-fp16": ("fairseq", "fp16"),
    "fp32": ("vaswani_plugin", "fp32"),
    "bf16": ("vaswani_plugin", "bf16"),
    "fp16": ("vaswani_plugin", "fp16"),
}
#: By configuration the size of the vocabulary, and the tokens of a batch on a CPU and on a GPU.
CONFIGS: Dict[str, Tuple[int, int, int]] = {
    "tiny": (8000, 4096, 4096),
    "base": (20000, 4096, 8192),
    "big": (20000, 4096, 4096),
}
SCRIPT = Path(__file__).resolve().parent / "benchmark_train_worker.py"
COLUMNS: Tuple[Tuple[str, str, str], ...] = (
    ("system", "system", ""),
    ("precision", "precision", ""),
    ("tokens/s", "tokens_per_second", ".0f"),
    ("ratio", "ratio", ".2f"),
    ("CPU ratio", "cpu_ratio", ".2f"),
    ("of peak", "of_peak", ".1%"),
    ("peak MiB", "peak_mib", ".0f"),
    ("step MiB", "step_mib", ".0f"),
    ("step memory ratio", "step_mib_ratio", ".2f"),
)


def summarise(worker: Worker, about: Dict[str, Any], job: Job) -> report.Row:
    """The medians of a system's runs.

    Args:
        about: what the worker answered first: "held_mib", "tokens", "lengths", "checksum".
    """
    system, precision = SYSTEMS[worker.name]
    seconds = statistics.median(run["seconds"] for run in worker.runs)
    steps = [run["step_mib"] for run in worker.runs if run["step_mib"] is not None]
    row: report.Row = {
        "system": system,
        "precision": precision,
        "config": job.config,
        "device": job.device if job.device == "cpu" else torch.cuda.get_device_name(),
        "tokens": about["tokens"],
        "tokens_per_second": about["tokens"] / seconds,
        "seconds": [run["seconds"] for run in worker.runs],
        "cpu_seconds": [run["cpu_seconds"] for run in worker.runs],
        "held_mib": about["held_mib"],
        "peak_mib": max(run["peak_mib"] for run in worker.runs),
        "step_mib": max(steps) if steps else None,
        "of_peak": None,
    }
    if job.device == "cuda":
        options = ARCHITECTURES[f"vaswani_{job.config}"]
        row["of_peak"] = fraction_of_peak(options, job.n_types, about["lengths"], seconds, row["device"], precision)
    return row


def compare(rows: Sequence[report.Row]) -> None:
    """Give every row its ratios to the toolkit in float32, or None."""
    base = next((row for row in rows if (row["system"], row["precision"]) == SYSTEMS["fairseq"]), None)
    for row in rows:
        row["ratio"] = row["cpu_ratio"] = row["step_mib_ratio"] = None
        if base is not None:
            row["ratio"] = row["tokens_per_second"] / base["tokens_per_second"]
            row["cpu_ratio"] = report.per_cpu_second(row) / report.per_cpu_second(base)
            if row["step_mib"] is not None and base["step_mib"]:
                row["step_mib_ratio"] = row["step_mib"] / base["step_mib"]


def measure(names: Sequence[str], job: Job, repeats: int) -> Tuple[List[report.Row], List[str]]:
    """Run the systems in turns.

    Returns:
        A row a system, and the reasons why others are left out.

    Raises:
        CommandError: two systems have been given different batches.
    """
    left_out, about = [], {}
    with contextlib.ExitStack() as stack:
        workers = []
        for name in names:
            try:
                note(f"loading {name}")
                worker = stack.enter_context(started(name, SCRIPT, job.threads, gpus=job.device == "cuda"))
                about[name] = worker.ask(request(*SYSTEMS[name], job))
                workers.append(worker)
            except CommandError as error:
                left_out.append(f"{name} is left out: {error}")
        if len({about[worker.name]["checksum"] for worker in workers}) > 1:
            raise CommandError("the systems have not been given the same batches")
        for worker in progress([worker for _ in range(repeats) for worker in workers], "training", unit="run"):
            worker.runs.append(worker.ask("run"))
        rows = [summarise(worker, about[worker.name], job) for worker in workers]
    compare(rows)
    return rows, left_out


def chosen_device(asked: str) -> str:
    """The device that an option means: with auto a GPU where torch sees one.

    Raises:
        CommandError: cuda is asked for, and there is none.
    """
    if asked == "cuda" and not torch.cuda.is_available():
        raise CommandError("--device cuda needs a GPU, but torch sees none")
    return ("cuda" if torch.cuda.is_available() else "cpu") if asked == "auto" else asked


def train(args: argparse.Namespace) -> None:
    """The command ``train``.

    Raises:
        CommandError: options that do not go together, or no system runs.
    """
    if args.plot is not None:
        check_format("--plot", args.plot)
    device = chosen_device(args.device)
    names = args.systems or [name for name in SYSTEMS if device == "cuda" or not name.endswith("fp16")]
    if device == "cpu" and any(name.endswith("fp16") for name in names):
        raise CommandError("float16 is for GPUs; leave fairseq-fp16 and fp16 out of --systems")
    n_types, *max_tokens = CONFIGS[args.config]
    with tempfile.TemporaryDirectory(prefix="vaswani-benchmark-") as folder:
        tokens = args.max_tokens or max_tokens[device == "cuda"]
        job = Job(args.config, folder, device, args.vocabulary or n_types, tokens, args.batches, args.threads)
        rows, left_out = measure(names, job, args.repeats)
    for line in left_out:
        note(line)
    if not rows:
        raise CommandError("no system could run")
    title = f"{job.config} on {rows[0]['device']}: V = {job.n_types}, {job.n_batches} batches of at most "
    title += f"{job.max_tokens} tokens, {plural(job.threads, 'thread')}, median of {args.repeats}"
    print(f"{title}\n{report.table(rows, COLUMNS)}")
    if args.json is not None:
        report.write_json([{**row, "job": described(job)} for row in rows], args.json)
    if args.plot is not None:
        report.draw(rows, title, args.plot)


def described(job: Job) -> Dict[str, Any]:
    """The job without the folder, which is gone."""
    return {name: value for name, value in dataclasses.asdict(job).items() if name != "folder"}


def add_command(commands: Any) -> None:
    """Add the command to the parser of ``vaswani-benchmark``."""
    description, rest = help_texts(__doc__)
    command = commands.add_parser("train", help="how fast training is", description=description, epilog=rest)
    add = command.add_argument
    threads = available_cores()
    add("--config", choices=tuple(CONFIGS), required=True, help="sizes: vaswani_tiny, vaswani_base or vaswani_big")
    add("--device", choices=("auto", "cpu", "cuda"), default="auto", help="auto takes a GPU if there is one (default)")
    add(
        "--max-tokens",
        type=positive,
        metavar="N",
        help="of a batch (default: 4096; base 8192 on a GPU)",
    )
    add("--vocabulary", type=positive, metavar="V", help="types (default: tiny 8000, base and big 20000)")
    add("--batches", type=positive, default=2, metavar="N", help="batches of various lengths in a run (default: 2)")
    add("--repeats", type=positive, default=5, metavar="N", help="runs of each system (default: 5)")
    add("--threads", type=positive, default=threads, metavar="N", help=f"threads (default: all processors, {threads})")
    add(
        "--systems",
        type=names_among(SYSTEMS),
        metavar="NAMES",
        help=f"of {','.join(SYSTEMS)} (default: all that can run)",
    )
    add("--json", type=Path, metavar="FILE", help="write the rows here")
    add("--plot", type=Path, metavar="FILE", help="draw them here")
    command.set_defaults(run=train)
