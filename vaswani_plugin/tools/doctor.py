"""``vaswani-doctor``: says what is installed here, what is missing, and whether the plugin works.

Every check is a function that returns findings; none of them raises, whatever is broken.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import sys
import tempfile
from argparse import Namespace
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import Callable, List, Optional, Sequence

import vaswani_plugin

#: The toolkit's distributions, all of which import as ``fairseq``.
TOOLKITS = ("fairseq", "ve-fairseq", "fairseq-fixed")
ESSENTIAL = ("torch", "numpy", "sacrebleu", "sacremoses", "sentencepiece", "subword-nmt", "tqdm")
#: What is only needed for something special, and for what.
OPTIONAL = {
    "matplotlib": "pictures of learning curves and attention",
    "tensorboardX": "--tensorboard-logdir",
    "ctranslate2": "export to CTranslate2",
}
#: Flags in /proc/cpuinfo that speed up training or translating on a CPU.
CPU_FLAGS = ("avx2", "avx512f", "avx512_bf16", "avx512_vnni", "avx_vnni", "amx_bf16", "amx_int8")


@dataclass(frozen=True)
class Finding:
    """One line of the report."""

    name: str
    value: str
    #: ok, note (worth knowing) or wrong (something essential does not work)
    status: str = "ok"


def _version(distribution: str) -> Optional[str]:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"


def check_python() -> List[Finding]:
    """Python's version, and whether a toolkit exists for it."""
    text = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    if (3, 9) <= sys.version_info[:2] <= (3, 12):
        return [Finding("python", text)]
    return [Finding("python", f"{text}; supported are 3.9 to 3.12", "wrong")]


def check_toolkit() -> List[Finding]:
    """The toolkit's distribution and whether it imports, compiled parts included."""
    found = [f"{name} {version}" for name in TOOLKITS for version in [_version(name)] if version]
    if not found:
        return [Finding("toolkit", "missing; pip install vaswani-plugin chooses the right one", "wrong")]
    findings = [Finding("toolkit", ", ".join(found))]
    if len(found) > 1:
        text = f"{', '.join(found)}: they overwrite each other's files; uninstall all and install one"
        findings = [Finding("toolkit", text, "wrong")]
    if vaswani_plugin.TOOLKIT_ERROR is not None:
        return [*findings, Finding("toolkit imports", _first_line(vaswani_plugin.TOOLKIT_ERROR), "wrong")]
    try:
        importlib.import_module("fairseq.data.data_utils_fast")
    except Exception as error:
        return [*findings, Finding("toolkit's compiled parts", _first_line(error), "wrong")]
    return findings


def check_packages() -> List[Finding]:
    """The other packages: essential ones must be there, optional ones are told apart."""
    findings = []
    for name in ESSENTIAL:
        version = _version(name)
        findings.append(Finding(name, version or f"missing; pip install {name}", "ok" if version else "wrong"))
    for name, purpose in OPTIONAL.items():
        version = _version(name)
        findings.append(Finding(name, version or f"missing; needed for {purpose}", "ok" if version else "note"))
    return findings


def check_apex() -> List[Finding]:
    """Which package is called apex here: NVIDIA's, whose fused kernels the toolkit uses, or an unrelated one."""
    spec = importlib.util.find_spec("apex")
    if spec is None:
        return [Finding("apex", "absent (NVIDIA's fused kernels are not needed)")]
    folders = [Path(folder) for folder in spec.submodule_search_locations or []]
    if not any((folder / "optimizers").is_dir() for folder in folders):
        return [Finding("apex", "an unrelated package of that name, not NVIDIA's; pip uninstall apex", "note")]
    try:
        for module, name in (("apex.optimizers", "FusedAdam"), ("apex.normalization", "FusedLayerNorm")):
            getattr(importlib.import_module(module), name)
        importlib.import_module("amp_C")
    except Exception as error:
        return [Finding("apex", f"NVIDIA's, but not usable: {_first_line(error)}", "note")]
    return [Finding("apex", "NVIDIA's, with FusedAdam and FusedLayerNorm")]


def check_devices() -> List[Finding]:
    """The GPUs that torch sees, and what the CPU can do."""
    try:
        import torch

        gpus = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
    except Exception as error:
        return [Finding("gpu", _first_line(error), "note")]
    findings = [
        Finding(f"gpu {index}", f"{gpu.name}, {gpu.total_memory / 2**30:.0f} GiB, capability {gpu.major}.{gpu.minor}")
        for index, gpu in enumerate(gpus)
    ]
    cpuinfo = Path("/proc/cpuinfo")
    flags = set(cpuinfo.read_text(errors="replace").split()) if cpuinfo.is_file() else set()
    known = [flag for flag in CPU_FLAGS if flag in flags]
    text = f"{os.cpu_count()} cores, {torch.get_num_threads()} threads; {' '.join(known) or 'no known extension'}"
    return [*(findings or [Finding("gpu", "none")]), Finding("cpu", text)]


def check_plugin() -> List[Finding]:
    """Whether every name is registered, and from which folder."""
    if vaswani_plugin.TOOLKIT_ERROR is not None:
        return [Finding("plugin", "not registered, because the toolkit does not import", "wrong")]
    from vaswani_plugin.toolkit import REGISTRIES

    names = [(kind, name) for kind, kind_names in vaswani_plugin.REGISTERED.items() for name in kind_names]
    missing = [name for kind, name in names if name not in REGISTRIES[kind]]
    if missing:
        return [Finding("plugin", f"not registered: {', '.join(missing)}", "wrong")]
    return [Finding("plugin", f"{len(names)} names registered from {vaswani_plugin.__path__[0]}")]


def check_safe_loading() -> List[Finding]:
    """Whether the toolkit's checkpoints load, and any other class is refused."""
    if vaswani_plugin.TOOLKIT_ERROR is not None:
        return [Finding("safe loading", "not tried, because the toolkit does not import", "wrong")]
    import numpy
    import torch

    from vaswani_plugin.toolkit import CheckpointError, load_checkpoint

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "checkpoint.pt")
        try:
            torch.save({"model": {"weight": torch.ones(2)}, "args": Namespace(), "counts": numpy.arange(3)}, path)
            load_checkpoint(path)
        except Exception as error:
            return [Finding("safe loading", f"refuses the toolkit's own checkpoints: {_first_line(error)}", "wrong")]
        torch.save({"model": Fraction(1, 2)}, path)
        try:
            load_checkpoint(path)
        except CheckpointError:
            forced = [name for name in os.environ if name.startswith("TORCH_FORCE_")]
            note = f"; {', '.join(forced)} is set, which other programs may heed" if forced else ""
            return [Finding("safe loading", f"works{note}", "note" if forced else "ok")]
    return [Finding("safe loading", "loads classes that it should refuse", "wrong")]


CHECKS: Sequence[Callable[[], List[Finding]]] = (
    check_python,
    check_toolkit,
    check_packages,
    check_apex,
    check_devices,
    check_plugin,
    check_safe_loading,
)


def report(findings: Sequence[Finding]) -> str:
    """The findings as aligned lines; what is wrong or worth knowing is marked."""
    marks = {"ok": "  ", "note": "- ", "wrong": "! "}
    width = max(len(finding.name) for finding in findings)
    return "\n".join(f"{marks[found.status]}{found.name:<{width}}  {found.value}" for found in findings)


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Print the report.

    Returns:
        0, or 1 when something essential is missing or does not work.
    """
    parser = argparse.ArgumentParser(prog="vaswani-doctor", description="Says what is installed here and what works.")
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    args = parser.parse_args(argv)
    findings = [finding for check in CHECKS for finding in check()]
    n_wrong = sum(finding.status == "wrong" for finding in findings)
    if args.json:
        print(json.dumps({"ok": n_wrong == 0, "findings": [asdict(finding) for finding in findings]}, indent=2))
    else:
        print(report(findings))
        print("everything essential works" if n_wrong == 0 else f"{n_wrong} essential things do not work, marked !")
    return 1 if n_wrong else 0


if __name__ == "__main__":
    sys.exit(main())
