"""vaswani-score: reading generation logs, joining pieces, and scores against published forms."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import List, Sequence

import pytest
import sacrebleu
from toolkit_runner import PLUGIN, CopyTask, run

from vaswani_plugin.tools import score
from vaswani_plugin.tools.cli import CommandError
from vaswani_plugin.tools.generation_log import read_log

FINAL = "Generate test with beam=4: BLEU4 = 12.34, 50.0/30.0/20.0/10.0 (BP=1.000, ratio=1.000)"
HYPOTHESES = [f"word {i}" for i in range(13)]
HYPOTHESES[3], HYPOTHESES[5], HYPOTHESES[7], HYPOTHESES[8] = "7 dwarfs", "", "tab\there", "a\u2028b"


def block(index: int, hypothesis: str, second: str = "") -> List[str]:
    """What the toolkit prints for one sentence; ``second`` makes it a 2-best list."""
    lines = [f"S-{index}\tsource {index}", f"T-{index}\treference {index}"]
    for text in [hypothesis, second] if second else [hypothesis]:
        lines += [f"H-{index}\t-0.5\t{text}", f"D-{index}\t-0.5\t{text}", f"P-{index}\t-0.4 -0.6"]
    return lines


def whole_log(second: str = "") -> List[str]:
    order = list(range(13))
    random.Random(3).shuffle(order)
    lines = ["2026-01-01 00:00:00 | INFO | fairseq_cli.generate | loading model(s) from x.pt"]
    for index in order:
        lines += block(index, HYPOTHESES[index], f"{second} {index}" if second else "")
        lines.append("2026-01-01 00:00:00 | INFO | H-99 in a log line is no hypothesis")
    return [*lines, "2026-01-01 00:00:00 | INFO | fairseq_cli.generate | Translated 13 sentences", FINAL]


def write(path: Path, lines: Sequence[str]) -> Path:
    path.write_bytes("".join(line + "\n" for line in lines).encode("utf-8"))
    return path


@pytest.mark.parametrize("second", ["", "worse"])
def test_hypotheses_come_in_the_order_of_their_numbers(second: str, tmp_path: Path) -> None:
    sentences = read_log(write(tmp_path / "log", whole_log(second)))
    assert [sentence.best() for sentence in sentences] == HYPOTHESES
    assert [sentence.source for sentence in sentences] == [f"source {i}" for i in range(13)]


def test_lines_after_the_final_one_do_not_matter(tmp_path: Path) -> None:
    assert len(read_log(write(tmp_path / "log", [*whole_log(), "UserWarning: something on exit"]))) == 13


def test_detokenised_lines_are_preferred_and_not_needed(tmp_path: Path) -> None:
    lines = ["H-0\t-1\ta b .", "D-0\t-1\ta b.", FINAL]
    assert read_log(write(tmp_path / "log", lines))[0].best() == "a b."
    assert read_log(write(tmp_path / "log", [lines[0], FINAL]))[0].best() == "a b ."


def broken(tmp_path: Path, lines: Sequence[str]) -> str:
    with pytest.raises(CommandError, match=r"^.*log:") as caught:
        read_log(write(tmp_path / "log", lines))
    return str(caught.value)[len(str(tmp_path / "log")) :].lstrip(":").strip()


def test_refuses_a_log_that_is_not_finished(tmp_path: Path) -> None:
    error = 'unfinished: no line "Generate ... with beam=..." that ends a log'
    assert broken(tmp_path, whole_log()[:-1]) == error
    assert broken(tmp_path, []) == error
    assert broken(tmp_path, [FINAL]) == "no sentences"


def test_refuses_missing_sentences(tmp_path: Path) -> None:
    lines = [line for line in whole_log() if line[2:4] not in {"4\t", "9\t"}]
    assert broken(tmp_path, lines) == "missing: sentences 4, 9, though there is one with number 12"
    lines = [line for line in whole_log() if not line.startswith(("H-6\t", "D-6\t"))]
    assert broken(tmp_path, lines) == "no hypothesis for sentence 6"


def test_refuses_repeated_sentences(tmp_path: Path) -> None:
    assert broken(tmp_path, [*whole_log()[:-1], *block(4, "again"), FINAL]) == "repeated: sentence 4"
    beside = [*whole_log()[:-1], *block(13, "again"), *block(13, "again"), FINAL]
    assert broken(tmp_path, beside) == "repeated: sentence 13"
    twice = [*whole_log()[:-1], *block(13, "once", "twice"), FINAL]
    assert broken(tmp_path, twice) == (
        "sentence 13 has 2 hypotheses but others have 1; it is repeated, or --nbest must say more"
    )
    assert len(read_log(write(tmp_path / "log", twice), nbest=2)) == 14
    stated = ["INFO | {'generation': {'nbest': 1, 'beam': 4}}", *twice]
    assert broken(tmp_path, stated).startswith("sentence 13 has 2 hypotheses but the n-best size is 1; ")
    assert len(read_log(write(tmp_path / "log", [stated[0].replace("1", "2"), *twice]))) == 14


def test_refuses_two_logs_in_one_and_broken_lines(tmp_path: Path) -> None:
    assert broken(tmp_path, [*block(0, "a"), FINAL, *block(1, "b"), FINAL]) == (
        "7: a sentence after the line that ends the log; are these two logs?"
    )
    assert broken(tmp_path, ["H-0\t-0.5", FINAL]) == "1: H line without a tab after the score '-0.5'"


@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        ("▁Ein ▁Ha us .", "Ein Haus."),
        ("", ""),
        ("▁", ""),
        ("a ▁b", "a b"),
        ("▁a - b <unk> ▁c", "a-b<unk> c"),
        ("▁x\u00a0y", "x\u00a0y"),
    ],
)
def test_join_pieces(pieces: str, text: str) -> None:
    assert score.join_pieces(pieces) == text


def test_join_pieces_agrees_with_sentencepiece(tmp_path: Path) -> None:
    import sentencepiece

    lines = ["Das Haus ist blau - und groß.", "a-b-c", "  viele   Blanks ", "Straße 12, 3.5 %", ""] * 20
    text = write(tmp_path / "text", lines)
    sentencepiece.SentencePieceTrainer.train(
        input=str(text), model_prefix=str(tmp_path / "m"), vocab_size=70, model_type="bpe", minloglevel=2
    )
    processor = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "m.model"))
    for line in lines[:5]:
        pieces = processor.encode(line, out_type=str)
        assert score.join_pieces(" ".join(pieces)) == processor.decode(pieces)


@pytest.mark.parametrize(
    ("tokens", "split"),
    [
        ("Science-Fiction ist gut", "Science ##AT##-##AT## Fiction ist gut"),
        ("a-b-c", "a ##AT##-##AT## b-c"),  # matches do not overlap, as in the published script
        ("x - y", "x - y"),
        ("a--b", "a ##AT##-##AT## -b"),
        ("-z", "-z"),
        ("", ""),
    ],
)
def test_split_compounds_as_the_published_script_does(tokens: str, split: str) -> None:
    assert score.split_compounds(tokens) == split


def run_score(*words: object) -> int:
    return score.main([str(word) for word in words])


def test_scores_are_sacrebleus_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hypotheses = ["The cat sat on the mat.", "A dog, it is said, barks.", "", "Numbers like 3.5 matter"]
    references = ["The cat sat on a mat.", "A dog - it is said - barks.", "Something", "Numbers like 3.5 matter."]
    hyp, ref = write(tmp_path / "hyp", hypotheses), write(tmp_path / "ref", references)
    assert run_score("--hyp", hyp, "--ref", ref, "--json", tmp_path / "out.json") == 0
    result = json.loads((tmp_path / "out.json").read_text("utf-8"))
    assert result["sentences"] == 4
    assert result["bleu"]["score"] == sacrebleu.corpus_bleu(hypotheses, [references]).score
    assert result["chrf"]["score"] == sacrebleu.corpus_chrf(hypotheses, [references]).score
    signature = result["bleu"]["signature"]
    assert signature == f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:{sacrebleu.__version__}"
    out = capsys.readouterr().out
    assert f"bleu: BLEU = {result['bleu']['score']:.2f}" in out
    assert signature in out
    assert result["chrf"]["signature"] in out


def test_identical_texts_score_100_in_every_way(tmp_path: Path) -> None:
    lines = [
        'Das ist ein Science-Fiction Film, oder "nicht"?',
        "Er mag Rock-'n'-Roll & Jazz.",
        "Ein Test mit [Klammern]",
    ]
    hyp, ref = write(tmp_path / "hyp", lines), write(tmp_path / "ref", lines)
    words = ["--hyp", hyp, "--ref", ref, "--tokenised", "--compound-split", "--json", tmp_path / "out.json"]
    assert run_score(*words) == 0
    result = json.loads((tmp_path / "out.json").read_text("utf-8"))
    for name in ("bleu", "tokenised_bleu", "compound_split_bleu"):
        assert result[name]["score"] == pytest.approx(100.0, abs=1e-9)
    assert result["tokenised_bleu"]["signature"].endswith("|tokens:moses-de")
    assert result["compound_split_bleu"]["signature"].endswith("|tokens:moses-de+compound-split")
    assert "|tok:none|" in result["compound_split_bleu"]["signature"]


def test_compounds_are_split_on_both_sides_of_tokenised_text(tmp_path: Path) -> None:
    tokens = score.moses_tokens(["Die Science-Fiction-Welt, sagt er."], "de", compound_split=True)
    assert tokens == ["Die Science ##AT##-##AT## Fiction ##AT##-##AT## Welt , sagt er ."]
    hyp = write(tmp_path / "hyp", ["Das ist Science-Fiction aus Berlin, ja."])
    ref = write(tmp_path / "ref", ["Das ist Science-Fantasy aus Berlin, ja."])
    assert run_score("--hyp", hyp, "--ref", ref, "--tokenised", "--compound-split", "--json", tmp_path / "o.json") == 0
    result = json.loads((tmp_path / "o.json").read_text("utf-8"))
    # Without the split one of 8 tokens differs, with it one of 10.
    assert " 87.5/" in result["tokenised_bleu"]["text"]
    assert " 90.0/" in result["compound_split_bleu"]["text"]


def test_a_log_in_pieces_against_the_raw_reference(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [*block(1, "▁zwei ▁Hä user ."), *block(0, "▁ein ▁Haus"), FINAL]
    log, ref = write(tmp_path / "log", lines), write(tmp_path / "ref", ["ein Haus", "zwei Häuser."])
    assert run_score("--log", log, "--ref", ref, "--sentencepiece", "--samples", 5) == 0
    out = capsys.readouterr().out
    assert out.startswith(
        "[0]\n  source:      source0\n  translation: ein Haus\n  reference:   ein Haus\n"
        "[1]\n  source:      source1\n  translation: zwei Häuser.\n  reference:   zwei Häuser.\n"
    )
    assert "chrf: chrF2 = 100.00" in out


def test_samples_are_spread_and_show_the_raw_source(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hyp, ref = write(tmp_path / "hyp", ["h"] * 9), write(tmp_path / "ref", [f"r{i}" for i in range(9)])
    src = write(tmp_path / "src", [f"s{i}" for i in range(9)])
    assert run_score("--hyp", hyp, "--ref", ref, "--src", src, "--samples", 3) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("[")] == ["[0]", "[3]", "[6]"]
    assert lines[5] == "  source:      s3"


def test_text_is_split_at_line_feeds_only(tmp_path: Path) -> None:
    lines = ["a\u2028b c d e", "f\x0cg h i j", "k\x85l m n o"]
    hyp, ref = write(tmp_path / "hyp", lines), write(tmp_path / "ref", lines)
    assert run_score("--hyp", hyp, "--ref", ref, "--json", tmp_path / "o.json") == 0
    assert json.loads((tmp_path / "o.json").read_text("utf-8"))["sentences"] == 3


def test_refuses_counts_that_differ_and_leaves_no_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, ref = write(tmp_path / "log", whole_log()), write(tmp_path / "ref", ["r"] * 12)
    assert run_score("--log", log, "--ref", ref, "--json", tmp_path / "o.json") == 1
    assert capsys.readouterr().err == f"vaswani-score: error: {ref} has 12 lines but {log} has 13 sentences\n"
    assert run_score("--log", log, "--ref", tmp_path / "none", "--json", tmp_path / "o.json") == 1
    assert capsys.readouterr().err == f"vaswani-score: error: {tmp_path / 'none'}: no such file\n"
    empty = write(tmp_path / "empty", [])
    assert run_score("--hyp", empty, "--ref", empty, "--json", tmp_path / "o.json") == 1
    assert capsys.readouterr().err == f"vaswani-score: error: {empty}: empty file\n"
    assert not (tmp_path / "o.json").exists()


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--compound-split", "--lang", "fr"], "--compound-split is defined for German only, not for --lang fr"),
        (["--nbest", "2"], "--nbest N goes with --log and is at least 1"),
        (["--samples", "-1"], "--samples must be at least 0, not -1"),
    ],
)
def test_refuses_options_that_do_not_go_together(
    words: List[str], error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        score.main(["--hyp", "h", "--ref", "r", *words])
    assert capsys.readouterr().err.strip().endswith(f"vaswani-score: error: {error}")


def test_the_toolkits_own_log(copy_task: CopyTask, tiny_checkpoint: Path, tmp_path: Path) -> None:
    command = [copy_task.bin, "--user-dir", PLUGIN, "--task", "vaswani_translation", "--path", tiny_checkpoint]
    options = ["--beam", 2, "--nbest", 2, "--batch-size", 8, "--cpu", "--num-workers", 0, "--no-progress-bar"]
    result = run("fairseq-generate", *command, *options).ok()
    (tmp_path / "log").write_text(result.out, encoding="utf-8")
    best = {}
    for line in result.lines("H-"):
        tag, _, text = line.split("\t")
        best.setdefault(int(tag[2:]), text)
    assert [sentence.best() for sentence in read_log(tmp_path / "log")] == [best[i] for i in range(13)]


@pytest.mark.parametrize("number", ["99999999999", "9" * 18])
def test_a_broken_number_is_refused_without_counting_up_to_it(number: str, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("\n".join([*block(0, "a"), f"H-{number}\t-1\tb", FINAL, ""]), encoding="utf-8")
    error = f"^{path}: missing: sentences 1, 2, though there is one with number {number}$"
    with pytest.raises(CommandError, match=error):
        read_log(path)


def test_a_number_with_more_digits_than_any_is_no_number(tmp_path: Path) -> None:
    digits = "9" * 5000
    lines = ["{'nbest': " + digits + "}", *block(0, "a"), f"H-{digits}\t-1\tb", FINAL, ""]
    (tmp_path / "log").write_text("\n".join(lines), encoding="utf-8")
    assert [sentence.best() for sentence in read_log(tmp_path / "log")] == ["a"]


@pytest.mark.parametrize("read", ["--hyp", "--ref", "--src"])
def test_the_numbers_are_not_written_over_what_was_read(
    read: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {option: tmp_path / option.strip("-") for option in ("--hyp", "--ref", "--src")}
    for path in files.values():
        path.write_text("a\n", encoding="utf-8")
    words = [word for option, path in files.items() for word in (option, str(path))]
    assert score.main([*words, "--json", str(files[read])]) == 1
    error = f"{files[read]}: is one of the files to read; give what is made another name"
    assert capsys.readouterr().err == f"vaswani-score: error: {error}\n"
    assert files[read].read_text("utf-8") == "a\n"


def test_pieces_of_subword_nmt_become_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [*block(1, "zwei Hä@@ us@@ er , Test @-@ Satz ."), *block(0, "&quot; ein Haus &quot; ab@@"), FINAL]
    log, ref = write(tmp_path / "log", lines), write(tmp_path / "ref", ['"ein Haus" ab', "zwei Häuser, Test-Satz."])
    assert run_score("--log", log, "--ref", ref, "--subword-nmt", "--samples", 2) == 0
    out = capsys.readouterr().out
    assert '  translation: "ein Haus" ab\n' in out
    assert "  translation: zwei Häuser, Test-Satz.\n" in out
    assert "bleu: BLEU = 100.00" in out


def test_text_in_pieces_is_pointed_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hyp, ref = write(tmp_path / "hyp", ["\u2581ein Haus", "ab"]), write(tmp_path / "ref", ["ein Hä@@ us", "a@@b @"])
    assert run_score("--hyp", hyp, "--ref", ref) == 0
    assert capsys.readouterr().err == (
        f"warning: {hyp}: 1 line with the marks of pieces, \u2581 or @@; --sentencepiece or --subword-nmt joins them\n"
        f"warning: {ref}: 1 line with the marks of pieces, \u2581 or @@; the reference is to be the raw text\n"
    )


def test_a_language_without_moses_rules_is_pointed_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hyp = write(tmp_path / "hyp", ["a b"])
    for language, error in (
        ("fr", ""),
        ("xx", "warning: --lang xx: Moses has no rules for it; those of English are used\n"),
    ):
        assert run_score("--hyp", hyp, "--ref", hyp, "--tokenised", "--lang", language) == 0
        assert capsys.readouterr().err == error


def test_the_command_lines_of_sacrebleu_and_the_toolkit_agree(tmp_path: Path) -> None:
    rng = random.Random(7)
    references = [
        " ".join(rng.choices(["Haus", "Test-Satz", "ist", "blau", ",", "3.5"], k=rng.randint(4, 12))) for _ in range(40)
    ]
    hypotheses = [" ".join(word for word in line.split() if rng.random() < 0.9) for line in references]
    hyp, ref = write(tmp_path / "hyp", hypotheses), write(tmp_path / "ref", references)
    words = ["--hyp", hyp, "--ref", ref, "--tokenised", "--compound-split", "--json", tmp_path / "out.json"]
    assert run_score(*words) == 0
    result = json.loads((tmp_path / "out.json").read_text("utf-8"))

    command = [sys.executable, "-m", "sacrebleu", str(ref), "-i", str(hyp), "-m", "bleu", "chrf", "-w", "8"]
    published = json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
    assert [entry["score"] for entry in published] == [round(result[name]["score"], 8) for name in ("bleu", "chrf")]
    for name, split in (("tokenised_bleu", False), ("compound_split_bleu", True)):
        system = write(tmp_path / "system", score.moses_tokens(hypotheses, "de", split))
        truth = write(tmp_path / "truth", score.moses_tokens(references, "de", split))
        code = "from fairseq_cli.score import cli_main; cli_main()"
        printed = run("python", code, "--sys", system, "--ref", truth).ok().out
        (found,) = [line for line in printed.splitlines() if line.startswith("BLEU4 = ")]
        assert float(found.split()[2].rstrip(",")) == round(result[name]["score"], 2)


def test_an_unfinished_log_gives_no_score(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, ref = write(tmp_path / "log", whole_log()[:-1]), write(tmp_path / "ref", HYPOTHESES)
    assert run_score("--log", log, "--ref", ref, "--compound-split", "--json", tmp_path / "o.json") == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.endswith('log: unfinished: no line "Generate ... with beam=..." that ends a log\n')
    assert not (tmp_path / "o.json").exists()
