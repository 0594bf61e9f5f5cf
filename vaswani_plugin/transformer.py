"""The Transformer, Figure 1 of "Attention Is All You Need" (Vaswani et al. 2017), as a model of the toolkit.

Shapes: B batch, S source tokens, T target tokens, H heads, D width, V vocabulary. Batch comes first, except in the
encoder's output dictionary, whose layout (S, B, D) the toolkit prescribes.
"""

import math
import sys
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Tuple, Union, cast

import torch
from fairseq.data import Dictionary
from fairseq.models import FairseqEncoder, FairseqEncoderDecoderModel, FairseqIncrementalDecoder, register_model
from omegaconf import OmegaConf
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from .attention import causal_padding_mask, key_padding_mask
from .compute_dtype import ComputeDtype
from .config import BASE, VaswaniConfig, check_config, fill_missing, layer_config, tied_embeddings
from .dropout import dropout
from .incremental import DecodingState
from .layers import DecoderLayer, EncoderLayer
from .linear import Linear
from .lr_scheduler import tell_scheduler
from .positions import LearnedPositions, SinusoidalPositions

EncoderOut = Dict[str, List[Tensor]]
_STATE = "vaswani_state"


@dataclass
class AttentionMaps:
    """The attention weights of every layer and head, each kind a list of n_layers tensors.

    encoder: (B, H, S, S); decoder: (B, H, T, T); source: the decoder's attention over the source, (B, H, T, S).
    """

    encoder: List[Tensor]
    decoder: List[Tensor]
    source: List[Tensor]


def _embedding(n_types: int, d_model: int, padding_idx: int) -> nn.Embedding:
    embedding = nn.Embedding(n_types, d_model, padding_idx=padding_idx)
    nn.init.normal_(embedding.weight, mean=0.0, std=d_model**-0.5)
    nn.init.zeros_(embedding.weight[padding_idx])
    return embedding


class _Side(nn.Module):
    """What encoder and decoder share: embedding + positional encoding, LayerDrop, activation checkpointing."""

    embed_tokens: nn.Embedding
    embed_positions: Union[SinusoidalPositions, LearnedPositions]
    layers: nn.ModuleList
    layer_norm: Optional[nn.LayerNorm]
    #: The embedding is the projection too, whose gradient is dense: the rows that were looked up are added to it.
    gathers_gradient = False

    def _build(self, cfg: VaswaniConfig, side: str, embed_tokens: nn.Embedding, layer_class: Any) -> None:
        layer = layer_config(cfg, side)
        self.embed_tokens = embed_tokens
        self.embed_scale = math.sqrt(layer.d_model)
        self.padding_idx = int(embed_tokens.padding_idx or 0)
        self.p_drop = layer.p_drop
        self.layerdrop = getattr(cfg, f"{side}_layerdrop")
        self.checkpoint_activations = cfg.checkpoint_activations
        self.n_positions = sys.maxsize
        if getattr(cfg, f"{side}_learned_pos"):
            self.n_positions = cfg.max_source_positions if side == "encoder" else cfg.max_target_positions
            self.embed_positions = LearnedPositions(self.n_positions, layer.d_model, self.padding_idx)
        else:
            self.embed_positions = SinusoidalPositions(layer.d_model, self.padding_idx, cfg.positional_layout)
        self.layers = nn.ModuleList(layer_class(layer) for _ in range(getattr(cfg, f"{side}_layers")))
        self.layer_norm = nn.LayerNorm(layer.d_model) if layer.pre_norm else None

    def max_positions(self) -> int:
        """The longest sentence that can be encoded: sinusoids know no limit."""
        return self.n_positions

    def _embed(self, tokens: Tensor) -> Tensor:
        """``Dropout(sqrt(d_model) * E(tokens) + PE)``. Source: sections 3.4, 3.5 and 5.4."""
        weight = self.embed_tokens.weight
        sparse = self.gathers_gradient and weight.device.type == "cpu"
        embedded = F.embedding(tokens, weight, self.padding_idx, sparse=sparse) * self.embed_scale
        return dropout(embedded + self.embed_positions(tokens).to(embedded.dtype), self.p_drop, self.training)

    def _is_dropped(self) -> bool:
        return self.training and self.layerdrop > 0.0 and bool(torch.rand(()) < self.layerdrop)

    def _run(self, function: Any, *inputs: Any) -> Any:
        if self.checkpoint_activations and self.training and torch.is_grad_enabled():
            return checkpoint(function, *inputs, use_reentrant=False)
        return function(*inputs)

    def _finish(self, x: Tensor) -> Tensor:
        return x if self.layer_norm is None else self.layer_norm(x)

    def upgrade_state_dict_named(self, state_dict: Dict[str, Any], name: str) -> Dict[str, Any]:
        """Leave out what the toolkit's versions have stored beside the weights: an empty buffer, a version number."""
        for key in (f"{name}.version", f"{name}.embed_positions._float_tensor"):
            state_dict.pop(key, None)
        return state_dict


class VaswaniEncoder(_Side, FairseqEncoder):
    """N encoder layers over embedded source tokens. Source: Vaswani et al. 2017, section 3.1."""

    def __init__(self, cfg: VaswaniConfig, dictionary: Dictionary, embed_tokens: nn.Embedding) -> None:
        FairseqEncoder.__init__(self, dictionary)
        self._build(cfg, "encoder", embed_tokens, EncoderLayer)

    def forward(
        self,
        src_tokens: Tensor,
        src_lengths: Optional[Tensor] = None,
        return_all_hiddens: bool = False,
        attention: Optional[List[Tensor]] = None,
    ) -> EncoderOut:
        """Encode src_tokens, int64 (B, S), padded on either side.

        Args:
            src_lengths: not needed; the toolkit passes it.
            return_all_hiddens: keep each layer's output under "encoder_states".
            attention: a list that receives every layer's weights (B, H, S, S).

        Returns:
            The toolkit's dictionary: "encoder_out" [(S, B, D)], "encoder_padding_mask" [(B, S)] and so on.
        """
        padding_mask = src_tokens.eq(self.padding_idx)
        forbidden = key_padding_mask(padding_mask) if padding_mask.any() else None
        x = self._embed(src_tokens)
        states = [x.transpose(0, 1)] if return_all_hiddens else []
        for layer in self.layers:
            if not self._is_dropped():
                x, weights = self._run(layer, x, forbidden, attention is not None)
                if attention is not None:
                    attention.append(weights)
            if return_all_hiddens:
                states.append(x.transpose(0, 1))
        return {
            "encoder_out": [self._finish(x).transpose(0, 1)],
            "encoder_padding_mask": [padding_mask],
            "encoder_embedding": [],
            "encoder_states": states,
            "src_tokens": [],
            "src_lengths": [] if src_lengths is None else [src_lengths],
        }

    def reorder_encoder_out(self, encoder_out: EncoderOut, new_order: Tensor) -> EncoderOut:
        """Keep the sentences that new_order (B',) names."""
        batch_second = ("encoder_out", "encoder_states")
        return {
            key: [tensor.index_select(1 if key in batch_second else 0, new_order) for tensor in tensors]
            for key, tensors in encoder_out.items()
        }


class VaswaniDecoder(_Side, FairseqIncrementalDecoder):
    """N decoder layers over embedded target tokens, and the pre-softmax projection. Source: sections 3.1 and 3.4."""

    #: In which type incremental decoding keeps keys and values; None for that of the weights.
    state_dtype: Optional[torch.dtype] = None

    def __init__(
        self, cfg: VaswaniConfig, dictionary: Dictionary, embed_tokens: nn.Embedding, tie_projection: bool
    ) -> None:
        FairseqIncrementalDecoder.__init__(self, dictionary)
        self._build(cfg, "decoder", embed_tokens, DecoderLayer)
        self.output_projection = Linear(embed_tokens.embedding_dim, embed_tokens.num_embeddings, bias=False)
        if tie_projection:
            self.output_projection.weight = embed_tokens.weight
        else:
            nn.init.normal_(self.output_projection.weight, mean=0.0, std=embed_tokens.embedding_dim**-0.5)

    def output_layer(self, features: Tensor) -> Tensor:
        """Project features (..., D) to logits (..., V)."""
        logits: Tensor = self.output_projection(features)
        return logits

    @torch.no_grad()
    def begin(self, encoder_out: EncoderOut) -> DecodingState:
        """A state for decoding these sentences one token at a time."""
        memory, forbidden = self._memory(encoder_out)
        source = [cast(DecoderLayer, layer).encoder_attn.keys_and_values(memory) for layer in self.layers]
        return DecodingState(source, forbidden, self.state_dtype)

    @staticmethod
    def _memory(encoder_out: EncoderOut) -> Tuple[Tensor, Optional[Tensor]]:
        """The encoder's output (B, S, D), and its padding as a mask over keys or None."""
        padding_mask = encoder_out["encoder_padding_mask"][0]
        forbidden = key_padding_mask(padding_mask) if padding_mask.any() else None
        return encoder_out["encoder_out"][0].transpose(0, 1), forbidden

    @torch.no_grad()
    def step(self, tokens: Tensor, state: DecodingState, need_weights: bool = False) -> Tuple[Tensor, Optional[Tensor]]:
        """Decode one more token for every hypothesis.

        Args:
            tokens: each hypothesis's newest token, int64 (B * K,).
            need_weights: return the last layer's attention over the source too, averaged over heads.

        Returns:
            Features (B * K, D) and weights (B * K, S) or None.
        """
        state.begin_step(tokens.size(0))
        position = self.embed_positions.at(state.length - 1)
        x = self.embed_tokens(tokens) * self.embed_scale + position.to(self.embed_tokens.weight.dtype)
        for index, layer in enumerate(self.layers):
            x, weights = cast(DecoderLayer, layer).step(x, state, index)  # weights (B, H, K, S)
        return self._finish(x), weights.float().mean(dim=1).flatten(0, 1) if need_weights else None

    def forward(
        self,
        prev_output_tokens: Tensor,
        encoder_out: Optional[EncoderOut] = None,
        incremental_state: Optional[Dict[str, Any]] = None,
        features_only: bool = False,
        alignment_layer: Optional[int] = None,
        alignment_heads: Optional[int] = None,
        src_lengths: Optional[Tensor] = None,
        return_all_hiddens: bool = False,
    ) -> Tuple[Tensor, Dict[str, List[Any]]]:
        """Logits (B, T, V), or features (B, T, D), of prev_output_tokens (B, T), and the toolkit's extras.

        With an incremental state only the newest token is decoded and T is 1. Extras "attn" holds the attention over
        the source, averaged over heads, (B, T, S), of the last layer or ``alignment_layer``: always outside of
        training, in training only where that layer is named.
        """
        if encoder_out is None:
            raise ValueError("the decoder needs the encoder's output, but encoder_out is None")
        if incremental_state is not None:
            state = incremental_state.setdefault(_STATE, None) or self.begin(encoder_out)
            incremental_state[_STATE] = state
            features, weights = self.step(prev_output_tokens[:, -1], state, need_weights=True)
            x = features.unsqueeze(1)
            extra: Dict[str, List[Any]] = {"attn": [None if weights is None else weights.unsqueeze(1)]}
        else:
            x, extra = self.extract_features(prev_output_tokens, encoder_out, alignment_layer, alignment_heads)
        return (x if features_only else self.output_layer(x)), extra

    def extract_features(
        self,
        prev_output_tokens: Tensor,
        encoder_out: EncoderOut,
        alignment_layer: Optional[int] = None,
        alignment_heads: Optional[int] = None,
        attention: Optional[AttentionMaps] = None,
    ) -> Tuple[Tensor, Dict[str, List[Any]]]:
        """Features (B, T, D) of whole sentences; ``attention`` receives the weights of every layer and head."""
        memory, memory_forbidden = self._memory(encoder_out)
        padding_mask = prev_output_tokens.eq(self.padding_idx)
        # padding to the right is later than every token, so that the causal mask alone hides it
        forbidden = causal_padding_mask(padding_mask) if padding_mask[:, 0].any() else None
        x = self._embed(prev_output_tokens)
        states = [x.transpose(0, 1)]
        if alignment_layer is None and not self.training:
            alignment_layer = len(self.layers) - 1
        alignment = None
        for i, layer in enumerate(self.layers):
            if self._is_dropped():
                continue

            def run(x: Tensor, memory: Tensor, layer: Any = layer, aligns: bool = i == alignment_layer) -> Any:
                keys_values = layer.encoder_attn.keys_and_values(memory)
                everything = attention is not None
                return layer(
                    x,
                    keys_values,
                    memory_forbidden,
                    forbidden,
                    need_weights=everything,
                    need_memory_weights=everything or aligns,
                )

            x, weights, memory_weights = self._run(run, x, memory)
            states.append(x.transpose(0, 1))
            if attention is not None:
                attention.decoder.append(weights)
                attention.source.append(memory_weights)
            if i == alignment_layer:
                alignment = memory_weights[:, :alignment_heads].float().mean(dim=1)  # (B, T, S)
        return self._finish(x), {"attn": [alignment], "inner_states": states}

    def reorder_incremental_state_scripting(self, incremental_state: Dict[str, Any], new_order: Tensor) -> None:
        """Follow the toolkit's generator, for which each hypothesis is a sentence with a single one."""
        state = incremental_state.get(_STATE)
        if state is not None:
            state.select(torch.zeros_like(new_order)[:, None], new_order)


@register_model("vaswani_transformer", dataclass=VaswaniConfig)
class VaswaniTransformer(FairseqEncoderDecoderModel):
    """Encoder, decoder, and the embeddings that they share. Source: Vaswani et al. 2017, section 3."""

    encoder: VaswaniEncoder
    decoder: VaswaniDecoder
    #: Whether the model will never train again, so that its weights may be laid out for translating.
    only_translates = False
    #: In which type whole sentences are computed; what translates word by word follows ``--decode-precision``.
    compute_dtype = ComputeDtype("fp32")

    def prepare_for_inference_(self, cfg: Any) -> None:
        """Note what the toolkit's commands that only translate announce before they do."""
        super().prepare_for_inference_(cfg)
        self.only_translates = True

    @classmethod
    def build_model(cls, cfg: Any, task: Any) -> "VaswaniTransformer":
        """Build from options and the task's two dictionaries.

        Args:
            cfg: a ``VaswaniConfig``, or any part of it in an omegaconf node; what is missing is the base model's.

        Raises:
            ValueError: options out of range or in contradiction, or ties that the dictionaries do not allow.
        """
        options, cfg = cfg, resolve_config(cfg)
        tell_scheduler(options, cfg.decoder_embed_dim)
        source, target = task.source_dictionary, task.target_dictionary
        tie = tied_embeddings(cfg)
        if tie == "all" and source != target:
            raise ValueError(
                f"--tie-embeddings all needs a joined dictionary, but the source has {len(source)} types and the "
                f"target {len(target)}, which differ; preprocess with --joined-dictionary, or give --tie-embeddings "
                "decoder or none"
            )
        if tie == "all" and cfg.encoder_embed_dim != cfg.decoder_embed_dim:
            raise ValueError(
                "--tie-embeddings all needs encoder and decoder of one width, but --encoder-embed-dim is "
                f"{cfg.encoder_embed_dim} and --decoder-embed-dim is {cfg.decoder_embed_dim}"
            )
        source_embedding = _embedding(len(source), cfg.encoder_embed_dim, source.pad())
        target_embedding = source_embedding
        if tie != "all":
            target_embedding = _embedding(len(target), cfg.decoder_embed_dim, target.pad())
        encoder = VaswaniEncoder(cfg, source, source_embedding)
        decoder = VaswaniDecoder(cfg, target, target_embedding, tie_projection=tie != "none")
        encoder.gathers_gradient, decoder.gathers_gradient = tie == "all", tie != "none"
        model = cls(encoder, decoder)
        model.compute_dtype = ComputeDtype(cfg.compute_dtype)
        return model

    def forward(
        self,
        src_tokens: Tensor,
        src_lengths: Optional[Tensor],
        prev_output_tokens: Tensor,
        features_only: bool = False,
        alignment_layer: Optional[int] = None,
        alignment_heads: Optional[int] = None,
        return_all_hiddens: bool = False,
    ) -> Tuple[Tensor, Dict[str, List[Any]]]:
        """Logits (B, T, V) of every next token, or features (B, T, D), with the decoder's extras."""
        self.compute_dtype.settle(self)
        encoder_out = self.encoder(src_tokens, src_lengths, return_all_hiddens=return_all_hiddens)
        decoder_out: Tuple[Tensor, Dict[str, List[Any]]] = self.decoder(
            prev_output_tokens,
            encoder_out=encoder_out,
            features_only=features_only,
            alignment_layer=alignment_layer,
            alignment_heads=alignment_heads,
        )
        return decoder_out

    @torch.no_grad()
    def attention_maps(self, src_tokens: Tensor, prev_output_tokens: Tensor) -> AttentionMaps:
        """The weights of every layer, head and kind of attention for source (B, S) and target so far (B, T)."""
        maps = AttentionMaps([], [], [])
        encoder_out = self.encoder(src_tokens, attention=maps.encoder)
        self.decoder.extract_features(prev_output_tokens, encoder_out, attention=maps)
        return maps


def resolve_config(cfg: Any) -> VaswaniConfig:
    """A complete, checked ``VaswaniConfig`` from a part of one: options nobody gave are the base model's.

    Raises:
        ValueError: options out of range or in contradiction.
    """
    given = vars(cfg) if not OmegaConf.is_config(cfg) else {key: cfg[key] for key in cfg}
    known = VaswaniConfig.__dataclass_fields__
    resolved = VaswaniConfig(**{key: value for key, value in given.items() if key in known and key != "_name"})
    fill_missing(resolved, BASE)
    check_config(resolved)
    return resolved
