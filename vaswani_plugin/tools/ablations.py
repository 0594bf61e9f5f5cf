"""``vaswani-ablations``: trains and scores the rows of Table 3, and says which of the paper's orderings hold.

    vaswani-ablations data --work ablations --seeds 3                    # every row at full size, on all GPUs
    vaswani-ablations data --work small --cpu --shrink 8 --max-update 2000 --target-batch 4096 -- --warmup-updates 500

DATA is a folder that vaswani-prepare made. Every row is trained with each seed, by vaswani-train, and scored on the
development set with the last checkpoint, as in the paper. --shrink F divides every width by F and leaves the number of
heads, so that the rows keep their proportions; big gets three times --max-update, as in the paper. The command may be
stopped or killed at any time: given again it goes on, and with more rows or seeds it does those. Options after -- go to
fairseq-train, for every row.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

from vaswani_plugin.tools import ablation_report as report
from vaswani_plugin.tools.ablation_rows import SHRINKS, Row, check_shrink, chosen
from vaswani_plugin.tools.ablation_steps import Data, Settings, find_data, finished, steps, train_and_score
from vaswani_plugin.tools.cli import (
    CommandError,
    alone,
    atomic_path,
    help_texts,
    plural,
    positive,
    progress,
    run_command,
    split_at_dashes,
)
from vaswani_plugin.tools.tables import markdown_table, text_table


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of what comes before ``--``."""
    description, rest = help_texts(__doc__)
    parser = argparse.ArgumentParser(
        prog="vaswani-ablations",
        usage="%(prog)s DATA --work DIR [options] [-- OPTIONS OF fairseq-train]",
        description=description,
        epilog=rest,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("data", type=Path, metavar="DATA", help="folder that vaswani-prepare made")
    parser.add_argument("--work", type=Path, required=True, metavar="DIR", help="everything that is made")
    parser.add_argument("--rows", nargs="+", metavar="ROW", help="base, A-h1, ... or a whole block: A (default: all)")
    parser.add_argument("--seeds", type=positive, default=1, metavar="N", help="seeds 1 to N (default: 1)")
    parser.add_argument(
        "--shrink", type=positive, default=1, metavar="F",
        help=f"divide every width by F, one of {', '.join(map(str, SHRINKS))} (default: 1)",
    )  # fmt: skip
    parser.add_argument("--halve-layers", action="store_true", help="half as many layers in every row")
    parser.add_argument("--max-update", type=positive, default=100_000, metavar="N", help="default: %(default)s")
    parser.add_argument(
        "--average", type=positive, default=1, metavar="N", help="mean of the last N epochs (default: none, as Table 3)"
    )
    parser.add_argument("--ref", type=Path, metavar="FILE", help="raw target side of the development set")
    where = parser.add_argument_group("where and how to train, as for vaswani-train")
    where.add_argument("--cpu", action="store_true", help="on the processor")
    where.add_argument("--gpus", type=positive, metavar="N", help="GPUs (default: all)")
    where.add_argument("--target-batch", type=positive, metavar="TOKENS", help="of an update (default: 25000)")
    where.add_argument("--max-tokens", type=positive, metavar="TOKENS", help="that a worker takes at once")
    parser.add_argument("--report", action="store_true", help="train nothing, write the table of what is there")
    parser.add_argument("--dry-run", action="store_true", help="print the commands, start nothing")
    return parser


def settings_of(args: argparse.Namespace, more: Sequence[str]) -> Settings:
    """What all trainings share.

    Raises:
        CommandError: options that are out of range or contradict each other.
    """
    check_shrink(args.shrink)
    if args.cpu and args.gpus:
        raise CommandError("--cpu and --gpus exclude each other")
    place = ["--cpu"] if args.cpu else []
    for name in ("gpus", "target_batch", "max_tokens"):
        if getattr(args, name):
            place += [f"--{name.replace('_', '-')}", str(getattr(args, name))]
    tokens = args.max_tokens or 4096
    return Settings(args.shrink, args.halve_layers, args.max_update, args.average, tokens, place, list(more))


def same_settings(work: Path, settings: Settings, data: Data) -> None:
    """Write down what a work folder's trainings share, or refuse other settings than were written down.

    Raises:
        CommandError: the folder was made with others.
    """
    batch = [word for word in settings.place if word != "--cpu"]
    if "--gpus" in batch:  # where it runs may change, what an update holds may not
        at = batch.index("--gpus")
        del batch[at : at + 2]
    now = {
        "data": str(data.binary.resolve()), "shrink": settings.shrink, "halve_layers": settings.halve_layers,
        "max_update": settings.max_update, "average": settings.average, "batch": batch, "more": list(settings.more),
    }  # fmt: skip
    path = work / "settings.json"
    if path.is_file():
        before = json.loads(path.read_text(encoding="utf-8"))
        other = [f"{name} was {before.get(name)!r}, not {now[name]!r}" for name in now if before.get(name) != now[name]]
        if other:
            raise CommandError(f"{work}: made with other settings: {'; '.join(other)}; choose another --work")
        return
    with atomic_path(path) as partial:
        partial.write_text(json.dumps(now, indent=2) + "\n", encoding="utf-8")


def folder_of(work: Path, name: str, seed: int) -> Path:
    """Where a row's training with one seed lies."""
    return work / name / f"seed{seed}"


def results_in(work: Path, rows: Dict[str, Row]) -> Dict[str, List[Dict[str, Any]]]:
    """What is finished, by row, in the order of the seeds."""
    found: Dict[str, List[Dict[str, Any]]] = {}
    for name in rows:
        done = [finished(folder) for folder in (work / name).glob("seed*")]
        found[name] = sorted((one for one in done if one is not None), key=lambda one: int(one["seed"]))
    return found


def write_report(work: Path, settings: Settings) -> None:
    """Print the table and the orderings; ``table.txt``, ``table.md`` and ``table.json`` hold them too."""
    results = results_in(work, chosen(None))
    done = {name: found for name, found in results.items() if found}
    if not done:
        raise CommandError(f"{work}: no row is finished yet")
    tables = [report.table(done, settings.shrink, settings.halve_layers), report.orderings_table(done)]
    notes = [f"BLEU: {signature}" for signature in report.signatures(done)]
    notes.append(f"{len(done)} of {plural(len(results), 'row')}; the paper's numbers: full size, newstest2013, en-de")
    text = "\n\n".join([*(text_table(table) for table in tables), "\n".join(notes)]) + "\n"
    markdown = "\n\n".join([*(markdown_table(table) for table in tables), "\n".join(notes)]) + "\n"
    plain = json.dumps(report.as_json(done, settings.shrink, settings.halve_layers), indent=2) + "\n"
    for suffix, content in (("txt", text), ("md", markdown), ("json", plain)):
        with atomic_path(work / f"table.{suffix}") as partial:
            partial.write_text(content, encoding="utf-8")
    print(text, end="")


def run(args: argparse.Namespace, more: Sequence[str]) -> None:
    """Train what is missing, and write the table."""
    settings, rows = settings_of(args, more), chosen(args.rows)
    data = find_data(args.data, args.ref)
    jobs = [(name, row, seed) for seed in range(1, args.seeds + 1) for name, row in rows.items()]
    if args.dry_run:
        for name, row, seed in jobs:
            for _, words in steps(row, seed, folder_of(args.work, name, seed), data, settings):
                print(shlex.join(words))
        return
    with alone(args.work / ".lock", f"another vaswani-ablations is at work in {args.work}"):
        same_settings(args.work, settings, data)
        bar = progress([] if args.report else jobs, "Table 3", unit="training")
        for name, row, seed in bar:
            bar.set_postfix_str(f"{name} seed {seed}")
            train_and_score(row, seed, folder_of(args.work, name, seed), data, settings)
        write_report(args.work, settings)


def main(words: Optional[Sequence[str]] = None) -> int:
    """Run the command; returns its exit status."""
    ours, more = split_at_dashes(sys.argv[1:] if words is None else words)
    args = build_parser().parse_args(ours)
    return run_command("vaswani-ablations", lambda: run(args, more))


if __name__ == "__main__":
    sys.exit(main())
