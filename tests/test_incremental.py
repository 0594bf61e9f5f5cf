"""The state of incremental decoding: against a past that is copied for each hypothesis."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from vaswani_plugin.attention import attend_beam, scaled_dot_product_attention
from vaswani_plugin.incremental import ROOM_MULTIPLE, STEPS_AHEAD, DecodingState

B, S, H, D_K, D_V, LAYERS = 3, 5, 2, 7, 11, 2


def new_state(n_sentences: int = B) -> DecodingState:
    source = [(torch.randn(n_sentences, H, S, D_K), torch.randn(n_sentences, H, S, D_V)) for _ in range(LAYERS)]
    return DecodingState(source, torch.zeros(n_sentences, 1, 1, S, dtype=torch.bool))


class CopiedPast:
    """The oracle: every hypothesis has keys and values of its own, per layer (B, W, T, H, d)."""

    def __init__(self, n_sentences: int) -> None:
        self.layers = [
            (torch.empty(n_sentences, 1, 0, H, D_K), torch.empty(n_sentences, 1, 0, H, D_V)) for _ in range(LAYERS)
        ]

    def append(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        held = self.layers[layer]
        self.layers[layer] = tuple(torch.cat((old, new[:, :, None]), 2) for old, new in zip(held, (keys, values)))
        return self.layers[layer]

    def select(self, rows: list[int], parents: Tensor) -> None:
        picked = [[(r, p) for p in ps] for r, ps in zip(rows, parents.tolist())]
        self.layers = [
            tuple(torch.stack([torch.stack([one[r, p] for r, p in row]) for row in picked]) for one in held)
            for held in self.layers
        ]


def attended(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Attention of each hypothesis (B, W, H, d) to its own past (B, W, T, H, d): (B * W, H * d_v)."""
    parts = (queries[:, :, None], keys, values)
    out, _ = scaled_dot_product_attention(*(one.transpose(2, 3) for one in parts))  # (B, W, H, 1, d_v)
    return out.reshape(queries.size(0) * queries.size(1), -1)


@pytest.mark.parametrize("width", [1, 4])
def test_hypotheses_see_their_own_past(width: int) -> None:
    torch.manual_seed(2)
    state, oracle = new_state(), CopiedPast(B)
    rows, w = list(range(B)), 1
    for step in range(3 * STEPS_AHEAD):
        state.begin_step(len(rows) * w)
        assert state.length == step + 1
        for layer in range(LAYERS):
            queries, keys = torch.randn(2, len(rows), w, H, D_K)
            values = torch.randn(len(rows), w, H, D_V)
            found, _ = attend_beam(queries, *state.append(layer, keys, values), state.lineage[:, None])
            expected = attended(queries, *oracle.append(layer, keys, values))
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
        parents = torch.randint(0, w, (len(rows), width))
        going = {5: [0, 2], 11: [1, 0], 17: [1]}.get(step)
        if going is not None:
            parents = parents[: len(going)]
        rows = going or list(range(len(rows)))
        source = state.source[1][1]
        state.select(parents, None if going is None else torch.tensor(going))
        if going is not None:
            assert state.source_mask is not None and len(state.source_mask) == len(going)
        oracle.select(rows, parents)
        rows, w = list(range(len(rows))), width
        assert state.source[1][1].shape == (len(rows), H, S, D_V)
        assert going is not None or torch.equal(state.source[1][1], source)


def test_sources_follow_their_sentences() -> None:
    torch.manual_seed(3)
    state = new_state()
    keys = state.source[0][0].clone()
    for order in ([2, 0], [1, 1, 0]):  # fewer, then more than there are
        state.select(torch.zeros(len(order), 1, dtype=torch.long), torch.tensor(order))
        keys = keys[order]
        assert torch.equal(state.source[0][0], keys)


def test_what_no_hypothesis_descends_from_is_thrown_out() -> None:
    state = new_state()
    for step in range(3 * STEPS_AHEAD):
        width = 4 if step else 1
        state.begin_step(B * width)
        for layer in range(LAYERS):
            state.append(layer, torch.randn(B, width, H, D_K), torch.randn(B, width, H, D_V))
        state.select(torch.zeros(B, 4, dtype=torch.long))  # all go on from the first
    assert state.lineage.eq(0).sum(dim=2).eq(3 * STEPS_AHEAD).all()  # each sees its past
    assert state.lineage.size(2) < 3 * STEPS_AHEAD + 4 * STEPS_AHEAD + ROOM_MULTIPLE  # and there are few other nodes
    assert state.lineage.size(2) % ROOM_MULTIPLE == 0


def test_a_hypothesis_does_not_see_its_neighbours() -> None:
    state = new_state(1)
    state.begin_step(3)
    seen = [[0.0 if i == j else -math.inf for j in range(state.lineage.size(2))] for i in range(3)]
    assert state.lineage.tolist() == [seen]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_keys_and_values_are_kept_in_the_given_type(dtype: torch.dtype) -> None:
    source = [(torch.randn(1, H, S, D_K), torch.randn(1, H, S, D_V))]
    state = DecodingState(source, None, dtype)
    state.begin_step(1)
    keys, values = state.append(0, torch.ones(1, 1, H, D_K), torch.ones(1, 1, H, D_V))
    assert {one.dtype for one in (keys, values, state.lineage)} == {dtype}
    found, weights = attend_beam(torch.ones(1, 1, H, D_K), keys, values, state.lineage[:, None])
    assert (found.dtype, weights.dtype) == (torch.float32, dtype)
    assert found.eq(1.0).all()


def test_the_source_keeps_its_type() -> None:
    source = [(torch.randn(1, H, S, D_K), torch.randn(1, H, S, D_V))]
    (keys, values), *_ = DecodingState(source, None, torch.bfloat16).source
    assert torch.equal(keys, source[0][0].transpose(2, 3)) and keys.is_contiguous()
    assert torch.equal(values, source[0][1])


def test_rows_that_are_no_hypotheses() -> None:
    state = new_state()
    state.begin_step(2 * B)
    with pytest.raises(ValueError, match=r"^there are 3 sentences with 2 hypotheses each, but 9 tokens to add$"):
        state.begin_step(3 * B)
