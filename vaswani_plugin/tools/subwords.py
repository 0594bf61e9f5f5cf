"""A joint SentencePiece BPE: learn it, encode text with it, and give the toolkit its dictionary.

Source: "Attention Is All You Need", section 5.1: byte-pair encoding with one vocabulary for both languages.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Iterator, List, Sequence

from vaswani_plugin.tools.cleaning import clean
from vaswani_plugin.tools.cli import CommandError, atomic_path, progress, read_lines
from vaswani_plugin.tools.parallel import CHUNK_LINES

RESERVED = frozenset({"<s>", "<pad>", "</s>", "<unk>"})  # what the toolkit's dictionary holds before the first piece
MAX_LINE_BYTES = 65_536  # SentencePiece leaves longer lines out of training; its default of 4,192 drops real sentences
MIN_VOCAB_SIZE = 4  # SentencePiece's three control symbols and one piece
MIN_SAMPLE_LINES = 101  # SentencePiece's rule


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


def encode_lines(processor: Any, lines: Iterator[str], threads: int) -> Iterator[List[str]]:
    """Yield each line's pieces, none of which is white space or one of the toolkit's own symbols."""
    lines = iter(lines)
    while True:
        batch = [clean(line) for line in islice(lines, CHUNK_LINES)]
        if not batch:
            return
        for pieces in processor.encode(batch, out_type=str, num_threads=threads):
            yield unreserve(pieces)


@dataclass(frozen=True)
class PieceCoder:
    """Turns lines into their pieces, separated by blanks.

    No piece is white space or one of the toolkit's own symbols.

    Attributes:
        model: the file that ``learn_pieces`` wrote.
        written: when, since processors are kept by both.
    """

    model: Path
    written: int

    @classmethod
    def load(cls, model: Path) -> PieceCoder:
        """Return the coder for a model."""
        return cls(model, model.stat().st_mtime_ns)

    def __call__(self, lines: List[bytes]) -> bytes:
        """Return the pieces of each line, and a ``\\n``."""
        processor = _kept_pieces(self.model, self.written)
        texts = [clean(line.decode("utf-8")) for line in lines]
        return "".join(" ".join(unreserve(pieces)) + "\n" for pieces in processor.encode(texts, out_type=str)).encode()


@functools.lru_cache(maxsize=1)
def _kept_pieces(model: Path, written: int) -> Any:
    return load_pieces(model)


def unreserve(pieces: List[str]) -> List[str]:
    """Spell out a piece that reads like one of the toolkit's symbols, so that text never becomes padding or an end."""
    if RESERVED.isdisjoint(pieces):
        return pieces
    return [part for piece in pieces for part in (list(piece) if piece in RESERVED else [piece])]


def all_pieces(model: Path) -> List[str]:
    """Return the pieces of a model, in its order, without its control symbols and that for what is unknown."""
    processor = load_pieces(model)
    indices = range(processor.get_piece_size())
    return [processor.id_to_piece(i) for i in indices if not (processor.is_control(i) or processor.is_unknown(i))]
