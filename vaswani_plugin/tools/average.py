"""``vaswani-average``: the mean of several checkpoints of one run, as a checkpoint that the toolkit loads.

Source: "Attention Is All You Need", section 6.1: base models are the average of the last 5 checkpoints, big models of
the last 20. The toolkit's wheel ships no script for it.

The mean is taken in float64 and put back into each tensor's own dtype; integer tensors come from the last file; tensors
that share memory in every file share it in the mean. Everything but the weights comes from the last file, without the
optimizer's state and without an exponential moving average, and ``extra_state["averaged"]`` says what went in.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from vaswani_plugin.tools.cli import CommandError, help_texts, joined, plural, progress, run_command, save_checkpoint

# What the toolkit calls its files: after epoch 7, and after update 1200 in epoch 3.
PATTERNS = {
    "epoch": (re.compile(r"checkpoint(\d+)\.pt"), "checkpointE.pt"),
    "update": (re.compile(r"checkpoint_\d+_(\d+)\.pt"), "checkpoint_E_U.pt"),
}


def find_last(folder: Path, last: int, by: str) -> List[Path]:
    """Return the ``last`` newest checkpoints of a folder in numeric order, the newest at the end.

    Args:
        folder: the toolkit's ``--save-dir``.
        last: how many, at least 1.
        by: ``"epoch"`` for ``checkpointE.pt``, ``"update"`` for ``checkpoint_E_U.pt``.

    Raises:
        CommandError: the folder is missing or holds fewer such files.
    """
    if not folder.is_dir():
        raise CommandError(f"{folder}: no such folder")
    pattern, shape = PATTERNS[by]
    found = sorted(
        (int(match.group(1)), path) for path in folder.iterdir() for match in [pattern.fullmatch(path.name)] if match
    )
    if len(found) < last:
        raise CommandError(f"{folder}: --last {last} --by {by} needs {last} files {shape}, found {len(found)}")
    return [path for _, path in found[-last:]]


def average(paths: Sequence[Path]) -> Dict[str, Any]:
    """Return the mean of checkpoints as one checkpoint; one file at a time is in memory, and the sums.

    Raises:
        CommandError: no file, a file twice, a file without weights, or files whose weights differ in name or shape or
            are not finite; names the file and the weights.
    """
    if not paths:
        raise CommandError("no checkpoints to average")
    real = [os.path.realpath(path) for path in paths]
    twice = sorted({str(path) for path, place in zip(paths, real) if real.count(place) > 1})
    if twice:
        raise CommandError(f"given twice: {joined(twice)}")
    total: Dict[str, Any] = {}
    sharing: List[Dict[str, str]] = []
    averaged: List[Dict[str, Any]] = []
    state: Dict[str, Any] = {}
    for path in progress(paths, "average", unit="file"):
        state = load_weights(path)
        add_to(total, state["model"], path, first=paths[0])
        sharing.append(aliases(state["model"]))
        averaged.append({"file": path.name, "num_updates": num_updates(state)})
    mean = divide(total, len(paths), state["model"])
    return finish(state, share(mean, sharing), averaged)


def load_weights(path: Path) -> Dict[str, Any]:
    """Load a checkpoint safely and check that it holds a model."""
    from vaswani_plugin.toolkit import CheckpointError, load_checkpoint

    try:
        state = load_checkpoint(path)
    except CheckpointError as error:
        raise CommandError(str(error)) from error
    import torch

    model = state.get("model")
    if not isinstance(model, Mapping) or not model:
        raise CommandError(f"{path}: no weights under 'model'")
    others = [name for name, value in model.items() if not isinstance(value, torch.Tensor)]
    if others:
        raise CommandError(f"{path}: no tensors, but something else under {joined(others)}")
    return state


def add_to(total: Dict[str, Any], model: Mapping[str, Any], path: Path, first: Path) -> None:
    """Add a file's floating-point weights to the float64 sums; the first file makes them."""
    import torch

    fresh = not total
    if not fresh and total.keys() != model.keys():
        missing, extra = sorted(total.keys() - model.keys()), sorted(model.keys() - total.keys())
        words = [f"lacks {joined(missing)}"] * bool(missing) + [f"also has {joined(extra)}"] * bool(extra)
        raise CommandError(f"{path}: other weights than {first}: {' and '.join(words)}")
    for name, tensor in model.items():
        if not fresh and total[name].shape != tensor.shape:
            raise CommandError(
                f"{path}: {name} has shape {tuple(tensor.shape)}, but {tuple(total[name].shape)} in {first}"
            )
        if not tensor.is_floating_point():
            total[name] = tensor
            continue
        if not bool(torch.isfinite(tensor).all()):
            raise CommandError(f"{path}: {name} holds values that are not finite")
        value = tensor.to(torch.float64)
        total[name] = value.clone() if fresh else total[name].add_(value)


def divide(total: Mapping[str, Any], count: int, last: Mapping[str, Any]) -> Dict[str, Any]:
    """Return the sums over ``count``, each in the dtype that the last file has it in."""
    return {
        name: (value / count).to(last[name].dtype) if last[name].is_floating_point() else last[name]
        for name, value in total.items()
    }


def aliases(model: Mapping[str, Any]) -> Dict[str, str]:
    """Map each name to the first name that is the very same piece of memory, as tied weights are."""
    seen: Dict[Tuple[Any, ...], str] = {}
    result = {}
    for name, tensor in model.items():
        place = (tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride())
        result[name] = seen.setdefault(place, name) if tensor.numel() else name
    return result


def share(mean: Dict[str, Any], sharing: Sequence[Mapping[str, str]]) -> Dict[str, Any]:
    """Make names share a tensor where they share one in every file; ``torch.save`` then writes it once."""
    owners: Dict[Tuple[str, ...], str] = {}
    return {name: mean[owners.setdefault(tuple(alias[name] for alias in sharing), name)] for name in mean}


def num_updates(state: Mapping[str, Any]) -> Optional[int]:
    """Return the update that a checkpoint was written at, or None where it does not say."""
    history = state.get("optimizer_history")
    last = history[-1] if isinstance(history, list) and history else None
    return last.get("num_updates") if isinstance(last, Mapping) else None


def finish(state: Dict[str, Any], mean: Dict[str, Any], averaged: List[Dict[str, Any]]) -> Dict[str, Any]:
    """Return the last file's state around the mean, without what belongs to a single file."""
    result = {key: value for key, value in state.items() if key != "last_optimizer_state"}
    found = state.get("extra_state")
    extra = {key: value for key, value in found.items() if not key.startswith("ema")} if isinstance(found, dict) else {}
    extra["averaged"] = averaged
    result.update(model=mean, extra_state=extra)
    return result


def check_output(output: Path, paths: Sequence[Path]) -> None:
    """Refuse an output that is an input, or that would be one of the training's own files beside the inputs."""
    from vaswani_plugin.checkpoints import is_checkpoint_name

    if os.path.realpath(output) in map(os.path.realpath, paths):
        raise CommandError(f"--output {output} is one of the files to average")
    folders = {os.path.realpath(path.parent) for path in paths}
    if is_checkpoint_name(output.name) and os.path.realpath(output.parent) in folders:
        raise CommandError(f"--output {output}: a name of the training's own checkpoints; give the mean another")


def build_parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    parser = argparse.ArgumentParser(prog="vaswani-average", description=help_texts(__doc__)[0])
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--inputs", nargs="+", type=Path, metavar="FILE", help="the checkpoints to average")
    what.add_argument("--dir", type=Path, help="the folder that the toolkit saved to; needs --last")
    parser.add_argument("--last", type=int, metavar="N", help="with --dir: average the N newest")
    parser.add_argument(
        "--by",
        choices=sorted(PATTERNS),
        default="epoch",
        help="with --dir: count checkpoints of epochs or of --save-interval-updates (default: epoch)",
    )
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="where the mean goes")
    return parser


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run the command; returns its exit status."""
    parser = build_parser()
    args = parser.parse_args(argv)
    if args.dir is not None and (args.last is None or args.last < 1):
        parser.error(f"--dir needs --last N with N at least 1, not {args.last}")
    if args.inputs is not None and args.last is not None:
        parser.error("--last goes with --dir, not with --inputs")

    def body() -> None:
        paths = args.inputs if args.inputs is not None else find_last(args.dir, args.last, args.by)
        check_output(args.output, paths)
        save_checkpoint(average(paths), args.output)
        print(f"{args.output}: mean of {plural(len(paths), 'checkpoint')}: {', '.join(path.name for path in paths)}")

    return run_command("vaswani-average", body)


if __name__ == "__main__":
    sys.exit(main())
