"""Workers that ``torchrun`` or ``vaswani-train`` has started, on GPUs and on processors.

Differs from: the toolkit, which reads the number of workers from the GPUs of its machine, so that ``torchrun`` with
``--cpu``, or with one GPU on each of several machines, silently trains as many separate models. Until the toolkit takes
the number from ``torchrun``'s variables.
"""

from __future__ import annotations

import os
from typing import Any, Callable

import fairseq.distributed.utils
import torch

from . import preemption
from .toolkit import replace_once

_VARIABLES = ("WORLD_SIZE", "RANK", "MASTER_ADDR", "MASTER_PORT")


def join(cfg: Any) -> None:
    """Fill the toolkit's options for distributed training in from ``torchrun``'s variables, where there are any.

    On processors the workers talk by gloo and average gradients with the toolkit's ``legacy_ddp``, since its default
    hands the wrapper a GPU's number. Options that say how the workers find each other win.

    Args:
        cfg: the toolkit's whole configuration; changed in place.
    """
    options = cfg.distributed_training
    if options.distributed_init_method is not None or any(name not in os.environ for name in _VARIABLES):
        return
    if int(os.environ["WORLD_SIZE"]) < 2:
        return
    options.distributed_init_method = "env://"
    options.distributed_world_size = int(os.environ["WORLD_SIZE"])
    options.distributed_rank = int(os.environ["RANK"])
    options.distributed_no_spawn = True
    options.device_id = int(os.environ.get("LOCAL_RANK", 0))
    if cfg.common.cpu:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # the toolkit would try every GPU that it sees
    if cfg.common.cpu or not torch.cuda.is_available():
        options.device_id = 0
        options.distributed_backend = "gloo"
        options.ddp_backend = "legacy_ddp"


def _call_main(original: Callable[..., Any], cfg: Any, main: Any, **options: Any) -> Any:
    try:
        join(cfg)
        return original(cfg, main, **options)
    finally:
        preemption.disarm()


def install() -> None:
    """Puts this in place in the toolkit; doing so twice changes nothing."""
    replace_once(fairseq.distributed.utils, "call_main", _call_main)
