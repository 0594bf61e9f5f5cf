"""Moses tokens and subword-nmt: joiners, lines that hold any character, and text that comes back."""

from __future__ import annotations

from pathlib import Path
from typing import List

import pytest

from vaswani_plugin.tools.bpe import MergeCoder, MosesTokens, detokenise, join_merges, learn_codes
from vaswani_plugin.tools.cli import CommandError

# A word that holds U+2028 a hundred times, and others that a careless splitter would break.
LINES = ["low lower lowest", "wide\u2028st"] * 100 + ["new\x85er x\x0cy\x1dz", "", "mail@@home", "a"]


def write(path: Path, lines: List[str]) -> Path:
    path.write_bytes("".join(line + "\n" for line in lines).encode("utf-8"))
    return path


@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        ("foo@@ bar@@", "foobar"),
        ("foo@@", "foo"),
        ("a @@ b", "a b"),
        ("mail@@home", "mail@@home"),
        ("mail@@home@@ s", "mail@@homes"),
        ("", ""),
        ("a@@ b@@ c d", "abc d"),
        ("x\u2028@@ y", "x\u2028y"),
    ],
)
def test_join_merges(pieces: str, text: str) -> None:
    assert join_merges(pieces) == text


def test_pieces_come_back_byte_for_byte_whatever_a_word_holds(tmp_path: Path) -> None:
    text, codes = write(tmp_path / "text", LINES), tmp_path / "codes"
    learn_codes([text], codes, 60, 1000)
    assert any("\u2028" in line for line in codes.read_bytes().decode("utf-8").split("\n")[1:])
    encoded = MergeCoder.load(codes)([line.encode("utf-8") for line in LINES]).decode("utf-8")
    pieces = encoded.split("\n")
    assert pieces.pop() == ""
    assert [join_merges(line) for line in pieces] == LINES
    assert pieces[1] == "wide\u2028st"  # frequent enough to be one piece
    assert pieces[200] != LINES[200]


def test_codes_agree_with_the_published_command(tmp_path: Path) -> None:
    import io

    from subword_nmt.apply_bpe import BPE
    from subword_nmt.learn_bpe import learn_bpe

    lines = ["low lower lowest newer wider"] * 5 + ["new low wide"] * 3
    text, codes = write(tmp_path / "text", lines), tmp_path / "codes"
    learn_codes([text, text], codes, 40, 1000)
    published = io.StringIO()
    learn_bpe(io.StringIO("\n".join(lines + lines)), published, 40, total_symbols=True)
    assert codes.read_text("utf-8") == published.getvalue()
    words = [line.encode("utf-8") for line in ["lowest widest", "  new  west "]]
    expected = [" ".join(BPE(io.StringIO(published.getvalue())).segment_tokens(w.decode().split(" "))) for w in words]
    assert MergeCoder.load(codes)(words).decode().split("\n")[:-1] == expected


def test_a_sample_is_drawn_where_there_is_more(tmp_path: Path) -> None:
    text = write(tmp_path / "text", [f"word{i} other" for i in range(2000)])
    learn_codes([text], tmp_path / "all", 60, 4000)
    for name in ("some", "again"):
        learn_codes([text], tmp_path / name, 60, 200)
    assert (tmp_path / "some").read_bytes() == (tmp_path / "again").read_bytes()
    assert (tmp_path / "some").read_bytes() != (tmp_path / "all").read_bytes()


@pytest.mark.parametrize(
    ("lines", "size", "error"),
    [
        (["a b c"] * 3, 50, "the training text has no word of two characters to learn merges from"),
        ([""], 50, "the training text has no word of two characters to learn merges from"),
        (["low lower"] * 3, 4, "--vocab-size 4: the characters of the training text alone need as many"),
    ],
)
def test_refuses_what_gives_no_merges(lines: List[str], size: int, error: str, tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=f"^{error}$"):
        learn_codes([write(tmp_path / "text", lines)], tmp_path / "codes", size, 1000)
    assert not (tmp_path / "codes").exists()


def test_moses_tokens_are_one_line_a_line_and_can_be_undone() -> None:
    lines = [
        "Das ist ein Test-Satz (3,5 %).",
        "a\u2028b\rc\x00d",
        "",
        "<pad> </s> &",
        "\u201eZitat\u201c \u2013 ja!",
    ]
    tokens = MosesTokens("de")([line.encode("utf-8") for line in lines]).decode("utf-8").split("\n")
    assert tokens.pop() == ""
    assert tokens == [
        "Das ist ein Test @-@ Satz ( 3,5 % ) .",
        "a b cd",
        "",
        "&lt; pad &gt; &lt; / s &gt; &amp;",
        "&quot; Zitat &quot; - ja !",
    ]
    assert detokenise(tokens[0], "de") == "Das ist ein Test-Satz (3,5%)."
    assert detokenise(tokens[3], "de") == "< pad > < / s > &"  # never the toolkit's own symbols
    assert detokenise("", "de") == ""
