"""Work on chunks of text with all cores, in order, with memory that does not grow with the text."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections import deque
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import chain, islice
from pathlib import Path
from typing import Callable, Deque, Iterable, Iterator, List, TypeVar

from vaswani_plugin.tools.cli import CommandError, atomic_path, chunk_progress

CHUNK_LINES = 4_096
Item = TypeVar("Item")
Result = TypeVar("Result")


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def ordered_map(function: Callable[[Item], Result], items: Iterable[Item], workers: int) -> Iterator[Result]:
    """Yield ``function(item)`` for each item, in order; at most two items a worker are under way.

    Args:
        function: what the workers do; it and its results must survive pickling.
        items: read only as far as needed.
        workers: processes; with one, or a single item, all is done in this process.

    Raises:
        CommandError: a worker died, for instance because memory ran out.
    """
    iterator = iter(items)
    first = list(islice(iterator, 2))
    if workers == 1 or len(first) < 2:
        yield from map(function, chain(first, iterator))
        return
    # Starting from scratch would import everything anew in each worker.
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    pool = ProcessPoolExecutor(workers, context, _leave_signals_to_the_parent)
    waiting: Deque[Future[Result]] = deque()
    try:
        for item in chain(first, iterator):
            waiting.append(pool.submit(function, item))
            if len(waiting) >= 2 * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool as error:
        raise CommandError("a worker process died; is there enough memory for --workers?") from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _leave_signals_to_the_parent() -> None:
    """Let Ctrl-C be the parent's affair, and SIGTERM end a worker at once."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def map_lines(function: Callable[[List[bytes]], bytes], source: Path, target: Path, workers: int, doing: str) -> None:
    """Write what ``function`` makes of each chunk of lines; ``target`` appears only when all is done.

    Args:
        function: takes lines without their ``\\n`` and returns as many, each with it.
        source: the file to read, split at ``\\n`` only.
        target: the file to write.
        workers: processes.
        doing: what the progress bar says.

    Raises:
        CommandError: the disk is full, or a worker died.
    """
    with open(source, "rb") as handle, atomic_path(target) as partial, open(partial, "wb") as sink:
        chunks = chunk_progress(line_chunks(handle), doing, len)
        sink.writelines(ordered_map(function, chunks, workers))


def line_chunks(lines: Iterable[bytes]) -> Iterator[List[bytes]]:
    """Yield lists of ``CHUNK_LINES`` lines, without their ``\\n``; the last list may be shorter."""
    iterator = iter(lines)
    while True:
        chunk = [line[:-1] if line.endswith(b"\n") else line for line in islice(iterator, CHUNK_LINES)]
        if not chunk:
            return
        yield chunk
