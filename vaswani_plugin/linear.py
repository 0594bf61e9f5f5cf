"""Linear layers that keep their weights in float32 and may compute their products in another type.

Shapes: D inputs, N outputs of a layer.
"""

from __future__ import annotations

from typing import Dict, List, Optional, Sequence, Tuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

#: The types that float32 weights can be multiplied in, by the name of the option's value; None is their own.
COMPUTE_DTYPES: Dict[str, Optional[torch.dtype]] = {"fp32": None, "bf16": torch.bfloat16}

#: From how many rows for each input on several layers are multiplied as one: joining them copies their weights.
_ROWS_PER_INPUT = 4


def autocast_dtype(device: torch.device) -> Optional[torch.dtype]:
    """The type that autocasting asks products on a device to be computed in, or None where it is off."""
    if hasattr(torch, "get_autocast_dtype"):  # from torch 2.4 on
        return torch.get_autocast_dtype(device.type) if torch.is_autocast_enabled(device.type) else None
    if device.type == "cpu":
        return torch.get_autocast_cpu_dtype() if torch.is_autocast_cpu_enabled() else None
    return torch.get_autocast_gpu_dtype() if torch.is_autocast_enabled() else None


class Linear(nn.Linear):
    """``x W^T + b``, computed in ``compute_dtype`` where that is set and the weights are float32.

    Differs from: torch's autocasting, which would also turn into lower precision what is not a product of matrices.
    """

    compute_dtype: Optional[torch.dtype] = None

    @property
    def product_dtype(self) -> torch.dtype:
        """The type in which the products are computed."""
        if self.compute_dtype is None or self.weight.dtype != torch.float32:
            return self.weight.dtype
        return self.compute_dtype

    def forward(self, x: Tensor) -> Tensor:
        """Map x (..., D) to (..., N), which has the type of the products."""
        return linear(x, [self])


def linear(x: Tensor, layers: Sequence[Linear]) -> Tensor:
    """The outputs of layers with the same input x (..., D), one after another: (..., N_1 + N_2 + ...)."""
    weights: List[Tensor] = [layer.weight for layer in layers]
    biases: List[Tensor] = [layer.bias for layer in layers if layer.bias is not None]
    dtype = layers[0].product_dtype
    if dtype != weights[0].dtype:
        x, weights, biases = x.to(dtype), [weight.to(dtype) for weight in weights], [bias.to(dtype) for bias in biases]
    weight = weights[0] if len(weights) == 1 else torch.cat(weights)
    bias = None if not biases else biases[0] if len(biases) == 1 else torch.cat(biases)
    return F.linear(x, weight, bias)


def joint_linear(x: Tensor, layers: Sequence[nn.Module]) -> Tuple[Tensor, ...]:
    """The output of each of several layers for the same input x (..., D), in training by one product where that pays.

    In float32 it pays where there are many more rows than inputs; below, where the product itself costs little, always.
    """
    plain = [layer for layer in layers if isinstance(layer, Linear)]
    if len(plain) == len(layers) and torch.is_grad_enabled():
        many = x.numel() >= _ROWS_PER_INPUT * x.size(-1) ** 2
        if many or plain[0].product_dtype != torch.float32:
            return linear(x, plain).split([layer.out_features for layer in plain], dim=-1)
    return tuple(layer(x) for layer in layers)


def set_compute_dtype(model: nn.Module, dtype: Optional[torch.dtype]) -> None:
    """Let every linear layer inside a model compute in a type, or with None in that of its weights."""
    for module in model.modules():
        if isinstance(module, Linear):
            module.compute_dtype = dtype
