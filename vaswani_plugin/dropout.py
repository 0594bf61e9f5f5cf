"""Dropout: section 5.4 of "Attention Is All You Need" (Vaswani et al. 2017), quick on a CPU too."""

from __future__ import annotations

from typing import Any, Tuple

import torch
from torch import Tensor
from torch.nn import functional as F

_LEVELS = 2**16


def _keep_mask(x: Tensor, n_kept_levels: int) -> Tensor:
    """1 with probability ``n_kept_levels / 65536``, else 0, from torch's default generator: uint8 of x's shape.

    One 64-bit draw serves four elements: torch's own CPU dropout spends one draw and a float conversion on each.
    """
    words = torch.empty((x.numel() + 3) // 4, dtype=torch.int64)
    words.random_(-(2**63), None)  # the full range: random_() alone never sets the sign bit
    levels = words.view(torch.int16)[: x.numel()].view(x.shape)
    return (levels < n_kept_levels - _LEVELS // 2).view(torch.uint8)  # which multiplies faster than bool


class _CpuDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, n_kept_levels: int) -> Tensor:
        mask = _keep_mask(x, n_kept_levels)
        ctx.save_for_backward(mask)
        ctx.scale = _LEVELS / n_kept_levels
        return (x * mask).mul_(ctx.scale)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> Tuple[Tensor, None]:
        (mask,) = ctx.saved_tensors
        return (grad_outputs[0] * mask).mul_(ctx.scale), None


class _CpuResidual(torch.autograd.Function):
    """``x + Dropout(sublayer)``, written over the sublayer's output where that has the type of the sum."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, sublayer: Tensor, n_kept_levels: int) -> Tensor:
        mask = _keep_mask(sublayer, n_kept_levels)
        ctx.save_for_backward(mask)
        ctx.scale, ctx.dtype = _LEVELS / n_kept_levels, sublayer.dtype
        if sublayer.dtype != x.dtype:
            return torch.add(x, sublayer * mask, alpha=ctx.scale)
        # not mark_dirty: the output of a linear layer is a view, whose in-place gradient would leave x out
        total = sublayer.detach().mul_(mask)
        return torch.add(x, total, alpha=ctx.scale, out=total)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> Tuple[Tensor, Tensor, None]:
        (mask,) = ctx.saved_tensors
        return grad_outputs[0], (grad_outputs[0] * mask).mul_(ctx.scale).to(ctx.dtype), None


def _kept_levels(x: Tensor, p_drop: float) -> int:
    """The levels of 65,536 that our own dropout keeps, or 0 where it is left to torch."""
    n_kept_levels = round((1.0 - p_drop) * _LEVELS)
    return 0 if x.device.type != "cpu" or n_kept_levels == _LEVELS else n_kept_levels


def residual_dropout(x: Tensor, sublayer: Tensor, p_drop: float, training: bool) -> Tensor:
    """``x + Dropout(sublayer)``. Source: Vaswani et al. 2017, section 5.4.

    Args:
        x: of any type.
        sublayer: of x's shape; it may be overwritten, so it must be something that no gradient needs, like the output
            of a linear layer.
        p_drop: in [0, 1].
    """
    n_kept_levels = _kept_levels(sublayer, p_drop)
    if not training or p_drop == 0.0 or sublayer.numel() == 0 or n_kept_levels == 0 or not sublayer.requires_grad:
        return x + dropout(sublayer, p_drop, training)
    total: Tensor = _CpuResidual.apply(x, sublayer, n_kept_levels)
    return total


def dropout(x: Tensor, p_drop: float, training: bool) -> Tensor:
    """Zero each element with probability p_drop and scale the others, so that the expectation stays x.

    On a CPU the probability is rounded to a multiple of 2^-16 and the scale follows the rounded value, so the
    expectation is exact. The mask comes from torch's default generator: a seed repeats it.

    Source: Vaswani et al. 2017, section 5.4 (residual dropout).

    Args:
        p_drop: in [0, 1].
    """
    if not training or p_drop == 0.0 or x.numel() == 0:
        return x
    n_kept_levels = _kept_levels(x, p_drop)
    if n_kept_levels == 0:
        return F.dropout(x, p_drop, training=True)
    kept: Tensor = _CpuDropout.apply(x, n_kept_levels)
    return kept
