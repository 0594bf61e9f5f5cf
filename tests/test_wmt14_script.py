"""scripts/wmt14.sh: the settings it composes, steps done once, and (slow) the whole path on stand-in archives."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sysconfig
import time
from pathlib import Path
from typing import Dict, List

import pytest
from stand_in import make_stand_in, serving
from test_scripts import REPO, option

from vaswani_plugin.toolkit import load_checkpoint
from vaswani_plugin.tools.cli import alone

COMMANDS = ["vaswani-prepare", "vaswani-average", "vaswani-score", "fairseq-generate", "python"]

# Stands in for every command: notes its arguments, fails, or waits, on request.
STUB = """#!/usr/bin/env bash
name=$(basename "$0")
if [[ $name == python && $2 == vaswani_plugin ]]; then echo /where/the/plugin/is; exit; fi
echo "$name $*" >>{folder}/calls
if [[ " $name $* " == *" ${{FAIL:-nothing}} "* ]]; then echo "stub: cannot do it"; exit "${{STATUS:-3}}"; fi
if [[ " $name $* " == *" ${{WAIT:-nothing}} "* ]]; then
    trap 'echo "stub: asked to stop"; exit 75' TERM
    touch {folder}/waiting
    while :; do sleep 0.05; done
fi
if [[ $name == vaswani-score ]]; then echo "BLEU = 99.99"; fi
"""


class Stubbed:
    """The script with stand-ins for the commands that it composes."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.work = folder, folder / "a work folder"
        (folder / "bin").mkdir()
        for name in COMMANDS:
            stub = folder / "bin" / name
            stub.write_text(STUB.format(folder=f"'{folder}'"), encoding="utf-8")
            stub.chmod(stub.stat().st_mode | stat.S_IXUSR)

    def environment(self, **more: str) -> Dict[str, str]:
        clean = {name: value for name, value in os.environ.items() if name != "PYTHON"}
        return {**clean, "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}", **more}

    def words(self, *words: object) -> List[str]:
        return ["bash", str(REPO / "scripts" / "wmt14.sh"), "--work", str(self.work), *map(str, words)]

    def run(self, *words: object, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.words(*words),
            capture_output=True,
            text=True,
            cwd="/",
            env=self.environment(**environment),
            check=False,
        )

    def calls(self) -> List[str]:
        """The commands that were run since the last call."""
        path = self.folder / "calls"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return lines


@pytest.fixture
def stubbed(tmp_path: Path) -> Stubbed:
    return Stubbed(tmp_path)


def test_the_papers_settings(stubbed: Stubbed) -> None:
    expected = {
        ("en-de", "base"): ("vaswani_base", "100000", "5"),
        ("en-de", "big"): ("vaswani_big", "300000", "20"),
        ("en-fr", "base"): ("vaswani_base", "100000", "5"),
        ("en-fr", "big"): ("vaswani_big_en_fr", "300000", "20"),
    }
    for (pair, size), (arch, updates, average) in expected.items():
        done = stubbed.run("--pair", pair, "--size", size, "--work", stubbed.work / pair)
        assert done.returncode == 0, done.stderr
        prepare, train, mean, translate, score = stubbed.calls() if size == "base" else ["", *stubbed.calls()]
        if size == "base":
            assert prepare.startswith(f"vaswani-prepare wmt14 --pair {pair} --dest ")
        else:
            assert "== prepare: done before" in done.stdout  # both sizes share the data
        assert train.startswith("python -m vaswani_plugin.tools.train ")
        assert (option(train, "--arch"), option(train, "--max-update")) == (arch, updates)
        assert option(train, "--keep-interval-updates") == option(mean, "--last") == average
        assert option(mean, "--by") == "update"
        assert int(updates) % int(option(train, "--save-interval-updates")) == 0  # the last one ends the training
        assert "--target-batch" not in train  # whose default is the paper's
        assert train.endswith(" -- --no-epoch-checkpoints")
        assert "/where/the/plugin/is" in translate
        assert option(score, "--lang") == pair[-2:]
        assert "--tokenised" in score.split()
        assert ("--compound-split" in score.split()) == (pair == "en-de")
        assert "BLEU = 99.99" in done.stdout


def test_ott_and_colleagues_settings(stubbed: Stubbed) -> None:
    assert (
        stubbed.run("--pair", "en-de", "--size", "big", "--variant", "ott2018", "--", "--clip-norm", 0).returncode == 0
    )
    train = stubbed.calls()[1]
    assert train.endswith(
        " --fp16 --target-batch 458752 --max-tokens 3584 -- --no-epoch-checkpoints --lr 1e-3 --clip-norm 0"
    )
    assert 128 * 3584 == 458752
    assert (stubbed.work / "big-ott2018" / "checkpoints").is_dir()
    done = stubbed.run("--pair", "en-de", "--variant", "ott2018")
    assert done.stderr == "wmt14.sh: error: --variant ott2018 is a setting of --size big\n"


def test_steps_are_done_once_and_again_when_an_earlier_one_changed(stubbed: Stubbed) -> None:
    words = ["--pair", "en-de", "--max-update", 20, "--save-every", 5, "--average", 2]
    assert stubbed.run(*words).returncode == 0
    assert len(stubbed.calls()) == 5
    again = stubbed.run(*words)
    assert (again.returncode, stubbed.calls()) == (0, [])
    assert again.stdout.count("done before") == 5
    assert "BLEU = 99.99" in again.stdout
    assert stubbed.run("--pair", "en-de", "--max-update", 40, "--save-every", 5, "--average", 2).returncode == 0
    assert [call.split()[0] for call in stubbed.calls()] == ["python", *COMMANDS[1:2], COMMANDS[3], COMMANDS[2]]


def test_other_settings_do_not_go_on_with_the_checkpoints(stubbed: Stubbed) -> None:
    assert stubbed.run("--pair", "en-de").returncode == 0
    done = stubbed.run("--pair", "en-de", "--seed", 2)
    assert done.returncode == 1
    assert done.stderr == (
        f"wmt14.sh: error: {stubbed.work}/base/checkpoints holds a training with other settings or other text; choose "
        f"another --work or remove {stubbed.work}/base\n"
    )
    assert stubbed.run("--pair", "en-de", "--gpus", 4).returncode == 0  # the same training, shared out otherwise


def test_a_failing_step_stops_the_script_and_is_named(stubbed: Stubbed) -> None:
    done = stubbed.run("--pair", "en-de", FAIL="vaswani-average")
    assert done.returncode == 1
    log = stubbed.work / "base" / "logs" / "average.log"
    assert done.stderr.startswith("wmt14.sh: error: step 'average' failed with status 3 after ")
    assert done.stderr.endswith(f" s; its output is in {log}\n")
    assert log.read_text("utf-8") == "stub: cannot do it\n"
    assert len(stubbed.calls()) == 3
    assert stubbed.run("--pair", "en-de").returncode == 0
    assert [call.split()[0] for call in stubbed.calls()] == ["vaswani-average", "fairseq-generate", "vaswani-score"]


def test_a_second_run_of_the_same_training_is_kept_out(stubbed: Stubbed) -> None:
    (stubbed.work / "base").mkdir(parents=True)
    with alone(stubbed.work / "base" / ".lock", "another test is at work"):
        done = stubbed.run("--pair", "en-de")
        assert (done.returncode, stubbed.calls()) == (1, [])
        assert done.stderr == f"wmt14.sh: error: another wmt14.sh is at work in {stubbed.work}/base\n"
        assert stubbed.run("--pair", "en-de", "--status").returncode == 0
    assert stubbed.run("--pair", "en-de").returncode == 0


def test_status_tells_what_is_to_do_and_does_nothing(stubbed: Stubbed) -> None:
    def states() -> List[List[str]]:
        done = stubbed.run("--pair", "en-de", "--status")
        assert done.returncode == 0, done.stderr
        return [line.split()[:2] for line in done.stdout.splitlines()]

    names = ["prepare", "train", "average", "translate", "score"]
    assert states() == [[name, "to"] for name in names]
    assert not stubbed.work.exists()
    assert stubbed.run("--pair", "en-de", FAIL="-m").returncode == 1
    for update in (1250, 12500, 2500):
        (stubbed.work / "base" / "checkpoints" / f"checkpoint_3_{update}.pt").touch()
    stubbed.calls()
    assert states() == [
        ["prepare", "done,"],
        ["train", "to"],
        ["newest", "checkpoint"],
        *([name, "to"] for name in names[2:]),
    ]
    assert "newest checkpoint to average: update 12500 of 100000\n" in stubbed.run("--pair", "en-de", "--status").stdout
    assert stubbed.calls() == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_a_request_to_stop_reaches_the_training(number: signal.Signals, stubbed: Stubbed) -> None:
    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)  # which nohup and "&" ignore, for children too
    try:
        started = subprocess.Popen(
            stubbed.words("--pair", "en-de"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=stubbed.environment(WAIT="-m"),
            start_new_session=True,
        )
    finally:
        signal.signal(signal.SIGINT, inherited)
    while not (stubbed.folder / "waiting").exists():
        assert started.poll() is None
        time.sleep(0.02)
    started.send_signal(number)
    out, error = started.communicate(timeout=60)
    assert started.returncode == 75
    assert out.endswith("stub: asked to stop\n")
    assert error.startswith("wmt14.sh: stopped in step 'train' after ")
    assert error.endswith(" s; the same command goes on\n")
    assert (stubbed.work / "base" / "logs" / "train.log").read_text("utf-8") == "stub: asked to stop\n"


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ([], "--pair must be en-de or en-fr, not ''"),
        (["--pair", "de-en"], "--pair must be en-de or en-fr, not 'de-en'"),
        (["--pair", "en-de", "--size", "small"], "--size must be base or big, not 'small'"),
        (["--pair", "en-de", "--variant", "x"], "--variant must be paper or ott2018, not 'x'"),
        (["--pair", "en-de", "--subwords", "x"], "--subwords must be sentencepiece or subword-nmt, not 'x'"),
        (["--pair", "en-de", "--average", "0"], "--average must be a whole number above 0, not '0'"),
        (
            ["--pair", "en-de", "--average", "3", "--save-every", "4", "--max-update", "11"],
            "--average 3 checkpoints --save-every 4 updates are more than --max-update 11",
        ),
        (["--pair"], "--pair: unknown option, or its value is missing (--help lists the options)"),
        (["--pair", ""], "--pair: its value is empty"),
        (["--paar", "en-de"], "unknown option --paar (--help lists the options)"),
    ],
)
def test_refuses_wrong_options(words: List[str], error: str, stubbed: Stubbed) -> None:
    done = stubbed.run(*words)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"wmt14.sh: error: {error}\n")
    assert stubbed.calls() == []


def test_help_and_dry_run_do_nothing(stubbed: Stubbed) -> None:
    assert stubbed.run("--help").stdout.startswith("usage: bash scripts/wmt14.sh --pair en-de|en-fr ")
    done = stubbed.run("--pair", "en-fr", "--dry-run", "--facts", "unchecked")
    assert done.returncode == 0
    assert [line.split()[0] for line in done.stdout.splitlines()] == [
        "vaswani-prepare",
        "bash",
        *COMMANDS[1:2],
        COMMANDS[3],
        COMMANDS[2],
    ]
    (shown,) = stubbed.calls()  # which prints the toolkit's command
    assert " --dry-run " in shown
    assert not stubbed.work.exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pair", "subwords"), [("en-de", "sentencepiece"), ("en-fr", "sentencepiece"), ("en-de", "subword-nmt")]
)
def test_the_whole_path_on_stand_in_archives(pair: str, subwords: str, tmp_path: Path) -> None:
    archives = make_stand_in(pair, count=150, tests=9)
    facts = tmp_path / "facts.json"
    facts.write_text(json.dumps(archives.facts()), encoding="utf-8")
    environment = {
        **os.environ,
        "PATH": f"{sysconfig.get_path('scripts')}:{os.environ['PATH']}",
        "OMP_NUM_THREADS": "1",
    }
    shrunk = ["--encoder-layers", 1, "--decoder-layers", 1, "--warmup-updates", 30]
    for side in ("encoder", "decoder"):
        shrunk += [f"--{side}-embed-dim", 32, f"--{side}-ffn-embed-dim", 64, f"--{side}-attention-heads", 2]
    with serving(archives.files) as site:
        nc = "wmt14/training-parallel-nc-v9.tgz"
        site.faults[nc] = "page"
        site.once.append(nc)
        words = [
            *("--pair", pair, "--work", tmp_path / "work", "--mirror", site.url, "--facts", facts, "--vocab-size", 90),
            *("--subwords", subwords, "--cpu", "--target-batch", 1000, "--max-update", 60, "--save-every", 5),
            *("--average", 3, "--", *shrunk),
        ]

        def run() -> subprocess.CompletedProcess[str]:
            command = ["bash", str(REPO / "scripts" / "wmt14.sh"), *map(str, words)]
            return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)

        broken = run()
        assert broken.returncode == 1
        assert f"{site.url}/{nc}: the server sent a web page, not training-parallel-nc-v9.tgz" in broken.stdout
        assert "step 'prepare' failed with status 1" in broken.stderr
        done = run()
        assert done.returncode == 0, done.stdout + done.stderr
        again = run()
    assert again.stdout.count("done before") == 5
    name = "base" if subwords == "sentencepiece" else "base-subword-nmt"
    result = json.loads((tmp_path / "work" / name / "score.json").read_text("utf-8"))
    scores = {"bleu", "chrf", "tokenised_bleu", *(["compound_split_bleu"] if pair == "en-de" else [])}
    assert scores == result.keys() - {"sentences"}
    assert result["sentences"] == 9
    assert all(0 <= result[name]["score"] <= 100 for name in scores)
    for name_of_score in scores:
        assert f"{name_of_score}: " in done.stdout
    averaged = load_checkpoint(tmp_path / "work" / name / "average.pt")["extra_state"]["averaged"]
    updates = [entry["num_updates"] for entry in averaged]
    # The toolkit writes none of these at the end of an epoch.
    assert len(updates) == 3
    assert updates == sorted(set(updates) & set(range(5, 61, 5)))
