"""TorchScript, which the README says is not supported: the day one of these passes, it is."""

from __future__ import annotations

import io

import pytest
import torch
from test_generator import WORDS, model

UNSUPPORTED = "TorchScript compiles neither the decoding state nor the search"


@pytest.mark.xfail(strict=True, reason=UNSUPPORTED)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_scripted_model_gives_the_same_logits() -> None:
    ours = model(1).eval()
    scripted = torch.jit.script(ours)
    saved = io.BytesIO()
    torch.jit.save(scripted, saved)
    saved.seek(0)
    tokens = torch.tensor([[7, 5, WORDS.eos()]])
    lengths = torch.tensor([3])
    expected = ours(tokens, lengths, tokens)[0]
    torch.testing.assert_close(torch.jit.load(saved)(tokens, lengths, tokens)[0], expected, rtol=0, atol=1e-5)


@pytest.mark.xfail(strict=True, reason=UNSUPPORTED)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_toolkits_generator_can_be_scripted() -> None:
    from fairseq.sequence_generator import SequenceGenerator

    ours = model(1).eval()
    torch.jit.script(SequenceGenerator([ours], ours.decoder.dictionary, beam_size=2))
