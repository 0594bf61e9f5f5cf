"""Attention weights with their words: which tokens the rows and columns stand for, and pieces merged into words.

Shapes: L layers, H heads, Q queries, K keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, List, Optional, Sequence

import torch
from torch import Tensor

from vaswani_plugin.tools.cli import CommandError
from vaswani_plugin.tools.pieces import Labels, Pieces, readable
from vaswani_plugin.transformer import AttentionMaps, VaswaniTransformer

#: The three uses of attention (section 3.2.3), and what rows and columns are named after.
KINDS: Dict[str, str] = {
    "encoder-self": "Each source token looks at the source.",
    "decoder-self": "Each token that the decoder has read, from the start symbol on, looks at itself and those before.",
    "encoder-decoder": "Each target token, when it is about to be produced, looks at the source.",
}


@dataclass(frozen=True)
class View:
    """The attention of one kind, every layer and head of it: weights float32 (L, H, Q, K), each row summing to 1."""

    kind: str
    queries: Labels
    keys: Labels
    weights: Tensor


@dataclass(frozen=True)
class SentencePair:
    """Two sentences as pieces and as the model's ids, int64 (S,) and (T,), both with the end symbol."""

    source: Sequence[str]
    source_ids: Tensor
    target: Sequence[str]
    target_ids: Tensor


@dataclass(frozen=True)
class Analysis:
    """What was looked at.

    Attributes:
        source, target: the two texts; of a translation, its pieces joined.
        translated: whether the target is the model's own.
        pieces, words: views by kind, of pieces and of words.
    """

    source: str
    target: str
    translated: bool
    pieces: Dict[str, View]
    words: Dict[str, View]


def _grouping(word_of: Sequence[int]) -> Tensor:
    """One row a word, one column a piece: 1 where the piece is the word's; float32."""
    words = torch.tensor(word_of)
    return (words[None, :] == torch.arange(int(words.max()) + 1)[:, None]).float()


def merge_words(weights: Tensor, query_words: Sequence[int], key_words: Sequence[int]) -> Tensor:
    """Attention from word to word: the sum over the pieces of the key, the mean over the pieces of the query.

    So each row sums to 1 again: a word looks as much at another as its pieces together look, on average, at all the
    pieces of the other.

    Args:
        weights: float32 (..., Q, K).
        query_words, key_words: the number of each piece's word, from 0 on without gaps.
    """
    queries, keys = _grouping(query_words), _grouping(key_words)
    return (queries / queries.sum(dim=1, keepdim=True)) @ weights @ keys.t()


def compute(model: VaswaniTransformer, pair: SentencePair) -> Dict[str, Tensor]:
    """The model's weights by kind, float32 (L, H, Q, K): (S, S), (T, T) and (T, S).

    The decoder reads the end symbol, which starts every sentence, and then the target without its end.

    Raises:
        CommandError: a sentence is longer than the model's learned positions.
    """
    previous = torch.cat((pair.target_ids[-1:], pair.target_ids[:-1]))
    try:
        maps: AttentionMaps = model.attention_maps(pair.source_ids[None], previous[None])
    except ValueError as error:
        raise CommandError(str(error)) from error
    found = {"encoder-self": maps.encoder, "decoder-self": maps.decoder, "encoder-decoder": maps.source}
    return {kind: torch.stack([layer[0] for layer in found[kind]]).float() for kind in KINDS}


def views(
    weights: Dict[str, Tensor], pair: SentencePair, directions: Sequence[str] = ("auto", "auto"), merged: bool = False
) -> Dict[str, View]:
    """The weights of every kind with their labels.

    Args:
        weights: what ``compute`` returns.
        directions: of the source's and the target's text.
        merged: merge pieces into words.
    """
    source = readable(pair.source, end=True, direction=directions[0])
    read = readable(pair.target, start=True, direction=directions[1])
    produced = readable(pair.target, end=True, direction=directions[1])
    sides: Dict[str, List[Pieces]] = {
        "encoder-self": [source, source],
        "decoder-self": [read, read],
        "encoder-decoder": [produced, source],
    }
    found = {}
    for kind, (queries, keys) in sides.items():
        table = weights[kind]
        if merged:
            table = merge_words(table, queries.word_of, keys.word_of)
        found[kind] = View(kind, queries.labels(merged), keys.labels(merged), table)
    return found


def choose(view: View, layer: Optional[int], heads: Optional[Sequence[int]]) -> Dict[str, List[int]]:
    """Layers and heads, counted from 1 by people, as indices from 0; what is not named is all of them.

    Raises:
        CommandError: there is no such layer or head; says which there are.
    """
    n_layers, n_heads = view.weights.shape[:2]
    if layer is not None and not 1 <= layer <= n_layers:
        raise CommandError(f"--layer {layer}: {view.kind} attention has the layers 1 to {n_layers}")
    for head in heads or []:
        if not 1 <= head <= n_heads:
            raise CommandError(f"--heads {head}: {view.kind} attention has the heads 1 to {n_heads}")
    return {
        "layers": list(range(n_layers)) if layer is None else [layer - 1],
        "heads": list(range(n_heads)) if not heads else sorted({head - 1 for head in heads}),
    }
