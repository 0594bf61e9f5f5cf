"""A plugin of somebody else's, built on ours, trains and translates."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from toolkit_runner import REPO, CopyTask, run, tiny_train_args

from vaswani_plugin.toolkit import load_checkpoint

MY_PLUGIN = REPO / "examples" / "extending" / "my_plugin"


def logged(out: str, name: str) -> list[float]:
    return [float(value) for value in re.findall(rf"train_inner .*\b{name}=([\d.e-]+)", out)]


def test_another_plugin_trains_and_translates(copy_task: CopyTask, tmp_path: Path) -> None:
    narrow = [
        word
        for side in ("encoder", "decoder")
        for name, value in (("embed-dim", 16), ("ffn-embed-dim", 32), ("attention-heads", 2))
        for word in (f"--{side}-{name}", value)
    ]
    out = run(
        "fairseq-train", copy_task.bin, "--user-dir", MY_PLUGIN, "--arch", "my_deep_encoder", *narrow, "--cpu",
        "--criterion", "my_confidence_penalty", "--entropy-weight", 0.2, "--lr-scheduler", "my_warmup_hold_decay",
        "--warmup-updates", 2, "--hold-updates", 2, "--lr", 0.01, "--task", "vaswani_translation",
        "--optimizer", "adam", "--max-tokens", 400, "--max-update", 6, "--save-dir", tmp_path,
        "--no-epoch-checkpoints", "--num-workers", 0, "--log-format", "simple", "--log-interval", 1,
    ).ok().out  # fmt: skip
    # What the toolkit logs with an update is the rate of the next one, here of updates 2 to 7.
    held_then_decaying = [0.01, 0.01, 0.01, *(0.01 * (2 / step) ** 0.5 for step in (3, 4, 5))]
    assert logged(out, "lr") == pytest.approx(held_then_decaying, rel=1e-4)
    model = load_checkpoint(tmp_path / "checkpoint_last.pt")["cfg"]["model"]
    assert (model["encoder_layers"], model["decoder_layers"], model["encoder_embed_dim"]) == (12, 2, 16)

    search = ["--user-dir", MY_PLUGIN, "--task", "vaswani_translation", "--cpu", "--beam", 1]
    result = run("fairseq-generate", copy_task.bin, *search, "--path", tmp_path / "checkpoint_last.pt").ok()
    assert len(result.lines("H-")) == 13


def test_the_reward_for_entropy_lowers_the_loss_alone(copy_task: CopyTask, tmp_path: Path) -> None:
    def first_update(*options: object) -> tuple[float, float]:
        args = tiny_train_args(copy_task.bin, tmp_path, updates=1)
        out = run("fairseq-train", *args, "--user-dir", MY_PLUGIN, "--no-save", *options).ok().out
        return logged(out, "loss")[0], logged(out, "nll_loss")[0]

    plain = first_update()
    without = first_update("--criterion", "my_confidence_penalty", "--entropy-weight", 0)
    rewarded = first_update("--criterion", "my_confidence_penalty", "--entropy-weight", 0.5)
    assert without == pytest.approx(plain, abs=2e-3)
    assert rewarded[1] == pytest.approx(plain[1], abs=2e-3)
    assert rewarded[0] < plain[0] - 1
