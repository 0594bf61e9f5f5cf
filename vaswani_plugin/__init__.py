"""The Transformer of "Attention Is All You Need" (Vaswani et al. 2017) as a fairseq plugin.

``--user-dir vaswani_plugin``, or importing this package, registers ``REGISTERED`` with the toolkit, once and silently.
Where the toolkit is missing or does not import, ``TOOLKIT_ERROR`` says why, and the pure torch modules still work.
"""

import importlib.util
import os
import sys
from typing import Dict, Optional, Tuple

_NAME = "vaswani_plugin"

#: Everything that this package registers: kind to names.
REGISTERED: Dict[str, Tuple[str, ...]] = {
    "model": ("vaswani_transformer",),
    "architecture": (
        "vaswani_tiny",
        "vaswani_base",
        "vaswani_big",
        "vaswani_big_en_fr",
        "vaswani_parsing",
        "vaswani_a_h1",
        "vaswani_a_h4",
        "vaswani_a_h16",
        "vaswani_a_h32",
        "vaswani_b_dk16",
        "vaswani_b_dk32",
        "vaswani_c_n2",
        "vaswani_c_n4",
        "vaswani_c_n8",
        "vaswani_c_d256",
        "vaswani_c_d1024",
        "vaswani_c_ff1024",
        "vaswani_c_ff4096",
        "vaswani_d_dropout0",
        "vaswani_d_dropout2",
        "vaswani_e_learned",
    ),
    "criterion": ("vaswani_label_smoothed_cross_entropy",),
    "lr_scheduler": ("vaswani_inverse_sqrt",),
    "optimizer": ("vaswani_adam",),
    "task": ("vaswani_translation", "vaswani_parsing"),
}

#: Why the toolkit could not be imported; None where it could.
TOOLKIT_ERROR: Optional[Exception] = None


def _hand_over() -> None:
    """Makes this name, the one of a symbolic link or a renamed folder, stand for the package's own name.

    Raises:
        ImportError: the package is imported from another folder.
    """
    folder = os.path.dirname(os.path.realpath(__file__))
    package = sys.modules.get(_NAME)
    if package is None:
        if os.path.basename(folder) == _NAME:
            sys.path.insert(0, os.path.dirname(folder))  # as the toolkit does; its worker processes import by name
        spec = importlib.util.spec_from_file_location(
            _NAME, os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
        )
        assert spec is not None and spec.loader is not None  # always so for a file
        package = importlib.util.module_from_spec(spec)
        sys.modules[_NAME] = package
        try:
            spec.loader.exec_module(package)
        except BaseException:
            del sys.modules[_NAME]
            raise
    _ = os.path.dirname(os.path.abspath(__file__)) in package.__path__  # raises where it is another copy
    sys.modules[__name__] = package


def _register() -> None:
    """Registers everything.

    Raises:
        ImportError: somebody else has registered one of the names.
    """
    global __path__, TOOLKIT_ERROR
    try:
        from . import toolkit
    except Exception as error:
        if "fairseq" in sys.modules:
            raise
        TOOLKIT_ERROR = error
        return
    __path__ = toolkit.PackagePath(__path__)
    toolkit.refuse_clashes(REGISTERED, _NAME)
    toolkit.install()
    from . import checkpoints, early_stopping, preemption, workers

    for module in (checkpoints, early_stopping, preemption, workers):
        module.install()
    from . import transformer, architectures, criterion, lr_scheduler, adam, translation, parsing  # noqa: F401, I001


if __name__ == _NAME:
    _register()
else:
    _hand_over()
