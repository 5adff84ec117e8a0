"""Atomics in memory, through flat addresses and buffers, and in the LDS, with and without the old value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pyflame.runtime.sim.memory import Memory
from tests.sim.access import kept, lanes_on, name_of, no_offset, words
from tests.sim.snippet import LANES, Stopped, each_target, run

Combine = Callable[[Any, Any], Any]


def wrapped(bits: int, function: Callable[[int, int], int]) -> Combine:
    return lambda old, x: function(int(old), int(x)) & (1 << bits) - 1


def signed(bits: int, function: Callable[[int, int], int]) -> Combine:
    def turn(n: int) -> int:
        return n - (1 << bits) if n >> (bits - 1) else n

    return lambda old, x: function(turn(int(old)), turn(int(x))) & (1 << bits) - 1


# Of integers: GFX9's name, GFX11's name, what it does.
INTEGER: tuple[tuple[str, str, str, Callable[[int], Combine]], ...] = (
    ("swap", "swap_b", "wrxchg storexchg", lambda b: lambda old, x: x),
    ("add", "add_u", "add_u", lambda b: wrapped(b, lambda old, x: old + x)),
    ("sub", "sub_u", "sub_u", lambda b: wrapped(b, lambda old, x: old - x)),
    ("smin", "min_i", "min_i", lambda b: signed(b, min)),
    ("umin", "min_u", "min_u", lambda b: wrapped(b, min)),
    ("smax", "max_i", "max_i", lambda b: signed(b, max)),
    ("umax", "max_u", "max_u", lambda b: wrapped(b, max)),
    ("and", "and_b", "and_b", lambda b: wrapped(b, lambda old, x: old & x)),
    ("or", "or_b", "or_b", lambda b: wrapped(b, lambda old, x: old | x)),
    ("xor", "xor_b", "xor_b", lambda b: wrapped(b, lambda old, x: old ^ x)),
    ("inc", "inc_u", "inc_u", lambda b: wrapped(b, lambda old, x: 0 if old >= x else old + 1)),
    ("dec", "dec_u", "dec_u", lambda b: wrapped(b, lambda old, x: x if old == 0 or old > x else old - 1)),
)
VALUES = (0, 1, 2, 3, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x7FFFFFFFFFFFFFFF, 0x8000000000000000, 0xFFFFFFFFFFFFFFFF)


def global_names(target: str, bits: int) -> list[str]:
    suffix = "_x2" if bits == 64 else ""
    return ["global_atomic_" + name_of(target, old + suffix, f"{new}{bits}") for old, new, _, _ in INTEGER]


def lds_names(target: str, bits: int) -> list[str]:
    names = []
    for _, _, lds, _ in INTEGER:
        old, _, new = lds.partition(" ")
        if new:
            names.append(f"ds_{name_of(target, old, new)}_rtn_b{bits}")
        else:
            op, kind = lds.rsplit("_", 1)
            names.append(f"ds_{op}_rtn_{kind}{bits}")
    return names


def operands(bits: int, lanes: int) -> tuple[Any, Any]:
    """Pairs of values; every lane has its own cell."""
    rng = np.random.default_rng(bits)
    old, x = (rng.choice(np.array(VALUES, np.uint64), lanes) for _ in range(2))
    return (old, x) if bits == 64 else (old & np.uint64(0xFFFFFFFF), x & np.uint64(0xFFFFFFFF))


def rows(first: int, values: Any) -> dict[int, Any]:
    return {first: values.astype(np.uint32), first + 1: (values >> np.uint64(32)).astype(np.uint32)}


def span(first: int, bits: int) -> str:
    return f"v{first}" if bits == 32 else f"v[{first}:{first + 1}]"


def value(state: Any, row: int, bits: int) -> Any:
    return state.pair(row) if bits == 64 else state.v[row].astype(np.uint64)


@each_target
@pytest.mark.parametrize("bits", [32, 64])
def test_integers_in_memory(target: str, bits: int) -> None:
    lanes = LANES[target]
    old, x = operands(bits, lanes)
    kind = np.uint32 if bits == 32 else np.uint64
    memory = Memory(1 << 20)
    names = global_names(target, bits)
    bases = [memory.allocate(bits // 8 * lanes) for _ in names]
    mask = 0xFFFF_0FF0_5A5A_3C3F & (1 << lanes) - 1
    on = lanes_on(target, mask)
    keep = kept(target)
    text, s = [], {}
    for n, (name, base) in enumerate(zip(names, bases, strict=True)):
        memory.view(base, bits // 8 * lanes, write=True)[:] = old.astype(kind).view(np.uint8)
        s[2 + 2 * n], s[3 + 2 * n] = words(base)
        text.append(f"{name} {span(20 + 2 * n, bits)}, v0, {span(2, bits)}, s[{2 + 2 * n}:{3 + 2 * n}] {keep}")
    v = {0: np.arange(lanes, dtype=np.uint32) * (bits // 8), **rows(2, x)}
    state = run(target, "\n".join(text), v, s, exec=mask, memory=memory, checks=3)
    for n, (form, base) in enumerate(zip(INTEGER, bases, strict=True)):
        combine = form[3](bits)
        want = [combine(a, b) if yes else a for a, b, yes in zip(old, x, on, strict=True)]
        after = memory.view(base, bits // 8 * lanes).view(kind)
        assert after.tolist() == [int(w) for w in want], form[0]
        assert np.array_equal(value(state, 20 + 2 * n, bits), np.where(on, old, 0)), form[0]


@each_target
@pytest.mark.parametrize("bits", [32, 64])
def test_integers_in_the_lds(target: str, bits: int) -> None:
    lanes = LANES[target]
    old, x = operands(bits, lanes)
    write, read = name_of(target, "ds_write", "ds_store"), name_of(target, "ds_read", "ds_load")
    names = lds_names(target, bits)
    bare = {"swap"}
    for names_of, returns in ((names, True), ([n.replace("_rtn", "") for n in names], False)):
        forms = [(name, form) for name, form in zip(names_of, INTEGER, strict=True) if returns or form[0] not in bare]
        text = []
        for n, (name, _) in enumerate(forms):
            to = f"{span(20 + 2 * n, bits)}, " if returns else ""
            text += [f"{write}_b{bits} v0, {span(4, bits)}", f"{name} {to}v0, {span(2, bits)}",
                     f"{read}_b{bits} {span(60 + 2 * n, bits)}, v0"]  # fmt: skip
        v = {0: np.arange(lanes, dtype=np.uint32) * (bits // 8), **rows(2, x), **rows(4, old)}
        state = run(target, "\n".join(text), v, lds_bytes=512, checks=3)
        for n, (name, form) in enumerate(forms):
            combine = form[3](bits)
            want = [int(combine(a, b)) for a, b in zip(old, x, strict=True)]
            assert value(state, 60 + 2 * n, bits).tolist() == want, name
            if returns:
                assert np.array_equal(value(state, 20 + 2 * n, bits), old), name


@each_target
def test_all_lanes_on_one_cell(target: str) -> None:
    """Each lane sees a different old value; nothing is lost."""
    lanes = LANES[target]
    memory = Memory(1 << 20)
    base = memory.allocate(8)
    memory.view(base, 8, write=True)[:] = 0
    add, keep = name_of(target, "global_atomic_add", "global_atomic_add_u32"), kept(target)
    flat = name_of(target, "flat_atomic_add", "flat_atomic_add_u32")
    low, high = words(base)
    text = f"{add} v8, v0, v1, s[2:3] {keep}\n{flat} v9, v[2:3], v1 {keep}\n{flat} v[2:3], v1 offset:4"
    state = run(target, text, {0: 0, 1: 3, 2: low, 3: high}, {2: low, 3: high}, memory=memory, checks=3)
    assert sorted(state.v[8].tolist()) == [3 * n for n in range(lanes)]
    assert sorted(state.v[9].tolist()) == [3 * (n + lanes) for n in range(lanes)]
    assert memory.view(base, 8).view(np.uint32).tolist() == [6 * lanes, 3 * lanes]


@each_target
@pytest.mark.parametrize("bits", [32, 64])
def test_compare_and_swap(target: str, bits: int) -> None:
    lanes = LANES[target]
    lane = np.arange(lanes, dtype=np.uint64)
    kind = np.uint32 if bits == 32 else np.uint64
    shift = np.uint64(0 if bits == 32 else 33)
    old, new = lane << shift, (lane + np.uint64(1000)) << shift
    compare = np.where(lane % np.uint64(3) == 0, old, old + np.uint64(1))
    want = np.where(lane % np.uint64(3) == 0, new, old)
    memory = Memory(1 << 20)
    base = memory.allocate(bits // 8 * lanes)
    memory.view(base, bits // 8 * lanes, write=True)[:] = old.astype(kind).view(np.uint8)
    name = name_of(target, "global_atomic_cmpswap" + ("_x2" if bits == 64 else ""), f"global_atomic_cmpswap_b{bits}")
    data = "v[2:3]" if bits == 32 else "v[2:5]"
    at = {0: (lane * np.uint64(bits // 8)).astype(np.uint32)}
    v = {**at, **rows(2, new), **rows(2 + bits // 32, compare)}
    text = f"{name} {span(8, bits)}, v0, {data}, s[2:3] {kept(target)}"
    state = run(target, text, v, dict(zip((2, 3), words(base), strict=True)), memory=memory, checks=3)
    assert np.array_equal(memory.view(base, bits // 8 * lanes).view(kind), want)
    assert np.array_equal(value(state, 8, bits), old)
    # GFX9's LDS has the value to compare with first, GFX11's second.
    write, read = name_of(target, "ds_write", "ds_store"), name_of(target, "ds_read", "ds_load")
    first, second = (span(4, bits), span(2, bits)) if target.startswith("gfx9") else (span(2, bits), span(4, bits))
    text = f"""
    {write}_b{bits} v0, {span(6, bits)}
    {name_of(target, "ds_cmpst", "ds_cmpstore")}_rtn_b{bits} {span(8, bits)}, v0, {first}, {second}
    {read}_b{bits} {span(10, bits)}, v0
    """
    state = run(target, text, {**at, **rows(2, new), **rows(4, compare), **rows(6, old)}, lds_bytes=512, checks=3)
    assert np.array_equal(value(state, 8, bits), old) and np.array_equal(value(state, 10, bits), want)


def floats(kind: Any, lanes: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(11)
    old, x = (rng.standard_normal(lanes).astype(kind) for _ in range(2))
    old[:4] = [0.0, np.inf, np.nan, 1e-6]
    x[:4] = [-0.0, 1.0, 2.0, 3e-6]
    return old, x


def float_case(target: str, name: str, bits: int, old: Any, x: Any) -> Any:
    """What memory holds after a float atomic on each lane's own cell."""
    lanes = LANES[target]
    memory = Memory(1 << 20)
    base = memory.allocate(bits // 8 * lanes)
    memory.view(base, bits // 8 * lanes, write=True)[:] = old.view(np.uint8)
    raw = x.view(np.uint32 if bits == 32 else np.uint64).astype(np.uint64)
    v = {0: np.arange(lanes, dtype=np.uint32) * (bits // 8), **rows(2, raw)}
    s = dict(zip((2, 3), words(base), strict=True))
    run(target, f"{name} v0, {span(2, bits)}, s[2:3]", v, s, memory=memory, checks=3)
    return memory.view(base, bits // 8 * lanes).view(old.dtype)


def _extreme(target: str, name: str) -> str:
    return f"global_atomic_{name}_num_f32" if target == "gfx1201" else f"global_atomic_{name}_f32"


@each_target
def test_floats_in_memory(target: str) -> None:
    lanes = LANES[target]
    old, x = floats(np.float32, lanes)
    with np.errstate(invalid="ignore"):
        assert np.array_equal(float_case(target, "global_atomic_add_f32", 32, old, x), old + x, equal_nan=True)
        if target.startswith("gfx1"):
            got = float_case(target, _extreme(target, "min"), 32, old, x)
            assert np.array_equal(got, np.fmin(old, x)) and not np.isnan(got).any()
            assert np.array_equal(float_case(target, _extreme(target, "max"), 32, old, x), np.fmax(old, x))
            return
        double, y = floats(np.float64, lanes)
        for name, function in (("add", np.add), ("min", np.fmin), ("max", np.fmax)):
            got = float_case(target, f"global_atomic_{name}_f64", 64, double, y)
            assert np.array_equal(got, function(double, y), equal_nan=True), name
        kinds = (("f16", np.float16), ("bf16", ml_dtypes.bfloat16))
        for kind, dtype in kinds[: 1 if target == "gfx90a" else 2]:
            half, z = (a.astype(dtype) for a in floats(np.float32, 2 * lanes))
            got = float_case(target, f"global_atomic_pk_add_{kind}", 32, half, z)
            want = (half.astype(np.float32) + z.astype(np.float32)).astype(dtype)
            assert np.array_equal(got.astype(np.float32), want.astype(np.float32), equal_nan=True), kind


@each_target
def test_floats_in_the_lds(target: str) -> None:
    lanes = LANES[target]
    old, x = floats(np.float32, lanes)
    at = {0: np.arange(lanes, dtype=np.uint32) * 8}
    write, read = name_of(target, "ds_write", "ds_store"), name_of(target, "ds_read", "ds_load")
    text = "\n".join(
        f"{write}_b32 v0, v2\nds_{name}_rtn_f32 v{20 + n}, v0, v3\n{read}_b32 v{30 + n}, v0"
        for n, name in enumerate(("add", "min", "max"))
    )
    state = run(target, text, {**at, 2: old, 3: x}, lds_bytes=512, checks=3)
    with np.errstate(invalid="ignore"):
        for n, function in enumerate((np.add, np.fmin, np.fmax)):
            assert np.array_equal(state.v[20 + n].view(np.float32), old, equal_nan=True)
            assert np.array_equal(state.v[30 + n].view(np.float32), function(old, x), equal_nan=True)
        double, y = floats(np.float64, lanes)
        v = {**at, **rows(2, double.view(np.uint64)), **rows(4, y.view(np.uint64))}
        text = "\n".join(
            f"{write}_b64 v0, v[2:3]\nds_{name}_f64 v0, v[4:5]\n{read}_b64 v[{20 + 2 * n}:{21 + 2 * n}], v0"
            for n, name in enumerate(("min", "max"))
        )
        state = run(target, text, v, lds_bytes=512, checks=3)
        assert np.array_equal(state.pair(20).view(np.float64), np.fmin(double, y))
        assert np.array_equal(state.pair(22).view(np.float64), np.fmax(double, y))


@each_target
def test_what_only_the_lds_has(target: str) -> None:
    lanes = LANES[target]
    lane = np.arange(lanes, dtype=np.uint32)
    write, read = name_of(target, "ds_write", "ds_store"), name_of(target, "ds_read", "ds_load")
    wrap = "ds_wrap_rtn_b32 v10, v0, v2, v3" if target != "gfx1201" else "ds_cond_sub_rtn_u32 v10, v0, v2"
    text = f"""
    {write}_b32 v0, v1
    ds_rsub_u32 v0, v2
    {read}_b32 v8, v0
    {write}_b32 v0, v1
    ds_mskor_b32 v0, v2, v3
    {read}_b32 v9, v0
    {write}_b32 v0, v1
    {wrap}
    {read}_b32 v11, v0
    {write}_b64 v0, v[4:5]
    ds_condxchg32_rtn_b64 v[12:13], v0, v[6:7]
    {read}_b64 v[14:15], v0
    """
    v = {0: lane * 8, 1: lane * 3, 2: 40, 3: 5, 4: lane, 5: lane + 1, 6: 0x80000000 | lane + 9, 7: lane + 9}
    state = run(target, text, v, lds_bytes=512, checks=3)
    old = lane * 3
    assert np.array_equal(state.v[8], 40 - old)
    assert np.array_equal(state.v[9], old & ~np.uint32(40) | 5)
    assert np.array_equal(state.v[10], old)
    assert np.array_equal(state.v[11], np.where(old >= 40, old - 40, old + (5 if target != "gfx1201" else 0)))
    assert np.array_equal(state.v[12], lane) and np.array_equal(state.v[13], lane + 1)
    assert np.array_equal(state.v[14], lane + 9) and np.array_equal(state.v[15], lane + 1)  # the second bit is not set


def test_csub_and_compare_floats() -> None:
    target = "gfx1100"
    lane = np.arange(32, dtype=np.uint32)
    memory = Memory(1 << 20)
    base = memory.allocate(128)
    memory.view(base, 128, write=True).view(np.uint32)[:] = lane
    s = dict(zip((2, 3), words(base), strict=True))
    run(target, "global_atomic_csub_u32 v8, v0, v1, s[2:3] glc", {0: lane * 4, 1: 10}, s, memory=memory)
    assert np.array_equal(memory.view(base, 128).view(np.uint32), np.where(lane >= 10, lane - 10, 0))
    memory.view(base, 128).view(np.float32)[:] = -0.0
    run(target, "global_atomic_cmpswap_f32 v0, v[2:3], s[2:3]", {0: lane * 4, 2: lane, 3: 0}, s, memory=memory)
    assert np.array_equal(memory.view(base, 128).view(np.uint32), lane)  # -0 equals 0


@each_target
def test_atomics_through_buffers(target: str) -> None:
    """Beyond the buffer's end nothing changes, and 0 comes back."""
    lanes = LANES[target]
    lane = np.arange(lanes, dtype=np.uint32)
    memory = Memory(1 << 20)
    base = memory.allocate(4 * lanes)
    memory.view(base, 4 * lanes, write=True).view(np.uint32)[:] = lane
    s = {4: words(base)[0], 5: words(base)[1], 6: 40, 7: 3 << 28 if target.startswith("gfx1") else 0}
    add, keep = name_of(target, "buffer_atomic_add", "buffer_atomic_add_u32"), kept(target)
    state = run(
        target, f"{add} v1, v0, s[4:7], {no_offset(target)} offen {keep}", {0: lane * 4, 1: 100}, s, memory=memory
    )
    assert np.array_equal(state.v[1], np.where(lane < 10, lane, 0))
    assert np.array_equal(memory.view(base, 4 * lanes).view(np.uint32), np.where(lane < 10, lane + 100, lane))


@each_target
def test_atomics_need_alignment(target: str) -> None:
    memory = Memory(1 << 20)
    base = memory.allocate(64)
    memory.view(base, 64, write=True)[:] = 0
    add = name_of(target, "global_atomic_add", "global_atomic_add_u32")
    wide = name_of(target, "global_atomic_add_x2", "global_atomic_add_u64")
    s = dict(zip((2, 3), words(base), strict=True))
    for text, address in ((f"{add} v0, v1, s[2:3]", 2), (f"{wide} v0, v[2:3], s[2:3]", 4), ("ds_add_u32 v0, v1", 2)):
        with pytest.raises(Stopped) as stopped:
            run(target, text, {0: address}, s, memory=memory, lds_bytes=64)
        assert stopped.value.fault.kind == 7, text
