"""Which HIP runtime a process uses: the one it has, else the newest that is installed.

AMD's bindings ask for `libamdhip64.so`, a name that developers' packages have alone: what users install is called
libamdhip64.so.6 or .7 and lies in one of several folders. And where PyTorch has brought a runtime of its own into the
process, a second one beside it would see neither its memory nor its streams.
"""

from __future__ import annotations

import ctypes
import functools
import glob
import importlib
import os
import platform
import re
import sys
import warnings
from pathlib import Path
from typing import Any

RUNTIME = "amdhip64"
# A clang for AMD GPUs goes by these names, newest first: new targets need new compilers. 17 is the first with gfx942.
CLANGS = (*(f"clang-{n}" for n in range(40, 16, -1)), "clang", "/opt/rocm/llvm/bin/clang")
# In the order in which they are looked through; those that are not absolute lie beside Python's packages.
FOLDERS = (
    "_rocm_sdk_core/lib", "_rocm_sdk_libraries*/lib", "/opt/rocm/lib", "/opt/rocm-*/lib",
    f"/usr/lib/{platform.machine()}-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib",
)  # fmt: skip


def mapped(short: str = RUNTIME, maps: str = "/proc/self/maps") -> list[str]:
    """The files of a library that this process has loaded, each once.

    >>> mapped("no-such-library")
    []
    """
    try:
        lines = Path(maps).read_text(errors="replace").splitlines()
    except OSError:
        return []
    rows = (line.split(None, 5) for line in lines if f"/lib{short}.so" in line)
    return list(dict.fromkeys(os.path.realpath(row[5].strip()) for row in rows if len(row) == 6))


def installed(short: str = RUNTIME) -> list[str]:
    """The files of a library in the folders that the environment names and where ROCm may be, the best first."""
    folders = [f for f in os.environ.get("LD_LIBRARY_PATH", "").split(":") if f]
    folders += [os.path.join(os.environ[name], "lib") for name in ("ROCM_PATH", "ROCM_HOME") if os.environ.get(name)]
    for folder in FOLDERS:
        roots = [""] if os.path.isabs(folder) else [path for path in sys.path if path.endswith("-packages")]
        folders += [os.path.join(root, folder) for root in roots]
    return list(dict.fromkeys(path for folder in folders for path in _in(folder, short)))


def _in(folder: str, short: str) -> list[str]:
    """The files of a library in a folder, the newest first."""
    files = glob.glob(os.path.join(folder, f"lib{short}.so*"))
    files = [path for path in files if re.search(r"\.so[.\d]*$", path)]
    return [os.path.realpath(path) for path in sorted(files, key=_version, reverse=True)]


def _version(path: str) -> list[int]:
    """What sorts files by age: the numbers of a folder of ROCm and of a library's name.

    >>> _version("/opt/rocm-7.2.0/lib/libamdhip64.so.7")
    [7, 2, 0, 7]
    """
    return [
        int(number) for found in re.findall(r"rocm-[\d.]+|\.so\.[\d.]+", path) for number in re.findall(r"\d+", found)
    ]


def find(short: str, theirs: str = "") -> str:
    """The file of HIP's runtime or of a library that goes with it; empty where there is none. `theirs`: what AMD's
    bindings would take; a runtime that the process has already, and what lies beside it, comes before that."""
    candidates: list[str] = mapped(short)
    if short != RUNTIME:
        candidates += [path for runtime in mapped() for path in _in(os.path.dirname(runtime), short)]
    candidates += [theirs] if os.path.isabs(theirs) else []
    if short != RUNTIME and (runtime := find(RUNTIME)):
        candidates += _in(os.path.dirname(runtime), short)
        candidates += [runtime] if short == "hiprtc" and not installed(short) and _holds_hiprtc(runtime) else []
    return next(iter([*candidates, *installed(short)]), "")


def _holds_hiprtc(runtime: str) -> bool:
    """As all did up to 5.x, and as Debian's does."""
    try:
        return hasattr(ctypes.CDLL(runtime), "hiprtcCreateProgram")
    except OSError:
        return False


def resolve(short: str) -> str:
    """The file of a library, found with AMD's own resolver where the bindings are: it knows the wheels of the day."""
    try:
        teach_bindings()
        paths = importlib.import_module("rocm.bindings.util.paths")
    except ImportError:
        return find(short)
    path = os.fsdecode(paths.get_library_path(short))
    return path if os.path.isabs(path) else ""


def teach_bindings() -> None:
    """Let AMD's bindings, which look when a function is first called, find what this file finds."""
    paths: Any = importlib.import_module("rocm.bindings.util.paths")
    theirs = paths.get_library_path
    if hasattr(theirs, "__wrapped__"):
        return

    @functools.wraps(theirs)
    def get_library_path(short: str, *args: Any, **kwargs: Any) -> bytes:
        path: bytes = theirs(short, *args, **kwargs)
        return os.fsencode(find(short, os.fsdecode(path))) or path

    paths.get_library_path = get_library_path


def warn_of_two() -> None:
    """Say so where a process has two HIP runtimes: each would have devices, memory and streams of its own."""
    found = mapped()
    if len(found) > 1:
        warnings.warn(
            f"[rocm] expected one HIP runtime in this process but got {' and '.join(found)}: tensors of one are "
            "nothing to the other. Import the package that brings its own (torch) before PyFlame opens a GPU, or "
            "install a build of it that uses the system's",
            RuntimeWarning,
            stacklevel=3,
        )
