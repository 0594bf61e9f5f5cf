"""Beam search: how section 6.1 of "Attention Is All You Need" (Vaswani et al. 2017) translates.

K live hypotheses of each sentence are extended by one token a step. A hypothesis that ends is scored by its
log-probability over a length penalty, and the N best of those are kept. The search for a sentence is over when no live
hypothesis can still enter them, so that a beam as wide as the tree of prefixes finds what an exhaustive search finds.

Shapes: B sentences still searched, W live hypotheses of each (1 at first, then K), N finished ones kept of each,
C candidates, V vocabulary, S source tokens.
"""

from __future__ import annotations

import math
from typing import List, Optional, Protocol, Sequence, Tuple

import torch
from torch import Tensor

from .beam_state import Beam, Candidates, Device, Finished, Hypotheses, Hypothesis
from .restrictions import restrict
from .search_options import ENDINGS, PENALTIES, SearchOptions, Symbols, length_penalty

__all__ = [
    "ENDINGS", "PENALTIES", "Beam", "Candidates", "Decoder", "Hypothesis", "SearchOptions", "Symbols", "advance",
    "best_candidates", "best_possible", "endings", "finish", "is_over", "length_penalty", "new_beam", "search",
    "promising",
]  # fmt: skip

#: Sentences leave the batch when they are one in so many, such that a multiple of this is left.
LEAVE_TOGETHER = 8


class Decoder(Protocol):
    """What a search asks of a model, or of several; the hypotheses' past is theirs to remember."""

    def step(self, tokens: Tensor) -> Tuple[Tensor, Optional[Tensor]]:
        """Append tokens, int64 (B * W,), to the hypotheses.

        Returns:
            Logits (B * W, V) of the next tokens, which the search overwrites, and the attention over the source,
            (B * W, S) or None.
        """

    def select(self, parents: Tensor, sentences: Optional[Tensor]) -> None:
        """Hypothesis w of sentence b goes on from hypothesis ``parents[b, w]`` of the same sentence, int64 (B, W).

        Args:
            sentences: the rows of the sentences that go on, increasing, int64 (B,); None where all do. The others
                have no row in parents.
        """


def new_beam(
    limits: Sequence[int],
    first: int,
    options: SearchOptions,
    symbols: Symbols,
    prefix: Optional[Tensor] = None,
    device: Device = "cpu",
) -> Beam:
    """One live hypothesis a sentence, which holds nothing but the symbol ``first``."""
    n = len(limits)
    return Beam(
        sentences=list(range(n)),
        limits=torch.tensor(limits, dtype=torch.long, device=device),
        shortest_limit=min(limits, default=0),
        live=Hypotheses.start(n, first, device),
        finished=Finished.none(n, options.n_best, symbols.pad, device),
        n_ended=torch.zeros(n, dtype=torch.long, device=device),
        prefix=prefix,
    )


def best_candidates(log_probs: Tensor, sums: Tensor, n_candidates: int) -> Candidates:
    """The best extensions of each sentence.

    Args:
        log_probs: float32 (B * W, V), contiguous, restricted to what may come next.
        sums: float32 (B, W), the log-probabilities of the live hypotheses.
        n_candidates: C; it is less where there are not as many.
    """
    (n_sentences, width), n_types = sums.shape, log_probs.size(1)
    n_candidates = min(n_candidates, width * n_types)
    parents, tokens = promising(log_probs, sums, n_candidates)
    starts = torch.arange(0, n_sentences * width, width, device=sums.device)[:, None]
    scores = log_probs.flatten().take((starts + parents) * n_types + tokens)
    best, places = (scores + sums.gather(1, parents)).topk(n_candidates, dim=1)
    return Candidates(best, scores.gather(1, places), parents.gather(1, places), tokens.gather(1, places))


def promising(log_probs: Tensor, sums: Tensor, n: int, n_parts: int = 16) -> Tuple[Tensor, Tensor]:
    """Extensions of each sentence among which the n best are: parents and tokens (B, M).

    On a CPU torch's own search takes several passes over each row in single steps. Here one vectorised pass finds
    the greatest of every 16 values that lie V / 16 apart; the n greatest values are in the n groups with the greatest
    of those.
    """
    (n_sentences, width), n_types = sums.shape, log_probs.size(1)
    size = n_types // n_parts
    rows = torch.arange(width, device=sums.device)
    if log_probs.device.type != "cpu" or size < max(128, n):
        tokens = log_probs.topk(min(n, n_types), dim=1).indices  # (B * W, n)
        return rows.repeat_interleave(tokens.size(1)).expand(n_sentences, -1), tokens.view(n_sentences, -1)
    greatest = log_probs[:, : n_parts * size].unflatten(1, (n_parts, size)).amax(dim=1)
    greatest = greatest.view(n_sentences, width, size) + sums[:, :, None]
    groups = greatest.flatten(1).topk(n, dim=1).indices  # (B, n)
    parents = groups.div(size, rounding_mode="floor")
    tokens = ((groups - parents * size)[:, :, None] + torch.arange(0, n_parts * size, size)).flatten(1)
    rest = torch.arange(n_parts * size, n_types)
    parents = torch.cat(
        (parents.repeat_interleave(n_parts, 1), rows.repeat_interleave(len(rest)).expand(n_sentences, -1)), 1
    )
    return parents, torch.cat((tokens, rest.repeat(width).expand(n_sentences, -1)), 1)


def log_softmax_(logits: Tensor) -> Tensor:
    """Log-probabilities float32 (R, V) of logits (R, V), which may be overwritten.

    One pass and, on a CPU, no new table, which for many rows would take longer to get from the system than to fill.
    """
    if logits.dtype != torch.float32 or logits.device.type != "cpu":
        return logits.log_softmax(dim=1, dtype=torch.float32)
    log_probs: Tensor = torch.log_softmax(logits, dim=1, out=logits)  # a row is read whole before it is written
    return log_probs


def endings(candidates: Candidates, beam: Beam, options: SearchOptions, eos: int) -> Tensor:
    """Which candidates are hypotheses that end: bool (B, C)."""
    ended = candidates.tokens.eq(eos) & candidates.sums.gt(-math.inf)
    if options.counts_endings:
        ended[:, options.beam_size :] = False
        ended &= ended.cumsum(1) <= options.beam_size - beam.n_ended[:, None]
    return ended


def finish(
    beam: Beam, candidates: Candidates, ended: Tensor, weights: Optional[Tensor], penalties: Tensor, pad: int
) -> None:
    """Let the candidates that end compete for the N places of finished hypotheses."""
    scores = candidates.sums.masked_fill(~ended, -math.inf) / penalties[beam.live.length + 1]
    scores, places = scores.topk(min(beam.finished.scores.size(1), scores.size(1)), dim=1)
    beam.finished = beam.finished.merged(beam.live.extended(candidates.at(places), weights), scores, pad)
    beam.n_ended = beam.n_ended + ended.sum(1)


def advance(beam: Beam, candidates: Candidates, weights: Optional[Tensor], beam_size: int, eos: int) -> Tensor:
    """Make the K best candidates that do not end the live hypotheses; return their parents, int64 (B, K).

    2 K candidates hold K such ones, since a hypothesis can end in one way only.
    """
    sums = candidates.sums.masked_fill(candidates.tokens.eq(eos), -math.inf)
    sums, places = sums.topk(min(beam_size, sums.size(1)), dim=1)
    chosen = candidates.at(places)._replace(sums=sums)  # -inf where it is an end that nothing else can replace
    beam.live = beam.live.extended(chosen, weights)
    return chosen.parents


def best_possible(beam: Beam, options: SearchOptions, penalties: Tensor) -> Tensor:
    """The best score that a live hypothesis of each sentence can still end with: float32 (B,), -inf where none lives.

    A log-probability can only fall, so that ``sum / penalty(n)`` bounds the scores at length n. Of all lengths still
    possible the shortest or the longest gives the greatest bound, whatever the signs of alpha and of the sum. Only a
    negative unk_penalty can raise a sum, at most by its size for each token before the end.

    Args:
        penalties: float32, the length penalty of every n from 0 to one more than the longest possible.
    """
    best = beam.live.sums.amax(dim=1)
    shortest = max(beam.live.length, options.min_len) + 1
    if options.unk_penalty >= 0:
        return torch.maximum(best / penalties[shortest], best / penalties[beam.limits + 1])
    n = torch.arange(shortest, penalties.size(0), device=best.device)
    raised = best[:, None] - options.unk_penalty * (n - 1 - beam.live.length)
    return (raised / penalties[n]).masked_fill(n > beam.limits[:, None] + 1, -math.inf).amax(dim=1)


def is_over(beam: Beam, options: SearchOptions, penalties: Tensor) -> Tensor:
    """Which sentences no further step can improve: bool (B,)."""
    if options.counts_endings:
        return beam.n_ended.ge(options.beam_size) | ~beam.live.sums.amax(dim=1).gt(-math.inf)
    return ~best_possible(beam, options, penalties).gt(beam.finished.scores[:, -1])


def search(
    decoder: Decoder,
    limits: Sequence[int],
    first: int,
    options: SearchOptions,
    symbols: Symbols,
    prefix: Optional[Tensor] = None,
    device: Device = "cpu",
) -> List[List[Hypothesis]]:
    """Translate the sentences that the decoder has been given.

    Args:
        limits: for each sentence the most tokens before the end symbol, not below ``options.min_len``.
        first: the symbol that stands before a translation.
        prefix: int64 (B, P), tokens that translations begin with, padded to the right.
        device: where the decoder computes.

    Returns:
        For each sentence, in order, its best hypotheses, best first: N, or as many as there are, but at least one.

    Raises:
        ArithmeticError: no hypothesis of some sentence could end: the model's scores are not numbers, or the options
            forbid every word before they allow the end.
    """
    results: List[List[Hypothesis]] = [[] for _ in limits]
    # from 0, which no hypothesis has, to one more than the longest has, where nothing lives
    lengths = torch.arange(max(limits, default=0) + 3, device=device).clamp_(min=1)
    penalties = length_penalty(lengths, options.alpha, options.penalty)
    beam = new_beam(limits, first, options, symbols, prefix, device)
    while beam.sentences:
        logits, weights = decoder.step(beam.live.tokens[:, :, -1].flatten())
        log_probs = log_softmax_(logits)
        restrict(log_probs, beam, options, symbols)
        candidates = best_candidates(log_probs, beam.live.sums, 2 * options.beam_size)
        ended = endings(candidates, beam, options, symbols.eos)
        if ended.is_cuda or bool(ended.any()):  # to ask a GPU takes longer than to do it
            finish(beam, candidates, ended, weights, penalties, symbols.pad)
        parents = advance(beam, candidates, weights, options.beam_size, symbols.eos)
        left = _hand_in(beam, is_over(beam, options, penalties), results)
        if beam.sentences:
            decoder.select(parents if left is None else parents[left], left)
    return results


def _hand_in(beam: Beam, over: Tensor, results: List[List[Hypothesis]]) -> Optional[Tensor]:
    """Move the sentences that are over from the beam to the results; return the rows that go on, None for all.

    To take a sentence out of the batch the decoder copies what it holds, and kernels are made for every new size of the
    batch, so that sentences go by the eighth, down to multiples of eight; those that wait have no live hypotheses.
    """
    rows = over.nonzero().squeeze(1).tolist()
    n_left = len(beam.sentences) - len(rows)
    n_going = len(rows) - (-n_left % LEAVE_TOGETHER if n_left > LEAVE_TOGETHER else 0)
    if n_going * LEAVE_TOGETHER < len(beam.sentences):
        n_going = 0
    if n_going < len(rows):
        beam.live.sums = beam.live.sums.masked_fill(over[:, None], -math.inf)
    if n_going == 0:
        return None
    for row in rows[:n_going]:
        sentence = beam.sentences[row]
        results[sentence] = beam.finished.best(row)
        if not results[sentence]:
            raise ArithmeticError(
                f"no translation of sentence {sentence} of the batch could end: the model's scores are not numbers, "
                "or min_len and no_repeat_ngram leave it no word"
            )
    stays = torch.ones_like(over)
    stays[rows[:n_going]] = False
    left = stays.nonzero().squeeze(1)
    if left.numel():
        beam.keep(left)
    else:
        beam.sentences = []
    return left
