"""Fresh models of ours start as fresh models of the toolkit do."""

from __future__ import annotations

from argparse import Namespace

import pytest
import torch
from fairseq.models.transformer import TransformerModel
from fairseq.models.transformer.transformer_legacy import base_architecture
from test_architectures import JointTask

from vaswani_plugin.transformer import VaswaniTransformer


@pytest.mark.parametrize("tie", ["all", "none"])
def test_every_weight_is_drawn_from_the_toolkits_distribution(tie: str) -> None:
    options = Namespace(
        **{f"{side}_{key}": value for side in ("encoder", "decoder") for key, value in SIZES.items()},
        share_all_embeddings=tie == "all",
        max_source_positions=64,
        max_target_positions=64,
    )
    base_architecture(options)
    task = JointTask(500)
    torch.manual_seed(1)
    theirs = TransformerModel.build_model(options, task).state_dict()
    ours = VaswaniTransformer.build_model(Namespace(**vars(options), tie_embeddings=tie), task).state_dict()
    for name, weight in ours.items():
        other = theirs[name]
        if float(other.std()) == 0:
            assert torch.equal(weight, other), name
        else:
            # two samples of n numbers each differ in their deviation by about 1 / sqrt(n) of it
            tolerance = 5 / weight.numel() ** 0.5
            assert float(weight.std() / other.std()) == pytest.approx(1, abs=tolerance), name
            assert float(weight.abs().max() / other.abs().max()) == pytest.approx(1, abs=0.25), name


SIZES = {"embed_dim": 64, "ffn_embed_dim": 160, "layers": 1, "attention_heads": 4}
