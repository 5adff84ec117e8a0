"""Whether AMD's libraries hold kernels for these GPUs: without them a call fails, or ends the process."""

from __future__ import annotations

import re

from pyflame.doctor.check import Check, Findings, fine, nothing, warning
from pyflame.doctor.gpus import agents
from pyflame.doctor.machine import Machine
from pyflame.doctor.rocm_files import INSTALL, folders

_LIBRARIES = {"rocblas": "ROCBLAS_TENSILE_LIBPATH", "hipblaslt": "HIPBLASLT_TENSILE_LIBPATH"}
MODES = {
    "rocblas-lacks-gfx": "rocBLAS has no kernels for this gfx; PyFlame multiplies with its own",
    "hipblaslt-lacks-gfx": "hipBLASLt has no kernels for this gfx; PyFlame multiplies with its own",
    "libpath-empty": "a variable points at a folder of kernels that holds none",
}


def targets_in(machine: Machine, folder: str) -> set[str]:
    """The gfx names in the file names of a library's kernels.

    rocBLAS: TensileLibrary_..._gfx1100.dat, Kernels.so-000-gfx90a.hsaco; hipBLASLt has a folder for some.
    """
    names = machine.glob(f"{folder}/*gfx*") + machine.glob(f"{folder}/*/*gfx*")
    return {gfx for name in names for gfx in re.findall(r"gfx[0-9]{2,3}[0-9a-f]", name.removeprefix(folder))}


def look(machine: Machine) -> Findings:
    wanted, seen = {agent.gfx for agent in agents(machine)}, False
    for name, variable in _LIBRARIES.items():
        override = machine.env.get(variable, "")
        if override and not targets_in(machine, override):
            yield warning("libpath-empty", f"{variable}={override} holds no kernels", f"unset {variable}")
        for folder in [override] if override else [f"{place}/{name}/library" for place in folders(machine)]:
            have = targets_in(machine, folder)
            if not have:
                continue
            seen = True
            if missing := sorted(wanted - have):
                yield warning(
                    f"{name}-lacks-gfx",
                    f"{folder} has no kernels for {', '.join(missing)}, but for {', '.join(sorted(have))}",
                    INSTALL,
                )
            else:
                yield fine(f"{folder}: {', '.join(sorted(wanted))}")
    if not seen:
        yield nothing("neither rocBLAS nor hipBLASLt is installed; PyFlame's own kernels do")


CHECK = Check(
    "amd-library-kernels", "amd", "gfx names in the kernel files of rocBLAS and hipBLASLt", look, MODES, ("amd-hip",)
)
