"""The supervisor with workers that are a few lines of Python each."""

from __future__ import annotations

import io
import os
import re
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Callable, List

import pytest

from vaswani_plugin.tools import supervisor
from vaswani_plugin.tools.cli import CommandError
from vaswani_plugin.tools.supervisor import Command, supervise

SAVES = """
import os, signal, sys, time
def save(number, frame):
    print("saved", os.environ["RANK"], flush=True)
    sys.exit(75)
signal.signal(signal.SIGTERM, save)
"""
WAITS = "import time\nprint('ready', flush=True)\ntime.sleep(600)\n"


def commands(*codes: str) -> List[Command]:
    """Workers that run these programs; each starts in about 20 ms."""
    return [
        Command(rank, [sys.executable, "-S", "-c", code], {"RANK": str(rank)}) for rank, code in enumerate(codes)
    ]  # fmt: skip


def run(*codes: str, grace: float = 60, n_workers: int = 0) -> tuple[int, str]:
    log = io.StringIO()
    return supervise(commands(*codes), n_workers or len(codes), log, grace), log.getvalue()


def when_ready(log: io.StringIO, n_workers: int, act: Callable[[], None]) -> threading.Thread:
    """Act as soon as so many workers have printed "ready"."""

    def wait() -> None:
        while log.getvalue().count("ready") < n_workers:
            time.sleep(0.01)
        act()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


def test_all_workers_end_well_and_their_output_is_one_stream(capsys: pytest.CaptureFixture[str]) -> None:
    code = "import os, sys\nprint('out', os.environ['RANK'], flush=True)\nprint('err', file=sys.stderr)"
    status, log = run(code, code)
    assert status == 0
    assert sorted(log.splitlines()) == ["[worker 1] err", "[worker 1] out 1", "err", "out 0"]
    assert sorted(capsys.readouterr().out.splitlines()) == sorted(log.splitlines())


def test_a_failing_worker_ends_the_others_with_its_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(supervisor, "LINGER_SECONDS", 0.3)
    stays = f"import os\nopen({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\n{WAITS}"
    fails = f"import os, time\nwhile not os.path.exists({str(tmp_path / 'pid')!r}): time.sleep(0.01)\n"
    with pytest.raises(CommandError, match="^worker 1 of 2 ended with status 3: ValueError: boom$"):
        run(stays, fails + "print('ValueError: boom\\n\\n')\nraise SystemExit(3)")
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_a_very_long_last_line_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "MOST_LETTERS", 20)
    with pytest.raises(CommandError, match=r"^worker 0 of 1 ended with status 2: error: a012345678901 \.\.\.$"):
        run("print('error: a' + 30 * '0123456789')\nraise SystemExit(2)")
    with pytest.raises(CommandError, match=r"^worker 0 of 1 ended with status 2: error: a012345678901$"):
        run("print('error: a012345678901')\nraise SystemExit(2)")


def test_a_worker_that_the_system_kills_is_named() -> None:
    kills = "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)"
    with pytest.raises(CommandError, match=re.escape("worker 0 of 4 was ended by SIGKILL (out of memory?)")):
        run(kills, n_workers=4)
    with pytest.raises(CommandError, match="^worker 0 of 1 was ended by SIGABRT$"):
        run("import os\nos.abort()")


def test_what_a_worker_started_ends_with_it(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys\n"
        f"child = subprocess.Popen([sys.executable, '-S', '-c', {WAITS!r}], stdout=subprocess.DEVNULL)\n"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(child.pid))\nraise SystemExit(1)"
    )
    with pytest.raises(CommandError, match="^worker 0 of 1 ended with status 1$"):
        run(code)
    stat = Path(f"/proc/{(tmp_path / 'pid').read_text()}/stat")
    deadline = time.monotonic() + 60
    while stat.exists() and stat.read_text().rsplit(")", 1)[1].split()[0] != "Z" and time.monotonic() < deadline:
        time.sleep(0.01)  # whoever adopts it has to take note of its end
    assert not stat.exists() or stat.read_text().rsplit(")", 1)[1].split()[0] == "Z"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT])
def test_a_signal_asks_every_worker_to_save(number: signal.Signals, capsys: pytest.CaptureFixture[str]) -> None:
    log, before = io.StringIO(), signal.getsignal(number)
    thread = when_ready(log, 2, lambda: os.kill(os.getpid(), number))
    assert supervise(commands(SAVES + WAITS, SAVES + WAITS), 2, log, 60) == 75
    thread.join()
    assert "saved 0\n" in log.getvalue()
    assert "[worker 1] saved 1\n" in log.getvalue()
    assert capsys.readouterr().err == "vaswani-train: asked to stop: saving first\n"
    assert signal.getsignal(number) == before


def test_a_worker_that_has_nothing_to_save_yet_is_no_failure() -> None:
    log = io.StringIO()
    when_ready(log, 1, lambda: os.kill(os.getpid(), signal.SIGTERM))
    assert supervise(commands(WAITS), 1, log, 60) == 75


def test_a_worker_that_fails_while_saving_is_a_failure() -> None:
    log = io.StringIO()
    when_ready(log, 1, lambda: os.kill(os.getpid(), signal.SIGTERM))
    full = SAVES.replace("sys.exit(75)", "print('No space left'); sys.exit(1)")
    with pytest.raises(CommandError, match="^worker 0 of 1 ended with status 1: No space left$"):
        supervise(commands(full + WAITS), 1, log, 60)


def test_workers_that_do_not_save_in_time_are_ended() -> None:
    log = io.StringIO()
    when_ready(log, 1, lambda: os.kill(os.getpid(), signal.SIGTERM))
    deaf = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + WAITS
    with pytest.raises(CommandError, match=r"^the workers did not save within 0\.2 s; the last checkpoint stays$"):
        supervise(commands(deaf), 1, log, 0.2)


def test_a_second_interrupt_does_not_wait(capsys: pytest.CaptureFixture[str]) -> None:
    log = io.StringIO()

    def twice() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGINT)

    when_ready(log, 1, twice)
    deaf = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + WAITS
    with pytest.raises(KeyboardInterrupt):
        supervise(commands(deaf), 1, log, 600)
