"""vaswani-complexity: the layers against plain ones, counts against formulas, paths against closed forms."""

from __future__ import annotations

import json
from pathlib import Path
from typing import List

import pytest
import torch

from vaswani_plugin.tools import complexity
from vaswani_plugin.tools.complexity_layers import Convolution, Range, Recurrent, RestrictedSelfAttention, SelfAttention
from vaswani_plugin.tools.complexity_trace import (
    layers_until_connected,
    operations,
    path_length,
    reached,
    sequential_steps,
    slope,
)


@pytest.mark.parametrize(("n", "r"), [(1, 2), (3, 8), (11, 4), (12, 6), (13, 2)])
def test_restricted_attention_is_masked_attention(n: int, r: int) -> None:
    layer = RestrictedSelfAttention(128, r)  # two heads
    x = torch.randn(1, n, 128, requires_grad=True)
    places = torch.arange(n)
    masked, _ = layer.attention.to_itself(x, (places[:, None] - places).abs() > r // 2)
    assert torch.allclose(layer(x), masked, atol=1e-5)
    probe = torch.randn_like(masked)
    ours, theirs = (torch.autograd.grad((out * probe).sum(), x)[0] for out in (layer(x), masked))
    assert torch.allclose(ours, theirs, atol=1e-5)


def test_counted_operations_are_those_of_the_formulas() -> None:
    pytest.importorskip("torch.utils.flop_counter")
    n, d, k, r = 24, 64, 5, 8
    assert operations(SelfAttention, n, d) == 3 * (8 * n * d * d + 4 * n * n * d)
    assert operations(lambda d: Convolution(d, k), n, d) == 3 * 2 * k * n * d * d
    assert operations(lambda d: RestrictedSelfAttention(d, r), n, d) == 3 * (8 * n * d * d + 4 * n * (3 * r // 2) * d)
    # the state before the first token needs no gradient
    assert operations(Recurrent, n, d) == 3 * 16 * n * d * d - 8 * d * d


def test_steps_in_sequence() -> None:
    assert [sequential_steps(SelfAttention, n) for n in (3, 7)] == [4, 4]  # projection, Q K^T, weights x V, W^O
    assert [sequential_steps(lambda d: RestrictedSelfAttention(d, 4), n) for n in (3, 7)] == [4, 4]
    assert [sequential_steps(lambda d: Convolution(d, 3), n) for n in (3, 7)] == [1, 1]
    assert [sequential_steps(Recurrent, n) for n in (3, 7)] == [3, 7]


@pytest.mark.parametrize(
    ("name", "wanted"),  # at n = 1, 2, 3, 9, 10, 14
    [
        ("self-attention", [1, 1, 1, 1, 1, 1]),
        ("recurrent", [1, 2, 3, 9, 10, 14]),
        ("convolutional", [1, 1, 1, 2, 3, 3]),  # 3, 9 and 27 tokens are read by 1, 2 and 3 layers
        ("restricted self-attention", [1, 1, 1, 4, 5, 7]),  # two tokens a layer
    ],
)
def test_path_lengths(name: str, wanted: List[int]) -> None:
    assert [path_length(name, n, k=3, r=4) for n in (1, 2, 3, 9, 10, 14)] == wanted


def test_what_reaches_what_is_read_from_gradients() -> None:
    shifted = reached(lambda x: torch.roll(x, 1, dims=1) * 2, 3)
    assert shifted.tolist() == [[False, False, True], [True, False, False], [False, True, False]]
    with pytest.raises(RuntimeError, match="^4 layers do not connect 4 tokens$"):
        layers_until_connected(lambda depth: torch.nn.Tanh(), 4, causal=False)


def test_slope_of_a_power() -> None:
    assert slope([2, 3, 7], [5 * size**1.7 for size in (2, 3, 7)]) == pytest.approx(1.7)


def test_the_command_writes_a_table_json_and_a_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    image = pytest.importorskip("matplotlib.image")
    pytest.importorskip("torch.utils.flop_counter")
    monkeypatch.setattr("vaswani_plugin.tools.complexity.PATH_LENGTHS", [1, 4])
    words = ["--layers", "convolutional", "restricted self-attention", "--neighbours", "16", "--rounds", "1"]
    outputs = ["--json", str(tmp_path / "c.json"), "--plot", str(tmp_path / "c.png")]
    threads = torch.get_num_threads()
    assert complexity.main([*words, *outputs]) == 0
    assert torch.get_num_threads() == threads == 1
    out = capsys.readouterr().out
    assert "convolutional, timed: n = 1024, 2048, 4096 at d = 256; d = 384, 512, 768 at n = 1024" in out
    found = json.loads((tmp_path / "c.json").read_text("utf-8"))
    assert found["settings"]["neighbours"] == 16
    conv = found["layers"]["convolutional"]
    assert conv["operations_exponents"] == pytest.approx([1, 2])
    assert (conv["paths"], conv["paths_exact"]) == ({"1": 1, "4": 2}, True)
    assert all(entry["seconds"] > 0 for entry in conv["seconds"])
    assert image.imread(str(tmp_path / "c.png"))[..., :3].std() > 0.01


def test_agreement_asks_for_every_exponent_and_exact_paths() -> None:
    entry = {"exponents": (2, 1), "seconds_exponents": (1.75, 1.2), "operations_exponents": (2, 1), "paths_exact": True}
    assert complexity.agrees(entry)
    assert not complexity.agrees({**entry, "paths_exact": False})
    assert not complexity.agrees({**entry, "seconds_exponents": (1.65, 1.2)})
    assert not complexity.agrees({**entry, "operations_exponents": (2, 1.31)})


def test_points_come_once() -> None:
    assert Range([1, 2], 8, [4, 8], 2).points() == [(1, 8), (2, 8), (2, 4)]


def test_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert complexity.main(["--neighbours", "3"]) == 1
    error = "vaswani-complexity: error: --neighbours must be even, half on either side, but is 3\n"
    assert capsys.readouterr().err == error
    pytest.importorskip("matplotlib")
    path = tmp_path / "x.doc"
    assert complexity.main(["--plot", str(path)]) == 1
    assert capsys.readouterr().err == (f"vaswani-complexity: error: --plot {path}: matplotlib writes no .doc files\n")
    with pytest.raises(SystemExit, match="^2$"):
        complexity.main(["--layers", "pooling"])
    assert "argument --layers: invalid choice: 'pooling'" in capsys.readouterr().err
