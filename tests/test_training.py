"""The toolkit's fairseq-train with every architecture and with the options that people combine."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
import torch
from toolkit_runner import CopyTask, run, tiny_model_args, tiny_train_args

from vaswani_plugin.architectures import ARCHITECTURES
from vaswani_plugin.toolkit import load_checkpoint

IN_THE_FAST_TIER = ("vaswani_b_dk16", "vaswani_e_learned")


def numbers(out: str, name: str) -> list[float]:
    """Every logged value of a training metric; "inf" and "nan" count as such."""
    return [float(value) for value in re.findall(rf"train_inner.*[ ,]{name}=([^,\s]+)", out)]


@pytest.mark.parametrize(
    "arch", [pytest.param(a, marks=() if a in IN_THE_FAST_TIER else pytest.mark.slow) for a in sorted(ARCHITECTURES)]
)
def test_one_update_of_every_architecture(arch: str, copy_task: CopyTask, tmp_path: Path) -> None:
    n_heads = {"vaswani_a_h1": 1, "vaswani_a_h32": 8}.get(arch, 2)
    args = tiny_train_args(copy_task.bin, tmp_path, arch=arch, updates=1)
    out = run("fairseq-train", *args, *tiny_model_args(n_heads=n_heads), "--no-epoch-checkpoints").ok().out
    assert len(numbers(out, "loss")) == 1
    saved = load_checkpoint(tmp_path / "checkpoint_last.pt")["cfg"]["model"]
    assert saved["_name"] == arch
    given = {f"{side}_{key}" for side in ("encoder", "decoder") for key in SHRUNK}
    kept = {name: value for name, value in ARCHITECTURES[arch].items() if name not in given}
    assert {name: saved[name] for name in kept} == kept
    assert (saved["encoder_layers"], saved["encoder_embed_dim"], saved["encoder_attention_heads"]) == (1, 16, n_heads)


SHRUNK = ("layers", "embed_dim", "ffn_embed_dim", "attention_heads")


@pytest.mark.parametrize(
    "options",
    [
        ["--left-pad-target", "--report-accuracy"],
        ["--amp"],
        ["--encoder-normalize-before", "--decoder-normalize-before", "--encoder-layerdrop", "0.3",
         "--attention-dropout", "0.1", "--activation-dropout", "0.1", "--checkpoint-activations"],
    ],
    ids=["left-padded targets", "amp", "options of pre-norm models"],
)  # fmt: skip
def test_training_stays_finite(options: list[str], copy_task: CopyTask, tmp_path: Path) -> None:
    args = tiny_train_args(copy_task.bin, tmp_path, updates=5)
    out = run("fairseq-train", *args, "--no-save", *options).ok().out
    assert len(numbers(out, "loss")) == 5
    assert all(math.isfinite(value) for name in ("loss", "nll_loss", "gnorm") for value in numbers(out, name))
    if "--report-accuracy" in options:
        assert all(0 <= value <= 100 for value in numbers(out, "accuracy"))
        assert len(numbers(out, "accuracy")) == 5


def test_training_in_half_precision_stays_finite(float16: torch.dtype, copy_task: CopyTask, tmp_path: Path) -> None:
    test_training_stays_finite(["--memory-efficient-fp16", "--fp16-init-scale", "4"], copy_task, tmp_path)


def test_an_overflow_on_a_cpu_lowers_the_loss_scale(float16: torch.dtype, copy_task: CopyTask, tmp_path: Path) -> None:
    args = tiny_train_args(copy_task.bin, tmp_path, updates=3)
    out = run("fairseq-train", *args, "--no-save", "--memory-efficient-fp16", "--fp16-init-scale", 2**20).ok().out
    assert "gradient overflow detected, ignoring gradient, setting loss scale to: 524288.0" in out
    assert len(numbers(out, "loss")) == 3


def test_training_learns(tiny_checkpoint_400: Path, tiny_checkpoint: Path, copy_task: CopyTask) -> None:
    losses = []
    for path in (tiny_checkpoint, tiny_checkpoint_400):
        state = load_checkpoint(path)
        losses.append(float(state["extra_state"]["val_loss"]))
    assert losses[1] < 0.85 * losses[0]


def test_a_bad_option_ends_with_its_name_and_rule(copy_task: CopyTask, tmp_path: Path) -> None:
    result = run("fairseq-train", *tiny_train_args(copy_task.bin, tmp_path), "--encoder-attention-heads", 3)
    assert result.rc != 0
    assert "the width 16 is not a multiple of the 3 attention heads; give d_k and d_v to free them" in result.out
