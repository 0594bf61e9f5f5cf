"""``--patience`` counts on over restarts."""

from __future__ import annotations

from pathlib import Path

from test_checkpoints import STUBBED
from toolkit_runner import CopyTask, Result, run, tiny_train_args

from vaswani_plugin import early_stopping
from vaswani_plugin.toolkit import load_checkpoint

STOPPED = "early stop since valid performance hasn't improved for last 3 runs"


def epochs(copy_task: CopyTask, save_dir: Path, losses: str, last: int, *options: object) -> Result:
    """Train to an epoch with these validation losses; fails unless each is used."""
    args = tiny_train_args(copy_task.bin, save_dir, updates=1000)
    return run("python", STUBBED, losses, *args, "--no-epoch-checkpoints", "--max-epoch", last, *options).ok()


def test_patience_counts_on_over_restarts(copy_task: CopyTask, tmp_path: Path) -> None:
    patience = ["--patience", 3]
    assert STOPPED not in epochs(copy_task, tmp_path, "5,6", 2, *patience).out
    count = load_checkpoint(tmp_path / "checkpoint_last.pt")["extra_state"]["early_stopping"]
    assert count == {"best": 5.0, "num_runs": 1}
    assert STOPPED not in epochs(copy_task, tmp_path, "7", 3, *patience).out
    assert STOPPED in epochs(copy_task, tmp_path, "8", 9, *patience).out  # a fourth epoch would find no loss


def test_patience_starts_anew_with_the_best_loss(copy_task: CopyTask, tmp_path: Path) -> None:
    epochs(copy_task, tmp_path, "5,6,7", 3, "--patience", 3)
    assert STOPPED not in epochs(copy_task, tmp_path, "8,9", 5, "--patience", 3, "--reset-meters").out


def test_without_patience_nothing_is_added(copy_task: CopyTask, tmp_path: Path) -> None:
    epochs(copy_task, tmp_path, "5", 1)
    assert early_stopping.KEY not in load_checkpoint(tmp_path / "checkpoint_last.pt")["extra_state"]


def test_installing_twice_changes_nothing() -> None:
    trainer = early_stopping.fairseq.trainer.Trainer
    before = trainer.save_checkpoint, trainer.load_checkpoint
    early_stopping.install()
    assert (trainer.save_checkpoint, trainer.load_checkpoint) == before
