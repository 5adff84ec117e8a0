"""`pf.sim.trace`, `pf.sim.step` and `pyflame sim trace`: counts of kernels whose numbers are known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame.cli import main
from pyflame.engine.sim.run import element_type, parameter_name
from pyflame.engine.user.prototype import find_prototype
from pyflame.runtime.sim.decode.families import family
from pyflame.runtime.sim.interpreter import interpreter

FILE = Path(__file__).with_name("traced.hip")
LANES = {"gfx942": 64, "gfx1100": 32}


def line_of(mark: str) -> int:
    return next(n for n, row in enumerate(FILE.read_text().splitlines(), 1) if row.endswith(f"// {mark}"))


@pytest.fixture(params=LANES)
def target(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def traced(target: str, kernel: str, grid: int, block: int, *args: Any, **options: Any) -> pf.sim.Trace:
    return pf.sim.trace(FILE, grid, block, *args, target=target, kernel=kernel, **options)


def command(*arguments: str) -> int:
    """`pyflame sim trace traced.hip` with further arguments; argparse ends the process for wrong ones."""
    try:
        return main(["sim", "trace", str(FILE), *arguments])
    except SystemExit as end:
        return int(end.code or 0)


# --- memory -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stride", [1, 2, 32])
def test_coalescing(target: str, stride: int) -> None:
    x = np.arange(256 * stride, dtype=np.float32)
    found = traced(target, "copy", 2, 128, x, pf.sim.empty(256), stride)
    assert found.outputs["out"].tolist() == x[::stride].tolist() and found.unwritten == {"out": 0}
    waves, lines_of_a_wave = 256 // LANES[target], LANES[target] * 4 // 128
    load, store = found.coalescing
    assert (load.family, store.family) == ("global load", "global store")
    assert load.steps == store.steps == waves and load.lanes == store.lanes == 256
    assert load.lines == waves * lines_of_a_wave * stride and load.least == waves * lines_of_a_wave
    assert store.lines == store.least == waves * lines_of_a_wave
    assert load.place == store.place == f"traced.hip:{line_of('copied')}"


def test_lanes_that_read_the_same_line_need_no_more(target: str) -> None:
    load, _ = traced(target, "copy", 1, 64, np.ones(64, np.float32), pf.sim.empty(64), 0).coalescing
    assert load.lines == load.least == 64 // LANES[target]


@pytest.mark.parametrize(("stride", "ways"), [(1, 1), (2, 2), (32, 32), (33, 1)])
def test_bank_conflicts(target: str, stride: int, ways: int) -> None:
    found = traced(target, "banks", 1, 64, pf.sim.empty(64), stride)
    assert found.outputs["out"].tolist() == list(range(64))
    assert [i.place for i in found.conflicts] == [f"traced.hip:{line_of(m)}" for m in ("stored", "loaded")]
    for access in found.conflicts:  # 64 threads: two times 32 lanes, on both targets
        assert (access.passes, access.conflicts) == (2, 2 * (ways - 1))
    assert found.resources.lds_bytes == 64 * 33 * 4


# --- branches and lines -----------------------------------------------------------------------------------------------


def test_a_branch_that_splits_waves(target: str) -> None:
    lanes = LANES[target]
    split = traced(target, "split", 3, 128, np.zeros(512, np.int32), 1, 10)
    whole = traced(target, "split", 3, 128, np.zeros(512, np.int32), lanes, 10)
    waves = 3 * 128 // lanes

    def decided(found: pf.sim.Trace) -> pf.sim.Instruction:
        return next(i for i in found.divergence if i.line == line_of("decided"))

    for found, divergent, entered in ((split, waves, waves), (whole, 0, waves // 2)):
        branch = decided(found)
        taken = waves - entered if "execz" in branch.text else entered  # around the body, or into it
        assert (branch.steps, branch.divergent, branch.taken) == (waves, divergent, taken)
    assert split.lanes_on < 0.95 < whole.lanes_on == 1.0
    atomic = next(i for i in split.instructions if i.family == "global atomic")
    assert (atomic.steps, atomic.lanes) == (waves, waves * lanes // 2)


def test_counts_of_lines(target: str) -> None:
    waves = 2 * 128 // LANES[target]
    counts = {}
    for n in (3, 10):
        found = traced(target, "split", 2, 128, np.zeros(512, np.int32), 1, n)
        (slept,) = (i for i in found.instructions if i.text.startswith("s_sleep"))
        assert slept.steps == n * waves and slept.line == line_of("slept")
        counts[n] = next(line for line in found.lines if line.line == line_of("slept")).steps
        assert (
            sum(line.steps for line in found.lines) + sum(i.steps for i in found.instructions if not i.line)
            == found.steps
        )
        assert sum(found.mix.values()) == found.steps
    # Each turn runs the body's instruction and what counts and branches, in this line too.
    assert (counts[10] - counts[3]) % (7 * waves) == 0 and counts[10] - counts[3] >= 7 * waves * 3


def test_the_shares_of_a_block_that_fills_no_wave(target: str) -> None:
    found = traced(target, "copy", 1, 16, np.ones(16, np.float32), pf.sim.empty(20), 1)
    assert found.lanes_on == 16 / LANES[target] and found.unwritten == {"out": 4}
    assert found.waves == 1 and found.coalescing[0].least == 1


# --- what it shows ----------------------------------------------------------------------------------------------------


def test_tables_and_json(target: str, tmp_path: Path) -> None:
    x = np.arange(64, dtype=np.float32)
    found = traced(target, "dynamic", 1, 64, x, pf.sim.empty(64), shared=256)
    assert found.outputs["out"].tolist() == x[::-1].tolist() and found.resources.lds_bytes == 256
    text = found.table()
    for part in (
        f"dynamic on sim:{target}: 1 blocks of 64 threads", "63 62 61", "instruction mix", "out[threadIdx.x] = room[",
        "global memory", "100%", "LDS", "1.00-way", "waves/SIMD",
    ):  # fmt: skip
        assert part in text
    assert "out[i] = x[i * stride]" not in text and "out[i] = x[i * stride]" in found.table(whole_source=True)
    told = json.loads(found.save(tmp_path / "trace.json").read_text())
    assert told["steps"] == found.steps and told["mix"] == found.mix and told["grid"] == [1, 1, 1]
    assert told["outputs"]["out"]["first"] == [63.0 - n for n in range(8)]
    assert len(told["instructions"]) == len(found.instructions) and told["lines"][0]["text"]


def test_more_lds_lowers_occupancy(target: str) -> None:
    arguments = (np.ones(64, np.float32), pf.sim.empty(64))
    low = traced(target, "dynamic", 1, 64, *arguments, shared=60_000).resources
    assert low.occupancy < traced(target, "dynamic", 1, 64, *arguments, shared=256).resources.occupancy


def test_text_and_built_kernels_and_tensors() -> None:
    text = "__global__ void twice(float* x, int n) { if (threadIdx.x < n) x[threadIdx.x] *= 2; }"
    x = pf.arange(40, dtype=pf.float32, device="cpu")
    by_text = pf.sim.trace(text, 1, 64, x, 40, target="gfx942")
    built = pf.compile_kernel(text, "twice", target="gfx942")
    by_kernel = pf.sim.trace(built, 1, 64, x, 40)
    for found in (by_text, by_kernel):
        assert found.outputs["x"].tolist() == [2.0 * n for n in range(40)]
    assert by_text.steps == by_kernel.steps and x.numpy()[3] == 3.0
    assert by_text.lines and not by_kernel.lines
    assert by_kernel.notes == ("the kernel was built without -g: source lines are unknown",)


def test_every_instruction_has_a_family() -> None:
    for lanes in LANES.values():
        names = [n for n in interpreter(lanes).forms if n[:2] in ("v_", "s_")]
        assert len(names) > 400 and {n for n in names if family(n) == "other"} == set()
    for name, expected in {
        "v_dual_fmac_f32": "VALU dual", "v_pk_fma_f16": "VALU f16", "v_pk_fma_f32": "VALU f32",
        "v_lshl_add_u64": "VALU int", "v_cvt_f16_f32": "VALU convert", "v_rcp_f32": "transcendental",
        "v_wmma_f32_16x16x16_f16": "matrix", "v_cndmask_b32": "VALU compare", "v_readfirstlane_b32": "VALU move",
        "v_fma_f64": "VALU f64", "v_frexp_exp_i32_f32": "VALU f32", "s_waitcnt": "wait, cache",
        "buffer_gl0_inv": "wait, cache", "s_load_dwordx4": "SMEM", "flat_load_b32": "global load",
        "buffer_store_dword": "global store", "ds_bpermute_b32": "lane exchange", "ds_add_u32": "LDS",
        "scratch_load_b32": "scratch", "s_endpgm": "branch",
    }.items():  # fmt: skip
        assert family(name) == expected, name


# --- steps ------------------------------------------------------------------------------------------------------------


def test_registers_at_a_line(target: str) -> None:
    lanes = LANES[target]
    x = np.arange(256, dtype=np.float32)
    load, store = traced(target, "copy", 2, 128, x, pf.sim.empty(256), 1).coalescing
    stopped = pf.sim.step(
        FILE, 2, 128, x, pf.sim.empty(256), 1, kernel="copy", target=target, address=store.address, wave=1, block_id=1
    )
    assert (stopped.pc, stopped.line, stopped.block_id, stopped.wave) == (
        store.address,
        line_of("copied"),
        (1, 0, 0),
        1,
    )
    assert stopped.exec == (1 << lanes) - 1 and stopped.scc in (0, 1)
    value = int(store.text.split(", ")[1 if store.text.count("v[") else 2].lstrip("v"))
    assert stopped.v[value].view(np.float32).tolist() == list(np.arange(128 + lanes, 128 + 2 * lanes, dtype=np.float32))
    first = pf.sim.step(FILE, 2, 128, x, pf.sim.empty(256), 1, kernel="copy", target=target, line=line_of("copied"))
    assert first.pc <= load.address and first.line == line_of("copied") and first.wave == 0
    shown = stopped.table()
    assert (
        f"=>  {store.address:#x}" in shown
        and "EXEC" in shown
        and f"{np.float32(128 + lanes).view(np.uint32):08x}" in shown
    )


def test_later_times_and_lanes_that_are_off(target: str) -> None:
    arguments = (np.zeros(512, np.int32), 1, 5)
    (slept,) = (i for i in traced(target, "split", 1, 64, *arguments).instructions if i.text.startswith("s_sleep"))

    def step(**place: Any) -> pf.sim.Stopped:
        return pf.sim.step(FILE, 1, 64, *arguments, kernel="split", target=target, **place)

    stops = [step(address=slept.address, hit=n) for n in (1, 2, 5)]
    stops += [step(line=line_of("slept"), hit=n) for n in (1, 2)]
    assert [s.pc for s in stops[:3]] == [slept.address] * 3 and stops[3].pc != stops[4].pc
    counters = [stop.s.tolist() for stop in stops[:3]]
    assert any((b - a, c - b) in ((1, 3), (-1, -3)) for a, b, c in zip(*counters, strict=True))
    with pytest.raises(pf.sim.NotReached, match="6 times but it ended without"):
        step(address=slept.address, hit=6)
    assert all(s.exec == 0xAAAAAAAAAAAAAAAA & ((1 << LANES[target]) - 1) for s in stops)
    assert "[0000" in stops[0].table() and "lanes in brackets are off" in stops[0].table()


def test_where_it_cannot_stop() -> None:
    def step(**place: Any) -> None:
        pf.sim.step(FILE, 1, 64, np.zeros(512, np.int32), 0, 5, kernel="split", **place)

    with pytest.raises(pf.ArgumentError, match="expected a line with instructions but got line 1; traced"):
        step(line=1)
    with pytest.raises(pf.ArgumentError, match="expected the address of an instruction but got 0x3; the kernel begins"):
        step(address=3)
    with pytest.raises(pf.ArgumentError, match="expected a line or an address"):
        step()
    with pytest.raises(pf.ArgumentError, match="expected a wave below 1 and a block within"):
        step(line=line_of("slept"), wave=1)
    with pytest.raises(pf.sim.NotReached, match=r"expected wave 0 of block .* but it ended without"):
        step(line=line_of("slept"))


# --- faults and arguments ---------------------------------------------------------------------------------------------


def test_faults(target: str) -> None:
    x = np.ones(256, np.float32)
    with pytest.raises(pf.sim.SimulationFault, match=rf"past the end of .*traced.hip:{line_of('copied')}\)") as fault:
        traced(target, "copy", 3, 128, x, pf.sim.empty(400), 1)
    assert fault.value.kind == "illegal address"
    with pytest.raises(pf.sim.SimulationFault, match="which nothing has written"):
        traced(target, "copy", 2, 128, pf.sim.empty(256), pf.sim.empty(256), 1)
    traced(target, "copy", 2, 128, pf.sim.empty(256), pf.sim.empty(256), 1, checks="none")
    with pytest.raises(pf.sim.SimulationFault, match=r"put __syncthreads\(\) between them"):
        traced(target, "race", 1, 256, pf.sim.empty(256))
    with pytest.raises(pf.sim.SimulationFault, match="within 500 instructions"):
        traced(target, "split", 1, 64, np.zeros(512, np.int32), 1, 1 << 30, limit=500)


def test_arguments_of_the_function() -> None:
    x = np.ones(64, np.float32)
    for match, arguments, options in (
        ("expected 3 arguments", (x, x), {}),
        ("expected argument 0 to be float32", (x.astype(np.int32), x, 1), {}),
        ("expected argument 2 to be int32", (x, x, 1.5), {}),
        ("expected argument 2 to be int32", (x, x, x), {}),
        ("expected argument 1 to be float32", (x, 7, 1), {}),
        ("expected all, none or some of uninitialised, races", (x, x, 1), {"checks": "race"}),
        (
            "expected one of gfx90a, gfx942, gfx950, gfx1100, gfx1201 as target but got 'gfx1030'",
            (x, x, 1),
            {"target": "gfx1030"},
        ),
        ("expected a limit of at least 1", (x, x, 1), {"limit": 0}),
        ("expected shared to be", (x, x, 1), {"shared": -1}),
    ):
        with pytest.raises((pf.ArgumentError, TypeError), match=match):
            traced(options.pop("target", "gfx942"), "copy", 1, 64, *arguments, **options)
    with pytest.raises(pf.ArgumentError, match="naming one of several, but it has copy, banks"):
        pf.sim.trace(FILE, 1, 1)
    with pytest.raises(pf.ArgumentError, match="there is no file"):
        pf.sim.trace(Path("nowhere.hip"), 1, 1)
    with pytest.raises(pf.ArgumentError, match="expected 1 to 1024 threads"):
        traced("gfx942", "copy", 1, 2048, x, x, 1)
    with pytest.raises(pf.CompileError, match=r"kernel\.hip:1"):
        pf.sim.trace("__global__ void broken(int* x) { x[0] = oops; }", 1, 1, np.zeros(1, np.int32))


@pytest.mark.parametrize(
    ("text", "name", "element"),
    [
        ("const float* x", "x", "float32"),
        ("unsigned short *__restrict__ out", "out", "uint16"),
        ("double y[]", "y", "float64"),
        ("float4* v", "v", None),
        ("int*", "argument 0", "int32"),
    ],
)
def test_names_and_types_of_parameters(text: str, name: str, element: str | None) -> None:
    (parameter,) = find_prototype(f"__global__ void k({text})", "k")
    assert parameter_name(parameter, 0) == name
    assert element_type(parameter.text) == (None if element is None else np.dtype(element))


# --- the command ------------------------------------------------------------------------------------------------------

COPY = ("--kernel", "copy", "--grid", "2", "--block", "128")


def test_the_command(target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = np.arange(256, dtype=np.float32)
    np.save(tmp_path / "x.npy", given)
    out, numbers = tmp_path / "out.npy", tmp_path / "trace.json"
    done = command(
        *COPY, "--target", target, "--arg", f"{tmp_path}/x.npy", "--arg", "float[256]", "--arg", "1", "--save",
        f"out={out}", "--json", str(numbers), "--lines",
    )  # fmt: skip
    assert done == 0 and np.load(out).tolist() == given.tolist()
    assert json.loads(numbers.read_text())["target"] == target
    shown = capsys.readouterr().out
    assert "0 1 2 3 4 5 6 7 ..." in shown and "extern __shared__ float room[];" in shown and "\x1b" not in shown


def test_the_command_stops_at_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--arg", "float[256]=randn:3", "--arg", "float[256]", "--arg", "1")
    assert command(*COPY, *arguments, "--step", str(line_of("copied")), "--wave", "1", "--block-id", "1") == 0
    shown = capsys.readouterr().out
    assert "block (1, 0, 0), wave 1 before" in shown and "VGPRs" in shown and "EXEC" in shown
    assert command(*COPY, *arguments, "--step", "0x1") == 2


def test_a_fault_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert command(*COPY, "--arg", "float[255]=ones", "--arg", "float[256]", "--arg", "1") == 1
    shown = capsys.readouterr().err
    assert "past the end of the allocation of 1020 bytes" in shown
    assert f">{line_of('copied'):5d} |   out[i] = x[i * stride];" in shown


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--arg", "float[4]=ones"), "expected 3 --arg (const float* x, float* out, int stride) but got 1"),
        (("--arg", "float[4]=1,2,3", "--arg", "null", "--arg", "1"), "3 numbers for 4 elements"),
        (("--arg", "4", "--arg", "null", "--arg", "1"), "expected argument 0 for const float* x but got '4'"),
        (("--arg", "[4]=ones", "--arg", "int[4]", "--arg", "1"), "expected argument 1 to be float32*"),
        (("--arg", "[4]=ones", "--arg", "[4]", "--arg", "x"), "expected argument 2 for int stride but got 'x'"),
        (("--arg", "[4]=none.npy", "--arg", "[4]", "--arg", "1"), "none.npy"),
        (("--arg", "[999]=ones", "--arg", "[999]", "--arg", "1", "--save", "out=/no/where.npy"), "/no/where.npy"),
        (
            ("--arg", "[999]=ones", "--arg", "[999]", "--arg", "1", "--save", "x=x.npy"),
            "expected one of out but got 'x'",
        ),
        (("--grid", "0"), "argument --grid"),
        (("--target", "gfx906"), "argument --target"),
        (("--save", "out.npy"), "expected NAME=FILE.npy"),
    ],
)
def test_wrong_arguments_of_the_command(
    arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(*COPY, *arguments) == 2
    assert said in capsys.readouterr().err
