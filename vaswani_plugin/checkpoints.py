"""Checkpoints that are whole or not there, and a start from the newest whole one.

Writing
    A checkpoint gets its name when all of it is on the disk. Differs from: the toolkit, which writes the first file of
    a save so, but copies it byte by byte over ``checkpoint_last.pt`` and the others, so that a kill leaves a torn file,
    and which writes again into the same file when the disk is full. Until the toolkit copies as it writes.
Resuming
    Where ``checkpoint_last.pt`` is torn or missing, training goes on from the newest whole checkpoint beside it, and
    says so. Differs from: the toolkit, which ends with a traceback in the first case and starts from nothing in the
    second. Until the toolkit looks for another one.
    A run that has made its ``--max-update`` updates ends at once. Differs from: the toolkit, which makes one more and
    saves it over the last checkpoint. Until the toolkit looks at the number first.
Starting
    Too little space for the checkpoints to come is a warning at the start. Until the toolkit looks.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import zipfile
from pathlib import Path
from typing import IO, Any, Callable, Dict, Iterator, List, Tuple, Union

import fairseq.checkpoint_utils
import fairseq.distributed.utils
import fairseq.trainer
import torch
from fairseq.file_io import PathManager

from .toolkit import BrokenCheckpoint, CheckpointError, load_checkpoint, replace_once

logger = logging.getLogger(__name__)

LAST = "checkpoint_last.pt"

#: The names that the toolkit gives: of an epoch, an update, the last, the best, the best few.
_NAME = re.compile(r"checkpoint(\d+|_\d+_\d+|_last|_best|\.best_.+)\.pt")

#: What a parameter takes in a checkpoint: the weight and Adam's two moments in float32.
BYTES_PER_PARAMETER = 12


def _reason(error: BaseException) -> Union[str, None]:
    """What the system said, or None where the error is not about a file; torch wraps it."""
    for one in (error, error.__context__):
        if isinstance(one, OSError):
            return one.strerror or str(one)
    return None


@contextlib.contextmanager
def appearing_whole(path: str) -> Iterator[IO[bytes]]:
    """Yield a file to write, which gets its name when the block ends well and is on the disk; else nothing changes.

    Raises:
        CheckpointError: it cannot be written, for instance because the disk is full.
    """
    partial = f"{path}.tmp"
    file = open(partial, "wb")  # noqa: SIM115
    try:
        yield file
        file.flush()
        os.fsync(file.fileno())
        file.close()
        os.replace(partial, path)
    except (OSError, RuntimeError) as error:
        reason = _reason(error)
        if reason is None:
            raise
        raise CheckpointError(f"{path} cannot be written: {reason}; the checkpoints before it are intact") from error
    finally:
        with contextlib.suppress(OSError):
            file.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(partial)


def _save(original: Callable[..., Any], state: Any, filename: Any, async_write: bool = False) -> None:
    if async_write or not PathManager.supports_rename(filename):
        original(state, filename, async_write)
        return
    with appearing_whole(os.fspath(filename)) as file:
        torch.save(state, file)


class _WholeCopies(PathManager):
    """The toolkit's files as its checkpoints see them: a copy appears whole."""

    @staticmethod
    def copy(src_path: str, dst_path: str, overwrite: bool = False) -> Any:
        """Copy a file; its copy is on the disk when it gets its name."""
        if not PathManager.supports_rename(dst_path) or not os.path.isfile(src_path):
            return PathManager.copy(src_path, dst_path, overwrite)
        with open(src_path, "rb") as source, appearing_whole(dst_path) as copy:
            shutil.copyfileobj(source, copy, 16 << 20)
        return dst_path


def named_checkpoints(folder: Union[str, os.PathLike[str]]) -> List[Path]:
    """The files in a folder that have names of the toolkit's checkpoints, sorted by name."""
    return sorted(path for path in Path(folder).glob("checkpoint*.pt") if is_checkpoint_name(path.name))


def is_checkpoint_name(name: str) -> bool:
    """Whether the toolkit gives this name to a checkpoint of a training."""
    return _NAME.fullmatch(name) is not None


def load_whole(path: Path) -> Dict[str, Any]:
    """Load a checkpoint and compare the check sums of its parts.

    Differs from: torch, which does not look at the sums, so that a block that never reached the disk loads as zeros.

    Raises:
        FileNotFoundError: there is no such file.
        CheckpointError: it is no checkpoint, or not a whole one.
    """
    state = load_checkpoint(path)
    if zipfile.is_zipfile(path):  # what torch before 1.6 wrote has no sums
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
        if damaged is not None:
            raise BrokenCheckpoint(f"{path} is damaged: the check sum of {damaged} in it is wrong")
    return state


def updates_of(path: Path) -> int:
    """The number of updates after which a checkpoint was saved.

    Raises:
        CheckpointError: it is not whole, or training cannot go on from it.
    """
    state = load_whole(path)
    if state.get("last_optimizer_state") is None or "train_iterator" not in state.get("extra_state", {}):
        raise CheckpointError(f"{path} holds no state of a training")
    return int(state["optimizer_history"][-1]["num_updates"])


def resume_from(folder: Union[str, os.PathLike[str]]) -> Path:
    """The checkpoint to go on from: ``checkpoint_last.pt``, or, where it is torn or missing, the newest whole one.

    Args:
        folder: where a training saves; when there are no checkpoints the last one is returned all the same.

    Raises:
        CheckpointError: there are checkpoints, and training can go on from none of them.
    """
    last, problem = Path(folder) / LAST, ""
    others = [path for path in named_checkpoints(folder) if path != last]
    if last.exists():
        try:
            load_whole(last)
            return last
        except BrokenCheckpoint as error:
            problem = str(error)
    elif others:
        problem = f"{last} is missing"
    else:
        return last
    n_updates, newest = _newest(others)
    if n_updates < 0:
        raise CheckpointError(
            f"{problem}, and training cannot go on from any other checkpoint in {folder}; remove them all to start anew"
        )
    logger.warning("%s; going on from %s, which was saved after %d updates", problem, newest, n_updates)
    return newest


def _newest(paths: List[Path]) -> Tuple[int, Path]:
    """The largest number of updates and its checkpoint; the number is -1 where training can go on from none."""
    found = (-1, Path())
    for path in paths:
        try:
            found = max(found, (updates_of(path), path))
        except CheckpointError as error:
            logger.warning("%s", error)
    return found


def remove_partial(folder: Union[str, os.PathLike[str]]) -> None:
    """Remove what a kill in the middle of a save has left, which only takes space."""
    for path in Path(folder).glob("*.pt.tmp"):
        if is_checkpoint_name(path.name[: -len(".tmp")]):
            logger.info("removing %s, whose saving was interrupted", path)
            path.unlink()


def number_kept(cfg: Any) -> int:
    """How many checkpoints the toolkit's options keep; where they set no bound on the epochs, at least so many."""
    options, optimization = cfg.checkpoint, cfg.optimization
    if options.no_save:
        return 0
    kept = int(not options.no_last_checkpoints)
    if not cfg.dataset.disable_validation:
        kept += 1 + max(0, options.keep_best_checkpoints)
    if not options.no_epoch_checkpoints:
        epochs = max(1, (optimization.max_epoch or 0) // max(1, options.save_interval))
        kept += options.keep_last_epochs if options.keep_last_epochs > 0 else epochs
    if options.save_interval_updates > 0:
        saves = max(1, (optimization.max_update or 0) // options.save_interval_updates)
        kept += options.keep_interval_updates if options.keep_interval_updates > 0 else saves
    return kept


def warn_of_space(cfg: Any, n_parameters: int) -> None:
    """Log a warning when the disk will not hold the checkpoints to come, and one more while it is written."""
    kept = number_kept(cfg)
    if not kept:
        return
    folder = cfg.checkpoint.save_dir
    missing = max(0, kept - len(named_checkpoints(folder))) + 1
    needed, free = missing * BYTES_PER_PARAMETER * n_parameters, shutil.disk_usage(folder).free
    if free < needed:
        logger.warning(
            "%s has %.1f MB free, but %d checkpoints to come, one of them while it replaces another, need about "
            "%.1f MB (%d bytes for each of %d parameters); keep fewer, or save elsewhere",
            folder, free / 1e6, missing, needed / 1e6, BYTES_PER_PARAMETER, n_parameters,
        )  # fmt: skip


def _load(original: Callable[..., Any], trainer: Any, filename: str, *args: Any, **options: Any) -> Any:
    cfg = trainer.cfg
    folder = cfg.checkpoint.save_dir
    is_first = trainer.data_parallel_rank == 0
    if is_first and os.path.isdir(folder):
        remove_partial(folder)
        warn_of_space(cfg, sum(parameter.numel() for parameter in trainer.model.parameters()))
    if is_first and cfg.checkpoint.restore_file != LAST and not PathManager.exists(filename):
        raise CheckpointError(f"--restore-file {filename}: no such file")  # the toolkit would start from nothing
    by_itself = cfg.checkpoint.restore_file == LAST and filename == os.path.join(folder, LAST)
    if by_itself and not trainer.checkpoint_suffix:  # with a suffix each worker has a file of its own
        filename = _agreed(trainer, str(resume_from(folder)) if is_first else "")
    extra_state = original(trainer, filename, *args, **options)
    n_updates, most = trainer.get_num_updates(), cfg.optimization.max_update
    if most and n_updates >= most:
        logger.info("%s was saved after %d updates, and --max-update is %d: complete", filename, n_updates, most)
        cfg.optimization.max_epoch = -1  # no epoch is begun
    return extra_state


def _agreed(trainer: Any, filename: str) -> str:
    """The first worker's choice, on every worker."""
    if trainer.data_parallel_world_size == 1:
        return filename
    chosen: Dict[str, str] = fairseq.distributed.utils.broadcast_object(
        {"filename": filename}, src_rank=0, group=trainer.data_parallel_process_group, dist_device=trainer.device
    )
    return chosen["filename"]


def install() -> None:
    """Puts this in place in the toolkit; doing so twice changes nothing."""
    fairseq.checkpoint_utils.PathManager = _WholeCopies
    replace_once(fairseq.checkpoint_utils, "torch_persistent_save", _save)
    replace_once(fairseq.trainer.Trainer, "load_checkpoint", _load)
