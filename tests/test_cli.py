"""What the commands share: lines, whole files, one-line errors."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from vaswani_plugin.tools import cli


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a", ["a"]),
        (b"a\n\nb\n", ["a", "", "b"]),
        (b"a\rb\r\nc\x0cd\x1ce", ["a\rb\r", "c\x0cd\x1ce"]),
        ("a\u2028b\x85c\nd".encode(), ["a\u2028b\x85c", "d"]),
    ],
)
def test_lines_end_at_line_feeds_only(data: bytes, lines: list[str], tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(data)
    assert list(cli.read_lines(tmp_path / "text")) == lines


def test_lines_of_what_is_no_text_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(b"a\n\xff\n")
    with pytest.raises(cli.CommandError, match=f"^{tmp_path / 'text'}: not UTF-8: invalid start byte$"):
        list(cli.read_lines(tmp_path / "text"))
    with pytest.raises(cli.CommandError, match=f"^{tmp_path}: no such file$"):
        list(cli.read_lines(tmp_path))


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file"
    with cli.atomic_path(path) as partial:
        partial.write_text("first", encoding="utf-8")
        assert not path.exists()
    assert path.read_text(encoding="utf-8") == "first"
    with pytest.raises(RuntimeError, match="^half-way$"):
        with cli.atomic_path(path) as partial:
            partial.write_text("sec", encoding="utf-8")
            raise RuntimeError("half-way")
    assert path.read_text(encoding="utf-8") == "first"
    assert [each.name for each in path.parent.iterdir()] == ["file"]


def test_digest_of_a_file_longer_than_one_piece(tmp_path: Path) -> None:
    data = bytes(range(256)) * 5000
    (tmp_path / "data").write_bytes(data)
    assert cli.sha256_of(tmp_path / "data") == hashlib.sha256(data).hexdigest()


def test_expected_failures_are_one_line_and_others_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def refuse() -> None:
        raise cli.CommandError("this and that")

    def open_nothing() -> None:
        (tmp_path / "none").read_bytes()

    def bug() -> None:
        raise KeyError("ours")

    assert cli.run_command("name", lambda: None) == 0
    assert cli.run_command("name", refuse) == 1
    assert capsys.readouterr().err == "name: error: this and that\n"
    assert cli.run_command("name", open_nothing) == 1
    assert capsys.readouterr().err == f"name: error: [Errno 2] No such file or directory: '{tmp_path / 'none'}'\n"
    with pytest.raises(KeyError, match="ours"):
        cli.run_command("name", bug)


def test_words_for_counts_and_names() -> None:
    assert [cli.plural(count, "line") for count in (0, 1, 1234)] == ["0 lines", "1 line", "1,234 lines"]
    assert cli.joined(["a"]) == "a"
    assert cli.joined("abcde") == "a, b, c, d, e"
    assert cli.joined("abcdefg") == "a, b, c, d, e and 2 more"
