"""What the benchmarks share: systems in processes of their own, which answer a line with a line."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, Iterator, List

from vaswani_plugin.tools.cli import CommandError


@dataclass
class Worker:
    """A system's process.

    Fields:
        name: what messages call the system.
        runs: its answers.
    """

    name: str
    process: subprocess.Popen[str]
    runs: List[Dict[str, Any]] = field(default_factory=list)

    def ask(self, line: str) -> Dict[str, Any]:
        """Send a line and wait for the answer.

        Raises:
            CommandError: the system fails; says how.
        """
        stdin, stdout, answer = self.process.stdin, self.process.stdout, ""
        if stdin is not None and stdout is not None:
            with contextlib.suppress(BrokenPipeError):
                stdin.write(line + "\n")
                stdin.flush()
            answer = stdout.readline()
        if not answer:
            raise CommandError(f"{self.name} ended with status {self.process.wait()}")
        content: Dict[str, Any] = json.loads(answer)
        if "error" in content:
            raise CommandError(f"{self.name} fails: {content['error']}")
        return content


def note(text: str) -> None:
    """Tell on stderr how far things are."""
    print(f"vaswani-benchmark: {text}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def started(name: str, script: Path, threads: int, gpus: bool = False) -> Iterator[Worker]:
    """A process that runs a file of this package and is about to load a system.

    Args:
        gpus: let it see them.
    """
    path = os.pathsep.join(filter(None, [str(script.parents[2]), os.environ.get("PYTHONPATH")]))
    env = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": str(threads)}
    if not gpus:
        env["CUDA_VISIBLE_DEVICES"] = ""
    process = subprocess.Popen(
        [sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
    )
    try:
        yield Worker(name, process)
    finally:
        process.kill()
        process.communicate()
