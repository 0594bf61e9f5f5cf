"""The criterion: what it counts, what it logs, and when it computes projection and loss together."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from fairseq.logging import metrics
from test_architectures import SMALL, JointTask
from torch import Tensor, nn

import vaswani_plugin  # noqa: F401
from vaswani_plugin import layers, linear
from vaswani_plugin.config import VaswaniConfig
from vaswani_plugin.criterion import VaswaniLabelSmoothedCrossEntropy, output_projection, scored_tokens
from vaswani_plugin.transformer import VaswaniTransformer

PAD, EOS, V = 1, 2, 20


class Task(JointTask):
    """What a criterion asks of a task."""


def small_model(**options: Any) -> VaswaniTransformer:
    torch.manual_seed(5)
    return VaswaniTransformer.build_model(VaswaniConfig(**{**SMALL, "dropout": 0.0, **options}), Task(V))


def criterion(eps: float = 0.1, **options: Any) -> VaswaniLabelSmoothedCrossEntropy:
    return VaswaniLabelSmoothedCrossEntropy(Task(V), sentence_avg=False, label_smoothing=eps, **options)


def sample(lengths: tuple[int, ...] = (5, 3, 5), left: bool = False, extra_padding: int = 0) -> dict[str, Any]:
    torch.manual_seed(6)
    width = max(lengths) + extra_padding
    target = torch.full((len(lengths), width), PAD)
    for i, length in enumerate(lengths):
        words = torch.cat((torch.randint(4, V, (length - 1,)), torch.tensor([EOS])))
        start = width - length if left else 0
        target[i, start : start + length] = words
    shifted = torch.full_like(target, PAD)
    for i, length in enumerate(lengths):
        start = width - length if left else 0
        shifted[i, start] = EOS
        shifted[i, start + 1 : start + length] = target[i, start : start + length - 1]
    torch.manual_seed(7)
    source = torch.randint(4, V, (len(lengths), 4))
    net_input = {"src_tokens": source, "src_lengths": torch.full((len(lengths),), 4), "prev_output_tokens": shifted}
    return {"net_input": net_input, "target": target, "ntokens": sum(lengths)}


def gradients(loss: Tensor, model: nn.Module) -> list[Tensor]:
    return list(torch.autograd.grad(loss, list(model.parameters())))


def test_chunked_and_plain_losses_agree() -> None:
    model = small_model()
    chunked, size, log = criterion()(model, sample())
    plain, plain_size, plain_log = criterion(report_accuracy=True)(model, sample())
    assert (size, plain_size, log["nsentences"]) == (13, 13, 3)
    torch.testing.assert_close(chunked, plain)
    torch.testing.assert_close(log["nll_loss"], plain_log["nll_loss"])
    for mine, other in zip(gradients(chunked, model), gradients(plain, model)):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-6)
    assert 0 <= int(plain_log["n_correct"]) <= 13


@pytest.mark.parametrize("report_accuracy", [False, True])
def test_padding_changes_neither_loss_nor_counts_nor_gradients(report_accuracy: bool) -> None:
    model = small_model()
    one, size, log = criterion(report_accuracy=report_accuracy)(model, sample())
    two, padded_size, padded_log = criterion(report_accuracy=report_accuracy)(model, sample(extra_padding=5))
    assert (size, log["ntokens"]) == (padded_size, padded_log["ntokens"])
    torch.testing.assert_close(one, two, rtol=1e-6, atol=0)
    torch.testing.assert_close(log["nll_loss"], padded_log["nll_loss"], rtol=1e-6, atol=0)
    for mine, other in zip(gradients(one, model), gradients(two, model)):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-6)


def reduced(logs: list[dict[str, Any]]) -> dict[str, float]:
    with metrics.aggregate(new_root=True) as agg:
        VaswaniLabelSmoothedCrossEntropy.reduce_metrics(logs)
        return dict(agg.get_smoothed_values())


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("report_accuracy", [False, True])
def test_an_ignored_prefix_is_left_out_of_loss_and_average(report_accuracy: bool, left: bool) -> None:
    model = small_model(tie_embeddings="none")
    nn.init.zeros_(model.decoder.output_projection.weight)  # every token has probability 1 / V
    lengths = (5, 3) if left else (5, 5, 5)
    _, size, log = criterion(ignore_prefix_size=1, report_accuracy=report_accuracy)(model, sample(lengths, left))
    assert size == log["ntokens"] == sum(lengths) - len(lengths)
    values = reduced([log])
    assert values["nll_loss"] == pytest.approx(math.log2(V), abs=1e-3)
    assert values["ppl"] == pytest.approx(V, abs=0.02)


def test_scored_tokens_skip_real_tokens_on_either_side() -> None:
    target = torch.tensor([[PAD, PAD, 5, 6, 2], [5, 6, 2, PAD, PAD]])
    assert scored_tokens(target, PAD, 1).int().tolist() == [[0, 0, 0, 1, 1], [0, 1, 1, 0, 0]]
    assert scored_tokens(target, PAD, 9).sum() == 0


def test_a_prefix_longer_than_every_sentence_gives_zero() -> None:
    model = small_model()
    loss, size, log = criterion(ignore_prefix_size=9)(model, sample())
    assert (float(loss), size) == (0.0, 0)
    loss.backward()
    assert reduced([log])["loss"] == 0.0


def test_metrics_are_those_of_all_workers_together() -> None:
    model, both = small_model(), sample((5, 3, 5, 2))
    parts = []
    for rows in (slice(0, 1), slice(1, 4)):
        part = {key: value[rows] for key, value in both["net_input"].items()}
        target = both["target"][rows]
        parts.append({"net_input": part, "target": target, "ntokens": int(target.ne(PAD).sum())})
    accurate = criterion(report_accuracy=True)
    whole = reduced([accurate(model, both)[2]])
    split = reduced([accurate(model, part)[2] for part in parts])
    for name in ("loss", "nll_loss", "ppl", "accuracy"):
        assert split[name] == pytest.approx(whole[name], abs=1e-3), name
    logits = model(**both["net_input"])[0]
    right = (logits.argmax(-1) == both["target"])[both["target"].ne(PAD)].float().mean()
    assert whole["accuracy"] == pytest.approx(100 * float(right), abs=1e-3)
    assert "accuracy" not in reduced([criterion()(model, both)[2]])


def test_sentence_average_and_single_losses() -> None:
    model, data = small_model(), sample()
    by_sentence = VaswaniLabelSmoothedCrossEntropy(Task(V), sentence_avg=True, label_smoothing=0.1)
    assert by_sentence(model, data)[1] == 3
    losses, _, _ = criterion()(model, data, reduce=False)
    assert losses.shape == data["target"].shape
    torch.testing.assert_close(losses.sum(), criterion()(model, data)[0])
    assert losses[data["target"].eq(PAD)].abs().sum() == 0


class ModuleProxyWrapper(nn.Module):
    """Stands for the toolkit's wrapper around DDP."""

    def __init__(self, module: nn.Module, find_unused_parameters: bool = False) -> None:
        super().__init__()
        self.module = module
        self.find_unused_parameters = find_unused_parameters


class Sharded(ModuleProxyWrapper):
    """Stands for a wrapper that we know nothing about."""


def test_where_projection_and_loss_are_computed_together() -> None:
    model = small_model()
    projection = model.decoder.output_projection
    assert output_projection(model) is projection
    assert output_projection(ModuleProxyWrapper(model)) is projection
    assert output_projection(ModuleProxyWrapper(model, find_unused_parameters=True)) is None
    assert output_projection(Sharded(model)) is None
    assert output_projection(ModuleProxyWrapper(Sharded(model))) is None
    assert output_projection(nn.Linear(2, 2)) is None


def test_the_toolkits_model_has_its_loss_computed_together_too() -> None:
    from argparse import Namespace

    from fairseq.models.transformer import TransformerModel
    from fairseq.models.transformer.transformer_legacy import tiny_architecture

    args = Namespace(max_source_positions=64, max_target_positions=64, dropout=0.0, attention_dropout=0.0)
    tiny_architecture(args)
    torch.manual_seed(3)
    model = TransformerModel.build_model(args, Task(V)).eval()
    assert output_projection(model) is model.decoder.output_projection
    torch.testing.assert_close(
        criterion()(model, sample())[0], criterion(report_accuracy=True)(model, sample())[0], rtol=1e-5, atol=1e-5
    )


def test_errors() -> None:
    with pytest.raises(ValueError, match=r"^label smoothing must lie in \[0, 1\), but is 1.5$"):
        criterion(1.5)
    with pytest.raises(ValueError, match=r"^--ignore-prefix-size must be 0 or more, but is -1$"):
        criterion(ignore_prefix_size=-1)


@pytest.mark.parametrize("tie", ["all", "decoder", "none"])
def test_gradients_in_training_are_those_of_the_plain_steps(tie: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With dropout: residual sums in place, joint projections and gathered embeddings, against none of them."""
    model = small_model(dropout=0.3, tie_embeddings=tie).train()
    many = sample(lengths=(9,) * 31)

    def seeded() -> list[Tensor]:
        torch.manual_seed(8)
        return gradients(criterion()(model, many)[0], model)

    quick = seeded()
    monkeypatch.setattr(layers, "residual_dropout", lambda x, y, p, training: x + layers.dropout(y, p, training))
    monkeypatch.setattr(linear, "_ROWS_PER_INPUT", 10**9)
    for side in (model.encoder, model.decoder):
        assert side.gathers_gradient == (tie == "all" or (tie == "decoder" and side is model.decoder))
        side.gathers_gradient = False
    for mine, plain in zip(quick, seeded()):
        assert not mine.is_sparse
        torch.testing.assert_close(mine, plain, rtol=1e-3, atol=1e-4 * float(plain.abs().max()) + 1e-4)


def test_a_second_backward_pass_gives_the_same_gradients() -> None:
    model = small_model()
    loss = criterion()(model, sample())[0]
    first = torch.autograd.grad(loss, list(model.parameters()), retain_graph=True)
    for one, other in zip(first, torch.autograd.grad(2 * loss, list(model.parameters()))):
        torch.testing.assert_close(2 * one, other, rtol=1e-4, atol=1e-6)
