"""``vaswani-complexity``: Table 1 measured: how a layer's cost, steps in sequence and paths grow with n and d.

One self-attention, recurrent (LSTM), convolutional and restricted self-attention layer run forward and backward over
texts of n tokens of width d. Time is the median of rounds in which all sizes take turns; operations are those of the
matrix products; both get a growth exponent in n and in d, fitted over sizes at which the table's term dominates, which
are shown. Paths are traced through layers: which inputs reach which outputs.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

from vaswani_plugin.tools.cli import CommandError, atomic_path, help_texts, positive, progress, run_command
from vaswani_plugin.tools.tables import markdown_table, text_table

#: Up to this far from the table's exponent a measured one agrees.
TOLERANCE = 0.3
PATH_LENGTHS = [1, 2, 4, 8, 16, 32, 64]
STEP_LENGTHS = [4, 8, 16, 32]
#: The kernel and the neighbourhood while paths are traced, small so that short texts show the growth.
TRACE_KERNEL, TRACE_NEIGHBOURS = 3, 8
Sizes = Tuple[int, int]


def measure(kinds: Dict[str, Any], rounds: int) -> Dict[str, Dict[Sizes, float]]:
    """The median seconds of a forward and backward pass by layer and (n, d); all take turns in every round."""
    import torch

    places, times = [], {}  # type: ignore[var-annotated]
    for name, kind in kinds.items():
        for n, d in kind.timed.points():
            layer, x = kind.build(d), torch.randn(kind.batch, n, d, requires_grad=True)
            layer(x).sum().backward()  # memory and kernels are ready afterwards
            places.append((name, (n, d), layer, x))
            times[name, (n, d)] = []
    for _ in progress(range(rounds), "time", unit="round"):
        for name, sizes, layer, x in places:
            begin = time.perf_counter()
            layer(x).sum().backward()
            times[name, sizes].append(time.perf_counter() - begin)
    return {
        name: {sizes: statistics.median(times[name, sizes]) for sizes in kind.timed.points()}
        for name, kind in kinds.items()
    }


def exponents(sizes: Any, values: Dict[Sizes, float]) -> Tuple[float, float]:
    """The fitted exponents of n and d over a ``Range``."""
    from vaswani_plugin.tools.complexity_trace import slope

    return (
        slope(sizes.lengths, [values[n, sizes.width] for n in sizes.lengths]),
        slope(sizes.widths, [values[sizes.length, d] for d in sizes.widths]),
    )


def trace(name: str, kind: Any) -> Dict[str, Any]:
    """Steps in sequence and lengths of paths of one layer, with what the table stands for."""
    from vaswani_plugin.tools import complexity_layers, complexity_trace

    small = complexity_layers.kinds(TRACE_KERNEL, TRACE_NEIGHBOURS)[name]
    steps = {n: complexity_trace.sequential_steps(small.build, n) for n in STEP_LENGTHS}
    paths = {n: complexity_trace.path_length(name, n, TRACE_KERNEL, TRACE_NEIGHBOURS) for n in PATH_LENGTHS}
    wanted = {n: complexity_trace.expected_path(name, n, TRACE_KERNEL, TRACE_NEIGHBOURS) for n in PATH_LENGTHS}
    return {
        "steps": steps,
        "steps_exponent": complexity_trace.slope(STEP_LENGTHS, [float(steps[n]) for n in STEP_LENGTHS]),
        "paths": paths,
        "paths_expected": wanted,
        "paths_exact": paths == wanted,
    }


def results(args: argparse.Namespace) -> Dict[str, Dict[str, Any]]:
    """Measure, count and trace every layer that was asked for."""
    import torch

    from vaswani_plugin.tools.complexity_layers import kinds
    from vaswani_plugin.tools.complexity_trace import operations

    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    chosen = {name: kind for name, kind in kinds(args.kernel, args.neighbours).items() if name in args.layers}
    seconds = measure(chosen, args.rounds)
    found = {}
    for name in progress(list(chosen), "count and trace", unit="layer"):
        kind = chosen[name]
        counted = {(n, d): float(operations(kind.build, n, d)) for n, d in kind.counted.points()}
        found[name] = {
            "table": {"complexity": kind.complexity, "sequential": kind.sequential, "path": kind.path},
            "exponents": kind.exponents,
            "seconds": seconds[name],
            "seconds_exponents": exponents(kind.timed, seconds[name]),
            "operations": counted,
            "operations_exponents": exponents(kind.counted, counted),
            "timed": kind.timed,
            "counted": kind.counted,
            "batch": kind.batch,
            **trace(name, kind),
        }
    return found


def agrees(entry: Dict[str, Any]) -> bool:
    """Whether all four fitted exponents are within the tolerance of the table's, and the paths exact."""
    pairs = [
        *zip(entry["seconds_exponents"], entry["exponents"]),
        *zip(entry["operations_exponents"], entry["exponents"]),
    ]
    return bool(entry["paths_exact"]) and all(abs(found - wanted) <= TOLERANCE for found, wanted in pairs)


def rows(found: Dict[str, Dict[str, Any]]) -> List[List[str]]:
    """The table: the paper's orders of growth, and beside each what was found."""
    head = ["layer", "complexity", "exponents of n, d", "of operations", "of time", "steps", f"n = {STEP_LENGTHS}"]
    head += ["path", f"n = {PATH_LENGTHS}", "agrees"]
    body = []
    for name, entry in found.items():
        table = entry["table"]
        body.append([
            name, table["complexity"], "{}, {}".format(*entry["exponents"]),
            "{:.2f}, {:.2f}".format(*entry["operations_exponents"]),
            "{:.2f}, {:.2f}".format(*entry["seconds_exponents"]),
            table["sequential"], ", ".join(map(str, entry["steps"].values())),
            table["path"], ", ".join(map(str, entry["paths"].values())),
            "yes" if agrees(entry) else "no",
        ])  # fmt: skip
    return [head, *body]


def ranges(found: Dict[str, Dict[str, Any]]) -> str:
    """The sizes over which the exponents were fitted, in words."""
    lines = []
    for name, entry in found.items():
        for what in ("counted", "timed"):
            sizes = entry[what]
            texts = f" ({entry['batch']} texts at once)" if what == "timed" and entry["batch"] > 1 else ""
            lines.append(
                f"{name}, {what}{texts}: n = {', '.join(map(str, sizes.lengths))} at d = {sizes.width}; "
                f"d = {', '.join(map(str, sizes.widths))} at n = {sizes.length}"
            )
    return "\n".join(lines)


def as_json(found: Dict[str, Dict[str, Any]], args: argparse.Namespace) -> Dict[str, Any]:
    """Everything as plain values; sizes become entries of lists."""
    layers = {}
    for name, entry in found.items():
        plain = {**entry, "agrees": agrees(entry)}
        for what in ("seconds", "operations"):
            plain[what] = [{"n": n, "d": d, what: value} for (n, d), value in entry[what].items()]
        layers[name] = {**plain, "timed": vars(entry["timed"]), "counted": vars(entry["counted"])}
    settings = {"kernel": args.kernel, "neighbours": args.neighbours, "rounds": args.rounds, "threads": args.threads}
    trace_sizes = {"trace_kernel": TRACE_KERNEL, "trace_neighbours": TRACE_NEIGHBOURS}
    return {"settings": {**settings, **trace_sizes}, "layers": layers}


def draw(found: Dict[str, Dict[str, Any]], output: Path) -> None:
    """Draw time over n and over d on logarithmic axes, with the table's slope through each layer's first point.

    Raises:
        CommandError: matplotlib is not installed, or it does not know the output's suffix.
    """
    from vaswani_plugin.tools.pictures import pyplot, save_figure

    figure, axes = pyplot().subplots(1, 2, figsize=(11, 4.5), constrained_layout=True)
    for number, (name, entry) in enumerate(found.items()):
        sizes, seconds, (in_n, in_d) = entry["timed"], entry["seconds"], entry["exponents"]
        series = (
            (axes[0], sizes.lengths, [seconds[n, sizes.width] for n in sizes.lengths], in_n, f"d = {sizes.width}"),
            (axes[1], sizes.widths, [seconds[sizes.length, d] for d in sizes.widths], in_d, f"n = {sizes.length}"),
        )
        for axis, x, y, power, where in series:
            axis.plot(x, y, marker="o", color=f"C{number}", linewidth=1.4, label=f"{name}, {where}")
            axis.plot(x, [y[0] * (size / x[0]) ** power for size in x], color=f"C{number}", linestyle=":", linewidth=1)
    for axis, title in zip(axes, ("tokens n", "width d")):
        axis.set(xscale="log", yscale="log", xlabel=title, ylabel="seconds, forward and backward")
        axis.grid(alpha=0.3)
        axis.legend(fontsize="x-small", title="dotted: the table's exponent", title_fontsize="x-small")
    save_figure(figure, output, "--plot")


def build_parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    description, rest = help_texts(__doc__)
    parser = argparse.ArgumentParser(prog="vaswani-complexity", description=description, epilog=rest)
    names = ["self-attention", "recurrent", "convolutional", "restricted self-attention"]
    parser.add_argument("--layers", nargs="+", choices=names, default=names, metavar="NAME", help="default: all four")
    parser.add_argument("--kernel", type=positive, default=3, metavar="K", help="of the convolution (default: 3)")
    parser.add_argument(
        "--neighbours", type=positive, default=512, metavar="R",
        help="of restricted self-attention, even and much greater than the widths (default: 512)",
    )  # fmt: skip
    parser.add_argument("--rounds", type=positive, default=15, metavar="N", help="of measuring (default: 15)")
    parser.add_argument("--threads", type=positive, default=1, metavar="N", help="of the processor (default: 1)")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything there too")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw there, such as complexity.png or .svg")
    return parser


def run(args: argparse.Namespace) -> None:
    """Measure, print the table, and write what was asked for."""
    if args.neighbours % 2:
        raise CommandError(f"--neighbours must be even, half on either side, but is {args.neighbours}")
    if args.plot is not None:
        from vaswani_plugin.tools.pictures import check_format

        check_format("--plot", args.plot)  # before the work
    found = results(args)
    table = rows(found)
    print(markdown_table(table) if args.markdown else text_table(table))
    print(f"\nexponents are fitted over:\n{ranges(found)}")
    print(f"paths and steps: k = {TRACE_KERNEL}, r = {TRACE_NEIGHBOURS}; a yes: within {TOLERANCE}, and paths exact")
    if args.json is not None:
        with atomic_path(args.json) as partial:
            partial.write_text(json.dumps(as_json(found, args), indent=2) + "\n", encoding="utf-8")
    if args.plot is not None:
        draw(found, args.plot)


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run the command; returns its exit status."""
    args = build_parser().parse_args(argv)
    return run_command("vaswani-complexity", lambda: run(args))


if __name__ == "__main__":
    sys.exit(main())
