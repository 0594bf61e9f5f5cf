"""One system of the training benchmark in a process of its own: the toolkit's trainer with the options of a user.

It reads a line of JSON that says what to train, then one line for every run, and answers each with one line.
"""

from __future__ import annotations

import ctypes
import dataclasses
import gc
import json
import logging
import sys
import time
import warnings
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, TextIO, Tuple

import numpy as np
import torch
from fairseq import options, tasks
from fairseq.data import Dictionary, LanguagePairDataset, data_utils
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.logging import metrics
from fairseq.trainer import Trainer

from vaswani_plugin.architectures import ARCHITECTURES
from vaswani_plugin.tools.benchmark_worker import forget_peak, numbered_words, peak_mib, send, send_error

Sample = Dict[str, Any]
#: Lengths of the sentences, end symbol included: those of Multi30k in subwords, about.
MEAN_LENGTH, SPREAD, SHORTEST, LONGEST = 13.0, 4.5, 3, 50
#: How far a target's length lies from its source's.
DIFFERENCE = 2.0
MIB = 1 << 20


@dataclass(frozen=True)
class Job:
    """What every system trains on, and where.

    Fields:
        config: tiny, base or big.
        folder: an empty folder for dictionaries.
        device: cpu or cuda.
        n_types: size of the vocabulary, control symbols included.
        max_tokens: of a batch, padding included.
        n_batches: of different lengths, in a run.
        seed: of sentences and weights.
    """

    config: str
    folder: str
    device: str
    n_types: int
    max_tokens: int
    n_batches: int
    threads: int
    seed: int = 1


def random_pairs(dictionary: Dictionary, n_pairs: int, seed: int) -> LanguagePairDataset:
    """Pairs of random sentences, the two of a pair about as long as each other; a seed repeats them."""
    rng = np.random.default_rng(seed)
    sources = rng.normal(MEAN_LENGTH, SPREAD, n_pairs).round().clip(SHORTEST, LONGEST).astype(int)
    targets = (sources + rng.normal(0.0, DIFFERENCE, n_pairs).round()).clip(SHORTEST, LONGEST).astype(int)

    def sentences(lengths: np.ndarray) -> List[torch.Tensor]:
        words = [rng.integers(dictionary.nspecial, len(dictionary), length - 1).tolist() for length in lengths]
        return [torch.tensor([*ids, dictionary.eos()]) for ids in words]

    return LanguagePairDataset(
        sentences(sources), sources, dictionary, sentences(targets), targets, dictionary, left_pad_target=False
    )


def make_batches(job: Job, dictionary: Dictionary) -> List[Sample]:
    """Batches as the toolkit composes them, of sentences that are about as long; the same for every system."""
    n_pairs = int(4 * job.n_batches * job.max_tokens / MEAN_LENGTH)
    pairs = random_pairs(dictionary, n_pairs, job.seed)
    with data_utils.numpy_seed(job.seed):
        order = pairs.ordered_indices()
        batches = data_utils.batch_by_size(
            order, pairs.num_tokens, max_tokens=job.max_tokens, required_batch_size_multiple=8
        )
        chosen = np.random.permutation(len(batches))[: job.n_batches]
    return [pairs.collater([pairs[i] for i in batches[batch]]) for batch in chosen]


def train_options(job: Job, system: str, precision: str) -> List[str]:
    """What a user would give to ``fairseq-train`` for this system."""
    words = [job.folder, "--source-lang", "src", "--target-lang", "tgt", "--share-all-embeddings"]
    words += ["--max-tokens", str(job.max_tokens), "--seed", str(job.seed), "--label-smoothing", "0.1"]
    words += ["--adam-betas", "(0.9, 0.98)", "--adam-eps", "1e-9", "--lr", "5e-4", "--warmup-updates", "4000"]
    words += ["--cpu"] if job.device == "cpu" else []
    words += ["--fp16"] if precision == "fp16" else []
    if system == "vaswani_plugin":
        words += ["--task", "vaswani_translation", "--arch", f"vaswani_{job.config}", "--optimizer", "vaswani_adam"]
        words += ["--criterion", "vaswani_label_smoothed_cross_entropy", "--lr-scheduler", "vaswani_inverse_sqrt"]
        return [*words, "--compute-dtype", "bf16" if precision == "bf16" else "fp32"]
    words += ["--task", "translation", "--arch", "transformer", "--optimizer", "adam"]
    words += ["--criterion", "label_smoothed_cross_entropy", "--lr-scheduler", "inverse_sqrt"]
    for name, value in ARCHITECTURES[f"vaswani_{job.config}"].items():
        if not isinstance(value, bool):
            words += [f"--{name.replace('_', '-')}", str(value)]
    return words


def make_trainer(job: Job, words: List[str]) -> Trainer:
    """The toolkit's trainer as ``fairseq-train`` makes it."""
    parser = options.get_training_parser()
    cfg = convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, input_args=words))
    torch.manual_seed(job.seed)
    task = tasks.setup_task(cfg.task)
    model, criterion = task.build_model(cfg.model), task.build_criterion(cfg.criterion)
    return Trainer(cfg, task, model, criterion)


class Memory:
    """The memory that steps need beside what is held between them: weights and moments."""

    def __init__(self, device: str) -> None:
        self.on_gpu = device == "cuda"
        self.held = 0.0
        self.resettable = True

    def begin(self) -> None:
        """Note what is held now, and forget the peak so far."""
        gc.collect()
        if self.on_gpu:
            torch.cuda.reset_peak_memory_stats()
            self.held = torch.cuda.memory_allocated() / MIB
            return
        if sys.platform == "linux":
            trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
            if trim is not None:  # glibc
                trim(0)
        self.resettable = forget_peak()
        self.held = peak_mib()

    def report(self) -> Dict[str, Any]:
        """The peak since ``begin``, and how far it lies above what is held; None where that cannot be known."""
        peak = torch.cuda.max_memory_allocated() / MIB if self.on_gpu else peak_mib()
        return {"peak_mib": peak, "step_mib": peak - self.held if self.resettable else None}


def timed_run(trainer: Trainer, batches: List[Sample], on_gpu: bool) -> Tuple[float, float]:
    """One update for every batch: seconds on the clock, and of this process's processors."""
    synchronize = torch.cuda.synchronize if on_gpu else lambda: None
    synchronize()
    wall, cpu = time.perf_counter(), time.process_time()
    for batch in batches:
        trainer.train_step([batch])
    synchronize()
    return time.perf_counter() - wall, time.process_time() - cpu


def describe(batches: List[Sample]) -> Dict[str, Any]:
    """What the batches hold: tokens of both sides without padding, and a sum that tells whether they are the same."""
    inputs = [(batch["net_input"]["src_tokens"], batch["target"]) for batch in batches]
    return {
        "tokens": sum(batch["ntokens"] for batch in batches),
        "lengths": [[[int(row.ne(1).sum()) for row in side] for side in (source, target)] for source, target in inputs],
        "checksum": zlib.crc32(b"".join(side.numpy().tobytes() for pair in inputs for side in pair)),
    }


def serve(requests: TextIO, answers: TextIO) -> None:
    """Make a system, and run it as often as asked."""
    asked = json.loads(requests.readline())
    job = Job(**asked["job"])
    on_gpu = job.device == "cuda"
    try:
        torch.set_num_threads(job.threads)
        dictionary = numbered_words(job.n_types)
        for lang in ("src", "tgt"):
            dictionary.save(str(Path(job.folder) / f"dict.{lang}.txt"))
        batches = make_batches(job, dictionary)
        trainer = make_trainer(job, train_options(job, asked["system"], asked["precision"]))
        memory = Memory(job.device)
        with metrics.aggregate("train"):
            timed_run(trainer, batches[:2], on_gpu)  # the first steps make the moments and are slow
            trainer.zero_grad()
            memory.begin()
            send(answers, held_mib=memory.held, **describe(batches))
            for _ in requests:
                wall, cpu = timed_run(trainer, batches, on_gpu)
                send(answers, seconds=wall, cpu_seconds=cpu, **memory.report())
    except Exception as error:
        send_error(answers, error)
        raise


def request(system: str, precision: str, job: Job) -> str:
    """The line that asks for a system."""
    return json.dumps({"system": system, "precision": precision, "job": dataclasses.asdict(job)})


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # the toolkit's, about its libraries
    logging.disable(logging.INFO)
    channel = sys.stdout
    sys.stdout = sys.stderr  # what libraries print must not come between the answers
    serve(sys.stdin, channel)
