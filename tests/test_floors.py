"""Three floors: pure torch below, the toolkit's shells above it, tools on top; no import points up."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "vaswani_plugin"
PURE = {
    "positions", "linear", "attention", "layers", "dropout", "smoothing", "schedule", "quantization", "incremental",
    "compute_dtype", "beam_search", "beam_state", "restrictions", "search_options", "alignment",
    "trees", "bracketing", "operations",
}  # fmt: skip
MODULES = {path.stem: path for path in PACKAGE.glob("*.py") if path.stem not in ("__init__", "__main__")}


def imports(path: Path) -> set[str]:
    """Top-level names of absolute imports, and ".name" for relative ones, anywhere in the file."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            module = (node.module or "").split(".")[0]
            found |= {"." + module} if node.level and module else {module} if module else set()
            if node.level and not module:
                found |= {"." + alias.name for alias in node.names}
    return found


@pytest.mark.skipif(sys.version_info < (3, 10), reason="Python 3.9 does not list the modules of its library")
@pytest.mark.parametrize("name", sorted(PURE & set(MODULES)))
def test_pure_modules_know_only_torch_and_each_other(name: str) -> None:
    allowed = set(sys.stdlib_module_names) | {"torch"} | {"." + other for other in PURE}
    assert imports(MODULES[name]) <= allowed


@pytest.mark.parametrize("name", sorted(set(MODULES) - PURE))
def test_shells_do_not_know_the_tools(name: str) -> None:
    assert not imports(MODULES[name]) & {".tools"}
    assert "vaswani_plugin.tools" not in MODULES[name].read_text(encoding="utf-8").replace("``", "")


def test_the_importers_eye_sees_what_it_should(tmp_path: Path) -> None:
    sample = tmp_path / "sample.py"
    sample.write_text(
        "import os.path\nfrom . import tools\nfrom .config import BASE\ndef f():\n    import fairseq.utils\n"
    )
    assert imports(sample) == {"os", ".tools", ".config", "fairseq"}


def test_importing_prints_nothing_seeds_nothing_and_configures_no_logging() -> None:
    code = (
        "import logging, random, torch\n"
        "def state():\n"
        "    root = logging.root\n"
        "    return torch.initial_seed(), random.getstate(), list(root.handlers), root.level, root.manager.disable\n"
        "before = state()\n"
        "import vaswani_plugin\n"
        "assert before == state()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=PACKAGE.parent, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
