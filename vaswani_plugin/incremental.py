"""What decoding one token at a time remembers: the source's keys and values, and those of every hypothesis's past.

The hypotheses of a beam have most of their past in common: the tokens of a sentence's hypotheses form a tree. Here the
keys and values of each node are kept once, and a mask says which nodes a hypothesis descends from. A hypothesis that
continues another one therefore moves no keys and no values, and one matrix product serves all hypotheses of a sentence.
Every few steps the nodes that no hypothesis descends from are thrown out, and room is made for new ones.

Shapes: B sentences, W hypotheses of each, N nodes that a sentence's tree has room for, H heads, S source tokens.
"""

from __future__ import annotations

import math
from typing import List, Optional, Tuple

import torch
from torch import Tensor

KeysValues = Tuple[Tensor, Tensor]

#: Steps that room is made for. Nodes that are empty or dead cost time in every step, making room copies the others.
STEPS_AHEAD = 8
#: Room comes in multiples of this, since the processor's kernels are made anew for every new size.
ROOM_MULTIPLE = 32


class DecodingState:
    """The state of an incremental decoder, for B sentences with W hypotheses each.

    Fields:
        source: per layer the keys (B, H, d_k, S), transposed, and values (B, H, S, d_v) of the encoder's output. Few
            queries are multiplied faster with keys that lie like this.
        source_mask: what is added to scores over the source, 0 or -inf: (B, 1, 1, S), or None without padding.
        lineage: what is added to scores over the tree: 0 where a node is a hypothesis's own past, -inf where it is
            another one's or still empty; (B, W, N).
        length: tokens that each hypothesis has.

    Args:
        source: per layer keys (B, H, S, d_k) and values (B, H, S, d_v).
        source_forbidden: bool (B, 1, 1, S), or None.
        dtype: in which the keys and values of the tree are kept; by default that of the source's.
    """

    def __init__(
        self, source: List[KeysValues], source_forbidden: Optional[Tensor], dtype: Optional[torch.dtype] = None
    ) -> None:
        first = source[0][0]
        self.source = [(keys.transpose(2, 3).contiguous(), values.contiguous()) for keys, values in source]
        self.source_mask: Optional[Tensor] = None
        if source_forbidden is not None:
            zeros = torch.zeros_like(source_forbidden, dtype=first.dtype)
            self.source_mask = zeros.masked_fill_(source_forbidden, -math.inf)
        self.lineage = torch.empty(first.size(0), 1, 0, dtype=dtype or first.dtype, device=first.device)
        self.length = 0
        self._n_nodes = 0  # those that are filled
        self._nodes: List[Optional[KeysValues]] = [None] * len(source)  # (B, H, N, d) each

    def begin_step(self, n_rows: int) -> None:
        """Give each of B * W hypotheses a new node, which the layers then fill by ``append``.

        Raises:
            ValueError: the number of rows is not that of the hypotheses.
        """
        n_sentences, width, room = self.lineage.shape
        if self.length == 0 and n_rows % n_sentences == 0:
            width = n_rows // n_sentences
            self.lineage = self.lineage.expand(n_sentences, width, room)
        if n_rows != n_sentences * width:
            raise ValueError(
                f"there are {n_sentences} sentences with {width} hypotheses each, but {n_rows} tokens to add"
            )
        if self._n_nodes + width > room:
            self._make_room(STEPS_AHEAD * width)
        itself = self.lineage.new_full((width, width), -math.inf).fill_diagonal_(0.0)
        self.lineage[:, :, self._n_nodes : self._n_nodes + width] = itself
        self._n_nodes += width
        self.length += 1

    def append(self, layer: int, keys: Tensor, values: Tensor) -> KeysValues:
        """Fill a layer's newest nodes with keys (B, W, H, d_k) and values (B, W, H, d_v).

        Returns:
            All of the layer's keys (B, H, d_k, N) and values (B, H, N, d_v); those of empty nodes are finite.
        """
        held = self._nodes[layer]
        if held is None:
            held = (self._empty(keys), self._empty(values))
            self._nodes[layer] = held
        for buffer, new in zip(held, (keys, values)):
            buffer[:, :, self._n_nodes - new.size(1) : self._n_nodes] = new.transpose(1, 2)
        return held[0].transpose(2, 3), held[1]

    def _empty(self, like: Tensor) -> Tensor:
        n_sentences, _, n_heads, width = like.shape
        return self.lineage.new_zeros(n_sentences, n_heads, self.lineage.size(2), width)

    def select(self, parents: Tensor, sentences: Optional[Tensor] = None) -> None:
        """Let hypothesis w of sentence b continue hypothesis ``parents[b, w]`` of the same sentence.

        Args:
            parents: int64 (B', W').
            sentences: which sentences go on, int64 (B',), repeated or left out as one likes; None for all in order.
        """
        lineage = self.lineage if sentences is None else self.lineage.index_select(0, sentences)
        n_sentences, width, room = lineage.shape
        starts = torch.arange(0, n_sentences * width, width, device=parents.device)
        rows = (starts[:, None] + parents).flatten()
        self.lineage = lineage.flatten(0, 1).index_select(0, rows).view(*parents.shape, room)
        if sentences is not None:
            self._keep(sentences)

    def _keep(self, sentences: Tensor) -> None:
        """Let row b hold what row ``sentences[b]`` holds."""
        self.source = [(_rows(keys, sentences), _rows(values, sentences)) for keys, values in self.source]
        if self.source_mask is not None:
            self.source_mask = _rows(self.source_mask, sentences)
        for layer, held in enumerate(self._nodes):
            if held is not None:
                self._nodes[layer] = (_rows(held[0], sentences), _rows(held[1], sentences))

    def _make_room(self, n_new: int) -> None:
        """Throw out the nodes from which no hypothesis descends, and leave room for new ones."""
        alive = self.lineage.eq(0).any(dim=1)  # (B, N)
        n_alive = int(alive.sum(dim=1).max()) if alive.numel() else 0
        order = alive.byte().argsort(dim=1, descending=True, stable=True)[:, :n_alive]  # the oldest first
        n_sentences, width, _ = self.lineage.shape
        n_new += -(n_alive + n_new) % ROOM_MULTIPLE
        lineage = self.lineage.new_full((n_sentences, width, n_alive + n_new), -math.inf)
        lineage[:, :, :n_alive] = self.lineage.gather(2, order[:, None].expand(n_sentences, width, n_alive))
        self.lineage, self._n_nodes = lineage, n_alive
        order = torch.nn.functional.pad(order, (0, n_new))  # empty nodes hold what the oldest one does
        for layer, held in enumerate(self._nodes):
            if held is not None:
                self._nodes[layer] = (_picked(held[0], order), _picked(held[1], order))


def _rows(tensor: Tensor, rows: Tensor) -> Tensor:
    """``tensor[rows]`` of a tensor (B, ...) that is overwritten: in place only what changes its place is moved."""
    if rows.numel() > tensor.size(0):
        return tensor.index_select(0, rows)
    places = (rows != torch.arange(rows.numel(), device=rows.device)).nonzero().squeeze(1)
    if places.numel():
        tensor[places] = tensor[rows[places]]
    return tensor[: rows.numel()]


def _picked(old: Tensor, order: Tensor) -> Tensor:
    """From (B, H, N, d) each sentence's nodes in the given order, (B, N')."""
    n_sentences, n_heads, room, width = old.shape
    heads = torch.arange(0, n_sentences * n_heads * room, room, device=old.device).view(n_sentences, n_heads, 1)
    rows = (heads + order[:, None]).flatten()
    return old.flatten(0, 2).index_select(0, rows).view(n_sentences, n_heads, -1, width)
