"""The corpora of the paper's translation tables: where they lie, what they hold, and what is known about the files.

Source: "Attention Is All You Need", section 5.1: the WMT 2014 English-German data of about 4.5 million pairs, and the
English-French data. The archives are those that the workshop lists for 2014; newstest2013 is for development and the
full newstest2014 (3,003 lines) for testing, both as sacreBLEU defines them. Lines are those that end at ``\\n``.

A mirror holds the archives under the paths of this table, such as ``wmt13/training-parallel-europarl-v7.tgz``; a folder
may hold them under those paths or side by side.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Tuple

from vaswani_plugin.tools.cli import CommandError, joined

SITE = "https://www.statmt.org"
UNCHECKED = "unchecked"
FACTS = ("size", "sha256", "md5", "lines")
HEX_DIGITS = {"sha256": 64, "md5": 32}

_WORKSHOP = "released by the workshop for research; the rights in the texts stay with their authors"


@dataclass(frozen=True)
class Archive:
    """One file to download.

    Attributes:
        path: below ``SITE``, or below a mirror.
        licence: what its publishers say, in short.
        size: bytes, None where nobody published them.
        sha256: hex digits, None where nobody published them.
        md5: the same; sacreBLEU knows the test sets by these.
    """

    path: str
    licence: str
    size: Optional[int] = None
    sha256: Optional[str] = None
    md5: Optional[str] = None

    @property
    def name(self) -> str:
        """The file's own name."""
        return self.path.rsplit("/", 1)[-1]


@dataclass(frozen=True)
class Corpus:
    """Parallel training text: two members of an archive.

    Attributes:
        name: what the extracted files are called.
        archive: key of ``ARCHIVES``.
        member: path within the archive without the language; a gzipped member ends in ``.gz``.
        lines: lines of each side, as published; None where they are not checked.
    """

    name: str
    archive: str
    member: str
    lines: Optional[int]

    def members(self, languages: Tuple[str, str]) -> List[str]:
        """Return the members' paths, in the order of the languages."""
        stem, gz = (self.member[:-3], ".gz") if self.member.endswith(".gz") else (self.member, "")
        return [f"{stem}.{language}{gz}" for language in languages]


@dataclass(frozen=True)
class NewsTest:
    """A development or test set.

    Attributes:
        split: ``valid`` or ``test``.
        sacrebleu: sacreBLEU's name of it, which fixes the members and the text.
        archive: key of ``ARCHIVES``.
        lines: as published; None where they are not checked.
    """

    split: str
    sacrebleu: str
    archive: str
    lines: Optional[int]


ARCHIVES: Dict[str, Archive] = {
    "europarl": Archive(
        "wmt13/training-parallel-europarl-v7.tgz",
        "proceedings of the European Parliament; no restrictions are known to those who compiled it",
        657_632_379,
        "0224c7c710c8a063dfd893b0cc0830202d61f4c75c17eb8e31836103d27d96e7",
    ),
    "commoncrawl": Archive(
        "wmt13/training-parallel-commoncrawl.tgz",
        f"web pages, under the terms of use of Common Crawl; {_WORKSHOP}",
        918_311_367,
        "c7a74e2ea01ac6c920123108627e35278d4ccb5701e15428ffa34de86fa3a9e5",
    ),
    "news-commentary": Archive(
        "wmt14/training-parallel-nc-v9.tgz",
        _WORKSHOP,
        80_418_416,
        "cb8953f292298e6877ae433c98912b927cb0766b303f4540512ddd286c748485",
    ),
    "un": Archive("wmt13/training-parallel-un.tgz", _WORKSHOP),
    "giga": Archive("wmt10/training-giga-fren.tar", f"web pages; {_WORKSHOP}"),
    "newstest2013": Archive("wmt13/test.tgz", _WORKSHOP, md5="48eca5d02f637af44e85186847141f67"),
    "newstest2014": Archive("wmt14/test-full.tgz", _WORKSHOP, md5="a8cd784e006feb32ac6f3d9ec7eb389a"),
}

NEWS_TESTS = (
    NewsTest("valid", "wmt13", "newstest2013", 3_000),
    NewsTest("test", "wmt14/full", "newstest2014", 3_003),
)


@dataclass(frozen=True)
class Recipe:
    """What is prepared for one language pair.

    Attributes:
        languages: (source, target).
        corpora: the training text, in this order.
        vocab_size: pieces of the joint vocabulary (paper, section 5.1).
    """

    languages: Tuple[str, str]
    corpora: Tuple[Corpus, ...]
    vocab_size: int


RECIPES: Dict[str, Recipe] = {
    "en-de": Recipe(
        ("en", "de"),
        (
            Corpus("europarl-v7", "europarl", "training/europarl-v7.de-en", 1_920_209),
            Corpus("commoncrawl", "commoncrawl", "commoncrawl.de-en", 2_399_123),
            Corpus("news-commentary-v9", "news-commentary", "training/news-commentary-v9.de-en", 201_288),
        ),
        37_000,
    ),
    "en-fr": Recipe(
        ("en", "fr"),
        (
            Corpus("europarl-v7", "europarl", "training/europarl-v7.fr-en", 2_007_723),
            Corpus("commoncrawl", "commoncrawl", "commoncrawl.fr-en", 3_244_152),
            Corpus("un", "un", "un/undoc.2000.fr-en", 12_886_831),
            Corpus("news-commentary-v9", "news-commentary", "training/news-commentary-v9.fr-en", 183_251),
            Corpus("giga-fren", "giga", "giga-fren.release2.fixed.gz", 22_520_376),
        ),
        32_000,
    ),
}


@dataclass(frozen=True)
class Table:
    """The archives, corpora and test sets of one pair, with the facts that they are checked against."""

    recipe: Recipe
    archives: Mapping[str, Archive]
    corpora: Tuple[Corpus, ...]
    news_tests: Tuple[NewsTest, ...]


def table_for(pair: str, facts: Optional[str] = None) -> Table:
    """Return the table of a pair.

    Args:
        pair: key of ``RECIPES``.
        facts: None for what is published; ``"unchecked"`` for no check but that two sides have as many lines; else a
            JSON file ``{ARCHIVE'S NAME: {"size": ..., "sha256": ..., "md5": ..., "lines": ...}}``. What it names
            replaces what is published, and null takes a check away.

    Raises:
        CommandError: the file is missing, is no such JSON, or names an archive or a fact that there is not.
    """
    recipe = RECIPES[pair]
    keys = dict.fromkeys([corpus.archive for corpus in recipe.corpora] + [test.archive for test in NEWS_TESTS])
    archives = {key: ARCHIVES[key] for key in keys}
    if facts is None:
        return Table(recipe, archives, recipe.corpora, NEWS_TESTS)
    if facts == UNCHECKED:
        given: Dict[str, Dict[str, Any]] = {archive.name: dict.fromkeys(FACTS) for archive in ARCHIVES.values()}
    else:
        given = _read_facts(Path(facts))

    def about(key: str) -> Dict[str, Any]:
        return given.get(ARCHIVES[key].name, {})

    def lines(key: str, published: Optional[int]) -> Optional[int]:
        found: Optional[int] = about(key).get("lines", published)
        return found

    return Table(
        recipe,
        {
            key: replace(archive, **{fact: value for fact, value in about(key).items() if fact != "lines"})
            for key, archive in archives.items()
        },
        tuple(replace(corpus, lines=lines(corpus.archive, corpus.lines)) for corpus in recipe.corpora),
        tuple(replace(test, lines=lines(test.archive, test.lines)) for test in NEWS_TESTS),
    )


def _read_facts(path: Path) -> Dict[str, Dict[str, Any]]:
    """Read a facts file and refuse what it cannot mean."""
    if not path.is_file():
        raise CommandError(f"--facts {path}: no such file, nor the word {UNCHECKED!r}")
    try:
        given = json.loads(path.read_bytes().decode("utf-8"))
    except ValueError as error:
        raise CommandError(f"--facts {path}: not JSON: {error}") from error
    if not isinstance(given, dict) or not all(isinstance(entry, dict) for entry in given.values()):
        raise CommandError(f"--facts {path}: must map the names of archives to their facts")
    names = sorted(archive.name for archive in ARCHIVES.values())
    for name, entry in given.items():
        if name not in names:
            raise CommandError(f"--facts {path}: {name!r} is none of the archives {joined(names, len(names))}")
        for fact, value in entry.items():
            if fact not in FACTS:
                raise CommandError(f"--facts {path}: {name}: {fact!r} is none of the facts {joined(FACTS)}")
            if value is not None and not _is_fact(fact, value):
                digits = HEX_DIGITS.get(fact)
                rule = f"{digits} small hex digits" if digits else "a whole number of at least 0"
                raise CommandError(f"--facts {path}: {name}: {fact} must be {rule}, not {value!r}")
    return given


def _is_fact(fact: str, value: Any) -> bool:
    if fact in HEX_DIGITS:
        return isinstance(value, str) and re.fullmatch(f"[0-9a-f]{{{HEX_DIGITS[fact]}}}", value) is not None
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
