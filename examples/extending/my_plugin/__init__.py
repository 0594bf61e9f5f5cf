"""Somebody else's plugin, built on vaswani_plugin: an architecture, a criterion and a learning-rate schedule.

With vaswani_plugin installed, and this folder as ``--user-dir``::

    fairseq-train data-bin --user-dir examples/extending/my_plugin \\
        --arch my_deep_encoder --criterion my_confidence_penalty --entropy-weight 0.1 \\
        --lr-scheduler my_warmup_hold_decay --warmup-updates 4000 --hold-updates 2000 --lr 7e-4 \\
        --task vaswani_translation --optimizer adam --adam-betas '(0.9, 0.98)' --max-tokens 4096
"""

# Modules that define a toolkit dataclass do not use "from __future__ import annotations".
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Tuple

from fairseq.criterions import register_criterion
from fairseq.dataclass import FairseqDataclass
from fairseq.optim.lr_scheduler import FairseqLRScheduler, register_lr_scheduler
from omegaconf import II
from torch import Tensor

# Importing anything of vaswani_plugin registers all of its own components too.
from vaswani_plugin.architectures import register_architecture
from vaswani_plugin.criterion import (
    VaswaniLabelSmoothedCrossEntropy,
    VaswaniLabelSmoothedCrossEntropyConfig,
    scored_tokens,
)
from vaswani_plugin.schedule import inverse_sqrt_learning_rate
from vaswani_plugin.smoothing import smoothed_cross_entropy

# An architecture: the base model with some options changed. Options on the command line win.
register_architecture("my_deep_encoder", {"encoder_layers": 12, "decoder_layers": 2})


@dataclass
class MyConfidencePenaltyConfig(VaswaniLabelSmoothedCrossEntropyConfig):
    """The options of our criterion, and one more."""

    entropy_weight: float = field(default=0.1, metadata={"help": "how much entropy of the output is rewarded"})


@register_criterion("my_confidence_penalty", dataclass=MyConfidencePenaltyConfig)
class MyConfidencePenalty(VaswaniLabelSmoothedCrossEntropy):
    """Smoothed cross entropy minus ``entropy_weight`` times the entropy of the output (Pereyra et al. 2017)."""

    def __init__(self, task: Any, sentence_avg: bool, label_smoothing: float, entropy_weight: float) -> None:
        super().__init__(task, sentence_avg, label_smoothing)
        self.entropy_weight = entropy_weight

    def forward(self, model: Any, sample: Dict[str, Any], reduce: bool = True) -> Tuple[Tensor, int, Dict[str, Any]]:
        """The loss, summed over the N tokens that count."""
        scored = scored_tokens(sample["target"], self.padding_idx)
        log_probs = model.get_normalized_probs(model(**sample["net_input"]), log_probs=True)[scored]  # (N, V)
        losses, nlls = smoothed_cross_entropy(log_probs, sample["target"][scored], self.eps)
        entropy = -(log_probs.exp() * log_probs).sum()
        loss = losses.sum() - self.entropy_weight * entropy
        n_sentences, n_tokens = sample["target"].size(0), sample["ntokens"]
        sample_size = n_sentences if self.sentence_avg else n_tokens
        logging_output = {
            "loss": loss.detach(),
            "nll_loss": nlls.sum().detach(),
            "ntokens": n_tokens,
            "nsentences": n_sentences,
            "sample_size": sample_size,
        }
        return loss, sample_size, logging_output


@dataclass
class MyWarmupHoldDecayConfig(FairseqDataclass):
    """Options of ``my_warmup_hold_decay``."""

    warmup_updates: int = field(default=4000, metadata={"help": "updates of linear warm-up"})
    hold_updates: int = field(default=1000, metadata={"help": "updates at the peak before the rate decays"})
    lr: List[float] = II("optimization.lr")


@register_lr_scheduler("my_warmup_hold_decay", dataclass=MyWarmupHoldDecayConfig)
class MyWarmupHoldDecay(FairseqLRScheduler):
    """The paper's schedule with ``--lr`` as its peak, held there for a while."""

    def __init__(self, cfg: MyWarmupHoldDecayConfig, optimizer: Any) -> None:
        super().__init__(cfg, optimizer)
        self.step_update(0)

    def step(self, epoch: int, val_loss: Optional[float] = None) -> float:
        """Nothing changes at the end of an epoch."""
        super().step(epoch, val_loss)
        return float(self.optimizer.get_lr())

    def step_update(self, num_updates: int) -> float:
        """Set the rate of the update that follows ``num_updates`` finished ones."""
        step = num_updates + 1
        if step > self.cfg.warmup_updates:
            step = max(self.cfg.warmup_updates, step - self.cfg.hold_updates, 1)
        self.optimizer.set_lr(inverse_sqrt_learning_rate(step, self.cfg.lr[0], self.cfg.warmup_updates))
        return float(self.optimizer.get_lr())
