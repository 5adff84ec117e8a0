"""ROCm's files on a machine: HIP runtimes and their versions, from packages of the system, pip wheels and PyTorch."""

from __future__ import annotations

import os
import platform
import re
from dataclasses import dataclass

from pyflame.doctor.machine import Machine
from pyflame.runtime.rocm.find import FOLDERS

Version = tuple[int, ...]
INSTALL = "python -m pip install --index-url https://repo.amd.com/rocm/whl-multi-arch/ 'rocm[libraries]'"


@dataclass(frozen=True)
class Library:
    """A shared library: where it is, its version as far as it is known, and whether a loader finds it whole."""

    path: str
    version: Version
    whole: bool = True

    @property
    def of_torch(self) -> bool:
        return "/torch/lib/" in self.path

    def __str__(self) -> str:
        return f"{self.path} ({dotted(self.version) or 'version unknown'})"


_TORCH_FOR = ((6, 2), (6, 3), (6, 4), (7, 0), (7, 1), (7, 2))  # versions that PyTorch publishes wheels for


def dotted(version: Version) -> str:
    return ".".join(map(str, version))


def torch_install(rocm: Version | None = None) -> str:
    """The command that installs PyTorch for a version of ROCm, or for CUDA. From 7.3 on AMD's own index has it.

    >>> torch_install((7, 1, 0))
    'python -m pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/rocm7.1'
    """
    if rocm is None:
        index = "https://download.pytorch.org/whl/cu130"
    elif rocm[:2] in _TORCH_FOR:
        index = f"https://download.pytorch.org/whl/rocm{dotted(rocm[:2])}"
    else:
        index = "https://repo.amd.com/rocm/whl-multi-arch/"
    return f"python -m pip install --force-reinstall torch --index-url {index}"


def version_in(text: str) -> Version:
    """The first version in a text, up to three numbers.

    >>> version_in("7.1.0-43"), version_in("none")
    ((7, 1, 0), ())
    """
    found = re.search(r"\d{1,9}(\.\d{1,9}){0,2}", text)
    return tuple(map(int, found[0].split("."))) if found else ()


def folders(machine: Machine, patterns: tuple[str, ...] = (*FOLDERS, "torch/lib")) -> list[str]:
    """Where PyFlame looks for ROCm's libraries, in its order, and at last PyTorch's own; or by other patterns."""
    named = [p for p in machine.env.get("LD_LIBRARY_PATH", "").split(":") if p]
    named += [f"{machine.env[name]}/lib" for name in ("ROCM_PATH", "ROCM_HOME") if machine.env.get(name)]
    for pattern in patterns:
        places = [""] if pattern.startswith("/") else [f"{place}/" for place in machine.packages]
        here = pattern.replace(platform.machine(), machine.arch)
        named += [folder for place in places for folder in reversed(machine.glob(f"{place}{here}"))]
    return list(dict.fromkeys(folder.rstrip("/") for folder in named))


def libraries(machine: Machine, name: str) -> list[Library]:
    """Each file `lib<name>.so*` once, whatever links lead to it."""
    found: dict[str, Library] = {}
    for folder in folders(machine):
        for path in machine.glob(f"{folder}/lib{name}.so*"):
            real = os.path.realpath(machine.path(path))
            version = version_in(real.rpartition(".so")[2]) or version_in(path.rpartition(".so")[2])
            if len(version) < 2:
                version = _told(machine, folder) or version
            entry = Library(path, version, machine.exists(path))
            known = found.get(real)
            if known is None or len(version) > len(known.version):
                found[real] = entry if known is None else Library(known.path, version, known.whole)
    return list(found.values())


def _told(machine: Machine, folder: str) -> Version:
    """ROCm's version beside a folder of libraries: its own note, a wheel's, or PyTorch's."""
    above = folder.rpartition("/")[0]
    if above.endswith("/torch"):
        return version_in(torch_versions(machine, above).get("hip", ""))
    note = machine.line(f"{above}/.info/version")
    if note:
        return version_in(note)
    wheels = machine.glob(f"{above.rpartition('/')[0]}/rocm_sdk_core-*.dist-info") if "_rocm_sdk" in above else []
    return version_in(wheels[-1].rpartition("rocm_sdk_core-")[2]) if wheels else ()


def torch_versions(machine: Machine, folder: str) -> dict[str, str]:
    """What PyTorch's version.py says, read and not run: `__version__`, `cuda`, `hip`."""
    text = machine.read(f"{folder}/version.py")
    rows = re.findall(r"^(__version__|cuda|hip)\b[^=\n]*=\s*['\"]([^'\"\n]*)['\"]", text, re.MULTILINE)
    return dict(rows)


def rocm_version(machine: Machine) -> Version:
    """Of the HIP runtime that is found first, PyTorch's own copy aside."""
    found = [lib for lib in libraries(machine, "amdhip64") if lib.whole and lib.version]
    return next((lib.version for lib in found if not lib.of_torch), found[0].version if found else ())


def package_version(machine: Machine, name: str) -> str:
    """A Python package's version by its dist-info, or nothing."""
    stem = re.sub(r"[-_.]+", "[-_.]", name)
    for place in machine.packages:
        for path in machine.glob(f"{place}/{stem}-*.dist-info"):
            return path.rpartition("/")[2].removesuffix(".dist-info").rpartition("-")[2]
    return ""
