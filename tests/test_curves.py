"""vaswani-curves: both log formats of the toolkit, resumed runs, and a picture."""

from __future__ import annotations

from pathlib import Path
from typing import List

import pytest
from toolkit_runner import CopyTask, run, tiny_train_args

from vaswani_plugin.tools import curves
from vaswani_plugin.tools.cli import CommandError

SIMPLE = [
    "2026-01-01 00:00:01 | INFO | fairseq_cli.train | num_updates=7, loss=3",
    "2026-01-01 00:00:02 | INFO | train_inner | epoch 001:     50 / 130 loss=9.25, nll_loss=9.1, ppl=548.75, "
    "wps=2598.1, ups=0.76, bsz=236.2, num_updates=50, lr=1.25e-05, gnorm=1.034, train_wall=63, wall=397",
    "2026-01-01 00:00:03 | INFO | valid | epoch 001 | valid on 'valid' subset | loss 6.935 | nll_loss 5.942 | "
    "ppl 61.46 | wps 6497.8 | wpb 2363 | bsz 144.9 | num_updates 130 | best_loss 6.935",
    "2026-01-01 00:00:04 | INFO | train | epoch 001 | loss 7.5 | nll_loss 6.5 | ppl 93.5 | num_updates 130 | "
    "lr 0.0013 | wall 724",
]
JSON = [
    '2026-01-01 00:00:02 | INFO | train_inner | {"epoch": 1, "update": 0.385, "loss": "9.25", "ppl": "548.75", '
    '"num_updates": "50", "lr": "1.25e-05", "wall": "397"}',
    '2026-01-01 00:00:03 | INFO | valid | {"epoch": 1, "valid_loss": "6.935", "valid_nll_loss": "5.942", '
    '"valid_ppl": "61.46", "valid_num_updates": "130", "valid_best_loss": "6.935"}',
    '2026-01-01 00:00:04 | INFO | train | {"epoch": 1, "train_loss": "7.5", "train_ppl": "93.5", '
    '"train_num_updates": "130", "train_lr": "0.0013"}',
]


def write(path: Path, lines: List[str]) -> Path:
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


@pytest.mark.parametrize("lines", [SIMPLE, JSON], ids=["simple", "json"])
def test_both_formats_give_the_same_curves(lines: List[str], tmp_path: Path) -> None:
    run_ = curves.read_run(write(tmp_path / "log", lines), "name")
    assert run_.label == "name"
    assert run_.curves == {
        ("train", "loss"): [(50.0, 9.25)],
        ("train", "ppl"): [(50.0, 548.75)],
        ("train", "lr"): [(50.0, 1.25e-05)],
        ("valid", "loss"): [(130.0, 6.935)],
        ("valid", "ppl"): [(130.0, 61.46)],
    }


@pytest.mark.parametrize("lines", [SIMPLE, JSON], ids=["simple", "json"])
def test_epochs_stand_in_where_no_single_updates_were_logged(lines: List[str], tmp_path: Path) -> None:
    run_ = curves.read_run(write(tmp_path / "log", [line for line in lines if "train_inner" not in line]), "name")
    assert run_.curves[("train", "loss")] == [(130.0, 7.5)]
    assert run_.curves[("train", "lr")] == [(130.0, 0.0013)]


def test_a_resumed_run_counts_an_update_once_and_the_later_value(tmp_path: Path) -> None:
    again = [line.replace("loss=9.25", "loss=8") for line in SIMPLE]
    earlier = [line.replace("num_updates=50", "num_updates=20") for line in SIMPLE[1:2]]
    run_ = curves.read_run(write(tmp_path / "log", SIMPLE + again + earlier), "name")
    assert run_.curves[("train", "loss")] == [(20.0, 9.25), (50.0, 8.0)]


def test_values_that_are_no_numbers_are_left_out(tmp_path: Path) -> None:
    lines = [SIMPLE[1].replace("ppl=548.75", "ppl=inf").replace("loss=9.25", "loss=nan"), "train_inner | {broken"]
    run_ = curves.read_run(write(tmp_path / "log", lines), "name")
    assert list(run_.curves) == [("train", "lr")]


def test_refuses_logs_without_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "log", SIMPLE[:1] + ["x | INFO | train | {broken", "y | INFO | train | epoch 001 | loss 3"])
    error = "no training numbers; it needs lines of fairseq-train with --log-format json or simple"
    with pytest.raises(CommandError, match=f"^{path}: {error}$"):
        curves.read_run(path, "name")
    output = tmp_path / "out.png"
    assert curves.main([str(path), "--output", str(output)]) == 1
    assert capsys.readouterr().err == f"vaswani-curves: error: {path}: {error}\n"
    assert curves.main([str(tmp_path / "none"), "--output", str(output)]) == 1
    assert capsys.readouterr().err == f"vaswani-curves: error: {tmp_path / 'none'}: no such file\n"
    assert not output.exists()


def test_several_runs_in_one_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    matplotlib_image = pytest.importorskip("matplotlib.image")
    logs = [str(write(tmp_path / "a.log", SIMPLE)), str(write(tmp_path / "b.log", JSON))]
    output = tmp_path / "new folder" / "curves.png"
    assert curves.main([*logs, "--labels", "one", "two", "--output", str(output)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("one: train loss 9.25 at update 50, ")
    assert "two: train loss 9.25 at update 50, " in out
    assert out.count("valid ppl 61.46 at update 130") == 2
    picture = matplotlib_image.imread(str(output))
    assert picture.shape[1] > picture.shape[0] > 100
    assert picture[..., :3].std() > 0.01  # something was drawn
    assert [path.name for path in output.parent.iterdir()] == ["curves.png"]


def test_the_suffix_chooses_the_format(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    log = str(write(tmp_path / "a.log", SIMPLE))
    assert curves.main([log, "--output", str(tmp_path / "c.svg")]) == 0
    assert "<svg" in (tmp_path / "c.svg").read_text("utf-8")
    capsys.readouterr()
    assert curves.main([log, "--output", str(tmp_path / "c.doc")]) == 1
    error = f"vaswani-curves: error: --output {tmp_path / 'c.doc'}: matplotlib writes no .doc files\n"
    assert capsys.readouterr().err == error


def test_labels_name_every_log(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        curves.main(["a", "b", "--labels", "one", "--output", "c.png"])
    error = "vaswani-curves: error: --labels names 1 runs but there are 2 logs"
    assert capsys.readouterr().err.strip().endswith(error)


@pytest.mark.parametrize("log_format", ["simple", "json"])
def test_the_toolkits_own_log(log_format: str, copy_task: CopyTask, tmp_path: Path) -> None:
    options = ["--log-format", log_format, "--log-interval", 2, "--no-save"]
    result = run("fairseq-train", *tiny_train_args(copy_task.bin, tmp_path / "ck", updates=12), *options).ok()
    (tmp_path / "log").write_text(result.out, encoding="utf-8")
    read = curves.read_run(tmp_path / "log", "run").curves
    assert [update for update, _ in read[("train", "loss")]] == [2.0, 4.0, 6.0, 8.0, 10.0, 12.0]
    assert read[("valid", "loss")][-1][0] == 12.0
    rates = [rate for _, rate in read[("train", "lr")]]
    assert rates == sorted(rates)  # still in the warm-up
    assert len(set(rates)) == 6


def test_what_is_no_number_is_passed_over(tmp_path: Path) -> None:
    lines = [
        "| INFO | train_inner | loss=1.2.3, ppl=..., num_updates=1, lr=0.5",
        "| INFO | train_inner | loss=3, ppl=8., num_updates=2, lr=.25",
        '| INFO | train_inner | {"num_updates": "nan", "loss": "3"}',
        '| INFO | train_inner | {"num_updates": "inf", "loss": "3"}',
    ]
    run = curves.read_run(write(tmp_path / "log", lines), "label")
    assert run.curves == {
        ("train", "loss"): [(2.0, 3.0)],
        ("train", "ppl"): [(2.0, 8.0)],
        ("train", "lr"): [(1.0, 0.5), (2.0, 0.25)],
    }


def test_a_log_is_not_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = write(tmp_path / "log", SIMPLE)
    before = log.read_bytes()
    assert curves.main([str(log), "--output", str(log)]) == 1
    error = f"vaswani-curves: error: {log}: is one of the files to read; give what is made another name\n"
    assert capsys.readouterr().err == error
    assert log.read_bytes() == before


def test_dollar_signs_in_a_label_are_no_mathematics(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    log = str(write(tmp_path / "a.log", SIMPLE))
    assert curves.main([log, "--labels", "$x^{$", "--output", str(tmp_path / "c.svg")]) == 0
    assert "$x^{$ train" in (tmp_path / "c.svg").read_text("utf-8")  # text drawn as outlines is named in a comment
