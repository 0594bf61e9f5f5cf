"""``vaswani-schedule``: the paper's learning rate for widths and warm-ups, as a table and as a picture.

``d_model^-0.5 * min(step^-0.5, step * warmup^-1.5)`` (section 5.3), with steps counted from 1. Several values of
``--d-model`` and ``--warmup`` give every combination.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Dict, List, Optional, Sequence

from vaswani_plugin.schedule import inverse_sqrt_learning_rate, peak_learning_rate
from vaswani_plugin.tools.cli import CommandError, atomic_path, help_texts, run_command
from vaswani_plugin.tools.pictures import pyplot, save_figure
from vaswani_plugin.tools.tables import text_table

PLOT_POINTS = 600


@dataclass(frozen=True)
class Schedule:
    """The schedule of one model: its width, its updates of warm-up, and its greatest rate."""

    d_model: int
    warmup: int
    peak: float

    def rate(self, step: int) -> float:
        """The learning rate of an update, counted from 1."""
        return inverse_sqrt_learning_rate(step, self.peak, self.warmup)

    def name(self) -> str:
        """The schedule in words."""
        return f"d_model {self.d_model}, warm-up {self.warmup}"


def schedules(widths: Sequence[int], warmups: Sequence[int], peak: Optional[float]) -> List[Schedule]:
    """Every combination of widths and warm-ups.

    Args:
        peak: the greatest rate, instead of the paper's.

    Raises:
        CommandError: a value out of range.
    """
    if peak is not None and not peak > 0:
        raise CommandError(f"--lr must be above 0, but is {peak:g}")
    try:
        return [
            Schedule(width, warmup, peak_learning_rate(width, warmup) if peak is None else peak)
            for width in dict.fromkeys(widths)
            for warmup in dict.fromkeys(warmups)
        ]
    except ValueError as error:
        raise CommandError(str(error)) from error


def usual_steps(chosen: Sequence[Schedule], last: int) -> List[int]:
    """The steps that a table shows where nobody names some: the first, around each peak, and on to the last."""
    steps = {1, last}
    for schedule in chosen:
        warmup = max(schedule.warmup, 1)
        steps |= {max(warmup // 4, 1), max(warmup // 2, 1), warmup, 2 * warmup, 4 * warmup}
    return sorted(step for step in steps if step <= last)


def table(chosen: Sequence[Schedule], steps: Sequence[int]) -> str:
    """The rates, a row a step and a column a schedule; the head says width, warm-up and peak."""
    rows = [["d_model", *(str(one.d_model) for one in chosen)], ["warm-up", *(str(one.warmup) for one in chosen)]]
    rows.append(["peak", *(f"{one.peak:.3e}" for one in chosen)])
    rows += [[f"step {step}", *(f"{one.rate(step):.3e}" for one in chosen)] for step in steps]
    return text_table(rows)


def plot_steps(chosen: Sequence[Schedule], last: int) -> List[int]:
    """Steps, evenly spaced from 1 to the last, and every peak among them."""
    even = {1 + round(i * (last - 1) / (PLOT_POINTS - 1)) for i in range(PLOT_POINTS)}
    return sorted(even | {one.warmup for one in chosen if 1 <= one.warmup <= last})


def draw(chosen: Sequence[Schedule], last: int, output: Path) -> None:
    """Draw the schedules up to the last step.

    Raises:
        CommandError: matplotlib is not installed, or it does not know the output's suffix.
    """
    figure, axis = pyplot().subplots(figsize=(7.5, 4.5), constrained_layout=True)
    steps = plot_steps(chosen, last)
    for schedule in chosen:
        axis.plot(steps, [schedule.rate(step) for step in steps], label=schedule.name(), linewidth=1.5)
    axis.set_xlabel("update")
    axis.set_ylabel("learning rate")
    axis.set_xlim(0, last)
    axis.set_ylim(bottom=0)
    axis.ticklabel_format(axis="y", scilimits=(-2, 2))
    axis.grid(alpha=0.3)
    axis.legend(fontsize="small")
    save_figure(figure, output, "--plot")


def as_json(chosen: Sequence[Schedule], steps: Sequence[int]) -> List[Dict[str, object]]:
    """The table as plain values."""
    return [{**asdict(one), "rates": {str(step): one.rate(step) for step in steps}} for one in chosen]


def build_parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    description, rest = help_texts(__doc__)
    parser = argparse.ArgumentParser(prog="vaswani-schedule", description=description, epilog=rest)
    parser.add_argument(
        "--d-model", type=int, nargs="+", default=[512, 1024], metavar="D", help="widths (default: 512 1024)"
    )
    parser.add_argument("--warmup", type=int, nargs="+", default=[4000], metavar="W", help="updates (default: 4000)")
    parser.add_argument("--lr", type=float, metavar="PEAK", help="the greatest rate, instead of the paper's")
    parser.add_argument("--last", type=int, metavar="STEP", help="where table and picture end (default: 5 x warm-up)")
    parser.add_argument("--steps", type=int, nargs="+", metavar="STEP", help="the steps in the table")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw there, such as schedule.png or .svg")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the table there too")
    return parser


def run(args: argparse.Namespace) -> None:
    """Print the table, and write what was asked for."""
    chosen = schedules(args.d_model, args.warmup, args.lr)
    for option, values in (("--last", [] if args.last is None else [args.last]), ("--steps", args.steps or [])):
        if any(value < 1 for value in values):
            raise CommandError(f"{option}: updates are counted from 1, but one is {min(values)}")
    last = args.last or max([5 * max(args.warmup), *(args.steps or []), 100])
    steps = sorted(set(args.steps)) if args.steps else usual_steps(chosen, last)
    print(table(chosen, steps))
    if args.json is not None:
        with atomic_path(args.json) as partial:
            partial.write_text(json.dumps(as_json(chosen, steps), indent=2) + "\n", encoding="utf-8")
    if args.plot is not None:
        draw(chosen, last, args.plot)


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run the command; returns its exit status."""
    args = build_parser().parse_args(argv)
    return run_command("vaswani-schedule", lambda: run(args))


if __name__ == "__main__":
    sys.exit(main())
