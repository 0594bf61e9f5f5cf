"""Attention as pictures: lines between words in the manner of the paper's Figures 3 to 5, and heat maps.

Shapes: H heads, Q queries, K keys.
"""

from __future__ import annotations

import colorsys
import math
from pathlib import Path
from typing import Any, List, Sequence

from vaswani_plugin.tools.attention_maps import View
from vaswani_plugin.tools.cli import CommandError
from vaswani_plugin.tools.pictures import plain, pyplot, save_figure, text_settings
from vaswani_plugin.tools.pieces import Labels

#: One colour a head, readable on light and on dark ground.
COLOURS = (
    "#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f", "#bcbd22", "#17becf",
)  # fmt: skip
ROW_INCHES = 0.24
MOST_ROWS = 2000  # beyond which a picture has more pixels than can be drawn
FAINTEST = 0.01  # weights below are not drawn as lines: they could not be seen
LONGEST_LABEL = 24


def head_colours(n_heads: int) -> List[str]:
    """A colour for each head, as #rrggbb."""
    if n_heads <= len(COLOURS):
        return list(COLOURS[:n_heads])
    hues = [colorsys.hls_to_rgb(i / n_heads, 0.5 if i % 2 else 0.42, 0.7) for i in range(n_heads)]
    return ["#" + "".join(f"{round(255 * part):02x}" for part in hue) for hue in hues]


def shown(names: Sequence[str]) -> List[str]:
    """Labels as a picture shows them: long ones are cut, dollar signs are no mathematics."""
    return [plain(name if len(name) <= LONGEST_LABEL else name[: LONGEST_LABEL - 1] + "\u2026") for name in names]


def check_size(view: View, option: str) -> None:
    """Refuse sentences that are too long for a picture.

    Raises:
        CommandError: more than ``MOST_ROWS`` tokens.
    """
    longest = max(view.weights.shape[2:])
    if longest > MOST_ROWS:
        raise CommandError(
            f"{option}: a picture holds at most {MOST_ROWS:,} tokens a side, but there are {longest:,}; "
            "--page has no limit"
        )


def draw_lines(view: View, layer: int, heads: Sequence[int], output: Path, option: str = "--lines") -> None:
    """Draw the queries at the left, the keys at the right, and lines as heavy as the attention.

    Args:
        layer, heads: indices from 0.

    Raises:
        CommandError: matplotlib is not installed, does not know the suffix, or the sentences are too long.
    """
    check_size(view, option)
    plt = pyplot()
    from matplotlib.collections import LineCollection

    n_queries, n_keys = view.weights.shape[2:]
    n_rows, colours = max(n_queries, n_keys), head_colours(view.weights.size(1))
    with text_settings():
        figure, axis = plt.subplots(figsize=(6.5, ROW_INCHES * (n_rows + 3)))
        axis.set_position((0.32, 0.0, 0.36, n_rows / (n_rows + 3)))
        for place, head in enumerate(heads):
            shift = (place - (len(heads) - 1) / 2) * 0.5 / len(heads)
            queries, keys = (view.weights[layer, head] >= FAINTEST).nonzero(as_tuple=True)
            weights = view.weights[layer, head][queries, keys].tolist()
            lines = [[(0, q + shift), (1, k + shift)] for q, k in zip(queries.tolist(), keys.tolist())]
            widths = [0.3 + 2.2 * weight for weight in weights]
            axis.add_collection(LineCollection(lines, linewidths=widths, colors=colours[head], alpha=weights))
        _words(axis, view.queries, -0.03, "right")
        _words(axis, view.keys, 1.03, "left")
        axis.set_xlim(0, 1)
        axis.set_ylim(n_rows - 0.5, -0.5)
        axis.axis("off")
        _title(figure, view, layer, heads, colours, n_rows)
        save_figure(figure, output, option, dpi=150 if n_rows < 250 else 100)


def _words(axis: Any, labels: Labels, x: float, side: str) -> None:
    for row, name in enumerate(shown(labels.names)):
        axis.text(x, row, name, ha=side, va="center", fontsize=9.5)


def _title(figure: Any, view: View, layer: int, heads: Sequence[int], colours: Sequence[str], n_rows: int) -> None:
    """The kind and layer, and below a square of its colour for each head."""
    top = 1 - 0.9 / (n_rows + 3)
    text = f"{view.kind} attention, layer {layer + 1} of {view.weights.size(0)}"
    figure.text(0.5, top, text, ha="center", va="center", fontsize=10.5)
    step = min(0.07, 0.9 / len(heads))
    for place, head in enumerate(heads):
        x = 0.5 + (place - (len(heads) - 1) / 2) * step
        box = {"facecolor": colours[head], "edgecolor": "none", "boxstyle": "square,pad=0.25"}
        below = 1 - 2.0 / (n_rows + 3)
        figure.text(x, below, str(head + 1), ha="center", va="center", fontsize=8, color="white", bbox=box)


def draw_heat_maps(view: View, layer: int, heads: Sequence[int], output: Path, option: str = "--heat-map") -> None:
    """Draw one panel a head, a row a query and a column a key; columns run as the text of the keys does.

    Full colour is the greatest weight of all panels.

    Args:
        layer, heads: indices from 0.

    Raises:
        CommandError: matplotlib is not installed, does not know the suffix, or the sentences are too long.
    """
    check_size(view, option)
    plt = pyplot()
    n_queries, n_keys = view.weights.shape[2:]
    n_rows = math.ceil(len(heads) / max(1, min(4, 60 // n_keys)))
    n_columns = math.ceil(len(heads) / n_rows)
    strongest = float(view.weights[layer, heads].max())
    cell = min(0.22, 30 / max(n_queries * n_rows, n_keys * n_columns))
    size = (n_columns * (cell * n_keys + 1.5) + 0.3, n_rows * (cell * n_queries + 1.7) + 0.4)
    colours = head_colours(view.weights.size(1))
    with text_settings():
        figure, axes = plt.subplots(n_rows, n_columns, figsize=size, squeeze=False, constrained_layout=True)
        for axis in axes.flat[len(heads) :]:
            axis.axis("off")
        for axis, head in zip(axes.flat, heads):
            axis.imshow(view.weights[layer, head].numpy(), cmap=_to_white(colours[head]), vmin=0, vmax=strongest)
            axis.set_title(f"head {head + 1}", fontsize=9.5, color=colours[head])
            _axis_names(axis, view, min(9.0, cell * 72 * 0.7))
        name = f"{view.kind} attention, layer {layer + 1} of {view.weights.size(0)}"
        figure.suptitle(f"{name}\nwhite is 0, full colour is {strongest:.2f}", fontsize=10.5)
        save_figure(figure, output, option)


def _to_white(colour: str) -> Any:
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("head", ["white", colour])


def _axis_names(axis: Any, view: View, font_size: float) -> None:
    """Name the rows and columns, on the side and in the order of the direction of their text."""
    if font_size >= 1.5:  # smaller letters are no letters any more
        axis.set_xticks(range(len(view.keys.names)), shown(view.keys.names), rotation=90, fontsize=font_size)
        axis.set_yticks(range(len(view.queries.names)), shown(view.queries.names), fontsize=font_size)
    else:
        axis.set_xticks([])
        axis.set_yticks([])
    axis.tick_params(length=0)
    if view.keys.direction == "rtl":
        axis.invert_xaxis()
    if view.queries.direction == "rtl":
        axis.yaxis.tick_right()
