"""vaswani-attention: the model's own weights, words made of pieces, the numbers of each head, files and errors."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import List

import pytest
import torch
from attention_models import PIECES, analysis, recomputed, translator
from toolkit_runner import CopyTask

from vaswani_plugin.tools import attention, attention_maps, attention_model, attention_pictures, attention_statistics
from vaswani_plugin.tools.cli import CommandError
from vaswani_plugin.tools.pieces import Labels

SOURCE, TARGET = "\u2581A \u2581dog s \u2581run ning .", "\u2581Hun de \u2581laufen"
KINDS = ("encoder-self", "decoder-self", "encoder-decoder")


# --- the weights ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"attention_key_dim": 5, "encoder_normalize_before": True}])
def test_the_weights_are_those_of_an_ordinary_forward_pass(options: dict[str, object]) -> None:
    of = translator(**options)
    pair = of.pair(SOURCE, TARGET)
    weights = attention_maps.compute(of.model, pair)
    eos = of.target_dictionary.eos()
    previous = torch.tensor([eos, *pair.target_ids[:-1].tolist()])
    wanted = recomputed(of.model, pair.source_ids, previous)
    assert {kind: tuple(table.shape) for kind, table in weights.items()} == {
        "encoder-self": (2, 3, 7, 7), "decoder-self": (3, 2, 4, 4), "encoder-decoder": (3, 2, 4, 7),
    }  # fmt: skip
    for kind in KINDS:
        torch.testing.assert_close(weights[kind].double(), torch.tensor(wanted[kind]).double(), rtol=0, atol=1e-5)
        assert float(weights[kind].std()) > 0.1  # far from uniform, so that a wrong head or layer would show


@pytest.mark.parametrize("merged", [False, True])
def test_rows_sum_to_one_and_the_decoder_sees_no_future(merged: bool) -> None:
    made = analysis(SOURCE, TARGET)
    for view in (made.words if merged else made.pieces).values():
        torch.testing.assert_close(view.weights.sum(dim=-1), torch.ones(view.weights.shape[:-1]), rtol=0, atol=1e-6)
        assert tuple(view.weights.shape[2:]) == (len(view.queries.names), len(view.keys.names))
    assert float((made.words if merged else made.pieces)["decoder-self"].weights.triu(1).abs().max()) == 0.0


def test_rows_and_columns_have_the_names_of_their_tokens() -> None:
    made = analysis(SOURCE, TARGET)
    source = ("A", "dog", "\u00b7s", "run", "\u00b7ning", "\u00b7.", "<end>")
    assert made.pieces["encoder-self"].queries.names == made.pieces["encoder-decoder"].keys.names == source
    assert made.pieces["decoder-self"].keys.names == ("<start>", "Hun", "\u00b7de", "laufen")
    assert made.pieces["encoder-decoder"].queries.names == ("Hun", "\u00b7de", "laufen", "<end>")
    assert made.words["encoder-self"].keys.names == ("A", "dogs", "running.", "<end>")
    assert made.words["decoder-self"].queries.names == ("<start>", "Hunde", "laufen")


def test_words_are_sums_over_keys_and_means_over_queries() -> None:
    made = analysis(SOURCE, TARGET)
    pieces, words = made.pieces["encoder-self"].weights, made.words["encoder-self"].weights
    groups = [[0], [1, 2], [3, 4, 5], [6]]
    for layer in range(2):
        for head in range(3):
            for q, query in enumerate(groups):
                for k, key in enumerate(groups):
                    rows = [sum(float(pieces[layer, head, i, j]) for j in key) for i in query]
                    assert float(words[layer, head, q, k]) == pytest.approx(sum(rows) / len(rows), abs=1e-6)


# --- the numbers ------------------------------------------------------------------------------------------------------


def test_numbers_of_heads_that_do_one_thing() -> None:
    previous = torch.eye(4).roll(-1, 1)  # query i looks at key i - 1, the first one at the last
    numbers = attention_statistics.head_statistics(previous)
    assert numbers == {"distance": 1.5, "entropy": 0.0, "previous": 1.0, "next": 0.0, "same": 0.0, "final": 0.25}
    alike = attention_statistics.head_statistics(torch.full((3, 5), 0.2))
    assert alike["distance"] == pytest.approx((2 + 7 / 5 + 6 / 5) / 3)  # |i - j| over 5 keys: 10, 7, 6
    assert alike["entropy"] == pytest.approx(math.log(5))
    assert [alike[name] for name in ("previous", "next", "same", "final")] == pytest.approx([0.2] * 4)


def test_a_single_token_has_no_neighbours() -> None:
    numbers = attention_statistics.head_statistics(torch.ones(1, 1))
    assert numbers == {"distance": 0.0, "entropy": 0.0, "previous": None, "next": None, "same": 1.0, "final": 1.0}


def test_the_table() -> None:
    weights = torch.stack((torch.eye(2), torch.tensor([[1.0, 0.0], [0.5, 0.5]])))[None]
    view = attention_maps.View("decoder-self", Labels(("a", "b")), Labels(("a", "b")), weights)
    assert attention_statistics.table(view, [0], [0, 1]).splitlines() == [
        "decoder-self attention",
        "layer  head  distance  entropy  previous   next   same  final",
        "    1     1     0.000    0.000     0.000  0.000  1.000  0.500",
        "    1     2     0.250    0.347     0.500  0.000  0.750  0.250",
    ]
    single = attention_maps.View("encoder-self", Labels(("a",)), Labels(("a",)), torch.ones(1, 1, 1, 1))
    assert attention_statistics.table(single, [0], [0]).splitlines()[-1].split() == [
        "1", "1", "0.000", "0.000", "-", "-", "1.000", "1.000",
    ]  # fmt: skip


# --- sentences --------------------------------------------------------------------------------------------------------


def test_a_source_alone_is_translated_with_the_paper_s_search() -> None:
    of = translator()
    pair = of.pair(SOURCE, None)
    assert pair.target_ids.tolist() == of.translate(pair.source_ids).tolist()
    assert pair.target_ids[-1] == of.target_dictionary.eos()
    assert [of.target_dictionary.index(piece) for piece in pair.target] == pair.target_ids[:-1].tolist()


def test_unknown_words_keep_their_names_and_control_symbols_are_unknown() -> None:
    of = translator()
    pair = of.pair("\u2581A Zebra <pad> </s> \u2581dog", "Zebra")
    unk, eos = of.source_dictionary.unk(), of.source_dictionary.eos()
    known = [of.source_dictionary.index(piece) for piece in ("\u2581A", "\u2581dog")]
    assert pair.source_ids.tolist() == [known[0], unk, unk, unk, known[1], eos]
    assert attention_model.unknown_pieces(pair, of) == ["Zebra", "<pad>", "</s>"]
    made = attention_maps.views(attention_maps.compute(of.model, pair), pair)
    assert made["encoder-self"].keys.names == ("A", "\u00b7Zebra", "\u00b7<pad>", "\u00b7</s>", "dog", "<end>")


def test_sentences_beyond_learned_positions() -> None:
    of = translator(encoder_learned_pos=True, decoder_learned_pos=True, max_source_positions=4, max_target_positions=4)
    error = (
        "learned positions reach 4 tokens, but a sentence has 5; train with more --max-source-positions and "
        "--max-target-positions, or with sinusoids, which know no limit"
    )
    pair = of.pair(" ".join(PIECES[:4]), "\u2581Hun")
    with pytest.raises(CommandError, match=f"^{error}$"):
        attention_maps.compute(of.model, pair)
    with pytest.raises(CommandError, match=f"^{error}$"):
        of.pair(" ".join(PIECES[:4]), None)


@pytest.mark.parametrize(
    ("layer", "heads", "error"),
    [
        (0, None, "--layer 0: encoder-self attention has the layers 1 to 2"),
        (3, None, "--layer 3: encoder-self attention has the layers 1 to 2"),
        (1, [2, 4], "--heads 4: encoder-self attention has the heads 1 to 3"),
        (None, [-1], "--heads -1: encoder-self attention has the heads 1 to 3"),
    ],
)
def test_layers_and_heads_that_do_not_exist(layer: int, heads: List[int], error: str) -> None:
    with pytest.raises(CommandError, match=f"^{error}$"):
        attention_maps.choose(analysis(SOURCE, TARGET).pieces["encoder-self"], layer, heads)


def test_layers_and_heads_count_from_one() -> None:
    view = analysis(SOURCE, TARGET).pieces["encoder-self"]
    assert attention_maps.choose(view, None, None) == {"layers": [0, 1], "heads": [0, 1, 2]}
    assert attention_maps.choose(view, 2, [3, 1, 3]) == {"layers": [1], "heads": [0, 2]}


# --- pictures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_pictures_hold_the_words_and_a_line_for_each_visible_weight(kind: str, tmp_path: Path) -> None:
    image = pytest.importorskip("matplotlib.image")
    view = analysis(SOURCE, TARGET).pieces[kind]
    for draw, name in ((attention_pictures.draw_lines, "lines"), (attention_pictures.draw_heat_maps, "heat")):
        draw(view, 1, [0, 1], tmp_path / f"{name}.png")
        picture = image.imread(str(tmp_path / f"{name}.png"))
        assert picture[..., :3].std() > 0.01
        draw(view, 1, [0, 1], tmp_path / f"{name}.svg")
        text = (tmp_path / f"{name}.svg").read_text("utf-8")
        for word in {*view.queries.names, *view.keys.names}:
            assert f">{word.replace('<', '&lt;').replace('>', '&gt;')}</text>" in text
        assert f"{kind} attention, layer 2 of {view.weights.size(0)}" in text
    drawn = (tmp_path / "lines.svg").read_text("utf-8").count("stroke-opacity")
    visible = int((view.weights[1, :2] >= attention_pictures.FAINTEST).sum())
    assert visible - int((view.weights[1, :2] > 0.999).sum()) <= drawn <= visible  # full weight needs no opacity


def test_the_columns_of_a_heat_map_run_as_the_text_does(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    pieces = ["\u2581כלב", "\u2581רץ", "\u2581dog", "\u2581runs"]
    view = analysis("\u2581כלב \u2581רץ", "\u2581dog \u2581runs", pieces=pieces).pieces["encoder-decoder"]
    assert (view.queries.direction, view.keys.direction) == ("ltr", "rtl")
    attention_pictures.draw_heat_maps(view, 0, [0], tmp_path / "heat.svg")
    text = (tmp_path / "heat.svg").read_text("utf-8")
    places = {word: _x_of(text, word) for word in view.keys.names}
    assert places["כלב"] > places["רץ"] > places["<end>"]


def _x_of(svg: str, word: str) -> float:
    """Where a rotated label of a column stands, from its translation."""
    at = svg.index(f">{word.replace('<', '&lt;').replace('>', '&gt;')}</text>")
    return float(svg[:at].rpartition("translate(")[2].split()[0].rstrip(","))


def test_dollar_signs_and_long_words_in_pictures() -> None:
    assert attention_pictures.shown(["$x^{$", "y" * 24, "z" * 25]) == [r"\$x^{\$", "y" * 24, "z" * 23 + "\u2026"]


def test_a_colour_for_each_head() -> None:
    for count in (1, 8, 10, 16, 32):
        colours = attention_pictures.head_colours(count)
        assert len(set(colours)) == count
        assert all(len(colour) == 7 and int(colour[1:], 16) >= 0 for colour in colours)


def test_sentences_too_long_for_a_picture(tmp_path: Path) -> None:
    names = Labels(tuple("x" * 2001))
    view = attention_maps.View("encoder-self", names, names, torch.zeros(1, 1, 2001, 2001))
    error = "--lines: a picture holds at most 2,000 tokens a side, but there are 2,001; --page has no limit"
    with pytest.raises(CommandError, match=f"^{error}$"):
        attention_pictures.draw_lines(view, 0, [0], tmp_path / "lines.png")


# --- the command ------------------------------------------------------------------------------------------------------


def command(*words: object) -> int:
    return attention.main([str(word) for word in words])


def test_the_whole_command(
    copy_task: CopyTask, tiny_checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    names = ["lines.png", "lines.svg", "heat.png", "page.html", "maps.json"]
    lines, svg, heat, page, numbers = (tmp_path / "new" / name for name in names)
    sentence = copy_task.lines[0]
    assert command(
        "--path", tiny_checkpoint, "--data", copy_task.bin, "--source", sentence, "--target", sentence, "--heads", 2,
        "--kind", "encoder-decoder", "--lines", lines, svg, "--heat-map", heat, "--page", page, "--json", numbers,
    ) == 0  # fmt: skip
    out = capsys.readouterr().out.splitlines()
    assert out[:2] == [f"source: {sentence}", f"target: {sentence}"]
    assert out[3] == "encoder-decoder attention"
    assert [line.split()[:2] for line in out[4:6]] == [["layer", "head"], ["1", "2"]]
    assert [line.rpartition("/")[2].split(":")[0] for line in out[6:]] == names
    made = json.loads(numbers.read_text("utf-8"))
    assert (made["source"], made["target"], made["translated"]) == (sentence, sentence, False)
    translator_ = attention_model.load(tiny_checkpoint, copy_task.bin, None, in_pieces=True)
    pair = translator_.pair(sentence, sentence)
    for kind, table in attention_maps.compute(translator_.model, pair).items():
        torch.testing.assert_close(torch.tensor(made["pieces"][kind]["weights"]), table, rtol=0, atol=1e-6)
        assert made["pieces"][kind]["shape"] == list(table.shape)
    assert made["pieces"]["encoder-decoder"]["queries"]["names"] == [*sentence.split(), "<end>"]
    shares = made["words"]["encoder-decoder"]["statistics"][0][1]
    assert out[5].split()[2:] == [f"{value:.3f}" for value in shares.values()]


def test_a_translation_and_the_folder_of_the_training(
    copy_task: CopyTask, tiny_checkpoint_400: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("--path", tiny_checkpoint_400, "--source", "w1 w2 w3") == 0
    out = capsys.readouterr().out
    assert [line for line in out.splitlines() if line.endswith("attention")] == [f"{kind} attention" for kind in KINDS]
    assert out.splitlines()[1].startswith("target: w")
    assert out.splitlines()[1].endswith(" (translated)")


def test_text_goes_through_the_sentencepiece_model_that_lies_with_the_data(
    copy_task: CopyTask, tiny_checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import sentencepiece

    data = tmp_path / "data"
    shutil.copytree(copy_task.bin, data / "bin")
    sentencepiece.SentencePieceTrainer.train(
        input=str(copy_task.text / "train.src"), model_prefix=str(data / "spm"), vocab_size=40, model_type="bpe",
        character_coverage=1.0, minloglevel=2,
    )  # fmt: skip
    words = ["--path", tiny_checkpoint, "--data", data / "bin", "--source", "w12 w3", "--target", "w12", "--layer", 1]
    assert command(*words, "--json", tmp_path / "maps.json") == 0
    made = json.loads((tmp_path / "maps.json").read_text("utf-8"))
    assert made["words"]["encoder-self"]["keys"]["names"] == ["w12", "w3", "<end>"]
    captured = capsys.readouterr()
    if len(made["pieces"]["encoder-self"]["keys"]["names"]) > 3:
        assert captured.err.startswith(
            "vaswani-attention: note: unknown to the model, and so read as one unknown word: "
        )
    assert command(*words, "--pieces", "--json", tmp_path / "maps.json") == 0
    made = json.loads((tmp_path / "maps.json").read_text("utf-8"))
    assert made["pieces"]["encoder-self"]["keys"]["names"] == ["w12", "w3", "<end>"]


def told(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    assert command(*words) == 1
    captured = capsys.readouterr()
    assert captured.err.startswith("vaswani-attention: error: ")
    assert captured.err.count("\n") == 1
    return captured.err[len("vaswani-attention: error: ") : -1]


def test_errors(copy_task: CopyTask, tiny_checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    usual = ["--path", tiny_checkpoint, "--data", copy_task.bin]
    none = tmp_path / "none"
    empty = "the sentence is empty, so that there is nothing to look at"
    assert told(capsys, "--path", none, "--source", "a") == f"there is no checkpoint {none}"
    assert told(capsys, *usual, "--source", " ") == f"--source ' ': {empty}"
    assert told(capsys, *usual, "--source", "") == f"--source '': {empty}"
    assert (
        told(capsys, *usual, "--source", "w1", "--target", " ")
        == "--target is empty; leave it out to have the source translated"
    )
    assert (
        told(capsys, *usual, "--source", "w1", "--layer", 2)
        == "--layer 2: encoder-self attention has the layers 1 to 1"
    )
    assert (
        told(capsys, *usual, "--source", "w1", "--kind", "decoder-self", "--heads", 1, 3)
        == "--heads 3: decoder-self attention has the heads 1 to 2"
    )
    words = ["--path", tiny_checkpoint, "--source", "w1"]
    assert (
        told(capsys, *words, "--data", none)
        == f"--data {none}: no such folder; --data names the one of the dictionaries"
    )
    assert told(capsys, *words, "--data", tmp_path) == f"{tmp_path} holds no dictionaries (dict.LANGUAGE.txt)"
    assert told(capsys, *usual, "--source", "w1", "--sentencepiece-model", none) == (
        f"--sentencepiece-model {none}: no such file"
    )
    assert told(capsys, *usual, "--source", "w1", "--page", tiny_checkpoint) == (
        f"{tiny_checkpoint}: is one of the files to read; give what is made another name"
    )
    (tmp_path / "broken.model").write_text("no model")
    error = told(capsys, *usual, "--source", "w1", "--sentencepiece-model", tmp_path / "broken.model")
    assert error.startswith(f"{tmp_path / 'broken.model'} is no SentencePiece model: ")


def test_dictionaries_of_another_model(
    copy_task: CopyTask, tiny_checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    words = ["--path", tiny_checkpoint, "--data", data, "--source", "a"]
    for language in ("src", "tgt"):
        (data / f"dict.{language}.txt").write_text("a 1\n", encoding="utf-8")
    assert told(capsys, *words) == f"{data} holds no binary data, whose names tell the toolkit the languages"
    shutil.copytree(copy_task.bin, data, dirs_exist_ok=True, ignore=shutil.ignore_patterns("dict.*"))
    assert told(capsys, *words).startswith(f"{tiny_checkpoint} does not fit the dictionaries in {data}: ")


def test_a_file_that_is_no_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.pt"
    path.write_bytes(b"nothing")
    assert str(path) in told(capsys, "--path", path, "--source", "a")
