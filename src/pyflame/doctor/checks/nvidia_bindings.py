"""NVIDIA's Python bindings to the driver."""

from __future__ import annotations

from pyflame.doctor.check import Check, Findings, broken, fine, warning
from pyflame.doctor.checks.nvidia_module import module_version
from pyflame.doctor.machine import Machine
from pyflame.doctor.probing import import_failure
from pyflame.doctor.rocm_files import package_version, version_in

_INSTALL = "python -m pip install 'pyflame-rocm[cuda]'"
_DRIVERS = {12: (525,), 13: (580,)}  # the oldest that runs what the toolkit of a major version builds
MODES = {
    "no-cuda-bindings": "the package cuda-bindings is not installed",
    "old-cuda-bindings": "cuda-bindings is older than 12.8",
    "driver-too-old": "the driver is older than the CUDA version of the bindings needs (12: 525, 13: 580)",
    "cuda-bindings-broken": "cuda-bindings is installed, but does not import",
}


def look(machine: Machine) -> Findings:
    version = package_version(machine, "cuda-bindings")
    if not version and not any(machine.exists(f"{place}/cuda/bindings") for place in machine.packages):
        yield broken("no-cuda-bindings", "cuda-bindings is not installed", _INSTALL)
        return
    if version and version_in(version)[:2] < (12, 8):
        yield warning("old-cuda-bindings", f"cuda-bindings {version} is older than 12.8", f"{_INSTALL} --upgrade")
    module, major = module_version(machine), version_in(version)[:1]
    oldest = _DRIVERS.get(major[0]) if major else None
    if module and oldest and version_in(module) < oldest:
        mend = f"python -m pip install 'cuda-bindings<{major[0]}'   # or update the driver to {oldest[0]} or newer"
        yield broken("driver-too-old", f"cuda-bindings {version} needs driver {oldest[0]}, this is {module}", mend)
    if reason := import_failure(machine, "cuda.bindings.driver"):
        yield broken(
            "cuda-bindings-broken", f"cuda.bindings.driver does not import: {reason}", f"{_INSTALL} --force-reinstall"
        )
    yield fine(f"cuda-bindings {version or 'of unknown version'}")


CHECK = Check("nvidia-bindings", "nvidia", "the package cuda-bindings", look, MODES, ("nvidia-driver",))
