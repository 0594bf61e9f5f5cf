"""What the commands share: one-line errors, lines that end at ``\\n`` only, files that appear whole or not at all."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple, TypeVar, Union

PathLike = Union[str, Path]
Item = TypeVar("Item")


class CommandError(Exception):
    """A mistake in what the user gave; its text is all that the user needs to see."""


def run_command(name: str, body: Callable[[], None]) -> int:
    """Run ``body`` and turn an expected failure into one line on stderr.

    Args:
        name: the command's name, put before the message.
        body: does the work; raises ``CommandError`` or ``OSError`` for what the user can mend.

    Returns:
        The exit status: 0, 1 after a failure, 130 after Ctrl-C, 143 after SIGTERM; what was half-made is removed after
        either. Any other exception passes, since it is our bug.
    """
    try:
        with _raising_on_sigterm():
            body()
    except (CommandError, OSError) as error:
        print(f"{name}: error: {error}", file=sys.stderr)
        return 1
    except (KeyboardInterrupt, _Terminated) as stop:
        print(f"{name}: interrupted", file=sys.stderr)
        return 143 if isinstance(stop, _Terminated) else 130
    return 0


class _Terminated(BaseException):
    """SIGTERM arrived."""


@contextlib.contextmanager
def _raising_on_sigterm() -> Iterator[None]:
    """Make SIGTERM an exception meanwhile, so that temporary files are removed and child processes ended."""
    if threading.current_thread() is not threading.main_thread():  # only that one may set handlers
        yield
        return

    def stop(number: int, frame: object) -> None:
        raise _Terminated

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before if before is not None else signal.SIG_DFL)


def read_lines(path: PathLike) -> Iterator[str]:
    """Yield the lines of a UTF-8 file, split at ``\\n`` and nowhere else, without that ``\\n``.

    Differs from ``str.splitlines`` and from text mode's default, which also split at carriage returns, form feeds
    and U+2028, and so make parallel files drift apart.

    Raises:
        CommandError: the file is missing, is not UTF-8 (names the line), or is a folder or a pipe, which cannot be read
            twice.
    """
    check_file(path)
    with open(path, "rb") as handle:
        for number, line in enumerate(handle, start=1):
            try:
                text = line.decode("utf-8")
            except UnicodeDecodeError as error:
                gzipped = number == 1 and line.startswith(b"\x1f\x8b")
                reason = "it is gzipped" if gzipped else f"{error.reason} in line {number:,}"
                raise CommandError(f"{path}: not UTF-8: {reason}") from error
            yield text[:-1] if text.endswith("\n") else text


def check_file(path: PathLike) -> None:
    """Refuse a file that is missing, and a folder or a pipe, which cannot be read twice.

    Raises:
        CommandError: it is one of these.
    """
    if not Path(path).is_file():
        raise CommandError(f"{path}: not a regular file" if os.path.lexists(path) else f"{path}: no such file")


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

    Raises:
        CommandError: there is a folder under that name or no folder can be made for it, or the disk is full.
    """
    final = Path(path)
    if final.is_dir():
        raise CommandError(f"{path}: is a folder, not a file to write")
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CommandError(f"{path}: its folder cannot be made: {error.strerror}") from error
    partial = final.with_name(f".{final.name}.{os.getpid()}.partial")
    try:
        yield partial
        os.replace(partial, final)
    except OSError as error:
        if error.filename is not None:  # it says for itself which file it is about
            raise
        raise CommandError(f"{path}: cannot be written: {error.strerror or error}") from error
    finally:
        with contextlib.suppress(FileNotFoundError):
            partial.unlink()


def save_checkpoint(state: Mapping[str, Any], path: PathLike) -> None:
    """Write a checkpoint with ``torch.save``, whole or not at all.

    Raises:
        CommandError: it cannot be written, for instance because the disk is full.
    """
    import torch

    with atomic_path(path) as partial, open(partial, "wb") as handle:
        try:
            torch.save(state, handle)
        except RuntimeError as error:  # torch wraps what the file said
            reason = error.__context__.strerror if isinstance(error.__context__, OSError) else error
            raise CommandError(f"{path}: cannot be written: {reason}") from error


def refuse_overwriting(output: PathLike, inputs: Iterable[PathLike]) -> None:
    """Refuse an output that is one of the files to read, however it is spelled.

    Raises:
        CommandError: it is one.
    """
    if os.path.realpath(output) in {os.path.realpath(path) for path in inputs}:
        raise CommandError(f"{output}: is one of the files to read; give what is made another name")


def progress(items: Any, description: str, total: Optional[int] = None, unit: str = "line") -> Any:
    """Wrap an iterable so that its progress shows on stderr; every five seconds where that is no terminal."""
    from tqdm import tqdm

    interval = 0.2 if sys.stderr.isatty() else 5.0
    return tqdm(items, desc=description, total=total, unit=unit, mininterval=interval, file=sys.stderr)


def chunk_progress(
    chunks: Iterable[Item], description: str, length: Callable[[Item], int], unit: str = "line"
) -> Iterator[Item]:
    """Yield chunks while a bar counts what is in them; ``length`` says how much that is."""
    from tqdm import tqdm

    interval = 0.2 if sys.stderr.isatty() else 5.0
    with tqdm(desc=description, unit=unit, mininterval=interval, file=sys.stderr) as bar:
        for chunk in chunks:
            yield chunk
            bar.update(length(chunk))


def byte_progress(description: str, total: Optional[int], initial: int = 0) -> Any:
    """Return a bar to ``update`` with numbers of bytes, of which ``initial`` were there before."""
    from tqdm import tqdm

    interval = 0.2 if sys.stderr.isatty() else 5.0
    scale: Any = {"unit": "B", "unit_scale": True, "unit_divisor": 1024}
    return tqdm(desc=description, total=total, initial=initial, mininterval=interval, file=sys.stderr, **scale)


def help_texts(doc: Optional[str]) -> Tuple[str, str]:
    """The first paragraph of a module's docstring and the rest, for ``--help``: without its double backticks."""
    first, _, rest = (doc or "").replace("``", "").partition("\n\n")
    return first, rest.strip()


def split_at_dashes(words: Sequence[str]) -> Tuple[List[str], List[str]]:
    """Return the words before the first ``--`` and those after it."""
    at = list(words).index("--") if "--" in words else len(words)
    return list(words[:at]), list(words[at + 1 :])


@contextlib.contextmanager
def alone(lock: Path, refusal: str) -> Iterator[None]:
    """Keep a second process out meanwhile, where the file system knows locks.

    Args:
        lock: a file to lock; its folder is made when it is missing.
        refusal: what a second process is told.

    Raises:
        CommandError: there is another process.
    """
    lock.parent.mkdir(parents=True, exist_ok=True)
    with open(lock, "a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise CommandError(refusal) from error
        except OSError:  # a file system without locks
            pass
        yield


def positive(text: str) -> int:
    """Parse a whole number above 0, for an option."""
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"must be a whole number above 0, not {text!r}")
    return int(text)


def names_among(known: Iterable[str]) -> Callable[[str], List[str]]:
    """Return what parses names of systems between commas, for an option."""
    there = list(known)

    def parse(text: str) -> List[str]:
        names = text.split(",")
        unknown = [name for name in names if name not in there]
        if unknown:
            raise argparse.ArgumentTypeError(f"no system is called {joined(unknown)}; there are {', '.join(there)}")
        return names

    return parse


def plural(count: int, noun: str) -> str:
    """Return ``count`` and ``noun``, with an s where there is not exactly one."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def joined(names: Sequence[Any], limit: int = 5) -> str:
    """Return names for an error message: the first ``limit``, and how many more there are."""
    shown = ", ".join(str(name) for name in names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"
