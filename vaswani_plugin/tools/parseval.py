"""``vaswani-parseval``: bracketing F1 of parse trees by EVALB's rules, from a generation log, a file or a baseline.

The rules are those of EVALB with COLLINS.prm (``bracketing.py`` states them). Output of a model is repaired where it is
no tree, and gets its words and tags from the gold trees, whether or not the model gave tags; a file of trees is taken
as it stands. ``--trees`` writes what was scored in Penn style, one tree a line, which EVALB itself reads; without
``--gold`` it turns a log of parsed text into trees, with the model's tags, or XX for every word where it gives none.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

from vaswani_plugin.bracketing import SHORT, right_branching, score_sentence, summarise
from vaswani_plugin.tools.cli import (
    CommandError,
    help_texts,
    joined,
    plural,
    read_lines,
    refuse_overwriting,
    run_command,
)
from vaswani_plugin.tools.generation_log import read_log
from vaswani_plugin.tools.trees import read_tree_file, write_lines
from vaswani_plugin.trees import (
    WORD_SYMBOL,
    Leaf,
    Tree,
    clean,
    leaves,
    linearise,
    restore,
    split_symbols,
    to_penn,
    without_tags,
)

FIGURES = {
    "recall": "bracketing recall",
    "precision": "bracketing precision",
    "f1": "bracketing F1",
    "complete_match": "complete match, %",
    "average_crossing": "average crossing",
    "no_crossing": "no crossing, %",
    "at_most_two_crossing": "2 or less crossing, %",
}
COUNTS = {"sentences": "sentences", "errors": "of which errors", "skipped": "of which skipped"}


def trees_from_log(path: Path, sentences: Sequence[Sequence[Leaf]], source: Path) -> List[Tree]:
    """The trees that a log's best hypotheses describe, over the words of these sentences.

    Args:
        source: where the sentences are from, for messages.

    Raises:
        CommandError: the log is broken, or of another number of sentences.
    """
    outputs = [split_symbols(entry.hypotheses[0].split()) for entry in read_log(path, must_end=False)]
    check_counts(source, len(sentences), path, len(outputs))
    trees = [restore(symbols, sentence) for symbols, sentence in zip(outputs, sentences)]
    repaired = sum(linearise(tree) != without_tags(symbols) for tree, symbols in zip(trees, outputs))
    print(f"{path}: {repaired} of {plural(len(outputs), 'output')} had to be repaired")
    return trees


def check_counts(first: Path, first_count: int, second: Path, second_count: int) -> None:
    """Refuse files with different numbers of sentences."""
    if first_count != second_count:
        raise CommandError(f"{first} has {plural(first_count, 'sentence')} but {second} has {second_count:,}")


def plain_sentences(path: Path) -> List[List[Leaf]]:
    """The sentences of a text, one a line, words separated by blanks; every word has the tag XX, for unknown."""
    return [[Leaf(WORD_SYMBOL, word) for word in line.split()] for line in read_lines(path)]


def score(gold: Sequence[Tree], test: Sequence[Tree], labelled: bool) -> Dict[str, Any]:
    """EVALB's figures over all sentences and over the short ones, and which sentences are errors (from 1)."""
    scores = [score_sentence(one, other, labelled) for one, other in zip(gold, test)]
    return {
        "signature": f"evalb:collins|labelled:{'yes' if labelled else 'no'}|root:no",
        "all": summarise(scores),
        "short": summarise([one for one in scores if one.length <= SHORT]),
        "error_sentences": [number for number, one in enumerate(scores, start=1) if one.status == "error"],
    }


def print_table(result: Dict[str, Any]) -> None:
    """Print the figures of all and of the short sentences side by side."""
    print(f"{'':24}{'all':>8}{f'<= {SHORT}':>8}")
    for name, text in COUNTS.items():
        print(f"{text:24}{result['all'][name]:8d}{result['short'][name]:8d}")
    for name, text in FIGURES.items():
        print(f"{text:24}{result['all'][name]:8.2f}{result['short'][name]:8.2f}")
    print(result["signature"])
    if result["error_sentences"]:
        print(
            f"vaswani-parseval: warning: not counted, since the words differ: {joined(result['error_sentences'])}",
            file=sys.stderr,
        )


def build_parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    parser = argparse.ArgumentParser(prog="vaswani-parseval", description=help_texts(__doc__)[0])
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--log", type=Path, metavar="FILE", help="output of fairseq-generate or fairseq-interactive")
    what.add_argument("--test", type=Path, metavar="FILE", help="trees to score, Penn style")
    what.add_argument(
        "--baseline", choices=["right"], help="score right-branching trees: S, then VP from every word on"
    )
    parser.add_argument("--gold", type=Path, metavar="FILE", help="the right trees, Penn style")
    parser.add_argument("--src", type=Path, metavar="FILE", help="with --log, for want of --gold: the parsed sentences")
    parser.add_argument("--unlabelled", action="store_true", help="compare brackets without their labels")
    parser.add_argument("--trees", type=Path, metavar="FILE", help="write the trees there, one a line")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    return parser


def run(args: argparse.Namespace) -> None:
    """Read or make the trees, write them, score them."""
    inputs = [path for path in (args.log, args.test, args.gold, args.src) if path is not None]
    for output in (args.trees, args.json):
        if output is not None:
            refuse_overwriting(output, inputs)
    gold = None if args.gold is None else read_tree_file(args.gold)
    cleaned = [clean(tree) for tree in gold or []]
    if args.log is not None:
        sentences = plain_sentences(args.src) if gold is None else [leaves(tree) for tree in cleaned]
        test = trees_from_log(args.log, sentences, args.gold or args.src)
    elif args.test is not None:
        test = read_tree_file(args.test)
    else:
        test = [right_branching(leaves(tree)) for tree in cleaned]
    if args.trees is not None:
        write_lines(args.trees, (to_penn(clean(tree)) for tree in test))
    if gold is None:
        return
    check_counts(args.gold, len(gold), args.log or args.test or args.gold, len(test))
    result = score(gold, test, not args.unlabelled)
    print_table(result)
    if args.json is not None:
        write_lines(args.json, [json.dumps(result, indent=2)])


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run the command; returns its exit status."""
    parser = build_parser()
    args = parser.parse_args(argv)
    if args.gold is None and args.log is None:
        parser.error("--test and --baseline are scored against --gold")
    if args.log is not None and (args.gold is None) == (args.src is None):
        parser.error("--log goes with --gold, to score, or with --src, to write trees")
    if args.gold is None and (args.trees is None or args.json is not None):
        parser.error("without --gold nothing is scored: give --trees and no --json")
    return run_command("vaswani-parseval", lambda: run(args))


if __name__ == "__main__":
    sys.exit(main())
