"""Saving when asked to stop: SIGTERM, and Slurm's SIGUSR1 before it takes the machine away.

The signal is noted at once and acted upon after the update that is being made: the checkpoint is saved in the middle of
the epoch, without validating, and the process ends with ``SAVED_STATUS``. Started again, the run sees the same batches
as one that was never stopped. At the end of an epoch the toolkit validates and saves first, as always.

Differs from: the toolkit, which is ended by either signal at once and loses everything since the last checkpoint.
Until the toolkit saves when it is asked to stop.
"""

from __future__ import annotations

import logging
import signal
import threading
from types import FrameType
from typing import Any, Callable, Dict, Optional, Tuple

import fairseq.checkpoint_utils
import fairseq.trainer
import torch

from .toolkit import replace_once

logger = logging.getLogger(__name__)

#: Exit status of a run that was asked to stop, has saved, and goes on when it is started again (EX_TEMPFAIL).
SAVED_STATUS = 75

#: The signals that ask for it.
SIGNALS = (signal.SIGTERM, signal.SIGUSR1)

_noted: Dict[str, int] = {}  # the name of the signal that arrived, and its number
_before: Dict[int, Any] = {}  # the handlers that ours replaced


def _note(number: int, frame: Optional[FrameType]) -> None:
    _noted[signal.Signals(number).name] = number


def arm() -> None:
    """Note the signals from now on; a handler that somebody else has set stays."""
    if threading.current_thread() is not threading.main_thread():  # only that one may set handlers
        return
    for number in SIGNALS:
        if signal.getsignal(number) == signal.SIG_DFL:
            _before[number] = signal.signal(number, _note)


def disarm() -> None:
    """Give the signals back and forget what arrived."""
    if threading.current_thread() is threading.main_thread():
        for number, handler in _before.items():
            signal.signal(number, handler)
    _before.clear()
    _noted.clear()


def _asked(trainer: Any) -> bool:
    """Whether this worker is asked to stop; of several workers, whether all know that one of them is."""
    if trainer.data_parallel_world_size > 1:
        return bool(getattr(trainer, "vaswani_asked_to_stop", False))
    return bool(_noted)


def _aggregate(original: Callable[..., Any], trainer: Any, outputs: Any, *to_sum: Any, ignore: bool = False) -> Any:
    """Sums one more number over the workers, how many are asked to stop, so that all stop after the same update."""
    outputs, sums = original(trainer, outputs, *to_sum, float(bool(_noted)), ignore=ignore)
    *sums, n_asked = sums
    trainer.vaswani_asked_to_stop = bool(n_asked > 0)
    return outputs, sums


def _train_step(original: Callable[..., Any], trainer: Any, *args: Any, **options: Any) -> Any:
    logged = original(trainer, *args, **options)
    is_last = trainer.get_num_updates() >= (trainer.cfg.optimization.max_update or float("inf"))
    if _asked(trainer) and not is_last and not trainer.vaswani_train_iterator.end_of_epoch():
        save_and_end(trainer)
    return logged


def _begin_epoch(original: Callable[..., Any], trainer: Any, *args: Any) -> Any:
    begun = original(trainer, *args)
    if _asked(trainer):
        save_and_end(trainer)
    return begun


def _get_train_iterator(original: Callable[..., Any], trainer: Any, *args: Any, **options: Any) -> Any:
    """Remembers the iterator, whose place in the epoch a checkpoint holds."""
    arm()
    trainer.vaswani_train_iterator = original(trainer, *args, **options)
    return trainer.vaswani_train_iterator


def save_and_end(trainer: Any) -> None:
    """Save ``checkpoint_last.pt`` and end the process; every worker has to call this after the same update.

    Raises:
        SystemExit: always, with ``SAVED_STATUS``.
    """
    n_updates, options = trainer.get_num_updates(), trainer.cfg.checkpoint
    why = " and ".join(_noted) or "a signal to another worker"
    if options.no_save or options.no_last_checkpoints:
        logger.warning("%s: ending after %d updates; nothing is saved, as the options say", why, n_updates)
    elif n_updates:
        fairseq.checkpoint_utils.save_checkpoint(options, trainer, trainer.vaswani_train_iterator, None)
        logger.info("%s: saved after %d updates; the same command goes on from there", why, n_updates)
    if trainer.data_parallel_world_size > 1:
        torch.distributed.barrier()  # a worker that ends earlier could take the one that saves with it
    raise SystemExit(SAVED_STATUS)


_REPLACED: Tuple[Tuple[str, Callable[..., Any]], ...] = (
    ("_aggregate_logging_outputs", _aggregate),
    ("train_step", _train_step),
    ("begin_epoch", _begin_epoch),
    ("get_train_iterator", _get_train_iterator),
)


def install() -> None:
    """Puts this in place in the toolkit's trainer; doing so twice changes nothing."""
    for name, replacement in _REPLACED:
        replace_once(fairseq.trainer.Trainer, name, replacement)
