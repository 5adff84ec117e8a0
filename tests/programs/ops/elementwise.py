"""Elementwise steps: unary, binary, where, comparisons, casts, integers."""

from __future__ import annotations

import torch

from tests.programs.builder import Draw, Unsuited
from tests.programs.ops.table import kind

SMOOTH = (
    "tanh", "sigmoid", "sin", "cos", "square", "neg", "erf", "atan", "exp", "expm1", "asinh", "nn.functional.gelu",
    "nn.functional.silu", "nn.functional.softplus", "nn.functional.mish", "nn.functional.logsigmoid", "sinh",
)  # fmt: skip
BENT = {
    "relu": (0.0,), "abs": (0.0,), "nn.functional.leaky_relu": (0.0,), "nn.functional.elu": (0.0,),
    "nn.functional.hardswish": (-3.0, 3.0), "nn.functional.relu6": (0.0, 6.0), "sign": (0.0,),
    "floor": tuple(range(-9, 9)),
    "round": tuple(n + 0.5 for n in range(-9, 9)), "trunc": tuple(range(-9, 9)),
}  # fmt: skip


@kind(4)
def unary(d: Draw) -> None:
    x = d.value()
    if d.chance(0.7):
        name = d.one_of(*SMOOTH)
        d.step("unary", f"L.{name}({{0}})", x)
    else:
        name = d.one_of(*BENT)
        if name in ("floor", "round", "trunc", "sign") and float(d[x].abs().max() if d[x].numel() else 0) > 8:
            raise Unsuited
        d.step("unary", f"L.{name}({{0}})", x, guard=f"off({{0}}, {', '.join(map(str, BENT[name]))})")


@kind(1)
def root(d: Draw) -> None:
    """Functions of positive numbers only."""
    x = d.value()
    name = d.one_of("sqrt", "log", "rsqrt", "reciprocal", "log1p", "log2")
    d.step("root", f"L.{name}(L.abs({{0}}) + {d.one_of(0.5, 1.0)})", x, guard="off({0}, 0.0)")


@kind(4)
def binary(d: Draw) -> None:
    x = d.value()
    y = d.like(tuple(d[x].shape)) if d.chance(0.9) else x
    pair = (x, y) if d.chance(0.6) else (y, x)
    name = d.one_of("add", "sub", "mul", "mul", "div", "maximum", "minimum", "atan2", "hypot", "logaddexp")
    if name in ("maximum", "minimum"):
        d.step("binary", f"L.{name}({{0}}, {{1}})", *pair, guard="off({0} - {1}, 0.0) if {0} is not {1} else 1.0")
    elif name in ("div", "atan2", "hypot"):
        d.step("binary", f"L.{name}({{0}}, {{1}} * {{1}} + 0.7)", *pair)
    else:
        d.step("binary", f"L.{name}({{0}}, {{1}})", *pair)


@kind(2)
def scalar(d: Draw) -> None:
    x = d.value()
    c = d.number()
    text = d.one_of("{0} * %s", "{0} + %s", "%s - {0}", "{0} / %s", "%s * {0}", "L.add({0}, {0}, alpha=%s)")
    d.step("scalar", text % c, x)


@kind(1)
def powers(d: Draw) -> None:
    x = d.value()
    if d.chance(0.5):
        d.step("power", f"{{0}} ** {d.one_of(2, 3)}", x)
    else:
        d.step("power", f"(L.abs({{0}}) + 0.5) ** {d.one_of(0.5, -1.0, 1.5, -0.3)}", x, guard="off({0}, 0.0)")


@kind(1)
def clamp(d: Draw) -> None:
    x = d.value()
    low, high = sorted((d.number(), d.number()))
    text = d.one_of(f"L.clamp({{0}}, {low}, {high})", f"L.clamp({{0}}, min={low})", f"L.clamp({{0}}, max={high})")
    d.step("clamp", text, x, guard=f"off({{0}}, {low}, {high})")


@kind(1.5)
def compare(d: Draw) -> None:
    x = d.value()
    name = d.one_of("lt", "gt", "le", "ge")
    if d.chance(0.5):
        c = d.number()
        d.step("compare", f"L.{name}({{0}}, {c})", x, guard=f"off({{0}}, {c})")
    else:
        y = d.like(tuple(d[x].shape))
        d.step("compare", f"L.{name}({{0}}, {{1}})", x, y, guard="float(({0} - {1}).abs().min())")


@kind(2)
def where(d: Draw) -> None:
    x = d.value()
    shape = tuple(d[x].shape)
    mask = d.mask(shape)
    text = d.one_of(
        "L.where({0}, {1}, {2})", f"L.where({{0}}, {{1}}, {d.number()})", f"L.masked_fill({{1}}, {{0}}, {d.number()})",
        "{1} * {0}", "L.where({0}, {2} * 2.0, {1})",
    )  # fmt: skip
    operands = (mask, x, d.like(shape)) if "{2}" in text else (mask, x)
    d.step("where", text, *operands)


@kind(1)
def integers(d: Draw) -> None:
    x = d.discrete()
    text = d.one_of(
        "{0} + 1", "{0} * 2", "L.remainder({0}, 3)", "L.div({0}, 3, rounding_mode='floor')", "{0} & 5", "{0} == 1",
        "{0} > 0",
        "L.abs({0})", "{0}.to(L.int64)", "{0}.sum()", "-{0}", "{0} * 0.5", "{0}.to(L.bool)", "L.square({0})",
        "{0}.prod()", "L.clamp({0}, -1, 2)",
    )  # fmt: skip
    d.step("integer", text, x)


@kind(0.7)
def bools(d: Draw) -> None:
    x = d.pick(d.find(lambda t: t.dtype == torch.bool))
    text = d.one_of(
        "L.logical_not({0})", "{0}.to(L.int64)", "{0}.sum()", "{0}.any()", "{0}.all()", "~{0}", "{0} | (~{0})",
        f"{{0}}.to(L.{d.dtype})", "{0}.to(L.int32) * 3",
    )  # fmt: skip
    d.step("bool", text, x)


@kind(1)
def mixed(d: Draw) -> None:
    """A float and an integer or bool: promotion."""
    x = d.value()
    y = d.pick(d.find(lambda t: not t.is_floating_point() and d.fits(t.shape, d[x].shape)))
    d.step("mixed", d.one_of("{0} * {1}", "{0} + {1}", "{1} - {0}" if d[y].dtype != torch.bool else "{0} + {1}"), x, y)


@kind(0.8)
def random(d: Draw) -> None:
    x = d.value()
    seed = d.integer(0, 1 << 30)
    text = d.one_of(f"dropout({{0}}, {d.one_of(0.1, 0.5)}, {seed})", f"{{0}} + noise({{0}}, {seed})")
    d.step("random", text, x)


@kind(0.8)
def cast(d: Draw) -> None:
    if any(s.write for s in d.steps):  # x.to(its own dtype) is x itself: a later write would be seen
        raise Unsuited
    x = d.value()
    to = d.one_of("float32", "float64", d.dtype, d.dtype)
    if d.chance(0.2) and d.dtype in ("float64", "float32"):
        if float(d[x].abs().max() if d[x].numel() else 0) > 8:
            raise Unsuited
        d.step(
            "cast",
            f"{{0}}.to(L.{d.one_of('int64', 'int32', 'int8')})",
            x,
            guard=f"off({{0}}, {', '.join(map(str, range(-9, 9)))})",
        )
    else:
        d.step("cast", f"{{0}}.to(L.{to})", x)
