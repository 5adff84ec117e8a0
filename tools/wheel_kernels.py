"""A hook of hatchling: puts the kernels of build/prebuilt, where `make wheel` made some (tools/prebuild.py), into the
wheel, which is then one for this platform. Without them it is pure Python, and kernels are compiled at first use."""

from __future__ import annotations

import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class PrebuiltKernels(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        folder = Path(self.root, "build", "prebuilt")
        if version == "editable" or not any(folder.glob("*.so")):
            return
        build_data["force_include"][str(folder)] = "pyflame/kernels/prebuilt"
        build_data["pure_python"] = False
        build_data["tag"] = "py3-none-" + sysconfig.get_platform().replace("-", "_").replace(".", "_")
