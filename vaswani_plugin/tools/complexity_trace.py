"""What Table 1 says beside time, found in the layers: operations, steps in sequence, and lengths of paths.

Operations are those of the matrix products that torch carries out, forward and backward, counted on shapes alone.
Steps in sequence are the longest chain of such products, each needing the one before it, in the graph that torch keeps
for the backward pass. Paths are traced through the zeros of Jacobians: a token reaches another where some gradient is
not zero.
"""

from __future__ import annotations

import math
from typing import Callable, Dict, List

import torch
from torch import Tensor, nn

from vaswani_plugin.tools.cli import CommandError
from vaswani_plugin.tools.complexity_layers import Convolution, RestrictedSelfAttention, SelfAttention

TRACE_WIDTH = 4


def operations(build: Callable[[int], nn.Module], n: int, d: int) -> int:
    """Operations of matrix products in the forward and backward pass of a layer of width d over n tokens.

    Raises:
        CommandError: this torch cannot count.
    """
    try:
        from torch.utils.flop_counter import FlopCounterMode
    except ImportError as error:
        raise CommandError("counting operations needs torch 2.1 or later") from error
    with torch.device("meta"):
        layer = build(d)
        x = torch.empty(1, n, d, requires_grad=True)
    if isinstance(layer, SelfAttention):
        layer.written_out = True
    with FlopCounterMode(display=False) as counter:
        layer(x).sum().backward()
    return int(counter.get_total_flops())


def sequential_steps(build: Callable[[int], nn.Module], n: int) -> int:
    """The longest chain of matrix products of which each needs the one before it, in a forward pass over n tokens."""
    layer = build(TRACE_WIDTH)
    if isinstance(layer, SelfAttention):
        layer.written_out = True
    fused = torch.backends.mkldnn.enabled
    torch.backends.mkldnn.enabled = False  # type: ignore[assignment]  # an LSTM of that library is a single node of the graph
    try:
        out = layer(torch.randn(1, n, TRACE_WIDTH, requires_grad=True))
    finally:
        torch.backends.mkldnn.enabled = fused  # type: ignore[assignment]
    return _longest_chain(out.grad_fn)


def _longest_chain(root: object) -> int:
    """Products on the longest path through the graph; without recursion, since the graph of an LSTM is deep."""
    longest: Dict[object, int] = {}
    stack = [root]
    while stack:
        node = stack[-1]
        before = [parent for parent, _ in node.next_functions if parent is not None]  # type: ignore[attr-defined]
        open_ones = [parent for parent in before if parent not in longest]
        if open_ones:
            stack += open_ones
            continue
        stack.pop()
        is_product = any(name in type(node).__name__.lower() for name in ("mm", "convolution", "linear"))
        longest[node] = max((longest[parent] for parent in before), default=0) + is_product
    return longest[root]


def reached(function: Callable[[Tensor], Tensor], n: int) -> Tensor:
    """Which input token each output token depends on, bool (n outputs, n inputs), from the Jacobian's zeros.

    Args:
        function: from (1, n, d) to (1, n, d), all in float64.
    """
    x = torch.randn(1, n, TRACE_WIDTH, dtype=torch.float64, requires_grad=True)
    out = (function(x) * torch.randn(1, n, TRACE_WIDTH, dtype=torch.float64)).sum(dim=(0, 2))
    rows = [torch.autograd.grad(out[i], x, retain_graph=True)[0].abs().sum(dim=(0, 2)) > 0 for i in range(n)]
    return torch.stack(rows)


def layers_until_connected(build: Callable[[int], nn.Module], n: int, causal: bool) -> int:
    """How many layers, the i-th from the bottom made by ``build(i)``, connect every output with every input token.

    Args:
        causal: with every input token but the later ones.

    Raises:
        RuntimeError: even n layers do not.
    """
    wanted = torch.ones(n, n, dtype=torch.bool)
    wanted = wanted.tril() if causal else wanted
    connected = torch.eye(n, dtype=torch.bool)
    for depth in range(n):
        connected = (reached(build(depth).double(), n).double() @ connected.double()) > 0
        if torch.equal(connected, wanted):
            return depth + 1
    raise RuntimeError(f"{n} layers do not connect {n} tokens")


def recurrent_path(n: int) -> int:
    """How many steps in sequence the longest path through an LSTM over n tokens takes.

    One step takes a token's input and its predecessor's state to its state. What that connects is read from the
    Jacobians of the cell; steps are then put together until the last state depends on the first input.
    """
    cell = nn.LSTMCell(TRACE_WIDTH, TRACE_WIDTH).double()

    def states(x: Tensor, previous: Tensor) -> Tensor:
        first = torch.zeros_like(previous[:, :1])
        shifted = torch.cat((first, previous[:, :-1]), dim=1)
        hidden: Tensor = cell(x[0], (shifted[0], shifted[0]))[0]
        return hidden[None]

    other = torch.randn(1, n, TRACE_WIDTH, dtype=torch.float64)
    enters = reached(lambda x: states(x, other), n)
    moves = reached(lambda previous: states(other, previous), n).double()
    every_pair = torch.ones(n, n, dtype=torch.bool).tril()  # an LSTM reads no later token
    connected, steps = enters, 1
    while not torch.equal(connected, every_pair):
        connected = connected | ((moves @ connected.double()) > 0)
        steps += 1
    return steps


def path_length(name: str, n: int, k: int, r: int) -> int:
    """The longest of the shortest paths between an input and an output token, in a network of one kind of layer."""
    if name == "recurrent":
        return recurrent_path(n)
    builders: Dict[str, Callable[[int], nn.Module]] = {
        "self-attention": lambda depth: SelfAttention(TRACE_WIDTH),
        "convolutional": lambda depth: Convolution(TRACE_WIDTH, k, depth),
        "restricted self-attention": lambda depth: RestrictedSelfAttention(TRACE_WIDTH, r),
    }
    return layers_until_connected(builders[name], n, causal=name == "convolutional")


def expected_path(name: str, n: int, k: int, r: int) -> int:
    """The length that the table's orders of growth stand for, exactly, for the layers of this module.

    L dilated convolutions read k^L tokens, so that ``ceil(log_k n)`` are needed; L restricted layers reach L r / 2
    tokens to either side, and the ends are n - 1 apart; an LSTM needs a step for every token.
    """
    if name == "convolutional":
        return max(1, next(depth for depth in range(n + 1) if k**depth >= n))
    lengths = {"self-attention": 1, "recurrent": n, "restricted self-attention": max(1, math.ceil((n - 1) / (r // 2)))}
    return lengths[name]


def slope(sizes: List[int], values: List[float]) -> float:
    """The exponent p of ``value = c size^p``: least squares of the logarithms."""
    x, y = (torch.tensor(series, dtype=torch.float64).log() for series in (sizes, values))
    x, y = x - x.mean(), y - y.mean()
    return float((x * y).sum() / (x * x).sum())
