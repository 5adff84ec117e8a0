"""Under which conditions a run measures: machine, driver, clocks, versions. A figure without them means nothing."""

from __future__ import annotations

import datetime
import platform
import shutil
import subprocess
import sys
from importlib import metadata

import pyflame as pf
from benchmarks.peers import have
from pyflame.core.device import parse_device
from pyflame.core.errors import PyFlameError
from pyflame.engine.devices import get_device
from pyflame.libs.cuda.cublaslt import CublasLt

_CLOCKS = "clocks.sm,clocks.max.sm,clocks.mem,clocks.max.mem,power.draw,power.limit,temperature.gpu,driver_version"


def conditions(device: str) -> dict[str, str]:
    """By name; opens the device."""
    found = {"device": device, "date": datetime.date.today().isoformat()}
    if device == "cpu":
        found["machine"] = platform.processor() or platform.machine()
    else:
        opened = get_device(parse_device(device))
        properties = opened.properties
        found["GPU"] = f"{properties.name}, {properties.arch_full}, {properties.compute_units} compute units"
        found["memory"] = f"{properties.total_memory / 2**30:.1f} GiB"
        found["driver"] = opened.driver.version()
    if clocks := clocks_of(device):
        found["clocks before"] = clocks
    found["Python"] = sys.version.split()[0]
    found["pyflame"] = pf.__version__
    for name in ("numpy", "torch", "jax", "jaxlib", "triton", "cuda-bindings", "rocm-bindings-hip"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    if have("torch"):
        import torch

        found["torch"] = torch.__version__  # with what it was built for
    if device.startswith("cuda"):
        try:
            library = CublasLt()
            found["cuBLASLt"] = f"{library.version} from {library.path}"
            library.close()
        except PyFlameError as error:
            found["cuBLASLt"] = str(error).splitlines()[0]
    return found


def clocks_of(device: str) -> str:
    """Clocks, power and temperature as nvidia-smi tells them; empty where it does not."""
    if not device.startswith("cuda") or not shutil.which("nvidia-smi"):
        return ""
    index = device.partition(":")[2] or "0"
    command = ["nvidia-smi", f"--query-gpu={_CLOCKS}", "--format=csv,noheader", f"--id={index}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    if done.returncode:
        return f"nvidia-smi: {(done.stderr or done.stdout).strip()[:100]}"
    return ", ".join(f"{k} {v.strip()}" for k, v in zip(_CLOCKS.split(","), done.stdout.split(","), strict=False))
