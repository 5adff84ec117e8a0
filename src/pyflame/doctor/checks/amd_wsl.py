"""AMD GPUs in WSL2, where there is no /dev/kfd: HIP reaches them through /dev/dxg."""

from __future__ import annotations

from pyflame.doctor.check import Check, Findings, broken, fine
from pyflame.doctor.gpus import is_wsl
from pyflame.doctor.machine import Machine
from pyflame.doctor.rocm_files import libraries, rocm_version

_BY_ITSELF = (7, 13)  # from this ROCm on, /dev/dxg is looked for without being told
MODES = {
    "no-dxg": "WSL2 has no /dev/dxg: an old WSL, or WSL1",
    "no-librocdxg": "the library through which ROCm reaches /dev/dxg is not installed",
    "dxg-variable": "before ROCm 7.13 HIP looks for /dev/dxg only where HSA_ENABLE_DXG_DETECTION=1",
}


def look(machine: Machine) -> Findings:
    if not is_wsl(machine):
        yield fine("not WSL2")
        return
    if not machine.exists("/dev/dxg"):
        yield broken(
            "no-dxg",
            "this is WSL without /dev/dxg",
            "wsl.exe --update   # then: wsl.exe --set-version DISTRIBUTION 2; and AMD's newest Adrenalin driver",
        )
        return
    if not libraries(machine, "rocdxg"):
        yield broken(
            "no-librocdxg",
            "librocdxg.so is not installed",
            "git clone https://github.com/ROCm/librocdxg   # and build it as its README says",
        )
    version = rocm_version(machine)
    if version and version[:2] < _BY_ITSELF and machine.env.get("HSA_ENABLE_DXG_DETECTION") != "1":
        yield broken("dxg-variable", "HSA_ENABLE_DXG_DETECTION is not 1", "export HSA_ENABLE_DXG_DETECTION=1")
    yield fine("WSL2 with /dev/dxg")


CHECK = Check("amd-wsl", "amd", "WSL2's /dev/dxg, librocdxg and HSA_ENABLE_DXG_DETECTION", look, MODES, ("amd-device",))
