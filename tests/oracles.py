"""Slow, independent truths about searching: every translation written out, and a beam of Python lists.

They share no code with the package, compute in double precision with Python's floats, and never end early.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from typing import Callable, Dict, List, Optional, Sequence, Tuple

import torch
from torch import Tensor

BOS, PAD, EOS, UNK = 0, 1, 2, 3
Prefix = Tuple[int, ...]
LogProbs = Callable[[Prefix], List[float]]
Scored = Tuple[float, Prefix]


@dataclass
class ToyModel:
    """A model that draws the logits after each prefix from a generator seeded by the prefix."""

    seed: int
    n_types: int = 6
    spread: float = 2.0
    bias: Dict[int, float] = field(default_factory=dict)

    def logits(self, prefix: Prefix) -> List[float]:
        rng = random.Random(f"{self.seed} {prefix}")
        drawn = [rng.gauss(0.0, self.spread) for _ in range(self.n_types)]
        # what single precision can hold, so that the oracle and the search see the same numbers
        return torch.tensor([x + self.bias.get(i, 0.0) for i, x in enumerate(drawn)]).tolist()

    def log_probs(self, prefix: Prefix) -> List[float]:
        logits = self.logits(prefix)
        top = max(logits)
        total = top + math.log(sum(math.exp(x - top) for x in logits))
        return [x - total for x in logits]


class ToyDecoder:
    """Toy models behind the protocol of the search, one a sentence; it notes how many rows each step had."""

    def __init__(self, models: Sequence[ToyModel]) -> None:
        self.models = list(models)
        self.rows: List[List[Prefix]] = [[()] for _ in models]
        self.started = False
        self.n_rows: List[int] = []

    def step(self, tokens: Tensor) -> Tuple[Tensor, Optional[Tensor]]:
        self.n_rows.append(len(tokens))
        new = iter(tokens.tolist())
        self.rows = [[prefix + (next(new),) for prefix in rows] for rows in self.rows]
        logits = [m.logits(prefix[1:]) for m, rows in zip(self.models, self.rows) for prefix in rows]
        return torch.tensor(logits), None

    def select(self, parents: Tensor, sentences: Optional[Tensor]) -> None:
        if sentences is not None:
            self.models = [self.models[i] for i in sentences.tolist()]
            self.rows = [self.rows[i] for i in sentences.tolist()]
        assert len(parents) == len(self.rows)
        self.rows = [[rows[i] for i in of.tolist()] for rows, of in zip(self.rows, parents)]


def penalty(n: int, alpha: float, kind: str) -> float:
    """The length penalty of a hypothesis of n tokens with the end symbol."""
    return n**alpha if kind == "toolkit" else math.pow(5 + n, alpha) / math.pow(6, alpha)


def exhaustive_search(
    log_probs: LogProbs,
    n_types: int,
    limit: int,
    alpha: float,
    kind: str,
    min_len: int = 1,
    unk_penalty: float = 0.0,
) -> List[Scored]:
    """Every translation of at most ``limit`` tokens and the end symbol, with its score; best first."""
    found: List[Scored] = []

    def visit(prefix: Prefix, total: float) -> None:
        after = log_probs(prefix)
        if len(prefix) >= min_len:
            found.append(((total + after[EOS]) / penalty(len(prefix) + 1, alpha, kind), prefix + (EOS,)))
        if len(prefix) < limit:
            for token in range(n_types):
                if token not in (PAD, EOS):
                    visit(prefix + (token,), total + after[token] - unk_penalty * (token == UNK))

    visit((), 0.0)
    return sorted(found, reverse=True)


def beam_search_without_end(
    log_probs: LogProbs, beam_size: int, limit: int, alpha: float, kind: str, min_len: int = 1
) -> List[Scored]:
    """Beam search up to the limit: of the 2 K best extensions those that end are kept, the K best others go on."""
    live: List[Tuple[float, Prefix]] = [(0.0, ())]
    found: List[Scored] = []
    for length in range(limit + 1):
        extensions = []
        for total, prefix in live:
            for token, log_prob in enumerate(log_probs(prefix)):
                may_end = length >= min_len
                if token == PAD or (token == EOS and not may_end) or (token != EOS and length == limit):
                    continue
                extensions.append((total + log_prob, prefix + (token,)))
        best = sorted(extensions, reverse=True)[: 2 * beam_size]
        found += [(total / penalty(length + 1, alpha, kind), seq) for total, seq in best if seq[-1] == EOS]
        live = [(total, seq) for total, seq in best if seq[-1] != EOS][:beam_size]
    return sorted(found, reverse=True)


def greedy_search(log_probs: LogProbs, limit: int, min_len: int = 1) -> Prefix:
    """The likeliest token at every step."""
    prefix: Prefix = ()
    while len(prefix) < limit:
        after = log_probs(prefix)
        allowed = [i for i in range(len(after)) if i != PAD and (i != EOS or len(prefix) >= min_len)]
        token = max(allowed, key=lambda i: after[i])
        prefix += (token,)
        if token == EOS:
            return prefix
    return prefix + (EOS,)
