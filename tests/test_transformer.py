"""The model's properties: causality, padding, incremental decoding, attention maps, precision, and its options."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from test_architectures import SMALL, JointTask
from torch import Tensor

import vaswani_plugin  # noqa: F401
from vaswani_plugin.config import VaswaniConfig
from vaswani_plugin.transformer import VaswaniTransformer

PAD, EOS = 1, 2
V = 20


def small_model(**options: Any) -> VaswaniTransformer:
    torch.manual_seed(5)
    cfg = VaswaniConfig(**{**SMALL, "encoder_layers": 2, "decoder_layers": 3, **options})
    model = VaswaniTransformer.build_model(cfg, JointTask(V))
    for parameter in model.parameters():  # biases and gains that matter
        if parameter.dim() == 1:
            torch.nn.init.normal_(parameter, mean=1.0 if parameter.mean() > 0.5 else 0.0, std=0.3)
    return model


def batch() -> tuple[Tensor, Tensor]:
    torch.manual_seed(6)
    source, target = torch.randint(4, V, (3, 7)), torch.randint(4, V, (3, 5))
    source[:, -1] = EOS
    target[:, 0] = EOS
    return source, target


KINDS = [{}, {"encoder_normalize_before": True, "decoder_normalize_before": True}, {"encoder_learned_pos": True,
         "decoder_learned_pos": True}, {"attention_key_dim": 3, "attention_value_dim": 5}]  # fmt: skip


@pytest.mark.parametrize("options", KINDS)
def test_no_token_sees_its_future(options: dict[str, Any]) -> None:
    model, (source, target) = small_model(**options).eval(), batch()
    logits = model(source, None, target)[0]
    for t in range(1, target.size(1)):
        changed = target.clone()
        changed[:, t:] = (changed[:, t:] - 3) % (V - 4) + 4
        others = model(source, None, changed)[0]
        torch.testing.assert_close(others[:, :t], logits[:, :t], rtol=0, atol=1e-6)
        assert (others[:, t] - logits[:, t]).abs().max() > 1e-3


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("options", KINDS)
def test_padding_changes_nothing(options: dict[str, Any], left: bool) -> None:
    model, (source, target) = small_model(**options).eval(), batch()
    logits = model(source, None, target)[0]
    pads = torch.full((3, 4), PAD)
    order = (lambda a, b: (b, a)) if left else (lambda a, b: (a, b))
    padded = model(torch.cat(order(source, pads), 1), None, torch.cat(order(target, pads), 1))[0]
    real = padded[:, 4:] if left else padded[:, :5]
    torch.testing.assert_close(real, logits, rtol=0, atol=1e-5)


def test_a_batch_is_its_sentences() -> None:
    model, (source, target) = small_model().eval(), batch()
    source[1, 4:] = torch.tensor([EOS, PAD, PAD])
    logits = model(source, None, target)[0]
    order = torch.tensor([2, 0, 1])
    torch.testing.assert_close(model(source[order], None, target[order])[0], logits[order], rtol=0, atol=1e-6)
    alone = model(source[1:2, :5], None, target[1:2])[0]
    torch.testing.assert_close(alone, logits[1:2], rtol=0, atol=1e-5)


@pytest.mark.parametrize("options", KINDS)
def test_step_by_step_decoding_equals_whole_sentences(options: dict[str, Any]) -> None:
    model, (source, target) = small_model(**options).eval(), batch()
    source[0, :2] = PAD
    whole, extra = model(source, None, target)
    encoder_out = model.encoder(source)
    state: dict[str, Any] = {}
    calls = []
    first = model.decoder.layers[0].fc1
    first.register_forward_hook(lambda module, inputs, output: calls.append(inputs[0].shape))
    for t in range(target.size(1)):
        logits, step_extra = model.decoder(target[:, : t + 1], encoder_out, state)
        torch.testing.assert_close(logits[:, 0], whole[:, t], rtol=0, atol=1e-5)
        torch.testing.assert_close(step_extra["attn"][0][:, 0], extra["attn"][0][:, t], rtol=0, atol=1e-5)
    assert calls == [(3, 8)] * target.size(1)  # one new token each


def test_reordered_hypotheses_continue_their_own_past() -> None:
    model, (source, target) = small_model().eval(), batch()
    encoder_out = model.encoder(source)
    state: dict[str, Any] = {}
    model.decoder.reorder_incremental_state_scripting(state, torch.tensor([0]))  # nothing to reorder yet
    for t in range(3):
        model.decoder(target[:, : t + 1], encoder_out, state)
    order = torch.tensor([2, 0])
    model.decoder.reorder_incremental_state_scripting(state, order)
    encoder_out = model.encoder.reorder_encoder_out(encoder_out, order)
    logits = model.decoder(target[order][:, :4], encoder_out, state)[0]
    whole = model(source[order], None, target[order][:, :4])[0]
    torch.testing.assert_close(logits[:, 0], whole[:, 3], rtol=0, atol=1e-5)


def test_a_beam_shares_its_sentence() -> None:
    model, (source, _) = small_model().eval(), batch()
    source[2, :3] = PAD
    n_hypotheses = 2
    decoding = model.decoder.begin(model.encoder(source))
    tokens = torch.randint(4, V, (3 * n_hypotheses, 4))
    for t in range(4):
        features, weights = model.decoder.step(tokens[:, t], decoding, need_weights=True)
    whole = model(source.repeat_interleave(n_hypotheses, 0), None, tokens)
    torch.testing.assert_close(model.decoder.output_layer(features), whole[0][:, -1], rtol=0, atol=1e-5)
    torch.testing.assert_close(weights, whole[1]["attn"][0][:, -1], rtol=0, atol=1e-5)


@pytest.mark.parametrize("training", [True, False])
def test_a_row_of_padding_is_finite_and_disturbs_nobody(training: bool) -> None:
    model, (source, target) = small_model(dropout=0.0).train(training), batch()
    source[0] = PAD
    target[0] = PAD
    with torch.set_grad_enabled(training):
        logits = model(source[:2], None, target[:2])[0]
        alone = model(source[1:2], None, target[1:2])[0]
    assert logits.isfinite().all()
    torch.testing.assert_close(logits[1:], alone, rtol=0, atol=1e-5)
    if training:
        logits.sum().backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_half_precision(half: torch.dtype) -> None:
    model, (source, target) = small_model().eval(), batch()
    source[1, :5] = PAD  # lengths 7 and 2
    exact = model(source, None, target)[0]
    logits = model.to(half)(source, None, target)[0]
    assert logits.dtype == half
    assert logits.isfinite().all()
    top = exact.topk(2, dim=-1).values
    clear = (top[..., 0] - top[..., 1]) > 0.1  # ties within the precision may fall either way
    assert (logits.argmax(-1) == exact.argmax(-1))[clear].all()
    assert clear.sum() > 5


def test_attention_maps() -> None:
    model, (source, target) = small_model(encoder_attention_heads=4).eval(), batch()
    source[0, :2] = PAD
    maps = model.attention_maps(source, target)
    assert [tuple(w.shape) for w in maps.encoder] == [(3, 4, 7, 7)] * 2
    assert [tuple(w.shape) for w in maps.decoder] == [(3, 2, 5, 5)] * 3
    assert [tuple(w.shape) for w in maps.source] == [(3, 2, 5, 7)] * 3
    for weights in [*maps.encoder, *maps.decoder, *maps.source]:
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))
    assert all((weights[0, :, :, :2] == 0).all() for weights in [*maps.encoder, *maps.source])
    assert all(weights.triu(1).abs().max() == 0 for weights in maps.decoder)
    extra = model(source, None, target)[1]
    torch.testing.assert_close(extra["attn"][0], maps.source[-1].mean(dim=1))


def test_alignment_layer_and_heads() -> None:
    model, (source, target) = small_model().train(), batch()
    assert model(source, None, target)[1]["attn"] == [None]
    model.eval()
    maps = model.attention_maps(source, target)
    extra = model(source, None, target, alignment_layer=1, alignment_heads=1)[1]
    torch.testing.assert_close(extra["attn"][0], maps.source[1][:, 0])


def test_features_and_hidden_states() -> None:
    model, (source, target) = small_model().eval(), batch()
    features, extra = model(source, None, target, features_only=True)
    torch.testing.assert_close(model.output_layer(features), model(source, None, target)[0])
    assert [tuple(state.shape) for state in extra["inner_states"]] == [(5, 3, 8)] * 4
    encoded = model.encoder(source, return_all_hiddens=True)
    assert len(encoded["encoder_states"]) == 3
    assert torch.equal(encoded["encoder_states"][-1], encoded["encoder_out"][0])
    assert encoded["encoder_out"][0].shape == (7, 3, 8)


def test_activation_checkpointing_gives_the_same_gradients() -> None:
    gradients = []
    for checkpointing in (False, True):
        model, (source, target) = small_model(checkpoint_activations=checkpointing, dropout=0.3).train(), batch()
        torch.manual_seed(9)
        model(source, None, target)[0].sum().backward()
        gradients.append({name: p.grad for name, p in model.named_parameters()})
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], gradient, msg=name)


def test_layerdrop_leaves_out_layers_in_training_only() -> None:
    model, (source, target) = small_model(encoder_layerdrop=0.5, decoder_layerdrop=0.5, dropout=0.0), batch()
    counts = []
    for layer in [*model.encoder.layers, *model.decoder.layers]:
        layer.register_forward_hook(lambda *args: counts.append(1))
    torch.manual_seed(1)
    model.train()
    for _ in range(40):
        model(source, None, target)
    assert 60 < len(counts) < 140  # 5 layers, 40 times, half of them
    counts.clear()
    model.eval()(source, None, target)
    assert len(counts) == 5


def test_widths_and_depths_may_differ_between_the_sides() -> None:
    options = {"encoder_embed_dim": 12, "decoder_embed_dim": 8, "decoder_ffn_embed_dim": 9, "tie_embeddings": "decoder"}
    model, (source, target) = small_model(**options).eval(), batch()
    logits = model(source, None, target)[0]
    assert logits.shape == (3, 5, V)
    assert model.decoder.layers[0].encoder_attn.k_proj.in_features == 12


def test_a_sentence_beyond_any_limit_is_encoded_and_learned_positions_say_their_limit() -> None:
    long = torch.full((1, 1500), 7)
    assert small_model().eval()(long, None, long)[0].isfinite().all()
    assert min(small_model().max_positions()) > 10**9
    learned = small_model(encoder_learned_pos=True, max_source_positions=9)
    assert learned.max_positions()[0] == 9
    with pytest.raises(ValueError, match=r"^learned positions reach 9 tokens, but a sentence has 1500; "):
        learned(long, None, long[:, :2])


def test_the_decoder_needs_an_encoder() -> None:
    with pytest.raises(ValueError, match=r"^the decoder needs the encoder's output, but encoder_out is None$"):
        small_model().decoder(torch.full((1, 2), 7))


def test_dropout_is_on_in_training_and_off_in_evaluation() -> None:
    model, (source, target) = small_model(dropout=0.5), batch()
    model.train()
    assert not torch.equal(model(source, None, target)[0], model(source, None, target)[0])
    model.eval()
    assert torch.equal(model(source, None, target)[0], model(source, None, target)[0])


def test_a_single_token_and_an_empty_source() -> None:
    model = small_model().eval()
    one = torch.tensor([[EOS]])
    assert model(one, None, one)[0].shape == (1, 1, V)
