"""Leave out sentence pairs that no model should learn from, and say how many went for which reason.

Files are read as bytes and split at ``\\n`` only, so that nothing within a line (a carriage return, U+2028, NUL) can
shift one side against the other. What is kept is written as it stood, except that each white-space character becomes a
blank. Source of the reasons and limits: the ``clean-corpus-n.perl`` of Moses, which counts words between blanks.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import shutil
from collections import Counter
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import IO, Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from vaswani_plugin.tools.cli import CommandError, atomic_path, chunk_progress, plural
from vaswani_plugin.tools.parallel import line_chunks, ordered_map

REASONS = ("encoding", "empty", "too long", "ratio", "duplicate")
BUCKETS = 64  # files over which the pairs' digests are spread, so that one at a time is in memory
DIGEST_BYTES = 8
_SPACE = re.compile(r"\s")
# Control characters that are no white space, and what a decoder puts where it did not understand.
_FAULT = re.compile("[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\ufffd]")

PairChunk = Tuple[List[bytes], List[bytes]]


@dataclass(frozen=True)
class Rules:
    """What a pair must satisfy.

    Attributes:
        max_words: most words of either side, counted between white space.
        max_ratio: most words of one side for each word of the other.
        drop_duplicates: keep only the first of equal pairs.
    """

    max_words: int = 250
    max_ratio: float = 9.0
    drop_duplicates: bool = True


@dataclass
class Report:
    """What became of one corpus's pairs.

    Attributes:
        read: pairs that were looked at.
        dropped: reason to number of pairs.
    """

    read: int = 0
    dropped: Dict[str, int] = field(default_factory=lambda: dict.fromkeys(REASONS, 0))

    def kept(self) -> int:
        """Return the number of pairs that are left."""
        return self.read - sum(self.dropped.values())

    def text(self, name: str) -> str:
        """Return one line for a person."""
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in self.dropped.items())
        return f"{name}: {plural(self.read, 'pair')} read, {self.kept():,} kept; dropped: {reasons}"


@dataclass(frozen=True)
class _Cleaned:
    """A chunk's kept lines, one digest a kept pair, and what was dropped."""

    source: List[bytes]
    target: List[bytes]
    digests: bytes
    read: int
    dropped: Mapping[str, int]


def clean(line: str) -> str:
    """Return the line with every white-space character made a blank.

    The toolkit splits pieces at any of them and its reader ends a line at some (carriage return, U+2028), so none may
    be left within a piece.
    """
    return _SPACE.sub(" ", line)


def fault(source: bytes, target: bytes, rules: Rules) -> Optional[str]:
    """Return the reason for which a pair is to be dropped, or None; duplicates are another matter."""
    try:
        sides = [source.decode("utf-8"), target.decode("utf-8")]
    except UnicodeDecodeError:
        return "encoding"
    if any(_FAULT.search(side) for side in sides):
        return "encoding"
    fewer, more = sorted(len(side.split()) for side in sides)
    if fewer == 0:
        return "empty"
    if more > rules.max_words:
        return "too long"
    return "ratio" if more > rules.max_ratio * fewer else None


def clean_pairs(
    corpora: Mapping[str, Tuple[Path, Path]], outputs: Tuple[Path, Path], rules: Rules, workers: int
) -> Dict[str, Report]:
    """Write the pairs that satisfy the rules, of all corpora one after the other.

    Args:
        corpora: name to its (source, target) files.
        outputs: the (source, target) files to write, which appear only when all is done.
        rules: what a pair must satisfy.
        workers: processes.

    Returns:
        The report of each corpus, by name.

    Raises:
        CommandError: two sides differ in their number of lines, or no pair is left.
    """
    reports = {name: Report() for name in corpora}
    with contextlib.ExitStack() as stack:
        partial = [stack.enter_context(atomic_path(path)) for path in outputs]
        scratch = stack.enter_context(_scratch(outputs[0].parent / ".cleaning"))
        paths = [scratch / "source", scratch / "target"] if rules.drop_duplicates else partial
        with open(paths[0], "wb") as source, open(paths[1], "wb") as target, _Digests(scratch) as digests:
            for name, files in corpora.items():
                chunks = chunk_progress(read_pairs(*files), f"clean {name}", lambda chunk: len(chunk[0]), "pair")
                for cleaned in ordered_map(_Cleaner(rules), chunks, workers):
                    _tally(reports[name], cleaned)
                    source.writelines(line + b"\n" for line in cleaned.source)
                    target.writelines(line + b"\n" for line in cleaned.target)
                    if rules.drop_duplicates:
                        digests.add(cleaned.digests)
        if rules.drop_duplicates:
            _drop_duplicates(paths, partial, digests.repeated(), reports)
        if not any(report.kept() for report in reports.values()):
            raise CommandError(f"{', '.join(corpora)}: no pair is left after cleaning")
    return reports


def read_pairs(source: Path, target: Path) -> Iterator[PairChunk]:
    """Yield chunks of parallel lines, without their ``\\n``.

    Raises:
        CommandError: the files differ in their number of lines; names both numbers.
    """
    with open(source, "rb") as source_handle, open(target, "rb") as target_handle:
        lines = 0
        chunk: PairChunk
        for chunk in zip_longest(line_chunks(source_handle), line_chunks(target_handle), fillvalue=[]):
            if len(chunk[0]) != len(chunk[1]):
                handles = (source_handle, target_handle)
                counts = [lines + len(side) + sum(1 for _ in rest) for side, rest in zip(chunk, handles)]
                raise CommandError(unequal(source, counts[0], target, counts[1]))
            lines += len(chunk[0])
            yield chunk


def unequal(source: Path, source_lines: int, target: Path, target_lines: int) -> str:
    """Return what is to be said of two files that are not parallel."""
    return (
        f"{source} has {plural(source_lines, 'line')} but {target} has {plural(target_lines, 'line')}; "
        "parallel files have the same number"
    )


@dataclass(frozen=True)
class _Cleaner:
    """What a worker does with a chunk."""

    rules: Rules

    def __call__(self, chunk: PairChunk) -> _Cleaned:
        source, target, digests = [], [], []
        dropped: Counter[str] = Counter()
        for pair in zip(*chunk):
            reason = fault(*pair, self.rules)
            if reason is not None:
                dropped[reason] += 1
                continue
            sides = [clean(side.decode("utf-8")).encode("utf-8") for side in pair]
            source.append(sides[0])
            target.append(sides[1])
            digests.append(hashlib.blake2b(b"\n".join(sides), digest_size=DIGEST_BYTES).digest())
        return _Cleaned(source, target, b"".join(digests), len(chunk[0]), dropped)


def _tally(report: Report, cleaned: _Cleaned) -> None:
    report.read += cleaned.read
    for reason, count in cleaned.dropped.items():
        report.dropped[reason] += count


@contextlib.contextmanager
def _scratch(folder: Path) -> Iterator[Path]:
    """Yield an empty folder that is removed at the end, and what a killed run left of it at the start."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Digests:
    """Digests of pairs on disk, in files by their first bits; equal ones meet in the same file.

    With 64 bits two different pairs among 40 million share a digest with a probability of 4e-5.
    """

    def __init__(self, folder: Path) -> None:
        self._paths = [folder / f"digests-{bucket}" for bucket in range(BUCKETS)]
        self._files: List[IO[bytes]] = []
        self._count = 0

    def __enter__(self) -> _Digests:
        for path in self._paths:
            self._files.append(open(path, "wb"))
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._files:
            handle.close()

    def add(self, digests: bytes) -> None:
        """Append the digests of the next pairs."""
        import numpy as np

        rows = np.empty((len(digests) // DIGEST_BYTES, 2), dtype=np.uint64)
        rows[:, 0] = np.frombuffer(digests, dtype=">u8")
        rows[:, 1] = np.arange(self._count, self._count + len(rows), dtype=np.uint64)
        self._count += len(rows)
        bucket = (rows[:, 0] >> np.uint64(58)).astype(np.int64)
        for number in np.unique(bucket):
            self._files[number].write(rows[bucket == number].tobytes())

    def repeated(self) -> Any:
        """Return a flag for each pair: whether an equal one came before it; (pairs,) bool, a byte each."""
        import numpy as np

        flags = np.zeros(self._count, dtype=bool)
        for path in self._paths:
            rows = np.fromfile(path, dtype=np.uint64).reshape(-1, 2)
            flags[rows[:, 1]] = True
            flags[rows[np.unique(rows[:, 0], return_index=True)[1], 1]] = False
        return flags


def _drop_duplicates(
    paths: Sequence[Path], outputs: Sequence[Path], repeated: Any, reports: Mapping[str, Report]
) -> None:
    """Copy the lines that are not repeated, and count those that are for the corpus that they stand in."""
    begin = 0
    for report in reports.values():
        end = begin + report.kept()
        report.dropped["duplicate"] = int(repeated[begin:end].sum())
        begin = end
    for path, output in zip(paths, outputs):
        with open(path, "rb") as source, open(output, "wb") as sink:
            sink.writelines(line for line, again in zip(source, repeated) if not again)
