"""vaswani-prepare wmt14: the published table, stand-in archives from a loopback server, and every way to be broken."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Sequence

import pytest
from stand_in import BAD_PAIRS, ODD_PAIRS, Site, StandIn, make_stand_in, serving, tar_of
from toolkit_runner import run

from vaswani_plugin.tools import download, pipeline, prepare, wmt14
from vaswani_plugin.tools.cli import CommandError

EUROPARL, CRAWL, NEWS = (wmt14.ARCHIVES[name].path for name in ("europarl", "commoncrawl", "news-commentary"))


@pytest.fixture(autouse=True, scope="module")
def quick() -> Iterator[None]:
    """Start fairseq-preprocess from the fork server, and do not wait between attempts."""

    def preprocess(words: Sequence[str], log: Path) -> int:
        result = run("fairseq-preprocess", *words)
        log.write_text(result.out, encoding="utf-8")
        return result.rc

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline, "run_preprocess", preprocess)
        patch.setattr(download.time, "sleep", lambda seconds: None)
        yield


@pytest.fixture(scope="module", params=["en-de", "en-fr"])
def pair(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def stand_in(pair: str) -> StandIn:
    return make_stand_in(pair)


@pytest.fixture
def german() -> Iterator[Site]:
    with serving(make_stand_in("en-de").files) as site:
        yield site


def write_facts(folder: Path, archives: StandIn) -> Path:
    path = folder / "facts.json"
    path.write_text(json.dumps(archives.facts()), encoding="utf-8")
    return path


def prepare_wmt14(dest: Path, *words: object, pair: str = "en-de", vocab_size: int = 80) -> int:
    options = ["--pair", pair, "--dest", dest, "--vocab-size", vocab_size, "--workers", 1, *words]
    return prepare.main(["wmt14", *map(str, options)])


def made(dest: Path) -> Dict[str, str]:
    """What a finished folder holds, but for logs and the manifest, by name: the digest."""
    return {
        path.relative_to(dest).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(dest.rglob("*"))
        if path.is_file() and path.suffix not in {".log", ".json"} and path.parent.name != "downloads"
    }


@pytest.fixture(scope="module")
def prepared(pair: str, stand_in: StandIn, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Each pair, from a mirror, prepared once."""
    folder = tmp_path_factory.mktemp(pair)
    with serving(stand_in.files) as site:
        words = ["--mirror", site.url + "/", "--facts", write_facts(folder, stand_in)]
        assert prepare_wmt14(folder / "dest", *words, pair=pair) == 0
        assert site.asked() == dict.fromkeys(stand_in.files, 1)
    return folder / "dest"


def test_the_published_numbers() -> None:
    german, french = wmt14.RECIPES["en-de"], wmt14.RECIPES["en-fr"]
    assert [corpus.lines for corpus in german.corpora] == [1_920_209, 2_399_123, 201_288]
    assert sum(corpus.lines or 0 for corpus in german.corpora) == 4_520_620
    counts = {corpus.name: corpus.lines for corpus in french.corpora}
    assert counts == {
        "europarl-v7": 2_007_723,
        "commoncrawl": 3_244_152,
        "un": 12_886_831,
        "news-commentary-v9": 183_251,
        "giga-fren": 22_520_376,
    }
    assert (german.vocab_size, french.vocab_size) == (37_000, 32_000)
    assert [(test.split, test.lines) for test in wmt14.NEWS_TESTS] == [("valid", 3_000), ("test", 3_003)]
    assert all(archive.licence for archive in wmt14.ARCHIVES.values())


def test_test_sets_are_those_of_sacrebleu() -> None:
    from sacrebleu.dataset import DATASETS

    for test in wmt14.NEWS_TESTS:
        known, archive = DATASETS[test.sacrebleu], wmt14.ARCHIVES[test.archive]
        assert known.data[0].endswith("statmt.org/" + archive.path)
        assert known.md5 == [archive.md5]


def test_all_is_there_and_parallel(prepared: Path, pair: str, stand_in: StandIn) -> None:
    languages = pair.split("-")
    corpora = wmt14.RECIPES[pair].corpora
    kept = len(corpora) * 60 + len(ODD_PAIRS)
    for split, count in (("train", kept), ("valid", 7), ("test", 7)):
        for language in languages:
            folder = "clean" if split == "train" else "raw"
            assert (prepared / folder / f"{split}.{language}").read_bytes().count(b"\n") == count
            assert (prepared / "spm" / f"{split}.{language}").read_bytes().count(b"\n") == count
            assert (prepared / "bin" / f"{split}.{pair}.{language}.bin").is_file()
    for corpus in corpora:
        path = {key: archive.path for key, archive in wmt14.ARCHIVES.items()}[corpus.archive]
        assert (prepared / "raw" / f"{corpus.name}.en").read_bytes().count(b"\n") == stand_in.lines[path]
    dictionaries = [(prepared / "bin" / f"dict.{language}.txt").read_bytes() for language in languages]
    assert dictionaries[0] == dictionaries[1]
    assert dictionaries[0].count(b"\n") == 80 - 3


def test_references_are_sacrebleus_text(prepared: Path, pair: str) -> None:
    # It leaves entities as they are and makes any white space one blank.
    languages = pair.split("-")
    assert (prepared / "raw" / f"test.{languages[0]}").read_text("utf-8").endswith("\na &amp; b\n")
    assert (prepared / "raw" / f"test.{languages[1]}").read_bytes().endswith(b"\nc &quot; d e\n")


def test_the_manifest_says_what_was_got_and_left_out(prepared: Path, pair: str, stand_in: StandIn) -> None:
    manifest = json.loads((prepared / "manifest.json").read_text("utf-8"))
    assert {
        name: (entry["size"], entry["sha256"], entry["from"].split("/", 3)[3])
        for name, entry in manifest["archives"].items()
    } == {
        path.rsplit("/", 1)[-1]: (len(content), hashlib.sha256(content).hexdigest(), path)
        for path, content in stand_in.files.items()
    }
    assert all(entry["licence"] for entry in manifest["archives"].values())
    bad = len(BAD_PAIRS)
    crawl = (
        f"commoncrawl: {60 + len(ODD_PAIRS) + bad} pairs read, {60 + len(ODD_PAIRS)} kept; "
        "dropped: encoding 3, empty 2, too long 1, ratio 1, duplicate 1"
    )
    assert crawl in manifest["cleaning"]
    assert len(manifest["cleaning"]) == len(wmt14.RECIPES[pair].corpora)
    assert manifest["raw"]["test.en"] == str((prepared / "raw" / "test.en").resolve())


@pytest.mark.parametrize("flat", [True, False])
def test_a_folder_gives_the_same_as_a_mirror(flat: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    archives = make_stand_in("en-de")
    words = ["--from-dir", archives.write(tmp_path / "got", flat), "--facts", "unchecked"]
    assert prepare_wmt14(tmp_path / "one", *words) == 0
    out = capsys.readouterr().out
    assert out.endswith(f"{tmp_path / 'one'}: check, extract, clean, learn, encode, dictionary, binarise done\n")
    assert "commoncrawl: 71 pairs read, 63 kept; dropped: encoding 3, " in out
    assert not (tmp_path / "one" / "downloads").exists()
    assert prepare_wmt14(tmp_path / "one", *words) == 0
    assert capsys.readouterr().out.endswith(f"{tmp_path / 'one'}: everything is there, nothing to do\n")
    with serving(archives.files) as site:
        assert prepare_wmt14(tmp_path / "two", "--mirror", site.url, "--facts", write_facts(tmp_path, archives)) == 0
    assert made(tmp_path / "one") == made(tmp_path / "two")


def truncated(archives: StandIn) -> None:
    archives.files[NEWS] = archives.files[NEWS][: len(archives.files[NEWS]) // 2]


def page(archives: StandIn) -> None:
    archives.files[NEWS] = b"<html><body>404 Not Found</body></html>"


def without_member(archives: StandIn) -> None:
    archives.files[NEWS] = tar_of({"training/news-commentary-v9.de-en.en": b"a\n"})


def with_other_lines(archives: StandIn) -> None:
    members = {
        f"training/news-commentary-v9.de-en.{language}": text for language, text in (("en", b"a\n"), ("de", b"b\rc"))
    }
    archives.files[NEWS] = tar_of(members)


def not_parallel(archives: StandIn) -> None:
    texts = (("en", b"a\nb\n"), ("de", "c\u2028d\n".encode()))
    archives.files[NEWS] = tar_of({f"training/news-commentary-v9.de-en.{language}": text for language, text in texts})


@pytest.mark.parametrize(
    ("harm", "facts", "error"),
    [
        (truncated, "published size", "bytes, but training-parallel-nc-v9.tgz has "),
        (truncated, "unchecked", "cut off or damaged: "),
        (page, "unchecked", "not a gzipped archive; it begins with '<html><body>404 Not Found</body></html>'"),
        (without_member, "unchecked", "no member training/news-commentary-v9.de-en.de"),
        (
            with_other_lines,
            "lines only",
            "have 1 line, but 60 are published; if the archive is right nevertheless, say so",
        ),
        (
            not_parallel,
            "unchecked",
            "news-commentary-v9.de-en.en has 2 lines but training/news-commentary-v9.de-en.de has 1 line; parallel",
        ),
    ],
)
def test_a_broken_archive_is_named_and_mended(
    harm: Callable[[StandIn], None], facts: str, error: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, broken = make_stand_in("en-de"), make_stand_in("en-de")
    harm(broken)
    given: Any = "unchecked"
    if facts != "unchecked":
        given = tmp_path / "facts.json"
        entries = good.facts()
        if facts == "lines only":
            entries = {name: {**dict.fromkeys(wmt14.FACTS), "lines": entry["lines"]} for name, entry in entries.items()}
        given.write_text(json.dumps(entries), encoding="utf-8")
    with serving(broken.files) as site:
        for words in (["--mirror", site.url], ["--from-dir", broken.write(tmp_path / "broken")]):
            assert prepare_wmt14(tmp_path / "dest", *words, "--facts", given) == 1
            said = capsys.readouterr().err
            assert said.splitlines()[-1].startswith("vaswani-prepare: error: ")
            assert error in said
            assert "training-parallel-nc-v9.tgz" in said
            there = {path.name for path in (tmp_path / "dest").rglob("*") if path.is_file()}
            assert not {name for name in there if re.match(r"(train|valid|test|news-commentary.*)\.(en|de)$", name)}
            assert "training-parallel-nc-v9.tgz" not in there
        site.files.update(good.files)
        assert prepare_wmt14(tmp_path / "dest", "--mirror", site.url, "--facts", given) == 0
        assert prepare_wmt14(tmp_path / "clean", "--mirror", site.url, "--facts", given) == 0
    assert made(tmp_path / "dest") == made(tmp_path / "clean")


def test_a_server_that_stops_half_way_is_no_obstacle(german: Site, tmp_path: Path) -> None:
    for path in german.files:
        german.faults[path] = "half"
        german.once.append(path)
    assert prepare_wmt14(tmp_path / "dest", "--mirror", german.url, "--facts", "unchecked") == 0
    assert german.asked() == dict.fromkeys(german.files, 2)
    assert not list((tmp_path / "dest" / "downloads").glob("*.part*"))


def test_what_lies_in_downloads_is_used_when_it_is_right(german: Site, tmp_path: Path) -> None:
    folder = tmp_path / "dest" / "downloads"
    folder.mkdir(parents=True)
    for path, content in german.files.items():
        (folder / path.rsplit("/", 1)[-1]).write_bytes(content)
    (folder / "training-parallel-commoncrawl.tgz").write_bytes(b"half of it")
    assert prepare_wmt14(tmp_path / "dest", "--mirror", german.url, "--facts", "unchecked") == 0
    assert german.asked() == {CRAWL: 1}


def test_changed_rules_redo_what_depends_on_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--from-dir", make_stand_in("en-de").write(tmp_path / "got"), "--facts", "unchecked"]
    assert prepare_wmt14(tmp_path / "dest", *words) == 0
    capsys.readouterr()
    assert prepare_wmt14(tmp_path / "dest", *words, "--keep-duplicates") == 0
    out = capsys.readouterr().out
    assert "commoncrawl: 71 pairs read, 64 kept; dropped: encoding 3, empty 2, too long 1, ratio 1, duplicate 0" in out
    assert out.endswith(": clean, learn, encode, dictionary, binarise done\n")
    assert prepare_wmt14(tmp_path / "dest", *words, "--keep-duplicates", vocab_size=90) == 0
    assert capsys.readouterr().out.endswith(": learn, encode, dictionary, binarise done\n")


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (None, "no such file, nor the word 'unchecked'"),
        ("{", "not JSON: "),
        ("[]", "must map the names of archives to their facts"),
        ('{"x.tgz": {}}', "'x.tgz' is none of the archives test-full.tgz, test.tgz, training-giga-fren.tar, "),
        ('{"test.tgz": {"sise": 3}}', "test.tgz: 'sise' is none of the facts size, sha256, md5, lines"),
        ('{"test.tgz": {"size": "3"}}', "test.tgz: size must be a whole number of at least 0, not '3'"),
        ('{"test.tgz": {"lines": -7}}', "test.tgz: lines must be a whole number of at least 0, not -7"),
        ('{"test.tgz": {"lines": true}}', "test.tgz: lines must be a whole number of at least 0, not True"),
        ('{"test.tgz": {"md5": 3}}', "test.tgz: md5 must be 32 small hex digits, not 3"),
        ('{"test.tgz": {"sha256": "0A"}}', "test.tgz: sha256 must be 64 small hex digits, not '0A'"),
    ],
)
def test_refuses_facts_that_say_nothing(content: Any, error: str, tmp_path: Path) -> None:
    path = tmp_path / "facts.json"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    with pytest.raises(CommandError) as caught:
        wmt14.table_for("en-de", str(path))
    assert str(caught.value).startswith(f"--facts {path}: {error}")


def test_facts_replace_only_what_they_name(tmp_path: Path) -> None:
    path = tmp_path / "facts.json"
    path.write_text('{"training-parallel-nc-v9.tgz": {"lines": 201854, "sha256": null}}', encoding="utf-8")
    table = wmt14.table_for("en-de", str(path))
    assert [corpus.lines for corpus in table.corpora] == [1_920_209, 2_399_123, 201_854]
    news = table.archives["news-commentary"]
    assert (news.size, news.sha256) == (80_418_416, None)
    assert "un" not in table.archives
    unchecked = wmt14.table_for("en-fr", "unchecked")
    assert {archive.md5 or archive.sha256 or archive.size for archive in unchecked.archives.values()} == {None}
    assert {entry.lines for entry in (*unchecked.corpora, *unchecked.news_tests)} == {None}


def test_refuses_a_folder_without_the_archives(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert prepare_wmt14(tmp_path / "dest", "--from-dir", tmp_path) == 1
    assert capsys.readouterr().err == (
        f"vaswani-prepare: error: --from-dir {tmp_path}: neither wmt13/training-parallel-europarl-v7.tgz nor "
        "training-parallel-europarl-v7.tgz is there\n"
    )


@pytest.mark.parametrize(("option", "value", "least"), [("--vocab-size", 3, 4), ("--sample-lines", 100, 101)])
def test_sizes_that_cannot_do_are_refused_before_anything_is_fetched(
    option: str, value: int, least: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert prepare_wmt14(tmp_path / "dest", "--from-dir", tmp_path, option, value) == 1
    assert capsys.readouterr().err == f"vaswani-prepare: error: {option} {value}: must be at least {least}\n"
    assert not (tmp_path / "dest").exists()


def test_published_facts_are_the_default(german: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert prepare_wmt14(tmp_path / "dest", "--mirror", german.url) == 1
    size = len(german.files[EUROPARL])
    assert capsys.readouterr().err.endswith(
        f"vaswani-prepare: error: {german.url}/{EUROPARL}: the server has {size:,} bytes, but "
        "training-parallel-europarl-v7.tgz has 657,632,379\n"
    )
    assert german.requests == [(EUROPARL, "")]


def test_subword_nmt_after_moses_tokens(prepared: Path, pair: str, stand_in: StandIn, tmp_path: Path) -> None:
    words = ["--from-dir", stand_in.write(tmp_path / "got"), "--facts", "unchecked", "--subwords", "subword-nmt"]
    assert prepare_wmt14(tmp_path / "dest", *words, pair=pair) == 0
    from fairseq.data import Dictionary, data_utils

    from vaswani_plugin.tools.bpe import join_merges

    languages = pair.split("-")
    dictionary = Dictionary.load(str(tmp_path / "dest" / "bin" / f"dict.{languages[1]}.txt"))
    for language in languages:
        tokens = (tmp_path / "dest" / "tok" / f"train.{language}").read_text("utf-8").split("\n")[:-1]
        pieces = (tmp_path / "dest" / "bpe" / f"train.{language}").read_text("utf-8").split("\n")[:-1]
        assert [join_merges(line) for line in pieces] == tokens
        assert any("@@ " in line for line in pieces)
        assert dictionary.unk() not in {dictionary.index(piece) for line in pieces for piece in line.split()}
        data = data_utils.load_indexed_dataset(str(tmp_path / "dest" / "bin" / f"train.{pair}.{language}"))
        assert len(data) == len(tokens)
        assert (tmp_path / "dest" / "clean" / f"train.{language}").read_bytes() == (
            prepared / "clean" / f"train.{language}"
        ).read_bytes()


def test_no_step_is_left_half_done_by_an_interrupt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["--from-dir", make_stand_in("en-de").write(tmp_path / "got"), "--facts", "unchecked"]
    assert prepare_wmt14(tmp_path / "clean", *words) == 0
    stop_at: List[str] = []

    def stopping(path: Path, real: Callable[..., None] = pipeline.Manifest.record) -> Callable[..., None]:
        def record(self: pipeline.Manifest, step: str, *rest: Any) -> None:
            if step == stop_at[0]:
                raise KeyboardInterrupt
            real(self, step, *rest)

        return record

    steps = list(json.loads((tmp_path / "clean" / "manifest.json").read_text("utf-8"))["steps"])
    with monkeypatch.context() as patch:
        patch.setattr(pipeline.Manifest, "record", stopping(tmp_path))
        for step in ("extract commoncrawl", "clean", "learn", "encode train.de", "binarise"):
            assert step in steps
            stop_at[:] = [step]
            assert prepare_wmt14(tmp_path / "dest", *words) == 130
    assert prepare_wmt14(tmp_path / "dest", *words) == 0
    assert made(tmp_path / "dest") == made(tmp_path / "clean")
