"""What the commands share: one-line errors, lines that end at ``\\n`` only, files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
from pathlib import Path
from typing import Any, Callable, Iterator, Optional, Sequence, Union

PathLike = Union[str, Path]


class CommandError(Exception):
    """A mistake in what the user gave; its text is all that the user needs to see."""


def run_command(name: str, body: Callable[[], None]) -> int:
    """Run ``body`` and turn an expected failure into one line on stderr.

    Args:
        name: the command's name, put before the message.
        body: does the work; raises ``CommandError`` or ``OSError`` for what the user can mend.

    Returns:
        The exit status: 0, or 1 after a failure. Any other exception passes, since it is our bug.
    """
    try:
        body()
    except (CommandError, OSError) as error:
        print(f"{name}: error: {error}", file=sys.stderr)
        return 1
    return 0


def read_lines(path: PathLike) -> Iterator[str]:
    """Yield the lines of a UTF-8 file, split at ``\\n`` and nowhere else, without that ``\\n``.

    Differs from ``str.splitlines`` and from text mode's default, which also split at carriage returns, form feeds
    and U+2028, and so make parallel files drift apart.

    Raises:
        CommandError: the file is missing or is not UTF-8.
    """
    if not Path(path).is_file():
        raise CommandError(f"{path}: no such file")
    with open(path, encoding="utf-8", newline="\n") as handle:
        try:
            for line in handle:
                yield line[:-1] if line.endswith("\n") else line
        except UnicodeDecodeError as error:
            raise CommandError(f"{path}: not UTF-8: {error.reason}") from error


def sha256_of(path: PathLike) -> str:
    """Return the SHA-256 of a file's bytes as hex digits, reading it in pieces of 1 MiB."""
    digest = hashlib.sha256()
    with open(path, "rb") as handle:
        for block in iter(lambda: handle.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


@contextlib.contextmanager
def atomic_path(path: PathLike) -> Iterator[Path]:
    """Yield a temporary name beside ``path`` and give the file its name only when the block ends well.

    The folder is made when it is missing. After a failure nothing is left under either name that was not there before.
    """
    final = Path(path)
    final.parent.mkdir(parents=True, exist_ok=True)
    partial = final.with_name(f".{final.name}.{os.getpid()}.partial")
    try:
        yield partial
        os.replace(partial, final)
    finally:
        with contextlib.suppress(FileNotFoundError):
            partial.unlink()


def progress(items: Any, description: str, total: Optional[int] = None, unit: str = "line") -> Any:
    """Wrap an iterable so that its progress shows on stderr; every five seconds where that is no terminal."""
    from tqdm import tqdm

    interval = 0.2 if sys.stderr.isatty() else 5.0
    return tqdm(items, desc=description, total=total, unit=unit, mininterval=interval, file=sys.stderr)


def plural(count: int, noun: str) -> str:
    """Return ``count`` and ``noun``, with an s where there is not exactly one."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def joined(names: Sequence[Any], limit: int = 5) -> str:
    """Return names for an error message: the first ``limit``, and how many more there are."""
    shown = ", ".join(str(name) for name in names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"
