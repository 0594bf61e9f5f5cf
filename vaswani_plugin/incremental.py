"""What decoding one token at a time remembers: the source's keys and values, and those of every hypothesis's past.

The hypotheses of a beam have most of their past in common: the tokens of a sentence's hypotheses form a tree. Here the
keys and values of each node are kept once, and a mask says which nodes a hypothesis descends from. A hypothesis that
continues another one therefore moves no keys and no values, and one matrix product serves all hypotheses of a sentence.
Every few steps the nodes that no hypothesis descends from are thrown out.

Shapes: B sentences, W hypotheses of each, N nodes of a sentence's tree, H heads, S source tokens.
"""

from __future__ import annotations

import math
from typing import List, Optional, Tuple

import torch
from torch import Tensor

KeysValues = Tuple[Tensor, Tensor]

#: Steps between two clearances. A dead node costs time in every step until then, a clearance copies all that is alive.
CLEARANCE_INTERVAL = 8


class DecodingState:
    """The state of an incremental decoder, for B sentences with W hypotheses each.

    Fields:
        source: per layer the keys (B, H, S, d_k) and values (B, H, S, d_v) of the encoder's output.
        source_mask: what is added to scores over the source, 0 or -inf: (B, 1, 1, S), or None without padding.
        lineage: what is added to scores over the tree, 0 where the node is a hypothesis's own past: (B, W, N).
        length: tokens that each hypothesis has.

    Args:
        source: per layer keys (B, H, S, d_k) and values (B, H, S, d_v).
        source_forbidden: bool (B, 1, 1, S), or None.
    """

    def __init__(self, source: List[KeysValues], source_forbidden: Optional[Tensor]) -> None:
        self.source = [(keys.contiguous(), values.contiguous()) for keys, values in source]
        keys = self.source[0][0]
        self.source_mask = None if source_forbidden is None else _additive(source_forbidden, keys.dtype)
        self.lineage = keys.new_zeros(keys.size(0), 1, 0)
        self.length = 0
        self._nodes: List[Optional[KeysValues]] = [None] * len(source)  # (B, H, room, d) each
        self._clearance = CLEARANCE_INTERVAL

    def begin_step(self, n_rows: int) -> None:
        """Give each of B * W hypotheses a new node, which the layers then fill by ``append``.

        Raises:
            ValueError: the number of rows is not that of the hypotheses.
        """
        n_sentences, width, n_nodes = self.lineage.shape
        if n_nodes == 0 and n_rows % n_sentences == 0:
            width = n_rows // n_sentences
            self.lineage = self.lineage.expand(n_sentences, width, 0)
        if n_rows != n_sentences * width:
            raise ValueError(
                f"there are {n_sentences} sentences with {width} hypotheses each, but {n_rows} tokens to add"
            )
        itself = self.lineage.new_full((width, width), -math.inf).fill_diagonal_(0.0)
        self.lineage = torch.cat((self.lineage, itself.expand(n_sentences, width, width)), dim=2)
        self.length += 1

    def append(self, layer: int, keys: Tensor, values: Tensor) -> KeysValues:
        """Fill a layer's newest nodes with keys (B, W, H, d_k) and values (B, W, H, d_v).

        Returns:
            All of the layer's keys (B, H, N, d_k) and values (B, H, N, d_v), as views.
        """
        n_nodes = self.lineage.size(2)
        start = n_nodes - keys.size(1)
        held = self._nodes[layer]
        if held is None:
            room = max(64, n_nodes)
            held = (_room(keys.transpose(1, 2), room), _room(values.transpose(1, 2), room))
        elif n_nodes > held[0].size(2):
            held = (_grown(held[0], start, 2 * n_nodes), _grown(held[1], start, 2 * n_nodes))
        self._nodes[layer] = held
        for buffer, new in zip(held, (keys, values)):
            buffer[:, :, start:n_nodes] = new.transpose(1, 2)
        return held[0][:, :, :n_nodes], held[1][:, :, :n_nodes]

    def select(self, parents: Tensor, sentences: Optional[Tensor] = None) -> None:
        """Let hypothesis w of sentence b continue hypothesis ``parents[b, w]`` of the same sentence.

        Args:
            parents: int64 (B', W').
            sentences: which sentences go on, int64 (B',), repeated or left out as one likes; None for all in order.
        """
        lineage = self.lineage if sentences is None else self.lineage.index_select(0, sentences)
        n_sentences, width, n_nodes = lineage.shape
        starts = torch.arange(0, n_sentences * width, width, device=parents.device)
        rows = (starts[:, None] + parents).flatten()
        self.lineage = lineage.flatten(0, 1).index_select(0, rows).view(*parents.shape, n_nodes)
        if sentences is not None:
            self._keep(sentences)
        if self.length >= self._clearance:
            self._clear()

    def _keep(self, sentences: Tensor) -> None:
        """Let row b hold what row ``sentences[b]`` holds."""
        n_nodes = self.lineage.size(2)
        self.source = [(_rows(keys, sentences), _rows(values, sentences)) for keys, values in self.source]
        if self.source_mask is not None:
            self.source_mask = _rows(self.source_mask, sentences)
        for layer, held in enumerate(self._nodes):
            if held is not None:
                self._nodes[layer] = (_rows(held[0], sentences, n_nodes), _rows(held[1], sentences, n_nodes))

    def _clear(self) -> None:
        """Throw out the nodes from which no hypothesis descends."""
        self._clearance = self.length + CLEARANCE_INTERVAL
        alive = self.lineage.eq(0).any(dim=1)  # (B, N)
        n_alive = int(alive.sum(dim=1).max()) if alive.numel() else 0
        if n_alive == alive.size(1):
            return
        order = alive.byte().argsort(dim=1, descending=True, stable=True)[:, :n_alive]  # the oldest first
        self.lineage = self.lineage.gather(2, order[:, None].expand(*self.lineage.shape[:2], n_alive))
        for layer, held in enumerate(self._nodes):
            if held is not None:
                self._nodes[layer] = (_picked(held[0], order), _picked(held[1], order))


def _additive(forbidden: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.zeros_like(forbidden, dtype=dtype).masked_fill_(forbidden, -math.inf)


def _room(like: Tensor, room: int) -> Tensor:
    """An empty buffer (B, H, room, d) for tensors like (B, H, W, d)."""
    return like.new_empty(like.size(0), like.size(1), room, like.size(3))


def _grown(old: Tensor, used: int, room: int) -> Tensor:
    new = _room(old, room)
    new[:, :, :used] = old[:, :, :used]
    return new


def _rows(tensor: Tensor, rows: Tensor, n_nodes: Optional[int] = None) -> Tensor:
    """``tensor[rows]``, of which in place only what changes its place is moved.

    Args:
        tensor: (B, ...), overwritten.
        n_nodes: where it is a buffer (B, H, room, d), how many nodes of it hold.
    """
    if rows.numel() > tensor.size(0):
        return tensor.index_select(0, rows)
    places = (rows != torch.arange(rows.numel(), device=rows.device)).nonzero().squeeze(1)
    held = tensor if n_nodes is None else tensor[:, :, :n_nodes]
    if places.numel():
        held[places] = held[rows[places]]
    return tensor[: rows.numel()]


def _picked(old: Tensor, order: Tensor) -> Tensor:
    """From a buffer (B, H, room, d) each sentence's nodes in the given order, (B, N')."""
    n_sentences, n_heads, room, width = old.shape
    heads = torch.arange(0, n_sentences * n_heads * room, room, device=old.device).view(n_sentences, n_heads, 1)
    n_nodes = order.size(1)
    new = _room(old, max(64, n_nodes + n_nodes // 2))
    picked = old.flatten(0, 2).index_select(0, (heads + order[:, None]).flatten())
    new[:, :, :n_nodes] = picked.view(n_sentences, n_heads, n_nodes, width)
    return new
