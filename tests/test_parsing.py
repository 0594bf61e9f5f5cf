"""The parsing task and its commands end to end: prepare trees, train, parse, score; the recipe's steps."""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import List

import pytest
from fairseq.data import Dictionary
from fairseq.tasks import TASK_DATACLASS_REGISTRY
from toolkit_runner import PLUGIN, REPO, run, tiny_train_args

from vaswani_plugin.parsing import PARSING_SEARCH_DEFAULTS, VaswaniParsingTask
from vaswani_plugin.tools import parseval, prepare, train
from vaswani_plugin.tools.manifest import filling
from vaswani_plugin.trees import leaves, read_trees, split_symbols, without_tags

SEARCH_OPTIONS = {"--beam": 5, "--lenpen": 1.0, "--max-len-a": 0.0, "--max-len-b": 200}


def parsed_options(*words: str) -> Namespace:
    parser = argparse.ArgumentParser()
    for name, value in SEARCH_OPTIONS.items():
        parser.add_argument(name, type=type(value), default=value)
    VaswaniParsingTask.add_args(parser)
    return parser.parse_args(["data", *words])


def test_the_search_defaults_are_those_of_section_6_3_and_a_given_value_wins() -> None:
    assert PARSING_SEARCH_DEFAULTS == {"beam": 21, "lenpen": 0.3, "max_len_a": 1, "max_len_b": 300}
    args = parsed_options()
    assert (args.beam, args.lenpen, args.max_len_a, args.max_len_b) == (21, 0.3, 1, 300)
    args = parsed_options("--beam", "4", "--lenpen", "1", "--max-len-b", "200")
    assert (args.beam, args.lenpen, args.max_len_a, args.max_len_b) == (4, 1.0, 1, 200)


class Recorder:
    """Stands for a generator class: keeps what it is built with."""

    def __init__(self, models: list, dictionary: Dictionary, **settings: object) -> None:
        self.settings = settings


def test_the_generator_of_validation_takes_them_too() -> None:
    words = Dictionary()
    task = VaswaniParsingTask(TASK_DATACLASS_REGISTRY["vaswani_parsing"](data="x"), words, words)
    settings = task.build_generator([], Namespace(beam=3), seq_gen_cls=Recorder).settings
    expected = {"beam_size": 3, "len_penalty": 0.3, "max_len_a": 1, "max_len_b": 300}
    assert {name: settings[name] for name in expected} == expected


# --- a tiny treebank -------------------------------------------------------------------------------------------------

NOUNS = ["dog", "cat", "bird", "für", "日本"]


def treebank(n: int, seed: int) -> List[str]:
    """Trees of a small grammar, with function tags, an empty node and punctuation."""
    rng = random.Random(seed)

    def noun_phrase(tag: str) -> str:
        inner = f"(DT the) (NN {rng.choice(NOUNS)})"
        return f"(NP{tag} {inner})" if rng.random() < 0.7 else f"(NP{tag} (NP {inner}) (PP (IN of) {noun_phrase('')}))"

    return [
        f"(ROOT (S {noun_phrase('-SBJ')} (VP (VBD saw) {noun_phrase('')} (NP (-NONE- *T*-1))) (. .)))" for _ in range(n)
    ]


@dataclass(frozen=True)
class Prepared:
    """Tree files and what vaswani-prepare made of them."""

    raw: Path
    dest: Path

    def words(self, *more: object, dest: Path | None = None) -> List[str]:
        """The command's words."""
        files = [word for name in ("train", "valid", "test") for word in (f"--{name}", str(self.raw / f"{name}.ptb"))]
        return ["trees", *files, "--dest", str(dest or self.dest), *map(str, more)]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    folder = tmp_path_factory.mktemp("parsing")
    for name, n, seed in (("train", 120, 1), ("valid", 9, 2), ("test", 9, 3)):
        text = "\n".join(treebank(n, seed)) + "\n"
        # The test trees span lines, as in the Penn Treebank; one of them has no words.
        text = text.replace(" (VP", "\n  (VP") + "(ROOT (NP (-NONE- *)))\n" if name != "valid" else text
        (folder / f"{name}.ptb").write_text(text, encoding="utf-8")
    made = Prepared(folder, folder / "data")
    assert prepare.main(made.words()) == 0
    return made


def test_prepare_writes_both_sides_and_clean_gold_trees(prepared: Prepared) -> None:
    def lines(name: str) -> List[str]:
        return (prepared.dest / name).read_text(encoding="utf-8").split("\n")[:-1]

    assert [len(lines(f"text/{split}.words")) for split in ("train", "valid", "test")] == [120, 9, 10]
    for sentence, symbols, gold in zip(lines("text/test.words"), lines("text/test.trees"), lines("gold/test.ptb")):
        (tree,) = read_trees([gold])
        assert [leaf.word for leaf in leaves(tree)] == sentence.split()
        assert symbols.split().count("XX") == len(sentence.split())
        assert "-" not in symbols
    assert (lines("text/test.words")[-1], lines("text/test.trees")[-1], lines("gold/test.ptb")[-1]) == ("", "", "(TOP)")
    assert {line.split()[0] for line in lines("dict.trees.txt")} == {
        "XX", "(S", ")S", "(NP", ")NP", "(VP", ")VP", "(PP", ")PP",
    }  # fmt: skip
    assert {line.split()[0] for line in lines("dict.words.txt")} == {"the", "of", "saw", ".", *NOUNS}
    assert (prepared.dest / "bin" / "train.words-trees.words.bin").exists()


def test_prepare_does_nothing_twice_and_tells_what_it_leaves_out(
    prepared: Prepared, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert prepare.main(prepared.words(dest=tmp_path / "data")) == 0
    out = capsys.readouterr().out
    assert out == f"--train: left out 1 tree without words\n{tmp_path / 'data'}: read, encode, binarise done\n"
    assert prepare.main(prepared.words(dest=tmp_path / "data")) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'data'}: everything is there, nothing to do\n"
    assert prepare.main(prepared.words("--min-count", 121, dest=tmp_path / "data")) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'data'}: encode, binarise done\n"


def test_a_folder_is_filled_by_one_at_a_time(
    prepared: Prepared, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with filling(tmp_path / "data"):
        assert prepare.main(prepared.words(dest=tmp_path / "data")) == 1
    error = f"vaswani-prepare: error: --dest {tmp_path / 'data'}: another vaswani-prepare is at work there\n"
    assert capsys.readouterr().err == error


def test_tags_are_kept_on_request(prepared: Prepared, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert prepare.main(prepared.words(dest=tmp_path)) == 0
    capsys.readouterr()
    assert prepare.main(prepared.words("--tags", dest=tmp_path)) == 0
    assert capsys.readouterr().out.endswith(f"{tmp_path}: read, encode, binarise done\n")
    plain = (prepared.dest / "text" / "test.trees").read_text(encoding="utf-8").splitlines()
    tagged = (tmp_path / "text" / "test.trees").read_text(encoding="utf-8").splitlines()
    gold = (tmp_path / "gold" / "test.ptb").read_text(encoding="utf-8").splitlines()
    assert [without_tags(line.split()) for line in tagged] == [line.split() for line in plain]
    for line, (tree,) in zip(tagged, (read_trees([text]) for text in gold)):
        assert [symbol for symbol in line.split() if symbol[0] not in "()"] == [leaf.tag for leaf in leaves(tree)]
    known = {line.split()[0] for line in (tmp_path / "dict.trees.txt").read_text(encoding="utf-8").splitlines()}
    assert known == {"(S", ")S", "(NP", ")NP", "(VP", ")VP", "(PP", ")PP", "DT", "NN", "VBD", "IN", "."}
    assert prepare.main(prepared.words("--tags", dest=tmp_path)) == 0
    assert capsys.readouterr().out == f"{tmp_path}: everything is there, nothing to do\n"


def test_symbols_are_joined_on_request(prepared: Prepared, tmp_path: Path) -> None:
    assert prepare.main(prepared.words("--joined", "--tags", dest=tmp_path)) == 0
    sentences = (tmp_path / "text" / "test.words").read_text(encoding="utf-8").splitlines()
    joined = (tmp_path / "text" / "test.trees").read_text(encoding="utf-8").splitlines()
    plain = (prepared.dest / "text" / "test.trees").read_text(encoding="utf-8").splitlines()
    assert [len(line.split()) for line in joined] == [len(line.split()) for line in sentences]
    assert [without_tags(split_symbols(line.split())) for line in joined] == [line.split() for line in plain]
    known = {line.split()[0] for line in (tmp_path / "dict.trees.txt").read_text(encoding="utf-8").splitlines()}
    assert {"(S(NP*DT", "*NN)NP", "(VP*VBD", "*.)S"} <= known


def test_constituents_are_training_examples_on_request(
    prepared: Prepared, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for split in ("valid", "test"):
        (tmp_path / f"{split}.ptb").write_text("(S (NP (DT the) (NN dog)) (VP (VBD saw) (NP (DT a) (NN cat))))")
    (tmp_path / "train.ptb").write_text(
        "(S (NP (-NONE- *)))\n(S (NP-SBJ (DT the) (NN dog)) (VP (VBD saw) (NP (DT a) (NN cat))) (. .))\n(S (UH yes))"
    )
    words = Prepared(tmp_path, tmp_path / "data").words("--subtrees", "--min-count", 1)
    assert prepare.main(words) == 0
    assert capsys.readouterr().out.startswith("--train: left out 1 tree without words\n")

    def text(name: str) -> str:
        return (tmp_path / "data" / name).read_text(encoding="utf-8")

    assert text("text/train.words") == "the dog saw a cat .\nyes\nthe dog\na cat\nsaw a cat\n"
    assert text("text/train.trees") == (
        "(S (NP XX XX )NP (VP XX (NP XX XX )NP )VP XX )S\n(S XX )S\n"
        "(NP XX XX )NP\n(NP XX XX )NP\n(VP XX (NP XX XX )NP )VP\n"
    )
    assert text("text/valid.words") == text("text/test.words") == "the dog saw a cat\n"
    assert len(text("gold/train.ptb").splitlines()) == 2
    assert text("dict.words.txt").split()[::2] == ["a", "cat", "dog", "saw", "the", ".", "yes"]
    assert text("dict.words.txt").split()[1::2] == ["3", "3", "2", "2", "2", "1", "1"]
    assert prepare.main([*words[:-1], "2"]) == 0  # every word is in the trees once, however many constituents hold it
    assert text("dict.words.txt") == ""
    words.remove("--subtrees")
    assert prepare.main(words) == 0
    assert capsys.readouterr().out.endswith(f"{tmp_path / 'data'}: read, encode, binarise done\n")
    assert text("text/train.words") == "the dog saw a cat .\nyes\n"


def test_rare_words_are_left_to_the_unknown_symbol(prepared: Prepared, tmp_path: Path) -> None:
    def dictionary() -> List[str]:
        return [line.split()[0] for line in (tmp_path / "dict.words.txt").read_text(encoding="utf-8").splitlines()]

    assert prepare.main(prepared.words("--vocab-size", 3, dest=tmp_path)) == 0
    assert dictionary() == ["the", ".", "saw"]  # 120 sentences
    assert prepare.main(prepared.words("--min-count", 120, dest=tmp_path)) == 0
    assert dictionary() == ["the", ".", "saw"]
    assert prepare.main(prepared.words("--min-count", 121, dest=tmp_path)) == 0
    assert dictionary() == ["the"]


def test_pieces_replace_the_words_of_the_source_alone(prepared: Prepared, tmp_path: Path) -> None:
    assert prepare.main(prepared.words("--words", "pieces", "--vocab-size", 40, dest=tmp_path)) == 0
    pieces = (tmp_path / "spm" / "test.words").read_text(encoding="utf-8").splitlines()
    whole = (tmp_path / "text" / "test.words").read_text(encoding="utf-8").splitlines()
    assert ["".join(line.split()).replace("\u2581", " ").strip() for line in pieces] == whole
    assert (tmp_path / "text" / "test.trees").read_bytes() == (prepared.dest / "text" / "test.trees").read_bytes()
    known = {line.split()[0] for line in (tmp_path / "dict.words.txt").read_text(encoding="utf-8").splitlines()}
    assert {piece for line in pieces for piece in line.split()} <= known


def test_a_folder_stands_for_its_mrg_files(prepared: Prepared, tmp_path: Path) -> None:
    for number, part in enumerate(treebank(6, 5)):
        path = tmp_path / "wsj" / f"0{number % 2}" / f"wsj_{number}.mrg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(part.replace("(ROOT ", "( "), encoding="utf-8")
    (tmp_path / "wsj" / "README").write_text("not a tree")
    words = prepared.words(dest=tmp_path / "data")
    words[2] = str(tmp_path / "wsj")
    assert prepare.main(words) == 0
    assert len((tmp_path / "data" / "text" / "train.words").read_text(encoding="utf-8").splitlines()) == 6


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("(S (NN a))\n(S (NN b)\n", "{path}:2: the tree that begins here is not closed"),
        ("(S (NN a))\n\n(S (NN b)))\n", "{path}:3: a closing bracket without an opening one"),
        ("", "{path}: no trees"),
        ("(S (-NONE- *))", "--train: no tree holds a word"),
        (None, "{path}: no such file"),
    ],
)
def test_prepare_refuses_what_is_no_tree(
    text: str | None, error: str, prepared: Prepared, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = prepared.words(dest=tmp_path / "data")
    words[2] = str(tmp_path / "bad.ptb")
    if text is not None:
        (tmp_path / "bad.ptb").write_text(text)
    assert prepare.main(words) == 1
    assert capsys.readouterr().err.splitlines()[-1] == f"vaswani-prepare: error: {error.format(path=words[2])}"
    assert not (tmp_path / "data" / "bin").exists()


def test_prepare_refuses_a_folder_without_trees(
    prepared: Prepared, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = prepared.words(dest=tmp_path / "data")
    words[2] = str(tmp_path)
    assert prepare.main(words) == 1
    assert capsys.readouterr().err == f"vaswani-prepare: error: {tmp_path}: no .mrg files in this folder\n"


def test_vaswani_train_leaves_the_embeddings_to_the_option_that_is_given(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["data", "--save-dir", "save", "--cpu", "--dry-run"]
    assert train.main(words) == 0
    assert "--share-all-embeddings" in capsys.readouterr().out
    assert train.main([*words, "--", "--tie-embeddings", "decoder"]) == 0
    out = capsys.readouterr().out
    assert "--tie-embeddings decoder" in out
    assert "--share-all-embeddings" not in out


# --- from the model to the score -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def parsed(prepared: Prepared, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log of a barely trained parser on the test trees, beside its checkpoint."""
    folder = tmp_path_factory.mktemp("parsed")
    options = tiny_train_args(prepared.dest / "bin", folder, updates=10)
    options[options.index("--task") + 1] = "vaswani_parsing"
    options.remove("--share-all-embeddings")
    run("fairseq-train", *options, "--tie-embeddings", "decoder", "--no-epoch-checkpoints", "--disable-validation").ok()
    result = run(
        "fairseq-generate", prepared.dest / "bin", "--user-dir", PLUGIN, "--task", "vaswani_parsing", "--cpu",
        "--path", folder / "checkpoint_last.pt", "--beam", 3,
    ).ok()  # fmt: skip
    (folder / "log").write_text(result.out, encoding="utf-8")
    return folder / "log"


def test_every_output_becomes_a_tree_over_its_sentence(
    prepared: Prepared, parsed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gold, out, figures = prepared.raw / "test.ptb", tmp_path / "out.ptb", tmp_path / "out.json"
    words = ["--gold", str(gold), "--log", str(parsed), "--trees", str(out), "--json", str(figures)]
    assert parseval.main(words) == 0
    table = capsys.readouterr().out
    assert "of 10 outputs had to be repaired\n" in table
    result = json.loads(figures.read_text())
    assert (result["all"]["sentences"], result["all"]["errors"], result["all"]["skipped"]) == (10, 0, 1)
    assert f"bracketing F1{result['all']['f1']:19.2f}" in table
    trees = list(read_trees(out.read_text(encoding="utf-8").splitlines()))
    clean_gold = list(read_trees((prepared.dest / "gold" / "test.ptb").read_text(encoding="utf-8").splitlines()))
    assert [leaves(tree) for tree in trees] == [leaves(tree) for tree in clean_gold]
    assert parseval.main(["--gold", str(gold), "--test", str(out), "--json", str(tmp_path / "again.json")]) == 0
    assert json.loads((tmp_path / "again.json").read_text()) == result


def test_raw_text_is_parsed_line_by_line(prepared: Prepared, parsed: Path, tmp_path: Path) -> None:
    text = "the dog saw the unheard-of cat .\n\nsaw\n"
    result = run(
        "fairseq-interactive", prepared.dest / "bin", "--user-dir", PLUGIN, "--task", "vaswani_parsing", "--cpu",
        "--path", parsed.parent / "checkpoint_last.pt", "--beam", 2, stdin=text,
    ).ok()  # fmt: skip
    (tmp_path / "log").write_text(result.out, encoding="utf-8")
    (tmp_path / "text").write_text(text)
    log, source, out = (str(tmp_path / name) for name in ("log", "text", "trees"))
    assert parseval.main(["--log", log, "--src", source, "--trees", out]) == 0
    lines = Path(out).read_text().splitlines()
    assert [[leaf.word for leaf in leaves(next(read_trees([line])))] for line in lines] == [
        line.split() for line in text.splitlines()
    ]
    assert lines[1] == "(TOP)"


def test_a_perfect_log_scores_100(prepared: Prepared, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    symbols = (prepared.dest / "text" / "test.trees").read_text().splitlines()
    order = random.Random(1).sample(range(10), 10)
    log = tmp_path / "log"
    log.write_text("".join(f"H-{i}\t-1.0\t{symbols[i]}\n" for i in order))
    assert parseval.main(["--gold", str(prepared.raw / "test.ptb"), "--log", str(log)]) == 0
    assert (
        capsys.readouterr().out
        == f"""{log}: 0 of 10 outputs had to be repaired
                             all   <= 40
sentences                     10      10
of which errors                0       0
of which skipped               1       1
bracketing recall         100.00  100.00
bracketing precision      100.00  100.00
bracketing F1             100.00  100.00
complete match, %         100.00  100.00
average crossing            0.00    0.00
no crossing, %            100.00  100.00
2 or less crossing, %     100.00  100.00
evalb:collins|labelled:yes|root:no
"""
    )


def test_tags_of_a_log_are_neither_scored_nor_repaired(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gold, log, out = (tmp_path / name for name in ("gold", "log", "out"))
    gold.write_text("(S (NP (DT the) (NN dog)) (VP (VBZ barks)) (. .))\n" * 5)
    log.write_text(
        "H-0\t-1\t(S (NP DT NN )NP (VP VBZ )VP . )S\n"
        "H-1\t-1\t(S (NP , . )NP (VP XX )VP NN )S\n"  # wrong tags, right brackets
        "H-2\t-1\t(S (NP DT NN )NP (VP VBZ )VP )S\n"  # a word short
        "H-3\t-1\t(S(NP*DT *NN)NP (VP*VBZ)VP *XX)S\n"  # joined
        "H-4\t-1\t(S(NP*DT *NN)NP (VP*VBZ)VP <unk>\n"
    )
    assert parseval.main(["--gold", str(gold), "--log", str(log), "--trees", str(out)]) == 0
    table = capsys.readouterr().out
    assert table.startswith(f"{log}: 2 of 5 outputs had to be repaired\n")
    assert "bracketing F1             100.00" in table
    assert out.read_text() == "(TOP (S (NP (DT the) (NN dog)) (VP (VBZ barks)) (. .)))\n" * 5


def test_tags_of_a_log_are_those_of_raw_text(tmp_path: Path) -> None:
    log, source, out = (tmp_path / name for name in ("log", "text", "out"))
    source.write_text("the dog barks !\n")
    log.write_text("H-0\t-1\t(S (NP DT NN )NP (VP VBZ )VP . )S\n")
    assert parseval.main(["--log", str(log), "--src", str(source), "--trees", str(out)]) == 0
    assert out.read_text() == "(TOP (S (NP (DT the) (NN dog)) (VP (VBZ barks)) (. !)))\n"


def test_the_baseline_and_unlabelled_scores(tmp_path: Path) -> None:
    """By hand: gold S 0-4, NP 0-2, VP 2-4, NP 3-4 against S 0-4, VP 1-4, VP 2-4."""
    gold, out = tmp_path / "gold", tmp_path / "json"
    gold.write_text("(TOP (S (NP (DT the) (NN dog)) (VP (VBD saw) (NP (PRP it))) (. .)))")
    words = ["--gold", str(gold), "--baseline", "right", "--json", str(out)]
    assert parseval.main(words) == 0
    result = json.loads(out.read_text())
    assert (result["all"]["recall"], result["all"]["precision"]) == (50.0, pytest.approx(200 / 3))
    assert result["all"]["f1"] == pytest.approx(400 / 7)
    gold.write_text(gold.read_text().replace("(VP", "(X"))
    assert parseval.main([*words, "--unlabelled"]) == 0
    again = json.loads(out.read_text())
    assert (again["all"]["f1"], again["signature"]) == (pytest.approx(400 / 7), "evalb:collins|labelled:no|root:no")


def test_sentences_with_other_words_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "gold").write_text("(S (NN a))\n(S (NN b))\n(S (NN c))")
    (tmp_path / "test").write_text("(S (NN a))\n(S (NN x))\n(S (NN c) (NN d))")
    assert parseval.main(["--gold", str(tmp_path / "gold"), "--test", str(tmp_path / "test")]) == 0
    assert capsys.readouterr().err == "vaswani-parseval: warning: not counted, since the words differ: 2, 3\n"


def test_parseval_refuses_what_does_not_fit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gold, test, log = (tmp_path / name for name in ("gold", "test", "log"))
    gold.write_text("(S (NN a))\n(S (NN b))")
    test.write_text("(S (NN a))")
    log.write_text("H-0\t-1\tXX\n")

    def error(*words: object) -> str:
        assert parseval.main([str(word) for word in words]) == 1
        return capsys.readouterr().err

    start = "vaswani-parseval: error: "
    assert error("--gold", gold, "--test", test) == f"{start}{gold} has 2 sentences but {test} has 1\n"
    assert error("--gold", gold, "--log", log) == f"{start}{gold} has 2 sentences but {log} has 1\n"
    assert error("--gold", gold, "--log", "none") == f"{start}none: no such file\n"
    test.write_text("(S (NN a))\n(S (NN b)")
    assert error("--gold", gold, "--test", test) == f"{start}{test}:2: the tree that begins here is not closed\n"
    assert error("--gold", gold, "--test", test, "--trees", gold) == (
        f"{start}{gold}: is one of the files to read; give what is made another name\n"
    )


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--test", "x"], "--test and --baseline are scored against --gold"),
        (["--baseline", "right"], "--test and --baseline are scored against --gold"),
        (["--log", "x"], "--log goes with --gold, to score, or with --src, to write trees"),
        (
            ["--log", "x", "--gold", "y", "--src", "z"],
            "--log goes with --gold, to score, or with --src, to write trees",
        ),
        (["--log", "x", "--src", "z"], "without --gold nothing is scored: give --trees and no --json"),
        (["--gold", "y"], "one of the arguments --log --test --baseline is required"),
    ],
)
def test_parseval_refuses_options_without_sense(
    words: List[str], error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="^2$"):
        parseval.main(words)
    assert capsys.readouterr().err.splitlines()[-1] == f"vaswani-parseval: error: {error}"


# --- the recipe ------------------------------------------------------------------------------------------------------


def recipe(*words: object) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return subprocess.run(
        ["bash", str(REPO / "scripts" / "parsing.sh"), *map(str, words)],
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": path, "OMP_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
        check=False,
    )


def test_the_recipe_knows_the_sections_of_the_wall_street_journal(tmp_path: Path) -> None:
    for number in range(25):
        (tmp_path / f"{number:02d}").mkdir()
    result = recipe("--wsj", tmp_path, "--work", tmp_path / "work", "--dry-run")
    assert (result.returncode, result.stderr) == (0, "")
    commands = result.stdout.splitlines()
    sections = " ".join(f"{tmp_path}/{number:02d}" for number in range(2, 22))
    assert commands[0].startswith(
        f"vaswani-prepare trees --train {sections} --valid {tmp_path}/22 --test {tmp_path}/23 --dest "
    )
    assert "--arch vaswani_parsing" in commands[1]
    assert "--task vaswani_parsing --tie-embeddings decoder --warmup-updates 4000" in commands[1]
    assert "--tags" not in commands[0] and "--joined" not in commands[0] and "--subtrees" not in commands[0]
    assert "--beam 21" in commands[3]
    assert len(commands) == 6


def test_the_recipe_hands_the_form_of_the_trees_on(tmp_path: Path) -> None:
    result = recipe("--train", "/", "--valid", "/", "--test", "/", "--tags", "--joined", "--subtrees", "--dry-run")
    assert (result.returncode, result.stderr) == (0, "")
    commands = result.stdout.splitlines()
    assert " --test / --tags --joined --subtrees --dest " in commands[0]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ([], "give --wsj DIR, or --train FILE, --valid FILE and --test FILE (--help lists the options)"),
        (["--wsj", "/", "--train", "/"], "--wsj names all three parts; give it without --train, --valid and --test"),
        (["--wsj", "/none"], "/none/02: no such file or folder"),
        (["--train", "/", "--valid", "/", "--test", "/none"], "/none: no such file or folder"),
        (["--lr"], "--lr: unknown option, or its value is missing (--help lists the options)"),
        (["--train", "/", "--valid", "/", "--test", "/", "--beam", "x"],
         "--beam must be a whole number above 0, not 'x'"),
    ],
)  # fmt: skip
def test_the_recipe_refuses_what_would_fail_late(words: List[str], error: str) -> None:
    result = recipe(*words)
    assert (result.returncode, result.stderr) == (1, f"parsing.sh: error: {error}\n")


@pytest.mark.slow
def test_the_recipe_learns_a_small_grammar_and_does_nothing_twice(prepared: Prepared, tmp_path: Path) -> None:
    (tmp_path / "train.ptb").write_text("\n".join(treebank(1000, 1)), encoding="utf-8")
    words: List[object] = ["--cpu", "--work", tmp_path / "work", "--arch", "vaswani_tiny", "--dropout", 0.1]
    words += ["--train", tmp_path / "train.ptb"]
    words += ["--valid", prepared.raw / "valid.ptb", "--test", prepared.raw / "test.ptb"]
    words += ["--batch", 1000, "--max-update", 400, "--warmup-updates", 100, "--lr", "3e-3", "--average", 2]
    words += ["--beam", 4]
    first = recipe(*words)
    assert first.returncode == 0, first.stdout + first.stderr
    scored = json.loads((tmp_path / "work" / "score.json").read_text())
    baseline = json.loads((tmp_path / "work" / "baseline.json").read_text())
    assert scored["all"]["f1"] > 70 > 40 > baseline["all"]["f1"]  # 88.2 and 35.3 when this was written
    again = recipe(*words)
    assert again.returncode == 0, again.stdout + again.stderr
    assert again.stdout.count("done before") == 6
    assert "bracketing F1" in again.stdout
