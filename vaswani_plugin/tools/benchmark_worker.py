"""One system of a benchmark in a process of its own, so that its peak of memory is its own.

It reads lines of JSON: first what to load, then one line for every run; it answers each with one line. It is run as a
file, not as a module of the package, which would load torch and the toolkit for CTranslate2 too.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import resource
import sys
import time
from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, TextIO

Batch = List[List[str]]
Translate = Callable[[Any], List[List[str]]]


@dataclass
class Material:
    """Sentences, weights, and the limits of length that go with them.

    Fields:
        folder: where the files lie.
        layout: of the sinusoids; interleaved or concatenated.
        source_lang, target_lang: suffixes of the dictionaries.
        sources: the tokens of each sentence, without the end symbol.
        references: the translations as words, or None where there are none.
        min_len, max_len_a, max_len_b: a sentence of s tokens, end symbol included, gets at least min_len and at most
            max_len_a * s + max_len_b.
    """

    folder: Path
    layout: str
    source_lang: str
    target_lang: str
    sources: List[List[str]]
    references: Optional[List[str]]
    min_len: int
    max_len_a: float
    max_len_b: int


@dataclass(frozen=True)
class Search:
    """What every system is asked for: beam size, exponent of n^alpha, sentences in a batch, threads."""

    beam: int
    alpha: float
    batch_size: int
    threads: int


@dataclass
class System:
    """A system that has been loaded.

    Fields:
        translate: from a prepared batch to the tokens of each best translation, without the end symbol.
        prepare: from sentences of tokens to what it translates; its time is not measured.
    """

    translate: Translate
    prepare: Callable[[Batch], Any]


def load_fairseq(material: Material, search: Search, precision: str, ours: bool) -> System:
    """The toolkit with its own task and model, or with ours, as ``fairseq-generate`` loads and prepares them."""
    import torch
    from fairseq import checkpoint_utils
    from fairseq.data import data_utils
    from fairseq.tasks.translation import TranslationConfig, TranslationTask

    from vaswani_plugin.tools.benchmark_material import paper_positions
    from vaswani_plugin.translation import VaswaniTranslationConfig, VaswaniTranslationTask

    torch.set_num_threads(search.threads)
    where = {"data": str(material.folder), "source_lang": material.source_lang, "target_lang": material.target_lang}
    if ours:
        same_search = {"length_penalty_kind": "toolkit", "search_ending": "count", "decode_precision": precision}
        task = VaswaniTranslationTask.setup_task(VaswaniTranslationConfig(**where, **same_search))
    else:
        task = TranslationTask.setup_task(TranslationConfig(**where))
    with contextlib.nullcontext() if ours else paper_positions(material.layout):
        file = material.folder / ("ours.pt" if ours else "toolkit.pt")
        models, _ = checkpoint_utils.load_model_ensemble([str(file)], task=task)
    options = {
        **{"beam": search.beam, "nbest": 1, "lenpen": search.alpha, "unnormalized": False, "unkpen": 0.0},
        **{"min_len": material.min_len, "max_len_a": material.max_len_a, "max_len_b": material.max_len_b},
        **{"no_beamable_mm": True, "print_alignment": None, "retain_dropout": False, "replace_unk": None},
    }
    for model in models:
        model.prepare_for_inference_(Namespace(generation=Namespace(**options), common=Namespace(fp16=False)))
    generator = task.build_generator(models, Namespace(**options))
    source, target = task.source_dictionary, task.target_dictionary

    def prepare(batch: Batch) -> Dict[str, Any]:
        ids = [torch.tensor([*(source.index(token) for token in tokens), source.eos()]) for tokens in batch]
        src_tokens = data_utils.collate_tokens(ids, source.pad(), left_pad=True)
        lengths = torch.tensor([len(one) for one in ids])
        return {"net_input": {"src_tokens": src_tokens, "src_lengths": lengths, "prev_output_tokens": None}}

    def translate(sample: Dict[str, Any]) -> List[List[str]]:
        found = task.inference_step(generator, models, sample)
        return [[target[i] for i in hypos[0]["tokens"].tolist() if i != target.eos()] for hypos in found]

    return System(translate, prepare)


def load_ctranslate2(material: Material, search: Search, precision: str) -> System:
    """CTranslate2 with the model that its converter has made."""
    import ctranslate2

    translator = ctranslate2.Translator(
        str(material.folder / f"ctranslate2-{precision}"),
        device="cpu",
        inter_threads=1,
        intra_threads=search.threads,
        compute_type={"fp32": "float32"}.get(precision, precision),
    )

    def translate(batch: Batch) -> List[List[str]]:
        longest = 1 + max(len(tokens) for tokens in batch)
        found = translator.translate_batch(
            batch,
            beam_size=search.beam,
            length_penalty=search.alpha,
            min_decoding_length=material.min_len,
            max_decoding_length=int(material.max_len_a * longest + material.max_len_b),
            max_input_length=0,
        )
        return [one.hypotheses[0] for one in found]

    return System(translate, lambda batch: batch)


def load(system: str, precision: str, material: Material, search: Search) -> System:
    """Load a system by its name."""
    if system == "ctranslate2":
        return load_ctranslate2(material, search, precision)
    return load_fairseq(material, search, precision, ours=system == "vaswani_plugin")


def batches(sources: Batch, size: int) -> List[List[int]]:
    """Indices of the sentences of each batch, long sentences first and together."""
    order = sorted(range(len(sources)), key=lambda i: -len(sources[i]))
    return [order[i : i + size] for i in range(0, len(order), size)]


def peak_mib() -> float:
    """The most memory that this process has held since it started or since ``forget_peak``."""
    with contextlib.suppress(OSError):
        held = re.search(r"^VmHWM:\s*(\d+) kB$", Path("/proc/self/status").read_text(), flags=re.MULTILINE)
        if held:
            return int(held.group(1)) / 1024
    unit = 1 << 20 if sys.platform == "darwin" else 1 << 10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def forget_peak() -> bool:
    """Let ``peak_mib`` begin anew; Linux only."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def numbered_words(n_types: int) -> Any:
    """A dictionary of so many types, control symbols included."""
    from fairseq.data import Dictionary

    dictionary = Dictionary()
    for i in range(n_types - len(dictionary)):
        dictionary.add_symbol(f"w{i}")
    return dictionary


def send(answers: TextIO, **content: Any) -> None:
    """Answer with one line of JSON."""
    answers.write(json.dumps(content) + "\n")
    answers.flush()


def send_error(answers: TextIO, error: Exception) -> None:
    """Answer with the kind of an error and the last line of its text."""
    lines = str(error).strip().splitlines()
    send(answers, error=f"{type(error).__name__}: {lines[-1] if lines else ''}")


def serve(requests: TextIO, answers: TextIO) -> None:
    """Load a system, and run it as often as asked."""
    asked = json.loads(requests.readline())
    material = Material(**{**asked["material"], "folder": Path(asked["material"]["folder"])})
    search = Search(**asked["search"])
    try:
        system = load(asked["system"], asked["precision"], material, search)
        rows = batches(material.sources, search.batch_size)
        prepared = [system.prepare([material.sources[i] for i in row]) for row in rows]
        loading = peak_mib()
        anew = forget_peak()
        system.translate(prepared[-1])  # the first run of anything is slow
    except Exception as error:
        send_error(answers, error)
        raise
    send(answers, loading_mib=loading)
    for _ in requests:
        translations: List[Optional[List[str]]] = [None] * len(material.sources)
        wall, cpu = time.perf_counter(), time.process_time()
        for row, batch in zip(rows, prepared):
            for i, tokens in zip(row, system.translate(batch)):
                translations[i] = tokens
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        translating = peak_mib()
        peak = max(loading, translating)
        send(
            answers,
            seconds=wall,
            cpu_seconds=cpu,
            peak_mib=peak,
            translating_mib=translating if anew else None,
            translations=translations,
        )


def request(system: str, precision: str, material: Material, search: Search) -> str:
    """The line that asks for a system."""
    described = {**dataclasses.asdict(material), "folder": str(material.folder)}
    return json.dumps(
        {"system": system, "precision": precision, "material": described, "search": dataclasses.asdict(search)}
    )


if __name__ == "__main__":
    sys.path.pop(0)  # the folder of this file, whose modules belong to the package
    channel = sys.stdout
    sys.stdout = sys.stderr  # what libraries print must not come between the answers
    serve(sys.stdin, channel)
