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
        source: per layer the keys (B * H, S, d_k) and values (B * H, S, d_v) of the encoder's output.
        source_mask: what is added to scores over the source, 0 or -inf: (B, 1, 1, S), or None without padding.
        lineage: what is added to scores over the tree, 0 where the node is a hypothesis's own past: (B, W, N).
        length: tokens that each hypothesis has.

    Args:
        source: per layer keys (B, H, S, d_k) and values (B, H, S, d_v).
        source_forbidden: bool (B, 1, 1, S), or None.
    """

    def __init__(self, source: List[KeysValues], source_forbidden: Optional[Tensor]) -> None:
        keys = source[0][0]
        self.n_heads = keys.size(1)
        self.source = [(keys.flatten(0, 1), values.flatten(0, 1)) for keys, values in source]
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
            All of the layer's keys (B * H, N, d_k) and values (B * H, N, d_v), as views.
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
        return held[0].flatten(0, 1)[:, :n_nodes], held[1].flatten(0, 1)[:, :n_nodes]

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
            self._select_source(sentences)
        if sentences is not None or self.length >= self._clearance:
            self._clear(sentences)

    def _select_source(self, sentences: Tensor) -> None:
        heads = (sentences[:, None] * self.n_heads + torch.arange(self.n_heads, device=sentences.device)).flatten()
        self.source = [(keys.index_select(0, heads), values.index_select(0, heads)) for keys, values in self.source]
        if self.source_mask is not None:
            self.source_mask = self.source_mask.index_select(0, sentences)

    def _clear(self, sentences: Optional[Tensor]) -> None:
        """Keep the given sentences, and of their nodes those from which some hypothesis descends."""
        self._clearance = self.length + CLEARANCE_INTERVAL
        alive = self.lineage.eq(0).any(dim=1)  # (B', N)
        n_alive = int(alive.sum(dim=1).max()) if alive.numel() else 0
        order = alive.byte().argsort(dim=1, descending=True, stable=True)[:, :n_alive]  # the oldest first
        self.lineage = self.lineage.gather(2, order[:, None].expand(*self.lineage.shape[:2], n_alive))
        if sentences is None:
            sentences = torch.arange(order.size(0), device=order.device)
        heads = sentences[:, None] * self.n_heads + torch.arange(self.n_heads, device=order.device)  # (B', H)
        for layer, held in enumerate(self._nodes):
            if held is not None:
                self._nodes[layer] = (_picked(held[0], heads, order), _picked(held[1], heads, order))


def _additive(forbidden: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.zeros_like(forbidden, dtype=dtype).masked_fill_(forbidden, -math.inf)


def _room(like: Tensor, room: int) -> Tensor:
    """An empty buffer (B, H, room, d) for tensors like (B, H, W, d)."""
    return like.new_empty(like.size(0), like.size(1), room, like.size(3))


def _grown(old: Tensor, used: int, room: int) -> Tensor:
    new = _room(old, room)
    new[:, :, :used] = old[:, :, :used]
    return new


def _picked(old: Tensor, heads: Tensor, order: Tensor) -> Tensor:
    """From a buffer (B, H, room, d) the given heads of all sentences, (B', H), and their nodes in order, (B', N')."""
    rows = (heads[:, :, None] * old.size(2) + order[:, None]).flatten()
    n_nodes = order.size(1)
    new = old.new_empty(*heads.shape, max(64, n_nodes + n_nodes // 2), old.size(3))
    new[:, :, :n_nodes] = old.flatten(0, 2).index_select(0, rows).view(*heads.shape, n_nodes, old.size(3))
    return new
