"""Read members of an archive, and the archive to its last byte, so that one that is cut off is not taken for whole."""

from __future__ import annotations

import contextlib
import gzip
import tarfile
import zlib
from pathlib import Path
from typing import IO, Any, Dict, Iterator, Mapping

from vaswani_plugin.tools.cli import CommandError, atomic_path, byte_progress, joined

BLOCK_BYTES = 1 << 20


class ArchiveError(CommandError):
    """An archive is not what it should be."""


def extract(archive: Path, wanted: Mapping[str, Path]) -> Dict[str, int]:
    """Write members of a tar archive to files that appear only when all of them are complete.

    Args:
        archive: a ``.tar``, or one that is gzipped.
        wanted: path within the archive to the file to write; a member that ends in ``.gz`` is decompressed.

    Returns:
        The lines of each member, in the order of ``wanted``: those that end at ``\\n`` and a last one without it.

    Raises:
        ArchiveError: the archive is cut off or damaged, or lacks a member; names both.
    """
    lines: Dict[str, int] = {}
    with contextlib.ExitStack() as stack:
        partial = {name: stack.enter_context(atomic_path(path)) for name, path in wanted.items()}
        try:
            for name, content in _members(archive, wanted):
                lines[name] = _copy(content, partial[name])
        except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise ArchiveError(f"{archive}: cut off or damaged: {error}") from error
        missing = [name for name in wanted if name not in lines]
        if missing:
            raise ArchiveError(f"{archive}: no member {joined(missing)}")
    return {name: lines[name] for name in wanted}


def _members(archive: Path, wanted: Mapping[str, Path]) -> Iterator[Any]:
    """Yield (name, content) of the wanted members in the order of the archive, then read what follows the last one."""
    with open(archive, "rb") as raw:
        with byte_progress(archive.name, archive.stat().st_size) as bar:
            counted: Any = _Counted(raw, bar)
            zipped = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            stream: Any = gzip.GzipFile(fileobj=counted, mode="rb") if zipped else counted
            with tarfile.open(fileobj=stream, mode="r|") as tar:
                for member in tar:
                    name = member.name[2:] if member.name.startswith("./") else member.name
                    if name in wanted and member.isfile():
                        content: Any = tar.extractfile(member)
                        yield name, gzip.GzipFile(fileobj=content, mode="rb") if name.endswith(".gz") else content
            while stream.read(BLOCK_BYTES):  # the checksum of a gzipped archive stands at its very end
                pass


class _Counted:
    """A file whose reading moves a progress bar."""

    def __init__(self, raw: IO[bytes], bar: Any) -> None:
        self._raw = raw
        self._bar = bar

    def read(self, size: int = -1) -> bytes:
        block = self._raw.read(size)
        self._bar.update(len(block))
        return block


def _copy(content: Any, path: Path) -> int:
    """Copy a member to a file; returns its number of lines."""
    lines, last = 0, b"\n"
    with open(path, "wb") as handle:
        for block in iter(lambda: content.read(BLOCK_BYTES), b""):
            handle.write(block)
            lines += block.count(b"\n")
            last = block[-1:]
    return lines + (last != b"\n")
