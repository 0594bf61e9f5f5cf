"""What the commands that draw share: matplotlib without a screen, pictures that appear whole, text as it is written."""

from __future__ import annotations

import logging
import re
import sys
import warnings
from pathlib import Path
from typing import Any, List, Sequence, Set

from vaswani_plugin.tools.cli import CommandError, atomic_path

#: Fonts with letters that matplotlib's own lacks; those that are installed stand in for what it cannot draw.
FALLBACK_FONTS = ("Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans", "Noto Sans Devanagari", "WenQuanYi Zen Hei")
_MISSING_GLYPH = re.compile(r"Glyph (\d+) ")


def pyplot() -> Any:
    """``matplotlib.pyplot``, drawing into memory.

    Raises:
        CommandError: matplotlib is not installed.
    """
    try:
        import matplotlib
    except ImportError as error:
        raise CommandError("matplotlib is not installed; pip install 'vaswani-plugin[plots]'") from error
    matplotlib.use("Agg")
    # The toolkit's import may leave the root logger at DEBUG, where matplotlib tells of every font it looks at.
    logging.getLogger("matplotlib").setLevel(logging.WARNING)
    from matplotlib import pyplot as module

    return module


def plain(text: str) -> str:
    """The text such that matplotlib reads no mathematics in it."""
    return text.replace("$", r"\$")


def check_format(option: str, output: Path) -> str:
    """The format that an output's suffix names; PNG without a suffix.

    Raises:
        CommandError: matplotlib does not write it.
    """
    pyplot()
    from matplotlib.backend_bases import FigureCanvasBase

    name = output.suffix.lstrip(".").lower() or "png"
    if name not in FigureCanvasBase.get_supported_filetypes():
        raise CommandError(f"{option} {output}: matplotlib writes no {output.suffix} files")
    return name


def save_figure(figure: Any, output: Path, option: str = "--output", dpi: int = 120) -> None:
    """Write a figure in the format of the file's suffix and close it; letters that no font has are told on stderr.

    Args:
        option: which option gave ``output``, for the error.

    Raises:
        CommandError: matplotlib does not know the suffix, or the file cannot be written.
    """
    try:
        file_format = check_format(option, output)
        with warnings.catch_warnings(record=True) as caught, atomic_path(output) as partial:
            warnings.simplefilter("always")
            figure.savefig(str(partial), format=file_format, dpi=dpi)
    finally:
        pyplot().close(figure)
    missing = _missing_letters([str(warning.message) for warning in caught])
    if missing and file_format != "svg":  # whose text is drawn by the reader, with the reader's fonts
        print(f"{output}: no font here has {' '.join(missing)}; install one, or draw an .svg", file=sys.stderr)


def _missing_letters(messages: Sequence[str]) -> List[str]:
    found: Set[int] = {int(match.group(1)) for match in map(_MISSING_GLYPH.match, messages) if match}
    return [chr(number) for number in sorted(found)]


def text_settings() -> Any:
    """A context in which SVG files hold text as text, and letters that the usual font lacks come from others."""
    import matplotlib
    from matplotlib import font_manager

    installed = {font.name for font in font_manager.fontManager.ttflist}
    family = ["DejaVu Sans", *(name for name in FALLBACK_FONTS if name in installed)]
    return matplotlib.rc_context({"svg.fonttype": "none", "font.family": family})
