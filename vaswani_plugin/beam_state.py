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
        token_scores: float32 (T,), log-probabilities.
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


class Candidates(NamedTuple):
    """C extensions of each sentence's live hypotheses by one token, best first.

    Fields, each (B, C):
        sums: float32, log-probabilities of the extended hypotheses.
        token_scores: float32, those of the new tokens.
        parents: int64, places of the hypotheses that are extended.
        tokens: int64, the new tokens.
    """

    sums: Tensor
    token_scores: Tensor
    parents: Tensor
    tokens: Tensor

    def at(self, places: Tensor) -> Candidates:
        """Those at some places of each sentence, int64 (B, M)."""
        return Candidates(*(field.gather(1, places) for field in self))


@dataclass
class Hypotheses:
    """Equally many hypotheses of each sentence, all of ``length`` tokens.

    Fields:
        tokens: int64 (B, W, 1 + T), from the symbol that stands before a translation on.
        token_scores: float32 (B, W, T), log-probabilities.
        sums: float32 (B, W), log-probabilities of the whole.
        attention: float32 (B, W, T, S), or None.
    """

    tokens: Tensor
    token_scores: Tensor
    sums: Tensor
    attention: Optional[Tensor] = None

    @classmethod
    def start(cls, n_sentences: int, first: int, device: Device) -> Hypotheses:
        """One hypothesis a sentence, with no token yet but the symbol before the first."""
        tokens = torch.full((n_sentences, 1, 1), first, dtype=torch.long, device=device)
        sums = torch.zeros(n_sentences, 1, device=device)
        return cls(tokens, sums.new_zeros(n_sentences, 1, 0), sums)

    @property
    def width(self) -> int:
        """W."""
        return self.tokens.size(1)

    @property
    def length(self) -> int:
        """T."""
        return self.tokens.size(2) - 1

    def of_sentences(self, rows: Tensor) -> Hypotheses:
        """Those of some sentences."""
        attention = None if self.attention is None else self.attention[rows]
        return Hypotheses(self.tokens[rows], self.token_scores[rows], self.sums[rows], attention)

    def picked(self, places: Tensor) -> Hypotheses:
        """Hypotheses ``places[b]`` of each sentence b, places int64 (B, M)."""
        attention = None if self.attention is None else _pick(self.attention, places)
        sums = self.sums.gather(1, places)
        return Hypotheses(_pick(self.tokens, places), _pick(self.token_scores, places), sums, attention)

    def extended(self, by: Candidates, weights: Optional[Tensor]) -> Hypotheses:
        """The hypotheses that candidates (B, M) stand for.

        Args:
            weights: (B * W, S), the attention over the source that the step gave, or None.
        """
        attention = None
        if weights is not None:
            attention = _pick(weights.float().view(*self.sums.shape, -1), by.parents).unsqueeze(2)  # (B, M, 1, S)
            if self.attention is not None:
                attention = torch.cat((_pick(self.attention, by.parents), attention), dim=2)
        return Hypotheses(
            torch.cat((_pick(self.tokens, by.parents), by.tokens.unsqueeze(2)), dim=2),
            torch.cat((_pick(self.token_scores, by.parents), by.token_scores.unsqueeze(2)), dim=2),
            by.sums,
            attention,
        )

    def padded(self, length: int, pad: int) -> Hypotheses:
        """The same with padding up to that length."""
        missing = length - self.length
        attention = None if self.attention is None else F.pad(self.attention, (0, 0, 0, missing))
        tokens = F.pad(self.tokens, (0, missing), value=pad)
        return Hypotheses(tokens, F.pad(self.token_scores, (0, missing)), self.sums, attention)

    def beside(self, other: Hypotheses) -> Hypotheses:
        """These and equally long others, (B, W + M); attention where the others have it."""
        attention = None
        if other.attention is not None:
            own = self.attention
            if own is None:
                own = other.attention.new_zeros(*self.sums.shape, *other.attention.shape[2:])
            attention = torch.cat((own, other.attention), dim=1)
        return Hypotheses(
            torch.cat((self.tokens, other.tokens), dim=1),
            torch.cat((self.token_scores, other.token_scores), dim=1),
            torch.cat((self.sums, other.sums), dim=1),
            attention,
        )


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
        lengths = torch.zeros(n_sentences, n_best, dtype=torch.long, device=device)
        none = scores.new_zeros(n_sentences, n_best, 0)
        return cls(scores, lengths, Hypotheses(torch.full_like(lengths, pad).unsqueeze(2), none, scores))

    def of_sentences(self, rows: Tensor) -> Finished:
        """Those of some sentences."""
        return Finished(self.scores[rows], self.lengths[rows], self.hypotheses.of_sentences(rows))

    def merged(self, new: Hypotheses, scores: Tensor, pad: int) -> Finished:
        """The N best of these and of new ones, which are no shorter; scores (B, M) are -inf for what does not count."""
        both = self.hypotheses.padded(new.length, pad).beside(new)
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
            token_scores = self.hypotheses.token_scores[row, i, : lengths[i]]
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
