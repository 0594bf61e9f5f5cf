"""The plugin registers everything exactly once, under whatever path it is given, and says so when it cannot."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest
from toolkit_runner import PLUGIN, REPO, CopyTask, Result, run, tiny_train_args

import vaswani_plugin

# Run at the head of each script below: the package can be found by --user-dir only, as if it were not installed.
NOT_INSTALLED = """
import os, sys
sys.meta_path[:] = [finder for finder in sys.meta_path if "__editable__" not in str(finder)]
sys.path[:] = [path for path in sys.path if not os.path.exists(os.path.join(path, "vaswani_plugin"))]
"""

# Imports each --user-dir and shows who is registered; refusals are shown and survived.
IMPORT = """
import sys
from argparse import Namespace
from fairseq.utils import import_user_module
for user_dir in sys.argv[1:]:
    try:
        import_user_module(Namespace(user_dir=user_dir))
    except ImportError as error:
        print("REFUSED", error)
package = sys.modules.get("vaswani_plugin")
print("FOLDER", package and package.__path__[0])
if package is not None:
    from vaswani_plugin import toolkit
    names = [name for kind in package.REGISTERED for name in package.REGISTERED[kind] if name in toolkit.REGISTRIES[kind]]
    modules = sorted(name for name in sys.modules if name.endswith(".transformer") and name[:5] not in ("fairs", "torch"))
    print("REGISTERED", len(names), "MODULES", modules)
"""  # noqa: E501

N_NAMES = sum(len(names) for names in vaswani_plugin.REGISTERED.values())
ALL_ONCE = f"REGISTERED {N_NAMES} MODULES ['vaswani_plugin.transformer']"


def import_user_dirs(*user_dirs: object, cwd: Path, installed: bool = False) -> Result:
    head = "import vaswani_plugin" if installed else NOT_INSTALLED
    return run("python", head + IMPORT, *user_dirs, cwd=cwd)


@pytest.fixture
def paths(tmp_path: Path) -> dict[str, tuple[Path, str]]:
    """Ways to write the plugin's folder: name to working directory and ``--user-dir``."""
    for link in ("links/vaswani_plugin", "links/another_name", "with a space/vaswani_plugin"):
        (tmp_path / link).parent.mkdir(exist_ok=True)
        (tmp_path / link).symlink_to(PLUGIN)
    return {
        "relative": (REPO, "vaswani_plugin"),
        "relative with dots": (PLUGIN / "tools", "../../vaswani_plugin"),
        "absolute": (tmp_path, str(PLUGIN)),
        "from the root": (Path("/"), str(PLUGIN)),
        "trailing slash": (REPO, "vaswani_plugin/"),
        "link": (tmp_path, "links/vaswani_plugin"),
        "link of another name": (tmp_path, "links/another_name"),
        "space": (tmp_path, "with a space/vaswani_plugin"),
    }


WAYS = [
    "relative", "relative with dots", "absolute", "from the root", "trailing slash", "link", "link of another name",
    "space",
]  # fmt: skip


@pytest.mark.parametrize("installed", [False, True], ids=["not installed", "installed"])
@pytest.mark.parametrize("way", WAYS)
def test_every_path_registers_everything_once(way: str, installed: bool, paths: dict[str, tuple[Path, str]]) -> None:
    cwd, user_dir = paths[way]
    out = import_user_dirs(user_dir, user_dir, cwd=cwd, installed=installed).ok().out
    assert ALL_ONCE in out
    assert "REFUSED" not in out


def test_all_paths_together_register_everything_once(paths: dict[str, tuple[Path, str]]) -> None:
    user_dirs = [os.path.join(cwd, user_dir) for cwd, user_dir in paths.values()]
    for order in (user_dirs, user_dirs[::-1]):
        out = import_user_dirs(*order, cwd=Path("/")).ok().out
        assert ALL_ONCE in out
        assert "REFUSED" not in out


@pytest.mark.parametrize("name", ["vaswani_plugin", "another_name"])
def test_a_copy_is_refused_by_both_paths_and_the_right_path_still_works(name: str, tmp_path: Path) -> None:
    copy = tmp_path / name
    shutil.copytree(PLUGIN, copy, ignore=shutil.ignore_patterns("__pycache__"))
    out = import_user_dirs(copy, PLUGIN, copy, cwd=tmp_path, installed=True).ok().out
    refusal = (
        f"REFUSED vaswani_plugin is imported from {PLUGIN}, so the copy in {copy} cannot be imported as well; "
        "use one of them, or rename the copy's folder and leave the other one out"
    )
    assert out.splitlines().count(refusal) == 2
    assert f"FOLDER {PLUGIN}" in out
    assert ALL_ONCE in out


def test_a_copy_alone_is_what_was_asked_for(tmp_path: Path) -> None:
    copy = tmp_path / "vaswani_plugin"
    shutil.copytree(PLUGIN, copy, ignore=shutil.ignore_patterns("__pycache__"))
    out = import_user_dirs(copy, cwd=tmp_path).ok().out
    assert f"FOLDER {copy}" in out
    assert ALL_ONCE in out


CLASH = """
from fairseq.{module} import register_{kind}
{more}
@register_{kind}({name!r})
class Theirs({base}):
    pass
"""


@pytest.mark.parametrize(
    ("kind", "name", "module", "base"),
    [
        ("model", "vaswani_transformer", "models", "__import__('fairseq.models').models.FairseqEncoderDecoderModel"),
        ("task", "vaswani_translation", "tasks", "__import__('fairseq.tasks').tasks.FairseqTask"),
        (
            "criterion",
            "vaswani_label_smoothed_cross_entropy",
            "criterions",
            "__import__('fairseq.criterions').criterions.FairseqCriterion",
        ),
    ],
)
def test_a_taken_name_is_an_error_that_names_the_other_class(kind: str, name: str, module: str, base: str) -> None:
    clash = CLASH.format(kind=kind, name=name, module=module, base=base, more="")
    out = run("python", NOT_INSTALLED + clash + IMPORT, PLUGIN, cwd=REPO).ok().out
    assert f"REFUSED vaswani_plugin cannot register the {kind} {name}: __main__.Theirs has that name already" in out
    assert "FOLDER None" in out


def test_a_taken_architecture_is_an_error_too() -> None:
    clash = """
from fairseq.models import register_model_architecture
@register_model_architecture("transformer", "vaswani_base")
def theirs(args):
    pass
"""
    out = run("python", NOT_INSTALLED + clash + IMPORT, PLUGIN, cwd=REPO).ok().out
    text = "REFUSED vaswani_plugin cannot register the architecture vaswani_base: __main__.theirs has that name already"
    assert text in out


def test_another_plugin_beside_ours(tmp_path: Path) -> None:
    other = tmp_path / "other_plugin"
    other.mkdir()
    (other / "__init__.py").write_text(
        "from fairseq.tasks import register_task\n"
        "from fairseq.tasks.translation import TranslationTask\n"
        "@register_task('other_translation')\n"
        "class OtherTranslation(TranslationTask):\n"
        "    pass\n"
    )
    out = import_user_dirs(other, PLUGIN, other, cwd=tmp_path).ok().out
    assert ALL_ONCE in out
    assert "REFUSED" not in out


def test_the_table_is_what_is_registered() -> None:
    code = """
from vaswani_plugin import toolkit
for kind, registry in toolkit.REGISTRIES.items():
    print(kind, *sorted(name for name, owner in registry.items() if "vaswani_plugin" in toolkit._full_name(owner)))
"""
    out = run("python", code, cwd=REPO).ok().out
    found = {line.split()[0]: line.split()[1:] for line in out.splitlines()}
    assert found == {kind: sorted(names) for kind, names in vaswani_plugin.REGISTERED.items()}


def test_importing_is_silent_and_leaves_logging_and_seeds_alone() -> None:
    code = """
import logging, random
import fairseq.trainer, numpy, torch
logging.getLogger().handlers.clear()
level, states = logging.getLogger().level, (random.getstate(), str(numpy.random.get_state()), torch.get_rng_state())
import vaswani_plugin
assert logging.getLogger().handlers == [] and logging.getLogger().level == level
assert (random.getstate(), str(numpy.random.get_state())) == states[:2]
assert torch.equal(torch.get_rng_state(), states[2])
"""
    assert run("python", code, cwd=REPO).ok().out == ""


def test_importing_raises_no_deprecation_warning() -> None:
    code = "import warnings; warnings.simplefilter('error', DeprecationWarning); import vaswani_plugin"
    assert run("python", code, cwd=REPO, fresh=True).ok().out == ""


def test_without_the_toolkit_the_pure_modules_work_and_the_reason_is_kept() -> None:
    code = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "fairseq":
            raise ModuleNotFoundError("No module named 'fairseq'")
sys.meta_path.insert(0, Missing())
for name in [name for name in sys.modules if name.split(".")[0] in ("fairseq", "vaswani_plugin")]:
    del sys.modules[name]
import vaswani_plugin
from vaswani_plugin.schedule import peak_learning_rate
print(repr(vaswani_plugin.TOOLKIT_ERROR), round(peak_learning_rate(512, 4000), 7))
"""
    out = run("python", code, cwd=REPO).ok().out
    assert out == "ModuleNotFoundError(\"No module named 'fairseq'\") 0.0006988\n"


def test_training_from_the_root_with_a_linked_plugin(copy_task: CopyTask, tmp_path: Path) -> None:
    link = tmp_path / "with a space" / "another_name"
    link.parent.mkdir()
    link.symlink_to(PLUGIN)
    args = tiny_train_args(copy_task.bin, tmp_path / "save", updates=1)
    out = run("fairseq-train", *args, "--user-dir", link, cwd=Path("/"), fresh=True).ok().out
    assert re.search(r"done training in [\d.]+ seconds", out)
    help_text = run("fairseq-train", "--user-dir", link, "--arch", "x", cwd=Path("/")).out
    assert len(re.findall(r"\bvaswani_tiny\b", help_text)) == 1


def test_the_module_prints_the_folder_for_user_dir() -> None:
    code = "import runpy; runpy.run_module('vaswani_plugin', run_name='__main__')"
    assert run("python", code, cwd=REPO).ok().out == f"{PLUGIN}\n"
