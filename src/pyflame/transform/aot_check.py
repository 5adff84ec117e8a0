"""Whether the parts of a plan from a file fit together, before memory is taken and filled by its numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from pyflame.engine.aot.build import ROLES, AotBuffer, AotLaunch, BufferArg, Lowered, ScalarArg, Uniform, find_target
from pyflame.transform.aot_tree import unpack_tree

_WORD = 8  # bytes of a uniform


def check_plan(
    target: str,
    lowered: Lowered,
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    uniforms: Sequence[Uniform],
    state: Sequence[tuple[int, int]],
    checks: Sequence[tuple[str, str]],
    arguments: Any,
    result: Any,
) -> None:
    """Raise ValueError for what cannot be run as it stands."""
    find_target(target)
    buffers = lowered.buffers
    for buffer in buffers:
        _check_buffer(buffer, {"input": inputs, "output": outputs}.get(buffer.role))
    for launch in lowered.launches:
        _check_launch(launch, buffers)
    for number, nbytes in ((lowered.uniform_buffer, _WORD * len(uniforms)), (lowered.error_buffer, 0)):
        _within("a buffer", number, -1, len(buffers))
        if number >= 0 and buffers[number].nbytes < nbytes:
            raise ValueError(f"{len(uniforms)} uniforms do not fit into {buffers[number].nbytes} bytes")
    for uniform in uniforms:
        if uniform.role == "input":
            _within("a uniform's input", uniform.position, 0, len(inputs))
        elif uniform.role not in ("constant", "seed", "offset") or type(uniform.position) is not int:
            raise ValueError(f"a uniform that is {uniform.role!r}")
    for constant, output in state:
        _within("a state's buffer", constant, 0, len(buffers))
        _within("a state's output", output, 0, len(outputs))
    if not all(isinstance(text, str) for words in checks for text in words):
        raise ValueError(f"checks of {checks!r}")
    if sorted(b.position for b in buffers if b.role == "output") != list(range(len(outputs))):
        raise ValueError("outputs without a buffer each")
    unpack_tree(arguments, inputs)
    unpack_tree(result, [spec for spec in outputs if spec.kind == "result"])


def _within(what: str, number: Any, low: int, high: int) -> None:
    if type(number) is not int or not low <= number < high:
        raise ValueError(f"{what} of number {number!r}, of {high}")


def _check_buffer(buffer: AotBuffer, specs: Sequence[Any] | None) -> None:
    _within("a size", buffer.nbytes, 0, 1 << 62)
    if buffer.role not in ROLES:
        raise ValueError(f"a buffer that is {buffer.role!r}")
    for size in buffer.shape:
        _within("an extent", size, 0, 1 << 62)
    sizes = [buffer.nbytes]
    if buffer.dtype is not None:
        sizes.append(math.prod(buffer.shape) * buffer.dtype.itemsize)
    if buffer.data is not None:
        sizes.append(len(buffer.data))
    if specs is not None:
        _within("a position", buffer.position, 0, len(specs))
        spec = specs[buffer.position]
        sizes.append(math.prod(spec.shape) * spec.dtype.itemsize)
    if len(set(sizes)) > 1:
        raise ValueError(f"a buffer of {buffer.role} whose sizes are {sizes} bytes")


def _check_launch(launch: AotLaunch, buffers: Sequence[AotBuffer]) -> None:
    if not isinstance(launch.name, str) or len(launch.grid) != 3 or len(launch.block) != 3:
        raise ValueError(f"a launch of {launch.name!r} with {launch.grid} blocks of {launch.block} threads")
    for size in (*launch.grid, *launch.block):
        _within("a launch's size", size, 0, 1 << 31)
    _within("a launch's LDS", launch.dynamic_lds, 0, 1 << 31)
    for arg in launch.args:
        if isinstance(arg, ScalarArg):
            _within("an argument", arg.value, -(1 << 63), 1 << 64)
        else:
            _check_address(arg, buffers)


def _check_address(arg: BufferArg, buffers: Sequence[AotBuffer]) -> None:
    _within("an argument's buffer", arg.buffer, 0, len(buffers))
    _within("an argument's offset", arg.offset, 0, buffers[arg.buffer].nbytes + 1)
