"""The learning-rate formula against the paper's values."""

from __future__ import annotations

import pytest

from vaswani_plugin.schedule import inverse_sqrt_learning_rate, peak_learning_rate


def paper_formula(step: int, d_model: int, warmup: int) -> float:
    return d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)


@pytest.mark.parametrize(
    ("step", "rate"),
    [(1, 1.74693e-7), (2, 3.49386e-7), (4000, 6.98771e-4), (8000, 4.94106e-4), (16000, 3.49386e-4)],
)
def test_published_values(step: int, rate: float) -> None:
    assert inverse_sqrt_learning_rate(step, peak_learning_rate(512, 4000), 4000) == pytest.approx(rate, rel=1e-5)


def test_peaks() -> None:
    assert peak_learning_rate(512, 4000) == pytest.approx(6.988e-4, rel=1e-4)
    assert peak_learning_rate(1024, 4000) == pytest.approx(4.941e-4, rel=1e-4)


@pytest.mark.parametrize("warmup", [1, 2, 7, 100])
def test_formula_at_every_step_and_the_maximum_at_the_end_of_warmup(warmup: int) -> None:
    peak = peak_learning_rate(64, warmup)
    rates = [inverse_sqrt_learning_rate(step, peak, warmup) for step in range(1, 301)]
    assert rates == pytest.approx([paper_formula(step, 64, warmup) for step in range(1, 301)], rel=1e-12)
    assert max(range(300), key=rates.__getitem__) == warmup - 1


@pytest.mark.parametrize("warmup", [0, 1])
def test_without_warmup_the_rate_falls_from_the_first_step(warmup: int) -> None:
    rates = [inverse_sqrt_learning_rate(step, 0.5, warmup) for step in (1, 2, 4)]
    assert rates == pytest.approx([0.5, 0.5 / 2**0.5, 0.25])


def test_a_start_above_zero() -> None:
    rates = [inverse_sqrt_learning_rate(step, 1.0, 4, initial=0.2) for step in range(1, 6)]
    assert rates == pytest.approx([0.4, 0.6, 0.8, 1.0, (4 / 5) ** 0.5])


def test_errors() -> None:
    with pytest.raises(ValueError, match=r"^updates are counted from 1, but the step is 0$"):
        inverse_sqrt_learning_rate(0, 1.0, 4)
    with pytest.raises(ValueError, match=r"^warm-up must be 0 or more updates, but is -1$"):
        inverse_sqrt_learning_rate(1, 1.0, -1)
    with pytest.raises(ValueError, match=r"^warm-up must be 0 or more updates, but is -2$"):
        peak_learning_rate(512, -2)
    with pytest.raises(ValueError, match=r"^d_model must be at least 1, but is 0$"):
        peak_learning_rate(0, 4000)
