"""Label smoothing against the formula in plain Python, torch's autograd, and the chunked form against the plain one."""

from __future__ import annotations

import math
from typing import Optional

import pytest
import torch
from torch import Tensor

from vaswani_plugin.smoothing import chunked_smoothed_cross_entropy, smoothed_cross_entropy

N, D, V = 11, 5, 13


def problem(
    dtype: torch.dtype = torch.float64, with_bias: bool = False
) -> tuple[Tensor, Tensor, Optional[Tensor], Tensor]:
    torch.manual_seed(1)
    hidden = torch.randn(N, D, dtype=dtype, requires_grad=True)
    weight = torch.randn(V, D, dtype=dtype, requires_grad=True)
    bias = torch.randn(V, dtype=dtype, requires_grad=True) if with_bias else None
    return hidden, weight, bias, torch.randint(V, (N,))


def test_worked_values() -> None:
    log_probs = torch.tensor([[0.7, 0.1, 0.1, 0.1]]).log()
    loss, nll = smoothed_cross_entropy(log_probs, torch.tensor([0]), 0.1)
    assert float(loss) == pytest.approx(0.551266, abs=1e-6)
    assert float(nll) == pytest.approx(0.356675, abs=1e-6)


@pytest.mark.parametrize("eps", [0.0, 0.1, 0.5])
def test_formula(eps: float) -> None:
    torch.manual_seed(2)
    log_probs = torch.randn(N, V).log_softmax(dim=1)
    target = torch.randint(V, (N,))
    loss, nll = smoothed_cross_entropy(log_probs, target, eps)
    for i in range(N):
        q = [1 - eps if v == int(target[i]) else eps / (V - 1) for v in range(V)]
        assert float(loss[i]) == pytest.approx(-sum(q[v] * float(log_probs[i, v]) for v in range(V)), rel=1e-5)
        assert float(nll[i]) == pytest.approx(-float(log_probs[i, int(target[i])]), rel=1e-6)


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("chunk_tokens", [1, 4, N, 1000])
@pytest.mark.parametrize("eps", [0.0, 0.1])
def test_chunks_give_the_plain_forms_value_and_gradients(eps: float, chunk_tokens: int, with_bias: bool) -> None:
    hidden, weight, bias, target = problem(with_bias=with_bias)
    inputs = [x for x in (hidden, weight, bias) if x is not None]
    log_probs = torch.nn.functional.linear(hidden, weight, bias).log_softmax(dim=1)
    losses, nlls = smoothed_cross_entropy(log_probs, target, eps)
    loss, nll = chunked_smoothed_cross_entropy(hidden, weight, bias, target, eps, chunk_tokens)
    torch.testing.assert_close(loss, losses.sum())
    torch.testing.assert_close(nll, nlls.sum())
    assert not nll.requires_grad
    expected = torch.autograd.grad(3.0 * losses.sum(), inputs)
    got = torch.autograd.grad(3.0 * loss, inputs)
    for mine, other in zip(got, expected):
        torch.testing.assert_close(mine, other)


def test_gradcheck() -> None:
    hidden, weight, bias, target = problem(with_bias=True)
    assert torch.autograd.gradcheck(
        lambda h, w, b: chunked_smoothed_cross_entropy(h, w, b, target, 0.1, 4)[0], (hidden, weight, bias)
    )


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.bfloat16, 0.05), (torch.float16, 0.01)])
def test_half_precision_follows_float64(dtype: torch.dtype, tolerance: float) -> None:
    hidden, weight, _, target = problem(dtype)
    loss, _ = chunked_smoothed_cross_entropy(hidden, weight, None, target, 0.1, 4)
    assert loss.dtype == torch.float32
    got = torch.autograd.grad(loss, (hidden, weight))
    exact_inputs = [x.detach().double().requires_grad_() for x in (hidden, weight)]
    exact, _ = chunked_smoothed_cross_entropy(*exact_inputs, None, target, 0.1, 4)
    expected = torch.autograd.grad(exact, exact_inputs)
    assert float(loss) == pytest.approx(float(exact), rel=tolerance)
    for mine, other in zip(got, expected):
        assert mine.dtype == dtype
        torch.testing.assert_close(mine.double(), other, rtol=tolerance, atol=tolerance * float(other.abs().max()))


def test_float16_gradients_survive_below_its_smallest_number_through_the_loss_scale() -> None:
    hidden = torch.zeros(1, 2, dtype=torch.float16, requires_grad=True)
    weight = torch.tensor([[1.0, 0.0]] + [[0.0, 1e-4]] * 2, dtype=torch.float16, requires_grad=True)
    loss, _ = chunked_smoothed_cross_entropy(hidden, weight, None, torch.tensor([0]), 0.0, 1)
    (grad,) = torch.autograd.grad(loss * 128.0, hidden)
    assert float(grad[0, 1]) == pytest.approx(128 * 2 / 3 * 1e-4, rel=0.01)


def test_only_what_needs_a_gradient_gets_one() -> None:
    hidden, weight, _, target = problem()
    loss, _ = chunked_smoothed_cross_entropy(hidden, weight.detach(), None, target, 0.1)
    loss.backward()
    assert hidden.grad is not None
    with torch.no_grad():
        without, _ = chunked_smoothed_cross_entropy(hidden, weight, None, target, 0.1)
    assert not without.requires_grad
    torch.testing.assert_close(without, loss.detach())


def test_no_tokens_give_no_loss() -> None:
    hidden, weight, _, target = problem()
    loss, nll = chunked_smoothed_cross_entropy(hidden[:0], weight, None, target[:0], 0.1)
    loss.backward()
    assert float(loss) == float(nll) == 0.0
    assert weight.grad is not None and not weight.grad.any()


def test_the_table_is_never_held() -> None:
    """The largest tensor that the chunked form asks for grows with the chunk and not with the tokens."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Largest(TorchDispatchMode):
        numel = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            out = func(*args, **(kwargs or {}))
            if isinstance(out, Tensor):
                Largest.numel = max(Largest.numel, out.numel())
            return out

    hidden = torch.randn(96, 3, requires_grad=True)
    weight = torch.randn(1009, 3, requires_grad=True)
    target = torch.randint(1009, (96,))
    with Largest():
        chunked_smoothed_cross_entropy(hidden, weight, None, target, 0.1, 8)[0].backward()
    assert Largest.numel == 8 * 1009


def test_errors() -> None:
    hidden, weight, _, target = problem()
    with pytest.raises(ValueError, match=r"^label smoothing must lie in \[0, 1\), but is 1.0$"):
        chunked_smoothed_cross_entropy(hidden, weight, None, target, 1.0)
    with pytest.raises(ValueError, match=r"^label smoothing must lie in \[0, 1\), but is -0.1$"):
        smoothed_cross_entropy(torch.zeros(1, 4), torch.tensor([0]), -0.1)
    with pytest.raises(ValueError, match=r"^label smoothing needs a vocabulary of at least 2 types, but it has 1$"):
        smoothed_cross_entropy(torch.zeros(1, 1), torch.tensor([0]), 0.1)
    with pytest.raises(ValueError, match=r"^a chunk holds at least 1 token, but chunk_tokens is 0$"):
        chunked_smoothed_cross_entropy(hidden, weight, None, target, 0.1, 0)
    assert math.isfinite(float(chunked_smoothed_cross_entropy(hidden, weight, None, target, 0.0)[0]))
