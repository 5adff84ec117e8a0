"""Blocks fed by asynchronous copies (pf_mma_async.h): all of them, in all layouts, on the host, and what nvcc says.

On the host copies are done at once and the numbers are multiplied where a GPU's instructions find them: that tells
whether edges, layouts and the order in LDS are right. `tests/gpu/test_matrix_tiles_on_nvidia.py` runs the instructions.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame.core.device import DeviceId, Target
from pyflame.core.targets import TARGETS
from pyflame.engine import devices
from pyflame.kernels import matmul_gpu
from pyflame.kernels.matrix_async import AsyncTile, async_tiles
from pyflame.kernels.matrix_cores import matrix_kind
from pyflame.kernels.tile_gpu import best_cuts
from tests.emulated import EmulatedDriver, emulated_device
from tests.gpu.gemm_cases import Build, Case, check, fused, normed, numbers, product, wide
from tests.gpu.programs import Program
from tests.null.test_gpu_kernels_gemm import Emulated
from tests.null.test_matrix_tiles import VIEWS, nvcc

HOPPER = TARGETS["sm_90"]
AMPERE = replace(HOPPER, name="sm_80", workers=108, lds_bytes=163 * 1024, matrix_core="mma")
TURING = replace(HOPPER, name="sm_75", matrix_core="")
ADA = replace(AMPERE, name="sm_89", lds_bytes=99 * 1024)


def blocks(target: Target) -> tuple[AsyncTile, ...]:
    kind = matrix_kind(target, pf.bfloat16)
    assert kind is not None
    return async_tiles(target, kind, 4)


BLOCKS = [(t, n) for t in (HOPPER, AMPERE) for n in range(len(blocks(t)))]
NAMES = [f"{t.name} {blocks(t)[n].label}" for t, n in BLOCKS]


def only(patch: pytest.MonkeyPatch, number: int) -> None:
    """Let every product take this block."""
    patch.setattr(matmul_gpu, "async_tiles", lambda *given: async_tiles(*given)[number : number + 1])


def around(tile: AsyncTile, views: Sequence[tuple[str, str]]) -> dict[str, Build]:
    """Edges in all axes, less than a block, more steps than LDS holds, a batch and an epilogue."""
    m, n, k, steps = tile.rows + 8, tile.cols + 16, tile.depth + 24, (tile.stages + 2) * tile.depth
    found = {" ".join(v): product((m, k), (k, n), pf.bfloat16, v) for v in views}
    found["smaller"] = product((9, 16), (16, 24), pf.float16, VIEWS[0])
    found["steps"] = product((16, steps), (steps, 16), pf.float16, VIEWS[2])
    found["parts"] = product((16, 20 * tile.cluster * tile.depth), (20 * tile.cluster * tile.depth, 24), pf.bfloat16)
    found["batch"] = product((3, 24, 40), (3, 40, 32), pf.bfloat16)
    found["fused"] = fused(24, 48, 40, pf.bfloat16)
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("target", "number"), BLOCKS, ids=NAMES)
def test_blocks_compute_what_numpy_computes(target: Target, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, number)
    # two of them take both operands both ways
    emulated = Emulated(target, around(blocks(target)[number], VIEWS[number % 2 * 2 :][:2]))
    assert all("pf_gemm_async" in text for text in emulated.texts)
    assert emulated.wrong(check, reverse=bool(number % 2)) == {}


@pytest.mark.slow
def test_a_block_takes_one_tile_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is alone on its compute unit: with edges, and over the entries of a batch."""
    number = next(n for n, tile in enumerate(blocks(HOPPER)) if tile.wgmma and tile.resident == 1)
    only(monkeypatch, number)
    tile = blocks(HOPPER)[number]
    m, n = 2 * tile.rows + 8, 2 * tile.cols + 16
    builds = {
        "edges": product((m, 200), (200, n), pf.bfloat16, VIEWS[1]),
        "batch": product((3, 200, 104), (3, 104, 400), pf.float16),
        "fused": fused(tile.rows + 24, 40, tile.cols + 8, pf.bfloat16),
    }
    emulated = Emulated(replace(HOPPER, workers=2), builds)
    assert all("MANY = 1" in text for text in emulated.texts)
    assert emulated.wrong(check, reverse=True) == {}


FEW: dict[str, Build] = {
    "row": product((1, 520), (520, 150), pf.bfloat16, ("plain", "transposed")),
    "rows": product((2, 2056), (2056, 40), pf.float16, ("plain", "transposed")),
    "columns": product((137, 4104), (4104, 2), pf.bfloat16, ("plain", "transposed")),
    "long": product((1, 1 << 16), (1 << 16, 3), pf.bfloat16, ("plain", "transposed")),
    "batch": product((3, 1, 1024), (3, 1024, 70), pf.float16, ("plain", "transposed")),
    "read early": product((1, 4096), (4096, 70), pf.bfloat16, ("plain", "transposed")),
    "normed": normed(1, 4096, 70, pf.bfloat16),
    "normed rows": normed(2, 1032, 133, pf.float16, bias=True),
}


@pytest.mark.slow
@pytest.mark.parametrize("way", matmul_gpu._DOTS, ids=str)
def test_one_row_or_two_by_whole_blocks(way: matmul_gpu.Dots, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matmul_gpu, "_DOTS", (way,))
    emulated = Emulated(HOPPER, FEW)
    assert all("pf_gemm_dots" in text for text in emulated.texts)
    assert {"EARLY = 1" in text for text in emulated.texts} == {False, True}
    assert emulated.wrong(check, reverse=way.waves == 8) == {}


def behind(columns: int, change: Callable[[Any], Any], expected: Callable[[Any], Any]) -> Build:
    """What follows a product of 40 rows, in torch's words and in NumPy's."""

    def build() -> Case:
        a, b = numbers((40, 64), pf.bfloat16, 1), numbers((columns, 64), pf.bfloat16, 2)
        found, want = change(pf.tensor(a) @ pf.tensor(b).T), expected(wide(a) @ wide(b).T)
        many = isinstance(found, list)
        outputs, arrays = (found, want) if many else ([found], [want])
        kept = [np.ascontiguousarray(w).astype(o.dtype.numpy) for o, w in zip(outputs, arrays, strict=True)]
        return Case(outputs, kept, 8.0)

    return build


# Rows that are aligned or not, results of other sizes, and two of them at once.
RESULTS: dict[str, Build] = {
    "rows": behind(40, lambda y: y, lambda y: y),
    "odd rows": behind(37, lambda y: y, lambda y: y),
    "float32": behind(44, lambda y: y.to(pf.float32) * 2.0, lambda y: y * 2),
    "bytes": behind(48, lambda y: y > 4.0, lambda y: y > 4),
    "axes": behind(60, lambda y: pf.relu(y.reshape(40, 5, 12)), lambda y: np.maximum(y.reshape(40, 5, 12), 0)),
    "two": behind(
        40, lambda y: [pf.relu(y), pf.relu(y).to(pf.float32)], lambda y: [np.maximum(y, 0), np.maximum(y, 0)]
    ),
}  # fmt: skip


@pytest.mark.slow
def test_results_lie_where_they_should() -> None:
    emulated = Emulated(HOPPER, RESULTS)
    assert all(any("pf_gemm_async" in t for t in p.texts) for p in emulated.programs.values())
    single = {name for name, program in emulated.programs.items() if any("OUT_WIDTH = 1," in t for t in program.texts)}
    assert single == {"odd rows"}
    assert emulated.wrong(check, reverse=False) == {}


def texts(target: Target) -> set[str]:
    """Each block in two layouts."""
    a, b = (pf.tensor(np.zeros(s, pf.bfloat16.numpy)) for s in ((512, 512), (512, 512)))
    return {s.text for out in (a @ b, a.T @ b.T) for s in Program([out], target).sources}


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="there is no nvcc")
@pytest.mark.parametrize(("target", "arch"), [(HOPPER, "sm_90a"), (AMPERE, "sm_80")], ids=["sm_90a", "sm_80"])
def test_nvcc_takes_the_text(target: Target, arch: str, tmp_path: Path) -> None:
    found: set[str] = set()
    for number in range(len(blocks(target))):
        with pytest.MonkeyPatch.context() as patch:
            only(patch, number)
            found |= texts(target)
    assert "serialized" not in nvcc(found, arch, tmp_path), "wgmma waits for other instructions"


# --- the table --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", [HOPPER, AMPERE, ADA], ids=lambda t: t.name)
def test_blocks_fit(target: Target) -> None:
    assert blocks(target) and all(t.lds_bytes(4) <= target.lds_bytes for t in blocks(target))


def way(a: pf.Tensor, b: pf.Tensor, target: Target = HOPPER) -> str:
    (source, *_) = Program([a @ b], target).sources
    return source.text.split("pf_gemm_")[1].split("<")[0]


def test_others_go_other_ways() -> None:
    """Dtypes, strides and targets that such copies are not for."""
    a, b = (pf.tensor(np.zeros((256, 256), pf.bfloat16.numpy)) for _ in range(2))
    assert way(a, b) == way(a, b, AMPERE) == "async"
    assert way(a, b, TURING) == way(a[:, :250], b[:250]) == way(a[:, 1:249], b[1:249]) == "mma"
    assert way(a[::2], b) == "async" and way(a[:, ::2], b[:128]) == "mma"
    assert way(*(pf.tensor(np.zeros((256, 256), np.int8)) for _ in range(2))) == "mma"
    assert way(*(pf.tensor(np.zeros((256, 256), np.float32)) for _ in range(2))) == "tile"


def test_large_products_take_large_blocks_and_few_rows_share_k() -> None:
    def best(m: int, n: int, k: int) -> str:
        return str(best_cuts(blocks(HOPPER), m, n, k, 1, 4, HOPPER.workers)[0])

    assert best(8192, 8192, 8192) == "128x256 wgmma"
    assert best(64, 4096, 4096) == "64x64 wgmma by 2"
    assert best(16, 4096, 4096) == "16x32 async"
    assert "parts" in best(64, 64, 1 << 16), "few outputs of a long k are cut"


def test_a_launch_asks_for_its_lds(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than a text may declare: the driver is told."""
    name, asked = DeviceId("rocm", 77), list[int]()
    monkeypatch.setitem(devices._open, name, emulated_device(77, "sm_90"))
    launch = EmulatedDriver.launch

    def noted(self: EmulatedDriver, function: Any, grid: Any, block: Any, dynamic_lds: int, *rest: Any) -> None:
        asked.append(dynamic_lds)
        launch(self, function, grid, block, dynamic_lds, *rest)

    monkeypatch.setattr(EmulatedDriver, "launch", noted)
    a = np.random.default_rng(0).standard_normal((72, 64)).astype(pf.bfloat16.numpy)
    x = pf.tensor(a, device=str(name))
    got = (x @ x.T).numpy().astype(np.float32)
    np.testing.assert_allclose(got, a.astype(np.float32) @ a.T.astype(np.float32), rtol=1e-2, atol=1e-1)
    assert asked == [cut.tile.lds_bytes(4) for cut in best_cuts(blocks(HOPPER), 72, 72, 64, 1, 4, HOPPER.workers)[:1]]
