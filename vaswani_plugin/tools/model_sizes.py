"""The sizes of models and of text: of architectures by name, of checkpoints, of the toolkit's binary data."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from vaswani_plugin.operations import Lengths, TransformerSizes
from vaswani_plugin.tools.cli import CommandError


def sizes_of(options: Any, n_types: int) -> TransformerSizes:
    """The sizes of a model from its complete options."""
    from vaswani_plugin.config import layer_config
    from vaswani_plugin.transformer import resolve_config

    config = resolve_config(options)
    return TransformerSizes(
        layer_config(config, "encoder"),
        int(config.encoder_layers or 0),
        layer_config(config, "decoder"),
        int(config.decoder_layers or 0),
        n_types,
    )


def options_of(arch: str) -> Any:
    """The options that an architecture of ``vaswani_transformer`` stands for.

    Raises:
        CommandError: there is none of that name.
    """
    from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY

    from vaswani_plugin.toolkit import architecture_hint
    from vaswani_plugin.transformer import VaswaniTransformer

    known = sorted(name for name, model in ARCH_MODEL_REGISTRY.items() if issubclass(model, VaswaniTransformer))
    if arch not in known:
        hint = architecture_hint(arch, known)
        raise CommandError(f"--arch {arch}: no architecture of vaswani_transformer; {hint}")
    options = argparse.Namespace()
    ARCH_CONFIG_REGISTRY[arch](options)
    return options


def model_of_checkpoint(path: Path) -> TransformerSizes:
    """The sizes of the model in a checkpoint.

    Raises:
        CommandError: the file is missing, is no checkpoint, or holds another kind of model.
    """
    from vaswani_plugin.tools.average import load_weights
    from vaswani_plugin.tools.model_options import complete

    if not path.is_file():
        raise CommandError(f"{path}: no such file")
    state = load_weights(path)
    weight = state["model"].get("decoder.output_projection.weight")
    model = (state.get("cfg") or {}).get("model")
    if weight is None or model is None:
        raise CommandError(f"{path}: not a checkpoint of vaswani_transformer")
    return sizes_of(
        complete(dict(vars(model) if isinstance(model, argparse.Namespace) else model)), int(weight.shape[0])
    )


def measured_lengths(folder: Path, split: str = "train") -> Lengths:
    """The exact mean lengths and products in the toolkit's binary data.

    Raises:
        CommandError: the folder holds no such data.
    """
    from fairseq.data import data_utils

    names = sorted(path.name.split(".") for path in folder.glob(f"{split}.*-*.*.idx"))
    if len(names) != 2 or not all(name[2] in name[1].split("-") for name in names):
        raise CommandError(f"{folder}: no binary data of one language pair ({split}.SRC-TGT.SRC.idx and .TGT.idx)")
    pair = names[0][1]
    sizes = []
    for language in pair.split("-"):
        data = data_utils.load_indexed_dataset(str(folder / f"{split}.{pair}.{language}"), None)
        sizes.append(data.sizes.astype("float64"))
    source, target = sizes
    means = (source, target, source**2, target**2, source * target)
    return Lengths(*(float(mean.mean()) for mean in means))
