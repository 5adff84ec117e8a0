"""PyTorch's own samples of its ops (op_db), run here: what is refused, differs in value, dtype, shape or gradient, ends
in an exception that is none of ours, or is accepted where PyTorch raises.

    python -m tests.op_db                     every op that both have, some minutes
    python -m tests.op_db "scatter.*" cumsum  those whose names match
    python -m tests.op_db --known             also what differs on purpose (tests/op_db_known.py)

Each line names the kind of the finding, the op and the arguments; a table by op comes last. Functions, methods, methods
in place and second names are all called, as far as PyTorch has them.
"""

from __future__ import annotations

import collections
import inspect
import math
import re
import sys
import types
import unittest
import unittest.mock
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

import pyflame as pf
from pyflame.core.errors import PyFlameError
from tests.op_db_known import KNOWN, RANDOM

DTYPES = (torch.float32, torch.float64, torch.int64, torch.bool, torch.complex128)
MOST = 40  # samples of an op and a dtype
FEW = 6  # of its method, its method in place and its other names
KINDS = ("differs", "accepted", "bare", "refused", "missing")

Finding = tuple[str, str]


class Unfit(Exception):
    """An argument that has no counterpart here: a layout, a sparse tensor."""


class Missing(Exception):
    """A name that a function of the table calls, and that is not here."""


def op_db() -> list[Any]:
    """PyTorch's table of ops. Its tests need a package that is not part of it; nothing of that is used here."""
    stub = types.ModuleType("expecttest")
    stub.TestCase = unittest.TestCase  # type: ignore[attr-defined]
    sys.modules.setdefault("expecttest", stub)
    # The import forbids everybody else in the process to set flags of torch.backends, as benchmarks do.
    with unittest.mock.patch.object(torch.backends, "disable_global_flags"):
        from torch.testing._internal.common_methods_invocations import op_db as table

    return list(table)


def ours(name: str) -> Any:
    """Our function of this name, or None."""
    at: Any = pf
    for part in name.removeprefix("torch.").split("."):
        at = getattr(at, part, None)
    return at if callable(at) else getattr(pf.Tensor, name, None)


def function_of(op: Any) -> Any:
    """Our counterpart of what the table calls. Functions of the table itself get our names for torch's."""
    return rebound(op.op) if rewritten(op.op) else ours(op.name)


def rewritten(fn: Any) -> bool:
    return isinstance(fn, types.FunctionType) and fn.__module__.startswith("torch.testing.")


def rebound(fn: Any) -> Any:
    """A function over our names. (Only numbers and functions are in the closures of the table's.)"""
    names = {"torch": pf, "F": pf.nn.functional, "wrapper_set_seed": lambda op, *args, **kwargs: op(*args, **kwargs)}
    return types.FunctionType(fn.__code__, fn.__globals__ | names, fn.__name__, fn.__defaults__, fn.__closure__)


def converted(value: Any, pairs: list[tuple[Any, Any]]) -> Any:
    """An argument of torch's as one of ours; the tensors are noted in pairs."""
    if isinstance(value, torch.Tensor):
        if value.layout != torch.strided or value.device.type != "cpu":
            raise Unfit
        out = pf.tensor(value.detach().resolve_conj().resolve_neg())
        pairs.append((value, out.requires_grad_(value.requires_grad)))
        return out
    if isinstance(value, torch.dtype):
        return pf.as_dtype(value)
    if isinstance(value, (torch.layout, torch.memory_format, torch.Generator, torch.nn.Module)):
        raise Unfit
    if isinstance(value, torch.device):
        return str(value)
    if isinstance(value, (list, tuple)):
        return [converted(v, pairs) for v in value] if isinstance(value, list) else tuple(
            converted(v, pairs) for v in value
        )  # fmt: skip
    return {k: converted(v, pairs) for k, v in value.items()} if isinstance(value, dict) else value


def flat(value: Any) -> list[Any]:
    return [x for v in value for x in flat(v)] if isinstance(value, (list, tuple)) else [value]


def _array(value: Any) -> np.ndarray[Any, Any]:
    if isinstance(value, torch.Tensor):
        value = value.detach().resolve_conj().resolve_neg()
        return np.asarray(value.float() if value.dtype == torch.bfloat16 else value)
    return np.asarray(value.detach() if isinstance(value, pf.Tensor) else value)


def close(got: Any, want: Any, values: bool = True) -> str:
    """What differs, or nothing."""
    if isinstance(want, torch.Tensor) is not isinstance(got, pf.Tensor):
        return f"a {type(got).__name__}, expected a {type(want).__name__}"
    left, right = _array(got), _array(want)
    if left.shape != right.shape:
        return f"shape {left.shape}, expected {right.shape}"
    if isinstance(want, torch.Tensor) and got.dtype is not pf.as_dtype(want.dtype):
        return f"dtype {got.dtype.name}, expected {want.dtype}"
    if not values:
        return ""
    if right.dtype.kind in "biu":
        same = np.array_equal(left, right)
    else:
        narrow = right.dtype.itemsize < (16 if right.dtype.kind == "c" else 8)
        largest = np.abs(right[np.isfinite(right)]).max(initial=1.0) if narrow else 1.0
        rtol, atol = (1e-4, 1e-5 * largest) if narrow else (1e-6, 1e-7)
        same = np.allclose(left, right, rtol=rtol, atol=atol, equal_nan=True)
    if same:
        return ""
    at = np.flatnonzero(~np.isclose(left, right, 1e-6, 1e-7, equal_nan=True).ravel())[:3]
    return f"values {left.ravel()[at]}, expected {right.ravel()[at]}"


def total(lib: Any, outputs: list[Any]) -> Any:
    """A number that depends on every element of the results."""
    out = 0.0
    for value in outputs:
        weight = np.cos(np.arange(math.prod(value.shape))).reshape(tuple(value.shape))
        part = (value * lib.tensor(weight.astype(np.float32 if value.dtype == lib.float32 else np.float64))).sum()
        out = out + (part.real + 2 * part.imag if value.is_complex() else part)
    return out


def called(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What a function gives, with names that it does not find told apart."""
    try:
        return function(*args, **kwargs)
    except AttributeError as error:
        if error.obj is pf.Tensor or isinstance(error.obj, (types.ModuleType, pf.Tensor)):
            raise Missing from error
        raise


def check_sample(op: Any, theirs: Callable[..., Any], function: Callable[..., Any], sample: Any) -> str:
    """What is wrong with one sample, or nothing."""
    pairs: list[tuple[Any, Any]] = []
    first, args, kwargs = (converted(v, pairs) for v in (sample.input, sample.args, sample.kwargs))
    try:
        want = theirs(sample.input, *sample.args, **sample.kwargs)
    except (RuntimeError, NotImplementedError):
        raise Unfit from None  # refused by torch: a result that the dtype cannot hold, a gradient that it does not have
    got = called(function, first, *args, **kwargs)
    finish = sample.output_process_fn_grad  # what PyTorch compares where a result is not unique (signs of vectors)
    if rewritten(finish):
        want, got = finish(want), rebound(finish)(got)
    want, got = flat(want), flat(got)
    if len(got) != len(want):
        return f"{len(got)} results, expected {len(want)}"
    random = op.name in RANDOM
    wrong = next((found for g, w in zip(got, want, strict=True) if (found := close(g, w, not random))), "")
    chosen = [i for i, w in enumerate(want) if isinstance(w, torch.Tensor) and w.requires_grad and w.numel()]
    leaves = [(t, p) for t, p in pairs if t.requires_grad]
    if wrong or not chosen or not leaves or random:
        return wrong
    if not all(got[i].requires_grad for i in chosen):
        return "gradient: none"
    theirs = torch.autograd.grad(total(torch, [want[i] for i in chosen]), [t for t, _ in leaves], allow_unused=True)
    mine = pf.autograd.grad(total(pf, [got[i] for i in chosen]), [p for _, p in leaves], allow_unused=True)
    for g, w in zip(mine, theirs, strict=True):
        if w is not None and (found := close(pf.zeros(tuple(w.shape)).to(w.dtype) if g is None else g, w + 0)):
            return f"gradient: {found}"
    return ""


def described(sample: Any) -> str:
    def short(v: Any) -> str:
        return f"{str(v.dtype)[6:]}{list(v.shape)}" if isinstance(v, torch.Tensor) else repr(v)[:50]

    return ", ".join(map(short, flat([sample.input, *sample.args, *sample.kwargs.items()])))


def samples(op: Any, most: int) -> Iterator[Any]:
    for dtype in DTYPES:
        if dtype in op.dtypes:
            grad = op.supports_autograd and (dtype.is_floating_point or dtype.is_complex)
            found = list(op.sample_inputs("cpu", dtype, requires_grad=grad))
            yield from found[:: max(1, len(found) // most)]


def _in_place(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method that changes its tensor as a function of it."""
    return lambda x, *args, **kwargs: method(x.clone(), *args, **kwargs)


def variants(op: Any, most: int) -> Iterator[tuple[str, Any, Any, int]]:
    """(what it is called, torch's, ours or None, how many samples)."""
    main = function_of(op)
    yield op.name, op.op, main, most
    for variant, change in ((op.method_variant, lambda f: f), (op.inplace_variant, _in_place)):
        name = getattr(variant, "__name__", "")
        if not name or getattr(torch.Tensor, name, None) is not variant:
            continue  # none, or a function of the table itself
        mine = getattr(pf.Tensor, name, None)
        if mine is None or inspect.unwrap(mine) is not inspect.unwrap(main):
            yield f"Tensor.{name}", change(variant), mine and change(mine), FEW
    for alias in op.aliases:
        mine = ours(alias.name)
        if mine is None or inspect.unwrap(mine) is not inspect.unwrap(main):
            yield alias.name, alias.op, mine, FEW


def wrong_samples(op: Any, name: str, theirs: Any, function: Any, most: int) -> Iterator[Finding]:
    for sample in samples(op, most):
        if name.endswith("_") and sample.broadcasts_input:
            continue
        try:
            found = check_sample(op, theirs, function, sample)
        except Unfit:
            continue
        except Missing:
            yield "missing", ""
            return
        except PyFlameError as error:
            yield "refused", f"{described(sample)}: {str(error)[:160]}"
        except Exception as error:
            yield "bare", f"{described(sample)}: {type(error).__name__} {str(error)[:160]}"
        else:
            if found:
                yield "differs", f"{described(sample)}: {found}"


def refused(function: Callable[..., Any], sample: Any) -> bool:
    """Whether torch itself raises: some error inputs of the table are there for other devices."""
    try:
        function(sample.input, *sample.args, **sample.kwargs)
    except Exception:
        return True
    return False


def wrong_errors(op: Any, function: Any) -> Iterator[Finding]:
    """Error inputs that are accepted, or that end in an exception which is none of ours."""
    for wrong in op.error_inputs("cpu") if op.error_inputs_func else ():
        sample = wrong.sample_input
        try:
            first, args, kwargs = (converted(v, []) for v in (sample.input, sample.args, sample.kwargs))
            if not refused(op.op, sample):
                continue
            for out in flat(called(function, first, *args, **kwargs)):
                _array(out)
        except (Unfit, Missing, PyFlameError):
            continue
        except Exception as error:
            yield "bare", f"{described(sample)}: {type(error).__name__} {str(error)[:160]}"
        else:
            yield "accepted", f"{described(sample)}: torch raises {str(wrong.error_regex)[:80]!r}"


def known(kind: str, name: str, what: str) -> bool:
    """Whether a finding is a difference on purpose."""
    return any(kind in k and re.fullmatch(n, name) and re.search(w, what) for k, n, w in KNOWN)


def findings(op: Any, most: int = MOST, purpose: bool = False) -> Iterator[tuple[str, str, str]]:
    """(kind, name, what) for each sample that differs and each error input that is accepted."""
    for i, (name, theirs, function, few) in enumerate(variants(op, most)):
        if not callable(function):
            found: list[Finding] = [("missing", "")]
        else:
            found = [*wrong_samples(op, name, theirs, function, few), *(wrong_errors(op, function) if not i else ())]
        for kind, what in found:
            if purpose or not known(kind, name, what):
                yield kind, name, what


def main(patterns: list[str]) -> None:
    warnings.simplefilter("ignore")
    purpose = "--known" in patterns
    patterns = [p for p in patterns if p != "--known"]
    table: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for op in op_db():
        if patterns and not any(re.fullmatch(p, op.name) for p in patterns):
            continue
        for kind, name, what in findings(op, purpose=purpose):
            table[name][kind] += 1
            print(f"{kind:9} {name}: {what}", flush=True)
    print("\n" + f"{'':40}" + "".join(f"{kind:>10}" for kind in KINDS))
    for name, counts in [*sorted(table.items()), ("all", sum(table.values(), collections.Counter()))]:
        print(f"{name:40}" + "".join(f"{counts[kind] or '':>10}" for kind in KINDS))


if __name__ == "__main__":
    main(sys.argv[1:])
