"""vaswani-flops: the paper's trainings, logs of the toolkit, measured lengths, scores, and errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, List

import pytest
from toolkit_runner import CopyTask

from vaswani_plugin.tools import flops
from vaswani_plugin.tools.cli import CommandError
from vaswani_plugin.tools.model_sizes import measured_lengths
from vaswani_plugin.tools.tables import markdown_table, text_table
from vaswani_plugin.tools.training_log import tokens_seen

HEAD = "2026-01-01 00:00:00 | INFO | "
SIMPLE = [
    HEAD + "train_inner | epoch 001:      2 / 4 loss=9, wpb=90, bsz=9, num_updates=2, lr=0.1, wall=1",
    HEAD + "train | epoch 001 | loss 9.1 | ppl 500 | wps 12 | wpb 100.5 | bsz 10 | num_updates 4 | wall 7",
    HEAD + "valid | epoch 001 | valid on 'valid' subset | loss 9 | wpb 999 | bsz 99 | num_updates 4",
    HEAD + "train_inner | epoch 002:      2 / 4 loss=9, wpb=80, bsz=8, num_updates=6, lr=0.1, wall=9",
]


def log_of(path: Path, lines: List[str]) -> Path:
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


def result(words: List[str], tmp_path: Path) -> List[Dict[str, Any]]:
    assert flops.main([*words, "--json", str(tmp_path / "out.json")]) == 0
    entries: List[Dict[str, Any]] = json.loads((tmp_path / "out.json").read_text("utf-8"))
    return entries


def told(words: List[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert flops.main(words) == 1
    error = capsys.readouterr().err
    assert error.startswith("vaswani-flops: error: ") and error.count("\n") == 1
    return error[len("vaswani-flops: error: ") : -1]


def products(d: int, d_ff: int, n: int, n_types: int, length: int) -> int:
    """Operations a token for N layers on both sides, training, written apart from the command."""
    weights = n * (4 * d * d + 2 * d * d_ff) + n * (8 * d * d + 2 * d * d_ff) + d * n_types
    return 6 * (weights + 3 * n * 2 * length * d)


def test_base_and_big_as_the_paper_trained_them(tmp_path: Path) -> None:
    base, big = result([], tmp_path)
    assert (base["name"], big["name"]) == ("vaswani_base", "vaswani_big")
    assert base["counted"] == pytest.approx(100_000 * 25_000 * products(512, 2048, 6, 37_000, 30), rel=1e-12)
    assert big["counted"] == pytest.approx(300_000 * 25_000 * products(1024, 4096, 6, 37_000, 30), rel=1e-12)
    assert base["estimate"] == pytest.approx(3.3e18, rel=0.01)
    assert big["estimate"] == pytest.approx(2.3e19, rel=0.01)
    assert base["reached_rate"] == pytest.approx(base["counted"] / (12 * 3600 * 8) / 1e12)


def test_the_table_names_what_the_paper_says(capsys: pytest.CaptureFixture[str]) -> None:
    assert flops.main([]) == 0
    rows = {line[:48].rstrip(): line[48:].split() for line in capsys.readouterr().out.splitlines()}
    assert rows["the paper's estimate"] == ["3.3e+18", "2.3e+19"]
    assert rows["time x devices x rate"] == ["3.28e+18", "2.3e+19"]
    assert rows["the paper's BLEU"] == ["en-de", "27.3,", "en-fr", "38.1", "en-de", "28.4"]


@pytest.mark.parametrize("form", ["simple", "json"])
def test_tokens_of_a_log(form: str, tmp_path: Path) -> None:
    lines = SIMPLE
    if form == "json":
        values = {"train_wpb": "100.5", "train_bsz": "10", "train_num_updates": "4", "train_wall": "7"}
        rest = {"wpb": "80", "bsz": "8", "num_updates": "6", "wall": "9"}
        lines = [HEAD + "train | " + json.dumps(values), HEAD + "train_inner | " + json.dumps(rest)]
    seen = tokens_seen(log_of(tmp_path / "log", lines))
    assert (seen.updates, seen.target_tokens, seen.sentences, seen.seconds) == (6, 4 * 100.5 + 2 * 80, 4 * 10 + 16, 9)


def test_of_an_update_made_twice_the_later_counts(tmp_path: Path) -> None:
    again = SIMPLE[1].replace("wpb 100.5", "wpb 120")
    assert tokens_seen(log_of(tmp_path / "log", [SIMPLE[1], *SIMPLE[:1], again])).target_tokens == 480


def test_a_log_gives_updates_tokens_lengths_and_time(tmp_path: Path) -> None:
    log = log_of(tmp_path / "log", SIMPLE)
    score = tmp_path / "score.json"
    score.write_text(json.dumps({"bleu": {"score": 31.25, "text": "", "signature": "nrefs:1|x"}}))
    words = ["--arch", "vaswani_base", "--vocab-size", "100", "--log", str(log), "--rate", "2", "--score", str(score)]
    (entry,) = result(words, tmp_path)
    assert (entry["updates"], entry["target_tokens"], entry["seconds"], entry["devices"]) == (6, 562, 9, 1)
    assert entry["lengths"]["target"] == entry["lengths"]["source"] == 562 / 56
    assert entry["estimate"] == 9 * 2e12
    assert entry["bleu"] == {"score": 31.25, "signature": "nrefs:1|x"}


def test_a_log_without_a_rate_has_no_estimate(tmp_path: Path) -> None:
    words = ["--arch", "vaswani_base", "--log", str(log_of(tmp_path / "log", SIMPLE))]
    assert result(words, tmp_path)[0]["estimate"] is None


def test_given_updates_tokens_and_lengths(tmp_path: Path) -> None:
    words = ["--arch", "vaswani_c_n2", "--updates", "7", "--tokens", "10", "--vocab-size", "50"]
    (entry,) = result([*words, "--source-length", "5", "--target-length", "5", "--hours", "2"], tmp_path)
    assert entry["counted"] == pytest.approx(70 * products(512, 2048, 2, 50, 5), rel=1e-12)
    assert entry["estimate"] == 2 * 3600 * 8 * 9.5e12


def test_lengths_of_binary_data_are_exact(copy_task: CopyTask) -> None:
    lengths = [len(line.split()) + 1 for line in copy_task.lines]  # with the end symbol
    found = measured_lengths(copy_task.bin)
    assert found.source == found.target == pytest.approx(sum(lengths) / len(lengths), rel=1e-12)
    squares = sum(length**2 for length in lengths) / len(lengths)
    assert found.source_squared == found.target_squared == found.product == pytest.approx(squares, rel=1e-12)


def test_a_checkpoint_gives_its_sizes(tiny_checkpoint: Path, copy_task: CopyTask, tmp_path: Path) -> None:
    words = ["--checkpoint", str(tiny_checkpoint), "--data", str(copy_task.bin), "--updates", "60", "--tokens", "400"]
    (entry,) = result(words, tmp_path)
    n_types = len((copy_task.bin / "dict.tgt.txt").read_text("utf-8").splitlines()) + 4
    assert (entry["name"], entry["n_types"]) == ("checkpoint_last.pt", n_types)
    assert entry["forward"]["softmax"] == pytest.approx(2 * entry["lengths"]["target"] * 16 * n_types)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--arch", "vaswani_bas"],
         "--arch vaswani_bas: no architecture of vaswani_transformer; did you mean vaswani_base or vaswani_big or "
         "vaswani_a_h4?"),
        (["--arch", "my_own"],
         "--arch my_own: no architecture of vaswani_transformer; is the plugin that registers it loaded?"),
        (["--checkpoint", "x.pt"], "x.pt: no such file"),
        (["--log", "x.log"], "--log is of one model; name it with --arch or --checkpoint"),
        (["--score", "x", "--arch", "a", "b"], "--score is of one model; name it with --arch or --checkpoint"),
        (["--log", "x.log", "--arch", "vaswani_big"], "x.log: no such file"),
        (["--score", "x.json", "--arch", "vaswani_big"], "x.json: no such file"),
        (["--log", "x", "--arch", "a", "--updates", "3"],
         "--log says what --updates and --tokens say; give the one or the others"),
        (["--checkpoint", "x", "--arch", "a"],
         "--checkpoint says what --arch and --vocab-size say; give the one or the others"),
        (["--data", "x", "--source-length", "3"],
         "--data measures what --source-length and --target-length say; give the one or the others"),
        (["--data", "nowhere"],
         "nowhere: no binary data of one language pair (train.SRC-TGT.SRC.idx and .TGT.idx)"),
    ],
)  # fmt: skip
def test_errors(words: List[str], error: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert told(words, capsys) == error


def test_files_of_other_kinds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = log_of(tmp_path / "other", ["{}"])
    assert told(["--arch", "vaswani_base", "--score", str(path)], capsys) == (
        f"{path}: not what vaswani-score --json writes"
    )
    with pytest.raises(CommandError, match=r"other: no tokens of training; it needs lines of fairseq-train with"):
        tokens_seen(path)


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "x"])
def test_numbers_are_above_zero(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="^2$"):
        flops.main(["--hours", value])
    assert f"argument --hours: must be a number above 0, not '{value}'" in capsys.readouterr().err


def test_tables() -> None:
    rows = [["", "a", "bb"], ["row", "1.5", "|"]]
    assert text_table(rows) == "       a  bb\nrow  1.5   |"
    assert markdown_table(rows) == "|  | a | bb |\n| --- | --- | --- |\n| row | 1.5 | \\| |"
