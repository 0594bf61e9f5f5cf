"""What a beam search is asked for: the length penalty, the limits and the other options.

Source: section 6.1 of "Attention Is All You Need" (Vaswani et al. 2017), and Wu et al. 2016, section 7.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Callable, Dict, NamedTuple

from torch import Tensor

PENALTIES: Dict[str, Callable[[Tensor, float], Tensor]] = {
    "wu": lambda n, alpha: ((5.0 + n) / 6.0) ** alpha,
    "toolkit": lambda n, alpha: n**alpha,
}
ENDINGS = ("bound", "count")


def length_penalty(n: Tensor, alpha: float, kind: str = "wu") -> Tensor:
    """What a log-probability is divided by: ``((5 + n) / 6)^alpha``, or ``n^alpha`` for the kind "toolkit".

    Source: Wu et al. 2016, equation 14, with the alpha of Vaswani et al. 2017, section 6.1.

    Args:
        n: lengths that count the end symbol, as the toolkit counts; at least 1.
        alpha: 0 for none, above 0 in favour of long hypotheses, below 0 of short ones.
        kind: a key of ``PENALTIES``.

    Returns:
        float32, of the shape of n.
    """
    return PENALTIES[kind](n.double(), alpha).float()


@dataclass(frozen=True)
class SearchOptions:
    """What to search for; the defaults are those of Vaswani et al. 2017, section 6.1.

    Fields:
        beam_size: K. A beam of 1 is greedy decoding: the first hypothesis that ends is the answer.
        alpha, penalty: the length penalty and its kind.
        max_len_a, max_len_b: a sentence of s tokens, end symbol included, gets at most ``a * s + b`` tokens before
            the end symbol of its translation (but never fewer than min_len).
        min_len: least number of tokens before the end symbol.
        n_best: N, how many hypotheses are asked for, at most K.
        unk_penalty: subtracted from the log-probability of the unknown symbol.
        no_repeat_ngram: no n-gram of this size appears twice in a hypothesis; 0 for no such rule.
        ending: "bound" ends the search when no live hypothesis can still win; "count" when K hypotheses have ended,
            taking only ends among the K best candidates, which is the rule of the toolkit.

    Raises:
        ValueError: a value out of its range.
    """

    beam_size: int = 4
    alpha: float = 0.6
    penalty: str = "wu"
    max_len_a: float = 1.0
    max_len_b: float = 50
    min_len: int = 1
    n_best: int = 1
    unk_penalty: float = 0.0
    no_repeat_ngram: int = 0
    ending: str = "bound"

    def __post_init__(self) -> None:
        if self.beam_size < 1:
            raise ValueError(f"beam_size must be at least 1, but is {self.beam_size}")
        if not 1 <= self.n_best <= self.beam_size:
            raise ValueError(f"n_best must lie in [1, beam_size = {self.beam_size}], but is {self.n_best}")
        for name in ("min_len", "no_repeat_ngram"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative, but is {getattr(self, name)}")
        for name in ("alpha", "max_len_a", "max_len_b", "unk_penalty"):
            if not math.isfinite(getattr(self, name)):
                raise ValueError(f"{name} must be a finite number, but is {getattr(self, name)}")
        for name, known in (("penalty", tuple(PENALTIES)), ("ending", ENDINGS)):
            if getattr(self, name) not in known:
                raise ValueError(f"{name} must be one of {', '.join(known)}, but is {getattr(self, name)!r}")

    def limit(self, source_length: int) -> int:
        """Most tokens before the end symbol for a source of that many tokens, end symbol included.

        Differs from: the toolkit, which takes the length of the batch's longest sentence for all.
        """
        return max(int(self.max_len_a * source_length + self.max_len_b), self.min_len)

    @property
    def counts_endings(self) -> bool:
        """Whether endings are counted; with one live hypothesis there is no other to compare with."""
        return self.ending == "count" or self.beam_size == 1


class Symbols(NamedTuple):
    """Ids of the symbols that a search treats by rules of their own."""

    pad: int
    eos: int
    unk: int
