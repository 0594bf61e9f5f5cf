"""A run that is asked to stop saves after the update that it is making, and goes on as if it had not stopped."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from typing import Any, Iterator

import pytest
import torch
from toolkit_runner import CopyTask, run, tiny_train_args

from vaswani_plugin import preemption
from vaswani_plugin.toolkit import load_checkpoint

# Sends the signal to itself when the learning-rate schedule is at the given update, in the middle of train_step.
SIGNALLED = """
import os, runpy, signal, sys
name, at = sys.argv.pop(1), int(sys.argv.pop(1))
from fairseq.trainer import Trainer
original = Trainer.clip_grad_norm
def clip(self, *args, **options):
    if self.get_num_updates() + 1 == at:
        os.kill(os.getpid(), getattr(signal, name))
    return original(self, *args, **options)
Trainer.clip_grad_norm = clip
sys.argv[0] = "fairseq-train"
runpy.run_module("fairseq_cli.train", run_name="__main__")
"""

OPTIONS = ["--dropout", 0.1, "--update-freq", 2, "--keep-best-checkpoints", 2]


def updates(out: str) -> list[int]:
    """The updates that a log is about, in their order."""
    return [int(number) for number in re.findall(r"train_inner.*num_updates=(\d+)", out)]


@pytest.fixture(scope="module")
def whole(copy_task: CopyTask, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 9 updates that nobody stopped; an epoch has 3."""
    folder = tmp_path_factory.mktemp("whole")
    run("fairseq-train", *tiny_train_args(copy_task.bin, folder, updates=9), *OPTIONS).ok()
    return folder


@pytest.mark.parametrize(
    ("name", "at", "saved"),
    [
        pytest.param("SIGTERM", 1, "epoch 1 @ 1 updates", id="after the first update"),
        pytest.param("SIGUSR1", 5, "epoch 2 @ 5 updates", id="in the middle of an epoch"),
        pytest.param("SIGTERM", 6, "epoch 3 @ 6 updates", id="after the last update of an epoch"),
    ],
)
def test_a_stopped_run_ends_as_the_whole_one(
    name: str, at: int, saved: str, copy_task: CopyTask, whole: Path, tmp_path: Path
) -> None:
    args = [*tiny_train_args(copy_task.bin, tmp_path, updates=9), *OPTIONS]
    first = run("python", SIGNALLED, name, at, *args)
    assert first.rc == preemption.SAVED_STATUS == 75, first.out
    assert f"{name}: saved after {at} updates; the same command goes on from there" in first.out
    assert f"Preparing to save checkpoint for {saved}" in first.out
    assert "Traceback" not in first.out
    assert updates(first.out)[-1] == at if at % 3 == 0 else updates(first.out)[-1:] != [at + 1]
    second = run("fairseq-train", *args).ok()
    assert updates(second.out) == list(range(at + 1, 10))
    for file in ("checkpoint_last.pt", "checkpoint_best.pt", "checkpoint2.pt"):
        one, other = load_checkpoint(whole / file), load_checkpoint(tmp_path / file)
        assert all(torch.equal(one["model"][key], other["model"][key]) for key in one["model"])
        assert one["extra_state"]["best"] == other["extra_state"]["best"]
    assert sorted(os.listdir(tmp_path)) == sorted(os.listdir(whole))


def test_a_run_that_is_complete_ends_well(copy_task: CopyTask, tmp_path: Path) -> None:
    args = tiny_train_args(copy_task.bin, tmp_path, updates=4)
    result = run("python", SIGNALLED, "SIGTERM", 4, *args).ok()
    assert "Stopping training due to num_updates: 4 >= max_update: 4" in result.out
    assert load_checkpoint(tmp_path / "checkpoint_last.pt")["optimizer_history"][-1]["num_updates"] == 4


def test_nothing_is_saved_where_the_options_say_so(copy_task: CopyTask, tmp_path: Path) -> None:
    args = [*tiny_train_args(copy_task.bin, tmp_path, updates=9), "--no-save"]
    result = run("python", SIGNALLED, "SIGTERM", 2, *args)
    assert result.rc == 75, result.out
    assert "SIGTERM: ending after 2 updates; nothing is saved, as the options say" in result.out
    assert not list(tmp_path.glob("*.pt"))


@pytest.fixture
def disarmed() -> Iterator[None]:
    """Leaves the signals as they were."""
    before = {number: signal.getsignal(number) for number in preemption.SIGNALS}
    yield
    preemption.disarm()
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("disarmed")
def test_signals_are_noted_and_given_back() -> None:
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    preemption.arm()
    preemption.arm()
    os.kill(os.getpid(), signal.SIGUSR1)
    assert preemption._noted == {"SIGUSR1": signal.SIGUSR1}
    preemption.disarm()
    assert signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL
    assert preemption._noted == {}


@pytest.mark.usefixtures("disarmed")
def test_a_handler_of_somebody_else_stays() -> None:
    def theirs(number: int, frame: Any) -> None:
        raise AssertionError("not called here")

    signal.signal(signal.SIGUSR1, theirs)
    preemption.arm()
    assert signal.getsignal(signal.SIGUSR1) is theirs
    preemption.disarm()
    assert signal.getsignal(signal.SIGUSR1) is theirs


def test_installing_twice_changes_nothing() -> None:
    trainer = preemption.fairseq.trainer.Trainer
    before = [getattr(trainer, name) for name, _ in preemption._REPLACED]
    preemption.install()
    assert [getattr(trainer, name) for name, _ in preemption._REPLACED] == before
