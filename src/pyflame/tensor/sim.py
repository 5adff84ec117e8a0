"""`pf.sim`: kernels on simulated AMD GPUs, looked at from the inside. docs/simulator.md describes it.

>>> found = pf.sim.trace(source, 4, 256, x, y, 2.0, 1000, target="gfx942")
>>> found.outputs["y"], found.mix, found.lanes_on
>>> print(found.table())
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pyflame.core.dtype import as_dtype
from pyflame.core.errors import ArgumentError, ArgumentTypeError
from pyflame.engine.sim.run import LIMIT, TARGETS, Run, SimulationFault, Source, Unwritten
from pyflame.engine.sim.step import NotReached, Stopped
from pyflame.engine.sim.step import step as _step
from pyflame.engine.sim.trace import Instruction, Line, Trace, instructions
from pyflame.engine.sim.trace import trace as _trace
from pyflame.tensor.kernels import BuiltKernel, compiler_options
from pyflame.tensor.tensor import Tensor

__all__ = [
    "TARGETS",
    "Instruction",
    "Line",
    "NotReached",
    "SimulationFault",
    "Stopped",
    "Trace",
    "empty",
    "instructions",
    "step",
    "trace",
]

Size = int | Iterable[int]


def empty(shape: int | Iterable[int], dtype: Any = "float32") -> Unwritten:
    """An argument whose memory nothing has written: a kernel that reads it before it writes it is stopped.

    >>> pf.sim.empty((4, 8), pf.float16).shape
    (4, 8)
    """
    sizes = (shape,) if isinstance(shape, int) else tuple(int(n) for n in shape)
    if any(n < 0 for n in sizes):
        raise ArgumentError(f"[sim.empty] expected sizes of at least 0 but got {sizes}")
    return Unwritten(sizes, np.dtype(as_dtype(dtype).numpy))


def trace(
    source: str | os.PathLike[str] | BuiltKernel,
    grid: Size,
    block: Size,
    *args: Any,
    target: str = "gfx942",
    kernel: str | None = None,
    shared: int = 0,
    seed: int = 0,
    checks: str = "all",
    limit: int = LIMIT,
    include_dirs: Iterable[str | os.PathLike[str]] = (),
    defines: Mapping[str, object] | None = None,
    options: Iterable[str] = (),
) -> Trace:
    """Run a HIP kernel on a simulated GPU and tell what it did.

    `source`: text, the path of a file (a Path), or what `pf.compile_kernel(..., target=)` has built; `kernel` names one
    of several. `grid`, `block`: blocks, and threads of a block. `args`: NumPy arrays, tensors, `pf.sim.empty`, numbers,
    None for a null pointer; they are copied, what the kernel writes is in `.outputs`.

    `seed` orders blocks and waves, `checks` is "all", "none" or some of "uninitialised,races", `limit` the most
    instructions of all waves together. A kernel that does what it must not raises `pf.sim.SimulationFault`.
    """
    given = compiler_options(include_dirs, defines or {}, options)
    return _trace(_run(source, grid, block, args, target, kernel, shared, seed, checks, limit, given))


def step(
    source: str | os.PathLike[str] | BuiltKernel,
    grid: Size,
    block: Size,
    *args: Any,
    line: int | None = None,
    address: int | None = None,
    wave: int = 0,
    block_id: Size = 0,
    hit: int = 1,
    target: str = "gfx942",
    kernel: str | None = None,
    shared: int = 0,
    seed: int = 0,
    checks: str = "all",
    limit: int = LIMIT,
    include_dirs: Iterable[str | os.PathLike[str]] = (),
    defines: Mapping[str, object] | None = None,
    options: Iterable[str] = (),
) -> Stopped:
    """Run a HIP kernel until a wave of a block comes to a source line, or to an address in the code.

    `hit`: the n-th instruction of the line that the wave comes to, or the n-th time at the address. The rest is as for
    `trace`.

    >>> pf.sim.step(source, 4, 256, x, y, 2.0, 1000, line=5, wave=3).v[0]
    """
    given = compiler_options(include_dirs, defines or {}, options)
    run = _run(source, grid, block, args, target, kernel, shared, seed, checks, limit, given)
    where = (block_id,) if isinstance(block_id, int) else tuple(int(n) for n in block_id)
    if not 1 <= len(where) <= 3:
        raise ArgumentError(f"[sim.step] expected block_id to be one to three numbers but got {block_id!r}")
    x, y, z = (*where, 0, 0)[:3]
    return _step(run, line=line, address=address, wave=wave, block_id=(x, y, z), hit=hit)


def _run(
    source: Any, grid: Size, block: Size, args: Iterable[Any], target: str, kernel: str | None, shared: int, seed: int,
    checks: str, limit: int, options: list[str],
) -> Run:  # fmt: skip
    arrays: dict[int, Any] = {}  # one tensor given twice is one buffer
    values = []
    for value in args:
        if isinstance(value, Tensor):
            value = arrays.setdefault(id(value), (value, value.numpy()))[1]
        values.append(value)
    return Run(_source(source, kernel, target, options), grid, block, values, shared, seed, checks, limit)


def _source(source: Any, kernel: str | None, target: str, options: list[str]) -> Source:
    if isinstance(source, BuiltKernel):
        if kernel not in (None, source.name) or options or source.architecture != target:
            raise ArgumentError(
                f"[sim] expected nothing but the launch of a kernel that is built, {source.name} for "
                f"{source.architecture}, but got kernel={kernel!r}, target={target!r} and options {options}"
            )
        return Source.of(source._kernel)
    if isinstance(source, os.PathLike):
        file = Path(source)
        if not file.is_file():
            raise ArgumentError(f"[sim] expected a HIP source but there is no file {file}")
        return Source.build(file.read_text(encoding="utf-8"), kernel, target, str(file), options)
    if not isinstance(source, str):
        raise ArgumentTypeError(
            f"[sim] expected the text of a HIP source, a Path or a built kernel but got {type(source).__name__}"
        )
    return Source.build(source, kernel, target, "", options)
