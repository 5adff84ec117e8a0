"""Vector comparisons: all conditions of all types, v_cmp_class, and v_cmpx, which also writes EXEC."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.sim.snippet import ALL, LANES, each_target, run
from tests.sim.valu import check, to_float, values

_ORDERED: dict[str, Callable[[Any, Any], bool]] = {
    "lt": operator.lt, "eq": operator.eq, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
}  # fmt: skip


def unordered(a: float, b: float) -> bool:
    return math.isnan(a) or math.isnan(b)


EXPECTED: dict[str, Callable[..., Any]] = {}
for _t in ("i16", "u16", "i32", "u32", "i64", "u64"):
    EXPECTED |= {f"v_cmp_{c}_{_t}": f for c, f in {**_ORDERED, "ne": operator.ne}.items()}
    EXPECTED |= {f"v_cmp_f_{_t}": lambda a, b: False, f"v_cmp_t_{_t}": lambda a, b: True}
for _t in ("f16", "f32", "f64"):
    EXPECTED |= {f"v_cmp_{c}_{_t}": f for c, f in _ORDERED.items()}
    EXPECTED |= {f"v_cmp_n{c}_{_t}": lambda a, b, f=f: not f(a, b) for c, f in _ORDERED.items()}
    EXPECTED |= {
        f"v_cmp_lg_{_t}": lambda a, b: not unordered(a, b) and a != b,
        f"v_cmp_nlg_{_t}": lambda a, b: unordered(a, b) or a == b,
        f"v_cmp_o_{_t}": lambda a, b: not unordered(a, b),
        f"v_cmp_u_{_t}": unordered,
        f"v_cmp_f_{_t}": lambda a, b: False,
        f"v_cmp_tru_{_t}": lambda a, b: True,
    }

_QUIET = {"f16": 9, "f32": 22, "f64": 51}
_SMALLEST = {"f16": 2.0**-14, "f32": 2.0**-126, "f64": 2.0**-1022}


def in_class(t: str) -> Callable[[int, int], bool]:
    def of(bits: int, wanted: int) -> bool:
        x = to_float(bits, t.upper())
        if math.isnan(x):
            number = bits >> _QUIET[t] & 1
        else:
            rank = 0 if math.isinf(x) else 1 if abs(x) >= _SMALLEST[t] else 2 if x else 3
            number = 2 + rank if math.copysign(1, x) < 0 else 9 - rank
        return bool(wanted >> number & 1)

    return of


EXPECTED |= {f"v_cmp_class_{t}": in_class(t) for t in _QUIET}


@each_target
def test_comparisons(target: str) -> None:
    assert len(check(EXPECTED, target)) > 80


@each_target
def test_every_class_by_its_own_bit(target: str) -> None:
    wanted = np.array([1 << lane % 10 for lane in range(LANES[target])], np.uint32)
    for seed in range(5):
        x = np.array(values("F32", LANES[target], seed), np.uint32)
        mask = run(
            target, "v_cmp_class_f32 vcc" + ("_lo" if target.startswith("gfx1") else "") + ", v0, v1", {0: x, 1: wanted}
        ).vcc
        assert [bool(mask >> i & 1) for i in range(len(x))] == [
            in_class("f32")(int(a), int(b)) for a, b in zip(x, wanted, strict=True)
        ]


@each_target
def test_cmpx_writes_exec(target: str) -> None:
    lanes = LANES[target]
    x = np.arange(lanes, dtype=np.uint32)
    on = ALL[lanes] & 0xF0F0F0F0F0F0F0F0
    expected = on & sum(1 << i for i in range(lanes) if i < 23)
    if target.startswith("gfx9"):
        state = run(target, "v_cmpx_gt_u32_e64 s[4:5], 23, v0\nv_mov_b32 v1, 7", {0: x, 1: 0}, exec=on, vcc=5)
        assert int(state.s[4]) | int(state.s[5]) << 32 == expected
        assert run(target, "v_cmpx_gt_u32 vcc, 23, v0", {0: x}, exec=on).vcc == expected
    else:
        state = run(target, "v_cmpx_gt_u32 23, v0\nv_mov_b32 v1, 7", {0: x, 1: 0}, exec=on, vcc=5)
        assert run(target, "v_cmpx_gt_u32_e64 23, v0", {0: x}, exec=on).exec == expected
    assert state.exec == expected and state.vcc == 5
    assert [int(y) for y in state.v[1]] == [7 if expected >> i & 1 else 0 for i in range(lanes)]


@each_target
def test_results_of_lanes_that_are_off_are_zero(target: str) -> None:
    mask = "s[4:5]" if target.startswith("gfx9") else "s4"
    state = run(target, f"v_cmp_eq_u32_e64 {mask}, v0, v0", {0: 3}, {4: 0xFFFFFFFF, 5: 0xFFFFFFFF}, exec=0b1010)
    assert state.s[4] == 0b1010 and (target.startswith("gfx1") or state.s[5] == 0)


@each_target
def test_modifiers_and_constants(target: str) -> None:
    lanes = LANES[target]
    x = np.linspace(-2, 2, lanes, dtype=np.float32)
    masks = ["s[4:5]", "s[6:7]", "s[8:9]"] if target.startswith("gfx9") else ["s4", "s6", "s8"]
    text = f"v_cmp_gt_f32_e64 {masks[0]}, |v0|, 1.0\nv_cmp_lt_f32_e64 {masks[1]}, -v0, s2\n"
    text += f"v_cmp_eq_f32_e64 {masks[2]}, 0, v0"
    state = run(target, text, {0: x}, {2: int(np.float32(0.5).view(np.uint32))})
    for at, want in ((4, np.abs(x) > 1), (6, -x < 0.5), (8, x == 0)):
        got = int(state.s[at]) | (int(state.s[at + 1]) << 32 if lanes == 64 else 0)
        assert [bool(got >> i & 1) for i in range(lanes)] == list(want)
