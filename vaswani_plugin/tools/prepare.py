"""``vaswani-prepare``: from parallel text to the toolkit's binary data with one joint vocabulary.

``vaswani-prepare text`` takes any parallel text, ``vaswani-prepare wmt14`` gets the corpora of the paper's translation
tables first; ``vaswani-prepare trees`` is told of in ``trees``. The first two learn a SentencePiece BPE on both sides
of the training text together (paper, section 5.1: a shared source-target vocabulary), or the byte-pair encoding of
subword-nmt on Moses tokens, encode every file with it, and have ``fairseq-preprocess`` write the binary data. What lies
where is told in ``pipeline`` and ``wmt14_data``.

With SentencePiece the dictionary is the piece vocabulary without its three control symbols; the toolkit puts its own
four before it, so ``--vocab-size V`` becomes V + 1 rows. Test text is scored against the raw file and never rewritten.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import List, Optional, Sequence

from vaswani_plugin.tools import trees
from vaswani_plugin.tools.cleaning import Rules
from vaswani_plugin.tools.cli import help_texts, positive, run_command
from vaswani_plugin.tools.parallel import available_cores
from vaswani_plugin.tools.pipeline import SCHEMES, SENTENCEPIECE, TextJob, prepare_text
from vaswani_plugin.tools.wmt14 import RECIPES, SITE
from vaswani_plugin.tools.wmt14_data import NewsJob, prepare_wmt14


def at_least_one(text: str) -> float:
    """Parse a finite number of at least 1."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 1.0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number of at least 1, not {text!r}")
    return value


def build_parser() -> argparse.ArgumentParser:
    """Return the command's parser; each kind of data is a subcommand."""
    parser = argparse.ArgumentParser(prog="vaswani-prepare", description=help_texts(__doc__)[0])
    kinds = parser.add_subparsers(dest="kind", required=True, metavar="KIND")
    text = kinds.add_parser("text", help="parallel text files, one sentence a line", description="Parallel text files.")
    pair = ("SOURCE", "TARGET")
    text.add_argument("--train", nargs=2, type=Path, required=True, metavar=pair, help="training text")
    text.add_argument("--valid", nargs=2, type=Path, required=True, metavar=pair, help="validation text")
    text.add_argument("--test", nargs=2, type=Path, metavar=pair, help="test text; the raw target stays the reference")
    text.add_argument("--source-lang", required=True, metavar="LANG", help="suffix of the source side, such as en")
    text.add_argument("--target-lang", required=True, metavar="LANG", help="suffix of the target side, such as de")
    text.add_argument("--vocab-size", type=positive, default=8000, metavar="N", help="pieces (default: 8000)")
    text.add_argument("--clean", action="store_true", help="leave out training pairs by the rules below")
    add_common(text)
    news = kinds.add_parser(
        "wmt14",
        help="the corpora of the paper's translation tables",
        description="The corpora of the paper's translation tables, downloaded, checked, cleaned and prepared.",
    )
    news.add_argument("--pair", choices=sorted(RECIPES), required=True, help="which languages")
    where = news.add_mutually_exclusive_group()
    where.add_argument("--mirror", metavar="URL", help=f"get the archives there, under the paths they have on {SITE}")
    where.add_argument("--from-dir", type=Path, metavar="DIR", help="take the archives from a folder")
    news.add_argument(
        "--facts",
        metavar="FILE",
        help='JSON {"archive.tgz": {"size": N, "sha256": HEX, "md5": HEX, "lines": N}} that replaces what is '
        "published, for other archives of the same layout; the word unchecked leaves only the comparison of both sides",
    )
    news.add_argument(
        "--vocab-size", type=positive, metavar="N", help="pieces (default: 37000 for en-de, 32000 for en-fr)"
    )
    add_common(news)
    trees.add_parser(kinds)
    return parser


def add_common(parser: argparse.ArgumentParser) -> None:
    """Add the options that every kind of data has."""
    parser.add_argument("--dest", type=Path, required=True, metavar="DIR", help="folder for everything that is made")
    parser.add_argument(
        "--workers", type=positive, default=available_cores(), metavar="N", help="processes (default: one a core)"
    )
    parser.add_argument(
        "--sample-lines",
        type=positive,
        default=5_000_000,
        metavar="N",
        help="learn the vocabulary from at most N lines, drawn at random (default: 5000000)",
    )
    parser.add_argument(
        "--subwords",
        choices=sorted(SCHEMES),
        default=SENTENCEPIECE,
        help="SentencePiece's BPE, or subword-nmt's on Moses tokens as in older papers (default: sentencepiece)",
    )
    rules = parser.add_argument_group("cleaning of the training pairs; what is dropped is counted and reported")
    rules.add_argument("--max-words", type=positive, default=250, metavar="N", help="of either side (default: 250)")
    rules.add_argument(
        "--max-ratio",
        type=at_least_one,
        default=9.0,
        metavar="X",
        help="words of one side for one of the other (default: 9)",
    )
    rules.add_argument("--keep-duplicates", action="store_true", help="keep pairs that are equal to an earlier one")


def prepare(args: argparse.Namespace) -> List[str]:
    """Run what the options ask for; returns the kinds of steps that were run."""
    if args.kind == "trees":
        return trees.prepare_trees(trees.job_from(args))
    rules = Rules(args.max_words, args.max_ratio, not args.keep_duplicates)
    common = {
        "dest": args.dest,
        "workers": args.workers,
        "sample_lines": args.sample_lines,
        "vocab_size": args.vocab_size,
    }
    if args.kind == "wmt14":
        return prepare_wmt14(
            NewsJob(
                pair=args.pair,
                mirror=args.mirror,
                from_dir=args.from_dir,
                facts=args.facts,
                subword_kind=args.subwords,
                rules=rules,
                **common,
            )
        )
    splits = {name: getattr(args, name) for name in ("train", "valid", "test") if getattr(args, name) is not None}
    languages = (args.source_lang, args.target_lang)
    return prepare_text(
        TextJob(splits, languages, subword_kind=args.subwords, rules=rules if args.clean else None, **common)
    )


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run the command; returns its exit status."""
    args = build_parser().parse_args(argv)

    def body() -> None:
        ran = prepare(args)
        print(f"{args.dest}: " + (f"{', '.join(ran)} done" if ran else "everything is there, nothing to do"))

    return run_command("vaswani-prepare", body)


if __name__ == "__main__":
    sys.exit(main())
