"""Several workers: they find each other by torchrun's variables, make one update together, and stop together."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Dict

import pytest
import torch
from omegaconf import OmegaConf
from test_preemption import SIGNALLED
from toolkit_runner import CopyTask, Result, environment, make_copy_task, run, tiny_train_args

from vaswani_plugin import workers
from vaswani_plugin.toolkit import load_checkpoint


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def variables(rank: int, port: int, n_workers: int = 2) -> Dict[str, str]:
    """What torchrun sets."""
    return {
        "WORLD_SIZE": str(n_workers), "RANK": str(rank), "LOCAL_RANK": str(rank), "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }  # fmt: skip


def two_workers(command: str, *words: object) -> tuple[Result, Result]:
    port = free_port()
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda rank: run(command, *words, env=variables(rank, port)), [0, 1])
    return first, second


# --- one update -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sixteen(tmp_path_factory: pytest.TempPathFactory) -> CopyTask:
    """16 sentences, which are two batches of 8 or one of 16."""
    return make_copy_task(tmp_path_factory.mktemp("sixteen"), n_lines=16)


def gradient_of_the_update(save_dir: Path) -> torch.Tensor:
    """The gradient of the one update over all parameters, in float64: ten times Adam's first moment after it.

    The update itself says less: Adam's first step is the gradient's sign, and where the gradient is zero but for
    rounding, as for the biases of keys, that is noise.
    """
    state = load_checkpoint(save_dir / "checkpoint_last.pt")["last_optimizer_state"]["state"]
    return 10 * torch.cat([state[n]["exp_avg"].double().flatten() for n in sorted(state)])


def test_two_workers_and_two_portions_make_the_update_of_the_whole_batch(sixteen: CopyTask, tmp_path: Path) -> None:
    args = [
        *tiny_train_args(sixteen.bin, tmp_path, updates=1), "--max-tokens", 10000, "--dropout", 0,
        "--warmup-updates", 1,         "--encoder-embed-dim", 32, "--decoder-embed-dim", 32, "--no-epoch-checkpoints",
    ]  # fmt: skip
    whole = run("fairseq-train", *args, "--batch-size", 16, "--save-dir", tmp_path / "whole").ok()
    halves = run("fairseq-train", *args, "--batch-size", 8, "--update-freq", 2, "--save-dir", tmp_path / "halves").ok()
    both = two_workers("fairseq-train", *args, "--batch-size", 8, "--save-dir", tmp_path / "two")
    for result in both:
        result.ok()
    assert "training on 2 devices" in both[0].out
    logged = [re.findall(r"train_inner.* wpb=(\d+), bsz=(\d+)", result.out) for result in (whole, halves, both[0])]
    assert logged[0] == logged[1] == logged[2]
    assert logged[0][0][1] == "16"
    gradients = [gradient_of_the_update(tmp_path / name) for name in ("whole", "halves", "two")]
    assert gradients[0].norm() > 0.01
    for gradient in gradients[1:]:
        assert float((gradient - gradients[0]).norm() / gradients[0].norm()) < 1e-6


# --- the end ----------------------------------------------------------------------------------------------------------


def test_an_uneven_last_share_hangs_nothing(copy_task: CopyTask, tmp_path: Path) -> None:
    """An odd number of batches for two workers, in training and in validation, over two epochs."""
    args = [*tiny_train_args(copy_task.bin, tmp_path, updates=100), "--max-epoch", 2, "--batch-size", 12]
    args += ["--required-batch-size-multiple", 1]
    args += ["--valid-subset", "valid,test", "--batch-size-valid", 5, "--no-epoch-checkpoints"]
    first, second = two_workers("fairseq-train", *args)
    first.ok(), second.ok()
    n_batches = len(re.findall(r"train_inner.*epoch 001", first.out))
    one = run("fairseq-train", *args, "--save-dir", tmp_path / "one", "--max-epoch", 1).ok()
    alone = len(re.findall(r"train_inner.*epoch 001", one.out))
    assert alone % 2 == 1
    assert n_batches == (alone + 1) // 2
    assert "done training" in first.out


def test_a_signal_to_one_worker_stops_both_after_the_same_update(copy_task: CopyTask, tmp_path: Path) -> None:
    args = [*tiny_train_args(copy_task.bin, tmp_path / "parts", updates=7), "--no-epoch-checkpoints", "--dropout", 0.1]
    port = free_port()

    def worker(rank: int) -> Result:
        if rank == 1:
            return run("python", SIGNALLED, "SIGUSR1", 4, *args, env=variables(rank, port))
        return run("fairseq-train", *args, env=variables(rank, port))

    with ThreadPoolExecutor(2) as pool:
        stopped = list(pool.map(worker, [0, 1]))
    assert [result.rc for result in stopped] == [75, 75], stopped[0].out + stopped[1].out
    last = load_checkpoint(tmp_path / "parts" / "checkpoint_last.pt")
    assert last["optimizer_history"][-1]["num_updates"] in (4, 5)  # it may come between two exchanges
    assert "a signal to another worker: saved after" in stopped[0].out
    for result in (*two_workers("fairseq-train", *args), *two_workers("fairseq-train", *args, "--save-dir", tmp_path)):
        result.ok()
    parts, whole = (
        load_checkpoint(folder / "checkpoint_last.pt")["model"] for folder in (tmp_path / "parts", tmp_path)
    )
    assert all(torch.equal(parts[name], whole[name]) for name in whole)


def test_two_workers_go_on_from_the_same_older_checkpoint(copy_task: CopyTask, tmp_path: Path) -> None:
    args = [
        *tiny_train_args(copy_task.bin, tmp_path, updates=4),
        "--save-interval-updates",
        2,
        "--no-epoch-checkpoints",
    ]
    for result in two_workers("fairseq-train", *args):
        result.ok()
    (tmp_path / "checkpoint_last.pt").write_bytes(b"")
    for path in [*tmp_path.glob("checkpoint_*_4.pt"), tmp_path / "checkpoint_best.pt"]:
        path.unlink(missing_ok=True)
    first, second = two_workers("fairseq-train", *args)
    first.ok(), second.ok()
    assert re.search(r"going on from \S+checkpoint_1_2\.pt, which was saved after 2 updates", first.out)
    assert re.findall(r"train_inner.*num_updates=(\d+)", first.out) == ["3", "4"]


# --- torchrun ---------------------------------------------------------------------------------------------------------


def options(cpu: bool = True, **changed: object) -> object:
    """The toolkit's options of distributed training, with their defaults."""
    training = {
        "distributed_init_method": None, "distributed_world_size": 1, "distributed_rank": 0,
        "distributed_no_spawn": False, "device_id": 0, "distributed_backend": "nccl", "ddp_backend": "pytorch_ddp",
        **changed,
    }  # fmt: skip
    return OmegaConf.create({"common": {"cpu": cpu}, "distributed_training": training})


@pytest.fixture
def torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    """As worker 3 of 4, the second on the second machine."""
    set_to = {"WORLD_SIZE": "4", "RANK": "3", "LOCAL_RANK": "1", "MASTER_ADDR": "node0", "MASTER_PORT": "29500"}
    for name, value in {**set_to, "CUDA_VISIBLE_DEVICES": "0,1"}.items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("torchrun")
def test_workers_on_gpus_take_the_device_of_their_place_on_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers.torch.cuda, "is_available", lambda: True)
    cfg = options(cpu=False)
    workers.join(cfg)
    assert cfg == options(
        cpu=False, distributed_init_method="env://", distributed_world_size=4, distributed_rank=3,
        distributed_no_spawn=True, device_id=1,
    )  # fmt: skip
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0,1"


@pytest.mark.usefixtures("torchrun")
def test_workers_on_processors_talk_by_gloo_and_see_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers.torch.cuda, "is_available", lambda: True)
    cfg = options()
    workers.join(cfg)
    assert cfg == options(
        distributed_init_method="env://", distributed_world_size=4, distributed_rank=3, distributed_no_spawn=True,
        distributed_backend="gloo", ddp_backend="legacy_ddp",
    )  # fmt: skip
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ""


@pytest.mark.usefixtures("torchrun")
def test_options_that_say_where_to_meet_win() -> None:
    cfg = options(distributed_init_method="tcp://other:1")
    workers.join(cfg)
    assert cfg == options(distributed_init_method="tcp://other:1")


@pytest.mark.parametrize("missing", ["WORLD_SIZE", "RANK", "MASTER_ADDR", "MASTER_PORT"])
@pytest.mark.usefixtures("torchrun")
def test_without_torchrun_nothing_changes(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(missing)
    cfg = options()
    workers.join(cfg)
    assert cfg == options()


@pytest.mark.usefixtures("torchrun")
def test_one_worker_is_no_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "1")
    cfg = options()
    workers.join(cfg)
    assert cfg == options()


@pytest.mark.slow
def test_torchrun_on_processors_trains_one_model(copy_task: CopyTask, tmp_path: Path) -> None:
    """The toolkit's own command under torchrun, which trained two copies that overwrote each other."""
    command = Path(sysconfig.get_path("scripts")) / "fairseq-train"
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", str(free_port()),
         "--no-python", command, *tiny_train_args(copy_task.bin, tmp_path, updates=3)],
        capture_output=True, text=True, env=environment(), check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("training on 2 devices") == 1  # the second worker logs warnings only
    state = load_checkpoint(tmp_path / "checkpoint_last.pt")
    assert state["cfg"]["distributed_training"]["distributed_world_size"] == 2
