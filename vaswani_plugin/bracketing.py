"""Labelled bracketing scores of parse trees by the rules of EVALB with its parameter file COLLINS.prm.

A bracket is (label, begin, end) over the words that count. The rules:

- words tagged ``, : `` '' .`` or ``-NONE-`` do not count, in each tree by its own tags; ``-LRB-`` and others do;
- brackets over no word, root brackets and those with such labels do not count; tags are no brackets;
- of a label only what comes before the first ``-`` or ``=`` counts, and PRT is the same as ADVP;
- equal brackets are matched one to one;
- a sentence whose words differ from the gold ones is an error, one without words is skipped: neither adds anything.

Source: EVALB (Sekine and Collins 1997), ``COLLINS.prm``. Differs from it: brackets labelled ROOT, S1 or nothing are
root brackets as TOP is, lest a bracket that is always right be counted; there is no limit of length.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Counter as CounterType
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from .trees import EMPTY_TAG, ROOT_LABELS, Close, Leaf, Open, Tree, leaves

PUNCTUATION_TAGS = frozenset({",", ":", "``", "''", "."})
DELETED = ROOT_LABELS | PUNCTUATION_TAGS | {EMPTY_TAG}
EQUAL_LABELS = {"PRT": "ADVP"}
SHORT = 40  # words, punctuation included, of the sentences that EVALB also counts apart
_LABEL_TAIL = re.compile(r"[-=].*")


class Bracket(NamedTuple):
    """A constituent over words begin to end - 1."""

    label: str
    begin: int
    end: int

    def crosses(self, other: Bracket) -> bool:
        """Whether the two overlap without one holding the other."""
        return self.begin < other.begin < self.end < other.end or other.begin < self.begin < other.end < self.end


@dataclass(frozen=True)
class SentenceScore:
    """Counts of one sentence.

    Attributes:
        status: "ok", "error" (words that differ) or "skip" (no words that count); the counts are 0 but for "ok".
        length: the gold tree's words, punctuation included.
        gold, test, matched: numbers of brackets.
        crossing: test brackets that cross a gold one.
    """

    status: str
    length: int
    gold: int = 0
    test: int = 0
    matched: int = 0
    crossing: int = 0


def counted_words(tree: Tree) -> List[str]:
    """The words that count."""
    return [leaf.word for leaf in leaves(tree) if leaf.tag not in DELETED]


def counted_label(label: str) -> Optional[str]:
    """The label as it is compared; None for a bracket that does not count.

    A label that begins with a hyphen is compared as an empty one, as in EVALB.
    """
    core = _LABEL_TAIL.sub("", label)
    return None if label == "" or (core and core in DELETED) else EQUAL_LABELS.get(core, core)


def brackets(tree: Tree, labelled: bool = True) -> List[Bracket]:
    """The brackets that count, in the order in which they close; all labels are "" where they shall not matter."""
    found: List[Bracket] = []
    begun: List[Tuple[Optional[str], int]] = []
    place = 0
    for event in tree:
        if isinstance(event, Open):
            begun.append((counted_label(event.label), place))
        elif isinstance(event, Leaf):
            place += event.tag not in DELETED
        else:
            label, begin = begun.pop()
            if label is not None and begin < place:
                found.append(Bracket(label if labelled else "", begin, place))
    return found


def score_sentence(gold: Tree, test: Tree, labelled: bool = True) -> SentenceScore:
    """Compare a tree with the gold one."""
    length = sum(leaf.tag != EMPTY_TAG for leaf in leaves(gold))
    test_words = counted_words(test)
    if not test_words:
        return SentenceScore("skip", length)
    if counted_words(gold) != test_words:
        return SentenceScore("error", length)
    gold_brackets, test_brackets = brackets(gold, labelled), brackets(test, labelled)
    common: CounterType[Bracket] = Counter(gold_brackets) & Counter(test_brackets)
    crossing = sum(any(one.crosses(other) for other in gold_brackets) for one in test_brackets)
    return SentenceScore("ok", length, len(gold_brackets), len(test_brackets), sum(common.values()), crossing)


def summarise(scores: Sequence[SentenceScore]) -> Dict[str, float]:
    """The figures that EVALB prints, over all sentences given; percentages from 0 to 100, 0 where nothing counts."""
    valid = [score for score in scores if score.status == "ok"]
    matched = sum(score.matched for score in valid)
    recall = _percent(matched, sum(score.gold for score in valid))
    precision = _percent(matched, sum(score.test for score in valid))
    return {
        "sentences": len(scores),
        "errors": sum(score.status == "error" for score in scores),
        "skipped": sum(score.status == "skip" for score in scores),
        "recall": recall,
        "precision": precision,
        "f1": 2 * precision * recall / (precision + recall) if matched else 0.0,
        "complete_match": _percent(sum(s.gold == s.test == s.matched for s in valid), len(valid)),
        "average_crossing": _percent(sum(score.crossing for score in valid), len(valid)) / 100,
        "no_crossing": _percent(sum(score.crossing == 0 for score in valid), len(valid)),
        "at_most_two_crossing": _percent(sum(score.crossing <= 2 for score in valid), len(valid)),
    }


def _percent(part: int, whole: int) -> float:
    return 100.0 * part / whole if whole else 0.0


def right_branching(sentence: Sequence[Leaf]) -> Tree:
    """The baseline tree: S over the sentence, and VP over every end of it that holds at least two words that count.

    No bracket begins with punctuation, which would count the next one twice.
    """
    counted = [place for place, leaf in enumerate(sentence) if leaf.tag not in DELETED]
    labels = {**dict.fromkeys(counted[1:-1], "VP"), **({0: "S"} if counted else {})}
    tree: Tree = []
    for place, leaf in enumerate(sentence):
        if place in labels:
            tree.append(Open(labels[place]))
        tree.append(leaf)
    return tree + [Close()] * len(labels)
