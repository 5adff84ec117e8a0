"""What clang emits for a broad set of kernels can be decoded: every type with every operator, conversions, builtins."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from pyflame.runtime.sim.decode.decoder import Decoder, Undecodable
from pyflame.runtime.sim.decode.text import read_listing
from pyflame.runtime.sim.interpreter import interpreter
from tests.sim.snippet import LANES, tool

INTEGERS = {"i8": "signed char", "u8": "unsigned char", "i16": "short", "u16": "unsigned short", "i32": "int",
            "u32": "unsigned", "i64": "long", "u64": "unsigned long"}  # fmt: skip
FLOATS = {"f16": "_Float16", "bf16": "__bf16", "f32": "float", "f64": "double"}
thorough = pytest.mark.thorough
_ROUNDINGS = ("floor", "ceil", "trunc", "rint", "sqrt", "abs")
_FUNCTIONS = ("exp2", "log2", "exp", "log", "sin", "cos")
_BITS = """
o[i] = __builtin_popcount(x) + y; o[i + 1] = __builtin_clz(x | 1); o[i + 2] = __builtin_ctz(x | 2);
o[i + 3] = __builtin_bitreverse32(x); o[i + 4] = __builtin_bswap32(x); o[i + 5] = __builtin_amdgcn_perm(x, y, z);
o[i + 6] = __builtin_amdgcn_alignbit(x, y, z); o[i + 7] = __builtin_amdgcn_ubfe(x, y, z);
o[i + 8] = __builtin_amdgcn_sbfe(x, y, z); o[i + 9] = __builtin_amdgcn_sad_u8(x, y, z);
o[i + 10] = __builtin_amdgcn_mbcnt_hi(x, __builtin_amdgcn_mbcnt_lo(y, 0));
o[i + 11] = __builtin_amdgcn_readlane(x, z & 31);
o[i + 12] = __builtin_amdgcn_update_dpp(x, y, 0x111, 0xf, 0xf, 0); o[i + 13] = __builtin_rotateleft32(x, y);
o[i + 14] = __builtin_amdgcn_update_dpp(0, y, 0x140, 0xf, 0xf, 1) + x; o[i + 15] = (x & 0xffffff) * (y & 0xffffff) + z;
"""
_REST = """
typedef float vector16 __attribute__((ext_vector_type(16)));
K dynamic(float *o, int i) {
  int t = T; vector16 v;
  for (int k = 0; k < 16; k++) v[k] = o[t * 16 + k];
  o[t] = v[i]; v[i + 1 & 15] = 7;
  for (int k = 0; k < 16; k++) o[t * 16 + k] = v[k];
}
K approximate(float *a, float *o) {
  int i = T; float x = a[i], y = a[i + 64], z = a[i + 128];
  o[i] = __builtin_amdgcn_rcpf(x); o[i + 1] = __builtin_amdgcn_rsqf(x); o[i + 2] = __builtin_amdgcn_fractf(x);
  o[i + 3] = __builtin_amdgcn_frexp_mantf(x); o[i + 4] = __builtin_ldexpf(x, (int)y);
  o[i + 5] = __builtin_amdgcn_fmed3f(x, y, z); o[i + 6] = __builtin_amdgcn_classf(x, 0x1f8);
  o[i + 7] = (float)(_Float16)x * (float)(_Float16)y + z; o[i + 8] = __builtin_fminf(__builtin_fmaxf(x, 0.f), 1.f);
}
K wide(__int128 *a) { int t = T; a[t] = a[t + 1] * a[t + 2] + (a[t + 3] >> 7) - (a[t + 4] << t); }
K bytes(unsigned char *a, float *o) {
  int t = T; unsigned w = *(unsigned *)(a + 4 * t);
  o[t] = (w & 255) + (w >> 8 & 255) + (w >> 16 & 255) + (w >> 24); a[t + 2] = (unsigned char)o[t + 1];
}
"""


def source() -> str:
    """Kernels in C++: `k_f32` computes, `c_f32` converts, `v_f32` does it with pairs."""
    out = ['#define K extern "C" __attribute__((amdgpu_kernel)) void', "#define T __builtin_amdgcn_workitem_id_x()"]
    for name, kind in (INTEGERS | FLOATS).items():
        integer = name in INTEGERS
        lines = [f"x {op} y" for op in ["+", "-", "*", "/", "<", "==", *(["%", "&", "|", "^", "<<", ">>"] * integer)]]
        lines += ["x > y ? x : y", "x * y + c", "-x", "x * c - y"]
        functions = ["add_sat", "sub_sat", "min", "max"] if integer else ["min", "max"]
        lines += [f"__builtin_elementwise_{f}(x, y)" for f in functions]
        if integer:
            lines += ["(x << 3) + y", "(x & y) | c", "(x ^ y) + c", "x + y + c", "~x", "(x >> 3) & 15"]
        else:
            alone = () if name == "bf16" else _ROUNDINGS if name == "f64" else _ROUNDINGS + _FUNCTIONS
            lines += [f"__builtin_elementwise_{f}(x)" for f in alone] + ["__builtin_elementwise_fma(x, y, c)"]
        body = " ".join(f"o[i + {64 * n}] = ({kind})({line});" for n, line in enumerate(lines))
        out.append(
            f"K k_{name}({kind} *a, {kind} *o) {{ int i = T; {kind} x = a[i], y = a[i + 64], c = a[i + 128]; {body} }}"
        )
        others = [k for n, k in (INTEGERS | FLOATS).items() if {n, name} != {"f16", "bf16"}]
        body = " ".join(f"(({k} *)q)[i + {200 * n}] = ({k})x;" for n, k in enumerate(others))
        out.append(f"K c_{name}({kind} *a, char *q) {{ int i = T; {kind} x = a[i]; {body} }}")
        lines = ["x + y", "x - y", "x * y + c", "x.yx * y", "x * y.yy + c", f"x + ({kind})1", f"x * ({kind})2 - y"]
        lines += ["__builtin_elementwise_max(x, y)", "-x", *(["x << y", "x >> y", "x & y"] * integer)]
        body = " ".join(f"o[i + {64 * n}] = {line};" for n, line in enumerate(lines))
        out.append(f"typedef {kind} two_{name} __attribute__((ext_vector_type(2)));")
        out.append(
            f"K v_{name}(two_{name} *a, two_{name} *o) {{ int i = T; "
            f"two_{name} x = a[i], y = a[i + 64], c = a[i + 128]; {body} }}"
        )
    out.append(
        f"K bits(unsigned *a, unsigned *o) {{ int i = T; unsigned x = a[i], y = a[i + 64], z = a[i + 128]; {_BITS} }}"
    )
    return "\n".join(out) + _REST


# Of the relatives of a target in full only what clang emits by default is looked at, and -O0, which uses the stack.
LEVELS = [
    pytest.param(target, level, marks=() if level == "-O3" or (level == "-O0" and target == "gfx90a") else thorough)
    for target in LANES
    for level in ("-O0", "-O1", "-O2", "-O3")
]


@pytest.mark.parametrize(("target", "level"), LEVELS)
def test_what_clang_emits_is_decoded(target: str, level: str, tmp_path: Path) -> None:
    (tmp_path / "all.cpp").write_text(source())
    binary = str(tmp_path / "all.o")
    command = [tool("clang"), "-x", "c++", "-target", "amdgcn-amd-amdhsa", f"-mcpu={target}", level, "-nogpulib", "-w"]
    subprocess.run([*command, "-c", str(tmp_path / "all.cpp"), "-o", binary], check=True)
    listing = subprocess.run(
        [tool("llvm-objdump"), "-d", f"--mcpu={target}", binary], capture_output=True, text=True, check=True
    ).stdout
    decoder = Decoder(interpreter(LANES[target]).forms, target)
    lines, _ = read_listing(listing)
    refused = {}
    for halves in lines:
        try:
            decoder.decode(halves)
        except Undecodable as error:
            refused[" :: ".join(half.text for half in halves)] = str(error)
    assert not refused
    assert len({half.name for halves in lines for half in halves}) > (200 if level == "-O3" else 100)
