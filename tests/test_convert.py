"""vaswani-convert: what moves between the toolkit's Transformer and ours, what is refused, and equal translations."""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List, Tuple

import pytest
import torch
from fairseq.data import Dictionary
from fairseq.models.transformer import TransformerModel
from fairseq.tasks.translation import TranslationConfig
from toolkit_runner import PLUGIN, CopyTask, run

from vaswani_plugin.toolkit import load_checkpoint
from vaswani_plugin.tools import convert
from vaswani_plugin.tools.model_options import LACKING
from vaswani_plugin.transformer import VaswaniTransformer

SIZES = {
    f"{side}_{name}": value
    for side in ("encoder", "decoder")
    for name, value in (("embed_dim", 8), ("ffn_embed_dim", 12), ("layers", 1), ("attention_heads", 2))
}


def dictionary(n_words: int = 5) -> Dictionary:
    made = Dictionary()
    for i in range(n_words):
        made.add_symbol(f"w{i}")
    return made


def task(n_source: int = 5, n_target: int = 5) -> SimpleNamespace:
    return SimpleNamespace(source_dictionary=dictionary(n_source), target_dictionary=dictionary(n_target))


def save(path: Path, model: Any, weights: Dict[str, torch.Tensor], **more: Any) -> Path:
    """The least that a checkpoint holds: options and weights."""
    torch.save({"args": None, "cfg": {"model": model}, "model": weights, **more}, str(path))
    return path


def save_toolkit(path: Path, **options: Any) -> Path:
    """A tiny model of the toolkit, never trained."""
    options = {"_name": "transformer", "arch": "transformer", **SIZES, **options}
    model = TransformerModel.build_model(argparse.Namespace(**{**options, "encoder_embed_path": None}), task())
    return save(path, argparse.Namespace(**options), model.state_dict())


def save_ours(path: Path, **options: Any) -> Path:
    """A tiny model of ours, never trained."""
    options = {**SIZES, "positional_layout": "concatenated", **options}
    model = VaswaniTransformer.build_model(argparse.Namespace(**options), task())
    return save(path, {"_name": "vaswani_transformer", **options}, model.state_dict())


def converted(path: Path, origin: str, out: Path) -> Dict[str, Any]:
    """Run the command and load what it wrote."""
    assert convert.main([origin, str(path), str(out)]) == 0
    return load_checkpoint(out)


def error_of(path: Path, origin: str, capsys: pytest.CaptureFixture[str], *more: str) -> str:
    """What the command says when it refuses; nothing may be left beside its input."""
    out = path.parent / "refused" / "out.pt"
    assert convert.main([origin, str(path), str(out), *more]) == 1
    assert not out.parent.exists()
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("vaswani-convert: error: ")
    assert said.err.endswith("\n")
    return said.err[len("vaswani-convert: error: ") : -1]


def assert_same_bits(left: Dict[str, torch.Tensor], right: Dict[str, torch.Tensor]) -> None:
    assert left.keys() == right.keys()
    for name, tensor in left.items():
        assert tensor.dtype == right[name].dtype, name
        assert torch.equal(tensor, right[name]), name


# Trained checkpoints, end to end


@pytest.fixture(scope="module")
def trained(copy_task: CopyTask, tmp_path_factory: pytest.TempPathFactory) -> Dict[str, Path]:
    """A model of either side after 60 updates: the toolkit's with one embedding matrix, ours pre-norm with two."""
    sizes: List[Any] = []
    for side, n_layers, n_heads in (("encoder", 2, 2), ("decoder", 1, 4)):
        sizes += [f"--{side}-layers", n_layers, f"--{side}-attention-heads", n_heads]
        sizes += [f"--{side}-embed-dim", 16, f"--{side}-ffn-embed-dim", 32]
    # gelu_accurate also keeps release 0.12.2 of the toolkit off a fused kernel that fails with newer versions of torch
    kinds = {
        "fairseq": ["--arch", "transformer_iwslt_de_en", "--share-all-embeddings", "--activation-fn", "gelu_accurate"],
        "vaswani": [
            "--arch", "vaswani_base", "--tie-embeddings", "decoder", "--positional-layout", "concatenated",
            "--encoder-normalize-before", "--decoder-normalize-before", "--task", "vaswani_translation",
        ],
    }  # fmt: skip
    criteria = {
        "fairseq": "label_smoothed_cross_entropy",
        "vaswani": "vaswani_label_smoothed_cross_entropy",
    }
    paths = {}
    for kind, options in kinds.items():
        folder = tmp_path_factory.mktemp(kind)
        run(
            "fairseq-train", copy_task.bin, "--user-dir", PLUGIN, "--save-dir", folder, *options, *sizes,
            "--criterion", criteria[kind], "--label-smoothing", 0.1, "--optimizer", "adam",
            "--lr-scheduler", "inverse_sqrt", "--lr", 0.02, "--warmup-updates", 20, "--max-update", 60,
            "--max-tokens", 400, "--cpu", "--num-workers", 0, "--seed", 1,
            "--disable-validation", "--no-epoch-checkpoints",
        ).ok()  # fmt: skip
        paths[kind] = folder / "checkpoint_last.pt"
    return paths


def hypotheses(path: Path, data: Path, beam: int) -> Dict[str, Tuple[float, str]]:
    """Line name to score and text (4 words or more) of all 13 sentences, by the toolkit's own task and search."""
    result = run(
        "fairseq-generate", data, "--user-dir", PLUGIN, "--path", path, "--beam", beam, "--lenpen", 2,
        "--min-len", 4, "--max-len-b", 12, "--batch-size", 13, "--required-batch-size-multiple", 1,
        "--cpu", "--num-workers", 0,
    ).ok()  # fmt: skip
    lines = [line.split("\t") for line in result.lines("H-")]
    assert len(lines) == 13
    return {name: (float(score), text) for name, score, text in lines}


@pytest.mark.parametrize("origin", ["fairseq", "vaswani"])
@pytest.mark.parametrize("beam", [1, 4])
def test_a_converted_model_translates_as_before(
    trained: Dict[str, Path], copy_task: CopyTask, tmp_path: Path, origin: str, beam: int
) -> None:
    out = tmp_path / "converted.pt"
    converted(trained[origin], origin, out)
    before = hypotheses(trained[origin], copy_task.bin, beam)
    after = hypotheses(out, copy_task.bin, beam)
    assert {name: text for name, (_, text) in after.items()} == {name: text for name, (_, text) in before.items()}
    assert len({text for _, text in before.values()}) > 5  # the models have learned something
    for name, (score, _) in before.items():
        assert after[name][0] == pytest.approx(score, abs=1e-3)


def weights(path: Path) -> Dict[str, torch.Tensor]:
    """A checkpoint's state without the copies of weights and the empty buffer that release 0.12.2 saves beside it."""
    model = load_checkpoint(path)["model"]
    return {name: tensor for name, tensor in model.items() if not name.endswith(("_weight", "_bias", "_float_tensor"))}


@pytest.mark.parametrize("origin", ["fairseq", "vaswani"])
def test_there_and_back_every_bit_and_every_option_is_the_same(
    trained: Dict[str, Path], tmp_path: Path, origin: str
) -> None:
    back = {"fairseq": "vaswani", "vaswani": "fairseq"}[origin]
    digest = hashlib.sha256(trained[origin].read_bytes()).hexdigest()
    there = converted(trained[origin], origin, tmp_path / "there.pt")
    again = converted(tmp_path / "there.pt", back, tmp_path / "back.pt")
    assert hashlib.sha256(trained[origin].read_bytes()).hexdigest() == digest  # the input is as it was
    before = weights(trained[origin])
    assert before.keys() == again["model"].keys()
    for name, tensor in before.items():
        assert tensor.dtype == again["model"][name].dtype
        assert torch.equal(tensor, again["model"][name]), name
    in_between = set(there["model"]) ^ set(before)
    assert in_between == {"encoder.version", "decoder.version"}
    storages = [again["model"][f"decoder.{name}.weight"].data_ptr() for name in ("embed_tokens", "output_projection")]
    assert storages[0] == storages[1]  # tied weights are saved once

    old, new = load_checkpoint(trained[origin])["cfg"]["model"], again["cfg"]["model"]
    old, new = (vars(model) if origin == "fairseq" else model for model in (old, new))
    unlike = {name for name in new if new[name] != old[name]}
    assert unlike == ({"_name", "arch"} if origin == "fairseq" else {"_name"})


def test_what_is_beside_the_model(trained: Dict[str, Path], tmp_path: Path) -> None:
    before = load_checkpoint(trained["vaswani"])
    before["extra_state"].update(ema={"w": torch.ones(1)}, ema_fp32_params={"w": torch.ones(1)})
    torch.save(before, str(tmp_path / "ema.pt"))
    after = converted(tmp_path / "ema.pt", "vaswani", tmp_path / "out.pt")
    assert set(before) - set(after) == {"last_optimizer_state"}
    assert after["optimizer_history"] == before["optimizer_history"]
    expected = {key: value for key, value in before["extra_state"].items() if not key.startswith("ema")}
    expected["converted"] = {"file": "ema.pt", "architecture": "vaswani_base"}
    assert after["extra_state"] == expected
    assert after["cfg"]["criterion"] == {**before["cfg"]["criterion"], "_name": "label_smoothed_cross_entropy"}
    known = TranslationConfig.__dataclass_fields__
    kept = {key: value for key, value in before["cfg"]["task"].items() if key in known}
    assert after["cfg"]["task"] == {**kept, "_name": "translation"}
    changed = {name for name in before["cfg"] if before["cfg"][name] != after["cfg"][name]}
    assert changed == {"model", "task", "criterion"}


def test_the_toolkit_needs_no_plugin_for_a_model_that_was_ours(
    trained: Dict[str, Path], copy_task: CopyTask, tmp_path: Path
) -> None:
    converted(trained["vaswani"], "vaswani", tmp_path / "out.pt")
    code = (
        "import argparse, sys, torch\n"
        "allow = getattr(torch.serialization, 'add_safe_globals', list)\n"
        "allow([argparse.Namespace])\n"
        "from fairseq.models.transformer import TransformerModel\n"
        "hub = TransformerModel.from_pretrained(sys.argv[1], 'out.pt', sys.argv[2])\n"
        "print('HUB', type(hub.task).__name__, 'vaswani_plugin' in sys.modules, type(hub.translate('w1 w2')).__name__)"
    )
    assert "HUB TranslationTask False str" in run("python", code, tmp_path, copy_task.bin).ok().out


@pytest.mark.slow
def test_training_goes_on_from_a_converted_model(trained: Dict[str, Path], copy_task: CopyTask, tmp_path: Path) -> None:
    converted(trained["vaswani"], "vaswani", tmp_path / "out.pt")
    options = [f"--{key.replace('_', '-')}" for key in ("encoder_normalize_before", "decoder_normalize_before")]
    for side, n_layers, n_heads in (("encoder", 2, 2), ("decoder", 1, 4)):
        options += [f"--{side}-layers", str(n_layers), f"--{side}-attention-heads", str(n_heads)]
        options += [f"--{side}-embed-dim", "16", f"--{side}-ffn-embed-dim", "32"]
    log = run(
        "fairseq-train", copy_task.bin, "--user-dir", PLUGIN, "--save-dir", tmp_path / "more", "--arch", "transformer",
        "--share-decoder-input-output-embed", *options, "--finetune-from-model", tmp_path / "out.pt",
        "--optimizer", "adam", "--lr", 0.001, "--max-tokens", 400, "--max-update", 1, "--cpu", "--num-workers", 0,
    ).ok()  # fmt: skip
    assert "done training" in log.out


# Options


def test_options_of_the_toolkit_become_ours(tmp_path: Path) -> None:
    path = save_toolkit(
        tmp_path / "in.pt",
        arch="transformer_iwslt_de_en",
        _name="transformer_iwslt_de_en",
        decoder_embed_dim=12,
        decoder_attention_heads=3,
        decoder_layers=2,
        share_decoder_input_output_embed=True,
        encoder_normalize_before=True,
        decoder_learned_pos=True,
        encoder_layerdrop=0.1,
        attention_dropout=0.2,
        relu_dropout=0.3,
        offload_activations=True,
        activation_fn="gelu",
        max_target_positions=17,
        encoder_embed_path="/no/such/vectors",
        some_option_of_a_task=5,
    )
    assert converted(path, "fairseq", tmp_path / "out.pt")["cfg"]["model"] == {
        "_name": "vaswani_transformer",
        **SIZES,
        "decoder_embed_dim": 12,
        "decoder_attention_heads": 3,
        "decoder_layers": 2,
        "attention_key_dim": None,
        "attention_value_dim": None,
        "dropout": 0.1,
        "attention_dropout": 0.2,
        "activation_dropout": 0.3,
        "activation_fn": "gelu",
        "encoder_normalize_before": True,
        "decoder_normalize_before": False,
        "encoder_learned_pos": False,
        "decoder_learned_pos": True,
        "positional_layout": "concatenated",
        "tie_embeddings": "decoder",
        "share_all_embeddings": None,
        "share_decoder_input_output_embed": None,
        "encoder_layerdrop": 0.1,
        "decoder_layerdrop": 0,
        "checkpoint_activations": True,
        "max_source_positions": 1024,
        "max_target_positions": 17,
        "compute_dtype": "fp32",
    }


@pytest.mark.parametrize(
    ("flags", "tie"),
    [
        ({"share_all_embeddings": True}, "all"),
        ({"share_decoder_input_output_embed": True}, "decoder"),
        ({}, "none"),
    ],
)
def test_ties_both_ways(tmp_path: Path, flags: Dict[str, bool], tie: str) -> None:
    ours = converted(save_toolkit(tmp_path / "in.pt", **flags), "fairseq", tmp_path / "ours.pt")
    assert ours["cfg"]["model"]["tie_embeddings"] == tie
    theirs = converted(tmp_path / "ours.pt", "vaswani", tmp_path / "back.pt")["cfg"]["model"]
    assert theirs.share_all_embeddings == (tie == "all")
    assert theirs.share_decoder_input_output_embed == (tie != "none")


def test_options_of_ours_become_the_toolkits_and_none_is_left_to_a_default(tmp_path: Path) -> None:
    path = save_ours(
        tmp_path / "in.pt",
        attention_key_dim=4,
        attention_value_dim=4,
        encoder_learned_pos=True,
        decoder_learned_pos=True,
        positional_layout="interleaved",  # of no account where both sides learn their positions
        max_source_positions=11,
        activation_dropout=0.2,
    )
    after = converted(path, "vaswani", tmp_path / "out.pt")
    options = after["cfg"]["model"]
    assert type(options) is argparse.Namespace
    asked = {**SIZES, "_name": "transformer", "arch": "transformer", "max_source_positions": 11, "dropout": 0.1}
    asked.update(activation_dropout=0.2, encoder_learned_pos=True, decoder_learned_pos=True, share_all_embeddings=True)
    assert {name: getattr(options, name) for name in asked} == asked
    assert after["model"]["encoder.embed_positions.weight"].shape == (11 + 2, 8)
    complete = dict(vars(options))
    TransformerModel.build_model(options, task())
    assert set(vars(options)) - set(complete) <= {"min_params_to_wrap"}


def test_options_as_a_dictionary_with_gaps_that_the_architecture_fills(tmp_path: Path) -> None:
    path = save_toolkit(tmp_path / "in.pt", arch="transformer_tiny", _name="transformer_tiny", encoder_layers=2)
    state = load_checkpoint(path)
    given = {"_name": "transformer_tiny", **{key: value for key, value in SIZES.items() if key != "encoder_layers"}}
    save(path, given, state["model"])
    assert converted(path, "fairseq", tmp_path / "out.pt")["cfg"]["model"]["encoder_layers"] == 2


def test_a_checkpoint_of_years_ago(trained: Dict[str, Path], tmp_path: Path) -> None:
    state = load_checkpoint(trained["fairseq"])
    expected = converted(trained["fairseq"], "fairseq", tmp_path / "expected.pt")
    model = dict(state["model"])
    for name in [name for name in model if "q_proj" in name]:  # what is one matrix then are three now
        kind = name.rpartition(".")[2]
        parts = [model.pop(name.replace("q_proj", f"{part}_proj")) for part in "qkv"]
        model[name.replace("q_proj.", "in_proj_")] = torch.cat(parts)
        assert kind in ("weight", "bias")
    del model["decoder.output_projection.weight"]
    model["encoder.embed_positions._float_tensor"] = torch.zeros(1)
    model["decoder.embed_positions.weights"] = torch.zeros(1026, 16)
    model["encoder.version"] = model["decoder.version"] = torch.tensor([2.0])
    state.update(args=state["cfg"]["model"], cfg=None, model=model)
    torch.save(state, str(tmp_path / "old.pt"))
    after = converted(tmp_path / "old.pt", "fairseq", tmp_path / "out.pt")
    assert after["args"] is None
    assert after["cfg"]["model"] == expected["cfg"]["model"]
    assert after["cfg"]["task"]["_name"] == "translation"
    assert after["model"].keys() == expected["model"].keys()
    assert all(torch.equal(tensor, expected["model"][name]) for name, tensor in after["model"].items())


# Refusals


REFUSED = [
    ("adaptive_input", True, "no adaptive input embeddings"),
    ("adaptive_softmax_cutoff", "10,20", "no adaptive softmax"),
    ("base_layers", 1, "no BASE layers"),
    ("char_inputs", True, "no character inputs"),
    ("cross_self_attention", True, "no attention over source and target at once"),
    ("decoder_layers_to_keep", "0", "no pruning of layers"),
    ("decoder_xformers_att_config", "{}", "no attention by xFormers"),
    ("encoder_layers_to_keep", "0,2", "no pruning of layers"),
    ("encoder_xformers_att_config", "{}", "no attention by xFormers"),
    ("layernorm_embedding", True, "no normalisation of embeddings"),
    ("merge_src_tgt_embed", True, "no merging of dictionaries"),
    ("no_cross_attention", True, "no decoder without attention over the source"),
    ("no_decoder_final_norm", True, "no pre-norm decoder without a last normalisation"),
    ("no_scale_embedding", True, "no unscaled embeddings"),
    ("no_token_positional_embeddings", True, "no mode without positions"),
    ("quant_noise_pq", 0.1, "no quantisation noise"),
    ("quant_noise_scalar", 0.5, "no quantisation noise"),
    ("scale_attn", True, "no normalisation of the attention's output"),
    ("scale_fc", True, "no normalisation inside the feed-forward networks"),
    ("scale_heads", True, "no scaling of heads"),
    ("scale_resids", True, "no scaling of residual connections"),
    ("activation_fn", "swish", "only relu, gelu, gelu_accurate, gelu_fast, tanh, linear"),
]


@pytest.mark.parametrize(("option", "value", "has"), REFUSED)
def test_what_ours_lacks_is_refused_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str, value: Any, has: str
) -> None:
    path = save(tmp_path / "in.pt", argparse.Namespace(_name="transformer", **{**SIZES, option: value}), {})
    flag = "--" + option.replace("_", "-")
    assert error_of(path, "fairseq", capsys) == (
        f"{path} cannot be converted: {flag} is {value!r}, but vaswani_transformer has {has}"
    )


def test_no_refusal_is_untried() -> None:
    assert {option for option, _, _ in REFUSED} == {*LACKING, "activation_fn"}


@pytest.mark.parametrize("which", ["input", "output"])
def test_a_decoder_that_is_wider_or_narrower_at_its_ends(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], which: str
) -> None:
    options = {**SIZES, f"decoder_{which}_dim": 6}
    path = save(tmp_path / "in.pt", argparse.Namespace(_name="transformer", **options), {})
    assert error_of(path, "fairseq", capsys) == (
        f"{path} cannot be converted: --decoder-{which}-dim is 6, but in vaswani_transformer it is "
        "--decoder-embed-dim, 8"
    )


def test_every_reason_is_told_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = {**SIZES, "scale_fc": True, "base_layers": 2}
    path = save(tmp_path / "in.pt", argparse.Namespace(_name="transformer", **options), {})
    assert error_of(path, "fairseq", capsys) == (
        f"{path} cannot be converted: --base-layers is 2, but vaswani_transformer has no BASE layers; "
        "--scale-fc is True, but vaswani_transformer has no normalisation inside the feed-forward networks"
    )


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"positional_layout": "interleaved", "encoder_learned_pos": True},
            "--positional-layout is 'interleaved', but the toolkit's sinusoids have other frequencies, which these "
            "weights have not learned to read (train with --positional-layout concatenated)",
        ),
        (
            {"attention_key_dim": 3, "decoder_attention_heads": 1},
            "--attention-key-dim is 3, but in the toolkit's encoder it is --encoder-embed-dim / "
            "--encoder-attention-heads, 8 / 2; --attention-key-dim is 3, but in the toolkit's decoder it is "
            "--decoder-embed-dim / --decoder-attention-heads, 8 / 1",
        ),
        (
            {"attention_value_dim": 4, "decoder_embed_dim": 12, "tie_embeddings": "none"},
            "--attention-value-dim is 4, but in the toolkit's decoder it is --decoder-embed-dim / "
            "--decoder-attention-heads, 12 / 2",
        ),
        (
            {"encoder_embed_dim": 2, "tie_embeddings": "none"},
            "--encoder-embed-dim is 2, at which the toolkit's sinusoids divide by zero",
        ),
    ],
)
def test_what_the_toolkit_lacks_is_refused_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: Dict[str, Any], text: str
) -> None:
    path = save_ours(tmp_path / "in.pt", **options)
    assert error_of(path, "vaswani", capsys) == f"{path} cannot be converted: {text}"


@pytest.mark.parametrize("origin", ["fairseq", "vaswani"])
def test_weights_that_the_options_do_not_describe_are_refused_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], origin: str
) -> None:
    path = (save_toolkit if origin == "fairseq" else save_ours)(tmp_path / "in.pt", encoder_learned_pos=True)
    state = load_checkpoint(path)
    model = state["model"]
    model["decoder.layers.0.c_attn"] = torch.ones(2)
    del model["encoder.layers.0.fc1.bias"]
    model["encoder.embed_positions.weight"] = torch.zeros(100, 8)
    torch.save(state, str(path))
    assert error_of(path, origin, capsys) == (
        f"{path} cannot be converted: it lacks the weights encoder.layers.0.fc1.bias; it has unknown weights "
        "decoder.layers.0.c_attn; encoder.embed_positions.weight has the shape (100, 8), but by its options (1026, 8)"
    )


def test_weights_without_embeddings_and_a_long_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = save_toolkit(tmp_path / "in.pt")
    state = load_checkpoint(path)
    options = argparse.Namespace(_name="transformer", **{**SIZES, "encoder_embed_dim": 4, "decoder_embed_dim": 4})
    save(path, options, state["model"])
    said = error_of(path, "fairseq", capsys)
    assert said.count("; ") == 5
    assert said.endswith("; and 38 more reasons")
    del state["model"]["decoder.embed_tokens.weight"]
    torch.save(state, str(path))
    expected = f"{path} cannot be converted: it lacks the weights decoder.embed_tokens.weight"
    assert error_of(path, "fairseq", capsys) == expected


def test_options_that_no_model_can_have(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = {"_name": "vaswani_transformer", **SIZES, "positional_layout": "concatenated", "tie_embeddings": "none"}
    weights = VaswaniTransformer.build_model(argparse.Namespace(**options), task(5, 7)).state_dict()
    path = save(tmp_path / "in.pt", {**options, "tie_embeddings": "all"}, weights)
    said = error_of(path, "vaswani", capsys)
    assert said == f"{path} cannot be converted: --share-all-embeddings requires a joined dictionary"
    path = save(tmp_path / "in.pt", {**options, "encoder_layers": 0}, weights)
    said = error_of(path, "vaswani", capsys)
    assert said == f"{path} cannot be converted: --encoder-layers must be at least 1, but is 0"
    path = save(tmp_path / "in.pt", {**options, "encoder_attention_heads": 3}, weights)
    said = error_of(path, "vaswani", capsys)
    assert said == f"{path} cannot be converted: embed_dim must be divisible by num_heads"


def test_other_models_are_refused_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ours, theirs = save_ours(tmp_path / "ours.pt"), save_toolkit(tmp_path / "theirs.pt")
    assert error_of(ours, "fairseq", capsys) == (
        f"{ours} holds a model of the type vaswani_transformer, not transformer; give vaswani in place of fairseq"
    )
    assert error_of(theirs, "vaswani", capsys) == (
        f"{theirs} holds a model of the type transformer, not vaswani_transformer; give fairseq in place of vaswani"
    )
    lstm = save(tmp_path / "lstm.pt", argparse.Namespace(_name="lstm_luong_wmt_en_de"), {})
    said = error_of(lstm, "fairseq", capsys)
    assert said == f"{lstm} holds a model of the type lstm, not transformer"
    unknown = save(tmp_path / "unknown.pt", {"_name": "somebodys"}, {})
    assert error_of(unknown, "fairseq", capsys) == (
        f"{unknown} holds the architecture somebodys, which is not registered; if a plugin registers it, name the "
        "plugin's folder with --user-dir"
    )


def test_an_architecture_of_somebody_elses_plugin(tmp_path: Path) -> None:
    plugin = tmp_path / "their_plugin"
    plugin.mkdir()
    (plugin / "__init__.py").write_text(
        "from vaswani_plugin.architectures import register_architecture\n"
        "register_architecture('their_arch', {'positional_layout': 'concatenated'})\n",
        encoding="utf-8",
    )
    path = save_ours(tmp_path / "in.pt")
    state = load_checkpoint(path)
    state["cfg"]["model"]["_name"] = "their_arch"
    torch.save(state, str(path))
    code = (
        "import sys\n"
        "from vaswani_plugin.tools.convert import main\n"
        "sys.exit(main(['vaswani', sys.argv[1], sys.argv[2], '--user-dir', sys.argv[3]]))"
    )
    run("python", code, path, tmp_path / "out.pt", plugin).ok()
    assert load_checkpoint(tmp_path / "out.pt")["extra_state"]["converted"]["architecture"] == "their_arch"


def test_files_that_are_no_checkpoints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "in.pt"
    assert error_of(path, "fairseq", capsys) == f"there is no checkpoint {path}"
    path.write_text("no checkpoint", encoding="utf-8")
    said = error_of(path, "fairseq", capsys)
    assert said.startswith(str(path))
    assert "is not a whole checkpoint" in said
    torch.save({"weights": {}}, str(path))
    said = error_of(path, "fairseq", capsys)
    assert said == f'{path} is no checkpoint of the toolkit: it has no "model", but weights'
    for cfg in (None, {}, {"model": None}, {"model": {"_name": None}}, {"model": 3}, 3):
        torch.save({"model": {}, "cfg": cfg}, str(path))
        assert error_of(path, "fairseq", capsys) == f"{path} holds weights, but does not say of which model"
    torch.save({"model": 3}, str(path))
    assert error_of(path, "fairseq", capsys) == f"{path} holds no weights under 'model'"


def test_a_missing_plugin_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, missing = save_toolkit(tmp_path / "in.pt"), tmp_path / "plugin"
    assert convert.main(["fairseq", str(path), str(tmp_path / "out.pt"), "--user-dir", str(missing)]) == 1
    assert capsys.readouterr().err == f"vaswani-convert: error: --user-dir {missing}: no such folder\n"


def test_the_input_is_never_the_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = save_toolkit(tmp_path / "in.pt")
    before = path.read_bytes()
    link = tmp_path / "link.pt"
    link.symlink_to(path)
    for out in (path, link, tmp_path / ".." / tmp_path.name / "in.pt"):
        assert convert.main(["fairseq", str(path), str(out)]) == 1
        said = capsys.readouterr().err
        assert said == f"vaswani-convert: error: {out} is the checkpoint to read; give the converted one another name\n"
    assert path.read_bytes() == before


def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = save_toolkit(tmp_path / "in.pt"), tmp_path / "out.pt"
    out.write_text("old", encoding="utf-8")

    def half(state: Any, file: Any) -> None:
        file.write(b"half")
        raise OSError("no space left on device")

    monkeypatch.setattr(convert.torch, "save", half)
    assert convert.main(["fairseq", str(path), str(out)]) == 1
    assert capsys.readouterr().err == f"vaswani-convert: error: {out}: cannot be written: no space left on device\n"
    assert out.read_text(encoding="utf-8") == "old"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["in.pt", "out.pt"]


def test_help_and_the_module(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="^0$"):
        convert.main(["--help"])
    said = capsys.readouterr().out
    assert "\nexample:\n  vaswani-convert fairseq checkpoint_best.pt converted.pt\n" in said
    assert "optimizer" in said
    path, out = save_toolkit(tmp_path / "in.pt"), tmp_path / "folder" / "out.pt"
    code = "import runpy, sys; runpy.run_module('vaswani_plugin.tools.convert', run_name='__main__', alter_sys=True)"
    log = run("python", code, "fairseq", path, out).ok().out
    assert f"{out}: vaswani_transformer from {path}, 45 tensors" in log
    assert out.exists()
