"""The translation task: every sentence in a batch, batches that a restart does not change, the paper's search."""

from __future__ import annotations

import argparse
import re
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest
import torch
from fairseq.data import Dictionary, LanguagePairDataset
from fairseq.tasks import TASK_DATACLASS_REGISTRY
from fairseq.tasks.translation import TranslationTask
from toolkit_runner import PLUGIN, CopyTask, run, tiny_train_args

from vaswani_plugin.toolkit import load_checkpoint
from vaswani_plugin.translation import SEARCH_DEFAULTS, VaswaniTranslationTask, fitting_indices, left_out


def make_task() -> TranslationTask:
    words = Dictionary()
    words.add_symbol("w")
    return VaswaniTranslationTask(TASK_DATACLASS_REGISTRY["vaswani_translation"](data="x"), words, words)


def make_dataset(lengths: list[int]) -> LanguagePairDataset:
    words = Dictionary()
    words.add_symbol("w")
    sentences = [torch.full((length,), words.index("w")) for length in lengths]
    return LanguagePairDataset(sentences, np.array(lengths), words, sentences, np.array(lengths), words, shuffle=True)


def batches_of(task: TranslationTask, dataset: LanguagePairDataset, **options: object) -> list[list[int]]:
    return [list(map(int, batch)) for batch in task.get_batch_iterator(dataset, **options).frozen_batches]


def test_left_out_finds_what_no_batch_holds() -> None:
    batches = [[4, 2], np.array([0])]
    assert left_out(np.array([0, 1, 2, 4, 5]), batches, 6).tolist() == [1, 5]
    assert left_out(np.array([0, 2]), batches, 6).tolist() == []
    assert left_out(np.array([], dtype=np.int64), [], 0).tolist() == []


def test_fitting_indices_are_those_that_are_not_too_long() -> None:
    dataset = make_dataset([3, 7, 5, 7])
    assert fitting_indices(dataset, None).tolist() == [0, 1, 2, 3]
    assert fitting_indices(dataset, (5, 5)).tolist() == [0, 2]
    assert fitting_indices(dataset, (2, 5)).tolist() == []


@pytest.mark.parametrize("n_sentences", [1, 7, 8, 9, 13, 16, 23])
@pytest.mark.parametrize("limits", [{"max_sentences": 8}, {"max_sentences": 3}, {"max_tokens": 50}])
def test_every_sentence_is_in_exactly_one_batch(n_sentences: int, limits: dict[str, int]) -> None:
    dataset = make_dataset([1 + i % 5 for i in range(n_sentences)])
    batches = batches_of(make_task(), dataset, required_batch_size_multiple=8, **limits)
    assert sorted(index for batch in batches for index in batch) == list(range(n_sentences))
    assert all(len(batch) <= limits.get("max_sentences", n_sentences) for batch in batches)
    assert all(max(dataset.sizes[batch].max(axis=1)) * len(batch) <= limits.get("max_tokens", 1e9) for batch in batches)


def test_only_the_last_batch_is_no_multiple() -> None:
    dataset = make_dataset([4] * 61)
    sizes = [len(batch) for batch in batches_of(make_task(), dataset, max_tokens=100, required_batch_size_multiple=8)]
    assert sizes == [24, 24, 8, 5]


def test_a_dataset_without_sentences_gives_no_batches() -> None:
    assert batches_of(make_task(), make_dataset([]), max_sentences=8, required_batch_size_multiple=8) == []


def test_sentences_that_are_too_long_are_told_by_number(caplog: pytest.LogCaptureFixture) -> None:
    dataset = make_dataset([3, 9, 4, 9, 5])
    options = {"max_sentences": 8, "max_positions": (6, 6), "required_batch_size_multiple": 8}
    batches = batches_of(make_task(), dataset, ignore_invalid_inputs=True, **options)
    assert sorted(index for batch in batches for index in batch) == [0, 2, 4]
    assert "2 samples have invalid sizes and will be skipped, max_positions=(6, 6)" in caplog.text
    with pytest.raises(Exception, match=r"^Size of sample #[13] is invalid .* since max_positions=\(6, 6\), skip"):
        batches_of(make_task(), make_dataset([3, 9, 4, 9, 5]), **options)


@pytest.mark.parametrize("epoch", [1, 2, 7])
def test_the_starting_epoch_changes_no_batch(epoch: int) -> None:
    def start(epoch: int) -> tuple:
        task, dataset = make_task(), make_dataset([1 + i % 5 for i in range(61)])
        iterator = task.get_batch_iterator(
            dataset, max_tokens=60, required_batch_size_multiple=8, seed=3, epoch=epoch, num_workers=0
        )
        return [list(batch) for batch in iterator.frozen_batches], iterator

    first, _ = start(1)
    other, iterator = start(epoch)
    assert other == first
    assert iterator.epoch == epoch
    iterator.next_epoch_itr(shuffle=True)
    assert iterator.epoch == epoch


def test_another_seed_composes_other_batches() -> None:
    dataset = make_dataset([4] * 40)
    first, other = (
        batches_of(make_task(), dataset, max_sentences=8, seed=seed, disable_iterator_cache=True) for seed in (1, 2)
    )
    assert first != other


def test_the_iterator_is_reused_as_it_is() -> None:
    task, dataset = make_task(), make_dataset([4] * 13)
    options = {"max_sentences": 8, "required_batch_size_multiple": 8}
    first = task.get_batch_iterator(dataset, epoch=1, **options)
    first.next_epoch_itr()
    again = task.get_batch_iterator(dataset, epoch=5, **options)
    assert again is first
    assert [len(batch) for batch in again.frozen_batches] == [8, 5]
    assert again.epoch == 1


def test_the_search_defaults_are_the_paper_s_and_a_given_value_wins() -> None:
    parser = argparse.ArgumentParser()
    for name, value in {"--beam": 5, "--lenpen": 1.0, "--max-len-a": 0.0, "--max-len-b": 200}.items():
        parser.add_argument(name, type=type(value), default=value)
    VaswaniTranslationTask.add_args(parser)
    args = parser.parse_args(["data", "--lenpen", "1", "--max-len-b", "200"])
    assert (args.beam, args.max_len_a, args.lenpen, args.max_len_b) == (4, 1, 1.0, 200)
    assert SEARCH_DEFAULTS == {"beam": 4, "lenpen": 0.6, "max_len_a": 1, "max_len_b": 50}


class Recorder:
    """Stands for a generator class: keeps what it is built with."""

    def __init__(self, models: list, dictionary: Dictionary, **settings: object) -> None:
        self.settings = settings


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {"beam_size": 4, "len_penalty": 0.6, "max_len_a": 1, "max_len_b": 50}),
        ({"lenpen": 3, "beam": 1}, {"beam_size": 1, "len_penalty": 3, "max_len_a": 1, "max_len_b": 50}),
    ],
)
def test_the_generator_of_validation_takes_them_too(given: dict[str, float], expected: dict[str, float]) -> None:
    settings = make_task().build_generator([], Namespace(**given), seq_gen_cls=Recorder).settings
    assert {name: settings[name] for name in expected} == expected


@pytest.mark.parametrize("batch_size", [1, 5, 8, 13, 64])
def test_generate_answers_and_scores_every_sentence(
    batch_size: int, copy_task: CopyTask, tiny_checkpoint: Path
) -> None:
    result = run(
        "fairseq-generate", copy_task.bin, "--user-dir", PLUGIN, "--task", "vaswani_translation", "--cpu",
        "--path", tiny_checkpoint, "--batch-size", batch_size,
    ).ok()  # fmt: skip
    assert sorted(int(line[2:].split("\t")[0]) for line in result.lines("H-")) == list(range(13))
    n_reference_words = sum(len(line.split()) for line in copy_task.lines[:13])
    assert f"reflen={n_reference_words})" in result.out
    assert "Generate test with beam=4" in result.out


def test_training_and_validation_see_every_sentence(copy_task: CopyTask, tmp_path: Path) -> None:
    train = tiny_train_args(copy_task.bin, tmp_path, updates=1000)
    result = run("fairseq-train", *train, "--max-epoch", 1, "--valid-subset", "valid", "--batch-size-valid", 8).ok()
    sizes = [int(float(size)) for size in re.findall(r"train_inner .*bsz=([\d.]+)", result.out)]
    assert sum(sizes) == 203
    n_target_tokens = sum(len(line.split()) + 1 for line in copy_task.lines[:13])
    (valid,) = re.findall(r"'valid' subset \| .*wpb ([\d.]+) \| bsz ([\d.]+)", result.out)
    assert float(valid[0]) * 2 == n_target_tokens
    assert float(valid[1]) * 2 == 13


@pytest.mark.parametrize(("stop", "shards"), [(4, 1), (5, 1), (5, 2)])
def test_resumed_training_ends_with_the_same_weights(
    stop: int, shards: int, copy_task: CopyTask, tmp_path: Path
) -> None:
    """Stopped at the end of an epoch of 4 updates, or in the next one; also with another data folder every epoch."""
    data = ":".join([str(copy_task.bin)] * shards)

    def weights(name: str, *updates: int) -> dict[str, torch.Tensor]:
        for n_updates in updates:
            args = tiny_train_args(copy_task.bin, tmp_path / name, updates=n_updates)
            options = ["--dropout", "0.1", "--no-epoch-checkpoints", "--disable-validation"]
            result = run("fairseq-train", data, *args[1:], *options).ok()
        assert f"num_updates={updates[-1]}, " in result.out
        return load_checkpoint(tmp_path / name / "checkpoint_last.pt")["model"]

    whole, parts = weights("whole", 9), weights("parts", stop, 9)
    assert whole.keys() == parts.keys()
    assert all(torch.equal(whole[name], parts[name]) for name in whole)


@pytest.mark.parametrize(("n_shards", "n_left_out"), [(1, 0), (2, 1), (5, 0)])
def test_batches_that_grouped_shuffling_leaves_out_are_told(
    n_shards: int, n_left_out: int, caplog: pytest.LogCaptureFixture
) -> None:
    iterator = make_task().get_batch_iterator(
        make_dataset([4] * 40), max_sentences=8, num_shards=n_shards, shard_id=0, grouped_shuffling=True
    )
    assert len(iterator.frozen_batches) == 5
    text = f"--grouped-shuffling leaves out the last {n_left_out} of 5 batches, which {n_shards} workers"
    assert (text in caplog.text) == (n_left_out > 0)
    assert ("leaves out" in caplog.text) == (n_left_out > 0)
    n_used = len(iterator.next_epoch_itr(shuffle=True)) * n_shards
    assert n_used == 5 - n_left_out
