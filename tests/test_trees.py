"""Trees: reading Penn style text, the linear form and back, and the repair of what is no tree."""

from __future__ import annotations

import random

import pytest

from vaswani_plugin.trees import (
    Close,
    Leaf,
    Open,
    Tree,
    TreeError,
    bare_label,
    clean,
    join_symbols,
    leaves,
    linearise,
    read_trees,
    restore,
    split_symbols,
    subtrees,
    to_penn,
    without_tags,
    words,
)

PENN = """( (S
    (NP-SBJ-1 (NNP John) )
    (VP (VBZ has)
      (NP=2 (DT a) (NN dog) (SBAR (-NONE- 0) (S (NP (-NONE- *T*-1)))))
      (ADVP (-NONE- *)))
    (. .) ))
"""


def tree(text: str) -> Tree:
    (one,) = read_trees(text.split("\n"))
    return one


def test_events_are_in_the_order_of_the_text() -> None:
    assert tree("(S (NP (NN a)) (VP-X (VB b)))") == [
        Open("S"), Open("NP"), Leaf("NN", "a"), Close(), Open("VP-X"), Leaf("VB", "b"), Close(), Close(),
    ]  # fmt: skip


def test_a_treebank_tree_becomes_clean_and_linear() -> None:
    """The example of Vinyals et al. 2015, figure 2, with XX for the tags."""
    cleaned = clean(tree(PENN))
    assert to_penn(cleaned) == "(TOP (S (NP (NNP John)) (VP (VBZ has) (NP (DT a) (NN dog))) (. .)))"
    assert words(cleaned) == ["John", "has", "a", "dog", "."]
    assert " ".join(linearise(cleaned)) == "(S (NP XX )NP (VP XX (NP XX XX )NP )VP XX )S"


def test_tags_stand_in_the_linear_tree_on_request() -> None:
    """The example of Vinyals et al. 2015, figure 2, before they put XX for the tags."""
    symbols = linearise(clean(tree(PENN)), tags=True)
    assert " ".join(symbols) == "(S (NP NNP )NP (VP VBZ (NP DT NN )NP )VP . )S"
    assert without_tags(symbols) == linearise(clean(tree(PENN)))


@pytest.mark.parametrize(
    ("symbols", "joined"),
    [
        ("(S (NP XX )NP (VP XX (NP XX XX )NP )VP XX )S", "(S(NP*XX)NP (VP*XX (NP*XX *XX)NP)VP *XX)S"),
        ("(S (NP PRP )NP (VP VBZ )VP . )S", "(S(NP*PRP)NP (VP*VBZ)VP *.)S"),
        ("(NP (NP XX )NP )NP XX (ADVP|PRT XX )ADVP|PRT", "(NP(NP*XX)NP)NP *XX (ADVP|PRT*XX)ADVP|PRT"),
        ("-LRB- * XX", "*-LRB- ** *XX"),
        ("XX", "*XX"),
        ("", ""),
    ],
)
def test_symbols_are_joined_around_each_word_and_split_again(symbols: str, joined: str) -> None:
    assert join_symbols(symbols.split()) == joined.split()
    assert split_symbols(joined.split()) == symbols.split()


def test_symbols_that_are_not_joined_stay_as_they_are() -> None:
    symbols = ["(S", "XX", ")S", "<unk>", "*", "-LRB-", "(", ")"]
    assert split_symbols(symbols) == symbols


def test_lines_and_trees_need_not_agree() -> None:
    lines = ["", "(NN a) (TOP", "(NP (NN b)", "))(X (Y c))", "   "]
    assert [to_penn(clean(one)) for one in read_trees(lines)] == [
        "(TOP (NN a))", "(TOP (NP (NN b)))", "(TOP (X (Y c)))",
    ]  # fmt: skip
    assert list(read_trees([])) == []


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("(S (NP (NN a))", 1, "the tree that begins here is not closed"),
        ("(NN a)\n(S\n(NP (NN a))\n", 2, "the tree that begins here is not closed"),
        ("(S (NN a)))", 1, "a closing bracket without an opening one"),
        ("\n)", 2, "a closing bracket without an opening one"),
        ("(NN a)\nword", 2, "the word 'word' outside of a tag's bracket"),
        ("(S (NN a)\n b)", 2, "the word 'b' outside of a tag's bracket"),
        ("(NN a b)", 1, "two words, 'a' and 'b', in one tag's bracket"),
        ("(S a (NN b))", 1, "a bracket after the word 'a'; a tag's bracket holds one word"),
        ("(S (NP) (NN b))", 1, "a constituent without words: (NP)"),
        ("(S (NN b)\n ())", 2, "a constituent without words: ()"),
        ("(NP)", 1, "a constituent without words: (NP)"),
        ("()", 1, "a constituent without words: ()"),
        ("(TOP (NP ()))", 1, "a constituent without words: ()"),
    ],
)
def test_malformed_text_is_refused_with_its_line(text: str, line: int, reason: str) -> None:
    with pytest.raises(TreeError, match=".") as caught:
        list(read_trees(text.split("\n")))
    assert (caught.value.line, str(caught.value)) == (line, reason)


def test_trees_before_a_malformed_one_are_read() -> None:
    reader = read_trees(["(NN a)", "(("])
    assert next(reader) == [Leaf("NN", "a")]
    with pytest.raises(TreeError, match="^the tree that begins here is not closed$"):
        next(reader)


@pytest.mark.parametrize(
    ("label", "bare"),
    [
        ("NP", "NP"), ("NP-SBJ", "NP"), ("NP-SBJ-1", "NP"), ("NP=2", "NP"), ("ADVP|PRT", "ADVP|PRT"),
        ("-LRB-", "-LRB"), ("-", "-"), ("", ""),
    ],
)  # fmt: skip
def test_bare_label(label: str, bare: str) -> None:
    assert bare_label(label) == bare


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(ROOT (. .))", "(TOP (. .))"),
        ("(S1 (S (NN a)) (S (NN b)))", "(TOP (S (NN a)) (S (NN b)))"),
        ("(FRAG (NN a))", "(TOP (FRAG (NN a)))"),
        ("(NN a)", "(TOP (NN a))"),
        ("(TOP)", "(TOP)"),
        ("(TOP (S (NP (-NONE- *))))", "(TOP)"),
        ("(TOP (NP (NP (NN a))))", "(TOP (NP (NP (NN a))))"),
        ("(TOP (NP-SBJ (-LRB- -LRB-) (NN-X a)))", "(TOP (NP (-LRB- -LRB-) (NN-X a)))"),
    ],
)
def test_clean(text: str, expected: str) -> None:
    cleaned = clean(tree(text))
    assert to_penn(cleaned) == expected
    assert clean(tree(expected)) == cleaned


def test_words_hold_no_white_space() -> None:
    assert words([Leaf("CD", "10\u00a0000"), Leaf("NN", "a\u2028b"), Leaf("NN", "c")]) == ["10_000", "a_b", "c"]
    assert tree("(CD 10\u00a0000)") == [Leaf("CD", "10\u00a0000")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "(S (NP (NP (A a) (B b)) (PP (C c) (NP (D d)))) (VP (E e) (S (VP (F f) (G g)))) (. .))",
            ["(NP (A a) (B b))", "(PP (C c) (NP (D d)))", "(NP (NP (A a) (B b)) (PP (C c) (NP (D d))))",
             "(S (VP (F f) (G g)))", "(VP (E e) (S (VP (F f) (G g))))"],
        ),  # (NP (D d)) is over one word, (VP (F f) (G g)) inside (S ...) over the same words, the whole left out
        ("(S (VP (A a) (B b)))", []),
        ("(NP (A a))", []),
        ("(A a)", []),
        ("(TOP (NP (A a) (B b)) (, ,) (VP (C c) (D d)))", ["(NP (A a) (B b))", "(VP (C c) (D d))"]),
        ("(TOP)", []),
    ],
)  # fmt: skip
def test_subtrees(text: str, expected: list[str]) -> None:
    found = subtrees(clean(tree(text)))
    assert [to_penn(one) for one in found] == [f"(TOP {one})" for one in expected]
    assert [clean(one) for one in found] == found


def sentence(n: int) -> list[Leaf]:
    return [Leaf(f"T{place}", f"w{place}") for place in range(n)]


@pytest.mark.parametrize(
    ("symbols", "n", "expected"),
    [
        ("(S (NP XX )NP XX )S", 2, "(S (NP 0) 1)"),
        ("", 0, ""),
        ("", 2, "0 1"),
        ("(S (NP XX (PP XX", 2, "(S (NP 0 (PP 1)))"),  # never closed
        ("(S (NP XX (PP XX )S", 2, "(S (NP 0 (PP 1)))"),  # an outer bracket closes the inner ones
        ("(S (NP XX )VP XX )NP )S", 2, "(S (NP 0 1))"),  # )VP closes nothing
        (")S (S XX )S )S", 1, "(S 0)"),
        ("(S XX XX XX )S", 2, "(S 0 1)"),  # more XX than words
        ("(S XX )S XX (NP XX )NP", 1, "(S 0)"),
        ("(S (NP XX )NP )S", 3, "(S (NP 0) 1 2)"),  # fewer XX than words
        ("(S (NP XX", 3, "(S (NP 0) 1 2)"),
        ("(S XX )S (NP XX )NP", 3, "(S 0) (NP 1 2)"),
        ("(S XX )S XX", 3, "(S 0) 1 2"),
        ("(S (NP )NP XX )S", 1, "(S 0)"),  # a constituent without words
        ("(S )S", 2, "0 1"),
        ("(S", 2, "(S 0 1)"),
        ("(S <unk> XX foo )S", 1, "(S 0)"),
        ("(S (NP DT NN )NP VB )S", 3, "(S (NP 0 1) 2)"),  # tags, right or wrong, stand for words
        ("(S (NP DT NN )NP VB )S", 2, "(S (NP 0 1))"),
        ("(S (NP DT NN )NP VB )S", 4, "(S (NP 0 1) 2 3)"),
        ("(NP (NP XX )NP XX", 2, "(NP (NP 0) 1)"),  # closes the innermost of two with one label
        ("(S (NP XX )NP )S", 0, ""),
    ],
)
def test_restore_repairs(symbols: str, n: int, expected: str) -> None:
    result = restore(symbols.split(), sentence(n))
    text = to_penn(result)[len("(TOP") : -1].strip()
    for place in range(n):
        text = text.replace(f"(T{place} w{place})", str(place))
    assert text == expected


def random_tree(rng: random.Random, depth: int = 4) -> str:
    if depth == 0 or rng.random() < 0.3:
        return f"({rng.choice(['NN', ',', '-LRB-', 'VB'])} {rng.choice('abcdef')})"
    parts = [random_tree(rng, depth - 1) for _ in range(rng.randint(1, 3))]
    return f"({rng.choice(['S', 'NP', 'VP', 'NP'])} {' '.join(parts)})"


@pytest.mark.parametrize("seed", range(20))
def test_restore_undoes_linearise_and_reading_undoes_writing(seed: int) -> None:
    cleaned = clean(tree(f"(TOP {random_tree(random.Random(seed))} {random_tree(random.Random(seed + 100))})"))
    assert restore(linearise(cleaned), leaves(cleaned)) == cleaned
    assert restore(linearise(cleaned, tags=True), leaves(cleaned)) == cleaned
    joined = join_symbols(linearise(cleaned))
    assert len(joined) == len(leaves(cleaned))
    assert restore(split_symbols(joined), leaves(cleaned)) == cleaned
    assert clean(tree(to_penn(cleaned))) == cleaned


def test_words_without_tags_take_those_of_the_symbols() -> None:
    bare = [Leaf("XX", word) for word in ["the", "dog", "barks", "!"]]
    restored = restore(["(S", "(NP", "DT", "NN", ")NP", "(VP", "VBZ", ")VP", ")S"], bare)
    assert to_penn(restored) == "(TOP (S (NP (DT the) (NN dog)) (VP (VBZ barks)) (XX !)))"


@pytest.mark.parametrize("seed", range(50))
def test_whatever_a_model_says_becomes_a_tree_over_the_sentence(seed: int) -> None:
    rng = random.Random(seed)
    symbols = rng.choices(["(S", "(NP", ")S", ")NP", ")X", "XX", "<unk>"], k=rng.randint(0, 40))
    result = restore(symbols, sentence(rng.randint(0, 12)))
    n_words = len(leaves(result))
    assert leaves(result) == sentence(n_words)
    again = clean(tree(to_penn(result)))
    assert again == result  # balanced, and no constituent without words
    assert restore(linearise(result), leaves(result)) == result


def test_a_very_deep_tree_is_no_trouble() -> None:
    depth = 20_000
    symbols = ["(NP"] * depth + ["XX"]
    result = restore(symbols, sentence(1))
    assert len(result) == 2 * depth + 1
    assert clean(tree(to_penn(result))) == result
