"""What is cheap to know of this machine: files are read, nothing is imported and no device is opened."""

from __future__ import annotations

import importlib.metadata
import re
from pathlib import Path

from pyflame.core.errors import ArgumentError
from pyflame.doctor.environment.variable import Machine, Version
from pyflame.doctor.gpus import gfx_name


def version_of(text: str, what: str = "version") -> Version:
    """`7.2.1` as (7, 2).

    >>> version_of("2.11.0+rocm7.2")
    (2, 11)
    """
    found = re.match(r"\s*v?(\d+)\.(\d+)", text)
    if found is None:
        raise ArgumentError(f"[env] expected a {what} such as 7.2 but got {text!r}")
    return int(found[1]), int(found[2])


def find_machine(root: str | Path = "/") -> Machine:
    """The GPUs, ROCm and torch of this machine, as far as files tell.

    >>> find_machine().wsl
    False
    """
    torch = _torch() if Path(root) == Path("/") else ""
    rocm = re.search(r"\+rocm(\d+\.\d+)", torch)  # a wheel brings its own ROCm
    gpus = _gpus(Path(root))
    return Machine(
        gpus,
        version_of(rocm[1]) if rocm else _rocm(Path(root)),
        version_of(torch) if torch else None,
        (Path(root) / "dev/dxg").exists(),
        "+cu" in torch or ((Path(root) / "proc/driver/nvidia").exists() and not gpus),
    )


def _torch() -> str:
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return ""


def _rocm(root: Path) -> Version | None:
    try:
        return version_of((root / "opt/rocm/.info/version").read_text(encoding="utf-8", errors="replace"))
    except (OSError, ArgumentError):
        return None


def _gpus(root: Path) -> tuple[str, ...]:
    found = []
    for properties in sorted((root / "sys/class/kfd/kfd/topology/nodes").glob("*/properties")):
        try:
            text = properties.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue  # a node that this user may not read
        number = re.search(r"^gfx_target_version\s+(\d+)", text, re.MULTILINE)
        if number and int(number[1]):  # 0: a CPU
            found.append(gfx_name(int(number[1])))
    return tuple(dict.fromkeys(found))
