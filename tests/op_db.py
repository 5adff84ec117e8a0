"""PyTorch's own samples of its ops (op_db), run here: what is refused, differs in value, dtype or gradient, or is
accepted where PyTorch raises.

    python -m tests.op_db                     every op that both have, some minutes
    python -m tests.op_db "scatter.*" cumsum  those whose names match

Each line names the kind of the finding, the op and the arguments. Not all are faults: PyTorch does not say which of
equals it takes, some of its samples are random, and some are called through functions of its own.
"""

from __future__ import annotations

import collections
import re
import sys
import types
import unittest
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

import pyflame as pf
from pyflame.core.errors import PyFlameError

DTYPES = (torch.float64, torch.int64, torch.bool, torch.complex128)
MOST = 40  # samples of an op and a dtype


class Unfit(Exception):
    """An argument that has no counterpart here: a layout, a sparse tensor."""


def op_db() -> list[Any]:
    """PyTorch's table of ops. Its tests need a package that is not part of it; nothing of that is used here."""
    stub = types.ModuleType("expecttest")
    stub.TestCase = unittest.TestCase  # type: ignore[attr-defined]
    sys.modules.setdefault("expecttest", stub)
    from torch.testing._internal.common_methods_invocations import op_db as table

    return list(table)


def ours(name: str) -> Any:
    """Our function of this name, or None."""
    at: Any = pf
    for part in name.removeprefix("Tensor.").split("."):
        at = getattr(at, part, None)
    return at if at is not None else getattr(pf.Tensor, name, None)


def converted(value: Any, pairs: list[tuple[Any, Any]]) -> Any:
    """An argument of torch's as one of ours; the tensors are noted in pairs."""
    if isinstance(value, torch.Tensor):
        if value.layout != torch.strided:
            raise Unfit
        out = pf.tensor(value.detach().resolve_conj().resolve_neg())
        pairs.append((value, out.requires_grad_(value.requires_grad)))
        return out
    if isinstance(value, torch.dtype):
        return pf.as_dtype(value)
    if isinstance(value, (torch.layout, torch.memory_format)):
        raise Unfit
    if isinstance(value, (list, tuple)):
        return [converted(v, pairs) for v in value] if isinstance(value, list) else tuple(
            converted(v, pairs) for v in value
        )  # fmt: skip
    return {k: converted(v, pairs) for k, v in value.items()} if isinstance(value, dict) else value


def flat(value: Any) -> list[Any]:
    return [x for v in value for x in flat(v)] if isinstance(value, (list, tuple)) else [value]


def close(got: Any, want: Any) -> str:
    """What differs, or nothing."""
    right = want.detach().resolve_conj().resolve_neg() if isinstance(want, torch.Tensor) else want
    left, right = np.asarray(got.detach() if isinstance(got, pf.Tensor) else got), np.asarray(right)
    if left.shape != right.shape:
        return f"shape {left.shape}, expected {right.shape}"
    if isinstance(want, torch.Tensor) and got.dtype is not pf.as_dtype(want.dtype):
        return f"dtype {got.dtype.name}, expected {want.dtype}"
    same = np.allclose(left, right, rtol=1e-6, atol=1e-7, equal_nan=True)
    return "" if same else f"values {left.ravel()[:4]}, expected {right.ravel()[:4]}"


def total(lib: Any, outputs: list[Any]) -> Any:
    """A number that depends on every element of the results."""
    out = 0.0
    for value in outputs:
        weight = lib.tensor(np.cos(np.arange(value.numel())).reshape(tuple(value.shape)))
        part = (value * weight).sum()
        out = out + (part.real + 2 * part.imag if value.is_complex() else part)
    return out


def check_sample(op: Any, function: Any, sample: Any) -> str:
    """What is wrong with one sample, or nothing."""
    want = flat(op(sample.input, *sample.args, **sample.kwargs))
    pairs: list[tuple[Any, Any]] = []
    first, args, kwargs = (converted(v, pairs) for v in (sample.input, sample.args, sample.kwargs))
    got = flat(function(first, *args, **kwargs))
    if len(got) != len(want):
        return f"{len(got)} results, expected {len(want)}"
    wrong = next((found for g, w in zip(got, want, strict=True) if (found := close(g, w))), "")
    chosen = [i for i, w in enumerate(want) if isinstance(w, torch.Tensor) and w.requires_grad]
    leaves = [(t, p) for t, p in pairs if t.requires_grad]
    if wrong or not chosen or not leaves:
        return wrong
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


def samples(op: Any) -> Iterator[Any]:
    for dtype in DTYPES:
        if dtype in op.dtypes:
            grad = op.supports_autograd and (dtype.is_floating_point or dtype.is_complex)
            found = list(op.sample_inputs("cpu", dtype, requires_grad=grad))
            yield from found[:: max(1, len(found) // MOST)]


def findings(op: Any, function: Any) -> Iterator[tuple[str, str]]:
    """(kind, what) for each sample that differs and each error input that is accepted."""
    for sample in samples(op):
        try:
            found = check_sample(op, function, sample)
        except Unfit:
            continue
        except PyFlameError as error:
            yield "refused", f"{described(sample)}: {str(error)[:160]}"
        except Exception as error:
            yield "bare", f"{described(sample)}: {type(error).__name__} {str(error)[:160]}"
        else:
            if found:
                yield "differs", f"{described(sample)}: {found}"
    for wrong in op.error_inputs("cpu") if op.error_inputs_func else ():
        sample = wrong.sample_input
        try:
            first, args, kwargs = (converted(v, []) for v in (sample.input, sample.args, sample.kwargs))
            for out in flat(function(first, *args, **kwargs)):
                np.asarray(out)
        except (Unfit, PyFlameError):
            continue
        except Exception as error:
            yield "bare", f"{described(sample)}: {type(error).__name__} {str(error)[:160]}"
        else:
            yield "accepted", f"{described(sample)}: torch raises {str(wrong.error_regex)[:80]!r}"


def main(patterns: list[str]) -> None:
    warnings.simplefilter("ignore")
    counts: collections.Counter[str] = collections.Counter()
    missing = set()
    for op in op_db():
        if patterns and not any(re.fullmatch(p, op.name) for p in patterns):
            continue
        function = ours(op.name)
        if function is None or not callable(function):
            missing.add(op.name)
            continue
        for kind, what in findings(op, function):
            counts[kind] += 1
            print(f"{kind:9} {op.name}: {what}", flush=True)
    print("not here:", " ".join(sorted(missing)))
    print(", ".join(f"{n} {kind}" for kind, n in counts.items()) or "nothing found")


if __name__ == "__main__":
    main(sys.argv[1:])
