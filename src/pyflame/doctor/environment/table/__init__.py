"""Every variable that is known, one file per kind."""

from __future__ import annotations

from pyflame.doctor.environment.table import blas, communication, convolution, devices, own, runtime, torch
from pyflame.doctor.environment.variable import Variable

GROUPS: dict[str, tuple[Variable, ...]] = {
    "Which GPUs": devices.VARIABLES,
    "HIP and ROCr": runtime.VARIABLES,
    "PyTorch": torch.VARIABLES,
    "Matrix products": blas.VARIABLES,
    "Convolutions": convolution.VARIABLES,
    "Several processes": communication.VARIABLES,
    "PyFlame": own.VARIABLES,
}
TABLE: dict[str, Variable] = {v.name: v for group in GROUPS.values() for v in group}
