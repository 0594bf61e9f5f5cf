"""Bracketing scores: pairs of trees worked by hand, one or more for each of EVALB's rules, and the baseline."""

from __future__ import annotations

import pytest

from vaswani_plugin.bracketing import (
    Bracket,
    SentenceScore,
    brackets,
    right_branching,
    score_sentence,
    summarise,
)
from vaswani_plugin.trees import Leaf, Tree, leaves, read_trees, to_penn


def tree(text: str) -> Tree:
    (one,) = read_trees([text])
    return one


GOLD = "(TOP (S (NP (DT the) (NN dog)) (VP (VBD saw) (NP (PRP it))) (. .)))"

#: name, gold tree, test tree, then by hand: status, gold brackets, test brackets, matched, crossing.
WORKED = [
    ("equal trees", GOLD, GOLD, "ok", 4, 4, 4, 0),
    ("a wrong label", GOLD, GOLD.replace("(NP (PRP", "(PP (PRP"), "ok", 4, 4, 3, 0),
    ("a missing bracket", GOLD, "(TOP (S (NP (DT the) (NN dog)) (VBD saw) (NP (PRP it)) (. .)))", "ok", 4, 3, 3, 0),
    # test: (X the dog saw) 0-3 overlaps the gold VP 2-4
    (
        "a crossing bracket",
        GOLD,
        "(TOP (S (NP (DT the) (NN dog) (VBD saw)) (NP (PRP it)) (. .)))",
        "ok", 4, 3, 2, 1,
    ),
    (
        "one test bracket that crosses two gold ones counts once",
        "(TOP (S (NP (A a) (B b)) (VP (C c) (D d))))",
        "(TOP (S (A a) (X (B b) (C c)) (D d)))",
        "ok", 3, 2, 1, 1,
    ),
    (
        "two test brackets that cross one gold one count twice",
        "(TOP (S (A a) (X (B b) (C c)) (D d)))",
        "(TOP (S (NP (A a) (B b)) (VP (C c) (D d))))",
        "ok", 2, 3, 1, 2,
    ),
    ("part-of-speech tags are no brackets", GOLD, GOLD.replace("NN", "VB"), "ok", 4, 4, 4, 0),
    # without the punctuation both S are over 0-2
    (
        "punctuation is deleted, so it may hang anywhere",
        "(TOP (S (NP (NN dogs)) (, ,) (VP (VBP bark) (. .))))",
        "(TOP (S (NP (NN dogs) (, ,)) (VP (VBP bark)) (. .)))",
        "ok", 3, 3, 3, 0,
    ),
    (
        "a bracket over punctuation alone does not count",
        "(TOP (S (NP (NN dogs)) (PRN (: --)) (VP (VBP bark))))",
        "(TOP (S (NP (NN dogs)) (: --) (VP (VBP bark))))",
        "ok", 3, 3, 3, 0,
    ),
    (
        "quotation marks are deleted",
        "(TOP (S (`` ``) (NP (NN dogs)) ('' '') (VP (VBP bark))))",
        "(TOP (S (NP (`` ``) (NN dogs) ('' '')) (VP (VBP bark))))",
        "ok", 3, 3, 3, 0,
    ),
    (
        "round brackets are not deleted",
        "(TOP (NP (-LRB- -LRB-) (NP (NN dogs)) (-RRB- -RRB-)))",
        "(TOP (NP (NP (-LRB- -LRB-) (NN dogs)) (-RRB- -RRB-)))",
        "ok", 2, 2, 1, 0,
    ),
    (
        "other punctuation tags are not deleted",
        "(TOP (NP (NN eye) (HYPH -) (NN tracking)))",
        "(TOP (NP (NN eye) (NP (HYPH -) (NN tracking))))",
        "ok", 1, 2, 1, 0,
    ),
    # the test tree takes the comma for a noun, so it has three words against two
    (
        "punctuation is known by each tree's own tags",
        "(TOP (NP (NN a) (, ,) (NN b)))",
        "(TOP (NP (NN a) (NN ,) (NN b)))",
        "error", 0, 0, 0, 0,
    ),
    (
        "empty words and what they leave empty are deleted",
        "(TOP (S (NP-SBJ (-NONE- *)) (VP (TO to) (VP (VB go)))))",
        "(TOP (S (VP (TO to) (VP (VB go)))))",
        "ok", 3, 3, 3, 0,
    ),
    ("function tags do not matter", GOLD, GOLD.replace("(NP (DT", "(NP-SBJ-1 (DT"), "ok", 4, 4, 4, 0),
    ("nor do indices after an equals sign", GOLD.replace("(NP (PRP", "(NP=2 (PRP"), GOLD, "ok", 4, 4, 4, 0),
    (
        "particles and adverbs are the same",
        "(TOP (VP (VB look) (PRT (RP up))))",
        "(TOP (VP (VB look) (ADVP (RP up))))",
        "ok", 2, 2, 2, 0,
    ),
    (
        "in both directions and with function tags",
        "(TOP (VP (VB look) (ADVP-DIR (RP up))))",
        "(TOP (VP (VB look) (PRT (RP up))))",
        "ok", 2, 2, 2, 0,
    ),
    (
        "no other labels are the same",
        "(TOP (VP (VB look) (ADJP (RP up))))",
        "(TOP (VP (VB look) (ADVP (RP up))))",
        "ok", 2, 2, 1, 0,
    ),
    ("root brackets do not count", "(TOP (NN dogs))", "(TOP (NP (NN dogs)))", "ok", 0, 1, 0, 0),
    ("under any of their names", GOLD.replace("TOP", "ROOT"), GOLD.replace("TOP", ""), "ok", 4, 4, 4, 0),
    ("nor do they inside", "(TOP (TOP (NP (NN dogs))))", "(TOP (NP (TOP (NN dogs))))", "ok", 1, 1, 1, 0),
    (
        "equal brackets are matched one to one",
        "(TOP (NP (NP (NN dogs))))",
        "(TOP (NP (NP (NP (NN dogs)))))",
        "ok", 2, 3, 2, 0,
    ),
    (
        "the order of a unary chain does not matter",
        "(TOP (S (VP (VB go))))",
        "(TOP (VP (S (VB go))))",
        "ok", 2, 2, 2, 0,
    ),
    ("no brackets on either side", "(TOP (UH yes))", "(TOP (UH yes))", "ok", 0, 0, 0, 0),
    ("another word", GOLD, GOLD.replace("dog", "cat"), "error", 0, 0, 0, 0),
    ("another case", GOLD, GOLD.replace("dog", "Dog"), "error", 0, 0, 0, 0),
    ("a word too few", GOLD, GOLD.replace(" (NP (PRP it))", ""), "error", 0, 0, 0, 0),
    ("another punctuation mark", GOLD, GOLD.replace("(. .)", "(. !)"), "ok", 4, 4, 4, 0),
    ("a mark more", GOLD, GOLD.replace("(. .)", "(. .) ('' '')"), "ok", 4, 4, 4, 0),
    ("no words at all in the test tree", GOLD, "(TOP)", "skip", 0, 0, 0, 0),
    ("punctuation alone", "(TOP (NP (. .)))", "(TOP (. .))", "skip", 0, 0, 0, 0),
    # EVALB cuts the label at its first hyphen and deletes labels only after that
    ("a constituent called like an empty word", "(TOP (NP (NN a)))", "(TOP (-NONE- (NN a)))", "ok", 1, 1, 0, 0),
    ("a constituent called like punctuation", "(TOP (NP (NN a)))", "(TOP (NP (: (NN a))))", "ok", 1, 1, 1, 0),
]  # fmt: skip


@pytest.mark.parametrize(
    ("gold", "test", "status", "n_gold", "n_test", "matched", "crossing"),
    [case[1:] for case in WORKED],
    ids=[case[0] for case in WORKED],
)
def test_pairs_worked_by_hand(
    gold: str, test: str, status: str, n_gold: int, n_test: int, matched: int, crossing: int
) -> None:
    length = sum(leaf.tag != "-NONE-" for leaf in leaves(tree(gold)))
    expected = SentenceScore(status, length, n_gold, n_test, matched, crossing)
    assert score_sentence(tree(gold), tree(test)) == expected


def test_without_labels_only_places_count() -> None:
    test = GOLD.replace("NP", "X").replace("(S", "(SQ")
    assert score_sentence(tree(GOLD), tree(test), labelled=False) == SentenceScore("ok", 5, 4, 4, 4, 0)
    assert score_sentence(tree(GOLD), tree(test)) == SentenceScore("ok", 5, 4, 4, 1, 0)


def test_brackets_are_over_the_words_that_count() -> None:
    text = "(TOP (S (`` ``) (NP (NN a) (, ,) (NN b)) (. .)))"
    assert brackets(tree(text)) == [Bracket("NP", 0, 2), Bracket("S", 0, 2)]


def test_the_summary_is_over_all_brackets_and_leaves_errors_out() -> None:
    scores = [
        SentenceScore("ok", 5, gold=4, test=4, matched=4, crossing=0),
        SentenceScore("ok", 9, gold=6, test=1, matched=1, crossing=3),
        SentenceScore("ok", 2, gold=0, test=0, matched=0, crossing=0),
        SentenceScore("ok", 7, gold=2, test=5, matched=1, crossing=1),
        SentenceScore("error", 50),
        SentenceScore("skip", 1),
    ]
    assert summarise(scores) == {
        "sentences": 6,
        "errors": 1,
        "skipped": 1,
        "recall": 50.0,
        "precision": 60.0,
        "f1": pytest.approx(6000 / 110),
        "complete_match": 50.0,
        "average_crossing": 1.0,
        "no_crossing": 50.0,
        "at_most_two_crossing": 75.0,
    }


@pytest.mark.parametrize("scores", [[], [SentenceScore("error", 3)], [SentenceScore("ok", 1, 0, 2, 0, 0)]])
def test_where_nothing_matches_every_rate_is_zero(scores: list[SentenceScore]) -> None:
    figures = summarise(scores)
    assert (figures["recall"], figures["precision"], figures["f1"]) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("", "(TOP)"),
        ("a", "(TOP (S (NN a)))"),
        ("a b", "(TOP (S (NN a) (NN b)))"),
        ("a b c", "(TOP (S (NN a) (VP (NN b) (NN c))))"),
        ("a , b .", "(TOP (S (NN a) (, ,) (NN b) (. .)))"),
        (". a b , c d .", "(TOP (S (. .) (NN a) (VP (NN b) (, ,) (VP (NN c) (NN d) (. .)))))"),
        (", .", "(TOP (, ,) (. .))"),
    ],
)
def test_the_baseline_branches_to_the_right(sentence: str, expected: str) -> None:
    words = [Leaf(word if word in ",." else "NN", word) for word in sentence.split()]
    result = right_branching(words)
    assert to_penn(result) == expected
    assert leaves(result) == words
    found = brackets(result)
    assert len(set(found)) == len(found)
