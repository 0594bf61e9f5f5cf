"""The paper's learning rate as a scheduler of the toolkit: a shell around ``schedule``."""

import logging
from dataclasses import dataclass, field
from typing import Any, List, Optional

from fairseq.dataclass import FairseqDataclass
from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.optim.lr_scheduler import FairseqLRScheduler, register_lr_scheduler
from omegaconf import II, OmegaConf

from .schedule import inverse_sqrt_learning_rate, peak_learning_rate

logger = logging.getLogger(__name__)

NAME = "vaswani_inverse_sqrt"
#: What the toolkit's ``--lr`` is when nobody gives it and no component changes it.
_TOOLKIT_LR = 0.25


@dataclass
class VaswaniInverseSqrtConfig(FairseqDataclass):
    """Options of ``vaswani_inverse_sqrt``."""

    warmup_updates: int = field(default=4000, metadata={"help": "updates of linear warm-up"})
    warmup_init_lr: float = field(
        default=0.0, metadata={"help": "where the warm-up starts, one update before the first; the paper's is 0"}
    )
    schedule_dim: Optional[int] = field(
        default=None, metadata={"help": "the paper's d_model in the learning rate (default: the decoder's width)"}
    )
    formula_lr: float = field(
        default=_TOOLKIT_LR, metadata={"help": "the --lr that stands for the paper's formula, and not for a peak"}
    )
    lr: List[float] = II("optimization.lr")


def tell_scheduler(model_options: Any, d_model: int) -> None:
    """Write the model's width into this scheduler's options, unless somebody has given another.

    The toolkit shows a scheduler only its own options and the optimizer, so the model has to say how wide it is.

    Args:
        model_options: the model's node in the toolkit's configuration; anything else is left alone.
    """
    if not OmegaConf.is_config(model_options):
        return
    scheduler = OmegaConf.select(model_options._get_root(), "lr_scheduler")
    if OmegaConf.is_config(scheduler) and scheduler.get("_name") == NAME and scheduler.get("schedule_dim") is None:
        OmegaConf.set_struct(scheduler, False)
        scheduler.schedule_dim = d_model


@register_lr_scheduler(NAME, dataclass=VaswaniInverseSqrtConfig)
class VaswaniInverseSqrtSchedule(FairseqLRScheduler):
    """Linear warm-up, then decay with the inverse square root. Source: Vaswani et al. 2017, section 5.3.

    The k-th update uses the formula's value at step k, from k = 1. A ``--lr`` that somebody gives is the peak;
    without it the peak is the paper's, ``d_model^-0.5 * warmup^-0.5``.

    Differs from: the toolkit's ``inverse_sqrt``, whose peak is always ``--lr`` and whose first update has rate 0.

    Raises:
        ValueError: several rates, a negative warm-up, a rate below 0, or no rate and no width.
    """

    def __init__(self, cfg: VaswaniInverseSqrtConfig, optimizer: Any) -> None:
        super().__init__(cfg, optimizer)
        self.peak = self._peak(cfg)
        if cfg.warmup_init_lr < 0:
            raise ValueError(f"--warmup-init-lr must be 0 or more, but is {cfg.warmup_init_lr}")
        self.lr = self.step_update(0)

    @staticmethod
    def _peak(cfg: VaswaniInverseSqrtConfig) -> float:
        rates = [cfg.lr] if isinstance(cfg.lr, (int, float)) else list(cfg.lr)
        if len(rates) != 1:
            raise ValueError(f"{NAME} takes one --lr, the peak, but got {len(rates)}: {rates}")
        if cfg.warmup_updates < 0:
            raise ValueError(f"--warmup-updates must be 0 or more, but is {cfg.warmup_updates}")
        if rates[0] < 0:
            raise ValueError(f"--lr must be 0 or more, but is {rates[0]}")
        if rates[0] != cfg.formula_lr:
            logger.info("learning rate: peak %g, as --lr says, at update %d", rates[0], max(cfg.warmup_updates, 1))
            return float(rates[0])
        if cfg.schedule_dim is None:
            raise ValueError(f"{NAME} does not know the width of this model; give --schedule-dim, or a peak by --lr")
        peak = peak_learning_rate(cfg.schedule_dim, cfg.warmup_updates)
        logger.info(
            "learning rate: the paper's formula with d_model %d and warm-up %d, peak %g",
            cfg.schedule_dim,
            cfg.warmup_updates,
            peak,
        )
        return peak

    @classmethod
    def add_args(cls, parser: Any) -> None:
        """Add the options, and make the paper's formula what an absent ``--lr`` means."""
        gen_parser_from_dataclass(parser, VaswaniInverseSqrtConfig())
        parser.set_defaults(lr=[0.0], formula_lr=0.0)

    def step(self, epoch: int, val_loss: Optional[float] = None) -> float:
        """Nothing changes at the end of an epoch."""
        super().step(epoch, val_loss)
        return float(self.optimizer.get_lr())

    def step_update(self, num_updates: int) -> float:
        """Set the rate of the update that follows ``num_updates`` finished ones, the formula's at that number + 1."""
        self.lr = inverse_sqrt_learning_rate(
            num_updates + 1, self.peak, self.cfg.warmup_updates, self.cfg.warmup_init_lr
        )
        self.optimizer.set_lr(self.lr)
        return self.lr
