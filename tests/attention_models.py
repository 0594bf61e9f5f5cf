"""A small model with random weights for the tests of attention maps, and its weights recomputed another way."""

from __future__ import annotations

import math
from argparse import Namespace
from typing import Any, Dict, List, Sequence

import torch
from fairseq.data import Dictionary
from torch import Tensor

from vaswani_plugin.config import VaswaniConfig
from vaswani_plugin.tools.attention_maps import Analysis, compute, views
from vaswani_plugin.tools.attention_model import Translator
from vaswani_plugin.transformer import VaswaniTransformer

PIECES = ["\u2581A", "\u2581dog", "s", "\u2581run", "ning", ".", "\u2581Hun", "de", "\u2581laufen"]


def translator(pieces: Sequence[str] = PIECES, **options: Any) -> Translator:
    """A model of 2 encoder and 3 decoder layers with 3 and 2 heads; its text comes in pieces."""
    dictionary = Dictionary()
    for piece in pieces:
        dictionary.add_symbol(piece)
    sizes = {
        "encoder_layers": 2, "encoder_attention_heads": 3, "decoder_layers": 3, "decoder_attention_heads": 2,
        "encoder_embed_dim": 12, "decoder_embed_dim": 12, "encoder_ffn_embed_dim": 16, "decoder_ffn_embed_dim": 16,
    }  # fmt: skip
    torch.manual_seed(3)
    task = Namespace(source_dictionary=dictionary, target_dictionary=dictionary)
    model = VaswaniTransformer.build_model(VaswaniConfig(**{**sizes, **options}), task).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():  # far from uniform attention
            if "q_proj" in name or "k_proj" in name:
                parameter.mul_(6.0)
    return Translator(model, dictionary, dictionary)


def analysis(source: str, target: str, **options: Any) -> Analysis:
    """The attention of such a model for a pair of sentences in pieces."""
    of = translator(options.pop("pieces", PIECES), **options)
    pair = of.pair(source, target)
    weights = compute(of.model, pair)
    return Analysis(source, target, False, views(weights, pair), views(weights, pair, merged=True))


def recomputed(model: VaswaniTransformer, source: Tensor, previous: Tensor) -> Dict[str, List[List[List[List[float]]]]]:
    """The weights [layer][head][query][key] by kind, from what the projections return in an ordinary forward pass."""
    seen: Dict[str, Tensor] = {}

    def keep(name: str) -> Any:
        def hook(module: Any, inputs: Any, output: Tensor) -> None:
            seen[name] = output[0].detach().double()

        return hook

    handles = [
        module.register_forward_hook(keep(name))
        for name, module in model.named_modules()
        if name.endswith(("q_proj", "k_proj"))
    ]
    with torch.no_grad():
        model(source[None], None, previous[None])
    for handle in handles:
        handle.remove()
    found: Dict[str, List[List[List[List[float]]]]] = {"encoder-self": [], "decoder-self": [], "encoder-decoder": []}
    uses = {"encoder-self": "encoder.layers.{}.self_attn", "decoder-self": "decoder.layers.{}.self_attn",
            "encoder-decoder": "decoder.layers.{}.encoder_attn"}  # fmt: skip
    for kind, path in uses.items():
        layers = model.encoder.layers if kind == "encoder-self" else model.decoder.layers
        for i, layer in enumerate(layers):
            name = path.format(i)
            queries, keys = seen[f"{name}.q_proj"], seen[f"{name}.k_proj"]
            found[kind].append(_heads(queries, keys, layer.self_attn.n_heads, causal=kind == "decoder-self"))
    return found


def _heads(queries: Tensor, keys: Tensor, n_heads: int, causal: bool) -> List[List[List[float]]]:
    width = queries.size(1) // n_heads
    heads = []
    for h in range(n_heads):
        rows = []
        for i in range(len(queries)):
            visible = i + 1 if causal else len(keys)
            scores = [
                sum(float(queries[i, h * width + c] * keys[j, h * width + c]) for c in range(width)) / math.sqrt(width)
                for j in range(visible)
            ]
            top = max(scores)
            powers = [math.exp(score - top) for score in scores] + [0.0] * (len(keys) - visible)
            rows.append([power / sum(powers) for power in powers])
        heads.append(rows)
    return heads
