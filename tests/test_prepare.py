"""vaswani-prepare: parallel input, the joint vocabulary, resuming, and text that bites."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Dict, Iterator, List, Sequence

import pytest
import sentencepiece
from toolkit_runner import run

from vaswani_plugin.tools import pipeline, prepare
from vaswani_plugin.tools.cli import CommandError
from vaswani_plugin.tools.manifest import Manifest, filling
from vaswani_plugin.tools.score import join_pieces

REAL_PREPROCESS = pipeline.run_preprocess
WORDS = ["alpha", "beta", "gamma", "delta", "omega", "Straße", "Äpfel", "naïve"]
# Within lines: a carriage return, a form feed, U+2028, U+0085; text that reads like a special symbol; odd characters.
ODD_LINES = ["one\rtwo", "a\fb/s", "x\u2028y\u2028z", "p\x85q", "foo<pad>bar </s>", "", "ŉ ︰ ＦＷ"]


@pytest.fixture(autouse=True, scope="module")
def quick_preprocess() -> Iterator[None]:
    """Let fairseq-preprocess start from the fork server; one test below starts it as users do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline, "run_preprocess", forked_preprocess)
        yield


def forked_preprocess(words: Sequence[str], log: Path) -> int:
    result = run("fairseq-preprocess", *words)
    log.write_text(result.out, encoding="utf-8")
    return result.rc


def write(path: Path, lines: Sequence[str]) -> Path:
    path.write_bytes("".join(line + "\n" for line in lines).encode("utf-8"))
    return path


def plain_lines(count: int) -> List[str]:
    return [" ".join(WORDS[(i * step + i) % len(WORDS)] for step in range(1, 2 + i % 5)) for i in range(count)]


@pytest.fixture
def corpus(tmp_path: Path) -> Dict[str, Path]:
    files = {}
    for split, count in (("train", 120), ("valid", 7), ("test", 5)):
        for language in ("en", "de"):
            files[f"{split}.{language}"] = write(tmp_path / f"{split}.{language}", plain_lines(count))
    return files


def arguments(corpus: Dict[str, Path], dest: Path, vocab_size: int = 60) -> List[str]:
    words = ["text", "--source-lang", "en", "--target-lang", "de", "--vocab-size", str(vocab_size), "--dest", str(dest)]
    for split in ("train", "valid", "test"):
        words += [f"--{split}", str(corpus[f"{split}.en"]), str(corpus[f"{split}.de"])]
    return words


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus with every odd line in it, prepared once."""
    folder = tmp_path_factory.mktemp("prepared")
    lines = plain_lines(120) + ODD_LINES + ["foo<pad>bar </s>x"] * 50
    corpus = {}
    for split, texts in (("train", lines), ("valid", ODD_LINES), ("test", ["unseen ☃", *ODD_LINES])):
        for language in ("en", "de"):
            corpus[f"{split}.{language}"] = write(folder / f"{split}.{language}", texts)
    assert prepare.main(arguments(corpus, folder / "dest", vocab_size=80)) == 0
    return folder


def encoded_lines(folder: Path, name: str) -> List[str]:
    text = (folder / "dest" / "spm" / name).read_bytes().decode("utf-8")
    assert text.endswith("\n")
    return text[:-1].split("\n")


def test_files_stay_parallel_whatever_the_lines_hold(prepared: Path) -> None:
    for name in ("train.en", "train.de", "valid.en", "test.de"):
        raw = (prepared / name).read_bytes().count(b"\n")
        assert len(encoded_lines(prepared, name)) == raw
    from fairseq.data import data_utils

    for split, count in (("train", 120 + len(ODD_LINES) + 50), ("valid", len(ODD_LINES)), ("test", 1 + len(ODD_LINES))):
        for language in ("en", "de"):
            dataset = data_utils.load_indexed_dataset(str(prepared / "dest" / "bin" / f"{split}.en-de.{language}"))
            assert len(dataset) == count


def test_no_piece_is_white_space_or_a_symbol_of_the_toolkit(prepared: Path) -> None:
    pieces = [
        piece for name in ("train.en", "test.en") for line in encoded_lines(prepared, name) for piece in line.split(" ")
    ]
    assert not {piece for piece in pieces if piece in {"<s>", "<pad>", "</s>", "<unk>"}}
    assert not {piece for piece in pieces if piece and (piece != piece.strip() or len(piece.split()) != 1)}


def test_dictionary_has_every_piece_once_and_no_control_symbol(prepared: Path) -> None:
    from fairseq.data import Dictionary

    entries = [line.rsplit(" ", 1) for line in (prepared / "dest" / "dict.txt").read_text("utf-8").splitlines()]
    pieces, counts = [piece for piece, _ in entries], [int(count) for _, count in entries]
    assert len(set(pieces)) == len(pieces) == 80 - 3
    assert counts == sorted(counts, reverse=True)
    dictionary = Dictionary.load(str(prepared / "dest" / "bin" / "dict.de.txt"))
    assert len(dictionary) == 80 - 3 + 4
    assert (prepared / "dest" / "bin" / "dict.en.txt").read_bytes() == (
        prepared / "dest" / "bin" / "dict.de.txt"
    ).read_bytes()
    train = [piece for line in encoded_lines(prepared, "train.de") for piece in line.split()]
    assert dictionary.unk() not in {dictionary.index(piece) for piece in train}
    assert sum(counts) == 2 * len(train)  # both sides hold the same text here


def test_pieces_decode_to_the_normalised_text(prepared: Path) -> None:
    processor = sentencepiece.SentencePieceProcessor(model_file=str(prepared / "dest" / "spm.model"))
    decoded = [processor.decode(line.split(" ")) for line in encoded_lines(prepared, "test.en")]
    assert decoded[:2] == ["unseen ☃", "one two"]
    assert decoded[3] == "x y z"
    assert decoded[5] == "foo<pad>bar </s>"
    assert decoded[6] == ""


def test_joined_pieces_hold_no_mark_of_sentencepiece(prepared: Path) -> None:
    joined = [join_pieces(line) for line in encoded_lines(prepared, "test.en")]
    assert joined[0] == "unseen ☃"  # a character that no training text holds stays itself
    assert not [line for line in joined if "\u2581" in line or "\u2047" in line]
    processor = sentencepiece.SentencePieceProcessor(model_file=str(prepared / "dest" / "spm.model"))
    assert joined == [processor.decode(line.split(" ")) for line in encoded_lines(prepared, "test.en")]


def test_references_stay_raw_and_are_named(prepared: Path) -> None:
    assert (prepared / "test.de").read_bytes() == "".join(f"{line}\n" for line in ["unseen ☃", *ODD_LINES]).encode(
        "utf-8"
    )
    manifest = json.loads((prepared / "dest" / "manifest.json").read_text("utf-8"))
    assert manifest["raw"]["test.de"] == str((prepared / "test.de").resolve())
    assert manifest["steps"]["learn"]["settings"]["vocab_size"] == 80


def test_a_second_run_does_nothing(corpus: Dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dest = tmp_path / "dest"
    assert prepare.main(arguments(corpus, dest)) == 0
    assert capsys.readouterr().out == f"{dest}: learn, encode, dictionary, binarise done\n"
    before = {path: path.stat().st_mtime_ns for path in dest.rglob("*")}
    assert prepare.main(arguments(corpus, dest)) == 0
    assert capsys.readouterr().out == f"{dest}: everything is there, nothing to do\n"
    assert {path: path.stat().st_mtime_ns for path in dest.rglob("*")} == before


@pytest.mark.parametrize(
    ("harm", "steps"),
    [
        ("raw training text", "learn, encode, dictionary, binarise"),
        ("raw test text", "encode, binarise"),
        ("encoded file", "encode"),
        ("binary file", "binarise"),
        ("vocabulary size", "learn, encode, dictionary, binarise"),
    ],
)
def test_what_changed_is_redone_and_nothing_else(
    harm: str, steps: str, corpus: Dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dest, vocab_size = tmp_path / "dest", 60
    assert prepare.main(arguments(corpus, dest)) == 0
    if harm == "raw training text":
        write(corpus["train.en"], plain_lines(120)[::-1] + ["more"])
        write(corpus["train.de"], plain_lines(121))
    elif harm == "raw test text":
        write(corpus["test.de"], plain_lines(10)[5:])
    elif harm == "encoded file":
        (dest / "spm" / "valid.de").write_text("cut", encoding="utf-8")
    elif harm == "binary file":
        (dest / "bin" / "train.en-de.de.bin").unlink()
    else:
        vocab_size = 55
    capsys.readouterr()
    assert prepare.main(arguments(corpus, dest, vocab_size)) == 0
    assert capsys.readouterr().out == f"{dest}: {steps} done\n"


def test_a_moved_corpus_is_the_same_corpus(
    corpus: Dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dest = tmp_path / "dest"
    assert prepare.main(arguments(corpus, dest)) == 0
    moved = {name: tmp_path / "elsewhere" / name for name in corpus}
    (tmp_path / "elsewhere").mkdir()
    for name, path in corpus.items():
        shutil.move(str(path), str(moved[name]))
    capsys.readouterr()
    assert prepare.main(arguments(moved, dest)) == 0
    assert capsys.readouterr().out == f"{dest}: everything is there, nothing to do\n"
    raw = json.loads((dest / "manifest.json").read_text("utf-8"))["raw"]
    assert raw["test.de"] == str(moved["test.de"].resolve())


def test_a_failing_toolkit_leaves_no_binary_data(
    corpus: Dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    dest = tmp_path / "dest"
    with monkeypatch.context() as patch:
        patch.setattr(pipeline, "run_preprocess", REAL_PREPROCESS)
        patch.setattr(pipeline.sys, "executable", "false")
        assert prepare.main(arguments(corpus, dest)) == 1
    error = (
        f"vaswani-prepare: error: fairseq-preprocess failed with status 1; its output is in {dest / 'binarise.log'}\n"
    )
    assert capsys.readouterr().err.endswith(error)
    assert sorted(path.name for path in dest.iterdir()) == [
        *(".lock", "binarise.log", "dict.txt", "manifest.json", "spm", "spm.model", "spm.vocab")
    ]
    assert prepare.main(arguments(corpus, dest)) == 0
    assert capsys.readouterr().out == f"{dest}: binarise done\n"


def test_preprocess_is_started_with_this_interpreter(corpus: Dict[str, Path], tmp_path: Path) -> None:
    for name, function in (("real", REAL_PREPROCESS), ("forked", forked_preprocess)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pipeline, "run_preprocess", function)
            assert prepare.main(arguments(corpus, tmp_path / name)) == 0
    for path in (tmp_path / "real" / "bin").glob("*.??.*"):
        assert path.read_bytes() == (tmp_path / "forked" / "bin" / path.name).read_bytes()


def test_two_clean_runs_agree(corpus: Dict[str, Path], tmp_path: Path) -> None:
    for name in ("one", "two"):
        assert prepare.main(arguments(corpus, tmp_path / name)) == 0
    for name in ("spm.model", "dict.txt", "spm/train.de", "bin/train.en-de.de.bin", "bin/test.en-de.en.idx"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def refused(corpus: Dict[str, Path], dest: Path, capsys: pytest.CaptureFixture[str], **options: int) -> str:
    """Run a job that must be refused before anything is written, and return what it says."""
    assert prepare.main(arguments(corpus, dest, **options)) == 1
    return capsys.readouterr().err.strip().split("vaswani-prepare: error: ")[-1]


def test_refuses_files_that_are_not_parallel(
    corpus: Dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(corpus["valid.de"], plain_lines(1))
    assert refused(corpus, tmp_path / "dest", capsys) == (
        f"--valid: {corpus['valid.en']} has 7 lines but {corpus['valid.de']} has 1 line; "
        "parallel files have the same number"
    )
    assert not (tmp_path / "dest").exists()


def test_valid_and_test_are_looked_at_before_cleaning(
    corpus: Dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(corpus["test.de"], plain_lines(1))
    assert prepare.main([*arguments(corpus, tmp_path / "dest"), "--clean"]) == 1
    assert capsys.readouterr().err == (
        f"vaswani-prepare: error: --test: {corpus['test.en']} has 5 lines but {corpus['test.de']} has 1 line; "
        "parallel files have the same number\n"
    )
    assert not (tmp_path / "dest").exists()
    write(corpus["test.de"], plain_lines(5))
    words = [
        str(tmp_path) if word == str(corpus["train.de"]) else word for word in arguments(corpus, tmp_path / "dest")
    ]
    assert prepare.main([*words, "--clean"]) == 1
    assert capsys.readouterr().err == f"vaswani-prepare: error: {tmp_path}: not a regular file\n"


def test_a_folder_is_filled_by_one_at_a_time(
    corpus: Dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dest = tmp_path / "dest"
    with filling(dest):
        error = refused(corpus, dest, capsys)
    assert error == f"--dest {dest}: another vaswani-prepare is at work there"
    assert [path.name for path in dest.iterdir()] == [".lock"]
    assert prepare.main(arguments(corpus, dest)) == 0


def test_refuses_a_file_as_the_folder(
    corpus: Dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dest = write(tmp_path / "dest", ["text"])
    assert refused(corpus, dest, capsys) == f"--dest {dest}: cannot be made: File exists"
    assert refused(corpus, dest / "in", capsys) == f"--dest {dest / 'in'}: cannot be made: Not a directory"


def test_a_last_line_without_its_end_is_a_line(corpus: Dict[str, Path]) -> None:
    corpus["valid.de"].write_bytes(b"a\nb\r\nc")
    assert pipeline.count_lines(corpus["valid.de"]) == 3


def test_refuses_missing_empty_and_blank_files(
    corpus: Dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus["test.de"].write_bytes(b"")
    assert refused(corpus, tmp_path / "dest", capsys) == f"{corpus['test.de']}: empty file"
    corpus["test.de"].unlink()
    assert refused(corpus, tmp_path / "dest", capsys) == f"{corpus['test.de']}: no such file"
    write(corpus["test.de"], plain_lines(5))
    for language in ("en", "de"):
        write(corpus[f"train.{language}"], ["", " ", ""])
    assert refused(corpus, tmp_path / "dest", capsys) == "the training text holds nothing but blank lines"
    assert not (tmp_path / "dest" / "spm.model").exists()


def test_refuses_swapped_sides_and_bytes_that_are_no_text(
    corpus: Dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    swapped = {**corpus, "train.en": corpus["train.de"], "train.de": corpus["train.en"]}
    assert refused(swapped, tmp_path / "dest", capsys) == (
        f"--train {corpus['train.de']} {corpus['train.en']}: the en file comes first"
    )
    corpus["train.de"].write_bytes(b"\xff\xfe\n" * 120)
    assert (
        refused(corpus, tmp_path / "dest", capsys) == f"{corpus['train.de']}: not UTF-8: invalid start byte in line 1"
    )


def test_vocabulary_sizes_that_do_not_fit_name_the_limit(
    corpus: Dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = refused(corpus, tmp_path / "dest", capsys, vocab_size=5000)
    assert text.startswith("--vocab-size 5000: the training text yields at most ")
    most = int(text.split()[-2])
    text = refused(corpus, tmp_path / "dest", capsys, vocab_size=7)
    assert text.startswith("--vocab-size 7: the characters of the training text alone need ")
    least = int(text.split()[-2])
    for fits, size in ((True, most), (True, least), (False, most + 1), (False, least - 1)):
        assert (prepare.main(arguments(corpus, tmp_path / str(size), vocab_size=size)) == 0) is fits


@pytest.mark.parametrize("value", ["0", "-3", "1.5", "many", "٣"])
def test_refuses_a_vocabulary_size_that_is_no_count(
    value: str, corpus: Dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = arguments(corpus, tmp_path / "dest")
    words[words.index("--vocab-size") + 1] = value
    with pytest.raises(SystemExit, match="2"):
        prepare.main(words)
    assert f"argument --vocab-size: must be a whole number above 0, not '{value}'" in capsys.readouterr().err


def test_refuses_a_manifest_that_it_did_not_write(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"format": 2, "steps": {}}', encoding="utf-8")
    with pytest.raises(CommandError, match="manifest.json: not a manifest of format 1; remove it to start anew$"):
        Manifest(tmp_path)
    (tmp_path / "manifest.json").write_text("{", encoding="utf-8")
    with pytest.raises(CommandError, match=r"manifest.json: not a manifest \(.*\); remove it to start anew$"):
        Manifest(tmp_path)


@pytest.mark.parametrize("language", ["", "a/b", "../x", "a b", "a\n", "-x", ".en"])
def test_refuses_a_language_that_is_no_suffix(
    language: str, corpus: Dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = arguments(corpus, tmp_path / "dest")
    words[words.index("--source-lang") : words.index("--source-lang") + 2] = [f"--source-lang={language}"]
    assert prepare.main(words) == 1
    assert capsys.readouterr().err == (
        f"vaswani-prepare: error: --source-lang {language!r}: a file's suffix, of letters, digits and _ @ . + -, "
        "the first not one of . + -\n"
    )
    assert not (tmp_path / "dest").exists()


def test_cleaning_is_asked_for(corpus: Dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(corpus["train.en"], [*plain_lines(120), "", "twice", "twice"])
    write(corpus["train.de"], [*plain_lines(120), "alone", "zweimal", "zweimal"])
    dest = tmp_path / "dest"
    assert prepare.main([*arguments(corpus, dest), "--clean"]) == 0
    out = capsys.readouterr().out
    kept = len(set(plain_lines(120))) + 1
    assert out.startswith(f"train: 123 pairs read, {kept} kept; dropped: encoding 0, empty 1, too long 0, ratio 0, ")
    assert out.endswith(f"{dest}: clean, learn, encode, dictionary, binarise done\n")
    assert len((dest / "spm" / "train.de").read_bytes().split(b"\n")) == kept + 1
    for words in (["--max-ratio", "0.5"], ["--max-ratio", "nan"], ["--max-words", "0"]):
        with pytest.raises(SystemExit, match="2"):
            prepare.main([*arguments(corpus, dest), "--clean", *words])
        assert f"argument {words[0]}: must be a" in capsys.readouterr().err


@pytest.mark.parametrize(("option", "value", "least"), [("--vocab-size", 3, 4), ("--sample-lines", 100, 101)])
def test_refuses_what_sentencepiece_cannot_do(
    option: str, value: int, least: int, corpus: Dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert prepare.main([*arguments(corpus, tmp_path / "dest"), option, str(value)]) == 1
    assert capsys.readouterr().err == f"vaswani-prepare: error: {option} {value}: must be at least {least}\n"


def test_what_a_killed_run_left_is_removed_and_not_used(
    corpus: Dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: List[str] = []

    def preprocess(words: Sequence[str], log: Path) -> int:
        folder = Path(words[words.index("--destdir") + 1])
        used.append(folder.name)
        folder.mkdir()
        (folder / "half").touch()
        raise KeyboardInterrupt

    dest = tmp_path / "dest"
    for stale in (".bin.partial", ".bin.1.partial"):
        (dest / stale).mkdir(parents=True)
    monkeypatch.setattr(pipeline, "run_preprocess", preprocess)
    assert prepare.main(arguments(corpus, dest)) == 130
    assert used == [f".bin.{os.getpid()}.partial"]
    assert not [path.name for path in dest.iterdir() if "bin" in path.name]
    steps = [f"encode {split}.{language}" for split in ("train", "valid", "test") for language in ("en", "de")]
    done = list(json.loads((dest / "manifest.json").read_text("utf-8"))["steps"])
    assert done == ["learn", *steps, "dictionary"]
