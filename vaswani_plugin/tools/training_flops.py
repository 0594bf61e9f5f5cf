"""How many operations training takes, and how many a GPU could do at best."""

from __future__ import annotations

from argparse import Namespace
from typing import Any, Dict, List, Mapping, Optional, Sequence

from vaswani_plugin.operations import Lengths, training_operations
from vaswani_plugin.tools.model_sizes import sizes_of

#: Dense operations a second at most, in units of 10^12, by precision; from NVIDIA's data sheets. float32 is that of the
#: plain units, which torch uses unless it is told to take TF32.
PEAK_TFLOPS: Dict[str, Dict[str, float]] = {
    "H200": {"fp32": 67.0, "fp16": 989.0, "bf16": 989.0},
    "H100 PCIe": {"fp32": 51.0, "fp16": 756.0, "bf16": 756.0},
    "H100": {"fp32": 67.0, "fp16": 989.0, "bf16": 989.0},
    "A100": {"fp32": 19.5, "fp16": 312.0, "bf16": 312.0},
    "L4": {"fp32": 30.3, "fp16": 121.0, "bf16": 121.0},
    "V100": {"fp32": 15.7, "fp16": 125.0},
    "T4": {"fp32": 8.1, "fp16": 65.0},
}


def training_flops(options: Mapping[str, Any], n_types: int, sources: Sequence[int], targets: Sequence[int]) -> float:
    """Operations of one update on these sentences, without padding, as ``operations`` counts them.

    Args:
        options: of the architecture.
        n_types: V.
        sources, targets: the length of each sentence.
    """
    pairs = list(zip(sources, targets))
    sums = Lengths(
        source=sum(sources),
        target=sum(targets),
        source_squared=sum(n * n for n in sources),
        target_squared=sum(m * m for m in targets),
        product=sum(n * m for n, m in pairs),
    )
    return training_operations(sizes_of(Namespace(**options), n_types), sums)  # linear in what Lengths holds


def fraction_of_peak(
    options: Mapping[str, Any],
    n_types: int,
    lengths: Sequence[Sequence[List[int]]],
    seconds: float,
    gpu: str,
    precision: str,
) -> Optional[float]:
    """The share of a GPU's best rate that updates reach, or None for a GPU that ``PEAK_TFLOPS`` does not list.

    Args:
        lengths: of every batch the lengths of its sources and of its targets.
        seconds: for all batches.
    """
    peak = next((of for name, of in PEAK_TFLOPS.items() if all(word in gpu.split() for word in name.split())), {})
    if precision not in peak:
        return None
    flops = sum(training_flops(options, n_types, sources, targets) for sources, targets in lengths)
    return flops / seconds / (peak[precision] * 1e12)
