"""The option ``--compute-dtype``: float32 weights whose products are computed in bfloat16, on a CPU or a GPU.

The toolkit's own ``--bf16`` asks for a TPU. Softmax, normalisation, residual sums, loss and optimizer stay in float32.
"""

from __future__ import annotations

import logging
from typing import Optional

import torch
from torch import nn

from .linear import COMPUTE_DTYPES, autocast_dtype, set_compute_dtype
from .quantization import missing_instructions

logger = logging.getLogger(__name__)

#: The first generation of NVIDIA's GPUs that multiplies in bfloat16, Ampere.
_FIRST_CAPABILITY = (8, 0)


def obstacle(weight: torch.Tensor) -> Optional[str]:
    """Why products with these weights cannot be computed in bfloat16, or None where they can."""
    if weight.dtype != torch.float32:
        return f"the weights are {str(weight.dtype).replace('torch.', '')}"
    if autocast_dtype(weight.device) is not None:
        return "--amp chooses the types"
    if weight.device.type == "cpu":
        return missing_instructions("bf16")
    if weight.device.type == "cuda" and torch.version.hip is None:
        capability = torch.cuda.get_device_capability(weight.device)
        if capability < _FIRST_CAPABILITY:
            return f"the GPU has capability {'.'.join(map(str, capability))}, and bfloat16 comes with 8.0"
    return None


class ComputeDtype:
    """What a model shall compute in, which its device decides once it is there.

    Args:
        name: a key of ``COMPUTE_DTYPES``.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._settled_for: Optional[torch.device] = None

    def settle(self, model: nn.Module) -> None:
        """Set the type of a model's products, or leave them in float32 where the other cannot be, with a log line."""
        weight = next(model.parameters())
        if COMPUTE_DTYPES[self.name] is None or weight.device == self._settled_for:
            return
        self._settled_for = weight.device
        reason = obstacle(weight)
        set_compute_dtype(model, COMPUTE_DTYPES[self.name] if reason is None else None)
        if reason is not None:
            logger.warning("--compute-dtype %s does not apply, since %s", self.name, reason)
