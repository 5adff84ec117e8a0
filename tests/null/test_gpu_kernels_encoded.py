"""Kernels over encoded weights, built for AMD's and NVIDIA's GPUs: every encoding, no spills, wide loads."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import pyflame as pf
from pyflame.core.device import Target
from pyflame.core.encoding import ENCODINGS, row_bytes
from pyflame.core.targets import TARGETS
from pyflame.engine.texts import gpu_source
from pyflame.ir.kernel import GpuSource, Launch
from pyflame.runtime.rocm.clang import ClangHip
from pyflame.runtime.rocm.disassembly import disassemble, find_objdump
from tests.null.test_gpu_text import clang, metadata, named, planned, symbol
from tests.null.test_matrix_tiles import nvcc

__all__ = ["clang"]  # a fixture
WIDTH = 4096
LAYERS = [(name, rows) for name in ("q4_0", "q8_0", "q4_k", "f16", "int4_g128") for rows in (1, 16)]
FEW = ("q4_0", "q6_k", "f16")  # where all are built for another target


def source_of(launch: Launch, target: Target, aligned: bool) -> GpuSource | None:
    return gpu_source(launch, target, aligned)


def decoded(name: str) -> list[pf.Tensor]:
    return [pf.dequantize(pf.empty(64, row_bytes(name, WIDTH), dtype=pf.uint8), pf.bfloat16, encoding=name)]


def layer(name: str, rows: int, dtype: pf.DType) -> list[pf.Tensor]:
    data = pf.empty(14336, row_bytes(name, WIDTH), dtype=pf.uint8)
    return [pf.encoded_linear(pf.empty(rows, WIDTH, dtype=dtype), data, encoding=name, width=WIDTH)]


def sources(
    target: Target, dtype: pf.DType, names: Sequence[str] = tuple(ENCODINGS)
) -> Iterator[tuple[str, GpuSource]]:
    for name in names:
        yield from ((name, s) for s in planned(lambda name=name: decoded(name), target, source=source_of).sources if s)
    for name, rows in LAYERS:
        if name not in names:
            continue
        plan = planned(lambda name=name, rows=rows: layer(name, rows, dtype), target, source=source_of)
        yield from ((name, s) for s in plan.sources if s)


@pytest.mark.parametrize(("name", "dtype"), [("gfx942", pf.bfloat16), ("gfx1030", pf.float32), ("gfx906", pf.float16)])
def test_builds_without_spills(name: str, dtype: pf.DType, clang: ClangHip, tmp_path: Path) -> None:
    target = TARGETS[name]
    found = list(sources(target, dtype, tuple(ENCODINGS) if name == "gfx942" else FEW))
    texts = {s.text for _, s in found}
    code = clang.build("\n".join(map(named, sorted(texts))), target)
    kernels = metadata(code, tmp_path)
    assert len(texts) == len(found) and sum("encoded.hip" in text for text in texts) >= 4
    for text in texts:
        numbers = kernels[symbol(text) + "_0"]
        assert numbers["private_segment_fixed_size"] == 0, text
        assert numbers["vgpr_spill_count"] == numbers["sgpr_spill_count"] == 0, text
    objdump = find_objdump()
    if objdump is None or name != "gfx942":
        return
    listing = disassemble(code, objdump, "--no-show-raw-insn", "--no-leading-addr")
    bodies = dict(re.findall(r"^<(\w+)>:\n(.*?)(?=^<|\Z)", listing, re.MULTILINE | re.DOTALL))
    narrow = [kind for kind, s in found if "global_load_dwordx4" not in bodies[symbol(s.text) + "_0"]]
    # blocks of an odd number of bytes are loaded in as large parts as clang finds
    assert set(narrow) <= {"mxfp4"}


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="there is no nvcc")
def test_nvcc_takes_the_text(tmp_path: Path) -> None:
    nvcc({s.text for _, s in sources(TARGETS["sm_90"], pf.bfloat16)}, "sm_90", tmp_path)
