"""``vaswani-curves``: loss, perplexity and learning rate of one or more training logs as a picture.

Reads what the toolkit prints with ``--log-format json`` or ``simple``: lines marked ``train_inner`` (every
``--log-interval`` updates), ``train`` (each epoch) and ``valid``. Losses are in bits, as the toolkit logs them.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Dict, List, Optional, Sequence, Tuple

from vaswani_plugin.tools.cli import CommandError, help_texts, read_lines, refuse_overwriting, run_command
from vaswani_plugin.tools.pictures import plain, pyplot, save_figure

Points = List[Tuple[float, float]]
PANELS = (("loss", "loss (bits)"), ("ppl", "perplexity"), ("lr", "learning rate"))
_MARKED = re.compile(r"\| INFO \| (train_inner|train|valid)\S* \| (.*)")
_PAIR = re.compile(r"(\w+)[= ]\s*(-?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)(?=\s*[,|]|\s*$)", re.IGNORECASE)


@dataclass
class Run:
    """The curves of one log.

    Attributes:
        label: its name in the legend.
        curves: (``"train"`` or ``"valid"``, quantity) to (update, value) in the order of updates.
    """

    label: str
    curves: Dict[Tuple[str, str], Points] = field(default_factory=dict)

    def add(self, part: str, values: Dict[str, float]) -> None:
        """Add the numbers of one line; without a number of updates it has no place in a curve."""
        update = values.get("num_updates")
        if update is None or not math.isfinite(update):
            return
        for quantity, _ in PANELS:
            value = values.get(quantity)
            if value is not None and math.isfinite(value) and not (part == "valid" and quantity == "lr"):
                self.curves.setdefault((part, quantity), []).append((update, value))


def parse_line(line: str) -> Optional[Tuple[str, Dict[str, float]]]:
    """Return which part a log line is about (train_inner, train or valid) and its numbers, or None for other lines."""
    match = _MARKED.search(line)
    if match is None:
        return None
    part, rest = match.group(1), match.group(2).strip()
    if rest.startswith("{"):
        return part, _numbers_of_json(rest, part)
    return part, {name: float(text) for name, text in _PAIR.findall(rest)}


def _numbers_of_json(text: str, part: str) -> Dict[str, float]:
    """Return the numbers of a JSON line, which the toolkit writes as strings with the part before their names."""
    try:
        entries = json.loads(text)
    except ValueError:
        return {}
    numbers = {}
    for name, value in entries.items():
        try:
            numbers[name[len(part) + 1 :] if name.startswith(f"{part}_") else name] = float(value)
        except (TypeError, ValueError):
            continue
    return numbers


def read_run(path: Path, label: str) -> Run:
    """Read a log; where lines of single updates exist, the training curve is theirs, else that of the epochs.

    A log that was appended to by a resumed run may hold an update twice; the later one counts.

    Raises:
        CommandError: the file is missing or holds no curve.
    """
    parts: Dict[str, Run] = {name: Run(label) for name in ("train_inner", "train", "valid")}
    for line in read_lines(path):
        parsed = parse_line(line)
        if parsed is not None:
            parts[parsed[0]].add("valid" if parsed[0] == "valid" else "train", parsed[1])
    training = parts["train_inner"] if parts["train_inner"].curves else parts["train"]
    run = Run(label)
    for key, points in {**training.curves, **parts["valid"].curves}.items():
        run.curves[key] = sorted(dict(points).items())
    if not run.curves:
        raise CommandError(
            f"{path}: no training numbers; it needs lines of fairseq-train with --log-format json or simple"
        )
    return run


def draw(runs: Sequence[Run], output: Path) -> None:
    """Draw one panel a quantity, one colour a run, training thin and validation with dots.

    Raises:
        CommandError: matplotlib is not installed, or it does not know the output's suffix.
    """
    figure, axes = pyplot().subplots(1, len(PANELS), figsize=(5 * len(PANELS), 4), constrained_layout=True)
    for axis, (quantity, title) in zip(axes, PANELS):
        for number, run in enumerate(runs):
            _draw_run(axis, run, quantity, f"C{number % 10}")
        axis.set_title(title)
        axis.set_xlabel("updates")
        axis.grid(alpha=0.3)
        if quantity == "ppl" and axis.has_data():
            axis.set_yscale("log")
        if axis.get_legend_handles_labels()[0]:
            axis.legend(fontsize="small")
    save_figure(figure, output)


def _draw_run(axis: object, run: Run, quantity: str, colour: str) -> None:
    for part, style in (("train", {"linewidth": 0.9, "alpha": 0.6}), ("valid", {"marker": ".", "linewidth": 1.4})):
        points = run.curves.get((part, quantity))
        if points:
            name = plain(run.label)
            label = name if quantity == "lr" else f"{name} {part}"
            axis.plot([x for x, _ in points], [y for _, y in points], color=colour, label=label, **style)  # type: ignore[attr-defined]


def build_parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    parser = argparse.ArgumentParser(prog="vaswani-curves", description=help_texts(__doc__)[0])
    parser.add_argument("logs", nargs="+", type=Path, metavar="LOG", help="what fairseq-train printed")
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="the picture, such as curves.png")
    parser.add_argument("--labels", nargs="+", metavar="NAME", help="a name for each log (default: the files' names)")
    return parser


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run the command; returns its exit status."""
    parser = build_parser()
    args = parser.parse_args(argv)
    labels = args.labels or [path.stem for path in args.logs]
    if len(labels) != len(args.logs):
        parser.error(f"--labels names {len(labels)} runs but there are {len(args.logs)} logs")

    def body() -> None:
        refuse_overwriting(args.output, args.logs)
        runs = [read_run(path, label) for path, label in zip(args.logs, labels)]
        draw(runs, args.output)
        for run in runs:
            print(f"{run.label}: {summary(run)}")

    return run_command("vaswani-curves", body)


def summary(run: Run) -> str:
    """Return a run's last values in words."""
    words = []
    for (part, quantity), points in sorted(run.curves.items()):
        update, value = points[-1]
        words.append(f"{part} {quantity} {value:g} at update {update:g}")
    return ", ".join(words)


if __name__ == "__main__":
    sys.exit(main())
