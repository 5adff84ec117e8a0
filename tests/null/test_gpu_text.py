"""The same plans that the CPU runs, as GPU kernel text: built for AMD by clang, and run on the host by an emulation.

What is shown here: every text compiles for each gfx target with no spills and no scratch memory; its code object holds
the kernels; and run thread by thread (`emulate_gpu.h`) it computes what the CPU computes, in two orders of threads.
"""

from __future__ import annotations

import math
import subprocess
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame.codegen.gpu_shape import MAX_BLOCK
from pyflame.core.errors import CompileError
from pyflame.core.targets import TARGETS
from pyflame.ir import OPS
from pyflame.runtime.rocm.clang import ClangHip
from tests.chosen import chosen
from tests.null.texts import (
    AMD,
    CASES,
    TINY,
    Emulator,
    Guarded,
    Planned,
    all_texts,
    clang,
    gather,
    gelu_backward,
    host_library,
    launch_host,
    layer_norm,
    log_sums,
    metadata,
    named,
    planned,
    randn,
    softmax,
    symbol,
    transposed,
)
from tests.plans import long_positions

__all__ = ["clang"]  # fixtures


@pytest.mark.slow
@pytest.mark.parametrize("name", AMD)
def test_builds_without_spills(name: str, clang: ClangHip, tmp_path: Path) -> None:
    target = TARGETS[name]
    texts = all_texts(target)
    code = clang.build("\n".join(texts), target)
    assert code[:4] == b"\x7fELF"
    kernels = metadata(code, tmp_path)
    wanted = {symbol(s.text) + phase.suffix for s in texts.values() for phase in s.phases}
    assert set(kernels) == wanted
    for kernel, numbers in kernels.items():
        assert numbers["private_segment_fixed_size"] == 0, kernel
        assert numbers["vgpr_spill_count"] == 0, kernel
        assert numbers["sgpr_spill_count"] == 0, kernel
        assert numbers["wavefront_size"] == target.wave_size, kernel
    for source in texts.values():
        for phase in source.phases:
            numbers = kernels[symbol(source.text) + phase.suffix]
            assert numbers["kernarg_segment_size"] == 8 * (source.buffers + 3 + len(phase.args))
            assert numbers["group_segment_fixed_size"] == phase.lds_bytes <= target.lds_bytes


def test_wide_loads(clang: ClangHip, tmp_path: Path) -> None:
    """A contiguous float32 chain moves 16 bytes per lane and instruction."""
    target = TARGETS["gfx942"]
    (source,) = [s for s in planned(CASES["chain"], target).sources if s]
    file = tmp_path / "kernel.hip"
    file.write_text('#include "pf_gpu.h"\n' + named(source.text))
    assembly = tmp_path / "kernel.s"
    subprocess.run([*clang.command(target, str(file), str(assembly)), "-S"], check=True)
    text = assembly.read_text()
    assert "global_load_dwordx4" in text
    assert "global_store_dwordx4" in text
    assert "flat_load" not in text


def test_refused_text_shows_the_line(clang: ClangHip) -> None:
    with pytest.raises(CompileError, match=r"(?s)gfx942.*>\s+3 \| +nonsense;"):
        clang.build("PF_GLOBAL(64) k(int64_t a) {\n  nonsense;\n}\n", TARGETS["gfx942"])


def test_second_build_comes_from_disk(clang: ClangHip) -> None:
    from pyflame.runtime.cache import stats

    text = "PF_GLOBAL(64) k(int64_t *a) { a[pf_thread()] = 1; }\n"
    first = clang.build(text, TARGETS["gfx1100"])
    before = stats.compiles
    assert clang.build(text, TARGETS["gfx1100"]) == first
    assert stats.compiles == before


# --- geometry and text ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*AMD, "sm_90"])
def test_geometry(name: str) -> None:
    target = TARGETS[name]
    for source in all_texts(target).values():
        assert len(source.alignment) == source.buffers
        for phase in source.phases:
            assert phase.grid >= 1
            assert target.wave_size <= phase.block <= MAX_BLOCK
            assert phase.block & (phase.block - 1) == 0
            assert f"PF_GLOBAL({phase.block}) PF_KEY{phase.suffix}(" in source.text


def test_shapes_share_text() -> None:
    """Extents and strides are arguments: other sizes of the same class give the same text."""
    target = TARGETS["gfx942"]

    def text(rows: int, columns: int) -> str:
        (source,) = planned(lambda: [layer_norm(randn(rows, columns), randn(columns), randn(columns))], target).sources
        assert source is not None
        return source.text

    assert text(8, 512) == text(100, 512)
    assert text(400, 2400) == text(500, 2800)
    assert text(400, 2400) != text(400, 2401), "rows of odd length cannot be read as vectors"


def test_transpositions_go_through_lds() -> None:
    """Reads and writes both run along memory, each in a loop of its own; short sides and plain chains do without."""
    target = TARGETS["gfx942"]
    (turned,) = planned(CASES["turned"], target).sources
    (halves,) = planned(CASES["turned halves"], target).sources
    (short,) = planned(CASES["transposed"], target).sources
    (plain,) = planned(CASES["chain"], target).sources
    assert turned and halves and short and plain
    assert [s.phases[0].lds_bytes for s in (turned, halves, short, plain)] == [32 * 33 * 4, 64 * 66 * 2, 0, 0]
    assert turned.phases[0].grid == 3 * 2
    twice = planned(lambda: transposed(1000, 701), target).sources[0]
    even = planned(lambda: transposed(1000, 700), target).sources[0]
    assert twice is not None and twice.text == turned.text
    assert even is not None and even.text.count("pf_vector<float, 2>") > 2, "read and written by vectors"


def test_long_sums_take_two_launches() -> None:
    source = planned(CASES["sum all"], TARGETS["gfx942"]).sources[-1]
    assert source is not None
    assert [p.suffix for p in source.phases] == ["_0", "_1"]
    assert source.scratch_bytes == 8 * source.phases[0].grid


def test_few_long_rows_are_cut() -> None:
    """Each pass is a launch of its own: with two the statistics of softmax, then its values."""
    target = TARGETS["gfx942"]
    (few,) = planned(lambda: [softmax(randn(4, 1 << 20))], target).sources
    (many,) = planned(lambda: [softmax(randn(4, 1 << 12))], target).sources
    assert few and many
    assert [p.grid > target.workers for p in few.phases] == [True, True]
    assert len(many.phases) == 1, "short rows stay where they are"


def test_maximum_and_sum_in_one_pass() -> None:
    """Where a row does not stay in registers it is read once for both; where it does, the plain way is shorter."""
    target = TARGETS["gfx942"]
    (long,) = planned(lambda: log_sums(randn(400, 50304, dtype=pf.bfloat16)), target).sources
    (short,) = planned(lambda: log_sums(randn(400, 512)), target).sources
    assert long and short
    assert "pf_online(" in long.text and long.text.count("*(const pf_vector") == 1
    assert "pf_online(" not in short.text


def test_columns_are_read_as_vectors() -> None:
    """Sums over rows that lie beside each other; what reads the same tensor shares a launch."""
    sources = planned(CASES["sum wide columns"], TARGETS["gfx942"]).sources
    assert len(sources) == 1 and sources[0] and sources[0].text.count("const pf_vector<uint16_t, 8> q") == 2


@pytest.mark.slow
def test_gradients_and_their_sums_are_one_pass() -> None:
    """x and g are read once, by as many threads as run at once, and a small launch adds up what blocks have."""
    target = TARGETS["sm_90"]
    sources = [s for s in planned(lambda: gelu_backward(4096, 3072), target).sources if s and len(s.phases) == 2]
    assert len(sources) == 2
    for source in sources:
        assert source.text.count("*(const pf_vector<uint16_t, 8> *)") == 2
        sums, last = source.phases
        assert (sums.grid, sums.block) == (3 * target.workers, 512)
        assert last.grid * last.block <= 3072 * 8


def test_narrow_rows_stay_packed() -> None:
    (source,) = planned(CASES["rows that stay packed"], TARGETS["gfx942"]).sources
    assert source and "pf_hidden(r" in source.text and "float r" not in source.text


def test_the_emulation_refuses_what_lies_askew(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """As NVIDIA GPUs do: a vector at an address that is none of its multiples, a word of scratch behind odd halves."""
    vectors = "typedef pf_vector<float, 4> v; *(v *)(y + 4) = *(const v *)(x + at);"
    words = "*(int32_t *)((char *)y + 2 * at) = 1;"
    kernels = {"vectors": (vectors, 16), "words": (words, 4)}
    text = "\n".join(
        f"PF_GLOBAL(1) {name}_0(const float *x, float *y, int64_t at) {{ {body} }}\nEMU_EXPORT({name}_0)"
        for name, (body, _) in kernels.items()
    )
    library = host_library(text, 64, tmp_path)
    memory = [Guarded(64), Guarded(64)]
    for name, (_, alignment) in kernels.items():
        run = getattr(library, f"run_{name}_0")
        for at, status in ((8, 0), (1, -1), (4, 0)):
            assert launch_host(run, [*(m.address for m in memory), at], 1, 1) == status, (name, at)
            assert (f"is no multiple of {alignment}\n" in capfd.readouterr().err) == (status != 0)


# ulp that pf_gpu_f64.h promises, and where to look
DOUBLE: dict[str, tuple[Any, float, float, float]] = {
    "exp": (np.exp, -745, 709, 1), "exp2": (np.exp2, -1074, 1023, 1), "expm1": (np.expm1, -40, 700, 2),
    "log": (np.log, 1e-300, 1e300, 2), "log2": (np.log2, 1e-9, 1e9, 2), "log10": (np.log10, 1e-9, 1e9, 2),
    "log1p": (np.log1p, -0.99, 10, 2), "sin": (np.sin, -1e4, 1e4, 2), "cos": (np.cos, -1e4, 1e4, 2),
    "tan": (np.tan, -1e3, 1e3, 4), "asin": (np.arcsin, -1, 1, 4), "acos": (np.arccos, -1, 1, 4),
    "atan": (np.arctan, -20, 20, 2), "tanh": (np.tanh, -5, 5, 4),
    "sinh": (np.sinh, -700, 700, 4), "cosh": (np.cosh, -700, 700, 4),
    "asinh": (np.arcsinh, -50, 50, 4), "acosh": (np.arccosh, 1.01, 50, 4), "atanh": (np.arctanh, -0.99, 0.99, 4),
    "erf": (np.vectorize(math.erf), -6, 6, 2), "erfc": (np.vectorize(math.erfc), -5, 25, 6),
    "lgamma": (np.vectorize(math.lgamma), 10, 170, 4),
    "erfinv": (OPS["erfinv"].reference, -1, 1, 4),
    "mantissa": (lambda x: np.frexp(x)[0], -9, 9, 0), "exponent": (OPS["exponent"].reference, -9, 9, 0),
}  # fmt: skip


@pytest.mark.slow
def test_double_functions(tmp_path: Path) -> None:
    """AMD GPUs have no libm without ROCm: ours, against the C library's."""
    kernels = [_each(name, f"pf_{name}(x[i])") for name in DOUBLE]
    library = host_library("\n".join([*kernels, _each("pow", "pf_pow(x[i], x[19999 - i])")]), 64, tmp_path)

    def apply(name: str, x: Any) -> Any:
        y = np.empty_like(x)
        assert launch_host(getattr(library, f"run_{name}_0"), [x.ctypes.data, y.ctypes.data], 1, 64) == 0
        return y

    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 5e-324, 1e-310, 1e-20, -1e-20]
    report = {}
    with np.errstate(all="ignore"):
        for name, (reference, low, high, _) in DOUBLE.items():
            x = np.random.default_rng(1).uniform(low, high, 20000)
            if name == "log":
                x = np.exp(np.random.default_rng(1).uniform(-700, 700, 20000))
            x[: len(special)] = special
            got, want = apply(name, x), np.array([_annex_f(reference, v) for v in x])
            np.testing.assert_array_equal(np.isnan(got), np.isnan(want), name)
            ok = np.isfinite(want)
            np.testing.assert_array_equal(got[~ok], want[~ok], name)
            np.testing.assert_array_equal(np.signbit(got[want == 0]), np.signbit(want[want == 0]), name)
            report[name] = np.max(np.abs(got[ok] - want[ok]) / np.spacing(np.abs(want[ok])))
        x = np.random.default_rng(1).uniform(0.1, 30, 20000)
        got, want = apply("pow", x), np.power(x, x[::-1])
        report["pow"] = np.max(np.abs(got - want) / np.spacing(want))
    assert {n: u for n, u in report.items() if u > ({"pow": (0, 0, 0, 3)} | DOUBLE)[n][3]} == {}


def _each(name: str, expression: str) -> str:
    loop = f"for (int i = pf_thread(); i < 20000; i += 64) y[i] = {expression};"
    return f"PF_GLOBAL(64) {name}_0(const double *x, double *y) {{ {loop} }}\nEMU_EXPORT({name}_0)"


def _annex_f(reference: Any, x: float) -> float:
    """A libm function of one number, where Python's own raises for a pole or an infinity."""
    try:
        return float(reference(x))
    except (ValueError, OverflowError):
        return math.inf


EMULATED = {
    "gfx942": (TARGETS["gfx942"], True),
    "gfx1100": (TARGETS["gfx1100"], True),
    "tiny waves": (TINY, True),
    "unaligned": (replace(TINY, wave_size=8), False),
    "64-bit positions": (TINY, True),
}


@pytest.fixture(scope="session", params=EMULATED)
def emulator(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Emulator:
    target, aligned = EMULATED[request.param]
    cases = chosen(request, test_computes_what_the_cpu_computes, "name", emulator=request.param)
    with long_positions() if request.param == "64-bit positions" else nullcontext():
        return Emulator({n: CASES[n] for n in cases}, target, aligned, tmp_path_factory.mktemp("emulator"))


def compare(case: Planned, emulator: Emulator, expected: list[Any]) -> None:
    """Results of the emulation, in both orders of threads, against those of the CPU."""
    for reverse in (False, True):
        results, error = emulator.run(case, reverse)
        assert error == [0, 0, 0]
        for result, want in zip(results, expected, strict=True):
            assert result.dtype == want.dtype
            if want.dtype.kind == "c":  # as pairs of real numbers
                result, want = (a.view(a.real.dtype) for a in (result, want))
            if want.dtype.kind in "iub":
                np.testing.assert_array_equal(result, want)
                continue
            loose = {8: 1e-12, 4: 2e-5, 2: 1e-2, 1: 0.1}[want.dtype.itemsize]
            left, right = result.astype(np.float64), want.astype(np.float64)
            scale = np.abs(right[np.isfinite(right)]).max(initial=1.0)
            np.testing.assert_allclose(left, right, rtol=loose, atol=loose * min(scale, 1e4))


@pytest.mark.parametrize("name", CASES)
def test_computes_what_the_cpu_computes(name: str, emulator: Emulator) -> None:
    case = emulator.cases[name]
    compare(case, emulator, [t.numpy() for t in case.outputs])


def test_bad_index_is_reported(tmp_path: Path) -> None:
    emulator = Emulator({"bad": lambda: gather(bad=True)}, TARGETS["gfx1100"], True, tmp_path)
    _, error = emulator.run(emulator.cases["bad"], False)
    assert error == [1, 11, 11]
