"""Linear layers for translating: weights laid out for the processor, in float32, bfloat16 or int8, once and for all.

The operators are those that torch's own compiler emits for a CPU and that torch therefore keeps:
``mkldnn::_linear_pointwise`` for float32 and bfloat16, ``onednn::qlinear_pointwise`` for int8. (The quantised tensors
of ``torch.ao.nn.quantized.dynamic`` are deprecated.) Inputs and outputs of every layer are float32.

In int8 each row of the weights, which is one output, has a scale of its own, and so has each row of the input, which is
one token: a translation does not depend on its neighbours in the batch. Sums of products are exact integers.

Shapes: R rows, D inputs, N outputs.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Dict, FrozenSet, Optional, Type

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .attention import MultiHeadAttention
from .layers import Layer

PRECISIONS = ("fp32", "bf16", "int8")

#: Rows that weights are laid out for; the layout is good for any number of them.
_TYPICAL_ROWS = 64
_SMALLEST = 1e-30

#: By precision, the processor's instructions of which one is needed, as Linux names them.
INSTRUCTIONS: Dict[str, FrozenSet[str]] = {
    "fp32": frozenset(),
    "bf16": frozenset({"avx512_bf16", "amx_bf16", "bf16"}),
    "int8": frozenset({"avx512_vnni", "avx_vnni", "amx_int8"}),
}


class PackedLinear(nn.Module):
    """``x W^T + b`` in float32, with the weights in the layout of oneDNN.

    Args:
        weight: float32 (N, D).
        bias: float32 (N,), or None.
        nonnegative: no input is below 0, as after a rectifier; int8 then resolves it twice as finely.
    """

    dtype = torch.float32

    def __init__(self, weight: Tensor, bias: Optional[Tensor], nonnegative: bool = False) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.nonnegative = nonnegative
        self._pack(weight.detach(), None if bias is None else bias.detach())

    def _pack(self, weight: Tensor, bias: Optional[Tensor]) -> None:
        self._bias = None if bias is None else bias.to(self.dtype)
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight.to(self.dtype).contiguous(), _TYPICAL_ROWS)

    def forward(self, x: Tensor) -> Tensor:
        """Map x (..., D) to (..., N), both float32."""
        rows = x.reshape(-1, self.in_features).to(self.dtype)
        y = torch.ops.mkldnn._linear_pointwise(rows, self._weight, self._bias, "none", [], "")
        return y.float().view(*x.shape[:-1], self.out_features)

    def extra_repr(self) -> str:
        """What ``print`` shows of the layer."""
        return f"in_features={self.in_features}, out_features={self.out_features}"


class Bfloat16Linear(PackedLinear):
    """The same in bfloat16, with sums in float32."""

    dtype = torch.bfloat16


class Int8Linear(PackedLinear):
    """The same with weights and inputs as 8-bit integers.

    ``y = s_row * s_output * (q - zero) W_q^T + b``: W_q in [-127, 127], and q in [1, 255] around zero = 128, or in
    [0, 255] with zero = 0 where no input is below 0. The greatest magnitude of a row becomes the greatest integer.
    """

    def _pack(self, weight: Tensor, bias: Optional[Tensor]) -> None:
        scales = weight.abs().amax(dim=1).clamp_min_(_SMALLEST) / 127
        quantised = (weight / scales[:, None]).round_().to(torch.int8)
        self._weight = torch.ops.onednn.qlinear_prepack(quantised, [_TYPICAL_ROWS, self.in_features])
        self._zero, self._levels = (0, 255) if self.nonnegative else (128, 127)
        self._scales = scales / self._levels  # of the outputs; what is left of a row's scale is its greatest magnitude
        self._zeros = torch.zeros(self.out_features, dtype=torch.int32)
        # float32 numbers from 2^23 on are integers whose lowest byte is the mantissa's, so that adding this rounds; a
        # whole row is faster to add than a scalar
        self._offset = torch.full((self.in_features,), float(2**23 + self._zero))
        self._bias = bias

    def forward(self, x: Tensor) -> Tensor:
        """Map x (..., D) to (..., N), both float32."""
        rows = x if x.dim() == 2 else x.reshape(-1, self.in_features)
        greatest = rows.amax(dim=1, keepdim=True)
        if not self.nonnegative:
            greatest = torch.maximum(greatest, rows.amin(dim=1, keepdim=True).neg_())
        # a row of zeros becomes some integers, and is multiplied by 0 below
        shifted = torch.addcmul(self._offset, rows, self._levels / greatest)
        quantised = shifted.view(torch.int32).to(torch.uint8)
        y = torch.ops.onednn.qlinear_pointwise(
            quantised,
            1.0,
            self._zero,
            self._weight,
            self._scales,
            self._zeros,
            None,
            1.0,
            0,
            torch.float32,
            "none",
            [],
            "",
        )
        y = y.mul_(greatest) if self._bias is None else torch.addcmul(self._bias, y, greatest, out=y)
        return y if x.dim() == 2 else y.view(*x.shape[:-1], self.out_features)


LAYERS: Dict[str, Type[PackedLinear]] = {"fp32": PackedLinear, "bf16": Bfloat16Linear, "int8": Int8Linear}


class _Part(nn.Module):
    """Some outputs of a layer, for who asks for them alone."""

    def __init__(self, whole: nn.Module, start: int, stop: int) -> None:
        super().__init__()
        self._whole = (whole,)  # hidden from torch, which would count it among the children
        self.start, self.stop = start, stop

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self._whole[0](x)[..., self.start : self.stop]
        return y


def pack(model: nn.Module, precision: str) -> None:
    """Replace, in place, every linear layer inside a model by a packed one; the model can translate, but not learn.

    Args:
        model: float32, on a CPU, in evaluation mode.
        precision: a member of ``PRECISIONS`` for which ``obstacle`` gives no reason.
    """
    layer = LAYERS[precision]
    for parent in list(model.modules()):
        if isinstance(parent, nn.Linear):
            continue
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Linear):
                nonnegative = name == "fc2" and isinstance(parent, Layer) and parent.config.activation == "relu"
                setattr(parent, name, layer(child.weight, child.bias, nonnegative))


def fuse_inputs(attention: MultiHeadAttention, precision: str) -> None:
    """Make one packed layer of the three that project the same input to queries, keys and values, in place."""
    projections = (attention.q_proj, attention.k_proj, attention.v_proj)
    weight = torch.cat([projection.weight for projection in projections])
    attention.in_proj = LAYERS[precision](weight, torch.cat([projection.bias for projection in projections]))
    stop = 0
    for name, projection in zip(("q_proj", "k_proj", "v_proj"), projections):
        start, stop = stop, stop + projection.out_features
        setattr(attention, name, _Part(attention.in_proj, start, stop))


@functools.cache
def instructions() -> FrozenSet[str]:
    """The processor's instructions as Linux lists them; nothing on other systems."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return frozenset()
    listed = re.search(r"^(?:flags|Features)\s*:(.*)$", text, flags=re.MULTILINE)
    return frozenset(listed.group(1).split()) if listed else frozenset()


def missing_instructions(precision: str) -> Optional[str]:
    """Which instructions the processor lacks for a precision, as a clause, or None."""
    needed = INSTRUCTIONS[precision]
    if not needed or needed & instructions():
        return None
    return f"the processor has none of the instructions {', '.join(sorted(needed))}"


@functools.cache
def obstacle(precision: str) -> Optional[str]:
    """Why weights of a precision cannot be used on this processor and with this torch, or None where they can."""
    lacking = missing_instructions(precision)
    if lacking is not None:
        return lacking
    try:
        works = _works(LAYERS[precision])
    except (RuntimeError, AttributeError, TypeError, NotImplementedError) as error:
        return f"torch {torch.__version__} lacks the operators here ({str(error).splitlines()[0]})"
    return None if works else f"the operators of torch {torch.__version__} compute something else here"


def _works(layer: Type[PackedLinear]) -> bool:
    """Whether a layer computes what it should, at the greatest sums too, which saturate on processors without VNNI."""
    weight, bias, x = torch.ones(16, 64), torch.ones(16), torch.ones(4, 64)
    weight[1::2, ::2] = -1.0
    expected = F.linear(x, weight, bias)
    return all(
        torch.allclose(layer(weight, bias, nonnegative)(x), expected, rtol=1e-3) for nonnegative in (False, True)
    )
