"""The results of a benchmark as a table, as JSON and as a picture."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

from vaswani_plugin.tools.cli import atomic_path
from vaswani_plugin.tools.pictures import pyplot, save_figure
from vaswani_plugin.tools.tables import text_table

Row = Dict[str, Any]
COLUMNS: Tuple[Tuple[str, str, str], ...] = (
    ("system", "system", ""),
    ("precision", "precision", ""),
    ("tokens/s", "tokens_per_second", ".0f"),
    ("sentences/s", "sentences_per_second", ".1f"),
    ("ratio", "ratio", ".2f"),
    ("CPU ratio", "cpu_ratio", ".2f"),
    ("peak MiB", "peak_mib", ".0f"),
    ("translating MiB", "translating_mib", ".0f"),
    ("equal", "equal", ".1%"),
    ("BLEU", "bleu", ".2f"),
)


def summarise(
    system: str, precision: str, config: str, runs: Sequence[Dict[str, Any]], references: Optional[List[str]]
) -> Row:
    """The medians of a system's runs, with its translations for ``compare``.

    Args:
        runs: what the worker answered: "seconds", "cpu_seconds", "peak_mib", "translating_mib", "translations" (lists
            of tokens) and "texts" (the same as words).
        references: to score the translations against, or None.
    """
    translations = runs[-1]["translations"]
    seconds = statistics.median(run["seconds"] for run in runs)
    return {
        "system": system,
        "precision": precision,
        "config": config,
        "tokens_per_second": sum(map(len, translations)) / seconds,
        "sentences_per_second": len(translations) / seconds,
        "seconds": [run["seconds"] for run in runs],
        "cpu_seconds": [run["cpu_seconds"] for run in runs],
        "peak_mib": max(run["peak_mib"] for run in runs),
        "translating_mib": runs[-1]["translating_mib"],
        "tokens": sum(map(len, translations)),
        "bleu": None if references is None else bleu(runs[-1]["texts"], references),
        "translations": translations,
    }


def bleu(translations: List[str], references: List[str]) -> float:
    """sacreBLEU with its defaults."""
    import sacrebleu

    return float(sacrebleu.corpus_bleu(translations, [references]).score)


def compare(rows: List[Row]) -> None:
    """Give every row its ratios to the toolkit and the share of translations that equal the toolkit's, or None."""
    base = next((row for row in rows if row["system"] == "fairseq"), None)
    for row in rows:
        row["ratio"] = row["cpu_ratio"] = row["equal"] = None
        if base is not None:
            row["ratio"] = row["tokens_per_second"] / base["tokens_per_second"]
            row["cpu_ratio"] = per_cpu_second(row) / per_cpu_second(base)
            pairs = list(zip(row["translations"], base["translations"]))
            row["equal"] = sum(one == other for one, other in pairs) / len(pairs)
    for row in rows:
        del row["translations"]


def per_cpu_second(row: Row) -> float:
    """Tokens in a second of all processors together, which other work on the machine disturbs less."""
    tokens: float = row["tokens"]
    return tokens / statistics.median(row["cpu_seconds"])


def table(rows: Sequence[Row], columns: Sequence[Tuple[str, str, str]] = COLUMNS) -> str:
    """The rows as text, without columns that nobody fills.

    Args:
        columns: title, key of a row, and format of each column.
    """
    columns = [column for column in columns if any(row.get(column[1]) is not None for row in rows)]
    cells = [[title for title, _, _ in columns]]
    for row in rows:
        cells.append(["" if row[key] is None else format(row[key], style) for _, key, style in columns])
    return text_table(cells, n_left=sum(not style for _, _, style in columns))


def write_json(rows: Sequence[Row], path: Path) -> None:
    """The rows as a list of objects."""
    with atomic_path(path) as partial:
        partial.write_text(json.dumps(list(rows), indent=1) + "\n", encoding="utf-8")


def draw(rows: Sequence[Row], title: str, path: Path) -> None:
    """A bar a system, with its ratio to the toolkit.

    Raises:
        CommandError: matplotlib is not installed, or it does not know the picture's suffix.
    """
    figure, axis = pyplot().subplots(figsize=(8, 1 + 0.5 * len(rows)), constrained_layout=True)
    names = [f"{row['system']} {row['precision']}" for row in rows]
    colours = ["C1" if row["system"] == "vaswani_plugin" else "C0" for row in rows]
    bars = axis.barh(names, [row["tokens_per_second"] for row in rows], color=colours)
    axis.bar_label(bars, ["" if row["ratio"] is None else f"{row['ratio']:.2f} x" for row in rows], padding=3)
    axis.invert_yaxis()
    axis.margins(x=0.12)
    axis.set_xlabel("tokens per second")
    axis.set_title(title, fontsize="medium")
    save_figure(figure, path, "--plot")
