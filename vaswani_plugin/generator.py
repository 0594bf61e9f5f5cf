"""The beam search behind the generator protocol of the toolkit: what ``fairseq-generate`` and others call.

The mapping of options: ``--beam`` beam_size, ``--lenpen`` alpha (``--unnormalized`` alpha 0), ``--unkpen`` unk_penalty,
``--nbest`` n_best, ``--max-len-a``, ``--max-len-b``, ``--min-len`` and ``--no-repeat-ngram-size`` themselves.
"""

from __future__ import annotations

import logging
import math
from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch
from fairseq.data import Dictionary
from torch import Tensor

from .alignment import ALIGNMENTS
from .beam_search import Hypothesis, SearchOptions, Symbols, search
from .incremental import DecodingState
from .transformer import VaswaniTransformer

logger = logging.getLogger(__name__)


class EnsembleDecoder:
    """One or more models behind the protocol of the search; the probabilities of several are averaged.

    Args:
        models: in evaluation mode, all of one target dictionary.
        src_tokens: int64 (B, S), padded on either side.
        temperature: divides the logits.
        need_weights: return the attention over the source, averaged over models and the heads of the last layer.
    """

    def __init__(
        self, models: Sequence[VaswaniTransformer], src_tokens: Tensor, temperature: float, need_weights: bool
    ) -> None:
        self.decoders = [model.decoder for model in models]
        self.states: List[DecodingState] = [model.decoder.begin(model.encoder(src_tokens)) for model in models]
        self.temperature = temperature
        self.need_weights = need_weights

    def step(self, tokens: Tensor) -> Tuple[Tensor, Optional[Tensor]]:
        """As ``Decoder`` says; the logits of several models are the logarithm of their average probability."""
        logits, weights = [], []
        for decoder, state in zip(self.decoders, self.states):
            features, attention = decoder.step(tokens, state, self.need_weights)
            logits.append(decoder.output_layer(features))
            weights.append(attention)
        if self.temperature != 1.0:
            logits = [one / self.temperature for one in logits]
        return average_probabilities(logits), torch.stack(weights).mean(0) if self.need_weights else None  # type: ignore

    def select(self, parents: Tensor, sentences: Optional[Tensor]) -> None:
        """As ``Decoder`` says."""
        for state in self.states:
            state.select(parents, sentences)


def average_probabilities(logits: Sequence[Tensor]) -> Tensor:
    """``log(mean_m softmax(logits_m))``, (R, V), of M models' logits; those of a single model as they are."""
    if len(logits) == 1:
        return logits[0]
    log_probs = torch.stack([one.float().log_softmax(dim=-1) for one in logits])
    return log_probs.logsumexp(dim=0) - math.log(len(logits))


class VaswaniGenerator:
    """Translates the batches of the toolkit.

    Differs from: the toolkit's ``SequenceGenerator`` in the length penalty, in limits of length that are each
    sentence's own, in ending when nothing better can come, in keeping no more hypotheses than are asked for, and in
    that a sentence without words is translated by none, with the score 0.

    Args:
        models: an ensemble of at least one; they are set to evaluation mode.
        dictionary: of the target language.
        options: of the search.
        temperature: divides the logits, above 0.
        alignment: what hypotheses carry as "alignment": "hard", "soft", or None for nothing.

    Raises:
        ValueError: the temperature is not above 0, or min_len is beyond the learned positions of a model.
    """

    def __init__(
        self,
        models: Sequence[VaswaniTransformer],
        dictionary: Dictionary,
        options: SearchOptions,
        temperature: float = 1.0,
        alignment: Optional[str] = None,
    ) -> None:
        if not temperature > 0:
            raise ValueError(f"--temperature must be above 0, but is {temperature}")
        self.models = list(models)
        for model in models:
            model.eval()
        self.longest = min(model.decoder.max_positions() for model in self.models) - 1
        if options.min_len > self.longest:
            raise ValueError(
                f"--min-len is {options.min_len}, but the learned positions of the model reach {self.longest} tokens "
                "and the end symbol"
            )
        self.symbols = Symbols(dictionary.pad(), dictionary.eos(), dictionary.unk())
        self.options = options
        self.temperature = temperature
        self.alignment = alignment
        self.symbols_to_strip_from_output = {self.symbols.eos}

    @torch.no_grad()
    def generate(
        self,
        models: Any,
        sample: Dict[str, Any],
        prefix_tokens: Optional[Tensor] = None,
        constraints: Optional[Tensor] = None,
        bos_token: Optional[int] = None,
    ) -> List[List[Dict[str, Any]]]:
        """Translate a batch.

        Args:
            models: not needed: those that the generator was built with translate.
            sample: the toolkit's batch, of which ``sample["net_input"]["src_tokens"]`` (B, S) is read.
            prefix_tokens: int64 (B, P), tokens that translations begin with, padded to the right.
            constraints: must be None.
            bos_token: the symbol before a translation; by default the end symbol, as in training.

        Returns:
            For each sentence, in order, its best hypotheses, best first, as the toolkit's dictionaries: "tokens" (T,),
            "score", "positional_scores" (T,), "attention" (S, T) without padding, "alignment".

        Raises:
            ValueError: there are constraints.
        """
        if constraints is not None:
            raise ValueError("this generator knows no lexical constraints; give --constraints when it is built")
        src_tokens = sample["net_input"]["src_tokens"]
        first = self.symbols.eos if bos_token is None else bos_token
        has_words = (src_tokens.ne(self.symbols.pad) & src_tokens.ne(self.symbols.eos)).any(dim=1)
        if prefix_tokens is not None:
            has_words = has_words | prefix_tokens.ne(self.symbols.pad).any(dim=1)
        rows = has_words.nonzero().squeeze(1)
        prefix = None if prefix_tokens is None else prefix_tokens[rows]
        found = self._search(src_tokens[rows], prefix, first) if len(rows) else []
        translations = [[self._nothing(tokens)] for tokens in src_tokens]
        for i, row in enumerate(rows.tolist()):
            translations[row] = [self._entry(h, src_tokens[row]) for h in found[i]]
        return translations

    def _search(self, src_tokens: Tensor, prefix: Optional[Tensor], first: int) -> List[List[Hypothesis]]:
        lengths = src_tokens.ne(self.symbols.pad).sum(dim=1).tolist()
        limits = [min(self.options.limit(n), self.longest) for n in lengths]
        decoder = EnsembleDecoder(self.models, src_tokens, self.temperature, self.alignment is not None)
        return search(decoder, limits, first, self.options, self.symbols, prefix, src_tokens.device)

    def _nothing(self, src_tokens: Tensor) -> Dict[str, Any]:
        """The translation of no words: no words, with certainty."""
        end = src_tokens.new_tensor([self.symbols.eos])
        n_source = src_tokens.numel()
        weights = torch.full((1, n_source), 1.0, device=end.device) if self.alignment is not None else None
        return self._entry(Hypothesis(end, 0.0, end.new_zeros(1, dtype=torch.float), weights), src_tokens)

    def _entry(self, found: Hypothesis, src_tokens: Tensor) -> Dict[str, Any]:
        real = src_tokens.ne(self.symbols.pad)
        attention = None if found.attention is None else found.attention[:, real]
        return toolkit_hypothesis(
            found.tokens.clone(),
            found.score,
            found.token_scores.clone(),
            attention,
            src_tokens[real],
            self.symbols.eos,
            self.alignment,
        )


def toolkit_hypothesis(
    tokens: Tensor,
    score: float,
    token_scores: Tensor,
    attention: Optional[Tensor],
    source: Tensor,
    eos: int,
    alignment: Optional[str],
) -> Dict[str, Any]:
    """A translation in the form in which the toolkit's generators give them.

    Args:
        tokens, source: int64 (T,) and (S,), without padding.
        score: what is printed for the whole.
        token_scores: float32 (T,).
        attention: float32 (T, S), or None.
        alignment: a key of ``ALIGNMENTS``, or None for no alignment.
    """
    links: Any = torch.empty(0)
    if alignment is not None and attention is not None:
        links = ALIGNMENTS[alignment](attention, source.eq(eos), tokens.eq(eos))
    return {
        "tokens": tokens,
        "score": torch.tensor(score),
        "attention": torch.empty(0) if attention is None else attention.t(),  # (S, T)
        "alignment": links,
        "positional_scores": token_scores,
    }


def search_options(args: Any, penalty: str = "wu", ending: str = "bound") -> SearchOptions:
    """The search that the toolkit's generation options ask for.

    Args:
        args: a ``GenerationConfig``, or a namespace of which any part may be missing: the paper's values stand for it.
        penalty, ending: as in ``SearchOptions``.

    Raises:
        ValueError: a value out of its range.
    """
    paper = SearchOptions()
    beam_size = getattr(args, "beam", paper.beam_size)
    n_best = getattr(args, "nbest", paper.n_best)
    if n_best > beam_size:
        logger.warning(
            "--nbest %d is more than --beam %d, which is as many hypotheses as there will be", n_best, beam_size
        )
    if getattr(args, "retain_dropout", False):
        logger.warning("--retain-dropout has no effect: this model never drops anything when it translates")
    return SearchOptions(
        beam_size=beam_size,
        alpha=0.0 if getattr(args, "unnormalized", False) else getattr(args, "lenpen", paper.alpha),
        penalty=penalty,
        max_len_a=getattr(args, "max_len_a", paper.max_len_a),
        max_len_b=getattr(args, "max_len_b", paper.max_len_b),
        min_len=getattr(args, "min_len", paper.min_len),
        n_best=min(n_best, max(beam_size, 1)),
        unk_penalty=getattr(args, "unkpen", paper.unk_penalty),
        no_repeat_ngram=getattr(args, "no_repeat_ngram_size", paper.no_repeat_ngram),
        ending=ending,
    )


def alignment_kind(args: Any) -> Optional[str]:
    """The alignment that the toolkit's generation options ask for, a key of ``ALIGNMENTS`` or None."""
    asked = getattr(args, "print_alignment", None)
    if asked:
        return "soft" if str(asked) == "soft" else "hard"  # anything else is hard, as the toolkit's help says
    return None if getattr(args, "replace_unk", None) is None else "hard"


def unsupported(args: Any, models: Sequence[Any], extra: Optional[Dict[str, Any]]) -> List[str]:
    """What of a generator's settings only the toolkit's generator can do, in the words of the command line.

    Args:
        args: as in ``search_options``.
        models: the ensemble.
        extra: keyword arguments meant for the toolkit's generator.
    """
    asked = {
        "--sampling": getattr(args, "sampling", False),
        "--diverse-beam-groups": getattr(args, "diverse_beam_groups", -1) > 0,
        "--diversity-rate": getattr(args, "diversity_rate", -1) > -1,
        "--match-source-len": getattr(args, "match_source_len", False),
        "--constraints": getattr(args, "constraints", None),
        "--lm-path": (extra or {}).get("lm_model") is not None,
        "models of another kind": any(not isinstance(model, VaswaniTransformer) for model in models),
    }
    known = ("lm_model", "lm_weight")
    asked.update({name: value is not None for name, value in (extra or {}).items() if name not in known})
    return [name for name, value in asked.items() if value]
