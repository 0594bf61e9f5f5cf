"""Pieces as people read them: both marks of subwords, words, symbols, and the direction of writing."""

from __future__ import annotations

import pytest

from vaswani_plugin.tools.pieces import Labels, readable, text_direction


def test_sentencepiece() -> None:
    side = readable(["\u2581Stra", "ße", "\u2581", "n", ".", "\u2581\u2581x"], end=True)
    assert side.pieces == ("Stra", "\u00b7ße", "\u2423", "\u00b7n", "\u00b7.", "\u2423x", "<end>")
    assert side.words == ("Straße", "n.", "\u2423x", "<end>")
    assert side.word_of == (0, 0, 1, 1, 1, 2, 3)


def test_subword_nmt() -> None:
    side = readable(["Str@@", "a@@", "ße", "nass", "@@"], start=True)
    assert side.pieces == ("<start>", "Str", "\u00b7a", "\u00b7ße", "nass", "\u2423")
    assert side.words == ("<start>", "Straße", "nass", "\u2423")
    assert side.word_of == (0, 1, 1, 1, 2, 3)


def test_words_without_marks_and_nothing_at_all() -> None:
    assert readable(["a", "\u00b7b"]).words == ("a", "\u00b7b")
    assert readable([], end=True) == readable([], end=True, direction="ltr")
    assert readable([], end=True).words == ("<end>",)
    assert readable(["de", "\u2581laufen"]).words == ("de", "laufen")  # a translation may begin inside a word


def test_labels_of_pieces_and_words() -> None:
    side = readable(["\u2581a", "b"], direction="rtl")
    assert side.labels(merged=False) == Labels(("a", "\u00b7b"), "rtl")
    assert side.labels(merged=True) == Labels(("ab",), "rtl")


@pytest.mark.parametrize(
    ("text", "direction"),
    [("", "ltr"), ("123 !", "ltr"), ("ein Hund", "ltr"), ("כלב רץ", "rtl"), ("\u2581كلب 12", "rtl"),
     ("BLEU של כלב רץ", "rtl"), ("Neural machine של", "ltr"), ("日本語", "ltr")],
)  # fmt: skip
def test_direction(text: str, direction: str) -> None:
    assert text_direction(text) == direction
    assert readable([text]).direction == direction
