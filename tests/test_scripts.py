"""The shell scripts: their options and errors, and that the quickstart does each step once and names one that fails."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Dict, List, Sequence

import pytest

REPO = Path(__file__).resolve().parents[1]
COMMANDS = ["corpus", "prepare", "train", "average", "fairseq-generate", "score", "curves"]

# Stands in for every command of the environment: notes its arguments, fails on request, makes what later steps read.
STUB = """#!/usr/bin/env bash
name=$(basename "$0")
if [[ $name == python && $1 == -c && $2 == *realpath* ]]; then echo "$0"; exit; fi
if [[ $name == python && $1 == -c ]]; then exec {python} "$@"; fi
if [[ $name == python && $2 == vaswani_plugin ]]; then echo /where/the/plugin/is; exit; fi
echo "$name $*" >>{folder}/calls
if [[ " $name $* " == *" ${{FAIL:-nothing}} "* ]]; then echo "stub: cannot do it"; exit 3; fi
if [[ $name == vaswani-corpus ]]; then
    mkdir -p "$1"
    for file in train valid test; do echo hello >"$1/$file.en"; echo hallo >"$1/$file.de"; done
fi
if [[ $name == vaswani-score ]]; then echo "BLEU = 99.99"; fi
"""


def run_script(script: str, *words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a script of the repository from another folder, with a clean PYTHON and VASWANI_TORCH."""
    clean = {name: value for name, value in os.environ.items() if name not in {"PYTHON", "VASWANI_TORCH"}}
    return subprocess.run(
        ["bash", str(REPO / "scripts" / script), *map(str, words)],
        capture_output=True,
        text=True,
        cwd="/",
        stdin=subprocess.DEVNULL,
        env={**clean, "PYTHON": sys.executable, **environment},
        check=False,
    )


class Stubbed:
    """The quickstart in a folder whose environment holds stand-ins for every command."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.venv, self.work = folder / "a venv", folder / "a work folder"
        (self.venv / "bin").mkdir(parents=True)
        names = [name if name.startswith("fairseq") else f"vaswani-{name}" for name in COMMANDS]
        for name in ["python", *names]:
            stub = self.venv / "bin" / name
            stub.write_text(STUB.format(python=f"'{sys.executable}'", folder=f"'{folder}'"), encoding="utf-8")
            stub.chmod(stub.stat().st_mode | stat.S_IXUSR)

    def run(self, *words: object, **environment: str) -> subprocess.CompletedProcess[str]:
        return run_script("quickstart.sh", "--work", self.work, "--venv", self.venv, *words, **environment)

    def calls(self) -> List[str]:
        """The commands that were run since the last call."""
        path = self.folder / "calls"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return lines

    def steps(self) -> List[str]:
        """The same, by first word, without the installation."""
        return [line.split()[0].replace("vaswani-", "") for line in self.calls() if not line.startswith("python")]


@pytest.fixture
def stubbed(tmp_path: Path) -> Stubbed:
    return Stubbed(tmp_path)


def make_corpus(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_text("one\n", encoding="utf-8")
    return folder


def option(line: str, name: str) -> str:
    words = line.split()
    return words[words.index(name) + 1]


def test_every_step_runs_once_in_order_and_shows_its_time(stubbed: Stubbed) -> None:
    done = stubbed.run()
    assert done.returncode == 0, done.stderr
    calls = stubbed.calls()
    torch = f"torch=={'2.13.0' if sys.version_info >= (3, 11) else '2.2.2'}"
    assert [line for line in calls if line.startswith("python -m pip")] == [
        "python -m pip install --upgrade pip>=23"
        if sys.version_info >= (3, 11)
        else "python -m pip install --upgrade pip<24.1",
        f"python -m pip install {torch}",
        f"python -m pip install {torch} --editable {REPO}[plots]",
    ]
    others = [line for line in calls if not line.startswith("python")]
    assert [line.split()[0].replace("vaswani-", "") for line in others] == COMMANDS
    assert "/where/the/plugin/is" in others[4]
    assert "BLEU = 99.99" in done.stdout
    table = done.stdout[done.stdout.index("step ") :].splitlines()
    assert [line.split()[0] for line in table[1:-2]] == [
        *(
            "environment",
            "pip",
            "torch",
            "project",
            "corpus",
            "prepare",
            "train",
            "average",
            "translate",
            "score",
            "curves",
        )
    ]
    assert table[-2].split()[0] == "all"
    assert table[-1] == f"learning curves: {stubbed.work / 'curves.png'}"


def test_a_second_run_does_nothing_and_still_shows_the_result(stubbed: Stubbed) -> None:
    assert stubbed.run().returncode == 0
    stubbed.calls()
    done = stubbed.run()
    assert done.returncode == 0, done.stderr
    assert stubbed.calls() == []
    assert done.stdout.count(": done before") == 11
    assert "BLEU = 99.99" in done.stdout


@pytest.mark.parametrize("failing", COMMANDS)
def test_a_failing_step_is_named_and_the_next_run_goes_on_from_it(failing: str, stubbed: Stubbed) -> None:
    command = failing if failing.startswith("fairseq") else f"vaswani-{failing}"
    step = "translate" if failing == "fairseq-generate" else failing
    done = stubbed.run(FAIL=command)
    assert done.returncode == 1
    assert f"quickstart.sh: error: step '{step}' failed with status 3 after " in done.stderr
    log = stubbed.work / "logs" / f"{step}.log"
    assert done.stderr.strip().endswith(f"its output is in {log}")
    assert log.read_text(encoding="utf-8") == "stub: cannot do it\n"
    assert stubbed.steps() == COMMANDS[: COMMANDS.index(failing) + 1]
    assert stubbed.run().returncode == 0
    assert stubbed.steps() == COMMANDS[COMMANDS.index(failing) :]


def test_a_failing_installation_stops_before_the_data(stubbed: Stubbed) -> None:
    done = stubbed.run(FAIL="torch==0", VASWANI_TORCH="torch==0")
    assert done.returncode == 1
    assert "step 'torch' failed with status 3" in done.stderr
    assert stubbed.steps() == []


def test_more_updates_go_on_and_everything_after_is_made_anew(stubbed: Stubbed) -> None:
    assert stubbed.run("--max-update", 100).returncode == 0
    stubbed.calls()
    assert stubbed.run("--max-update", 200).returncode == 0
    assert stubbed.steps() == COMMANDS[2:]
    log = (stubbed.work / "logs" / "score.log").read_text(encoding="utf-8")
    assert log == "BLEU = 99.99\n"


@pytest.mark.parametrize("words", [["--lr", "1e-3"], ["--vocab-size", "900"], ["--arch", "vaswani_base"]])
def test_other_settings_do_not_go_on_from_the_old_checkpoints(words: List[str], stubbed: Stubbed) -> None:
    assert stubbed.run().returncode == 0
    done = stubbed.run(*words)
    assert done.returncode == 1
    assert done.stderr == (
        f"quickstart.sh: error: {stubbed.work}/checkpoints holds a training with other settings or other text; "
        f"choose another --work or remove {stubbed.work}\n"
    )


def test_a_corpus_of_ones_own(stubbed: Stubbed, tmp_path: Path) -> None:
    names = [f"{split}.{lang}" for split in ("train", "val", "test_2016") for lang in ("fr", "de", "en")]
    corpus = make_corpus(tmp_path / "my corpus", *names)
    words = ["--corpus", corpus, "--source-lang", "fr", "--target-lang", "en"]
    assert stubbed.run(*words).returncode == 0
    calls = [line for line in stubbed.calls() if not line.startswith("python")]
    assert [line.split()[0].replace("vaswani-", "") for line in calls] == COMMANDS[1:]
    prepare, train, average = calls[0], calls[1], calls[2]
    assert f"--train {corpus}/train.fr {corpus}/train.en --valid {corpus}/val.fr {corpus}/val.en" in prepare
    assert f"--test {corpus}/test_2016.fr {corpus}/test_2016.en" in prepare
    assert option(prepare, "--vocab-size") == "8000"
    wanted = {
        "--max-update": "6000",
        "--target-batch": "4096",
        "--max-tokens": "4096",
        "--lr": "5e-3",
        "--warmup-updates": "2000",
    }
    assert {name: option(train, name) for name in wanted} == wanted
    assert option(average, "--last") == "10"
    (corpus / "train.en").write_text("another text\n", encoding="utf-8")
    done = stubbed.run(*words)
    assert done.returncode == 1
    assert "holds a training with other settings or other text" in done.stderr


ALL = ["train.en", "train.de", "valid.en", "valid.de", "test.en", "test.de"]


@pytest.mark.parametrize(
    ("names", "words", "error"),
    [
        (ALL[1:], [], "no file pair train.{en,de} "),
        ([*ALL[:2], *ALL[4:]], [], "no file pair valid.{en,de} val.{en,de} dev.{en,de} "),
        (ALL[:5], [], "no file pair test*.{en,de}"),
        ([*ALL, "test_b.en", "test_b.de"], [], "several test sets (test test_b); choose one with --test-prefix"),
        (ALL, ["--test-prefix", "test_b"], "no file pair test_b.{en,de} "),
        (ALL, ["--source-lang", "fr"], "no file pair train.{fr,de} "),
    ],
)
def test_refuses_a_corpus_that_lacks_files(names: Sequence[str], words: List[str], error: str, tmp_path: Path) -> None:
    corpus = make_corpus(tmp_path / "corpus", *names)
    done = run_script("quickstart.sh", "--corpus", corpus, "--dry-run", *words)
    assert done.returncode == 1
    assert done.stderr == f"quickstart.sh: error: --corpus {corpus}: {error}\n"
    assert done.stdout == ""


def test_one_of_several_test_sets_can_be_chosen(tmp_path: Path) -> None:
    corpus = make_corpus(tmp_path / "corpus", *ALL, "test_b.en", "test_b.de")
    done = run_script("quickstart.sh", "--corpus", corpus, "--dry-run", "--test-prefix", "test_b")
    assert done.returncode == 0, done.stderr
    assert f"--test {corpus}/test_b.en {corpus}/test_b.de" in done.stdout


def test_dry_run_prints_every_command_and_makes_nothing(tmp_path: Path) -> None:
    done = run_script("quickstart.sh", "--dry-run", "--work", tmp_path / "work", "--venv", tmp_path / "venv")
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.iterdir()) == []
    lines = done.stdout.splitlines()
    assert [line.split()[0].replace("vaswani-", "") for line in lines[4:]] == COMMANDS
    assert "-m venv" in lines[0]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--updates", "3"], "unknown option --updates (--help lists the options)"),
        (["--lr"], "--lr: unknown option, or its value is missing (--help lists the options)"),
        (["--corpus", "/no/such/folder"], "--corpus /no/such/folder: no such folder"),
        (["--source-lang", "fr"], "the embedded corpus has en and de, not fr and de"),
        (["--test-prefix", "x"], "--test-prefix goes with --corpus"),
        (["--corpus", ""], "--corpus: its value is empty"),
        (["--max-update", "0"], "--max-update must be a whole number above 0, not '0'"),
        (["--average", "-1"], "--average must be a whole number above 0, not '-1'"),
        (["--max-tokens", "1e3"], "--max-tokens must be a whole number above 0, not '1e3'"),
        (["--vocab-size", "8 9"], "--vocab-size must be a whole number above 0, not '8 9'"),
    ],
)
def test_quickstart_refuses_wrong_options(words: List[str], error: str) -> None:
    done = (
        run_script("quickstart.sh", *words, "--dry-run") if words != ["--lr"] else run_script("quickstart.sh", *words)
    )
    assert (done.returncode, done.stderr) == (1, f"quickstart.sh: error: {error}\n")


@pytest.mark.parametrize("script", ["quickstart.sh", "test.sh"])
def test_help_names_every_option(script: str) -> None:
    done = run_script(script, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    source = (REPO / "scripts" / script).read_text(encoding="utf-8")
    parsed = {word.strip() for line in source.splitlines() for word in line.split(")")[0].split("|")}
    options = {word for word in parsed if word.startswith("--") and word not in {"--", "--help"} and " " not in word}
    assert len(options) >= 3
    assert not {word for word in options if word not in done.stdout}


def test_test_script_refuses_wrong_options_and_foreign_folders(tmp_path: Path) -> None:
    done = run_script("test.sh", "-k", "x")
    assert done.returncode == 1
    assert done.stderr.endswith("test.sh: error: unknown option -k; options for pytest come after --\n")
    assert run_script("test.sh", "--venv").stderr == "test.sh: error: --venv needs a folder\n"
    (tmp_path / "precious").touch()
    done = run_script("test.sh", "--venv", tmp_path)
    assert (done.returncode, done.stderr) == (
        1,
        f"test.sh: error: --venv {tmp_path} exists and is no virtual environment\n",
    )
    assert (tmp_path / "precious").exists()


def test_an_unsupported_python_is_refused_in_one_line(tmp_path: Path) -> None:
    done = run_script("quickstart.sh", "--venv", tmp_path / "venv", "--work", tmp_path / "work", PYTHON="false")
    assert done.returncode == 1
    assert done.stderr == (
        "quickstart.sh: error: no Python 3.9 to 3.12 found (tried: false); name one with PYTHON=...\n"
    )


def test_scripts_are_strict() -> None:
    scripts: Dict[str, str] = {
        str(path): path.read_text(encoding="utf-8")
        for path in [*(REPO / "scripts").glob("*.sh"), REPO / ".ci" / "run"]
        if path.name not in {"common.sh", "steps.sh"}  # are sourced by the others
    }
    assert len(scripts) >= 3
    assert not [path for path, text in scripts.items() if "\nset -euo pipefail\n" not in text]
