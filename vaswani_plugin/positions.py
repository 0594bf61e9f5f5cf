"""Positional encoding: section 3.5 of "Attention Is All You Need" (Vaswani et al. 2017).

Shapes: B batch, T tokens, D width of the model.
"""

from __future__ import annotations

import math
from typing import Callable, Dict

import torch
from torch import Tensor, nn


def interleaved_sinusoids(n_positions: int, d_model: int) -> Tensor:
    """The paper's sinusoids, sine and cosine in alternate columns.

    ``PE(pos, 2i) = sin(pos / 10000^(2i/d_model))`` and ``PE(pos, 2i+1) = cos(pos / 10000^(2i/d_model))``, with
    ``pos`` counted from 0. An odd ``d_model`` ends on the sine of its last frequency.

    Source: Vaswani et al. 2017, section 3.5.
    Differs from: the toolkit, which puts all sines before all cosines and spaces the frequencies otherwise.

    Returns:
        float32 (n_positions, d_model).
    """
    frequencies = torch.exp(torch.arange(0, d_model, 2, dtype=torch.float64) * (-math.log(10000.0) / d_model))
    angles = torch.arange(n_positions, dtype=torch.float64).unsqueeze(1) * frequencies
    table = torch.stack((angles.sin(), angles.cos()), dim=2).flatten(1)
    return table[:, :d_model].float()


def concatenated_sinusoids(n_positions: int, d_model: int) -> Tensor:
    """The sinusoids of the toolkit's own Transformer: all sines, then all cosines.

    Column i of either half has the frequency ``10000^(-i / (d_model/2 - 1))``. Row 0 holds the position that the
    toolkit numbers padding index + 1 = 2. An odd ``d_model`` ends on a column of zeros.

    Source: fairseq, ``SinusoidalPositionalEmbedding``; it allows the exchange of weights with that model.

    Returns:
        float32 (n_positions, d_model).
    """
    half = d_model // 2
    frequencies = torch.exp(torch.arange(half, dtype=torch.float32) * (-math.log(10000.0) / max(half - 1, 1)))
    angles = torch.arange(2, n_positions + 2, dtype=torch.float32).unsqueeze(1) * frequencies
    table = torch.cat((angles.sin(), angles.cos()), dim=1)
    return nn.functional.pad(table, (0, d_model - 2 * half))


SINUSOID_LAYOUTS: Dict[str, Callable[[int, int], Tensor]] = {
    "interleaved": interleaved_sinusoids,
    "concatenated": concatenated_sinusoids,
}


class SinusoidalPositions(nn.Module):
    """Fixed sinusoids, computed for as many positions as a sentence asks for: no length limit, nothing in checkpoints.

    Args:
        layout: a key of ``SINUSOID_LAYOUTS``.

    Raises:
        ValueError: the layout is not in the table, or d_model is below 1.
    """

    def __init__(self, d_model: int, padding_idx: int, layout: str = "interleaved") -> None:
        super().__init__()
        if layout not in SINUSOID_LAYOUTS:
            raise ValueError(f"positional layout must be one of {', '.join(SINUSOID_LAYOUTS)}, but is {layout!r}")
        if d_model < 1:
            raise ValueError(f"d_model must be at least 1, but is {d_model}")
        self.d_model = d_model
        self.padding_idx = padding_idx
        self.layout = layout
        self.table: Tensor
        self.register_buffer("table", SINUSOID_LAYOUTS[layout](64, d_model), persistent=False)

    def rows(self, n_positions: int) -> Tensor:
        """The first ``n_positions`` rows of the table, (n_positions, D), which grows when it is too short."""
        if n_positions > self.table.size(0):
            grown = SINUSOID_LAYOUTS[self.layout](max(n_positions, 2 * self.table.size(0)), self.d_model)
            self.table = grown.to(self.table)
        return self.table[:n_positions]

    def at(self, position: int) -> Tensor:
        """The encoding of one position, (D,): what incremental decoding adds to its newest token."""
        return self.rows(position + 1)[position]

    def forward(self, tokens: Tensor) -> Tensor:
        """Encodings of tokens (B, T) as (B, T, D); zero at padding, which may stand on either side."""
        table = self.rows(tokens.size(1))
        real = tokens.ne(self.padding_idx)
        positions = (real.cumsum(dim=1) - 1).clamp_(min=0)
        return table[positions] * real.unsqueeze(-1)


class LearnedPositions(nn.Embedding):
    """Learned positions (Table 3, row E), stored as the toolkit stores them.

    Position p has row ``padding_idx + 1 + p``, so that the weights can be exchanged with the toolkit's
    ``LearnedPositionalEmbedding``; row ``padding_idx`` stays zero.

    Args:
        n_positions: the longest sentence that can be encoded.
    """

    def __init__(self, n_positions: int, d_model: int, padding_idx: int) -> None:
        super().__init__(n_positions + padding_idx + 1, d_model, padding_idx=padding_idx)
        self.n_positions = n_positions
        self.first_row = padding_idx + 1
        nn.init.normal_(self.weight, mean=0.0, std=d_model**-0.5)
        nn.init.zeros_(self.weight[padding_idx])

    def _check(self, length: int) -> None:
        if length > self.n_positions:
            raise ValueError(
                f"learned positions reach {self.n_positions} tokens, but a sentence has {length}; train with more "
                "--max-source-positions and --max-target-positions, or with sinusoids, which know no limit"
            )

    def at(self, position: int) -> Tensor:
        """The encoding of one position, (D,)."""
        self._check(position + 1)
        return self.weight[self.first_row + position]

    def forward(self, tokens: Tensor) -> Tensor:
        """Encodings of tokens (B, T) as (B, T, D); zero at padding.

        Raises:
            ValueError: a sentence is longer than the table.
        """
        self._check(tokens.size(1))
        padding_idx = self.first_row - 1
        real = tokens.ne(padding_idx)
        return super().forward(real.cumsum(dim=1) * real + padding_idx)
