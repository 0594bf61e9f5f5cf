"""``vaswani-train`` and the scripts around it: options, plans, refusals; killed and signalled workers."""

from __future__ import annotations

import fcntl
import os
import re
import shlex
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import List, Sequence

import fairseq_cli.train
import pytest
import torch
from toolkit_runner import CopyTask, environment, tiny_model_args

from vaswani_plugin.checkpoints import updates_of
from vaswani_plugin.schedule import peak_learning_rate
from vaswani_plugin.tools import train
from vaswani_plugin.tools.train_options import OURS, build_parser

REPO = Path(__file__).resolve().parents[1]
SCRIPTS = REPO / "scripts"
TINY = [*tiny_model_args(), "--warmup-updates", "40", "--num-workers", "0", "--log-interval", "1"]


@pytest.fixture(autouse=True)
def no_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder with the names of binary data, and nothing in them."""
    folder = tmp_path / "data"
    folder.mkdir()
    for name in ("dict.en.txt", "dict.de.txt", "train.en-de.en.bin"):
        (folder / name).touch()
    return folder


def dry_run(capsys: pytest.CaptureFixture[str], *words: object) -> List[str]:
    """The lines that ``--dry-run`` prints."""
    assert train.main(["data", "--save-dir", "save dir", "--dry-run", *map(str, words)]) == 0
    return capsys.readouterr().out.splitlines()


def options_of(line: str) -> List[str]:
    words = shlex.split(line)
    return words[words.index("fairseq-train") + 1 :]


def value(words: Sequence[str], name: str) -> str:
    """The last value of an option, which is the one that counts."""
    return words[len(words) - 1 - list(reversed(words)).index(name) + 1]


# --- the plan and the commands ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("gpus", [1, 2, 4, 8, 16])
def test_the_batch_is_held_and_printed_for_any_number_of_gpus(gpus: int, capsys: pytest.CaptureFixture[str]) -> None:
    first, *commands = dry_run(capsys, "--gpus", gpus)
    assert re.fullmatch(
        rf"effective batch: {gpus} workers? x [\d,]+ tokens x update-freq \d = [\d,]+ tokens an update "
        r"\([+-]0\.0% of the 25,000 asked for\)",
        first,
    )
    assert len(commands) == gpus
    for rank, command in enumerate(commands):
        words = options_of(command)
        assert abs(gpus * int(value(words, "--max-tokens")) * int(value(words, "--update-freq")) - 25000) <= 1250
        assert f" RANK={rank} WORLD_SIZE={gpus} " in command
        assert f" LOCAL_RANK={rank} " in f" {command}"
        assert "--cpu" not in words


def test_the_recipe_is_the_papers(capsys: pytest.CaptureFixture[str]) -> None:
    words = options_of(dry_run(capsys, "--gpus", 8)[1])
    assert words[0] == "data"
    expected = {
        "--save-dir": "save dir", "--arch": "vaswani_base", "--task": "vaswani_translation",
        "--criterion": "vaswani_label_smoothed_cross_entropy", "--label-smoothing": "0.1",
        "--lr-scheduler": "vaswani_inverse_sqrt", "--warmup-updates": "4000", "--max-update": "100000",
        "--max-tokens": "3125", "--update-freq": "1", "--seed": "1", "--user-dir": str(REPO / "vaswani_plugin"),
    }  # fmt: skip
    assert {name: value(words, name) for name in expected} == expected
    assert "--share-all-embeddings" in words


def test_options_reach_the_toolkit_and_later_ones_win(capsys: pytest.CaptureFixture[str]) -> None:
    ours = [
        "--source-lang", "en", "--target-lang", "de", "--arch", "vaswani_big", "--max-update", 300, "--seed", 7,
        "--save-interval-updates", 10, "--keep-interval-updates", 2, "--keep-last-epochs", 3, "--keep-best", 4,
        "--max-tokens", 5000, "--update-freq", 5, "--fp16", "--tensorboard",
    ]  # fmt: skip
    words = options_of(dry_run(capsys, "--gpus", 1, *ours, "--", "--label-smoothing", 0.2, "--dropout", 0.3)[1])
    expected = {
        "--source-lang": "en", "--target-lang": "de", "--arch": "vaswani_big", "--max-update": "300", "--seed": "7",
        "--save-interval-updates": "10", "--keep-interval-updates": "2", "--keep-last-epochs": "3",
        "--keep-best-checkpoints": "4", "--max-tokens": "5000", "--update-freq": "5",
        "--tensorboard-logdir": "save dir/tensorboard", "--label-smoothing": "0.2", "--dropout": "0.3",
    }  # fmt: skip
    assert {name: value(words, name) for name in expected} == expected
    assert "--fp16" in words


def test_another_criterion_or_scheduler_gets_no_options_of_ours(capsys: pytest.CaptureFixture[str]) -> None:
    words = options_of(dry_run(capsys, "--gpus", 1, "--", "--criterion", "cross_entropy")[1])
    assert "--label-smoothing" not in words
    assert value(words, "--warmup-updates") == "4000"
    words = options_of(dry_run(capsys, "--gpus", 1, "--", "--lr-scheduler=pass_through")[1])
    assert "--warmup-updates" not in words
    assert value(words, "--label-smoothing") == "0.1"


def test_processors_see_no_gpu_and_have_their_own_float16(capsys: pytest.CaptureFixture[str]) -> None:
    _, *commands = dry_run(capsys, "--cpu", "--workers", 2, "--fp16", "--target-batch", 4096)
    assert len(commands) == 2
    assert all(command.startswith("CUDA_VISIBLE_DEVICES='' ") for command in commands)
    words = options_of(commands[0])
    assert {"--cpu", "--memory-efficient-fp16"} <= set(words)
    assert "--fp16" not in words
    assert value(words, "--max-tokens") == "2048"
    assert value(options_of(dry_run(capsys, "--cpu", "--bf16")[1]), "--compute-dtype") == "bf16"


def test_several_machines_have_consecutive_ranks(capsys: pytest.CaptureFixture[str]) -> None:
    for node_rank in (0, 1):
        words = ["--gpus", 4, "--nodes", 2, "--node-rank", node_rank, "--master", "node0:1234"]
        first, *commands = dry_run(capsys, *words)
        assert first.startswith("effective batch: 8 workers x 3,125 tokens x update-freq 1 = 25,000 tokens")
        for local, command in enumerate(commands):
            assert f" RANK={4 * node_rank + local} WORLD_SIZE=8 " in command
            assert f"LOCAL_RANK={local} MASTER_ADDR=node0 MASTER_PORT=1234 " in command


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (
            ["--gpus", "2", "--cpu"],
            "--cpu and --gpus exclude each other; --workers is the number of processes on a CPU",
        ),
        (["--workers", "2"], "--workers goes with --cpu; --gpus is the number of workers on GPUs"),
        (["--cpu", "--nodes", "2"], "several machines need --master HOST:PORT, the same on each"),
        (["--cpu", "--nodes", "2", "--node-rank", "2"], "--node-rank must be from 0 to 1 with --nodes 2"),
        (["--cpu", "--master", "node0"], "--master must be HOST:PORT, not 'node0'"),
        (["--cpu"], "no/such/data: no such folder"),
        (["--cpu", "--keep-interval-updates", "2"], "--keep-interval-updates goes with --save-interval-updates"),
        (["--cpu", "--", "--max-tokens", "1"], "--max-tokens after -- has no place there; give --max-tokens before it"),
        (["--cpu", "--", "--batch-size=8"], "--batch-size after -- has no place there; give --max-tokens before it"),
        (
            ["--cpu", "--max-tokens", "20000"],
            "1 worker x 20,000 tokens x update-freq 1 = 20,000 tokens an update (-20.0% of the 25,000 asked for): more "
            "than 5% off; --max-tokens 3571 --update-freq 7 meets it, or --target-batch 20000 asks for this",
        ),
    ],
)
def test_wrong_options_are_one_line(
    words: List[str], text: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert train.main(["no/such/data", "--save-dir", str(tmp_path / "save"), *words]) == 1
    assert capsys.readouterr().err == f"vaswani-train: error: {text}\n"
    assert not (tmp_path / "save").exists()


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (
            ["--source-lang", "en"],
            "--source-lang and --target-lang go together; without both the data's names say them",
        ),
        (["--source-lang", "fr", "--target-lang", "de"], "{data}: no dict.fr.txt; its languages are de, en"),
        (["--source-lang", "en", "--target-lang", "cs"], "{data}: no dict.cs.txt; its languages are de, en"),
    ],
)
def test_languages_that_are_not_there_are_refused(
    words: List[str], text: str, capsys: pytest.CaptureFixture[str], data: Path
) -> None:
    assert train.main([str(data), "--save-dir", str(data / "save"), "--cpu", *words]) == 1
    assert capsys.readouterr().err == f"vaswani-train: error: {text.format(data=data)}\n"
    assert not (data / "save").exists()


def test_a_folder_without_binary_data_is_refused(capsys: pytest.CaptureFixture[str], data: Path) -> None:
    words = ["--save-dir", str(data / "save"), "--cpu"]
    refusal = "vaswani-train: error: {}: no binary data, such as train.en-de.en.bin and dict.en.txt, are there\n"
    assert train.main([str(data.parent), *words]) == 1
    assert capsys.readouterr().err == refusal.format(data.parent)
    (data / "train.en-de.en.bin").rename(data / "valid.en-de.en.bin")
    assert train.main([f"{data}:{data.parent}", *words]) == 1
    assert capsys.readouterr().err == refusal.format(data)
    assert train.main([f"{data}:{data / 'dict.en.txt'}", *words]) == 1
    assert capsys.readouterr().err == f"vaswani-train: error: {data / 'dict.en.txt'}: not a folder\n"


def test_gpus_that_are_not_there_are_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert train.main(["data", "--save-dir", "x"]) == 1
    assert capsys.readouterr().err == "vaswani-train: error: there is no GPU here; --cpu trains on the processor\n"
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert train.main(["data", "--save-dir", "x", "--gpus", "4"]) == 1
    assert capsys.readouterr().err == "vaswani-train: error: --gpus 4: there are only 2 here\n"
    assert train.main(["data", "--save-dir", "x", "--dry-run"]) == 0
    assert capsys.readouterr().out.startswith("effective batch: 2 workers x 3,125 tokens")


@pytest.mark.parametrize("words", [["--max-update", "0"], ["--gpus", "x"], ["--fp16", "--bf16"], ["--max-upd", "3"]])
def test_values_that_are_none_are_refused_by_the_parser(words: List[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="^2$"):
        train.main(["data", "--save-dir", "x", *words])
    assert words[0] in capsys.readouterr().err


def test_help_and_the_scripts_head_name_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    head = (SCRIPTS / "train.sh").read_text(encoding="utf-8").split("set -euo")[0]
    options = [a.option_strings[-1] for a in build_parser()._actions if a.option_strings and a.dest != "help"]
    assert len(options) > 20
    assert not [option for option in options if option not in head]
    with pytest.raises(SystemExit, match="^0$"):
        train.main(["--help"])
    text = capsys.readouterr().out
    assert not [option for option in options if option not in text]
    assert all(name.startswith("-") for name in OURS)


def test_torchrun_starts_the_workers_itself(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, data: Path
) -> None:
    for name, text in {"TORCHELASTIC_RUN_ID": "none", "WORLD_SIZE": "8", "RANK": "0"}.items():
        monkeypatch.setenv(name, text)
    started: List[List[str]] = []
    parents: List[int] = []
    monkeypatch.setattr(train.worker, "train", lambda: started.append(sys.argv) or 0)
    monkeypatch.setattr(train.worker, "die_with", parents.append)
    monkeypatch.setattr(sys, "argv", ["vaswani-train"])
    assert train.main([str(data), "--save-dir", "x"]) == 0
    assert capsys.readouterr().out.startswith("effective batch: 8 workers x 3,125 tokens x update-freq 1")
    assert value(started[0], "--max-tokens") == "3125"
    assert parents == [os.getppid()]
    assert train.main([str(data), "--save-dir", "x", "--dry-run"]) == 0
    assert capsys.readouterr().out.startswith("effective batch: 8 workers")
    assert len(started) == 1
    assert train.main([str(data), "--save-dir", "x", "--curves"]) == 1
    assert capsys.readouterr().err == (
        "vaswani-train: error: --curves draws train.log, which torchrun does not write; vaswani-curves draws any log\n"
    )
    assert train.main([str(data), "--save-dir", "x", "--gpus", "8"]) == 1
    assert capsys.readouterr().err == (
        "vaswani-train: error: torchrun starts the workers; --gpus, --workers, --nodes and --master do not go with it\n"
    )


def test_a_file_is_no_folder_to_save_in(capsys: pytest.CaptureFixture[str], data: Path) -> None:
    file = data / "dict.en.txt"
    assert train.main([str(data), "--save-dir", str(file), "--cpu"]) == 1
    assert capsys.readouterr().err == f"vaswani-train: error: --save-dir {file}: not a folder\n"


def test_a_second_training_in_the_same_folder_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, data: Path
) -> None:
    with open(tmp_path / ".lock.0", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert train.main([str(data), "--save-dir", str(tmp_path), "--cpu"]) == 1
    assert capsys.readouterr().err == (
        f"vaswani-train: error: another training is writing into {tmp_path}; choose another --save-dir\n"
    )


def test_a_worker_says_in_one_line_what_we_refuse_and_leaves_other_errors_their_traceback(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    raising: List[BaseException] = []

    def cli_main() -> None:
        if raising:
            raise raising[0]
        peak_learning_rate(512, -1)

    monkeypatch.setattr(fairseq_cli.train, "cli_main", cli_main)
    assert train.worker.train() == 1
    assert capsys.readouterr().err == "error: warm-up must be 0 or more updates, but is -1\n"
    raising.append(FileNotFoundError(2, "No such file or directory", "dict.en.txt"))
    assert train.worker.train() == 1
    assert capsys.readouterr().err == "error: [Errno 2] No such file or directory: 'dict.en.txt'\n"
    raising[0] = Exception("The dataset is empty.")
    assert train.worker.train() == 1
    assert capsys.readouterr().err == "error: The dataset is empty.\n"
    raising[0] = ValueError("a bug elsewhere")
    with pytest.raises(ValueError, match="^a bug elsewhere$"):
        train.worker.train()


# --- whole runs -------------------------------------------------------------------------------------------------------


class Training:
    """``scripts/train.sh`` with a tiny model, in the background."""

    def __init__(self, copy_task: CopyTask, save_dir: Path, *words: object, toolkit: Sequence[object] = ()) -> None:
        self.save_dir, self.offset = save_dir, 0
        self.offset = len(self.log())
        argv = ["bash", SCRIPTS / "train.sh", copy_task.bin, "--save-dir", save_dir, "--cpu", "--target-batch", 400]
        argv += [*words, "--", *TINY, *toolkit]
        self.process = subprocess.Popen(
            [str(word) for word in argv], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env={**environment(), "PYTHON": sys.executable},
        )  # fmt: skip

    def log(self) -> str:
        """What this run has logged so far."""
        path = self.save_dir / "train.log"
        return path.read_text(encoding="utf-8")[self.offset :] if path.exists() else ""

    def until_update(self, number: int) -> None:
        """Wait until it has made so many updates, or has ended."""
        while self.process.poll() is None:
            made = re.findall(r"train_inner.*num_updates=(\d+)", self.log())
            if made and int(made[-1]) >= number:
                return
            time.sleep(0.02)

    def end(self) -> str:
        """Everything that it printed."""
        return self.process.communicate()[0]


def workers_of(training: Training) -> List[int]:
    """The process ids of the workers, by rank."""
    children = Path(f"/proc/{training.process.pid}/task/{training.process.pid}/children").read_text().split()
    return [int(child) for child in children]


@pytest.mark.slow
def test_a_killed_worker_ends_the_other_with_its_reason(copy_task: CopyTask, tmp_path: Path) -> None:
    training = Training(copy_task, tmp_path, "--workers", 2, "--max-update", 100000, toolkit=["--no-epoch-checkpoints"])
    training.until_update(5)
    pids = workers_of(training)
    os.kill(pids[1], signal.SIGKILL)
    out = training.end()
    assert training.process.returncode == 1
    assert re.search(
        r"^vaswani-train: error: (worker 0 of 2 .*; )?worker 1 of 2 was ended by SIGKILL \(out of memory\?\)$",
        out.splitlines()[-1],
    )
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]


@pytest.mark.slow
def test_workers_end_with_the_program_that_started_them(copy_task: CopyTask, tmp_path: Path) -> None:
    training = Training(copy_task, tmp_path, "--workers", 2, "--max-update", 100000, toolkit=["--no-epoch-checkpoints"])
    training.until_update(5)
    pids = workers_of(training)
    training.process.kill()
    training.end()
    deadline = time.monotonic() + 60
    while any(Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]


@pytest.mark.slow
def test_a_signal_saves_and_the_same_command_goes_on(copy_task: CopyTask, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    words = ["--workers", 2, "--max-update", 60, "--curves", "--tensorboard"]
    toolkit = ["--no-epoch-checkpoints", "--validate-interval", 4]
    first = Training(copy_task, tmp_path, *words, toolkit=toolkit)
    first.until_update(7)
    first.process.send_signal(signal.SIGUSR1)
    out = first.end()
    assert first.process.returncode == 75, out
    assert f"vaswani-train: stopped and saved in {tmp_path}; the same command goes on (exit status 75)" in out
    n_updates = updates_of(tmp_path / "checkpoint_last.pt")
    assert 7 <= n_updates < 60
    second = Training(copy_task, tmp_path, *words, toolkit=toolkit)
    out = second.end()
    assert second.process.returncode == 0, out
    assert re.findall(r"train_inner.*num_updates=(\d+)", out)[0] == str(n_updates + 1)
    assert updates_of(tmp_path / "checkpoint_last.pt") == 60
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert list((tmp_path / "tensorboard").rglob("events.*"))


# --- scripts ----------------------------------------------------------------------------------------------------------


def bash(script: str, *words: object, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", str(SCRIPTS / script), *map(str, words)], capture_output=True, text=True, stdin=subprocess.DEVNULL,
        env={**environment(), "PYTHON": sys.executable, **variables}, check=False,
    )  # fmt: skip


def test_the_scripts_name_what_is_missing() -> None:
    done = bash("train.sh", PYTHON="no-such-python")
    text = "error: there is no no-such-python; name the interpreter with PYTHON=...\n"
    assert (done.returncode, done.stderr) == (1, f"train.sh: {text}")
    done = bash("torchrun.sh", "--", "data", PYTHON="no-such-python")
    assert (done.returncode, done.stderr) == (1, f"torchrun.sh: {text}")
    done = bash("torchrun.sh", "--nproc-per-node", "2")
    assert (done.returncode, done.stderr) == (
        1, "torchrun.sh: error: the training's options come after -- (--help shows how)\n",
    )  # fmt: skip
    done = bash("slurm.sh", "data")
    assert (done.returncode, done.stderr) == (
        1, "slurm.sh: error: this is a job script: sbatch scripts/slurm.sh DATA --save-dir DIR ...\n",
    )  # fmt: skip


@pytest.mark.parametrize("script", ["torchrun.sh", "slurm.sh"])
def test_the_scripts_explain_themselves(script: str) -> None:
    done = bash(script, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"scripts/{script}" in done.stdout
    assert "set -euo" not in done.stdout


@pytest.mark.slow
def test_torchrun_holds_the_batch(copy_task: CopyTask, tmp_path: Path) -> None:
    words = ["--nproc-per-node", 2, "--master-port", 29711, "--", copy_task.bin, "--save-dir", tmp_path, "--cpu"]
    done = bash("torchrun.sh", *words, "--target-batch", 400, "--max-update", 3, "--", *TINY)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "effective batch: 2 workers x 200 tokens x update-freq 1 = 400 tokens an update" in done.stdout
    assert updates_of(tmp_path / "checkpoint_last.pt") == 3


@pytest.mark.slow
def test_workers_end_with_the_torchrun_that_started_them(copy_task: CopyTask, tmp_path: Path) -> None:
    launcher = ["--nproc-per-node", 2, "--master-port", 29712]
    words = ["bash", SCRIPTS / "torchrun.sh", *launcher, "--", copy_task.bin, "--save-dir", tmp_path, "--cpu"]
    words += ["--target-batch", 400, "--max-update", 100000, "--", *TINY, "--no-epoch-checkpoints"]
    with open(tmp_path / "log", "w", encoding="utf-8") as log:
        process = subprocess.Popen(
            [str(word) for word in words], stdout=log, stderr=log, env={**environment(), "PYTHON": sys.executable}
        )
    while process.poll() is None and "num_updates=5," not in (tmp_path / "log").read_text(encoding="utf-8"):
        time.sleep(0.05)
    pids = [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]
    assert len(pids) == 2
    process.kill()
    process.wait()
    deadline = time.monotonic() + 60
    while any(Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]


# Stands in for the training: says what it was given, waits for the signal where asked to, ends with a status.
STEP = """#!/usr/bin/env bash
echo "srun $*"
if [[ -n $WAITS ]]; then
    trap 'echo "signalled"; exit '"$STATUS" USR1
    touch "$WAITS"
    while :; do sleep 0.05; done
fi
exit "$STATUS"
"""
CONTROL = """#!/usr/bin/env bash
if [[ $1 == show ]]; then echo node7; echo node8; else echo "scontrol $*"; fi
"""


@pytest.fixture
def slurm(tmp_path: Path) -> dict[str, str]:
    """The variables of a job of two machines, and a PATH on which srun and scontrol are stand-ins."""
    for name, text in {"srun": STEP, "scontrol": CONTROL}.items():
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return {
        "PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "123456", "SLURM_JOB_NODELIST": "node[7-8]",
        "SLURM_NNODES": "2", "SLURM_SUBMIT_DIR": str(REPO), "WAITS": "", "STATUS": "0",
    }  # fmt: skip


def test_slurm_starts_one_task_a_machine(slurm: dict[str, str]) -> None:
    done = bash("slurm.sh", "data", "--save-dir", "my dir", **slurm)
    assert done.returncode == 0, done.stderr
    assert done.stdout == (
        'srun --kill-on-bad-exit=1 bash -c exec bash "$0" --nodes "$SLURM_NNODES" --node-rank "$SLURM_NODEID" "$@" '
        f"{REPO}/scripts/train.sh --master node7:33456 data --save-dir my dir\n"
    )


@pytest.mark.parametrize(("status", "requeued"), [(0, False), (1, False), (75, True)])
def test_slurm_takes_back_what_is_not_complete(status: int, requeued: bool, slurm: dict[str, str]) -> None:
    done = bash("slurm.sh", "data", **{**slurm, "STATUS": str(status)})
    assert done.returncode == status
    assert ("scontrol requeue 123456\n" in done.stdout) == requeued


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM])
def test_slurms_signal_reaches_the_training(number: signal.Signals, slurm: dict[str, str], tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    process = subprocess.Popen(
        ["bash", str(SCRIPTS / "slurm.sh"), "data"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**environment(), **slurm, "STATUS": "75", "WAITS": str(ready)},
    )  # fmt: skip
    while not ready.exists():
        time.sleep(0.01)
    process.send_signal(number)
    out, err = process.communicate()
    assert out.endswith("signalled\nscontrol requeue 123456\n")
    assert err == "slurm.sh: the training is not complete (status 75); back into the queue\n"
    assert process.returncode == 75
