"""``vaswani-benchmark train``: the same batches for every system, the numbers are what they say, mistakes are told."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any, Dict, List

import pytest
import torch
from torch import nn

from vaswani_plugin.architectures import ARCHITECTURES
from vaswani_plugin.attention import MultiHeadAttention
from vaswani_plugin.layers import DecoderLayer, EncoderLayer, LayerConfig
from vaswani_plugin.linear import Linear
from vaswani_plugin.tools import benchmark, benchmark_report, benchmark_train
from vaswani_plugin.tools import benchmark_train_worker as worker
from vaswani_plugin.tools.benchmark_process import Worker
from vaswani_plugin.tools.benchmark_train_worker import Job
from vaswani_plugin.tools.training_flops import fraction_of_peak, training_flops

JOB: Dict[str, Any] = {
    "config": "tiny",
    "device": "cpu",
    "n_types": 97,
    "max_tokens": 150,
    "n_batches": 2,
    "threads": 1,
}


def served(folder: Path, system: str, precision: str, n_runs: int = 1) -> List[Dict[str, Any]]:
    """What a worker answers, in this process."""
    requests = worker.request(system, precision, Job(folder=str(folder), **JOB)) + "\n" + "run\n" * n_runs
    answers = io.StringIO()
    worker.serve(io.StringIO(requests), answers)
    return [json.loads(line) for line in answers.getvalue().splitlines()]


def test_both_systems_train_on_the_same_batches(tmp_path: Path) -> None:
    theirs, ours = (served(tmp_path, system, "fp32", n_runs=2) for system in ("fairseq", "vaswani_plugin"))
    assert theirs[0]["checksum"] == ours[0]["checksum"]
    assert theirs[0]["lengths"] == ours[0]["lengths"]
    for about, *runs in (theirs, ours):
        assert about["tokens"] == sum(sum(targets) for _, targets in about["lengths"])
        assert len(runs) == 2
        for run in runs:
            assert run["seconds"] > 0 and run["cpu_seconds"] > 0
            assert run["peak_mib"] >= run["step_mib"]


def test_batches_keep_to_the_limit_and_a_seed_repeats_them(tmp_path: Path) -> None:
    job = Job(folder=str(tmp_path), **JOB)
    dictionary = worker.numbered_words(job.n_types)
    assert len(dictionary) == 97
    batches, again = worker.make_batches(job, dictionary), worker.make_batches(job, dictionary)
    assert len(batches) == 2
    for batch, same in zip(batches, again):
        assert torch.equal(batch["target"], same["target"])
        for tokens in (batch["net_input"]["src_tokens"], batch["target"]):
            assert 0 < tokens.numel() <= job.max_tokens
            assert tokens.max() < 97
    assert worker.describe(batches) == worker.describe(again)
    assert worker.describe(batches)["checksum"] != worker.describe(batches[::-1])["checksum"]


def test_sentences_have_multi30ks_lengths() -> None:
    pairs = worker.random_pairs(worker.numbered_words(50), 2000, seed=3)
    assert pairs.src_sizes.mean() == pytest.approx(worker.MEAN_LENGTH, abs=0.5)
    assert min(pairs.src_sizes.min(), pairs.tgt_sizes.min()) == worker.SHORTEST
    assert abs(pairs.src_sizes - pairs.tgt_sizes).mean() < 3
    assert all(int(pairs.src[i][-1]) == 2 for i in range(20))


def test_the_options_are_those_of_a_user(tmp_path: Path) -> None:
    job = Job(folder=str(tmp_path), **JOB)
    theirs, ours = (" ".join(worker.train_options(job, name, "fp32")) for name in ("fairseq", "vaswani_plugin"))
    for words in (theirs, ours):
        assert "--label-smoothing 0.1" in words and words.startswith(f"{tmp_path} ")
    assert "--arch transformer --optimizer adam --criterion label_smoothed_cross_entropy" in theirs
    assert "--encoder-embed-dim 128" in theirs and "--dropout 0.3" in theirs
    assert "--arch vaswani_tiny --optimizer vaswani_adam" in ours and ours.endswith("--compute-dtype fp32")
    assert worker.train_options(job, "vaswani_plugin", "bf16")[-1] == "bf16"
    assert "--fp16" in worker.train_options(job, "fairseq", "fp16")


def test_a_failing_system_says_why(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    requests = worker.request("vaswani_plugin", "fp32", Job(folder=str(tmp_path / "file"), **JOB))
    answers = io.StringIO()
    with pytest.raises(OSError, match="file"):
        worker.serve(io.StringIO(requests), answers)
    assert "file" in json.loads(answers.getvalue())["error"]


def run(seconds: float, step: Any = 10.0) -> Dict[str, Any]:
    return {"seconds": seconds, "cpu_seconds": 2 * seconds, "peak_mib": 100.0, "step_mib": step}


def rows_of(times: Dict[str, List[float]], step: Any = 10.0) -> List[Dict[str, Any]]:
    job = Job(folder="", **JOB)
    about = {"held_mib": 90.0, "tokens": 60, "lengths": [], "checksum": 1}
    rows = []
    for name, seconds in times.items():
        system = Worker(name, None)  # type: ignore[arg-type]
        system.runs = [run(second, step) for second in seconds]
        rows.append(benchmark_train.summarise(system, about, job))
    benchmark_train.compare(rows)
    return rows


def test_rows_are_medians_and_ratios_to_the_toolkit() -> None:
    theirs, ours = rows_of({"fairseq": [2.0, 9.0, 3.0], "bf16": [1.5, 1.0, 8.0]})
    assert (theirs["tokens_per_second"], ours["tokens_per_second"]) == (20.0, 40.0)
    assert (theirs["ratio"], ours["ratio"], ours["cpu_ratio"], ours["step_mib_ratio"]) == (1.0, 2.0, 2.0, 1.0)
    assert (ours["system"], ours["precision"], ours["of_peak"]) == ("vaswani_plugin", "bf16", None)
    table = benchmark_report.table([theirs, ours], benchmark_train.COLUMNS)
    assert table.splitlines()[0].split("  ")[0] == "system"
    assert "of peak" not in table


def test_without_the_toolkit_or_a_peak_there_is_no_ratio() -> None:
    (alone,) = rows_of({"fp32": [1.0]}, step=None)
    assert (alone["ratio"], alone["step_mib"], alone["step_mib_ratio"]) == (None, None, None)


def test_operations_are_those_of_the_weights() -> None:
    """One token on each side: two operations a weight, and what its scores cost."""
    options = {**ARCHITECTURES["vaswani_tiny"], "encoder_layers": 3, "decoder_layers": 2}
    config = LayerConfig(d_model=128, d_ff=256, n_heads=4)

    def n_weights(module: nn.Module) -> int:
        return sum(part.weight.numel() for part in module.modules() if isinstance(part, Linear))

    products = 3 * n_weights(EncoderLayer(config)) + 2 * n_weights(DecoderLayer(config)) + 1000 * 128
    scores = 3 * 4 * 128 + 2 * 4 * 128 * 2
    assert training_flops(options, 1000, [1], [1]) == 3 * (2 * products + scores)
    assert n_weights(MultiHeadAttention(128, 4)) == 4 * 128 * 128


def test_operations_add_up_over_sentences_and_grow_with_the_square_of_lengths() -> None:
    options = ARCHITECTURES["vaswani_base"]
    both = training_flops(options, 99, [3, 5], [4, 6])
    assert both == pytest.approx(training_flops(options, 99, [3], [4]) + training_flops(options, 99, [5], [6]))
    assert training_flops(options, 99, [8], [10]) > both


def test_the_share_of_a_gpus_best_rate() -> None:
    options, lengths = ARCHITECTURES["vaswani_base"], [[[10], [12]], [[5], [6]]]
    flops = training_flops(options, 99, [10, 5], [12, 6])
    share = fraction_of_peak(options, 99, lengths, 0.5, "NVIDIA A100 80GB PCIe", "bf16")
    assert share == pytest.approx(flops / 0.5 / 312e12)
    assert fraction_of_peak(options, 99, lengths, 0.5, "NVIDIA H100 PCIe", "fp32") == pytest.approx(flops / 0.5 / 51e12)
    assert fraction_of_peak(options, 99, lengths, 0.5, "NVIDIA V100-X", "bf16") is None
    assert fraction_of_peak(options, 99, lengths, 0.5, "Another", "fp32") is None


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--device", "cuda"], "--device cuda needs a GPU, but torch sees none"),
        (["--device", "cpu", "--systems", "fp16"], "float16 is for GPUs; leave fairseq-fp16 and fp16 out of --systems"),
    ],
)
def test_mistakes_end_with_one_line(
    words: List[str], message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert benchmark.main(["train", "--config", "tiny", *words]) == 1
    assert capsys.readouterr().err == f"vaswani-benchmark: error: {message}\n"


def test_an_unknown_system_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        benchmark.main(["train", "--config", "tiny", "--systems", "fp32,fp8"])
    assert "no system is called fp8; there are fairseq, fairseq-fp16, fp32, bf16, fp16" in capsys.readouterr().err


def test_the_whole_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "--config", "tiny", "--device", "cpu", "--vocabulary", "97", "--max-tokens", "150"]
    words += ["--batches", "1", "--repeats", "1", "--threads", "1", "--systems", "fairseq,fp32"]
    assert benchmark.main([*words, "--json", str(tmp_path / "rows.json")]) == 0
    title, header, *lines = capsys.readouterr().out.splitlines()
    assert title == "tiny on cpu: V = 97, 1 batches of at most 150 tokens, 1 thread, median of 1"
    assert header.split()[:3] == ["system", "precision", "tokens/s"] and len(lines) == 2
    rows = json.loads((tmp_path / "rows.json").read_text())
    assert [row["system"] for row in rows] == ["fairseq", "vaswani_plugin"]
    assert rows[0]["ratio"] == 1.0 and rows[1]["job"]["max_tokens"] == 150
