"""Attention as one self-contained HTML page, and as JSON: the template beside this file, filled with data.

The page asks nobody for anything: style, script and weights are inside it, and its policy forbids the network.
"""

from __future__ import annotations

import base64
import html
import json
import re
from pathlib import Path
from typing import Any, Callable, Dict, List, Sequence

from torch import Tensor

from vaswani_plugin.tools.attention_maps import KINDS, Analysis, View
from vaswani_plugin.tools.attention_pictures import head_colours
from vaswani_plugin.tools.attention_statistics import MEANINGS, statistics

TEMPLATE = Path(__file__).with_name("attention_page.html")
#: What could end the element that holds the data, begin a comment in it, or end a line of script.
_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def packed(weights: Tensor) -> str:
    """The weights, bit for bit, as the base64 text of float32 values, least significant byte first."""
    return base64.b64encode(weights.contiguous().numpy().astype("<f4").tobytes()).decode("ascii")


def listed(weights: Tensor) -> Any:
    """The weights as nested lists of numbers with seven decimals."""
    rows = weights.double().tolist()
    return [[[[round(weight, 7) for weight in row] for row in head] for head in layer] for layer in rows]


def view_data(view: View, weights: Callable[[Tensor], Any]) -> Dict[str, Any]:
    """One kind of attention as plain values, its weights in the given form."""
    return {
        "shape": list(view.weights.shape),
        "queries": {"names": list(view.queries.names), "direction": view.queries.direction},
        "keys": {"names": list(view.keys.names), "direction": view.keys.direction},
        "statistics": statistics(view),
        "weights": weights(view.weights),
    }


def as_json(analysis: Analysis, weights: Callable[[Tensor], Any] = listed) -> Dict[str, Any]:
    """An analysis as plain values.

    Returns:
        "source", "target", "translated"; "pieces" and "words", each by kind: "shape" (layers, heads, queries, keys),
        "queries" and "keys" with their names, "statistics" [layer][head], "weights" [layer][head][query][key].
    """
    return {
        "source": analysis.source,
        "target": analysis.target,
        "translated": analysis.translated,
        "pieces": {kind: view_data(view, weights) for kind, view in analysis.pieces.items()},
        "words": {kind: view_data(view, weights) for kind, view in analysis.words.items()},
    }


def script_safe(data: Any) -> str:
    """JSON that can stand inside a script element, whatever its strings hold."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return re.sub("[<>&\u2028\u2029]", lambda match: _ESCAPES[match.group()], text)


def page(analysis: Analysis, kind: str, layer: int, heads: Sequence[int], merged: bool) -> str:
    """The page; it opens with the given kind, layer and heads (indices from 0), and with words where merged."""
    n_heads = max(view.weights.size(1) for view in analysis.pieces.values())
    start: Dict[str, Any] = {
        "kind": kind,
        "layer": layer,
        "heads": list(heads),
        "unit": "words" if merged else "pieces",
    }
    colours: List[str] = head_colours(n_heads)
    data = {**as_json(analysis, packed), "start": start, "colours": colours, "kinds": KINDS, "meanings": MEANINGS}
    parts = {"@TITLE@": html.escape(f"Attention: {analysis.source}"), "@DATA@": script_safe(data)}
    template = TEMPLATE.read_text(encoding="utf-8")
    return re.sub("|".join(parts), lambda match: parts[match.group()], template)
