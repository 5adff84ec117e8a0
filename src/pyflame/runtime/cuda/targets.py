"""From an NVIDIA GPU's compute capability to a Target."""

from __future__ import annotations

from dataclasses import replace

from pyflame.core.device import Target
from pyflame.core.errors import NotAvailableError
from pyflame.core.targets import TARGETS
from pyflame.runtime.gpu.driver import DeviceProperties

_OLDEST = 70  # independent threads of a wave, bar.warp.sync
_FP8 = 89
_MMA = 80  # from which on there is mma.sync for bfloat16, float64 and TF32 too


def target_of(properties: DeviceProperties) -> Target:
    """The Target of a device: known, or by the capability's number, with the sizes that the device reports."""
    known = TARGETS.get(properties.arch)
    if known is None:
        capability = int(properties.arch.removeprefix("sm_"))
        if capability < _OLDEST:
            raise NotAvailableError(
                f"[cuda] expected a GPU of compute capability 7.0 or newer but got {properties.name} "
                f"({properties.arch}); use another GPU or the CPU"
            )
        fp8 = "ocp" if capability >= _FP8 else ""
        matrix = "mma" if capability >= _MMA else ""
        known = replace(TARGETS["sm_90"], name=properties.arch, fp8=fp8, matrix_core=matrix)
    return replace(
        known,
        workers=properties.compute_units,
        wave_size=properties.wave_size,
        lds_bytes=properties.lds_per_block,
    )
