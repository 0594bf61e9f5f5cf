"""``vaswani-benchmark generate``: the systems answer alike, the numbers are what they say, mistakes are told."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any, Dict, List

import pytest
import torch
from toolkit_runner import CopyTask

from vaswani_plugin.positions import concatenated_sinusoids, interleaved_sinusoids
from vaswani_plugin.tools import benchmark, benchmark_material, benchmark_report, benchmark_worker
from vaswani_plugin.tools.benchmark_worker import Material, Search

ONE_THREAD = Search(beam=4, alpha=0.6, batch_size=5, threads=1)


def served(system: str, precision: str, material: Material, n_runs: int = 1) -> List[Dict[str, Any]]:
    """What a worker answers, in this process."""
    requests = benchmark_worker.request(system, precision, material, ONE_THREAD) + "\n" + "run\n" * n_runs
    answers = io.StringIO()
    benchmark_worker.serve(io.StringIO(requests), answers)
    return [json.loads(line) for line in answers.getvalue().splitlines()]


@pytest.fixture(scope="module")
def trained(tiny_checkpoint_400: Path, copy_task: CopyTask, tmp_path_factory: pytest.TempPathFactory) -> Material:
    folder = tmp_path_factory.mktemp("material")
    return benchmark_material.trained_material(folder, tiny_checkpoint_400, copy_task.bin, "test", 500)


def test_the_toolkit_and_ours_translate_alike(trained: Material) -> None:
    assert trained.layout == "interleaved"
    assert len(trained.sources) == 13
    results = [served(system, "fp32", trained, n_runs=2) for system in ("fairseq", "vaswani_plugin")]
    for loaded, *runs in results:
        assert loaded["loading_mib"] > 50  # torch alone is larger
        assert len(runs) == 2
        for run in runs:
            assert run["seconds"] > 0 and run["cpu_seconds"] > 0
            assert run["peak_mib"] >= loaded["loading_mib"]
    translations = [runs[-1]["translations"] for _, *runs in results]
    assert translations[0] == translations[1]
    assert len({len(tokens) for tokens in translations[0]}) > 3  # they end by themselves


def test_random_weights_take_the_same_steps_everywhere(tmp_path: Path) -> None:
    sizes = {"encoder_layers": 1, "decoder_layers": 1, "encoder_embed_dim": 16, "encoder_attention_heads": 2}
    sizes.update(encoder_ffn_embed_dim=32, decoder_embed_dim=16, decoder_attention_heads=2, decoder_ffn_embed_dim=32)
    options = {**sizes, "positional_layout": "concatenated"}
    material = benchmark_material.random_material(tmp_path, 7, 50, 9, options)
    assert [len(source) for source in material.sources] == 7 * [benchmark_material.BASE_SOURCE - 1]
    answers = [served(system, "fp32", material)[1]["translations"] for system in ("fairseq", "vaswani_plugin")]
    assert answers[0] == answers[1]
    assert [len(tokens) for tokens in answers[0]] == 7 * [9]


def test_a_worker_tells_why_it_cannot_load(trained: Material) -> None:
    answers = io.StringIO()
    missing = Material(**{**vars(trained), "folder": trained.folder / "none"})
    request = benchmark_worker.request("fairseq", "fp32", missing, ONE_THREAD)
    with pytest.raises(FileNotFoundError):
        benchmark_worker.serve(io.StringIO(request + "\n"), answers)
    assert json.loads(answers.getvalue())["error"].startswith("FileNotFoundError: ")


def test_batches_hold_every_sentence_once_and_long_ones_together() -> None:
    lengths = [3, 1, 4, 1, 5, 9, 2]
    rows = benchmark_worker.batches([["w"] * n for n in lengths], 3)
    assert sorted(sum(rows, [])) == list(range(7))
    assert [[lengths[i] for i in row] for row in rows] == [[9, 5, 4], [3, 2, 1], [1]]


@pytest.mark.parametrize("layout", ["interleaved", "concatenated"])
def test_the_toolkit_is_built_with_the_papers_positions(layout: str) -> None:
    from fairseq.modules import SinusoidalPositionalEmbedding

    own = SinusoidalPositionalEmbedding.get_embedding(9, 6, 1)
    with benchmark_material.paper_positions(layout):
        found = SinusoidalPositionalEmbedding.get_embedding(9, 6, 1)
    assert found[:2].eq(0).all() or layout == "concatenated"
    if layout == "interleaved":
        torch.testing.assert_close(found[2:], interleaved_sinusoids(7, 6))
    else:
        torch.testing.assert_close(found[2:], concatenated_sinusoids(7, 6))
    assert torch.equal(SinusoidalPositionalEmbedding.get_embedding(9, 6, 1), own)


def run_of(seconds: float, cpu: float, translations: List[List[str]]) -> Dict[str, Any]:
    texts = [" ".join(tokens) for tokens in translations]
    times = {"seconds": seconds, "cpu_seconds": cpu, "peak_mib": 10 * seconds, "translating_mib": seconds}
    return {**times, "translations": translations, "texts": texts}


@pytest.fixture
def rows() -> List[Dict[str, Any]]:
    """Two systems, three runs each, of which the second is twice as fast and differs in one of two sentences."""
    slow = [run_of(s, 2 * s, [["a", "b"], ["c", "d", "e", "f"]]) for s in (2.0, 9.0, 3.0)]
    fast = [run_of(s, s, [["a", "b"], ["c", "d", "e", "g"]]) for s in (1.5, 1.0, 9.0)]
    references = ["a b", "c d e f"]
    made = [
        benchmark_report.summarise("fairseq", "fp32", "tiny", slow, references),
        benchmark_report.summarise("vaswani_plugin", "int8", "tiny", fast, references),
    ]
    benchmark_report.compare(made)
    return made


def test_medians_and_ratios(rows: List[Dict[str, Any]]) -> None:
    base, ours = rows
    assert base["tokens_per_second"] == pytest.approx(6 / 3.0)
    assert ours["tokens_per_second"] == pytest.approx(6 / 1.5)
    assert ours["sentences_per_second"] == pytest.approx(2 / 1.5)
    assert (base["ratio"], ours["ratio"]) == (1.0, pytest.approx(2.0))
    assert ours["cpu_ratio"] == pytest.approx(4.0)
    assert (base["equal"], ours["equal"]) == (1.0, 0.5)
    assert base["peak_mib"] == 90.0  # of all runs
    assert base["bleu"] == pytest.approx(100.0) and ours["bleu"] < 100.0


def test_without_the_toolkit_there_are_no_ratios(rows: List[Dict[str, Any]]) -> None:
    alone = [{**rows[1], "translations": [["a"]]}]
    benchmark_report.compare(alone)
    assert alone[0]["ratio"] is None
    assert "ratio" not in benchmark_report.table(alone)


def test_table_json_and_picture(rows: List[Dict[str, Any]], tmp_path: Path) -> None:
    lines = benchmark_report.table(rows).splitlines()
    assert lines[0].split()[:5] == ["system", "precision", "tokens/s", "sentences/s", "ratio"]
    assert lines[2].split()[:5] == ["vaswani_plugin", "int8", "4", "1.3", "2.00"]
    benchmark_report.write_json(rows, tmp_path / "rows.json")
    assert json.loads((tmp_path / "rows.json").read_text()) == rows
    for key in ("system", "precision", "config", "tokens_per_second", "peak_mib", "ratio"):
        assert key in rows[0]
    benchmark_report.draw(rows, "a title", tmp_path / "rows.svg")
    assert "2.00 x" in (tmp_path / "rows.svg").read_text() or "<svg" in (tmp_path / "rows.svg").read_text()


def test_words_of_pieces_and_of_words() -> None:
    assert benchmark_material.words(["\u2581Gu", "ten", "\u2581Tag"]) == "Guten Tag"
    assert benchmark_material.words(["Guten", "Tag"]) == "Guten Tag"
    assert benchmark_material.words([]) == ""


def test_what_is_not_installed_is_left_out_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmark.importlib.util, "find_spec", lambda name: None)
    reason = "it is not installed; pip install 'vaswani-plugin[export]'"
    assert benchmark.missing("ctranslate2-int8") == reason
    assert benchmark.missing("fairseq") is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--config", "tiny", "--data", "bin"],
            "--checkpoint and --data go together: weights, and the data",
        ),
        (
            ["--config", "base", "--data", "b", "--checkpoint", "c"],
            "--checkpoint goes with --config tiny; the weights",
        ),
        (["--config", "tiny", "--data", "b", "--checkpoint", "c"], "--checkpoint c: no such file or folder"),
        (
            ["--config", "tiny", "--data", ".", "--checkpoint", "."],
            "--checkpoint . is a folder without any of average",
        ),
        (["--config", "base", "--plot", "a.xyz"], "--plot a.xyz: matplotlib writes no .xyz files"),
    ],
)
def test_mistakes(
    options: List[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert benchmark.main(["generate", *options]) == 1
    assert f"vaswani-benchmark: error: {message}" in capsys.readouterr().err


def test_data_that_are_none(
    tiny_checkpoint_400: Path, copy_task: CopyTask, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = ["generate", "--config", "tiny", "--checkpoint", str(tiny_checkpoint_400), "--data"]
    assert benchmark.main([*base, str(tmp_path)]) == 1
    expected = f"--data {tmp_path} is no folder of fairseq-preprocess or vaswani-prepare"
    assert expected in capsys.readouterr().err
    assert benchmark.main([*base, str(copy_task.bin), "--split", "none"]) == 1
    assert f"--data {copy_task.bin} has no part none: " in capsys.readouterr().err


def test_unknown_systems(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match=r"^2$"):
        benchmark.main(["generate", "--config", "base", "--systems", "fp32,fp8"])
    names = "fairseq, fp32, bf16, int8, ctranslate2-fp32, ctranslate2-int8"
    assert f"no system is called fp8; there are {names}" in capsys.readouterr().err


@pytest.mark.slow
def test_the_whole_command(
    tiny_checkpoint_400: Path, copy_task: CopyTask, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--checkpoint", str(tiny_checkpoint_400), "--data", str(copy_task.bin), "--threads", "1"]
    files = ["--json", str(tmp_path / "rows.json"), "--plot", str(tmp_path / "rows.png")]
    assert benchmark.main(["generate", "--config", "tiny", *options, "--repeats", "2", *files]) == 0
    rows = json.loads((tmp_path / "rows.json").read_text())
    by_name = {(row["system"], row["precision"]): row for row in rows}
    assert by_name["vaswani_plugin", "fp32"]["equal"] == 1.0
    for row in rows:
        assert row["config"] == "tiny"
        assert row["tokens_per_second"] > 0 and len(row["seconds"]) == 2
    assert (tmp_path / "rows.png").read_bytes().startswith(b"\x89PNG")
    assert "13 sentences, beam 4" in capsys.readouterr().out
