"""Adam: section 5.3 of "Attention Is All You Need" (Vaswani et al. 2017), as an optimizer of the toolkit.

``--optimizer vaswani_adam`` is the toolkit's ``adam`` with torch's fused kernel, which walks through weights, gradients
and moments once instead of a dozen times, and with the paper's constants as defaults. Checkpoints are the same: a run
that was begun with one of the two goes on with the other.
"""

import math
import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch
from fairseq.optim import register_optimizer
from fairseq.optim.adam import Adam, FairseqAdam, FairseqAdamConfig
from torch import Tensor
from torch.optim.adamw import adamw

#: Since version 2.4 torch has its fused kernel for CPUs too.
_FUSED_ON_CPU = tuple(int(part) for part in re.findall(r"\d+", torch.__version__)[:2]) >= (2, 4)
_FUSED_DEVICES = ("cuda", "cpu") if _FUSED_ON_CPU else ("cuda",)


def rescaled_eps(eps: float, beta2: float, step: int) -> float:
    """The epsilon that makes torch's Adam the toolkit's.

    The toolkit divides by ``sqrt(v) + eps``, torch by ``sqrt(v / c) + eps`` with ``c = 1 - beta2^step``; with this
    epsilon, ``eps / sqrt(c)``, torch's quotient is the toolkit's times ``sqrt(c)``, which the toolkit multiplies by.
    """
    return float(eps / math.sqrt(1.0 - beta2**step))


class FusedAdam(Adam):
    """The toolkit's Adam, state included, computed by torch's fused kernel.

    ``m = b1 m + (1 - b1) g``, ``v = b2 v + (1 - b2) g^2`` and
    ``w = w - lr * sqrt(1 - b2^k) / (1 - b1^k) * m / (sqrt(v) + eps)`` at step k.

    Source: Kingma and Ba 2015, with the order of operations of their section 2, last paragraph; weight decay is that of
    Loshchilov and Hutter 2019. What the kernel cannot do (half precision, AMSGrad) is left to the toolkit's loop.
    """

    @torch.no_grad()
    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:
        """Update the parameters that have gradients.

        Args:
            closure: computes the loss anew and returns it.
        """
        if not all(self._is_fusable(group) for group in self.param_groups):
            return super().step(closure)
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for (step, _), parameters in self._by_step(group).items():
                self._update(group, step, parameters)
        return loss

    @staticmethod
    def _is_fusable(group: Dict[str, Any]) -> bool:
        return not group.get("amsgrad", False) and all(
            parameter.dtype == torch.float32
            and parameter.device.type in _FUSED_DEVICES
            and (parameter.grad is None or (parameter.grad.dtype == torch.float32 and not parameter.grad.is_sparse))
            for parameter in group["params"]
        )

    def _by_step(self, group: Dict[str, Any]) -> Dict[Tuple[int, torch.device], List[Tensor]]:
        """The parameters that have gradients, by the number of their step and by device, their state ready for it."""
        found: Dict[Tuple[int, torch.device], List[Tensor]] = defaultdict(list)
        for parameter in group["params"]:
            if parameter.grad is None:
                continue
            state = self.state[parameter]
            if not state:
                state.update(step=0, exp_avg=torch.zeros_like(parameter), exp_avg_sq=torch.zeros_like(parameter))
            state["step"] += 1
            found[int(state["step"]), parameter.device].append(parameter)
        return found

    def _update(self, group: Dict[str, Any], step: int, parameters: List[Tensor]) -> None:
        states = [self.state[parameter] for parameter in parameters]
        steps = torch.full((len(parameters),), step - 1.0, device=parameters[0].device)  # which torch counts up
        beta1, beta2 = group["betas"]
        adamw(
            parameters,
            [parameter.grad for parameter in parameters if parameter.grad is not None],
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [],
            list(steps.unbind()),
            fused=True,
            amsgrad=False,
            beta1=beta1,
            beta2=beta2,
            lr=group["lr"],
            weight_decay=group["weight_decay"],
            eps=rescaled_eps(group["eps"], beta2, step),
            maximize=False,
        )


@dataclass
class VaswaniAdamConfig(FairseqAdamConfig):
    """Options of ``vaswani_adam``: the toolkit's, with the paper's constants."""

    adam_betas: Any = field(default=(0.9, 0.98), metadata={"help": "beta_1 and beta_2"})
    adam_eps: float = field(default=1e-9, metadata={"help": "epsilon"})


@register_optimizer("vaswani_adam", dataclass=VaswaniAdamConfig)
class VaswaniAdam(FairseqAdam):
    """Adam with beta_1 = 0.9, beta_2 = 0.98 and epsilon = 1e-9. Source: Vaswani et al. 2017, section 5.3.

    Differs from: the toolkit's ``adam`` in speed and in rounding.
    """

    def __init__(self, cfg: VaswaniAdamConfig, params: Any) -> None:
        params = list(params)
        super().__init__(cfg, params)
        if type(self.optimizer) is Adam and not cfg.use_old_adam:  # not where apex's fused kernel has been found
            self._optimizer = FusedAdam(params, **self.optimizer_config)


# Checkpoints carry this name, and the toolkit resumes from a name that it knows only.
VaswaniAdam.__name__ = FairseqAdam.__name__
