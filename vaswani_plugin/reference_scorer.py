"""The scores that a model gives to translations somebody else has made: ``--score-reference``."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

import torch
from fairseq.data import Dictionary
from fairseq.sequence_scorer import SequenceScorer

from .beam_search import SearchOptions, length_penalty
from .generator import toolkit_hypothesis


class ReferenceScorer(SequenceScorer):
    """Scores the target side of the data as the search would score it.

    Differs from: the toolkit's scorer, which divides by the length whatever ``--lenpen`` says, counts padding in its
    attention, and knows hard alignments only.

    Args:
        dictionary: of the target language.
        options: of the search, for its length penalty.
        alignment: what hypotheses carry as "alignment": "hard", "soft", or None for nothing.
    """

    def __init__(self, dictionary: Dictionary, options: SearchOptions, alignment: Optional[str] = None) -> None:
        super().__init__(dictionary)
        self.options = options
        self.alignment = alignment

    def generate(self, models: List[Any], sample: Dict[str, Any], **more: Any) -> List[List[Dict[str, Any]]]:
        """One hypothesis for each sentence, its target; arguments and result as the toolkit's."""
        src_tokens = sample["net_input"]["src_tokens"]
        scored = super().generate(models, sample, **more)
        return [[self._entry(hypos[0], src_tokens[i])] for i, hypos in enumerate(scored)]

    def _entry(self, hypo: Dict[str, Any], src_tokens: torch.Tensor) -> Dict[str, Any]:
        n = hypo["tokens"].numel()
        token_scores = hypo["positional_scores"].float()
        penalty = length_penalty(torch.tensor(n), self.options.alpha, self.options.penalty)
        real = src_tokens.ne(self.pad)
        attention = None
        if self.alignment is not None and hypo["attention"] is not None:
            attention = hypo["attention"][:n, real].float()
        score = float(token_scores.sum() / penalty)
        return toolkit_hypothesis(
            hypo["tokens"], score, token_scores, attention, src_tokens[real], self.eos, self.alignment
        )
