"""The beam search by itself: against exhaustive search, a beam of Python lists, and formulas from the papers."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import List, Optional, Sequence

import pytest
import torch
from oracles import (
    BOS,
    EOS,
    PAD,
    UNK,
    ToyDecoder,
    ToyModel,
    beam_search_without_end,
    exhaustive_search,
    greedy_search,
    penalty,
)

from vaswani_plugin.beam_search import (
    Candidates,
    Hypothesis,
    SearchOptions,
    Symbols,
    advance,
    best_candidates,
    best_possible,
    endings,
    length_penalty,
    log_softmax_,
    new_beam,
    search,
)
from vaswani_plugin.restrictions import forbid_repetition, restrict

SYMBOLS = Symbols(PAD, EOS, UNK)
PAPER = SearchOptions()


def run(
    models: Sequence[ToyModel],
    limits: Sequence[int],
    options: SearchOptions,
    prefix: Optional[torch.Tensor] = None,
    decoder: Optional[ToyDecoder] = None,
) -> List[List[Hypothesis]]:
    return search(decoder or ToyDecoder(models), limits, EOS, options, SYMBOLS, prefix)


def paired(*lists: Sequence) -> zip:
    """zip for lists that must be equally long."""
    assert len({len(one) for one in lists}) == 1
    return zip(*lists)


def tokens(hypothesis: Hypothesis) -> tuple:
    return tuple(hypothesis.tokens.tolist())


def check_equal(found: List[Hypothesis], expected: list) -> None:
    assert [tokens(h) for h in found] == [seq for _, seq in expected]
    for hypothesis, (score, _) in paired(found, expected):
        assert hypothesis.score == pytest.approx(score, rel=1e-4, abs=1e-5)


def test_length_penalty_has_the_published_values():
    n = torch.tensor([1, 5, 11, 50])
    assert length_penalty(n, 0.6).tolist() == pytest.approx([1.0, 1.358655, 1.801280, 3.778565], abs=1e-6)
    assert length_penalty(n, 0.0).tolist() == [1.0, 1.0, 1.0, 1.0]
    assert length_penalty(n, 1.0, "toolkit").tolist() == [1.0, 5.0, 11.0, 50.0]
    assert length_penalty(n, -0.5, "toolkit").tolist() == pytest.approx([1, 5**-0.5, 11**-0.5, 50**-0.5])


def test_the_defaults_are_those_of_the_paper():
    assert (PAPER.beam_size, PAPER.alpha, PAPER.penalty) == (4, 0.6, "wu")
    assert [PAPER.limit(n) for n in (1, 7, 100)] == [51, 57, 150]
    assert replace(PAPER, max_len_a=1.5, max_len_b=0.5, min_len=4).limit(1) == 4
    assert replace(PAPER, max_len_a=1.5, max_len_b=0.5).limit(3) == 5


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"beam_size": 0}, r"^beam_size must be at least 1, but is 0$"),
        ({"n_best": 5}, r"^n_best must lie in \[1, beam_size = 4\], but is 5$"),
        ({"n_best": 0}, r"^n_best must lie in \[1, beam_size = 4\], but is 0$"),
        ({"min_len": -1}, r"^min_len must not be negative, but is -1$"),
        ({"no_repeat_ngram": -2}, r"^no_repeat_ngram must not be negative, but is -2$"),
        ({"alpha": math.nan}, r"^alpha must be a finite number, but is nan$"),
        ({"unk_penalty": math.inf}, r"^unk_penalty must be a finite number, but is inf$"),
        ({"penalty": "gnmt"}, r"^penalty must be one of wu, toolkit, but is 'gnmt'$"),
        ({"ending": "never"}, r"^ending must be one of bound, count, but is 'never'$"),
    ],
)
def test_options_out_of_range_are_refused(wrong, text):
    with pytest.raises(ValueError, match=text):
        SearchOptions(**wrong)


@pytest.mark.parametrize("kind", ["wu", "toolkit"])
@pytest.mark.parametrize("alpha", [-1.0, 0.0, 0.6, 2.5])
@pytest.mark.parametrize("n_best", [1, 7])
def test_a_beam_as_wide_as_the_tree_of_prefixes_finds_what_exhaustive_search_finds(kind, alpha, n_best):
    models = [ToyModel(seed) for seed in range(6)]
    options = SearchOptions(beam_size=64, alpha=alpha, penalty=kind, n_best=n_best)
    for found, model in paired(run(models, [3] * 6, options), models):
        check_equal(found, exhaustive_search(model.log_probs, 6, 3, alpha, kind)[:n_best])


@pytest.mark.parametrize("unk_penalty", [-3.0, 0.5, 1000.0])
@pytest.mark.parametrize("alpha", [-0.5, 0.0, 0.6, 1.5])
def test_the_bound_holds_for_a_reward_or_a_penalty_of_unknown_words(unk_penalty, alpha):
    models = [ToyModel(seed) for seed in range(6)]
    options = SearchOptions(beam_size=64, alpha=alpha, n_best=3, unk_penalty=unk_penalty)
    for found, model in paired(run(models, [3] * 6, options), models):
        expected = exhaustive_search(model.log_probs, 6, 3, alpha, "wu", unk_penalty=unk_penalty)
        check_equal(found, expected[:3])


@pytest.mark.parametrize("min_len", [0, 2, 3])
def test_no_hypothesis_is_shorter_than_the_least_length(min_len):
    models = [ToyModel(seed, bias={EOS: 3.0}) for seed in range(6)]
    options = SearchOptions(beam_size=64, min_len=min_len, n_best=5)
    for found, model in paired(run(models, [3] * 6, options), models):
        check_equal(found, exhaustive_search(model.log_probs, 6, 3, 0.6, "wu", min_len=min_len)[:5])
        assert all(len(h.tokens) > min_len for h in found)


@pytest.mark.parametrize("beam_size", [2, 3, 5])
@pytest.mark.parametrize("alpha", [-0.6, 0.0, 0.6, 1.2])
@pytest.mark.parametrize("n_best", [1, 2])
def test_ending_early_changes_no_result_of_a_narrow_beam(beam_size, alpha, n_best):
    models = [ToyModel(seed, bias={EOS: seed % 3}) for seed in range(12)]
    limits = [1 + seed % 9 for seed in range(12)]
    options = SearchOptions(beam_size=beam_size, alpha=alpha, n_best=n_best)
    for found, model, limit in paired(run(models, limits, options), models, limits):
        check_equal(found, beam_search_without_end(model.log_probs, beam_size, limit, alpha, "wu")[:n_best])


def test_the_search_is_over_as_soon_as_nothing_can_win_and_no_sooner():
    """One word w with P(w) = P(eos) = 1/2 throughout: after m words the best end has m + 1 tokens of ln 1/2."""

    class Coin(ToyModel):
        def logits(self, prefix):
            return [-math.inf, -math.inf, 0.0, -math.inf, 0.0, -math.inf]

    def n_steps(alpha: float, limit: int) -> int:
        decoder = ToyDecoder([Coin(0)])
        found = run([], [limit], SearchOptions(beam_size=2, alpha=alpha, min_len=0), decoder=decoder)
        scores = [(n + 1) * math.log(0.5) / penalty(n + 1, alpha, "wu") for n in range(limit + 1)]
        assert found[0][0].score == pytest.approx(max(scores))
        return len(decoder.n_rows)

    # alpha 0: the first end has ln 1/2, and so has the word beside it, which cannot do better any more
    assert n_steps(0.0, 20) == 1
    # alpha 1: m words bound the future by m ln(1/2) 6 / (5 + 21), the first end has ln 1/2: over when 6 m >= 26
    assert n_steps(1.0, 20) == 5
    # with room for 2 tokens at most, m words bound it by m ln(1/2) 6 / 7: over when m >= 7 / 6, and 2 is the limit
    assert n_steps(1.0, 1) == 2


def test_a_beam_of_one_is_greedy():
    models = [ToyModel(seed, n_types=12) for seed in range(20)]
    for found, model in paired(run(models, [8] * 20, SearchOptions(beam_size=1)), models):
        assert [tokens(h) for h in found] == [greedy_search(model.log_probs, 8)]


@pytest.mark.parametrize(
    "options", [SearchOptions(), SearchOptions(ending="count", n_best=4), SearchOptions(beam_size=1)]
)
def test_a_sentence_does_not_depend_on_the_others(options):
    models = [ToyModel(seed, n_types=9, bias={EOS: seed % 4}) for seed in range(10)]
    limits = [1 + (7 * seed) % 11 for seed in range(10)]
    together = run(models, limits, options)
    order = [3, 1, 4, 9, 5, 2, 6, 8, 7, 0]
    shuffled = run([models[i] for i in order], [limits[i] for i in order], options)
    for place, i in enumerate(order):
        alone = run([models[i]], [limits[i]], options)[0]
        for other in (together[i], shuffled[place]):
            assert [tokens(h) for h in other] == [tokens(h) for h in alone]
            assert [h.score for h in other] == pytest.approx([h.score for h in alone], abs=1e-6)


def test_sentences_that_are_over_leave_the_batch():
    short, long = {EOS: 30.0}, {EOS: -30.0}
    decoder = ToyDecoder([ToyModel(0, bias=short), ToyModel(1, bias=long), ToyModel(2, bias=short)])
    found = run([], [6, 6, 6], SearchOptions(beam_size=2), decoder=decoder)
    assert [len(h[0].tokens) for h in found] == [2, 7, 2]
    assert decoder.n_rows == [3, 6, 2, 2, 2, 2, 2]


@pytest.mark.parametrize("options", [SearchOptions(n_best=4), SearchOptions(ending="count", n_best=4)])
def test_a_sentence_that_waits_for_others_to_leave_is_not_changed(options):
    """Twenty sentences that go on for long, and one that is over at once, too few to leave."""
    models = [ToyModel(seed, bias={EOS: -9.0}) for seed in range(20)] + [ToyModel(3, bias={EOS: 8.0})]
    decoder = ToyDecoder(models)
    found = run([], [9] * 21, options, decoder=decoder)
    assert decoder.n_rows[-1] == 4 * 21
    check_equal(found[20], [(h.score, tokens(h)) for h in run(models[20:], [9], options)[0]])


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("kind", ["wu", "toolkit"])
def test_a_score_is_the_sum_of_its_token_scores_over_the_penalty(alpha, kind):
    models = [ToyModel(seed, n_types=9) for seed in range(5)]
    options = SearchOptions(alpha=alpha, penalty=kind, n_best=4)
    for hypotheses in run(models, [9] * 5, options):
        scores = [h.score for h in hypotheses]
        assert scores == sorted(scores, reverse=True)
        assert len({tokens(h) for h in hypotheses}) == len(hypotheses) == 4
        for h in hypotheses:
            assert h.score == pytest.approx(h.token_scores.sum().item() / penalty(len(h.tokens), alpha, kind), abs=1e-4)


@pytest.mark.parametrize("unk_penalty", [0.0, 1000.0, -1000.0])
def test_the_unknown_penalty_touches_unknown_words_only(unk_penalty):
    model = ToyModel(4, n_types=9)
    (hypotheses,) = run([model], [5], SearchOptions(unk_penalty=unk_penalty, n_best=4))
    for h in hypotheses:
        assert (UNK in tokens(h)) == (unk_penalty < 0) or unk_penalty == 0
        for i, token in enumerate(tokens(h)):
            expected = model.log_probs(tokens(h)[:i])[token] - unk_penalty * (token == UNK)
            assert h.token_scores[i].item() == pytest.approx(expected, rel=1e-4, abs=1e-4)


def test_a_beam_wider_than_the_vocabulary_gives_what_there_is():
    (found,) = run([ToyModel(0)], [1], SearchOptions(beam_size=200, n_best=100))
    # words 0, 3, 4, 5 and the end symbol; a translation has one of them
    assert sorted(tokens(h) for h in found) == [(BOS, EOS), (UNK, EOS), (4, EOS), (5, EOS)]


def test_no_sentences_and_a_limit_of_nothing():
    assert run([], [], PAPER) == []
    (found,) = run([ToyModel(0)], [0], replace(PAPER, min_len=0))
    assert [tokens(h) for h in found] == [(EOS,)]


def test_scores_that_are_no_numbers_are_an_error():
    class Broken(ToyModel):
        def logits(self, prefix):
            return [math.nan] * 6

    text = (
        r"^no translation of sentence 1 of the batch could end: the model's scores are not numbers, "
        r"or min_len and no_repeat_ngram leave it no word$"
    )
    with pytest.raises(ArithmeticError, match=text):
        run([ToyModel(0), Broken(0)], [4, 4], PAPER)


@pytest.mark.parametrize("beam_size", [1, 4])
def test_every_hypothesis_begins_with_its_prefix(beam_size):
    models = [ToyModel(seed, n_types=9) for seed in range(4)]
    prefix = torch.tensor([[5, 6], [7, EOS], [8, PAD], [PAD, PAD]])
    options = SearchOptions(beam_size=beam_size, n_best=beam_size, min_len=2)
    found = run(models, [5] * 4, options, prefix)
    assert all(tokens(h)[:2] == (5, 6) for h in found[0])
    assert [tokens(h) for h in found[1]] == [(7, EOS)]
    assert all(tokens(h)[0] == 8 and len(tokens(h)) > 2 for h in found[2])
    assert [tokens(h) for h in found[3]] == [tokens(h) for h in run(models[3:], [5], options)[0]]
    for i in (0, 2, 3):
        assert len({tokens(h) for h in found[i]}) == beam_size
        for h in found[i]:
            expected = sum(models[i].log_probs(tokens(h)[:j])[token] for j, token in enumerate(tokens(h)))
            assert h.token_scores.sum().item() == pytest.approx(expected, rel=1e-4)


def test_a_prefix_ends_at_the_limit():
    (found,) = run([ToyModel(0)], [1], PAPER, torch.tensor([[4, 5, 4]]))
    assert [tokens(h) for h in found] == [(4, EOS)]


@pytest.mark.parametrize("size", [1, 2, 3])
def test_no_ngram_comes_twice(size):
    models = [ToyModel(seed, n_types=8, bias={4: 3.0, 5: 2.0, EOS: -4.0}) for seed in range(4)]

    def repeats(hypothesis: Hypothesis) -> bool:
        words = tokens(hypothesis)[:-1]
        ngrams = [words[i : i + size] for i in range(len(words) - size + 1)]
        return len(set(ngrams)) < len(ngrams)

    free = run(models, [12] * 4, SearchOptions(n_best=4))
    assert any(repeats(h) for hypotheses in free for h in hypotheses)
    bound = run(models, [12] * 4, SearchOptions(n_best=4, no_repeat_ngram=size))
    assert not any(repeats(h) for hypotheses in bound for h in hypotheses)
    assert all(tokens(h)[-1] == EOS for hypotheses in bound for h in hypotheses)


def test_what_completes_an_ngram_is_forbidden():
    logits = torch.zeros(2, 8)
    forbid_repetition(logits, torch.tensor([[EOS, 4, 5, 6, 4, 5], [EOS, 4, 5, 4, 7, 4]]), 2)
    assert [row.isinf().nonzero().flatten().tolist() for row in logits] == [[6], [5, 7]]


def test_candidates_are_the_best_extensions():
    log_probs = torch.randn(2 * 3, 7, generator=torch.Generator().manual_seed(0))
    sums = torch.tensor([[-1.0, -2.0, -2.5], [-0.5, -0.6, -math.inf]])
    candidates = best_candidates(log_probs, sums, 6)
    expected = (log_probs.view(2, 3, 7) + sums[:, :, None]).view(2, 21).topk(6)
    torch.testing.assert_close(candidates.sums, expected.values)
    torch.testing.assert_close(candidates.parents * 7 + candidates.tokens, expected.indices)
    torch.testing.assert_close(candidates.token_scores, log_probs.view(2, 21).gather(1, expected.indices))


@pytest.mark.parametrize("n_columns", [2, 127, 2048, 2049, 2063, 5003])
@pytest.mark.parametrize("n", [1, 2, 8, 130])
def test_promising_extensions_hold_the_best(n_columns, n):
    table = torch.randn(6, n_columns, generator=torch.Generator().manual_seed(n_columns))
    table[1] = -math.inf
    table[2, 1:] = -math.inf
    table[3] = table[3].sort().values  # the best lie together at the end
    table[4] = table[4].sort(descending=True).values
    sums = torch.tensor([[-1.0, 0.0], [-3.0, -3.5], [-1.0, -math.inf]])
    every = (table.view(3, 2, n_columns) + sums[:, :, None]).flatten(1)
    expected = every.topk(min(n, 2 * n_columns), dim=1).values
    found = best_candidates(table, sums, n)
    assert torch.equal(found.sums, expected)
    places = found.parents * n_columns + found.tokens
    assert torch.equal(every.gather(1, places), expected)
    assert torch.equal(table.view(3, -1).gather(1, places), found.token_scores)
    assert all(len(set(row)) == len(row) for row in places.tolist())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (7, 20011)])
def test_log_softmax_may_overwrite(shape, dtype):
    logits = 5 * torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    expected = logits.double().log_softmax(dim=1).float()
    found = log_softmax_(logits)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    assert (found.data_ptr() == logits.data_ptr()) == (dtype == torch.float32)


def test_the_ends_that_count_are_those_among_the_first_of_the_candidates():
    sums = torch.tensor([[-1.0, -2.0, -3.0, -math.inf]])
    candidates = Candidates(sums, sums, torch.zeros(1, 4, dtype=torch.long), torch.full((1, 4), EOS))
    beam = new_beam([9], EOS, SearchOptions(beam_size=2), SYMBOLS)
    assert endings(candidates, beam, SearchOptions(beam_size=2), EOS).tolist() == [[True, True, True, False]]
    counting = SearchOptions(beam_size=2, ending="count")
    assert endings(candidates, beam, counting, EOS).tolist() == [[True, True, False, False]]
    beam.n_ended += 1
    assert endings(candidates, beam, counting, EOS).tolist() == [[True, False, False, False]]


def test_live_hypotheses_are_the_best_candidates_that_do_not_end():
    beam = new_beam([9], EOS, PAPER, SYMBOLS)
    sums = torch.tensor([[-1.0, -2.0, -3.0, -4.0]])
    candidates = Candidates(sums, sums, torch.zeros(1, 4, dtype=torch.long), torch.tensor([[4, EOS, 5, 6]]))
    assert advance(beam, candidates, None, 2, EOS).tolist() == [[0, 0]]
    assert beam.live.tokens.tolist() == [[[EOS, 4], [EOS, 5]]]
    assert beam.live.sums.tolist() == [[-1.0, -3.0]]


@pytest.mark.parametrize(
    ("alpha", "unk_penalty", "min_len"),
    [(0.6, 0.0, 1), (-0.6, 0.0, 1), (-0.6, 0.0, 4), (0.6, -2.0, 1), (-1.0, -0.3, 3)],
)
def test_the_bound_is_the_best_score_of_any_future(alpha, unk_penalty, min_len):
    options = SearchOptions(alpha=alpha, unk_penalty=unk_penalty, min_len=min_len)
    beam = new_beam([6], EOS, options, SYMBOLS)
    sums = torch.tensor([[-2.0, -3.0]])
    beam.live = beam.live.extended(Candidates(sums, sums, torch.zeros(1, 2).long(), torch.tensor([[4, 5]])), None)
    penalties = length_penalty(torch.arange(9).clamp(min=1), alpha)
    reward = max(0.0, -unk_penalty)
    futures = [(-2.0 + reward * (n - 2)) / penalty(n, alpha, "wu") for n in range(max(2, min_len + 1), 8)]
    assert best_possible(beam, options, penalties).item() == pytest.approx(max(futures))


def test_limits_apply_to_each_sentence_by_itself():
    beam = new_beam([0, 1], EOS, PAPER, SYMBOLS)
    logits = torch.zeros(2, 6)
    restrict(logits, beam, replace(PAPER, min_len=0), SYMBOLS)
    assert logits.eq(0).tolist() == [[i == EOS for i in range(6)], [i != PAD for i in range(6)]]
