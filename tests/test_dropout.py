"""Dropout: rate, expectation, gradient and repeatability."""

from __future__ import annotations

from typing import Callable, List

import pytest
import torch
from torch import Tensor, nn

from vaswani_plugin.dropout import dropout, residual_dropout


@pytest.mark.parametrize("p_drop", [0.1, 0.3, 0.5, 0.9])
def test_rate_and_expectation(p_drop: float) -> None:
    torch.manual_seed(1)
    x = torch.ones(1_000_003)
    y = dropout(x, p_drop, training=True)
    kept = y != 0
    deviation = (p_drop * (1 - p_drop) / x.numel()) ** 0.5
    assert abs(float((~kept).float().mean()) - p_drop) < 5 * deviation + 2**-16
    assert y[kept].unique().numel() == 1
    assert float(y[kept][0]) == pytest.approx(1 / (1 - p_drop), rel=2**-13)
    # no order among neighbours: four elements share one draw of 64 bits
    for shift in (1, 2, 3, 4):
        both = (kept[shift:] & kept[:-shift]).float().mean()
        assert abs(float(both) - (1 - p_drop) ** 2) < 0.003


def test_backward_uses_the_same_mask_and_scale() -> None:
    torch.manual_seed(2)
    x = torch.randn(7, 11, requires_grad=True)
    y = dropout(x, 0.3, training=True)
    direction = torch.randn(7, 11)
    (y * direction).sum().backward()
    scale = (y / x).detach()
    torch.testing.assert_close(x.grad, direction * scale)


def test_a_seed_repeats_the_mask() -> None:
    x = torch.ones(101)
    torch.manual_seed(3)
    first, second = dropout(x, 0.5, training=True), dropout(x, 0.5, training=True)
    torch.manual_seed(3)
    assert torch.equal(dropout(x, 0.5, training=True), first)
    assert not torch.equal(first, second)


@pytest.mark.parametrize(("p_drop", "training"), [(0.0, True), (0.5, False), (1.0, False)])
def test_nothing_happens_without_dropout(p_drop: float, training: bool) -> None:
    x = torch.randn(5)
    assert dropout(x, p_drop, training) is x


@pytest.mark.parametrize("size", [(0,), (1,), (3, 1), (2, 0, 5)])
def test_degenerate_sizes(size: tuple[int, ...]) -> None:
    assert dropout(torch.ones(size), 0.4, training=True).shape == size


@pytest.mark.parametrize("p_drop", [1.0, 1 - 1e-7, 1e-7])
def test_probabilities_that_round_to_all_or_nothing(p_drop: float) -> None:
    y = dropout(torch.ones(1000), p_drop, training=True)
    assert float(y.sum()) == pytest.approx(0.0 if p_drop > 0.5 else 1000.0, rel=1e-3)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_dtype_is_kept(dtype: torch.dtype) -> None:
    assert dropout(torch.ones(9, dtype=dtype), 0.3, training=True).dtype == dtype


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_residual_sum_is_that_of_its_parts(dtype: torch.dtype) -> None:
    """Values and every gradient, with the output of a linear layer, which is a view, as in the model."""
    torch.manual_seed(4)
    layer = nn.Linear(6, 5)
    x, h, gradient = torch.randn(2, 3, 5), torch.randn(2, 3, 6), torch.randn(2, 3, 5)
    leaves = [x.requires_grad_(), h.requires_grad_(), *layer.parameters()]

    def both(function: Callable[[Tensor, Tensor], Tensor]) -> List[Tensor]:
        torch.manual_seed(5)
        total = function(x, layer(h).to(dtype))
        return [total.detach().clone(), *torch.autograd.grad(total, leaves, gradient)]

    joint = both(lambda x, sublayer: residual_dropout(x, sublayer, 0.3, training=True))
    plain = both(lambda x, sublayer: x + dropout(sublayer, 0.3, training=True))
    for one, other in zip(joint, plain):
        torch.testing.assert_close(one, other, **({"rtol": 2e-2, "atol": 2e-2} if dtype == torch.bfloat16 else {}))
    assert not torch.equal(joint[0], (x + layer(h)).detach())


@pytest.mark.parametrize(("p_drop", "training"), [(0.0, True), (0.3, False), (1.0, True)])
def test_a_residual_sum_without_chance(p_drop: float, training: bool) -> None:
    x, sublayer = torch.ones(2, 3), torch.full((2, 3), 2.0)
    expected = 1.0 if p_drop == 1.0 else 3.0
    assert torch.equal(residual_dropout(x, sublayer, p_drop, training), torch.full((2, 3), expected))
