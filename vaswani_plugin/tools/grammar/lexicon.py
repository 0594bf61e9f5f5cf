"""The words of the embedded corpus: what the grammar can say, and the forms that no rule gives.

Every English word or phrase has one German rendering in its context, so that the German sentence is a function of the
English one. That is why there is no "you" (du, ihr or Sie?) and why "big" is said of things and "tall" of people.
"""

from __future__ import annotations

from typing import NamedTuple, Tuple


class Text(NamedTuple):
    """The same content in both languages."""

    en: str
    de: str


class Noun(NamedTuple):
    """A noun with its irregular forms.

    Attributes:
        gender: "m", "f" or "n".
        kind: what verbs and adjectives choose by.
        de_plural: "" where the noun is used in the singular only.
        weak: True for a masculine noun that takes -n in the accusative and dative singular.
    """

    en: str
    en_plural: str
    de: str
    de_plural: str
    gender: str
    kind: str
    weak: bool = False


class Adjective(NamedTuple):
    """An adjective: the German predicative form, the stem that takes endings, and the nouns that it suits."""

    en: str
    de: str
    stem: str
    kinds: Tuple[str, ...]
    en_comparative: str = ""
    de_comparative: str = ""


class Verb(NamedTuple):
    """A verb with its principal parts; German parts without the separable prefix.

    Attributes:
        kinds: what its accusative object may be, () for none.
        prefix: the separable prefix, "" for none.
        particle: an English adverb that follows a pronoun object ("picks her up").
        preposition: an English preposition that belongs to the verb ("looks for her").
        perfect: the auxiliary of the perfect, "haben" or "sein".
        animal: True where animals may do it too.
        stative: True where only the present tense reads well.
    """

    base: str
    third: str
    past: str
    infinitive: str
    third_de: str
    participle: str
    kinds: Tuple[str, ...] = ()
    prefix: str = ""
    particle: str = ""
    preposition: str = ""
    perfect: str = "haben"
    animal: bool = False
    stative: bool = False


KIN, GROWN, YOUNG, ROLE, ANIMAL = "kin", "grown", "young", "role", "animal"
PEOPLE = (KIN, GROWN, YOUNG, ROLE)
READABLE, GOODS, OPENING, DEVICE = "readable", "goods", "opening", "device"
THINGS = (READABLE, GOODS, DEVICE)
DISH, FOOD, DRINK = "dish", "food", "drink"  # a dish is counted; food and drink are not
PLACE, BUILDING, STOP = "place", "building", "stop"

NOUNS = (
    Noun("man", "men", "Mann", "Männer", "m", GROWN),
    Noun("woman", "women", "Frau", "Frauen", "f", GROWN),
    Noun("child", "children", "Kind", "Kinder", "n", YOUNG),
    Noun("boy", "boys", "Junge", "Jungen", "m", YOUNG, weak=True),
    Noun("girl", "girls", "Mädchen", "Mädchen", "n", YOUNG),
    Noun("teacher", "teachers", "Lehrer", "Lehrer", "m", ROLE),
    Noun("doctor", "doctors", "Arzt", "Ärzte", "m", ROLE),
    Noun("neighbor", "neighbors", "Nachbar", "Nachbarn", "m", ROLE, weak=True),
    Noun("mother", "", "Mutter", "", "f", KIN),
    Noun("father", "", "Vater", "", "m", KIN),
    Noun("brother", "brothers", "Bruder", "Brüder", "m", KIN),
    Noun("sister", "sisters", "Schwester", "Schwestern", "f", KIN),
    Noun("dog", "dogs", "Hund", "Hunde", "m", ANIMAL),
    Noun("cat", "cats", "Katze", "Katzen", "f", ANIMAL),
    Noun("horse", "horses", "Pferd", "Pferde", "n", ANIMAL),
    Noun("bird", "birds", "Vogel", "Vögel", "m", ANIMAL),
    Noun("book", "books", "Buch", "Bücher", "n", READABLE),
    Noun("letter", "letters", "Brief", "Briefe", "m", READABLE),
    Noun("newspaper", "newspapers", "Zeitung", "Zeitungen", "f", READABLE),
    Noun("car", "cars", "Auto", "Autos", "n", GOODS),
    Noun("bicycle", "bicycles", "Fahrrad", "Fahrräder", "n", GOODS),
    Noun("hat", "hats", "Hut", "Hüte", "m", GOODS),
    Noun("bag", "bags", "Tasche", "Taschen", "f", GOODS),
    Noun("table", "tables", "Tisch", "Tische", "m", GOODS),
    Noun("lamp", "lamps", "Lampe", "Lampen", "f", DEVICE),
    Noun("radio", "radios", "Radio", "Radios", "n", DEVICE),
    Noun("door", "doors", "Tür", "Türen", "f", OPENING),
    Noun("window", "windows", "Fenster", "Fenster", "n", OPENING),
    Noun("apple", "apples", "Apfel", "Äpfel", "m", DISH),
    Noun("egg", "eggs", "Ei", "Eier", "n", DISH),
    Noun("bread", "", "Brot", "", "n", FOOD),
    Noun("soup", "", "Suppe", "", "f", FOOD),
    Noun("water", "", "Wasser", "", "n", DRINK),
    Noun("milk", "", "Milch", "", "f", DRINK),
    Noun("coffee", "", "Kaffee", "", "m", DRINK),
    Noun("garden", "", "Garten", "", "m", PLACE),
    Noun("kitchen", "", "Küche", "", "f", PLACE),
    Noun("house", "", "Haus", "", "n", BUILDING),
    Noun("city", "", "Stadt", "", "f", PLACE),
    Noun("school", "", "Schule", "", "f", STOP),
    Noun("station", "", "Bahnhof", "", "m", STOP),
)

_GROWN_UPS = (KIN, GROWN, ROLE)
_PLACES = (PLACE, BUILDING)
ADJECTIVES = (
    Adjective("big", "groß", "groß", (ANIMAL, GOODS, OPENING, *_PLACES), "bigger", "größer"),
    Adjective("tall", "groß", "groß", _GROWN_UPS, "taller", "größer"),
    Adjective("small", "klein", "klein", (YOUNG, ANIMAL, GOODS, DEVICE, OPENING, DISH, *_PLACES), "smaller", "kleiner"),
    Adjective("old", "alt", "alt", (*_GROWN_UPS, *THINGS, ANIMAL, OPENING, STOP, *_PLACES), "older", "älter"),
    Adjective("young", "jung", "jung", (GROWN, ROLE, ANIMAL), "younger", "jünger"),
    Adjective("new", "neu", "neu", (*THINGS, OPENING, STOP)),
    Adjective("red", "rot", "rot", (GOODS, DEVICE, OPENING, DISH)),
    Adjective("expensive", "teuer", "teur", (GOODS, DEVICE), "more expensive", "teurer"),
    Adjective("beautiful", "schön", "schön", (ANIMAL, GOODS, *_PLACES), "more beautiful", "schöner"),
    Adjective("friendly", "freundlich", "freundlich", (*PEOPLE, ANIMAL)),
    Adjective("tired", "müde", "müd", (*PEOPLE, ANIMAL)),
    Adjective("sick", "krank", "krank", (*PEOPLE, ANIMAL)),
    Adjective("fresh", "frisch", "frisch", (DISH, FOOD, DRINK)),
    Adjective("cold", "kalt", "kalt", (DRINK,)),
)

WOMEN = ("Anna", "Maria", "Julia")
MEN = ("Peter", "Paul", "Martin")
NAMES = WOMEN + MEN
CITIES = (Text("Berlin", "Berlin"), Text("Hamburg", "Hamburg"), Text("Munich", "München"), Text("Vienna", "Wien"))

ALONE = (  # no object
    Verb("sleep", "sleeps", "slept", "schlafen", "schläft", "geschlafen", animal=True),
    Verb("work", "works", "worked", "arbeiten", "arbeitet", "gearbeitet"),
    Verb("laugh", "laughs", "laughed", "lachen", "lacht", "gelacht"),
    Verb("play", "plays", "played", "spielen", "spielt", "gespielt", animal=True),
    Verb("arrive", "arrives", "arrived", "kommen", "kommt", "gekommen", prefix="an", perfect="sein"),
    Verb("get", "gets", "got", "stehen", "steht", "gestanden", prefix="auf", particle="up", perfect="sein"),
    Verb("fall", "falls", "fell", "schlafen", "schläft", "geschlafen", (), "ein", "asleep", "", "sein", True),
)
MOTION = (  # to a place
    Verb("go", "goes", "went", "gehen", "geht", "gegangen", perfect="sein"),
    Verb("drive", "drives", "drove", "fahren", "fährt", "gefahren", perfect="sein"),
    Verb("run", "runs", "ran", "laufen", "läuft", "gelaufen", perfect="sein", animal=True),
)
TRANSITIVE = (  # an accusative object
    Verb("see", "sees", "saw", "sehen", "sieht", "gesehen", PEOPLE + THINGS + (ANIMAL,), animal=True),
    Verb("call", "calls", "called", "rufen", "ruft", "gerufen", PEOPLE, prefix="an"),
    Verb("invite", "invites", "invited", "laden", "lädt", "geladen", PEOPLE, prefix="ein"),
    Verb("pick", "picks", "picked", "holen", "holt", "geholt", PEOPLE, prefix="ab", particle="up"),
    Verb("know", "knows", "knew", "kennen", "kennt", "gekannt", PEOPLE, stative=True),
    Verb("look", "looks", "looked", "suchen", "sucht", "gesucht", PEOPLE + THINGS + (ANIMAL,), preposition="for"),
    Verb("find", "finds", "found", "finden", "findet", "gefunden", THINGS + (ANIMAL,)),
    Verb("buy", "buys", "bought", "kaufen", "kauft", "gekauft", THINGS + (DISH, FOOD, DRINK)),
    Verb("sell", "sells", "sold", "verkaufen", "verkauft", "verkauft", THINGS + (DISH, FOOD)),
    Verb("open", "opens", "opened", "machen", "macht", "gemacht", (OPENING,), prefix="auf"),
    Verb("close", "closes", "closed", "machen", "macht", "gemacht", (OPENING,), prefix="zu"),
    Verb("turn", "turns", "turned", "machen", "macht", "gemacht", (DEVICE,), prefix="an", particle="on"),
    Verb("turn", "turns", "turned", "machen", "macht", "gemacht", (DEVICE,), prefix="aus", particle="off"),
    Verb("read", "reads", "read", "lesen", "liest", "gelesen", (READABLE,)),
    Verb("eat", "eats", "ate", "essen", "isst", "gegessen", (DISH, FOOD), animal=True),
    Verb("drink", "drinks", "drank", "trinken", "trinkt", "getrunken", (DRINK,), animal=True),
    Verb("bring", "brings", "brought", "bringen", "bringt", "gebracht", THINGS + (DISH, FOOD), "mit", "along"),
)
HAVE = Verb("have", "has", "had", "haben", "hat", "gehabt", THINGS + (ANIMAL,), stative=True)
DATIVE = (  # a dative object
    Verb("help", "helps", "helped", "helfen", "hilft", "geholfen"),
    Verb("listen", "listens", "listened", "hören", "hört", "gehört", prefix="zu", preposition="to"),
)
GIVING = (  # a dative and an accusative object
    Verb("give", "gives", "gave", "geben", "gibt", "gegeben", THINGS + (DISH,)),
    Verb("show", "shows", "showed", "zeigen", "zeigt", "gezeigt", THINGS + (ANIMAL,)),
)
BE = Verb("be", "is", "was", "sein", "ist", "gewesen", perfect="sein", animal=True)
COST = Verb("cost", "costs", "cost", "kosten", "kostet", "gekostet")
RAIN = Verb("rain", "rains", "rained", "regnen", "regnet", "geregnet")
SAY = Verb("say", "says", "said", "sagen", "sagt", "gesagt")
BELIEVE = Verb("believe", "believes", "believed", "glauben", "glaubt", "geglaubt")
KNOW = Verb("know", "knows", "knew", "wissen", "weiß", "gewusst")
ASK = Verb("ask", "asks", "asked", "fragen", "fragt", "gefragt")
TRY = Verb("try", "tries", "tried", "versuchen", "versucht", "versucht")
FORGET = Verb("forget", "forgets", "forgot", "vergessen", "vergisst", "vergessen")

NUMBERS = (
    Text("two", "zwei"),
    Text("three", "drei"),
    Text("five", "fünf"),
    Text("ten", "zehn"),
    Text("15", "15"),
    Text("20", "20"),
    Text("100", "100"),
)
HOURS = ("6", "7", "8", "9", "10", "11")
AGES = ("15", "20", "25", "30", "42", "67")
PRICES = ("15", "20", "25", "30", "100", "250")
YEARS = ("1998", "2005", "2016")

OFTEN = (Text("often", "oft"), Text("always", "immer"), Text("sometimes", "manchmal"), Text("never", "nie"))
HABIT_TIMES = (
    Text("every day", "jeden Tag"),
    Text("in the morning", "am Morgen"),
    Text("in the evening", "am Abend"),
    Text("in winter", "im Winter"),
    Text("in summer", "im Sommer"),
)
PAST_TIMES = (Text("yesterday", "gestern"), Text("last week", "letzte Woche"), Text("on Friday", "am Freitag"))
COMING_TIMES = (Text("tomorrow", "morgen"), Text("next week", "nächste Woche"), Text("on Sunday", "am Sonntag"))

BECAUSE = Text("because", "weil")
ALTHOUGH = Text("although", "obwohl")
WHEN = Text("when", "wenn")
IF = Text("if", "wenn")
WHILE = Text("while", "während")
BEFORE = Text("before", "bevor")
THAT = Text("that", "dass")
WHETHER = Text("whether", "ob")
