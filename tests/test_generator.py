"""The generator: against the toolkit's token for token, against whole sentences, and alone against in a batch."""

from __future__ import annotations

import math
from argparse import Namespace
from dataclasses import replace
from typing import Any, Dict, List, Optional, Sequence

import pytest
import torch
from fairseq.data import Dictionary
from fairseq.dataclass.configs import GenerationConfig
from fairseq.ngram_repeat_block import NGramRepeatBlock
from fairseq.sequence_generator import SequenceGenerator, SequenceGeneratorWithAlignment

import vaswani_plugin  # noqa: F401
from vaswani_plugin.alignment import hard_alignment, soft_alignment
from vaswani_plugin.beam_search import SearchOptions, length_penalty
from vaswani_plugin.config import VaswaniConfig
from vaswani_plugin.generator import (
    VaswaniGenerator,
    alignment_kind,
    average_probabilities,
    search_options,
    unsupported,
)
from vaswani_plugin.reference_scorer import ReferenceScorer
from vaswani_plugin.transformer import VaswaniTransformer

TOOLKIT = SearchOptions(alpha=1.0, penalty="toolkit", ending="count")


def dictionary(n_words: int = 40) -> Dictionary:
    words = Dictionary()
    for i in range(n_words):
        words.add_symbol(f"w{i}")
    return words


WORDS = dictionary()


def model(seed: int = 3, **options: Any) -> VaswaniTransformer:
    """A random model whose distributions are far from uniform, and whose translations have several lengths."""
    torch.manual_seed(seed)
    sizes = {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in SIZES.items()}
    cfg = VaswaniConfig(**{**sizes, "tie_embeddings": "none", **options})
    built = VaswaniTransformer.build_model(cfg, Namespace(source_dictionary=WORDS, target_dictionary=WORDS))
    with torch.no_grad():
        built.decoder.output_projection.weight.mul_(2.5)
        built.decoder.output_projection.weight[WORDS.eos()] *= 3.0
    return built.eval()


SIZES = {"layers": 2, "embed_dim": 16, "ffn_embed_dim": 32, "attention_heads": 2}


def batch(lengths: Sequence[int], seed: int = 0) -> Dict[str, Any]:
    """Random sentences of so many words, padded to the left as the toolkit does."""
    generator = torch.Generator().manual_seed(seed)
    width = max(lengths, default=0) + 1
    tokens = torch.full((len(lengths), width), WORDS.pad())
    for row, n in enumerate(lengths):
        tokens[row, width - n - 1 : -1] = torch.randint(4, len(WORDS), (n,), generator=generator)
        tokens[row, -1] = WORDS.eos()
    return {
        "net_input": {"src_tokens": tokens, "src_lengths": torch.tensor(lengths) + 1},
        "id": torch.arange(len(lengths)),
    }


class Blocker(NGramRepeatBlock):
    """The toolkit's rule against repetition with the tokens so far: given the whole buffer it compares padding."""

    def forward(self, tokens: torch.Tensor, lprobs: torch.Tensor, bsz: int, beam_size: int, step: int) -> torch.Tensor:
        return super().forward(tokens[:, : step + 1], lprobs, bsz, beam_size, step)


def theirs(models: List[Any], sample: Dict[str, Any], options: SearchOptions, prefix: Any = None, **more: Any) -> Any:
    """What the toolkit's generator finds."""
    align = {"print_alignment": more["print_alignment"]} if "print_alignment" in more else {}
    generator = (SequenceGeneratorWithAlignment if align else SequenceGenerator)(
        models,
        WORDS,
        beam_size=options.beam_size,
        max_len_a=options.max_len_a,
        max_len_b=int(options.max_len_b),
        min_len=options.min_len,
        normalize_scores=options.alpha != 0,
        len_penalty=options.alpha,
        unk_penalty=options.unk_penalty,
        temperature=more.get("temperature", 1.0),
        no_repeat_ngram_size=options.no_repeat_ngram,
        **align,
    )
    if options.no_repeat_ngram:
        generator.repeat_ngram_blocker = Blocker(options.no_repeat_ngram, use_extension=False)
    return generator.generate(models, sample, prefix_tokens=prefix)


def ours(models: List[Any], sample: Dict[str, Any], options: SearchOptions, prefix: Any = None, **more: Any) -> Any:
    return VaswaniGenerator(models, WORDS, options, **more).generate(models, sample, prefix_tokens=prefix)


def check_same(found: List[List[Dict[str, Any]]], expected: List[List[Dict[str, Any]]], atol: float = 2e-5) -> None:
    assert len(found) == len(expected)
    for mine, other in zip(found, expected):
        assert [h["tokens"].tolist() for h in mine] == [h["tokens"].tolist() for h in other]
        for i in range(len(mine)):
            torch.testing.assert_close(mine[i]["score"], other[i]["score"], rtol=1e-5, atol=atol)
            scores, others = mine[i]["positional_scores"], other[i]["positional_scores"]
            torch.testing.assert_close(scores, others, rtol=1e-5, atol=10 * atol)


@pytest.mark.parametrize("beam_size", [1, 4, 10])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"alpha": 0.0},
        {"alpha": -0.5},
        {"alpha": 0.6, "max_len_a": 1.2, "max_len_b": 3},
        {"min_len": 6},
        {"unk_penalty": 1.5},
        {"unk_penalty": -1.5},
        {"no_repeat_ngram": 2},
    ],
    ids=str,
)
def test_equals_the_toolkits_generator_under_its_penalty_and_limits(beam_size: int, changes: Dict[str, Any]) -> None:
    options = replace(TOOLKIT, beam_size=beam_size, n_best=beam_size, **{"max_len_b": 20, **changes})
    models, sample = [model()], batch([6] * 20)
    found = ours(models, sample, options)
    check_same(found, theirs(models, sample, options))
    assert len({len(hypo["tokens"]) for hypos in found for hypo in hypos}) > 1


def test_equals_the_toolkits_generator_sentence_by_sentence() -> None:
    options = replace(TOOLKIT, n_best=4, max_len_b=5)
    lengths = [1, 9, 2, 7, 7, 3, 4, 5]
    together = ours([model()], batch(lengths), options)
    for i, n in enumerate(lengths):
        alone = batch(lengths)
        alone["net_input"]["src_tokens"] = alone["net_input"]["src_tokens"][i : i + 1, max(lengths) - n :]
        check_same([together[i]], theirs([model()], alone, options))


def test_equals_the_toolkits_ensemble() -> None:
    models, sample = [model(3), model(2), model(0)], batch([5] * 10)
    options = replace(TOOLKIT, n_best=4, max_len_b=20)
    check_same(ours(models, sample, options), theirs(models, sample, options))


def test_equals_the_toolkits_temperature() -> None:
    sample, options = batch([5] * 10), replace(TOOLKIT, n_best=4, max_len_b=20)
    check_same(ours([model()], sample, options, temperature=1.7), theirs([model()], sample, options, temperature=1.7))


def test_equals_the_toolkits_forced_prefix() -> None:
    prefix = torch.randint(4, len(WORDS), (10, 3))
    options = replace(TOOLKIT, n_best=4, max_len_b=20, min_len=5)
    check_same(ours([model()], batch([5] * 10), options, prefix), theirs([model()], batch([5] * 10), options, prefix))


@pytest.mark.parametrize("kind", ["hard", "soft"])
def test_equals_the_toolkits_alignment(kind: str) -> None:
    sample, options = batch([5] * 10), replace(TOOLKIT, n_best=4, max_len_b=20)
    expected = theirs([model()], sample, options, print_alignment=kind)
    found = ours([model()], sample, options, alignment=kind)
    check_same(found, expected)
    for mine, other in zip(found, expected):
        for i in range(4):
            torch.testing.assert_close(mine[i]["attention"], other[i]["attention"], rtol=0, atol=1e-5)
            if kind == "hard":
                assert mine[i]["alignment"] == other[i]["alignment"]
            else:
                values = [[float(weight) for weight in row] for row in mine[i]["alignment"]]
                assert sum(values, []) == pytest.approx(
                    [float(w) for row in other[i]["alignment"] for w in row], abs=2e-5
                )


@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize("n_models", [1, 2])
def test_token_scores_are_those_of_whole_sentences(beam_size: int, n_models: int) -> None:
    models, sample = [model(seed) for seed in (3, 2)[:n_models]], batch([1, 8, 3, 5])
    for i, hypos in enumerate(ours(models, sample, SearchOptions(beam_size=beam_size, n_best=beam_size))):
        for hypo in hypos:
            tokens = hypo["tokens"][None]
            previous = torch.cat((tokens.new_full((1, 1), WORDS.eos()), tokens[:, :-1]), dim=1)
            source = sample["net_input"]["src_tokens"][i : i + 1]
            logits = [one(source, None, previous)[0] for one in models]
            probs = torch.stack([one.softmax(-1) for one in logits]).mean(0)
            expected = probs.gather(2, tokens[:, :, None]).log().flatten()
            torch.testing.assert_close(hypo["positional_scores"], expected, rtol=0, atol=1e-4)
            penalty = length_penalty(torch.tensor(tokens.numel()), 0.6)
            torch.testing.assert_close(hypo["score"], expected.sum() / penalty, rtol=0, atol=1e-4)


@pytest.mark.parametrize("alignment", [None, "hard", "soft"])
@pytest.mark.parametrize("options", [SearchOptions(n_best=4), SearchOptions(beam_size=1)])
def test_a_translation_does_not_depend_on_its_batch(alignment: Optional[str], options: SearchOptions) -> None:
    lengths = [1, 9, 2, 7, 7, 3, 0, 5]
    sample = batch(lengths)
    together = ours([model()], sample, options, alignment=alignment)
    for i, n in enumerate(lengths):
        for tokens in (
            sample["net_input"]["src_tokens"][i : i + 1],
            sample["net_input"]["src_tokens"][i : i + 1, 9 - n :],
        ):
            alone = ours([model()], {"net_input": {"src_tokens": tokens}}, options, alignment=alignment)
            check_same([together[i]], alone)
            if alignment == "hard":
                assert [h["alignment"] for h in together[i]] == [h["alignment"] for h in alone[0]]


def test_padding_on_the_right_is_no_different() -> None:
    sample = batch([2, 6])
    tokens = sample["net_input"]["src_tokens"].clone()
    tokens[0] = tokens[0].roll(-4)
    assert tokens[0, -1] == WORDS.pad()
    right = {"net_input": {"src_tokens": tokens}}
    options = SearchOptions(n_best=4)
    check_same(ours([model()], right, options, alignment="hard"), ours([model()], sample, options, alignment="hard"))


def test_limits_are_each_sentences_own() -> None:
    endless = model()
    with torch.no_grad():
        endless.decoder.output_projection.weight[WORDS.eos()] = -5 * endless.decoder.output_projection.weight.mean(0)
    lengths = [1, 3, 8]
    options = SearchOptions(max_len_a=2.0, max_len_b=1, min_len=0, no_repeat_ngram=0)
    found = VaswaniGenerator([endless], WORDS, options)
    assert [found.options.limit(n + 1) for n in lengths] == [5, 9, 19]
    for hypos, n in zip(found.generate(None, batch(lengths)), lengths):
        assert len(hypos[0]["tokens"]) <= 2 * (n + 1) + 1 + 1
    forced = VaswaniGenerator([endless], WORDS, replace(options, min_len=25)).generate(None, batch(lengths))
    assert [len(hypos[0]["tokens"]) for hypos in forced] == [26, 26, 26]


def test_learned_positions_limit_the_length() -> None:
    learned = model(decoder_learned_pos=True, max_target_positions=6)
    found = VaswaniGenerator([learned], WORDS, SearchOptions(n_best=4)).generate(None, batch([3, 9]))
    assert all(len(h["tokens"]) <= 6 for hypos in found for h in hypos)
    text = r"^--min-len is 6, but the learned positions of the model reach 5 tokens and the end symbol$"
    with pytest.raises(ValueError, match=text):
        VaswaniGenerator([learned], WORDS, SearchOptions(min_len=6))


def test_a_step_decodes_one_token() -> None:
    counted, sizes = model(), []
    counted.decoder.layers[0].fc1.register_forward_hook(
        lambda layer, inputs, output: sizes.append(tuple(inputs[0].shape))
    )
    found = ours([counted], batch([4, 4, 4]), SearchOptions(beam_size=4))
    assert sizes[:2] == [(3, 16), (12, 16)]  # one token for each hypothesis
    assert len(sizes) >= max(len(hypos[0]["tokens"]) for hypos in found)


@pytest.mark.parametrize("alignment", [None, "hard", "soft"])
def test_no_words_are_translated_by_no_words(alignment: Optional[str]) -> None:
    sample = batch([0, 3, 0])
    found = ours([model()], sample, SearchOptions(n_best=4), alignment=alignment)
    assert [len(hypos) for hypos in found] == [1, 4, 1]
    for i in (0, 2):
        assert found[i][0]["tokens"].tolist() == [WORDS.eos()]
        assert found[i][0]["score"].item() == found[i][0]["positional_scores"].item() == 0.0
        expected = {None: 0, "hard": [], "soft": [["1.000000"]]}[alignment]
        assert expected == (found[i][0]["alignment"].numel() if alignment is None else found[i][0]["alignment"])
    alone = ours([model()], batch([0, 0]), SearchOptions(), alignment=alignment)
    assert [hypos[0]["tokens"].tolist() for hypos in alone] == [[WORDS.eos()]] * 2
    prefix = torch.tensor([[7], [8], [WORDS.pad()]])
    forced = ours([model()], sample, SearchOptions(), prefix)
    assert [hypos[0]["tokens"][0].item() for hypos in forced] == [7, 8, WORDS.eos()]


def test_no_sentences() -> None:
    assert ours([model()], batch([]), SearchOptions()) == []


def test_half_precision_scores_in_single(half: torch.dtype) -> None:
    sample = batch([3, 7, 5])
    found = ours([model().to(half)], sample, SearchOptions(n_best=4), alignment="soft")
    for source, hypos in zip(sample["net_input"]["src_tokens"], found):
        tokens, scores = hypos[0]["tokens"], hypos[0]["positional_scores"]
        assert scores.dtype == torch.float32
        begun = tokens.roll(1)  # the end symbol is what translations begin with
        exact = model()(source[None], None, begun[None])[0].log_softmax(-1)[0, torch.arange(len(tokens)), tokens]
        torch.testing.assert_close(scores, exact, rtol=0, atol=16 * torch.finfo(half).eps)


def test_another_symbol_may_stand_before_a_translation() -> None:
    generator = VaswaniGenerator([model()], WORDS, replace(TOOLKIT, max_len_b=20))
    sample = batch([5] * 4)
    found = generator.generate(None, sample, bos_token=7)
    other = SequenceGenerator([model()], WORDS, beam_size=4, max_len_a=1, max_len_b=20)
    check_same(found, [hypos[:1] for hypos in other.generate([model()], sample, bos_token=7)])


def test_constraints_are_refused() -> None:
    text = r"^this generator knows no lexical constraints; give --constraints when it is built$"
    with pytest.raises(ValueError, match=text):
        VaswaniGenerator([model()], WORDS, SearchOptions()).generate(None, batch([1]), constraints=torch.zeros(1, 1))


def test_a_temperature_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^--temperature must be above 0, but is 0$"):
        VaswaniGenerator([model()], WORDS, SearchOptions(), temperature=0)


def test_probabilities_are_averaged() -> None:
    logits = [torch.randn(3, 7) for _ in range(4)]
    expected = torch.stack([one.softmax(1) for one in logits]).mean(0).log()
    torch.testing.assert_close(average_probabilities(logits), expected)
    assert average_probabilities(logits[:1]) is logits[0]


def test_options_have_the_toolkits_names_and_the_papers_defaults(caplog: pytest.LogCaptureFixture) -> None:
    assert search_options(Namespace()) == SearchOptions()
    given = GenerationConfig(
        beam=7, lenpen=1.5, max_len_a=0.5, max_len_b=9, min_len=2, nbest=3, unkpen=0.25, no_repeat_ngram_size=3
    )
    assert search_options(given, "toolkit", "count") == SearchOptions(7, 1.5, "toolkit", 0.5, 9, 2, 3, 0.25, 3, "count")
    assert search_options(Namespace(lenpen=3.0, unnormalized=True)).alpha == 0.0
    assert not caplog.records
    assert search_options(Namespace(beam=4, nbest=10)).n_best == 4
    assert [r.getMessage() for r in caplog.records] == [
        "--nbest 10 is more than --beam 4, which is as many hypotheses as there will be"
    ]
    caplog.clear()
    search_options(Namespace(retain_dropout=True))
    assert [r.getMessage() for r in caplog.records] == [
        "--retain-dropout has no effect: this model never drops anything when it translates"
    ]


@pytest.mark.parametrize(
    ("given", "kind"),
    [({}, None), ({"print_alignment": "soft"}, "soft"), ({"print_alignment": "hard"}, "hard"),
     ({"print_alignment": True}, "hard"), ({"replace_unk": ""}, "hard"),
     ({"replace_unk": "", "print_alignment": "soft"}, "soft")],
)  # fmt: skip
def test_who_needs_an_alignment(given: Dict[str, Any], kind: Optional[str]) -> None:
    assert alignment_kind(Namespace(**given)) == kind


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"sampling": True}, "--sampling"),
        ({"diverse_beam_groups": 2}, "--diverse-beam-groups"),
        ({"diversity_rate": 0.5}, "--diversity-rate"),
        ({"match_source_len": True}, "--match-source-len"),
        ({"constraints": "ordered"}, "--constraints"),
    ],
)
def test_what_the_search_does_not_do_is_named(given: Dict[str, Any], reason: str) -> None:
    assert unsupported(GenerationConfig(), [model()], {"lm_model": None, "lm_weight": 0.0}) == []
    assert unsupported(Namespace(**given), [model()], None) == [reason]
    assert unsupported(Namespace(), [torch.nn.Linear(1, 1)], {"lm_model": model(), "tokens_to_suppress": ("w1",)}) == [
        "--lm-path", "models of another kind", "tokens_to_suppress",
    ]  # fmt: skip


@pytest.mark.parametrize("options", [SearchOptions(), TOOLKIT, SearchOptions(alpha=0.0)])
def test_references_are_scored_as_translations_are(options: SearchOptions) -> None:
    models, sample = [model(3), model(2)], batch([4, 9])
    found = ours(models, sample, options, alignment="hard")
    tokens = [hypos[0]["tokens"] for hypos in found]
    target = torch.nn.utils.rnn.pad_sequence(tokens, batch_first=True, padding_value=WORDS.pad())
    previous = torch.cat((torch.full((2, 1), WORDS.eos()), target[:, :-1]), dim=1)
    sample["net_input"]["prev_output_tokens"] = previous
    scored = ReferenceScorer(WORDS, options, "hard").generate(models, {**sample, "target": target})
    check_same(scored, [hypos[:1] for hypos in found], atol=1e-4)
    for mine, other in zip(scored, found):
        assert mine[0]["alignment"] == other[0]["alignment"]
        torch.testing.assert_close(mine[0]["attention"], other[0]["attention"], rtol=0, atol=1e-5)


def test_a_link_prints_as_a_pair_and_counts_as_an_index() -> None:
    attention = torch.tensor([[0.1, 0.2, 0.7], [0.5, 0.4, 0.1], [0.3, 0.3, 0.4]])
    source_ends = target_ends = torch.tensor([False, False, True])
    links = hard_alignment(attention, source_ends, target_ends)
    assert [f"{source}-{target}" for source, target in links] == ["1-0", "0-1"]
    assert [["a", "b"][link] for link in links] == ["b", "a"]
    rows = soft_alignment(attention, source_ends, target_ends)
    assert ",".join(rows[0]) == "0.100000,0.200000,0.700000"
    assert [["a", "b"][row] for row in rows] == ["b", "a", "a"]


def test_an_empty_source_aligns_with_nothing() -> None:
    attention, ends = torch.ones(2, 1), torch.tensor([False, True])
    assert hard_alignment(attention, torch.tensor([True]), ends) == []
    assert [list(row) for row in soft_alignment(attention, torch.tensor([True]), ends)] == [["1.000000"], ["1.000000"]]
    (hypos,) = ours([model()], batch([0]), SearchOptions(), alignment="hard")
    assert hypos[0]["alignment"] == []
    assert math.isfinite(hypos[0]["score"].item())
