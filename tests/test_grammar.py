"""The grammar of the embedded corpus: sentences written by hand, in both languages, for each of its constructions."""

from __future__ import annotations

from typing import Dict, Optional, Tuple

import pytest

from vaswani_plugin.tools.grammar import lexicon as lx
from vaswani_plugin.tools.grammar.clauses import (
    Clause,
    coordinated,
    question,
    relative_subject,
    statement,
    with_infinitive,
    with_subordinate,
)
from vaswani_plugin.tools.grammar.lexicon import Adjective, Noun, Text, Verb
from vaswani_plugin.tools.grammar.phrases import (
    IT,
    PRONOUNS,
    Nominal,
    both,
    german_verbs,
    name,
    noun_phrase,
    prepositional,
    zu_infinitive,
)
from vaswani_plugin.tools.grammar.sentences import WHO, fits

TOMORROW, YESTERDAY = Text("tomorrow", "morgen"), Text("yesterday", "gestern")


def noun(word: str) -> Noun:
    return next(entry for entry in lx.NOUNS if entry.en == word)


def adjective(word: str) -> Adjective:
    return next(entry for entry in lx.ADJECTIVES if entry.en == word)


def verb(base: str, particle: str = "") -> Verb:
    entries = lx.ALONE + lx.MOTION + lx.TRANSITIVE + lx.DATIVE + lx.GIVING
    return next(entry for entry in entries if entry.base == base and (not particle or entry.particle == particle))


def np(
    word: str, determiner: str = "the", how: str = "", plural: bool = False, number: Optional[Text] = None
) -> Nominal:
    return noun_phrase(noun(word), determiner, adjective(how) if how else None, plural, number)


def pp(en: str, de: str, case: str, nominal: Nominal) -> Text:
    return prepositional(Text(en, de), case, nominal)


TEACHER, WOMAN, CHILD, DOG = np("teacher"), np("woman"), np("child"), np("dog")
ANNA, PETER = name("Anna"), name("Peter")
CALLS = Clause(TEACHER, verb("call"), accusative=WOMAN)
IN_THE_GARDEN = pp("in", "in", "dat", np("garden"))

# What the grammar builds, and the sentences as a person wrote them.
SENTENCES: Dict[str, Tuple[Text, str, str]] = {
    "separable prefix last": (
        statement(CALLS),
        "The teacher calls the woman.",
        "Der Lehrer ruft die Frau an.",
    ),
    "plural agreement": (
        statement(Clause(np("child", plural=True), verb("open"), accusative=np("window", plural=True))),
        "The children open the windows.",
        "Die Kinder machen die Fenster auf.",
    ),
    "perfect of a separable verb": (
        statement(CALLS._replace(tense="past", time=YESTERDAY)),
        "The teacher called the woman yesterday.",
        "Der Lehrer hat die Frau gestern angerufen.",
    ),
    "perfect with sein": (
        statement(Clause(np("girl", plural=True), verb("arrive"), "past", phrases=(Text("in Vienna", "in Wien"),))),
        "The girls arrived in Vienna.",
        "Die Mädchen sind in Wien angekommen.",
    ),
    "perfect of a prefix that stays": (
        statement(Clause(ANNA, verb("sell"), "past", accusative=np("car", "her", "old"))),
        "Anna sold her old car.",
        "Anna hat ihr altes Auto verkauft.",
    ),
    "future": (
        statement(Clause(PRONOUNS["I"], verb("pick"), "future", accusative=np("child", "our"))),
        "I will pick up our child.",
        "Ich werde unser Kind abholen.",
    ),
    "modal can, negated": (
        statement(Clause(PETER, verb("find"), "can", accusative=np("hat", "his"), negated=True)),
        "Peter cannot find his hat.",
        "Peter kann seinen Hut nicht finden.",
    ),
    "modal want": (
        statement(Clause(np("sister", "my"), verb("invite"), "want", accusative=np("doctor", plural=True))),
        "My sister wants to invite the doctors.",
        "Meine Schwester will die Ärzte einladen.",
    ),
    "modal want, negated": (
        statement(Clause(np("boy", plural=True), verb("fall", "asleep"), "want", negated=True)),
        "The boys do not want to fall asleep.",
        "Die Jungen wollen nicht einschlafen.",
    ),
    "modal must": (
        statement(Clause(PRONOUNS["we"], verb("get", "up"), "must", time=Text("at 7 o'clock", "um 7 Uhr"))),
        "We must get up at 7 o'clock.",
        "Wir müssen um 7 Uhr aufstehen.",
    ),
    "fronted time inverts": (
        statement(CALLS._replace(tense="future", time=TOMORROW), "time"),
        "Tomorrow the teacher will call the woman.",
        "Morgen wird der Lehrer die Frau anrufen.",
    ),
    "fronted place inverts": (
        statement(Clause(DOG, verb("sleep"), phrases=(pp("under", "unter", "dat", np("table")),)), "place"),
        "Under the table the dog sleeps.",
        "Unter dem Tisch schläft der Hund.",
    ),
    "in the year": (
        statement(Clause(PRONOUNS["she"], verb("work"), "past", time=Text("in 1998", "im Jahr 1998")), "time"),
        "In 1998 she worked.",
        "Im Jahr 1998 hat sie gearbeitet.",
    ),
    "dative and accusative": (
        statement(Clause(np("man"), verb("give"), dative=CHILD, accusative=np("apple", "a", "red"))),
        "The man gives the child a red apple.",
        "Der Mann gibt dem Kind einen roten Apfel.",
    ),
    "time between definite and indefinite objects": (
        statement(
            Clause(np("mother", "her"), verb("show"), "past", np("girl", plural=True), np("hat", "a"), time=YESTERDAY)
        ),
        "Her mother showed the girls a hat yesterday.",
        "Ihre Mutter hat den Mädchen gestern einen Hut gezeigt.",
    ),
    "dative verb": (
        statement(Clause(np("boy"), verb("help"), dative=np("neighbor", "his", "old"))),
        "The boy helps his old neighbor.",
        "Der Junge hilft seinem alten Nachbarn.",
    ),
    "separable dative verb": (
        statement(Clause(np("child", plural=True), verb("listen"), dative=np("teacher", "our"))),
        "The children listen to our teacher.",
        "Die Kinder hören unserem Lehrer zu.",
    ),
    "dative plural": (
        statement(Clause(np("woman"), verb("help"), "past", np("child", number=Text("three", "drei"), how="small"))),
        "The woman helped three small children.",
        "Die Frau hat drei kleinen Kindern geholfen.",
    ),
    "weak masculine": (
        statement(Clause(WOMAN, verb("see"), accusative=np("boy", "this", "tired"))),
        "The woman sees this tired boy.",
        "Die Frau sieht diesen müden Jungen.",
    ),
    "strong ending without a determiner": (
        statement(Clause(np("man", "the", "old"), verb("drink"), accusative=np("coffee", "", "fresh"))),
        "The old man drinks fresh coffee.",
        "Der alte Mann trinkt frischen Kaffee.",
    ),
    "strong ending after a genitive": (
        statement(Clause(np("brother", "Anna's", "tall"), verb("sleep"), phrases=(IN_THE_GARDEN,))),
        "Anna's tall brother sleeps in the garden.",
        "Annas großer Bruder schläft im Garten.",
    ),
    "strong dative": (
        statement(
            Clause(PRONOUNS["he"], verb("play"), phrases=(pp("with", "mit", "dat", np("dog", "Peter's", "small")),))
        ),
        "He plays with Peter's small dog.",
        "Er spielt mit Peters kleinem Hund.",
    ),
    "mixed endings": (
        statement(Clause(np("dog", "a", "big"), verb("eat"), accusative=np("egg", "my", "fresh"))),
        "A big dog eats my fresh egg.",
        "Ein großer Hund isst mein frisches Ei.",
    ),
    "der-words": (
        statement(Clause(np("girl", "every"), verb("know"), accusative=np("man", "these", "tall", True))),
        "Every girl knows these tall men.",
        "Jedes Mädchen kennt diese großen Männer.",
    ),
    "nicht after definite objects and time": (
        statement(CALLS._replace(tense="future", time=TOMORROW, negated=True)),
        "The teacher will not call the woman tomorrow.",
        "Der Lehrer wird die Frau morgen nicht anrufen.",
    ),
    "nicht before a place": (
        statement(Clause(np("cat"), verb("sleep"), phrases=(pp("behind", "hinter", "dat", np("door")),), negated=True)),
        "The cat does not sleep behind the door.",
        "Die Katze schläft nicht hinter der Tür.",
    ),
    "kein with an ein-word's endings": (
        statement(Clause(ANNA, verb("buy"), "past", accusative=np("hat", "a", "new"), negated=True)),
        "Anna did not buy a new hat.",
        "Anna hat keinen neuen Hut gekauft.",
    ),
    "kein in the plural": (
        statement(Clause(PRONOUNS["they"], verb("eat"), accusative=np("apple", "", "red", True), negated=True)),
        "They do not eat red apples.",
        "Sie essen keine roten Äpfel.",
    ),
    "kein with a mass noun": (
        statement(Clause(np("cat"), verb("drink"), accusative=np("milk", "", "cold"), negated=True)),
        "The cat does not drink cold milk.",
        "Die Katze trinkt keine kalte Milch.",
    ),
    "frequency": (
        statement(CALLS._replace(tense="past", adverb=Text("never", "nie"))),
        "The teacher never called the woman.",
        "Der Lehrer hat die Frau nie angerufen.",
    ),
    "into is accusative, and contracts": (
        statement(Clause(DOG, verb("run"), phrases=(pp("into", "in", "acc", np("house")),))),
        "The dog runs into the house.",
        "Der Hund läuft ins Haus.",
    ),
    "in is dative": (
        statement(Clause(DOG, verb("sleep"), phrases=(pp("in", "in", "dat", np("kitchen", "the", "small")),))),
        "The dog sleeps in the small kitchen.",
        "Der Hund schläft in der kleinen Küche.",
    ),
    "to contracts in the feminine": (
        statement(Clause(np("girl", plural=True), verb("go"), "past", phrases=(pp("to", "zu", "dat", np("school")),))),
        "The girls went to the school.",
        "Die Mädchen sind zur Schule gegangen.",
    ),
    "through is accusative": (
        statement(Clause(PETER, verb("run"), phrases=(pp("through", "durch", "acc", np("garden", "the", "big")),))),
        "Peter runs through the big garden.",
        "Peter läuft durch den großen Garten.",
    ),
    "particle after a pronoun object": (
        statement(Clause(np("father", "my"), verb("pick"), accusative=PRONOUNS["she"])),
        "My father picks her up.",
        "Mein Vater holt sie ab.",
    ),
    "preposition before a pronoun object": (
        statement(Clause(np("boy"), verb("look"), accusative=PRONOUNS["they"], time=Text("every day", "jeden Tag"))),
        "The boy looks for them every day.",
        "Der Junge sucht sie jeden Tag.",
    ),
    "copula": (
        statement(Clause(DOG, lx.BE, predicate=Text("very tired", "sehr müde"), negated=True)),
        "The dog is not very tired.",
        "Der Hund ist nicht sehr müde.",
    ),
    "first person copula": (
        statement(Clause(PRONOUNS["I"], lx.BE, "past", predicate=IN_THE_GARDEN)),
        "I was in the garden.",
        "Ich war im Garten.",
    ),
    "possession in the past": (
        statement(Clause(np("neighbor", "our", plural=True), lx.HAVE, "past", accusative=np("horse", "a"))),
        "Our neighbors had a horse.",
        "Unsere Nachbarn hatten ein Pferd.",
    ),
    "two names": (
        statement(Clause(both(ANNA, PETER), verb("work"), phrases=(Text("in Munich", "in München"),))),
        "Anna and Peter work in Munich.",
        "Anna und Peter arbeiten in München.",
    ),
    "digits": (
        statement(Clause(np("book", "this"), lx.COST, predicate=Text("20 euros", "20 Euro"))),
        "This book costs 20 euros.",
        "Dieses Buch kostet 20 Euro.",
    ),
    "yes-no question": (
        question(CALLS),
        "Does the teacher call the woman?",
        "Ruft der Lehrer die Frau an?",
    ),
    "question about a state": (
        question(Clause(np("mother", "her"), lx.BE, "past", predicate=Text("sick", "krank"))),
        "Was her mother sick?",
        "War ihre Mutter krank?",
    ),
    "question word": (
        question(Clause(CHILD, verb("sleep"), "past"), Text("where", "wo")),
        "Where did the child sleep?",
        "Wo hat das Kind geschlafen?",
    ),
    "question about the subject": (
        statement(Clause(WHO, verb("turn", "off"), "past", accusative=np("lamp")), mark="?"),
        "Who turned off the lamp?",
        "Wer hat die Lampe ausgemacht?",
    ),
    "separable verb joined in a subordinate clause": (
        with_subordinate(Clause(DOG, verb("sleep")), lx.BECAUSE, CALLS),
        "The dog sleeps because the teacher calls the woman.",
        "Der Hund schläft, weil der Lehrer die Frau anruft.",
    ),
    "subordinate perfect, and it by gender": (
        with_subordinate(
            Clause(np("cat"), verb("fall", "asleep"), "past"),
            lx.ALTHOUGH,
            Clause(PRONOUNS["it-f"], lx.BE, "past", predicate=Text("sick", "krank")),
        ),
        "The cat fell asleep although it was sick.",
        "Die Katze ist eingeschlafen, obwohl sie krank war.",
    ),
    "subordinate clause first inverts the main clause": (
        with_subordinate(
            Clause(np("teacher"), verb("pick", "up"), "future", accusative=CHILD), lx.IF, Clause(IT, lx.RAIN), True
        ),
        "If it rains, the teacher will pick up the child.",
        "Wenn es regnet, wird der Lehrer das Kind abholen.",
    ),
    "reported future": (
        with_subordinate(
            Clause(PETER, lx.SAY, "past"), lx.THAT, Clause(PRONOUNS["he"], verb("arrive"), "future", time=TOMORROW)
        ),
        "Peter said that he will arrive tomorrow.",
        "Peter hat gesagt, dass er morgen ankommen wird.",
    ),
    "reported question": (
        with_subordinate(
            Clause(ANNA, lx.KNOW, negated=True), lx.WHETHER, Clause(np("boy"), verb("open"), "past", None, np("door"))
        ),
        "Anna does not know whether the boy opened the door.",
        "Anna weiß nicht, ob der Junge die Tür aufgemacht hat.",
    ),
    "and without a comma": (
        coordinated(Clause(np("man"), verb("work")), Text("and", "und"), Clause(CHILD, verb("play"))),
        "The man works and the child plays.",
        "Der Mann arbeitet und das Kind spielt.",
    ),
    "but with a comma, and it as an object": (
        coordinated(
            Clause(ANNA, verb("buy"), "past", accusative=np("hat", "a")),
            Text("but", "aber"),
            Clause(PRONOUNS["she"], verb("find"), "can", accusative=PRONOUNS["it-m"], negated=True),
        ),
        "Anna bought a hat, but she cannot find it.",
        "Anna hat einen Hut gekauft, aber sie kann ihn nicht finden.",
    ),
    "relative clause": (
        statement(
            Clause(
                relative_subject(np("girl"), "das", Clause(np("girl"), verb("call"), "present", None, ANNA)), lx.BE
            )._replace(predicate=Text("young", "jung"))
        ),
        "The girl who calls Anna is young.",
        "Das Mädchen, das Anna anruft, ist jung.",
    ),
    "infinitive with zu inside a separable verb": (
        with_infinitive(Clause(TEACHER, lx.TRY), CALLS),
        "The teacher tries to call the woman.",
        "Der Lehrer versucht, die Frau anzurufen.",
    ),
    "infinitive with zu": (
        with_infinitive(
            Clause(ANNA, lx.FORGET, "past"), Clause(ANNA, verb("buy"), accusative=np("bread", "", "fresh"))
        ),
        "Anna forgot to buy fresh bread.",
        "Anna hat vergessen, frisches Brot zu kaufen.",
    ),
}


@pytest.mark.parametrize("phenomenon", SENTENCES)
def test_whole_sentences(phenomenon: str) -> None:
    built, english, german = SENTENCES[phenomenon]
    assert built == (english, german)


# The cases of a noun phrase, nominative, accusative and dative, as a grammar book lists them.
DECLENSIONS = {
    ("man", "the", "old", False): ("der alte Mann", "den alten Mann", "dem alten Mann"),
    ("woman", "the", "old", False): ("die alte Frau", "die alte Frau", "der alten Frau"),
    ("child", "the", "small", False): ("das kleine Kind", "das kleine Kind", "dem kleinen Kind"),
    ("child", "the", "small", True): ("die kleinen Kinder", "die kleinen Kinder", "den kleinen Kindern"),
    ("man", "a", "old", False): ("ein alter Mann", "einen alten Mann", "einem alten Mann"),
    ("woman", "a", "old", False): ("eine alte Frau", "eine alte Frau", "einer alten Frau"),
    ("child", "a", "small", False): ("ein kleines Kind", "ein kleines Kind", "einem kleinen Kind"),
    ("brother", "our", "tall", True): ("unsere großen Brüder", "unsere großen Brüder", "unseren großen Brüdern"),
    ("coffee", "", "cold", False): ("kalter Kaffee", "kalten Kaffee", "kaltem Kaffee"),
    ("milk", "", "cold", False): ("kalte Milch", "kalte Milch", "kalter Milch"),
    ("water", "", "cold", False): ("kaltes Wasser", "kaltes Wasser", "kaltem Wasser"),
    ("apple", "", "red", True): ("rote Äpfel", "rote Äpfel", "roten Äpfeln"),
    ("car", "a", "expensive", False): ("ein teures Auto", "ein teures Auto", "einem teuren Auto"),
    ("car", "these", "expensive", True): ("diese teuren Autos", "diese teuren Autos", "diesen teuren Autos"),
    ("boy", "every", "tired", False): ("jeder müde Junge", "jeden müden Jungen", "jedem müden Jungen"),
    ("neighbor", "my", "", False): ("mein Nachbar", "meinen Nachbarn", "meinem Nachbarn"),
    ("girl", "the", "", True): ("die Mädchen", "die Mädchen", "den Mädchen"),
}


@pytest.mark.parametrize("phrase", DECLENSIONS)
def test_declension(phrase: Tuple[str, str, str, bool]) -> None:
    built = np(*phrase)
    assert (built.nom, built.acc, built.dat) == DECLENSIONS[phrase]


@pytest.mark.parametrize(
    ("tense", "agreement", "expected"),
    [
        ("present", "1sg", ("hole", "ab", "abhole")),
        ("present", "3sg", ("holt", "ab", "abholt")),
        ("present", "pl", ("holen", "ab", "abholen")),
        ("past", "1sg", ("habe", "abgeholt", "abgeholt habe")),
        ("past", "3sg", ("hat", "abgeholt", "abgeholt hat")),
        ("future", "pl", ("werden", "abholen", "abholen werden")),
        ("can", "3sg", ("kann", "abholen", "abholen kann")),
        ("must", "pl", ("müssen", "abholen", "abholen müssen")),
        ("want", "1sg", ("will", "abholen", "abholen will")),
    ],
)
def test_conjugation_of_a_separable_verb(tense: str, agreement: str, expected: Tuple[str, str, str]) -> None:
    assert german_verbs(verb("pick"), tense, agreement) == expected


def test_irregular_presents() -> None:
    assert german_verbs(lx.BE, "present", "1sg").finite == "bin"
    assert german_verbs(lx.KNOW, "present", "1sg").finite == "weiß"
    assert german_verbs(lx.HAVE, "past", "pl").finite == "hatten"


def test_zu_stands_inside_separable_verbs_only() -> None:
    assert zu_infinitive(verb("close")) == "zuzumachen"
    assert zu_infinitive(verb("sell")) == "zu verkaufen"


def test_an_before_vowels() -> None:
    assert np("egg", "a").en == "an egg"
    assert np("egg", "a", "fresh").en == "a fresh egg"
    assert np("hat", "a", "expensive").en == "an expensive hat"


def test_a_clause_without_a_time_cannot_begin_with_it() -> None:
    with pytest.raises(ValueError, match=r"^front: the clause has no time to begin with$"):
        statement(CALLS, "time")


@pytest.mark.parametrize(
    ("english", "german", "expected"),
    [
        ("I sleep now.", "Ich schlafe.", False),
        ("one two three four", "eins zwei drei vier", True),
        ("a " * 17 + "a", "a " * 17 + "a", True),
        ("a " * 18 + "a", "a " * 17 + "a", False),
        ("a " * 17 + "a", "a " * 18 + "a", False),
    ],
)
def test_lengths_that_fit(english: str, german: str, expected: bool) -> None:
    assert fits(Text(english, german)) is expected
