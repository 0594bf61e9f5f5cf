"""Every accommodation to versions of the toolkit (fairseq) and of torch, each with its reason and its end.

``quiet_import``
    Importing the toolkit warns that ``torch.jit.script`` is deprecated, asks for tensorboardX, and sets up logging at
    its lowest level. Until the toolkit's modules leave all that to its commands.
``read_checkpoint``
    torch 2.6 and later refuse the classes in the toolkit's checkpoints, older ones load anything. Until the toolkit
    writes plain values, or allow-lists its own classes.
``receive_object``
    torch refuses in the same way what the first worker sends to the others when training resumes. Until as above.
``check_architecture``
    Started by hydra with an unknown architecture, the toolkit ends with ``KeyError: "'_name'"`` (its own message is
    formatted wrongly). Until it is not.
``PackagePath``
    ``--user-dir`` is compared as text, so that a symbolic link counts as another package. Until the toolkit compares
    real paths.
``refuse_clashes``
    A model or task registered under a taken name is silently the older one (main branch). Until the toolkit raises.
``plain_encoder_layers``
    The encoder of fairseq 0.12.2 calls a fused kernel as torch 1.12 declared it. torch 2 refuses the call ("Mask Type
    should be defined"), so that the toolkit's own Transformer cannot generate. Until Python 3.10 is given up.
``overflow_without_gpu``
    When gradients overflow in half precision, the trainer puts a zero on the GPU, also with ``--cpu``, so that
    ``--memory-efficient-fp16`` ends there with "Torch not compiled with CUDA enabled". Until it asks for its device.

Checkpoints (``checkpoints.py``, ``early_stopping.py``), signals (``preemption.py``) and workers (``workers.py``) have
modules of their own.
"""

from __future__ import annotations

import difflib
import functools
import logging
import os
import pickle
import re
import types
import typing
import warnings
from argparse import Namespace
from collections import defaultdict
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Callable, Dict, Iterable, Iterator, List, Mapping, Tuple, Union

import numpy
import omegaconf
import torch


@contextmanager
def quiet_import() -> Iterator[None]:
    """Keeps the toolkit from warning, printing and setting up logging while it is imported."""
    root = logging.getLogger()
    handlers, level, disabled = list(root.handlers), root.level, root.manager.disable
    logging.disable(max(disabled, logging.INFO))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            yield
    finally:
        logging.disable(disabled)
        root.handlers[:] = handlers
        root.setLevel(level)


with quiet_import():
    import fairseq.checkpoint_utils
    import fairseq.criterions
    import fairseq.distributed.utils
    import fairseq.models
    import fairseq.modules.transformer_layer
    import fairseq.optim
    import fairseq.optim.lr_scheduler
    import fairseq.registry
    import fairseq.tasks
    import fairseq.trainer
    import fairseq.utils

#: From version 2.6 on torch.load is safe and can be told of further classes.
_HAS_ALLOW_LIST = tuple(int(part) for part in re.findall(r"\d+", torch.__version__)[:2]) >= (2, 6)

#: The toolkit's registries by kind.
REGISTRIES: Dict[str, Dict[str, Any]] = {
    "model": fairseq.models.MODEL_REGISTRY,
    "architecture": fairseq.models.ARCH_CONFIG_REGISTRY,
    "task": fairseq.tasks.TASK_REGISTRY,
    "criterion": fairseq.registry.REGISTRIES["criterion"]["registry"],
    "lr_scheduler": fairseq.registry.REGISTRIES["lr_scheduler"]["registry"],
    "optimizer": fairseq.registry.REGISTRIES["optimizer"]["registry"],
}


class CheckpointError(RuntimeError):
    """A checkpoint that cannot be read, or that carries a class which is not allowed."""


class BrokenCheckpoint(CheckpointError):
    """A file that is not a whole checkpoint."""


def _called(full_name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function under another full name, which is what torch compares."""

    @functools.wraps(function)
    def renamed(*args: Any) -> Any:
        return function(*args)

    renamed.__module__, _, renamed.__qualname__ = full_name.rpartition(".")
    return renamed


def _checkpoint_classes() -> List[Any]:
    reconstruct: Any = numpy.empty(0).__reduce__()[0]
    return [
        # The model's options; in older checkpoints all options.
        Namespace,
        # Arrays: the counts of n-grams that --eval-bleu keeps in its meters, as whole numbers from one worker and as
        # floating-point ones summed over several. NumPy 2 renamed the function, so each file has one of two names.
        _called("numpy.core.multiarray._reconstruct", reconstruct),
        _called("numpy._core.multiarray._reconstruct", reconstruct),
        numpy.ndarray,
        numpy.dtype,
        type(numpy.dtype("int64")),
        type(numpy.dtype("float64")),
    ]


#: The classes and functions in the toolkit's checkpoints beside those that torch itself allows.
CHECKPOINT_CLASSES: List[Any] = _checkpoint_classes()


def replace_once(owner: Any, name: str, replacement: Callable[..., Any]) -> None:
    """Puts ``replacement(original, *args, **options)`` in the place of a function of the toolkit.

    Doing so twice with the same replacement changes nothing.
    """
    original = one = getattr(owner, name)
    while one is not None:  # through everything that has been put in its place before
        if getattr(one, "replacement", None) is replacement:
            return
        one = getattr(one, "__wrapped__", None)

    @functools.wraps(original)
    def replaced(*args: Any, **options: Any) -> Any:
        return replacement(original, *args, **options)

    replaced.replacement = replacement  # type: ignore[attr-defined]
    setattr(owner, name, replaced)


class _RestrictedUnpickler(pickle.Unpickler):
    """Refuses every class but ``CHECKPOINT_CLASSES`` and what torch needs for tensors; for torch below 2.6."""

    _TORCH = (
        r"collections\.OrderedDict|_codecs\.encode|torch\.Size|torch\.device|torch(\.storage)?\.\w*Storage"
        r"|torch\.b?float\d*|torch\.u?int\d+|torch\.bool|torch\._utils\._rebuild_(tensor(_v2)?|parameter)"
    )

    def find_class(self, module: str, name: str) -> Any:
        full_name = f"{module}.{name}"
        for allowed in CHECKPOINT_CLASSES:
            if full_name == f"{allowed.__module__}.{allowed.__qualname__}":
                return allowed
        if not re.fullmatch(self._TORCH, full_name):
            raise pickle.UnpicklingError(f"Unsupported global: GLOBAL {full_name}")
        return super().find_class(module, name)


def _restricted_pickle() -> types.ModuleType:
    """What torch.load takes as ``pickle_module``."""
    module = types.ModuleType("restricted_pickle")
    module.Unpickler = _RestrictedUnpickler  # type: ignore[attr-defined]
    module.load = lambda file, **options: _RestrictedUnpickler(file, **options).load()  # type: ignore[attr-defined]
    return module


def _safe_load(file: IO[bytes], map_location: Any) -> Any:
    if _HAS_ALLOW_LIST:
        return torch.load(file, map_location=map_location, weights_only=True)
    return torch.load(file, map_location=map_location, weights_only=False, pickle_module=_restricted_pickle())


def read_checkpoint(file: IO[bytes], map_location: Any = "cpu") -> Any:
    """Reads an open checkpoint; unlike ``torch.load`` it says which file and which class is at fault.

    Raises:
        CheckpointError: the file carries a class that is not allowed, or it is not a whole checkpoint.
    """
    name = getattr(file, "name", "the checkpoint")
    try:
        return _safe_load(file, map_location)
    except MemoryError:
        raise
    except Exception as error:  # pickle promises none: other kinds of file end in IndexError, struct.error and so on
        refused = re.search(r"GLOBAL ([\w.]+)|but got <class '([\w.]+)'>", str(error))
        if refused is None:
            n_bytes = file.seek(0, os.SEEK_END)
            raise BrokenCheckpoint(
                f"{name} ({n_bytes:,} bytes) is not a whole checkpoint: it was cut off while it was written, "
                "or it is another kind of file"
            ) from error
        raise CheckpointError(
            f"{name} carries {refused[1] or refused[2]}, which the toolkit does not write into checkpoints. It was not "
            "loaded, because loading a class can run any code. If you trust the file, allow the class with "
            "torch.serialization.add_safe_globals before you load it."
        ) from error


def load_checkpoint(path: Union[str, os.PathLike[str]]) -> Dict[str, Any]:
    """Loads a checkpoint of the toolkit onto the CPU, safely with every version of torch.

    Returns:
        What the toolkit saved: "model" (names to tensors), "cfg" or "args" (options), "extra_state" and so on.

    Raises:
        FileNotFoundError: there is no such file.
        CheckpointError: it carries a class that is not allowed, or it is no checkpoint or not a whole one.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no checkpoint {os.fspath(path)}")
    with open(path, "rb") as file:
        return _with_model(read_checkpoint(file), os.fspath(path))


def _with_model(state: Any, name: str) -> Dict[str, Any]:
    if not isinstance(state, dict) or "model" not in state:
        found = ", ".join(map(str, state)) if isinstance(state, dict) else type(state).__name__
        raise CheckpointError(f'{name} is no checkpoint of the toolkit: it has no "model", but {found}')
    return state


class _TorchWith(types.ModuleType):
    """The torch module as one module of the toolkit sees it: with another ``load`` and everything else unchanged."""

    def __init__(self, load: Callable[..., Any]) -> None:
        super().__init__("torch", "torch with another load function")
        self.load = load

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


def _toolkit_load(file: IO[bytes], map_location: Any = None) -> Any:
    """What the toolkit's own loading gets, which would end in a bare KeyError for somebody else's file."""
    name = getattr(file, "name", "the checkpoint")
    state = _with_model(read_checkpoint(file, map_location), name)
    if "optimizer_history" not in state and "best_loss" not in state:  # the second in the oldest checkpoints
        raise CheckpointError(
            f'{name} is no checkpoint of the toolkit: it has a "model", but no "optimizer_history" beside it'
        )
    return state


def receive_object(stream: IO[bytes], map_location: Any = None) -> Any:
    """Unpacks what the first worker sends when training resumes: a checkpoint whose options are omegaconf's by then."""
    sent = [
        dict,
        list,
        int,
        float,
        str,
        bool,
        defaultdict,
        (typing.Any, "typing.Any"),
        omegaconf.DictConfig,
        omegaconf.ListConfig,
        omegaconf.AnyNode,
        omegaconf.base.ContainerMetadata,
        omegaconf.base.Metadata,
        fairseq.distributed.utils._TensorPlaceholder,
    ]
    with torch.serialization.safe_globals(sent):
        return torch.load(stream, map_location=map_location, weights_only=True)


def plain_encoder_layers() -> None:
    """Keeps the toolkit's encoder layers from the fused kernel; only fairseq 0.12.2 has it."""
    layer = fairseq.modules.transformer_layer.TransformerEncoderLayerBase
    fused = vars(layer).get("_load_from_state_dict")
    if fused is None or hasattr(fused, "__wrapped__"):
        return

    @functools.wraps(fused)
    def load(self: Any, *args: Any) -> None:
        fused(self, *args)
        self.load_to_BT = False  # the switch that loading turns on

    layer._load_from_state_dict = load


@contextmanager
def overflow_without_gpu() -> Iterator[None]:
    """Lets tensors stay where they are when the toolkit moves them to a GPU."""
    original = torch.Tensor.cuda
    torch.Tensor.cuda = lambda tensor, *args, **options: tensor  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch.Tensor.cuda = original  # type: ignore[method-assign]


def _train_step(original: Callable[..., Any], trainer: Any, *args: Any, **options: Any) -> Any:
    if trainer.cuda:
        return original(trainer, *args, **options)
    with overflow_without_gpu():
        return original(trainer, *args, **options)


def install() -> None:
    """Puts the accommodations in place; doing so twice changes nothing.

    ``torch.load`` itself stays as it is: outside the toolkit everything is refused or allowed as before, except that
    torch 2.6 and later accept ``CHECKPOINT_CLASSES``.
    """
    fairseq.checkpoint_utils.torch = _TorchWith(_toolkit_load)
    plain_encoder_layers()
    replace_once(fairseq.trainer.Trainer, "train_step", _train_step)
    if _HAS_ALLOW_LIST:
        torch.serialization.add_safe_globals(CHECKPOINT_CLASSES)
        fairseq.distributed.utils.torch = _TorchWith(receive_object)


def check_architecture(cfg: Any) -> None:
    """Refuse options of a model that nobody has registered.

    Args:
        cfg: the model's options; those that do not say which model they are for are left to the toolkit.

    Raises:
        ValueError: there is no such model or architecture.
    """
    name = getattr(cfg, "_name", None) or getattr(cfg, "arch", None)
    known = {**REGISTRIES["architecture"], **REGISTRIES["model"]}
    if name and name not in known:
        raise ValueError(f"there is no architecture {name}; {architecture_hint(name, known)}")


def architecture_hint(name: str, known: Iterable[str]) -> str:
    """What somebody may have meant who names an architecture that is not known, as a question."""
    similar = difflib.get_close_matches(name, known, n=3)
    return f"did you mean {' or '.join(similar)}?" if similar else "is the plugin that registers it loaded?"


class PackagePath(List[str]):
    """A package's ``__path__`` in which every spelling of its folder is found, and another folder is an error.

    The toolkit asks ``path in package.__path__`` when a ``--user-dir`` has the name of a package that is imported.
    """

    def __contains__(self, path: object) -> bool:
        """Whether the path is this package's folder.

        Raises:
            ImportError: it is another one.
        """
        if any(os.path.realpath(str(path)) == os.path.realpath(own) for own in self):
            return True
        # The toolkit has noted this path as imported already and would let it pass the next time.
        getattr(fairseq.utils.import_user_module, "memo", set()).discard(path)
        raise ImportError(
            f"vaswani_plugin is imported from {self[0]}, so the copy in {path} cannot be imported as well; "
            "use one of them, or rename the copy's folder and leave the other one out"
        )


def _full_name(registered: Any) -> str:
    function = getattr(registered, "func", registered)  # architectures may be functools.partial objects
    return f"{function.__module__}.{getattr(function, '__qualname__', type(function).__name__)}"


def refuse_clashes(names: Mapping[str, Tuple[str, ...]], package: str) -> None:
    """Checks that nobody else has registered one of our names.

    Args:
        names: kind (a key of ``REGISTRIES``) to names.
        package: what is registered from this package is no clash.

    Raises:
        ImportError: a name is taken.
    """
    for kind, kind_names in names.items():
        for name in kind_names:
            owner = _full_name(REGISTRIES[kind].get(name, refuse_clashes))
            if name in REGISTRIES[kind] and owner.split(".")[0] != package:
                raise ImportError(
                    f"{package} cannot register the {kind.replace('_', ' ')} {name}: {owner} has that name already"
                )
