"""Downloading from a server that stops, lies or sends pages: only a whole and right file gets its name."""

from __future__ import annotations

import hashlib
import random
import re
from pathlib import Path
from typing import Iterator, List

import pytest
from stand_in import Site, serving, tar_of

from vaswani_plugin.tools import download
from vaswani_plugin.tools.cli import CommandError
from vaswani_plugin.tools.wmt14 import Archive

CONTENT = tar_of({"noise": random.Random(1).randbytes(50_000)})
ARCHIVE = Archive("wmt13/noise.tgz", "none", len(CONTENT), hashlib.sha256(CONTENT).hexdigest())
PATH = ARCHIVE.path


@pytest.fixture
def site() -> Iterator[Site]:
    with serving({PATH: CONTENT}) as running:
        yield running


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> List[float]:
    """The pauses between attempts, which are not waited for."""
    taken: List[float] = []
    monkeypatch.setattr(download.time, "sleep", taken.append)
    return taken


def fetch(site: Site, folder: Path, archive: Archive = ARCHIVE) -> Path:
    path = folder / archive.name
    download.fetch(f"{site.url}/{archive.path}", path, archive)
    return path


def refused(site: Site, folder: Path, archive: Archive = ARCHIVE) -> str:
    """What an attempt that must fail says, without the address; nothing may have got the archive's name."""
    with pytest.raises(CommandError, match=f"^{site.url}/{archive.path}: ") as caught:
        fetch(site, folder, archive)
    assert not (folder / archive.name).exists()
    return str(caught.value).split(f"{archive.path}: ", 1)[1]


def names(folder: Path) -> List[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_whole_file_gets_its_name_and_nothing_else_stays(site: Site, tmp_path: Path) -> None:
    assert fetch(site, tmp_path / "new folder").read_bytes() == CONTENT
    assert names(tmp_path / "new folder") == ["noise.tgz"]
    assert site.requests == [(PATH, "")]


def test_a_connection_that_ends_half_way_goes_on_where_it_stopped(site: Site, tmp_path: Path) -> None:
    site.faults[PATH] = "half"
    site.once.append(PATH)
    assert fetch(site, tmp_path).read_bytes() == CONTENT
    assert site.requests == [(PATH, ""), (PATH, f"bytes={len(CONTENT) // 2}-")]
    assert names(tmp_path) == ["noise.tgz"]


def test_a_server_that_always_stops_still_gives_all(site: Site, tmp_path: Path) -> None:
    site.faults[PATH] = "half"  # of what is left, until a byte is left, of which half is none
    error = refused(site, tmp_path)
    part = tmp_path / "noise.tgz.part"
    assert part.read_bytes() == CONTENT[:-1]
    assert error == (
        f"the connection ended after {len(CONTENT) - 1:,} of {len(CONTENT):,} bytes; gave up after 6 attempts without "
        f"progress (what came is kept in {part})"
    )
    site.faults.clear()
    site.requests.clear()
    assert fetch(site, tmp_path).read_bytes() == CONTENT
    assert site.requests == [(PATH, f"bytes={len(CONTENT) - 1}-")]


def test_a_server_without_ranges_is_begun_anew_and_given_up(site: Site, tmp_path: Path, pauses: List[float]) -> None:
    site.faults[PATH] = "half, no ranges"
    assert refused(site, tmp_path).startswith(f"the connection ended after {len(CONTENT) // 2:,} of {len(CONTENT):,} ")
    assert site.asked()[PATH] == 6
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0]
    site.faults.clear()
    assert fetch(site, tmp_path).read_bytes() == CONTENT


def test_a_file_that_changed_on_the_server_is_not_glued_to_the_old_half(site: Site, tmp_path: Path) -> None:
    site.files[PATH] = tar_of({"other": random.Random(2).randbytes(60_000)})
    site.faults[PATH] = "half"
    part = tmp_path / "noise.tgz.part"
    unknown = Archive(PATH, "none")
    refused(site, tmp_path, unknown)
    assert part.exists()
    site.faults.clear()
    site.files[PATH] = CONTENT
    assert fetch(site, tmp_path).read_bytes() == CONTENT


def test_a_part_of_unknown_origin_is_not_used(site: Site, tmp_path: Path) -> None:
    (tmp_path / "noise.tgz.part").write_bytes(b"something" * 10)
    assert fetch(site, tmp_path).read_bytes() == CONTENT
    assert site.requests == [(PATH, "")]


def test_a_part_that_is_longer_than_the_file_is_begun_anew(site: Site, tmp_path: Path) -> None:
    part = tmp_path / "noise.tgz.part"
    part.write_bytes(CONTENT + b"more")
    part.with_name("noise.tgz.part.validator").write_text(f'"{hashlib.md5(CONTENT).hexdigest()}"', encoding="utf-8")
    assert fetch(site, tmp_path).read_bytes() == CONTENT
    assert site.requests == [(PATH, f"bytes={len(CONTENT) + 4}-"), (PATH, "")]


def test_web_pages_are_refused_whatever_they_call_themselves(site: Site, tmp_path: Path) -> None:
    site.faults[PATH] = "page"
    assert refused(site, tmp_path) == "the server sent a web page, not noise.tgz"
    site.faults[PATH] = "disguised"
    assert refused(site, tmp_path) == f"the server has 58 bytes, but noise.tgz has {len(CONTENT):,}"
    unknown = Archive(PATH, "none")
    assert refused(site, tmp_path, unknown) == "not a gzipped archive; it begins with '<!DOCTYPE html>'"
    assert names(tmp_path) == []
    assert site.asked()[PATH] == 3
    site.faults.clear()
    assert fetch(site, tmp_path).read_bytes() == CONTENT


def test_what_is_not_there_is_asked_for_once(site: Site, tmp_path: Path, pauses: List[float]) -> None:
    del site.files[PATH]
    assert refused(site, tmp_path) == "HTTP 404 Not Found"
    assert (site.asked()[PATH], pauses) == (1, [])


def test_a_busy_server_is_asked_again(site: Site, tmp_path: Path, pauses: List[float]) -> None:
    site.faults[PATH] = "busy"
    assert refused(site, tmp_path) == "HTTP 503 Service Unavailable; gave up after 6 attempts without progress"
    site.once.append(PATH)
    pauses.clear()
    assert fetch(site, tmp_path).read_bytes() == CONTENT
    assert pauses == [1.0]


def test_a_server_that_is_not_there_is_named(tmp_path: Path) -> None:
    with serving({}) as gone:
        url = gone.url
    with pytest.raises(CommandError, match=rf"^{url}/{PATH}: .*refused.*; gave up after 6 attempts without progress$"):
        download.fetch(f"{url}/{PATH}", tmp_path / "noise.tgz", ARCHIVE)


@pytest.mark.parametrize(
    ("url", "reason"),
    [("mirror", "unknown url type: 'mirror'"), ("http://[::1/a", "Invalid IPv6 URL")],
)
def test_what_is_no_url_is_refused_at_once(url: str, reason: str, tmp_path: Path, pauses: List[float]) -> None:
    with pytest.raises(CommandError, match=f"^{re.escape(f'{url}: not a URL: {reason}')}$"):
        download.fetch(url, tmp_path / "noise.tgz", ARCHIVE)
    with pytest.raises(CommandError, match="^http://a b: not a URL: URL can't contain control characters"):
        download.fetch("http://a b", tmp_path / "noise.tgz", ARCHIVE)
    assert (names(tmp_path), pauses) == ([], [])


def test_an_error_is_one_line_whatever_the_server_says(site: Site, tmp_path: Path) -> None:
    site.faults[PATH] = "moved"
    assert refused(site, tmp_path) == (
        "HTTP 302 The HTTP server returned a redirect error that would lead to an infinite loop. "
        "The last 30x error message was: Found"
    )


def test_size_and_digest_are_checked(site: Site, tmp_path: Path) -> None:
    longer = Archive(PATH, "none", len(CONTENT) + 1)
    assert (
        refused(site, tmp_path, longer)
        == f"the server has {len(CONTENT):,} bytes, but noise.tgz has {len(CONTENT) + 1:,}"
    )
    for name, function in (("sha256", hashlib.sha256), ("md5", hashlib.md5)):
        other = Archive(PATH, "none", **{name: "0" * 8})
        found = function(CONTENT).hexdigest()
        assert refused(site, tmp_path, other) == f"{name} {found}, but that of noise.tgz is 00000000"
    assert names(tmp_path) == []


def test_a_file_that_lies_there_is_checked_by_the_same_rules(tmp_path: Path) -> None:
    path = tmp_path / "noise.tgz"
    path.write_bytes(CONTENT)
    download.check(path, ARCHIVE)
    path.write_bytes(CONTENT[:-5])
    size = f"^{path}: {len(CONTENT) - 5:,} bytes, but noise.tgz has {len(CONTENT):,}$"
    with pytest.raises(CommandError, match=size):
        download.check(path, ARCHIVE)
    path.write_bytes(b"")
    with pytest.raises(CommandError, match=f"^{path}: not a gzipped archive; it begins with ''$"):
        download.check(path, ARCHIVE)
    plain = Archive("wmt10/plain.tar", "none")
    with pytest.raises(CommandError, match="^x: not a tar archive; it begins with "):
        (tmp_path / "plain.tar").write_bytes(CONTENT)
        download.check(tmp_path / "plain.tar", plain, "x")
    (tmp_path / "plain.tar").write_bytes(tar_of({"a": b"b"}, zipped=False))
    download.check(tmp_path / "plain.tar", plain)
