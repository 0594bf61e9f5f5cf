"""Runs the toolkit's commands for the tests: quickly from a fork server, or as a fresh process.

Importing torch and the toolkit takes seconds, so by default a command runs in a fork of a server that has imported
both and nothing of ours. ``fresh=True`` starts the installed console script instead, for what depends on start-up.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import random
import runpy
import subprocess
import sys
import sysconfig
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, List, Mapping, Sequence

REPO = Path(__file__).resolve().parents[1]
PLUGIN = REPO / "vaswani_plugin"

COMMANDS = {
    "fairseq-preprocess": "fairseq_cli.preprocess",
    "fairseq-train": "fairseq_cli.train",
    "fairseq-validate": "fairseq_cli.validate",
    "fairseq-generate": "fairseq_cli.generate",
    "fairseq-interactive": "fairseq_cli.interactive",
    "fairseq-hydra-train": "fairseq_cli.hydra_train",
}

# Not the modules of fairseq_cli: importing one sets up logging, which the next one would then keep.
PRELOAD = [
    "torch",
    "torch._dynamo",  # what the first optimizer imports
    "fairseq",
    "fairseq.tasks",
    "fairseq.models",
    "fairseq.criterions",
    "fairseq.trainer",
]

NON_ASCII = ["für", "Straße", "日本", "élan"]

_SERVER = multiprocessing.get_context("forkserver")


@dataclass(frozen=True)
class Result:
    """What a command left: its exit status and its standard output and error in one text."""

    rc: int
    out: str

    def ok(self) -> Result:
        """The result itself; fails the test with the command's output when the status is not 0."""
        if self.rc != 0:
            raise AssertionError(f"exit status {self.rc}\n{self.out}")
        return self

    def lines(self, prefix: str) -> List[str]:
        """The lines that start with ``prefix``, for instance ``"H-"``."""
        return [line for line in self.out.splitlines() if line.startswith(prefix)]


def environment(extra: Mapping[str, str] | None = None) -> Dict[str, str]:
    """This process's environment with one thread and none of torch's switches for unsafe loading."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("TORCH_FORCE_")}
    return {**env, "OMP_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8", "CUDA_VISIBLE_DEVICES": "", **(extra or {})}


def run(
    command: str,
    *args: object,
    stdin: str = "",
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    fresh: bool = False,
    timeout_seconds: float = 300,
) -> Result:
    """Runs one of the toolkit's commands and waits for it.

    Args:
        command: a key of ``COMMANDS``, or ``python``, which takes code and its arguments (as ``python -c`` does).
        stdin: what the command reads from standard input.
        env: variables on top of ``environment()``.
        fresh: start the console script, or the code, in a new interpreter.
    """
    words = [str(arg) for arg in args]
    if fresh:
        return _run_fresh(command, words, stdin, cwd, environment(env), timeout_seconds)
    return _run_forked(command, words, stdin, cwd, environment(env), timeout_seconds)


def _run_fresh(
    command: str, words: Sequence[str], stdin: str, cwd: Path | None, env: Mapping[str, str], timeout_seconds: float
) -> Result:
    if command == "python":
        argv = [sys.executable, "-c", *words]
    else:
        argv = [str(Path(sysconfig.get_path("scripts")) / command), *words]
    done = subprocess.run(
        argv,
        input=stdin.encode("utf-8"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=cwd,
        env=dict(env),
        timeout=timeout_seconds,
        check=False,
    )
    return Result(done.returncode, done.stdout.decode("utf-8", errors="replace"))


def _run_forked(
    command: str, words: Sequence[str], stdin: str, cwd: Path | None, env: Mapping[str, str], timeout_seconds: float
) -> Result:
    with tempfile.TemporaryDirectory() as folder:
        running = Running(command, words, Path(folder), stdin, cwd, env)
        running.child.join(timeout_seconds)
        if running.child.exitcode is None:
            running.kill()
            raise TimeoutError(f"{command} ran for more than {timeout_seconds} s\n{running.out()}")
        return Result(running.child.exitcode, running.out())


class Running:
    """One of the toolkit's commands in the background, in a fork of the server.

    Args:
        folder: for its input and output.
    """

    def __init__(
        self,
        command: str,
        words: Sequence[object],
        folder: Path,
        stdin: str = "",
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        _SERVER.set_forkserver_preload(PRELOAD)
        source, self.sink = folder / "stdin", folder / "stdout"
        source.write_bytes(stdin.encode("utf-8"))
        self.sink.unlink(missing_ok=True)
        arguments = [str(word) for word in words]
        self.child = _SERVER.Process(
            target=_child,
            args=(COMMANDS.get(command), command, arguments, str(source), str(self.sink), cwd, environment(env)),
        )
        self.child.start()

    def out(self) -> str:
        """What it has printed so far."""
        return _text(self.sink)

    def kill(self) -> None:
        """End it with SIGKILL."""
        self.child.kill()
        self.child.join()


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


def _child(
    module: str | None, command: str, words: List[str], source: str, sink: str, cwd: Path | None, env: Dict[str, str]
) -> None:
    """Becomes the command: its streams, its environment, its arguments; then runs the module as a script."""
    os.dup2(os.open(source, os.O_RDONLY), 0)
    out = os.open(sink, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(out, 1)
    os.dup2(out, 2)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", closefd=False, buffering=1)  # noqa: SIM115
    os.environ.clear()
    os.environ.update(env)
    if cwd is not None:
        os.chdir(cwd)
    logging.getLogger().handlers.clear()  # some module of the toolkit sets up logging when it is imported
    multiprocessing.set_start_method("fork", force=True)  # as in a fresh process
    sys.argv = [command, *words]
    if module is None:
        sys.argv = ["-c", *words[1:]]
        exec(compile(words[0], "<code>", "exec"), {"__name__": "__main__"})
    else:
        runpy.run_module(module, run_name="__main__", alter_sys=True)


@dataclass(frozen=True)
class CopyTask:
    """A tiny corpus whose target is its source, as text and as the toolkit's binary data."""

    text: Path
    bin: Path
    lines: List[str]


def make_copy_task(folder: Path, n_lines: int = 203, n_test: int = 13, seed: int = 1) -> CopyTask:
    """Writes ``n_lines`` lines of 1 to 9 words and binarises them; valid and test are the first ``n_test``."""
    rng = random.Random(seed)
    words = [f"w{i}" for i in range(30)] + NON_ASCII
    lines = [" ".join(rng.choices(words, k=rng.randint(1, 9))) for _ in range(n_lines)]
    text, binary = folder / "text", folder / "bin"
    text.mkdir(parents=True)
    for side in ("src", "tgt"):
        (text / f"train.{side}").write_text("".join(line + "\n" for line in lines), encoding="utf-8")
        (text / f"test.{side}").write_text("".join(line + "\n" for line in lines[:n_test]), encoding="utf-8")
    run(
        "fairseq-preprocess", "-s", "src", "-t", "tgt", "--trainpref", text / "train", "--validpref", text / "test",
        "--testpref", text / "test", "--joined-dictionary", "--destdir", binary, "--workers", 1,
    ).ok()  # fmt: skip
    return CopyTask(text, binary, lines)


def tiny_model_args(layers: int = 1, d_model: int = 16, d_ff: int = 32, n_heads: int = 2) -> List[str]:
    """The options that shrink an architecture: both sides alike, one embedding matrix."""
    args = ["--share-all-embeddings"]
    for side in ("encoder", "decoder"):
        args += [f"--{side}-layers", str(layers), f"--{side}-embed-dim", str(d_model)]
        args += [f"--{side}-ffn-embed-dim", str(d_ff), f"--{side}-attention-heads", str(n_heads)]
    return args


def tiny_train_args(data: Path, save_dir: Path, *, arch: str = "vaswani_base", updates: int = 60) -> List[str]:
    """A whole ``fairseq-train`` line for a tiny model with our task, criterion and scheduler on the CPU.

    Options given after these win, as everywhere in argparse.
    """
    return [
        str(data), "--user-dir", str(PLUGIN), "--save-dir", str(save_dir),
        "--task", "vaswani_translation", "--arch", arch, *tiny_model_args(),
        "--criterion", "vaswani_label_smoothed_cross_entropy", "--label-smoothing", "0.1",
        "--optimizer", "adam", "--adam-betas", "(0.9, 0.98)", "--adam-eps", "1e-9",
        "--lr-scheduler", "vaswani_inverse_sqrt", "--warmup-updates", "40",
        "--max-tokens", "400", "--max-update", str(updates), "--cpu", "--num-workers", "0", "--seed", "1",
        "--log-format", "simple", "--log-interval", "1",
    ]  # fmt: skip
