"""Label smoothing: section 5.4 of "Attention Is All You Need" (Vaswani et al. 2017).

Shapes: N tokens that are scored (no padding among them), V vocabulary, D width of the model. Losses are in nats.
"""

from __future__ import annotations

from typing import Any, List, Optional, Tuple

import torch
from torch import Tensor
from torch.nn import functional as F

from .linear import autocast_dtype

#: Tokens whose logits are held at once: 256 rows of 8,000 float32 are 8 MB. In half precision the sum of the chunks'
#: gradients costs more than the products, so that chunks are longer.
CHUNK_TOKENS, HALF_CHUNK_TOKENS = 256, 512


def smoothing_weights(eps: float, n_classes: int) -> Tuple[float, float]:
    """The factors of the two parts of the loss: ``1 - eps - eps/(V-1)`` and ``eps/(V-1)``.

    Raises:
        ValueError: eps outside [0, 1), or a vocabulary of fewer than two types.
    """
    if not 0.0 <= eps < 1.0:
        raise ValueError(f"label smoothing must lie in [0, 1), but is {eps}")
    if n_classes < 2:
        raise ValueError(f"label smoothing needs a vocabulary of at least 2 types, but it has {n_classes}")
    share = eps / (n_classes - 1)
    return 1.0 - eps - share, share


def smoothed_cross_entropy(log_probs: Tensor, target: Tensor, eps: float) -> Tuple[Tensor, Tensor]:
    """Cross entropy against ``1 - eps`` on the gold token and ``eps/(V-1)`` on every other, token by token.

    ``loss = -(1 - eps) log p(gold) - eps/(V-1) * sum over the others of log p``

    Source: Vaswani et al. 2017, section 5.4, with the distribution of the authors' code.
    Differs from: torch's ``label_smoothing``, which spreads eps over all V types, the gold one included.

    Args:
        log_probs: (N, V).
        target: int64 (N,).

    Returns:
        Smoothed loss (N,) and negative log-likelihood (N,).
    """
    on_gold, on_all = smoothing_weights(eps, log_probs.size(-1))
    nll = -log_probs.gather(1, target.unsqueeze(1)).squeeze(1)
    return on_gold * nll - on_all * log_probs.sum(dim=1), nll


class _ChunkedLoss(torch.autograd.Function):
    """Projection, softmax and loss a chunk of tokens at a time.

    The gradients of the projection are made while a chunk's probabilities are at hand, so nothing of size (N, V) is
    ever kept. In float16 they are made in the backward pass instead, from the projection done again: the loss scale
    that keeps them above float16's smallest number is known only there. A second backward pass makes them so too.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Optional[Tensor],
        target: Tensor,
        eps: float,
        chunk_tokens: int,
        dtype: torch.dtype,
    ) -> Tuple[Tensor, Tensor]:
        ctx.settings = eps, chunk_tokens, dtype
        differentiate = any(ctx.needs_input_grad[:3])
        at_once = differentiate and dtype != torch.float16
        gradients = _Gradients(hidden, weight, bias) if at_once else None
        loss, nll = _loss_by_chunks(hidden, weight, bias, target, eps, chunk_tokens, dtype, gradients)
        ctx.made = None if gradients is None else gradients.tensors()
        if differentiate:
            ctx.save_for_backward(hidden, weight, bias, target)
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> Tuple[Optional[Tensor], ...]:
        scale = grad_outputs[0]
        made, ctx.made = ctx.made, None  # handed out once, so as not to lie beside the parameters' own gradients
        if made is None:
            hidden, weight, bias, target = ctx.saved_tensors
            gradients = _Gradients(hidden, weight, bias, scale)
            eps, chunk_tokens, dtype = ctx.settings
            _loss_by_chunks(hidden, weight, bias, target, eps, chunk_tokens, dtype, gradients)
            made = gradients.tensors()
        elif scale.device.type != "cpu" or scale != 1.0:  # comparing would wait for a GPU
            made = [None if tensor is None else tensor.mul_(scale.to(tensor.dtype)) for tensor in made]
        return (*made, None, None, None, None)


class _Gradients:
    """The gradients of ``scale * loss``, gathered chunk by chunk, those of the parameters in float32."""

    def __init__(self, hidden: Tensor, weight: Tensor, bias: Optional[Tensor], scale: Optional[Tensor] = None) -> None:
        self.weight_dtype, self.scale = weight.dtype, scale
        self.hidden = torch.empty_like(hidden)
        self.weight = torch.zeros_like(weight, dtype=_accumulator(weight))
        self.bias = None if bias is None else torch.zeros_like(bias, dtype=_accumulator(bias))

    def add(self, start: int, rows: Tensor, weight: Tensor, grad_logits: Tensor) -> None:
        """Take in the gradient of one chunk's logits (C, V).

        Args:
            start: where the chunk begins.
            rows, weight: (C, D) and (V, D), the factors whose product the logits are.
        """
        if self.scale is not None:
            grad_logits = grad_logits * self.scale
        if self.bias is not None:
            self.bias += grad_logits.sum(dim=0)
        grad_logits = grad_logits.to(rows.dtype)
        self.hidden[start : start + rows.size(0)] = grad_logits @ weight
        if self.weight.dtype == rows.dtype:
            self.weight.addmm_(grad_logits.t(), rows)
        else:
            self.weight += grad_logits.t() @ rows

    def tensors(self) -> List[Optional[Tensor]]:
        bias = None if self.bias is None else self.bias.to(self.weight_dtype)
        return [self.hidden, self.weight.to(self.weight_dtype), bias]


def _accumulator(like: Tensor) -> torch.dtype:
    return torch.promote_types(like.dtype, torch.float32)


def _loss_by_chunks(
    hidden: Tensor,
    weight: Tensor,
    bias: Optional[Tensor],
    target: Tensor,
    eps: float,
    chunk_tokens: int,
    dtype: torch.dtype,
    gradients: Optional[_Gradients],
) -> Tuple[Tensor, Tensor]:
    on_gold, on_all = smoothing_weights(eps, weight.size(0))
    loss = torch.zeros((), dtype=_accumulator(hidden), device=hidden.device)
    weight, bias = weight.to(dtype), None if bias is None else bias.to(dtype)
    nll = torch.zeros_like(loss)
    for start in range(0, hidden.size(0), chunk_tokens):
        rows = hidden[start : start + chunk_tokens].to(dtype)
        gold = target[start : start + chunk_tokens].unsqueeze(1)
        log_probs = F.linear(rows, weight, bias).to(loss.dtype).log_softmax(dim=1)  # (C, V)
        chunk_nll = -log_probs.gather(1, gold).sum()
        nll += chunk_nll
        loss += on_gold * chunk_nll - (on_all * log_probs.sum() if on_all else 0.0)
        if gradients is not None:  # d loss / d logits = p - on_all everywhere, and - on_gold more at the gold token
            grad_logits = log_probs.exp_().sub_(on_all)
            grad_logits.scatter_add_(1, gold, torch.full_like(gold, -on_gold, dtype=loss.dtype))
            gradients.add(start, rows, weight, grad_logits)
    return loss, nll


def chunked_smoothed_cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    bias: Optional[Tensor],
    target: Tensor,
    eps: float,
    chunk_tokens: Optional[int] = None,
    dtype: Optional[torch.dtype] = None,
) -> Tuple[Tensor, Tensor]:
    """The pre-softmax projection and ``smoothed_cross_entropy`` summed over tokens, without the (N, V) table.

    Value and gradients are those of the plain form; extra memory grows with chunk_tokens * V. Softmax and sums are
    computed in float32 (in float64 for float64). Under autocasting the products have the type that it asks for.

    Args:
        hidden: the decoder's output, (N, D).
        weight: (V, D).
        bias: (V,) or None.
        target: int64 (N,), no padding.
        chunk_tokens: how many tokens' logits are held at once; by default 256, and 512 in half precision.
        dtype: in which the projection and its gradients are multiplied; by default that of hidden.

    Returns:
        Summed smoothed loss, and summed negative log-likelihood, which carries no gradient.

    Raises:
        ValueError: eps outside [0, 1), a vocabulary below 2, or a chunk below one token.
    """
    smoothing_weights(eps, weight.size(0))
    asked = autocast_dtype(hidden.device)
    if asked is not None:
        dtype = asked
        hidden, weight, bias = hidden.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype)
    dtype = hidden.dtype if dtype is None else dtype
    if chunk_tokens is None:
        chunk_tokens = CHUNK_TOKENS if dtype.itemsize > 2 else HALF_CHUNK_TOKENS
    if chunk_tokens < 1:
        raise ValueError(f"a chunk holds at least 1 token, but chunk_tokens is {chunk_tokens}")
    with torch.autocast(hidden.device.type, enabled=False):
        loss, nll = _ChunkedLoss.apply(hidden, weight, bias, target, eps, chunk_tokens, dtype)
    return loss, nll
