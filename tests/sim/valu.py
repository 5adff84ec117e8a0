"""Vector instructions against expectations computed in Python: the machinery of test_valu_*.py.

A test file brings `{name: expectation}`. The operands of an instruction follow from the interpreter's table; registers
are filled with edge values and random ones, a part of the lanes is off, and the same is done for each target that has
the instruction. An expectation takes Python ints (signed where the operand is) and floats and gives the result.
"""

from __future__ import annotations

import functools
import os
import re
import struct
import subprocess
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from pyflame.runtime.sim.decode.decoder import Form
from pyflame.runtime.sim.decode.names import RENAMED, variant
from pyflame.runtime.sim.interpreter import interpreter
from tests.sim.snippet import LANES, MODE, State, run, tool

TARGETS = tuple(LANES)
ROUNDS = {64: 2, 32: 4}  # by wave size: launches with fresh values, for as many lanes on all
FILLER = 0xDEADBEEF  # what a result's register holds before
# kind of float -> bits of precision, smallest and largest exponent, struct format
FORMATS = {"F16": (11, -14, 15, "<e"), "F32": (24, -126, 127, "<f"), "F64": (53, -1022, 1023, "<d")}
ACCUMULATES = re.compile(r"v_(pk_)?f?mac_|v_dot\d+c_")  # the third source is the result's register
# Names that GFX12's assembler takes for v_min_num and the like, which treat NaNs otherwise.
_OTHER_EXTREMES = re.compile(r"v_(pk_)?(min3?|max3?|med3|minmax|maxmin)_f\d+$")
NEAREST, UP, DOWN, ZERO = range(4)


class Bits(int):
    """A float's exact bits, where which NaN or zero it is matters."""


def rounded(value: Fraction, kind: str, mode: int = NEAREST) -> float:
    """The float of a format next to a number that is not 0.

    >>> rounded(Fraction(1, 3), "F16")
    0.333251953125
    """
    precision, low, high, _ = FORMATS[kind]
    negative, x = value < 0, abs(value)
    exponent = x.numerator.bit_length() - x.denominator.bit_length()
    exponent -= Fraction(2) ** exponent > x
    step = Fraction(2) ** (max(exponent, low) - precision + 1)
    units, rest = divmod(x, step)
    away = (mode == UP and not negative) or (mode == DOWN and negative)
    if rest and (away or (mode == NEAREST and (rest * 2 > step or (rest * 2 == step and units % 2)))):
        units += 1
    result: Fraction | float = units * step
    largest = (2 - Fraction(2) ** (1 - precision)) * Fraction(2) ** high
    if result > largest:
        result = largest if mode == ZERO or (mode != NEAREST and not away) else float("inf")
    return -float(result) if negative else float(result)


@dataclass(frozen=True)
class Number:
    """An exact number whose zero has a sign."""

    value: Fraction
    negative: bool
    mode: int

    def __neg__(self) -> Number:
        return Number(-self.value, not self.negative, self.mode)

    def __mul__(self, other: Number) -> Number:
        return Number(self.value * other.value, self.negative != other.negative, self.mode)

    def __add__(self, other: Number) -> Number:
        total = self.value + other.value
        opposite = self.mode == DOWN if self.negative != other.negative else self.negative
        return Number(total, total < 0 if total else opposite, self.mode)

    def __sub__(self, other: Number) -> Number:
        return self + -other


def exact(of: Callable[..., Any], kind: str, mode: int = NEAREST) -> Callable[..., float]:
    """An expectation from exact arithmetic, rounded once: `exact(lambda a, b, c: a * b + c, "F32")`."""

    def expectation(*values: float) -> float:
        if not all(np.isfinite(values)):
            with np.errstate(all="ignore"):
                return float(of(*(np.float64(v) for v in values)))
        result = of(*(Number(Fraction(v), bool(np.signbit(v)), mode) for v in values))
        return rounded(result.value, kind, mode) if result.value else -0.0 if result.negative else 0.0

    return expectation


def to_float(bits: int, kind: str) -> float:
    size, form = {"F16": ("<H", "<e"), "F32": ("<I", "<f"), "F64": ("<Q", "<d")}[kind[-3:]]
    return float(struct.unpack(form, struct.pack(size, bits))[0])


def to_bits(value: float, kind: str) -> int:
    size, form = {"F16": ("<H", "<e"), "F32": ("<I", "<f"), "F64": ("<Q", "<d")}[kind[-3:]]
    return int(struct.unpack(size, struct.pack(form, value))[0])


_FLOATS = [
    0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.999, 255.5, 2.0**-14, 2.0**-24, 3 * 2.0**-25, -(2.0**-15),
    65504.0, -65504.0, 1e-4, 3.14159265, float("inf"), float("-inf"), float("nan"),
]  # fmt: skip
_WIDE = {
    "F16": [0x0001, 0x83FF, 0x7D00, 0xFE01, 0x3C01, 0x3BFF, 0x77FF],
    "F32": [0x00000001, 0x807FFFFF, 0x00800000, 0x7F7FFFFF, 0x7FA00000, 0xFFC00001, 0x3F800001, 0x4F000000, 0x4F7FFFFF,
            0xCF000000, 0xCF000001, 0x4B7FFFFF, 0x477FF000, 0x477FEFFF, 0x4B000001, 0x7E800000, 0x00000100, 0x33000000],
    "F64": [1, 0x800FFFFFFFFFFFFF, 0x0010000000000000, 0x7FEFFFFFFFFFFFFF, 0x7FF4000000000000, 0xFFF8000000000001,
            0x41E0000000000000, 0x41DFFFFFFFC00000, 0xC1E0000000200000, 0x41EFFFFFFFE00000, 0x36A0000000000000,
            0x47EFFFFFF0000000, 0x3FF0000010000000, 0x4340000000000001, 0xFFEFFFFFFFFFFFFF],
}  # fmt: skip
_INTEGERS = [
    0, 1, 2, 3, 7, 8, 13, 15, 16, 17, 31, 32, 33, 63, 64, 127, 128, 255, 256, 0x7FFF, 0x8000, 0xFFFF, 0x10000, 0x7FFFFF,
    0x800000, 0xFFFFFF, 0x1000000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF, 0x01020380, 0xFF00FF00, 0x0C0D0807,
]  # fmt: skip


def values(kind: str, count: int, seed: int) -> list[int]:
    """Edge values and random ones of an operand's kind, as bits, in an order of the seed's."""
    rng = np.random.default_rng(seed)
    bits = {"16": 16, "64": 64}.get(kind[-2:], 32)
    if "F16" in kind and kind.startswith("PK"):
        low, high = values("F16", count, seed + 1), values("F16", count, seed + 2)
        return [a | b << 16 for a, b in zip(low, high, strict=True)]
    random = [int(x) for x in rng.integers(0, 1 << bits, count, np.uint64, endpoint=False)] if bits < 64 else [
        int(x) for x in rng.integers(0, 1 << 63, count, np.uint64) * np.uint64(2) + rng.integers(0, 2, count, np.uint64)
    ]  # fmt: skip
    if "F" in kind and not kind.startswith("PK_BF"):
        base = kind[-3:]
        near = [to_bits(float(x), base) for x in rng.standard_normal(count) * 2.0 ** rng.integers(-9, 10, count)]
        edges = [to_bits(x, base) for x in _FLOATS] + _WIDE[base]
        pool = edges + near[: count // 2] + random[: count // 4]
    elif kind == "MASK":
        pool = [int(x) for x in rng.integers(0, 2, count)]
    else:
        edges = [x & ((1 << bits) - 1) for x in _INTEGERS] + (
            [x << 32 | x ^ 5 for x in _INTEGERS] if bits == 64 else []
        )
        pool = edges + random[: count // 2]
    return [pool[int(i)] for i in rng.integers(0, len(pool), count)]


@dataclass
class Case:
    """One instruction on one target: its text, where its sources lie, where its results do."""

    name: str
    text: str
    form: Form
    sources: list[int]  # first rows of vector registers, or numbers of scalar ones
    results: list[int]
    implicit: bool  # the accumulator


@dataclass
class Batch:
    """Cases that share a launch, with their registers."""

    target: str
    cases: list[Case] = field(default_factory=list)
    next_row: int = 0
    next_scalar: int = 8

    def rows(self, count: int) -> int:
        self.next_row += count + (
            self.next_row & 1 if count == 2 else 0
        )  # GFX940 wants pairs to begin at even registers
        return self.next_row - count

    def scalars(self) -> int:
        self.next_scalar += 2
        return self.next_scalar - 2


def _width(kind: str) -> int:
    return 2 if kind.endswith("64") or kind in ("PK_F32", "PK_U32") else 1


def _names(name: str, target: str) -> list[str]:
    """How an assembler may call what the table calls `name`."""
    plain = re.sub(r"(_ocp|_gfx\w+)$", "", name)
    if target == "gfx1201" and _OTHER_EXTREMES.match(plain):
        return []
    if variant(plain, target, interpreter(LANES[target]).forms) != name:
        return []
    renamed = [new for new, old in RENAMED.items() if old == plain] if target.startswith("gfx1") else []
    return [*renamed, plain]


def _operand(kind: str, at: int, target: str, half: str) -> str:
    if kind == "MASK":
        return f"s[{at}:{at + 1}]" if LANES[target] == 64 else f"s{at}"
    if half and kind.endswith("16") and not kind.startswith("PK"):
        return f"v{at}{half}"
    return f"v[{at}:{at + 1}]" if _width(kind) == 2 else f"v{at}"


@functools.cache
def _accepted(target: str, lines: tuple[str, ...]) -> tuple[bool, ...]:
    """Which lines the target's assembler takes."""
    done = subprocess.run(
        [tool("llvm-mc"), "-triple=amdgcn-amd-amdhsa", f"-mcpu={target}", "-filetype=null"],
        input="\n".join(lines) + "\n", text=True, capture_output=True, check=False, env={**os.environ, "LC_ALL": "C"},
    )  # fmt: skip
    refused = {int(n) for n in re.findall(r"^<stdin>:(\d+):\d+: error", done.stderr, re.M)}
    return tuple(n not in refused for n in range(1, len(lines) + 1))


def batches(target: str, names: Iterable[str]) -> list[Batch]:
    """The instructions that a target has among `names`, laid out into launches."""
    forms = interpreter(LANES[target]).forms
    done: list[Batch] = []
    batch = Batch(target)
    pending: list[tuple[str, Form, list[str], Case]] = []
    for name in names:
        form = forms[name]
        if batch.next_row > 90 or batch.next_scalar > 90:  # 16-bit halves exist of the first 128 registers only
            done.append(batch)
            batch = Batch(target)
        implicit = bool(ACCUMULATES.match(name))
        results = [batch.scalars() if k == "MASK" else batch.rows(_width(k)) for k in form.results]
        sources = [batch.scalars() if k == "MASK" else batch.rows(_width(k)) for k in form.sources]
        vcc = name in ("v_div_fmas_f32", "v_div_fmas_f64")
        if vcc:
            sources[3] = 106
        if implicit:
            sources[2] = results[0]
        texts = []
        for mnemonic in _names(name, target):
            for half in (".l", "") if target.startswith("gfx1") else ("",):
                shown = [*zip(form.results, results, strict=True), *zip(form.sources, sources, strict=True)]
                if implicit or vcc:
                    shown = shown[:-1]
                texts.append(f"{mnemonic} " + ", ".join(_operand(k, at, target, half) for k, at in shown))
        case = Case(name, "", form, sources, results, implicit)
        batch.cases.append(case)
        pending.append((name, form, texts, case))
    done.append(batch)
    lines = tuple(text for *_, texts, _ in pending for text in texts)
    taken = dict(zip(lines, _accepted(target, lines), strict=True))
    for *_, texts, case in pending:
        case.text = next((text for text in texts if taken[text]), "")
    for b in done:
        b.cases = [case for case in b.cases if case.text]
    return [b for b in done if b.cases]


def _as_python(bits: int, kind: str) -> Any:
    if kind.startswith("PK") or kind == "MASK":
        return bits
    if kind[0] in "HS" and "F" in kind:
        return Bits(bits)
    if "F" in kind:
        return to_float(bits, kind)
    size = int(kind[1:])
    return bits - (1 << size) if kind[0] == "I" and bits >> (size - 1) else bits


def matches(got: int, want: Any, kind: str, tolerance: int = 0) -> bool:
    """Whether bits are a result: any NaN for a NaN, unless the expectation is of type Bits."""
    size = (
        64
        if kind.endswith("64") or kind in ("PK_F32", "PK_U32")
        else 16
        if kind.endswith("16") and kind[:2] != "PK"
        else 32
    )
    if isinstance(want, (Bits, int, np.integer)) and not isinstance(want, float):
        return got == int(want) & ((1 << size) - 1)
    value = to_float(got, kind)
    if np.isnan(want) or np.isnan(value):
        return bool(np.isnan(want) and np.isnan(value))
    bits = to_bits(want, kind)
    if tolerance and bits >> (size - 1) == got >> (size - 1):
        return abs(bits - got) <= tolerance
    return got == bits


def check(
    names: Mapping[str, Callable[..., Any]], target: str, *, mode: int = MODE, tolerance: int = 0, suffix: str = "",
    rounds: int | None = None,
) -> set[str]:  # fmt: skip
    """Run the instructions that the target has, compare all lanes, and give their names."""
    ran = set()
    lanes = LANES[target]
    for number, batch in enumerate(batches(target, names)):
        for turn in range(rounds or ROUNDS[lanes]):
            given: dict[int, list[list[int]]] = {}
            v: dict[int, Any] = dict.fromkeys(range(batch.next_row), FILLER)
            s: dict[int, int] = {}
            for n, case in enumerate(batch.cases):
                given[n] = []
                for k, (kind, at) in enumerate(zip(case.form.sources, case.sources, strict=True)):
                    picked = values(kind, lanes, turn if (kind, at) == ("MASK", 106) else 1000 * n + 10 * k + turn)
                    given[n].append(picked)
                    if kind == "MASK":
                        word = sum(bit << lane for lane, bit in enumerate(picked))
                        s[at], s[at + 1] = word & 0xFFFFFFFF, word >> 32
                    else:
                        v[at] = np.array([x & 0xFFFFFFFF for x in picked], np.uint32)
                        if kind.endswith("16") and not kind.startswith("PK"):
                            v[at] |= np.uint32(0x5A5A0000)
                        if _width(kind) == 2:
                            v[at + 1] = np.array([x >> 32 for x in picked], np.uint32)
            on = int(np.random.default_rng(turn + number).integers(0, 1 << 32)) * 0x100000001 & ((1 << lanes) - 1) | 0xF
            vcc = s.get(106, 0) | s.get(107, 0) << 32
            state = run(target, "\n".join(c.text + suffix for c in batch.cases), v, s, exec=on, vcc=vcc, mode=mode)
            for n, case in enumerate(batch.cases):
                _compare(case, names[case.name], given[n], v, state, on, tolerance, target)
                ran.add(case.name)
    return ran


def _compare(
    case: Case, of: Callable[..., Any], given: list[list[int]], v: Mapping[int, Any], state: State, on: int,
    tolerance: int, target: str,
) -> None:  # fmt: skip
    for lane in range(LANES[target]):
        arguments = [_as_python(g[lane], kind) for g, kind in zip(given, case.form.sources, strict=True)]
        wanted = of(*arguments) if on >> lane & 1 else None
        several = wanted if isinstance(wanted, tuple) else (wanted,) * len(case.form.results)
        for kind, at, want in zip(case.form.results, case.results, several, strict=True):
            if kind == "MASK":
                got = (int(state.s[at]) | int(state.s[at + 1]) << 32) >> lane & 1
                want = bool(want) if wanted is not None else False
                assert got == want, f"{target} {case.text}: lane {lane} of {arguments} gave the bit {got}, not {want}"
                continue
            word = int(state.v[at][lane]) | (int(state.v[at + 1][lane]) << 32 if _width(kind) == 2 else 0)
            if wanted is None:
                before = v[at] if np.ndim(v[at]) == 0 else v[at][lane]
                assert int(state.v[at][lane]) == int(before), (
                    f"{target} {case.text}: lane {lane} is off but was written"
                )
                continue
            if kind.endswith("16") and not kind.startswith("PK"):
                _check_upper_half(case, word, target, int(v[at] if np.ndim(v[at]) == 0 else v[at][lane]))
                word &= 0xFFFF
            assert matches(word, want, kind, tolerance), (
                f"{target} {case.text}: lane {lane} of {arguments} ({[hex(g[lane]) for g in given]}) gave {word:#x}, "
                f"not {want!r}"
            )


def _check_upper_half(case: Case, word: int, target: str, before: int) -> None:
    keeps = target.startswith("gfx1") or case.name in KEEPS
    expected = before >> 16 if keeps else 0
    assert word >> 16 == expected, f"{target} {case.text}: the upper half is {word >> 16:#x}, not {expected:#x}"


# On GFX9 the instructions of three operands with op_sel keep the other half; older ones write zeros.
KEEPS = frozenset(
    [
        "v_fma_f16",
        "v_div_fixup_f16",
        "v_mad_u16",
        "v_mad_i16",
        "v_add_i16",
        "v_sub_i16",
        "v_cvt_pk_fp8_f32",
        "v_cvt_pk_bf8_f32",
        "v_cvt_pk_fp8_f32_ocp",
        "v_cvt_pk_bf8_f32_ocp",
        "v_ashr_pk_i8_i32",
        "v_ashr_pk_u8_i32",
    ]
    + [f"v_{op}3_{kind}" for op in ("min", "max", "med") for kind in ("f16", "u16", "i16")]
)
