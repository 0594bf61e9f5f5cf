"""``fairseq-generate`` and ``fairseq-interactive`` with our task: options that people use, on a trained tiny model."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Dict, List

import pytest
from toolkit_runner import PLUGIN, CopyTask, Result, run, tiny_train_args


@dataclass
class Hypo:
    """One hypothesis as printed; scores are base 2."""

    score: float
    words: List[str]
    token_scores: List[float] = field(default_factory=list)
    alignment: List[str] = field(default_factory=list)


def hypotheses(result: Result) -> Dict[int, List[Hypo]]:
    """The printed hypotheses of each sentence, in the order in which they were printed."""
    found: Dict[int, List[Hypo]] = {}
    for line in result.ok().out.splitlines():
        kind, _, rest = line.partition("-")
        if kind in ("H", "P", "A") and "\t" in rest:
            number, *fields = rest.split("\t")
            hypos = found.setdefault(int(number), [])
            if kind == "H":
                hypos.append(Hypo(float(fields[0]), fields[1].split()))
            elif kind == "P":
                hypos[-1].token_scores = [float(score) for score in fields[0].split()]
            else:
                hypos[-1].alignment = fields[0].split()
    return found


def generate(data: Path, checkpoint: object, *options: object) -> Result:
    return run(
        "fairseq-generate", data, "--user-dir", PLUGIN, "--task", "vaswani_translation", "--path", checkpoint, "--cpu",
        *options,
    )  # fmt: skip


def interactive(data: Path, checkpoint: object, lines: List[str], *options: object) -> Result:
    return run(
        "fairseq-interactive", data, "--user-dir", PLUGIN, "--task", "vaswani_translation", "--path", checkpoint,
        "--cpu", "-s", "src", "-t", "tgt", *options, stdin="".join(line + "\n" for line in lines),
    )  # fmt: skip


def words_of(found: Dict[int, List[Hypo]]) -> Dict[int, List[List[str]]]:
    return {number: [h.words for h in hypos] for number, hypos in sorted(found.items())}


def penalty(n: int, alpha: float) -> float:
    return math.pow((5 + n) / 6, alpha)


@pytest.mark.parametrize(
    ("options", "alpha"),
    [([], 0.6), (["--lenpen", "0"], 0.0), (["--unnormalized"], 0.0), (["--lenpen", "1.3"], 1.3)],
    ids=str,
)
def test_the_printed_score_follows_from_the_printed_token_scores(
    copy_task: CopyTask, tiny_checkpoint_400: Path, options: List[str], alpha: float
) -> None:
    found = hypotheses(generate(copy_task.bin, tiny_checkpoint_400, "--nbest", 4, *options))
    assert sorted(found) == list(range(13))
    for hypos in found.values():
        assert len(hypos) == 4
        assert [h.score for h in hypos] == sorted((h.score for h in hypos), reverse=True)
        assert len({tuple(h.words) for h in hypos}) == 4
        for h in hypos:
            assert len(h.token_scores) == len(h.words) + 1
            expected = sum(h.token_scores) / penalty(len(h.token_scores), alpha)
            assert h.score == pytest.approx(expected, abs=1e-4 * len(h.token_scores))


def test_the_penalty_and_the_end_of_the_toolkit_are_options(copy_task: CopyTask, tiny_checkpoint_400: Path) -> None:
    options = ["--length-penalty-kind", "toolkit", "--search-ending", "count", "--lenpen", 1, "--nbest", 4]
    found = hypotheses(generate(copy_task.bin, tiny_checkpoint_400, "--batch-size", 1, *options))
    theirs = hypotheses(
        run(
            "fairseq-generate", copy_task.bin, "--user-dir", PLUGIN, "--task", "translation", "--batch-size", 1,
            "--required-batch-size-multiple", 1, "--path", tiny_checkpoint_400, "--cpu", "--beam", 4, "--nbest", 4,
            "--max-len-a", 1, "--max-len-b", 50,
        )
    )  # fmt: skip
    assert words_of(found) == words_of(theirs)
    for number, hypos in found.items():
        assert [h.score for h in hypos] == pytest.approx([h.score for h in theirs[number]], abs=1e-4)


def test_batches_change_nothing(copy_task: CopyTask, tiny_checkpoint_400: Path) -> None:
    batches = [["--batch-size", 1], ["--batch-size", 8], ["--max-tokens", 30]]
    one, *others = [hypotheses(generate(copy_task.bin, tiny_checkpoint_400, *batch, "--nbest", 2)) for batch in batches]
    assert sorted(one) == list(range(13))
    for other in others:
        assert words_of(other) == words_of(one)
        for number, hypos in one.items():
            assert [h.score for h in other[number]] == pytest.approx([h.score for h in hypos], abs=1e-4)


def test_a_beam_wider_than_the_vocabulary_and_an_n_best_wider_than_the_beam(
    copy_task: CopyTask, tiny_checkpoint_400: Path
) -> None:
    wide = hypotheses(generate(copy_task.bin, tiny_checkpoint_400, "--beam", 200, "--nbest", 3, "--no-early-stop"))
    assert {len({tuple(h.words) for h in hypos}) for hypos in wide.values()} == {3}
    result = generate(copy_task.bin, tiny_checkpoint_400, "--beam", 4, "--nbest", 10)
    assert {len({tuple(h.words) for h in hypos}) for hypos in hypotheses(result).values()} == {4}
    assert result.out.count("--nbest 10 is more than --beam 4, which is as many hypotheses as there will be") == 1


def test_alignments_are_printed(copy_task: CopyTask, tiny_checkpoint_400: Path) -> None:
    hard = hypotheses(generate(copy_task.bin, tiny_checkpoint_400, "--print-alignment"))
    alone = hypotheses(generate(copy_task.bin, tiny_checkpoint_400, "--print-alignment", "--batch-size", 1))
    soft = hypotheses(generate(copy_task.bin, tiny_checkpoint_400, "--print-alignment", "soft"))
    for number, (hypo,) in hard.items():
        n_source = len(copy_task.lines[number].split())
        pairs = [tuple(map(int, pair.split("-"))) for pair in hypo.alignment]
        assert [target for _, target in pairs] == list(range(len(hypo.words)))
        assert all(0 <= source < n_source for source, _ in pairs)
        assert alone[number][0].alignment == hypo.alignment
        rows = [[float(weight) for weight in row.split(",")] for row in soft[number][0].alignment]
        assert [len(row) for row in rows] == [n_source + 1] * (len(hypo.words) + 1)
        assert [sum(row) for row in rows] == pytest.approx([1.0] * len(rows), abs=1e-3)
        assert [row[:-1].index(max(row[:-1])) for row in rows[:-1]] == [source for source, _ in pairs]


@pytest.mark.parametrize("kind", ["hard", "soft"])
def test_references_are_scored_and_aligned(copy_task: CopyTask, tiny_checkpoint_400: Path, kind: str) -> None:
    found = hypotheses(generate(copy_task.bin, tiny_checkpoint_400, "--score-reference", "--print-alignment", kind))
    assert words_of(found) == {i: [line.split()] for i, line in enumerate(copy_task.lines[:13])}
    for (hypo,) in found.values():
        n = len(hypo.token_scores)
        assert n == len(hypo.words) + 1
        assert len(hypo.alignment) == (n if kind == "soft" else n - 1)
        assert hypo.score == pytest.approx(sum(hypo.token_scores) / penalty(n, 0.6), abs=1e-4 * n)


def test_the_search_scores_a_translation_as_a_reference_is_scored(
    copy_task: CopyTask, tiny_checkpoint_400: Path, tmp_path: Path
) -> None:
    found = hypotheses(generate(copy_task.bin, tiny_checkpoint_400))
    (tmp_path / "text").mkdir()
    text = {"src": copy_task.lines[:13], "tgt": [" ".join(found[i][0].words) for i in range(13)]}
    for side, lines in text.items():
        (tmp_path / "text" / f"test.{side}").write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    dictionary = copy_task.bin / "dict.src.txt"
    run(
        "fairseq-preprocess", "-s", "src", "-t", "tgt", "--testpref", tmp_path / "text" / "test", "--workers", 1,
        "--srcdict", dictionary, "--tgtdict", dictionary, "--destdir", tmp_path / "bin",
    ).ok()  # fmt: skip
    scored = hypotheses(generate(tmp_path / "bin", tiny_checkpoint_400, "--score-reference"))
    assert words_of(scored) == words_of(found)
    for number, (hypo,) in found.items():
        assert scored[number][0].token_scores == pytest.approx(hypo.token_scores, abs=1e-3)


def test_prefixes_are_forced(copy_task: CopyTask, tiny_checkpoint_400: Path) -> None:
    found = hypotheses(generate(copy_task.bin, tiny_checkpoint_400, "--prefix-size", 2, "--nbest", 4))
    lengths = [len(line.split()) for line in copy_task.lines[:13]]
    assert 1 in lengths
    for number, hypos in found.items():
        reference = copy_task.lines[number].split()
        assert all(h.words[:2] == reference[:2] for h in hypos)
        assert len({tuple(h.words) for h in hypos}) == len(hypos) == (1 if lengths[number] == 1 else 4)
        if lengths[number] == 1:
            assert hypos[0].words == reference


def test_an_ensemble_averages_probabilities(copy_task: CopyTask, tiny_checkpoint_400: Path) -> None:
    one = hypotheses(generate(copy_task.bin, tiny_checkpoint_400))
    twice = hypotheses(generate(copy_task.bin, f"{tiny_checkpoint_400}:{tiny_checkpoint_400}"))
    assert words_of(twice) == words_of(one)
    for number, hypos in one.items():
        assert twice[number][0].score == pytest.approx(hypos[0].score, abs=1e-4)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--sampling", "--nbest", "4"], "--sampling"),
        (["--diverse-beam-groups", "2"], "--diverse-beam-groups"),
        (["--diversity-rate", "0.5"], "--diversity-rate"),
    ],
)
def test_the_toolkits_generator_does_what_ours_does_not(
    copy_task: CopyTask, tiny_checkpoint_400: Path, options: List[str], reason: str
) -> None:
    result = generate(copy_task.bin, tiny_checkpoint_400, *options)
    assert sorted(hypotheses(result)) == list(range(13))
    line = f"the toolkit's generator searches, with its own length penalty and limits, because of {reason}\n"
    assert result.out.count(line) == 1
    assert "the toolkit's generator" not in generate(copy_task.bin, tiny_checkpoint_400).out


def test_lexical_constraints_go_to_the_toolkits_generator(copy_task: CopyTask, tiny_checkpoint_400: Path) -> None:
    found = hypotheses(interactive(copy_task.bin, tiny_checkpoint_400, ["w1 w2\tw9"], "--constraints"))
    assert "w9" in found[0][0].words


@pytest.fixture(scope="module")
def unknown_task(copy_task: CopyTask, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The copy task with a target dictionary of ten words, so that most of its words are unknown, and a model."""
    folder = tmp_path_factory.mktemp("unknown")
    run(
        "fairseq-preprocess", "-s", "src", "-t", "tgt", "--trainpref", copy_task.text / "train", "--workers", 1,
        "--validpref", copy_task.text / "test", "--testpref", copy_task.text / "test", "--nwordstgt", 10,
        "--destdir", folder / "bin",
    ).ok()  # fmt: skip
    for side in ("src", "tgt"):
        for split, name in (("train", "train"), ("valid", "test"), ("test", "test")):
            text = (copy_task.text / f"{name}.{side}").read_text(encoding="utf-8")
            (folder / f"{split}.src-tgt.{side}").write_text(text, encoding="utf-8")
        dictionary = (folder / "bin" / f"dict.{side}.txt").read_text(encoding="utf-8")
        (folder / f"dict.{side}.txt").write_text(dictionary, encoding="utf-8")
    args = [arg for arg in tiny_train_args(folder / "bin", folder) if arg != "--share-all-embeddings"]
    run("fairseq-train", *args, "--tie-embeddings", "decoder", "--no-epoch-checkpoints", "--max-update", 60).ok()
    return folder


def test_the_unknown_penalty(unknown_task: Path) -> None:
    counts, scores = {}, {}
    for unkpen in (0, 1000, -1000):
        checkpoint = unknown_task / "checkpoint_last.pt"
        found = hypotheses(
            generate(unknown_task / "bin", checkpoint, "--unkpen", unkpen, "--max-len-b", 5, "--beam", 1)
        )
        counts[unkpen] = sum(h.words.count("<unk>") for hypos in found.values() for h in hypos)
        scores[unkpen] = {
            (number, tuple(h.words[:i])): score
            for number, hypos in found.items()
            for h in hypos
            for i, score in enumerate(h.token_scores)
            if (h.words + ["</s>"])[i] != "<unk>"
        }
    assert counts[1000] == 0 < counts[-1000]
    assert counts[0] <= counts[-1000]
    shared = [scores[0].keys() & scores[other].keys() for other in (1000, -1000)]
    assert any(shared)
    for other, keys in zip((1000, -1000), shared):
        assert [scores[other][key] for key in keys] == pytest.approx([scores[0][key] for key in keys], abs=2e-4)


def test_unknown_words_are_replaced(unknown_task: Path, copy_task: CopyTask) -> None:
    checkpoint = unknown_task / "checkpoint_last.pt"
    options = ["--dataset-impl", "raw", "--replace-unk", "--unkpen", -3, "--max-len-b", 5]
    plain = hypotheses(generate(unknown_task, checkpoint, *options[:2], *options[3:]))
    assert any("<unk>" in h.words for hypos in plain.values() for h in hypos)
    for more in ([], ["--print-alignment"], ["--print-alignment", "soft"]):
        found = hypotheses(generate(unknown_task, checkpoint, *options, *more))
        for number, (hypo,) in found.items():
            source = copy_task.lines[number].split()
            for word, before in zip(hypo.words, plain[number][0].words):
                assert word in source if before == "<unk>" else word == before


def test_validation_scores_what_generation_scores(copy_task: CopyTask, tmp_path: Path) -> None:
    bleu_args = '{"beam": 4, "lenpen": 0.6, "max_len_a": 1, "max_len_b": 50}'
    trained = run(
        "fairseq-train", *tiny_train_args(copy_task.bin, tmp_path), "--eval-bleu", "--eval-bleu-args", bleu_args,
        "--eval-tokenized-bleu", "--no-epoch-checkpoints",
    ).ok()  # fmt: skip
    (*_, last) = [line for line in trained.out.splitlines() if "valid on 'valid' subset" in line]
    logged = last.split("| bleu ")[1].split(" |")[0]
    generated = generate(copy_task.bin, tmp_path / "checkpoint_last.pt", "--gen-subset", "valid").ok()
    (summary,) = [line for line in generated.out.splitlines() if line.startswith("Generate valid with beam=4")]
    assert float(summary.split("BLEU4 = ")[1].split(",")[0]) == pytest.approx(float(logged), abs=0.011)
