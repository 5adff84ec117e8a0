"""Steps of networks: products, convolutions, attention, norms, pools, losses."""

from __future__ import annotations

from math import prod

import torch

from tests.programs.builder import Draw, Unsuited
from tests.programs.ops.table import kind


@kind(4)
def matmul(d: Draw) -> None:
    x = d.value(1, 4)
    k = d[x].shape[-1]
    fitting = d.find(lambda t: t.is_floating_point() and t.ndim >= 1 and t.shape[-2 if t.ndim > 1 else -1] == k)
    if fitting and d.chance(0.5):
        y = d.pick(fitting)
    else:
        lead = tuple(d[x].shape[:-2]) if d[x].ndim > 2 and d.chance(0.5) else ()
        y = d.input((*lead, k, d.size()) if d.chance(0.9) else (k,))
    scale = "" if k < 8 else f" * {round(k**-0.5, 3)}"
    d.step("matmul", d.one_of("{0} @ {1}", "L.matmul({0}, {1})") + scale, x, y)


@kind(0.7)
def gram(d: Draw) -> None:
    """A value times its own transpose."""
    x = d.value(2, 4)
    text = d.one_of("{0} @ {0}.transpose(-1, -2)", "{0}.transpose(-1, -2) @ {0}")
    d.step("matmul", f"({text}) * {round(max(d[x].shape[-1], 1) ** -0.5, 3)}", x)


@kind(2)
def linear(d: Draw) -> None:
    x = d.value(1, 4)
    n, k = d.size(), d[x].shape[-1]
    weight = d.input((n, k))
    operands = [x, weight] + ([d.input((n,))] if d.chance(0.6) else [])
    d.step("linear", f"L.nn.functional.linear({', '.join(f'{{{i}}}' for i in range(len(operands)))})", *operands)


@kind(1)
def einsum(d: Draw) -> None:
    x = d.value(2, 3)
    if d[x].ndim == 2:
        i, j = d[x].shape
        rule, shape = d.one_of(
            ("ij,jk->ik", (j, d.size())),
            ("ij,ij->j", (i, j)),
            ("ij,kj->ki", (d.size(), j)),
            ("ij,k->ikj", (d.size(),)),
            ("ij,j->i", (j,)),
        )
    else:
        b, i, j = d[x].shape
        rule, shape = d.one_of(
            ("bij,bjk->bik", (b, j, d.size())),
            ("bij,kj->bik", (d.size(), j)),
            ("bij,bij->bi", (b, i, j)),
            ("bij,bkj->bik", (b, d.size(), j)),
        )
    d.step("einsum", f"L.einsum('{rule}', {{0}}, {{1}})", x, d.like(shape, exact=True))


@kind(2.5)
def convolution(d: Draw) -> None:
    n = d.one_of(1, 2, 2, 3)
    found = d.find(lambda t: t.is_floating_point() and t.ndim == n + 2 and t.numel() > 0)
    extents = tuple(d.integer(3, 20 if n == 1 else 9) for _ in range(n))
    x = d.pick(found) if found and d.chance(0.7) else d.input((d.integer(1, 3), d.one_of(1, 2, 3, 4, 6), *extents))
    channels = d[x].shape[1]
    groups = d.one_of(*[g for g in (1, 1, 2, 3, channels) if channels % g == 0])
    transposed = d.chance(0.3)
    made = groups * d.integer(1, 3)
    kernel = tuple(d.integer(1, 3) for _ in range(n))
    shape = (channels, made // groups, *kernel) if transposed else (made, channels // groups, *kernel)
    weight = d.input(shape)
    operands = [x, weight] + ([d.input((made,))] if d.chance(0.5) else [])
    stride, dilation = d.one_of(1, 1, 2, 3), d.one_of(1, 1, 2)
    padding = d.integer(0, 2) if not transposed else d.integer(0, min(kernel) // 2)
    options = f"stride={stride}, padding={padding}, dilation={dilation}, groups={groups}"
    if transposed and stride > 1:
        options += f", output_padding={d.integer(0, stride - 1)}"
    name = f"conv_transpose{n}d" if transposed else f"conv{n}d"
    holes = ", ".join(f"{{{i}}}" for i in range(len(operands)))
    d.step("convolution", f"L.nn.functional.{name}({holes}, {options})", *operands)


@kind(1.2)
def attention(d: Draw) -> None:
    found = d.find(lambda t: t.is_floating_point() and t.ndim in (3, 4) and t.numel() > 0)
    q = d.pick(found) if found and d.chance(0.6) else d.input((2, d.integer(1, 2), d.integer(1, 9), d.integer(1, 8)))
    *lead, length, width = d[q].shape
    keys = length if d.chance(0.5) else d.integer(1, 9)
    k, v = d.like((*lead, keys, width), exact=True), d.like((*lead, keys, width), exact=True)
    option = d.one_of("", "", ", is_causal=True", ", scale=0.3", ", attn_mask={3}", ", attn_mask=causal")
    operands = [q, k, v]
    if "{3}" in option:
        operands.append(d.input((length, keys)))
    option = option.replace("=causal", f"=L.ones({length}, {keys}).tril() > 0")  # no row is masked altogether
    if "is_causal" in option and keys < length:
        raise Unsuited
    call = f"L.nn.functional.scaled_dot_product_attention({{0}}, {{1}}, {{2}}{option})"
    # with other lengths of key and value, as on other shapes, some of torch's kernels read behind the shorter one
    d.step("attention", call, *operands, guard="float({1}.shape[-2] == {2}.shape[-2])")


@kind(2)
def norm(d: Draw) -> None:
    x = d.value(1, 4, empty=False)
    shape = d[x].shape
    name = d.one_of("layer_norm", "rms_norm", "group_norm", "batch_norm", "batch_norm")
    if name in ("layer_norm", "rms_norm"):
        sizes = tuple(shape[-d.integer(1, min(2, len(shape))) :])
        operands = [x] + ([d.input(sizes)] if d.chance(0.6) else [])
        weight = ", {1}" if len(operands) > 1 else ""
        if name == "layer_norm" and weight and d.chance(0.6):
            operands.append(d.input(sizes))
            weight += ", {2}"
        eps = ", eps=0.1" if name == "layer_norm" or weight else ", None, 0.1"
        d.step("norm", f"L.nn.functional.{name}({{0}}, {sizes}{weight}{eps})", *operands)
        return
    if len(shape) < 2:
        raise Unsuited
    channels = shape[1]
    weight, bias = d.input((channels,)), d.input((channels,))
    guard = f"float({{0}}.shape[1] == {channels})"  # on other shapes torch takes any weight beside no numbers
    if name == "group_norm":
        groups = d.one_of(*[g for g in range(1, channels + 1) if channels % g == 0])
        d.step(
            "norm", f"L.nn.functional.group_norm({{0}}, {groups}, {{1}}, {{2}}, eps=0.1)", x, weight, bias, guard=guard
        )
    elif d.chance(0.6):
        call = "L.nn.functional.batch_norm({0}, None, None, {1}, {2}, training=True, eps=0.1)"
        d.step("norm", call, x, weight, bias, guard=guard)
    else:
        mean, var = d.input((channels,), grad=False), d.input((channels,), "positive", grad=False)
        call = "L.nn.functional.batch_norm({0}, {1}, {2}, {3}, {4}, training=False)"
        d.step("norm", call, x, mean, var, weight, bias, guard=guard)


@kind(1.5)
def pool(d: Draw) -> None:
    n = d.one_of(1, 2, 2, 3)
    found = d.find(lambda t: t.is_floating_point() and t.ndim == n + 2 and t.numel() > 0)
    small = tuple(d.integer(3, 9) for _ in range(n))
    x = d.pick(found) if found and d.chance(0.7) else d.input((d.integer(1, 2), d.integer(1, 3), *small))
    kernel = d.integer(1, min(3, *d[x].shape[2:]))
    options = f"{kernel}, stride={d.integer(1, 3)}, padding={d.integer(0, kernel // 2)}"
    axes = ", ".join(str(a) for a in range(2, n + 2))
    name = d.one_of("max", "avg", "avg", "adaptive_avg", "adaptive_max")
    if name.startswith("adaptive"):
        d.step(
            "pool",
            f"L.nn.functional.{name}_pool{n}d({{0}}, {d.integer(1, 4)})",
            x,
            guard=f"apart({{0}}, {axes})" if "max" in name else "",
        )
    elif name == "max":
        d.step("pool", f"L.nn.functional.max_pool{n}d({{0}}, {options})", x, guard=f"apart({{0}}, {axes})")
    else:
        options += d.one_of("", ", ceil_mode=True", ", count_include_pad=False")
        d.step("pool", f"L.nn.functional.avg_pool{n}d({{0}}, {options})", x)


@kind(1.5)
def head(d: Draw) -> None:
    """A linear layer whose logits only a cross-entropy reads, in the ways in which models have it."""
    x = d.value(2, 4, empty=False)
    shape, classes = tuple(d[x].shape), d.size()
    if not classes:
        raise Unsuited
    target = d.index((prod(shape[:-1]),), classes)
    operands = [x, d.input((classes, shape[-1])), target] + ([d.input((classes,))] if d.chance(0.4) else [])
    bias = len(operands) > 3
    rows = f"{{0}}.reshape(-1, {shape[-1]})"
    logits = d.one_of(
        f"L.nn.functional.linear({rows}, {{1}}{', {3}' if bias else ''})",
        f"L.nn.functional.linear({{0}}, {{1}}{', {3}' if bias else ''}).view(-1, {classes})",
        f"({{0}} @ {{1}}.T{' + {3}' if bias else ''}).view(-1, {classes})",
    )
    options = f"reduction='{d.one_of('mean', 'sum', 'none')}'"
    options += d.one_of("", "", ", label_smoothing=0.1") + (", ignore_index=0" if d.chance(0.2) else "")
    call = f"L.nn.functional.cross_entropy({logits}, {{2}}, {options})"
    if d.chance(0.4) and hasattr(torch.nn.functional, "linear_cross_entropy"):  # not in torch 2.11
        given = ", linear_bias={3}" if bias else ""
        call = f"L.nn.functional.linear_cross_entropy({rows}, {{1}}, {{2}}{given}, {options})"
    d.step("head", call, *operands)


@kind(1.5)
def loss(d: Draw) -> None:
    name = d.one_of(
        "cross_entropy", "cross_entropy", "mse_loss", "nll_loss", "binary_cross_entropy_with_logits", "smooth_l1_loss"
    )
    reduction = d.one_of("mean", "sum", "none")
    if name in ("cross_entropy", "nll_loss"):
        x = d.value(2, 4, empty=False)
        shape = tuple(d[x].shape)
        target = d.index((shape[0], *shape[2:]), shape[1])
        source = "L.log_softmax({0}, 1)" if name == "nll_loss" else "{0}"
        d.step("loss", f"L.nn.functional.{name}({source}, {{1}}, reduction='{reduction}')", x, target)
        return
    x = d.value(1, empty=False)
    y = d.input(tuple(d[x].shape), "unit")
    guard = "off(({0} - {1}).abs(), 1.0)" if name == "smooth_l1_loss" else ""
    d.step("loss", f"L.nn.functional.{name}({{0}}, {{1}}, reduction='{reduction}')", x, y, guard=guard)
