"""The toolkit's translation task with the paper's search settings, complete batches and exact resuming."""

import logging
from argparse import Namespace
from typing import Any, Dict, List, Optional

import numpy as np
from fairseq.data import FairseqDataset
from fairseq.data.iterators import EpochBatchIterator
from fairseq.tasks import register_task
from fairseq.tasks.translation import TranslationConfig, TranslationTask

logger = logging.getLogger(__name__)

#: Search settings of Vaswani et al. 2017, section 6.1, under the toolkit's names: beam 4, alpha 0.6, at most
#: max_len_a * input length + max_len_b = input length + 50 tokens.
SEARCH_DEFAULTS: Dict[str, Any] = {"beam": 4, "lenpen": 0.6, "max_len_a": 1, "max_len_b": 50}


def fitting_indices(dataset: FairseqDataset, max_positions: Any) -> np.ndarray:
    """The indices of the sentences that are not too long; int64, ascending."""
    indices = np.arange(len(dataset), dtype=np.int64)
    if max_positions is None:
        return indices
    return np.asarray(dataset.filter_indices_by_size(indices, max_positions)[0], dtype=np.int64)


def left_out(indices: np.ndarray, batches: List[Any], n_sentences: int) -> np.ndarray:
    """Those of the indices that are in no batch.

    Args:
        indices: indices from 0 to n_sentences - 1.
        batches: lists or arrays of indices.
    """
    batched = np.zeros(n_sentences, dtype=bool)
    for batch in batches:
        batched[batch] = True
    return indices[~batched[indices]]


@register_task("vaswani_translation", dataclass=TranslationConfig)
class VaswaniTranslationTask(TranslationTask):
    """Translation from one language to another.

    Differs from: the toolkit's ``translation``, whose search defaults are not the paper's, which leaves the last batch
    out when its size is no multiple of ``--required-batch-size-multiple`` (main branch), and which composes the batches
    from the seed and the epoch in which the process starts, so that a resumed run sees other batches.
    """

    @classmethod
    def add_args(cls, parser: Any) -> None:
        """Add the options, and make the paper's search settings the defaults of the toolkit's options."""
        super().add_args(parser)
        parser.set_defaults(**SEARCH_DEFAULTS)

    def build_generator(self, models: List[Any], args: Any, *more: Any, **options: Any) -> Any:
        """The search; settings that ``--eval-bleu-args`` leaves out are the paper's."""
        if isinstance(args, Namespace):
            args = Namespace(**{**SEARCH_DEFAULTS, **vars(args)})
        return super().build_generator(models, args, *more, **options)

    def get_batch_iterator(
        self,
        dataset: FairseqDataset,
        max_tokens: Optional[int] = None,
        max_sentences: Optional[int] = None,
        max_positions: Any = None,
        ignore_invalid_inputs: bool = False,
        required_batch_size_multiple: int = 1,
        *more: Any,
        epoch: int = 1,
        **options: Any,
    ) -> EpochBatchIterator:
        """The toolkit's batches plus one of the sentences that they leave out, the same for every starting epoch.

        Args:
            epoch: the epoch to start with, from 1; it changes the order of the batches and not what is in them.
            more, options: as in the toolkit.
        """
        cached = self.dataset_to_epoch_iter.get(dataset)
        fitting = fitting_indices(dataset, max_positions)
        iterator = super().get_batch_iterator(
            dataset,
            max_tokens,
            max_sentences,
            max_positions,
            ignore_invalid_inputs,
            required_batch_size_multiple if len(fitting) else 1,  # the toolkit's check of the last batch needs one
            *more,
            epoch=1,
            **options,
        )
        if iterator is cached:
            return iterator
        rest = left_out(fitting, iterator.frozen_batches, len(dataset))
        if len(rest):
            logger.info("%d sentences fill no batch of a multiple of %d", len(rest), required_batch_size_multiple)
            last = dataset.batch_by_size(rest, max_tokens=max_tokens, max_sentences=max_sentences)
            iterator._frozen_batches = (*iterator.frozen_batches, *last)
        iterator.epoch = max(epoch, 1)
        dataset.set_epoch(iterator.epoch)
        return iterator
