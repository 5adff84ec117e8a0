"""A compiler for AMD GPUs: hiprtc, or any clang with the AMDGPU target, tried on a small kernel."""

from __future__ import annotations

import tempfile
from pathlib import Path

from pyflame.doctor.check import Check, Findings, broken, fine, unseen, warning
from pyflame.doctor.gpus import agents
from pyflame.doctor.machine import Machine
from pyflame.doctor.rocm_files import libraries
from pyflame.runtime.rocm.find import CLANGS

_KERNEL = 'extern "C" __attribute__((global)) void pf_trial(float* x) { x[0] = x[1] * 2.0f; }\n'
_FLAGS = ("-x", "hip", "--cuda-device-only", "--no-gpu-bundle-output", "-nogpuinc", "-nogpulib", "-O1")
_INSTALL = "sudo apt install clang lld   # 17 or newer; or ROCm's own: sudo apt install rocm-llvm hip-runtime-amd"
MODES = {
    "no-gpu-compiler": "there is neither hiprtc nor a clang: no kernel can be built for the GPU",
    "clang-missing": "PYFLAME_HIP_CLANG names a compiler that is not there",
    "gpu-trial-failed": "clang does not build a small kernel for this gfx, and there is no hiprtc",
    "clang-too-old": "clang does not build a small kernel for this gfx; hiprtc is used",
}


def clangs(machine: Machine) -> list[str]:
    """Clangs that may know AMD GPUs, newest first."""
    named = machine.env.get("PYFLAME_HIP_CLANG", "")
    if named:
        return [path] if (path := machine.which(named)) else []
    return [path for name in CLANGS if (path := machine.which(name))]


def look(machine: Machine) -> Findings:
    named = machine.env.get("PYFLAME_HIP_CLANG", "")
    found, hiprtc = clangs(machine), [lib for lib in libraries(machine, "hiprtc") if lib.whole]
    if named and not found:
        yield broken("clang-missing", f"PYFLAME_HIP_CLANG names {named}, which is not there", "unset PYFLAME_HIP_CLANG")
        return
    if not found and not hiprtc:
        yield broken("no-gpu-compiler", "there is neither libhiprtc.so nor a clang", _INSTALL)
        return
    if not found:
        yield fine(str(hiprtc[0]))
        return
    if not machine.live:
        yield unseen(f"{hiprtc[0] if hiprtc else found[0]}; nothing is compiled in a copy of a machine")
        return
    for gfx in sorted({agent.gfx for agent in agents(machine)}):
        if said := _trial(machine, found[0], gfx):
            tell, mode = (warning, "clang-too-old") if hiprtc else (broken, "gpu-trial-failed")
            yield tell(mode, f"{found[0]} builds nothing for {gfx}: {said}", _INSTALL)
    yield fine(f"{f'{hiprtc[0]}; ' if hiprtc else ''}{found[0]}")


def _trial(machine: Machine, clang: str, gfx: str) -> str:
    """What a compiler says against a small kernel; empty if it builds it."""
    with tempfile.TemporaryDirectory(prefix="pyflame-doctor-") as folder:
        source, out = Path(folder) / "trial.hip", Path(folder) / "trial.hsaco"
        source.write_text(_KERNEL)
        done = machine.run([clang, *_FLAGS, f"--offload-arch={gfx}", str(source), "-o", str(out)], 30.0)
    return f"status {done.status}: {done.text.strip()[:300]}" if done.status else ""


CHECK = Check(
    "amd-compiler",
    "amd",
    "hiprtc and clang, by building a small kernel for each gfx",
    look,
    MODES,
    ("amd-agents", "amd-wsl"),
)
