"""Words and their ids where the toolkit confuses them: words that look like control symbols, words nobody knows."""

from __future__ import annotations

from typing import Any, List

import torch
from fairseq.data import BaseWrapperDataset, Dictionary
from fairseq.tokenizer import tokenize_line
from torch import Tensor


def without_control_symbols(tokens: Tensor, dictionary: Dictionary) -> Tensor:
    """The tokens (T,) with ``<s>``, ``<pad>`` and ``</s>`` unknown words, but for an end symbol at the end.

    The toolkit gives a word that is spelled like a control symbol that symbol's id, and so makes padding or an early
    end of it.
    """
    control = [dictionary.bos(), dictionary.pad(), dictionary.eos()]
    inner = tokens[:-1] if len(tokens) and tokens[-1] == dictionary.eos() else tokens
    if not bool((inner <= max(control)).any()):  # nearly always; the ids are the lowest
        return tokens
    found = torch.zeros_like(inner, dtype=torch.bool)
    for symbol in control:
        found |= inner == symbol
    return torch.cat((inner.masked_fill(found, dictionary.unk()), tokens[len(inner) :]))


def without_lent_ids(tokens: Tensor, dictionary: Dictionary) -> Tensor:
    """The tokens with the ids that an ``OpenDictionary`` has lent as unknown words, as a model must see them."""
    return tokens.masked_fill(tokens >= len(dictionary), dictionary.unk())


class PlainTokens(BaseWrapperDataset):
    """A dataset of sentences in which words that look like control symbols are unknown words."""

    def __init__(self, dataset: Any, dictionary: Dictionary) -> None:
        super().__init__(dataset)
        self.dictionary = dictionary

    def __getitem__(self, index: int) -> Tensor:
        return without_control_symbols(self.dataset[index], self.dictionary)

    def get_original_text(self, index: int) -> Any:
        """The text of a sentence, which a raw dataset has."""
        return self.dataset.get_original_text(index)


class OpenDictionary(Dictionary):
    """A dictionary that lends words it does not know an id of their own, so that they can be printed again.

    Field unseen: the words that ids from ``len(self)`` on stand for.
    """

    def __init__(self, **symbols: Any) -> None:
        super().__init__(**symbols)
        self.unseen: List[str] = []

    def __getitem__(self, idx: Any) -> str:
        place = int(idx) - len(self.symbols)
        word: str = self.unseen[place] if 0 <= place < len(self.unseen) else super().__getitem__(idx)
        return word

    def encode_open(self, lines: List[str]) -> List[Tensor]:
        """Token ids, int64 (T,), of each line, the end symbol included; the words lent an id before lose it."""
        self.unseen = []
        return [torch.tensor([self._lend(word) for word in tokenize_line(line)] + [self.eos()]) for line in lines]

    def _lend(self, word: str) -> int:
        known = self.indices.get(word)
        if known is not None and known not in (self.bos(), self.pad(), self.eos()):
            return int(known)
        self.unseen.append(word)
        return len(self.symbols) + len(self.unseen) - 1
