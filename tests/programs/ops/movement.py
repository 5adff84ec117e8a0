"""Steps that move elements without computing: reshape, permute, slices, pad, cat and their like."""

from __future__ import annotations

from math import prod

from tests.programs.builder import Draw, Unsuited
from tests.programs.ops.table import kind


@kind(2)
def reshape(d: Draw) -> None:
    x = d.anything()
    shape = list(d[x].shape)
    choice = d.integer(0, 4)
    if choice == 0:
        d.step("movement", "{0}.flatten()", x)
    elif choice == 1 and len(shape) >= 2:
        at = d.integer(0, len(shape) - 2)
        shape[at : at + 2] = [shape[at] * shape[at + 1]]
        d.step("movement", f"{{0}}.reshape({tuple(shape)})", x)
    elif choice == 2 and shape:
        at = d.integer(0, len(shape) - 1)
        factors = [n for n in range(1, shape[at] + 1) if shape[at] % n == 0]
        if not factors:
            raise Unsuited
        first = d.one_of(*factors)
        shape[at : at + 1] = [first, shape[at] // first]
        d.step("movement", f"{{0}}.reshape({tuple(shape)})", x)
    elif choice == 3:
        d.step("movement", f"{{0}}.unsqueeze({d.integer(0, len(shape))})", x)
    else:
        d.random.shuffle(shape)
        d.step("movement", f"{{0}}.reshape({tuple(shape)})", x)


@kind(2)
def permute(d: Draw) -> None:
    x = d.anything(1)
    n = d[x].ndim
    order = tuple(d.random.sample(range(n), n))
    text = d.one_of(f"{{0}}.permute({order})", f"{{0}}.transpose({d.axis(x, True)}, {d.axis(x, True)})")
    d.step("movement", text, x)


@kind(1)
def expand(d: Draw) -> None:
    x = d.anything()
    shape = [d.integer(2, 4) if n == 1 else n for n in d[x].shape]
    lead = [d.size()] if d.chance(0.5) else []
    d.step("movement", f"{{0}}.expand({(*lead, *shape)})", x)


@kind(1.5)
def reorder(d: Draw) -> None:
    x = d.anything(1)
    axis = d.axis(x, empty=True)
    shift = d.integer(-3, 5)
    text = d.one_of(
        f"L.flip({{0}}, ({axis},))", f"L.roll({{0}}, {shift}, {axis})", f"L.flip({{0}}, {d.axes(x)})",
        f"{{0}}.repeat({tuple(d.integer(1, 2) for _ in range(d[x].ndim + d.integer(0, 1)))})",
        f"L.repeat_interleave({{0}}, {d.integer(1, 3)}, dim={axis})", "L.tile({0}, (2,))",
    )  # fmt: skip
    d.step("movement", text, x)


@kind(1.5)
def pad(d: Draw) -> None:
    x = d.value(1, empty=False)
    shape = d[x].shape
    widths: list[int] = []
    for n in reversed(shape[-d.integer(1, min(3, len(shape))) :]):
        low = d.integer(-min(2, n - 1), 3)
        widths += [low, d.integer(max(-1, 1 - n - min(low, 0)), 3)]
    value = d.one_of("", f", value={d.number()}")
    d.step("pad", f"L.nn.functional.pad({{0}}, {tuple(widths)}{value})", x)


@kind(0.5)
def mirror(d: Draw) -> None:
    """Padding that repeats the tensor's own elements."""
    x = d.value(2, 4, empty=False)
    n = d[x].shape[-1]
    mode = d.one_of("reflect", "replicate", "circular")
    most = n - 1 if mode == "reflect" else n
    if d[x].ndim not in (2, 3) or most < 1:
        raise Unsuited
    widths = (d.integer(0, min(3, most)), d.integer(0, min(3, most)))
    d.step("pad", f"L.nn.functional.pad({{0}}, {widths}, mode='{mode}')", x)


def random_slice(d: Draw, n: int, backwards: bool = True) -> str:
    """A slice along an axis of n elements, with a start, an end and a step, any of which may be missing."""
    step = d.one_of(1, 1, 1, 2, 3)
    start = d.integer(-n, n - 1) if n and d.chance(0.6) else ""
    stop = d.integer(0, n) if d.chance(0.4) else ""
    return f"{start}:{stop}" + (f":{step}" if step != 1 else "")


@kind(3)
def view(d: Draw) -> None:
    x = d.anything(1)
    shape = d[x].shape
    items = []
    for n in shape[: d.integer(1, len(shape))]:
        items.append(str(d.integer(-n, n - 1)) if n and d.chance(0.25) else random_slice(d, n))
    if d.chance(0.15):
        items.insert(d.integer(0, len(items)), "None")
    text = d.one_of(", ".join(items), ", ".join(items), "..., " + random_slice(d, shape[-1]))
    d.step("view", f"{{0}}[{text}]", x)


@kind(3)
def cut(d: Draw) -> None:
    """Part of one axis: the plainest view, and the one that other steps most often fuse with."""
    x = d.anything(1, empty=False)
    shape = d[x].shape
    axis = d.integer(0, len(shape) - 1)
    start = d.integer(0, shape[axis] - 1)
    d.step("view", f"{{0}}[{':, ' * axis}{start or ''}:{d.integer(start + 1, shape[axis])}]", x)


@kind(1)
def windows(d: Draw) -> None:
    x = d.anything(1, empty=False)
    axis = d.axis(x)
    size = d.integer(1, min(4, d[x].shape[axis]))
    d.step("view", f"{{0}}.unfold({axis}, {size}, {d.integer(1, 3)})", x)


@kind(1)
def triangle(d: Draw) -> None:
    x = d.anything(2)
    text = d.one_of(
        f"L.tril({{0}}, {d.integer(-2, 2)})", f"L.triu({{0}}, {d.integer(-2, 2)})", "L.diagonal({0}, 0, -2, -1)"
    )
    d.step("triangle", text, x)


@kind(2.5)
def join(d: Draw) -> None:
    x = d.value(1)
    shape = list(d[x].shape)
    axis = d.integer(0, len(shape) - 1)
    fitting = d.find(
        lambda t: (
            t.is_floating_point()
            and t.ndim == len(shape)
            and all(a == b or k == axis for k, (a, b) in enumerate(zip(t.shape, shape, strict=True)))
        )
    )
    others = [d.pick(fitting) for _ in range(d.integer(0, 2))]
    if d.chance(0.4):
        shape[axis] = d.size()
        others.append(d.input(tuple(shape)))
    operands = [x, *others]
    holes = ", ".join(f"{{{n}}}" for n in range(len(operands)))
    same = all(d[o].shape == d[x].shape for o in operands)
    if same and d.chance(0.4):
        d.step("join", f"L.stack([{holes}], dim={d.integer(0, d[x].ndim)})", *operands)
    else:
        d.step("join", f"L.cat([{holes}], dim={axis})", *operands)


@kind(1)
def parts(d: Draw) -> None:
    x = d.anything(1, empty=False)
    axis = d.axis(x)
    n = d[x].shape[axis]
    first = d.integer(0, n)
    text = d.one_of(
        f"L.split({{0}}, {d.integer(1, n)}, dim={axis})", f"L.split({{0}}, [{first}, {n - first}], dim={axis})",
        f"L.chunk({{0}}, {d.integer(1, 4)}, dim={axis})", f"L.unbind({{0}}, dim={axis})",
    )  # fmt: skip
    if prod(d[x].shape) > 4000 and "unbind" in text:
        raise Unsuited
    d.parts(d.step("parts", text, x))
