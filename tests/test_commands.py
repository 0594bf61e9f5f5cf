"""The toolkit's own commands end to end on tiny data: validate, interactive, hydra, components of both mixed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from fairseq.dataclass.initialize import add_defaults
from fairseq.models import ARCH_CONFIG_REGISTRY
from omegaconf import OmegaConf
from toolkit_runner import PLUGIN, REPO, CopyTask, Result, run, tiny_model_args, tiny_train_args

import vaswani_plugin
from vaswani_plugin.architectures import ARCHITECTURES
from vaswani_plugin.toolkit import load_checkpoint

SEARCH = ["--user-dir", PLUGIN, "--cpu", "--beam", 2]


def hypotheses(result: Result) -> dict[int, str]:
    """The hypothesis of each sentence number."""
    rows = [line[2:].split("\t") for line in result.ok().lines("H-")]
    return {int(number): text for number, _, text in rows}


def test_validate_repeats_the_loss_of_training(copy_task: CopyTask, tiny_checkpoint: Path) -> None:
    result = run(
        "fairseq-validate", copy_task.bin, "--user-dir", PLUGIN, "--task", "vaswani_translation", "--cpu",
        "--path", tiny_checkpoint, "--batch-size", 8,
    ).ok()  # fmt: skip
    (loss,) = re.findall(r"\bvalid \| .*?\bloss ([\d.]+)", result.out)
    assert float(loss) == pytest.approx(load_checkpoint(tiny_checkpoint)["extra_state"]["val_loss"], abs=2e-3)


@pytest.mark.parametrize("task", ["vaswani_translation", "translation"])
def test_interactive_answers_line_by_line(task: str, copy_task: CopyTask, tiny_checkpoint_400: Path) -> None:
    lines = [*copy_task.lines[:5], "w1 unseen w2"]
    text = "".join(line + "\n" for line in lines)
    options = [copy_task.bin, *SEARCH, "--task", task, "--path", tiny_checkpoint_400]
    one_by_one = run("fairseq-interactive", *options, stdin=text)
    together = run("fairseq-interactive", *options, "--buffer-size", 100, "--batch-size", 4, stdin=text)
    assert list(hypotheses(one_by_one)) == list(hypotheses(together)) == list(range(6))
    assert one_by_one.lines("S-") == together.lines("S-")
    assert [len(line.split()) - 1 for line in together.lines("S-")] == [len(line.split()) for line in lines]
    if task == "vaswani_translation":
        assert hypotheses(one_by_one) == hypotheses(together)


def test_interactive_without_input_answers_nothing(copy_task: CopyTask, tiny_checkpoint: Path) -> None:
    result = run(
        "fairseq-interactive", copy_task.bin, *SEARCH, "--task", "vaswani_translation", "--path", tiny_checkpoint
    )
    assert hypotheses(result) == {}


def test_our_model_with_the_toolkit_s_task(copy_task: CopyTask, tmp_path: Path) -> None:
    train = tiny_train_args(copy_task.bin, tmp_path, updates=2)
    run("fairseq-train", *train, "--task", "translation", "--no-epoch-checkpoints").ok()
    search = [*SEARCH, "--path", tmp_path / "checkpoint_last.pt", "--required-batch-size-multiple", 1]
    for task in ("translation", "vaswani_translation"):
        assert len(hypotheses(run("fairseq-generate", copy_task.bin, *search, "--task", task))) == 13


def test_the_toolkit_s_model_with_our_task_criterion_and_scheduler(copy_task: CopyTask, tmp_path: Path) -> None:
    train = tiny_train_args(copy_task.bin, tmp_path, updates=2)
    run("fairseq-train", *train, "--arch", "transformer", "--lr", "0.01", "--no-epoch-checkpoints").ok()
    search = [*SEARCH, "--path", tmp_path / "checkpoint_last.pt", "--task", "vaswani_translation"]
    assert len(hypotheses(run("fairseq-generate", copy_task.bin, *search, "--batch-size", 8))) == 13


def test_our_model_with_the_toolkit_s_criterion_and_scheduler(copy_task: CopyTask, tmp_path: Path) -> None:
    run(
        "fairseq-train", copy_task.bin, "--user-dir", PLUGIN, "--arch", "vaswani_tiny", *tiny_model_args(), "--cpu",
        "--criterion", "label_smoothed_cross_entropy", "--optimizer", "adam", "--lr-scheduler", "inverse_sqrt",
        "--lr", "0.01", "--warmup-updates", 2, "--max-tokens", 400, "--max-update", 2, "--num-workers", 0,
        "--save-dir", tmp_path, "--no-epoch-checkpoints",
    ).ok()  # fmt: skip
    assert load_checkpoint(tmp_path / "checkpoint_last.pt")["cfg"]["model"]["dropout"] == 0.3


def hydra_train(data: Path, folder: Path, *overrides: str) -> Result:
    """``fairseq-hydra-train`` with the example's configuration, for one update of a narrow model."""
    narrow = [
        f"+model.{side}_{name}={value}"
        for side in ("encoder", "decoder")
        for name, value in {"embed_dim": 16, "ffn_embed_dim": 32, "attention_heads": 2, "layers": 1}.items()
    ]
    return run(
        "fairseq-hydra-train", "--config-dir", REPO / "examples" / "hydra", "--config-name", "base",
        f"common.user_dir={PLUGIN}", f"task.data={data}", f"hydra.run.dir={folder}", "common.cpu=true",
        "dataset.num_workers=0", "dataset.max_tokens=400", "optimization.max_update=1", *narrow, *overrides,
        cwd=folder,
    )  # fmt: skip


def test_the_hydra_example_trains_and_its_checkpoint_translates(copy_task: CopyTask, tmp_path: Path) -> None:
    out = hydra_train(copy_task.bin, tmp_path, "model._name=vaswani_big").ok().out
    assert "the paper's formula with d_model 16 and warm-up 4000" in out
    checkpoint = tmp_path / "checkpoints" / "checkpoint_last.pt"
    model = load_checkpoint(checkpoint)["cfg"]["model"]
    assert (model["_name"], model["dropout"]) == ("vaswani_big", 0.3)
    assert (model["encoder_layers"], model["decoder_embed_dim"]) == (1, 16)
    search = [*SEARCH, "--path", checkpoint, "--task", "vaswani_translation"]
    assert len(hypotheses(run("fairseq-generate", copy_task.bin, *search))) == 13


def test_hydra_refuses_an_unknown_architecture(copy_task: CopyTask, tmp_path: Path) -> None:
    result = hydra_train(copy_task.bin, tmp_path, "model._name=vaswani_huge")
    assert result.rc != 0
    text = (
        "ValueError: there is no architecture vaswani_huge; did you mean vaswani_big or vaswani_base or vaswani_a_h4?"
    )
    assert text in result.out


def hydra_model(**fields: Any) -> dict[str, Any]:
    """The model's options as ``fairseq-hydra-train`` has them: the dataclass merged, the architecture applied."""
    cfg = OmegaConf.create({"model": fields})
    add_defaults(cfg)
    ARCH_CONFIG_REGISTRY[fields["_name"]](cfg.model)
    return {name: cfg.model[name] for name in cfg.model}


@pytest.mark.parametrize("arch", vaswani_plugin.REGISTERED["architecture"])
def test_hydra_applies_every_architecture_and_a_given_field_wins(arch: str) -> None:
    preset = ARCHITECTURES[arch]
    model = hydra_model(_name=arch)
    assert {name: model[name] for name in preset} == preset
    model = hydra_model(_name=arch, dropout=0.25, encoder_layers=3)
    assert {name: model[name] for name in preset} == {**preset, "dropout": 0.25, "encoder_layers": 3}
