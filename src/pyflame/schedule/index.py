"""Where a value is read: affine index forms over the ranges of a loop nest.

Inside a kernel every value has one form per axis: `offset + sum(coefficient * range)`. Movement ops rewrite forms, so
reshape, permute, slice and expand cost nothing. A reshape may need a range split in two (`i -> hi*n + lo`); forms that
were made before the split are rewritten by `normalize`. When no split fits, the reshape needs its source in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import count
from math import prod
from typing import NamedTuple

from pyflame.core.shape import Shape, contiguous_strides, equal_runs
from pyflame.ir import Node

dense_strides = lru_cache(maxsize=4096)(contiguous_strides)  # asked for at every access
_uids = count()


class Range:
    """A loop variable running over [0, extent). `parts` is set when it has been split into finer ranges."""

    __slots__ = ("extent", "parts", "uid")

    def __init__(self, extent: int) -> None:
        self.extent = extent
        self.parts: tuple[tuple[Range, int], ...] | None = None
        self.uid = next(_uids)

    def __repr__(self) -> str:
        return f"r{self.uid}<{self.extent}>"

    def leaves(self) -> list[Range]:
        """The finest ranges this one is made of, outermost first."""
        if self.parts is None:
            return [self]
        return [leaf for part, _ in self.parts for leaf in part.leaves()]

    def split(self, inner: int) -> None:
        """Become hi*inner + lo."""
        self.parts = ((Range(self.extent // inner), inner), (Range(inner), 1))


class Form(NamedTuple):
    """offset + sum(coefficient * range), with ranges of extent 1 left out. A tuple: forms are keys everywhere."""

    offset: int
    terms: tuple[tuple[Range, int], ...]

    def __repr__(self) -> str:
        return " + ".join([str(self.offset), *(f"{c}*{r}" for r, c in self.terms)])

    def scaled(self, factor: int, offset: int = 0) -> Form:
        return Form(self.offset * factor + offset, tuple([(r, c * factor) for r, c in self.terms]))


ZERO = Form(0, ())
Index = tuple[Form, ...]


def of_range(r: Range) -> Form:
    return ZERO if r.extent == 1 else Form(0, ((r, 1),))


def normalize(form: Form) -> Form:
    """Rewrite split ranges by their parts."""
    for r, _ in form.terms:
        if r.parts is not None:
            break
    else:
        return form
    terms: list[tuple[Range, int]] = []
    stack = list(reversed(form.terms))
    while stack:
        r, coefficient = stack.pop()
        if r.parts is not None:
            stack.extend((part, coefficient * c) for part, c in reversed(r.parts))
        elif r.extent != 1:
            terms.append((r, coefficient))
    return combine([Form(form.offset, tuple(terms))], [1])


def settled(index: Index) -> Index:
    """Rewrite split ranges in all forms of an index."""
    for form in index:
        for r, _ in form.terms:
            if r.parts is not None:
                return tuple([normalize(f) for f in index])
    return index


def used_ranges(index: Index) -> set[Range]:
    """The ranges that an index changes with."""
    return {r for form in settled(index) for r, _ in form.terms}


def combine(forms: Sequence[Form], factors: Sequence[int]) -> Form:
    """sum(factor * form), terms of one range merged."""
    total = 0
    found: list[tuple[Range, int]] = []
    for (offset, terms), factor in zip(forms, factors, strict=True):
        total += offset * factor
        found += [(r, c * factor) for r, c in terms]
    if len(found) > 1:
        merged: dict[Range, int] = {}
        for r, c in found:
            merged[r] = merged.get(r, 0) + c
        found = sorted(merged.items(), key=_by_uid)
    return Form(total, tuple([term for term in found if term[1]]))


def _by_uid(term: tuple[Range, int]) -> int:
    return term[0].uid


def flatten(index: Index, strides: Sequence[int]) -> Form:
    """The address, in elements, of an index into a buffer with these strides."""
    index = settled(index)
    return index[0] if len(index) == 1 and strides[0] == 1 else combine(index, strides)


def _divide(form: Form, inner: int, may_split: bool) -> tuple[Form, Form] | None:
    """Forms of (form // inner, form % inner), splitting ranges where that makes them affine; None where it cannot."""
    form = normalize(form)
    for _ in range(16):
        high: list[tuple[Range, int]] = []
        low: list[tuple[Range, int]] = []
        straddling = None
        for r, c in form.terms:
            if c % inner == 0:
                high.append((r, c // inner))
            elif 0 < c < inner and c * (r.extent - 1) < inner:
                low.append((r, c))
            else:
                straddling = (r, c)
                break
        if straddling is None:
            offset_high, offset_low = divmod(form.offset, inner)
            reach = offset_low + sum(c * (r.extent - 1) for r, c in low)
            if reach >= inner or any(c < 0 for _, c in low):
                return None
            return Form(offset_high, tuple(high)), Form(offset_low, tuple(low))
        r, c = straddling
        # r*c crosses multiples of `inner`: split r where its coefficient reaches `inner` exactly.
        if not may_split or c < 0 or inner % c or r.extent % (inner // c):
            return None
        r.split(inner // c)
        form = normalize(form)
    return None


def reshape_index(index: Index, shape: Shape, source: Shape, may_split: bool) -> Index | None:
    """Index into `source` for an index into its reshape to `shape`; None where the source must be in memory."""
    # Match runs of axes with equal products; inside a run, flatten and divide again.
    out: list[Form] = []
    for ours, theirs in equal_runs(shape, source):
        run, wanted = shape[ours.start : ours.stop], source[theirs.start : theirs.stop]
        if run == wanted:
            out.extend(index[ours.start : ours.stop])
            continue
        strides = [prod(run[k + 1 :]) for k in range(len(run))]
        rest = flatten(index[ours.start : ours.stop], strides)
        forms: list[Form] = []
        for k in range(len(wanted)):
            inner = prod(wanted[k + 1 :])
            if wanted[k] == 1:
                forms.append(ZERO)
                continue
            divided = (rest, ZERO) if inner == 1 else _divide(rest, inner, may_split)
            if divided is None:
                return None
            forms.append(divided[0])
            rest = divided[1]
        out.extend(forms)
    return tuple(out)


def move(node: Node, index: Index, may_split: bool) -> Index | None:
    """Index into the source of a movement op for an index into its result."""
    source = node.srcs[0].shape
    name = node.op.name
    if name == "reshape":
        if 0 in source:
            return (ZERO,) * len(source)
        return reshape_index(index, node.shape, source, may_split)
    if name == "permute":
        out = [ZERO] * len(source)
        for position, axis in enumerate(node.attrs[0]):
            out[axis] = index[position]
        return tuple(out)
    if name == "expand":
        return broadcast(index, node.shape, source)
    if name == "slice":
        return tuple(f.scaled(step, start) for f, (start, step, _) in zip(index, node.attrs[0], strict=True))
    raise AssertionError(f"movement op {name} has no index map")


def broadcast(index: Index, shape: Shape, source: Shape) -> Index:
    """Index into a source that broadcasts to `shape`."""
    if shape == source:
        return index
    skip = len(shape) - len(source)
    return tuple([ZERO if size == 1 else index[skip + axis] for axis, size in enumerate(source)])


def covers(index: Index, ranges: Sequence[Range], shape: Shape) -> bool:
    """Whether the index visits each element of this shape exactly once as the ranges run."""
    used: list[Range] = []
    for form, size in zip(index, shape, strict=True):
        form = normalize(form)
        step = 1  # digits of a number: each term's steps are as long as what the terms below it span
        for r, c in sorted(form.terms, key=lambda term: term[1]):
            if c != step:
                return False
            step *= r.extent
            used.append(r)
        if form.offset or step != size:
            return False
    leaves = [leaf for r in ranges for leaf in r.leaves() if leaf.extent != 1]
    return len(used) == len(leaves) and set(used) == set(leaves)


def unify(extents: Sequence[int], ranges: Sequence[Range], may_split: bool) -> Index | None:
    """Forms for axes of these extents over existing ranges of the same product, in order, splitting where needed."""
    leaves = [leaf for r in ranges for leaf in r.leaves()]
    if prod(extents) != prod(r.extent for r in leaves):
        return None
    return reshape_index(tuple(of_range(r) for r in leaves), tuple(r.extent for r in leaves), tuple(extents), may_split)


def along_axes(index: Index, shape: Shape, loops: Sequence[Range]) -> list[Range] | None:
    """A range for each axis, of one loop or several, where these loops run over a shape in order; else None."""
    axes: list[Range] = []
    rest = list(loops)
    for form, size in zip(index, shape, strict=True):
        terms = sorted(form.terms, key=lambda term: -term[1])
        own, rest = rest[: len(terms)], rest[len(terms) :]
        digits = tuple(zip(own, dense_strides(tuple([r.extent for r in own])), strict=True))
        if form.offset or tuple(terms) != digits or prod(r.extent for r in own) != size:
            return None
        axes.append(own[0] if len(own) == 1 else Range(size))
        if len(own) > 1:
            axes[-1].parts = digits
    return None if rest else axes
