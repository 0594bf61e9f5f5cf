"""What a benchmark translates, and with which weights: made once, and given to every system in the form that it reads.

A material lies in a folder: ``ours.pt`` and ``toolkit.pt`` hold the same weights, ``ctranslate2-fp32`` and
``ctranslate2-int8`` the same once more (made by CTranslate2's own converter), ``dict.*.txt`` the dictionaries.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple

import torch
from fairseq.data import Dictionary, data_utils
from fairseq.models import ARCH_MODEL_NAME_REGISTRY
from fairseq.modules import SinusoidalPositionalEmbedding
from fairseq.tasks.translation import TranslationConfig

from vaswani_plugin.positions import SINUSOID_LAYOUTS
from vaswani_plugin.toolkit import load_checkpoint
from vaswani_plugin.tools import convert, model_options
from vaswani_plugin.tools.benchmark_worker import Material, numbered_words
from vaswani_plugin.tools.cli import CommandError, save_checkpoint
from vaswani_plugin.transformer import VaswaniTransformer, resolve_config
from vaswani_plugin.translation import VaswaniTranslationConfig, VaswaniTranslationTask

#: Sizes of the base configuration: words of its vocabulary, control symbols included, tokens of a source, steps.
BASE_VOCABULARY, BASE_SOURCE, BASE_STEPS = 20000, 30, 40
PLUGIN = Path(__file__).resolve().parents[1]
#: Checkpoints of a training, the one that translates best first.
CHECKPOINTS = ("average.pt", "checkpoint_best.pt", "checkpoint_last.pt")


def words(tokens: List[str]) -> str:
    """The sentence that SentencePiece's pieces, or words, make up."""
    kind = "sentencepiece" if any("\u2581" in token for token in tokens) else None
    text: str = data_utils.post_process(" ".join(tokens), kind)
    return text


def random_material(folder: Path, n_sentences: int, n_types: int, n_steps: int, options: Mapping[str, Any]) -> Material:
    """A model of the given options that has learned nothing, and random sentences; every system takes n_steps steps."""
    dictionary = numbered_words(n_types)
    torch.manual_seed(1)
    task = SimpleNamespace(source_dictionary=dictionary, target_dictionary=dictionary)
    model = VaswaniTransformer.build_model(argparse.Namespace(**options), task)
    ids = torch.randint(dictionary.nspecial, len(dictionary), (n_sentences, BASE_SOURCE - 1))
    saved = {**dataclasses.asdict(resolve_config(argparse.Namespace(**options))), "_name": model_options.OURS}
    folder.mkdir(parents=True, exist_ok=True)
    save_weights(folder, saved, model.state_dict())
    for lang in ("src", "tgt"):
        dictionary.save(str(folder / f"dict.{lang}.txt"))
    sources = [[dictionary[i] for i in row] for row in ids.tolist()]
    return Material(folder, saved["positional_layout"], "src", "tgt", sources, None, n_steps, 0, n_steps)


def trained_material(folder: Path, checkpoint: Path, data: Path, split: str, n_sentences: int) -> Material:
    """A trained model and the first sentences of one part of its data.

    Raises:
        CommandError: there is no checkpoint or data, or the model cannot be converted; says which.
    """
    state = convert.read(find_checkpoint(checkpoint))
    model = state["cfg"]["model"]
    if ARCH_MODEL_NAME_REGISTRY.get(model["_name"]) == model_options.TOOLKIT:
        cfg, weights = convert.to_ours(state["cfg"], state["model"])
        options = cfg["model"]
    else:
        options = {**dataclasses.asdict(resolve_config(model_options.complete(model))), "_name": model_options.OURS}
        weights = state["model"]
    source_lang, target_lang = languages(data)
    folder.mkdir(parents=True, exist_ok=True)
    save_weights(folder, options, weights)
    for lang in (source_lang, target_lang):
        (folder / f"dict.{lang}.txt").write_bytes((data / f"dict.{lang}.txt").read_bytes())
    where = {"data": str(data), "source_lang": source_lang, "target_lang": target_lang}
    alone = {"dataset_impl": None, "required_seq_len_multiple": 1}  # which refer to other groups of options by default
    task = VaswaniTranslationTask.setup_task(VaswaniTranslationConfig(**where, **alone))
    try:
        task.load_dataset(split)
    except FileNotFoundError as error:
        raise CommandError(f"--data {data} has no part {split}: {error}") from error
    pairs = task.datasets[split]
    n = min(n_sentences, len(pairs))
    sources = [symbols(pairs.src[i], pairs.src_dict) for i in range(n)]
    references = None if pairs.tgt is None else [words(symbols(pairs.tgt[i], pairs.tgt_dict)) for i in range(n)]
    return Material(folder, options["positional_layout"], source_lang, target_lang, sources, references, 1, 1, 50)


def symbols(ids: torch.Tensor, dictionary: Dictionary) -> List[str]:
    """Ids as tokens, without the end symbol."""
    return [dictionary[i] for i in ids.tolist() if i != dictionary.eos()]


def find_checkpoint(path: Path) -> Path:
    """A checkpoint itself, or the best in a folder.

    Raises:
        CommandError: there is none.
    """
    if path.is_dir():
        found = [path / name for name in CHECKPOINTS if (path / name).is_file()]
        if not found:
            raise CommandError(f"--checkpoint {path} is a folder without any of {', '.join(CHECKPOINTS)}")
        return found[0]
    if not path.is_file():
        raise CommandError(f"--checkpoint {path}: no such file or folder")
    return path


def languages(data: Path) -> Tuple[str, str]:
    """The two languages of binary data.

    Raises:
        CommandError: the folder holds none.
    """
    source, target = data_utils.infer_language_pair(str(data)) if data.is_dir() else (None, None)
    if source is None or target is None:
        raise CommandError(f"--data {data} is no folder of fairseq-preprocess or vaswani-prepare")
    return source, target


def save_weights(folder: Path, options: Dict[str, Any], weights: Mapping[str, torch.Tensor]) -> None:
    """Write the two checkpoints of one set of weights.

    Where the sinusoids are interleaved, the toolkit's model is told so as it is built, by ``paper_positions``.

    Raises:
        CommandError: the toolkit's Transformer lacks something that the model uses.
    """
    history = {"num_updates": 0, "optimizer_name": "none", "lr_scheduler_state": {}}
    state: Dict[str, Any] = {"args": None, "optimizer_history": [history], "extra_state": {}}
    save_checkpoint({**state, "cfg": {"model": options}, "model": dict(weights)}, folder / "ours.pt")
    cfg, converted = convert.to_toolkit({"model": {**options, "positional_layout": "concatenated"}}, weights)
    save_checkpoint({**state, "cfg": cfg, "model": converted}, folder / "toolkit.pt")


@contextlib.contextmanager
def paper_positions(layout: str) -> Iterator[None]:
    """Let the toolkit's Transformers be built with the sinusoids of a layout."""
    own = SinusoidalPositionalEmbedding.get_embedding

    def table(num_embeddings: int, embedding_dim: int, padding_idx: Optional[int] = None) -> torch.Tensor:
        first = 0 if padding_idx is None else padding_idx + 1  # the row of position 0
        rows = SINUSOID_LAYOUTS[layout](num_embeddings - first, embedding_dim)
        return torch.cat((rows.new_zeros(first, embedding_dim), rows))

    if layout != "concatenated":
        SinusoidalPositionalEmbedding.get_embedding = staticmethod(table)
    try:
        yield
    finally:
        SinusoidalPositionalEmbedding.get_embedding = staticmethod(own)


def convert_for_ctranslate2(material: Material, precision: str) -> Path:
    """The toolkit's checkpoint as a model of CTranslate2, by its converter.

    Raises:
        CommandError: CTranslate2 is not installed, or does not know such a model.
    """
    try:
        from ctranslate2.converters import FairseqConverter
    except ImportError as error:
        raise CommandError("is not installed; pip install 'vaswani-plugin[export]'") from error
    state = load_checkpoint(material.folder / "toolkit.pt")
    task = TranslationConfig(source_lang=material.source_lang, target_lang=material.target_lang)
    options = {**dataclasses.asdict(task), **vars(state["cfg"]["model"]), "task": "translation"}
    file, output = material.folder / "for-ctranslate2.pt", material.folder / f"ctranslate2-{precision}"
    torch.save({"args": argparse.Namespace(**options), "model": state["model"]}, str(file))
    quantization = None if precision == "fp32" else precision
    try:
        with paper_positions(material.layout):
            FairseqConverter(str(file), str(material.folder)).convert(
                str(output), quantization=quantization, force=True
            )
    except ValueError as error:
        raise CommandError(f"does not convert this model: {error}") from error
    finally:
        file.unlink()
    return output


def train_tiny(work: Path, n_updates: int) -> Tuple[Path, Path]:
    """A ``vaswani_tiny`` that has learned from the embedded corpus for a while, and its data; made once a folder.

    Raises:
        CommandError: a step fails.
    """
    data, checkpoints = work / "data" / "bin", work / "checkpoints"
    if (work / "trained").is_file() and (work / "trained").read_text() == str(n_updates):
        return checkpoints, data
    corpus = work / "corpus"
    files = [
        [f"--{split}", *(str(corpus / f"{split}.{lang}") for lang in ("en", "de"))]
        for split in ("train", "valid", "test")
    ]
    pair = ["--source-lang", "en", "--target-lang", "de"]
    run("vaswani_plugin.tools.corpus", str(corpus))
    run(
        *["vaswani_plugin.tools.prepare", "text", *sum(files, []), *pair],
        *["--vocab-size", "1000", "--dest", str(work / "data")],
    )
    run(
        *["fairseq_cli.train", str(data), "--user-dir", str(PLUGIN), *pair],
        *["--task", "vaswani_translation", "--arch", "vaswani_tiny", "--share-all-embeddings", "--dropout", "0.1"],
        *["--criterion", "vaswani_label_smoothed_cross_entropy", "--label-smoothing", "0.1"],
        *["--optimizer", "adam", "--adam-betas", "(0.9, 0.98)", "--adam-eps", "1e-9", "--max-tokens", "2048"],
        *["--lr-scheduler", "vaswani_inverse_sqrt", "--lr", "3e-3", "--warmup-updates", "200", "--seed", "1"],
        *["--max-update", str(n_updates), "--save-dir", str(checkpoints), "--no-epoch-checkpoints", "--cpu"],
        *["--num-workers", "0", "--no-progress-bar", "--log-format", "simple", "--log-interval", "50"],
    )
    (work / "trained").write_text(str(n_updates))
    return checkpoints, data


def run(module: str, *args: str) -> None:
    """Run a command's module; what it prints goes to stderr.

    Raises:
        CommandError: it fails.
    """
    done = subprocess.run([sys.executable, "-m", module, *args], stdout=sys.stderr, check=False)
    if done.returncode != 0:
        raise CommandError(f"python -m {module} failed with status {done.returncode}; its output is above")
