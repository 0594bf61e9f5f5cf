"""vaswani-positions: the first values, the rule of scalar products, and the picture."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from vaswani_plugin.positions import concatenated_sinusoids, interleaved_sinusoids
from vaswani_plugin.tools import positions


def test_scalar_products_depend_on_the_distance_alone() -> None:
    means, spread = positions.by_distance(interleaved_sinusoids(23, 12))
    wanted = [sum(math.cos(k / 10000 ** (2 * i / 12)) for i in range(6)) / 6 for k in range(23)]
    assert means.tolist() == pytest.approx(wanted, abs=1e-6)
    assert spread < 1e-6


def test_a_table_without_that_rule_is_told_apart() -> None:
    _, spread = positions.by_distance(torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 3.0]]))
    assert spread == pytest.approx(8.0)  # distance 0: 1, 2 and 9


def test_a_dimension_of_zeros_divides_nothing_by_zero() -> None:
    means, spread = positions.by_distance(concatenated_sinusoids(5, 1))
    assert (means.tolist(), spread) == ([0.0] * 5, 0.0)


def test_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert positions.main(["--d-model", "4", "--positions", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == [
        "interleaved sinusoids, 2 positions of 4 dimensions",
        "position 0:  0.0000  1.0000  0.0000  1.0000",
        "position 1:  0.8415  0.5403  0.0100  0.9999",
    ]
    assert lines[3].startswith("scalar products at the same distance differ by at most ")
    assert len(lines) == 4


@pytest.mark.parametrize("layout", ["interleaved", "concatenated"])
@pytest.mark.parametrize("size", [1, 13])
def test_the_picture(layout: str, size: int, tmp_path: Path) -> None:
    image = pytest.importorskip("matplotlib.image")
    output = tmp_path / "positions.png"
    words = ["--d-model", str(size), "--positions", str(size), "--layout", layout, "--output", str(output)]
    assert positions.main(words) == 0
    assert image.imread(str(output))[..., :3].std() > 0.01


def test_errors(capsys: pytest.CaptureFixture[str]) -> None:
    assert positions.main(["--d-model", "0"]) == 1
    assert capsys.readouterr().err == "vaswani-positions: error: --d-model must be at least 1, but is 0\n"
    assert positions.main(["--positions", "-3"]) == 1
    assert capsys.readouterr().err == "vaswani-positions: error: --positions must be at least 1, but is -3\n"
