"""Packed linear layers: against torch's own, by themselves and in a model that translates."""

from __future__ import annotations

import logging
from argparse import Namespace
from pathlib import Path
from typing import Any, Optional

import pytest
import torch
from test_generator import WORDS, batch, model
from torch import Tensor, nn
from torch.nn import functional as F

from vaswani_plugin import quantization
from vaswani_plugin.beam_search import SearchOptions
from vaswani_plugin.decode_precision import is_packed, pack_model, use_precision
from vaswani_plugin.generator import VaswaniGenerator
from vaswani_plugin.quantization import LAYERS, PRECISIONS, Int8Linear, instructions, obstacle
from vaswani_plugin.transformer import VaswaniTransformer
from vaswani_plugin.translation import VaswaniTranslationConfig, VaswaniTranslationTask

#: How far from float32 a layer of each precision may be, relative to the norm of its output.
TOLERANCE = {"fp32": 1e-6, "bf16": 5e-3, "int8": 2e-2}


def needs(precision: str) -> None:
    """Skip where the processor cannot do it."""
    reason = obstacle(precision)
    if reason is not None:
        pytest.skip(reason)


def distance(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).norm() / expected.norm())


def quantised_by_hand(x: Tensor, weight: Tensor, nonnegative: bool) -> Tensor:
    """The oracle of int8: whole numbers in double precision."""
    x, weight = x.double(), weight.double()
    levels = 255 if nonnegative else 127
    row_scales = x.abs().amax(1, keepdim=True) / levels
    output_scales = weight.abs().amax(1).clamp_min(1e-30) / 127
    whole = (x / row_scales).round() @ (weight / output_scales[:, None]).round().t()
    return (whole * row_scales * output_scales).float()


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("shape", [(1, 32), (7, 32), (2, 3, 32), (0, 32)])
@pytest.mark.parametrize("has_bias", [True, False])
def test_a_packed_layer_is_a_linear_layer(precision: str, shape: tuple[int, ...], has_bias: bool) -> None:
    needs(precision)
    torch.manual_seed(1)
    weight, bias, x = torch.randn(50, 32), torch.randn(50) if has_bias else None, torch.randn(shape)
    layer, expected = LAYERS[precision](weight, bias), F.linear(x, weight, bias)
    found = layer(x)
    assert found.dtype == torch.float32
    assert found.shape == expected.shape
    if x.numel():
        assert distance(found, expected) < TOLERANCE[precision]
    assert not list(layer.parameters())
    assert f"{layer}" == f"{type(layer).__name__}(in_features=32, out_features=50)"


@pytest.mark.parametrize("nonnegative", [False, True])
def test_int8_by_whole_numbers(nonnegative: bool) -> None:
    needs("int8")
    torch.manual_seed(2)
    weight, x = torch.randn(50, 64), torch.randn(9, 64) * torch.logspace(-3, 3, 9)[:, None]
    weight[3] = 0.0
    x = x.relu() if nonnegative else x
    found = Int8Linear(weight, None, nonnegative)(x)
    torch.testing.assert_close(found, quantised_by_hand(x, weight, nonnegative), rtol=1e-2, atol=0)
    assert found[:, 3].eq(0).all()


def test_int8_rows_do_not_know_each_other() -> None:
    needs("int8")
    torch.manual_seed(3)
    layer, x = Int8Linear(torch.randn(50, 32), torch.randn(50)), torch.randn(6, 32)
    x[2] *= 1000
    x[4] = 0.0
    together = layer(x)
    assert torch.equal(together, torch.cat([layer(row[None]) for row in x]))
    assert torch.equal(together[4], layer._bias)


def test_int8_keeps_what_is_no_number() -> None:
    needs("int8")
    x = torch.ones(2, 32)
    x[0, 5] = float("nan")
    found = Int8Linear(torch.randn(8, 32), None)(x)
    assert found[0].isnan().all()
    assert found[1].isfinite().all()


def logits_of(built: VaswaniTransformer, fused: bool) -> Tensor:
    """Of every next token of some sentence, step by step or at once."""
    source, target = batch([4, 7])["net_input"]["src_tokens"], torch.randint(4, 40, (2, 6))
    encoder_out = built.encoder(source)
    if not fused:
        return built.decoder(target, encoder_out)[0]
    state = built.decoder.begin(encoder_out)
    steps = []
    for t in range(target.size(1)):
        steps.append(built.decoder.output_layer(built.decoder.step(target[:, t], state)[0]))
        state.select(torch.zeros(2, 1, dtype=torch.long))
    return torch.stack(steps, dim=1)


OPTIONS: list[dict[str, Any]] = [
    {},
    {"activation_fn": "gelu"},
    {"tie_embeddings": "all"},
    {"encoder_normalize_before": True, "decoder_normalize_before": True},
    {"attention_key_dim": 6, "attention_value_dim": 10},
]


@torch.no_grad()
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("options", OPTIONS)
def test_a_packed_model_is_the_model(precision: str, options: dict[str, Any]) -> None:
    needs(precision)
    built = model(**options)
    torch.manual_seed(4)
    plain = logits_of(built, fused=False)
    pack_model(built, precision)
    assert is_packed(built)
    assert not [name for name, one in built.named_modules() if isinstance(one, nn.Linear)]
    for fused in (False, True):
        torch.manual_seed(4)
        found = logits_of(built, fused)
        if precision == "fp32":
            torch.testing.assert_close(found, plain, rtol=0, atol=1e-5)
        assert distance(found, plain) < 10 * TOLERANCE[precision]


@pytest.mark.parametrize("precision", PRECISIONS)
def test_translations_of_a_packed_model(precision: str) -> None:
    needs(precision)
    sample, options = batch([3, 9, 5, 1]), SearchOptions(max_len_b=10)

    def translated(built: VaswaniTransformer, one: dict[str, Any]) -> list[tuple[list[int], float]]:
        found = VaswaniGenerator([built], WORDS, options).generate(None, one)
        return [(hypos[0]["tokens"].tolist(), float(hypos[0]["score"])) for hypos in found]

    built = model()
    plain = translated(built, sample)
    pack_model(built, precision)
    packed = translated(built, sample)
    if precision == "fp32":
        assert [tokens for tokens, _ in packed] == [tokens for tokens, _ in plain]
    for (_, score), (_, expected) in zip(packed, plain):
        assert score == pytest.approx(expected, abs=20 * TOLERANCE[precision] + 1e-5)
    for i, n_words in enumerate([3, 9, 5, 1]):
        alone = {"net_input": {"src_tokens": sample["net_input"]["src_tokens"][i : i + 1, -n_words - 1 :]}}
        assert translated(built, alone)[0][0] == packed[i][0]


def prepared(**options: Any) -> VaswaniTransformer:
    """As the toolkit's commands prepare a model that only translates."""
    built = model(**options)
    generation = Namespace(beam=4, no_beamable_mm=True, print_alignment=None, retain_dropout=False)
    built.prepare_for_inference_(Namespace(generation=generation, common=Namespace(fp16=False)))
    return built


def says(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_option_packs_a_model_that_only_translates(precision: str, caplog: pytest.LogCaptureFixture) -> None:
    needs(precision)
    caplog.set_level(logging.INFO)
    built = prepared()
    task = VaswaniTranslationTask(VaswaniTranslationConfig(decode_precision=precision), WORDS, WORDS)
    task.build_generator([built], Namespace())
    assert type(built.decoder.layers[0].fc1) is type(built.decoder.output_projection) is LAYERS[precision]
    layer = built.decoder.output_projection
    task.build_generator([built], Namespace())
    assert built.decoder.output_projection is layer  # once is enough
    assert says(caplog) == []


@pytest.mark.parametrize("precision", ["bf16", "int8"])
def test_a_processor_without_the_instructions(
    precision: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(quantization, "instructions", lambda: frozenset({"avx2"}))
    obstacle.cache_clear()
    built = prepared()
    use_precision(built, precision)
    obstacle.cache_clear()
    assert type(built.decoder.output_projection) is LAYERS["fp32"]
    names = {"bf16": "amx_bf16, avx512_bf16, bf16", "int8": "amx_int8, avx512_vnni, avx_vnni"}[precision]
    assert says(caplog) == [
        f"--decode-precision {precision} does not apply, since the processor has none of the instructions {names}"
    ]


def test_a_torch_without_the_operators(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    def fails(self: Any, weight: Tensor, bias: Optional[Tensor]) -> None:
        raise AttributeError("no such operator\nand more")

    monkeypatch.setattr(quantization.PackedLinear, "_pack", fails)
    monkeypatch.setattr(Int8Linear, "_pack", fails)
    monkeypatch.setattr(quantization, "instructions", lambda: frozenset({"avx_vnni"}))
    obstacle.cache_clear()
    built = prepared()
    use_precision(built, "int8")
    use_precision(built, "fp32")
    obstacle.cache_clear()
    assert not is_packed(built)
    assert says(caplog) == [
        "--decode-precision int8 does not apply, since "
        f"torch {torch.__version__} lacks the operators here (no such operator)"
    ]


def test_operators_that_saturate_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    class Saturating(Int8Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x).clamp(max=40.0)

    needs("int8")
    monkeypatch.setitem(LAYERS, "int8", Saturating)
    obstacle.cache_clear()
    reason = obstacle("int8")
    obstacle.cache_clear()
    assert reason == f"the operators of torch {torch.__version__} compute something else here"


def test_a_model_that_is_trained_keeps_its_weights(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    built = model()
    use_precision(built, "int8")
    use_precision(built, "fp32")
    assert not is_packed(built)
    assert says(caplog) == ["--decode-precision int8 does not apply, since the model is still trained"]


def test_half_precision_keeps_its_weights(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    built = prepared().half()
    use_precision(built, "int8")
    assert not is_packed(built)
    assert says(caplog) == ["--decode-precision int8 does not apply, since the model computes in float16"]


def test_instructions_of_this_processor() -> None:
    listed = Path("/proc/cpuinfo")
    assert instructions() == instructions()
    if listed.exists():
        text = listed.read_text(encoding="utf-8")
        assert instructions()
        assert all(name in text for name in instructions())
    else:
        assert instructions() == frozenset()
