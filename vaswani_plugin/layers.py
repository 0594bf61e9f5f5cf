"""Encoder and decoder layers: Figure 1 and sections 3.1 and 3.3 of "Attention Is All You Need" (Vaswani et al. 2017).

Shapes: B batch, T target or query tokens, S source tokens, H heads, D width of the model. Masks are True where
attention is forbidden.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Callable, Dict, Optional, Tuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .attention import MultiHeadAttention, attend_beam
from .dropout import dropout, residual_dropout
from .incremental import DecodingState, KeysValues
from .linear import Linear

ACTIVATIONS: Dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_accurate": partial(F.gelu, approximate="tanh"),
    "gelu_fast": partial(F.gelu, approximate="tanh"),
    "tanh": torch.tanh,
    "linear": lambda x: x,
}


@dataclass(frozen=True)
class LayerConfig:
    """What an encoder or decoder layer is made of, in the paper's symbols.

    d_k and d_v left at None are d_model / h. d_memory is the width of the encoder's output as a decoder layer sees
    it, None for d_model. p_drop is the residual dropout; dropout on attention weights and inside the feed-forward
    network (p_attention, p_activation) are not the paper's. pre_norm normalises a sub-layer's input instead of the sum.
    """

    d_model: int = 512
    d_ff: int = 2048
    n_heads: int = 8
    d_k: Optional[int] = None
    d_v: Optional[int] = None
    d_memory: Optional[int] = None
    p_drop: float = 0.1
    p_attention: float = 0.0
    p_activation: float = 0.0
    pre_norm: bool = False
    activation: str = "relu"

    def __post_init__(self) -> None:
        for name in ("d_model", "d_ff"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, but is {getattr(self, name)}")
        for name in ("p_drop", "p_attention", "p_activation"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ValueError(f"{name} must lie in [0, 1], but is {getattr(self, name)}")
        if self.activation not in ACTIVATIONS:
            raise ValueError(f"activation must be one of {', '.join(ACTIVATIONS)}, but is {self.activation!r}")


class Layer(nn.Module):
    """What both kinds of layer share: residual connections, and the position-wise feed-forward network.

    The feed-forward network starts from torch's default, as in the toolkit. Glorot's distribution, up to twice as wide,
    learns more slowly in post-norm layers: it makes the new part of each residual sum larger.
    """

    def __init__(self, config: LayerConfig) -> None:
        super().__init__()
        self.config = config
        self.self_attn = self._attention(d_memory=None)
        self.self_attn_layer_norm = nn.LayerNorm(config.d_model)
        self.fc1 = Linear(config.d_model, config.d_ff)
        self.fc2 = Linear(config.d_ff, config.d_model)
        self.final_layer_norm = nn.LayerNorm(config.d_model)

    def _attention(self, d_memory: Optional[int]) -> MultiHeadAttention:
        config = self.config
        return MultiHeadAttention(
            config.d_model, config.n_heads, config.d_k, config.d_v, d_memory, p_drop=config.p_attention
        )

    def _before(self, x: Tensor, norm: nn.LayerNorm) -> Tensor:
        normalised: Tensor = norm(x) if self.config.pre_norm else x
        return normalised

    def _after(self, x: Tensor, sublayer: Tensor, norm: nn.LayerNorm) -> Tensor:
        """``LayerNorm(x + Dropout(Sublayer(x)))``; pre-norm layers have normalised before."""
        x = residual_dropout(x, sublayer, self.config.p_drop, self.training)
        return x if self.config.pre_norm else norm(x)

    def _feed_forward(self, x: Tensor) -> Tensor:
        """``max(0, x W1 + b1) W2 + b2`` between its residual connection. Source: section 3.3, equation 2."""
        hidden = self.fc1(self._before(x, self.final_layer_norm))
        if self.config.activation == "relu":
            hidden = hidden.relu_()  # a linear layer's gradient does not need its output
        else:
            hidden = ACTIVATIONS[self.config.activation](hidden)
        hidden = dropout(hidden, self.config.p_activation, self.training)
        return self._after(x, self.fc2(hidden), self.final_layer_norm)


class EncoderLayer(Layer):
    """Self-attention, then the feed-forward network. Source: Vaswani et al. 2017, section 3.1, Figure 1 left."""

    def forward(
        self, x: Tensor, forbidden: Optional[Tensor] = None, need_weights: bool = False
    ) -> Tuple[Tensor, Optional[Tensor]]:
        """Map x (B, S, D) to (B, S, D); forbidden is broadcastable to (B, H, S, S), weights are (B, H, S, S)."""
        query = self._before(x, self.self_attn_layer_norm)
        attended, weights = self.self_attn.to_itself(query, forbidden, need_weights=need_weights)
        x = self._after(x, attended, self.self_attn_layer_norm)
        return self._feed_forward(x), weights


class DecoderLayer(Layer):
    """Causal self-attention, attention over the encoder's output, then the feed-forward network.

    Source: Vaswani et al. 2017, section 3.1, Figure 1 right.
    """

    def __init__(self, config: LayerConfig) -> None:
        super().__init__(config)
        self.encoder_attn = self._attention(config.d_memory)
        self.encoder_attn_layer_norm = nn.LayerNorm(config.d_model)

    def forward(
        self,
        x: Tensor,
        memory: KeysValues,
        memory_forbidden: Optional[Tensor] = None,
        forbidden: Optional[Tensor] = None,
        causal: bool = True,
        need_weights: bool = False,
        need_memory_weights: bool = False,
    ) -> Tuple[Tensor, Optional[Tensor], Optional[Tensor]]:
        """Map x (B, T, D) to (B, T, D).

        Args:
            memory: keys and values of the encoder's output, from ``encoder_attn.keys_and_values``.
            memory_forbidden: bool, broadcastable to (B, H, T, S).
            forbidden: bool, broadcastable to (B, H, T, T), instead of ``causal``.

        Returns:
            Output, and the weights of self-attention (B, H, T, T) and over the source (B, H, T, S) where asked for.
        """
        query = self._before(x, self.self_attn_layer_norm)
        attended, weights = self.self_attn.to_itself(query, forbidden, causal and forbidden is None, need_weights)
        x = self._after(x, attended, self.self_attn_layer_norm)

        query = self._before(x, self.encoder_attn_layer_norm)
        attended, memory_weights = self.encoder_attn(
            query, memory[0], memory[1], memory_forbidden, need_weights=need_memory_weights
        )
        x = self._after(x, attended, self.encoder_attn_layer_norm)
        return self._feed_forward(x), weights, memory_weights

    def step(self, x: Tensor, state: DecodingState, index: int) -> Tuple[Tensor, Tensor]:
        """The same for the newest token of each hypothesis, which sees its own past.

        Args:
            x: (B * W, D).
            state: of B sentences with W hypotheses each; it takes up what this layer adds to it.
            index: which of the decoder's layers this is.

        Returns:
            Output (B * W, D), and the weights over the source (B, H, W, S).
        """
        beam = (*state.lineage.shape[:2], self.config.n_heads, -1)  # (B, W, H, d)
        queries, keys, values = self.self_attn.project(self._before(x, self.self_attn_layer_norm))
        past = state.append(index, keys.view(beam), values.view(beam))
        attended, _ = attend_beam(queries.view(beam), *past, state.lineage[:, None])
        x = self._after(x, self.self_attn.out_proj(attended), self.self_attn_layer_norm)

        queries = self.encoder_attn.q_proj(self._before(x, self.encoder_attn_layer_norm))
        attended, weights = attend_beam(queries.view(beam), *state.source[index], state.source_mask)
        x = self._after(x, self.encoder_attn.out_proj(attended), self.encoder_attn_layer_norm)
        return self._feed_forward(x), weights
