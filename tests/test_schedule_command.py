"""vaswani-schedule: the paper's values in the table, in the JSON file and in the picture."""

from __future__ import annotations

import json
from pathlib import Path
from typing import List

import pytest

from vaswani_plugin.tools import schedule


def paper_rate(step: int, d_model: int, warmup: int) -> float:
    return d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)


def told(words: List[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert schedule.main(words) == 1
    return capsys.readouterr().err


def test_the_table_of_base_and_big(capsys: pytest.CaptureFixture[str]) -> None:
    assert schedule.main(["--steps", "8000", "1", "4000"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "d_model          512       1024",
        "warm-up         4000       4000",
        "peak       6.988e-04  4.941e-04",
        "step 1     1.747e-07  1.235e-07",
        "step 4000  6.988e-04  4.941e-04",
        "step 8000  4.941e-04  3.494e-04",
    ]


def test_every_combination_in_json_follows_the_formula(tmp_path: Path) -> None:
    words = ["--d-model", "7", "16", "--warmup", "3", "11", "--last", "60", "--json", str(tmp_path / "new" / "t.json")]
    assert schedule.main(words) == 0
    entries = json.loads((tmp_path / "new" / "t.json").read_text("utf-8"))
    assert [(entry["d_model"], entry["warmup"]) for entry in entries] == [(7, 3), (7, 11), (16, 3), (16, 11)]
    for entry in entries:
        assert list(entry["rates"]) == ["1", "2", "3", "5", "6", "11", "12", "22", "44", "60"]
        wanted = [paper_rate(int(step), entry["d_model"], entry["warmup"]) for step in entry["rates"]]
        assert list(entry["rates"].values()) == pytest.approx(wanted, rel=1e-12)
        assert entry["peak"] == pytest.approx(paper_rate(entry["warmup"], entry["d_model"], entry["warmup"]), rel=1e-12)


def test_a_given_peak_and_no_warmup(tmp_path: Path) -> None:
    words = ["--d-model", "8", "--warmup", "0", "--lr", "0.5", "--steps", "1", "4", "--json", str(tmp_path / "t.json")]
    assert schedule.main(words) == 0
    (entry,) = json.loads((tmp_path / "t.json").read_text("utf-8"))
    assert entry["rates"] == {"1": 0.5, "4": 0.25}


def test_the_picture_holds_every_peak(tmp_path: Path) -> None:
    image = pytest.importorskip("matplotlib.image")
    chosen = schedule.schedules([512], [3, 4001], None)
    assert {1, 3, 4001, 20005} <= set(schedule.plot_steps(chosen, 20005))
    assert schedule.plot_steps(chosen, 1) == [1]
    assert schedule.main(["--plot", str(tmp_path / "schedule.png")]) == 0
    assert image.imread(str(tmp_path / "schedule.png"))[..., :3].std() > 0.01
    assert schedule.main(["--plot", str(tmp_path / "schedule.svg"), "--last", "1"]) == 0
    assert "d_model 1024" in (tmp_path / "schedule.svg").read_text("utf-8")  # outlines carry their text as a comment


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--d-model", "512", "0"], "d_model must be at least 1, but is 0"),
        (["--warmup", "-1"], "warm-up must be 0 or more updates, but is -1"),
        (["--lr", "0"], "--lr must be above 0, but is 0"),
        (["--lr", "nan"], "--lr must be above 0, but is nan"),
        (["--last", "0"], "--last: updates are counted from 1, but one is 0"),
        (["--steps", "4", "-2"], "--steps: updates are counted from 1, but one is -2"),
    ],
)
def test_errors(words: List[str], error: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert told(words, capsys) == f"vaswani-schedule: error: {error}\n"


def test_a_suffix_that_nobody_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "s.doc"
    assert told(["--plot", str(path)], capsys) == (
        f"vaswani-schedule: error: --plot {path}: matplotlib writes no .doc files\n"
    )
    assert list(tmp_path.iterdir()) == []
