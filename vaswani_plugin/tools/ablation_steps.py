"""One training of a row of Table 3, from binary data to its numbers, in steps that are commands of their own.

Its folder then holds the output of each step (``train.out`` and so on), ``checkpoint_last.pt``, ``generate-valid.txt``,
``score.json``, and at the very end ``result.json``; where that one is, everything is done.
"""

from __future__ import annotations

import ctypes
import json
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

from vaswani_plugin.preemption import SAVED_STATUS
from vaswani_plugin.tools.ablation_rows import Row, model_options
from vaswani_plugin.tools.average import load_weights
from vaswani_plugin.tools.cli import CommandError, atomic_path, read_lines
from vaswani_plugin.tools.curves import parse_line
from vaswani_plugin.tools.manifest import Manifest

#: How long a training may take to save when it is asked to stop.
GRACE_SECONDS = 600.0
_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
Step = Tuple[str, List[str]]


@dataclass(frozen=True)
class Data:
    """What ``vaswani-prepare`` made.

    Attributes:
        binary: the toolkit's binary data.
        reference: the raw target side of the development set.
        pieces: the option of ``vaswani-score`` that joins its subwords.
    """

    binary: Path
    reference: Path
    pieces: str


@dataclass(frozen=True)
class Settings:
    """What all trainings share.

    Attributes:
        shrink, halve_layers: how the rows are made smaller.
        max_update: of base; a row of length 3 gets three times as many.
        average: mean of so many last epochs; 1 takes the last checkpoint, as Table 3 does.
        translate_tokens: tokens at once in validating and translating.
        place: words of ``vaswani-train`` that say where it runs and how the batch is shared out.
        more: options for ``fairseq-train``, which win over everything.
    """

    shrink: int
    halve_layers: bool
    max_update: int
    average: int
    translate_tokens: int
    place: Sequence[str]
    more: Sequence[str]

    @property
    def on_cpu(self) -> bool:
        """Whether everything runs on the processor."""
        return "--cpu" in self.place


def find_data(folder: Path, reference: Optional[Path]) -> Data:
    """Look through a folder of ``vaswani-prepare``.

    Args:
        reference: the raw target side of the development set, where it is not where it was.

    Raises:
        CommandError: the folder is something else, or the reference is missing.
    """
    if not (folder / "bin").is_dir() or not (folder / "manifest.json").is_file():
        raise CommandError(f"{folder}: not a folder that vaswani-prepare made: it needs bin and manifest.json")
    found = sorted((folder / "bin").glob("valid.*-*.*.idx"))
    if not found:
        raise CommandError(f"{folder / 'bin'}: no binary data of a development set (valid.SRC-TGT.SRC.idx)")
    target = found[0].name.split(".")[1].split("-")[1]
    if reference is None:
        raw = Manifest(folder).data.get("raw", {}).get(f"valid.{target}")
        if raw is None:
            raise CommandError(f"{folder}: its manifest names no raw valid.{target}; give it with --ref")
        reference = Path(raw)
    if not reference.is_file():
        raise CommandError(f"{reference}: no such file; --ref says where the raw target side of the development set is")
    pieces = "--sentencepiece" if (folder / "spm.model").is_file() else "--subword-nmt"
    return Data(folder / "bin", reference, pieces)


def _module(name: str) -> List[str]:
    return [sys.executable, "-m", name]


def train_options(row: Row, settings: Settings) -> List[str]:
    """What ``fairseq-train`` is told beyond the recipe of ``vaswani-train``."""
    words = ["--label-smoothing", str(row.smoothing), "--disable-validation"]
    if settings.average == 1:
        words.append("--no-epoch-checkpoints")
    for name, value in model_options(row, settings.shrink, settings.halve_layers).items():
        words += [f"--{name.replace('_', '-')}", str(value)]
    return [*words, *settings.more]


def steps(row: Row, seed: int, folder: Path, data: Data, settings: Settings) -> List[Step]:
    """The commands of one training by name, in order."""
    user_dir = str(Path(__file__).resolve().parents[1])
    checkpoint = folder / ("average.pt" if settings.average > 1 else "checkpoint_last.pt")
    common = [str(data.binary), "--user-dir", user_dir, "--task", "vaswani_translation", "--path", str(checkpoint)]
    common += ["--max-tokens", str(settings.translate_tokens), "--num-workers", "0", *["--cpu"] * settings.on_cpu]
    keep = ["--keep-last-epochs", str(settings.average)] if settings.average > 1 else []
    found = [(
        "train",
        [*_module("vaswani_plugin.tools.train"), str(data.binary), "--save-dir", str(folder), "--arch", row.arch,
         "--max-update", str(row.length * settings.max_update), "--seed", str(seed), *settings.place, *keep,
         "--", *train_options(row, settings)],
    )]  # fmt: skip
    if settings.average > 1:
        words = ["--dir", str(folder), "--last", str(settings.average), "--output", str(checkpoint)]
        found.append(("average", [*_module("vaswani_plugin.tools.average"), *words]))
    found += [
        ("validate", [*_module("fairseq_cli.validate"), *common, "--valid-subset", "valid", "--log-format", "simple"]),
        ("translate", [*_module("fairseq_cli.generate"), *common, "--gen-subset", "valid",
                       "--results-path", str(folder)]),
        ("score", [*_module("vaswani_plugin.tools.score"), "--log", str(folder / "generate-valid.txt"), data.pieces,
                   "--ref", str(data.reference), "--json", str(folder / "score.json")]),
    ]  # fmt: skip
    return found


def _end_with_parent() -> None:
    """Have the kernel ask the step to stop when this command is killed, where there is such a kernel (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def run_step(name: str, words: Sequence[str], folder: Path) -> None:
    """Run a command with its output in ``NAME.out``; asked to stop, hand that on and wait until it has saved.

    Raises:
        CommandError: it failed, or a training was asked to stop by somebody else.
    """
    log = folder / f"{name}.out"
    with open(log, "w", encoding="utf-8") as handle:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=handle, stderr=subprocess.STDOUT,
            start_new_session=True, preexec_fn=_end_with_parent,
        )  # fmt: skip
        try:
            status = process.wait()
        except BaseException:  # Ctrl-C and SIGTERM, which run_command makes an exception
            process.terminate()
            process.wait(GRACE_SECONDS)
            raise
    if status == SAVED_STATUS:
        raise CommandError(f"{folder}: the training was asked to stop and has saved; the same command goes on")
    if status != 0:
        raise CommandError(f"step {name} failed with status {status}; its output is in {log}{_last_line(log)}")


def _last_line(log: Path) -> str:
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return f": {lines[-1].strip()}" if lines else ""


def perplexity(log: Path) -> float:
    """The perplexity of a token that ``fairseq-validate`` printed.

    Raises:
        CommandError: it printed none.
    """
    for line in read_lines(log):
        parsed = parse_line(re.sub(r"\| valid \| +\|", "| valid |", line))
        if parsed is not None and parsed[0] == "valid" and "ppl" in parsed[1]:
            return parsed[1]["ppl"]
    raise CommandError(f"{log}: no perplexity")


def parameters(checkpoint: Path) -> int:
    """How many parameters a checkpoint holds, a shared one once."""
    model = load_weights(checkpoint)["model"]
    return sum({tensor.data_ptr(): int(tensor.numel()) for tensor in model.values()}.values())


def result_of(row: Row, seed: int, folder: Path, settings: Settings) -> Dict[str, Any]:
    """The numbers of a finished training."""
    bleu = json.loads((folder / "score.json").read_text(encoding="utf-8"))["bleu"]
    return {
        "seed": seed,
        "steps": row.length * settings.max_update,
        "ppl": perplexity(folder / "validate.out"),
        "bleu": float(bleu["score"]),
        "signature": str(bleu["signature"]),
        "parameters": parameters(folder / "checkpoint_last.pt"),
    }


def finished(folder: Path) -> Optional[Dict[str, Any]]:
    """The numbers of a training that is done, None for others."""
    path = folder / "result.json"
    if not path.is_file():
        return None
    found: Dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def train_and_score(row: Row, seed: int, folder: Path, data: Data, settings: Settings) -> None:
    """Do whatever is missing of one training.

    Raises:
        CommandError: a step failed.
    """
    if finished(folder) is not None:
        return
    folder.mkdir(parents=True, exist_ok=True)
    for name, words in steps(row, seed, folder, data, settings):
        run_step(name, words, folder)
    with atomic_path(folder / "result.json") as partial:
        partial.write_text(json.dumps(result_of(row, seed, folder, settings), indent=2) + "\n", encoding="utf-8")
