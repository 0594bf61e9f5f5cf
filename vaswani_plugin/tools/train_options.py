"""The options of ``vaswani-train``, and what they are for ``fairseq-train``."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import List, Sequence

from vaswani_plugin.preemption import SAVED_STATUS
from vaswani_plugin.tools.batch_plan import PAPER_BATCH, USUAL_TOKENS, BatchPlan
from vaswani_plugin.tools.cli import CommandError, joined, positive

#: The paper's training (sections 5.3 and 5.4) in the toolkit's words.
RECIPE = [
    "--task", "vaswani_translation", "--share-all-embeddings",
    "--criterion", "vaswani_label_smoothed_cross_entropy", "--label-smoothing", "0.1",
    "--optimizer", "vaswani_adam",
    "--lr-scheduler", "vaswani_inverse_sqrt", "--warmup-updates", "4000",
    "--no-progress-bar", "--log-format", "simple", "--log-interval", "100",
]  # fmt: skip

#: Options of the recipe that another criterion or scheduler may not know, and what names another one.
OF_COMPONENTS = {"--label-smoothing": "--criterion", "--warmup-updates": "--lr-scheduler"}

#: Options of fairseq-train that follow from ours, and the one to give instead.
OURS = {
    "--save-dir": "--save-dir", "--arch": "--arch", "-a": "--arch", "--max-update": "--max-update", "--seed": "--seed",
    "--max-tokens": "--max-tokens", "--update-freq": "--update-freq", "--cpu": "--cpu", "--fp16": "--fp16",
    "--bf16": "--bf16", "--batch-size": "--max-tokens", "--max-sentences": "--max-tokens",
    "--tensorboard-logdir": "--tensorboard", "--user-dir": "nothing: the plugin is loaded always",
    "--distributed-world-size": "--gpus or --workers", "--distributed-rank": "--node-rank",
    "--distributed-init-method": "--master", "--distributed-port": "--master",
    "--distributed-no-spawn": "--gpus or --workers", "--device-id": "CUDA_VISIBLE_DEVICES",
}  # fmt: skip


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of what comes before ``--``."""
    parser = argparse.ArgumentParser(
        prog="vaswani-train",
        usage="%(prog)s DATA --save-dir DIR [options] [-- OPTIONS OF fairseq-train]",
        description="Trains with the paper's settings on one worker or many, and resumes by itself.",
        epilog=f"Exit status: 0 the training is complete; {SAVED_STATUS} it was asked to stop (SIGTERM, SIGUSR1, "
        "Ctrl-C), has saved, and goes on when the same command is given again; 1 it failed; 2 wrong options.",
        allow_abbrev=False,
    )
    parser.add_argument("data", metavar="DATA", help="folder of the toolkit's binary data")
    parser.add_argument("--save-dir", type=Path, required=True, metavar="DIR", help="checkpoints and train.log")
    parser.add_argument("--arch", default="vaswani_base", metavar="NAME", help="architecture (default: %(default)s)")
    parser.add_argument("--source-lang", metavar="LANG", help="default: as the data's names say")
    parser.add_argument("--target-lang", metavar="LANG", help="default: as the data's names say")
    parser.add_argument("--max-update", type=positive, default=100_000, metavar="N", help="default: %(default)s")
    parser.add_argument("--seed", type=positive, default=1, metavar="N", help="default: %(default)s")
    half = parser.add_mutually_exclusive_group()
    half.add_argument("--fp16", action="store_true", help="float16 (on a CPU with weights in float16, too: for trials)")
    half.add_argument("--bf16", action="store_true", help="matrix products in bfloat16, weights in float32")
    parser.add_argument("--curves", action="store_true", help="draw DIR/curves.png at the end")
    parser.add_argument("--tensorboard", action="store_true", help="write TensorBoard logs under DIR/tensorboard")
    parser.add_argument("--dry-run", action="store_true", help="print the plan and the commands, start nothing")
    parser.add_argument(
        "--grace", type=positive, default=600, metavar="SECONDS", help="for saving when asked to stop (default: 600)"
    )
    _add_workers(parser.add_argument_group("workers"))
    _add_batch(parser.add_argument_group("batch"))
    _add_checkpoints(parser.add_argument_group("checkpoints, beside the last and the best"))
    return parser


def _add_workers(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--gpus", type=positive, metavar="N", help="GPUs of a machine (default: all)")
    group.add_argument("--cpu", action="store_true", help="train on the processor")
    group.add_argument("--workers", type=positive, default=1, metavar="N", help="with --cpu: processes (default: 1)")
    group.add_argument("--nodes", type=positive, default=1, metavar="N", help="machines (default: 1)")
    group.add_argument("--node-rank", type=int, default=0, metavar="R", help="which of them this is, from 0")
    group.add_argument("--master", metavar="HOST:PORT", help="where machine 0 is reached; for several machines")


def _add_batch(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--target-batch", type=positive, default=PAPER_BATCH, metavar="TOKENS",
        help="tokens of an update over all workers (default: the paper's %(default)s)",
    )  # fmt: skip
    group.add_argument(
        "--max-tokens", type=positive, metavar="TOKENS",
        help=f"tokens that a worker takes at once (default: what meets the target with at most {USUAL_TOKENS})",
    )  # fmt: skip
    group.add_argument(
        "--update-freq", type=positive, metavar="N",
        help="such portions of a worker for one update (default: what meets the target)",
    )  # fmt: skip


def _add_checkpoints(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--save-interval-updates", type=positive, metavar="N", help="save every N updates as well")
    group.add_argument("--keep-interval-updates", type=positive, metavar="N", help="keep the last N of those")
    group.add_argument("--keep-last-epochs", type=positive, metavar="N", help="keep the last N epochs (default: all)")
    group.add_argument("--keep-best", type=positive, metavar="N", help="keep the N best")


def require_data(args: argparse.Namespace, more: Sequence[str]) -> None:
    """Look whether the folder holds binary data of the languages, before a worker is started for it.

    Args:
        args: our options; the folder may be several, as the toolkit reads them.
        more: the options after ``--``; data of another task are the toolkit's to check.

    Raises:
        CommandError: a folder is missing, or what should be in the first.
    """
    folders = [Path(name) for name in args.data.split(os.pathsep)]
    for folder in folders:
        if not folder.is_dir():
            raise CommandError(f"{folder}: {'not a folder' if folder.exists() else 'no such folder'}")
    if any(word.split("=")[0] == "--task" for word in more):
        return
    there = sorted(path.name.split(".")[1] for path in folders[0].glob("dict.*.txt"))
    missing = [language for language in (args.source_lang, args.target_lang) if language and language not in there]
    if not there or not any(folders[0].glob("train.*-*.*")):
        raise CommandError(f"{folders[0]}: no binary data, such as train.en-de.en.bin and dict.en.txt, are there")
    if missing:
        raise CommandError(f"{folders[0]}: no dict.{missing[0]}.txt; its languages are {joined(there)}")


def _recipe(more: Sequence[str]) -> List[str]:
    """The recipe without the options that do not go with those after ``--``."""
    words, given = list(RECIPE), {word.split("=")[0] for word in more}
    if "--tie-embeddings" in given:
        words.remove("--share-all-embeddings")
    for name, component in OF_COMPONENTS.items():
        if component in given:
            at = words.index(name)
            del words[at : at + 2]
    return words


def toolkit_options(args: argparse.Namespace, plan: BatchPlan, more: Sequence[str]) -> List[str]:
    """Return the words of ``fairseq-train`` after its name.

    Raises:
        CommandError: one of ``more`` is an option that follows from ours, or an option lacks the one that it goes with,
            where the toolkit would overlook it.
    """
    if (args.source_lang is None) != (args.target_lang is None):
        raise CommandError("--source-lang and --target-lang go together; without both the data's names say them")
    if args.keep_interval_updates and not args.save_interval_updates:
        raise CommandError("--keep-interval-updates goes with --save-interval-updates")
    for word in more:
        instead = OURS.get(word.split("=")[0])
        if instead:
            raise CommandError(f"{word.split('=')[0]} after -- has no place there; give {instead} before it")
    user_dir = str(Path(__file__).resolve().parents[1])
    words = [args.data, "--user-dir", user_dir, "--save-dir", str(args.save_dir), "--arch", args.arch, *_recipe(more)]
    for name in ("source_lang", "target_lang", "save_interval_updates", "keep_interval_updates", "keep_last_epochs"):
        if getattr(args, name) is not None:
            words += [f"--{name.replace('_', '-')}", str(getattr(args, name))]
    if args.keep_best:
        words += ["--keep-best-checkpoints", str(args.keep_best)]
    words += ["--max-tokens", str(plan.max_tokens), "--update-freq", str(plan.update_freq)]
    words += ["--max-update", str(args.max_update), "--seed", str(args.seed)]
    if args.cpu:
        words.append("--cpu")
    if args.fp16:
        words.append("--memory-efficient-fp16" if args.cpu else "--fp16")  # the toolkit's --fp16 asks for CUDA
    if args.bf16:
        words += ["--compute-dtype", "bf16"]
    if args.tensorboard:
        words += ["--tensorboard-logdir", str(args.save_dir / "tensorboard")]
    return [*words, *more]
