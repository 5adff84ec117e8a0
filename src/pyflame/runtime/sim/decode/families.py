"""Which part of a GPU an instruction keeps busy, by its name."""

from __future__ import annotations

import re

from pyflame.runtime.sim.decode.names import IGNORED

# The first that matches counts. Names are LLVM's, without the suffix of an encoding.
_FAMILIES = tuple(
    (family, re.compile(pattern))
    for family, pattern in (
        ("wait, cache", IGNORED.pattern + r"|s_endpgm_saved|s_wait_\w+"),
        ("barrier", r"s_barrier"),
        ("branch", r"s_(branch|cbranch_\w+|setpc_b64|swappc_b64|call_b64|endpgm|trap)$"),
        ("SMEM", r"s_(buffer_)?load_|s_mem(real)?time$|s_(buffer_)?store_|s_atomic_"),
        ("SALU", r"s_"),
        ("matrix", r"v_(s?mfmac?|smfmac|wmma|swmmac)_"),
        ("VALU dual", r"v_dual_"),
        ("transcendental", r"v_(exp|log|rcp|rcp_iflag|rsq|sqrt|sin|cos)_f(16|32|64)$"),
        ("VALU convert", r"v_cvt_"),
        ("VALU compare", r"v_cmpx?_|v_cndmask"),
        ("VALU move", r"v_(mov\w*|swap\w*|read(first)?lane\w*|writelane\w*|permlane\w*|accvgpr_\w+|pk_mov_b32|nop)$"),
        ("VALU f64", r"v_\w*_f64$"),
        ("VALU f32", r"v_\w*_f32(_\w+)?$|v_dot2c?_f32\w*|v_(fma|mad)_mix\w*"),
        ("VALU f16", r"v_\w*_b?f16(_\w+)?$"),
        ("VALU int", r"v_"),
        ("global load", r"(global|flat|buffer)_load_"),
        ("global store", r"(global|flat|buffer)_store_"),
        ("global atomic", r"(global|flat|buffer)_atomic_"),
        ("scratch", r"scratch_"),
        ("lane exchange", r"ds_(b?permute|swizzle)_"),
        ("LDS", r"ds_"),
    )
)
FAMILIES = tuple(family for family, _ in _FAMILIES)
SCALAR = frozenset({"wait, cache", "barrier", "branch", "SMEM", "SALU"})  # work for a wave rather than for its lanes


def family(name: str) -> str:
    """The family of an instruction.

    >>> family("v_fmac_f32"), family("s_cbranch_execz"), family("ds_read2_b32"), family("v_mfma_f32_32x32x8_f16")
    ('VALU f32', 'branch', 'LDS', 'matrix')
    """
    return next((found for found, pattern in _FAMILIES if pattern.match(name)), "other")
