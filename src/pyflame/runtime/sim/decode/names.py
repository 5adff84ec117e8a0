"""One name per instruction: later generations renamed many without changing what they do.

The interpreter's tables hold the names of GFX9. A name of GFX10 or GFX11 is looked up here; what is not listed is
called the same.
"""

from __future__ import annotations

import re

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
    "v_cmp_t_f16": "v_cmp_tru_f16",
    "v_cmp_t_f32": "v_cmp_tru_f32",
    "v_cmp_t_f64": "v_cmp_tru_f64",
}

# 16-bit results that leave the other half of the register alone on GFX9, too; the rest zero it there (LLVM:
# GCNSubtarget::zeroesHigh16BitsOfDest). GFX11 always leaves it alone.
KEEPS_UPPER_HALF = re.compile(
    r"v_(fma_f16|div_fixup_f16|mad_[ui]16|(add|sub)_i16|(min|max|med)3_[fui]16|cvt_pk_b?f\w*8_f32)$"
)
# Integer instructions whose clamp bit makes the result saturate.
SATURATES = re.compile(
    r"v_(pk_)?(add|sub|subrev)_[ui](16|32)$|v_(add|sub|subrev|addc|subb|subbrev)_co_u32$|v_m?sad_(hi_)?u\d+$"
    r"|v_(pk_)?mad_(legacy_)?[ui]16$|v_mad_([ui](32|64)_[ui]\d+)$|v_dot\dc?_[ui]32_\w+$|v_wmma_i32_\w+$"
)

# Nothing that a simulator without time, caches and counters of outstanding accesses has to do.
IGNORED = re.compile(
    r"s_(waitcnt\w*|nop|clause|delay_alu|sendmsg|set_inst_prefetch_distance|inst_prefetch|sleep|setprio|icache_inv|"
    r"dcache_\w+|gl1_inv|ttracedata\w*|wait_idle|incperflevel|decperflevel|sethalt|code_end|wakeup)$"
    r"|buffer_(gl[01]_inv|wbinvl1\w*|inv|wbl2)$|v_nop$"
)
_SAVEEXEC = re.compile(r"(s_\w+_(?:saveexec|wrexec))_b(?:32|64)$")


def canonical(name: str) -> str:
    """The name under which the interpreter knows an instruction.

    >>> canonical("s_and_not1_saveexec_b32"), canonical("v_dual_add_nc_u32")
    ('s_andn2_saveexec', 'v_add_u32')
    """
    name = name.replace("v_dual_", "v_")
    saveexec = _SAVEEXEC.match(name)
    if saveexec:
        name = saveexec[1]
    elif name.startswith("v_cmpx_"):
        name = "v_cmp_" + name[len("v_cmpx_") :]
    return RENAMED.get(name, name)
