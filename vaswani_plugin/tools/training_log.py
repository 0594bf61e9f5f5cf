"""How much a training has seen, from what the toolkit printed (``--log-format json`` or ``simple``).

A ``train`` line ends an epoch and gives its mean target tokens (``wpb``) and sentences (``bsz``) of an update. Updates
after the last one are taken from ``train_inner`` lines. The toolkit rounds ``wpb`` to a tenth.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Dict, List, Optional

from vaswani_plugin.tools.cli import CommandError, read_lines
from vaswani_plugin.tools.curves import parse_line


@dataclass(frozen=True)
class Seen:
    """Totals over a training.

    Attributes:
        updates: of the model.
        target_tokens: with end symbols, without padding.
        sentences: sentence pairs, None where it is not known.
        seconds: of training, None where it is not known.
    """

    updates: int
    target_tokens: float
    sentences: Optional[float]
    seconds: Optional[float]


def tokens_seen(path: Path) -> Seen:
    """Add up a log; of an update that a resumed run has made anew the later one counts.

    Raises:
        CommandError: the file is missing, or tells nothing of this.
    """
    lines: Dict[str, Dict[int, Dict[str, float]]] = {"train": {}, "train_inner": {}}
    for line in read_lines(path):
        parsed = parse_line(line)
        if parsed is not None and parsed[0] in lines and {"num_updates", "wpb"} <= parsed[1].keys():
            lines[parsed[0]][int(parsed[1]["num_updates"])] = parsed[1]
    epochs = [lines["train"][update] for update in sorted(lines["train"])]
    end = epochs[-1]["num_updates"] if epochs else 0
    rest = [lines["train_inner"][update] for update in sorted(lines["train_inner"]) if update > end]
    if not epochs + rest:
        raise CommandError(
            f"{path}: no tokens of training; it needs lines of fairseq-train with --log-format json or simple"
        )
    return _add_up(epochs + rest)


def _add_up(entries: List[Dict[str, float]]) -> Seen:
    tokens, sentences, before = 0.0, 0.0, 0
    for entry in entries:
        updates = int(entry["num_updates"]) - before
        tokens += updates * entry["wpb"]
        sentences += updates * entry.get("bsz", 0.0)
        before += updates
    return Seen(before, tokens, sentences or None, entries[-1].get("wall"))
