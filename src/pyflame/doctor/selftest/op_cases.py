"""Cases of the op catalogue: each op's own samples, forward and gradient, against its NumPy reference in float64.

A family is a file of `ops/`; in it each op is a case, in float32. Beside them every op runs in the other dtypes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from pyflame.core.device import CPU
from pyflame.core.dtype import DType, bfloat16, float16, float32, float64, int8, int16, int32, int64, uint8
from pyflame.core.errors import DTypeError
from pyflame.core.state import mode
from pyflame.doctor.closeness import Array, rms
from pyflame.doctor.samples import arrays_of, build, exact, map_arrays, outputs_of, run_op
from pyflame.doctor.selftest.bench import Bench, Case, Skip
from pyflame.engine import reference
from pyflame.ir import OPS, OpDef, Sample
from pyflame.ir.graph import topological
from pyflame.ir.opdef import ELEMENTWISE
from pyflame.tensor.creation import tensor
from pyflame.tensor.modes import eval

# Series and continued fractions lose more than the usual rounding, on every device; gradients are longer programs.
LOOSER = {"special": 64.0}
GRADIENT = 8.0
INTEGERS = (uint8, int8, int16, int32, int64)


def op_cases() -> Iterator[Case]:
    """Every op in float32, then in the other dtypes."""
    ops = [op for op in OPS.values() if op.samples is not None]
    for op in ops:
        yield Case(family_of(op), op.name, partial(_samples, op, float32, None))
    for dtype in (float16, bfloat16, float64):
        for op in ops:
            yield Case(dtype.name, op.name, partial(_samples, op, dtype, 1))
    for op in ops:
        if op.kind == ELEMENTWISE and op.public and not op.attrs:
            yield Case("integers", op.name, partial(_integers, op))


def family_of(op: OpDef) -> str:
    """The file of `ops/` that an op is declared in."""
    return op.fn.__module__.rpartition(".")[2]


def _samples(op: OpDef, dtype: DType, most: int | None, bench: Bench) -> None:
    """An op's samples in one evaluation, so that their kernels compile together."""
    assert op.samples is not None
    samples = list(enumerate(op.samples()))[: 1 if bench.small else most]
    if dtype is not float32:
        samples = [(n, s) for n, s in samples if any(a.dtype.kind == "f" for a in arrays_of([s.args, s.kwargs]))]
    if not samples:
        raise Skip("takes no floats")
    with mode(device=CPU):
        try:
            right = [exact(op, n, s, dtype) for n, s in samples]
            _want_taken(op, dtype, samples)
        except DTypeError as error:  # not on the CPU either
            raise Skip(str(error)) from None
    made = [build(op, n, s, dtype, dtype) for n, s in samples]
    eval(*[t for pairs in made for _, t in pairs])
    looser = LOOSER.get(family_of(op), 2.0)
    for pairs, (arrays, terms) in zip(made, right, strict=True):
        outputs = [a for (what, _), a in zip(pairs, arrays, strict=True) if "output" in what and a.dtype.kind == "f"]
        size = max(map(rms, outputs), default=0.0)
        for (what, got), want in zip(pairs, arrays, strict=True):
            if "gradient" in what:
                bench.check(what, got, want, terms=terms, looser=GRADIENT * looser, floor=size)
            else:
                bench.check(what, got, want, terms=terms, looser=looser)


def _want_taken(op: OpDef, dtype: DType, samples: list[tuple[int, Sample]]) -> None:
    """A refusal that every device shares is raised before the device is asked: shapes and dtypes need no kernel."""
    for number, sample in samples:
        build(op, number, sample, dtype, dtype)


def _small_numbers(bench: Bench, dtype: DType, like: Array) -> Array:
    found: Array = bench.random.integers(1, 6, like.shape).astype(dtype.numpy)
    return found


def _integers(op: OpDef, bench: Bench) -> None:
    """Small whole numbers, which every integer dtype holds and no division or shift of them is undefined for."""
    assert op.samples is not None
    sample, taken = op.samples()[0], 0
    for dtype in INTEGERS:
        given: list[Any] = map_arrays([sample.args, sample.kwargs], partial(_small_numbers, bench, dtype))
        try:
            with mode(device=CPU):
                nodes = [t._node for t in outputs_of(run_op(op, *map_arrays(given, tensor)))]
        except DTypeError:
            continue
        taken += 1
        with np.errstate(all="ignore"):
            right = reference.compute(topological(nodes))
        for got, node in zip(outputs_of(run_op(op, *map_arrays(given, bench.here))), nodes, strict=True):
            bench.check(dtype.name, got, right[node], looser=LOOSER.get(family_of(op), 2.0))
    if not taken:
        raise Skip("takes no integers")
