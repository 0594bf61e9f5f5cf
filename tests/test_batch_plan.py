"""How the effective batch is shared out over workers."""

from __future__ import annotations

import re

import pytest

from vaswani_plugin.tools.batch_plan import PAPER_BATCH, plan_batch
from vaswani_plugin.tools.cli import CommandError


@pytest.mark.parametrize(
    ("workers", "max_tokens", "update_freq"), [(1, 3571, 7), (2, 3125, 4), (4, 3125, 2), (8, 3125, 1), (16, 1562, 1)]
)
def test_the_papers_batch_is_the_same_for_any_number_of_gpus(workers: int, max_tokens: int, update_freq: int) -> None:
    plan = plan_batch(workers, PAPER_BATCH)
    assert (plan.max_tokens, plan.update_freq) == (max_tokens, update_freq)
    assert abs(workers * max_tokens * update_freq / 25000 - 1) < 0.001


@pytest.mark.parametrize("workers", range(1, 129))
def test_no_worker_takes_more_than_usual_at_once(workers: int) -> None:
    plan = plan_batch(workers, PAPER_BATCH)
    assert plan.max_tokens <= 4096
    assert abs(plan.workers * plan.max_tokens * plan.update_freq - 25000) <= 1250


def test_what_is_given_is_kept() -> None:
    assert plan_batch(1, 25000, max_tokens=5000).update_freq == 5
    assert plan_batch(2, 25000, max_tokens=6300).update_freq == 2
    assert plan_batch(4, 25000, update_freq=1).max_tokens == 6250
    both = plan_batch(2, 24000, max_tokens=3000, update_freq=4)
    assert (both.max_tokens, both.update_freq, both.tokens) == (3000, 4, 24000)


def test_a_plan_reads_as_one_line() -> None:
    assert str(plan_batch(8, 25000, max_tokens=3200)) == (
        "8 workers x 3,200 tokens x update-freq 1 = 25,600 tokens an update (+2.4% of the 25,000 asked for)"
    )
    assert str(plan_batch(1, 100)).startswith("1 worker x 100 tokens x update-freq 1 = 100 tokens")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            {"workers": 4, "target": 25000, "max_tokens": 4096},
            "4 workers x 4,096 tokens x update-freq 2 = 32,768 tokens an update (+31.1% of the 25,000 asked for): more "
            "than 5% off; --max-tokens 3125 --update-freq 2 meets it, or --target-batch 32768 asks for this",
        ),
        (
            {"workers": 16, "target": 25000, "max_tokens": 3125, "update_freq": 1},
            "16 workers x 3,125 tokens x update-freq 1 = 50,000 tokens an update (+100.0% of the 25,000 asked for): "
            "more than 5% off; --max-tokens 1562 --update-freq 1 meets it, or --target-batch 50000 asks for this",
        ),
        (
            {"workers": 9, "target": 4},
            "9 workers x 1 tokens x update-freq 1 = 9 tokens an update (+125.0% of the 4 asked for): more than 5% off; "
            "--target-batch must be at least the 9 workers",
        ),
    ],
)
def test_a_batch_that_cannot_be_met_is_refused_with_one_that_can(arguments: dict[str, int], text: str) -> None:
    with pytest.raises(CommandError, match=f"^{re.escape(text)}$"):
        plan_batch(**arguments)


def test_five_percent_is_the_limit() -> None:
    assert plan_batch(1, 1000, max_tokens=1050).tokens == 1050
    with pytest.raises(CommandError, match="1,051 tokens"):
        plan_batch(1, 1000, max_tokens=1051)
