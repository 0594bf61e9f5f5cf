"""``vaswani-prepare``: from parallel text to the toolkit's binary data with one joint vocabulary.

``vaswani-prepare text`` learns a SentencePiece BPE on both sides of the training text together (paper, section 5.1: a
shared source-target vocabulary), encodes every file with it, and has ``fairseq-preprocess`` write the binary data. The
folder then holds::

    spm.model  spm.vocab             the pieces
    spm/train.en  spm/train.de ...   the encoded text, pieces separated by blanks
    dict.txt                         the toolkit's dictionary: every piece once, the most frequent first
    bin/                             what fairseq-train reads
    manifest.json                    which steps are finished, from which inputs; where the raw test text lies

The dictionary is the piece vocabulary without SentencePiece's three control symbols; the toolkit puts its own four
before it, so ``--vocab-size V`` becomes V + 1 rows. Test text is scored against the raw file and never rewritten.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence

from vaswani_plugin.tools.cli import CommandError, atomic_path, plural, progress, read_lines, run_command
from vaswani_plugin.tools.manifest import Manifest

RESERVED = frozenset({"<s>", "<pad>", "</s>", "<unk>"})  # what the toolkit's dictionary holds before the first piece
MAX_LINE_BYTES = 65_536  # SentencePiece leaves longer lines out of training; its default of 4,192 drops real sentences
BATCH_LINES = 4_096
MIN_VOCAB_SIZE = 4  # SentencePiece's three control symbols and one piece
MIN_SAMPLE_LINES = 101  # SentencePiece's rule
_SPACE = re.compile(r"\s")
_LANGUAGE = re.compile(r"[A-Za-z0-9_@][A-Za-z0-9_@.+-]*")


@dataclass(frozen=True)
class TextJob:
    """What ``vaswani-prepare text`` was asked for.

    Attributes:
        splits: split name to its (source, target) files; holds train and valid, and test where one was given.
        languages: (source, target) suffixes.
        vocab_size: SentencePiece's, its three control symbols included.
        dest: the folder to fill.
        workers: processes for ``fairseq-preprocess`` and threads for encoding.
        sample_lines: most lines that the vocabulary is learned from, drawn at random where there are more.
    """

    splits: Mapping[str, Sequence[Path]]
    languages: Sequence[str]
    vocab_size: int
    dest: Path
    workers: int
    sample_lines: int

    def raw(self) -> Dict[str, Path]:
        """Return every input file by the name it gets in ``spm/``, such as ``train.en``."""
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
    check_inputs(job)
    manifest = Manifest(job.dest)
    raw = job.raw()
    encoded = {name: job.dest / "spm" / name for name in raw}
    train = {name: path for name, path in raw.items() if name.startswith("train.")}
    model, dictionary = job.dest / "spm.model", job.dest / "dict.txt"
    ran: List[str] = []

    settings: Dict[str, Any] = {"vocab_size": job.vocab_size, "sample_lines": job.sample_lines}
    if not manifest.is_done("learn", settings, train):
        manifest.forget("learn")
        learn_pieces(list(train.values()), model, job.vocab_size, job.sample_lines)
        manifest.record("learn", settings, train, [model, model.with_suffix(".vocab")])
        ran.append("learn")

    settings, inputs = {"languages": list(job.languages)}, {"spm.model": model, **raw}
    if not manifest.is_done("encode", settings, inputs):
        manifest.forget("encode")
        encode_all(model, raw, encoded, dictionary, job.workers)
        manifest.record("encode", settings, inputs, [dictionary, *encoded.values()])
        ran.append("encode")

    inputs = {"dict.txt": dictionary, **encoded}
    if not manifest.is_done("binarise", settings, inputs):
        manifest.forget("binarise")
        binarise(job, dictionary)
        manifest.record("binarise", settings, inputs, [path for path in (job.dest / "bin").iterdir() if path.is_file()])
        ran.append("binarise")

    manifest.note("raw", {name: str(path.resolve()) for name, path in raw.items()})
    return ran


def check_inputs(job: TextJob) -> None:
    """Refuse files that are missing, empty, not parallel, or given in the wrong order."""
    source, target = job.languages
    for option, language in (("--source-lang", source), ("--target-lang", target)):
        if not _LANGUAGE.fullmatch(language):
            raise CommandError(
                f"{option} {language!r}: a file's suffix, of letters, digits and _ @ . + -, the first not one of . + -"
            )
    if job.vocab_size < MIN_VOCAB_SIZE:
        raise CommandError(f"--vocab-size {job.vocab_size}: must be at least {MIN_VOCAB_SIZE}")
    if job.sample_lines < MIN_SAMPLE_LINES:
        raise CommandError(f"--sample-lines {job.sample_lines}: must be at least {MIN_SAMPLE_LINES}")
    if source == target:
        raise CommandError(f"--source-lang and --target-lang are both {source!r}; they name the two files of a pair")
    for split, (source_path, target_path) in job.splits.items():
        for path, other in ((source_path, target), (target_path, source)):
            if Path(path).suffix == f".{other}":
                raise CommandError(f"--{split} {source_path} {target_path}: the {source} file comes first")
        counts = [count_lines(path) for path in (source_path, target_path)]
        if counts[0] != counts[1]:
            raise CommandError(
                f"--{split}: {source_path} has {plural(counts[0], 'line')} but {target_path} has "
                f"{plural(counts[1], 'line')}; parallel files have the same number"
            )


def count_lines(path: Path) -> int:
    """Return the number of lines, refusing a file that is missing, empty or not UTF-8."""
    count = sum(1 for _ in read_lines(path))
    if count == 0:
        raise CommandError(f"{path}: empty file")
    return count


def clean(line: str) -> str:
    """Return the line with every white-space character made a blank.

    The toolkit splits pieces at any of them and its reader ends a line at some (carriage return, U+2028), so none may
    be left within a piece.
    """
    return _SPACE.sub(" ", line)


def learn_pieces(paths: Sequence[Path], model: Path, vocab_size: int, sample_lines: int) -> None:
    """Learn a joint BPE from ``paths`` and write ``model`` and, beside it, the readable ``.vocab``.

    Every character of the training text becomes a piece (character coverage 1.0), so that no training text is unknown.

    Raises:
        CommandError: SentencePiece cannot make a vocabulary of this size from this text; names the limit.
    """
    import sentencepiece

    sentencepiece.set_random_generator_seed(1)
    lines = (clean(line) for path in paths for line in read_lines(path))
    with atomic_path(model) as partial, open(partial, "wb") as writer:
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(progress(lines, "read for the vocabulary")),
                model_writer=writer,
                model_type="bpe",
                vocab_size=vocab_size,
                character_coverage=1.0,
                input_sentence_size=sample_lines,
                shuffle_input_sentence=True,
                max_sentence_length=MAX_LINE_BYTES,
                train_extremely_large_corpus=False,
                minloglevel=2,
            )
        except RuntimeError as error:
            raise CommandError(vocabulary_error(vocab_size, str(error))) from error
        except ValueError as error:
            raise CommandError(f"cannot learn a vocabulary: {error}") from error
    processor = load_pieces(model)
    with atomic_path(model.with_suffix(".vocab")) as partial, open(partial, "w", encoding="utf-8") as handle:
        for index in range(processor.get_piece_size()):
            handle.write(f"{processor.id_to_piece(index)}\t{processor.get_score(index):g}\n")


def vocabulary_error(vocab_size: int, text: str) -> str:
    """Put SentencePiece's complaint into words of ours, with the limit that it names."""
    # Before 0.2.3 SentencePiece finds in blank lines just the three pieces that need no text: <unk>, <s> and </s>.
    if re.search(r"sentences_\.empty\(\)|all_chars_count|value <= 3\b", text):
        return "the training text holds nothing but blank lines"
    high = re.search(r"too high \(\d+\)\. Please set it to a value <= (\d+)", text)
    if high:
        return f"--vocab-size {vocab_size}: the training text yields at most {high.group(1)} pieces"
    low = re.search(r"smaller than required_chars\. \d+ vs (\d+)", text)
    if low:
        return f"--vocab-size {vocab_size}: the characters of the training text alone need {low.group(1)} pieces"
    return f"--vocab-size {vocab_size}: {text}"


def load_pieces(model: Path) -> Any:
    """Return SentencePiece's processor for ``model``."""
    import sentencepiece

    return sentencepiece.SentencePieceProcessor(model_file=str(model))


def encode_all(
    model: Path, raw: Mapping[str, Path], encoded: Mapping[str, Path], dictionary: Path, threads: int
) -> None:
    """Encode each file and write the dictionary, with the training text's counts."""
    processor = load_pieces(model)
    counts: Counter[str] = Counter()
    for name, source in raw.items():
        with atomic_path(encoded[name]) as partial, open(partial, "w", encoding="utf-8", newline="\n") as handle:
            for pieces in encode_lines(processor, progress(read_lines(source), f"encode {name}"), threads):
                handle.write(" ".join(pieces) + "\n")
                if name.startswith("train."):
                    counts.update(pieces)
    with atomic_path(dictionary) as partial, open(partial, "w", encoding="utf-8", newline="\n") as handle:
        handle.write(dictionary_text(processor, counts))


def encode_lines(processor: Any, lines: Iterator[str], threads: int) -> Iterator[List[str]]:
    """Yield each line's pieces, none of which is white space or one of the toolkit's own symbols."""
    lines = iter(lines)
    while True:
        batch = [clean(line) for line in islice(lines, BATCH_LINES)]
        if not batch:
            return
        for pieces in processor.encode(batch, out_type=str, num_threads=threads):
            yield unreserve(pieces)


def unreserve(pieces: List[str]) -> List[str]:
    """Spell out a piece that reads like one of the toolkit's symbols, so that text never becomes padding or an end."""
    if RESERVED.isdisjoint(pieces):
        return pieces
    return [part for piece in pieces for part in (list(piece) if piece in RESERVED else [piece])]


def dictionary_text(processor: Any, counts: Mapping[str, int]) -> str:
    """Return the toolkit's dictionary file: a piece and its count a line, the most frequent first."""
    pieces = [
        processor.id_to_piece(index)
        for index in range(processor.get_piece_size())
        if not (processor.is_control(index) or processor.is_unknown(index))
    ]
    kept = [piece for piece in pieces if piece not in RESERVED]
    kept.sort(key=lambda piece: -counts.get(piece, 0))
    return "".join(f"{piece} {counts.get(piece, 0)}\n" for piece in kept)


def binarise(job: TextJob, dictionary: Path) -> None:
    """Have ``fairseq-preprocess`` fill ``bin/``, which appears only when it succeeded."""
    # A name of its own: what was started by a run that was killed may still be writing under another.
    final, partial, log = job.dest / "bin", job.dest / f".bin.{os.getpid()}.partial", job.dest / "binarise.log"
    for stale in job.dest.glob(".bin.*partial"):
        shutil.rmtree(stale, ignore_errors=True)
    words = ["--joined-dictionary", "--srcdict", str(dictionary), "--destdir", str(partial)]
    words += ["--source-lang", job.languages[0], "--target-lang", job.languages[1], "--workers", str(job.workers)]
    for split in job.splits:
        words += [f"--{split}pref", str(job.dest / "spm" / split)]
    try:
        status = run_preprocess(words, log)
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


def positive(text: str) -> int:
    """Parse a whole number above 0."""
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"must be a whole number above 0, not {text!r}")
    return int(text)


def build_parser() -> argparse.ArgumentParser:
    """Return the command's parser; each kind of data is a subcommand."""
    from vaswani_plugin.tools import trees  # which builds on this module

    parser = argparse.ArgumentParser(prog="vaswani-prepare", description=__doc__.split("\n\n")[0])
    kinds = parser.add_subparsers(dest="kind", required=True, metavar="KIND")
    trees.add_parser(kinds)
    text = kinds.add_parser("text", help="parallel text files, one sentence a line", description="Parallel text files.")
    pair = ("SOURCE", "TARGET")
    text.add_argument("--train", nargs=2, type=Path, required=True, metavar=pair, help="training text")
    text.add_argument("--valid", nargs=2, type=Path, required=True, metavar=pair, help="validation text")
    text.add_argument("--test", nargs=2, type=Path, metavar=pair, help="test text; the raw target stays the reference")
    text.add_argument("--source-lang", required=True, metavar="LANG", help="suffix of the source side, such as en")
    text.add_argument("--target-lang", required=True, metavar="LANG", help="suffix of the target side, such as de")
    text.add_argument("--vocab-size", type=positive, default=8000, metavar="N", help="pieces (default: 8000)")
    text.add_argument("--dest", type=Path, required=True, metavar="DIR", help="folder for everything that is made")
    text.add_argument("--workers", type=positive, default=1, metavar="N", help="processes (default: 1)")
    text.add_argument(
        "--sample-lines",
        type=positive,
        default=5_000_000,
        metavar="N",
        help="learn the vocabulary from at most N lines, drawn at random (default: 5000000)",
    )
    return parser


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run the command; returns its exit status."""
    args = build_parser().parse_args(argv)
    if args.kind == "trees":
        return prepare_from_trees(args)
    splits = {name: getattr(args, name) for name in ("train", "valid", "test") if getattr(args, name) is not None}
    job = TextJob(
        splits, (args.source_lang, args.target_lang), args.vocab_size, args.dest, args.workers, args.sample_lines
    )

    def body() -> None:
        report(job.dest, prepare_text(job))

    return run_command("vaswani-prepare", body)


def prepare_from_trees(args: argparse.Namespace) -> int:
    """Run ``vaswani-prepare trees``; returns its exit status."""
    from vaswani_plugin.tools import trees

    return run_command("vaswani-prepare", lambda: report(args.dest, trees.prepare_trees(trees.job_from(args))))


def report(dest: Path, ran: Sequence[str]) -> None:
    """Print which steps were run."""
    print(f"{dest}: " + (f"{', '.join(ran)} done" if ran else "everything is there, nothing to do"))


if __name__ == "__main__":
    sys.exit(main())
