"""vaswani-ablations: the rows, the commands, the table and the orderings from results by hand; two rows end to end."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any, Dict, List, Sequence

import pytest
from toolkit_runner import CopyTask

from vaswani_plugin.architectures import ARCHITECTURES
from vaswani_plugin.tools import ablation_report as report
from vaswani_plugin.tools import ablation_steps, ablations, prepare
from vaswani_plugin.tools.ablation_rows import ORDERINGS, ROWS, SHRINKS, Ordering, chosen, model_options, sizes
from vaswani_plugin.tools.cli import CommandError, split_at_dashes


def results(**rows: Sequence[Sequence[float]]) -> Dict[str, List[Dict[str, Any]]]:
    """(perplexity, BLEU) of each seed by row."""
    return {
        name.replace("_", "-"): [
            {"seed": seed, "steps": 70, "ppl": ppl, "bleu": bleu, "signature": "nrefs:1", "parameters": 1_234_567}
            for seed, (ppl, bleu) in enumerate(seeds, start=1)
        ]
        for name, seeds in rows.items()
    }


@pytest.fixture
def prepared(copy_task: CopyTask, tmp_path: Path) -> Path:
    """A folder as vaswani-prepare leaves it, of the copy task."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "bin").symlink_to(copy_task.bin)
    raw = {"raw": {"valid.tgt": str(copy_task.text / "test.tgt")}}
    (tmp_path / "data" / "manifest.json").write_text(json.dumps({"format": 1, "steps": {}, **raw}))
    return tmp_path / "data"


def test_every_architecture_of_table_3_is_a_row() -> None:
    others = {"vaswani_tiny", "vaswani_parsing", "vaswani_big_en_fr"}
    assert {row.arch for row in ROWS.values()} == set(ARCHITECTURES) - others
    assert len(ROWS) == 20
    assert {row.smoothing for name, row in ROWS.items() if not name.startswith("D-smoothing")} == {0.1}


def test_the_paper_s_own_numbers_have_the_paper_s_orderings() -> None:
    for ordering in ORDERINGS:
        better, worse = (getattr(ROWS[name], ordering.metric) for name in (ordering.better, ordering.worse))
        if ordering.same:
            assert abs(better - worse) < 0.11
        else:
            assert better < worse if ordering.metric == "ppl" else better > worse


@pytest.mark.parametrize("factor", SHRINKS)
@pytest.mark.parametrize("name", ROWS)
def test_shrinking_keeps_the_proportions(name: str, factor: int) -> None:
    whole, small = sizes(ROWS[name], 1, False), sizes(ROWS[name], factor, False)
    for width in ("d_model", "d_ff", "d_k", "d_v"):
        assert small[width] * factor == whole[width]
    assert {key: small[key] for key in ("N", "h", "P_drop", "eps_ls")} == {
        key: whole[key] for key in ("N", "h", "P_drop", "eps_ls")
    }
    assert sizes(ROWS[name], factor, True)["N"] * 2 == whole["N"]


def test_options_of_a_shrunk_row() -> None:
    assert model_options(ROWS["B-dk32"], 1, False) == {}
    assert model_options(ROWS["B-dk32"], 8, True) == {
        "encoder_embed_dim": 64, "encoder_ffn_embed_dim": 256, "encoder_layers": 3,
        "decoder_embed_dim": 64, "decoder_ffn_embed_dim": 256, "decoder_layers": 3, "attention_key_dim": 4,
    }  # fmt: skip


def test_rows_by_name_and_by_block() -> None:
    assert list(chosen(["big", "b", "BASE"])) == ["base", "B-dk16", "B-dk32", "big"]
    assert list(chosen(None)) == list(ROWS)
    with pytest.raises(CommandError, match=r"^--rows F: no such row; they are base, A-h1, .*, big, and A to E for"):
        chosen(["A", "F"])


def test_the_table_has_the_paper_s_numbers_beside_ours() -> None:
    found = results(base=[(5.0, 20.0), (6.0, 22.5)], A_h1=[(7.25, 19.0)], big=[])
    head, base, single = report.table(found, 8, False)
    assert head[-6:] == ["PPL (dev)", "BLEU (dev)", "params x 10^6", "paper: PPL", "BLEU", "params x 10^6"]
    assert base[:9] == ["base", "6", "64", "256", "8", "8", "8", "0.1", "0.1"]
    assert base[9:] == ["2", "70", "5.50 (5.00 to 6.00)", "21.25 (20.00 to 22.50)", "1.23", "4.92", "25.8", "65"]
    assert single[9:] == ["1", "70", "7.25", "19.00", "1.23", "5.29", "24.9", "-"]


PPL, BLEU = Ordering("c", "base", "A-h1", "ppl"), Ordering("c", "base", "A-h1", "bleu")
SAME = Ordering("c", "base", "A-h1", "bleu", same=True)


@pytest.mark.parametrize(
    ("ordering", "base", "other", "wanted"),
    [
        (PPL, [(5, 0), (6, 0)], [(6.1, 0), (7, 0)], "holds"),
        (PPL, [(5, 0), (6, 0)], [(5.9, 0), (7, 0)], "is within the spread of the seeds"),
        (PPL, [(5, 0), (6, 0)], [(3, 0), (4, 0)], "does not hold"),
        (BLEU, [(0, 20), (0, 21)], [(0, 18), (0, 19)], "holds"),
        (BLEU, [(0, 18), (0, 19)], [(0, 20), (0, 21)], "does not hold"),
        (BLEU, [(0, 20)], [(0, 18), (0, 19)], "holds, with one seed"),
        (BLEU, [(0, 18)], [(0, 18)], "does not hold, with one seed"),
        (SAME, [(0, 18), (0, 20)], [(0, 19), (0, 21)], "holds"),
        (SAME, [(0, 18), (0, 19)], [(0, 20), (0, 21)], "does not hold"),
        (SAME, [(0, 18)], [(0, 18)], "cannot be told from one seed"),
        (BLEU, [], [(0, 18)], None),
    ],
)
def test_verdicts(ordering: Ordering, base: Any, other: Any, wanted: str) -> None:
    assert report.verdict(ordering, results(base=base, A_h1=other)) == wanted


def test_orderings_say_what_was_compared() -> None:
    found = report.orderings(results(base=[(5, 20)], E_learned=[(5.5, 21)]))
    assert [one["relation"] for one in found] == ["PPL base = E-learned", "BLEU base = E-learned"]
    assert found[0]["ours"] == "5.00 and 5.50"
    lines = report.orderings_table(results(base=[(5, 20)], big=[(4, 21)]))
    assert lines[1] == ["big is best", "PPL big < base", "4.00 and 5.00", "holds, with one seed"]


def test_a_dry_run_prints_every_command(prepared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [str(prepared), "--work", str(tmp_path / "w"), "--rows", "B-dk16", "big", "--shrink", "4", "--cpu"]
    words += ["--seeds", "2", "--max-update", "5", "--average", "3", "--dry-run", "--", "--warmup-updates", "7"]
    assert ablations.main(words) == 0
    commands = [shlex.split(line) for line in capsys.readouterr().out.splitlines()]
    names = ["train", "average", "validate", "generate", "score"]
    assert [command[2].rsplit(".", 1)[1] for command in commands] == names * 4
    trains = commands[::5]
    assert [train[train.index("--max-update") + 1] for train in trains] == ["5", "15"] * 2
    assert [train[train.index("--seed") + 1] for train in trains] == ["1", "1", "2", "2"]
    after = trains[0][trains[0].index("--") + 1 :]
    assert after[-2:] == ["--warmup-updates", "7"]
    assert after[after.index("--attention-key-dim") + 1] == "4"
    assert not (tmp_path / "w").exists()


def test_other_settings_are_refused_and_more_rows_are_not(prepared: Path, tmp_path: Path) -> None:
    data = ablation_steps.find_data(prepared, None)

    def settings(*words: str) -> ablation_steps.Settings:
        ours, more = split_at_dashes(words)
        parser = ablations.build_parser()
        return ablations.settings_of(parser.parse_args([str(prepared), "--work", str(tmp_path), *ours]), more)

    ablations.same_settings(tmp_path, settings("--cpu", "--shrink", "8", "--", "--lr", "1"), data)
    ablations.same_settings(tmp_path, settings("--gpus", "2", "--shrink", "8", "--seeds", "3", "--", "--lr", "1"), data)
    wrong = r"made with other settings: shrink was 8, not 4; more was \['--lr', '1'\], not \[\]; choose another --work$"
    with pytest.raises(CommandError, match=wrong):
        ablations.same_settings(tmp_path, settings("--shrink", "4"), data)


def test_the_perplexity_that_fairseq_validate_prints(tmp_path: Path) -> None:
    log = tmp_path / "validate.out"
    log.write_text("x\n2026-01-01 00:00:00 | INFO | valid |  | valid on 'valid' subset | loss 4.1 | ppl 8.57 | wps 0\n")
    assert ablation_steps.perplexity(log) == 8.57
    log.write_text("nothing\n")
    with pytest.raises(CommandError, match=r"validate\.out: no perplexity$"):
        ablation_steps.perplexity(log)


def told(words: Sequence[object], capsys: pytest.CaptureFixture[str]) -> str:
    assert ablations.main([str(word) for word in words]) == 1
    return capsys.readouterr().err


def test_errors(prepared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    work, error = ["--work", tmp_path / "w"], "vaswani-ablations: error: "
    assert told([tmp_path, *work], capsys) == (
        f"{error}{tmp_path}: not a folder that vaswani-prepare made: it needs bin and manifest.json\n"
    )
    assert told([prepared, *work, "--shrink", 3], capsys) == (
        f"{error}--shrink must be one of 1, 2, 4, 8, 16, but is 3\n"
    )
    assert told([prepared, *work, "--cpu", "--gpus", 1], capsys) == f"{error}--cpu and --gpus exclude each other\n"
    assert told([prepared, *work, "--ref", "nowhere"], capsys) == (
        f"{error}nowhere: no such file; --ref says where the raw target side of the development set is\n"
    )
    assert told([prepared, *work, "--report"], capsys).splitlines()[-1] == (
        f"{error}{tmp_path / 'w'}: no row is finished yet"
    )


def test_a_step_that_fails_says_where_and_why(tmp_path: Path) -> None:
    words = ["python3", "-c", "print('the reason'); raise SystemExit(3)"]
    wrong = rf"^step score failed with status 3; its output is in {tmp_path}/score\.out: the reason$"
    with pytest.raises(CommandError, match=wrong):
        ablation_steps.run_step("score", words, tmp_path)
    with pytest.raises(CommandError, match="was asked to stop and has saved; the same command goes on$"):
        ablation_steps.run_step("train", ["python3", "-c", "raise SystemExit(75)"], tmp_path)


@pytest.mark.slow
def test_two_rows_end_to_end(copy_task: CopyTask, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, data, work = copy_task.text, tmp_path / "data", tmp_path / "work"
    pairs = {split: [str(text / f"{split}.{side}") for side in ("src", "tgt")] for split in ("train", "test")}
    words = ["text", "--train", *pairs["train"], "--valid", *pairs["test"], "--source-lang", "src"]
    words += ["--target-lang", "tgt", "--vocab-size", "70", "--dest", str(data), "--workers", "1"]
    assert prepare.main(words) == 0
    options = [str(data), "--work", str(work), "--rows", "base", "E-learned", "--cpu", "--shrink", "16"]
    options += ["--halve-layers", "--max-update", "3", "--target-batch", "400"]
    assert ablations.main(options) == 0
    capsys.readouterr()
    found = json.loads((work / "table.json").read_text("utf-8"))["rows"]
    assert {name: len(row["seeds"]) for name, row in found.items()} == {"base": 1, "E-learned": 1}
    learned = 2 * (1024 + 1 + 1) * 32
    base, other = (found[name]["seeds"][0] for name in ("base", "E-learned"))
    assert other["parameters"] - base["parameters"] == learned
    assert base["ppl"] > 1 and 0 <= base["bleu"] <= 100 and base["signature"].startswith("nrefs:1|")
    before = {path: path.stat().st_mtime_ns for path in work.rglob("result.json")}
    assert ablations.main(options) == 0  # nothing is done twice
    assert {path: path.stat().st_mtime_ns for path in work.rglob("result.json")} == before
    assert (work / "table.txt").read_text("utf-8") == capsys.readouterr().out
    assert (work / "table.md").read_text("utf-8").startswith("| row | N | d_model |")
