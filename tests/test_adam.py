"""``vaswani_adam``: the toolkit's numbers from torch's kernel, and checkpoints that both optimizers read."""

from __future__ import annotations

import copy
import math
from typing import Any, List

import pytest
import torch
from fairseq.optim.adam import Adam, FairseqAdam
from toolkit_runner import CopyTask, run, tiny_train_args
from torch import Tensor, nn

import vaswani_plugin  # noqa: F401
from vaswani_plugin.adam import FusedAdam, VaswaniAdam, VaswaniAdamConfig, rescaled_eps
from vaswani_plugin.toolkit import load_checkpoint

SHAPES = [(7, 5), (3,), (11, 2, 2)]


def parameters() -> List[nn.Parameter]:
    torch.manual_seed(3)
    return [nn.Parameter(torch.randn(shape)) for shape in SHAPES]


def set_gradients(step: int, *models: List[nn.Parameter], scale: float = 1.0) -> None:
    torch.manual_seed(100 + step)
    for shape, same in zip(SHAPES, list(zip(*models))):
        gradient = torch.randn(shape) * scale
        for parameter in same:
            parameter.grad = gradient.clone().to(parameter.dtype)


def by_hand(weight: float, gradients: List[float], lr: float, betas: Any, eps: float, decay: float) -> float:
    """Adam on one number in Python's floats."""
    m = v = 0.0
    for k, g in enumerate(gradients, start=1):
        m = betas[0] * m + (1 - betas[0]) * g
        v = betas[1] * v + (1 - betas[1]) * g * g
        weight -= decay * lr * weight
        weight -= lr * math.sqrt(1 - betas[1] ** k) / (1 - betas[0] ** k) * m / (math.sqrt(v) + eps)
    return weight


@pytest.mark.parametrize("eps", [1e-9, 0.5], ids=["paper's epsilon", "large epsilon"])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_one_number_by_hand(eps: float, decay: float) -> None:
    """A large epsilon tells the toolkit's formula from torch's."""
    weight = nn.Parameter(torch.tensor([0.7]))
    optimizer = FusedAdam([weight], lr=0.1, betas=(0.9, 0.98), eps=eps, weight_decay=decay)
    gradients = [0.3, -0.2, 0.5, 0.01]
    for gradient in gradients:
        weight.grad = torch.tensor([gradient])
        optimizer.step()
    assert weight.item() == pytest.approx(by_hand(0.7, gradients, 0.1, (0.9, 0.98), eps, decay), rel=1e-5)


@pytest.mark.parametrize("scale", [1.0, 1e-6], ids=["", "tiny gradients"])
def test_the_toolkits_numbers(scale: float) -> None:
    mine, theirs = parameters(), parameters()
    options = {"lr": 0.01, "betas": (0.9, 0.98), "eps": 1e-9, "weight_decay": 0.01}
    ours, toolkits = FusedAdam(mine, **options), Adam(theirs, **options)
    for step in range(20):
        set_gradients(step, mine, theirs, scale=scale)
        ours.step()
        toolkits.step()
    for one, other in zip(mine, theirs):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
        for what in ("exp_avg", "exp_avg_sq"):
            torch.testing.assert_close(ours.state[one][what], toolkits.state[other][what], rtol=1e-5, atol=0)
        assert ours.state[one]["step"] == toolkits.state[other]["step"] == 20


def test_epsilon_grows_towards_its_own_value_as_the_correction_fades() -> None:
    assert rescaled_eps(1e-9, 0.98, 1) == pytest.approx(1e-9 / math.sqrt(0.02))
    assert rescaled_eps(1e-9, 0.98, 10_000) == pytest.approx(1e-9)


def test_a_parameter_without_gradient_stands_still_and_counts_no_step() -> None:
    mine = parameters()
    before = mine[1].detach().clone()
    optimizer = FusedAdam(mine, lr=0.01, betas=(0.9, 0.98), eps=1e-9)
    for step in range(3):
        set_gradients(step, mine)
        if step < 2:
            mine[1].grad = None
            assert torch.equal(mine[1], before)
        optimizer.step()
    assert [optimizer.state[parameter]["step"] for parameter in mine] == [3, 1, 3]


def test_a_step_may_compute_the_loss_anew() -> None:
    weight = nn.Parameter(torch.tensor([2.0]))
    optimizer = FusedAdam([weight], lr=0.01)

    def closure() -> Tensor:
        loss = (weight**2).sum()
        optimizer.zero_grad()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == 4.0
    assert weight.item() == pytest.approx(1.99)


@pytest.mark.parametrize("case", ["half precision", "amsgrad"])
def test_what_the_kernel_cannot_do_is_done_by_the_toolkits_loop(half: torch.dtype, case: str) -> None:
    models = [parameters(), parameters()]
    if case == "half precision":
        for parameter in [*models[0], *models[1]]:
            parameter.data = parameter.data.to(half)
    options = {"lr": 0.01, "betas": (0.9, 0.98), "eps": 1e-9, "amsgrad": case == "amsgrad"}
    optimizers = [FusedAdam(models[0], **options), Adam(models[1], **options)]
    for step in range(3):
        set_gradients(step, *models)
        for optimizer in optimizers:
            optimizer.step()
    for one, other in zip(*models):
        assert torch.equal(one, other)
    assert optimizers[0].state[models[0][0]]["exp_avg"].dtype == torch.float32


@pytest.mark.parametrize("first", [FusedAdam, Adam])
def test_state_moves_either_way(first: Any) -> None:
    second = Adam if first is FusedAdam else FusedAdam
    begun, straight = parameters(), parameters()
    options = {"lr": 0.01, "betas": (0.9, 0.98), "eps": 1e-9}
    one, whole = first(begun, **options), first(straight, **options)
    for step in range(3):
        set_gradients(step, begun, straight)
        one.step()
        whole.step()
    other = second(begun, **options)
    other.load_state_dict(copy.deepcopy(one.state_dict()))
    for step in range(3, 6):
        set_gradients(step, begun, straight)
        other.step()
        whole.step()
    for moved, stayed in zip(begun, straight):
        torch.testing.assert_close(moved, stayed, rtol=1e-5, atol=1e-6)


def test_the_papers_constants_are_the_defaults() -> None:
    config = VaswaniAdamConfig()
    assert (config.adam_betas, config.adam_eps, config.weight_decay) == ((0.9, 0.98), 1e-9, 0.0)


def test_the_old_loop_can_be_asked_for() -> None:
    config = VaswaniAdamConfig(adam_betas="(0.9, 0.98)", lr=[0.1])  # type: ignore[arg-type]
    assert type(VaswaniAdam(config, parameters()).optimizer) is FusedAdam
    config.use_old_adam = True
    assert type(VaswaniAdam(config, parameters()).optimizer) is Adam


def test_the_name_in_checkpoints_is_the_toolkits() -> None:
    assert VaswaniAdam.__name__ == FairseqAdam.__name__


def test_a_run_goes_on_with_the_other_optimizer(copy_task: CopyTask, tmp_path: Any) -> None:
    def train(folder: str, updates: int, optimizer: str) -> Any:
        options = ["--optimizer", optimizer, "--no-epoch-checkpoints", "--disable-validation"]
        result = run("fairseq-train", *tiny_train_args(copy_task.bin, tmp_path / folder, updates=updates), *options)
        return load_checkpoint((result.ok(), tmp_path / folder / "checkpoint_last.pt")[1])

    train("moved", 6, "vaswani_adam")
    moved = train("moved", 12, "adam")
    train("back", 6, "adam")
    back = train("back", 12, "vaswani_adam")
    straight = train("straight", 12, "vaswani_adam")
    for state in (moved, back):
        assert state["optimizer_history"][-1]["num_updates"] == 12
        assert {entry["step"] for entry in state["last_optimizer_state"]["state"].values()} == {12}
        for name, weight in straight["model"].items():
            if not name.endswith("k_proj.bias"):  # whose gradient is nothing but rounding, which Adam makes large
                torch.testing.assert_close(state["model"][name], weight, rtol=0, atol=1e-4)
