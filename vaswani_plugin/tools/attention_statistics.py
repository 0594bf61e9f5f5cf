"""Which head does what: a few numbers for each, over one sentence.

Shapes: L layers, H heads, Q queries, K keys.
"""

from __future__ import annotations

from typing import Dict, List, Optional

import torch
from torch import Tensor

from vaswani_plugin.tools.attention_maps import View
from vaswani_plugin.tools.tables import text_table

#: What the numbers mean, in the order of the columns.
MEANINGS: Dict[str, str] = {
    "distance": "how many positions away a query looks, on average",
    "entropy": "of a row, in nats, on average; 0 is one key alone, ln n is n keys alike",
    "previous": "weight on the key one position before the query",
    "next": "weight on the key one position after the query",
    "same": "weight on the key at the query's own position",
    "final": "weight on the last key",
}
_OFFSETS = {"previous": -1, "next": 1, "same": 0}
Numbers = Dict[str, Optional[float]]


def head_statistics(weights: Tensor) -> Numbers:
    """The numbers of one head, weights float (Q, K), each a mean over queries.

    Positions are counted from the start on either side, also where queries and keys are different sentences. A weight
    on a neighbour is the mean over the queries that have that neighbour; None where no query has one.
    """
    table = weights.double()
    n_queries, n_keys = table.shape
    away = (torch.arange(n_queries)[:, None] - torch.arange(n_keys)[None, :]).abs()
    numbers: Numbers = {
        "distance": float((table * away).sum(dim=1).mean()),
        "entropy": float(-torch.special.xlogy(table, table).sum(dim=1).mean()) + 0.0,
    }
    for name, offset in _OFFSETS.items():
        diagonal = table.diagonal(offset)
        numbers[name] = float(diagonal.mean()) if len(diagonal) else None
    numbers["final"] = float(table[:, -1].mean())
    return numbers


def statistics(view: View) -> List[List[Numbers]]:
    """The numbers of every layer's every head."""
    return [[head_statistics(head) for head in layer] for layer in view.weights]


def number(value: Optional[float]) -> str:
    """A number of the table; a dash where there is none."""
    return "-" if value is None else f"{value:.3f}"


def table(view: View, layers: List[int], heads: List[int]) -> str:
    """The numbers of some layers and heads (indices from 0) as lines of text."""
    rows = [["layer", "head", *MEANINGS]]
    for layer in layers:
        for head in heads:
            numbers = head_statistics(view.weights[layer, head])
            rows.append([str(layer + 1), str(head + 1), *(number(numbers[name]) for name in MEANINGS)])
    return f"{view.kind} attention\n{text_table(rows, n_left=0)}"
