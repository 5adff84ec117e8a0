"""Every hand-written GPU kernel, and every shape of generated text, as machine code at shapes that reach its branches.

The results are those of the ops' NumPy twins. Each tensor is an allocation of its own, so bounds are exact; reads of
what nothing has written and races stop a kernel. What is reached is measured (coverage.py): every source line that the
compiler made code of, every function, both values of every compile-time flag.
"""

from __future__ import annotations

import re
import traceback
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame.engine import reference
from pyflame.engine.evaluate import clear_plans, settle_copies
from pyflame.engine.pending import PendingGraph
from pyflame.engine.planning import draft_plan
from pyflame.engine.texts import gpu_source
from pyflame.kernels import (
    attention_decode_gpu,
    conv_gpu,
    cumulative_gpu,
    encoded_gemm_gpu,
    experts_gpu,
    matmul_gpu,
    pool_gpu,
    scatter_gpu,
    sort_gpu,
)
from pyflame.kernels.matrix_cores import matrix_tiles
from pyflame.runtime.gpu.device import GpuDevice
from pyflame.runtime.sim.memory import Memory
from pyflame.tensor import Tensor
from tests.gpu import gemm_cases
from tests.null import texts
from tests.plans import long_positions
from tests.sim import coverage
from tests.sim.coverage import Counting, LinedClang, missed_lines, missed_numbers
from tests.sim.devices import own_gpus
from tests.sim.families import CONV, GEMM, POOL, RUNS, SCATTER, SORT, Array, Case, Family
from tests.sim.families_of_models import (
    ATTENTION,
    DECODING,
    DECODING_TILES,
    DEQUANTIZE,
    ENCODED,
    ENCODED_DOTS,
    ENCODED_GEMM,
    EXPERTS,
    GENERATED,
    TILED_ATTENTION,
)

TARGETS = ("gfx942", "gfx1100")

FAMILIES = {
    "gemm": GEMM, "conv": CONV, "attention": ATTENTION, "tiled attention": TILED_ATTENTION,
    "decoding": DECODING, "dequantize": DEQUANTIZE, "encoded": ENCODED, "experts": EXPERTS,
    "encoded dots": ENCODED_DOTS, "encoded gemm": ENCODED_GEMM,
    "pool": POOL, "runs": RUNS, "sort": SORT, "scatter": SCATTER,
    "generated": GENERATED,
}  # fmt: skip


# --- running ----------------------------------------------------------------------------------------------------------


@contextmanager
def patched(name: str) -> Iterator[None]:
    """wide: as for tensors of more than 2^31 elements; unclaimed: as for many more places than keys; plain: as without
    matrix instructions."""
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        if name == "wide":
            for module in (cumulative_gpu, pool_gpu, sort_gpu, scatter_gpu):
                patch.setattr(module, "position_type", lambda *counts: "int64_t")
            patch.setattr(conv_gpu.Convolution, "small", False)
            stack.enter_context(long_positions())
        elif name == "nchw":
            patch.setenv("PYFLAME_CONV_LAYOUT", name)
        elif name == "tiles":
            patch.setattr(attention_decode_gpu, "_MANY_BYTES", 0)
        elif name == "plain":
            patch.setattr(experts_gpu, "matrix_kind", lambda *given: None)
        elif name == "unclaimed":
            patch.setattr(scatter_gpu, "CLAIM_BYTES", 0)
        elif name == "lines":  # decoded first, few at a time
            for number, value in (("_MANY", 1), ("_LINES_BYTES", 1), ("_LINES_STEP", 16)):
                patch.setattr(encoded_gemm_gpu, number, value)
        elif name.startswith("block "):  # one of the blocks of matrix tiles
            only = int(name.removeprefix("block "))
            for module in (matmul_gpu, conv_gpu):
                patch.setattr(module, "matrix_tiles", lambda *given: matrix_tiles(*given)[only : only + 1])
        yield


def built(case: Case) -> tuple[list[Tensor], list[Array] | None]:
    """The tensors of a case and, where it tells, what they should be."""
    texts.rng = np.random.default_rng(0)
    pf.manual_seed(0)
    made = case.build()
    return (made.outputs, made.expected) if isinstance(made, gemm_cases.Case) else (made, None)


def expected(case: Case) -> list[Array]:
    """What NumPy says."""
    with pf.device("cpu"):
        outputs, told = built(case)
        if told is not None:
            return told
        order = PendingGraph([t._node for t in outputs], keep_held=False).order
        arrays = reference.compute(order)
        return [arrays[t._node] for t in outputs]


class Run:
    """A family on a simulated GPU."""

    def __init__(self, family: Family, gpu: GpuDevice) -> None:
        self.family, self.gpu = family, gpu
        self.whole = gpu.target
        self.texts: set[str] = set()
        self.wrong: dict[str, str] = {}

    def all(self) -> None:
        groups: dict[tuple[int, str], dict[str, Case]] = defaultdict(dict)
        for name, case in self.family.cases.items():
            groups[case.units, case.patch][name] = case
        with ExitStack() as stack:
            stack.enter_context(pf.device(str(self.gpu.id)))
            for (units, patch), cases in groups.items():
                clear_plans()  # they are of other compute units, or of other text
                self.gpu.target = replace(self.whole, workers=units or self.whole.workers)
                with patched(patch):
                    made = {name: built(case)[0] for name, case in cases.items()}
                    self.compile(list(made.values()))
                    for name, outputs in made.items():
                        self.check(name, cases[name], outputs)

    def compile(self, programs: list[list[Tensor]]) -> None:
        """All kernels together: one of many in a file costs little."""
        sources = {}
        for outputs in programs:
            nodes = [t._node for t in outputs]
            settle_copies(nodes)
            for launch in draft_plan(PendingGraph(nodes), self.gpu.target).launches:
                source = gpu_source(launch, self.gpu.target)
                sources[source.text] = tuple(dict.fromkeys(p.suffix for p in source.phases))
        self.gpu.functions(list(sources.items()))

    def check(self, name: str, case: Case, outputs: list[Tensor]) -> None:
        record = self.gpu.functions

        def functions(given: Any) -> Any:
            self.texts |= {text for text, _ in given}
            return record(given)

        self.gpu.functions = functions  # type: ignore[method-assign]
        try:
            if case.bad:
                with pytest.raises(pf.IndexError, match="expected an index in"):
                    outputs[0].numpy()
                np.testing.assert_array_equal(outputs[0].numpy().reshape(-1), np.arange(outputs[0].numel()))
                return
            pf.eval(*outputs)
            for got, want in zip(outputs, expected(case), strict=True):
                close(got.numpy(), want)
        except Exception:
            self.wrong[name] = traceback.format_exc(limit=1)[-1500:]
        finally:
            self.gpu.functions = record  # type: ignore[method-assign]


def close(got: Array, want: Array) -> None:
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    if want.dtype.kind in "iub":
        np.testing.assert_array_equal(got, want)
        return
    if want.dtype.kind == "c":
        close(got.real, want.real)
        close(got.imag, want.imag)
        return
    loose = {8: 1e-11, 4: 3e-5, 2: 1e-2, 1: 0.1}[want.dtype.itemsize]
    right = want.astype(np.float64)
    scale = float(np.abs(right[np.isfinite(right)]).max(initial=1.0))
    np.testing.assert_allclose(got.astype(np.float64), right, rtol=loose, atol=loose * scale)


@pytest.mark.slow(20)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", FAMILIES)
def test_kernels(name: str, target: str) -> None:
    run_family(FAMILIES[name], target)


def run_family(family: Family, target: str) -> None:
    """All cases are right, and between them they reach everything."""
    machines = list[Counting]()

    def machine(target: str, memory: Memory) -> Counting:
        machines.append(Counting(target, memory))
        return machines[-1]

    with own_gpus(target, pool="exact", make_machine=machine, make_compiler=LinedClang) as (gpu,):
        run = Run(family, gpu)
        run.all()
        assert not run.wrong, "\n".join(f"{case}: {why}" for case, why in run.wrong.items())
    (used,) = machines
    missed = missed_lines(used, family.files)
    missed += missed_numbers(run.texts, (*family.files, *family.templates), family.numbers)
    for way, pattern in family.ways.items():
        if not any(re.search(pattern, text, re.MULTILINE) for text in run.texts):
            missed.append(f"no text is {way}")
    assert not missed, "\n".join(missed)


@pytest.mark.slow(20)
@pytest.mark.parametrize("target", ["gfx942", "gfx90a", "gfx950"])
def test_decoding_by_tiles(target: str) -> None:
    """Where waves have 64 lanes."""
    run_family(DECODING_TILES, target)


@pytest.mark.parametrize("target", TARGETS)
def test_taps_beyond_the_last(target: str) -> None:
    """k = 27 ends inside of a step: the taps behind it are looked at before they are found not to count."""
    with pf.device(f"sim:{target}"):
        case = gemm_cases.CASES["conv"]()
        gemm_cases.check([t.numpy() for t in case.outputs], case)


def test_no_kernel_is_forgotten() -> None:
    covered = [f for y in (*FAMILIES.values(), DECODING_TILES) for f in y.files[:1]]
    assert sorted(coverage.kernel_files()) == sorted([*covered, "same.hip"])  # the last: test_same.py
