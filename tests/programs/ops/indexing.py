"""Steps that read or add at computed positions."""

from __future__ import annotations

from tests.programs.builder import Draw, Unsuited
from tests.programs.ops.table import kind


@kind(2)
def select(d: Draw) -> None:
    x = d.anything(1, empty=False)
    axis = d.axis(x)
    index = d.index((d.integer(1, 6) if d.chance(0.8) else d.size(),), d[x].shape[axis])
    d.step("index_select", f"L.index_select({{0}}, {axis}, {{1}})", x, index)


@kind(1.5)
def gather(d: Draw) -> None:
    x = d.anything(1, empty=False)
    axis = d.integer(0, d[x].ndim - 1)
    shape = tuple(
        d.integer(1, 5) if k == axis else d.integer(1, n) if d.chance(0.3) else n for k, n in enumerate(d[x].shape)
    )
    index = d.index(shape, d[x].shape[axis])
    if shape[:axis] + shape[axis + 1 :] == tuple(d[x].shape[:axis] + d[x].shape[axis + 1 :]) and d.chance(0.3):
        d.step("gather", f"L.take_along_dim({{0}}, {{1}}, dim={axis})", x, index)
    else:
        d.step("gather", f"L.gather({{0}}, {axis}, {{1}})", x, index)


@kind(1)
def embedding(d: Draw) -> None:
    weight = d.value(2, 2, empty=False)
    index = d.index(d.shape(1, 2), d[weight].shape[0])
    d.step("embedding", "L.nn.functional.embedding({0}, {1})", index, weight)


@kind(1.5)
def scatter(d: Draw) -> None:
    x = d.value(1, empty=False)
    shape = list(d[x].shape)
    axis = d.integer(0, len(shape) - 1)
    name = d.one_of("scatter_add", "index_add", "scatter_reduce")
    shape[axis] = d.integer(1, 6)
    if name == "index_add":
        index = d.index((shape[axis],), d[x].shape[axis])
        source = d.like(tuple(shape), exact=True)
        d.step("scatter", f"L.index_add({{0}}, {axis}, {{1}}, {{2}}.to({{0}}.dtype))", x, index, source)
        return
    index = d.index(tuple(shape), d[x].shape[axis])
    source = d.like(tuple(shape), exact=True)
    if name == "scatter_add":
        d.step("scatter", f"L.scatter_add({{0}}, {axis}, {{1}}, {{2}}.to({{0}}.dtype))", x, index, source)
    else:
        options = f"reduce='{d.one_of('sum', 'mean')}', include_self={d.chance(0.5)}"
        text = f"L.scatter_reduce({{0}}, {axis}, {{1}}, {{2}}.to({{0}}.dtype), {options})"
        d.step("scatter", text, x, index, source)


@kind(0.8)
def scatter_numbers(d: Draw) -> None:
    """The same number everywhere: where an index repeats, the order does not matter."""
    x = d.value(1, empty=False)
    shape = list(d[x].shape)
    axis = d.integer(0, len(shape) - 1)
    if d.chance(0.5):
        index = d.index((d.integer(1, 4),), shape[axis])
        d.step("scatter", f"L.index_fill({{0}}, {axis}, {{1}}, {d.number()})", x, index)
    else:
        shape[axis] = d.integer(1, 4)
        index = d.index(tuple(shape), d[x].shape[axis])
        d.step("scatter", f"L.scatter({{0}}, {axis}, {{1}}, {d.number()})", x, index)


@kind(1.5)
def advanced(d: Draw) -> None:
    """x[i], x[i, :, j], x[:, i] and so on."""
    x = d.anything(1, empty=False)
    shape = d[x].shape
    count = d.integer(1, 4)
    items, operands, inside = [], [x], []
    for axis, n in enumerate(shape[: d.integer(1, len(shape))]):
        choice = d.integer(0, 3)
        if choice <= 1 and len(operands) < 3:
            operands.append(d.index((count,), n))
            items.append(f"{{{len(operands) - 1}}}")
            inside.append(f"inside({{{len(operands) - 1}}}, {{0}}.shape[{axis}])")
        elif choice == 2:
            items.append(str(d.integer(-n, n - 1)))
        else:
            items.append(d.one_of(":", ":", "1:", "::2"))
    if len(operands) == 1:
        raise Unsuited
    d.step("advanced", f"{{0}}[{', '.join(items)}]", *operands, guard=f"min({', '.join(inside)}, 1.0)")
