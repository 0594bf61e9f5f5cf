"""``vaswani-flops``: what training costs (Table 2): operations counted from the architecture, and the paper's estimate.

Counted are the matrix products of forward and backward pass, two operations for a multiplication with its addition, for
the tokens that training has seen. The paper estimates: training time x number of devices x sustained operations a
second. Without options: the paper's base and big models and what the paper says of their training.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

from vaswani_plugin.operations import (
    Lengths,
    TransformerSizes,
    estimated_operations,
    forward_operations,
    training_operations,
)
from vaswani_plugin.tools.cli import CommandError, atomic_path, help_texts, positive, read_lines, run_command
from vaswani_plugin.tools.model_sizes import measured_lengths, model_of_checkpoint, options_of, sizes_of
from vaswani_plugin.tools.tables import text_table
from vaswani_plugin.tools.training_log import Seen, tokens_seen

#: Sustained single-precision rates that the paper assumes, in 10^12 operations a second (footnote in section 6.1).
RATES = {"K80": 2.8, "K40": 3.7, "M40": 6.0, "P100": 9.5}
PAPER_DEVICES, PAPER_TOKENS, PAPER_UPDATES = 8, 25_000, 100_000
#: What the paper says of single architectures: updates and hours (5.2), BLEU on newstest2014 and operations (Table 2).
PAPER: Dict[str, Dict[str, Any]] = {
    "vaswani_base": {"updates": 100_000, "hours": 12.0, "bleu": {"en-de": 27.3, "en-fr": 38.1}, "operations": 3.3e18},
    "vaswani_big": {"updates": 300_000, "hours": 84.0, "bleu": {"en-de": 28.4}, "operations": 2.3e19},
    "vaswani_big_en_fr": {"updates": 300_000, "hours": 84.0, "bleu": {"en-fr": 41.8}, "operations": 2.3e19},
}
#: The mean length that is assumed where none is given: attention's own products are some hundredths of the whole.
USUAL_LENGTH = 30.0


@dataclass(frozen=True)
class Cost:
    """What one training costs.

    Attributes:
        name: of the architecture, or the checkpoint's file.
        n_types: V.
        lengths: mean source and target length in tokens, and the mean products that attention needs.
        forward: operations of one sentence pair by part, forward pass.
        per_token: operations of forward and backward pass for one target token with its share of the source.
        updates, target_tokens: of the whole training.
        counted: operations of the whole training.
        seconds, devices, rate: what the estimate is made from; None where it is not known.
        estimate: time x devices x rate, or None.
        paper: what the paper says of this architecture.
    """

    name: str
    n_types: int
    lengths: Lengths
    forward: Dict[str, float]
    per_token: float
    updates: int
    target_tokens: float
    counted: float
    seconds: Optional[float]
    devices: int
    rate: Optional[float]
    estimate: Optional[float]
    paper: Dict[str, Any]


def cost(name: str, sizes: TransformerSizes, lengths: Lengths, seen: Seen, devices: int, rate: Optional[float]) -> Cost:
    """Count a training, and estimate it where its time and the devices' rate (operations a second) are known."""
    per_token = training_operations(sizes, lengths) / lengths.target
    estimate = None if seen.seconds is None or rate is None else estimated_operations(seen.seconds, devices, rate)
    return Cost(
        name, sizes.n_types, lengths, forward_operations(sizes, lengths), per_token, seen.updates, seen.target_tokens,
        per_token * seen.target_tokens, seen.seconds, devices, rate, estimate, PAPER.get(name, {}),
    )  # fmt: skip


def _number(value: Optional[float], form: str = ".3g") -> str:
    return "-" if value is None else format(value, form)


def table(costs: Sequence[Cost], score: Optional[Dict[str, Any]]) -> str:
    """The costs, a column each."""
    rows = [["", *(one.name for one in costs)]]

    def add(title: str, values: Sequence[str]) -> None:
        if any(value != "-" for value in values):
            rows.append([title, *values])

    add("types V", [f"{one.n_types:,}" for one in costs])
    add("mean source, target length", [f"{one.lengths.source:.1f}, {one.lengths.target:.1f}" for one in costs])
    for part in costs[0].forward:
        shares = [one.forward[part] / sum(one.forward.values()) for one in costs]
        add(f"share of {'attention products' if part == 'attention' else part}", [f"{share:.1%}" for share in shares])
    add("operations a target token, forward and backward", [_number(one.per_token, ".4g") for one in costs])
    add("updates", [f"{one.updates:,}" for one in costs])
    add("target tokens", [_number(one.target_tokens, ".4g") for one in costs])
    add("counted", [_number(one.counted) for one in costs])
    add("hours", [_number(None if one.seconds is None else one.seconds / 3600, ".4g") for one in costs])
    add("devices", ["-" if one.seconds is None else str(one.devices) for one in costs])
    add("time x devices x rate", [_number(one.estimate) for one in costs])
    add("the paper's estimate", [_number(one.paper.get("operations"), ".2g") for one in costs])
    add("counted / estimate", ["-" if one.estimate is None else f"{one.counted / one.estimate:.0%}" for one in costs])
    add("10^12 operations a second reached on a device", [_number(reached_rate(one)) for one in costs])
    if score is not None:
        add("BLEU", [f"{score['score']:.2f}"] * len(costs))
    add("the paper's BLEU", [_paper_bleu(one) for one in costs])
    signature = "" if score is None else f"\nBLEU: {score['signature']}"
    return text_table(rows) + signature


def reached_rate(one: Cost) -> Optional[float]:
    """Counted operations a second and device, in 10^12."""
    return None if not one.seconds else one.counted / one.seconds / one.devices / 1e12


def _paper_bleu(one: Cost) -> str:
    return ", ".join(f"{pair} {value}" for pair, value in one.paper.get("bleu", {}).items()) or "-"


def read_score(path: Path) -> Dict[str, Any]:
    """The BLEU entry of what ``vaswani-score --json`` wrote.

    Raises:
        CommandError: the file is missing or is something else.
    """
    try:
        entry = json.loads("\n".join(read_lines(path)))["bleu"]
        return {"score": float(entry["score"]), "signature": str(entry["signature"])}
    except (ValueError, KeyError, TypeError) as error:
        raise CommandError(f"{path}: not what vaswani-score --json writes") from error


def above_zero(text: str) -> float:
    """Parse a finite number above 0, for an option."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number above 0, not {text!r}")
    return value


def build_parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    description, rest = help_texts(__doc__)
    parser = argparse.ArgumentParser(prog="vaswani-flops", description=description, epilog=rest)
    model = parser.add_argument_group("model")
    model.add_argument("--arch", nargs="+", metavar="NAME", help="architectures (default: vaswani_base vaswani_big)")
    model.add_argument("--checkpoint", type=Path, metavar="FILE", help="the model in it, instead of --arch")
    model.add_argument("--user-dir", metavar="DIR", help="a plugin of your own that registers architectures")
    model.add_argument("--vocab-size", type=positive, metavar="V", help="types before the softmax (default: 37000)")
    text = parser.add_argument_group("text")
    text.add_argument("--source-length", type=above_zero, metavar="S", help="mean tokens of a source (default: 30)")
    text.add_argument("--target-length", type=above_zero, metavar="T", help="mean tokens of a target (default: 30)")
    text.add_argument("--data", type=Path, metavar="DIR", help="measure both in the toolkit's binary data instead")
    run = parser.add_argument_group("training (default: the paper's, 100,000 updates where it says nothing)")
    run.add_argument("--log", type=Path, metavar="FILE", help="what fairseq-train printed, json or simple")
    run.add_argument("--updates", type=positive, metavar="N", help="updates")
    run.add_argument("--tokens", type=above_zero, metavar="N", help="target tokens of an update (default: 25000)")
    guess = parser.add_argument_group("the paper's estimate")
    guess.add_argument("--hours", type=above_zero, metavar="H", help="training time (default: the log's, the paper's)")
    guess.add_argument("--devices", type=positive, metavar="N", help="default: 8 as in the paper, with --log 1")
    rate = guess.add_mutually_exclusive_group()
    rate.add_argument("--rate", type=above_zero, metavar="X", help="10^12 operations a second that a device sustains")
    rate.add_argument("--device", choices=sorted(RATES), help="the paper's rate (default without --log: P100)")
    parser.add_argument("--score", type=Path, metavar="FILE", help="what vaswani-score --json wrote")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything there too")
    return parser


def check(args: argparse.Namespace) -> None:
    """Refuse options that contradict each other.

    Raises:
        CommandError: they do.
    """
    if args.checkpoint and (args.arch or args.vocab_size):
        raise CommandError("--checkpoint says what --arch and --vocab-size say; give the one or the others")
    if args.data and (args.source_length or args.target_length):
        raise CommandError("--data measures what --source-length and --target-length say; give the one or the others")
    if args.log and (args.updates or args.tokens):
        raise CommandError("--log says what --updates and --tokens say; give the one or the others")
    if (args.log or args.score) and len(args.arch or []) != 1 and not args.checkpoint:
        raise CommandError(f"{'--log' if args.log else '--score'} is of one model; name it with --arch or --checkpoint")


def seen_by(args: argparse.Namespace, name: str) -> Seen:
    """What training has seen: the log's, what the options say, or what the paper says."""
    if args.log:
        seen = tokens_seen(args.log)
    else:
        paper = {} if args.updates or args.tokens or args.checkpoint else PAPER.get(name, {})
        updates = args.updates or int(paper.get("updates", PAPER_UPDATES))
        seconds = 3600 * paper["hours"] if paper else None
        seen = Seen(updates, updates * (args.tokens or PAPER_TOKENS), None, seconds)
    seconds = 3600 * args.hours if args.hours else seen.seconds
    return Seen(seen.updates, seen.target_tokens, seen.sentences, seconds)


def lengths_for(args: argparse.Namespace, seen: Seen) -> Lengths:
    """Mean lengths: measured, given, or with a log the target's from it; a side that is not known is like the other."""
    if args.data:
        return measured_lengths(args.data)
    logged = seen.target_tokens / seen.sentences if seen.sentences else None
    target = args.target_length or logged or args.source_length or USUAL_LENGTH
    return Lengths.constant(args.source_length or target, target)


def costs_of(args: argparse.Namespace) -> List[Cost]:
    """Count everything that the options name."""
    rate = args.rate or RATES.get(args.device) or (None if args.log else RATES["P100"])
    devices = args.devices or (1 if args.log else PAPER_DEVICES)
    found = []
    for name in [args.checkpoint.name] if args.checkpoint else args.arch or ["vaswani_base", "vaswani_big"]:
        if args.checkpoint:
            sizes = model_of_checkpoint(args.checkpoint)
        else:
            sizes = sizes_of(options_of(name), args.vocab_size or 37_000)
        seen = seen_by(args, name)
        found.append(cost(name, sizes, lengths_for(args, seen), seen, devices, None if rate is None else rate * 1e12))
    return found


def run(args: argparse.Namespace) -> None:
    """Print the table, and write what was asked for."""
    import vaswani_plugin  # noqa: F401  registers the architectures

    check(args)
    if args.user_dir:
        from fairseq.utils import import_user_module

        import_user_module(argparse.Namespace(user_dir=args.user_dir))
    score = None if args.score is None else read_score(args.score)
    costs = costs_of(args)
    print(table(costs, score))
    if args.json is not None:
        entries = [{**asdict(one), "reached_rate": reached_rate(one), "bleu": score} for one in costs]
        with atomic_path(args.json) as partial:
            partial.write_text(json.dumps(entries, indent=2) + "\n", encoding="utf-8")


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run the command; returns its exit status."""
    args = build_parser().parse_args(argv)
    return run_command("vaswani-flops", lambda: run(args))


if __name__ == "__main__":
    sys.exit(main())
