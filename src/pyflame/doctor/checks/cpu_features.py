"""The vector instructions of the CPU that kernels use."""

from __future__ import annotations

from pyflame.doctor.check import Check, Findings, fine, warning
from pyflame.doctor.machine import Machine

# What Linux calls it in /proc/cpuinfo -> what people call it.
_NAMES = {
    "avx2": "AVX2", "fma": "FMA", "avx512f": "AVX-512", "avx512_bf16": "AVX-512 BF16", "avx512_vnni": "VNNI",
    "amx_tile": "AMX", "amx_bf16": "AMX BF16", "asimd": "NEON", "asimdhp": "FP16", "asimddp": "dotprod",
    "i8mm": "i8mm", "bf16": "BF16", "sve": "SVE", "sve2": "SVE2",
}  # fmt: skip
MODES = {
    "no-vectors": "the CPU, or the virtual machine, offers neither AVX2 nor NEON: kernels are plain C",
}


def look(machine: Machine) -> Findings:
    rows = machine.read("/proc/cpuinfo").splitlines()
    present = set(next((row for row in rows if row.startswith(("flags", "Features"))), "").split())
    found = [name for flag, name in _NAMES.items() if flag in present]
    if not present & {"avx2", "asimd"}:
        mend = "# in a virtual machine, hand the CPU through: qemu -cpu host"
        yield warning("no-vectors", "neither AVX2 nor NEON in /proc/cpuinfo", mend)
    yield fine(", ".join(found) or "no vector instructions that kernels use")


CHECK = Check(
    "cpu-features",
    "cpu",
    "AVX2, AVX-512, AMX, NEON, dotprod, i8mm and SVE in /proc/cpuinfo",
    look,
    MODES,
    ("platform",),
)
