"""Reading members of an archive: all of them or none, counted lines, and no archive that is cut off."""

from __future__ import annotations

import gzip
import random
from pathlib import Path
from typing import Dict

import pytest
from stand_in import tar_of

from vaswani_plugin.tools.archives import extract
from vaswani_plugin.tools.cli import CommandError

NOISE = random.Random(1).randbytes(200_000)
MEMBERS: Dict[str, bytes] = {
    "a/one.en": "first\nse\u2028cond\r\nthird\x00".encode(),
    "a/one.de": b"1\n2\n3\n",
    "a/noise": NOISE,
    "empty": b"",
}


def write(folder: Path, members: Dict[str, bytes] = MEMBERS, zipped: bool = True) -> Path:
    path = folder / ("x.tgz" if zipped else "x.tar")
    path.write_bytes(tar_of(members, zipped))
    return path


@pytest.mark.parametrize("zipped", [True, False])
def test_members_come_out_byte_for_byte_with_their_lines_counted(zipped: bool, tmp_path: Path) -> None:
    archive = write(tmp_path, zipped=zipped)
    wanted = {name: tmp_path / "out" / str(i) for i, name in enumerate(["a/one.de", "a/one.en", "empty"])}
    assert extract(archive, wanted) == {"a/one.en": 3, "a/one.de": 3, "empty": 0}
    for name, path in wanted.items():
        assert path.read_bytes() == MEMBERS[name]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["0", "1", "2"]


def test_gzipped_members_are_unpacked(tmp_path: Path) -> None:
    archive = write(tmp_path, {"t.en.gz": gzip.compress(b"a\nb\n"), "./t.fr.gz": gzip.compress(b"c\nd")}, zipped=False)
    assert extract(archive, {"t.en.gz": tmp_path / "en", "t.fr.gz": tmp_path / "fr"}) == {"t.en.gz": 2, "t.fr.gz": 2}
    assert ((tmp_path / "en").read_bytes(), (tmp_path / "fr").read_bytes()) == (b"a\nb\n", b"c\nd")


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("share", [0.3, 0.9])
def test_an_archive_that_is_cut_off_gives_nothing(share: float, zipped: bool, tmp_path: Path) -> None:
    archive = write(tmp_path, {"first": b"whole\n", **MEMBERS}, zipped)
    content = archive.read_bytes()
    archive.write_bytes(content[: int(share * len(content))])
    wanted = {"first": tmp_path / "first", "a/noise": tmp_path / "noise"}
    with pytest.raises(CommandError, match=f"^{archive}: cut off or damaged: "):
        extract(archive, wanted)
    assert [path.name for path in tmp_path.iterdir()] == [archive.name]
    archive.write_bytes(content)
    assert extract(archive, wanted)["first"] == 1


def test_a_gzipped_archive_is_read_to_its_checksum(tmp_path: Path) -> None:
    archive = write(tmp_path)
    content = bytearray(archive.read_bytes())
    content[-6] ^= 1  # of the length and checksum that end it
    archive.write_bytes(bytes(content))
    with pytest.raises(CommandError, match=f"^{archive}: cut off or damaged: "):
        extract(archive, {"a/one.de": tmp_path / "de"})
    assert not (tmp_path / "de").exists()


def test_what_is_no_archive_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.tgz").write_bytes(b"<html>" * 200)
    with pytest.raises(CommandError, match=f"^{tmp_path / 'x.tgz'}: cut off or damaged: "):
        extract(tmp_path / "x.tgz", {"a": tmp_path / "a"})


def test_a_missing_member_is_named_and_the_others_are_not_left(tmp_path: Path) -> None:
    archive = write(tmp_path)
    with pytest.raises(CommandError, match=f"^{archive}: no member a/two.de, a$"):
        extract(archive, {"a/one.de": tmp_path / "de", "a/two.de": tmp_path / "two", "a": tmp_path / "a"})
    assert [path.name for path in tmp_path.iterdir()] == ["x.tgz"]
