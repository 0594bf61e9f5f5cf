"""A record of finished steps, so that a command that is run again does only what is missing.

``manifest.json`` holds for each step its settings, the size and SHA-256 of what it read, and those of what it wrote.
A step counts as done when all three still agree; where an input lies does not matter, what it holds does.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Mapping, Sequence, Tuple

from vaswani_plugin.tools.cli import CommandError, alone, atomic_path, sha256_of

FORMAT = 1


class Manifest:
    """The steps that were finished in one folder.

    Args:
        folder: what the outputs' names are relative to; holds ``manifest.json``.

    Attributes:
        ran: first words of the steps that ``step`` had to run, in order, each once.

    Raises:
        CommandError: an existing manifest cannot be read or has another format.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "manifest.json"
        self.data: Dict[str, Any] = {"format": FORMAT, "steps": {}}
        self.ran: List[str] = []
        self._known: Dict[Tuple[str, int, int], str] = {}
        if self.path.exists():
            self.data = _load(self.path)

    def step(
        self,
        name: str,
        settings: Mapping[str, Any],
        inputs: Mapping[str, Path],
        work: Callable[[], None],
        outputs: Callable[[], Sequence[Path]],
    ) -> None:
        """Do a step unless it is done, and write down that it is.

        Args:
            name: of the step; its first word is the kind of work.
            settings: what the work depends on beside its inputs.
            inputs: the files that it reads, by a name that does not depend on where they lie.
            work: does it.
            outputs: says, afterwards, what was written.
        """
        if self.is_done(name, settings, inputs):
            return
        self.forget(name)
        work()
        self.record(name, settings, inputs, outputs())
        kind = name.split(" ")[0]
        if kind not in self.ran:
            self.ran.append(kind)

    def is_done(self, step: str, settings: Mapping[str, Any], inputs: Mapping[str, Path]) -> bool:
        """Say whether ``step`` was finished with these settings and inputs and its outputs are unharmed."""
        record = self.data["steps"].get(step)
        if record is None or record["settings"] != dict(settings):
            return False
        found = {label: _without_path(self._fingerprint(path)) for label, path in inputs.items()}
        if {label: _without_path(entry) for label, entry in record["inputs"].items()} != found:
            return False
        return all(self._is_intact(name, entry) for name, entry in record["outputs"].items())

    def record(
        self, step: str, settings: Mapping[str, Any], inputs: Mapping[str, Path], outputs: Sequence[Path]
    ) -> None:
        """Write down that ``step`` is finished; ``outputs`` lie in the manifest's folder."""
        self.data["steps"][step] = {
            "settings": dict(settings),
            "inputs": {label: self._fingerprint(path) for label, path in inputs.items()},
            "outputs": {
                output.relative_to(self.folder).as_posix(): _without_path(self._fingerprint(output))
                for output in sorted(outputs)
            },
        }
        self.save()

    def forget(self, step: str) -> None:
        """Take ``step`` out before its outputs are replaced, so that a crash half-way leaves it undone."""
        if self.data["steps"].pop(step, None) is not None:
            self.save()

    def digest(self, path: Path) -> str:
        """Return the SHA-256 of a file, computed once as long as its size and time do not change."""
        return str(self._fingerprint(path)["sha256"])

    def note(self, key: str, value: Any) -> None:
        """Write a fact beside the steps, such as where the raw references lie."""
        if self.data.get(key) != value:
            self.data[key] = value
            self.save()

    def save(self) -> None:
        """Write ``manifest.json``, whole or not at all."""
        with atomic_path(self.path) as partial:
            partial.write_text(json.dumps(self.data, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

    def _fingerprint(self, path: Path) -> Dict[str, Any]:
        status = os.stat(path)
        key = (str(path), status.st_size, status.st_mtime_ns)
        if key not in self._known:
            self._known[key] = sha256_of(path)
        return {"path": str(path), "size": status.st_size, "sha256": self._known[key]}

    def _is_intact(self, name: str, entry: Mapping[str, Any]) -> bool:
        path = self.folder / name
        if not path.is_file() or path.stat().st_size != entry["size"]:
            return False
        return _without_path(self._fingerprint(path)) == dict(entry)


@contextlib.contextmanager
def filling(folder: Path) -> Iterator[Manifest]:
    """Yield the manifest of a folder that no other process fills meanwhile; ``.lock`` in it keeps others out.

    Raises:
        CommandError: another process is at work there, or the folder cannot be made.
    """
    if folder.is_dir() and not os.access(folder, os.W_OK):  # no one fills it; all may be there already
        yield Manifest(folder)
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CommandError(f"--dest {folder}: cannot be made: {error.strerror}") from error
    with alone(folder / ".lock", f"--dest {folder}: another vaswani-prepare is at work there"):
        yield Manifest(folder)


def _without_path(entry: Mapping[str, Any]) -> Dict[str, Any]:
    return {key: value for key, value in entry.items() if key != "path"}


def _load(path: Path) -> Dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CommandError(f"{path}: not a manifest ({error}); remove it to start anew") from error
    if not isinstance(data, dict) or data.get("format") != FORMAT or not isinstance(data.get("steps"), dict):
        raise CommandError(f"{path}: not a manifest of format {FORMAT}; remove it to start anew")
    return data
