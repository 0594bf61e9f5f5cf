"""What the commands share: lines, whole files, one-line errors."""

from __future__ import annotations

import gzip
import hashlib
import os
import resource
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator

import pytest
import torch

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
    (tmp_path / "text").write_bytes(gzip.compress(b"a\n"))
    with pytest.raises(cli.CommandError, match=f"^{tmp_path / 'text'}: not UTF-8: it is gzipped$"):
        list(cli.read_lines(tmp_path / "text"))
    (tmp_path / "text").write_bytes(b"a\n\xff\n")
    with pytest.raises(cli.CommandError, match=f"^{tmp_path / 'text'}: not UTF-8: invalid start byte in line 2$"):
        list(cli.read_lines(tmp_path / "text"))
    with pytest.raises(cli.CommandError, match=f"^{tmp_path / 'none'}: no such file$"):
        list(cli.read_lines(tmp_path / "none"))
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(cli.CommandError, match=f"^{path}: not a regular file$"):
            list(cli.read_lines(path))


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


@contextmanager
def full_disk() -> Iterator[None]:
    """A limit of 4,096 bytes a file, beyond which writing fails as it does on a full disk.

    Not a fixture: pytest reports a test before its fixtures end, and its output may go to a longer file.
    """
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_is_told_with_the_file_and_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "file"
    told = f"^{path}: cannot be written: File too large$"
    with full_disk(), pytest.raises(cli.CommandError, match=told), cli.atomic_path(path) as partial:
        partial.write_bytes(bytes(5000))
    for count in (2000, 100_000):
        with full_disk(), pytest.raises(cli.CommandError, match=told):
            cli.save_checkpoint({"model": {"w": torch.zeros(count)}}, path)
    with full_disk():
        cli.save_checkpoint({"model": {"w": torch.zeros(10)}}, tmp_path / "small.pt")
    assert [each.name for each in tmp_path.iterdir()] == ["small.pt"]


def test_a_file_is_not_written_over_a_folder_or_below_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in (tmp_path, "", ".", "/"):
        with pytest.raises(cli.CommandError, match=f"^{folder}: is a folder, not a file to write$"):
            with cli.atomic_path(folder):
                pass
    (tmp_path / "file").touch()
    for path, reason in (("file/new", "File exists"), ("file/new/er", "Not a directory")):
        with pytest.raises(cli.CommandError, match=f"^{path}: its folder cannot be made: {reason}$"):
            with cli.atomic_path(path):
                pass
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_errors_about_other_files_pass_through(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="No such file or directory: 'input'"):
        with cli.atomic_path(tmp_path / "file"):
            raise FileNotFoundError(2, "No such file or directory", "input")


def test_an_output_is_none_of_the_inputs_however_it_is_spelled(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "a" / "in")
    cli.refuse_overwriting(tmp_path / "out", [tmp_path / "in", tmp_path / "a" / "in"])
    for output in (tmp_path / "a" / "in", tmp_path / "a" / ".." / "a" / "in", tmp_path / "link"):
        with pytest.raises(cli.CommandError, match="^.*: is one of the files to read; give what is made another name$"):
            cli.refuse_overwriting(output, [tmp_path / "other", tmp_path / "a" / "in"])


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stopped_command_cleans_up(
    number: signal.Signals, status: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def body() -> None:
        with cli.atomic_path(tmp_path / "file") as partial:
            partial.write_text("half", encoding="utf-8")
            os.kill(os.getpid(), number)
            signal.sigtimedwait([], 5)  # the handler runs here at the latest

    before = signal.getsignal(signal.SIGTERM)
    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)  # which nohup and "&" ignore
    try:
        assert cli.run_command("name", body) == status
    finally:
        signal.signal(signal.SIGINT, inherited)
    assert capsys.readouterr().err == "name: interrupted\n"
    assert list(tmp_path.iterdir()) == []
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_command_runs_outside_the_main_thread() -> None:
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(cli.run_command, "name", lambda: None).result() == 0


def test_help_is_the_docstring_without_its_markup() -> None:
    assert cli.help_texts("``vaswani-x``: does it,\nand more.\n\nThen ``this``.\n") == (
        "vaswani-x: does it,\nand more.",
        "Then this.",
    )
    assert cli.help_texts(None) == ("", "")
