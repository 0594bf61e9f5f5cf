"""The effective batch, workers x tokens x update-freq, held at the recipe's value for any number of workers.

Source: Vaswani et al. 2017, section 5.1: about 25,000 source and 25,000 target tokens in a batch, over 8 GPUs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Optional

from vaswani_plugin.tools.cli import CommandError, plural

#: Tokens of an update in the paper.
PAPER_BATCH = 25_000

#: How far the effective batch may be from the one asked for, as a fraction of it.
TOLERANCE = 0.05

#: Tokens that a worker takes at once where nothing else is said; the paper's models fit a GPU of 12 GB with it.
USUAL_TOKENS = 4096


@dataclass(frozen=True)
class BatchPlan:
    """How an update's batch is shared out.

    Attributes:
        workers: processes that train together.
        max_tokens: tokens, with padding, that a worker takes at once (the toolkit's ``--max-tokens``).
        update_freq: how many such portions a worker takes for one update (the toolkit's ``--update-freq``).
        target: tokens asked for.
    """

    workers: int
    max_tokens: int
    update_freq: int
    target: int

    @property
    def tokens(self) -> int:
        """Tokens of an update, at most: the toolkit fills a batch up to its limit."""
        return self.workers * self.max_tokens * self.update_freq

    @property
    def excess(self) -> float:
        """(tokens - target) / target."""
        return self.tokens / self.target - 1

    def __str__(self) -> str:
        """The plan in one line."""
        product = f"{plural(self.workers, 'worker')} x {self.max_tokens:,} tokens x update-freq {self.update_freq}"
        return f"{product} = {self.tokens:,} tokens an update ({self.excess:+.1%} of the {self.target:,} asked for)"


def plan_batch(
    workers: int, target: int, max_tokens: Optional[int] = None, update_freq: Optional[int] = None
) -> BatchPlan:
    """Share out the batch; what is not given is chosen.

    Args:
        workers: from 1.
        target: tokens of an update, from 1.
        max_tokens: tokens of a worker at once, kept as they are when given; else as many as meet the target in as few
            portions of at most ``USUAL_TOKENS`` as possible.
        update_freq: portions of a worker for one update, kept when given.

    Raises:
        CommandError: the target is missed by more than ``TOLERANCE``.
    """
    if max_tokens is None:
        portions = update_freq or math.ceil(target / (workers * USUAL_TOKENS))
        plan = BatchPlan(workers, max(1, round(target / (workers * portions))), portions, target)
    else:
        portions = update_freq or max(1, round(target / (workers * max_tokens)))
        plan = BatchPlan(workers, max_tokens, portions, target)
    if abs(plan.tokens - target) > TOLERANCE * target:
        raise CommandError(f"{plan}: more than {TOLERANCE:.0%} off; {_advice(plan)}")
    return plan


def _advice(plan: BatchPlan) -> str:
    portions = math.ceil(plan.target / (plan.workers * min(plan.max_tokens, USUAL_TOKENS)))
    tokens = round(plan.target / (plan.workers * portions))
    if tokens < 1:
        return f"--target-batch must be at least the {plan.workers:,} workers"
    return f"--max-tokens {tokens} --update-freq {portions} meets it, or --target-batch {plan.tokens} asks for this"
