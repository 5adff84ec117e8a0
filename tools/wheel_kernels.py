"""A hook of hatchling: puts the kernels of build/prebuilt, where `make wheel` made some (tools/prebuild.py), into the
wheel, which is then one for this platform. Without them it is pure Python, and kernels are compiled at first use."""

from __future__ import annotations

import platform
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class PrebuiltKernels(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        folder = Path(self.root, "build", "prebuilt")
        libraries = list(folder.glob("*.so"))
        if version == "editable" or not libraries:
            return
        build_data["force_include"][str(folder)] = "pyflame/kernels/prebuilt"
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform_tag(libraries)}"


def platform_tag(libraries: Sequence[Path]) -> str:
    """The systems they run on, by the newest glibc that they name (PEP 600), which is all they need."""
    named = [re.findall(rb"GLIBC_(\d+)\.(\d+)", path.read_bytes()) for path in libraries]
    needed = [(int(major), int(minor)) for versions in named for major, minor in versions]
    return "_".join(map(str, ("manylinux", *max(needed)) if needed else ("linux",))) + f"_{platform.machine()}"
