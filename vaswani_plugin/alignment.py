"""Which source token each target token looks at: the toolkit's ``--print-alignment`` and ``--replace-unk``.

The toolkit prints an alignment entry by entry, and finds the source word for unknown target word i as
``words[alignment[i]]``; entries that can be printed and that also count as an index serve both.

Shapes: T target tokens, S source tokens, neither with padding.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, NamedTuple

import torch
from torch import Tensor


class Link(NamedTuple):
    """Target token ``target`` looks most at source token ``source``; as an index it is the latter."""

    source: int
    target: int

    def __index__(self) -> int:
        return self.source


class Weights(List[str]):
    """How much a target token looks at every source token, as text; as an index it is where it looks most."""

    best: int = 0

    def __index__(self) -> int:
        return self.best


def hard_alignment(attention: Tensor, source_ends: Tensor, target_ends: Tensor) -> List[Link]:
    """For each target token but the end symbol the source token, but for the end symbol, that it looks most at.

    Args:
        attention: float (T, S).
        source_ends, target_ends: bool (S,) and (T,), where the end symbols are.

    Returns:
        Nothing when the source is nothing but its end symbol.
    """
    targets = (~target_ends).nonzero().squeeze(1)
    if bool(source_ends.all()):
        return []
    best = attention.masked_fill(source_ends, -1.0).argmax(dim=1)
    return [Link(source, target) for source, target in torch.stack((best[targets], targets), dim=1).tolist()]


def soft_alignment(attention: Tensor, source_ends: Tensor, target_ends: Tensor) -> List[Weights]:
    """For every target token, the end symbol included, its weights over all source tokens; they sum to 1.

    Args:
        attention: float (T, S).
        source_ends, target_ends: bool (S,) and (T,), where the end symbols are.
    """
    rows = []
    best = attention.masked_fill(source_ends & ~source_ends.all(), -1.0).argmax(dim=1).tolist()
    for i, weights in enumerate(attention.tolist()):
        row = Weights(f"{weight:.6f}" for weight in weights)
        row.best = best[i]
        rows.append(row)
    return rows


ALIGNMENTS: Dict[str, Callable[[Tensor, Tensor, Tensor], List[Any]]] = {"hard": hard_alignment, "soft": soft_alignment}
