"""Safe loading of checkpoints, by our function, by the toolkit and with older versions of torch."""

from __future__ import annotations

import os
import pickle
import re
import socket
import zipfile
from argparse import Namespace
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fairseq.checkpoint_utils
import fairseq.distributed.utils
import numpy as np
import pytest
import torch
from toolkit_runner import PLUGIN, CopyTask, Result, run, tiny_train_args

from vaswani_plugin import toolkit
from vaswani_plugin.toolkit import CheckpointError, load_checkpoint

needs_allow_list = pytest.mark.skipif(not toolkit._HAS_ALLOW_LIST, reason="torch below 2.6 loads anything by default")


class Foreign:
    """A class that no checkpoint of the toolkit holds."""


FOREIGN = f"{Foreign.__module__}.Foreign"


def refused_text(path: Path, name: str = FOREIGN) -> str:
    text = (
        f"{path} carries {name}, which the toolkit does not write into checkpoints. It was not loaded, because loading "
        "a class can run any code. If you trust the file, allow the class with torch.serialization.add_safe_globals "
        "before you load it."
    )
    return f"^{re.escape(text)}$"


@pytest.fixture(params=[True, False], ids=["allow-list", "restricted pickle"])
def either_torch(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs the test as on torch 2.6 and later, and as before."""
    if request.param and not toolkit._HAS_ALLOW_LIST:
        pytest.skip("this torch has no allow-list")
    monkeypatch.setattr(toolkit, "_HAS_ALLOW_LIST", request.param)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """What the toolkit writes, in small: tensors, options, the counts of --eval-bleu."""
    path = tmp_path / "checkpoint.pt"
    state = {
        "model": {"weight": torch.arange(6.0).view(2, 3), "half": torch.ones(2, dtype=torch.float16)},
        "cfg": {"model": Namespace(arch="transformer"), "task": {"data": "x"}},
        "extra_state": {"counts": np.array([4, 3, 2, 1]), "summed": np.array([4.5, 3.0])},
    }
    torch.save(state, path)
    return path


@pytest.mark.usefixtures("either_torch")
def test_load_checkpoint_returns_what_the_toolkit_saved(checkpoint: Path) -> None:
    state = load_checkpoint(checkpoint)
    assert torch.equal(state["model"]["weight"], torch.tensor([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]))
    assert state["model"]["half"].dtype == torch.float16
    assert state["cfg"]["model"] == Namespace(arch="transformer")
    assert state["extra_state"]["counts"].tolist() == [4, 3, 2, 1]
    assert state["extra_state"]["summed"].tolist() == [4.5, 3.0]


@pytest.mark.usefixtures("either_torch")
def test_arrays_written_by_either_numpy_load(checkpoint: Path, tmp_path: Path) -> None:
    other, names = tmp_path / "other.pt", (b"numpy._core.multiarray", b"numpy.core.multiarray")
    with zipfile.ZipFile(checkpoint) as old, zipfile.ZipFile(other, "w") as new:
        for entry in old.namelist():
            content = old.read(entry)
            here, there = names if names[0] in content else names[::-1]
            new.writestr(entry, content.replace(here, there) if entry.endswith("data.pkl") else content)
    assert load_checkpoint(other)["extra_state"]["counts"].tolist() == [4, 3, 2, 1]


@pytest.mark.usefixtures("either_torch")
def test_the_format_before_zip_files_loads(checkpoint: Path, tmp_path: Path) -> None:
    state = load_checkpoint(checkpoint)
    torch.save(state, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    assert torch.equal(load_checkpoint(tmp_path / "old.pt")["model"]["weight"], state["model"]["weight"])


@pytest.mark.usefixtures("either_torch")
@pytest.mark.parametrize("place", ["model", "extra_state"])
def test_another_class_is_refused_by_name(place: str, tmp_path: Path) -> None:
    path = tmp_path / "foreign.pt"
    torch.save({"model": {}, place: {"x": Foreign()}}, path)
    with pytest.raises(CheckpointError, match=refused_text(path)):
        load_checkpoint(path)


@pytest.mark.usefixtures("either_torch")
def test_code_in_a_checkpoint_does_not_run(tmp_path: Path) -> None:
    class MakesFolder:
        def __reduce__(self) -> tuple:
            return os.mkdir, (str(tmp_path / "ran"),)

    path = tmp_path / "attack.pt"
    torch.save({"model": MakesFolder()}, path)
    with pytest.raises(CheckpointError, match=refused_text(path, f"{os.mkdir.__module__}.mkdir")):
        load_checkpoint(path)
    assert not (tmp_path / "ran").exists()


@needs_allow_list
def test_an_array_of_objects_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "objects.pt"
    torch.save({"model": np.array([None], dtype=object)}, path)
    with pytest.raises(CheckpointError, match=r"objects\.pt carries numpy\.[\w.]*, which the toolkit does not write"):
        load_checkpoint(path)


@pytest.mark.usefixtures("either_torch")
@pytest.mark.parametrize("n_bytes", [0, 1, 4, 100, 1500])
def test_a_cut_off_file_is_named_with_its_size(n_bytes: int, checkpoint: Path, tmp_path: Path) -> None:
    whole, path = checkpoint.read_bytes(), tmp_path / "cut.pt"
    assert n_bytes < len(whole)
    path.write_bytes(whole[:n_bytes])
    text = (
        f"{path} ({n_bytes:,} bytes) is not a whole checkpoint: it was cut off while it was written, or it is another "
        "kind of file"
    )
    with pytest.raises(CheckpointError, match=f"^{re.escape(text)}$"):
        load_checkpoint(path)


def test_a_trained_checkpoint_cut_anywhere_is_refused(tiny_checkpoint: Path, tmp_path: Path) -> None:
    whole = tiny_checkpoint.read_bytes()
    for n_bytes in (1000, 20000, len(whole) // 2, len(whole) - 1):
        (tmp_path / "cut.pt").write_bytes(whole[:n_bytes])
        with pytest.raises(CheckpointError, match=rf"cut\.pt \({n_bytes:,} bytes\) is not a whole checkpoint"):
            load_checkpoint(tmp_path / "cut.pt")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=f"^there is no checkpoint {re.escape(str(tmp_path / 'none.pt'))}$"):
        load_checkpoint(tmp_path / "none.pt")


def test_a_file_that_is_no_checkpoint_is_named(tmp_path: Path) -> None:
    torch.save({"weights": 1, "step": 2}, tmp_path / "dict.pt")
    torch.save([1], tmp_path / "list.pt")
    text = r'is no checkpoint of the toolkit: it has no "model", but '
    with pytest.raises(CheckpointError, match=rf"dict\.pt {text}weights, step$"):
        load_checkpoint(tmp_path / "dict.pt")
    with pytest.raises(CheckpointError, match=rf"list\.pt {text}list$"):
        load_checkpoint(tmp_path / "list.pt")


@needs_allow_list
def test_torch_load_outside_the_toolkit_stays_as_it_is(checkpoint: Path, tmp_path: Path) -> None:
    torch.save(Foreign(), tmp_path / "foreign.pt")
    with pytest.raises(pickle.UnpicklingError, match=rf"GLOBAL {FOREIGN} was not an allowed global"):
        torch.load(tmp_path / "foreign.pt")
    torch.save(fairseq.distributed.utils._TensorPlaceholder(1), tmp_path / "sent.pt")
    with pytest.raises(pickle.UnpicklingError, match=r"_TensorPlaceholder was not an allowed global"):
        torch.load(tmp_path / "sent.pt")
    assert fairseq.checkpoint_utils.torch.load is not torch.load
    assert fairseq.checkpoint_utils.torch.save is torch.save
    assert "cfg" in torch.load(checkpoint)


def test_the_toolkit_names_file_and_class_too(tmp_path: Path) -> None:
    path = tmp_path / "foreign.pt"
    torch.save({"model": {}, "args": Foreign()}, path)
    with pytest.raises(CheckpointError, match=refused_text(path)):
        fairseq.checkpoint_utils.load_checkpoint_to_cpu(str(path))


def test_installing_twice_changes_nothing() -> None:
    before = toolkit.fairseq.checkpoint_utils.torch.load, torch.load
    toolkit.install()
    assert (toolkit.fairseq.checkpoint_utils.torch.load, torch.load) == before


def train_with_two_workers(data: Path, save_dir: Path, updates: int, *options: object) -> Result:
    """Trains with two processes on the CPU; returns what the first printed, and checks that both ended well."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    def worker(rank: int) -> Result:
        return run(
            "fairseq-train", *tiny_train_args(data, save_dir, updates=updates), "--no-epoch-checkpoints",
            "--distributed-world-size", 2, "--distributed-rank", rank, "--distributed-no-spawn",
            "--distributed-backend", "gloo", "--distributed-init-method", f"tcp://127.0.0.1:{port}",
            "--ddp-backend", "legacy_ddp", "--dropout", "0.1", *options, timeout_seconds=240,
        )  # fmt: skip

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(worker, [0, 1])
    second.ok()
    return first.ok()


def test_two_workers_resume_and_end_as_if_never_stopped(copy_task: CopyTask, tmp_path: Path) -> None:
    bleu = ["--eval-bleu", "--eval-bleu-args", '{"beam": 1}']
    train_with_two_workers(copy_task.bin, tmp_path / "whole", 6, *bleu)
    train_with_two_workers(copy_task.bin, tmp_path / "parts", 4, *bleu)
    again = train_with_two_workers(copy_task.bin, tmp_path / "parts", 6, *bleu)
    assert "@ 4 updates" in again.out
    whole, parts = (load_checkpoint(tmp_path / name / "checkpoint_last.pt") for name in ("whole", "parts"))
    assert whole["model"].keys() == parts["model"].keys()
    assert all(torch.equal(whole["model"][name], parts["model"][name]) for name in whole["model"])


def test_every_command_loads_what_training_wrote(copy_task: CopyTask, tmp_path: Path) -> None:
    """Resume, generate, interactive and from_pretrained with arrays of --eval-bleu in the file, no TORCH_FORCE_ set."""
    train = tiny_train_args(copy_task.bin, tmp_path, updates=4)
    options = ["--eval-bleu", "--eval-bleu-args", '{"beam": 1}', "--keep-best-checkpoints", 2]
    run("fairseq-train", *train, *options, "--best-checkpoint-metric", "bleu", "--maximize-best-checkpoint-metric").ok()
    again = run("fairseq-train", *train, *options, "--max-update", 6).ok()
    assert "Loaded checkpoint" in again.out
    assert "num_updates=5" in again.out
    assert "num_updates=3" not in again.out

    last = tmp_path / "checkpoint_last.pt"
    search = ["--user-dir", PLUGIN, "--task", "vaswani_translation", "--path", last, "--cpu", "--beam", 1]
    assert len(run("fairseq-generate", copy_task.bin, *search).ok().lines("H-")) == 13
    assert len(run("fairseq-interactive", copy_task.bin, *search, stdin="w1 w2\nw3\n").ok().lines("H-")) == 2

    code = (
        "import sys; from vaswani_plugin.transformer import VaswaniTransformer as Model;"
        "hub = Model.from_pretrained(sys.argv[1], 'checkpoint_last.pt', sys.argv[2]);"
        "print('HUB', type(hub.models[0]).__name__, [hub.translate('w1 w2') is not None])"
    )
    assert "HUB VaswaniTransformer [True]" in run("python", code, tmp_path, copy_task.bin).ok().out


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ({"weights": 1}, 'it has no "model", but weights'),
        ([1], 'it has no "model", but list'),
        ({"model": {}, "cfg": None}, 'it has a "model", but no "optimizer_history" beside it'),
    ],
)
def test_the_toolkit_refuses_what_another_program_saved(state: object, said: str, tmp_path: Path) -> None:
    path = tmp_path / "foreign.pt"
    torch.save(state, str(path))
    with pytest.raises(CheckpointError, match=f"^{path} is no checkpoint of the toolkit: {said}$"):
        fairseq.checkpoint_utils.load_checkpoint_to_cpu(str(path))
