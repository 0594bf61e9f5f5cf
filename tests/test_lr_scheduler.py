"""The scheduler: which rate each update really gets, and where the peak comes from."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq.optim.adam import FairseqAdam, FairseqAdamConfig
from omegaconf import OmegaConf
from toolkit_runner import CopyTask, run, tiny_train_args

import vaswani_plugin  # noqa: F401
from vaswani_plugin.lr_scheduler import VaswaniInverseSqrtConfig, VaswaniInverseSqrtSchedule, tell_scheduler


def schedule(**options: Any) -> VaswaniInverseSqrtSchedule:
    parameter = torch.nn.Parameter(torch.zeros(1))
    adam = FairseqAdamConfig()
    adam.lr, adam.adam_betas, adam.tpu = [0.25], "(0.9, 0.98)", False
    cfg = VaswaniInverseSqrtConfig(**{"lr": [0.25], "schedule_dim": 512, **options})
    return VaswaniInverseSqrtSchedule(cfg, FairseqAdam(adam, [parameter]))


def test_the_kth_update_uses_the_formula_at_step_k(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        scheduler = schedule()
    rates = [scheduler.optimizer.get_lr()] + [scheduler.step_update(done) for done in (1, 3999, 7999, 15999)]
    assert rates == pytest.approx([1.74693e-7, 3.49386e-7, 6.98771e-4, 4.94106e-4, 3.49386e-4], rel=1e-5)
    assert [record.message for record in caplog.records] == [
        "learning rate: the paper's formula with d_model 512 and warm-up 4000, peak 0.000698771"
    ]


def test_a_given_rate_is_the_peak(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        scheduler = schedule(lr=[0.005], warmup_updates=10, schedule_dim=None)
    assert scheduler.step_update(9) == pytest.approx(0.005)
    assert scheduler.step_update(39) == pytest.approx(0.0025)
    assert [record.message for record in caplog.records] == ["learning rate: peak 0.005, as --lr says, at update 10"]


def test_the_toolkits_default_is_the_peak_where_it_is_given() -> None:
    assert schedule(lr=[0.25], formula_lr=0.0, warmup_updates=0).peak == 0.25


def test_the_end_of_an_epoch_changes_nothing() -> None:
    scheduler = schedule()
    before = scheduler.optimizer.get_lr()
    assert scheduler.step(1, 3.0) == before
    assert scheduler.best == 3.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lr": [0.1, 0.2]}, r"^vaswani_inverse_sqrt takes one --lr, the peak, but got 2: \[0.1, 0.2\]$"),
        ({"lr": [-1.0]}, r"^--lr must be 0 or more, but is -1.0$"),
        ({"warmup_updates": -1}, r"^--warmup-updates must be 0 or more, but is -1$"),
        ({"warmup_init_lr": -1.0}, r"^--warmup-init-lr must be 0 or more, but is -1.0$"),
        (
            {"schedule_dim": None},
            r"^vaswani_inverse_sqrt does not know the width of this model; give --schedule-dim, or a peak by --lr$",
        ),
    ],
)
def test_errors(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        schedule(**options)


def test_the_model_tells_its_width_unless_somebody_has_given_one() -> None:
    root = OmegaConf.create({"model": {"x": 1}, "lr_scheduler": {"_name": "vaswani_inverse_sqrt"}})
    tell_scheduler(root.model, 96)
    tell_scheduler(root.model, 128)
    assert root.lr_scheduler.schedule_dim == 96
    other = OmegaConf.create({"model": {}, "lr_scheduler": {"_name": "fixed"}})
    tell_scheduler(other.model, 96)
    assert "schedule_dim" not in other.lr_scheduler
    tell_scheduler(None, 96)
    tell_scheduler(OmegaConf.create({}), 96)


def logged_rates(out: str) -> list[float]:
    """Rates by update; the toolkit logs after each update the rate of the next."""
    return [float(rate) for rate in re.findall(r"train_inner.* lr=([0-9.e+-]+),", out)]


def train(data: CopyTask, save_dir: Path, *options: object) -> str:
    args = tiny_train_args(data.bin, save_dir, updates=5)
    return run("fairseq-train", *args, "--disable-validation", *options).ok().out


@pytest.mark.parametrize("warmup", [0, 1])
def test_training_without_warmup(copy_task: CopyTask, tmp_path: Path, warmup: int) -> None:
    out = train(copy_task, tmp_path, "--no-save", "--warmup-updates", warmup, "--lr", 0.01)
    assert logged_rates(out) == pytest.approx([0.01 / step**0.5 for step in (2, 3, 4, 5, 6)], rel=1e-3)


def test_training_with_the_formula_a_long_warmup_and_accumulated_gradients(copy_task: CopyTask, tmp_path: Path) -> None:
    out = train(copy_task, tmp_path, "--warmup-updates", 10, "--update-freq", 2)
    assert "the paper's formula with d_model 16 and warm-up 10" in out
    rates = logged_rates(out)
    assert rates == pytest.approx([16**-0.5 * step * 10**-1.5 for step in (2, 3, 4, 5, 6)], rel=1e-3)
    resumed = train(copy_task, tmp_path, "--warmup-updates", 10, "--update-freq", 2, "--max-update", 12)
    steps = range(7, 14)
    expected = [16**-0.5 * min(step**-0.5, step * 10**-1.5) for step in steps]
    assert logged_rates(resumed) == pytest.approx(expected, rel=1e-3)


def test_a_bad_rate_ends_training_before_it_starts(copy_task: CopyTask, tmp_path: Path) -> None:
    args = tiny_train_args(copy_task.bin, tmp_path, updates=5)
    result = run("fairseq-train", *args, "--warmup-updates", -3)
    assert result.rc != 0
    assert "--warmup-updates must be 0 or more, but is -3" in result.out
    assert "train_inner" not in result.out
