"""Runs the workers of a training on one machine: their output in one stream, their end as one.

A worker that fails ends the others within ``LINGER_SECONDS``, and its reason is the error. A signal asks the workers to
save and end.

Differs from: ``torchrun``, which gives workers 30 seconds to end after SIGTERM, too few for a large checkpoint on a
slow disk, and does not hand on SIGUSR1.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass
from types import FrameType
from typing import IO, Deque, Dict, Iterator, List, Optional, Sequence

from vaswani_plugin.preemption import SAVED_STATUS
from vaswani_plugin.tools.cli import CommandError

#: How long the other workers may go on when one has failed: long enough to finish a line, too short to hang.
LINGER_SECONDS = 10.0

#: How much of a worker's last line is repeated as its reason; a wrong ``--arch`` makes the toolkit list them all.
MOST_LETTERS = 300

#: What asks for saving and ending; a second Ctrl-C ends at once.
_SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)


@dataclass(frozen=True)
class Command:
    """What a worker is started with: its rank among all workers, its words, and variables beside ours."""

    rank: int
    words: Sequence[str]
    variables: Dict[str, str]


class _Worker:
    """A started worker and the thread that passes on its output."""

    def __init__(self, command: Command, prefix: str, log: IO[str]) -> None:
        self.rank = command.rank
        self.process = subprocess.Popen(
            command.words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **command.variables},
            start_new_session=True,  # a terminal's Ctrl-C is for us alone
            text=True,
            encoding="utf-8",
            errors="replace",
        )
        self.last_words: Deque[str] = deque(maxlen=1)
        self._reader = threading.Thread(target=self._pass_on, args=(prefix, log), daemon=True)
        self._reader.start()

    def _pass_on(self, prefix: str, log: IO[str]) -> None:
        assert self.process.stdout is not None  # it was asked for
        for line in self.process.stdout:
            if line.strip():
                self.last_words.append(line.strip())
            for stream in (sys.stdout, log):
                with contextlib.suppress(OSError, ValueError):  # a full disk or a closed pipe must not stop the reading
                    stream.write(prefix + line)
                    stream.flush()

    @property
    def status(self) -> Optional[int]:
        """The exit status, minus the number of the signal that ended it, or None while it runs."""
        return self.process.poll()

    def send(self, number: int) -> None:
        """Send a signal to the worker, or SIGKILL to everything that it has started as well."""
        with contextlib.suppress(ProcessLookupError):
            if number == signal.SIGKILL:
                os.killpg(self.process.pid, number)
            elif self.status is None:
                self.process.send_signal(number)

    def finish(self) -> None:
        """Wait until it has ended and its output is passed on; end what it left behind."""
        self.process.wait()
        self._reader.join(timeout=2)  # longer only where something that it started keeps the pipe open
        self.send(signal.SIGKILL)

    def reason(self) -> str:
        """Why it ended, with the last line that it printed."""
        status = self.status or 0
        if status < 0:
            how = f"was ended by {signal.Signals(-status).name}"
            return how + (" (out of memory?)" if -status == signal.SIGKILL else "")
        words = self.last_words[0] if self.last_words else ""
        words = words if len(words) <= MOST_LETTERS else f"{words[:MOST_LETTERS]} ..."
        return f"ended with status {status}" + (f": {words}" if words else "")


class _Requests:
    """Counts the signals that ask for an end."""

    def __init__(self) -> None:
        self.count = 0
        self.interrupts = 0

    def note(self, number: int, frame: Optional[FrameType]) -> None:
        self.count += 1
        self.interrupts += number == signal.SIGINT


@contextlib.contextmanager
def _noting_signals() -> Iterator[_Requests]:
    requests = _Requests()
    before = {number: signal.signal(number, requests.note) for number in _SIGNALS}
    try:
        yield requests
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def supervise(commands: Sequence[Command], n_workers: int, log: IO[str], grace_seconds: float) -> int:
    """Run the workers to their end.

    Args:
        commands: the workers on this machine.
        n_workers: how many there are on all machines, for messages.
        log: gets what the workers print, beside our standard output.
        grace_seconds: how long the workers may take to save once they are asked to.

    Returns:
        0 when the training is complete, ``SAVED_STATUS`` when it was asked to stop and can go on later.

    Raises:
        CommandError: a worker failed, with its reason.
        KeyboardInterrupt: a second Ctrl-C.
    """
    with _noting_signals() as requests:
        workers: List[_Worker] = []
        try:
            for command in commands:
                workers.append(_Worker(command, f"[worker {command.rank}] " if command.rank else "", log))
            return _watch(workers, n_workers, requests, grace_seconds)
        finally:
            for worker in workers:
                worker.send(signal.SIGKILL)
                worker.finish()


def _failed(worker: _Worker, asked: bool) -> bool:
    by_request = asked and worker.status == -signal.SIGTERM  # before it could note the signal: nothing to save yet
    return worker.status not in (None, 0, SAVED_STATUS) and not by_request


def _watch(workers: List[_Worker], n_workers: int, requests: _Requests, grace_seconds: float) -> int:
    deadline: Optional[float] = None
    asked = False
    while any(worker.status is None for worker in workers):
        if requests.interrupts > 1:
            raise KeyboardInterrupt
        if requests.count and not asked:
            asked, deadline = True, time.monotonic() + grace_seconds
            print("vaswani-train: asked to stop: saving first", file=sys.stderr, flush=True)
            for worker in workers:
                worker.send(signal.SIGTERM)
        if any(_failed(worker, asked) for worker in workers):
            limit = time.monotonic() + LINGER_SECONDS
            deadline = limit if deadline is None else min(deadline, limit)
            return _after_failure(workers, n_workers, asked, deadline)
        if deadline is not None and time.monotonic() > deadline:
            raise CommandError(f"the workers did not save within {grace_seconds:g} s; the last checkpoint stays")
        time.sleep(0.1)
    if any(_failed(worker, asked) for worker in workers):
        return _after_failure(workers, n_workers, asked, time.monotonic())
    return 0 if all(worker.status == 0 for worker in workers) else SAVED_STATUS


def _after_failure(workers: List[_Worker], n_workers: int, asked: bool, deadline: float) -> int:
    """Let the other workers end by themselves until the deadline; then say who failed and why."""
    while any(worker.status is None for worker in workers) and time.monotonic() < deadline:
        time.sleep(0.1)
    failed = [worker for worker in workers if _failed(worker, asked)]
    for worker in failed:
        worker.finish()
    reasons = "; ".join(f"worker {worker.rank} of {n_workers} {worker.reason()}" for worker in failed)
    raise CommandError(reasons)
