"""Label-smoothed cross entropy as a criterion of the toolkit: a shell around ``smoothing``."""

import inspect
import math
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Tuple

from fairseq import utils
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics
from omegaconf import II
from torch import Tensor, nn

from .smoothing import chunked_smoothed_cross_entropy, smoothed_cross_entropy, smoothing_weights

#: Wrappers that leave a module's parameters usable from outside; under others the plain loss is computed.
_TRANSPARENT_WRAPPERS = ("ModuleProxyWrapper", "DistributedDataParallel", "LegacyDistributedDataParallel")


@dataclass
class VaswaniLabelSmoothedCrossEntropyConfig(FairseqDataclass):
    """Options of ``vaswani_label_smoothed_cross_entropy``."""

    label_smoothing: float = field(
        default=0.1, metadata={"help": "eps_ls: the gold token gets 1 - eps, every other eps / (V - 1)"}
    )
    report_accuracy: bool = field(default=False, metadata={"help": "report the share of tokens predicted right"})
    ignore_prefix_size: int = field(
        default=0, metadata={"help": "leave the first N tokens of each target out of loss and averages"}
    )
    sentence_avg: bool = II("optimization.sentence_avg")


def scored_tokens(target: Tensor, padding_idx: int, ignore_prefix_size: int = 0) -> Tensor:
    """Which tokens of target (B, T) count, bool (B, T): all but padding and each sentence's first few."""
    real = target.ne(padding_idx)
    if ignore_prefix_size == 0:
        return real
    return real & (real.cumsum(dim=1) > ignore_prefix_size)


def output_projection(model: nn.Module) -> Optional[nn.Linear]:
    """The model's pre-softmax projection, where projection and loss can be computed together; otherwise None.

    None is the answer for a wrapper that shards or hides parameters, for one that looks for unused parameters (the
    projection would count as one), and for a model whose forward has no ``features_only`` or whose decoder ends in
    anything but one linear layer.
    """
    while hasattr(model, "module") and isinstance(model.module, nn.Module):
        if type(model).__name__ not in _TRANSPARENT_WRAPPERS or getattr(model, "find_unused_parameters", False):
            return None
        model = model.module
    decoder = getattr(model, "decoder", None)
    projection = getattr(decoder, "output_projection", None)
    if not isinstance(projection, nn.Linear) or getattr(decoder, "adaptive_softmax", None) is not None:
        return None
    return projection if "features_only" in inspect.signature(model.forward).parameters else None


@register_criterion("vaswani_label_smoothed_cross_entropy", dataclass=VaswaniLabelSmoothedCrossEntropyConfig)
class VaswaniLabelSmoothedCrossEntropy(FairseqCriterion):
    """Label-smoothed cross entropy, summed over tokens. Source: Vaswani et al. 2017, section 5.4.

    Projection and loss are computed together, a chunk of tokens at a time, wherever ``output_projection`` finds the
    projection and neither single losses nor accuracy are asked for; otherwise the plain form is.

    Raises:
        ValueError: label smoothing outside [0, 1), or a negative prefix.
    """

    def __init__(
        self,
        task: Any,
        sentence_avg: bool,
        label_smoothing: float,
        ignore_prefix_size: int = 0,
        report_accuracy: bool = False,
    ) -> None:
        super().__init__(task)
        smoothing_weights(label_smoothing, 2)
        if ignore_prefix_size < 0:
            raise ValueError(f"--ignore-prefix-size must be 0 or more, but is {ignore_prefix_size}")
        self.sentence_avg = sentence_avg
        self.eps = label_smoothing
        self.ignore_prefix_size = ignore_prefix_size
        self.report_accuracy = report_accuracy

    def forward(self, model: Any, sample: Dict[str, Any], reduce: bool = True) -> Tuple[Tensor, Any, Dict[str, Any]]:
        """The loss of a batch.

        Args:
            reduce: sum over tokens; otherwise the losses come as (B, T), zero where nothing counts.

        Returns:
            Loss in nats, the denominator of the gradient (tokens that count, or sentences), and what to log.
        """
        target = sample["target"]
        scored = scored_tokens(target, self.padding_idx, self.ignore_prefix_size)
        logging_output = {
            "ntokens": int(scored.sum()) if self.ignore_prefix_size else sample["ntokens"],
            "nsentences": target.size(0),
        }
        projection = output_projection(model) if reduce and not self.report_accuracy else None
        if projection is not None:
            features = model(**sample["net_input"], features_only=True)[0]
            loss, nll = chunked_smoothed_cross_entropy(
                features[scored],
                projection.weight,
                projection.bias,
                target[scored],
                self.eps,
                dtype=getattr(projection, "product_dtype", None),
            )
        else:
            net_output = model(**sample["net_input"])
            log_probs = model.get_normalized_probs(net_output, log_probs=True)[scored]
            losses, nlls = smoothed_cross_entropy(log_probs, target[scored], self.eps)
            nll = nlls.sum()
            loss = losses.sum() if reduce else losses.new_zeros(target.shape).masked_scatter(scored, losses)
            if self.report_accuracy:
                logging_output["n_correct"] = log_probs.argmax(dim=1).eq(target[scored]).sum()
        logging_output["sample_size"] = target.size(0) if self.sentence_avg else logging_output["ntokens"]
        logging_output["loss"], logging_output["nll_loss"] = loss.detach(), nll.detach()
        return loss, logging_output["sample_size"], logging_output

    @classmethod
    def reduce_metrics(cls, logging_outputs: List[Dict[str, Any]]) -> None:
        """Log loss and nll in bits, perplexity and, where it was counted, accuracy in percent, over all workers."""

        def total(key: str) -> Any:
            return sum(utils.item(log.get(key, 0)) for log in logging_outputs)

        sample_size, n_tokens = total("sample_size"), total("ntokens")
        metrics.log_scalar("loss", total("loss") / max(sample_size, 1) / math.log(2), sample_size, round=3)
        metrics.log_scalar("nll_loss", total("nll_loss") / max(n_tokens, 1) / math.log(2), n_tokens, round=3)
        metrics.log_derived("ppl", lambda meters: utils.get_perplexity(meters["nll_loss"].avg))
        if any("n_correct" in log for log in logging_outputs):
            metrics.log_scalar("accuracy", 100.0 * total("n_correct") / max(n_tokens, 1), n_tokens, round=3)

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        """True: every logged value is a sum."""
        return True
