"""Operations counted from the sizes, against what torch counts while the built model runs, and worked by hand."""

from __future__ import annotations

from argparse import Namespace
from typing import Any, Dict, Tuple

import pytest
import torch
from fairseq.data import Dictionary

from vaswani_plugin.architectures import ARCHITECTURES
from vaswani_plugin.config import VaswaniConfig
from vaswani_plugin.layers import LayerConfig
from vaswani_plugin.operations import (
    Lengths,
    TransformerSizes,
    estimated_operations,
    forward_operations,
    training_operations,
)
from vaswani_plugin.tools.model_sizes import sizes_of
from vaswani_plugin.transformer import VaswaniTransformer

N_TYPES, SOURCE, TARGET = 53, 7, 11


class Task:
    """What building a model needs of a task: dictionaries, here of one size but without a common type."""

    def __init__(self, source_types: int, target_types: int) -> None:
        self.source_dictionary, self.target_dictionary = Dictionary(), Dictionary()
        for dictionary, n_types in ((self.source_dictionary, source_types), (self.target_dictionary, target_types)):
            for i in range(n_types - len(dictionary)):
                dictionary.add_symbol(f"w{i}")


def counted_by_torch(options: Dict[str, Any], task: Task) -> Tuple[int, int]:
    """Operations of one sentence pair: forward, and forward with backward. torch counts no fused attention on a CPU."""
    kernels = pytest.importorskip("torch.nn.attention", reason="this torch cannot be kept from fused attention")
    from torch.utils.flop_counter import FlopCounterMode

    model = VaswaniTransformer.build_model(VaswaniConfig(**options), task).train()
    source, target = (torch.randint(4, 31, (1, length)) for length in (SOURCE, TARGET))
    with kernels.sdpa_kernel(kernels.SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        logits, _ = model(source, None, target)
        forward = counter.get_total_flops()
        logits.sum().backward()
    return forward, counter.get_total_flops()


def ours(options: Dict[str, Any], n_types: int) -> Tuple[float, float]:
    sizes, lengths = sizes_of(Namespace(**options), n_types), Lengths.constant(SOURCE, TARGET)
    return sum(forward_operations(sizes, lengths).values()), training_operations(sizes, lengths)


def narrow(options: Dict[str, Any]) -> Dict[str, Any]:
    """An architecture with every width divided by 16."""
    return {
        name: value // 16 if name.endswith(("_embed_dim", "ffn_embed_dim", "_key_dim")) else value
        for name, value in options.items()
    }


@pytest.mark.parametrize("name", sorted(set(ARCHITECTURES) - {"vaswani_tiny"}))
def test_every_architecture_made_narrow_as_torch_counts_it(name: str) -> None:
    options = narrow(ARCHITECTURES[name])
    assert ours(options, N_TYPES) == counted_by_torch(options, Task(N_TYPES, N_TYPES))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["vaswani_base", "vaswani_big"])
def test_the_paper_s_models_as_torch_counts_them(name: str) -> None:
    assert ours(ARCHITECTURES[name], N_TYPES) == counted_by_torch(ARCHITECTURES[name], Task(N_TYPES, N_TYPES))


def test_two_sides_of_different_widths_heads_and_vocabularies() -> None:
    options = {
        "encoder_embed_dim": 12, "encoder_ffn_embed_dim": 20, "encoder_layers": 1, "encoder_attention_heads": 3,
        "decoder_embed_dim": 10, "decoder_ffn_embed_dim": 14, "decoder_layers": 2, "decoder_attention_heads": 2,
        "attention_key_dim": 5, "attention_value_dim": 7, "tie_embeddings": "decoder",
    }  # fmt: skip
    assert ours(options, N_TYPES) == counted_by_torch(options, Task(31, N_TYPES))


def test_one_layer_worked_by_hand() -> None:
    layer = LayerConfig(d_model=2, d_ff=3, n_heads=1)
    sizes = TransformerSizes(layer, 1, layer, 1, n_types=5)
    # a product of (a, b) and (b, c) is 2abc; four projections of 2 x 2 a token are 32, the network of 2 x 3 x 2 is 24
    assert forward_operations(sizes, Lengths.constant(1, 1)) == {
        "encoder": 32 + 24,
        "decoder": 32 + 32 + 24,
        "attention": 3 * (4 + 4),
        "softmax": 20,
    }
    assert training_operations(sizes, Lengths.constant(1, 1)) == 3 * (56 + 88 + 24 + 20)


def test_means_over_a_corpus_are_exact() -> None:
    layer = LayerConfig(d_model=8, d_ff=12, n_heads=2)
    sizes = TransformerSizes(layer, 2, layer, 3, n_types=17)
    pairs = torch.tensor([[3, 5], [4, 1], [9, 2]], dtype=torch.float64)
    source, target = pairs.T
    means = [float(x.mean()) for x in (source, target, source**2, target**2, source * target)]
    one_by_one = [training_operations(sizes, Lengths.constant(float(s), float(t))) for s, t in pairs]
    assert training_operations(sizes, Lengths(*means)) == pytest.approx(sum(one_by_one) / 3, rel=1e-12)


def test_the_paper_s_estimate_of_its_base_model() -> None:
    assert estimated_operations(12 * 3600, 8, 9.5e12) == pytest.approx(3.3e18, rel=0.01)


@pytest.mark.parametrize(("source", "target", "side"), [(0, 1, "source"), (1, -2, "target")])
def test_lengths_are_above_zero(source: float, target: float, side: str) -> None:
    with pytest.raises(ValueError, match=rf"^the {side} length must be above 0 tokens, but is {min(source, target)}$"):
        Lengths.constant(source, target)
