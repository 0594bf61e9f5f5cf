"""From parallel text to the toolkit's binary data, in steps that are done once.

The folder then holds, with SentencePiece or with Moses tokens and subword-nmt::

    clean/train.en clean/train.de    the training pairs that are left, where cleaning was asked for
    spm.model  spm.vocab             the pieces                        | bpe.codes
    spm/train.en  spm/train.de ...   the text in pieces                | tok/train.en ...   bpe/train.en ...
    dict.txt                         the toolkit's dictionary: every piece once, the most frequent first
    bin/                             what fairseq-train reads
    manifest.json                    which steps are finished, from which inputs; where the raw test text lies
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from vaswani_plugin.tools import bpe, subwords
from vaswani_plugin.tools.cleaning import Rules, clean_pairs, unequal
from vaswani_plugin.tools.cli import CommandError, atomic_path, check_file, chunk_progress, read_lines
from vaswani_plugin.tools.manifest import Manifest, filling
from vaswani_plugin.tools.parallel import line_chunks, map_lines, ordered_map

SENTENCEPIECE, SUBWORD_NMT = "sentencepiece", "subword-nmt"
Coder = Callable[[List[bytes]], bytes]
_LANGUAGE = re.compile(r"[A-Za-z0-9_@][A-Za-z0-9_@.+-]*")


@dataclass(frozen=True)
class Scheme:
    """A way to cut words into pieces.

    Attributes:
        folder: where the text in pieces lies.
        files: what learning writes; encoding reads the first.
        learn: takes the training files, the first of ``files``, the vocabulary size and the number of lines to draw.
        coder: takes the first of ``files`` and returns what turns lines into pieces.
        pieces: takes it too and returns all pieces that the dictionary holds even where the text does not.
    """

    folder: str
    files: Tuple[str, ...]
    learn: Callable[[Sequence[Path], Path, int, int], None]
    coder: Callable[[Path], Coder]
    pieces: Callable[[Path], List[str]]


SCHEMES: Dict[str, Scheme] = {
    SENTENCEPIECE: Scheme(
        "spm", ("spm.model", "spm.vocab"), subwords.learn_pieces, subwords.PieceCoder.load, subwords.all_pieces
    ),
    SUBWORD_NMT: Scheme("bpe", ("bpe.codes",), bpe.learn_codes, bpe.MergeCoder.load, lambda codes: []),
}


@dataclass(frozen=True)
class TextJob:
    """What is to be prepared.

    Attributes:
        splits: split name to its (source, target) files; holds train and valid, and test where one was given.
        languages: (source, target) suffixes.
        vocab_size: of the joint vocabulary; with SentencePiece its three control symbols are included.
        dest: the folder to fill.
        workers: processes.
        sample_lines: most lines that the vocabulary is learned from, drawn at random where there are more.
        subword_kind: key of ``SCHEMES``.
        rules: what training pairs must satisfy; None leaves them all in.
    """

    splits: Mapping[str, Sequence[Path]]
    languages: Sequence[str]
    vocab_size: int
    dest: Path
    workers: int
    sample_lines: int
    subword_kind: str = SENTENCEPIECE
    rules: Optional[Rules] = None

    def raw(self) -> Dict[str, Path]:
        """Return every input file by the name it gets, such as ``train.en``."""
        return {
            f"{split}.{language}": Path(path)
            for split, paths in self.splits.items()
            for language, path in zip(self.languages, paths)
        }


def prepare_text(job: TextJob) -> List[str]:
    """Run the steps that are not done yet.

    Returns:
        The names of the steps that were run, in order; empty when everything was there.

    Raises:
        CommandError: an input is missing, empty or not parallel, the vocabulary size does not fit, or a step failed.
    """
    check_job(job)
    raw = job.raw()
    check_inputs(job, raw)
    with filling(job.dest) as manifest:
        text = dict(raw)
        if job.rules is not None:
            pair = [raw[f"train.{language}"] for language in job.languages]
            text.update(clean_step(manifest, {"train": pair}, job, job.rules))
        make_data(manifest, job, text)
        manifest.note("raw", {name: str(path.resolve()) for name, path in raw.items()})
    return manifest.ran


def make_data(manifest: Manifest, job: TextJob, text: Mapping[str, Path]) -> None:
    """Cut text into pieces and have the toolkit make its binary data of them.

    Args:
        manifest: of the folder to fill.
        job: what is to be prepared.
        text: the files to read, by names such as ``train.en``.
    """
    scheme = SCHEMES[job.subword_kind]
    if job.subword_kind == SUBWORD_NMT:
        text = tokenise(manifest, job, text)
    encoded, dictionary = encode(manifest, job, scheme, text), job.dest / "dict.txt"
    manifest.step(
        "binarise",
        {"languages": list(job.languages)},
        {"dict.txt": dictionary, **encoded},
        lambda: binarise(job, dictionary, job.dest / scheme.folder),
        lambda: [path for path in (job.dest / "bin").iterdir() if path.is_file()],
    )


def check_job(job: TextJob) -> None:
    """Refuse languages, sizes and orders of files that cannot be meant."""
    source, target = job.languages
    for option, language in (("--source-lang", source), ("--target-lang", target)):
        if not _LANGUAGE.fullmatch(language):
            raise CommandError(
                f"{option} {language!r}: a file's suffix, of letters, digits and _ @ . + -, the first not one of . + -"
            )
    check_sizes(job.vocab_size, job.sample_lines)
    if source == target:
        raise CommandError(f"--source-lang and --target-lang are both {source!r}; they name the two files of a pair")
    for split, (source_path, target_path) in job.splits.items():
        for path, other in ((source_path, target), (target_path, source)):
            if Path(path).suffix == f".{other}":
                raise CommandError(f"--{split} {source_path} {target_path}: the {source} file comes first")


def check_sizes(vocab_size: int, sample_lines: int) -> None:
    """Refuse sizes with which no vocabulary can be learned."""
    if vocab_size < subwords.MIN_VOCAB_SIZE:
        raise CommandError(f"--vocab-size {vocab_size}: must be at least {subwords.MIN_VOCAB_SIZE}")
    if sample_lines < subwords.MIN_SAMPLE_LINES:
        raise CommandError(f"--sample-lines {sample_lines}: must be at least {subwords.MIN_SAMPLE_LINES}")


def check_inputs(job: TextJob, text: Mapping[str, Path]) -> None:
    """Refuse files that are missing, empty, not UTF-8 or not parallel; cleaning does so with the files it reads."""
    for split in job.splits:
        if split == "train" and job.rules is not None:
            continue
        paths = [text[f"{split}.{language}"] for language in job.languages]
        counts = [count_lines(path) for path in paths]
        if counts[0] != counts[1]:
            raise CommandError(f"--{split}: {unequal(paths[0], counts[0], paths[1], counts[1])}")


def count_lines(path: Path) -> int:
    """Return the number of lines, refusing a file that is missing, empty or not UTF-8."""
    count = sum(1 for _ in read_lines(path))
    if count == 0:
        raise CommandError(f"{path}: empty file")
    return count


def clean_step(
    manifest: Manifest, corpora: Mapping[str, Sequence[Path]], job: TextJob, rules: Rules
) -> Dict[str, Path]:
    """Clean the training text; returns its files by name, and leaves the counts in the manifest and on the screen."""
    names = [f"train.{language}" for language in job.languages]
    outputs = (job.dest / "clean" / names[0], job.dest / "clean" / names[1])
    inputs = {f"{name}.{lang}": path for name, pair in corpora.items() for lang, path in zip(job.languages, pair)}
    for path in inputs.values():
        check_file(path)

    def work() -> None:
        pairs = {name: (paths[0], paths[1]) for name, paths in corpora.items()}
        reports = clean_pairs(pairs, outputs, rules, job.workers)
        manifest.note("cleaning", [report.text(name) for name, report in reports.items()])

    manifest.step("clean", vars(rules), inputs, work, lambda: outputs)
    for line in manifest.data.get("cleaning", []):
        print(line, flush=True)
    return dict(zip(names, outputs))


def tokenise(manifest: Manifest, job: TextJob, text: Mapping[str, Path]) -> Dict[str, Path]:
    """Write every file in Moses tokens; returns the files by name."""
    for language in job.languages:
        bpe.warn_of_language(language, "--source-lang or --target-lang")
    tokens = {name: job.dest / "tok" / name for name in text}
    for name, path in text.items():
        _map_step(manifest, f"tokenise {name}", {name: path}, bpe.MosesTokens(_language(name)), path, tokens[name], job)
    return tokens


def encode(manifest: Manifest, job: TextJob, scheme: Scheme, text: Mapping[str, Path]) -> Dict[str, Path]:
    """Learn the pieces and write every file in them, and the dictionary; returns the files by name."""
    learned = [job.dest / name for name in scheme.files]
    train = {name: path for name, path in text.items() if name.startswith("train.")}
    manifest.step(
        "learn",
        {"vocab_size": job.vocab_size, "sample_lines": job.sample_lines},
        train,
        lambda: scheme.learn(list(train.values()), learned[0], job.vocab_size, job.sample_lines),
        lambda: learned,
    )
    coder, model = scheme.coder(learned[0]), {learned[0].name: learned[0]}
    encoded = {name: job.dest / scheme.folder / name for name in text}
    for name, path in text.items():
        _map_step(manifest, f"encode {name}", {**model, name: path}, coder, path, encoded[name], job)
    pieces, dictionary = {name: encoded[name] for name in train}, job.dest / "dict.txt"

    def write() -> None:
        counts = count_pieces(list(pieces.values()), job.workers)
        with atomic_path(dictionary) as partial, open(partial, "w", encoding="utf-8", newline="\n") as handle:
            handle.write(dictionary_text(scheme.pieces(learned[0]), counts))

    manifest.step("dictionary", {}, {**model, **pieces}, write, lambda: [dictionary])
    return encoded


def _language(name: str) -> str:
    return name.split(".", 1)[1]


def _map_step(
    manifest: Manifest,
    step: str,
    inputs: Mapping[str, Path],
    function: Coder,
    source: Path,
    target: Path,
    job: TextJob,
) -> None:
    """Write a file as ``function`` makes it from another, as a step of its own."""
    manifest.step(step, {}, inputs, lambda: map_lines(function, source, target, job.workers, step), lambda: [target])


def count_pieces(paths: Sequence[Path], workers: int) -> Counter[str]:
    """Return how often each piece stands in the files."""
    counts: Counter[str] = Counter()
    for path in paths:
        with open(path, "rb") as handle:
            chunks = chunk_progress(line_chunks(handle), f"count {path.name}", len)
            for found in ordered_map(_count_chunk, chunks, workers):
                counts.update(found)
    return counts


def _count_chunk(lines: List[bytes]) -> Dict[str, int]:
    return Counter(b" ".join(lines).decode("utf-8").split(" "))


def dictionary_text(pieces: Sequence[str], counts: Mapping[str, int]) -> str:
    """Return the toolkit's dictionary file: a piece and its count a line, the most frequent first.

    Args:
        pieces: what the dictionary holds whether it occurs or not, in the order that equally frequent ones keep.
        counts: how often a piece occurs.
    """
    kept = dict.fromkeys([*pieces, *sorted(counts)])
    order = sorted(
        (piece for piece in kept if piece and piece not in subwords.RESERVED), key=lambda p: -counts.get(p, 0)
    )
    return "".join(f"{piece} {counts.get(piece, 0)}\n" for piece in order)


def binarise(job: TextJob, dictionary: Path, folder: Path) -> None:
    """Have ``fairseq-preprocess`` fill ``bin/`` from the files in ``folder``."""
    words = ["--joined-dictionary", "--srcdict", str(dictionary)]
    words += ["--source-lang", job.languages[0], "--target-lang", job.languages[1], "--workers", str(job.workers)]
    for split in job.splits:
        words += [f"--{split}pref", str(folder / split)]
    preprocess_into_bin(job.dest, words)


def preprocess_into_bin(dest: Path, words: Sequence[str]) -> None:
    """Have ``fairseq-preprocess`` make ``dest/bin``, which appears only when that succeeded.

    Raises:
        CommandError: it failed.
    """
    # A name of its own: what was started by a run that was killed may still be writing under another.
    final, partial, log = dest / "bin", dest / f".bin.{os.getpid()}.partial", dest / "binarise.log"
    for stale in dest.glob(".bin.*partial"):
        shutil.rmtree(stale, ignore_errors=True)
    try:
        status = run_preprocess([*words, "--destdir", str(partial)], log)
        if status != 0:
            raise CommandError(f"fairseq-preprocess failed with status {status}; its output is in {log}")
        shutil.rmtree(final, ignore_errors=True)
        partial.rename(final)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def run_preprocess(words: Sequence[str], log: Path) -> int:
    """Run ``fairseq-preprocess`` with this interpreter, its output in ``log``; returns its exit status."""
    command = [sys.executable, "-m", "fairseq_cli.preprocess", *words]
    with open(log, "w", encoding="utf-8") as handle:
        return subprocess.run(
            command, stdout=handle, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, check=False
        ).returncode
