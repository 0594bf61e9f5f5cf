"""``--compute-dtype bf16``: float32 weights, the same loss within bfloat16's precision, a word where it cannot be."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, Dict, List, Tuple

import pytest
import torch
from test_criterion import criterion, sample, small_model
from toolkit_runner import PLUGIN, CopyTask, run, tiny_train_args
from torch import Tensor

from vaswani_plugin import quantization
from vaswani_plugin.config import BASE, VaswaniConfig, check_config, fill_missing
from vaswani_plugin.toolkit import load_checkpoint


@pytest.fixture(autouse=True)
def any_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """bfloat16 is computed on every processor, if slowly."""
    monkeypatch.setattr(quantization, "instructions", lambda: quantization.INSTRUCTIONS["bf16"])


def loss_and_gradients(name: str) -> Tuple[Tensor, Dict[str, Tensor]]:
    model = small_model(compute_dtype=name)
    loss, _, log = criterion()(model, sample())
    loss.backward()
    assert torch.isfinite(log["nll_loss"])
    return loss.detach(), {key: parameter.grad for key, parameter in model.named_parameters()}  # type: ignore[misc]


def test_loss_and_gradients_are_those_of_float32_within_bfloat16() -> None:
    (loss, gradients), (exact, exact_gradients) = loss_and_gradients("bf16"), loss_and_gradients("fp32")
    assert loss.dtype == torch.float32
    assert loss != exact
    torch.testing.assert_close(loss, exact, rtol=1e-2, atol=0)
    largest = max(gradient.abs().max() for gradient in exact_gradients.values())
    for name, gradient in gradients.items():
        assert gradient.dtype == torch.float32, name
        difference = (gradient - exact_gradients[name]).norm()
        scale = largest if name.endswith("k_proj.bias") else exact_gradients[name].norm()
        assert difference <= 0.1 * scale, name


def test_padding_and_the_plain_loss_go_the_same_way() -> None:
    model = small_model(compute_dtype="bf16")
    chunked = criterion()(model, sample())[0]
    torch.testing.assert_close(criterion()(model, sample(extra_padding=4))[0], chunked, rtol=1e-2, atol=0)
    torch.testing.assert_close(criterion(report_accuracy=True)(model, sample())[0].float(), chunked, rtol=1e-2, atol=0)
    torch.testing.assert_close(criterion()(model, sample(left=True))[0], chunked, rtol=1e-2, atol=0)


def test_only_products_change_their_type() -> None:
    model = small_model(compute_dtype="bf16")
    criterion()(model, sample())
    features, _ = model(**sample()["net_input"], features_only=True)
    assert features.dtype == torch.float32
    assert model.decoder.layers[0].fc1.product_dtype == torch.bfloat16
    assert {tensor.dtype for tensor in model.state_dict().values()} == {torch.float32}


def test_decoding_in_training_follows_the_same_type() -> None:
    """As ``--eval-bleu`` does between epochs: word by word, with a model that has just been trained."""
    model = small_model(compute_dtype="bf16").eval()
    source, target = sample()["net_input"]["src_tokens"], sample((5, 5, 5))["net_input"]["prev_output_tokens"]
    whole = model(source, None, target)[0].float()
    state: Dict[str, Any] = {}
    encoder_out = model.encoder(source)
    steps = [model.decoder(target[:, : i + 1], encoder_out, state)[0][:, 0].float() for i in range(target.size(1))]
    torch.testing.assert_close(torch.stack(steps, dim=1), whole, rtol=0, atol=0.1)


@pytest.mark.parametrize("case", ["old processor", "half precision", "autocasting"])
def test_where_it_cannot_be_float32_computes_and_the_log_says_why(
    case: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = small_model(compute_dtype="bf16")
    reason = "the processor has none of the instructions amx_bf16, avx512_bf16, bf16"
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=case == "autocasting"):
        if case == "old processor":
            monkeypatch.setattr(quantization, "instructions", lambda: frozenset({"avx2"}))
        elif case == "half precision":
            model.half()
            reason = "the weights are float16"
        else:
            reason = "--amp chooses the types"
        with caplog.at_level(logging.WARNING):
            for _ in range(2):
                model.compute_dtype.settle(model)
    assert [record.getMessage() for record in caplog.records] == [
        f"--compute-dtype bf16 does not apply, since {reason}"
    ]
    assert model.decoder.layers[0].fc1.compute_dtype is None


def test_an_unknown_type_is_named() -> None:
    config = VaswaniConfig(compute_dtype="fp8")
    fill_missing(config, BASE)
    with pytest.raises(ValueError, match="^--compute-dtype must be one of fp32, bf16, but is 'fp8'$"):
        check_config(config)


def test_the_loss_under_autocasting_has_finite_gradients() -> None:
    model = small_model()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = criterion()(model, sample())[0]
    exact = criterion()(model, sample())[0]
    torch.testing.assert_close(loss, exact, rtol=1e-2, atol=0)
    gradients: List[Tensor] = list(torch.autograd.grad(loss, list(model.parameters())))
    assert all(gradient.dtype == torch.float32 and gradient.isfinite().all() for gradient in gradients)


def test_a_model_trained_in_bfloat16_translates(copy_task: CopyTask, tmp_path: Path) -> None:
    options = ["--compute-dtype", "bf16", "--no-epoch-checkpoints"]
    run("fairseq-train", *tiny_train_args(copy_task.bin, tmp_path, updates=5), *options).ok()
    state = load_checkpoint(tmp_path / "checkpoint_last.pt")
    assert state["cfg"]["model"]["compute_dtype"] == "bf16"
    assert {tensor.dtype for tensor in state["model"].values()} == {torch.float32}
    words = ["--user-dir", PLUGIN, "--task", "vaswani_translation", "--path", tmp_path / "checkpoint_last.pt", "--cpu"]
    assert len(run("fairseq-generate", copy_task.bin, *words).ok().lines("H-")) == 13
