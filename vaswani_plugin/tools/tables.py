"""Tables as aligned text and as Markdown."""

from __future__ import annotations

from typing import List, Sequence

Row = Sequence[str]


def text_table(rows: Sequence[Row]) -> str:
    """Rows of equally many cells as lines; the first column is set left, the others right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines: List[str] = []
    for row in rows:
        others = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:])]
        lines.append("  ".join([row[0].ljust(widths[0]), *others]).rstrip())
    return "\n".join(lines)


def markdown_table(rows: Sequence[Row]) -> str:
    """The same as Markdown; the first row is the head."""
    head, *body = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    lines = [head, ["---"] * len(head), *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
