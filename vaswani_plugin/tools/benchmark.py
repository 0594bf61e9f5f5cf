"""``vaswani-benchmark generate``: how fast this machine translates, by the toolkit, this plugin and CTranslate2.

Every system has the same weights and the same sentences in the same batches, the same beam and length penalty. The
systems take turns within one run, and their medians count. Each runs in a process of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import sys
import tempfile
from pathlib import Path
from typing import Dict, List, Optional, Sequence, Tuple

from vaswani_plugin.architectures import CHANGES
from vaswani_plugin.quantization import obstacle
from vaswani_plugin.tools import benchmark_material as materials
from vaswani_plugin.tools import benchmark_report as report
from vaswani_plugin.tools import benchmark_train
from vaswani_plugin.tools.benchmark_process import note, started
from vaswani_plugin.tools.benchmark_worker import Material, Search, request
from vaswani_plugin.tools.cli import CommandError, help_texts, names_among, plural, positive, progress, run_command
from vaswani_plugin.tools.parallel import available_cores
from vaswani_plugin.tools.pictures import check_format

#: Every system by the name that --systems takes: what it is, and its precision.
SYSTEMS: Dict[str, Tuple[str, str]] = {
    "fairseq": ("fairseq", "fp32"),
    "fp32": ("vaswani_plugin", "fp32"),
    "bf16": ("vaswani_plugin", "bf16"),
    "int8": ("vaswani_plugin", "int8"),
    "ctranslate2-fp32": ("ctranslate2", "fp32"),
    "ctranslate2-int8": ("ctranslate2", "int8"),
}
CONFIGS = ("tiny", "base")
#: What a system's process runs.
SCRIPT = materials.PLUGIN / "tools" / "benchmark_worker.py"


def missing(name: str) -> Optional[str]:
    """Why a system cannot run here, or None."""
    system, precision = SYSTEMS[name]
    if system == "ctranslate2" and importlib.util.find_spec("ctranslate2") is None:
        return "it is not installed; pip install 'vaswani-plugin[export]'"
    return obstacle(precision) if system == "vaswani_plugin" and precision != "fp32" else None


def measure(
    names: Sequence[str], material: Material, search: Search, repeats: int, config: str
) -> Tuple[List[report.Row], List[str]]:
    """Run the systems in turns.

    Returns:
        A row a system, and the reasons why others are left out.
    """
    left_out = []
    with contextlib.ExitStack() as stack:
        workers = []
        for name in names:
            reason = missing(name)
            if reason is None:
                try:
                    note(f"loading {name}")
                    if SYSTEMS[name][0] == "ctranslate2":
                        materials.convert_for_ctranslate2(material, SYSTEMS[name][1])
                    worker = stack.enter_context(started(name, SCRIPT, search.threads))
                    worker.ask(request(*SYSTEMS[name], material, search))
                    workers.append(worker)
                except CommandError as error:
                    reason = str(error)
            if reason is not None:
                left_out.append(f"{name} is left out: {reason}")
        turns = [worker for _ in range(repeats) for worker in workers]
        for worker in progress(turns, "translating", unit="run"):
            worker.runs.append(worker.ask("run"))
        rows = []
        for worker in workers:
            for run in worker.runs:
                run["texts"] = [materials.words(tokens) for tokens in run["translations"]]
            rows.append(report.summarise(*SYSTEMS[worker.name], config, worker.runs, material.references))
    report.compare(rows)
    return rows, left_out


def make_material(args: argparse.Namespace, work: Path) -> Material:
    """The weights and sentences that the options ask for.

    Raises:
        CommandError: what they name is not there, or a training fails.
    """
    folder = work / f"material-{args.config}"
    if args.config == "base":
        options = {**CHANGES["vaswani_base"], "positional_layout": "concatenated"}
        n_sentences = args.sentences or 64
        return materials.random_material(folder, n_sentences, materials.BASE_VOCABULARY, materials.BASE_STEPS, options)
    checkpoint, data = args.checkpoint, args.data
    if checkpoint is None:
        note(f"training vaswani_tiny on the embedded corpus for {plural(args.updates, 'update')}")
        checkpoint, data = materials.train_tiny(work / "tiny", args.updates)
    return materials.trained_material(folder, checkpoint, data, args.split, args.sentences or 500)


def generate(args: argparse.Namespace) -> None:
    """The command ``generate``.

    Raises:
        CommandError: options that do not go together, or no system runs.
    """
    if (args.checkpoint is None) != (args.data is None):
        raise CommandError("--checkpoint and --data go together: weights, and the data with their dictionaries")
    if args.checkpoint is not None and args.config == "base":
        raise CommandError("--checkpoint goes with --config tiny; the weights of base are random")
    if args.plot is not None:
        check_format("--plot", args.plot)
    search = Search(args.beam, args.alpha, args.batch_size, args.threads)
    with contextlib.ExitStack() as stack:
        work = args.work or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="vaswani-benchmark-")))
        material = make_material(args, work)
        rows, left_out = measure(args.systems, material, search, args.repeats, args.config)
    for line in left_out:
        note(line)
    if not rows:
        raise CommandError("no system could run")
    sentences = plural(len(material.sources), "sentence")
    title = f"{args.config}: {sentences}, beam {args.beam}, batches of {args.batch_size}, "
    title += f"{plural(args.threads, 'thread')}, median of {args.repeats}"
    print(f"{title}\n{report.table(rows)}")
    if args.json is not None:
        report.write_json(rows, args.json)
    if args.plot is not None:
        report.draw(rows, title, args.plot)


def build_parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    description, rest = help_texts(__doc__)
    parser = argparse.ArgumentParser(
        prog="vaswani-benchmark", description="How fast this machine translates and trains."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    command = commands.add_parser("generate", help="how fast translating is", description=description, epilog=rest)
    add = command.add_argument
    threads = available_cores()
    add("--config", choices=CONFIGS, required=True, help="tiny, which has learned, or base with random weights")
    add("--checkpoint", type=Path, metavar="PATH", help="for tiny: a checkpoint, or a training's folder")
    add("--data", type=Path, metavar="BIN", help="for tiny: the binary data that belongs to the checkpoint")
    add("--split", default="test", help="the part of the data to translate (default: test)")
    add("--updates", type=positive, default=400, metavar="N", help="updates where tiny is trained (default: 400)")
    add("--sentences", type=positive, metavar="N", help="how many sentences (default: base 64; tiny 500 at most)")
    add("--batch-size", type=positive, default=64, metavar="N", help="sentences in a batch (default: 64)")
    add("--beam", type=positive, default=4, metavar="K", help="beam size (default: 4)")
    add("--alpha", type=float, default=0.6, help="the length penalty is n^alpha, which all systems know (default: 0.6)")
    add("--repeats", type=positive, default=3, metavar="N", help="runs of each system (default: 3)")
    add("--threads", type=positive, default=threads, metavar="N", help=f"threads (default: all processors, {threads})")
    add("--systems", type=names_among(SYSTEMS), default=list(SYSTEMS), metavar="NAMES", help=f"of {','.join(SYSTEMS)}")
    add("--work", type=Path, metavar="DIR", help="keep what is made here, and train once (default: a passing folder)")
    add("--json", type=Path, metavar="FILE", help="write the rows here")
    add("--plot", type=Path, metavar="FILE", help="draw them here")
    command.set_defaults(run=generate)
    benchmark_train.add_command(commands)
    return parser


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run the command; returns its exit status."""
    args = build_parser().parse_args(argv)
    return run_command("vaswani-benchmark", lambda: args.run(args))


if __name__ == "__main__":
    sys.exit(main())
