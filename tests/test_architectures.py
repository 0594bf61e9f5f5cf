"""The named architectures against the paper's Table 3, and how options and presets meet."""

from __future__ import annotations

from argparse import Namespace
from typing import Any, Dict

import pytest
import torch
from fairseq.data import Dictionary
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from omegaconf import OmegaConf

import vaswani_plugin  # noqa: F401  (registers everything)
from vaswani_plugin.architectures import ARCHITECTURES, register_architecture
from vaswani_plugin.config import VaswaniConfig, fill_missing
from vaswani_plugin.transformer import VaswaniTransformer, resolve_config

# name: N, d_model, d_ff, h, d_k, d_v, P_drop, parameters in millions where Table 3 gives them
TABLE_3 = {
    "vaswani_base": (6, 512, 2048, 8, 64, 64, 0.1, 65),
    "vaswani_a_h1": (6, 512, 2048, 1, 512, 512, 0.1, None),
    "vaswani_a_h4": (6, 512, 2048, 4, 128, 128, 0.1, None),
    "vaswani_a_h16": (6, 512, 2048, 16, 32, 32, 0.1, None),
    "vaswani_a_h32": (6, 512, 2048, 32, 16, 16, 0.1, None),
    "vaswani_b_dk16": (6, 512, 2048, 8, 16, 64, 0.1, 58),
    "vaswani_b_dk32": (6, 512, 2048, 8, 32, 64, 0.1, 60),
    "vaswani_c_n2": (2, 512, 2048, 8, 64, 64, 0.1, 36),
    "vaswani_c_n4": (4, 512, 2048, 8, 64, 64, 0.1, 50),
    "vaswani_c_n8": (8, 512, 2048, 8, 64, 64, 0.1, 80),
    "vaswani_c_d256": (6, 256, 2048, 8, 32, 32, 0.1, 28),
    "vaswani_c_d1024": (6, 1024, 2048, 8, 128, 128, 0.1, 168),
    "vaswani_c_ff1024": (6, 512, 1024, 8, 64, 64, 0.1, 53),
    "vaswani_c_ff4096": (6, 512, 4096, 8, 64, 64, 0.1, 90),
    "vaswani_d_dropout0": (6, 512, 2048, 8, 64, 64, 0.0, None),
    "vaswani_d_dropout2": (6, 512, 2048, 8, 64, 64, 0.2, None),
    "vaswani_e_learned": (6, 512, 2048, 8, 64, 64, 0.1, None),
    "vaswani_big": (6, 1024, 4096, 16, 64, 64, 0.3, 213),
    "vaswani_big_en_fr": (6, 1024, 4096, 16, 64, 64, 0.1, None),
    "vaswani_parsing": (4, 1024, 4096, 16, 64, 64, 0.3, None),
    "vaswani_tiny": (4, 128, 256, 4, 32, 32, 0.3, None),
}
VOCABULARY = 37000


def parameters(n: int, d: int, d_ff: int, h: int, d_k: int, d_v: int) -> int:
    """Closed form: tied embeddings, attention with biases, feed-forward networks, layer norms."""
    attention = 2 * (d * h * d_k + h * d_k) + (d * h * d_v + h * d_v) + (h * d_v * d + d)
    feed_forward = d * d_ff + d_ff + d_ff * d + d
    encoder_layer = attention + feed_forward + 2 * 2 * d
    decoder_layer = 2 * attention + feed_forward + 3 * 2 * d
    return VOCABULARY * d + n * (encoder_layer + decoder_layer)


class JointTask:
    """A task whose two dictionaries are one."""

    def __init__(self, n_types: int = 20) -> None:
        self.source_dictionary = self.target_dictionary = dictionary(n_types)


def dictionary(n_types: int) -> Dictionary:
    words = Dictionary()
    for i in range(n_types - len(words)):
        words.add_symbol(f"w{i}")
    return words


def count(model: VaswaniTransformer) -> int:
    return sum(p.numel() for p in model.parameters())


def test_the_table_is_complete() -> None:
    assert set(ARCHITECTURES) == set(TABLE_3)
    assert set(TABLE_3) <= set(ARCH_MODEL_REGISTRY)
    assert all(ARCH_MODEL_REGISTRY[name] is VaswaniTransformer for name in TABLE_3)


@pytest.mark.parametrize("name", TABLE_3)
def test_sizes_and_parameters(name: str) -> None:
    n, d, d_ff, h, d_k, d_v, p_drop, millions = TABLE_3[name]
    cfg = VaswaniConfig(**ARCHITECTURES[name])
    options = resolve_config(cfg)
    for side in ("encoder", "decoder"):
        got = [getattr(options, f"{side}_{key}") for key in ("layers", "embed_dim", "ffn_embed_dim", "attention_heads")]
        assert got == [n, d, d_ff, h]
        assert getattr(options, f"{side}_learned_pos") == (name == "vaswani_e_learned")
    assert options.dropout == p_drop
    with torch.device("meta"):  # sizes without memory
        model = VaswaniTransformer.build_model(cfg, JointTask(VOCABULARY))
    attention = model.encoder.layers[0].self_attn
    assert (attention.d_k, attention.d_v, attention.n_heads) == (d_k, d_v, h)
    total = count(model)
    learned = 2 * (1024 + 1 + 1) * d if name == "vaswani_e_learned" else 0
    assert total == parameters(n, d, d_ff, h, d_k, d_v) + learned
    if name == "vaswani_base":
        assert total == 63_082_496
    if name == "vaswani_big":
        assert total == 214_245_376
    if millions is not None:  # the paper's vocabulary is "about" 37000
        assert abs(total - millions * 1e6) < 5000 * d + 0.5e6


def test_the_command_line_wins_over_the_preset() -> None:
    args = Namespace(dropout=0.2, encoder_layers=3)
    ARCH_CONFIG_REGISTRY["vaswani_big"](args)
    assert (args.dropout, args.encoder_layers, args.decoder_layers, args.encoder_embed_dim) == (0.2, 3, 6, 1024)


def test_presets_fill_a_node_in_which_every_field_exists_and_twice_changes_nothing() -> None:
    node = OmegaConf.structured(VaswaniConfig(dropout=0.0))
    ARCH_CONFIG_REGISTRY["vaswani_big"](node)
    once = OmegaConf.to_container(node)
    ARCH_CONFIG_REGISTRY["vaswani_big"](node)
    assert OmegaConf.to_container(node) == once
    assert (node.dropout, node.encoder_ffn_embed_dim) == (0.0, 4096)


def test_an_architecture_of_ones_own_is_the_base_model_with_changes() -> None:
    name = "vaswani_test_own"
    try:
        register_architecture(name, {"encoder_layers": 1})
        args = Namespace()
        ARCH_CONFIG_REGISTRY[name](args)
        assert (args.encoder_layers, args.decoder_layers, args.dropout) == (1, 6, 0.1)
        with pytest.raises(ValueError, match=r"^Cannot register duplicate model architecture \(vaswani_test_own\)$"):
            register_architecture(name, {})
    finally:
        for registry in (ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY):
            registry.pop(name, None)


SMALL: Dict[str, Any] = {
    f"{side}_{key}": value
    for side in ("encoder", "decoder")
    for key, value in (("embed_dim", 8), ("ffn_embed_dim", 16), ("layers", 1), ("attention_heads", 2))
}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"encoder_layers": 0}, r"^--encoder-layers must be at least 1, but is 0$"),
        ({"decoder_layerdrop": 1.0}, r"^--decoder-layerdrop must lie in \[0, 1\), but is 1.0$"),
        ({"dropout": 1.5}, r"^p_drop must lie in \[0, 1\], but is 1.5$"),
        ({"encoder_embed_dim": 0}, r"^d_model must be at least 1, but is 0$"),
        ({"encoder_ffn_embed_dim": 0}, r"^d_ff must be at least 1, but is 0$"),
        (
            {"activation_fn": "relo"},
            r"^activation must be one of relu, gelu, gelu_accurate, gelu_fast, tanh, linear, but is 'relo'$",
        ),
        (
            {"positional_layout": "x"},
            r"^--positional-layout must be one of interleaved, concatenated, but is 'x'$",
        ),
        ({"tie_embeddings": "both"}, r"^--tie-embeddings must be one of all, decoder, none, but is 'both'$"),
        (
            {"tie_embeddings": "none", "share_all_embeddings": True},
            r"^--share-all-embeddings contradicts --tie-embeddings none; give one of them$",
        ),
        (
            {"tie_embeddings": "none", "share_decoder_input_output_embed": True},
            r"^--share-decoder-input-output-embed contradicts --tie-embeddings none; give one of them$",
        ),
        (
            {"encoder_embed_dim": 4},
            r"^--tie-embeddings all needs encoder and decoder of one width, but --encoder-embed-dim is 4 and "
            r"--decoder-embed-dim is 8$",
        ),
    ],
)
def test_option_errors(options: Dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        VaswaniTransformer.build_model(VaswaniConfig(**{**SMALL, **options}), JointTask())


def test_ties_need_a_joined_dictionary() -> None:
    task = JointTask(20)
    task.target_dictionary = dictionary(22)
    message = (
        r"^--tie-embeddings all needs a joined dictionary, but the source has 20 types and the target 22, which "
        r"differ; preprocess with --joined-dictionary, or give --tie-embeddings decoder or none$"
    )
    with pytest.raises(ValueError, match=message):
        VaswaniTransformer.build_model(VaswaniConfig(**SMALL), task)
    model = VaswaniTransformer.build_model(VaswaniConfig(**SMALL, tie_embeddings="decoder"), task)
    assert model.encoder.embed_tokens.weight.shape == (20, 8)
    assert model.decoder.output_projection.weight is model.decoder.embed_tokens.weight


@pytest.mark.parametrize(
    ("options", "n_matrices"),
    [
        ({}, 1),
        ({"share_all_embeddings": True}, 1),
        ({"share_decoder_input_output_embed": True}, 2),
        ({"tie_embeddings": "decoder"}, 2),
        ({"tie_embeddings": "none"}, 3),
    ],
)
def test_ties(options: Dict[str, Any], n_matrices: int) -> None:
    model = VaswaniTransformer.build_model(VaswaniConfig(**SMALL, **options), JointTask())
    tables = (model.encoder.embed_tokens, model.decoder.embed_tokens, model.decoder.output_projection)
    assert len({id(table.weight) for table in tables}) == n_matrices


def test_fill_missing_leaves_what_is_given() -> None:
    args = Namespace(a=0, b=None)
    fill_missing(args, {"a": 1, "b": 2, "c": 3})
    assert vars(args) == {"a": 0, "b": 2, "c": 3}
