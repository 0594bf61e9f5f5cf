"""Cleaning: each reason, what is kept and how, duplicates across corpora, and files that must stay parallel."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import List, Optional, Tuple

import pytest
from stand_in import BAD_PAIRS, ODD_PAIRS, joined, sentences, sides

from vaswani_plugin.tools import cleaning
from vaswani_plugin.tools.cleaning import Rules, clean_pairs, fault, read_pairs
from vaswani_plugin.tools.cli import CommandError

Pair = Tuple[bytes, bytes]


def write(folder: Path, name: str, pairs: List[Pair]) -> Tuple[Path, Path]:
    folder.mkdir(parents=True, exist_ok=True)
    paths = folder / f"{name}.en", folder / f"{name}.de"
    for path, text in zip(paths, sides(pairs)):
        path.write_bytes(text)
    return paths


def read(paths: Tuple[Path, Path]) -> List[Pair]:
    source, target = [path.read_bytes() for path in paths]
    assert source.count(b"\n") == target.count(b"\n")
    return list(zip(source.split(b"\n")[:-1], target.split(b"\n")[:-1]))


@pytest.mark.parametrize(
    ("source", "target", "reason"),
    [
        (b"a", b"b", None),
        (b"", b"b", "empty"),
        (b"a", b" \t\r ", "empty"),
        ("\u2028".encode(), b"b", "empty"),
        (b"\xff", b"b", "encoding"),
        (b"a", b"\xed\xa0\x80", "encoding"),
        (b"a\x00", b"b", "encoding"),
        (b"a", "\ufffd".encode(), "encoding"),
        (b"a", "\x96".encode(), "encoding"),
        ("\x85a".encode(), b"b\x1fc", None),  # white space to Unicode
        (b"a b c", b"d e f g", "too long"),
        (b"a", b"b c", None),
        (b"a", b"b c d", "ratio"),
        (b"b c d", b"a", "ratio"),
    ],
)
def test_reasons(source: bytes, target: bytes, reason: Optional[str]) -> None:
    assert fault(source, target, Rules(max_words=3, max_ratio=2.0)) == reason


@pytest.mark.parametrize("workers", [1, 2])
def test_every_reason_is_counted_and_the_rest_is_kept_in_order(workers: int, tmp_path: Path) -> None:
    good = sentences(50, 1)
    files = write(tmp_path, "raw", [*good[:25], *ODD_PAIRS, *(bad for _, bad in BAD_PAIRS), *good[25:]])
    outputs = tmp_path / "clean" / "train.en", tmp_path / "clean" / "train.de"
    report = clean_pairs({"raw": files}, outputs, Rules(), workers)["raw"]
    assert report.dropped == {**dict.fromkeys(cleaning.REASONS, 0), **Counter(reason for reason, _ in BAD_PAIRS)}
    assert (report.read, report.kept()) == (50 + len(ODD_PAIRS) + len(BAD_PAIRS), 50 + len(ODD_PAIRS))
    odd = [
        (b"one two three", b"eins zwei drei"),
        (b"four five ", "vier fünf".encode()),
        (b"six seven", b"sechs sieben"),
    ]
    assert read(outputs) == [*good[:25], *odd, *good[25:]]
    assert sorted(path.name for path in (tmp_path / "clean").iterdir()) == ["train.de", "train.en"]
    assert report.text("raw") == (
        "raw: 61 pairs read, 53 kept; dropped: encoding 3, empty 2, too long 1, ratio 1, duplicate 1"
    )


@pytest.mark.parametrize("workers", [1, 3])
def test_many_chunks_agree_with_a_set(workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vaswani_plugin.tools.parallel.CHUNK_LINES", 7)
    rng = random.Random(5)
    pool = sentences(120, 2)
    corpora = {name: [rng.choice(pool) for _ in range(count)] for name, count in (("a", 150), ("b", 1), ("c", 90))}
    files = {name: write(tmp_path, name, pairs) for name, pairs in corpora.items()}
    outputs = tmp_path / "out.en", tmp_path / "out.de"
    reports = clean_pairs(files, outputs, Rules(), workers)
    everything = [pair for pairs in corpora.values() for pair in pairs]
    assert read(outputs) == list(dict.fromkeys(everything))
    seen: set[Pair] = set()
    for name, pairs in corpora.items():
        fresh = set(pairs) - seen
        seen |= fresh
        assert reports[name].dropped["duplicate"] == len(pairs) - len(fresh)
    clean_pairs(files, outputs, Rules(drop_duplicates=False), workers)
    assert read(outputs) == everything


def test_equal_pairs_are_those_that_are_equal_on_both_sides(tmp_path: Path) -> None:
    pairs = [(b"a", b"b"), (b"a", b"c"), (b"d", b"b"), (b"a b", b"c"), (b"a", b"b c"), (b"a\rb", b"c")]
    outputs = tmp_path / "out.en", tmp_path / "out.de"
    clean_pairs({"x": write(tmp_path, "x", pairs)}, outputs, Rules(), 1)
    assert read(outputs) == pairs[:-1]  # the last differs from an earlier one in white space only


@pytest.mark.parametrize("chunk_lines", [2, 4096])
def test_sides_of_different_length_are_refused(
    chunk_lines: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vaswani_plugin.tools.parallel.CHUNK_LINES", chunk_lines)
    source, target = tmp_path / "x.en", tmp_path / "x.de"
    source.write_bytes(joined([b"1", b"2", b"3", b"4", b"5"]))
    target.write_bytes("1\n2\u20282\r2\n3".encode())
    error = f"^{source} has 5 lines but {target} has 3 lines; parallel files have the same number$"
    with pytest.raises(CommandError, match=error):
        list(read_pairs(source, target))
    outputs = tmp_path / "clean" / "out.en", tmp_path / "clean" / "out.de"
    with pytest.raises(CommandError, match=error):
        clean_pairs({"x": (source, target)}, outputs, Rules(), 1)
    assert list((tmp_path / "clean").iterdir()) == []


def test_refuses_to_leave_nothing(tmp_path: Path) -> None:
    files = write(tmp_path, "x", [(b"", b""), (b"a", b"")])
    with pytest.raises(CommandError, match="^x, y: no pair is left after cleaning$"):
        clean_pairs({"x": files, "y": files}, (tmp_path / "o.en", tmp_path / "o.de"), Rules(), 1)
    assert not list(tmp_path.glob("o.*"))


def test_what_a_killed_run_left_does_not_matter(tmp_path: Path) -> None:
    (tmp_path / ".cleaning").mkdir()
    (tmp_path / ".cleaning" / "digests-0").write_bytes(b"rubbish")
    outputs = tmp_path / "o.en", tmp_path / "o.de"
    clean_pairs({"x": write(tmp_path, "x", [(b"a", b"b")] * 3)}, outputs, Rules(), 1)
    assert read(outputs) == [(b"a", b"b")]
    assert not (tmp_path / ".cleaning").exists()
