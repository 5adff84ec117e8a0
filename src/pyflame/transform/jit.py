"""jit: trace a function once per signature, then replay its plan.

Floats among the arguments are data of the plan; other values that are no tensors are part of the signature. A whole
training step (parameters, gradients, optimiser state) is one plan.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from pyflame.core import knobs, trace
from pyflame.core.dtype import default
from pyflame.core.errors import TraceError
from pyflame.core.locks import rlock
from pyflame.core.precision import tf32_allowed
from pyflame.core.state import state
from pyflame.tensor import Tensor
from pyflame.transform.jit_gradient import with_gradient
from pyflame.transform.jitted_call import MISSED, Rows
from pyflame.transform.replay import Replay
from pyflame.transform.trace import trace_function
from pyflame.transform.traced_plan import plan_trace
from pyflame.transform.tracer import argument
from pyflame.transform.tree import flatten, is_tensor, is_traced

MANY = 16  # traces of one function after which a warning says what keeps changing

# What a key is made of, in its order: what to say when it differs.
_PARTS = (
    "structure or static arguments",
    "tensor arguments",
    "gradient mode",
    "autocast",
    "current device",
    "float32 precision",
    "determinism",
    "default dtype",
)


class Jitted:
    """A function and its traces. Call it like the function.

    `traces` counts how often it was traced, and `reasons` says why, one line per trace.
    """

    def __init__(
        self, fn: Callable[..., Any], static_argnums: Iterable[int], static_argnames: Iterable[str], check: bool
    ) -> None:
        self.fn = fn
        self.static = frozenset(static_argnums)
        self.static_names = frozenset(static_argnames)
        self.check = check
        self.cache: dict[Any, tuple[Replay, ...]] = {}
        self.traces = 0
        self.reasons: list[str] = []
        self._last_key: Any = None
        self._rows = Rows()
        self._lock = rlock()
        functools.update_wrapper(self, fn, updated=())  # a module has attributes of its own

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """As a method: the object is an argument like any other, known by its identity."""
        return self if instance is None else functools.partial(self, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        out = self._rows.call(args, kwargs)
        if out is not MISSED:
            return out
        if state.tracer is not None:
            return self.fn(*args, **kwargs)
        while True:
            traced, leaves = self.find(args, kwargs, trusting=True)
            taped = traced.any_taped and state.grad_enabled
            if taped and not traced.pure and hasattr(self.fn, "forward"):
                return self.fn(*args, **kwargs)  # a module with dropout or statistics: recorded, as if not jitted
            out = traced.replay(leaves)
            if out is not MISSED:
                if taped:
                    return with_gradient(self, traced, out, args, kwargs) if traced.pure else out
                self._rows.lay(traced, args, kwargs, self._static(args, kwargs))
                return out

    def _static(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[bool]:
        """Which arguments are a part of the signature; empty: none is said to be."""
        if not (self.static or self.static_names):
            return []
        return [n in self.static for n in range(len(args))] + [name in self.static_names for name in kwargs]

    def __getattr__(self, name: str) -> Any:
        """Attributes of what is jitted: `pf.jit(model).parameters()`."""
        if name.startswith("__") or name == "fn":
            raise AttributeError(name)
        return getattr(self.fn, name)

    def find(self, args: tuple[Any, ...], kwargs: dict[str, Any], trusting: bool = False) -> tuple[Replay, list[Any]]:
        """The trace for these arguments, made if need be, and what to feed it. `trusting`: as in `Replay.misfit`."""
        leaves: list[Any] = []
        shape: Any = []
        sigs: list[Any] = []
        if self.static:
            args = tuple([_Static(a) if n in self.static else a for n, a in enumerate(args)])
        if self.static_names:
            kwargs = {k: _Static(v) if k in self.static_names else v for k, v in kwargs.items()}
        for a in args:
            if isinstance(a, Tensor):  # as most are
                leaves.append(a)
                shape.append(None)
            else:
                shape.append(flatten(a, leaves, is_traced))
        if kwargs:
            shape = (tuple(shape), flatten(kwargs, leaves, is_traced))
        for leaf in leaves:
            sigs.append(float if type(leaf) is float else (argument(leaf).sig, leaf._entry is not None))
        key = (tuple(shape), tuple(sigs), *_modes())
        try:
            variants = self.cache.get(key, ())
        except TypeError as error:
            raise TraceError(f"[jit] expected arguments that are tensors or can be hashed but got {error}") from None
        reason = ""
        for traced in variants:
            misfit = traced.misfit(trusting)
            if misfit is None:
                return traced, leaves
            reason = reason or misfit
        # No lock is held: the function is the user's, and may wait for a thread that calls it too.
        traced = self._trace(args, kwargs, leaves)
        if self.check:
            self._check(args, kwargs, traced, leaves)
        return self._keep(key, traced, reason or self._difference(key, leaves)), leaves

    def _trace(self, args: tuple[Any, ...], kwargs: dict[str, Any], leaves: list[Any]) -> Replay:
        name = getattr(self.fn, "__name__", "a function")
        with trace.span("trace", name):
            found = trace_function(self._call, args, kwargs, leaves, name)
            return Replay(found, plan_trace(found))

    def _call(self, *args: Any, **kwargs: Any) -> Any:
        """The function itself, its static arguments unpacked."""
        given = [a.value if isinstance(a, _Static) else a for a in args]
        return self.fn(*given, **{k: v.value if isinstance(v, _Static) else v for k, v in kwargs.items()})

    def _keep(self, key: Any, traced: Replay, reason: str) -> Replay:
        """Add a trace to the cache, unless another thread has just added one that serves; gives the one to use."""
        with self._lock:
            variants = self.cache.get(key, ())
            for found in variants:
                if found.misfit() is None:
                    return found
            self.cache[key] = (traced, *variants)  # whole at any time: it is read without the lock
            while sum(map(len, self.cache.values())) > knobs.PLAN_CACHE.integer():
                oldest = next(iter(self.cache))
                fewer = self.cache[oldest][:-1]
                if fewer:
                    self.cache[oldest] = fewer
                else:
                    del self.cache[oldest]
                self._rows.forget()
            self.traces += 1
            self.reasons.append(reason)
            self._last_key = key
        if self.traces == MANY:
            warnings.warn(
                f"[jit] {getattr(self, '__name__', 'a function')} was traced {MANY} times, the last time because "
                f"{reason}; pad tensors to few shapes, or pass numbers that change as floats or tensors "
                "(all reasons: fn.reasons)",
                stacklevel=5,
            )
        return traced

    def _difference(self, key: Any, leaves: list[Any]) -> str:
        """What sets this key apart from the last one's."""
        if self._last_key is None:
            return "first call"
        parts = [name for name, a, b in zip(_PARTS, key, self._last_key, strict=True) if a != b]
        if parts == ["tensor arguments"] and len(key[1]) == len(self._last_key[1]):
            changed = [n for n, (a, b) in enumerate(zip(key[1], self._last_key[1], strict=True)) if a != b]
            now = [v._node.meta if isinstance(v, Tensor) else v for v in (leaves[n] for n in changed)]
            return "new tensor arguments: " + ", ".join(f"number {n} is {v}" for n, v in zip(changed, now, strict=True))
        return "another " + ", ".join(parts) if parts else "the trace for this signature was dropped"

    def _check(self, args: tuple[Any, ...], kwargs: dict[str, Any], traced: Replay, leaves: list[Any]) -> None:
        """Trace again, run both ways on the same state, and compare: results, state and gradients."""
        name = getattr(self, "__name__", "the function")
        if self._trace(args, kwargs, leaves).key != traced.key:
            raise TraceError(
                f"[jit] expected {name} to do the same when traced again but its graph differs; it depends on "
                "something that is neither an argument nor a tensor"
            )
        before = [(cell, cell._node, cell.grad) for cell in traced.cells]
        streams = [(g, g.get_state()) for g in traced.generators]

        def values(result: Any) -> list[tuple[str, Any]]:
            tensors: list[Tensor] = []
            flatten(result, tensors, is_tensor)
            out = [(f"result {n}", t.numpy()) for n, t in enumerate(tensors)]
            out += [(f"state {c._node.meta}", c.numpy()) for c in traced.cells]
            out += [(f"gradient {c._node.meta}", c.grad.numpy()) for c in traced.cells if c.grad is not None]
            for cell, node, grad in before:
                cell._node, cell.grad = node, grad
            for generator, numbers in streams:
                generator.set_state(numbers)
            return [(what, np.array(a, np.float64)) for what, a in out]

        want = values(self._call(*args, **kwargs))
        got = values(traced.replay(leaves))
        for (what, left), (_, right) in zip(got, want, strict=True):
            if left.shape != right.shape or not np.allclose(left, right, rtol=1e-3, atol=1e-5, equal_nan=True):
                far = np.abs(left - right).max() if left.shape == right.shape else "its shape"
                raise TraceError(f"[jit] expected {name} to agree with eager execution but {what} differs by {far}")


def _modes() -> tuple[Any, ...]:
    """What a trace depends on beside its arguments."""
    here = vars(state)
    grad, autocast, device, deterministic = (
        here["grad_enabled"],
        here["autocast"],
        here["device"],
        here["deterministic"],
    )
    return grad, autocast, device or state.device, tf32_allowed(), deterministic, default.float


class _Static:
    """An argument that is part of the signature, hidden from tracing."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __hash__(self) -> int:
        return hash(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Static) and type(other.value) is type(self.value) and bool(other.value == self.value)


def jit(
    fn: Callable[..., Any] | None = None,
    *,
    static_argnums: int | Iterable[int] = (),
    static_argnames: str | Iterable[str] = (),
    check: bool = False,
) -> Any:
    """Trace once per signature (shapes, dtypes, devices, structure), then replay as one plan.

    `static_argnums` and `static_argnames` name arguments that are part of the signature. `check` traces twice at each
    new signature and compares with eager execution.

    >>> @pf.jit
    ... def f(x, scale):
    ...     return pf.tanh(x) * scale
    >>> f(pf.ones(3), 2.0)
    tensor([1.5232, 1.5232, 1.5232])
    """
    if fn is None:
        return lambda f: jit(f, static_argnums=static_argnums, static_argnames=static_argnames, check=check)
    numbers = (static_argnums,) if isinstance(static_argnums, int) else static_argnums
    names = (static_argnames,) if isinstance(static_argnames, str) else static_argnames
    return Jitted(fn, numbers, names, check)
