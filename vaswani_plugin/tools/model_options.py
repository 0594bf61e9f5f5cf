"""The options of the toolkit's Transformer and those of ours, each in terms of the other.

What one of the models lacks is told by ``what_ours_lacks`` and ``what_the_toolkit_lacks``, which are asked first.
"""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any, Dict, List, Mapping

from fairseq.models import ARCH_CONFIG_REGISTRY
from fairseq.models.transformer import TransformerConfig
from fairseq.models.transformer.transformer_legacy import base_architecture

from vaswani_plugin.config import VaswaniConfig, tied_embeddings
from vaswani_plugin.layers import ACTIVATIONS

OURS = "vaswani_transformer"
TOOLKIT = "transformer"
SIDES = ("encoder", "decoder")

#: Options of the toolkit's Transformer for which ours has no counterpart; every value but an empty one is refused.
LACKING: Dict[str, str] = {
    "adaptive_input": "adaptive input embeddings",
    "adaptive_softmax_cutoff": "adaptive softmax",
    "base_layers": "BASE layers",
    "char_inputs": "character inputs",
    "cross_self_attention": "attention over source and target at once",
    "decoder_layers_to_keep": "pruning of layers",
    "decoder_xformers_att_config": "attention by xFormers",
    "encoder_layers_to_keep": "pruning of layers",
    "encoder_xformers_att_config": "attention by xFormers",
    "layernorm_embedding": "normalisation of embeddings",
    "merge_src_tgt_embed": "merging of dictionaries",
    "no_cross_attention": "decoder without attention over the source",
    "no_decoder_final_norm": "pre-norm decoder without a last normalisation",
    "no_scale_embedding": "unscaled embeddings",
    "no_token_positional_embeddings": "mode without positions",
    "quant_noise_pq": "quantisation noise",
    "quant_noise_scalar": "quantisation noise",
    "scale_attn": "normalisation of the attention's output",
    "scale_fc": "normalisation inside the feed-forward networks",
    "scale_heads": "scaling of heads",
    "scale_resids": "scaling of residual connections",
}

#: Options of one name and one meaning in both models, of the whole model and of one side.
_SHARED = ("dropout", "attention_dropout", "activation_fn", "max_source_positions", "max_target_positions")
_SHARED_BY_SIDE = (
    "embed_dim",
    "ffn_embed_dim",
    "layers",
    "attention_heads",
    "normalize_before",
    "learned_pos",
    "layerdrop",
)


def _shared(options: Any) -> Dict[str, Any]:
    names = [*_SHARED, *(f"{side}_{name}" for side in SIDES for name in _SHARED_BY_SIDE)]
    return {name: getattr(options, name) for name in names}


def flag(option: str) -> str:
    """An option as it is written on the command line."""
    return "--" + option.replace("_", "-")


def complete(model: Mapping[str, Any]) -> argparse.Namespace:
    """Saved options of a model with the gaps filled by its architecture, as the toolkit fills them before it builds.

    Args:
        model: "_name", which is the architecture, and any options.
    """
    options = argparse.Namespace(**model)
    ARCH_CONFIG_REGISTRY[options._name](options)
    return options


def toolkit_config(namespace: argparse.Namespace) -> TransformerConfig:
    """What the toolkit's Transformer makes of a namespace, which is completed on the way."""
    base_architecture(namespace)
    return TransformerConfig.from_namespace(namespace)


def what_ours_lacks(options: TransformerConfig) -> List[str]:
    """Why a model of the toolkit cannot become one of ours; nothing where it can."""
    reasons = []
    for option, lacking in LACKING.items():
        value = getattr(options, option, None)
        if value:
            reasons.append(f"{flag(option)} is {value!r}, but {OURS} has no {lacking}")
    if options.activation_fn not in ACTIVATIONS:
        reasons.append(f"--activation-fn is {options.activation_fn!r}, but {OURS} has only {', '.join(ACTIVATIONS)}")
    for option in ("decoder_input_dim", "decoder_output_dim"):
        value, width = getattr(options, option), options.decoder_embed_dim
        if value != width:
            reasons.append(f"{flag(option)} is {value}, but in {OURS} it is --decoder-embed-dim, {width}")
    return reasons


def what_the_toolkit_lacks(config: VaswaniConfig) -> List[str]:
    """Why a model of ours cannot become one of the toolkit's; nothing where it can."""
    reasons = []
    fixed = [side for side in SIDES if not getattr(config, f"{side}_learned_pos")]
    if fixed and config.positional_layout != "concatenated":
        reasons.append(
            f"--positional-layout is {config.positional_layout!r}, but the toolkit's sinusoids have other frequencies, "
            "which these weights have not learned to read (train with --positional-layout concatenated)"
        )
    for side in SIDES:
        width, n_heads = getattr(config, f"{side}_embed_dim"), getattr(config, f"{side}_attention_heads")
        for option in ("attention_key_dim", "attention_value_dim"):
            value = getattr(config, option)
            if value is not None and value * n_heads != width:
                reasons.append(
                    f"{flag(option)} is {value}, but in the toolkit's {side} it is "
                    f"--{side}-embed-dim / --{side}-attention-heads, {width} / {n_heads}"
                )
        if side in fixed and width in (2, 3):
            reasons.append(f"--{side}-embed-dim is {width}, at which the toolkit's sinusoids divide by zero")
    return reasons


def our_options(options: TransformerConfig) -> Dict[str, Any]:
    """The toolkit's options as those of our model, as we save them."""
    tie = "decoder" if options.share_decoder_input_output_embed else "none"
    config = VaswaniConfig(
        positional_layout="concatenated",
        tie_embeddings="all" if options.share_all_embeddings else tie,
        activation_dropout=options.activation_dropout or options.relu_dropout or 0.0,
        checkpoint_activations=options.checkpoint_activations or options.offload_activations,
        **_shared(options),
    )
    return {**dataclasses.asdict(config), "_name": OURS}


def toolkit_options(config: VaswaniConfig) -> argparse.Namespace:
    """Our options as those of the toolkit's model, every one of them and in a namespace, as it saves them."""
    tie = tied_embeddings(config)
    namespace = argparse.Namespace(
        _name=TOOLKIT,
        arch=TOOLKIT,
        share_all_embeddings=tie == "all",
        share_decoder_input_output_embed=tie != "none",
        activation_dropout=config.activation_dropout,
        checkpoint_activations=config.checkpoint_activations,
        **_shared(config),
    )
    base_architecture(namespace)
    return namespace
