"""A checkpoint of the toolkit's Transformer as one of ours, and the other way round.

Both models name their weights alike, so no weight is renamed or changed; what is translated are the options. The state
of the optimizer and an exponential moving average are left out, since the two models order their parameters
differently: train on with --finetune-from-model OUT.pt.

A model that uses what the other one lacks is refused. So is a model of ours with interleaved sinusoids, because the
toolkit spaces the frequencies otherwise: what is to become a model of the toolkit is trained with --positional-layout
concatenated.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import warnings
from collections import OrderedDict
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, Mapping, Optional, Sequence, Tuple

import torch
from fairseq.checkpoint_utils import load_checkpoint_to_cpu
from fairseq.criterions import CRITERION_DATACLASS_REGISTRY
from fairseq.models import ARCH_MODEL_NAME_REGISTRY
from fairseq.models.transformer import TransformerModel
from fairseq.tasks import TASK_DATACLASS_REGISTRY
from fairseq.utils import import_user_module
from omegaconf import OmegaConf

from vaswani_plugin.toolkit import CheckpointError, load_checkpoint
from vaswani_plugin.tools import model_options
from vaswani_plugin.tools.cli import CommandError, help_texts, joined, plural, run_command, save_checkpoint
from vaswani_plugin.tools.model_options import OURS, SIDES, TOOLKIT
from vaswani_plugin.transformer import VaswaniTransformer, resolve_config

EXAMPLE = """
example:
  vaswani-convert fairseq checkpoint_best.pt converted.pt
  fairseq-generate DATA --user-dir vaswani_plugin --path converted.pt --beam 4
"""

#: Names in the toolkit's state dictionaries that hold no weights: version numbers, what sinusoids have stored over the
#: years, and the copies that release 0.12.2 makes of an encoder layer's weights for a fused kernel.
_NO_WEIGHTS = re.compile(
    r"(encoder|decoder)\.(version|embed_positions\.(weights|_float_tensor))"
    r"|encoder\.layers\.\d+\.(in_proj|out_proj|fc1|fc2)_(weight|bias)"
)

#: Our components whose counterparts in the toolkit have the same options: kind, our name, the toolkit's, its options.
_COUNTERPARTS = (
    ("task", "vaswani_translation", "translation", TASK_DATACLASS_REGISTRY),
    (
        "criterion",
        "vaswani_label_smoothed_cross_entropy",
        "label_smoothed_cross_entropy",
        CRITERION_DATACLASS_REGISTRY,
    ),
)

Parts = Tuple[Dict[str, Any], Dict[str, Any]]


class _Types:
    """Stands for a dictionary of n types where a model is built only for the names and shapes of its weights."""

    def __init__(self, n_types: int) -> None:
        self.n_types = n_types

    def __len__(self) -> int:
        return self.n_types

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Types) and other.n_types == self.n_types

    def pad(self) -> int:
        """The padding index of every dictionary of the toolkit."""
        return 1


def refuse(reasons: Sequence[str]) -> None:
    """Give up where there are reasons to.

    Raises:
        CommandError: with the first few of them.
    """
    if reasons:
        more = f"; and {len(reasons) - 5} more reasons" if len(reasons) > 5 else ""
        raise CommandError(f"cannot be converted: {'; '.join(reasons[:5])}{more}")


def bare_model(model_class: Any, options: argparse.Namespace, weights: Mapping[str, Any]) -> Any:
    """The model that the options describe, on the meta device: names and shapes without memory.

    Raises:
        CommandError: the weights have no embeddings, or the model refuses the options.
    """
    embeddings = [f"{side}.embed_tokens.weight" for side in SIDES]
    refuse([f"it lacks the weights {name}" for name in embeddings if name not in weights])
    source, target = (_Types(len(weights[name])) for name in embeddings)
    options = argparse.Namespace(**{**vars(options), "encoder_embed_path": None, "decoder_embed_path": None})
    try:
        with torch.device("meta"):
            return model_class.build_model(options, SimpleNamespace(source_dictionary=source, target_dictionary=target))
    except (ValueError, AssertionError) as error:  # the toolkit asserts that heads divide the width
        raise CommandError(f"cannot be converted: {error}") from error


def check_weights(weights: Mapping[str, Any], model: Any) -> None:
    """Refuse weights that are not exactly those of the model that the options describe.

    Raises:
        CommandError: some are missing, unknown or of another shape; names them.
    """
    expected = {name: tensor.shape for name, tensor in model.state_dict().items() if not _NO_WEIGHTS.fullmatch(name)}
    missing, unknown = sorted(expected.keys() - weights.keys()), sorted(weights.keys() - expected.keys())
    reasons = [f"it lacks the weights {joined(missing)}"] * bool(missing)
    reasons += [f"it has unknown weights {joined(unknown)}"] * bool(unknown)
    for name in sorted(expected.keys() & weights.keys()):
        if weights[name].shape != expected[name]:
            shape = tuple(weights[name].shape)
            reasons.append(f"{name} has the shape {shape}, but by its options {tuple(expected[name])}")
    refuse(reasons)


def _weights(model: Mapping[str, Any]) -> Dict[str, Any]:
    return {name: tensor for name, tensor in model.items() if not _NO_WEIGHTS.fullmatch(name)}


def to_ours(cfg: Dict[str, Any], model: Mapping[str, Any]) -> Parts:
    """The configuration and state of a model of the toolkit as those of ours.

    Raises:
        CommandError: it uses what ours lacks, or its weights are not those that its options describe.
    """
    namespace = model_options.complete(cfg["model"])
    config = model_options.toolkit_config(namespace)
    refuse(model_options.what_ours_lacks(config))
    state = dict(model)
    bare_model(TransformerModel, namespace, state).upgrade_state_dict(state)  # names that the toolkit has given up
    weights = _weights(state)
    options = model_options.our_options(config)
    check_weights(weights, bare_model(VaswaniTransformer, argparse.Namespace(**options), weights))
    return {**cfg, "model": options}, weights


def to_toolkit(cfg: Dict[str, Any], model: Mapping[str, Any]) -> Parts:
    """The configuration and state of a model of ours as those of the toolkit's.

    Our task and criterion become the toolkit's of the same options; every other component stays.

    Raises:
        CommandError: it uses what the toolkit's lacks, or its weights are not those that its options describe.
    """
    try:
        config = resolve_config(model_options.complete(cfg["model"]))
    except ValueError as error:
        raise CommandError(f"cannot be converted: {error}") from error
    refuse(model_options.what_the_toolkit_lacks(config))
    weights = _weights(model)
    options = model_options.toolkit_options(config)
    check_weights(weights, bare_model(TransformerModel, options, weights))
    # Without a version number the toolkit takes a model for an old one, which has no last normalisation.
    versions = {f"{side}.version": torch.tensor([3.0]) for side in SIDES}
    cfg = {**cfg, "model": options}
    for kind, ours, name, registry in _COUNTERPARTS:
        component = cfg.get(kind)
        if isinstance(component, Mapping) and component.get("_name") == ours:
            known = registry[name].__dataclass_fields__
            cfg[kind] = {**{key: value for key, value in component.items() if key in known}, "_name": name}
    return cfg, {**versions, **weights}


#: Each direction by the side that it reads from: the model there, and the function.
DIRECTIONS = {"fairseq": (TOOLKIT, to_ours), "vaswani": (OURS, to_toolkit)}


def read(path: Path) -> Dict[str, Any]:
    """Load a checkpoint with its options under "cfg", where old ones have them under "args".

    Raises:
        CommandError: it is missing, broken or unsafe, or does not say what model it holds.
    """
    try:
        state = load_checkpoint(path)
    except (CheckpointError, FileNotFoundError) as error:
        raise CommandError(str(error)) from error
    if not isinstance(state["model"], Mapping):
        raise CommandError(f"{path} holds no weights under 'model'")
    if state.get("cfg") is None and state.get("args") is not None:
        with warnings.catch_warnings():  # hydra's, about how the toolkit calls it
            warnings.simplefilter("ignore")
            state = load_checkpoint_to_cpu(str(path))
        state["cfg"] = OmegaConf.to_container(state["cfg"], resolve=True, enum_to_str=True)
    cfg = state.get("cfg") or {}
    model = cfg.get("model") if isinstance(cfg, Mapping) else None
    model = vars(model) if isinstance(model, argparse.Namespace) else model
    if not isinstance(model, Mapping) or not (model.get("_name") or model.get("arch")):
        raise CommandError(f"{path} holds weights, but does not say of which model")
    return {**state, "cfg": {**cfg, "model": {"_name": model.get("arch"), **model}}}


def convert(path: Path, origin: str) -> Dict[str, Any]:
    """Read a checkpoint and return it converted.

    Args:
        origin: a key of ``DIRECTIONS``.

    Raises:
        CommandError: the file cannot be read, holds another model, or cannot be converted; says why.
    """
    state = read(path)
    architecture = state["cfg"]["model"]["_name"]
    wanted, function = DIRECTIONS[origin]
    found = ARCH_MODEL_NAME_REGISTRY.get(architecture)
    if found is None:
        raise CommandError(
            f"{path} holds the architecture {architecture}, which is not registered; if a plugin registers it, "
            "name the plugin's folder with --user-dir"
        )
    if found != wanted:
        hint = next((f"; give {name} in place of {origin}" for name in DIRECTIONS if DIRECTIONS[name][0] == found), "")
        raise CommandError(f"{path} holds a model of the type {found}, not {wanted}{hint}")
    try:
        cfg, model = function(state["cfg"], state["model"])
    except CommandError as error:
        raise CommandError(f"{path} {error}") from error
    extra = {key: value for key, value in (state.get("extra_state") or {}).items() if not key.startswith("ema")}
    extra["converted"] = {"file": path.name, "architecture": architecture}
    state = {key: value for key, value in state.items() if key != "last_optimizer_state"}
    return {**state, "args": None, "cfg": cfg, "model": OrderedDict(model), "extra_state": extra}


def build_parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    description, rest = help_texts(__doc__)
    parser = argparse.ArgumentParser(
        prog="vaswani-convert",
        description=description,
        epilog=rest + EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("origin", choices=list(DIRECTIONS), help="whose model IN.pt holds: the toolkit's, or ours")
    parser.add_argument("input", type=Path, metavar="IN.pt", help="the checkpoint to read")
    parser.add_argument("output", type=Path, metavar="OUT.pt", help="where the converted one goes; not IN.pt")
    parser.add_argument("--user-dir", metavar="DIR", help="a plugin that registers the architecture of IN.pt")
    return parser


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run the command; returns its exit status."""
    args = build_parser().parse_args(argv)

    def body() -> None:
        if args.input.exists() and args.output.exists() and os.path.samefile(args.input, args.output):
            raise CommandError(f"{args.output} is the checkpoint to read; give the converted one another name")
        try:
            import_user_module(args)
        except FileNotFoundError as error:  # whose text is the path alone
            raise CommandError(f"--user-dir {args.user_dir}: no such folder") from error
        state = convert(args.input, args.origin)
        save_checkpoint(state, args.output)
        made = OURS if args.origin == "fairseq" else TOOLKIT
        print(f"{args.output}: {made} from {args.input}, {plural(len(state['model']), 'tensor')}")

    return run_command("vaswani-convert", body)


if __name__ == "__main__":
    sys.exit(main())
