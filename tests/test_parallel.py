"""Working on chunks: order, few items under way, failures, and lines that end at a line feed only."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Iterator, List

import pytest

from vaswani_plugin.tools.cli import CommandError
from vaswani_plugin.tools.parallel import available_cores, line_chunks, map_lines, ordered_map


def slow_square(number: int) -> int:
    """Earlier numbers take longer."""
    sum(range(200_000 // (number + 1)))
    return number * number


def die(number: int) -> int:
    os._exit(3)


def refuse(number: int) -> int:
    raise CommandError(f"{number}: no")


def process_id(number: int) -> int:
    return os.getpid()


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("count", [0, 1, 2, 20])
def test_results_come_in_order(count: int, workers: int) -> None:
    assert list(ordered_map(slow_square, iter(range(count)), workers)) == [n * n for n in range(count)]


def test_items_are_read_only_as_far_as_needed() -> None:
    taken: List[int] = []

    def items() -> Iterator[int]:
        for number in range(1000):
            taken.append(number)
            yield number

    results = ordered_map(slow_square, items(), 2)
    assert next(results) == 0
    assert len(taken) <= 4
    results.close()


def test_work_is_shared_only_where_there_is_enough() -> None:
    assert set(ordered_map(process_id, [1], 2)) == {os.getpid()}
    assert set(ordered_map(process_id, [1, 2, 3], 1)) == {os.getpid()}
    assert os.getpid() not in set(ordered_map(process_id, [1, 2, 3], 2))


def test_failures_of_workers_are_told() -> None:
    with pytest.raises(CommandError, match="^a worker process died; is there enough memory for --workers\\?$"):
        list(ordered_map(die, range(3), 2))
    for workers in (1, 2):
        with pytest.raises(CommandError, match="^0: no$"):
            list(ordered_map(refuse, range(3), workers))


def upper(lines: List[bytes]) -> bytes:
    return b"".join(line.upper() + b"|\n" for line in lines)


def test_lines_end_at_line_feeds_only(tmp_path: Path) -> None:
    source, target = tmp_path / "in", tmp_path / "new" / "out"
    source.write_bytes("a\rb\n\u2028c\x0cd\x00\x85\n\nlast".encode())
    map_lines(upper, source, target, 2, "upper")
    assert target.read_bytes() == "A\rB|\n\u2028C\x0cD\x00\x85|\n|\nLAST|\n".encode()


def test_chunks_have_the_same_number_of_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vaswani_plugin.tools.parallel.CHUNK_LINES", 3)
    assert [len(chunk) for chunk in line_chunks([b"x\n"] * 7)] == [3, 3, 1]
    assert list(line_chunks([])) == []


def test_a_failure_leaves_no_file(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"a\n")

    def fail(lines: List[bytes]) -> bytes:
        raise CommandError("no")

    with pytest.raises(CommandError, match="^no$"):
        map_lines(fail, tmp_path / "in", tmp_path / "out", 1, "fail")
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_there_is_a_core() -> None:
    assert 1 <= available_cores() <= (os.cpu_count() or 1)
