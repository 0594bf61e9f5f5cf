"""``vaswani-positions``: the positional encodings of section 3.5 as a picture.

Left, the table itself: a row a position, a column a dimension. Right, what makes it useful: the scalar product of the
encodings of two positions depends on their distance alone (``PE(pos + k)`` is a fixed rotation of ``PE(pos)``), and
falls with it. Printed are the first values, and how far the scalar products at one distance lie apart.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Optional, Sequence, Tuple

from torch import Tensor

from vaswani_plugin.positions import SINUSOID_LAYOUTS
from vaswani_plugin.tools.cli import CommandError, help_texts, plural, run_command
from vaswani_plugin.tools.pictures import pyplot, save_figure


def by_distance(table: Tensor) -> Tuple[Tensor, float]:
    """The scalar products of encodings, by distance.

    Args:
        table: float32 (n_positions, d_model).

    Returns:
        Their mean at every distance from 0, float32 (n_positions,), over the product of an encoding with itself; and
        the greatest difference between two products at the same distance, in the same unit.
    """
    itself = table[0].double().square().sum().clamp(min=1e-12)  # a single dimension may hold nothing but zeros
    products = (table.double() @ table.double().t()) / itself
    diagonals = [products.diagonal(distance) for distance in range(len(table))]
    means = Tensor([float(diagonal.mean()) for diagonal in diagonals])
    return means, max(float(diagonal.max() - diagonal.min()) for diagonal in diagonals)


def draw(table: Tensor, layout: str, output: Path) -> None:
    """Draw the table and its scalar products by distance.

    Raises:
        CommandError: matplotlib is not installed, or it does not know the output's suffix.
    """
    figure, (left, right) = pyplot().subplots(1, 2, figsize=(11, 4.5), constrained_layout=True)
    image = left.imshow(table.numpy(), aspect="auto", cmap="RdBu_r", vmin=-1, vmax=1, interpolation="nearest")
    left.set_title(f"{layout} sinusoids")
    left.set_xlabel("dimension")
    left.set_ylabel("position")
    figure.colorbar(image, ax=left)
    means, _ = by_distance(table)
    right.plot(range(len(means)), means.tolist(), linewidth=1.5)
    right.set_title("scalar product of two encodings (1: with itself)")
    right.set_xlabel("distance of the positions")
    right.grid(alpha=0.3)
    save_figure(figure, output)


def summary(table: Tensor, layout: str) -> str:
    """The first values, and how the scalar products behave, in words."""
    n_positions, d_model = table.shape
    shown = min(n_positions, 4)
    lines = [f"{layout} sinusoids, {plural(n_positions, 'position')} of {plural(d_model, 'dimension')}"]
    for position in range(shown):
        values = " ".join(f"{value:7.4f}" for value in table[position, :8].tolist())
        lines.append(f"position {position}: {values}{' ...' if d_model > 8 else ''}")
    _, spread = by_distance(table)
    lines.append(f"scalar products at the same distance differ by at most {spread:.1e}")
    return "\n".join(lines)


def build_parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    description, rest = help_texts(__doc__)
    parser = argparse.ArgumentParser(prog="vaswani-positions", description=description, epilog=rest)
    parser.add_argument("--d-model", type=int, default=128, metavar="D", help="dimensions (default: 128)")
    parser.add_argument("--positions", type=int, default=100, metavar="N", help="how many positions (default: 100)")
    parser.add_argument(
        "--layout",
        choices=list(SINUSOID_LAYOUTS),
        default="interleaved",
        help="as in --positional-layout of training (default: interleaved, the paper's)",
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help="draw there, such as positions.png or .svg")
    return parser


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run the command; returns its exit status."""
    args = build_parser().parse_args(argv)

    def body() -> None:
        for option, value in (("--d-model", args.d_model), ("--positions", args.positions)):
            if value < 1:
                raise CommandError(f"{option} must be at least 1, but is {value}")
        table = SINUSOID_LAYOUTS[args.layout](args.positions, args.d_model)
        print(summary(table, args.layout))
        if args.output is not None:
            draw(table, args.layout, args.output)

    return run_command("vaswani-positions", body)


if __name__ == "__main__":
    sys.exit(main())
