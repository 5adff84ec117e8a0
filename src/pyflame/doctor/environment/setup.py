"""The few variables that are known to help a GPU at a kind of work, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass

from pyflame.core.errors import ArgumentError, suggest
from pyflame.core.targets import TARGETS
from pyflame.doctor.environment.table.devices import LIKE_GFX1030
from pyflame.doctor.environment.variable import Machine

WORK = ("training", "inference", "serving")
GPUS = (*(t for t, target in TARGETS.items() if target.language == "hip"), *LIKE_GFX1030, "gfx1101", "gfx1102",
        "gfx1103", "gfx1150", "gfx1152", "gfx1153", "gfx1250")  # fmt: skip
_EXPERIMENTAL = ("gfx1100", "gfx1101", "gfx1102", "gfx1150", "gfx1151", "gfx1200", "gfx1201")
_HIPBLASLT = ("gfx1100", "gfx1101", "gfx1102", "gfx1150", "gfx1151")

_SEARCHED = ("gfx908", "gfx90a", "gfx942", "gfx950", "gfx1250")  # MIOpen comes with results of searches for them


@dataclass(frozen=True)
class Line:
    """`export name=value`, and why."""

    name: str
    value: str
    why: str

    def __str__(self) -> str:
        return f"export {self.name}={self.value}  # {self.why}"


def lines_for(gpu: str, work: str, machine: Machine | None = None) -> list[Line]:
    """What to set for a GPU and a kind of work; nothing where nothing is known to help.

    >>> [line.name for line in lines_for("gfx1032", "training")]
    ['HSA_OVERRIDE_GFX_VERSION']
    >>> lines_for("gfx942", "training")
    []
    """
    if gpu not in GPUS:
        raise ArgumentError(f"[env setup] expected a GPU such as gfx1100 but got {gpu!r}{suggest(gpu, GPUS)}")
    if work not in WORK:
        raise ArgumentError(f"[env setup] expected one of {', '.join(WORK)} but got {work!r}{suggest(work, WORK)}")
    machine = Machine() if machine is None else machine
    found = []
    if machine.wsl and (machine.rocm is None or machine.rocm < (7, 13)):
        found.append(Line("HSA_ENABLE_DXG_DETECTION", "1", "ROCr: before ROCm 7.13 it finds no GPU of WSL2 without it"))
    if gpu in LIKE_GFX1030:
        why = "ROCr: the instructions are those of gfx1030, for which libraries have kernels"
        found.append(Line("HSA_OVERRIDE_GFX_VERSION", "10.3.0", why))
    old = machine.torch is not None and machine.torch < (2, 10) and machine.rocm is not None and machine.rocm >= (7, 0)
    if old and gpu in _HIPBLASLT:
        why = "PyTorch: rocBLAS fails on some float16 shapes of this GPU; torch 2.10 prefers hipBLASLt by itself"
        found.append(Line("TORCH_BLAS_PREFER_HIPBLASLT", "1", why))
    if gpu in _EXPERIMENTAL:
        why = "PyTorch: fused attention also where its kernels for a GPU are called experimental"
        found.append(Line("TORCH_ROCM_AOTRITON_ENABLE_EXPERIMENTAL", "1", why))
    if work != "training" and gpu not in _SEARCHED:
        why = "MIOpen: a new shape of a convolution runs at once; searching the fastest kernel takes up to minutes"
        found.append(Line("MIOPEN_FIND_MODE", "FAST", why))
    return found
