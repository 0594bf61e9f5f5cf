"""Clauses and sentences: the same content put in English and in German order.

German puts the finite verb second in a main clause, first in a yes-no question and last in a subordinate clause; the
separable prefix, the participle or the infinitive closes a main clause. Between them stand pronouns and definite
objects, then time, then indefinite objects, then "nicht", then places and predicates.
"""

from __future__ import annotations

from typing import List, NamedTuple, Optional, Tuple

from .lexicon import Text, Verb
from .phrases import Nominal, english_verbs, german_verbs, zu_infinitive


class Clause(NamedTuple):
    """What one clause says; `english_*` and `german_*` below put it in order.

    Attributes:
        tense: one of `phrases.TENSES`.
        dative, accusative: the objects; English puts the dative first too.
        adverb: of frequency ("often"); stands before the English verb.
        time: an adverbial of time.
        phrases: prepositional phrases, in the order of both languages.
        predicate: what follows "be" or "cost".
        negated: by "kein" where the accusative is indefinite, by "nicht" elsewhere.
    """

    subject: Nominal
    verb: Verb
    tense: str = "present"
    dative: Optional[Nominal] = None
    accusative: Optional[Nominal] = None
    adverb: Optional[Text] = None
    time: Optional[Text] = None
    phrases: Tuple[Text, ...] = ()
    predicate: Optional[Text] = None
    negated: bool = False


def _joined(*parts: str) -> str:
    return " ".join(part for part in parts if part)


def _english_objects(clause: Clause, main: str) -> str:
    """Return the English main verb with its particle, preposition and objects."""
    verb, accusative = clause.verb, clause.accusative
    objects = [o.en_object for o in (clause.dative, accusative) if o]
    if verb.particle and accusative is not None and accusative.pronoun:
        return _joined(main, *objects, verb.particle)
    return _joined(main, verb.particle, verb.preposition, *objects)


def _english_rest(clause: Clause, main: str, time: bool = True, place: bool = True) -> str:
    return _joined(
        _english_objects(clause, main),
        clause.predicate.en if clause.predicate else "",
        *(phrase.en for phrase in clause.phrases if place),
        clause.time.en if clause.time and time else "",
    )


def english_clause(clause: Clause, front: str = "") -> str:
    """Return the clause in English statement order.

    Args:
        clause: its content.
        front: "time" or "place" to begin with that adverbial, "" to begin with the subject.
    """
    auxiliary, main = english_verbs(clause.verb, clause.tense, clause.subject.agreement, clause.negated)
    negation = "not" if clause.negated else ""
    if auxiliary == "can" and negation:
        auxiliary, negation = "cannot", ""
    adverb = clause.adverb.en if clause.adverb else ""
    rest = _english_rest(clause, main, front != "time", front != "place")
    return _joined(_fronted(clause, front).en, clause.subject.en, auxiliary, negation, adverb, rest)


def english_question(clause: Clause) -> str:
    """Return the clause in English question order, without a question word."""
    auxiliary, main = english_verbs(clause.verb, clause.tense, clause.subject.agreement, True)
    adverb = clause.adverb.en if clause.adverb else ""
    return _joined(auxiliary, clause.subject.en, adverb, _english_rest(clause, main))


def _fronted(clause: Clause, front: str) -> Text:
    if not front:
        return Text("", "")
    adverbial = {"time": clause.time, "place": clause.phrases[-1] if clause.phrases else None}[front]
    if adverbial is None:
        raise ValueError(f"front: the clause has no {front} to begin with")
    return adverbial


def german_middle(clause: Clause, front: str = "") -> str:
    """Return what stands between the German subject and the end of the clause."""
    before: List[str] = []
    after: List[str] = []
    for nominal, case in ((clause.dative, "dat"), (clause.accusative, "acc")):
        if nominal is not None:
            late = after or not nominal.definite
            form = nominal.acc if case == "acc" else nominal.dat
            kein = clause.negated and case == "acc" and nominal.none
            (after if late else before).append(nominal.none if kein else form)
    with_kein = clause.accusative is not None and clause.accusative.none
    return _joined(
        *before,
        clause.time.de if clause.time and front != "time" else "",
        clause.adverb.de if clause.adverb else "",
        *after,
        "nicht" if clause.negated and not with_kein else "",
        *(phrase.de for phrase in clause.phrases if front != "place"),
        clause.predicate.de if clause.predicate else "",
    )


def german_clause(clause: Clause, front: str = "") -> str:
    """Return a German main clause: the finite verb second, whatever stands first."""
    verbs = german_verbs(clause.verb, clause.tense, clause.subject.agreement)
    fronted, middle = _fronted(clause, front).de, german_middle(clause, front)
    start = _joined(fronted, verbs.finite, clause.subject.nom) if front else _joined(clause.subject.nom, verbs.finite)
    return _joined(start, middle, verbs.tail)


def german_verb_first(clause: Clause) -> str:
    """Return the German clause as it follows a question word or a subordinate clause, or as a yes-no question."""
    verbs = german_verbs(clause.verb, clause.tense, clause.subject.agreement)
    return _joined(verbs.finite, clause.subject.nom, german_middle(clause), verbs.tail)


def german_verb_last(clause: Clause) -> str:
    """Return the German clause as it follows a conjunction."""
    verbs = german_verbs(clause.verb, clause.tense, clause.subject.agreement)
    return _joined(clause.subject.nom, german_middle(clause), verbs.final)


def _finished(en: str, de: str, mark: str = ".") -> Text:
    return Text(en[0].upper() + en[1:] + mark, de[0].upper() + de[1:] + mark)


def statement(clause: Clause, front: str = "", mark: str = ".") -> Text:
    """Return one main clause as a sentence; ended by "?" it is a question about its subject ("Who called?")."""
    return _finished(english_clause(clause, front), german_clause(clause, front), mark)


def question(clause: Clause, word: Optional[Text] = None) -> Text:
    """Return a yes-no question, or one with a question word ("where", "when", "why")."""
    en, de = english_question(clause), german_verb_first(clause)
    return _finished(_joined(word.en if word else "", en), _joined(word.de if word else "", de), "?")


def with_subordinate(main: Clause, conjunction: Text, subordinate: Clause, first: bool = False) -> Text:
    """Return a main clause with a subordinate clause after it or, inverting the German main clause, before it."""
    en = f"{conjunction.en} {english_clause(subordinate)}"
    de = f"{conjunction.de} {german_verb_last(subordinate)}"
    if first:
        return _finished(f"{en}, {english_clause(main)}", f"{de}, {german_verb_first(main)}")
    return _finished(f"{english_clause(main)} {en}", f"{german_clause(main)}, {de}")


def coordinated(first: Clause, conjunction: Text, second: Clause) -> Text:
    """Return two main clauses joined by "and" or, after a comma, by "but"."""
    comma = "," if conjunction.en == "but" else ""
    en = f"{english_clause(first)}{comma} {conjunction.en} {english_clause(second)}"
    return _finished(en, f"{german_clause(first)}{comma} {conjunction.de} {german_clause(second)}")


def with_infinitive(main: Clause, content: Clause) -> Text:
    """Return "tries to call the woman": a German infinitive with "zu" after a comma; `content` lends its objects."""
    en = f"{english_clause(main)} to {_english_rest(content, content.verb.base)}"
    return _finished(en, f"{german_clause(main)}, {_joined(german_middle(content), zu_infinitive(content.verb))}")


def relative_subject(head: Nominal, pronoun: str, clause: Clause) -> Nominal:
    """Return "the man who calls the woman" as a subject; the German clause closes with a comma.

    Args:
        head: a noun phrase.
        pronoun: its German relative pronoun in the nominative.
        clause: what is said of it; its own subject is `head`.
    """
    en = f"{head.en} who {english_clause(clause)[len(head.en) + 1 :]}"
    verbs = german_verbs(clause.verb, clause.tense, head.agreement)
    de = f"{head.nom}, {_joined(pronoun, german_middle(clause), verbs.final)},"
    return head._replace(en=en, nom=de)
