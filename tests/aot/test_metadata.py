"""What is read from code objects, against what clang was asked for, what it says itself, and what LLVM's tools read."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

import pyflame as pf
from pyflame.core.device import Target
from pyflame.core.targets import TARGETS
from pyflame.engine.aot import resources
from pyflame.engine.aot.resources import HEAD, read_resources
from pyflame.runtime.rocm import disassembly
from pyflame.runtime.rocm.clang import ClangHip
from pyflame.runtime.rocm.disassembly import Instructions, find_objdump, parse, width
from pyflame.runtime.rocm.metadata import read_metadata, unpack
from pyflame.runtime.rocm.occupancy import limits, occupancy, waves_by_registers
from pyflame.runtime.sim.elf import Module
from pyflame.runtime.sim.memory import Memory
from tests.io.test_damage import mutations
from tests.needs import need
from tests.null.texts import metadata as read_by_llvm

GFX = [name for name, target in TARGETS.items() if target.language == "hip"]


def objdump() -> str:
    return need(find_objdump(), "llvm-objdump")


def test_damaged_code_objects_are_refused_or_read() -> None:
    code = pf.aot.compile(lambda x: pf.softmax(x * 0.5), pf.ones(8, 64), target="gfx942").launches[0].code_object
    refused = 0
    for raw in mutations(code, 400, seed=1):
        for read in (read_metadata, lambda raw: Module(raw, Memory(1 << 24, 0))):
            try:
                read(raw)
            except (pf.FileFormatError, pf.DeviceError, pf.OutOfMemoryError):
                refused += 1
    assert refused > 100


# --- MessagePack ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b"\x05", 5), (b"\xff", -1), (b"\xc0", None), (b"\xc2", False), (b"\xc3", True), (b"\xcc\xc8", 200),
        (b"\xcd\x01\x00", 256), (b"\xce\x00\x01\x00\x00", 65536), (b"\xcf" + b"\xff" * 8, 2**64 - 1),
        (b"\xd0\x80", -128), (b"\xd1\xff\x00", -256), (b"\xd2\xff\xff\x00\x00", -65536),
        (b"\xd3" + b"\x80" + b"\0" * 7, -(2**63)),
        (b"\xca\x3f\x80\x00\x00", 1.0), (b"\xcb\x3f\xf0" + b"\0" * 6, 1.0), (b"\xa3abc", "abc"),
        (b"\xd9\x03abc", "abc"),
        (b"\xda\x00\x03abc", "abc"), (b"\xdb\x00\x00\x00\x03abc", "abc"), (b"\x92\x01\x90", [1, []]),
        (b"\xdc\x00\x01\xa0", [""]), (b"\xdd\x00\x00\x00\x01\xc0", [None]), (b"\x81\xa1a\x80", {"a": {}}),
        (b"\xde\x00\x01\xa1a\x01", {"a": 1}), (b"\xdf\x00\x00\x00\x01\xa1a\x01", {"a": 1}),
    ],
)  # fmt: skip
def test_unpack(raw: bytes, value: object) -> None:
    assert unpack(b"??" + raw + b"rest", 2) == (value, 2 + len(raw))


def test_unknown_types_are_refused() -> None:
    with pytest.raises(pf.FileFormatError, match="0xc7"):
        unpack(b"\xc7\x01\x01\x00")


# --- code objects -----------------------------------------------------------------------------------------------------

KNOWN = """
PF_GLOBAL(128) shared(float *a, int64_t n) {
  PF_SHARED float s[300];
  s[pf_thread()] = a[pf_thread()];
  pf_barrier();
  a[pf_thread()] = s[(pf_thread() + n) % 300];
}
PF_GLOBAL(1024) plain(float *a) { a[pf_thread()] = 1; }
PF_GLOBAL(64) indexed(float *a, int64_t n) {
  float local[200];
  for (int i = 0; i < 200; i++) local[i] = a[i * n];
  for (int i = 0; i < 200; i++) a[i] = local[((int)a[i] + i) & 127];
}
extern "C" __attribute__((global, amdgpu_flat_work_group_size(1, 64), amdgpu_num_vgpr(16))) void spilling(float *a) {
  float v[60];
  for (int i = 0; i < 60; i++) v[i] = a[i * 64 + pf_thread()];
  asm volatile("" ::: "memory");
  for (int i = 0; i < 60; i++) a[(59 - i) * 64 + pf_thread()] = v[i];
}
"""


@pytest.mark.parametrize("gfx", GFX)
def test_says_what_was_asked_for(gfx: str, clang: ClangHip, tmp_path: Path) -> None:
    target = TARGETS[gfx]
    code = clang.build(KNOWN, target)
    found = read_metadata(code)
    assert set(found) == {"shared", "plain", "indexed", "spilling"}
    shared, plain = found["shared"], found["plain"]
    assert (shared.lds_bytes, shared.kernarg_bytes, shared.max_threads) == (1200, 16, 128)
    assert (plain.lds_bytes, plain.kernarg_bytes, plain.max_threads) == (0, 8, 1024)
    assert all(k.wave_size == target.wave_size for k in found.values())
    assert shared.scratch_bytes == plain.scratch_bytes == shared.vgpr_spills == plain.vgpr_spills == 0
    assert found["indexed"].scratch_bytes >= 512
    if gfx == "gfx908":  # it spills into AGPRs first
        assert found["spilling"].agprs == 16
    assert found["spilling"].vgpr_spills > 0 and found["spilling"].scratch_bytes > 0
    assert all(k.wgp_mode == (target.wave_size == 32) for k in found.values())
    for name, numbers in read_by_llvm(code, tmp_path).items():
        known = found[name]
        ours = (known.vgprs, known.sgprs, known.vgpr_spills, known.sgpr_spills, known.scratch_bytes)
        words = ("vgpr_count", "sgpr_count", "vgpr_spill_count", "sgpr_spill_count", "private_segment_fixed_size")
        assert ours == tuple(numbers[w] for w in words), name


def test_what_is_no_code_object(clang: ClangHip) -> None:
    with pytest.raises(pf.FileFormatError, match="expected an ELF for AMD GPUs but got 5 bytes"):
        read_metadata(b"abcde")
    host = Path(shutil.which("true") or "/bin/true").read_bytes()
    with pytest.raises(pf.FileFormatError, match="expected an ELF for AMD GPUs"):
        read_metadata(host)
    code = clang.build(KNOWN, TARGETS["gfx942"])
    with pytest.raises(pf.FileFormatError, match="note"):
        read_metadata(code.replace(b"AMDGPU\0", b"NOBODY\0"))
    with pytest.raises(pf.FileFormatError, match=r"symbol plain\.kd"):
        read_metadata(code.replace(b"\0plain.kd\0", b"\0plain.xx\0"))


# --- occupancy --------------------------------------------------------------------------------------------------------


def live(count: int) -> str:
    """A kernel that holds so many floats at once."""
    return f"""PF_GLOBAL(64) live{count}(float *a) {{
  float v[{count}];
  PF_UNROLL for (int i = 0; i < {count}; i++) v[i] = a[i * 64 + pf_thread()];
  asm volatile("" ::: "memory");
  PF_UNROLL for (int i = 0; i < {count}; i++) a[({count} - 1 - i) * 64 + pf_thread()] = v[i];
}}
"""


@pytest.mark.parametrize("gfx", GFX)
def test_registers_allow_what_clang_says(gfx: str, clang: ClangHip, tmp_path: Path) -> None:
    target = TARGETS[gfx]
    text = "".join(map(live, (4, 20, 30, 42, 60, 90, 120, 180, 230)))
    file = tmp_path / "kernels.hip"
    file.write_text('#include "pf_gpu.h"\n' + text)
    command = [*clang.command(target, str(file), str(tmp_path / "out")), "-Rpass-analysis=kernel-resource-usage"]
    command.remove("-w")
    remarks = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    names = re.findall(r"Function Name: (\w+)", remarks)
    waves = [int(n) for n in re.findall(r"Occupancy \[waves/SIMD\]: (\d+)", remarks)]
    assert len(names) == len(waves) == 9
    assert len(set(waves)) > 3, "the kernels shall differ"
    found = read_metadata((tmp_path / "out").read_bytes())
    ours = [
        waves_by_registers(limits(gfx, k.wave_size, k.wgp_mode), k.vgprs, k.sgprs) for k in map(found.get, names) if k
    ]
    assert ours == waves


@pytest.mark.parametrize(
    ("gfx", "vgprs", "sgprs", "lds", "threads", "expected"),
    [
        ("gfx942", 64, 40, 0, 256, 8),
        ("gfx942", 65, 40, 0, 256, 7),  # 72 registers are taken
        ("gfx942", 72, 40, 0, 1024, 4),  # 7 waves would fit, but a block has 4 per SIMD
        ("gfx942", 32, 40, 65536, 256, 1),
        ("gfx942", 32, 40, 16385, 256, 3),  # the fourth block misses by one granule
        ("gfx942", 32, 101, 0, 64, 7),
        ("gfx950", 32, 40, 65536, 256, 2),  # 160 KiB
        ("gfx906", 24, 40, 0, 256, 10),
        ("gfx906", 25, 40, 0, 256, 9),
        ("gfx1030", 64, 100, 0, 256, 16),
        ("gfx1100", 96, 100, 0, 256, 16),
        ("gfx1100", 97, 100, 0, 256, 12),
        ("gfx1100", 32, 100, 65536, 256, 4),  # two blocks of 8 waves on the 4 SIMDs of a work-group processor
        ("gfx942", 32, 40, 65536, 64, 1),  # one wave on four SIMDs
    ],
)
def test_occupancy(gfx: str, vgprs: int, sgprs: int, lds: int, threads: int, expected: int) -> None:
    wave = TARGETS[gfx].wave_size
    assert occupancy(limits(gfx, wave, wave == 32), vgprs, sgprs, lds, threads, wave) == expected


def test_compute_unit_mode() -> None:
    assert limits("gfx1100", 32, False).simds == 2
    assert occupancy(limits("gfx1100", 32, False), 32, 40, 65536, 256, 32) == 4


# --- instructions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("form", "nbytes"),
    [
        ("dword", 4), ("dwordx2", 8), ("dwordx3", 12), ("dwordx4", 16), ("ubyte", 1), ("sbyte_d16_hi", 1),
        ("sshort", 2), ("short_d16", 2), ("b32", 4), ("b64", 8), ("b96", 12), ("b128", 16), ("u8", 1), ("i16", 2),
        ("d16_b16", 2), ("d16_hi_u8", 1), ("lds_dwordx4", 16), ("tr_b64", 8), ("something", 0),
    ],
)  # fmt: skip
def test_width(form: str, nbytes: int) -> None:
    assert width(form) == nbytes


def test_parse() -> None:
    text = """
Disassembly of section .text:

0000000000001600 <first>:
	global_load_dwordx4 v[2:5], v1, s[2:3]    // 000000001630: DC5C8000 02020001
	v_mfma_f32_32x32x8_f16 a[0:15], v[0:1]
	global_load_lds_dwordx4 v[2:5], off
	s_load_dwordx4 s[0:3], s[0:1], 0x0
	global_store_dwordx4 v[0:1], v[2:5], off

<second>:
	v_swmmac_f32_16x16x32_f16 v[0:7], v[8:11]
	v_smfmac_f32_16x16x32_f16 a[0:3], v[0:1]
	v_wmma_f32_16x16x16_f16 v[0:7], v[8:15]
	flat_load_b128 v[0:3], v[4:5]
	v_mul_f32_e32 v0, v1, v2
"""
    found = parse(text)
    assert found == {"first": Instructions(1, {16: 2}), "second": Instructions(3, {16: 1})}  # type: ignore[arg-type]


MFMA = """
typedef float f4 __attribute__((ext_vector_type(4)));
PF_GLOBAL(64) matrix(float *a, f4 *b) {
  f4 c = b[pf_thread()];
  c = __builtin_amdgcn_mfma_f32_16x16x4f32(a[0], a[1], c, 0, 0, 0);
  c = __builtin_amdgcn_mfma_f32_16x16x4f32(a[2], a[3], c, 0, 0, 0);
  b[pf_thread()] = c;
}
"""
WMMA = """
typedef float f8 __attribute__((ext_vector_type(8)));
typedef _Float16 h16 __attribute__((ext_vector_type(16)));
PF_GLOBAL(32) matrix(h16 *a, f8 *b) {
  b[pf_thread()] = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(a[pf_thread()], a[pf_thread()], b[pf_thread()]);
}
"""


@pytest.mark.parametrize(("gfx", "text", "count"), [("gfx90a", MFMA, 2), ("gfx942", MFMA, 2), ("gfx1100", WMMA, 1)])
def test_matrix_instructions(gfx: str, text: str, count: int, clang: ClangHip) -> None:
    objdump()
    target: Target = TARGETS[gfx]
    found = read_resources(clang.build(text, target), {"matrix": target.wave_size}, target)["matrix"]
    assert found.matrix_instructions == count
    assert found.global_loads is not None and found.global_loads[16] >= 1
    assert found.clean


def test_unknown_without_objdump(clang: ClangHip, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "find_objdump", lambda: None)
    plan = pf.aot.compile(lambda x: x + 1.0, pf.ones(64), target="gfx942")
    (kernel,) = plan.report.kernels
    assert kernel.matrix_instructions is None and kernel.global_loads is None
    cells = dict(zip(HEAD, plan.report.rows()[0], strict=True))
    assert cells["matrix"] == cells["loads"] == "unknown"
    assert cells["VGPR"] == str(kernel.vgprs)


def test_refused_by_objdump() -> None:
    with pytest.raises(pf.CompileError, match="refused a code object"):
        disassembly.read_instructions(b"no ELF", objdump())
