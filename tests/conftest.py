"""Fixtures that several test files share: a tiny copy task and models trained on it, each made once a session."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from toolkit_runner import CopyTask, make_copy_task, run, tiny_train_args

torch.set_num_threads(1)


def _computed(dtype: torch.dtype) -> torch.dtype:
    """The type itself; skips the test where this torch does not compute with it on a CPU, as old ones with float16."""
    try:
        torch.nn.functional.layer_norm(torch.ones(2, dtype=dtype), (2,))
    except RuntimeError as error:
        pytest.skip(str(error))
    return dtype


@pytest.fixture
def float16() -> torch.dtype:
    """float16, where a CPU computes with it."""
    return _computed(torch.float16)


@pytest.fixture(params=[torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
def half(request: pytest.FixtureRequest) -> torch.dtype:
    """Each type of half precision with which a CPU computes."""
    return _computed(request.param)


@pytest.fixture(scope="session")
def copy_task(tmp_path_factory: pytest.TempPathFactory) -> CopyTask:
    """203 lines of 1 to 9 words, target = source, with valid and test the first 13 lines."""
    return make_copy_task(tmp_path_factory.mktemp("copy_task"))


@pytest.fixture(scope="session")
def tiny_checkpoint(copy_task: CopyTask, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A one-layer model of width 16 after 60 updates (checkpoint_last.pt): trained, but not good."""
    save_dir = tmp_path_factory.mktemp("tiny")
    options = ["--no-epoch-checkpoints", "--validate-interval", 50, "--save-interval", 50, "--log-interval", 20]
    run("fairseq-train", *tiny_train_args(copy_task.bin, save_dir), *options).ok()
    return save_dir / "checkpoint_last.pt"


@pytest.fixture(scope="session")
def tiny_checkpoint_400(copy_task: CopyTask, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same after 400 updates, so that its outputs have several lengths."""
    save_dir = tmp_path_factory.mktemp("tiny400")
    options = ["--no-epoch-checkpoints", "--validate-interval", 50, "--save-interval", 50, "--log-interval", 100]
    run("fairseq-train", *tiny_train_args(copy_task.bin, save_dir, updates=400), *options).ok()
    return save_dir / "checkpoint_last.pt"
