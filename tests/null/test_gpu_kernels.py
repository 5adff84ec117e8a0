"""Hand-written GPU kernels for pooling, scatters, sorting and running sums, by emulation against the NumPy twins.

Their text is built for each gfx target as well: no spills, no scratch memory, LDS as declared. Shapes are awkward on
purpose: primes, ones, rows that end inside a tile, windows that reach over the edge, indices that collide.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame.core.device import Target
from pyflame.core.dtype import ALL, FLOAT8
from pyflame.core.shape import Region
from pyflame.core.targets import TARGETS
from pyflame.core.window import Window, adaptive_window, three
from pyflame.engine.texts import gpu_source
from pyflame.ir import F
from pyflame.ir.kernel import GpuSource, Launch
from pyflame.kernels import scatter_gpu
from pyflame.runtime.rocm.clang import ClangHip
from pyflame.tensor import Tensor
from tests.chosen import chosen
from tests.null.texts import Build, Emulator, clang, metadata, named, planned, symbol

__all__ = ["clang"]  # a fixture
# For gfx90a, gfx1100 and gfx1201 tests/aot/test_kernels.py builds a program with each of these kernels.
AMD = ("gfx906", "gfx942", "gfx1030")
NUMBERS = [d for d in ALL if d is not pf.bool_]


def source_of(launch: Launch, target: Target, aligned: bool) -> GpuSource | None:
    return gpu_source(launch, target, aligned)


def values(*shape: int, dtype: pf.DType = pf.float32, seed: int = 0) -> pf.Tensor:
    """Numbers with many equal ones among them; floats with signed zeros."""
    drawn = np.random.default_rng(seed).integers(-6, 7, shape)
    if dtype.is_float:
        return pf.tensor((drawn / 4).astype(np.float32) * np.where(drawn % 2, 1, -1).astype(np.float32), dtype=dtype)
    return pf.tensor(
        np.abs(drawn) if dtype is pf.uint8 else drawn % 2 == 0 if dtype is pf.bool_ else drawn, dtype=dtype
    )


def special(*shape: int, dtype: pf.DType = pf.float32) -> pf.Tensor:
    """With NaN and infinities."""
    array = values(*shape, dtype=dtype).numpy().astype(np.float32).reshape(-1)
    array[::5], array[1::7], array[2::11] = np.nan, -np.inf, np.inf
    return pf.tensor(array.reshape(shape), dtype=dtype)


def op(name: str, *args: Any) -> Tensor:
    return Tensor(getattr(F, name)(*[a._node if isinstance(a, Tensor) else a for a in args]))


# --- cases ------------------------------------------------------------------------------------------------------------

WINDOWS: dict[str, tuple[Window, ...]] = {
    "2x2": (Window(7, 3, 2, 2), Window(10, 5, 2, 2)),
    "3x3 padded": (Window(7, 4, 3, 2, 1), Window(10, 5, 3, 2, 1)),
    "overlapping": (Window(5, 5, 3, 1, 1), Window(9, 9, 3, 1, 1)),
    "ceil": (Window(7, 0, 3, 3, 1).counted(True), Window(10, 0, 3, 3, 1).counted(True)),
    "dilated": (Window(7, 5, 2, 1, 1, 2).counted(False), Window(11, 0, 3, 2, 1, 3).counted(False)),
    "apart": (Window(9, 3, 2, 4), Window(11, 3, 1, 5)),
    "adaptive": (adaptive_window(7, 3), adaptive_window(11, 4)),
    "one axis wide": (Window(131, 2, 65, 66),),
    "wide padded": (Window(3, 3, 1, 1), Window(97, 5, 40, 19, 9)),
    "3d": (Window(4, 2, 2, 2), Window(5, 3, 3, 2, 1), Window(6, 3, 2, 2)),
    "whole": (Window(3, 1, 3, 1), Window(5, 1, 5, 1)),
    "carried": (Window(7, 4, 3, 2, 1), Window(10, 5, 3, 2, 1), Window(16, 16, 1, 1)),
    "carried adaptive": (adaptive_window(7, 3), adaptive_window(11, 4), adaptive_window(8, 8)),
    "carried dilated": (
        Window(7, 5, 2, 1, 1, 2).counted(False),
        Window(11, 0, 3, 2, 1, 3).counted(False),
        Window(4, 4, 1, 1),
    ),
}


def pools(windows: tuple[Window, ...], dtype: pf.DType) -> list[Any]:
    axes = three(windows)
    sizes, outs = [w.size for w in axes], [w.out for w in axes]
    planes = (2, 3) if max(sizes) < 1000 else (1, 1)
    x, g = values(*planes, *sizes, dtype=dtype), values(*planes, *outs, dtype=dtype, seed=1)
    out = [op("max_pool", x, axes), op("max_pool_indices", x, axes), op("max_pool_backward", g, x, axes)]
    if dtype.is_float:
        bad = special(*planes, *sizes, dtype=dtype)
        out += [op("max_pool", bad, axes), op("max_pool_indices", bad, axes), op("max_pool_backward", g, bad, axes)]
        if all(w.dilation == 1 for w in axes):
            for include_pad, divisor in ((True, 0), (False, 0), (True, -5)):
                out.append(op("avg_pool", x, axes, include_pad, divisor))
                out.append(op("avg_pool_backward", g, axes, include_pad, divisor))
    return out


def runs(shape: tuple[int, ...], axis: int, dtype: pf.DType = pf.float32) -> list[Any]:
    x = values(*shape, dtype=dtype)
    near_one = pf.tensor(1 + 0.01 * values(*shape).numpy(), dtype=dtype) if dtype.is_float else x
    found = [op("running_sum", x, axis, reverse) for reverse in (False, True)]
    return found + [op("running_product", near_one, axis, reverse) for reverse in (False, True)]


def sorts(shape: tuple[int, ...], take: int, dtype: pf.DType = pf.float32) -> list[Any]:
    inputs = [values(*shape, dtype=dtype)] + ([special(*shape, dtype=dtype)] if dtype.is_float else [])
    return [op("sort_positions", x, take, descending) for x in inputs for descending in (False, True)]


def scattered(
    base: tuple[int, ...],
    shape: tuple[int, ...],
    indices: list[tuple[int, tuple[int, ...]]],
    dims: tuple[int, ...],
    expanded: tuple[int, ...],
    mode: str,
    dtype: pf.DType = pf.float32,
    region: Region | None = None,
    bad: bool = False,
    value_dtype: pf.DType | None = None,
    to: pf.Tensor | None = None,
) -> list[Any]:
    """indices: for each indexed axis its number and the shape of its index tensor; expanded: to which that is then."""
    counts = [n for _, _, n in region] if region else list(base)
    rng = np.random.default_rng(5)
    at = [pf.tensor(rng.integers(-counts[a], counts[a], size)) for a, size in indices]
    if bad:
        wrong = at[-1].numpy().copy()
        wrong.reshape(-1)[wrong.size // 2] = counts[indices[-1][0]]
        at[-1] = pf.tensor(wrong)
    to = values(*base, dtype=dtype) if to is None else to
    what = values(*shape, dtype=value_dtype or dtype, seed=3)
    if mode == "mul" and dtype.is_float:
        what = pf.tensor(1 + 0.03125 * what.numpy(), dtype=dtype)
    at = [i.expand(*expanded) for i in at] if expanded else at
    name = "scatter_at" if mode in ("assign", "add") else "scatter_reduce_at"
    axes = tuple(a for a, _ in indices)
    return [op(name, to, what, tuple(i._node for i in at), axes, dims, mode, region)]


MODES = ("assign", "add", "mul", "max", "min")
SPACES: dict[str, tuple[Any, ...]] = {
    "rows": ((11, 24), (70, 24), [(0, (70, 1))], (-1, 1), ()),  # as the gradient of an embedding
    "many rows": ((5, 3), (700, 3), [(0, (700, 1))], (-1, 1), ()),  # runs over many pieces
    "columns": ((6, 13), (6, 90), [(1, (90,))], (0, -1), ()),
    "along": ((5, 7), (5, 60), [(1, (5, 60))], (0, -1), ()),  # indices change with a free coordinate
    "both": ((9, 8), (75,), [(0, (75,)), (1, (75,))], (-1, -1), ()),
    "pairs": ((9, 4, 8), (40, 4), [(0, (40, 1)), (2, (40, 1))], (-1, 1, -1), ()),
    "few pairs": ((9, 4, 8), (12, 4), [(0, (12, 1)), (2, (12, 1))], (-1, 1, -1), ()),
    "few pairs of columns": ((6, 13, 5), (6, 20), [(1, (20,)), (2, (20,))], (0, -1, -1), ()),
    "few": ((30, 9), (3, 9), [(0, (3, 1))], (-1, 1), ()),
    "few that meet": ((5, 9), (25, 9), [(0, (25, 1))], (-1, 1), ()),
    "few columns": ((6, 13), (6, 20), [(1, (20,))], (0, -1), ()),
    "broadcast": ((7, 6), (4, 20, 6), [(0, (1, 20, 1))], (-1, 2), (4, 20, 1)),  # several rows per index
    "one": ((4,), (40,), [(0, (40,))], (-1,), ()),
}


CASES: dict[str, Build] = {f"pool {name}": lambda w=w: pools(w, pf.float32) for name, w in WINDOWS.items()}
CASES |= {f"pool {d.name}": lambda d=d: pools(WINDOWS["3x3 padded"], d) for d in NUMBERS if d not in FLOAT8}
CASES |= {f"pool carried {d.name}": lambda d=d: pools(WINDOWS["carried"], d) for d in NUMBERS if d not in FLOAT8}
CASES |= {
    f"runs {shape} {axis}": lambda shape=shape, axis=axis: runs(shape, axis)
    for shape, axis in [
        ((1,), 0), ((7,), 0), ((37, 5), 1), ((3, 131), 1), ((3, 1009), 1), ((2, 5003), 1), ((70001,), 0),
        ((3, 9001), 1), ((131, 3), 0), ((5, 40, 9), 1), ((9001, 3), 0), ((2, 3001, 2), 1),
    ]
}  # fmt: skip
CASES |= {f"runs {d.name}": lambda d=d: runs((3, 517), 1, d) for d in NUMBERS if d.itemsize > 1}
CASES |= {f"runs columns {d.name}": lambda d=d: runs((517, 3), 0, d) for d in (pf.int64, pf.float64, pf.bfloat16)}
CASES |= {
    f"sort {shape} {take}": lambda shape=shape, take=take: sorts(shape, take)
    for shape, take in [
        ((1,), 1), ((7,), 7), ((5, 37), 37), ((3, 4, 65), 65), ((2, 1009), 1009), ((4096,), 4096), ((2, 5003), 5003),
        ((3, 1009), 17), ((2, 9001), 50), ((20001,), 300), ((5, 1), 1), ((12289,), 12289), ((4100,), 4097),
    ]
}  # fmt: skip
CASES |= {f"sort short {d.name}": lambda d=d: sorts((3, 130), 130, d) for d in ALL}
CASES |= {f"sort long {d.name}": lambda d=d: sorts((4101,), 4101, d)[-2:] for d in ALL}
CASES |= {f"sort few {d.name}": lambda d=d: sorts((4500,), 9, d) for d in (pf.int8, pf.int64, pf.float64, pf.bfloat16)}
CASES |= {
    f"{mode} {name}": lambda mode=mode, space=space: scattered(*space, mode)
    for mode in MODES
    for name, space in SPACES.items()
}
CASES |= {
    f"{mode} {d.name}": lambda mode=mode, d=d: scattered(*SPACES["rows"], mode, d)
    for mode, d in itertools.product(MODES, ALL)
    if d not in FLOAT8 or mode == "assign"
}
CASES |= {
    "add into a region": lambda: scattered(
        (20, 9), (70, 3), [(0, (70, 1))], (-1, 1), (), "add", region=((18, -2, 8), (1, 3, 3))
    ),
    "assign into a region": lambda: scattered(
        (20, 9), (70, 3), [(0, (70, 1))], (-1, 1), (), "assign", region=((18, -2, 8), (1, 3, 3))
    ),
    "add halves to floats": lambda: scattered(*SPACES["rows"], "add", value_dtype=pf.bfloat16),
    "long add": lambda: scattered((300, 2), (5000, 2), [(0, (5000, 1))], (-1, 1), (), "add"),
    "long skewed add": lambda: scattered((2, 3), (4500, 3), [(0, (4500, 1))], (-1, 1), (), "add"),
}


def cases_of(*dtypes: pf.DType) -> dict[str, Build]:
    """The cases without those of other dtypes: what a dtype changes in a kernel is the same on every target."""
    others = {d.name for d in ALL if d not in dtypes}
    return {name: build for name, build in CASES.items() if name.split()[-1] not in others}


TINY = Target("gfx1100", "hip", (), 4, 32, 64 * 1024)
# Other GPUs, all dtypes and every branch are the matter of the simulated GPUs.
EMULATED = {"tiny": (TINY, cases_of(pf.float32, pf.int64, pf.bfloat16))}


@pytest.fixture(scope="module")
def emulators(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Emulator]:
    def make(name: str) -> Emulator:
        target, cases = EMULATED[name]
        wanted = {n: cases[n] for n in chosen(request, test_computes_what_numpy_computes, "name", target=name)}
        return Emulator(wanted, target, True, tmp_path_factory.mktemp("kernels"), source_of)

    return functools.cache(make)


@pytest.mark.parametrize(
    ("target", "name"), [(target, name) for target, (_, cases) in EMULATED.items() for name in cases]
)
def test_computes_what_numpy_computes(target: str, name: str, emulators: Callable[[str], Emulator]) -> None:
    compare(emulators(target), name)


def compare(emulator: Emulator, name: str) -> None:
    """Run a case, forwards and in reverse, and compare with NumPy."""
    case = emulator.cases[name]
    expected = [case.references[t._node] for t in case.outputs]
    runs = [emulator.run(case, reverse) for reverse in (False, True)]
    for results, error in runs:
        assert error == [0, 0, 0]
        for result, want, tensor in zip(results, expected, case.outputs, strict=True):
            assert result.dtype == tensor.dtype.numpy
            assert result.shape == want.shape
            if result.dtype.kind in "iub":
                np.testing.assert_array_equal(result, want)
                continue
            loose = {8: 1e-12, 4: 2e-6, 2: 1e-2, 1: 0.1}[result.dtype.itemsize]
            np.testing.assert_allclose(result.astype(np.float64), want.astype(np.float64), rtol=loose, atol=loose)
    one, other = ([r.tobytes() for r in results] for results, _ in runs)
    assert one == other, "the result depends on the order of threads"


@pytest.mark.slow
def test_wide_positions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for tensors of more than 2^31 elements: the text divides 64-bit numbers."""
    from pyflame.kernels import cumulative_gpu, pool_gpu, sort_gpu

    for module in (cumulative_gpu, pool_gpu, sort_gpu, scatter_gpu):
        monkeypatch.setattr(module, "position_type", lambda *counts: "int64_t")
    names = ["pool 3x3 padded", "runs (3, 9001) 1", "runs (5, 40, 9) 1", "sort (2, 5003) 5003", "sort (2, 9001) 50"]
    names += [f"{mode} {space}" for mode in ("assign", "add", "max") for space in ("rows", "along", "pairs")]
    names += ["assign few pairs", "add few", "max few"]
    emulator = Emulator({n: CASES[n] for n in names}, TARGETS["gfx942"], True, tmp_path, source_of)
    for name in names:
        assert "int64_t>" in "".join(s.text for s in emulator.cases[name].sources if s)
        compare(emulator, name)


def test_assignment_without_claims(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there are many more places than keys, the last key is found by sorting."""
    monkeypatch.setattr(scatter_gpu, "CLAIM_BYTES", 0)
    wide = {
        f"{d.name} {n}": lambda n=n, d=d: scattered(*SPACES[n][:-1], (), "assign", d)
        for n in ("rows", "along", "both")
        for d in (pf.float32, pf.bool_, pf.float8_e4m3fn)
    }
    wide["sparse"] = lambda: scattered((5000, 3), (40, 3), [(0, (40, 1))], (-1, 1), (), "assign")
    emulator = Emulator(wide, TARGETS["gfx1100"], True, tmp_path, source_of)
    (source,) = [s for s in emulator.cases["sparse"].sources if s and "scatter.hip" in s.text]
    assert [p.suffix for p in source.phases] == ["_ids", "_sort0", "_combine", "_carry"]
    for name in wide:
        compare(emulator, name)


@pytest.mark.parametrize("space", ["rows", "few", "along"])
@pytest.mark.parametrize("mode", MODES)
def test_bad_index(mode: str, space: str, tmp_path: Path) -> None:
    """It is reported, and where the base belongs to somebody nothing is written."""

    base, *rest = SPACES[space]
    held = np.arange(np.prod(base), dtype=np.float32).reshape(base)
    bad = {"bad": lambda: scattered(base, *rest, mode, bad=True, to=pf.tensor(held))}
    emulator = Emulator(bad, TARGETS["gfx1100"], True, tmp_path, source_of)
    case = emulator.cases["bad"]
    assert len(case.plan.overwritten_inputs) == 1 and case.plan.launches[-1].overwrites_input
    size = base[rest[1][0][0]]
    for reverse in (False, True):
        (result,), error = emulator.run(case, reverse)
        assert error == [1, size, size]
        np.testing.assert_array_equal(result, held)


# --- text -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow(16)
@pytest.mark.parametrize("name", AMD)
def test_builds_without_spills(name: str, clang: ClangHip, tmp_path: Path) -> None:
    target = TARGETS[name]
    # Types and ways to combine change little from target to target: of each size and kind for one, few for the others.
    if name == "gfx942":
        builds = cases_of(pf.float32, pf.int64, pf.bfloat16, pf.int8, pf.int16, pf.float64, pf.float8_e4m3fnuz)
    else:
        builds = {n: b for n, b in cases_of(pf.float32, pf.bfloat16).items() if not n.startswith(("mul", "max"))}
    found = [s for build in builds.values() for s in planned(build, target, source=source_of).sources if s is not None]
    sources = {s.text: s for s in found if ".hip" in s.text}
    code = clang.build("\n".join(map(named, sources)), target)
    kernels = metadata(code, tmp_path)
    for text, source in sources.items():
        for phase in source.phases:
            numbers = kernels[symbol(text) + phase.suffix]
            assert numbers["private_segment_fixed_size"] == 0, text
            assert numbers["vgpr_spill_count"] == numbers["sgpr_spill_count"] == 0, text
            assert numbers["wavefront_size"] == target.wave_size
            assert numbers["kernarg_segment_size"] == 8 * (source.buffers + 3 + len(phase.args))
            assert numbers["group_segment_fixed_size"] <= phase.lds_bytes <= min(target.lds_bytes, 48 * 1024)


def test_shapes_share_text() -> None:
    """Extents, strides and places in scratch are arguments."""
    target = TARGETS["gfx942"]

    def text(build: Build) -> str:
        (source,) = [s for s in planned(build, target, source=source_of).sources if s and ".hip" in s.text]
        return source.text

    def embedded(tokens: int, width: int) -> str:
        return text(lambda: scattered((50, width), (tokens, width), [(0, (tokens, 1))], (-1, 1), (), "add"))

    assert text(lambda: sorts((3, 5003), 5003)[:1]) == text(lambda: sorts((7, 9001), 9001)[:1])
    assert text(lambda: sorts((3, 9001), 50)[:1]) == text(lambda: sorts((7, 12001), 60)[:1])
    assert text(lambda: runs((3, 5003), 1)[:1]) == text(lambda: runs((3, 6001), 1)[:1])
    assert embedded(5000, 64) == embedded(6000, 128)
    pooled = {text(lambda w=w: pools(WINDOWS[w], pf.float32)[:1]) for w in ("2x2", "3x3 padded", "dilated")}
    assert len(pooled) == 1


def test_adaptive_windows_of_long_axes(tmp_path: Path) -> None:
    """size * out above 2^31: the arithmetic of windows takes 64 bits."""
    windows = three((adaptive_window(70001, 35001),))
    x = (np.arange(70001) * 7919 % 70001).astype(np.float32)
    build = {"long": lambda: [op("max_pool", pf.tensor(x.reshape(1, 1, 1, 1, -1)), windows)]}
    emulator = Emulator(build, TARGETS["gfx942"], True, tmp_path, source_of)
    (result,), _ = emulator.run(emulator.cases["long"], False)
    want = [x[first:end].max() for first, end, _ in windows[2].spans()]
    np.testing.assert_array_equal(result.reshape(-1), want)
