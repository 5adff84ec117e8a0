"""One name per instruction: later generations renamed many without changing what they do.

The interpreter's tables hold the names of GFX9. Names of GFX10, GFX11 and GFX12 are looked up here; what is not listed
is called the same. An instruction that keeps its name and does something else on some targets has a row for each: the
suffix of the others says which.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

RENAMED = {
    "s_and_not1_b32": "s_andn2_b32",
    "s_and_not1_b64": "s_andn2_b64",
    "s_or_not1_b32": "s_orn2_b32",
    "s_or_not1_b64": "s_orn2_b64",
    "s_and_not1_saveexec": "s_andn2_saveexec",
    "s_or_not1_saveexec": "s_orn2_saveexec",
    "s_and_not0_saveexec": "s_andn1_saveexec",
    "s_or_not0_saveexec": "s_orn1_saveexec",
    "s_and_not0_wrexec": "s_andn1_wrexec",
    "s_and_not1_wrexec": "s_andn2_wrexec",
    "s_ctz_i32_b32": "s_ff1_i32_b32",
    "s_ctz_i32_b64": "s_ff1_i32_b64",
    "s_clz_i32_u32": "s_flbit_i32_b32",
    "s_clz_i32_u64": "s_flbit_i32_b64",
    "s_cls_i32": "s_flbit_i32",
    "s_cls_i32_i64": "s_flbit_i32_i64",
    "v_add_nc_u32": "v_add_u32",
    "v_sub_nc_u32": "v_sub_u32",
    "v_subrev_nc_u32": "v_subrev_u32",
    "v_add_nc_i32": "v_add_i32",
    "v_sub_nc_i32": "v_sub_i32",
    "v_add_nc_u16": "v_add_u16",
    "v_sub_nc_u16": "v_sub_u16",
    "v_add_nc_i16": "v_add_i16",
    "v_sub_nc_i16": "v_sub_i16",
    "v_add_co_ci_u32": "v_addc_co_u32",
    "v_sub_co_ci_u32": "v_subb_co_u32",
    "v_subrev_co_ci_u32": "v_subbrev_co_u32",
    "v_clz_i32_u32": "v_ffbh_u32",
    "v_cls_i32": "v_ffbh_i32",
    "v_ctz_i32_b32": "v_ffbl_b32",
    "v_cvt_pk_rtz_f16_f32": "v_cvt_pkrtz_f16_f32",
    "v_cvt_nearest_i32_f32": "v_cvt_rpi_i32_f32",
    "v_cvt_floor_i32_f32": "v_cvt_flr_i32_f32",
    "v_mul_dx9_zero_f32": "v_mul_legacy_f32",
    "v_fma_dx9_zero_f32": "v_fma_legacy_f32",
    "v_fmac_dx9_zero_f32": "v_fmac_legacy_f32",
    "v_dot2acc_f32_f16": "v_dot2c_f32_f16",
    "s_add_co_u32": "s_add_u32",
    "s_sub_co_u32": "s_sub_u32",
    "s_add_co_i32": "s_add_i32",
    "s_sub_co_i32": "s_sub_i32",
    "s_add_co_ci_u32": "s_addc_u32",
    "s_sub_co_ci_u32": "s_subb_u32",
    "s_addk_co_i32": "s_addk_i32",
    "v_mad_co_u64_u32": "v_mad_u64_u32",
    "v_mad_co_i64_i32": "v_mad_i64_i32",
    "v_cmp_t_f16": "v_cmp_tru_f16",
    "v_cmp_t_f32": "v_cmp_tru_f32",
    "v_cmp_t_f64": "v_cmp_tru_f64",
}
# MFMA of gfx90a: the shape and the type run together, and the number of blocks is not told.
_BLOCKS = {
    "32x32x1f32": 2, "16x16x1f32": 4, "4x4x1f32": 16, "32x32x4f16": 2, "16x16x4f16": 4, "4x4x4f16": 16, "32x32x4i8": 2,
    "16x16x4i8": 4, "4x4x4i8": 16, "32x32x4bf16_1k": 2, "16x16x4bf16_1k": 4, "4x4x4bf16_1k": 16, "32x32x2bf16": 2,
    "16x16x2bf16": 4, "4x4x2bf16": 16, "4x4x4f64": 4,
}  # fmt: skip
_RUN_TOGETHER = re.compile(r"(v_mfma_[fi]\d+)_((\d+x\d+x\d+)(b?f\d+|i8)(?:_1k)?)$")

# 16-bit results that leave the other half of the register alone on GFX9, too; the rest zero it there (LLVM:
# GCNSubtarget::zeroesHigh16BitsOfDest). GFX11 always leaves it alone.
KEEPS_UPPER_HALF = re.compile(
    r"v_(fma_f16|div_fixup_f16|mad_[ui]16|(add|sub)_i16|(min|max|med)3_[fui]16|cvt_pk_[fb]\w*8_f32(_ocp)?|bitop3_b16"
    r"|ashr_pk_[ui]8_i32|cvt_sr_b?f16_f32)$"
)
# Integer instructions whose clamp bit makes the result saturate.
SATURATES = re.compile(
    r"v_(pk_)?(add|sub|subrev)_[ui](16|32)$|v_(add|sub|subrev|addc|subb|subbrev)_co_u32$|v_m?sad_(hi_)?u\d+$"
    r"|v_(pk_)?mad_(legacy_)?[ui]16$|v_mad_([ui](32|64)_[ui]\d+)$|v_dot\dc?_[ui]32_\w+$|v_s?wmmac?_i32_\w+$"
)

# Nothing that a simulator without time, caches and counters of outstanding accesses has to do.
IGNORED = re.compile(
    r"s_(waitcnt\w*|nop|clause|delay_alu|sendmsg|set_inst_prefetch_distance|inst_prefetch|sleep|setprio|icache_inv|"
    r"dcache_\w+|gl1_inv|ttracedata\w*|wait_\w+|(buffer_)?prefetch_\w+|incperflevel|decperflevel|sethalt|code_end|"
    r"wakeup)$|buffer_(gl[01]_inv|wbinvl1\w*|inv|invl2|wbl2)$|global_(inv|wb|wbinv)$|v_nop$"
)
# Of the rows for one name a target takes the one with its suffix: other layouts and sums of matrices, 8-bit floats.
VARIANTS = {"gfx90a": ("_gfx90a",), "gfx950": ("_ocp",), "gfx1201": ("_gfx12", "_ocp")}
_MATRIX = re.compile(r"v_(mfma|smfmac|wmma|swmmac)_")
# Matrix instructions of relatives that share the interpreter of a wave size.
_WIDER = r"v_mfma_f32_(16x16x32|32x32x16)_b?f16$|v_mfma_i32_(16x16x64|32x32x32)_i8$|f8f6f4$"
_ABSENT = {
    "gfx90a": rf"v_s?wmmac?_|v_smfmac_|xf32|[fb][pf]8|v_mfma_i32_(32x32x16|16x16x32)_i8$|{_WIDER}",
    "gfx942": rf"v_s?wmmac?_|{_WIDER}",
    "gfx950": r"v_s?wmmac?_|v_mfma\w+xf32",
    "gfx1100": r"v_swmmac_|v_wmma_\w+_[fb][pf]8$|v_wmma_i32_16x16x32_iu4$",
}
_SUFFIX = re.compile(r"(_gfx90a|_gfx12|_ocp)$")
_SAVEEXEC = re.compile(r"(s_\w+_(?:saveexec|wrexec))_b(?:32|64)$")


def canonical(name: str) -> str:
    """The name under which the interpreter knows an instruction.

    >>> canonical("s_and_not1_saveexec_b32"), canonical("v_dual_add_nc_u32"), canonical("v_mfma_f32_4x4x1f32")
    ('s_andn2_saveexec', 'v_add_u32', 'v_mfma_f32_4x4x1_16b_f32')
    """
    name = name.replace("v_dual_", "v_")
    saveexec = _SAVEEXEC.match(name)
    if saveexec:
        name = saveexec[1]
    elif name.startswith("v_cmpx_"):
        name = "v_cmp_" + name[len("v_cmpx_") :]
    elif matrix := _RUN_TOGETHER.match(name):
        blocks = _BLOCKS.get(matrix[2])
        name = f"{matrix[1]}_{matrix[3]}_{f'{blocks}b_' if blocks else ''}{matrix[4]}"
    return RENAMED.get(name, name)


def variant(name: str, target: str, forms: Iterable[str]) -> str:
    """The row that a target takes for a canonical name.

    >>> variant("v_cvt_f32_fp8", "gfx950", {"v_cvt_f32_fp8", "v_cvt_f32_fp8_ocp"})
    'v_cvt_f32_fp8_ocp'
    """
    return next((name + suffix for suffix in VARIANTS.get(target, ()) if name + suffix in forms), name)


def known(target: str, forms: Iterable[str]) -> set[str]:
    """The names of a target's rows, without suffixes. Besides matrices, some may be those of a relative."""
    own, absent = VARIANTS.get(target, ()), re.compile(_ABSENT.get(target, "$^"))
    suffixes = {name: found[1] for name in forms if (found := _SUFFIX.search(name))}
    rows = {_SUFFIX.sub("", name) for name in forms if name not in suffixes or suffixes[name] in own}
    return {name for name in rows if not (_MATRIX.match(name) and absent.search(name))}
