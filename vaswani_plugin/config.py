"""The model's options, under the names that the toolkit's users know, and how they become the paper's symbols.

| option | symbol |
|---|---|
| ``--encoder-embed-dim``, ``--decoder-embed-dim`` | d_model |
| ``--encoder-ffn-embed-dim``, ``--decoder-ffn-embed-dim`` | d_ff |
| ``--encoder-attention-heads``, ``--decoder-attention-heads`` | h |
| ``--encoder-layers``, ``--decoder-layers`` | N |
| ``--attention-key-dim``, ``--attention-value-dim`` | d_k, d_v |
| ``--dropout`` | P_drop |
"""

from dataclasses import dataclass, field
from typing import Any, Dict, Optional, cast

from fairseq.dataclass import FairseqDataclass

from .layers import ACTIVATIONS, LayerConfig
from .linear import COMPUTE_DTYPES
from .positions import SINUSOID_LAYOUTS

TIES = ("all", "decoder", "none")

#: Vaswani et al. 2017, Table 3, row "base". An architecture is this with some values changed.
BASE: Dict[str, Any] = {
    "encoder_embed_dim": 512,
    "encoder_ffn_embed_dim": 2048,
    "encoder_layers": 6,
    "encoder_attention_heads": 8,
    "decoder_embed_dim": 512,
    "decoder_ffn_embed_dim": 2048,
    "decoder_layers": 6,
    "decoder_attention_heads": 8,
    "dropout": 0.1,
    "encoder_learned_pos": False,
    "decoder_learned_pos": False,
}


def _option(default: Any, text: str) -> Any:
    return field(default=default, metadata={"help": text})


def _preset(text: str) -> Any:
    """An option that the architecture fills in when nobody gives it, which is why its default is None."""
    return _option(None, text + " (default: the architecture's)")


@dataclass
class VaswaniConfig(FairseqDataclass):
    """Options of ``vaswani_transformer``; see the table at the head of this file."""

    encoder_embed_dim: Optional[int] = _preset("width of the encoder, d_model")
    encoder_ffn_embed_dim: Optional[int] = _preset("inner width of the encoder's feed-forward networks, d_ff")
    encoder_layers: Optional[int] = _preset("number of encoder layers, N")
    encoder_attention_heads: Optional[int] = _preset("number of attention heads in the encoder, h")
    decoder_embed_dim: Optional[int] = _preset("width of the decoder, d_model")
    decoder_ffn_embed_dim: Optional[int] = _preset("inner width of the decoder's feed-forward networks, d_ff")
    decoder_layers: Optional[int] = _preset("number of decoder layers, N")
    decoder_attention_heads: Optional[int] = _preset("number of attention heads in the decoder, h")
    attention_key_dim: Optional[int] = _option(None, "width of a head's queries and keys, d_k (default: d_model / h)")
    attention_value_dim: Optional[int] = _option(None, "width of a head's values, d_v (default: d_model / h)")
    dropout: Optional[float] = _preset("residual dropout, P_drop")
    attention_dropout: float = _option(0.0, "dropout on attention weights; the paper has none")
    activation_dropout: float = _option(0.0, "dropout inside the feed-forward networks; the paper has none")
    activation_fn: str = _option("relu", "activation of the feed-forward networks: " + ", ".join(ACTIVATIONS))
    encoder_normalize_before: bool = _option(False, "normalise the input of the encoder's sub-layers (pre-norm)")
    decoder_normalize_before: bool = _option(False, "normalise the input of the decoder's sub-layers (pre-norm)")
    encoder_learned_pos: Optional[bool] = _preset("learn the encoder's positions instead of computing sinusoids")
    decoder_learned_pos: Optional[bool] = _preset("learn the decoder's positions instead of computing sinusoids")
    positional_layout: str = _option(
        "interleaved",
        "sinusoids as in the paper (interleaved), or as in the toolkit's own Transformer (concatenated), "
        "for weights that were trained there",
    )
    tie_embeddings: Optional[str] = _option(
        None,
        "which of source embedding, target embedding and pre-softmax projection are one matrix: all (the default, "
        "needs a joined dictionary), decoder (the latter two), none",
    )
    share_all_embeddings: Optional[bool] = _option(None, "the toolkit's name for --tie-embeddings all")
    share_decoder_input_output_embed: Optional[bool] = _option(None, "the toolkit's name for --tie-embeddings decoder")
    encoder_layerdrop: float = _option(0.0, "probability of leaving out an encoder layer in training (LayerDrop)")
    decoder_layerdrop: float = _option(0.0, "probability of leaving out a decoder layer in training (LayerDrop)")
    checkpoint_activations: bool = _option(
        False, "compute each layer's activations again in the backward pass instead of keeping them"
    )
    compute_dtype: str = _option(
        "fp32",
        "type of the matrix products when training, with weights in float32: fp32, or bf16 on a CPU or GPU that has it",
    )
    max_source_positions: int = _option(1024, "longest source that learned positions can encode; sinusoids: no limit")
    max_target_positions: int = _option(1024, "longest target that learned positions can encode; sinusoids: no limit")


def fill_missing(cfg: Any, preset: Dict[str, Any]) -> None:
    """Give every option of the preset that nobody has given its value; doing so twice changes nothing.

    Args:
        cfg: a namespace, an omegaconf node or a ``VaswaniConfig``.
    """
    for name, value in preset.items():
        if getattr(cfg, name, None) is None:
            setattr(cfg, name, value)


def tied_embeddings(cfg: VaswaniConfig) -> str:
    """Which embeddings are one matrix: a member of ``TIES``.

    Raises:
        ValueError: an unknown name, or options that contradict each other.
    """
    flags = {"all": cfg.share_all_embeddings, "decoder": cfg.share_decoder_input_output_embed}
    asked = next((tie for tie, flag in flags.items() if flag), None)
    tie = cfg.tie_embeddings or asked or "all"
    if tie not in TIES:
        raise ValueError(f"--tie-embeddings must be one of {', '.join(TIES)}, but is {tie!r}")
    if asked == "all" and tie != "all":
        raise ValueError(f"--share-all-embeddings contradicts --tie-embeddings {tie}; give one of them")
    if asked == "decoder" and tie == "none":
        raise ValueError("--share-decoder-input-output-embed contradicts --tie-embeddings none; give one of them")
    return tie


def layer_config(cfg: VaswaniConfig, side: str) -> LayerConfig:
    """The layers of one side ("encoder" or "decoder") in the paper's symbols.

    Raises:
        ValueError: a size or probability out of range, an unknown activation.
    """
    return LayerConfig(
        d_model=getattr(cfg, f"{side}_embed_dim"),
        d_ff=getattr(cfg, f"{side}_ffn_embed_dim"),
        n_heads=getattr(cfg, f"{side}_attention_heads"),
        d_k=cfg.attention_key_dim,
        d_v=cfg.attention_value_dim,
        d_memory=cfg.encoder_embed_dim if side == "decoder" else None,
        p_drop=cast(float, cfg.dropout),
        p_attention=cfg.attention_dropout,
        p_activation=cfg.activation_dropout,
        pre_norm=getattr(cfg, f"{side}_normalize_before"),
        activation=cfg.activation_fn,
    )


def check_config(cfg: VaswaniConfig) -> None:
    """Refuse what no layer would notice.

    Raises:
        ValueError: a size or probability out of range, an unknown activation, positional layout or type, contradictory
            ties.
    """
    for side in ("encoder", "decoder"):
        n_layers, layerdrop = getattr(cfg, f"{side}_layers"), getattr(cfg, f"{side}_layerdrop")
        if n_layers < 1:
            raise ValueError(f"--{side}-layers must be at least 1, but is {n_layers}")
        if not 0.0 <= layerdrop < 1.0:
            raise ValueError(f"--{side}-layerdrop must lie in [0, 1), but is {layerdrop}")
        layer_config(cfg, side)
    if cfg.positional_layout not in SINUSOID_LAYOUTS:
        raise ValueError(
            f"--positional-layout must be one of {', '.join(SINUSOID_LAYOUTS)}, but is {cfg.positional_layout!r}"
        )
    if cfg.compute_dtype not in COMPUTE_DTYPES:
        raise ValueError(f"--compute-dtype must be one of {', '.join(COMPUTE_DTYPES)}, but is {cfg.compute_dtype!r}")
    tied_embeddings(cfg)
