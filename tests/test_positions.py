"""Positional encodings against the published values, the formula in plain Python, and their properties."""

from __future__ import annotations

import math

import pytest
import torch

from vaswani_plugin.positions import (
    LearnedPositions,
    SinusoidalPositions,
    concatenated_sinusoids,
    interleaved_sinusoids,
)

PAD = 1


def sinusoid_oracle(position: int, column: int, d_model: int) -> float:
    angle = position / 10000 ** ((column - column % 2) / d_model)
    return math.cos(angle) if column % 2 else math.sin(angle)


@pytest.mark.parametrize("d_model", [1, 2, 6, 7, 10, 512])
def test_interleaved_sinusoids_follow_the_formula(d_model: int) -> None:
    table = interleaved_sinusoids(50, d_model)
    expected = [[sinusoid_oracle(p, c, d_model) for c in range(d_model)] for p in range(50)]
    torch.testing.assert_close(table, torch.tensor(expected), rtol=0, atol=1e-6)


def test_published_values() -> None:
    row = interleaved_sinusoids(2, 4)[1]
    torch.testing.assert_close(row, torch.tensor([0.841471, 0.540302, 0.0099998, 0.9999500]), rtol=0, atol=1e-6)


@pytest.mark.parametrize("shift", [1, 7, 100])
def test_a_shift_of_positions_is_one_rotation_per_frequency(shift: int) -> None:
    d_model = 8
    table = interleaved_sinusoids(300, d_model).double()
    for pair in range(d_model // 2):
        angle = shift / 10000 ** (2 * pair / d_model)
        rotation = torch.tensor([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
        here = table[: 300 - shift, 2 * pair : 2 * pair + 2]
        torch.testing.assert_close(
            here @ rotation.double().T, table[shift:, 2 * pair : 2 * pair + 2], rtol=0, atol=2e-5
        )


@pytest.mark.parametrize("d_model", [2, 6, 7, 10, 512])
def test_concatenated_sinusoids_are_the_toolkits(d_model: int) -> None:
    from fairseq.modules import SinusoidalPositionalEmbedding

    table = concatenated_sinusoids(50, d_model)
    assert table.shape == (50, d_model)
    assert table.isfinite().all()
    if d_model > 3:  # the toolkit divides by d_model // 2 - 1
        theirs = SinusoidalPositionalEmbedding.get_embedding(52, d_model, None)[2:]
        torch.testing.assert_close(table, theirs, rtol=0, atol=1e-5)


@pytest.mark.parametrize("layout", ["interleaved", "concatenated"])
def test_positions_count_tokens_and_not_padding(layout: str) -> None:
    positions = SinusoidalPositions(6, PAD, layout)
    tokens = torch.tensor([[PAD, PAD, 5, 6, 2], [5, 6, 2, PAD, PAD]])
    encoded = positions(tokens)
    assert encoded.shape == (2, 5, 6)
    torch.testing.assert_close(encoded[0, 2:], positions.rows(3))
    torch.testing.assert_close(encoded[1, :3], positions.rows(3))
    assert encoded[0, :2].abs().max() == 0
    assert encoded[1, 3:].abs().max() == 0
    torch.testing.assert_close(positions.at(2), encoded[1, 2])


def test_sinusoids_know_no_length_limit_and_leave_nothing_in_checkpoints() -> None:
    positions = SinusoidalPositions(4, PAD)
    assert not positions.state_dict()
    encoded = positions(torch.full((1, 5003), 7))
    torch.testing.assert_close(encoded[0], interleaved_sinusoids(5003, 4))
    positions.half()
    assert positions(torch.full((1, 20011), 7)).dtype == torch.float16


@pytest.mark.parametrize(
    ("d_model", "layout", "message"),
    [
        (4, "spiral", r"^positional layout must be one of interleaved, concatenated, but is 'spiral'$"),
        (0, "interleaved", r"^d_model must be at least 1, but is 0$"),
    ],
)
def test_sinusoid_errors(d_model: int, layout: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SinusoidalPositions(d_model, PAD, layout)


def test_learned_positions_are_stored_as_the_toolkits_and_read_alike() -> None:
    from fairseq.modules import LearnedPositionalEmbedding

    ours = LearnedPositions(5, 3, PAD)
    theirs = LearnedPositionalEmbedding(5 + PAD + 1, 3, PAD)
    theirs.load_state_dict(ours.state_dict())
    tokens = torch.tensor([[PAD, 5, 6, 7, 2], [5, 6, 2, PAD, PAD]])
    torch.testing.assert_close(ours(tokens), theirs(tokens))
    torch.testing.assert_close(ours.at(2), ours(tokens)[1, 2])
    assert ours(tokens)[0, 0].abs().max() == 0


def test_learned_positions_refuse_what_they_do_not_reach() -> None:
    message = (
        r"^learned positions reach 5 tokens, but a sentence has 6; train with more --max-source-positions and "
        r"--max-target-positions, or with sinusoids, which know no limit$"
    )
    positions = LearnedPositions(5, 3, PAD)
    with pytest.raises(ValueError, match=message):
        positions(torch.full((1, 6), 7))
    with pytest.raises(ValueError, match=message):
        positions.at(5)
