"""Drawing words, phrases and clauses at random: who does what, and what goes together.

Every choice comes from `random.Random.random()`, the one method whose sequence Python promises to keep between its
versions, so that a seed gives the same text everywhere.
"""

from __future__ import annotations

import random
from typing import Optional, Sequence, Set, Tuple, TypeVar

from . import lexicon as lx
from .clauses import Clause
from .lexicon import Adjective, Noun, Text, Verb
from .phrases import PRONOUNS, Nominal, both, name, noun_phrase, prepositional

T = TypeVar("T")

TENSES = ("present",) * 6 + ("past",) * 6 + ("future",) * 3 + ("can", "can", "must", "must", "want", "want")
_FRAMES = (lx.ALONE,) * 4 + (lx.MOTION,) * 3 + (lx.TRANSITIVE,) * 9 + (lx.DATIVE,) * 2 + (lx.GIVING,) * 3
_POSSESSIVES = ("my", "his", "her", "our")
_PRONOUN_NAMES = ("I", "he", "she", "we", "they")
_LOCATIONS = (  # where, in the dative, one can be
    (Text("in", "in"), ("garden", "kitchen", "house", "city")),
    (Text("in", "in"), ("garden", "kitchen", "house", "city")),
    (Text("at", "an"), ("school", "station")),
    (Text("behind", "hinter"), ("house", "school", "station", "door")),
    (Text("next to", "neben"), ("station", "door", "window", "table", "car")),
    (Text("under", "unter"), ("table", "window", "lamp")),
)
_DIRECTIONS = (
    (Text("into", "in"), "acc", (lx.PLACE, lx.BUILDING)),
    (Text("to", "zu"), "dat", (lx.STOP,)),
    (Text("through", "durch"), "acc", (lx.PLACE,)),
)
_WITH_PLACE = ("sleep", "work", "play", "arrive", "fall", "see", "look", "find", "buy", "read", "eat", "drink")
_WITH_COMPANY = ("work", "play")


class Draw:
    """A source of random words, phrases and clauses.

    It remembers what the sentence at hand has spoken of, so that no teacher calls the teacher; `forget` begins anew.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._used: Set[str] = set()

    def one(self, options: Sequence[T]) -> T:
        """Return one of the options, each as likely as any other."""
        return options[int(self._random.random() * len(options))]

    def chance(self, probability: float) -> bool:
        """Return True with the given probability."""
        return self._random.random() < probability

    def forget(self) -> None:
        """Begin a new sentence."""
        self._used.clear()

    def spoken_of(self, nominal: Nominal) -> Nominal:
        """Remember the nominal, and return it."""
        self._used.add(nominal.key)
        return nominal

    # Noun phrases

    def noun(self, kinds: Tuple[str, ...], counted: bool = False) -> Noun:
        """Return a noun of one of the kinds that the sentence has not used yet."""
        fitting = [noun for noun in lx.NOUNS if noun.kind in kinds and (noun.de_plural or not counted)]
        return self.one([noun for noun in fitting if noun.en not in self._used] or fitting)

    def adjective(self, noun: Noun, probability: float = 0.35) -> Optional[Adjective]:
        """Return, with the given probability, an adjective that suits the noun."""
        fitting = [adjective for adjective in lx.ADJECTIVES if noun.kind in adjective.kinds]
        return self.one(fitting) if fitting and self.chance(probability) else None

    def determiner(self, noun: Noun, plural: bool) -> str:
        """Return a definite determiner that suits the noun."""
        owner = self.one(lx.NAMES) + "'s"
        if noun.kind == lx.KIN:
            return self.one(("the", *_POSSESSIVES, owner))
        demonstrative = "these" if plural else "this"
        if noun.kind in (lx.GROWN, lx.YOUNG, lx.OPENING) or self.chance(0.5):
            return self.one(("the", "the", "the", demonstrative))
        return self.one((*_POSSESSIVES, owner, demonstrative))

    def definite(self, kinds: Tuple[str, ...], plural: float = 0.3) -> Nominal:
        """Return a definite noun phrase without an adjective."""
        noun, many = self.noun(kinds, counted=True), self.chance(plural)
        return self.spoken_of(noun_phrase(noun, self.determiner(noun, many), plural=many))

    def subject(self, animal: bool = False, pronoun: bool = True) -> Nominal:
        """Return somebody who can act: a pronoun, a name, two names, a person or, where allowed, an animal."""
        if pronoun and self.chance(0.22):
            return self.spoken_of(PRONOUNS[self.one(_PRONOUN_NAMES)])
        if self.chance(0.2):
            return self.named()
        return self.person((lx.ANIMAL,) if animal and self.chance(0.5) else lx.PEOPLE)

    def named(self) -> Nominal:
        """Return a name or, rarely, two."""
        unused = [text for text in lx.NAMES if text not in self._used] or lx.NAMES
        first, second = self.one(unused), self.one(unused)
        single = self.spoken_of(name(first, "she" if first in lx.WOMEN else "he"))
        return both(single, self.spoken_of(name(second))) if second != first and self.chance(0.2) else single

    def person(self, kinds: Tuple[str, ...]) -> Nominal:
        """Return a noun phrase for a living being."""
        noun = self.noun(kinds)
        plural = bool(noun.de_plural) and self.chance(0.3)
        if plural and self.chance(0.35):
            number = self.one(lx.NUMBERS[:2] if noun.kind == lx.KIN else lx.NUMBERS)
            return self.spoken_of(noun_phrase(noun, "", self.adjective(noun, 0.2), number=number))
        determiner = self.determiner(noun, plural)
        if not plural and noun.kind != lx.KIN and self.chance(0.25):
            determiner = self.one(("a", "a", "a", "every"))
        described = 0.2 if determiner in ("the", "this", "these") else 0.4  # the rarer endings follow the others
        return self.spoken_of(noun_phrase(noun, determiner, self.adjective(noun, described), plural))

    def whom(self, subject: Nominal, kinds: Tuple[str, ...] = lx.PEOPLE) -> Nominal:
        """Return a living object, other than the subject."""
        others = [p for p in _PRONOUN_NAMES if p not in self._used and {p, subject.key} != {"I", "we"}]
        if lx.KIN in kinds and self.chance(0.2) and others:
            return self.spoken_of(PRONOUNS[self.one(others)])
        if lx.KIN in kinds and self.chance(0.2):
            return self.named()
        return self.person(kinds)

    def thing(self, kinds: Tuple[str, ...]) -> Nominal:
        """Return a noun phrase for a thing, definite or not, counted or not."""
        noun = self.noun(kinds)
        if not noun.de_plural:
            determiner = "" if self.chance(0.7) else self.one(("the", *_POSSESSIVES))
            return self.spoken_of(noun_phrase(noun, determiner, self.adjective(noun, 0.4)))
        plural = self.chance(0.3)
        if plural and self.chance(0.4):
            return self.spoken_of(noun_phrase(noun, "", self.adjective(noun), number=self.one(lx.NUMBERS)))
        if self.chance(0.4) and noun.kind != lx.OPENING:
            return self.spoken_of(noun_phrase(noun, "" if plural else "a", self.adjective(noun), plural))
        return self.spoken_of(noun_phrase(noun, self.determiner(noun, plural), self.adjective(noun), plural))

    def something(self, verb: Verb, subject: Nominal) -> Nominal:
        """Return an accusative object that suits the verb."""
        noun = self.noun(verb.kinds)
        if noun.kind in (*lx.PEOPLE, lx.ANIMAL):
            return self.whom(subject, lx.PEOPLE if noun.kind in lx.PEOPLE else (lx.ANIMAL,))
        return self.thing((noun.kind,))

    # Adverbials

    def location(self) -> Text:
        """Return a place to be at, in the dative."""
        preposition, names = self.one(_LOCATIONS)
        nouns = [noun for noun in lx.NOUNS if noun.en in names]
        noun = self.one([noun for noun in nouns if noun.en not in self._used] or nouns)
        self._used.add(noun.en)
        determiner = "our" if self.chance(0.1) else "the"
        return prepositional(preposition, "dat", noun_phrase(noun, determiner, self.adjective(noun, 0.25)))

    def city(self, preposition: Text) -> Text:
        """Return a city after a preposition."""
        city = self.one(lx.CITIES)
        return Text(f"{preposition.en} {city.en}", f"{preposition.de} {city.de}")

    def place(self, verb: Verb) -> Text:
        """Return where somebody does something."""
        if self.chance(0.7 if verb.base == "arrive" else 0.2) and verb.base not in ("sleep", "fall"):
            return self.city(Text("in", "in"))
        if verb.base == "arrive":
            return prepositional(Text("at", "an"), "dat", noun_phrase(self.noun((lx.STOP,))))
        return self.location()

    def direction(self, verb: Verb) -> Text:
        """Return where somebody goes."""
        if verb.base == "go" and self.chance(0.2):
            return Text("home", "nach Hause")
        if verb.base == "drive" and self.chance(0.6):
            return self.city(Text("to", "nach"))
        preposition, case, kinds = _DIRECTIONS[1] if verb.base == "drive" else self.one(_DIRECTIONS)
        noun = self.noun(kinds)
        return prepositional(preposition, case, noun_phrase(noun, "the", self.adjective(noun, 0.25)))

    def time(self, clause: Clause) -> Text:
        """Return an adverbial of time that suits the clause."""
        tense = clause.tense
        if clause.verb.base == "get" or self.chance(0.15):
            hour = self.one(lx.HOURS)
            return Text(f"at {hour} o'clock", f"um {hour} Uhr")
        if tense == "past" and self.chance(0.2):
            year = self.one(lx.YEARS)
            return Text(f"in {year}", f"im Jahr {year}")
        if tense == "present":
            return self.one(lx.HABIT_TIMES[1:] if clause.negated else lx.HABIT_TIMES)
        return self.one(lx.PAST_TIMES if tense == "past" else lx.COMING_TIMES)

    # Clauses

    def tense(self) -> str:
        """Return a tense or a modal verb."""
        return self.one(TENSES)

    def event(self, tense: str, subject: Optional[Nominal] = None, time: float = 0.4) -> Clause:
        """Return a clause in which somebody does something.

        Args:
            tense: one of `phrases.TENSES`.
            subject: who; drawn where it is not given. It should be a person.
            time: how likely an adverbial of time is; 0 leaves out those of frequency ("often") too.
        """
        verb = lx.HAVE if self.chance(0.05) else self.one(self.one(_FRAMES))
        while verb.stative and tense != "present" and (verb, tense) != (lx.HAVE, "past"):
            verb = self.one(self.one(_FRAMES))
        return self.act(verb, tense, subject, time)

    def act(self, verb: Verb, tense: str, subject: Optional[Nominal] = None, time: float = 0.0) -> Clause:
        """Return a clause in which somebody does what the verb says; the arguments are those of `event`."""
        if subject is None:
            subject = self.subject(verb.animal)
        while not says_its_tense(verb, tense, subject):
            subject = self.subject(pronoun=False)
        dative = self.whom(subject) if verb in lx.DATIVE + lx.GIVING else None
        accusative = self.something(verb, subject) if verb.kinds else None
        clause = Clause(subject, verb, tense, dative, accusative, phrases=self._phrases(verb))
        return self._finished(clause, 1.0 if verb.base == "get" else time)

    def event_of(self, subject: Nominal, tense: str) -> Clause:
        """Return an event without an adverbial of time whose subject suits it."""
        clause = self.event(tense, subject, time=0.0)
        while clause.subject is not subject or clause.verb.base == "get":
            clause = self.event(tense, subject, time=0.0)
        return clause

    def _phrases(self, verb: Verb) -> Tuple[Text, ...]:
        if verb in lx.MOTION:
            return (self.direction(verb),)
        phrases = []
        if verb.base in _WITH_COMPANY and self.chance(0.3):
            phrases.append(prepositional(Text("with", "mit"), "dat", self.whom(PRONOUNS["I"])))
        if verb.base == "buy" and self.chance(0.25):
            phrases.append(prepositional(Text("for", "für"), "acc", self.whom(PRONOUNS["I"])))
        elif self.chance(0.6 if verb in lx.ALONE else 0.25) and verb.base in _WITH_PLACE:
            phrases.append(self.place(verb))
        return tuple(phrases)

    def _finished(self, clause: Clause, time: float) -> Clause:
        """Add negation and an adverbial of time or frequency."""
        if clause.tense != "must" and can_be_negated(clause) and self.chance(0.2):
            clause = clause._replace(negated=True)
        if clause.verb.stative:
            return clause
        if self.chance(time):
            return clause._replace(time=self.time(clause))
        if time > 0 and clause.tense in ("present", "past") and not clause.negated and self.chance(0.25):
            return clause._replace(adverb=self.one(lx.OFTEN))
        return clause


def says_its_tense(verb: Verb, tense: str, subject: Nominal) -> bool:
    """Return whether the English form shows the tense, and the German form is one that the corpus uses.

    "They read" may be present or past. Of the first person singular the corpus has auxiliaries only, which keeps its
    vocabulary small.
    """
    if verb.base == verb.past and tense in ("present", "past") and subject.agreement != "3sg":
        return False
    return not (subject.agreement == "1sg" and tense == "present" and verb not in (lx.BE, lx.HAVE))


def can_be_negated(clause: Clause) -> bool:
    """Return whether "not" has one reading: no numbers or "every", no indefinite phrase that "kein" cannot negate."""
    nominals = [clause.subject, clause.dative, clause.accusative]
    if any(n is not None and n.en.startswith("every ") for n in nominals):
        return False
    accusative = clause.accusative
    fits = accusative is None or accusative.definite or bool(accusative.none)
    return fits and clause.subject.definite and (clause.dative is None or clause.dative.definite)
