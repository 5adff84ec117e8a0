"""How many waves of a kernel a SIMD of an AMD GPU holds at once, by the rules of register and LDS allocation.

From LLVM's AMDGPU backend (AMDGPUBaseInfo.cpp: getTotalNumVGPRs, getVGPRAllocGranule, getOccupancyWithNumSGPRs,
getMaxWavesPerEU, getMaxWorkGroupsPerCU) and AMDGPUUsage (GRANULATED_LDS_SIZE). A test compares with what clang says.
"""

from __future__ import annotations

from dataclasses import dataclass

KIB = 1024
_UNIFIED = ("gfx90a", "gfx942", "gfx950")  # one file of 512 registers for VGPRs and AGPRs
_LARGE = ("gfx1100", "gfx1101", "gfx1151", "gfx1200", "gfx1201")  # half as many VGPRs again as other RDNA
# Most SGPRs with which so many waves fit, before gfx10; from gfx10 on each wave has its full set.
_SGPR_STEPS = ((80, 10), (88, 9), (100, 8))
_SGPR_LEAST = 7


@dataclass(frozen=True)
class Limits:
    """What the SIMDs that a block may run on have to share out."""

    vgprs: int  # per lane of a SIMD
    vgpr_granule: int
    waves: int  # most on a SIMD
    simds: int  # of a compute unit, or of a work-group processor in its mode
    lds_bytes: int
    lds_granule: int
    barriers: int  # blocks of more than one wave
    sgprs_matter: bool


def limits(gfx: str, wave_size: int, wgp_mode: bool) -> Limits:
    """The limits of a gfx target, by its name without features."""
    major = int(gfx[3:-2])
    if major < 10:
        unified = gfx in _UNIFIED
        lds, granule = (160 * KIB, 1280) if gfx == "gfx950" else (64 * KIB, 512)
        return Limits(512 if unified else 256, 8 if unified else 4, 8 if unified else 10, 4, lds, granule, 16, True)
    scale = 2 if wave_size == 32 else 1
    if gfx in _LARGE:
        vgprs, granule = 768, 12
    else:
        vgprs, granule = 512, 4 if gfx.startswith("gfx101") else 8
    waves = 20 if gfx.startswith("gfx101") else 16
    simds, lds, barriers = (4, 128 * KIB, 32) if wgp_mode else (2, 64 * KIB, 16)
    return Limits(vgprs * scale, granule * scale, waves, simds, lds, 512, barriers, False)


def waves_by_registers(limit: Limits, vgprs: int, sgprs: int) -> int:
    """Waves of a SIMD as far as registers allow."""
    granule = limit.vgpr_granule
    by_vgprs = max(1, limit.vgprs // (max(1, -(-vgprs // granule)) * granule))
    by_sgprs = next((w for most, w in _SGPR_STEPS if sgprs <= most), _SGPR_LEAST) if limit.sgprs_matter else limit.waves
    return min(limit.waves, by_vgprs, by_sgprs)


def occupancy(limit: Limits, vgprs: int, sgprs: int, lds_bytes: int, threads: int, wave_size: int) -> int:
    """Waves of a SIMD when blocks of `threads` fill the GPU: whole blocks, by registers, LDS and barriers.

    >>> occupancy(limits("gfx942", 64, False), vgprs=128, sgprs=40, lds_bytes=0, threads=256, wave_size=64)
    4
    """
    per_block = -(-threads // wave_size)
    blocks = waves_by_registers(limit, vgprs, sgprs) * limit.simds // per_block
    if lds_bytes:
        blocks = min(blocks, limit.lds_bytes // (-(-lds_bytes // limit.lds_granule) * limit.lds_granule))
    if per_block > 1:
        blocks = min(blocks, limit.barriers)
    return -(-blocks * per_block // limit.simds)
