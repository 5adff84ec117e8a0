"""Sums of products in index notation, by views, broadcast products and matmul.

Operands are taken pairwise from the left. A pair that shares a summed index becomes one batched matmul: indices that
stay in both are batch axes, the others are merged into rows and columns. A pair that shares none is multiplied.
Letters label axes; the axes of an ellipsis are labelled by their distance from its right end, as "…0", "…1".
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from pyflame.core.errors import ArgumentError, DTypeError, ShapeError
from pyflame.ir import F, Node, Sample, composite
from pyflame.ops.base import want_tensors, want_whole

Labels = list[str]


def _parse(equation: str, operands: list[Node]) -> tuple[list[Labels], Labels]:
    """Labels of each operand's axes and of the result's."""
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(operands):
        raise ArgumentError(f"[einsum] expected {len(terms)} operands for {equation!r} but got {len(operands)}")
    inputs = [_expand(equation, term, x) for term, x in zip(terms, operands, strict=True)]
    dots = sorted(
        {label for labels in inputs for label in labels if label[0] == "…"}, key=lambda label: -int(label[1:])
    )
    every = [label for labels in inputs for label in labels]
    if not arrow:
        return inputs, dots + sorted(label for label in set(every) if label[0] != "…" and every.count(label) == 1)
    output = _letters(equation, right, dots)
    unknown = set(output) - set(every)
    if unknown or len(set(output)) != len(output):
        raise ArgumentError(f"[einsum] expected each index of the result once, from the operands, but got {equation!r}")
    return inputs, output


def _letters(equation: str, term: str, dots: Labels) -> Labels:
    before, ellipsis, after = term.partition("...")
    if not all(c.isalpha() and c.isascii() for c in before + after):
        raise ArgumentError(f"[einsum] expected letters, '...', ',' and one '->' but got {equation!r}")
    return [*before, *(dots if ellipsis else []), *after]


def _expand(equation: str, term: str, x: Node) -> Labels:
    hidden = x.ndim - len(term.replace("...", ""))
    labels = _letters(equation, term, [f"…{n}" for n in reversed(range(max(hidden, 0)))])
    if len(labels) != x.ndim:
        raise ShapeError(f"[einsum] expected {len(labels)} axes for {term!r} in {equation!r} but got shape {x.shape}")
    return labels


def _sizes(equation: str, inputs: list[Labels], operands: list[Node]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for labels, x in zip(inputs, operands, strict=True):
        for label, size in zip(labels, x.shape, strict=True):
            known = sizes.setdefault(label, size)
            if known == 1:
                sizes[label] = size
            elif size not in (1, known):
                raise ShapeError(
                    f"[einsum] expected one size for index {label!r} of {equation!r} but got {known} and {size}"
                )
    return sizes


def _diagonal(x: Node, labels: Labels) -> tuple[Node, Labels]:
    """Leave one axis of each label: the diagonal of an (n, n) pair is every (n+1)-th of its n*n elements."""
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            rest = [a for a in range(x.ndim) if a not in (first, second)]
            n = x.shape[first]
            if x.shape[second] != n:
                raise ShapeError(
                    f"[einsum] expected a square for index {label!r} but got sizes {n} and {x.shape[second]}"
                )
            kept = tuple(x.shape[a] for a in rest)
            flat = F.reshape(F.permute(x, (*rest, first, second)), (*kept, n * n))
            x = F.slice(flat, (*((0, 1, size) for size in kept), (0, n + 1, n)))
            labels = [*(labels[a] for a in rest), label]
    return x, labels


def _summed(x: Node, labels: Labels, keep: set[str]) -> tuple[Node, Labels]:
    """Sum over the labels that nobody else has."""
    axes = tuple(a for a, label in enumerate(labels) if label not in keep)
    if not axes:
        return x, labels
    return F.sum(x, axes, dtype=x.dtype), [label for label in labels if label in keep]


def _aligned(x: Node, labels: Labels, order: Labels) -> Node:
    """x with its axes in this order and axes of size 1 for labels it lacks."""
    x = F.permute(x, tuple(labels.index(label) for label in order if label in labels))
    have = iter(x.shape)
    return F.reshape(x, tuple(next(have) if label in labels else 1 for label in order))


def _pair(x: Node, a: Labels, y: Node, b: Labels, keep: set[str], sizes: dict[str, int]) -> tuple[Node, Labels]:
    """The product of two operands, summed over labels that are not kept."""
    x, a = _summed(x, a, keep | set(b))
    y, b = _summed(y, b, keep | set(a))
    contracted = [label for label in a if label in b and label not in keep]
    batch = [label for label in a if label in b and label in keep]
    rows = [label for label in a if label not in b]
    columns = [label for label in b if label not in a]
    order = batch + rows + columns
    if not contracted:
        return F.mul(_aligned(x, a, order), _aligned(y, b, order)), order
    inner = tuple(sizes[label] for label in contracted)

    def matrix(z: Node, labels: Labels, outer: Labels, swap: bool) -> Node:
        z = _aligned(z, labels, batch + (contracted + outer if swap else outer + contracted))
        head = z.shape[: len(batch)]
        free = tuple(
            z.shape[len(batch) + len(contracted) :] if swap else z.shape[len(batch) : z.ndim - len(contracted)]
        )
        z = F.expand(z, (*head, *inner, *free) if swap else (*head, *free, *inner))
        return F.reshape(z, (*head, prod(inner), prod(free)) if swap else (*head, prod(free), prod(inner)))

    out = F.matmul(matrix(x, a, rows, False), matrix(y, b, columns, True))
    free = [x.shape[a.index(label)] for label in rows] + [y.shape[b.index(label)] for label in columns]
    return F.reshape(out, (*out.shape[: len(batch)], *free)), order


def _named(*args: Any) -> tuple[str, tuple[Any, ...]]:
    """(x, [0, 1], y, [1, 2], [0, 2]) as an equation and its operands."""
    operands, axes = args[: len(args) // 2 * 2 : 2], [*args[1::2], *(args[-1:] if len(args) % 2 else ())]
    if any(isinstance(a, str) for a in args):
        raise DTypeError("[einsum] expected an equation such as 'ij,jk->ik' before the operands but got a tensor first")

    def letters(listed: Any) -> str:
        if not isinstance(listed, (list, tuple)) or not all(
            a is ... or 0 <= want_whole("einsum", "axis", a) < 52 for a in listed
        ):
            raise ArgumentError(f"[einsum] expected a list of axes from 0 to 51, or ..., but got {listed!r}")
        return "".join("..." if a is ... else chr(a + (ord("A") if a < 26 else ord("a") - 26)) for a in listed)

    named = [letters(listed) for listed in axes]
    result = ["->" + named.pop()] if len(args) % 2 else []
    return ",".join(named) + "".join(result), operands


def _einsum_samples() -> list[Sample]:
    r = np.random.default_rng(0).standard_normal
    return [
        Sample(("ij,jk->ik", r((3, 4)), r((4, 5)))),
        Sample(("ij,jk", r((3, 4)), r((4, 5)))),
        Sample(("bqhd,bkhd->bhqk", r((2, 3, 2, 4)), r((2, 5, 2, 4)))),
        Sample(("bhqk,bkhd->bqhd", r((2, 2, 3, 5)), r((2, 5, 2, 4)))),
        Sample(("...ij,...jk->...ik", r((2, 1, 3, 4)), r((5, 4, 2)))),
        Sample(("i,j->ji", r(3), r(4))),
        Sample(("ii->i", r((4, 4)))),
        Sample(("ii", r((3, 3)))),
        Sample(("iji->j", r((3, 2, 3)))),
        Sample(("ij->ji", r((3, 4)))),
        Sample(("ij->", r((3, 4)))),
        Sample(("i...->...", r((3, 4, 2)))),
        Sample(("ij,jk,kl->il", r((2, 3)), r((3, 4)), r((4, 2)))),
        Sample(("ij,ij->", r((3, 4)), r((3, 4)))),
        Sample(("ijk,jk,k->i", r((2, 3, 4)), r((3, 4)), r(4))),
        Sample(("abc,cde->abde", r((2, 3, 4)), r((4, 2, 3)))),
        Sample(("i,->i", r(3), np.array(2.0))),
        Sample(("ij,jk->ik", r((3, 0)), r((0, 2)))),
        Sample(("b i j, b j -> b i", r((2, 3, 4)), r((2, 4)))),
        Sample((r((2, 3)), [0, 1], r((3, 4)), [1, 2], [2, 0])),
        Sample((r((2, 3, 4)), [..., 7, 5], r((3, 4)), [7, 5])),
    ]


@composite(reference=np.einsum, torch="einsum", method=False, samples=_einsum_samples)
def einsum(equation: Any, *operands: Any) -> Node:
    """Sum of products over named axes. Axes may be numbers too: each operand, then a list of its axes, and last, if
    wanted, a list of the result's.

    >>> pf.einsum("bqhd,bkhd->bhqk", pf.ones(2, 3, 4, 5), pf.ones(2, 6, 4, 5)).shape
    (2, 4, 3, 6)
    """
    if isinstance(equation, Node):
        equation, operands = _named(equation, *operands)
    if not isinstance(equation, str):
        raise DTypeError(f"[einsum] expected an equation such as 'ij,jk->ik' but got {type(equation).__name__}")
    given = list(operands[0]) if len(operands) == 1 and isinstance(operands[0], (list, tuple)) else list(operands)
    want_tensors("einsum", **{f"operand {number}": x for number, x in enumerate(given)})
    inputs, output = _parse(equation, given)
    terms = [_diagonal(x, labels) for x, labels in zip(given, inputs, strict=True)]
    sizes = _sizes(equation, [labels for _, labels in terms], [x for x, _ in terms])
    x, labels = terms[0]
    for position, (y, others) in enumerate(terms[1:], 1):
        later = {label for _, rest in terms[position + 1 :] for label in rest}
        x, labels = _pair(x, labels, y, others, later | set(output), sizes)
    x, labels = _summed(x, labels, set(output))
    return F.permute(x, tuple(labels.index(label) for label in output))
