"""The doctor's findings, on this machine and on machines with something missing or broken."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Callable

import pytest
import torch

import vaswani_plugin
from vaswani_plugin import toolkit
from vaswani_plugin.tools import doctor
from vaswani_plugin.tools.doctor import Finding, main


def test_a_machine_that_runs_these_tests_is_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "everything essential works"
    assert [line for line in lines if line.startswith("!")] == []
    values = dict(line[2:].split(maxsplit=1) for line in lines[:-1])
    # torch's own number may have a build after it, as in 2.2.2+cu121, that its distribution leaves out
    assert torch.__version__.startswith(values["torch"])
    assert values["plugin"].endswith(f"names registered from {vaswani_plugin.__path__[0]}")


def test_json_holds_every_finding(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] is True
    assert {"python", "toolkit", "torch", "apex", "cpu", "plugin", "safe loading"} <= {
        finding["name"] for finding in report["findings"]
    }
    assert all(finding["status"] in ("ok", "note") for finding in report["findings"])


def versions(monkeypatch: pytest.MonkeyPatch, **changed: str | None) -> None:
    """Pretends that distributions (with _ for -) are installed in these versions, or missing."""
    names = {name.replace("_", "-"): version for name, version in changed.items()}
    real = doctor._version
    monkeypatch.setattr(doctor, "_version", lambda name: names[name] if name in names else real(name))


def test_a_missing_essential_package_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    versions(monkeypatch, sacrebleu=None, matplotlib=None)
    assert main([]) == 1
    lines = [line for line in capsys.readouterr().out.splitlines() if line[0] in "!-1" and "ctranslate2" not in line]
    assert [" ".join(line.split()) for line in lines] == [
        "! sacrebleu missing; pip install sacrebleu",
        "- matplotlib missing; needed for pictures of learning curves and attention",
        "1 essential things do not work, marked !",
    ]


def test_no_toolkit_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    versions(monkeypatch, fairseq=None, ve_fairseq=None, fairseq_fixed=None)
    assert doctor.check_toolkit() == [
        Finding("toolkit", "missing; pip install vaswani-plugin chooses the right one", "wrong")
    ]


def test_two_toolkits_are_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    versions(monkeypatch, fairseq="0.12.2", ve_fairseq="0.12.3", fairseq_fixed=None)
    text = "fairseq 0.12.2, ve-fairseq 0.12.3: they overwrite each other's files; uninstall all and install one"
    assert doctor.check_toolkit() == [Finding("toolkit", text, "wrong")]


def test_a_toolkit_that_does_not_import_is_wrong_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    versions(monkeypatch, fairseq="0.12.2", ve_fairseq=None, fairseq_fixed=None)
    monkeypatch.setattr(vaswani_plugin, "TOOLKIT_ERROR", ValueError("mutable default\nfor field common"))
    assert doctor.check_toolkit()[1:] == [Finding("toolkit imports", "ValueError: mutable default", "wrong")]
    reason = "because the toolkit does not import"
    assert doctor.check_plugin() == [Finding("plugin", f"not registered, {reason}", "wrong")]
    assert doctor.check_safe_loading() == [Finding("safe loading", f"not tried, {reason}", "wrong")]


@pytest.fixture
def apex(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, str]], list[Finding]]:
    """Checks apex where these files (path to content) are installed."""

    def check(files: dict[str, str]) -> list[Finding]:
        for path, content in files.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(content)
        monkeypatch.syspath_prepend(str(tmp_path))
        before = set(sys.modules)
        try:
            return doctor.check_apex()
        finally:
            for name in set(sys.modules) - before:
                del sys.modules[name]

    return check


NVIDIA = {
    "apex/__init__.py": "",
    "apex/optimizers/__init__.py": "FusedAdam = 1",
    "apex/normalization/__init__.py": "FusedLayerNorm = 1",
}


def test_nvidia_s_apex(apex: Callable[[dict[str, str]], list[Finding]]) -> None:
    assert apex({**NVIDIA, "amp_C.py": ""}) == [Finding("apex", "NVIDIA's, with FusedAdam and FusedLayerNorm")]


def test_nvidia_s_apex_without_its_kernels(apex: Callable[[dict[str, str]], list[Finding]]) -> None:
    text = "NVIDIA's, but not usable: ModuleNotFoundError: No module named 'amp_C'"
    assert apex(NVIDIA) == [Finding("apex", text, "note")]


def test_the_unrelated_apex_is_told_and_not_imported(apex: Callable[[dict[str, str]], list[Finding]]) -> None:
    text = "an unrelated package of that name, not NVIDIA's; pip uninstall apex"
    assert apex({"apex/__init__.py": "raise SystemExit"}) == [Finding("apex", text, "note")]


def test_an_unregistered_name_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(vaswani_plugin.REGISTERED, "task", ("vaswani_translation", "vaswani_other"))
    assert doctor.check_plugin() == [Finding("plugin", "not registered: vaswani_other", "wrong")]


def test_a_switch_for_unsafe_loading_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    text = "works; TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD is set, which other programs may heed"
    assert doctor.check_safe_loading() == [Finding("safe loading", text, "note")]


def test_loading_that_is_not_safe_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolkit, "_safe_load", lambda file, _: torch.load(file, weights_only=False))
    text = "loads classes that it should refuse"
    assert doctor.check_safe_loading() == [Finding("safe loading", text, "wrong")]


def test_loading_that_refuses_the_toolkit_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(file: object, map_location: object) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr(toolkit, "_safe_load", refuse)
    (finding,) = doctor.check_safe_loading()
    assert finding.status == "wrong"
    assert finding.value.startswith("refuses the toolkit's own checkpoints: BrokenCheckpoint: ")
