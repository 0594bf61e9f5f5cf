"""The learning rate: section 5.3 of "Attention Is All You Need" (Vaswani et al. 2017)."""

from __future__ import annotations


def peak_learning_rate(d_model: int, warmup_steps: int) -> float:
    """The schedule's largest value, ``d_model^-0.5 * warmup^-0.5``, reached at step ``warmup_steps``.

    Base (512, 4000) gives 6.988e-4, big (1024, 4000) gives 4.941e-4. Without warm-up it is the rate of step 1.

    Raises:
        ValueError: d_model below 1 or warmup_steps below 0.
    """
    if d_model < 1:
        raise ValueError(f"d_model must be at least 1, but is {d_model}")
    if warmup_steps < 0:
        raise ValueError(f"warm-up must be 0 or more updates, but is {warmup_steps}")
    return float(d_model**-0.5 * max(warmup_steps, 1) ** -0.5)


def inverse_sqrt_learning_rate(step: int, peak: float, warmup_steps: int, initial: float = 0.0) -> float:
    """The learning rate of one update: linear warm-up to ``peak``, then decay with the inverse square root.

    ``peak * warmup^0.5 * min(step^-0.5, step * warmup^-1.5)``, which with ``peak_learning_rate`` is the paper's
    ``d_model^-0.5 * min(step^-0.5, step * warmup^-1.5)``. A warm-up of 0 or 1 gives ``peak / step^0.5``.

    Source: Vaswani et al. 2017, section 5.3, equation 3.
    Differs from: the toolkit's ``inverse_sqrt``, which counts steps from 0 and so makes its first update with rate 0.

    Args:
        step: the update, counted from 1.
        initial: where the warm-up starts, at "step 0"; the paper's 0 unless said otherwise.

    Raises:
        ValueError: step below 1 or warmup_steps below 0.
    """
    if step < 1:
        raise ValueError(f"updates are counted from 1, but the step is {step}")
    if warmup_steps < 0:
        raise ValueError(f"warm-up must be 0 or more updates, but is {warmup_steps}")
    warmup = max(warmup_steps, 1)
    if step <= warmup:
        return float(initial + (peak - initial) * step / warmup)
    return float(peak * (warmup / step) ** 0.5)
