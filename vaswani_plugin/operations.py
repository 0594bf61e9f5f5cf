"""How many floating-point operations the Transformer needs, counted from its sizes.

Counted are the matrix products, a multiplication with its addition as two operations. Looking up an embedding costs
nothing; biases, softmax, normalisation and residual sums are left out: they are no matrix products, and under 1% for
the paper's sizes. A masked score counts like any other, and padding does not count.

Every count is a polynomial in the lengths of the sentences, S source and T target tokens with their end symbols, of
degree two because of attention. Over a corpus its mean therefore follows exactly from five means: ``Lengths``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict

from .layers import LayerConfig

#: The backward pass computes two products for each one of the forward pass: the gradients of its two factors.
TRAINING_FACTOR = 3


@dataclass(frozen=True)
class Lengths:
    """Means over sentence pairs: S, T, S^2, T^2 and S T, in tokens and their squares."""

    source: float
    target: float
    source_squared: float
    target_squared: float
    product: float

    @classmethod
    def constant(cls, source: float, target: float) -> Lengths:
        """Every pair has S source and T target tokens.

        Raises:
            ValueError: a length is not above 0.
        """
        for name, value in (("source", source), ("target", target)):
            if not value > 0:
                raise ValueError(f"the {name} length must be above 0 tokens, but is {value:g}")
        return cls(source, target, source**2, target**2, source * target)


@dataclass(frozen=True)
class TransformerSizes:
    """Both stacks in the paper's symbols, and V, the number of types before the softmax."""

    encoder: LayerConfig
    encoder_layers: int
    decoder: LayerConfig
    decoder_layers: int
    n_types: int


def _head_widths(config: LayerConfig) -> Dict[str, int]:
    """h d_k and h d_v, the widths that the projections of attention lead to."""
    d_head = config.d_model // config.n_heads
    return {
        "keys": config.n_heads * (d_head if config.d_k is None else config.d_k),
        "values": config.n_heads * (d_head if config.d_v is None else config.d_v),
    }


def attention_products(config: LayerConfig, pairs: float) -> float:
    """Operations of ``Q K^T`` and of the weights times V: ``2 pairs h (d_k + d_v)``.

    Args:
        pairs: queries times keys.
    """
    widths = _head_widths(config)
    return 2 * pairs * (widths["keys"] + widths["values"])


def projections(config: LayerConfig, queries: float, memory: float, d_memory: int) -> float:
    """Operations of W^Q, W^O over the queries and of W^K, W^V over the tokens that are attended to."""
    widths = _head_widths(config)
    both = widths["keys"] + widths["values"]
    return 2 * both * (queries * config.d_model + memory * d_memory)


def feed_forward(config: LayerConfig, tokens: float) -> float:
    """Operations of ``max(0, x W1) W2``: ``4 tokens d_model d_ff``."""
    return 4 * tokens * config.d_model * config.d_ff


def forward_operations(sizes: TransformerSizes, lengths: Lengths) -> Dict[str, float]:
    """Mean operations of one sentence pair in the forward pass, by where they are spent.

    Source: Vaswani et al. 2017, section 3, for what is computed.

    Returns:
        "encoder" and "decoder" without attention's own products, "attention" for those, and "softmax" for the
        projection before it, ``2 T d_model V``.
    """
    source, target = lengths.source, lengths.target
    encoder, decoder = sizes.encoder, sizes.decoder
    d_memory = decoder.d_model if decoder.d_memory is None else decoder.d_memory
    encoder_layer = projections(encoder, source, source, encoder.d_model) + feed_forward(encoder, source)
    decoder_layer = (
        projections(decoder, target, target, decoder.d_model)
        + projections(decoder, target, source, d_memory)
        + feed_forward(decoder, target)
    )
    attention = sizes.encoder_layers * attention_products(encoder, lengths.source_squared)
    attention += sizes.decoder_layers * attention_products(decoder, lengths.target_squared + lengths.product)
    return {
        "encoder": sizes.encoder_layers * encoder_layer,
        "decoder": sizes.decoder_layers * decoder_layer,
        "attention": attention,
        "softmax": 2 * target * decoder.d_model * sizes.n_types,
    }


def training_operations(sizes: TransformerSizes, lengths: Lengths) -> float:
    """Mean operations of one sentence pair in an update: forward and backward."""
    return TRAINING_FACTOR * sum(forward_operations(sizes, lengths).values())


def estimated_operations(seconds: float, devices: int, rate: float) -> float:
    """The paper's own estimate: time times devices times the sustained operations a second of one.

    Source: Vaswani et al. 2017, section 6.1 and its footnote on rates.
    """
    return seconds * devices * rate
