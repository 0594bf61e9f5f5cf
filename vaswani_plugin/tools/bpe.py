"""Moses tokens and the byte-pair encoding of subword-nmt, for those who compare with older papers.

Sources: Sennrich et al. 2016, "Neural Machine Translation of Rare Words with Subword Units"; the tokens are those of
sacremoses with normalised punctuation and hyphens set apart (``@-@``), as the toolkit's own WMT recipes make them. A
piece that does not end its word carries ``@@`` at its end.
"""

from __future__ import annotations

import functools
import random
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, List, Sequence

from vaswani_plugin.tools.cleaning import clean
from vaswani_plugin.tools.cli import CommandError, atomic_path, progress, read_lines

MOST_CACHED_WORDS = 200_000  # in each worker; subword-nmt itself forgets none
_JOINER = re.compile(r"@@( |$)")


@dataclass(frozen=True)
class MosesTokens:
    """Turns lines into Moses tokens, separated by blanks.

    Attributes:
        language: whose rules for abbreviations and apostrophes are used.
    """

    language: str

    def __call__(self, lines: List[bytes]) -> bytes:
        """Return the tokens of each line, and a ``\\n``."""
        normalise, tokenise = _moses(self.language)
        texts = (normalise(clean(line.decode("utf-8"))) for line in lines)
        return "".join(tokenise(text, aggressive_dash_splits=True, return_str=True) + "\n" for text in texts).encode()


@functools.lru_cache(maxsize=2)
def _moses(language: str) -> Any:
    from sacremoses import MosesPunctNormalizer, MosesTokenizer

    return MosesPunctNormalizer(lang=language).normalize, MosesTokenizer(lang=language).tokenize


def warn_of_language(language: str, option: str) -> None:
    """Say on stderr where Moses has no rules for a language, since it then takes those of English silently."""
    from sacremoses.corpus import NonbreakingPrefixes

    if language not in NonbreakingPrefixes().available_langs.values():
        print(f"warning: {option} {language}: Moses has no rules for it; those of English are used", file=sys.stderr)


def learn_codes(paths: Sequence[Path], codes: Path, vocab_size: int, sample_lines: int) -> None:
    """Learn merges from tokenised text, so many that characters and merges together are ``vocab_size`` symbols.

    Args:
        paths: tokenised files of both languages.
        codes: the file to write.
        vocab_size: symbols; fewer come out where the text has no more pairs that occur twice.
        sample_lines: about how many lines to learn from, drawn at random where there are more.

    Raises:
        CommandError: no merge can be learned.
    """
    from subword_nmt.learn_bpe import learn_bpe

    total = sum(1 for path in paths for _ in read_lines(path))
    share, draw = min(1.0, sample_lines / max(1, total)), random.Random(1)
    lines = (line for path in paths for line in read_lines(path) if share == 1.0 or draw.random() < share)
    with atomic_path(codes) as partial:
        with open(partial, "w", encoding="utf-8", newline="\n") as handle:
            try:
                learn_bpe(progress(lines, "read for the merges"), handle, vocab_size, total_symbols=True)
            except ValueError as error:  # it takes the maximum of no pairs
                raise CommandError("the training text has no word of two characters to learn merges from") from error
        if sum(1 for _ in read_lines(partial)) == 1:  # that of the version
            raise CommandError(f"--vocab-size {vocab_size}: the characters of the training text alone need as many")


@dataclass(frozen=True)
class MergeCoder:
    """Turns tokenised lines into pieces, separated by blanks.

    Attributes:
        codes: the file that ``learn_codes`` wrote.
        written: when, since what was read is kept by both.
    """

    codes: Path
    written: int

    @classmethod
    def load(cls, codes: Path) -> MergeCoder:
        """Return the coder for a file of merges."""
        return cls(codes, codes.stat().st_mtime_ns)

    def __call__(self, lines: List[bytes]) -> bytes:
        """Return the pieces of each line, and a ``\\n``."""
        merges = _kept_merges(self.codes, self.written)
        if len(merges.cache) > MOST_CACHED_WORDS:
            merges.cache.clear()
        texts = (line.decode("utf-8") for line in lines)
        return "".join(" ".join(merges.segment_tokens(text.split(" "))) + "\n" for text in texts).encode()


@functools.lru_cache(maxsize=1)
def _kept_merges(codes: Path, written: int) -> Any:
    from subword_nmt.apply_bpe import BPE

    with open(codes, encoding="utf-8", newline="\n") as handle:
        return BPE(handle)


def join_merges(text: str) -> str:
    """Return the tokens of a line of pieces: each ``@@`` at the end of a piece joins it to the next.

    One at the end of the line, where an output was cut off, goes as well; one within a piece stays.
    """
    return _JOINER.sub("", text)


def has_joiner(text: str) -> bool:
    """Say whether a line has a piece that ends in ``@@``."""
    return _JOINER.search(text) is not None


def detokenise(text: str, language: str) -> str:
    """Return plain text for a line of Moses tokens, hyphens that were set apart joined again."""
    return str(_detokeniser(language)(text.split(" ")))


@functools.lru_cache(maxsize=2)
def _detokeniser(language: str) -> Any:
    from sacremoses import MosesDetokenizer

    return MosesDetokenizer(lang=language).detokenize
