"""Every function of pf_math.h, pf_half.h and pf_philox.h as a loop of one shared object, and what NumPy or math says.

Floats are sampled over all of float32, every 997th bit pattern, and the special values; errors are counted in ulp of
the float32 result.
"""

from __future__ import annotations

import ctypes
import itertools
import math
import shutil
import subprocess
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

INCLUDE = Path(__file__).resolve().parents[2] / "src/pyflame/kernels/include"
FLAGS = ["-std=gnu11", "-O3", "-march=native", "-fopenmp-simd", "-fno-math-errno", "-fno-trapping-math"]
CC = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")

CTYPE = dict(f4="float", f8="double", i1="int8_t", u1="uint8_t", i2="int16_t", u2="uint16_t", i4="int32_t")
CTYPE |= dict(u4="uint32_t", i8="int64_t", u8="uint64_t")
INF, NAN = math.inf, math.nan


def sigmoid(x):
    z = np.exp(-np.abs(x))
    return np.where(x < 0, z, 1) / (1 + z)


def elementwise(function):
    return lambda x: np.array([function(v) for v in x.tolist()])


def erfinv(x):
    """Newton's steps from 0, which never pass the root; on erfc where that is the small one."""
    if not abs(x) < 1:
        return math.copysign(INF, x) if abs(x) == 1 else NAN
    a, y, before = abs(x), 0.0, -1.0
    while y > before:
        off = a - math.erf(y) if a < 0.5 else math.erfc(y) - (1 - a)
        before, y = y, y + off * math.sqrt(math.pi) / 2 * math.exp(y * y)
    return math.copysign(y, x)


# name: (bound in ulp, float64 reference, largest |x| or None, smallest |result| held to the bound)
UNARY = {
    "exp": (1.1, np.exp, None, 0),
    "exp2": (1.0, np.exp2, None, 0),
    "expm1": (1.6, np.expm1, None, 0),
    "log": (1.0, np.log, None, 0),
    "log2": (1.1, np.log2, None, 0),
    "log10": (1.1, np.log10, None, 0),
    "log1p": (1.7, np.log1p, None, 0),
    "sin": (1.6, np.sin, 2.0**47, 0),
    "cos": (1.6, np.cos, 2.0**47, 0),
    "tan": (2.7, np.tan, 2.0**47, 0),
    "asin": (2.0, np.arcsin, None, 0),
    "acos": (1.4, np.arccos, None, 0),
    "atan": (1.4, np.arctan, None, 0),
    "sinh": (1.7, np.sinh, None, 0),
    "cosh": (1.6, np.cosh, None, 0),
    "tanh": (2.6, np.tanh, None, 0),
    "asinh": (2.1, np.arcsinh, None, 0),
    "acosh": (2.0, np.arccosh, None, 0),
    "atanh": (2.5, np.arctanh, None, 0),
    "erf": (1.1, elementwise(math.erf), None, 0),
    "erfc": (4.4, elementwise(math.erfc), None, 0),
    "erfinv": (3.4, elementwise(erfinv), None, 0),
    "sigmoid": (2.5, sigmoid, None, 1.2e-38),
    "silu": (3.0, lambda x: x * sigmoid(x), None, 1.1e-36),
    "softplus": (2.0, lambda x: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))), None, 0),
    "sqrt": (0.5, np.sqrt, None, 0),
    "rsqrt": (1.6, lambda x: 1 / np.sqrt(x), None, 0),
}
ROUNDING = {"floor": np.floor, "ceil": np.ceil, "round": np.rint, "trunc": np.trunc, "abs": np.abs, "sign": np.sign}
PREDICATES = {"isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite}
BESSEL = ("i0", "i0e", "i1", "i1e")
GELUS = ("gelu", "gelu_slope", "gelu_tanh", "gelu_tanh_slope")
GAMMAS = ("zeta", "igamma", "igammac")
HALVES = {
    "f16": (np.uint16, np.float16),
    "bf16": (np.uint16, ml_dtypes.bfloat16),
    "f8e4m3fn": (np.uint8, ml_dtypes.float8_e4m3fn),
    "f8e4m3fnuz": (np.uint8, ml_dtypes.float8_e4m3fnuz),
    "f8e5m2": (np.uint8, ml_dtypes.float8_e5m2),
}
INTEGERS = ("i1", "u1", "i4", "u4", "i8", "u8")
CASTS = dict(i8="i1", u8="u1", i16="i2", u16="u2", i32="i4", u32="u4", i64="i8", u64="u8", bool="u1")


def loops() -> dict[str, tuple[str, str, str]]:
    """Loop name -> (C expression in a, b and i, argument types, result type)."""
    table = {}
    for name in [*UNARY, *ROUNDING, *BESSEL, *GELUS, "lgamma", "digamma", "mantissa", "exponent"]:
        for t in ("f4", "f8"):
            table[f"{name}_{t}"] = (f"pf_{name}(a)", t, t)
    for name, t in itertools.product(PREDICATES, ("f4", "f8")):
        table[f"{name}_{t}"] = (f"pf_{name}(a)", t, "u1")
    for name, t in itertools.product(("pow", "atan2", "fmod", "copysign", "nextafter", *GAMMAS), ("f4", "f8")):
        table[f"{name}_{t}"] = (f"pf_{name}(a, b)", t + t, t)
    for name, t in itertools.product(("mod", "floordiv", "max", "min"), ("f4", "f8", *INTEGERS)):
        table[f"{name}_{t}"] = (f"pf_{name}(a, b)", t + t, t)
    for t in INTEGERS:
        table[f"ipow_{t}"] = ("pf_ipow(a, b)", t + t, t)
        table[f"abs_{t}"] = ("pf_abs(a)", t, t)
        table[f"sign_{t}"] = ("pf_sign(a)", t, t)
    for name, t in itertools.product(("gcd", "lcm"), ("i1", "u1", "i4", "i8")):
        table[f"{name}_{t}"] = (f"pf_{name}(a, b)", t + t, t)
    for name in ("f16", "bf16"):
        table[f"nextafter_{name}"] = (f"pf_nextafter_{name}(a, b)", "f4f4", "f4")
    for (name, to), t in itertools.product(CASTS.items(), ("f4", "f8", "i4", "i8")):
        table[f"to_{name}_{t}"] = (f"pf_to_{name}(a)", t, to)
    for name, (unsigned, _) in HALVES.items():
        u = np.dtype(unsigned).str[1:]
        table[f"{name}_to_f32"] = (f"pf_{name}_to_f32(a)", u, "f4")
        table[f"f32_to_{name}"] = (f"pf_f32_to_{name}(a)", "f4", u)
        table[f"f64_to_{name}"] = (f"pf_f64_to_{name}(a)", "f8", u)
    table["clamp"] = ("pf_clamp(a, -1.0f, 2.0f)", "f4", "f4")
    table["chain"] = ("pf_gelu_tanh(a * 1.1f + 0.2f) * pf_sigmoid(a) + 0.3f", "f4", "f4")
    for name, to in (("u32", "u4"), ("u64", "u8"), ("uniform_f32", "f4"), ("uniform_f64", "f8")):
        table[f"random_{name}"] = (f"pf_random_{name}(a, b, i)", "u8u8", to)
    table["random_normal_f32"] = ("pf_random_normal_f32(a, b, i)", "u8u8", "f4")
    table["random_normal_f64"] = ("pf_random_normal_f64(a, b, i)", "u8u8", "f8")
    return table


LOOPS = loops()
# may stay scalar, as may all of double
SCALAR = ("fmod", "mod", "floordiv", "ipow", "gcd", "lcm", "lgamma", "digamma", *GAMMAS, *BESSEL)


def source() -> str:
    text = [f'#include "{header}"' for header in ("pf_math.h", "pf_half.h", "pf_philox.h")]
    for name, (expression, args, to) in LOOPS.items():
        types = [CTYPE[args[k : k + 2]] for k in range(0, len(args), 2)]
        params = "".join(f"const {t} *restrict p{k}, " for k, t in enumerate(types))
        loads = " ".join(f"{t} {'ab'[k]} = p{k}[i];" for k, t in enumerate(types))
        text += [
            f"void loop_{name}({params}{CTYPE[to]} *restrict y, long n) {{",
            "#pragma omp simd",
            f"  for (long i = 0; i < n; ++i) {{ {loads} y[i] = {expression}; }}",
            "}",
        ]
    # The block-wise way must give what the element-wise way gives.
    text += [
        "void blocks_uniform(unsigned long seed, unsigned long offset, float *restrict y, long n) {",
        "  for (long i = 0; i < n / 4; ++i) {",
        "    pf_philox_block b = pf_philox(seed, offset, i);",
        "    float *p = y + 4 * i;",
        "    p[0] = pf_uniform_f32(b.w0), p[1] = pf_uniform_f32(b.w1);",
        "    pf_normal_pair_f32(b.w2, b.w3, p + 2, p + 3);",
        "  }",
        "}",
    ]
    return "\n".join(text)


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    folder = tmp_path_factory.mktemp("c_math")
    (folder / "loops.c").write_text(source())
    report = ["-fopt-info-vec-optimized"] if b"Free Software" in subprocess.check_output([CC, "--version"]) else []
    command = [
        CC,
        *FLAGS,
        "-shared",
        "-fPIC",
        *report,
        "-Wall",
        "-Werror",
        "-Wno-pass-failed",
        f"-I{INCLUDE}",
        "loops.c",
        "-o",
        "loops.so",
        "-lm",
    ]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:4000]
    return ctypes.CDLL(str(folder / "loops.so")), done.stderr if report else None


@pytest.fixture(scope="module")
def call(build):
    def run(name, *arrays):
        _, args, to = LOOPS[name]
        arrays = [np.ascontiguousarray(a, args[2 * k : 2 * k + 2]) for k, a in enumerate(arrays)]
        out = np.empty(arrays[0].shape, to)
        pointers = [ctypes.c_void_p(a.ctypes.data) for a in (*arrays, out)]
        getattr(build[0], f"loop_{name}")(*pointers, ctypes.c_long(out.size))
        return out

    return run


SPECIAL = np.array(
    [
        0.0,
        -0.0,
        1,
        -1,
        0.5,
        -0.5,
        2,
        -2,
        3,
        -3,
        1e-45,
        -1e-45,
        1e-40,
        -1e-40,
        1.1754944e-38,
        3.4028235e38,
        -3.4028235e38,
    ]
    + [INF, -INF, NAN, 88.7, 88.73, -87.4, -103.9, -104.1, 127.9, 128, -149, -150.1, 9.0, 0.99999994, -0.99999994],
    np.float32,
)


def sample(step: int = 997) -> np.ndarray:
    bits = np.arange(0, 1 << 32, step, dtype=np.uint64).astype(np.uint32).view(np.float32)
    return np.concatenate([SPECIAL, bits, np.linspace(-20, 20, 100_001, dtype=np.float32)])


def ulps(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Errors in units of the float32 spacing at `want` (float64); inf and NaN must match, apart from where the
    rounding of `want` decides between the largest float and inf."""
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    with np.errstate(all="ignore"):
        rounded = want.astype(np.float32).astype(np.float64)
        _, exponent = np.frexp(want)
        error = np.abs(got - want) / np.ldexp(1.0, np.maximum(exponent - 24, -149))
    error[(got == rounded) | (np.isnan(got) & np.isnan(want))] = 0
    error[(np.abs(want) > 3.4028230e38) & (np.abs(got) > 3.4028230e38) & (np.sign(got) == np.sign(want))] = 0
    return np.where(np.isnan(error), INF, error)
