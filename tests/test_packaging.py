"""Packaging: the right toolkit for each Python, the commands, and what a wheel holds."""

from __future__ import annotations

import ast
import importlib
import re
import runpy
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any, Dict, List, Set

import pytest

REPO = Path(__file__).resolve().parents[1]
PACKAGE = REPO / "vaswani_plugin"
setuptools = pytest.importorskip("setuptools")
requirements = pytest.importorskip("packaging.requirements")
specifiers = pytest.importorskip("packaging.specifiers")


@pytest.fixture(scope="module")
def metadata() -> Dict[str, Any]:
    """What setup.py hands to setuptools."""
    caught: Dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(setuptools, "setup", lambda **options: caught.update(options))
        patch.chdir(REPO)
        runpy.run_path(str(REPO / "setup.py"))
    return caught


def chosen(metadata: Dict[str, Any], python: str, platform: str, machine: str) -> List[str]:
    """The requirements that hold for an interpreter, without their markers."""
    environment = {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "sys_platform": platform,
        "platform_machine": machine,
    }
    parsed = [requirements.Requirement(text) for text in metadata["install_requires"]]
    return [
        f"{entry.name}{entry.specifier}"
        for entry in parsed
        if entry.marker is None or entry.marker.evaluate(environment)
    ]


@pytest.mark.parametrize(
    ("python", "platform", "machine", "toolkit"),
    [
        ("3.9", "linux", "x86_64", "fairseq==0.12.2"),
        ("3.10", "linux", "x86_64", "fairseq==0.12.2"),
        ("3.10", "darwin", "arm64", "fairseq==0.12.2"),
        ("3.11", "linux", "x86_64", "ve-fairseq==0.12.3"),
        ("3.12", "linux", "x86_64", "ve-fairseq==0.12.3"),
        ("3.11", "linux", "aarch64", "fairseq-fixed==0.12.3.1"),
        ("3.12", "darwin", "arm64", "fairseq-fixed==0.12.3.1"),
        ("3.12", "darwin", "x86_64", "fairseq-fixed==0.12.3.1"),
    ],
)
def test_exactly_one_toolkit_is_chosen(
    python: str, platform: str, machine: str, toolkit: str, metadata: Dict[str, Any]
) -> None:
    names = chosen(metadata, python, platform, machine)
    assert [name for name in names if "fairseq" in name] == [toolkit]
    (numpy,) = (requirements.Requirement(name) for name in names if name.startswith("numpy"))
    old = toolkit == "fairseq==0.12.2"
    assert numpy.specifier.contains("1.23.5")
    assert numpy.specifier.contains("1.24.0") is not old
    assert numpy.specifier.contains("2.4.0") is not old


@pytest.mark.parametrize(("python", "fits"), [("3.8.18", False), ("3.9.0", True), ("3.12.9", True), ("3.13.0", False)])
def test_pythons_without_a_tried_toolkit_are_refused(python: str, fits: bool, metadata: Dict[str, Any]) -> None:
    assert specifiers.SpecifierSet(metadata["python_requires"]).contains(python) is fits


def imported(path: Path) -> Set[str]:
    """The top-level names that a file imports absolutely, wherever in it."""
    names: Set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module.split(".")[0])
    return names


def test_every_import_is_a_declared_dependency(metadata: Dict[str, Any]) -> None:
    declared = {requirements.Requirement(text).name for text in metadata["install_requires"]}
    declared |= {
        requirements.Requirement(text).name
        for extra in ("plots", "export")
        for text in metadata["extras_require"][extra]
    }
    brought_by_the_toolkit = {"fairseq_cli", "hydra", "omegaconf"}
    standard = {"vaswani_plugin", "__future__", *getattr(sys, "stdlib_module_names", sys.builtin_module_names)}
    if not hasattr(sys, "stdlib_module_names"):
        pytest.skip("the list of standard modules came with Python 3.10")
    found = {name for path in PACKAGE.rglob("*.py") for name in imported(path)}
    assert "torch" in found
    modules = {name.replace("-", "_") for name in declared}
    assert not found - standard - modules - brought_by_the_toolkit


def test_every_command_exists_and_explains_itself(metadata: Dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    scripts = metadata["entry_points"]["console_scripts"]
    assert len(scripts) >= 7
    for entry in scripts:
        command, module, function = re.split(r" = |:", entry)
        tool = importlib.import_module(module)
        assert module == f"vaswani_plugin.tools.{command[len('vaswani-') :]}"
        with pytest.raises(SystemExit, match="^0$"):
            getattr(tool, function)(["--help"])
        assert f"usage: {command}" in capsys.readouterr().out


def test_the_package_prints_its_directory_and_nothing_else() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "vaswani_plugin"], cwd=REPO, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{PACKAGE}\n", "")


def test_version_and_licence_agree_with_the_texts(metadata: Dict[str, Any]) -> None:
    changelog = (REPO / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.findall(r"^## (\d+\.\d+\.\d+)", changelog, re.MULTILINE)
    assert versions[0] == metadata["version"]
    assert metadata["license"] == "MIT"
    assert (REPO / "LICENSE").read_text(encoding="utf-8").startswith("MIT License\n")


def test_configuration_lies_in_one_file() -> None:
    names = {path.name for path in REPO.iterdir()}
    assert not names & {"setup.cfg", "tox.ini", "pytest.ini", "mypy.ini", "ruff.toml", ".flake8"}


@pytest.mark.slow
def test_a_wheel_holds_every_module_and_the_marker_of_types(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--quiet", "--wheel-dir", str(tmp_path), "."]
    done = subprocess.run(words, cwd=REPO, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    modules = {path.relative_to(REPO).as_posix() for path in PACKAGE.rglob("*.py")}
    assert held == modules | {"vaswani_plugin/py.typed", "vaswani_plugin/tools/attention_page.html"}
