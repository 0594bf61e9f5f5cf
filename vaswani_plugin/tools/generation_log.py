"""Read what ``fairseq-generate`` prints: every sentence once, in the order of the data, or an error that says why not.

The toolkit prints sentences in the order of their lengths, a few lines each::

    S-7<TAB>source            T-7<TAB>reference
    H-7<TAB>score<TAB>hypothesis as tokens        D-7<TAB>score<TAB>the same, detokenised
    P-7<TAB>score of each token

with H, D and P once for each of the n best, the best first, and one line ``Generate test with beam=4: ...`` at the end.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Dict, List, Optional, Tuple

from vaswani_plugin.tools.cli import CommandError, joined, read_lines

FINAL_LINE = re.compile(r"Generate .* with beam=\d+")
_TAGGED = re.compile(r"([STHDP])-(\d{1,18})\t(.*)", re.DOTALL)
_NBEST = re.compile(r"'nbest': (\d{1,18})\b")


@dataclass
class Sentence:
    """One sentence of the log.

    Attributes:
        source: text of its S line, None when there was none.
        hypotheses: texts of its H lines, the best first.
        detokenised: texts of its D lines, the best first.
        seen: (tag, text) of every S, T and H line, to notice one that is repeated.
    """

    source: Optional[str] = None
    hypotheses: List[str] = field(default_factory=list)
    detokenised: List[str] = field(default_factory=list)
    seen: List[Tuple[str, str]] = field(default_factory=list)

    def best(self) -> str:
        """Return the best hypothesis, detokenised where the log has it so."""
        return (self.detokenised or self.hypotheses)[0]


def read_log(path: Path, nbest: Optional[int] = None, must_end: bool = True) -> List[Sentence]:
    """Return the sentences of a finished log, ordered by number.

    Args:
        path: standard output of ``fairseq-generate``; other lines between are passed over.
        nbest: how many hypotheses a sentence may have; None means what the log itself says, else the same for all.
        must_end: refuse a log without the last line, which ``fairseq-interactive`` does not print; whoever takes such
            a log knows how many sentences there are.

    Raises:
        CommandError: the log is unfinished or broken, or a sentence is missing or repeated.
    """
    sentences: Dict[int, Sentence] = {}
    repeated: List[int] = []
    last, finished = -1, False
    for number, line in enumerate(read_lines(path), start=1):
        match = _TAGGED.fullmatch(line)
        if match is None:
            finished = finished or FINAL_LINE.match(line) is not None
            nbest = nbest or _stated_nbest(line)
            continue
        if finished:
            raise CommandError(f"{path}:{number}: a sentence after the line that ends the log; are these two logs?")
        tag, index, rest = match.group(1), int(match.group(2)), match.group(3)
        if index in sentences and index != last:
            repeated.append(index)
        last = index
        _take(sentences.setdefault(index, Sentence()), tag, rest, f"{path}:{number}")
    if must_end and not finished:
        raise CommandError(f'{path}: unfinished: no line "Generate ... with beam=..." that ends a log')
    repeated += [index for index, sentence in sentences.items() if len(set(sentence.seen)) < len(sentence.seen)]
    _check_complete(path, sentences, repeated, nbest)
    return [sentences[index] for index in range(len(sentences))]


def _stated_nbest(line: str) -> Optional[int]:
    match = _NBEST.search(line)
    return int(match.group(1)) if match else None


def _take(sentence: Sentence, tag: str, rest: str, where: str) -> None:
    """Store one line; the text of H and D lines is everything after the second tab, tabs included."""
    if tag in "HD":
        score, tab, text = rest.partition("\t")
        if not tab:
            raise CommandError(f"{where}: {tag} line without a tab after the score {score!r}")
        (sentence.hypotheses if tag == "H" else sentence.detokenised).append(text)
    elif tag == "S":
        sentence.source = rest
    if tag in "STH":
        sentence.seen.append((tag, "" if tag in "ST" else rest))


def _check_complete(path: Path, sentences: Dict[int, Sentence], repeated: List[int], nbest: Optional[int]) -> None:
    """Refuse repeated and missing sentences, and numbers of hypotheses that betray a repeated one."""
    if repeated:
        raise CommandError(f"{path}: repeated: {_sentences(repeated)}")
    if not sentences:
        raise CommandError(f"{path}: no sentences")
    if len(sentences) <= max(sentences):
        # Of the first len + 1 numbers one at least is missing; the highest may be any number in a broken log.
        missing = sorted(set(range(min(len(sentences) + 1, max(sentences)))) - sentences.keys())
        raise CommandError(f"{path}: missing: {_sentences(missing)}, though there is one with number {max(sentences)}")
    empty = [index for index in sorted(sentences) if not (sentences[index].hypotheses or sentences[index].detokenised)]
    if empty:
        raise CommandError(f"{path}: no hypothesis for {_sentences(empty)}")
    counts = {index: max(len(s.hypotheses), len(s.detokenised)) for index, s in sorted(sentences.items())}
    limit = nbest or min(counts.values())
    for index, count in counts.items():
        if count > limit:
            rule = f"the n-best size is {limit}" if nbest else f"others have {limit}"
            raise CommandError(
                f"{path}: sentence {index} has {count} hypotheses but {rule}; it is repeated, or --nbest must say more"
            )


def _sentences(indices: List[int]) -> str:
    unique = sorted(set(indices))
    return f"{'sentence' if len(unique) == 1 else 'sentences'} {joined(unique)}"
