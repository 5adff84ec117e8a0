"""The texts of encoded_linear by themselves, for instruction sets that this machine lacks and under a sanitizer.

A text becomes a program that reads its buffers from a file. The other architecture is cross-compiled and run by QEMU
(Debian: gcc-x86-64-linux-gnu or gcc-aarch64-linux-gnu, and qemu-user), which has AVX2; what is used of AVX-512 is
written out in C.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyflame.core.device import CPU, Target
from pyflame.core.dtype import as_dtype
from pyflame.core.encoding import ENCODINGS
from pyflame.core.interleaving import interleaved
from pyflame.engine.devices import get_device
from pyflame.ir import OPS, Meta
from pyflame.ir.kernel import Anchor, Kernel, Launch, OperandView, Source
from pyflame.kernels import Epilogue, encoded
from tests.ops.test_encoded_linear import PIECES, error, normals, product, rounded

Array = np.ndarray[Any, Any]
KERNELS = Path(encoded.__file__).parent
WORKERS = 3
FLAGS = ["-O1", "-std=gnu11", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast", "-fwrapv", "-w"]
PRELUDE = '#include "pf_abi.h"\n#include "pf_math.h"\n#include "pf_half.h"\n#define PF_KEY k\n'
X86 = "x86_64"
ARM = "aarch64"


@dataclass(frozen=True)
class Build:
    """The machine, options of its compiler, the instruction sets to plan for, and text that comes first."""

    machine: str
    flags: tuple[str, ...]
    isa: tuple[str, ...] | None
    before: str = ""


# AVX-512 on an emulator without it: the instructions that encoded.c uses, in C; gcc makes two vectors of each.
# encoded_float.c uses more of it.
VNNI = """#include <immintrin.h>
#include <stdint.h>
static inline __m512i dot(__m512i sum, __m512i a, __m512i b) {
  union { __m512i v; int32_t i[16]; uint8_t u[64]; int8_t s[64]; } c = {sum}, x = {a}, y = {b};
  for (int i = 0; i < 64; i++) c.i[i / 4] += x.u[i] * y.s[i];
  return c.v;
}
static inline __m256i dot_half(__m256i sum, __m256i a, __m256i b) {
  union { __m256i v; int32_t i[8]; uint8_t u[32]; int8_t s[32]; } c = {sum}, x = {a}, y = {b};
  for (int i = 0; i < 32; i++) c.i[i / 4] += x.u[i] * y.s[i];
  return c.v;
}
static inline __m512i load(const void *p) { __m512i v; __builtin_memcpy(&v, p, 64); return v; }
static inline __m512i repeat(int32_t word) {
  union { int32_t i[16]; __m512i v; } c;
  for (int i = 0; i < 16; i++) c.i[i] = word;
  return c.v;
}
static inline __m512 floats(__m256i halves) {
  union { __m256 half[2]; __m512 v; } c = {{_mm256_cvtph_ps(_mm256_castsi256_si128(halves)),
                                            _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1))}};
  return c.v;
}
#define _mm512_cvtph_ps floats
#define _mm512_dpbusd_epi32 dot
#define _mm256_dpbusd_epi32 dot_half
#define _mm512_loadu_si512 load
#define _mm512_set1_epi32 repeat
#define __AVX512F__ 1
#define __AVX512BW__ 1
#define __AVX512VL__ 1
#define __AVX512VNNI__ 1
"""
AVX2 = ("-mavx2", "-mfma", "-mf16c")
NATIVE = ("-march=native", "-fsanitize=address")
NO_TILES = tuple(name for name in get_device(CPU).target.isa if not name.startswith("amx"))
BUILDS = {
    "native": Build(platform.machine(), NATIVE, None),
    "no tiles": Build(platform.machine(), NATIVE, NO_TILES),
    "avx2": Build(X86, AVX2, ("avx2", "fma", "f16c")),
    "avx512": Build(X86, AVX2, ("avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512_vnni"), VNNI),
    "baseline": Build(platform.machine(), (), ()),
    "sse2": Build(X86, (), ()),
    "neon": Build(ARM, ("-march=armv8.2-a+dotprod+fp16",), ("asimd", "asimddp", "asimdhp", "fphp")),
}
LANES = {name: encoded.lanes(get_device(CPU).target) for name in ("native", "no tiles")}
LANES |= {"avx2": 8, "avx512": 16, "baseline": 4, "sse2": 4, "neon": 4}
DEFAULT = [pytest.param(b, marks=[] if b in ("native", "no tiles", "avx2") else pytest.mark.thorough) for b in BUILDS]
TILE_FORMATS = {"native": (("q5_0", 8), ("f16", 16), ("bf16", 8), ("int4_g32", 16))}  # of all kinds of encoded_tiles.c
NAMES = [*encoded.GROUPS, "f16", "bf16", "int4_g32"]


def tools(build: Build) -> tuple[str, list[str]]:
    """The compiler, and what runs its programs."""
    if build.machine == platform.machine():
        compiler = shutil.which("gcc")
        if compiler is None:
            pytest.skip("needs gcc")
        return compiler, []
    compiler, qemu = shutil.which(f"{build.machine}-linux-gnu-gcc"), shutil.which(f"qemu-{build.machine}")
    if compiler is None or qemu is None:
        pytest.skip(f"needs gcc-{build.machine.replace('_', '-')}-linux-gnu and qemu-user")
    return compiler, [qemu, "-cpu", "max"]


def planned(
    name: str, arrays: list[Array], out: Array, bits: int, isa: tuple[str, ...] | None, lines: int = 0
) -> Source:
    """encoded_linear of x and weights, whose lines may be interleaved, or, with ids, expert_linear."""
    op, attrs = "encoded_linear", (name, arrays[0].shape[-1], bits)
    if lines:
        op, attrs = "interleaved_linear", (*attrs, lines, out.shape[-1])
    elif len(arrays) == 3:
        op, attrs = "expert_linear_at", (name, bits)
    kinds = [as_dtype(a.dtype.name) for a in arrays]
    metas = tuple(Meta(a.shape, kind, None) for a, kind in zip(arrays, kinds, strict=True))
    anchor = Anchor(OPS[op], attrs, metas, Meta(out.shape, as_dtype("float32"), None), 0)
    views = tuple(
        OperandView(i, a.shape, tuple(n // a.itemsize for n in a.strides), kind)
        for i, (a, kind) in enumerate(zip(arrays, kinds, strict=True))
    )
    launch = Launch(op, Kernel((out.shape,), (), (), (op,), anchor), (), views, (op,), 0, 0, "encoded", "")
    return encoded.encoded_source(launch, target_of(isa), Epilogue("", ()))


def target_of(isa: tuple[str, ...] | None) -> Target:
    return Target("cpu", "c", get_device(CPU).target.isa if isa is None else isa, WORKERS)


def expected(x: Array, name: str, bits: int, build: str, rows: int) -> tuple[Array, float]:
    """What x is rounded to before it is multiplied, and the error that is left."""
    group = encoded.GROUPS.get(name)
    if rows > 8 and encoded.tiled(ENCODINGS[name], bits, target_of(BUILDS[build].isa)):
        return x, PIECES[bits]
    return (rounded(x, group, bits) if group and bits < 32 else x), 3e-6


# A configuration of tiles that somebody else's code relies on, before and after.
TILES = (
    """if (k_permit()) return 3;
  uint8_t found[64] __attribute__((aligned(64))) = {1, [16] = 8, [48] = 2}, left[64] __attribute__((aligned(64)));
  __asm__ volatile("ldtilecfg %0" : : "m"(found));""",
    """__asm__ volatile("sttilecfg %0" : "=m"(left));
  if (memcmp(found, left, 64)) return 4;""",
)


def program(source: Source, given: int, sizes: list[int]) -> str:
    """Reads the first `given` buffers; scratch and y follow. Every buffer is an allocation; scratch begins as NaN."""
    calls = "".join(
        f"  for (int64_t i = 0; i < {p.iterations}; i++) k{p.suffix}(buf, arg, 0, i, i + 1, i % {WORKERS});\n"
        for p in source.phases
    )
    args, count = ", ".join(map(str, source.args)), len(sizes)
    tiles = "encoded_tiles.c" in source.text
    return f"""{PRELUDE}{source.text}
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static void store(char *const *buf, const int64_t *arg, const pf_word *uni, int64_t b, int64_t i, int64_t j, int64_t n,
                  const float *y) {{
  memcpy((float *)buf[{count - 1}] + i * arg[1] + j, y, 4 * n);
}}
int main(int count, char **names) {{
  const size_t size[] = {{{", ".join(map(str, sizes))}}};
  int64_t arg[] = {{{args}}};
  arg[{source.epilogue_arg}] = (int64_t)(intptr_t)store;
  char *buf[{count}];
  {TILES[0] if tiles else ""}
  FILE *in = fopen(names[1], "rb"), *out = fopen(names[2], "wb");
  for (int i = 0; i < {count}; i++) {{
    if (posix_memalign((void **)&buf[i], 64, size[i])) return 1;
    memset(buf[i], 255, size[i]);
    if (i < {given} && fread(buf[i], 1, size[i], in) != size[i]) return 2;
  }}
{calls}  {TILES[1] if tiles else ""}
  const int failed = fwrite(buf[{count - 1}], 1, size[{count - 1}], out) != size[{count - 1}] || fclose(out);
  for (int i = 0; i < {count}; i++) free(buf[i]);
  return failed;
}}
"""


def run(
    folder: Path, build: Build, name: str, arrays: list[Array], out: Array, bits: int = 16, lines: int = 0
) -> Array:
    """The product by a program of its own."""
    compiler, emulator = tools(build)
    source = planned(name, arrays, out, bits, build.isa, lines)
    sizes = [*(a.nbytes for a in arrays), source.scratch_bytes, out.nbytes]
    (folder / "k.c").write_text(build.before + program(source, len(arrays), sizes))
    include = [f"-I{KERNELS}", f"-I{KERNELS / 'include'}"]
    static = ["-static"] if emulator else []
    command = [compiler, *FLAGS, *build.flags, *static, *include, str(folder / "k.c"), "-o", str(folder / "k")]
    subprocess.run(command, check=True)
    (folder / "in").write_bytes(b"".join(a.tobytes() for a in arrays))
    subprocess.run([*emulator, str(folder / "k"), str(folder / "in"), str(folder / "out")], check=True)
    return np.frombuffer((folder / "out").read_bytes(), np.float32).reshape(out.shape).astype(np.float64)


def check(folder: Path, build: str, name: str, rows: int, out: int, blocks: int, *sizes: int) -> None:
    kind = ENCODINGS[name]
    width = blocks * max(kind.block, 32)
    x, data = normals(rows, width), kind.encode(normals(out, width, seed=1))
    group = encoded.GROUPS.get(name)
    for bits in sizes or ((8, 16) if group else (32,)):
        got = run(folder, BUILDS[build], name, [x, data], np.empty((rows, out), np.float32), bits)
        left, most = expected(x, name, bits, build, rows)
        assert error(got, product(left, data, kind)) <= most


def check_experts(folder: Path, build: str, name: str, lines: int, bits: int) -> None:
    """Two lines for each row of x; of five matrices one has most of the lines, and one none."""
    kind = ENCODINGS[name]
    width = 3 * max(kind.block, 32)
    x, data = normals(lines // 2, width), kind.encode(normals(5, 37, width, seed=1))
    ids = np.random.default_rng(lines).choice(np.array([3, 3, 3, 0, 4, -4]), (lines // 2, 2))
    got = run(folder, BUILDS[build], name, [x, data, ids], np.empty((*ids.shape, 37), np.float32), bits)
    left, most = expected(x, name, bits, build, lines if lines > 15 else 0)
    want = np.einsum("rw,rsow->rso", left.astype(np.float64), kind.decode(data).astype(np.float64)[ids])
    assert error(got, want) <= most


@pytest.mark.slow(16)
@pytest.mark.parametrize("build", DEFAULT)
@pytest.mark.parametrize("rows", [2, 19])
def test_main_formats(tmp_path: Path, build: str, rows: int) -> None:
    for name, bits in (("q4_0", 16), ("q8_0", 8), ("q6_k", 16 if rows == 2 else 8), *TILE_FORMATS.get(build, ())):
        check(tmp_path, build, name, rows, 37, 3, bits)


@pytest.mark.slow(16)
@pytest.mark.parametrize("build", DEFAULT)
@pytest.mark.parametrize("lines", [6, 94])
def test_experts(tmp_path: Path, build: str, lines: int) -> None:
    floats = (("q4_0", 32), ("bf16", 16)) if build != "avx512" else ()  # see VNNI
    for name, bits in (("q4_0", 8), ("q4_0", 16), *floats):
        check_experts(tmp_path, build, name, lines, bits)


def check_interleaved(folder: Path, build: str, name: str, rows: int, out: int, bits: int, blocks: int = 3) -> None:
    kind, lines = ENCODINGS[name], LANES[build]
    x, data = normals(rows, blocks * kind.block), kind.encode(normals(out, blocks * kind.block, seed=1))
    arrays, y = [x, interleaved(data, kind, lines)], np.empty((rows, out), np.float32)
    got = run(folder, BUILDS[build], name, arrays, y, bits, lines)
    left, most = expected(x, name, bits, build, rows)
    assert error(got, product(left, data, kind)) <= most


@pytest.mark.slow(16)
@pytest.mark.parametrize("build", DEFAULT)
@pytest.mark.parametrize("rows", [2, 19])
def test_interleaved_lines(tmp_path: Path, build: str, rows: int) -> None:
    for name, bits in (("q4_0", 16), ("q8_0", 8), ("q4_k", 8)):
        check_interleaved(tmp_path, build, name, rows, 37, bits)


@pytest.mark.slow(16)
@pytest.mark.parametrize("build", ["native", "neon"])
def test_interleaved_lines_longer_than_what_is_prefetched(tmp_path: Path, build: str) -> None:
    check_interleaved(tmp_path, build, "q8_0", 1, 37, 16, blocks=150)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("build", "name"), [(b, n) for b in BUILDS for n in encoded.GROUPS if ENCODINGS[n].interleaves]
)
def test_every_interleaved_format(tmp_path: Path, build: str, name: str) -> None:
    for rows, out, bits in ((1, 33, 8), (1, 1, 16), (7, 5, 16), (9, 70, 8), (19, 70, 16)):
        check_interleaved(tmp_path, build, name, rows, out, bits)


def interleaved_product(folder: Path, name: str, x: Array, data: Array, bits: int) -> Array:
    kind, y = ENCODINGS[name], np.empty((len(x), len(data)), np.float32)
    return run(folder, BUILDS["neon"], name, [x, interleaved(data, kind, 4)], y, bits, 4)


@pytest.mark.slow(16)
@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("name", [n for n in encoded.GROUPS if ENCODINGS[n].interleaves])
def test_few_and_many_rows_have_the_same_bits_on_neon(tmp_path: Path, name: str, bits: int) -> None:
    kind = ENCODINGS[name]
    x, data = normals(9, 3 * kind.block), kind.encode(normals(21, 3 * kind.block, seed=1))
    many = interleaved_product(tmp_path, name, x, data, bits)
    for rows in (1, 2, 4, 7):
        np.testing.assert_array_equal(interleaved_product(tmp_path, name, x[:rows], data, bits), many[:rows])


@pytest.mark.slow(16)
def test_the_largest_sums_are_exact_on_neon(tmp_path: Path) -> None:
    """Both planes of x and the codes as far from zero as they may be, where sums of planes are joined as integers."""
    one, kind = np.float16(1).tobytes(), ENCODINGS["q4_0"]
    data = np.tile(np.frombuffer(one + bytes(16), np.uint8), (9, 2))
    x = np.repeat(np.array([[1], [-1]], np.float32), 64, axis=1)
    assert kind.decode(data).min() == kind.decode(data).max() == -8
    for rows in (1, 2):
        got = interleaved_product(tmp_path, "q4_0", x[:rows], data, 16)
        np.testing.assert_array_equal(got, np.tile([[-512], [512]], (1, 9))[:rows])


@pytest.mark.slow(16)
@pytest.mark.parametrize("rows", [1, 2, 4])
@pytest.mark.parametrize("bits", [8, 16])
def test_halves_on_neon(tmp_path: Path, rows: int, bits: int) -> None:
    """Weights of all sizes, and some that are no numbers, by x of all sizes: in float32 no product may be lost."""
    rng, width, kind = np.random.default_rng(rows), 96, ENCODINGS["f16"]
    weights = rng.normal(size=(21, width)).astype(np.float16)
    weights[3] = np.ldexp(weights[3].astype(np.float32), -14 - np.arange(width) % 12).astype(np.float16)  # subnormal
    weights[4] = 60000 * np.sign(weights[4])
    for line, at, value in ((7, 2, np.inf), (8, 27, -np.inf), (11, 31, np.nan), (20, 88, np.inf)):
        weights[line, at] = value
    odd = np.isinf(weights).any(-1) | np.isnan(weights).any(-1)
    data = weights.view(np.uint8)
    for exponent in (0, -140, -60, 90):
        x = np.ldexp(normals(rows, width, seed=3), exponent).astype(np.float32)
        y = np.empty((rows, len(weights)), np.float32)
        got = run(tmp_path, BUILDS["neon"], "f16", [x, data], y, bits)
        want = product(x, data, kind)
        np.testing.assert_array_equal(got[:, odd], want[:, odd].astype(np.float32))
        for line in np.flatnonzero(~odd).tolist():
            most = np.linalg.norm(weights[line].astype(np.float64)) * np.linalg.norm(x.astype(np.float64)) / rows**0.5
            wrong = np.abs(got[:, line] - want[:, line]).max()
            assert wrong <= (1e-3 if bits == 8 else 3e-7) * most + 2.0**-148, (exponent, line)


def test_lanes_are_those_of_the_kernel() -> None:
    for isa, want in ((("asimd", "asimddp"), 4), (("avx2", "fma"), 8), ((), 4)):
        assert encoded.lanes(Target("cpu", "c", isa, 1)) == want
    vnni = ("avx2", "fma", "avx512f", "avx512bw", "avx512vl", "avx512_vnni")
    assert encoded.lanes(Target("cpu", "c", vnni, 1)) == 16
    assert encoded.lanes(Target("cpu", "c", vnni[:-1], 1)) == 8


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("build", "name"), [(b, n) for b in BUILDS for n in NAMES if b != "avx512" or n in encoded.GROUPS]
)
def test_every_format(tmp_path: Path, build: str, name: str) -> None:
    for rows, out, blocks in ((1, 33, 3), (9, 5, 1), (19, 70, 5)):
        check(tmp_path, build, name, rows, out, blocks)
