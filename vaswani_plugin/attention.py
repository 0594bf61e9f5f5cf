"""Attention: section 3.2 of "Attention Is All You Need" (Vaswani et al. 2017).

Shapes: B batch, T queries, S keys, H heads, D width of the model, K hypotheses of a beam. Masks are True where
attention is forbidden.
"""

from __future__ import annotations

import math
from typing import Optional, Tuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .linear import Linear, joint_linear


def scaled_dot_product_attention(
    queries: Tensor, keys: Tensor, values: Tensor, forbidden: Optional[Tensor] = None, p_drop: float = 0.0
) -> Tuple[Tensor, Tensor]:
    """``softmax(Q K^T / sqrt(d_k)) V``, written as the paper writes it, with the weights beside the output.

    The softmax is computed in float32. A row whose keys are all forbidden gets weights and an output of zero.

    Source: Vaswani et al. 2017, section 3.2.1, equation 1.
    Differs from: torch's function of this name, which keeps the weights to itself; ``attend`` uses that one.

    Args:
        queries: (..., T, d_k).
        keys: (..., S, d_k).
        values: (..., S, d_v).
        forbidden: bool, broadcastable to (..., T, S).
        p_drop: dropout on the weights.

    Returns:
        Output (..., T, d_v) and weights (..., T, S) before dropout, both of the dtype of the queries.
    """
    scores = (queries @ keys.transpose(-2, -1)).float() / math.sqrt(queries.size(-1))
    if forbidden is not None:
        scores = scores.masked_fill(forbidden, -math.inf)
        empty = forbidden.all(dim=-1, keepdim=True)
        weights = scores.masked_fill(empty, 0.0).softmax(dim=-1).masked_fill(empty, 0.0)
    else:
        weights = scores.softmax(dim=-1)
    weights = weights.to(queries.dtype)
    return F.dropout(weights, p_drop) @ values, weights


def attend(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    forbidden: Optional[Tensor] = None,
    causal: bool = False,
    p_drop: float = 0.0,
) -> Tensor:
    """The same function through torch's fused kernels, which never hold the weights.

    In half precision on a CPU, where those kernels are slow, it is written out; softmax there computes in float32 too.
    Every row must have a key that it may attend to: the masks of this module see to that.

    Args:
        queries, keys, values: (B, H, T, d_k), (B, H, S, d_k), (B, H, S, d_v).
        forbidden: bool, broadcastable to (B, H, T, S).
        causal: forbid key j to query i wherever j > i; not together with ``forbidden``.
    """
    causal = causal and queries.size(2) > 1
    if queries.dtype in (torch.bfloat16, torch.float16) and queries.device.type == "cpu":
        scores = (queries * queries.size(-1) ** -0.5) @ keys.transpose(-2, -1)  # (B, H, T, S)
        if causal:
            forbidden = causal_mask(scores.size(-1))
        if forbidden is not None:
            scores = scores.masked_fill_(forbidden, -math.inf)
        return F.dropout(scores.softmax(dim=-1), p_drop) @ values
    allowed = None if forbidden is None else ~forbidden
    return F.scaled_dot_product_attention(queries, keys, values, attn_mask=allowed, dropout_p=p_drop, is_causal=causal)


def causal_mask(n_tokens: int, device: Optional[torch.device] = None) -> Tensor:
    """True where query i would see key j > i: bool (T, T). Source: Vaswani et al. 2017, section 3.2.3."""
    return torch.ones(n_tokens, n_tokens, dtype=torch.bool, device=device).triu(1)


def key_padding_mask(padding_mask: Tensor) -> Tensor:
    """Forbid padded keys to every query: bool (B, S) becomes (B, 1, 1, S).

    A row that is nothing but padding keeps all its keys: its output means nothing, but stays finite.
    """
    return (padding_mask & ~padding_mask.all(dim=1, keepdim=True))[:, None, None, :]


def causal_padding_mask(padding_mask: Tensor) -> Tensor:
    """Forbid later and padded keys, but never a query's own position: bool (B, T) becomes (B, 1, T, T).

    Padding to the left of a sentence would otherwise leave its own rows without any key.
    """
    n_tokens = padding_mask.size(1)
    itself = torch.eye(n_tokens, dtype=torch.bool, device=padding_mask.device)
    forbidden = causal_mask(n_tokens, padding_mask.device) | padding_mask[:, None, :]
    return (forbidden & ~itself)[:, None]


def attend_beam(queries: Tensor, keys: Tensor, values: Tensor, mask: Optional[Tensor] = None) -> Tuple[Tensor, Tensor]:
    """The same function for one query a hypothesis, where the hypotheses of a sentence share keys and values.

    Written out, since torch's fused kernels are slow on a CPU where there are few queries. No gradients.

    Args:
        queries: (B, K, H, d_k).
        keys, values: (B, H, d_k, S), transposed, and (B, H, S, d_v); their dtype is that of all products.
        mask: what is added to the scores, 0 or -inf, broadcastable to (B, H, K, S).

    Returns:
        Output (B * K, H * d_v) of the dtype of the queries, and weights (B, H, K, S) of the dtype of the values.
    """
    n_sentences, width, n_heads, d_k = queries.shape
    folded = torch.empty(n_sentences, n_heads, width, d_k, dtype=keys.dtype, device=keys.device)
    torch.mul(queries.transpose(1, 2), d_k**-0.5, out=folded)
    scores = torch.bmm(folded.flatten(0, 1), keys.flatten(0, 1))
    scores = scores.view(n_sentences, n_heads, width, -1)
    if mask is not None:
        scores += mask
    weights = scores.softmax(dim=-1)
    context = torch.bmm(weights.flatten(0, 1), values.flatten(0, 1)).view(n_sentences, n_heads, width, -1)
    return context.transpose(1, 2).reshape(n_sentences * width, -1).to(queries.dtype), weights


class MultiHeadAttention(nn.Module):
    """``Concat(head_1, ..., head_h) W^O`` with ``head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V)``.

    Source: Vaswani et al. 2017, section 3.2.2. The projections carry biases, as the toolkit's do.
    Differs from: the toolkit's, where d_k and d_v are tied to d_model / h.

    Args:
        d_query: width of the queries and of the output.
        n_heads: h.
        d_k: width of a head's queries and keys; by default d_query / h.
        d_v: width of a head's values; by default d_query / h.
        d_memory: width of what the keys and values are made from; by default d_query.
        p_drop: dropout on the attention weights; the paper has none.

    Raises:
        ValueError: a size below 1, or d_k or d_v left open where h does not divide d_query.
    """

    def __init__(
        self,
        d_query: int,
        n_heads: int,
        d_k: Optional[int] = None,
        d_v: Optional[int] = None,
        d_memory: Optional[int] = None,
        p_drop: float = 0.0,
    ) -> None:
        super().__init__()
        if n_heads < 1:
            raise ValueError(f"the number of attention heads must be at least 1, but is {n_heads}")
        if (d_k is None or d_v is None) and d_query % n_heads:
            raise ValueError(
                f"the width {d_query} is not a multiple of the {n_heads} attention heads; give d_k and d_v to free them"
            )
        self.n_heads = n_heads
        self.d_k = d_query // n_heads if d_k is None else d_k
        self.d_v = d_query // n_heads if d_v is None else d_v
        if min(self.d_k, self.d_v) < 1:
            raise ValueError(f"d_k and d_v must be at least 1, but are {self.d_k} and {self.d_v}")
        self.p_drop = p_drop
        d_memory = d_query if d_memory is None else d_memory
        self.q_proj = Linear(d_query, n_heads * self.d_k)
        self.k_proj = Linear(d_memory, n_heads * self.d_k)
        self.v_proj = Linear(d_memory, n_heads * self.d_v)
        self.out_proj = Linear(n_heads * self.d_v, d_query)
        self.in_proj: Optional[nn.Module] = None  # what gives queries, keys and values at once, where they are packed
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """As in the toolkit: Glorot's uniform distribution, for which the three input projections are one matrix."""
        for projection in (self.q_proj, self.k_proj, self.v_proj):
            nn.init.xavier_uniform_(projection.weight, gain=2**-0.5)
        nn.init.xavier_uniform_(self.out_proj.weight)
        nn.init.zeros_(self.out_proj.bias)

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)  # (B, H, T, d)

    def keys_and_values(self, memory: Tensor) -> Tuple[Tensor, Tensor]:
        """Project memory (B, S, D) to keys (B, H, S, d_k) and values (B, H, S, d_v)."""
        keys, values = joint_linear(memory, (self.k_proj, self.v_proj))
        return self._heads(keys), self._heads(values)

    def project(self, x: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
        """Queries (..., H * d_k), keys (..., H * d_k) and values (..., H * d_v) of the same x (..., D)."""
        if self.in_proj is None:
            queries, keys, values = joint_linear(x, (self.q_proj, self.k_proj, self.v_proj))
            return queries, keys, values
        d_keys, d_values = self.n_heads * self.d_k, self.n_heads * self.d_v
        queries, keys, values = self.in_proj(x).split((d_keys, d_keys, d_values), dim=-1)
        return queries, keys, values

    def to_itself(
        self, x: Tensor, forbidden: Optional[Tensor] = None, causal: bool = False, need_weights: bool = False
    ) -> Tuple[Tensor, Optional[Tensor]]:
        """Self-attention: ``forward`` from x (B, T, D) to its own keys and values."""
        queries, keys, values = self.project(x)
        return self._attend(queries, self._heads(keys), self._heads(values), forbidden, causal, need_weights)

    def forward(
        self,
        query: Tensor,
        keys: Tensor,
        values: Tensor,
        forbidden: Optional[Tensor] = None,
        causal: bool = False,
        need_weights: bool = False,
    ) -> Tuple[Tensor, Optional[Tensor]]:
        """Attend from every query to the given keys and values.

        When there are K times as many rows of queries as of keys, K successive rows share one row of keys: the
        hypotheses of a beam attend to their sentence, whose keys are kept once.

        Args:
            query: (B * K, T, D).
            keys, values: what ``keys_and_values`` returns, (B, H, S, d_k) and (B, H, S, d_v).
            forbidden: bool, broadcastable to (B, H, T, S).
            causal: forbid later keys; instead of ``forbidden``.
            need_weights: return the weights too, by the slower plain form.

        Returns:
            Output (B * K, T, D), and weights (B * K, H, T, S) or None.
        """
        return self._attend(self.q_proj(query), keys, values, forbidden, causal, need_weights)

    def _attend(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        forbidden: Optional[Tensor],
        causal: bool,
        need_weights: bool,
    ) -> Tuple[Tensor, Optional[Tensor]]:
        """``forward`` from projected queries (B * K, T, H * d_k)."""
        n_rows, n_queries = queries.shape[:2]
        n_shared = n_rows // keys.size(0)
        folded = queries.reshape(keys.size(0), n_shared * n_queries, -1)
        heads = self._heads(folded)  # (B, H, K * T, d_k)
        p_drop = self.p_drop if self.training else 0.0
        weights = None
        if need_weights:
            if causal:
                forbidden = causal_mask(n_queries, queries.device)
            context, weights = scaled_dot_product_attention(heads, keys, values, forbidden, p_drop)
            weights = weights.view(keys.size(0), self.n_heads, n_shared, n_queries, -1)
            weights = weights.transpose(1, 2).reshape(n_rows, self.n_heads, n_queries, -1)
        else:
            context = attend(heads, keys, values, forbidden, causal, p_drop)
        context = context.transpose(1, 2).reshape(n_rows, n_queries, self.n_heads * self.d_v)
        return self.out_proj(context), weights
