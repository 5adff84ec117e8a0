"""Cycles of products with encoded weights on a Neoverse N1 by LLVM's model of its pipelines: nothing is run.

    python -m benchmarks.neoverse [FORMAT ..]

compiles the kernels as that machine would, finds the loop with most products and asks llvm-mca (Debian:
gcc-aarch64-linux-gnu, llvm). The model has all memory in the nearest cache and knows no branch that is guessed wrong; a
loop that waits for memory takes as long as that needs.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import numpy as np

from pyflame.core.encoding import ENCODINGS
from pyflame.core.interleaving import interleaved
from pyflame.runtime.cpu.compiler import _TEMPLATE_FLAGS, _VECTORISE, BASE_FLAGS, _isa_options
from tests.unit.test_encoded_kernel import KERNELS, PRELUDE, planned

ISA = ("asimd", "atomics", "asimdhp", "asimddp")
CLOCK = 2.46  # GHz: what 39.4 GFLOP/s of multiply-adds in float32 are
ITERATIONS = 200


def assembly(name: str, rows: int, bits: int, lines: int) -> str:
    """What gcc makes of a product with weights of this format."""
    kind = ENCODINGS[name]
    width = 8 * max(kind.block, 32)
    x, data = np.ones((rows, width), np.float32), np.zeros((64, kind.row_bytes(width)), np.uint8)
    weights = interleaved(data, kind, lines) if lines else data
    source = planned(name, [x, weights], np.empty((rows, 64), np.float32), bits, ISA, lines)
    flags = [flag for flag in BASE_FLAGS if flag != "-shared"]
    include = [f"-I{KERNELS}", f"-I{KERNELS / 'include'}"]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "k.c"
        file.write_text(PRELUDE + source.text)
        command = ["aarch64-linux-gnu-gcc", *flags, *_VECTORISE, *_isa_options(ISA), *_TEMPLATE_FLAGS, *include, "-S"]
        subprocess.run([*command, str(file), "-o", str(file.with_suffix(".s"))], check=True)
        return file.with_suffix(".s").read_text()


def loops(text: str) -> list[list[str]]:
    """The instructions of each loop that has none inside, without labels and directives."""
    lines, labels, spans = text.splitlines(), {}, []
    for i, line in enumerate(lines):
        if label := re.match(r"(\.L\w+):", line):
            labels[label[1]] = i
        jump = re.match(r"\s+(?:b\.?\w*|cbn?z|tbn?z)\s.*?(\.L\w+)\s*$", line)
        if jump and jump[1] in labels:
            spans.append((labels[jump[1]], i))
    inner = [s for s in spans if not any(o != s and s[0] <= o[0] and o[1] <= s[1] for o in spans)]
    kept = ([line.strip() for line in lines[first + 1 : last + 1]] for first, last in inner)
    # "movi v0.16b, 0xffffffffffffff80", as gcc writes a byte, is nothing that llvm-mca reads
    return [[re.sub("0xf{14}", "0x", line) for line in body if re.match("[a-z]", line)] for body in kept]


def products(body: list[str]) -> int:
    """Multiply-adds of an iteration: those of the narrowest kind that sums are made of."""
    for count, pattern in ((16, r"sdot"), (4, r"fmla\s+v\d+\.4s"), (8, r"fm(la|ul)\s+v\d+\.8h")):
        found = sum(bool(re.match(pattern, line)) for line in body)
        if found:
            return count * found
    return 0


@cache
def newest_mca() -> str:
    """The model of LLVM 22 is the one that docs/benchmarks.md tells of; that of 14 has other latencies."""
    names = (f"llvm-mca-{version}" for version in range(40, 13, -1))
    return next(filter(None, map(shutil.which, names)), "llvm-mca")


def cycles(body: list[str]) -> float:
    """Of an iteration."""
    model = ["-mtriple=aarch64", "-mcpu=neoverse-n1", "-mattr=+dotprod,+fullfp16", f"-iterations={ITERATIONS}"]
    done = subprocess.run(
        [newest_mca(), *model], input="\n".join(body) + "\n", capture_output=True, text=True, check=True
    )
    found = re.search(r"Total Cycles:\s+(\d+)", done.stdout)
    assert found is not None
    return int(found[1]) / ITERATIONS


def report(name: str, rows: int, bits: int) -> str:
    """Cycles for 32 weights, and what that is in bytes of weights or, of many rows, in operations."""
    kind = ENCODINGS[name]
    body = max(loops(assembly(name, rows, bits, 4 if kind.interleaves else 0)), key=products)
    planes = bits // 8 if kind.interleaves else 1
    taken, done = cycles(body), products(body) / planes
    if rows > 8:
        return f"{name} {rows} rows, {bits} bits: {2 * done / taken * CLOCK:.0f} GFLOP/s"
    each = taken / done * rows * 32
    return (
        f"{name} {rows} rows, {bits} bits: {each:.2f} cycles, {kind.nbytes / kind.block * 32 / each * CLOCK:.1f} GB/s"
    )


if __name__ == "__main__":
    for name in sys.argv[1:] or ("q4_0", "q4_1", "q8_0", "q4_k", "q6_k", "f16"):
        for rows in (1, 4, 40):
            for bits in (8, 16):
                print(report(name, rows, bits), flush=True)
