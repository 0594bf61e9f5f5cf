"""The embedded corpus: invariants of the text, by tables that the grammar does not know, and the command."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from itertools import islice
from pathlib import Path
from typing import Dict, List, Set

import pytest

from vaswani_plugin.tools import corpus as corpus_module
from vaswani_plugin.tools.corpus import MAX_PAIRS, SPLITS, distinct_pairs, generate_corpus, main
from vaswani_plugin.tools.grammar.drawing import Draw
from vaswani_plugin.tools.grammar.lexicon import READABLE, Text
from vaswani_plugin.tools.grammar.sentences import sentence_pairs

ROOT = Path(__file__).resolve().parents[1]
SMALL = {"train": 50, "valid": 7, "test": 11}

# Computes the checksum without the package's own __init__, which needs the toolkit.
CHECKSUM_PROGRAM = """
import hashlib, sys, types
for name in ("vaswani_plugin", "vaswani_plugin.tools"):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [sys.argv[1] + "/" + name.replace(".", "/")]
from vaswani_plugin.tools.corpus import SPLITS, generate_corpus
corpus = generate_corpus({"train": 12000, "valid": 300, "test": 300}, 1)
text = "".join(f"{pair.en}\\t{pair.de}\\n" for split in SPLITS for pair in corpus[split])
print(hashlib.sha256(text.encode("utf-8")).hexdigest())
print(sorted(set(sys.modules) & {"torch", "numpy", "fairseq", "tqdm"}))
"""
CHECKSUM = "9ea0f1782dc975301404e7c934fd1b02563d5c7a5a8eeba2fb512a490fe00146"


@pytest.fixture(scope="module")
def corpus() -> Dict[str, List[Text]]:
    return generate_corpus({"train": 12000, "valid": 300, "test": 300}, 1)


@pytest.fixture(scope="module")
def pairs(corpus: Dict[str, List[Text]]) -> List[Text]:
    return [pair for split in SPLITS for pair in corpus[split]]


@pytest.fixture(scope="module")
def draws() -> List[Text]:
    """20,000 draws, repetitions among them."""
    return list(islice(sentence_pairs(5), 20_000))


# The text as a whole


@pytest.mark.parametrize("hash_seed", ["0", "1"])
def test_the_text_is_the_same_everywhere(hash_seed: str) -> None:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-c", CHECKSUM_PROGRAM, str(ROOT)]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert result.stdout.splitlines() == [CHECKSUM, "[]"]


def test_another_seed_gives_other_text() -> None:
    assert generate_corpus(SMALL, 1) == generate_corpus(SMALL, 1)
    first, second = (generate_corpus(SMALL, seed)["train"] for seed in (1, 2))
    assert len({pair.en for pair in first} & {pair.en for pair in second}) < 5


def test_sizes(corpus: Dict[str, List[Text]]) -> None:
    assert {split: len(corpus[split]) for split in SPLITS} == {"train": 12000, "valid": 300, "test": 300}


def test_no_sentence_twice_within_or_across_the_parts(pairs: List[Text]) -> None:
    assert len({pair.en for pair in pairs}) == len({pair.de for pair in pairs}) == 12600


def test_held_out_parts_do_not_depend_on_the_training_part() -> None:
    small, large = (generate_corpus({**SMALL, "train": size}, 3) for size in (50, 400))
    assert small["test"] == large["test"]
    assert small["valid"] == large["valid"]
    assert small["train"] == large["train"][:50]


def test_the_translation_is_a_function_of_the_english_sentence(draws: List[Text]) -> None:
    translations: Dict[str, Set[str]] = {}
    for pair in draws:
        translations.setdefault(pair.en, set()).add(pair.de)
    assert [english for english, german in translations.items() if len(german) > 1] == []


def test_the_grammar_does_not_run_dry(draws: List[Text]) -> None:
    assert len({pair.en for pair in draws[15_000:]} - {pair.en for pair in draws[:15_000]}) > 4_500  # of 5,000


def test_held_out_words_occur_in_training(corpus: Dict[str, List[Text]]) -> None:
    for side in (0, 1):
        known = {word.lower() for pair in corpus["train"] for word in words(pair[side])}
        held_out = {word.lower() for split in ("valid", "test") for pair in corpus[split] for word in words(pair[side])}
        assert held_out <= known
        assert 300 < len(known) < 460


def test_drawing_goes_on_when_every_word_has_been_used() -> None:
    draw = Draw(1)
    subjects = [draw.subject(animal=True) for _ in range(200)]
    objects = [draw.whom(subject) for subject in subjects]
    things = [draw.thing((READABLE,)) for _ in range(50)]
    assert len({nominal.key for nominal in subjects + objects}) > 25
    assert {nominal.key for nominal in things} == {"book", "letter", "newspaper"}


# The sentences, one by one


def words(sentence: str) -> List[str]:
    return re.findall(r"[\w']+", sentence)


def phrases_with(pairs: List[Text], pattern: str) -> List[List[str]]:
    """Return the groups of every match in the German sentences; fail where there are too few to mean anything."""
    found = [list(match.groups()) for pair in pairs for match in re.finditer(pattern, pair.de)]
    assert len(found) > 30, pattern
    return found


def test_form(pairs: List[Text]) -> None:
    for pair in pairs:
        for side in pair:
            assert re.fullmatch(r"[A-ZÄÖÜ0-9][\wäöüßÄÖÜ']*(,? [\w']+)*[.?]", side), side
            assert 4 <= len(side.split(" ")) <= 18, side
        assert (pair.en[-1] == "?") == (pair.de[-1] == "?"), pair
        assert not re.search(r"\ba [aeiou]|\ban [^aeiou]", pair.en), pair


def test_names_and_digits_are_the_same_on_either_side(pairs: List[Text]) -> None:
    carried = r"\d+|Anna|Maria|Julia|Peter|Paul|Martin|Berlin|Hamburg"
    for pair in pairs:
        assert sorted(re.findall(carried, pair.en)) == sorted(re.findall(carried, pair.de)), pair


def test_negations_are_the_same_on_either_side(pairs: List[Text]) -> None:
    counts = [
        (len(re.findall(r"\bnot\b|\bcannot\b", p.en)), len(re.findall(r"\bnicht\b|\bkeine?n?\b", p.de))) for p in pairs
    ]
    assert all(english == german for english, german in counts)
    assert sum(english for english, _ in counts) > 500


ADJECTIVE = r"(?:groß|klein|alt|jung|neu|rot|teur|schön|freundlich|müd|krank|frisch|kalt)(er|es|em|en|e)"
GENDERS = {
    "der": "Mann Arzt Vater Bruder Hund Vogel Brief Hut Tisch Apfel Garten Bahnhof Kaffee",
    "die": "Frau Mutter Schwester Katze Zeitung Tasche Lampe Tür Suppe Milch Küche Stadt Schule",
    "das": "Kind Pferd Buch Auto Fahrrad Radio Ei Brot Wasser Haus",
}
ARTICLES = {"der": {"der", "den", "dem"}, "die": {"die", "der"}, "das": {"das", "dem"}}
EIN_ENDINGS = {"der": {"", "en", "em"}, "die": {"e", "er"}, "das": {"", "em"}}


@pytest.mark.parametrize("gender", GENDERS)
def test_articles_agree_in_gender(pairs: List[Text], gender: str) -> None:
    nouns = GENDERS[gender].replace(" ", "|")
    definite = phrases_with(pairs, rf"(?<!, )\b([Dd]er|[Dd]ie|[Dd]as|[Dd]en|[Dd]em) (?:{ADJECTIVE} )?(?:{nouns})\b")
    assert {article.lower() for article, _ in definite} == ARTICLES[gender]
    indefinite = phrases_with(pairs, rf"\b(?:[Ee]in|[Mm]ein|[Ss]ein|[Kk]ein)(\w*) (?:{ADJECTIVE} )?(?:{nouns})\b")
    assert {ending for ending, _ in indefinite} == EIN_ENDINGS[gender]


@pytest.mark.parametrize(
    ("before", "endings"),
    [
        (r"[Dd]as|[Jj]edes|[Dd]ieses", {"e"}),
        (r"[Dd]em|[Dd]en|[Ii]m|[Zz]um|[Zz]ur|[Aa]m|[Ee]inem|[Ee]inen|[Ee]iner|[Mm]einen|[Dd]iesen|[Kk]einen", {"en"}),
        (r"[Ee]in|[Mm]ein|[Ss]ein|[Uu]nser", {"er", "es"}),
        (r"[Ee]ine|[Jj]ede", {"e"}),
        (r"[Zz]wei|[Dd]rei|15|20|100", {"e", "en"}),
        (r"Annas|Peters|Julias", {"er", "e", "es", "en", "em"}),
    ],
)
def test_adjective_endings(pairs: List[Text], before: str, endings: Set[str]) -> None:
    found = phrases_with(pairs, rf"\b(?:{before}) {ADJECTIVE}\b [A-ZÄÖÜ]")
    assert {ending for (ending,) in found} == endings


NUMBERS_AND_NAMES = r"zwei|drei|fünf|zehn|\d+|[A-Z]\w+"
DATIVE = r"dem|der|den|\w+em|\w+er|\w+en|mir|ihm|ihr|uns"
ACCUSATIVE = r"den|die|das|\w+en|\w+e|dieses|jedes|ein|mein|sein|ihr|unser|mich|ihn|sie|uns"


@pytest.mark.parametrize(
    ("prepositions", "governed"), [("mit(?! und)|hinter|neben|unter", DATIVE), ("durch|für", ACCUSATIVE)]
)
def test_prepositions_govern_their_case(pairs: List[Text], prepositions: str, governed: str) -> None:
    for (following,) in phrases_with(pairs, rf"\b(?:{prepositions}) (\w+)"):
        assert re.fullmatch(f"{governed}|{NUMBERS_AND_NAMES}", following), following


FINITE = frozenset(
    re.findall(
        r"\w+",
        """ist sind bin war waren hat haben habe hatte hatten wird werden werde kann können muss müssen will wollen
        schläft arbeitet lacht spielt kommt steht geht fährt läuft sieht ruft lädt holt kennt sucht findet kauft
        verkauft macht liest isst trinkt bringt hilft hört gibt zeigt kostet regnet sagt glaubt weiß fragt versucht""",
    )
)


def test_the_verb_is_second_after_a_fronted_time(pairs: List[Text]) -> None:
    fronted = phrases_with(pairs, r"^(?:Morgen|Gestern|(?:Nächste|Letzte) Woche|Am (?:Freitag|Sonntag)) (\w+) (\w+)")
    for finite, subject in fronted:
        assert finite in FINITE, finite
        assert subject not in FINITE


def test_subordinate_clauses_end_with_the_finite_verb(pairs: List[Text]) -> None:
    ends = phrases_with(pairs, r", (?:weil|obwohl|dass|ob|wenn|während|bevor) [^,]* (\w+)\.$")
    prefixed = re.compile(r"^(an|auf|ab|aus|ein|mit|zu)(?=\w{3})")
    for (last,) in ends:
        assert last in FINITE or prefixed.sub("", last) in FINITE or last.endswith("en"), last
    assert len(ends) > 1_000


def test_main_clauses_after_a_subordinate_clause_begin_with_the_verb(pairs: List[Text]) -> None:
    for (first,) in phrases_with(pairs, r"^(?:Weil|Obwohl|Wenn|Während|Bevor) [^,]*, (\w+)"):
        assert first in FINITE or first.endswith("en"), first


def test_separated_prefixes_stand_last(pairs: List[Text]) -> None:
    for finite, rest in phrases_with(pairs, r"^(?:\w+ ){1,3}(ruft|rufen|lädt|laden|holt|holen) ([^,.?]*)"):
        prefix = {"r": "an", "l": "ein", "h": "ab"}[finite[0]]
        assert re.search(rf"\b{prefix}(?: und .*| wenn .*)?$", rest), (finite, rest)


def test_subject_and_verb_agree(pairs: List[Text]) -> None:
    singular = {"is", "was", "has", "does"}
    plural = {"are", "were", "have", "do"}
    checked = 0
    for pair in pairs:
        match = re.match(r"The (man|woman|child|men|women|children) (\w+)", pair.en)
        german = re.match(r"(Der|Die|Das) (Mann|Frau|Kind|Männer|Frauen|Kinder) (\w+)", pair.de)
        if match and german:
            many = match.group(1) in ("men", "women", "children")
            assert match.group(2) not in (singular if many else plural), pair
            assert many == (german.group(2) in ("Männer", "Frauen", "Kinder")), pair
            assert (german.group(3) in ("sind",) or german.group(3).endswith("en")) == many, pair
            checked += 1
    assert checked > 300


# The stream and the command


def test_distinct_pairs_looks_at_either_side() -> None:
    stream = [Text("a", "x"), Text("a", "y"), Text("b", "x"), Text("b", "z")]
    assert list(distinct_pairs(stream)) == [Text("a", "x"), Text("b", "z")]


def test_distinct_pairs_gives_up_after_so_many_repetitions() -> None:
    stream = [Text("a", "x")] * 3 + [Text("b", "y")] + [Text("a", "x")] * 4 + [Text("c", "z")]
    assert list(distinct_pairs(stream, patience=4)) == [Text("a", "x"), Text("b", "y")]


@pytest.mark.parametrize(
    ("sizes", "seed", "message"),
    [
        ({**SMALL, "valid": 0}, 1, "valid: must be at least 1 sentence pair, not 0"),
        ({**SMALL, "train": -3}, 1, "train: must be at least 1 sentence pair, not -3"),
        (SMALL, -1, "seed: must be at least 0, not -1"),
        ({**SMALL, "train": MAX_PAIRS}, 1, "sizes: together at most 1000000 sentence pairs, not 1000018"),
        ({"train": 1, "dev": 1}, 1, "sizes: must name train, valid, test, not dev, train"),
        ({}, 1, "sizes: must name train, valid, test, not nothing"),
    ],
)
def test_refused_sizes(sizes: Dict[str, int], seed: int, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        generate_corpus(sizes, seed)


def test_more_than_the_grammar_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus_module, "sentence_pairs", lambda seed: iter([Text(str(n), str(n)) for n in range(20)]))
    with pytest.raises(ValueError, match=r"^sizes: the grammar has only 20 distinct sentence pairs, not 68$"):
        generate_corpus(SMALL, 1)


def test_the_command_writes_six_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = tmp_path / "new" / "corpus"
    assert main([str(directory), "--train", "50", "--valid", "7", "--test", "11", "--seed", "3"]) == 0
    assert capsys.readouterr().out == f"{directory}: 50 pairs in train, 7 pairs in valid, 11 pairs in test\n"
    assert sorted(path.name for path in directory.iterdir()) == sorted(
        f"{s}.{lang}" for s in SPLITS for lang in ("en", "de")
    )
    expected = generate_corpus(SMALL, 3)
    for split in SPLITS:
        for language in ("en", "de"):
            content = (directory / f"{split}.{language}").read_bytes().decode("utf-8")
            assert content == "".join(getattr(pair, language) + "\n" for pair in expected[split])


def test_the_command_replaces_an_older_corpus(tmp_path: Path) -> None:
    (tmp_path / "train.en").write_text("old\n", encoding="utf-8")
    assert main([str(tmp_path), "--train", "5", "--valid", "1", "--test", "1"]) == 0
    assert len((tmp_path / "train.en").read_text(encoding="utf-8").splitlines()) == 5
    assert len(list(tmp_path.iterdir())) == 6


def test_a_file_in_the_way(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("keep", encoding="utf-8")
    assert main([str(blocked)]) == 1
    assert capsys.readouterr().err == f"vaswani-corpus: error: {blocked}: is not a directory\n"
    assert blocked.read_text(encoding="utf-8") == "keep"


def test_a_refused_size_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = tmp_path / "corpus"
    assert main([str(directory), "--test", "0"]) == 1
    assert capsys.readouterr().err == "vaswani-corpus: error: test: must be at least 1 sentence pair, not 0\n"
    assert not directory.exists()


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.en").write_text("old\n", encoding="utf-8")

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", fail)
    assert main([str(tmp_path), "--train", "5", "--valid", "1", "--test", "1"]) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["train.en"]
    assert (tmp_path / "train.en").read_text(encoding="utf-8") == "old\n"


def test_a_word_for_a_number_is_a_usage_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match=r"^2$"):
        main([str(tmp_path), "--train", "many"])
    assert "argument --train: invalid int value: 'many'" in capsys.readouterr().err
