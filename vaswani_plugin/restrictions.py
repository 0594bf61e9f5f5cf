"""What may come next in a beam search: prefixes, limits of length, unknown words, repetitions.

Shapes: B sentences, W live hypotheses of each, R = B * W rows, V vocabulary, T tokens so far.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .beam_state import Beam
from .search_options import SearchOptions, Symbols


def restrict(log_probs: Tensor, beam: Beam, options: SearchOptions, symbols: Symbols) -> None:
    """Lower, in place, what may not or should not come next.

    A limit goes before a prefix, a prefix before the rest. To end is no repetition, whatever ``no_repeat_ngram`` says.

    Args:
        log_probs: float32 (R, V).
    """
    length, width = beam.live.length, beam.live.width
    log_probs[:, symbols.pad] = -math.inf
    if options.unk_penalty:
        log_probs[:, symbols.unk] -= options.unk_penalty
    ends = log_probs[:, symbols.eos].clone()
    forced = beam.forced()
    if forced is not None:
        forced = forced.repeat_interleave(width)
        forced_log_probs = log_probs.gather(1, forced[:, None]).squeeze(1)
    if options.no_repeat_ngram:
        forbid_repetition(log_probs, beam.live.tokens.flatten(0, 1), options.no_repeat_ngram)
    log_probs[:, symbols.eos] = -math.inf if length < options.min_len else ends
    if forced is not None:
        allow_only(log_probs, forced.ne(symbols.pad), forced, forced_log_probs)
    if length >= beam.shortest_limit:
        at_limit = (beam.limits <= length).repeat_interleave(width)
        allow_only(log_probs, at_limit, torch.full_like(at_limit, symbols.eos, dtype=torch.long), ends)


def allow_only(log_probs: Tensor, rows: Tensor, tokens: Tensor, values: Tensor) -> None:
    """Allow, in place, one token in some rows, with a given value, and forbid all others there.

    Args:
        log_probs: (R, V).
        rows: bool (R,), which rows.
        tokens: int64 (R,).
        values: (R,).
    """
    log_probs.masked_fill_(rows[:, None], -math.inf)
    chosen = rows.nonzero().squeeze(1)
    log_probs[chosen, tokens[chosen]] = values[chosen]


def forbid_repetition(log_probs: Tensor, tokens: Tensor, size: int) -> None:
    """Forbid, in place, each token that would complete an n-gram which its hypothesis already has.

    Args:
        log_probs: (R, V).
        tokens: int64 (R, 1 + T), the hypotheses with the symbol before their first token.
        size: of the n-grams, at least 1.
    """
    n_windows = tokens.size(1) - size + 1
    if n_windows < 1:
        return
    repeats = torch.ones(tokens.size(0), n_windows, dtype=torch.bool, device=tokens.device)
    for i in range(size - 1):  # window w repeats where it begins as the last size - 1 tokens do
        repeats &= tokens[:, i : i + n_windows] == tokens[:, n_windows + i, None]
    rows, windows = repeats.nonzero(as_tuple=True)
    log_probs[rows, tokens[rows, windows + size - 1]] = -math.inf
