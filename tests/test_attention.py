"""Attention against the paper's worked example, an oracle in loops, and its properties."""

from __future__ import annotations

import math
from typing import Optional

import pytest
import torch
from torch import Tensor

from vaswani_plugin.attention import (
    MultiHeadAttention,
    attend,
    causal_mask,
    causal_padding_mask,
    key_padding_mask,
    scaled_dot_product_attention,
)

B, T, S, H, D_K, D_V = 2, 3, 5, 7, 11, 13


def loop_attention(q: Tensor, k: Tensor, v: Tensor, forbidden: Optional[Tensor]) -> Tensor:
    """Equation 1 for q (T, d_k), k (S, d_k), v (S, d_v), one number at a time."""
    rows = []
    q, k, v = q.detach(), k.detach(), v.detach()
    for i in range(len(q)):
        allowed = [j for j in range(len(k)) if forbidden is None or not forbidden[i, j]]
        scores = [sum(float(q[i, c]) * float(k[j, c]) for c in range(q.size(1))) / q.size(1) ** 0.5 for j in allowed]
        top = max(scores)
        weights = [math.exp(score - top) for score in scores]
        total = sum(weights)
        rows.append([sum(w * float(v[j, c]) for w, j in zip(weights, allowed)) / total for c in range(v.size(1))])
    return torch.tensor(rows)


def random_qkv(d_v: int = D_V) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(1)
    return torch.randn(B, H, T, D_K), torch.randn(B, H, S, D_K), torch.randn(B, H, S, d_v)


def test_worked_example() -> None:
    query = torch.tensor([[1.0, 0.0]])
    keys = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    values = torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 1.0]])
    output, weights = scaled_dot_product_attention(query, keys, values)
    torch.testing.assert_close(weights, torch.tensor([[0.401, 0.198, 0.401]]), rtol=0, atol=5e-4)
    torch.testing.assert_close(output, torch.tensor([[1.604, 0.797]]), rtol=0, atol=1e-3)
    fused = attend(query[None, None], keys[None, None], values[None, None])
    torch.testing.assert_close(fused[0, 0], output)


def test_scaling_brings_the_scores_to_unit_deviation() -> None:
    torch.manual_seed(0)
    d_k = 64
    dots = (torch.randn(20000, d_k) * torch.randn(20000, d_k)).sum(dim=1)
    assert abs(float(dots.std()) - 8) < 0.2
    queries, keys = torch.randn(50, d_k), torch.randn(400, d_k)
    _, weights = scaled_dot_product_attention(queries, keys, keys)
    scores = weights.log() - weights.log().mean(dim=1, keepdim=True)
    assert abs(float(scores.std()) - 1) < 0.05


@pytest.mark.parametrize("d_v", [D_K, D_V])
@pytest.mark.parametrize("masked", [False, True])
def test_both_forms_equal_loops_and_each_others_gradients(masked: bool, d_v: int) -> None:
    queries, keys, values = (x.requires_grad_() for x in random_qkv(d_v))
    forbidden = None
    if masked:
        forbidden = torch.rand(B, 1, T, S) < 0.4
        forbidden[..., 0] = False
    plain, weights = scaled_dot_product_attention(queries, keys, values, forbidden)
    fused = attend(queries, keys, values, forbidden)
    torch.testing.assert_close(fused, plain, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(B, H, T))
    for b in range(B):
        for h in range(H):
            mask = None if forbidden is None else forbidden[b, 0]
            expected = loop_attention(queries[b, h], keys[b, h], values[b, h], mask)
            torch.testing.assert_close(plain[b, h].detach(), expected, rtol=1e-4, atol=1e-5)
    direction = torch.randn_like(plain)
    ours = torch.autograd.grad((plain * direction).sum(), (queries, keys, values))
    theirs = torch.autograd.grad((fused * direction).sum(), (queries, keys, values))
    for mine, other in zip(ours, theirs):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-5)


def test_a_row_without_keys_gives_zeros_and_finite_gradients() -> None:
    queries, keys, values = (x.requires_grad_() for x in random_qkv())
    forbidden = torch.zeros(B, 1, T, S, dtype=torch.bool)
    forbidden[0, 0, 1] = True
    output, weights = scaled_dot_product_attention(queries, keys, values, forbidden)
    assert output[0, :, 1].abs().max() == 0
    assert weights[0, :, 1].abs().max() == 0
    output.sum().backward()
    assert all(x.grad is not None and x.grad.isfinite().all() for x in (queries, keys, values))


def test_masks() -> None:
    f, t = False, True
    assert causal_mask(3).tolist() == [[f, t, t], [f, f, t], [f, f, f]]
    padding = torch.tensor([[t, f, f], [t, t, t]])
    assert key_padding_mask(padding)[:, 0, 0].tolist() == [[t, f, f], [f, f, f]]
    left = causal_padding_mask(torch.tensor([[t, f, f]]))
    assert left.shape == (1, 1, 3, 3)
    assert left[0, 0].tolist() == [[f, t, t], [t, f, t], [t, f, f]]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_padded_keys_weigh_nothing_in_half_precision(dtype: torch.dtype) -> None:
    queries, keys, values = (x.to(dtype) for x in random_qkv())
    padding = torch.tensor([[False] * S, [False, False, True, True, True]])
    output, weights = scaled_dot_product_attention(queries, keys, values, key_padding_mask(padding))
    assert output.dtype == weights.dtype == dtype
    assert output.isfinite().all()
    assert (weights[1, :, :, 2:] == 0).all()
    fused = attend(queries, keys, values, key_padding_mask(padding))
    assert fused.dtype == dtype
    torch.testing.assert_close(fused, output, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("causal", [False, True])
def test_attention_and_its_gradients_in_half_precision_are_those_of_float32(dtype: torch.dtype, causal: bool) -> None:
    torch.manual_seed(9)
    exact = [torch.randn(B, 2, T, 8).to(dtype).float().requires_grad_() for _ in range(3)]
    rounded = [x.detach().to(dtype).requires_grad_() for x in exact]
    upstream = torch.randn(B, 2, T, 8).to(dtype)
    for inputs in (exact, rounded):
        output = attend(*inputs, causal=causal)
        output.backward(upstream.to(output.dtype))
    for one, other in zip(exact, rounded):
        assert one.grad is not None and other.grad is not None
        torch.testing.assert_close(other.grad.float(), one.grad, rtol=0.05, atol=0.05)


def test_multi_head_attention_is_its_heads_side_by_side() -> None:
    torch.manual_seed(2)
    module = MultiHeadAttention(d_query=10, n_heads=3, d_k=4, d_v=6, d_memory=9)
    for projection in (module.q_proj, module.k_proj, module.v_proj, module.out_proj):
        torch.nn.init.normal_(projection.bias)
    query, memory = torch.randn(B, T, 10), torch.randn(B, S, 9)
    output, none = module(query, *module.keys_and_values(memory))
    assert none is None
    heads = []
    for h in range(3):
        q = query @ module.q_proj.weight[4 * h : 4 * h + 4].T + module.q_proj.bias[4 * h : 4 * h + 4]
        k = memory @ module.k_proj.weight[4 * h : 4 * h + 4].T + module.k_proj.bias[4 * h : 4 * h + 4]
        v = memory @ module.v_proj.weight[6 * h : 6 * h + 6].T + module.v_proj.bias[6 * h : 6 * h + 6]
        heads.append(((q @ k.transpose(1, 2)) / 2.0).softmax(dim=-1) @ v)
    expected = torch.cat(heads, dim=2) @ module.out_proj.weight.T + module.out_proj.bias
    torch.testing.assert_close(output, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("need_weights", [False, True])
def test_the_hypotheses_of_a_beam_share_the_keys_of_their_sentence(need_weights: bool) -> None:
    torch.manual_seed(3)
    n_hypotheses = 4
    module = MultiHeadAttention(d_query=12, n_heads=3).eval()
    query, memory = torch.randn(B * n_hypotheses, T, 12), torch.randn(B, S, 12)
    padding = torch.tensor([[False] * S, [True, True, False, False, False]])
    shared = module(query, *module.keys_and_values(memory), key_padding_mask(padding), need_weights=need_weights)
    repeated = module(
        query,
        *module.keys_and_values(memory.repeat_interleave(n_hypotheses, dim=0)),
        key_padding_mask(padding.repeat_interleave(n_hypotheses, dim=0)),
        need_weights=need_weights,
    )
    torch.testing.assert_close(shared[0], repeated[0], rtol=1e-5, atol=1e-6)
    if need_weights:
        assert shared[1].shape == (B * n_hypotheses, 3, T, S)
        torch.testing.assert_close(shared[1], repeated[1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((10, 0), r"^the number of attention heads must be at least 1, but is 0$"),
        ((10, 3), r"^the width 10 is not a multiple of the 3 attention heads; give d_k and d_v to free them$"),
        ((10, 2, 0, 3), r"^d_k and d_v must be at least 1, but are 0 and 3$"),
    ],
)
def test_multi_head_errors(sizes: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MultiHeadAttention(*sizes)
