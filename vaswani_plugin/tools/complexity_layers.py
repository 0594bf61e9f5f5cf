"""The four layers of Table 1, each from n tokens of width d to as many: x (1, n, d) to (1, n, d).

Source: Vaswani et al. 2017, section 4. Each is a whole layer, with the projections of attention, for which the table
has no term: ``8 n d^2`` operations beside the ``4 n^2 d`` of attention to all tokens. Attention therefore follows the
table where n (or r) is much greater than d.

Shapes: n tokens, d width, H heads, r neighbours, W blocks, w = r / 2 tokens of a block.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Callable, Dict, List, Tuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vaswani_plugin.attention import MultiHeadAttention, scaled_dot_product_attention

#: Width of a head, as in the paper's models: the number of heads grows with d.
HEAD_WIDTH = 64


class SelfAttention(nn.Module):
    """Every token attends to every token, by this package's own multi-head attention.

    Attributes:
        written_out: compute the weights as the paper writes them, by products that can be counted, and not by a fused
            kernel.
    """

    def __init__(self, d: int) -> None:
        super().__init__()
        self.attention = MultiHeadAttention(d, max(1, d // HEAD_WIDTH))
        self.written_out = False

    def forward(self, x: Tensor) -> Tensor:
        """Map (1, n, d) to (1, n, d)."""
        return self.attention.to_itself(x, need_weights=self.written_out)[0]


class RestrictedSelfAttention(nn.Module):
    """Every token attends to the r / 2 tokens on either side and to itself, in O(r n d).

    Queries are taken in blocks of w = r / 2 tokens. What a block may attend to lies in it and its two neighbours, so
    that 3 w keys are scored for a query, of which a mask leaves the r + 1 nearest.

    Source: Vaswani et al. 2017, section 4, "restricted self-attention".

    Args:
        r: size of the neighbourhood, even.
    """

    def __init__(self, d: int, r: int) -> None:
        super().__init__()
        self.attention = MultiHeadAttention(d, max(1, d // HEAD_WIDTH))
        self.reach = r // 2

    def forward(self, x: Tensor) -> Tensor:
        """Map (1, n, d) to (1, n, d)."""
        n_tokens, w = x.size(1), self.reach
        n_blocks = math.ceil(n_tokens / w)
        padded = F.pad(x, (0, 0, 0, n_blocks * w - n_tokens))
        queries, keys, values = (
            part.unflatten(-1, (self.attention.n_heads, -1)).squeeze(0).transpose(0, 1)  # (H, W w, d / H)
            for part in self.attention.project(padded)
        )
        blocks = queries.unflatten(1, (n_blocks, w))  # (H, W, w, d / H)
        forbidden = self._forbidden(n_tokens, n_blocks, x.device)
        out, _ = scaled_dot_product_attention(
            blocks, self._with_neighbours(keys), self._with_neighbours(values), forbidden
        )
        joined = out.flatten(1, 2).transpose(0, 1).flatten(1)[None, :n_tokens]  # (1, n, d)
        projected: Tensor = self.attention.out_proj(joined)
        return projected

    def _with_neighbours(self, rows: Tensor) -> Tensor:
        """Each block of w rows between its neighbours: (H, W w, d / H) becomes (H, W, 3 w, d / H)."""
        w = self.reach
        return F.pad(rows, (0, 0, w, w)).unfold(1, 3 * w, w).transpose(-2, -1)

    def _forbidden(self, n_tokens: int, n_blocks: int, device: torch.device) -> Tensor:
        """True where a key is too far from its query, or before the first or after the last token: (W, w, 3 w)."""
        w = self.reach
        query = torch.arange(w, device=device)[:, None] + w
        key = torch.arange(3 * w, device=device)[None, :]
        place = torch.arange(n_blocks, device=device)[:, None, None] * w + key - w  # of the key in the text
        return ((query - key).abs() > w) | (place < 0) | (place >= n_tokens)


class Recurrent(nn.Module):
    """An LSTM (Hochreiter and Schmidhuber 1997) over the tokens from the first to the last."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(d, d, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        """Map (1, n, d) to (1, n, d)."""
        out: Tensor = self.lstm(x)[0]
        return out


class Convolution(nn.Module):
    """A causal convolution over a token and the k - 1 before it; in a stack each is k times as wide (dilated).

    Causal, because paths of a dilated stack that reads both sides would lead over the ends of the text and be lost.

    Args:
        depth: how many such layers lie below this one.
    """

    def __init__(self, d: int, k: int, depth: int = 0) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(d, d, k, dilation=k**depth)
        self.padding = (k - 1) * k**depth

    def forward(self, x: Tensor) -> Tensor:
        """Map (1, n, d) to (1, n, d)."""
        out: Tensor = self.convolution(F.pad(x.transpose(1, 2), (self.padding, 0))).transpose(1, 2)
        return out


@dataclass(frozen=True)
class Range:
    """Sizes over which growth is fitted: the texts in tokens at one width, and the widths at one length of text."""

    lengths: List[int]
    width: int
    widths: List[int]
    length: int

    def points(self) -> List[Tuple[int, int]]:
        """Every (n, d), each once."""
        both = [(n, self.width) for n in self.lengths] + [(self.length, d) for d in self.widths]
        return list(dict.fromkeys(both))


@dataclass(frozen=True)
class Kind:
    """A row of Table 1.

    Attributes:
        complexity, sequential, path: what the table says.
        exponents: of n and d in the table's complexity.
        build: makes a layer of width d.
        timed, counted: the sizes for which it is measured, and for which its operations are counted.
        batch: texts at once when it is measured. One text leaves an LSTM to multiply its weights, which no cache holds,
            by a single vector in each step, so that memory and not operations would be measured.
    """

    complexity: str
    sequential: str
    path: str
    exponents: Tuple[int, int]
    build: Callable[[int], nn.Module]
    timed: Range
    counted: Range
    batch: int = 1


def kinds(k: int, r: int) -> Dict[str, Kind]:
    """The rows of Table 1 by name, with sizes at which the table's term dominates: n (or r) much greater than d."""
    short = Range([32, 64, 128], 256, [256, 512, 1024], 32)
    return {
        "self-attention": Kind(
            "O(n^2 d)", "O(1)", "O(1)", (2, 1), SelfAttention,
            Range([2048, 4096, 8192], 64, [64, 128, 192, 256], 2048),
            Range([16384, 32768, 65536], 64, [64, 128, 256], 65536),
        ),
        "recurrent": Kind(
            "O(n d^2)", "O(n)", "O(n)", (1, 2), Recurrent,
            Range([128, 256, 512], 128, [192, 256, 384], 64), short, batch=16,
        ),
        "convolutional": Kind(
            "O(k n d^2)", "O(1)", "O(log_k n)", (1, 2), lambda d: Convolution(d, k),
            Range([1024, 2048, 4096], 256, [384, 512, 768], 1024), short,
        ),
        "restricted self-attention": Kind(
            "O(r n d)", "O(1)", "O(n/r)", (1, 1), lambda d: RestrictedSelfAttention(d, r),
            Range([2 * r, 4 * r, 8 * r], 64, [64, 128, 192, 256], 2 * r),
            Range([16 * r, 32 * r, 64 * r], 64, [16, 32, 64], 16 * r),
        ),
    }  # fmt: skip
