"""Linear layers: joint products, products in bfloat16, and what each leaves untouched."""

from __future__ import annotations

from typing import Any, List

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vaswani_plugin.linear import Linear, autocast_dtype, joint_linear, linear, set_compute_dtype

D = 7


def layers(n_outputs: List[int], bias: bool = True) -> List[Linear]:
    torch.manual_seed(1)
    return [Linear(D, n, bias=bias) for n in n_outputs]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("n_rows", [5, 11 * D], ids=["few rows", "many rows"])
def test_joint_products_are_the_single_ones(n_rows: int, bias: bool) -> None:
    """Values and every gradient, below and above the number of rows from which layers are joined."""
    three = layers([3, 5, 2], bias)
    leaves = [parameter for layer in three for parameter in layer.parameters()]
    x = torch.randn(n_rows, D, requires_grad=True)

    def everything(outputs: Any) -> List[Tensor]:
        total = sum((output**2).sum() for output in outputs)
        assert isinstance(total, Tensor)
        return [*outputs, *torch.autograd.grad(total, [x, *leaves])]

    joint = everything(joint_linear(x, three))
    single = everything([F.linear(x, layer.weight, layer.bias) for layer in three])
    assert [output.shape for output in joint[:3]] == [(n_rows, 3), (n_rows, 5), (n_rows, 2)]
    for one, other in zip(joint, single):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_layers_are_joined_in_training_only_and_where_there_are_many_rows() -> None:
    two = layers([3, 5])
    few, many = torch.randn(2, D), torch.randn(100, D)
    assert joint_linear(many, two)[0]._base is not None  # a part of a larger product
    assert joint_linear(few, two)[0]._base is None
    with torch.no_grad():
        assert joint_linear(many, two)[0]._base is None


def test_layers_that_are_not_ours_are_asked_one_by_one() -> None:
    other, mine = nn.Linear(D, 3), layers([4])[0]
    x = torch.randn(100, D)
    outputs = joint_linear(x, (other, mine))
    assert torch.equal(outputs[0], other(x)) and torch.equal(outputs[1], mine(x))


def test_products_in_bfloat16_keep_weights_and_gradients_in_float32() -> None:
    layer = layers([5])[0]
    before = layer.weight.detach().clone()
    set_compute_dtype(nn.Sequential(layer), torch.bfloat16)
    x = torch.randn(3, D, requires_grad=True)
    y = layer(x)
    assert (layer.product_dtype, y.dtype) == (torch.bfloat16, torch.bfloat16)
    expected = F.linear(x.bfloat16().float(), layer.weight.bfloat16().float(), layer.bias.bfloat16().float())
    torch.testing.assert_close(y.float(), expected, rtol=2**-8, atol=2**-8)
    y.float().sum().backward()
    assert x.grad is not None and layer.weight.grad is not None
    assert x.grad.dtype == layer.weight.grad.dtype == torch.float32
    torch.testing.assert_close(layer.weight.grad, x.detach().sum(0).expand(5, D), rtol=2e-2, atol=2e-2)
    assert torch.equal(layer.weight, before)
    set_compute_dtype(layer, None)
    assert layer(x).dtype == torch.float32


def test_weights_in_half_precision_are_multiplied_as_they_are(float16: torch.dtype) -> None:
    layer = layers([5])[0].to(float16)
    set_compute_dtype(layer, torch.bfloat16)
    assert layer.product_dtype == float16
    assert linear(torch.randn(3, D).to(float16), [layer]).dtype == float16


def test_the_type_of_autocasting() -> None:
    cpu = torch.device("cpu")
    assert autocast_dtype(cpu) is None
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert autocast_dtype(cpu) == torch.bfloat16
