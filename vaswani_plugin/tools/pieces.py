"""Subword pieces as people read them: shown without their marks, joined to words, and which way they are written.

Two marks are known: SentencePiece's U+2581 before a word, and subword-nmt's ``@@`` after a piece that goes on. A text
without either is a text of words.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import List, Sequence, Tuple

WORD_MARK = "\u2581"
GOES_ON = "@@"
#: How a piece that continues a word begins where pieces are shown, and what stands for a piece without letters.
CONTINUES, BLANK = "\u00b7", "\u2423"
START, END = "<start>", "<end>"


@dataclass(frozen=True)
class Labels:
    """The names of queries or keys, in order, and "ltr" or "rtl", the direction in which their text is written."""

    names: Tuple[str, ...]
    direction: str = "ltr"


@dataclass(frozen=True)
class Pieces:
    """One side of an attention map.

    Attributes:
        pieces: how each piece is shown.
        words: the words that they make.
        word_of: for each piece, the number of its word.
        direction: "ltr" or "rtl".
    """

    pieces: Tuple[str, ...]
    words: Tuple[str, ...]
    word_of: Tuple[int, ...]
    direction: str

    def labels(self, merged: bool) -> Labels:
        """The words, or the pieces."""
        return Labels(self.words if merged else self.pieces, self.direction)


def split_marks(pieces: Sequence[str]) -> List[Tuple[bool, str]]:
    """For each piece whether it begins a word, and its letters without marks."""
    if any(piece.startswith(WORD_MARK) for piece in pieces):
        bare = [piece[1:] if piece.startswith(WORD_MARK) else piece for piece in pieces]
        return [(i == 0 or piece != bare[i], bare[i].replace(WORD_MARK, BLANK)) for i, piece in enumerate(pieces)]
    if any(piece.endswith(GOES_ON) for piece in pieces):
        bare = [piece[: -len(GOES_ON)] if piece.endswith(GOES_ON) else piece for piece in pieces]
        return [(i == 0 or pieces[i - 1] == bare[i - 1], bare[i]) for i in range(len(pieces))]
    return [(True, piece) for piece in pieces]


def text_direction(text: str) -> str:
    """Which way a text is written: "rtl" where more letters go from right to left than the other way, else "ltr"."""
    classes = [unicodedata.bidirectional(letter) for letter in text]
    return "rtl" if sum(one in ("R", "AL") for one in classes) > classes.count("L") else "ltr"


def readable(pieces: Sequence[str], start: bool = False, end: bool = False, direction: str = "auto") -> Pieces:
    """The pieces of a sentence as a side of an attention map.

    Args:
        start, end: whether the symbol before or after a sentence stands there, too; each is a word of its own.
        direction: "ltr", "rtl", or "auto" for that of most letters.
    """
    shown: List[str] = [START] if start else []
    words: List[str] = [START] if start else []
    word_of: List[int] = [0] if start else []
    for begins, letters in split_marks(pieces):
        shown.append((letters or BLANK) if begins else CONTINUES + letters)
        if begins:
            words.append(letters)
        else:
            words[-1] += letters
        word_of.append(len(words) - 1)
    if end:
        shown.append(END)
        words.append(END)
        word_of.append(len(words) - 1)
    if direction == "auto":
        direction = text_direction("".join(pieces))
    return Pieces(tuple(shown), tuple(word or BLANK for word in words), tuple(word_of), direction)
