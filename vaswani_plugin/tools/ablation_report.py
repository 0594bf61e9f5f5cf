"""Table 3 as text, Markdown and JSON, with the paper's numbers beside ours, and which of its orderings hold."""

from __future__ import annotations

import statistics
from typing import Any, Dict, List, Mapping, Optional, Sequence

from vaswani_plugin.tools.ablation_rows import ORDERINGS, ROWS, Ordering, sizes

#: What one training gave: "ppl", "bleu", "parameters", "steps", "signature".
Result = Mapping[str, Any]
Results = Mapping[str, Sequence[Result]]


def _values(results: Sequence[Result], metric: str) -> List[float]:
    return [float(result[metric]) for result in results]


def _spread(results: Sequence[Result], metric: str) -> str:
    """The mean over the seeds, and their range where there are several."""
    values = _values(results, metric)
    if not values:
        return "-"
    mean = f"{statistics.fmean(values):.2f}"
    return mean if len(values) == 1 else f"{mean} ({min(values):.2f} to {max(values):.2f})"


def table(results: Results, factor: int, halve_layers: bool) -> List[List[str]]:
    """The rows that have results, under a head; "paper" columns are the paper's own numbers at full size."""
    head = ["row", "N", "d_model", "d_ff", "h", "d_k", "d_v", "P_drop", "eps_ls", "seeds", "steps", "PPL (dev)"]
    head += ["BLEU (dev)", "params x 10^6", "paper: PPL", "BLEU", "params x 10^6"]
    lines = [head]
    for name, found in results.items():
        if not found:
            continue
        row = ROWS[name]
        settings = [str(value) for value in sizes(row, factor, halve_layers).values()]
        ours = [str(len(found)), f"{found[0]['steps']:,}", _spread(found, "ppl"), _spread(found, "bleu")]
        ours.append(f"{found[0]['parameters'] / 1e6:.2f}")
        paper = [f"{row.ppl:.2f}", f"{row.bleu:.1f}", "-" if row.millions is None else str(row.millions)]
        lines.append([name, *settings, *ours, *paper])
    return lines


def verdict(ordering: Ordering, results: Results) -> Optional[str]:
    """Whether an ordering of the paper holds here; None where a row is missing.

    With several seeds a difference counts when the ranges of the two rows do not overlap; with one seed nothing is
    known of the spread, and the verdict says so.
    """
    better, worse = (_values(results.get(name, []), ordering.metric) for name in (ordering.better, ordering.worse))
    if not better or not worse:
        return None
    if ordering.metric == "ppl":
        better, worse = [-value for value in better], [-value for value in worse]
    if min(len(better), len(worse)) == 1:
        if ordering.same:
            return "cannot be told from one seed"
        gain = statistics.fmean(better) - statistics.fmean(worse)
        return "holds, with one seed" if gain > 0 else "does not hold, with one seed"
    apart = min(better) > max(worse) or min(worse) > max(better)
    if ordering.same:
        return "does not hold" if apart else "holds"
    if not apart:
        return "is within the spread of the seeds"
    return "holds" if min(better) > max(worse) else "does not hold"


def orderings(results: Results) -> List[Dict[str, str]]:
    """The verdict on every ordering of which both rows are there."""
    found = []
    for ordering in ORDERINGS:
        said = verdict(ordering, results)
        if said is None:
            continue
        sign = "=" if ordering.same else "<" if ordering.metric == "ppl" else ">"
        values = [_spread(results[name], ordering.metric) for name in (ordering.better, ordering.worse)]
        found.append({
            "claim": ordering.claim,
            "relation": f"{ordering.metric.upper()} {ordering.better} {sign} {ordering.worse}",
            "ours": f"{values[0]} and {values[1]}",
            "verdict": said,
        })  # fmt: skip
    return found


def orderings_table(results: Results) -> List[List[str]]:
    """The same as a table."""
    lines = [["the paper says", "relation", "here", "verdict"]]
    lines += [[one["claim"], one["relation"], one["ours"], one["verdict"]] for one in orderings(results)]
    return lines


def signatures(results: Results) -> List[str]:
    """The signatures under which BLEU was computed; one, unless versions of sacreBLEU were mixed."""
    return sorted({str(result["signature"]) for found in results.values() for result in found})


def as_json(results: Results, factor: int, halve_layers: bool) -> Dict[str, Any]:
    """Everything as plain values."""
    rows = {
        name: {
            "settings": sizes(ROWS[name], factor, halve_layers),
            "paper": {"ppl": ROWS[name].ppl, "bleu": ROWS[name].bleu, "parameters_millions": ROWS[name].millions},
            "seeds": [dict(result) for result in found],
        }
        for name, found in results.items()
    }
    return {"shrink": factor, "halve_layers": halve_layers, "rows": rows, "orderings": orderings(results)}
