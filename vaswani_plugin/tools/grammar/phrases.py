"""Inflection: noun phrases in every case, prepositional phrases, and verb groups in every tense.

German cases are "nom", "acc" and "dat"; agreement is "1sg", "3sg" or "pl". Adjective endings follow the three classes
of German grammar: weak after der-words, mixed after ein-words, strong where no ending precedes them.
"""

from __future__ import annotations

from typing import Dict, NamedTuple, Optional, Tuple

from .lexicon import BE, HAVE, PEOPLE, Adjective, Noun, Text, Verb

CASES = ("nom", "acc", "dat")

# Endings by case, each for masculine, feminine, neuter and plural.
_Endings = Dict[str, Tuple[str, ...]]
_GENDERS = "mfnp"
_DER: _Endings = {"nom": ("er", "e", "es", "e"), "acc": ("en", "e", "es", "e"), "dat": ("em", "er", "em", "en")}
_EIN: _Endings = {"nom": ("", "e", "", "e"), "acc": ("en", "e", "", "e"), "dat": ("em", "er", "em", "en")}
_WEAK: _Endings = {"nom": ("e", "e", "e", "en"), "acc": ("en", "e", "e", "en"), "dat": ("en", "en", "en", "en")}
_MIXED: _Endings = {"nom": ("er", "e", "es", "en"), "acc": ("en", "e", "es", "en"), "dat": ("en", "en", "en", "en")}
_STRONG = _DER

_THE = {"nom": ("der", "die", "das", "die"), "acc": ("den", "die", "das", "die"), "dat": ("dem", "der", "dem", "den")}
_DER_WORDS = {"this": "dies", "these": "dies", "every": "jed"}
_EIN_WORDS = {"a": "ein", "my": "mein", "his": "sein", "her": "ihr", "our": "unser", "no": "kein"}

_CONTRACTIONS = {"in dem": "im", "in das": "ins", "an dem": "am", "zu dem": "zum", "zu der": "zur"}


class Nominal(NamedTuple):
    """Anything that can be a subject or an object, with the forms of either language.

    Attributes:
        en: the English subject form; `en_object` the object form.
        nom, acc, dat: the German cases.
        agreement: "1sg", "3sg" or "pl".
        definite: whether German puts it before adverbs of time.
        pronoun: whether English puts it before a particle.
        none: the accusative with "kein", by which an indefinite object is negated; "" where there is none.
        key: what it is about, so that a sentence does not speak of the same twice.
        reference: how a later pronoun refers to it: "he", "she", "they", or "it-m", "it-f", "it-n".
    """

    en: str
    en_object: str
    nom: str
    acc: str
    dat: str
    agreement: str
    definite: bool = True
    pronoun: bool = False
    none: str = ""
    key: str = ""
    reference: str = ""


PRONOUNS: Dict[str, Nominal] = {
    "I": Nominal("I", "me", "ich", "mich", "mir", "1sg", pronoun=True, key="I"),
    "he": Nominal("he", "him", "er", "ihn", "ihm", "3sg", pronoun=True, key="he"),
    "she": Nominal("she", "her", "sie", "sie", "ihr", "3sg", pronoun=True, key="she"),
    "it-m": Nominal("it", "it", "er", "ihn", "ihm", "3sg", pronoun=True, key="it"),
    "it-f": Nominal("it", "it", "sie", "sie", "ihr", "3sg", pronoun=True, key="it"),
    "it-n": Nominal("it", "it", "es", "es", "ihm", "3sg", pronoun=True, key="it"),
    "we": Nominal("we", "us", "wir", "uns", "uns", "pl", pronoun=True, key="we"),
    "they": Nominal("they", "them", "sie", "sie", "ihnen", "pl", pronoun=True, key="they"),
}
IT = PRONOUNS["it-n"]


def _determiner(word: str, case: str, column: int) -> Tuple[str, _Endings]:
    """Return the German determiner and the table of endings that an adjective after it takes."""
    if word == "the":
        return _THE[case][column], _WEAK
    if word in _DER_WORDS:
        return _DER_WORDS[word] + _DER[case][column], _WEAK
    if word in _EIN_WORDS:
        return _EIN_WORDS[word] + _EIN[case][column], _MIXED
    if word.endswith("'s"):
        return word[:-2] + "s", _STRONG
    return word, _STRONG


def _noun_form(noun: Noun, case: str, plural: bool) -> str:
    if plural:
        return noun.de_plural + ("n" if case == "dat" and noun.de_plural[-1] not in "ns" else "")
    if noun.weak and case != "nom":
        return noun.de + "n"
    return noun.de


def german_noun_phrase(noun: Noun, determiner: str, case: str, plural: bool, adjective: Optional[Adjective]) -> str:
    """Return determiner, adjective and noun in one case; the determiner is English, a German number, or ""."""
    column = _GENDERS.index("p" if plural else noun.gender)
    article, endings = _determiner(determiner, case, column)
    words = [article] if article else []
    if adjective:
        words.append(adjective.stem + endings[case][column])
    return " ".join(words + [_noun_form(noun, case, plural)])


def noun_phrase(
    noun: Noun,
    determiner: str = "the",
    adjective: Optional[Adjective] = None,
    plural: bool = False,
    number: Optional[Text] = None,
) -> Nominal:
    """Build a noun phrase in both languages.

    Args:
        noun: its head.
        determiner: "the", "a", "this", "these", "every", "my", "his", "her", "our", a name with 's, or "" for none.
        adjective: stands before the noun and takes the ending that determiner, case and gender ask for.
        plural: the number of the noun.
        number: a numeral in place of the determiner; makes the phrase plural.
    """
    plural = plural or number is not None
    words = [adjective.en] if adjective else []
    words.append(noun.en_plural if plural else noun.en)
    if number is not None:
        words.insert(0, number.en)
    elif determiner == "a":
        words.insert(0, "an" if words[0][0] in "aeiou" else "a")
    elif determiner:
        words.insert(0, determiner)
    german = number.de if number is not None else determiner
    nom, acc, dat = (german_noun_phrase(noun, german, case, plural, adjective) for case in CASES)
    indefinite = determiner in ("a", "") and number is None
    return Nominal(
        en=" ".join(words),
        en_object=" ".join(words),
        nom=nom,
        acc=acc,
        dat=dat,
        agreement="pl" if plural else "3sg",
        definite=not indefinite and number is None,
        none=german_noun_phrase(noun, "no", "acc", plural, adjective) if indefinite else "",
        key=noun.en,
        reference=_reference(noun, plural),
    )


def _reference(noun: Noun, plural: bool) -> str:
    if plural:
        return "they"
    if noun.kind not in PEOPLE:
        return "it-" + noun.gender
    if noun.en in ("child", "doctor", "teacher", "neighbor"):
        return ""  # English says he or she by what it knows, not by the noun
    return "he" if noun.gender == "m" else "she"


def name(text: str, reference: str = "") -> Nominal:
    """Return a proper name, which has one form in both languages."""
    return Nominal(text, text, text, text, text, "3sg", key=text, reference=reference)


def both(first: Nominal, second: Nominal) -> Nominal:
    """Join two phrases with "and" and "und"; together they are a plural."""
    return Nominal(
        en=f"{first.en} and {second.en}",
        en_object=f"{first.en_object} and {second.en_object}",
        nom=f"{first.nom} und {second.nom}",
        acc=f"{first.acc} und {second.acc}",
        dat=f"{first.dat} und {second.dat}",
        agreement="pl",
        key=first.key,
        reference="they",
    )


def prepositional(preposition: Text, case: str, nominal: Nominal) -> Text:
    """Return a prepositional phrase, with the German contractions (im, ins, am, zum, zur)."""
    preposed = f"{preposition.de} {nominal.acc if case == 'acc' else nominal.dat}"
    head, article, *rest = preposed.split(" ")
    contracted = _CONTRACTIONS.get(f"{head} {article}")
    german = " ".join([contracted, *rest]) if contracted and rest else preposed
    return Text(f"{preposition.en} {nominal.en_object}", german)


_PRESENT = {
    "haben": {"1sg": "habe", "3sg": "hat", "pl": "haben"},
    "sein": {"1sg": "bin", "3sg": "ist", "pl": "sind"},
}
_PRETERITE = {
    "haben": {"1sg": "hatte", "3sg": "hatte", "pl": "hatten"},
    "sein": {"1sg": "war", "3sg": "war", "pl": "waren"},
}
_MODALS = {
    "future": {"1sg": "werde", "3sg": "wird", "pl": "werden"},
    "can": {"1sg": "kann", "3sg": "kann", "pl": "können"},
    "must": {"1sg": "muss", "3sg": "muss", "pl": "müssen"},
    "want": {"1sg": "will", "3sg": "will", "pl": "wollen"},
}
TENSES = ("present", "past", *_MODALS)


class VerbGroup(NamedTuple):
    """A German predicate: what stands second, what stands last, and what a subordinate clause ends with."""

    finite: str
    tail: str
    final: str


def german_verbs(verb: Verb, tense: str, agreement: str) -> VerbGroup:
    """Conjugate a verb. The English past is the German perfect, save for "sein" and "haben" (war, hatte).

    Args:
        verb: the verb.
        tense: one of `TENSES`; the modal verbs count as tenses.
        agreement: "1sg", "3sg" or "pl".
    """
    if tense == "past" and verb in (BE, HAVE):
        finite = _PRETERITE[verb.infinitive][agreement]
        return VerbGroup(finite, "", finite)
    if tense == "present":
        finite = _present(verb, agreement)
        return VerbGroup(finite, verb.prefix, verb.prefix + finite)
    if tense == "past":
        finite, last = _PRESENT[verb.perfect][agreement], verb.prefix + verb.participle
    else:
        finite, last = _MODALS[tense][agreement], verb.prefix + verb.infinitive
    return VerbGroup(finite, last, f"{last} {finite}")


def _present(verb: Verb, agreement: str) -> str:
    if verb.infinitive in _PRESENT:
        return _PRESENT[verb.infinitive][agreement]
    if agreement == "1sg":
        return "weiß" if verb.infinitive == "wissen" else verb.infinitive[:-1]
    return verb.third_de if agreement == "3sg" else verb.infinitive


def zu_infinitive(verb: Verb) -> str:
    """Return "zu kaufen", or "anzurufen" for a separable verb."""
    return f"{verb.prefix}zu{verb.infinitive}" if verb.prefix else f"zu {verb.infinitive}"


_BE = {
    "present": {"1sg": "am", "3sg": "is", "pl": "are"},
    "past": {"1sg": "was", "3sg": "was", "pl": "were"},
}


def english_verbs(verb: Verb, tense: str, agreement: str, bare: bool) -> Tuple[str, str]:
    """Return the English auxiliary ("" for none) and main verb.

    Args:
        verb: the verb.
        tense: one of `TENSES`.
        agreement: "1sg", "3sg" or "pl".
        bare: True in questions and beside "not", where an auxiliary is needed and "do" lends itself.
    """
    third = agreement == "3sg"
    if verb is BE and tense in _BE:
        return _BE[tense][agreement], ""
    if tense == "past":
        return ("did", verb.base) if bare else ("", verb.past)
    if tense in ("future", "can", "must"):
        return ("will" if tense == "future" else tense), verb.base
    auxiliary = ("does" if third else "do") if bare else ""
    if tense == "want":
        return auxiliary, f"wants to {verb.base}" if third and not bare else f"want to {verb.base}"
    return auxiliary, verb.third if third and not bare else verb.base
