"""Every public op at the edges: 0-d and empty tensors, axes of size 1, axes that are not there, bools and small dtypes.

A result has torch's shape and dtype wherever torch gives one; everything else is a typed error. Nothing is computed
here: values are the catalogue's part.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

import pyflame as pf
from pyflame import nn
from pyflame.doctor.samples import map_arrays, outputs_of
from pyflame.ir import OPS, OpDef
from tests.oracle import torch_call, torch_tensor

SHAPES = [(), (0,), (1,), (3,), (0, 3), (3, 0), (1, 3), (2, 3), (2, 0, 3), (2, 1, 3)]
AXES = (0, -1, 5, -5)
DTYPES = (np.bool_, np.int64, np.uint8, np.float16)
NAMES = ("axis", "dim", "dim0", "dimension")

# Differences that stay: the reason, and the ops.
KNOWN = {
    "torch gives uint8 for uint8": ("any", "all"),
    "torch passes empty integers and bools through": ("softmax", "log_softmax", "softmin", "multilabel_margin_loss"),
    "torch has complex numbers of two float16": ("complex", "polar", "view_as_complex"),
    "torch forgets the output channels where there are no input channels": ("conv1d",),
}


def known(name: str) -> bool:
    return any(name in names for names in KNOWN.values())


def places() -> Iterator[tuple[tuple[int, ...], Any, int | None]]:
    for shape in SHAPES:
        for axis in (None, *AXES):
            yield shape, np.float32, axis
    for dtype in DTYPES:
        for shape in ((), (0, 3), (2, 3)):
            for axis in (None, -1):
                yield shape, dtype, axis


def values(shape: tuple[int, ...], dtype: Any) -> Any:
    return np.asarray(np.random.default_rng(3).uniform(0.2, 3.0, shape)).astype(dtype)


def compare(name: str, ours: Callable[[], Any], theirs: Callable[[], Any]) -> str | None:
    """What is wrong with our answer, if anything."""
    try:
        got = outputs_of(ours())
    except pf.PyFlameError:
        return None
    except Exception as error:  # what must not happen: shown with its place
        return f"{type(error).__name__}: {error}"
    try:
        want = outputs_of(theirs())
    except Exception:
        return None  # more than torch takes
    for g, w in zip(got, want, strict=True):
        if isinstance(g, pf.Tensor) and isinstance(w, torch.Tensor):
            mine, its = (g.shape, g.dtype), (tuple(w.shape), pf.as_dtype(w.dtype))
            if mine != its:
                return f"{mine}, torch gives {its}"
    return None


def arguments(op: OpDef, shape: tuple[int, ...], dtype: Any, axis: int | None, make: Callable[[Any], Any]) -> Any:
    """An op's first sample with its float arrays replaced, and the axis; None where it has none to replace."""
    parameters = list(inspect.signature(op.fn).parameters.values())
    needed = sum(p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters)
    assert op.samples is not None
    args = [
        make(values(shape, dtype)) if isinstance(a, np.ndarray) and a.dtype.kind == "f" else map_arrays(a, make)
        for a in op.samples()[0].args[: max(needed, 1)]
    ]
    names = [p.name for p in parameters]
    at = next((names.index(n) for n in NAMES if n in names), None)
    if axis is None or at is None:
        return args, {}, at
    if at < len(args):
        args[at] = axis
        return args, {}, at
    return args, {names[at]: axis}, at


@pytest.mark.parametrize(
    "op", [op for op in OPS.values() if op.public and op.torch is not None and op.samples], ids=lambda op: op.name
)
def test_op(op: OpDef) -> None:
    wrong = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for shape, dtype, axis in places():
            mine, its = (arguments(op, shape, dtype, axis, make) for make in (pf.tensor, torch_tensor))
            if axis is not None and mine[2] is None:
                continue
            found = compare(
                op.name,
                lambda mine=mine: getattr(pf, op.name)(*mine[0], **mine[1]),
                lambda its=its: torch_call(op, its[0], its[1]),
            )
            if found and not known(op.name):
                wrong[shape, np.dtype(dtype).name, axis] = found
    assert wrong == {}


OWN = [n for n in nn.functional.__all__ if n not in OPS and hasattr(torch.nn.functional, n)]


@pytest.mark.parametrize("name", OWN)
def test_functional(name: str) -> None:
    """Functions that are no ops: with as many tensors of one shape as they need."""
    fn = getattr(nn.functional, name)
    parameters = inspect.signature(fn).parameters.values()
    needed = sum(p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters)
    wrong = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for shape, dtype, axis in places():
            if axis is None:
                array = values(shape, dtype)
                found = compare(
                    name,
                    lambda array=array: fn(*[pf.tensor(array)] * needed),
                    lambda array=array: getattr(torch.nn.functional, name)(*[torch_tensor(array)] * needed),
                )
                if found and not known(name):
                    wrong[shape, np.dtype(dtype).name] = found
    assert wrong == {}
