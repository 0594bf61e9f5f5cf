"""The task of constituency parsing: translation from words to linearised trees (Vaswani et al. 2017, section 6.3)."""

from dataclasses import dataclass
from typing import Any, ClassVar, Dict

from fairseq.tasks import register_task

from .translation import VaswaniTranslationConfig, VaswaniTranslationTask

#: Search settings of Vaswani et al. 2017, section 6.3, under the toolkit's names: beam 21, alpha 0.3, at most
#: input length + 300 symbols.
PARSING_SEARCH_DEFAULTS: Dict[str, Any] = {"beam": 21, "lenpen": 0.3, "max_len_a": 1, "max_len_b": 300}


@dataclass
class VaswaniParsingConfig(VaswaniTranslationConfig):
    """The options of ``vaswani_translation``."""


@register_task("vaswani_parsing", dataclass=VaswaniParsingConfig)
class VaswaniParsingTask(VaswaniTranslationTask):
    """Parsing as translation; ``trees.linearise`` says what the target looks like.

    Differs from: ``vaswani_translation`` in the defaults of the search alone.
    """

    search_defaults: ClassVar[Dict[str, Any]] = PARSING_SEARCH_DEFAULTS
