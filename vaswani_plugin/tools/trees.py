"""``vaswani-prepare trees``: from bracketed trees to the toolkit's binary data, words on one side, trees on the other.

The folder then holds::

    gold/valid.ptb                    clean trees with their tags, one a line, to score against
    text/train.words text/train.trees the two sides, one sentence a line
    dict.words.txt dict.trees.txt     the toolkit's dictionaries
    bin/                              what fairseq-train reads, from "words" to "trees"
    manifest.json                     which steps are finished, from which inputs

Linear trees hold XX for each word. ``--tags`` keeps the words' tags there, from which a model learns sooner which word
it has come to. ``--joined`` gives each word one symbol with the brackets around it, ``(S(NP*XX``, so that symbol and
word stand at the same place. ``--subtrees`` appends the constituents of the training trees to these as examples of
their own. All are meant for treebanks of a few thousand trees; none is in the papers of ``vaswani_plugin.trees``.

``--words dictionary`` keeps words whole; those that the training trees hold fewer than ``--min-count`` times, or that
are not among the ``--vocab-size`` most frequent, are unknown words. ``--words pieces`` learns a SentencePiece BPE from
the training words; ``spm.model`` and ``spm/`` are then there too.
"""

from __future__ import annotations

import argparse
import os
import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence
from typing import Counter as CounterType

from vaswani_plugin.tools.cli import CommandError, atomic_path, plural, positive, progress, read_lines
from vaswani_plugin.tools.manifest import filling
from vaswani_plugin.tools.pipeline import preprocess_into_bin
from vaswani_plugin.tools.subwords import MIN_VOCAB_SIZE, RESERVED, encode_lines, learn_pieces, load_pieces
from vaswani_plugin.trees import Tree, TreeError, clean, join_symbols, linearise, read_trees, subtrees, to_penn, words

SIDES = ("words", "trees")
Body = Callable[[], List[Path]]
#: The paper's vocabulary for the Wall Street Journal alone (section 6.3), and pieces that suit a few thousand trees.
VOCAB_SIZES = {"dictionary": 16000, "pieces": 2000}
MAX_SAMPLE_LINES = 5_000_000


@dataclass(frozen=True)
class TreesJob:
    """What ``vaswani-prepare trees`` was asked for.

    Attributes:
        splits: split name to its Penn style files; holds train and valid, and test where one was given.
        dest: the folder to fill.
        kind: "dictionary" or "pieces", a key of ``VOCAB_SIZES``.
        vocab_size: most words, or the number of pieces.
        min_count: how often a word must occur to be known; for the dictionary.
        tags: whether a linear tree holds each word's tag instead of XX.
        joined: whether a linear tree has one symbol for each word, with the brackets around it.
        subtrees: whether the constituents of the training trees are examples too.
        workers: processes for ``fairseq-preprocess`` and threads for encoding.
    """

    splits: Mapping[str, Sequence[Path]]
    dest: Path
    kind: str
    vocab_size: int
    min_count: int
    tags: bool
    joined: bool
    subtrees: bool
    workers: int

    def encoded(self, split: str, side: str) -> Path:
        """The file whose symbols the toolkit reads."""
        return self.dest / ("spm" if (self.kind, side) == ("pieces", "words") else "text") / f"{split}.{side}"

    def symbols(self, tree: Tree) -> List[str]:
        """A clean tree as the model is to say it."""
        symbols = linearise(tree, self.tags)
        return join_symbols(symbols) if self.joined else symbols

    def dictionary(self, side: str) -> Path:
        """The toolkit's dictionary of a side."""
        return self.dest / f"dict.{side}.txt"


def tree_files(paths: Iterable[Path]) -> List[Path]:
    """The files themselves, and for a folder every ``.mrg`` file in it, as the Penn Treebank has them.

    Raises:
        CommandError: a folder without such files.
    """
    files: List[Path] = []
    for path in paths:
        found = sorted(path.rglob("*.mrg")) if path.is_dir() else [path]
        if not found:
            raise CommandError(f"{path}: no .mrg files in this folder")
        files += found
    return files


def read_tree_file(path: Path) -> List[Tree]:
    """The trees of a Penn style file, as they stand there.

    Raises:
        CommandError: the file cannot be read or holds no trees, or a tree is malformed; with the line's number.
    """
    try:
        trees = list(read_trees(read_lines(path)))
    except TreeError as error:
        raise CommandError(f"{path}:{error.line}: {error}") from error
    if not trees:
        raise CommandError(f"{path}: no trees")
    return trees


def prepare_trees(job: TreesJob) -> List[str]:
    """Run the steps that are not done yet.

    Returns:
        The names of the steps that were run, in order; empty when everything was there.

    Raises:
        CommandError: an input is missing or malformed, the vocabulary size does not fit, or a step failed.
    """
    if job.kind == "pieces" and job.vocab_size < MIN_VOCAB_SIZE:
        raise CommandError(f"--vocab-size {job.vocab_size}: must be at least {MIN_VOCAB_SIZE}")
    with filling(job.dest) as manifest:

        def step(
            name: str, settings: Dict[str, Any], inputs: Mapping[str, Path], body: Callable[[], List[Path]]
        ) -> None:
            made: List[Path] = []
            manifest.step(name, settings, inputs, lambda: made.extend(body()), lambda: made)

        raw = {f"{split} {number}": path for split, paths in job.splits.items() for number, path in enumerate(paths)}
        form = {name: True for name in ("tags", "joined", "subtrees") if getattr(job, name)}
        step("read", form, raw, lambda: read_splits(job))
        texts = {f"{split}.{side}": job.dest / "text" / f"{split}.{side}" for split in job.splits for side in SIDES}
        settings: Dict[str, Any] = {"words": job.kind, "vocab_size": job.vocab_size, "min_count": job.min_count}
        step("encode", settings, texts, lambda: encode(job))
        encoded = {f"{split}.{side}": job.encoded(split, side) for split in job.splits for side in SIDES}
        dictionaries = {f"dict.{side}.txt": job.dictionary(side) for side in SIDES}
        step("binarise", {}, {**encoded, **dictionaries}, lambda: binarise(job))
    return manifest.ran


def read_splits(job: TreesJob) -> List[Path]:
    """Write words, linear trees and clean gold trees of every split; training trees without words are left out."""
    written = []
    for split, paths in job.splits.items():
        with progress(paths, f"read {split}", unit="file") as files:  # closed before an error is told
            trees = [clean(tree) for path in files for tree in read_tree_file(path)]
        kept = [tree for tree in trees if tree] if split == "train" else trees
        if not any(kept):
            raise CommandError(f"--{split}: no tree holds a word")
        if len(kept) < len(trees):
            print(f"--{split}: left out {plural(len(trees) - len(kept), 'tree')} without words")
        written.append(write_lines(job.dest / "gold" / f"{split}.ptb", map(to_penn, kept)))
        if split == "train" and job.subtrees:
            kept += [subtree for tree in kept for subtree in subtrees(tree)]
        text = job.dest / "text"
        written.append(write_lines(text / f"{split}.words", (" ".join(words(tree)) for tree in kept)))
        written.append(write_lines(text / f"{split}.trees", (" ".join(job.symbols(tree)) for tree in kept)))
    return written


def write_lines(path: Path, lines: Iterable[str]) -> Path:
    """Write a UTF-8 file, whole or not at all; returns its path."""
    with atomic_path(path) as partial, open(partial, "w", encoding="utf-8", newline="\n") as handle:
        handle.writelines(line + "\n" for line in lines)
    return path


def encode(job: TreesJob) -> List[Path]:
    """Cut words into pieces where that was asked for, and write the dictionaries of both sides."""
    written: List[Path] = []
    train = {side: job.dest / "text" / f"train.{side}" for side in SIDES}
    known: Optional[List[str]] = None  # what the dictionary holds even if the training text does not
    if job.kind == "pieces":
        model = job.dest / "spm.model"
        learn_pieces([train["words"]], model, job.vocab_size, MAX_SAMPLE_LINES)
        processor = load_pieces(model)
        for split in job.splits:
            lines = progress(read_lines(job.dest / "text" / f"{split}.words"), f"encode {split}")
            pieces = encode_lines(processor, lines, job.workers)
            written.append(write_lines(job.encoded(split, "words"), map(" ".join, pieces)))
        known = [processor.id_to_piece(i) for i in range(processor.get_piece_size())]
        known = [piece for i, piece in enumerate(known) if not processor.is_control(i)]
        written += [model, model.with_suffix(".vocab")]
    source = count_symbols(job.encoded("train", "words"))
    if known is None:
        whole = count_words(job.dest / "gold" / "train.ptb")  # a subtree shows no word anew
        frequent = sorted(whole.items(), key=lambda entry: (-entry[1], entry[0]))[: job.vocab_size]
        known = [word for word, count in frequent if count >= job.min_count]
    target = count_symbols(train["trees"])
    written.append(write_dictionary(job.dictionary("words"), known, source))
    written.append(write_dictionary(job.dictionary("trees"), target, target))
    return written


def count_words(path: Path) -> CounterType[str]:
    """How often each word occurs in a file of trees."""
    return Counter(word for tree in read_tree_file(path) for word in words(clean(tree)))


def count_symbols(path: Path) -> CounterType[str]:
    """How often each symbol of a text occurs."""
    return Counter(symbol for line in read_lines(path) for symbol in line.split(" ") if symbol)


def write_dictionary(path: Path, symbols: Iterable[str], counts: Mapping[str, int]) -> Path:
    """Write the toolkit's dictionary: a symbol and its count a line, the most frequent first."""
    kept = sorted((s for s in symbols if s not in RESERVED), key=lambda symbol: (-counts.get(symbol, 0), symbol))
    return write_lines(path, (f"{symbol} {counts.get(symbol, 0)}" for symbol in kept))


def binarise(job: TreesJob) -> List[Path]:
    """Have ``fairseq-preprocess`` fill ``bin/``, which appears only when it succeeded; returns its files."""
    options = ["--source-lang", "words", "--target-lang", "trees", "--workers", str(job.workers)]
    options += ["--srcdict", str(job.dictionary("words")), "--tgtdict", str(job.dictionary("trees"))]
    inputs = job.dest / f".input.{os.getpid()}.partial"
    try:
        inputs.mkdir()
        for split in job.splits:  # the toolkit wants both sides in one folder
            for side in SIDES:
                (inputs / f"{split}.{side}").symlink_to(job.encoded(split, side).resolve())
            options += [f"--{split}pref", str(inputs / split)]
        preprocess_into_bin(job.dest, options)
    finally:
        shutil.rmtree(inputs, ignore_errors=True)
    return [path for path in (job.dest / "bin").iterdir() if path.is_file()]


def add_parser(kinds: Any) -> None:
    """Add the subcommand to ``vaswani-prepare``."""
    text = "Penn style trees, one or several lines each; function tags, empty nodes and root brackets are dropped."
    parser: argparse.ArgumentParser = kinds.add_parser("trees", help="bracketed trees, for parsing", description=text)
    what = "files, or folders whose .mrg files are read"
    parser.add_argument("--train", nargs="+", type=Path, required=True, metavar="FILE", help=f"training trees: {what}")
    parser.add_argument("--valid", nargs="+", type=Path, required=True, metavar="FILE", help="validation trees")
    parser.add_argument("--test", nargs="+", type=Path, metavar="FILE", help="test trees")
    parser.add_argument("--dest", type=Path, required=True, metavar="DIR", help="folder for everything that is made")
    parser.add_argument(
        "--words",
        choices=list(VOCAB_SIZES),
        default="dictionary",
        help="whole words, or SentencePiece BPE (default: dictionary)",
    )
    sizes = ", ".join(f"{size} for {kind}" for kind, size in VOCAB_SIZES.items())
    parser.add_argument("--vocab-size", type=positive, metavar="N", help=f"most words, or pieces (default: {sizes})")
    parser.add_argument(
        "--min-count",
        type=positive,
        default=2,
        metavar="N",
        help="with --words dictionary: words that the training trees hold fewer times are unknown (default: 2)",
    )
    few = "meant for a few thousand trees"
    parser.add_argument("--tags", action="store_true", help=f"keep part-of-speech tags in the linear trees; {few}")
    parser.add_argument(
        "--joined", action="store_true", help=f"one symbol for each word, with the brackets around it; {few}"
    )
    parser.add_argument(
        "--subtrees", action="store_true", help=f"train on every constituent of the training trees too; {few}"
    )
    parser.add_argument("--workers", type=positive, default=1, metavar="N", help="processes (default: 1)")


def job_from(args: argparse.Namespace) -> TreesJob:
    """The job that the options describe."""
    given = {name: getattr(args, name) for name in ("train", "valid", "test") if getattr(args, name) is not None}
    splits = {name: tree_files(paths) for name, paths in given.items()}
    size = args.vocab_size or VOCAB_SIZES[args.words]
    return TreesJob(
        splits, args.dest, args.words, size, args.min_count, args.tags, args.joined, args.subtrees, args.workers
    )
