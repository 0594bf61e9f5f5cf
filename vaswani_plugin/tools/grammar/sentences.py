"""Whole sentence pairs at random: the constructions that the corpus is made of, and how often each occurs."""

from __future__ import annotations

from typing import Callable, Dict, Iterator, Tuple

from . import lexicon as lx
from .clauses import Clause, coordinated, question, relative_subject, statement, with_infinitive, with_subordinate
from .drawing import Draw, can_be_negated, says_its_tense
from .lexicon import Adjective, Text, Verb
from .phrases import IT, PRONOUNS, Nominal, noun_phrase

MIN_WORDS, MAX_WORDS = 4, 18

WHO = Nominal("who", "whom", "wer", "wen", "wem", "3sg", key="who")
_AND, _BUT = Text("and", "und"), Text("but", "aber")
_WHERE, _WHEN, _WHY, _WHAT = Text("where", "wo"), Text("when", "wann"), Text("why", "warum"), Text("what", "was")
_WEATHER = (Text("cold", "kalt"), Text("hot", "heiß"), Text("late", "spät"), Text("dark", "dunkel"))
_THING_WORDS = tuple(noun.en for noun in lx.NOUNS if noun.kind in lx.THINGS)
_IT_WORDS = tuple(noun.en for noun in lx.NOUNS if noun.kind not in lx.PEOPLE)
_RELATIVE_PRONOUNS = {"m": "der", "f": "die", "n": "das"}


def _adjectives(*names: str) -> Tuple[Adjective, ...]:
    return tuple(adjective for adjective in lx.ADJECTIVES if adjective.en in names)


def _verbs(*bases: str) -> Tuple[Verb, ...]:
    return tuple(verb for verb in (*lx.TRANSITIVE, *lx.GIVING, lx.HAVE) if verb.base in bases)


_HUMAN = _adjectives("tired", "sick", "friendly")
_QUALITIES = _adjectives("new", "old", "expensive", "beautiful")
_ANIMAL = _adjectives("big", "small", "tired", "sick", "old", "young", "beautiful")
_OF_AGE = (lx.KIN, lx.GROWN, lx.ROLE)
_COMPARED = {
    _OF_AGE: _adjectives("tall", "old", "young"),
    (lx.ANIMAL,): _adjectives("big", "small", "old", "young", "beautiful"),
    (lx.GOODS,): _adjectives("big", "small", "old", "expensive", "beautiful"),
}
_ASKED = _verbs("buy", "sell", "read", "eat", "drink", "find")  # what?
# A present question begins with the verb in German; few enough verbs that each is seen often in that place.
_OPENING_VERBS = tuple(
    verb
    for verb in (*lx.ALONE, *lx.MOTION, *lx.TRANSITIVE, *lx.DATIVE, *lx.GIVING)
    if verb.base in ("sleep", "work", "go", "call", "open", "close", "know", "buy", "help", "give")
)
_EARLIER, _LATER, _FIND = _verbs("buy", "see", "bring", "show", "have"), _verbs("sell", "bring"), _verbs("find")
_SUITING: Dict[str, Tuple[Adjective, ...]] = {"human": _HUMAN, "animal": _ANIMAL, "thing": _QUALITIES}


def _state(draw: Draw, subject: Nominal, tense: str, sort: str) -> Clause:
    """Return "the dog is (very) tired"; `sort` is "human", "animal" or "thing"."""
    adjectives = _SUITING[sort]
    adjective = draw.one([entry for entry in adjectives if entry.en not in subject.en.split(" ")] or adjectives)
    very = draw.chance(0.3)
    predicate = Text(f"very {adjective.en}", f"sehr {adjective.de}") if very else Text(adjective.en, adjective.de)
    return Clause(subject, lx.BE, tense, predicate=predicate)


def _maybe_not(draw: Draw, clause: Clause, probability: float = 0.2) -> Clause:
    return clause._replace(negated=can_be_negated(clause) and draw.chance(probability))


def _weather(draw: Draw, tense: str) -> Clause:
    if draw.chance(0.3):
        return Clause(IT, lx.RAIN, tense)
    return Clause(IT, lx.BE, tense, predicate=draw.one(_WEATHER))


def simple(draw: Draw) -> Text:
    """The teacher calls the woman. / Tomorrow the teacher will call the woman."""
    clause = draw.event(draw.tense())
    if clause.time and draw.chance(0.45):
        return statement(clause, "time")
    located = clause.phrases and clause.verb not in lx.MOTION and not clause.phrases[-1].en.startswith(("with", "for"))
    return statement(clause, "place" if located and not clause.negated and draw.chance(0.25) else "")


def copula(draw: Draw) -> Text:
    """The dog is very tired. / The hat was not expensive. / My sister is in the garden."""
    sort = draw.one(("human", "human", "animal", "thing"))
    if sort == "human":
        subject = draw.subject()
    else:
        subject = draw.definite((lx.ANIMAL,) if sort == "animal" else lx.THINGS)
    clause = _state(draw, subject, draw.one(("present", "past")), sort)
    if sort != "thing" and draw.chance(0.25):
        clause = clause._replace(predicate=draw.location())
    return statement(_maybe_not(draw, clause))


def comparison(draw: Draw) -> Text:
    """The dog is bigger than the cat. / Anna is as tall as Peter."""
    kinds = draw.one(tuple(_COMPARED))
    first, second = (
        draw.named() if kinds == _OF_AGE and draw.chance(0.4) else draw.definite(kinds, 0.2) for _ in range(2)
    )
    adjective = draw.one(_COMPARED[kinds])
    if draw.chance(0.3) or not adjective.en_comparative:
        predicate = Text(f"as {adjective.en} as {second.en}", f"so {adjective.de} wie {second.nom}")
    else:
        predicate = Text(f"{adjective.en_comparative} than {second.en}", f"{adjective.de_comparative} als {second.nom}")
    return statement(_maybe_not(draw, Clause(first, lx.BE, draw.one(("present", "past")), predicate=predicate)))


def measure(draw: Draw) -> Text:
    """Peter is 25 years old. / The red hat costs 20 euros."""
    if draw.chance(0.5):
        age = draw.one(lx.AGES)
        subject = draw.named() if draw.chance(0.5) else draw.definite(_OF_AGE, 0.0)
        predicate = Text(f"{age} years old", f"{age} Jahre alt")
        return statement(_maybe_not(draw, Clause(subject, lx.BE, draw.one(("present", "past")), predicate=predicate)))
    noun, price = draw.noun(lx.THINGS), draw.one(lx.PRICES)
    subject = noun_phrase(noun, draw.determiner(noun, False), draw.adjective(noun))
    predicate = Text(f"{price} euros", f"{price} Euro")
    return statement(_maybe_not(draw, Clause(subject, lx.COST, draw.one(("present", "past")), predicate=predicate)))


def _reason(draw: Draw, main: Clause, tense: str) -> Clause:
    """Return a clause about the main clause's subject or object by a pronoun, about the weather, or about others."""
    thing, subject = main.accusative, main.subject
    clear = thing is not None and thing.key in _THING_WORDS and not subject.reference.startswith("it")
    if thing is not None and clear and PRONOUNS[thing.reference] is not subject and draw.chance(0.4):
        return _state(draw, PRONOUNS[thing.reference], tense, "thing")
    if subject.pronoun and draw.chance(0.4):
        return _state(draw, subject, tense, "human")
    if subject.reference in ("he", "she", "they") and draw.chance(0.4):
        return _state(draw, PRONOUNS[subject.reference], tense, "human")
    if subject.reference.startswith("it") and (thing is None or thing.key not in _IT_WORDS) and draw.chance(0.6):
        return _state(draw, PRONOUNS[subject.reference], tense, "animal")
    if draw.chance(0.3):
        return _weather(draw, tense)
    if draw.chance(0.3):
        return _state(draw, draw.subject(), tense, "human")
    return draw.event(tense, time=0.1)


def subordinate(draw: Draw) -> Text:
    """The dog sleeps because it is tired. / If it rains, the teacher will pick up the child."""
    conjunction = draw.one((lx.BECAUSE, lx.BECAUSE, lx.ALTHOUGH, lx.WHEN, lx.IF, lx.WHILE, lx.BEFORE))
    if conjunction is lx.WHEN:
        tense, other = "present", "present"
    elif conjunction is lx.IF:
        tense, other = draw.one(("future", "can", "must")), "present"
    elif conjunction in (lx.WHILE, lx.BEFORE):
        tense = other = draw.one(("present", "past"))
    else:
        tense = draw.one(("present", "past", "past", "want", "future"))
        other = tense if tense == "past" else "present"
    main = draw.event(tense, time=0.15)
    if conjunction in (lx.BECAUSE, lx.ALTHOUGH):
        content = _reason(draw, main, other)
    else:
        content = _weather(draw, other) if draw.chance(0.2) else draw.event(other, time=0.0)
    first = not _refers_back(content, main) and draw.chance(0.4)
    return with_subordinate(main, conjunction, content, first)


def _refers_back(content: Clause, main: Clause) -> bool:
    return content.subject.pronoun and content.subject is not main.subject and content.subject is not IT


def reported(draw: Draw) -> Text:
    """The teacher says that the woman is sick. / Anna does not know whether the bird sleeps."""
    verb = draw.one((lx.SAY, lx.SAY, lx.BELIEVE, lx.KNOW, lx.ASK))
    tense = draw.one(("present", "past")) if verb in (lx.SAY, lx.ASK) else "present"
    subject = draw.subject()
    while not says_its_tense(verb, tense, subject):
        subject = draw.subject()
    whether = verb is lx.ASK or (verb is lx.KNOW and subject.definite and draw.chance(0.5))
    main = Clause(subject, verb, tense, negated=whether and verb is lx.KNOW)
    if whether and not can_be_negated(main):
        whether, main = verb is lx.ASK, main._replace(negated=False)
    inner = "past" if tense == "past" else draw.tense()
    if draw.chance(0.3):
        content = _state(draw, draw.subject(), "past" if inner == "past" else "present", "human")
    else:
        content = draw.event(inner, time=0.2)
    return with_subordinate(main, lx.WHETHER if whether else lx.THAT, content)


def coordination(draw: Draw) -> Text:
    """The man works and the children play. / Anna bought a hat, but she cannot find it."""
    conjunction = draw.one((_AND, _BUT))
    if draw.chance(0.4):
        first = draw.act(draw.one(_EARLIER), "past")._replace(negated=False, phrases=())
        thing, subject = first.accusative, first.subject
        back = subject if subject.pronoun else PRONOUNS.get(subject.reference)
        if thing is not None and thing.key in _THING_WORDS and back is not None and back.key != "it":
            lost = conjunction is _BUT and draw.chance(0.4)
            verb, tense = draw.one(_FIND if lost else _LATER), "can" if lost else draw.one(("want", "future"))
            again = PRONOUNS[thing.reference]
            return coordinated(
                first, conjunction, Clause(back, verb, tense, accusative=again, negated=conjunction is _BUT)
            )
    tense = draw.tense()
    return coordinated(draw.event(tense, time=0.15), conjunction, draw.event(tense, time=0.0))


def asked(draw: Draw) -> Text:
    """Does the teacher call the woman? / Where does the child sleep? / Who opened the door?"""
    kind = draw.one(("who", "be", "yes or no", "yes or no", "yes or no", "word", "word", "word"))
    if kind == "who":
        tense = draw.one(("present", "past", "future", "can", "want"))
        return statement(draw.event(tense, WHO, time=0.2)._replace(negated=False), mark="?")
    if kind == "be":
        return question(_state(draw, draw.subject(), draw.one(("present", "past")), "human"))
    if kind == "yes or no" and draw.chance(0.5):
        return question(draw.act(draw.one(_OPENING_VERBS), "present", time=0.2)._replace(negated=False, adverb=None))
    clause = draw.event(draw.one(("past", "future", "can", "want")), time=0.2)._replace(negated=False, adverb=None)
    return question(clause) if kind == "yes or no" or clause.verb is lx.HAVE else _asked_with_word(draw, clause)


def _asked_with_word(draw: Draw, clause: Clause) -> Text:
    """Ask for the reason, or for the time, the place or the object, which the clause then leaves out."""
    word = draw.one((_WHY, _WHEN, _WHERE, _WHAT))
    if word is _WHEN:
        return question(clause._replace(time=None), _WHEN)
    if word is _WHERE and clause.verb not in lx.MOTION and clause.verb.base not in ("get", "laugh"):
        return question(clause._replace(phrases=()), _WHERE)
    if word is _WHAT and clause.verb in _ASKED:
        return question(clause._replace(accusative=None), _WHAT)
    return question(clause, _WHY)


def relative(draw: Draw) -> Text:
    """The man who calls the woman is old."""
    noun, plural = draw.noun((lx.GROWN, lx.YOUNG, lx.ROLE)), draw.chance(0.3)
    head = draw.spoken_of(noun_phrase(noun, "the", plural=plural))
    pronoun = "die" if plural else _RELATIVE_PRONOUNS[noun.gender]
    inner = draw.one(("present", "past"))
    subject = relative_subject(head, pronoun, draw.event_of(head, inner))
    if draw.chance(0.5):
        return statement(_maybe_not(draw, _state(draw, subject, inner, "human")))
    return statement(draw.event_of(subject, draw.one((inner, inner, "future", "can", "want"))))


def attempt(draw: Draw) -> Text:
    """The teacher tries to call the woman. / Anna forgot to open the window."""
    verb = draw.one((lx.TRY, lx.FORGET))
    tense = "past" if verb is lx.FORGET else draw.one(("present", "past", "future"))
    subject = draw.subject()
    while not says_its_tense(verb, tense, subject):
        subject = draw.subject()
    main = Clause(subject, verb, tense)
    content = draw.event_of(subject, "future")._replace(negated=False, adverb=None, time=None)
    return with_infinitive(main, content)


CONSTRUCTIONS: Tuple[Tuple[Callable[[Draw], Text], int], ...] = (
    (simple, 26),
    (copula, 9),
    (comparison, 6),
    (measure, 4),
    (subordinate, 17),
    (reported, 8),
    (coordination, 7),
    (asked, 14),
    (relative, 5),
    (attempt, 4),
)
_DECK = tuple(construction for construction, weight in CONSTRUCTIONS for _ in range(weight))


def fits(pair: Text) -> bool:
    """Return whether both sides have between `MIN_WORDS` and `MAX_WORDS` words."""
    return all(MIN_WORDS <= len(side.split(" ")) <= MAX_WORDS for side in pair)


def sentence_pairs(seed: int) -> Iterator[Text]:
    """Yield sentence pairs without end, repetitions among them; the same seed yields the same pairs.

    Args:
        seed: a non-negative integer.
    """
    draw = Draw(seed)
    while True:
        draw.forget()
        pair = draw.one(_DECK)(draw)
        if fits(pair):
            yield pair
