"""Checkpoints appear whole, a full disk changes nothing, and training goes on from the newest whole one."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf
from toolkit_runner import CopyTask, Result, run, tiny_train_args

from vaswani_plugin import checkpoints
from vaswani_plugin.checkpoints import appearing_whole, number_kept, resume_from, updates_of, warn_of_space
from vaswani_plugin.toolkit import CheckpointError, load_checkpoint

SAVES = ["--save-interval-updates", 2, "--no-epoch-checkpoints", "--validate-interval", 100]


def train(copy_task: CopyTask, save_dir: Path, updates: int, *options: object) -> Result:
    return run("fairseq-train", *tiny_train_args(copy_task.bin, save_dir, updates=updates), *options)


def same_weights(one: Path, other: Path) -> bool:
    states = [load_checkpoint(path)["model"] for path in (one, other)]
    assert states[0].keys() == states[1].keys()
    return all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def first_update(out: str) -> int:
    """The first update that a log is about."""
    return int(re.findall(r"train_inner.*num_updates=(\d+)", out)[0])


@pytest.fixture(scope="module")
def run_of_20(copy_task: CopyTask, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training of 20 updates with a checkpoint every 5; epochs have 5."""
    folder = tmp_path_factory.mktemp("run_of_20")
    options = ["--save-interval-updates", 3, "--keep-best-checkpoints", 2]
    train(copy_task, folder, 20, *options).ok()
    return folder


@pytest.fixture
def broken(run_of_20: Path, tmp_path: Path) -> Path:
    """A copy of it to break."""
    return Path(shutil.copytree(run_of_20, tmp_path / "broken"))


# --- writing ---------------------------------------------------------------------------------------------------------


def test_a_file_appears_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "file.pt"
    path.write_bytes(b"old")
    with appearing_whole(str(path)) as file:
        file.write(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["file.pt"]


def test_what_fails_otherwise_leaves_the_old_file_and_its_own_error(tmp_path: Path) -> None:
    path = tmp_path / "file.pt"
    path.write_bytes(b"old")
    with pytest.raises(RuntimeError, match="^not about a file$"), appearing_whole(str(path)):
        raise RuntimeError("not about a file")
    assert (path.read_bytes(), os.listdir(tmp_path)) == (b"old", ["file.pt"])


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 600 KB."""
    folder = tmp_path / "small disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=600k", "none", str(folder)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_leaves_every_checkpoint_as_it_was(small_disk: Path) -> None:
    """While the tensors are written, and while the copy is."""
    path = str(small_disk / "checkpoint1.pt")
    checkpoints.fairseq.checkpoint_utils.torch_persistent_save({"model": torch.ones(60_000)}, path)
    before = Path(path).read_bytes()
    text = " cannot be written: No space left on device; the checkpoints before it are intact"
    for tensor in (torch.zeros(500_000), torch.zeros(120_000)):  # far too large; and for which the rest is too small
        with pytest.raises(CheckpointError, match=f"^{re.escape(path + text)}$"):
            checkpoints.fairseq.checkpoint_utils.torch_persistent_save({"model": tensor}, path)
        assert Path(path).read_bytes() == before
    copy = checkpoints.fairseq.checkpoint_utils.PathManager.copy
    assert copy(path, str(small_disk / "checkpoint_best.pt"), overwrite=True)
    other = str(small_disk / "checkpoint_last.pt")
    with pytest.raises(CheckpointError, match=f"^{re.escape(other + text)}$"):
        copy(path, other, overwrite=True)
    assert sorted(os.listdir(small_disk)) == ["checkpoint1.pt", "checkpoint_best.pt"]
    assert (small_disk / "checkpoint_best.pt").read_bytes() == before


def test_a_training_on_a_full_disk_ends_with_the_path(copy_task: CopyTask, small_disk: Path) -> None:
    """A checkpoint of this model takes about 130 KB, so that the fifth does not fit."""
    result = train(copy_task, small_disk, 40, *SAVES)
    assert result.rc == 1
    assert re.search(
        rf"{small_disk}/checkpoint\w+\.pt cannot be written: No space left on device; the checkpoints before it are",
        result.out,
    )
    assert f"{small_disk} has 0.6 MB free, but " in result.out
    whole = checkpoints.named_checkpoints(small_disk)
    assert len(whole) >= 2
    assert all(updates_of(path) in range(2, 40, 2) for path in whole)
    assert not list(small_disk.glob("*.tmp"))


KILLED = """
import os, runpy, shutil, signal, sys, torch
from vaswani_plugin import checkpoints
kind, count = sys.argv.pop(1), int(sys.argv.pop(1))
def killing(original):
    def call(*args, **options):
        global count
        count -= 1
        if count == 0:
            if kind == "write":  # when half of it is on the disk
                with open(args[1].name, "r+b", buffering=0) as file:
                    args[1].write(b"half" * 1000)
                    args[1].flush()
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*args, **options)
    return call
if kind == "write":
    checkpoints.torch = type(sys)("torch")
    checkpoints.torch.save = killing(torch.save)
elif kind == "copy":
    checkpoints.shutil = type(sys)("shutil")
    checkpoints.shutil.copyfileobj = killing(shutil.copyfileobj)
    checkpoints.shutil.disk_usage = shutil.disk_usage
else:
    os.replace = killing(os.replace)
sys.argv[0] = "fairseq-train"
runpy.run_module("fairseq_cli.train", run_name="__main__")
"""


def test_killed_in_the_middle_of_saves_a_run_ends_the_same(copy_task: CopyTask, tmp_path: Path) -> None:
    options = ["--save-interval-updates", 3, "--keep-interval-updates", 2, "--keep-last-epochs", 1, "--dropout", 0.1]
    train(copy_task, tmp_path / "whole", 14, *options).ok()
    args = [*tiny_train_args(copy_task.bin, tmp_path / "killed", updates=14), *options]
    out = ""
    for kind, count in (("write", 1), ("replace", 1), ("copy", 2), ("replace", 3), ("write", 3)):
        killed = run("python", KILLED, kind, count, *args)
        assert killed.rc == -9, killed.out
        assert list((tmp_path / "killed").glob("*.pt.tmp"))
        out += killed.out
    done = run("fairseq-train", *args).ok()
    assert first_update(done.out) > 3
    assert "whose saving was interrupted" in out
    assert not list((tmp_path / "killed").glob("*.tmp"))
    assert same_weights(tmp_path / "whole/checkpoint_last.pt", tmp_path / "killed/checkpoint_last.pt")
    assert same_weights(tmp_path / "whole/checkpoint_best.pt", tmp_path / "killed/checkpoint_best.pt")
    assert sorted(os.listdir(tmp_path / "whole")) == sorted(os.listdir(tmp_path / "killed"))


# --- resuming --------------------------------------------------------------------------------------------------------


def test_without_checkpoints_the_toolkit_starts_anew(tmp_path: Path) -> None:
    assert resume_from(tmp_path) == tmp_path / "checkpoint_last.pt"
    (tmp_path / "average.pt").touch()  # not a name of the toolkit's
    (tmp_path / "checkpoint_mine.pt").touch()
    assert resume_from(tmp_path) == tmp_path / "checkpoint_last.pt"


def test_a_whole_last_checkpoint_is_taken_whatever_lies_beside(broken: Path, caplog: pytest.LogCaptureFixture) -> None:
    (broken / "checkpoint4.pt").write_bytes(b"")
    with caplog.at_level(logging.WARNING):
        assert resume_from(broken) == broken / "checkpoint_last.pt"
    assert not caplog.records


@pytest.mark.parametrize("n_bytes", [0, 20000, None])
def test_a_torn_or_missing_last_one_gives_way_to_the_newest_whole_one(
    n_bytes: int | None, broken: Path, caplog: pytest.LogCaptureFixture
) -> None:
    last = broken / "checkpoint_last.pt"
    updates = {path.name: updates_of(path) for path in checkpoints.named_checkpoints(broken)}
    assert updates.pop(last.name) == 20
    if n_bytes is None:
        last.unlink()
        problem = f"{last} is missing"
    else:
        last.write_bytes(last.read_bytes()[:n_bytes])
        problem = (
            f"{last} ({n_bytes:,} bytes) is not a whole checkpoint: it was cut off while it was written, or it is "
            "another kind of file"
        )
    for expected in (20, 18):
        with caplog.at_level(logging.WARNING):
            found = resume_from(broken)
        assert updates[found.name] == expected
        assert caplog.messages[-1] == f"{problem}; going on from {found}, which was saved after {expected} updates"
        for name in [name for name, number in updates.items() if number == 20]:
            (broken / name).write_bytes(b"torn as well")
            updates[name] = -1


def test_a_block_that_never_reached_the_disk_is_found(broken: Path, caplog: pytest.LogCaptureFixture) -> None:
    last = broken / "checkpoint_last.pt"
    torch.save({**load_checkpoint(last), "ones": torch.ones(2000)}, last)
    content = last.read_bytes()
    at = content.index(torch.ones(2000).numpy().tobytes())
    last.write_bytes(content[:at] + bytes(4000) + content[at + 4000 :])
    assert load_checkpoint(last)["ones"].sum() == 1000  # torch loads it all the same
    with caplog.at_level(logging.WARNING):
        assert updates_of(resume_from(broken)) == 20
    assert re.match(
        rf"{last} is damaged: the check sum of \S+/data/\d+ in it is wrong; going on from {broken}/checkpoint",
        caplog.messages[-1],
    )


def test_a_run_with_no_whole_checkpoint_does_not_start_anew(copy_task: CopyTask, broken: Path) -> None:
    for path in checkpoints.named_checkpoints(broken):
        path.write_bytes(path.read_bytes()[:100])
    before = {path.name: path.read_bytes() for path in broken.iterdir()}
    result = train(copy_task, broken, 30)
    assert result.rc == 1
    assert "checkpoint_last.pt (100 bytes) is not a whole checkpoint" in result.out
    assert f"training cannot go on from any other checkpoint in {broken}; remove them all to start anew" in result.out
    assert {path.name: path.read_bytes() for path in broken.iterdir()} == before


def test_what_holds_no_training_is_not_gone_on_from(broken: Path, tmp_path: Path) -> None:
    state = load_checkpoint(broken / "checkpoint_last.pt")
    state["last_optimizer_state"] = None
    torch.save(state, tmp_path / "checkpoint1.pt")
    text = f"{tmp_path / 'checkpoint1.pt'} holds no state of a training"
    with pytest.raises(CheckpointError, match=f"^{re.escape(text)}$"):
        updates_of(tmp_path / "checkpoint1.pt")


def test_a_foreign_last_checkpoint_is_refused_and_not_passed_over(broken: Path) -> None:
    torch.save({"weights": 1}, broken / "checkpoint_last.pt")
    with pytest.raises(CheckpointError, match='is no checkpoint of the toolkit: it has no "model"'):
        resume_from(broken)


@pytest.mark.parametrize("damage", ["cut", "empty", "temporary"])
def test_training_goes_on_after_damage(damage: str, copy_task: CopyTask, broken: Path, run_of_20: Path) -> None:
    last = broken / "checkpoint_last.pt"
    if damage == "temporary":
        (broken / "checkpoint_last.pt.tmp").write_bytes(last.read_bytes()[:20000])
    else:
        last.write_bytes(last.read_bytes()[: 20000 if damage == "cut" else 0])
    result = train(copy_task, broken, 24).ok()
    assert first_update(result.out) == 21
    assert ("going on from" in result.out) == (damage != "temporary")
    assert updates_of(last) == 24
    assert not list(broken.glob("*.tmp"))


def test_a_checkpoint_that_is_named_is_the_one_that_is_loaded(copy_task: CopyTask, broken: Path) -> None:
    (broken / "checkpoint_last.pt").write_bytes(b"")
    result = train(copy_task, broken, 24, "--restore-file", broken / "checkpoint2.pt").ok()
    assert first_update(result.out) == 11
    missing = broken / "checkpoint_misspelt.pt"
    result = train(copy_task, broken, 24, "--restore-file", missing)
    assert result.rc == 1
    assert f"--restore-file {missing}: no such file" in result.out
    assert "train_inner" not in result.out


@pytest.mark.parametrize("most", [20, 10])
def test_a_complete_run_is_left_as_it_is(most: int, copy_task: CopyTask, broken: Path) -> None:
    before = {path.name: path.read_bytes() for path in broken.iterdir()}
    result = train(copy_task, broken, most).ok()
    last = broken / "checkpoint_last.pt"
    assert f"{last} was saved after 20 updates, and --max-update is {most}: complete" in result.out
    assert "train_inner" not in result.out
    assert "done training" in result.out
    assert {path.name: path.read_bytes() for path in broken.iterdir()} == before


# --- the best ones ---------------------------------------------------------------------------------------------------

STUBBED = """
import sys
import fairseq_cli.train as train
losses = [float(loss) for loss in sys.argv.pop(1).split(",")]
original = train.get_valid_stats
def stubbed(cfg, trainer, stats, tracking_best):
    stats["loss"] = losses.pop(0)
    return original(cfg, trainer, stats, tracking_best)
train.get_valid_stats = stubbed
sys.argv[0] = "fairseq-train"
train.cli_main()
assert not losses
"""


def test_the_best_stay_the_best_over_a_restart(copy_task: CopyTask, tmp_path: Path) -> None:
    options = ["--keep-best-checkpoints", 2, "--max-update", 1000, "--no-epoch-checkpoints"]
    args = [*tiny_train_args(copy_task.bin, tmp_path), *options]

    def epochs(losses: str, last: int) -> None:
        result = run("python", STUBBED, losses, *args, "--max-epoch", last)
        assert result.rc == 0, result.out

    def kept() -> list[float]:
        return sorted(float(re.findall(r"loss_(\d+\.\d{3})", p.name)[0]) for p in tmp_path.glob("*best_loss*"))

    epochs("5,2,4,3", 4)
    assert kept() == [2, 3]
    best = tmp_path / "checkpoint_best.pt"
    digest, n_updates = hashlib.sha256(best.read_bytes()).hexdigest(), updates_of(tmp_path / "checkpoint_last.pt")
    epochs("6", 5)
    assert hashlib.sha256(best.read_bytes()).hexdigest() == digest
    assert kept() == [2, 3]
    epochs("1", 6)
    assert kept() == [1, 2]
    assert load_checkpoint(best)["extra_state"]["val_loss"] == 1
    assert updates_of(tmp_path / "checkpoint_last.pt") == n_updates // 4 * 6
    assert load_checkpoint(tmp_path / "checkpoint_last.pt")["extra_state"]["best"] == 1


# --- space -----------------------------------------------------------------------------------------------------------


def options_of(folder: Path, **changed: object) -> object:
    """The toolkit's options that say what is kept, with its defaults."""
    checkpoint = {
        "save_dir": str(folder), "no_save": False, "no_last_checkpoints": False, "keep_best_checkpoints": -1,
        "no_epoch_checkpoints": False, "keep_last_epochs": -1, "save_interval": 1, "save_interval_updates": 0,
        "keep_interval_updates": -1,
    }  # fmt: skip
    both = {"dataset": {"disable_validation": False}, "optimization": {"max_epoch": 0, "max_update": 1000}}
    for part in (checkpoint, *both.values()):
        part.update({name: value for name, value in changed.items() if name in part})
    return OmegaConf.create({"checkpoint": checkpoint, **both})


@pytest.mark.parametrize(
    ("changed", "kept"),
    [
        ({}, 3),
        ({"max_epoch": 40}, 42),
        ({"max_epoch": 40, "save_interval": 4}, 12),
        ({"max_epoch": 40, "keep_last_epochs": 10}, 12),
        ({"no_epoch_checkpoints": True}, 2),
        ({"no_epoch_checkpoints": True, "disable_validation": True}, 1),
        ({"no_epoch_checkpoints": True, "save_interval_updates": 100}, 12),
        ({"no_epoch_checkpoints": True, "save_interval_updates": 100, "keep_interval_updates": 3}, 5),
        ({"no_epoch_checkpoints": True, "keep_best_checkpoints": 4}, 6),
        ({"no_save": True}, 0),
    ],
)
def test_how_many_checkpoints_are_kept(changed: dict[str, object], kept: int, tmp_path: Path) -> None:
    assert number_kept(options_of(tmp_path, **changed)) == kept


def test_too_little_space_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(checkpoints.shutil, "disk_usage", lambda folder: usage._replace(free=3_000_000))
    options = options_of(tmp_path, no_epoch_checkpoints=True, keep_best_checkpoints=1)  # 3 kept, 1 while written
    with caplog.at_level(logging.WARNING):
        warn_of_space(options, 3_000_000 // (4 * 12))
        assert not caplog.messages
        warn_of_space(options, 3_000_000 // (4 * 12) + 1)
    assert caplog.messages == [
        f"{tmp_path} has 3.0 MB free, but 4 checkpoints to come, one of them while it replaces another, need about "
        "3.0 MB (12 bytes for each of 62501 parameters); keep fewer, or save elsewhere"
    ]
    (tmp_path / "checkpoint_last.pt").touch()  # its space is taken already
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        warn_of_space(options, 3_000_000 // (4 * 12) + 1)
    assert not caplog.messages


def test_the_estimate_is_what_a_checkpoint_takes(run_of_20: Path) -> None:
    """12 bytes for a parameter, and what does not grow with the model."""
    path = run_of_20 / "checkpoint_last.pt"
    n_parameters = sum(tensor.numel() for tensor in load_checkpoint(path)["model"].values())
    assert 0 < path.stat().st_size - 12 * n_parameters < 150_000


def test_installing_twice_changes_nothing() -> None:
    utils, trainer = checkpoints.fairseq.checkpoint_utils, checkpoints.fairseq.trainer.Trainer
    before = utils.torch_persistent_save, utils.PathManager, trainer.load_checkpoint
    checkpoints.install()
    assert (utils.torch_persistent_save, utils.PathManager, trainer.load_checkpoint) == before
