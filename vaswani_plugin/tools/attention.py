"""``vaswani-attention``: where a model looks, as in the paper's Figures 3 to 5.

For a sentence pair, or a source alone that the model translates first (beam 4, alpha 0.6), the weights of every layer
and head of the three kinds of attention: a table of numbers for each head, pictures, a page, JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Callable, Dict, List, Optional, Sequence

from vaswani_plugin.tools.cli import CommandError, atomic_path, help_texts, plural, refuse_overwriting, run_command

if TYPE_CHECKING:
    from vaswani_plugin.tools.attention_maps import Analysis

EXAMPLE = """
Layers and heads are counted from 1. Rows of encoder-decoder attention are named after the token that the decoder is
about to produce, those of decoder-self attention after the token that it has read. With --merge-words the pieces of a
word become one row and one column: the sum over the pieces of the key, the mean over those of the query.

example:
  vaswani-attention --path checkpoint_best.pt --source "A dog runs." --layer 3 --lines a.png a.svg --page a.html
"""
KIND_NAMES = ("encoder-self", "decoder-self", "encoder-decoder")


def analyse(args: argparse.Namespace) -> Analysis:
    """Load the model and compute the weights.

    Raises:
        CommandError: a file is missing, or a sentence is empty or too long.
    """
    from vaswani_plugin.tools import attention_maps, attention_model  # torch and the toolkit take seconds to import

    translator = attention_model.load(args.path, args.data, args.sentencepiece_model, args.pieces)
    pair = translator.pair(args.source, args.target)
    unknown = attention_model.unknown_pieces(pair, translator)
    if unknown:
        print(f"vaswani-attention: note: {attention_model.describe_unknown(unknown)}", file=sys.stderr)
    weights = attention_maps.compute(translator.model, pair)
    directions = (args.source_direction, args.target_direction)
    words = attention_maps.views(weights, pair, directions, merged=True)
    target = args.target
    if target is None:
        target = " ".join(words["encoder-decoder"].queries.names[:-1])
    return attention_maps.Analysis(
        args.source, target, args.target is None, attention_maps.views(weights, pair, directions), words
    )


def report(analysis: Analysis, args: argparse.Namespace) -> str:
    """The sentences, and the numbers of the layers and heads that were asked for, of one kind or of all."""
    from vaswani_plugin.tools.attention_maps import choose
    from vaswani_plugin.tools.attention_statistics import table

    views = analysis.words if args.merge_words else analysis.pieces
    blocks = [f"source: {analysis.source}\ntarget: {analysis.target}" + " (translated)" * analysis.translated]
    for kind in [args.kind] if args.kind else KIND_NAMES:
        chosen = choose(views[kind], args.layer, args.heads)
        blocks.append(table(views[kind], chosen["layers"], chosen["heads"]))
    return "\n\n".join(blocks)


def write_outputs(analysis: Analysis, args: argparse.Namespace) -> List[Path]:
    """Write the pictures, the page and the JSON file that were asked for; return their paths."""
    from vaswani_plugin.tools import attention_maps, attention_page, attention_pictures

    views = analysis.words if args.merge_words else analysis.pieces
    view = views[args.kind or KIND_NAMES[0]]
    chosen = attention_maps.choose(view, args.layer, args.heads)
    layer, heads = chosen["layers"][-1], chosen["heads"]
    drawings: Dict[str, Callable[..., None]] = {
        "lines": attention_pictures.draw_lines,
        "heat_map": attention_pictures.draw_heat_maps,
    }
    for name, draw in drawings.items():
        for output in getattr(args, name):
            draw(view, layer, heads, output, "--" + name.replace("_", "-"))
    texts: Dict[str, Callable[[], str]] = {
        "page": lambda: attention_page.page(analysis, view.kind, layer, heads, args.merge_words),
        "json": lambda: json.dumps(attention_page.as_json(analysis), ensure_ascii=False) + "\n",
    }
    for name, make in texts.items():
        output = getattr(args, name)
        if output is not None:
            with atomic_path(output) as partial:
                partial.write_text(make(), encoding="utf-8")
    return [*args.lines, *args.heat_map, *(path for path in (args.page, args.json) if path is not None)]


def build_parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    parser = argparse.ArgumentParser(
        prog="vaswani-attention",
        description="\n\n".join(help_texts(__doc__)),
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    what = parser.add_argument_group("what to look at")
    what.add_argument("--path", type=Path, required=True, metavar="FILE", help="a checkpoint of vaswani_transformer")
    what.add_argument("--data", type=Path, metavar="DIR", help="where the dictionaries are (default: as in training)")
    what.add_argument("--source", required=True, metavar="TEXT", help="the sentence, as raw text")
    what.add_argument("--target", metavar="TEXT", help="its translation (default: the model's own)")
    pieces = what.add_mutually_exclusive_group()
    pieces.add_argument(
        "--sentencepiece-model", type=Path, metavar="FILE", help="default: spm.model in the data folder or beside it"
    )
    pieces.add_argument("--pieces", action="store_true", help="the sentences come in pieces, separated by blanks")
    for side in ("source", "target"):
        what.add_argument(
            f"--{side}-direction", choices=["auto", "ltr", "rtl"], default="auto", help="which way it is written"
        )
    choice = parser.add_argument_group("which weights")
    choice.add_argument("--kind", choices=KIND_NAMES, help="default: encoder-self, and every kind in the table")
    choice.add_argument("--layer", type=int, metavar="N", help="default: the last, and every layer in the table")
    choice.add_argument("--heads", type=int, nargs="+", metavar="N", help="default: all")
    choice.add_argument("--merge-words", action="store_true", help="show words, not pieces")
    output = parser.add_argument_group("what to write")
    output.add_argument(
        "--lines", type=Path, nargs="+", default=[], metavar="FILE", help="words and lines, such as lines.png lines.svg"
    )
    output.add_argument(
        "--heat-map", type=Path, nargs="+", default=[], metavar="FILE", help="one panel a head, such as heat.png"
    )
    output.add_argument("--page", type=Path, metavar="FILE", help="an HTML page with every layer, head and kind")
    output.add_argument("--json", type=Path, metavar="FILE", help="every weight and number")
    return parser


def run(args: argparse.Namespace) -> None:
    """Look, print the table, and write what was asked for."""
    outputs = [*args.lines, *args.heat_map, *(path for path in (args.page, args.json) if path is not None)]
    for output in outputs:
        refuse_overwriting(output, [path for path in (args.path, args.sentencepiece_model) if path is not None])
    if args.target is not None and not args.target.strip():
        raise CommandError("--target is empty; leave it out to have the source translated")
    analysis = analyse(args)
    print(report(analysis, args))
    for path in write_outputs(analysis, args):
        print(f"{path}: {plural(path.stat().st_size, 'byte')}")


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run the command; returns its exit status."""
    args = build_parser().parse_args(argv)
    return run_command("vaswani-attention", lambda: run(args))


if __name__ == "__main__":
    sys.exit(main())
