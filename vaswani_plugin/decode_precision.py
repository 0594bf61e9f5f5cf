"""The option ``--decode-precision``: in which precision a model's linear layers compute when it translates.

| device | fp32 | bf16 | int8 |
|---|---|---|---|
| CPU | weights packed | weights packed | weights packed |
| GPU | as it is | the whole model | as it is, with a log line |

A model that still trains is left as it is, and so is one that ``--fp16`` has made half precision.
"""

from __future__ import annotations

import logging
from typing import cast

import torch

from .layers import DecoderLayer
from .quantization import fuse_inputs, obstacle, pack
from .transformer import VaswaniTransformer

logger = logging.getLogger(__name__)


def use_precision(model: VaswaniTransformer, precision: str) -> None:
    """Let a model translate in a precision from now on, or in its own where that cannot be, which one log line says.

    Args:
        model: one that ``prepare_for_inference_`` has been called for; any other one keeps its weights.
        precision: a member of ``PRECISIONS``.
    """
    weight = model.decoder.embed_tokens.weight
    reason = None
    if not model.only_translates:
        reason = "the model is still trained"
    elif is_packed(model):
        return
    elif weight.dtype != torch.float32:
        reason = f"the model computes in {str(weight.dtype).replace('torch.', '')}"
    elif weight.device.type != "cpu":
        if precision == "bf16":
            model.to(torch.bfloat16)
        reason = f"there are no int8 layers for the device {weight.device}" if precision == "int8" else None
    else:
        reason = obstacle(precision)
        usable = precision if reason is None else "fp32"
        if obstacle(usable) is None:
            pack_model(model, usable)
    if reason is not None and precision != "fp32":
        logger.info("--decode-precision %s does not apply, since %s", precision, reason)


def is_packed(model: VaswaniTransformer) -> bool:
    """Whether a model's linear layers have been packed."""
    return not isinstance(model.decoder.output_projection, torch.nn.Linear)


@torch.no_grad()
def pack_model(model: VaswaniTransformer, precision: str) -> None:
    """Pack a model's linear layers, in place; below float32 attention too computes in bfloat16, if it can.

    Args:
        model: float32, on a CPU.
        precision: one to which there is no ``obstacle``.
    """
    for layer in model.decoder.layers:
        fuse_inputs(cast(DecoderLayer, layer).self_attn, precision)
    pack(model, precision)
    if precision != "fp32" and obstacle("bf16") is None:
        model.decoder.state_dtype = torch.bfloat16
