"""The state of a beam search: hypotheses that live, hypotheses that have ended, and the beam that holds both.

Shapes: B sentences, W live or N finished hypotheses of each, M new ones, T tokens, S source tokens.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import List, NamedTuple, Optional, Union

import torch
from torch import Tensor
from torch.nn import functional as F

Device = Union[str, torch.device]


class Hypothesis(NamedTuple):
    """A translation as the search found it.

    Fields:
        tokens: int64 (T,), the end symbol included.
        score: its log-probability over the length penalty.
        token_scores: float32 (T,), whose sum is the log-probability.
        attention: float32 (T, S), or None where nobody asked for it.
    """

    tokens: Tensor
    score: float
    token_scores: Tensor
    attention: Optional[Tensor]


def _pick(tensor: Tensor, places: Tensor) -> Tensor:
    """``tensor[b, places[b]]`` for each b: (B, W, ...) and (B, M) give (B, M, ...)."""
    starts = torch.arange(0, tensor.size(0) * tensor.size(1), tensor.size(1), device=tensor.device)
    rows = (places + starts[:, None]).flatten()
    return tensor.flatten(0, 1).index_select(0, rows).view(*places.shape, *tensor.shape[2:])


@dataclass
class Hypotheses:
    """Equally many hypotheses of each sentence, all of ``length`` tokens.

    Fields:
        tokens: int64 (B, W, 1 + T), from the symbol that stands before a translation on.
        running: float32 (B, W, 1 + T), the log-probability up to each token, beginning with 0.
        attention: float32 (B, W, T, S), or None.
    """

    tokens: Tensor
    running: Tensor
    attention: Optional[Tensor] = None

    @classmethod
    def start(cls, n_sentences: int, first: int, device: Device) -> Hypotheses:
        """One hypothesis a sentence, with no token yet but the symbol before the first."""
        tokens = torch.full((n_sentences, 1, 1), first, dtype=torch.long, device=device)
        return cls(tokens, torch.zeros(n_sentences, 1, 1, device=device))

    @property
    def width(self) -> int:
        """W."""
        return self.tokens.size(1)

    @property
    def length(self) -> int:
        """T."""
        return self.tokens.size(2) - 1

    @property
    def sums(self) -> Tensor:
        """Log-probabilities (B, W)."""
        return self.running[:, :, -1]

    def of_sentences(self, rows: Tensor) -> Hypotheses:
        """Those of some sentences."""
        attention = None if self.attention is None else self.attention[rows]
        return Hypotheses(self.tokens[rows], self.running[rows], attention)

    def picked(self, places: Tensor) -> Hypotheses:
        """Hypotheses ``places[b]`` of each sentence b, places int64 (B, M)."""
        attention = None if self.attention is None else _pick(self.attention, places)
        return Hypotheses(_pick(self.tokens, places), _pick(self.running, places), attention)

    def extended(self, parents: Tensor, tokens: Tensor, sums: Tensor, weights: Optional[Tensor]) -> Hypotheses:
        """Hypotheses that continue the parents by one token each.

        Args:
            parents, tokens, sums: (B, M), the places of the parents, the new tokens, the new log-probabilities.
            weights: (B * W, S), the attention over the source that the step gave, or None.
        """
        picked = self.picked(parents)
        attention = None
        if weights is not None:
            new = _pick(weights.float().view(*self.tokens.shape[:2], -1), parents).unsqueeze(2)  # (B, M, 1, S)
            attention = new if picked.attention is None else torch.cat((picked.attention, new), dim=2)
        return Hypotheses(
            torch.cat((picked.tokens, tokens.unsqueeze(2)), dim=2),
            torch.cat((picked.running, sums.unsqueeze(2)), dim=2),
            attention,
        )

    def padded(self, length: int, pad: int) -> Hypotheses:
        """The same with padding up to that length."""
        missing = length - self.length
        attention = None if self.attention is None else F.pad(self.attention, (0, 0, 0, missing))
        return Hypotheses(F.pad(self.tokens, (0, missing), value=pad), F.pad(self.running, (0, missing)), attention)


@dataclass
class Finished:
    """The best hypotheses of each sentence that have ended, best first.

    Fields:
        scores: float32 (B, N), -inf where a place is still empty.
        lengths: int64 (B, N), tokens with the end symbol.
        hypotheses: N a sentence, padded to one length.
    """

    scores: Tensor
    lengths: Tensor
    hypotheses: Hypotheses

    @classmethod
    def none(cls, n_sentences: int, n_best: int, pad: int, device: Device) -> Finished:
        """N empty places a sentence."""
        scores = torch.full((n_sentences, n_best), -math.inf, device=device)
        tokens = torch.full((n_sentences, n_best, 1), pad, dtype=torch.long, device=device)
        return cls(scores, torch.zeros_like(tokens[:, :, 0]), Hypotheses(tokens, torch.zeros_like(scores)[:, :, None]))

    def of_sentences(self, rows: Tensor) -> Finished:
        """Those of some sentences."""
        return Finished(self.scores[rows], self.lengths[rows], self.hypotheses.of_sentences(rows))

    def merged(self, new: Hypotheses, scores: Tensor, pad: int) -> Finished:
        """The N best of these and of new ones, which are no shorter; scores (B, M) are -inf for what does not count."""
        old = self.hypotheses.padded(new.length, pad)
        attention = None
        if new.attention is not None:
            if old.attention is None:
                old.attention = new.attention.new_zeros(*old.tokens.shape[:2], *new.attention.shape[2:])
            attention = torch.cat((old.attention, new.attention), dim=1)
        both = Hypotheses(
            torch.cat((old.tokens, new.tokens), dim=1), torch.cat((old.running, new.running), dim=1), attention
        )
        best, places = torch.cat((self.scores, scores), dim=1).topk(self.scores.size(1), dim=1)
        lengths = torch.cat((self.lengths, torch.full_like(new.tokens[:, :, 0], new.length)), dim=1)
        return Finished(best, lengths.gather(1, places), both.picked(places))

    def best(self, row: int) -> List[Hypothesis]:
        """The hypotheses of one sentence, each by itself; fewer than N where fewer have ended."""
        found = []
        lengths, attention = self.lengths[row].tolist(), self.hypotheses.attention
        for i, score in enumerate(self.scores[row].tolist()):
            if score == -math.inf:
                break
            tokens = self.hypotheses.tokens[row, i, 1 : lengths[i] + 1]
            token_scores = self.hypotheses.running[row, i, : lengths[i] + 1].diff()
            weights = None if attention is None else attention[row, i, : lengths[i]]
            found.append(Hypothesis(tokens, score, token_scores, weights))
        return found


@dataclass
class Beam:
    """Everything that a search knows between two steps.

    Fields:
        sentences: for each of B rows, its number in the batch.
        limits: int64 (B,), most tokens before the end symbol.
        shortest_limit: the least of them, known without asking the device.
        live: W hypotheses a sentence, best first; a sum of -inf marks a place that nothing fills.
        finished: N a sentence, best first.
        n_ended: int64 (B,), how many hypotheses have ended, kept or not.
        prefix: int64 (B, P), tokens that every hypothesis begins with, padded to the right; or None.
    """

    sentences: List[int]
    limits: Tensor
    shortest_limit: int
    live: Hypotheses
    finished: Finished
    n_ended: Tensor
    prefix: Optional[Tensor] = None

    def forced(self) -> Optional[Tensor]:
        """The next token of each prefix, (B,), padding where one is over; None where no prefix is as long."""
        if self.prefix is None or self.live.length >= self.prefix.size(1):
            return None
        return self.prefix[:, self.live.length]

    def keep(self, rows: Tensor) -> None:
        """Go on with the sentences in these rows, at least one."""
        self.sentences = [self.sentences[row] for row in rows.tolist()]
        self.limits = self.limits[rows]
        self.shortest_limit = int(self.limits.min())
        self.live = self.live.of_sentences(rows)
        self.finished = self.finished.of_sentences(rows)
        self.n_ended = self.n_ended[rows]
        self.prefix = None if self.prefix is None else self.prefix[rows]
