"""Killed at any moment and started again, a run ends with the same weights as one that was never interrupted."""

from __future__ import annotations

import os
import random
import re
import time
from pathlib import Path

import pytest
import torch
from toolkit_runner import CopyTask, Running, run, tiny_train_args

from vaswani_plugin.toolkit import load_checkpoint

N_KILLS = 20
UPDATES_BETWEEN = 20


def updates_made(running: Running) -> int:
    """The last update that the run has logged."""
    made = re.findall(r"train_inner.*num_updates=(\d+)", running.out())
    return int(made[-1]) if made else 0


def wait_for_update(running: Running, number: int) -> None:
    while running.child.is_alive() and updates_made(running) < number:
        time.sleep(0.01)


def wait_for_a_save(running: Running, save_dir: Path) -> None:
    """Until a checkpoint is being written; it has a temporary name for some milliseconds."""
    while running.child.is_alive() and not any(name.endswith(".pt.tmp") for name in os.listdir(save_dir)):
        pass


@pytest.mark.slow
def test_twenty_kills_and_restarts_end_with_the_same_weights(copy_task: CopyTask, tmp_path: Path) -> None:
    """At random moments; every other time while a checkpoint is being written."""
    options = [
        "--dropout", 0.1, "--save-interval-updates", 4, "--keep-interval-updates", 2, "--keep-last-epochs", 2,
        "--keep-best-checkpoints", 2, "--max-update", N_KILLS * UPDATES_BETWEEN + 20,
    ]  # fmt: skip
    run("fairseq-train", *tiny_train_args(copy_task.bin, tmp_path / "whole"), *options).ok()
    killed, rng, n_torn = tmp_path / "killed", random.Random(1), 0
    args = [*tiny_train_args(copy_task.bin, killed), *options]
    for kill in range(N_KILLS):
        running = Running("fairseq-train", args, tmp_path)
        wait_for_update(running, UPDATES_BETWEEN * kill + rng.randint(1, 10))
        time.sleep(rng.uniform(0, 0.05))
        if kill % 2:
            wait_for_a_save(running, killed)
        assert running.child.is_alive(), running.out()
        running.kill()
        n_torn += any(name.endswith(".pt.tmp") for name in os.listdir(killed))
    run("fairseq-train", *args).ok()
    assert n_torn >= 3, "too few of the kills came while a checkpoint was being written"
    for name in ("checkpoint_last.pt", "checkpoint_best.pt"):
        one, other = (load_checkpoint(folder / name) for folder in (tmp_path / "whole", killed))
        assert one["optimizer_history"][-1]["num_updates"] == other["optimizer_history"][-1]["num_updates"]
        assert all(torch.equal(one["model"][key], other["model"][key]) for key in one["model"])
    assert sorted(os.listdir(tmp_path / "whole")) == sorted(os.listdir(killed))
