"""Bracketed trees as sequences: reading Penn style files, the linear form that a model learns, and back.

A tree is a list of events in the order of the text: ``Open(label)``, ``Leaf(tag, word)`` and ``Close()``. So every
operation is one pass, however deep the tree. A clean tree has no root bracket, no function tags, no empty nodes::

    (ROOT (S (NP-SBJ (PRP It)) (VP (VBZ works) (NP (-NONE- *))) (. .)))      Penn style
    It works .                                                             words
    (S (NP XX )NP (VP XX )VP XX )S                                         linear form

Source: Vaswani et al. 2017, section 6.3, after Vinyals et al. 2015, "Grammar as a Foreign Language", section 2.2: a
depth-first traversal, closing brackets with labels, one symbol XX for every part-of-speech tag. Differs from them: on
request each tag stands there itself, ``(S (NP PRP )NP (VP VBZ )VP . )S``, or the symbols around each word are joined to
one, ``(S(NP*XX)NP (VP*XX)VP *XX)S``, as the shared tasks of CoNLL write parses.
"""

from __future__ import annotations

import itertools
import re
from typing import Dict, Iterable, Iterator, List, NamedTuple, Sequence, Tuple, Union


class Open(NamedTuple):
    """A constituent begins."""

    label: str


class Leaf(NamedTuple):
    """A word under its part-of-speech tag."""

    tag: str
    word: str


class Close(NamedTuple):
    """The innermost constituent ends."""


Event = Union[Open, Leaf, Close]
Tree = List[Event]

#: Labels of the bracket around a whole tree, which is no constituent: the treebank itself leaves its label out.
ROOT_LABELS = frozenset({"", "TOP", "ROOT", "S1"})
EMPTY_TAG = "-NONE-"  # the tag of what stands for no word, such as a trace
WORD_SYMBOL = "XX"
_TOKENS = re.compile(r"[()]|[^ \t\r\n\f\v()]+")
_LABEL_TAIL = re.compile(r"(?<=.)[-=].*")
_SPACE = re.compile(r"\s")
_JOINED = re.compile(r"[()][^()*]*|\*[^()]*")


class TreeError(ValueError):
    """Text that is no tree; ``line`` is the number of the line at fault, from 1."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line


def read_trees(lines: Iterable[str]) -> Iterator[Tree]:
    """Yield the trees of a Penn style text as they stand; a tree may span lines, and a line may hold several.

    Raises:
        TreeError: brackets that do not match, a word outside of a tag's bracket, a constituent without words.
    """
    reader = _Reader()
    for number, line in enumerate(lines, start=1):
        for token in _TOKENS.findall(line):
            reader.take(token, number)
            if reader.is_whole():
                yield reader.pop()
    reader.finish()


class _Reader:
    """What has been read of one tree: its events, and for each open bracket the line, the label and the atoms in it."""

    def __init__(self) -> None:
        self.events: Tree = []
        self.open: List[Tuple[int, List[str]]] = []  # line and atoms (label, word) of each open bracket

    def is_whole(self) -> bool:
        return bool(self.events) and not self.open

    def pop(self) -> Tree:
        tree, self.events = self.events, []
        return tree

    def take(self, token: str, line: int) -> None:
        if token == "(":
            if self.open:
                self._check_constituent(line)
            self.open.append((line, []))
            self.events.append(Open(""))
        elif not self.open:
            raise TreeError(line, "a closing bracket without an opening one" if token == ")" else _outside(token))
        elif token == ")":
            self._close(line)
        else:
            self._take_atom(token, line)

    def finish(self) -> None:
        if self.open:
            raise TreeError(self.open[0][0], "the tree that begins here is not closed")

    def _check_constituent(self, line: int) -> None:
        atoms = self.open[-1][1]
        if len(atoms) > 1:
            raise TreeError(line, f"a bracket after the word {atoms[1]!r}; a tag's bracket holds one word")

    def _take_atom(self, token: str, line: int) -> None:
        atoms = self.open[-1][1]
        if not isinstance(self.events[-1], Open):
            raise TreeError(line, _outside(token))
        if len(atoms) > 1:
            raise TreeError(line, f"two words, {atoms[1]!r} and {token!r}, in one tag's bracket")
        atoms.append(token)
        self.events[-1] = Open(atoms[0])

    def _close(self, line: int) -> None:
        atoms = self.open.pop()[1]
        if len(atoms) == 2:
            self.events[-1] = Leaf(atoms[0], atoms[1])
            return
        if isinstance(self.events[-1], Open) and (self.open or not ROOT_LABELS.intersection(atoms)):
            raise TreeError(line, f"a constituent without words: ({' '.join(atoms)})")
        self.events.append(Close())


def _outside(word: str) -> str:
    return f"the word {word!r} outside of a tag's bracket"


def bare_label(label: str) -> str:
    """A constituent's label without function tags and indices: ``NP-SBJ-1`` and ``NP=2`` become NP."""
    return _LABEL_TAIL.sub("", label)


def clean(tree: Tree) -> Tree:
    """The tree without root bracket, function tags, empty words, and the constituents that these leave empty."""
    kept: Tree = []
    for event in _without_root(tree):
        if isinstance(event, Open):
            kept.append(Open(bare_label(event.label)))
        elif isinstance(event, Close) or event.tag != EMPTY_TAG:
            _append(kept, event)
    return kept


def _without_root(tree: Tree) -> Sequence[Event]:
    is_root = bool(tree) and isinstance(tree[0], Open) and tree[0].label in ROOT_LABELS
    return tree[1:-1] if is_root else tree


def _append(tree: Tree, event: Event) -> None:
    """Append an event; a constituent that would close without words vanishes."""
    if isinstance(event, Close) and isinstance(tree[-1], Open):
        tree.pop()
    else:
        tree.append(event)


def subtrees(tree: Tree) -> List[Tree]:
    """The constituents inside a clean tree, each a clean tree, in the order in which they close.

    Of those over the same words the outermost; none over one word or over all of them.
    """
    found: Dict[Tuple[int, int], Tree] = {}
    begun: List[Tuple[int, int]] = []  # for each open constituent the numbers of the events and words before it
    place = 0
    for number, event in enumerate(tree):
        if isinstance(event, Open):
            begun.append((number, place))
        elif isinstance(event, Leaf):
            place += 1
        else:
            first, begin = begun.pop()
            found[begin, place] = tree[first : number + 1]
    return [subtree for (begin, end), subtree in found.items() if 1 < end - begin < place]


def leaves(tree: Tree) -> List[Leaf]:
    """The words and tags of a tree, in order."""
    return [event for event in tree if isinstance(event, Leaf)]


def words(tree: Tree) -> List[str]:
    """The words of a tree, with no white space within one, at which the toolkit would split it."""
    return [_SPACE.sub("_", leaf.word) for leaf in leaves(tree)]


def to_penn(tree: Tree) -> str:
    """A clean tree in Penn style on one line, within a bracket TOP; ``(TOP)`` when it has no words."""
    parts = ["(TOP"]
    for event in tree:
        if isinstance(event, Open):
            parts.append(f" ({event.label}")
        elif isinstance(event, Leaf):
            parts.append(f" ({event.tag} {event.word})")
        else:
            parts.append(")")
    return "".join(parts) + ")"


def linearise(tree: Tree, tags: bool = False) -> List[str]:
    """The symbols of a clean tree: ``(S``, ``XX`` for each word, ``)S``.

    Args:
        tree: a clean tree.
        tags: whether each word's tag stands there instead of XX.
    """
    symbols, labels = [], []
    for event in tree:
        if isinstance(event, Open):
            labels.append(event.label)
            symbols.append("(" + event.label)
        elif isinstance(event, Leaf):
            symbols.append(event.tag if tags else WORD_SYMBOL)
        else:
            symbols.append(")" + labels.pop())
    return symbols


def join_symbols(symbols: Iterable[str]) -> List[str]:
    """One symbol for each word: the brackets that open before it, ``*`` and its own symbol, those that close after it.

    Args:
        symbols: what ``linearise`` gave. A label with a ``*`` in it would not come back from ``split_symbols`` whole.
    """
    joined = [""]
    for symbol in symbols:
        if not symbol.startswith(")") and "*" in joined[-1]:
            joined.append("")
        joined[-1] += symbol if symbol.startswith(("(", ")")) else "*" + symbol
    return [symbol for symbol in joined if symbol]


def split_symbols(symbols: Iterable[str]) -> List[str]:
    """The inverse of ``join_symbols``; symbols that are not joined stay as they are."""
    split: List[str] = []
    for symbol in symbols:
        parts = _JOINED.findall(symbol) if symbol[0] in "()*" else [symbol]
        split.extend(part[1:] if part[0] == "*" and len(part) > 1 else part for part in parts)
    return split


def without_tags(symbols: Sequence[str]) -> List[str]:
    """The symbols with XX for whatever is no bracket: what ``linearise`` gives with tags as it gives it without."""
    return [symbol if symbol.startswith(("(", ")")) else WORD_SYMBOL for symbol in symbols]


def restore(symbols: Sequence[str], sentence: Sequence[Leaf]) -> Tree:
    """The clean tree over a sentence that symbols describe, well-formed whatever they are.

    The inverse of ``linearise`` for what that made. Anything else is repaired: a closing bracket also closes what is
    open inside its constituent, and is passed over where no such constituent is open; any symbol that is no bracket
    stands for a word, and is passed over beyond the last one; words that no symbol stands for end the outermost
    constituent, the last of several; what is open at the end is closed; constituents without words vanish.

    Args:
        symbols: what a model gave.
        sentence: the words, all of which are in the tree, in order; those with the tag XX take the symbols as tags.
    """
    tree: Tree = []
    labels: List[str] = []
    rest = iter(sentence)
    for symbol in symbols:
        if symbol.startswith("("):
            labels.append(symbol[1:])
            tree.append(Open(symbol[1:]))
        elif not symbol.startswith(")"):
            tree.extend(_tagged(leaf, symbol) for leaf in itertools.islice(rest, 1))
        elif symbol[1:] in labels:
            _close_down_to(tree, labels, len(labels) - 1 - labels[::-1].index(symbol[1:]))
    return _end(tree, labels, list(rest))


def _tagged(leaf: Leaf, symbol: str) -> Leaf:
    return Leaf(symbol, leaf.word) if leaf.tag == WORD_SYMBOL else leaf


def _close_down_to(tree: Tree, labels: List[str], depth: int) -> None:
    """Close the innermost constituents until ``depth`` are open."""
    while len(labels) > depth:
        labels.pop()
        _append(tree, Close())


def _end(tree: Tree, labels: List[str], rest: List[Leaf]) -> Tree:
    """Close what is open, with the words that are left at the end of the outermost constituent."""
    _close_down_to(tree, labels, 1)
    reopened = not labels and bool(rest) and bool(tree) and isinstance(tree[-1], Close)
    if reopened:
        tree.pop()
    tree.extend(rest)
    if reopened:
        tree.append(Close())
    _close_down_to(tree, labels, 0)
    return tree
