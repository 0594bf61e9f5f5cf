"""The toolkit's translation task with the paper's search settings, complete batches and exact resuming."""

import logging
from argparse import Namespace
from dataclasses import dataclass, field
from typing import Any, ClassVar, Dict, List, Optional

import numpy as np
from fairseq.data import FairseqDataset
from fairseq.data.iterators import EpochBatchIterator
from fairseq.dataclass import ChoiceEnum
from fairseq.search import DiverseBeamSearch
from fairseq.tasks import register_task
from fairseq.tasks.translation import TranslationConfig, TranslationTask

from .beam_search import ENDINGS, PENALTIES
from .decode_precision import use_precision
from .generator import VaswaniGenerator, alignment_kind, search_options, unsupported
from .quantization import PRECISIONS
from .reference_scorer import ReferenceScorer
from .text import OpenDictionary, PlainTokens, without_lent_ids
from .toolkit import check_architecture
from .transformer import VaswaniTransformer

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


@dataclass
class VaswaniTranslationConfig(TranslationConfig):
    """The toolkit's options for translation, and those of our search that the toolkit does not know."""

    length_penalty_kind: ChoiceEnum(list(PENALTIES)) = field(  # type: ignore[valid-type]
        default="wu",
        metadata={"help": "divide log-probabilities by ((5 + n) / 6)^lenpen (wu), or by n^lenpen (toolkit)"},
    )
    search_ending: ChoiceEnum(list(ENDINGS)) = field(  # type: ignore[valid-type]
        default="bound",
        metadata={
            "help": "end a search when no live hypothesis can win any more (bound), or when as many hypotheses have "
            "ended as the beam is wide, as the toolkit does (count)"
        },
    )
    decode_precision: ChoiceEnum(list(PRECISIONS)) = field(  # type: ignore[valid-type]
        default="fp32",
        metadata={
            "help": "precision of the matrix products when translating; bf16 and int8 need a processor with "
            "instructions for it, and fp32 is used where it has none"
        },
    )


@register_task("vaswani_translation", dataclass=VaswaniTranslationConfig)
class VaswaniTranslationTask(TranslationTask):
    """Translation from one language to another.

    Differs from: the toolkit's ``translation``, whose search defaults are not the paper's, which leaves the last batch
    out when its size is no multiple of ``--required-batch-size-multiple`` (main branch), and which composes the batches
    from the seed and the epoch in which the process starts, so that a resumed run sees other batches.

    Attributes:
        search_defaults: the search settings where none are given, under the toolkit's names.
    """

    search_defaults: ClassVar[Dict[str, Any]] = SEARCH_DEFAULTS

    @classmethod
    def add_args(cls, parser: Any) -> None:
        """Add the options, and make the paper's search settings the defaults of the toolkit's options."""
        super().add_args(parser)
        parser.set_defaults(**cls.search_defaults)
        for action in parser._actions:
            if action.dest == "replace_unk":
                action.const = ""  # no dictionary; the toolkit takes its own constant for the name of one

    @classmethod
    def load_dictionary(cls, filename: str) -> OpenDictionary:
        """A dictionary from a file."""
        dictionary: OpenDictionary = OpenDictionary.load(filename)
        return dictionary

    def load_dataset(self, split: str, epoch: int = 1, combine: bool = False, **options: Any) -> None:
        """Load a part of the data, in which words that look like control symbols are unknown words."""
        super().load_dataset(split, epoch, combine, **options)
        data = self.datasets[split]
        if data.buckets is None:  # with buckets the sentences hold padding
            data.src = PlainTokens(data.src, self.src_dict)
            data.tgt = None if data.tgt is None else PlainTokens(data.tgt, self.tgt_dict)

    def get_interactive_tokens_and_lengths(self, lines: List[str], encode_fn: Any) -> Any:
        """Token ids and lengths of lines; words that the dictionary lacks can be printed and copied as they are."""
        tokens = self.src_dict.encode_open([encode_fn(line) for line in lines])
        return tokens, [len(one) for one in tokens]

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        """The model that the options name.

        Raises:
            ValueError: there is no such architecture.
        """
        check_architecture(cfg)
        return super().build_model(cfg, from_checkpoint)

    def build_generator(
        self,
        models: List[Any],
        args: Any,
        seq_gen_cls: Any = None,
        extra_gen_cls_kwargs: Optional[Dict[str, Any]] = None,
        prefix_allowed_tokens_fn: Any = None,
    ) -> Any:
        """The paper's search, or the toolkit's generator for what that does not do.

        Args:
            models: an ensemble.
            args: the toolkit's generation options; those that a namespace (``--eval-bleu-args``) lacks are the paper's.
            seq_gen_cls, extra_gen_cls_kwargs, prefix_allowed_tokens_fn: as in the toolkit, for the toolkit's generator.
        """
        if isinstance(args, Namespace):
            args = Namespace(**{**self.search_defaults, **vars(args)})
        for model in models:
            if isinstance(model, VaswaniTransformer):
                use_precision(model, str(self.cfg.decode_precision))
        extra = {**(extra_gen_cls_kwargs or {}), "seq_gen_cls": seq_gen_cls}
        extra["prefix_allowed_tokens_fn"] = prefix_allowed_tokens_fn or getattr(args, "prefix_allowed_tokens_fn", None)
        options = search_options(args, str(self.cfg.length_penalty_kind), str(self.cfg.search_ending))
        if getattr(args, "score_reference", False):
            return ReferenceScorer(self.target_dictionary, options, alignment_kind(args))
        reasons = unsupported(args, models, extra)
        if reasons:
            logger.info(
                "the toolkit's generator searches, with its own length penalty and limits, because of %s",
                ", ".join(reasons),
            )
            return super().build_generator(models, args, seq_gen_cls, extra_gen_cls_kwargs, prefix_allowed_tokens_fn)
        temperature = getattr(args, "temperature", 1.0)
        return VaswaniGenerator(models, self.target_dictionary, options, temperature, alignment_kind(args))

    def inference_step(
        self,
        generator: Any,
        models: List[Any],
        sample: Dict[str, Any],
        prefix_tokens: Any = None,
        constraints: Any = None,
    ) -> Any:
        """Translate a batch; arguments and result as in the toolkit."""
        src_tokens = without_lent_ids(sample["net_input"]["src_tokens"], self.src_dict)
        sample = {**sample, "net_input": {**sample["net_input"], "src_tokens": src_tokens}}
        if isinstance(getattr(generator, "search", None), DiverseBeamSearch):
            sample.pop("id", None)  # which this search takes for places in the batch
        return super().inference_step(generator, models, sample, prefix_tokens, constraints)

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
            logger.info(
                "%d sentences fill no batch whose size is a multiple of %d; they are a batch of their own",
                len(rest),
                required_batch_size_multiple,
            )
            last = dataset.batch_by_size(rest, max_tokens=max_tokens, max_sentences=max_sentences)
            iterator._frozen_batches = (*iterator.frozen_batches, *last)
        n_batches, n_shards = len(iterator.frozen_batches), iterator.num_shards
        if iterator.grouped_shuffling and n_batches % n_shards:
            logger.warning(
                "--grouped-shuffling leaves out the last %d of %d batches, which %d workers cannot share evenly",
                n_batches % n_shards,
                n_batches,
                n_shards,
            )
        iterator.epoch = max(epoch, 1)
        dataset.set_epoch(iterator.epoch)
        return iterator
