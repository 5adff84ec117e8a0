"""Compiles the CPU kernels that a wheel brings along (runtime/cpu/prebuilt.py): those written by hand.

    python tools/prebuild.py build/prebuilt                # for each level of this machine's architecture
    python tools/prebuild.py build/prebuilt neon_dot avx2  # for some of them

`make wheel` calls it. Which kernels: those that the programs below need, planned for each level; none of them runs.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

import pyflame as pf
from pyflame.core.device import Target
from pyflame.core.errors import CompileError
from pyflame.engine.native import native_text
from pyflame.engine.pending import PendingGraph
from pyflame.engine.planning import draft_plan
from pyflame.engine.texts import c_source
from pyflame.runtime.cpu.compiler import CompilerC, find_compiler, include_flags, kernel_files, level_flags
from pyflame.runtime.cpu.device import runner_text
from pyflame.runtime.cpu.prebuilt import LEVELS, kernel_name, library_name, signed
from pyflame.tensor import Tensor

FLOATS = (pf.float32, pf.bfloat16, pf.float16)


def ones(*shape: int, dtype: pf.DType) -> Tensor:
    """In memory, as a program's data is: a filled tensor would be a part of the kernel."""
    return pf.tensor(np.ones(shape), dtype=dtype)


def with_gradients(out: Tensor, *leaves: Tensor) -> list[Tensor]:
    """What forward and backward of it compute. Gradients have a plan of their own, as in a program."""
    out.sum().backward()
    return [out, *(leaf.grad for leaf in leaves if leaf.grad is not None)]


def networks(dtype: pf.DType) -> Iterator[list[Tensor]]:
    """Layers of common networks with their gradients."""

    def leaf(*shape: int) -> Tensor:
        return ones(*shape, dtype=dtype).requires_grad_()

    x, w = leaf(64, 48), leaf(32, 48)
    yield with_gradients(x @ w.T, x, w)
    for rows in range(1, 9):
        yield [ones(rows, 48, dtype=dtype) @ w.detach().T]
    for stride, groups, width in ((1, 1, 16), (2, 1, 16), (1, 16, 1)):
        image, kernel = leaf(2, 16, 12, 12), leaf(16, width, 3, 3)
        yield with_gradients(pf.conv2d(image, kernel, stride=stride, padding=1, groups=groups), image, kernel)
    q, k, v = leaf(2, 2, 32, 16), leaf(2, 2, 32, 16), leaf(2, 2, 32, 16)
    yield with_gradients(pf.scaled_dot_product_attention(q, k, v, is_causal=True), q, k, v)
    for pool in (pf.max_pool2d, pf.avg_pool2d):
        image = leaf(2, 4, 8, 8)
        yield with_gradients(pool(image, 2), image)
    table = leaf(16, 8)
    yield with_gradients(table[pf.tensor([1, 2, 1])], table)
    yield [pf.sort(x.detach())[0], pf.cumsum(x.detach(), 1)]


def programs() -> Iterator[list[Tensor]]:
    for dtype in FLOATS:
        yield from networks(dtype)
    a = ones(64, 48, dtype=pf.float64)
    yield [a @ a.T]
    for dtype in (pf.int32, pf.int64):
        whole = ones(4, 64, dtype=dtype)
        yield [pf.sort(whole)[0], pf.cumsum(whole, 1)]


def texts_for(level: str, isa: tuple[str, ...]) -> list[str]:
    """The texts of hand-written kernels in plans for a level, and those of the engine's own functions."""
    target = Target("cpu", "c", isa, 2, matrix_core="amx" if level == "amx" else "")
    texts = {runner_text(): None, native_text(): None}
    for tensors in programs():
        for tensor in tensors:
            draft = draft_plan(PendingGraph([tensor._node], keep_held=False), target)
            texts |= {c_source(x, target).text: None for x in draft.launches if x.kernel.anchor is not None}
    return list(texts)


def compiled(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CompileError(f"[prebuild] {' '.join(command)}:\n{done.stderr}")


def build(compiler: str, level: str, texts: list[str]) -> bytes:
    """One library of these kernels: a file has macros of its own, so each is compiled alone."""
    with tempfile.TemporaryDirectory() as scratch:

        def one(number: int) -> str:
            text, place = texts[number], Path(scratch, str(number))
            place.with_suffix(".c").write_text(CompilerC.head + text.replace("PF_KEY", kernel_name(text)))
            flags = [flag for flag in level_flags(level) if flag != "-shared"]
            named = [str(place.with_suffix(".c")), "-o", str(place.with_suffix(".o"))]
            compiled([compiler, *flags, "-O3", *include_flags(), "-c", *named])
            return str(place.with_suffix(".o"))

        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as workers:
            objects = list(workers.map(one, range(len(texts))))
        library = str(Path(scratch, "library.so"))
        compiled([compiler, "-shared", "-s", *objects, "-o", library, "-lm"])
        return Path(library).read_bytes()


def main(folder: str, *wanted: str) -> int:
    compiler = find_compiler()
    if compiler is None:
        print("a C compiler is needed to build kernels", file=sys.stderr)
        return 1
    os.makedirs(folder, exist_ok=True)
    for level, (_, isa) in LEVELS.get(platform.machine(), {}).items():
        if wanted and level not in wanted:
            continue
        texts = texts_for(level, isa)
        code = build(compiler, level, texts)
        name = library_name(level, level_flags(level), kernel_files())
        Path(folder, name).write_bytes(signed(code))
        print(f"{name}: {len(texts)} kernels, {len(code) / 1e3:.0f} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
