"""A trained model with its dictionaries and its pieces, ready for single sentences."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, List, Optional

import torch
from fairseq import checkpoint_utils
from fairseq.data import Dictionary
from torch import Tensor

from vaswani_plugin.generator import VaswaniGenerator
from vaswani_plugin.search_options import SearchOptions
from vaswani_plugin.text import without_control_symbols
from vaswani_plugin.toolkit import CheckpointError
from vaswani_plugin.tools.attention_maps import SentencePair
from vaswani_plugin.tools.cli import CommandError, joined
from vaswani_plugin.transformer import VaswaniTransformer


@dataclass(frozen=True)
class Translator:
    """A model in evaluation mode; ``processor`` is SentencePiece's, None for text whose pieces blanks separate."""

    model: VaswaniTransformer
    source_dictionary: Dictionary
    target_dictionary: Dictionary
    processor: Any = None

    def pieces(self, text: str, option: str) -> List[str]:
        """The pieces of a sentence.

        Args:
            option: which option gave the text, for the error.

        Raises:
            CommandError: it has none.
        """
        pieces: List[str] = text.split() if self.processor is None else self.processor.encode(text, out_type=str)
        if not pieces:
            raise CommandError(f"{option} {text!r}: the sentence is empty, so that there is nothing to look at")
        return pieces

    def pair(self, source: str, target: Optional[str]) -> SentencePair:
        """Both sentences, the target translated by the paper's search where it is None.

        Raises:
            CommandError: a sentence is empty, or too long for the model's learned positions.
        """
        pieces = self.pieces(source, "--source")
        ids = encode(pieces, self.source_dictionary)
        if target is None:
            target_ids = self.translate(ids)
            target_pieces = [self.target_dictionary[int(i)] for i in target_ids[:-1]]
        else:
            target_pieces = self.pieces(target, "--target")
            target_ids = encode(target_pieces, self.target_dictionary)
        return SentencePair(pieces, ids, target_pieces, target_ids)

    def translate(self, source_ids: Tensor) -> Tensor:
        """The best translation, int64 (T,), of source ids (S,), both with the end symbol: beam 4, alpha 0.6."""
        generator = VaswaniGenerator([self.model], self.target_dictionary, SearchOptions())
        try:
            found = generator.generate([], {"net_input": {"src_tokens": source_ids[None]}})
        except ValueError as error:
            raise CommandError(str(error)) from error
        tokens: Tensor = found[0][0]["tokens"]
        return tokens


def encode(pieces: List[str], dictionary: Dictionary) -> Tensor:
    """The ids of pieces and the end symbol, int64 (T,); pieces spelled like control symbols are unknown words."""
    ids = torch.tensor([dictionary.index(piece) for piece in pieces] + [dictionary.eos()])
    return without_control_symbols(ids, dictionary)


def unknown_pieces(pair: SentencePair, translator: Translator) -> List[str]:
    """The pieces that the model does not know, each once."""
    sides = (
        (pair.source, pair.source_ids, translator.source_dictionary),
        (pair.target, pair.target_ids, translator.target_dictionary),
    )
    found = [
        piece for pieces, ids, known in sides for piece, i in zip(pieces, ids.tolist()) if i == known.unk()
    ]  # fmt: skip
    return list(dict.fromkeys(found))


def load(checkpoint: Path, data: Optional[Path], sentencepiece_model: Optional[Path], in_pieces: bool) -> Translator:
    """Load a model for single sentences.

    Args:
        data: the folder with the dictionaries; None for the one that the model was trained on.
        sentencepiece_model: None for ``spm.model`` in that folder or beside it, where ``vaswani-prepare`` puts it.
        in_pieces: the text comes in pieces, so that no SentencePiece model is needed.

    Raises:
        CommandError: a file is missing or broken, or the model is of another kind.
    """
    state = _read(checkpoint, data)
    folder = Path(str(state["cfg"].task.data).split(os.pathsep)[0])
    if not folder.is_dir():
        raise CommandError(
            f"{'--data ' if data else ''}{folder}: no such folder; --data names the one of the dictionaries"
        )
    if not list(folder.glob("dict.*.txt")):
        raise CommandError(f"{folder} holds no dictionaries (dict.LANGUAGE.txt)")
    try:
        models, _, task = checkpoint_utils.load_model_ensemble_and_task([str(checkpoint)], state=state)
    except (RuntimeError, ValueError, FileNotFoundError) as error:
        reason = " ".join(str(error).split())
        raise CommandError(f"{checkpoint} does not fit the dictionaries in {folder}: {reason}") from error
    except Exception as error:  # the toolkit has no class of its own for this
        if "infer language pair" not in str(error):
            raise
        raise CommandError(f"{folder} holds no binary data, whose names tell the toolkit the languages") from error
    model = models[0]
    if not isinstance(model, VaswaniTransformer):
        raise CommandError(
            f"{checkpoint} holds a {type(model).__name__} and no vaswani_transformer; vaswani-convert makes one of the "
            "toolkit's transformer"
        )
    processor = None if in_pieces else _processor(sentencepiece_model, folder)
    return Translator(model.eval().float(), task.source_dictionary, task.target_dictionary, processor)


def _read(checkpoint: Path, data: Optional[Path]) -> Any:
    """The checkpoint's state, with its options upgraded to today's."""
    if not checkpoint.is_file():
        raise CommandError(f"there is no checkpoint {checkpoint}")
    try:
        with warnings.catch_warnings():  # hydra's, about how the toolkit calls it
            warnings.simplefilter("ignore")
            state = checkpoint_utils.load_checkpoint_to_cpu(str(checkpoint), {"data": str(data)} if data else {})
    except CheckpointError as error:
        raise CommandError(str(error)) from error
    if state.get("cfg") is None:
        raise CommandError(f"{checkpoint} holds weights, but does not say of which model")
    return state


def _processor(model: Optional[Path], folder: Path) -> Any:
    """SentencePiece with the named model, or the one that lies with the data; None where there is none."""
    if model is None:
        model = next((path for path in (folder / "spm.model", folder.parent / "spm.model") if path.is_file()), None)
        if model is None:
            return None
    if not model.is_file():
        raise CommandError(f"--sentencepiece-model {model}: no such file")
    from sentencepiece import SentencePieceProcessor

    try:
        return SentencePieceProcessor(model_file=str(model))
    except (RuntimeError, OSError) as error:
        raise CommandError(f"{model} is no SentencePiece model: {' '.join(str(error).split())}") from error


def describe_unknown(pieces: List[str]) -> str:
    """A note on pieces that the model does not know."""
    return f"unknown to the model, and so read as one unknown word: {joined(pieces)}"
