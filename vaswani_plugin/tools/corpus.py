"""Write the embedded corpus: English and German sentence pairs out of a grammar, split into train, valid and test.

The pairs are distinct on either side, so that no part shares a sentence with another. The held-out parts are drawn
first: they stay the same whatever the size of the training part.

Example:
    vaswani-corpus corpus --train 12000 --valid 300 --test 300 --seed 1
"""

from __future__ import annotations

import argparse
import os
import sys
from itertools import islice
from pathlib import Path
from typing import Dict, Iterable, Iterator, List, Mapping, Optional, Sequence

from .cli import CommandError, atomic_path, plural, run_command
from .grammar.lexicon import Text
from .grammar.sentences import sentence_pairs

SPLITS = ("train", "valid", "test")
DEFAULT_SIZES = {"train": 12000, "valid": 300, "test": 300}
# Far below what the grammar can say, so that drawing until all are distinct stays quick (a minute for as many).
MAX_PAIRS = 1_000_000
# So many repetitions in a row mean that there is nothing new to draw.
_PATIENCE = 10_000


def distinct_pairs(pairs: Iterable[Text], patience: int = _PATIENCE) -> Iterator[Text]:
    """Yield the pairs of which neither side has come before.

    Args:
        pairs: sentence pairs, possibly without end.
        patience: give up after so many repetitions in a row.
    """
    seen_en, seen_de = set(), set()
    repetitions = 0
    for pair in pairs:
        if pair.en in seen_en or pair.de in seen_de:
            repetitions += 1
            if repetitions >= patience:
                return
            continue
        repetitions = 0
        seen_en.add(pair.en)
        seen_de.add(pair.de)
        yield pair


def generate_corpus(sizes: Mapping[str, int], seed: int) -> Dict[str, List[Text]]:
    """Return sentence pairs for each part, no sentence twice on either side of the whole corpus.

    The same sizes and seed give the same pairs with every version of Python.

    Args:
        sizes: the number of pairs of each part, by its name in `SPLITS`; at least 1 each.
        seed: an integer of at least 0.

    Raises:
        ValueError: a part is missing or unknown, a size or the seed is too small, or the sizes sum to more than
            `MAX_PAIRS` or than the grammar has.
    """
    if sorted(sizes) != sorted(SPLITS):
        raise ValueError(f"sizes: must name {', '.join(SPLITS)}, not {', '.join(sorted(sizes)) or 'nothing'}")
    for split in SPLITS:
        if sizes[split] < 1:
            raise ValueError(f"{split}: must be at least 1 sentence pair, not {sizes[split]}")
    if seed < 0:
        raise ValueError(f"seed: must be at least 0, not {seed}")
    total = sum(sizes.values())
    if total > MAX_PAIRS:
        raise ValueError(f"sizes: together at most {MAX_PAIRS} sentence pairs, not {total}")
    stream = distinct_pairs(sentence_pairs(seed))
    corpus = {split: list(islice(stream, sizes[split])) for split in reversed(SPLITS)}
    drawn = sum(len(pairs) for pairs in corpus.values())
    if drawn < total:
        raise ValueError(f"sizes: the grammar has only {drawn} distinct sentence pairs, not {total}")
    return corpus


def write_corpus(corpus: Mapping[str, Sequence[Text]], directory: Path) -> None:
    """Write SPLIT.en and SPLIT.de for each part: UTF-8, one sentence a line, each file whole or not at all."""
    for split in SPLITS:
        for language in Text._fields:
            text = "".join(getattr(pair, language) + "\n" for pair in corpus[split])
            with atomic_path(directory / f"{split}.{language}") as partial:
                partial.write_bytes(text.encode("utf-8"))


def build_parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    parser = argparse.ArgumentParser(
        prog="vaswani-corpus",
        description="Write a small English-German corpus out of a grammar: train, valid and test, .en and .de.",
        epilog="The same sizes and seed write the same bytes with every version of Python.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("directory", metavar="DIR", type=Path, help="where to write; made when it is missing")
    for split in SPLITS:
        parser.add_argument(
            f"--{split}", metavar="N", type=int, default=DEFAULT_SIZES[split], help=f"sentence pairs in {split}"
        )
    parser.add_argument("--seed", metavar="S", type=int, default=1, help="chooses the sentences; at least 0")
    return parser


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run the command.

    Args:
        argv: its arguments without the program's name; None takes those of the process.

    Returns:
        0, or 1 after an error, told in one line on stderr.
    """
    arguments = build_parser().parse_args(argv)

    def body() -> None:
        directory: Path = arguments.directory
        if os.path.lexists(directory) and not directory.is_dir():
            raise CommandError(f"{directory}: is not a directory")
        try:
            corpus = generate_corpus({split: getattr(arguments, split) for split in SPLITS}, arguments.seed)
        except ValueError as error:
            raise CommandError(str(error)) from error
        write_corpus(corpus, directory)
        counts = ", ".join(f"{plural(len(corpus[split]), 'pair')} in {split}" for split in SPLITS)
        print(f"{directory}: {counts}")

    return run_command("vaswani-corpus", body)


if __name__ == "__main__":
    sys.exit(main())
