"""vaswani-average: which files, what mean, what stays, and that the toolkit loads it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Dict, List

import pytest
import torch
from toolkit_runner import PLUGIN, CopyTask, run, tiny_train_args

from vaswani_plugin.toolkit import load_checkpoint
from vaswani_plugin.tools import average
from vaswani_plugin.tools.cli import CommandError


def checkpoint(weights: Dict[str, torch.Tensor], updates: int = 1, **extra: Any) -> Dict[str, Any]:
    """The least that a checkpoint of the toolkit holds."""
    return {
        "cfg": {"model": {"_name": "made_up"}},
        "args": None,
        "model": weights,
        "optimizer_history": [{"num_updates": updates}],
        "extra_state": {"train_iterator": {"epoch": updates}, **extra},
        "last_optimizer_state": {"state": {0: torch.ones(3)}},
    }


def save(path: Path, weights: Dict[str, torch.Tensor], updates: int = 1, **extra: Any) -> Path:
    torch.save(checkpoint(weights, updates, **extra), str(path))
    return path


def save_all(folder: Path, *weights: Dict[str, torch.Tensor]) -> List[Path]:
    return [save(folder / f"checkpoint{i}.pt", each, updates=10 * i) for i, each in enumerate(weights, start=1)]


def test_mean_of_three_in_each_tensors_own_dtype(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(1)
    weights = [
        {
            "single": torch.randn(2, 3, generator=generator),
            "half": torch.randn(5, generator=generator).half(),
            "bfloat": torch.randn(7, generator=generator).bfloat16(),
            "double": torch.randn(1, generator=generator, dtype=torch.float64),
            "empty": torch.zeros(0, 4),
            "scalar": torch.tensor(float(i)),
        }
        for i in range(3)
    ]
    mean = average.average(save_all(tmp_path, *weights))["model"]
    assert list(mean) == list(weights[0])
    for name, tensor in mean.items():
        values = [each[name].flatten().tolist() for each in weights]
        expected = [(a + b + c) / 3 for a, b, c in zip(*values)]  # Python floats; its sum() is more exact from 3.12 on
        assert tensor.dtype == weights[0][name].dtype
        assert tensor.shape == weights[0][name].shape
        torch.testing.assert_close(
            tensor.flatten(), torch.tensor(expected, dtype=torch.float64).to(tensor.dtype), rtol=0, atol=0
        )


def test_sums_do_not_lose_small_parts_or_overflow(tmp_path: Path) -> None:
    many = [{"w": torch.tensor([60000.0, 1.0]).half()} for _ in range(4)]
    assert average.average(save_all(tmp_path, *many))["model"]["w"].tolist() == [60000.0, 1.0]
    far = [{"w": torch.tensor([value])} for value in (2.0**25, 1.0, 1.0, -(2.0**25))]
    assert average.average(save_all(tmp_path, *far))["model"]["w"].tolist() == [0.5]


def test_the_mean_of_one_file_is_that_file(tmp_path: Path) -> None:
    weights = {"w": torch.tensor([0.1, 1e-30, -7.0])}
    assert torch.equal(average.average(save_all(tmp_path, weights))["model"]["w"], weights["w"])


def test_integer_tensors_come_from_the_last_file(tmp_path: Path) -> None:
    paths = save_all(
        tmp_path, *({"steps": torch.tensor([i]), "flag": torch.tensor(i == 2), "w": torch.zeros(1)} for i in (1, 2))
    )
    mean = average.average(paths)["model"]
    assert mean["steps"].tolist() == [2]
    assert mean["steps"].dtype == torch.int64
    assert mean["flag"].item() is True


def test_tied_weights_stay_tied_and_untied_ones_untied(tmp_path: Path) -> None:
    weights = []
    for i in (1.0, 3.0):
        tied = torch.full((4, 2), i)
        weights.append({"a": tied, "b": tied, "twin": tied.clone()})
    # In the second file "c" is the memory of "a", in the first it is not.
    weights[0]["c"], weights[1]["c"] = torch.full((4, 2), 9.0), weights[1]["a"]
    mean = average.average(save_all(tmp_path, *weights))["model"]
    assert mean["a"].data_ptr() == mean["b"].data_ptr()
    assert len({mean[name].data_ptr() for name in ("a", "c", "twin")}) == 3
    assert mean["a"].unique().tolist() == [2.0]
    assert mean["c"].unique().tolist() == [6.0]
    torch.save({"model": mean}, str(tmp_path / "mean.pt"))
    torch.save({"model": {name: tensor.clone() for name, tensor in mean.items()}}, str(tmp_path / "untied.pt"))
    assert (tmp_path / "mean.pt").stat().st_size < (tmp_path / "untied.pt").stat().st_size


def test_everything_else_is_the_last_files_without_the_optimizer(tmp_path: Path) -> None:
    paths = [
        save(tmp_path / f"c{i}.pt", {"w": torch.ones(1)}, i, ema={"w": torch.ones(1)}, ema_fp32_params={}, note=i)
        for i in (1, 2)
    ]
    state = average.average(paths)
    assert set(state) == {"cfg", "args", "model", "optimizer_history", "extra_state"}
    assert state["extra_state"] == {
        "train_iterator": {"epoch": 2},
        "note": 2,
        "averaged": [{"file": "c1.pt", "num_updates": 1}, {"file": "c2.pt", "num_updates": 2}],
    }
    assert state["optimizer_history"] == [{"num_updates": 2}]


def test_files_are_counted_as_numbers(tmp_path: Path) -> None:
    for name in ("1", "2", "9", "10", "11", "_3_900", "_4_1000", "_12_999", "_best", "_last", "5.copy"):
        (tmp_path / f"checkpoint{name}.pt").touch()
    names = [path.name for path in average.find_last(tmp_path, 3, "epoch")]
    assert names == ["checkpoint9.pt", "checkpoint10.pt", "checkpoint11.pt"]
    names = [path.name for path in average.find_last(tmp_path, 3, "update")]
    assert names == ["checkpoint_3_900.pt", "checkpoint_12_999.pt", "checkpoint_4_1000.pt"]


@pytest.mark.parametrize(("by", "shape", "found"), [("epoch", "checkpointE.pt", 2), ("update", "checkpoint_E_U.pt", 0)])
def test_too_few_files_name_how_many_there_are(by: str, shape: str, found: int, tmp_path: Path) -> None:
    for name in ("1", "2", "_best"):
        (tmp_path / f"checkpoint{name}.pt").touch()
    with pytest.raises(CommandError, match=f"--last 5 --by {by} needs 5 files {shape}, found {found}$"):
        average.find_last(tmp_path, 5, by)
    with pytest.raises(CommandError, match="nowhere: no such folder$"):
        average.find_last(tmp_path / "nowhere", 5, by)


def test_refuses_files_that_do_not_fit(tmp_path: Path) -> None:
    first = save(tmp_path / "first.pt", {"a": torch.ones(2, 3), "b": torch.ones(1)})
    other = save(tmp_path / "other.pt", {"a": torch.ones(2, 3), "c": torch.ones(1)})
    shape = save(tmp_path / "shape.pt", {"a": torch.ones(3, 2), "b": torch.ones(1)})
    with pytest.raises(CommandError, match=f"^{other}: other weights than {first}: lacks b and also has c$"):
        average.average([first, other])
    with pytest.raises(CommandError, match=rf"^{shape}: a has shape \(3, 2\), but \(2, 3\) in {first}$"):
        average.average([first, shape])
    bad = save(tmp_path / "bad.pt", {"a": torch.ones(2, 3), "b": torch.tensor([float("nan")])})
    with pytest.raises(CommandError, match=f"^{bad}: b holds values that are not finite$"):
        average.average([first, bad])
    with pytest.raises(CommandError, match=f"^given twice: {first}$"):
        average.average([first, other, first])
    with pytest.raises(CommandError, match="^no checkpoints to average$"):
        average.average([])


class Stranger:
    """A class that no checkpoint of the toolkit carries."""


def test_refuses_what_is_no_checkpoint_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    strange = tmp_path / "strange.pt"
    torch.save({"model": {}, "cfg": Stranger()}, str(strange))
    torch.save([1], str(tmp_path / "list.pt"))
    save(tmp_path / "whole.pt", {"w": torch.ones(1000)})
    (tmp_path / "cut.pt").write_bytes((tmp_path / "whole.pt").read_bytes()[:2000])
    output = tmp_path / "mean.pt"
    for name, words in (
        ("strange", "Stranger"),
        ("list", "is no checkpoint of the toolkit"),
        ("cut", "is not a whole checkpoint"),
        ("nowhere", "there is no checkpoint"),
    ):
        assert average.main(["--inputs", str(tmp_path / f"{name}.pt"), "--output", str(output)]) == 1
        error = capsys.readouterr().err
        assert "vaswani-average: error: " in error
        assert str(tmp_path / f"{name}.pt") in error
        assert words in error
    assert not list(tmp_path.glob("*mean.pt*"))


def test_an_old_checkpoint_with_a_namespace_is_averaged(tmp_path: Path) -> None:
    state = {**checkpoint({"w": torch.ones(2)}), "args": argparse.Namespace(arch="transformer"), "cfg": None}
    torch.save(state, str(tmp_path / "old.pt"))
    assert average.main(["--inputs", str(tmp_path / "old.pt"), "--output", str(tmp_path / "mean.pt")]) == 0
    assert load_checkpoint(tmp_path / "mean.pt")["args"].arch == "transformer"


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--dir", "d"], "--dir needs --last N with N at least 1, not None"),
        (["--dir", "d", "--last", "0"], "--dir needs --last N with N at least 1, not 0"),
        (["--inputs", "a.pt", "--last", "2"], "--last goes with --dir, not with --inputs"),
    ],
)
def test_refuses_options_that_do_not_go_together(
    words: List[str], error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        average.main([*words, "--output", "mean.pt"])
    assert capsys.readouterr().err.strip().endswith(f"vaswani-average: error: {error}")


def test_output_is_none_of_the_inputs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (path,) = save_all(tmp_path, {"w": torch.ones(1)})
    before = path.read_bytes()
    assert average.main(["--dir", str(tmp_path), "--last", "1", "--output", str(path)]) == 1
    assert capsys.readouterr().err == f"vaswani-average: error: --output {path} is one of the files to average\n"
    assert path.read_bytes() == before


@pytest.mark.parametrize("name", ["checkpoint_last.pt", "checkpoint_best.pt", "checkpoint2.pt", "checkpoint_1_7.pt"])
def test_the_trainings_own_checkpoints_are_not_written_over(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(tmp_path / "checkpoint1.pt", {"w": torch.ones(1)})
    words = ["--dir", str(tmp_path), "--last", "1", "--output"]
    assert average.main([*words, str(tmp_path / name)]) == 1
    assert capsys.readouterr().err == (
        f"vaswani-average: error: --output {tmp_path / name}: a name of the training's own checkpoints; "
        "give the mean another\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint1.pt"]
    assert average.main([*words, str(tmp_path / "elsewhere" / name)]) == 0


def test_the_toolkit_generates_with_the_mean(
    copy_task: CopyTask, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--save-interval-updates", 7, "--keep-interval-updates", 3, "--no-epoch-checkpoints"]
    run("fairseq-train", *tiny_train_args(copy_task.bin, tmp_path, updates=30), *options).ok()
    output = tmp_path / "mean.pt"
    assert average.main(["--dir", str(tmp_path), "--last", "3", "--by", "update", "--output", str(output)]) == 0
    inputs = sorted(tmp_path.glob("checkpoint_?_??.pt"), key=lambda path: int(path.stem.split("_")[2]))
    assert capsys.readouterr().out == f"{output}: mean of 3 checkpoints: {', '.join(path.name for path in inputs)}\n"

    states = [load_checkpoint(path)["model"] for path in inputs]
    mean = load_checkpoint(output)
    assert [entry["num_updates"] for entry in mean["extra_state"]["averaged"]] == [14, 21, 28]
    for name, tensor in mean["model"].items():
        expected = torch.stack([state[name].double() for state in states]).mean(0).float()
        torch.testing.assert_close(tensor, expected, rtol=0, atol=1e-7)
    result = run(
        "fairseq-generate", copy_task.bin, "--user-dir", PLUGIN, "--task", "vaswani_translation", "--path", output,
        "--cpu", "--num-workers", 0,
    ).ok()  # fmt: skip
    assert len(result.lines("H-")) == 13


def test_a_file_by_two_names_is_one_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (path,) = save_all(tmp_path, {"w": torch.ones(1)})
    before = path.read_bytes()
    (tmp_path / "sub").mkdir()
    other = tmp_path / "sub" / ".." / path.name
    assert average.main(["--inputs", str(path), "--output", str(other)]) == 1
    assert capsys.readouterr().err == f"vaswani-average: error: --output {other} is one of the files to average\n"
    assert path.read_bytes() == before
    assert average.main(["--inputs", str(path), str(other), "--output", str(tmp_path / "mean.pt")]) == 1
    assert capsys.readouterr().err.endswith(f"vaswani-average: error: given twice: {path}, {other}\n")


@pytest.mark.parametrize(
    ("weights", "error"),
    [
        ({}, "no weights under 'model'"),
        (3, "no weights under 'model'"),
        ({"w": torch.ones(1), "name": "text"}, "no tensors, but something else under name"),
    ],
)
def test_refuses_a_model_that_is_no_tensors(weights: Any, error: str, tmp_path: Path) -> None:
    path = save(tmp_path / "odd.pt", weights)
    with pytest.raises(CommandError, match=f"^{path}: {error}$"):
        average.load_weights(path)


def test_what_surrounds_the_weights_may_be_of_any_kind(tmp_path: Path) -> None:
    torch.save({"model": {"w": torch.ones(2)}, "optimizer_history": 3, "extra_state": 4}, str(tmp_path / "odd.pt"))
    assert average.average([tmp_path / "odd.pt"])["extra_state"] == {
        "averaged": [{"file": "odd.pt", "num_updates": None}]
    }
