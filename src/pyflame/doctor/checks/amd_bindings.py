"""AMD's Python bindings to HIP."""

from __future__ import annotations

from pyflame.doctor.check import Check, Findings, broken, fine, warning
from pyflame.doctor.machine import Machine
from pyflame.doctor.probing import import_failure
from pyflame.doctor.rocm_files import dotted, package_version, rocm_version, version_in

_OLDEST = (10, 0)
_INSTALL = "python -m pip install 'pyflame-rocm[rocm]'"
MODES = {
    "no-bindings": "the package rocm-bindings-hip is not installed",
    "no-bindings-aarch64": "AMD publishes no rocm-bindings-hip for aarch64",
    "old-bindings": "rocm-bindings-hip is older than 10.0",
    "bindings-broken": "rocm-bindings-hip is installed, but does not import",
}


def look(machine: Machine) -> Findings:
    version = package_version(machine, "rocm-bindings-hip")
    there = version or any(machine.exists(f"{place}/rocm/bindings/hip") for place in machine.packages)
    if not there and machine.arch == "aarch64":
        yield broken(
            "no-bindings-aarch64",
            "AMD publishes rocm-bindings-hip for x86-64 only",
            "# use an x86-64 machine for AMD GPUs; the CPU works here",
        )
        return
    if not there:
        yield broken("no-bindings", "rocm-bindings-hip is not installed", _INSTALL)
        return
    if version and version_in(version) < _OLDEST:
        yield warning("old-bindings", f"rocm-bindings-hip {version} is older than 10.0", f"{_INSTALL} --upgrade")
    if reason := import_failure(machine, "rocm.bindings.hip"):
        yield broken("bindings-broken", f"rocm.bindings.hip does not import: {reason}", f"{_INSTALL} --force-reinstall")
    yield fine(f"rocm-bindings-hip {version or 'of unknown version'}, HIP {dotted(rocm_version(machine)) or 'unknown'}")


CHECK = Check("amd-bindings", "amd", "the package rocm-bindings-hip", look, MODES, ("amd-hip",))
