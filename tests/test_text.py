"""Blank lines, words that look like control symbols, words no dictionary holds, and lines that are too long."""

from __future__ import annotations

from pathlib import Path
from typing import Dict, List

import pytest
import torch
from fairseq.data import Dictionary
from test_generate_command import generate, hypotheses, interactive
from toolkit_runner import CopyTask, Result, run

from vaswani_plugin.text import OpenDictionary, without_control_symbols, without_lent_ids

BLANKS = [["w1 w2", "", "   ", "w3", ""], ["", "w1 w2"], ["", "", ""]]


def words(n: int = 3) -> OpenDictionary:
    dictionary = OpenDictionary()
    for i in range(n):
        dictionary.add_symbol(f"w{i}")
    return dictionary


def sources(result: Result) -> Dict[int, str]:
    """The S lines by number."""
    lines = [line.split("\t") for line in result.ok().lines("S-")]
    return {int(number[2:]): text for number, text in lines}


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ([4, 5, 2], [4, 5, 2]),
        ([0, 4, 1, 2, 5, 2], [3, 4, 3, 3, 5, 2]),
        ([4, 2, 2], [4, 3, 2]),
        ([4, 1], [4, 3]),
        ([3, 3, 2], [3, 3, 2]),
        ([2], [2]),
        ([], []),
    ],
)
def test_control_symbols_within_a_sentence_are_unknown_words(tokens: List[int], expected: List[int]) -> None:
    for dtype in (torch.int32, torch.int64):
        found = without_control_symbols(torch.tensor(tokens, dtype=dtype), Dictionary())
        assert found.tolist() == expected
        assert found.dtype == dtype


def test_unknown_words_are_lent_ids() -> None:
    dictionary = words()
    tokens = dictionary.encode_open(["w0 new w2 <unk>", "<pad> </s> <s> new", ""])
    assert [one.tolist() for one in tokens] == [[4, 7, 6, 3, 2], [8, 9, 10, 11, 2], [2]]
    assert [dictionary.string(one) for one in tokens] == ["w0 new w2 <unk>", "<pad> </s> <s> new", ""]
    assert without_lent_ids(tokens[1], dictionary).tolist() == [3, 3, 3, 3, 2]
    assert len(dictionary) == 7
    (again,) = dictionary.encode_open(["other"])
    assert dictionary.string(again) == "other"
    assert dictionary[8] == "<unk>"


@pytest.mark.parametrize("lines", BLANKS, ids=str)
@pytest.mark.parametrize("options", [["--beam", 1], ["--buffer-size", 100, "--batch-size", 3, "--print-alignment"]])
def test_a_blank_line_is_answered_with_a_blank_line(
    copy_task: CopyTask, tiny_checkpoint_400: Path, lines: List[str], options: List[object]
) -> None:
    result = interactive(copy_task.bin, tiny_checkpoint_400, lines, *options)
    printed = [line.split("\t") for line in result.ok().lines("H-")]
    assert [fields[0] for fields in printed] == [f"H-{i}" for i in range(len(lines))]
    assert all(len(fields) == 3 for fields in printed)
    for fields, line in zip(printed, lines):
        assert bool(fields[2]) == bool(line.strip())
        assert float(fields[1]) == 0 or line.strip()


def test_nothing_is_answered_with_nothing(copy_task: CopyTask, tiny_checkpoint_400: Path) -> None:
    assert interactive(copy_task.bin, tiny_checkpoint_400, []).ok().lines("H-") == []


@pytest.mark.parametrize("lines", BLANKS, ids=str)
def test_blank_lines_in_a_file(
    copy_task: CopyTask, tiny_checkpoint_400: Path, tmp_path: Path, lines: List[str]
) -> None:
    found = hypotheses(generate(binary(copy_task, tmp_path, lines), tiny_checkpoint_400))
    assert sorted(found) == list(range(len(lines)))
    assert {number: bool(hypos[0].words) for number, hypos in found.items()} == {
        number: bool(line.strip()) for number, line in enumerate(lines)
    }


def binary(copy_task: CopyTask, folder: Path, lines: List[str]) -> Path:
    """The lines as the test set of a binary data folder, source and target alike."""
    for side in ("src", "tgt"):
        (folder / f"test.{side}").write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    dictionary = copy_task.bin / "dict.src.txt"
    run(
        "fairseq-preprocess", "-s", "src", "-t", "tgt", "--testpref", folder / "test", "--workers", 1,
        "--srcdict", dictionary, "--tgtdict", dictionary, "--destdir", folder / "bin",
    ).ok()  # fmt: skip
    return folder / "bin"


CONTROL = ["w1 </s> w2", "<pad> w1", "<s> w1", "w1 <unk> w2", "unheard w1", "w3 w4 w5 w6 w7 w8 w9"]


def test_words_that_look_like_control_symbols(copy_task: CopyTask, tiny_checkpoint_400: Path, tmp_path: Path) -> None:
    together = interactive(copy_task.bin, tiny_checkpoint_400, CONTROL, "--buffer-size", 10, "--batch-size", 6)
    assert sources(together) == dict(enumerate(CONTROL))
    alone = hypotheses(interactive(copy_task.bin, tiny_checkpoint_400, CONTROL))
    unknown = ["w1 zzz w2", "zzz w1", "zzz w1", "w1 zzz w2", "zzz w1", CONTROL[-1]]
    expected = hypotheses(interactive(copy_task.bin, tiny_checkpoint_400, unknown))
    file = generate(binary(copy_task, tmp_path, CONTROL), tiny_checkpoint_400)
    assert [len(sources(file)[i].split()) for i in range(6)] == [3, 2, 2, 3, 2, 7]
    for found in (hypotheses(together), alone, hypotheses(file)):
        assert {i: hypos[0].words for i, hypos in found.items()} == {i: hypos[0].words for i, hypos in expected.items()}
        for i, hypos in expected.items():
            assert found[i][0].score == pytest.approx(hypos[0].score, abs=1e-4)


def test_an_unknown_word_can_be_copied(copy_task: CopyTask, tiny_checkpoint_400: Path) -> None:
    lines = ["unheard", "w1 unheard w2 unseen"]
    options = ["--unkpen", -9, "--max-len-a", 0, "--max-len-b", 3]
    plain = hypotheses(interactive(copy_task.bin, tiny_checkpoint_400, lines, *options))
    assert all("<unk>" in plain[i][0].words for i in range(2))
    found = hypotheses(interactive(copy_task.bin, tiny_checkpoint_400, lines, *options, "--replace-unk"))
    for i, line in enumerate(lines):
        assert "<unk>" not in found[i][0].words
        for word, before in zip(found[i][0].words, plain[i][0].words):
            assert word in line.split() if before == "<unk>" else word == before


def test_a_line_that_is_too_long_is_refused_or_answered(copy_task: CopyTask, tiny_checkpoint_400: Path) -> None:
    lines = ["w1", " ".join(["w2"] * 1100), "w3"]
    options = ["--buffer-size", 3, "--batch-size", 3, "--max-len-a", 0, "--max-len-b", 5]
    refused = interactive(copy_task.bin, tiny_checkpoint_400, lines, *options)
    assert refused.rc != 0
    assert "Size of sample #1 is invalid" in refused.out
    answered = interactive(copy_task.bin, tiny_checkpoint_400, lines, *options, "--max-source-positions", 2000)
    assert sorted(hypotheses(answered)) == [0, 1, 2]
