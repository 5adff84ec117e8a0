"""GPU matmul and convolution: run on the host by an emulation, against NumPy, and built for AMD by clang."""

from __future__ import annotations

import ctypes
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame.core.device import Target
from pyflame.core.targets import TARGETS
from pyflame.engine.aot.resources import read_resources
from pyflame.kernels.tile_gpu import choose_cut
from pyflame.runtime.rocm.clang import ClangHip
from pyflame.runtime.rocm.metadata import read_metadata
from tests.emulated import PARTED, EmulatedCompiler
from tests.gpu.gemm_cases import CASES, Build, Case, check
from tests.gpu.programs import Program, named, symbol
from tests.null.texts import clang

__all__ = ["clang"]  # a fixture
AMD = [name for name, target in TARGETS.items() if target.language == "hip"]
# Many compute units make small shapes take small tiles and cut k, few make them take large tiles.
RUN_ON = {"wave 64": TARGETS["gfx942"], "wave 32, one unit": replace(TARGETS["gfx1100"], workers=1)}
# What the texts must hold so that nothing goes untested.
WAYS = (
    "pf_gemm_mma", "pf_gemm_tile", "pf_gemm_dots", "pf_gemm_columns", "pf_conv_mma", "pf_conv_tile", "pf_conv_direct",
    "pf_conv_dot", "pf_finish", "pf_partial", "ROWS = 128", "ROWS = 64", "ROWS = 32", "A_VECTOR = 1", "B_VECTOR = 1",
    "A_ALONG_K = 0",
    "B_ALONG_K = 1", "FEW_ROWS = 1", "FEW_ROWS = 0", "FEW_VECTOR = 1", "AXES = 3", "DILATED = 1", "C_LAST = 1",
    "X_ALONG_K = 1", "W_ALONG_K = 0", "RANK = 1", "RANK = 2", "RANK = 3",
)  # fmt: skip


def aligned_copy(image: Any) -> Any:
    room = np.empty(image.nbytes + 256, np.uint8)
    start = -room.ctypes.data % 256
    out = room[start : start + image.nbytes]
    out[:] = image
    return out


class Emulated:
    """The programs of all cases for a target, their kernels compiled for the host."""

    def __init__(self, target: Target, builds: Mapping[str, Build] = CASES) -> None:
        self.cases: dict[str, Case] = {name: build() for name, build in builds.items()}
        self.programs = {name: Program(case.outputs, target) for name, case in self.cases.items()}
        self.texts = sorted({text for program in self.programs.values() for text in program.texts})
        code = EmulatedCompiler().build("\n".join(map(named, self.texts)), target)
        with tempfile.NamedTemporaryFile(suffix=".so") as file:
            file.write(code)
            file.flush()
            self.library = ctypes.CDLL(file.name)

    def run(self, name: str, reverse: bool) -> list[Any]:
        program = self.programs[name]
        image = aligned_copy(program.image)
        for call in program.calls:
            kernel_args = call.placed(image.ctypes.data)
            run = getattr(self.library, f"run_{call.function}")
            parted = run(
                ctypes.c_void_p(kernel_args.ctypes.data), ctypes.c_longlong(call.grid), call.block, int(reverse)
            )
            assert parted == 0, f"{PARTED} in {name}"
        assert program.error(image) == [0, 0, 0]
        return program.results(image)

    def wrong(self, check: Callable[[list[Any], Any], None], reverse: bool) -> dict[str, str]:
        """What is wrong with the results of each case that has wrong ones."""
        found = {}
        for name, case in self.cases.items():
            try:
                check(self.run(name, reverse), case)
            except AssertionError as error:
                found[name] = " ".join(str(error).split())[:300]
        return found


@pytest.fixture(scope="module", params=RUN_ON)
def emulated(request: pytest.FixtureRequest) -> Emulated:
    return Emulated(RUN_ON[request.param])


@pytest.mark.slow(16)
@pytest.mark.parametrize("reverse", [False, True], ids=["", "reverse"])
def test_computes_what_numpy_computes(emulated: Emulated, reverse: bool) -> None:
    assert emulated.wrong(check, reverse) == {}


@pytest.mark.slow
def test_every_way_is_taken() -> None:
    """By the cases above, on the targets above."""
    found = {
        t for target in RUN_ON.values() for build in CASES.values() for t in Program(build().outputs, target).texts
    }
    assert [way for way in WAYS if not any(way in text for text in found)] == []


# --- what clang makes of them -----------------------------------------------------------------------------------------


# One of each way, tile and dtype, as for one compute unit and as for all: all cases for all targets would take minutes.
BUILT = {
    1: (
        "product (131, 37) (37, 67)", "product transposed transposed", "fused with its own operand", "int64", "int8",
        "batch of three axes", "8 columns", "8 rows, transposed", "1 row, spread", "float64 rows", "bfloat16 rows",
        "conv large", "conv 3d", "conv dilated input", "conv of last first", "backward weight", "depthwise",
        "few channels", "conv float64", "conv bfloat16",
    ),
    0: (
        "product (40, 2048) (2048, 36)", "product spread plain", "fused long", "long dots", "float64", "conv",
        "conv long k", "backward weight of depthwise", "conv int64",
    ),
}  # fmt: skip


# Targets whose registers and LDS differ from all others', and the siblings for which a few that need most are enough.
WHOLE = ("gfx90a", "gfx942", "gfx1030", "gfx1100")
HUNGRY = (
    "product (131, 37) (37, 67)", "fused with its own operand", "float64 rows", "8 columns", "conv large",
    "conv bfloat16", "product (40, 2048) (2048, 36)", "float64",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", AMD)
def test_builds_without_spills(name: str, clang: ClangHip) -> None:
    target = TARGETS[name]
    programs = [
        Program(CASES[case]().outputs, replace(target, workers=units or target.workers))
        for units, cases in BUILT.items()
        for case in cases
        if name in WHOLE or case in HUNGRY
    ]
    phases = {symbol(s.text) + p.suffix: (s, p) for program in programs for s in program.sources for p in s.phases}
    code = clang.build("\n".join(named(t) for t in sorted({s.text for s, _ in phases.values()})), target)
    assert set(read_metadata(code)) == set(phases)
    for kernel, found in read_resources(code, {k: p.block for k, (_, p) in phases.items()}, target).items():
        source, phase = phases[kernel]
        shown = f"{found}\n{source.text}"
        assert found.clean, shown
        assert found.lds_bytes == phase.lds_bytes <= target.lds_bytes, shown
        assert found.occupancy >= 2, shown
        vectors = "A_VECTOR = 1" in source.text and "typedef float stored" in source.text and phase.suffix == "_0"
        if vectors and found.global_loads is not None:
            assert found.global_loads.get(16), f"no 16-byte loads in {shown}"


# --- choices ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gfx942", "gfx1100", "sm_90"])
def test_large_products_take_large_tiles(name: str) -> None:
    workers = TARGETS[name].workers
    big = choose_cut(4096, 4096, 4096, 1, 4, workers)
    assert (big.tile.rows, big.parts) == (128, 1)
    assert choose_cut(64, 64, 64, 1, 4, workers).tile.rows < 128
    assert choose_cut(64, 64, 1 << 17, 1, 4, workers).parts > 1, "few outputs of a long k are cut"


def test_shapes_share_text() -> None:
    target = TARGETS["gfx942"]

    def texts(m: int, k: int, n: int) -> set[str]:
        return Program([pf.tensor(np.zeros((m, k))) @ pf.tensor(np.zeros((k, n)))], target).texts

    assert texts(2048, 512, 2048) == texts(4096, 1024, 2048)
    assert texts(2048, 512, 2048) != texts(2048, 509, 2048), "rows of odd length cannot be read as vectors"
