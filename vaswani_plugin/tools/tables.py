"""Tables as aligned text and as Markdown."""

from __future__ import annotations

from typing import List, Sequence

Row = Sequence[str]


def text_table(rows: Sequence[Row], n_left: int = 1) -> str:
    """Rows of equally many cells as lines; the first ``n_left`` columns are set left, the others right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines: List[str] = []
    for row in rows:
        left = [cell.ljust(width) for cell, width in zip(row[:n_left], widths)]
        right = [cell.rjust(width) for cell, width in zip(row[n_left:], widths[n_left:])]
        lines.append("  ".join([*left, *right]).rstrip())
    return "\n".join(lines)


def markdown_table(rows: Sequence[Row]) -> str:
    """The same as Markdown; the first row is the head."""
    head, *body = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    lines = [head, ["---"] * len(head), *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
