"""Download large files so that what gets its name is whole and right, and what is cut off goes on where it stopped.

A file grows as ``NAME.part`` beside its place; ``NAME.part.validator`` holds the server's ETag or date, so that a file
that was replaced on the server meanwhile is begun anew instead of being glued to the old half. Only a file that passed
every check gets its name. Pooch, which one would otherwise use, always begins at the first byte, and these archives
hold gigabytes.
"""

from __future__ import annotations

import hashlib
import http.client
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Optional

from vaswani_plugin.tools.cli import CommandError, byte_progress
from vaswani_plugin.tools.wmt14 import Archive

ATTEMPTS = 6  # in a row without a new byte
FIRST_PAUSE_SECONDS = 1.0  # doubled after each attempt
TIMEOUT_SECONDS = 60.0  # without a byte
BLOCK_BYTES = 1 << 18
_TRANSIENT = {408, 425, 429, 500, 502, 503, 504}


class _Interrupted(Exception):
    """The connection failed in a way that trying again may mend."""


def fetch(url: str, path: Path, archive: Archive) -> None:
    """Download ``url`` to ``path``, going on with what an earlier attempt left, and check it.

    Raises:
        CommandError: the server has no such file or keeps failing, or what it sent is not the archive; names the URL.
    """
    part = path.with_name(path.name + ".part")
    path.parent.mkdir(parents=True, exist_ok=True)
    pause, failures = FIRST_PAUSE_SECONDS, 0
    while True:
        before = _size(part)
        try:
            _attempt(url, part, archive)
            break
        except _Interrupted as error:
            failures = 1 if _size(part) > before else failures + 1
            if failures >= ATTEMPTS:
                kept = f" (what came is kept in {part})" if part.exists() else ""
                raise CommandError(
                    f"{url}: {error}; gave up after {ATTEMPTS} attempts without progress{kept}"
                ) from error
            time.sleep(pause if failures > 1 else FIRST_PAUSE_SECONDS)
            pause = min(2 * pause, 60.0)
    try:
        check(part, archive, url)
    except CommandError:
        _discard(part)
        raise
    part.replace(path)
    _validator(part).unlink(missing_ok=True)


def check(path: Path, archive: Archive, label: Optional[str] = None) -> None:
    """Refuse a file that is not the archive: by its first bytes, its size, and its digest where one is known.

    Args:
        path: the file.
        archive: what is known about it.
        label: how an error names it; the path by default.

    Raises:
        CommandError: it differs.
    """
    label = label or str(path)
    with open(path, "rb") as handle:
        head = handle.read(512)
    is_tar, is_gzip = head[257:262] == b"ustar", head[:2] == b"\x1f\x8b"
    if not (is_tar if archive.name.endswith(".tar") else is_gzip):
        start = head[:40].decode("ascii", "replace").split("\n")[0]
        kind = "tar archive" if archive.name.endswith(".tar") else "gzipped archive"
        raise CommandError(f"{label}: not a {kind}; it begins with {start!r}")
    size = path.stat().st_size
    if archive.size is not None and size != archive.size:
        raise CommandError(f"{label}: {size:,} bytes, but {archive.name} has {archive.size:,}")
    for name, expected in (("sha256", archive.sha256), ("md5", archive.md5)):
        if expected is not None:
            found = _digest(path, name)
            if found != expected:
                raise CommandError(f"{label}: {name} {found}, but that of {archive.name} is {expected}")


def _attempt(url: str, part: Path, archive: Archive) -> None:
    """Get what is missing; returns when the file has the length that the server gave."""
    offset = _size(part)
    validator = _validator(part)
    known = validator.read_text(encoding="utf-8") if validator.exists() else ""
    if offset and not known:  # nothing says that the server still has the same file
        _discard(part)
        offset = 0
    headers = {"User-Agent": "vaswani-prepare", "Accept-Encoding": "identity"}
    if offset:
        headers.update({"Range": f"bytes={offset}-", "If-Range": known})
    try:
        request = urllib.request.Request(url, headers=headers)
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:
            _receive(url, response, part, offset, archive)
    except urllib.error.HTTPError as error:
        if error.code == 416:  # it asks for what lies beyond the end
            _discard(part)
            raise _Interrupted("the server's file is shorter than what was there") from error
        if error.code in _TRANSIENT:
            raise _Interrupted(f"HTTP {error.code} {error.reason}") from error
        raise CommandError(f"{url}: HTTP {error.code} {_one_line(error.reason)}") from error
    except urllib.error.URLError as error:
        raise _Interrupted(str(error.reason)) from error
    except (ValueError, http.client.InvalidURL) as error:
        raise CommandError(f"{url}: not a URL: {error}") from error
    except (http.client.HTTPException, ConnectionError, TimeoutError) as error:
        raise _Interrupted(_one_line(error) or type(error).__name__) from error


def _receive(url: str, response: Any, part: Path, offset: int, archive: Archive) -> None:
    """Append the body of a response, or begin anew where the server sent the whole file."""
    if response.status != 206:
        offset = 0
    elif not response.headers.get("Content-Range", "").startswith(f"bytes {offset}-"):
        _discard(part)
        raise _Interrupted(f"the server sent another part than that from byte {offset:,} on")
    length = response.headers.get("Content-Length")
    total = offset + int(length) if length is not None and length.isdigit() else None
    if response.headers.get_content_type() == "text/html":
        raise CommandError(f"{url}: the server sent a web page, not {archive.name}")
    if archive.size is not None and total is not None and total != archive.size:
        raise CommandError(f"{url}: the server has {total:,} bytes, but {archive.name} has {archive.size:,}")
    etag = response.headers.get("ETag") or ""
    validator = etag if etag and not etag.startswith("W/") else response.headers.get("Last-Modified", "")
    _validator(part).write_text(validator, encoding="utf-8")
    with open(part, "ab" if offset else "wb") as handle, byte_progress(archive.name, total, offset) as bar:
        for block in iter(lambda: response.read(BLOCK_BYTES), b""):
            handle.write(block)
            bar.update(len(block))
    if total is not None and _size(part) < total:
        raise _Interrupted(f"the connection ended after {_size(part):,} of {total:,} bytes")


def _one_line(reason: object) -> str:
    return " ".join(str(reason).split())


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _validator(part: Path) -> Path:
    return part.with_name(part.name + ".validator")


def _discard(part: Path) -> None:
    part.unlink(missing_ok=True)
    _validator(part).unlink(missing_ok=True)


def _digest(path: Path, name: str) -> str:
    digest = hashlib.new(name, usedforsecurity=False) if name == "md5" else hashlib.sha256()
    with open(path, "rb") as handle:
        for block in iter(lambda: handle.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()
