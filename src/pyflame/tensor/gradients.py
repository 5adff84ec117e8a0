"""Gradient recording on and off, Tensor.backward, and gradients of tensors with respect to tensors."""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeVar

from pyflame.autograd import Entry, Hook, Leaf
from pyflame.core.errors import ArgumentError, GradientError, ShapeError, type_name
from pyflame.core.state import mode, state
from pyflame.ir import F, Node, cast
from pyflame.tensor.tensor import Tensor, read

Fn = TypeVar("Fn", bound=Callable[..., Any])

# --- recording on and off ---------------------------------------------------------------------------------------------


class set_grad_enabled(mode):
    """Record gradients or not: at once when called, and back again at the end of a `with` block. Also a decorator.

    >>> with pf.set_grad_enabled(False):
    ...     pf.is_grad_enabled()
    False
    """

    def __init__(self, mode: bool) -> None:
        self.wanted = bool(mode)
        super().__init__(grad_enabled=self.wanted)
        self._outer = {"grad_enabled": state.grad_enabled}
        state.grad_enabled = self.wanted

    def __call__(self, fn: Fn) -> Fn:
        vars(state).update(self._outer)
        return _decorated(fn, self.wanted)


class _GradMode(mode):
    """Base of no_grad and enable_grad: `with no_grad():`, `@no_grad()` and `@no_grad`."""

    wanted: bool

    def __new__(cls, fn: Callable[..., Any] | None = None) -> Any:
        return super().__new__(cls) if fn is None else _decorated(fn, cls.wanted)

    def __init__(self, fn: Callable[..., Any] | None = None) -> None:
        super().__init__(grad_enabled=self.wanted)

    def __call__(self, fn: Fn) -> Fn:
        return _decorated(fn, self.wanted)


class no_grad(_GradMode):
    """Ops inside are not recorded, so nothing is kept for a backward pass.

    >>> with pf.no_grad():
    ...     pf.is_grad_enabled()
    False
    """

    wanted = False


class enable_grad(_GradMode):
    """Ops inside are recorded again, within a no_grad block."""

    wanted = True


class inference_mode(_GradMode):
    """As no_grad; with False it changes nothing.

    >>> with pf.inference_mode():
    ...     pf.is_grad_enabled()
    False
    """

    wanted = False

    def __new__(cls, mode: Any = True) -> Any:
        return super().__new__(cls, mode if callable(mode) else None)

    def __init__(self, mode: Any = True) -> None:
        self.enabled = bool(mode)
        super().__init__()
        if not self.enabled:
            self._changes = {}

    def __call__(self, fn: Fn) -> Fn:
        return super().__call__(fn) if self.enabled else fn


def _decorated(fn: Fn, wanted: bool) -> Fn:
    if inspect.iscoroutinefunction(fn) or inspect.isasyncgenfunction(fn):
        raise ArgumentError(
            f"[no_grad] expected a plain function but got {fn.__name__}, which pauses; use a with block inside of it"
        )
    if inspect.isgeneratorfunction(fn):
        return _decorated_generator(fn, wanted)

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        with mode(grad_enabled=wanted):
            return fn(*args, **kwargs)

    return call  # type: ignore[return-value]


def _decorated_generator(fn: Fn, wanted: bool) -> Fn:
    """The mode holds while the generator runs, not while it pauses: whoever iterates it keeps their own."""

    @functools.wraps(fn)
    def generate(*args: Any, **kwargs: Any) -> Any:
        inner = fn(*args, **kwargs)
        resume: Callable[[], Any] = functools.partial(next, inner)
        while True:
            try:
                with mode(grad_enabled=wanted):
                    value = resume()
            except StopIteration as end:
                return end.value
            try:
                resume = functools.partial(inner.send, (yield value))
            except GeneratorExit:
                with mode(grad_enabled=wanted):
                    inner.close()
                raise
            except BaseException as error:
                resume = functools.partial(inner.throw, error)

    return generate  # type: ignore[return-value]


def is_grad_enabled() -> bool:
    """Whether ops are recorded for a backward pass."""
    return state.grad_enabled


# --- backward ---------------------------------------------------------------------------------------------------------


def _seed(op: str, tensor: Tensor, gradient: Tensor | None) -> tuple[Entry | Leaf, Node]:
    """Where a backward pass starts, and with which gradient."""
    if not isinstance(tensor, Tensor):
        raise ArgumentError(f"[{op}] expected a tensor but got {type_name(tensor)}")
    if tensor._tape is None:
        raise GradientError(
            f"[{op}] expected a tensor computed from one that requires grad but got one that is not; call "
            "requires_grad_() first"
        )
    if gradient is None:
        if tensor.numel() != 1:
            raise GradientError(
                f"[{op}] expected a tensor with one element but got shape {tensor.shape}; reduce it with .sum() or "
                ".mean(), or pass a gradient"
            )
        if tensor.dtype.is_complex:
            raise GradientError(
                f"[{op}] expected a real number but got {tensor.dtype.name}; take .abs(), or pass a gradient"
            )
        return tensor._tape, F.full_const(1, tensor.dtype, tensor.shape)
    if not isinstance(gradient, Tensor):
        raise ArgumentError(f"[{op}] expected a tensor as gradient but got {type_name(gradient)}")
    if gradient.shape != tensor.shape:
        raise ShapeError(f"[{op}] expected a gradient of shape {tensor.shape} but got {gradient.shape}")
    return tensor._tape, cast(read(gradient), tensor.dtype)


def _finish(cell: Tensor, node: Node, entry: Entry | Leaf | None) -> None:
    """Add to a tensor's .grad, and tell who waits for it."""
    accumulate(cell, node, entry)
    if isinstance(leaf := cell._tape, Leaf):
        for hook in list(leaf.later or ()):
            hook(cell)


def accumulate(cell: Tensor, node: Node, entry: Entry | Leaf | None) -> None:
    """Add to a tensor's .grad."""
    if cell.grad is None:
        cell.grad = Tensor(node, entry)
    elif entry is None and cell.grad._tape is None:
        cell.grad._rebind(Tensor(F.add(read(cell.grad), node)))  # who holds it, as a part of a buffer, sees the sum
    else:
        cell.grad = cell.grad + Tensor(node, entry)


def _roots(
    op: str, tensors: Tensor | Sequence[Tensor], gradients: Tensor | Sequence[Tensor | None] | None
) -> tuple[list[tuple[Entry | Leaf, Node]], dict[Node, Entry | Leaf]]:
    """Where a backward pass starts, and the tape of the gradients it starts with."""
    outs = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    seeds: list[Tensor | None] = [None] * len(outs)
    if gradients is not None:
        seeds = list(gradients) if isinstance(gradients, (list, tuple)) else [gradients]  # type: ignore[list-item]
    if len(seeds) != len(outs):
        raise ArgumentError(f"[{op}] expected one gradient per output ({len(outs)}) but got {len(seeds)}")
    roots = [_seed(op, o, s) for o, s in zip(outs, seeds, strict=True)]
    return roots, {read(g): g._tape for g in seeds if g is not None and g._tape is not None}


def _walk(
    roots: list[tuple[Entry | Leaf, Node]],
    entries: dict[Node, Entry | Leaf],
    retain_graph: bool | None,
    create_graph: bool,
    only: Collection[Entry | Leaf] = (),
) -> dict[Entry | Leaf, Node]:
    """The backward pass; to these alone, where they are given."""
    from pyflame.autograd.walk import backward  # here: programs that only infer need none of it

    keep = state.keeps_tape or (create_graph if retain_graph is None else retain_graph)
    return backward(roots, retain_graph=keep, create_graph=create_graph, entries=entries, only=only)


def backward_into_leaves(
    tensors: Tensor | Sequence[Tensor],
    gradients: Tensor | Sequence[Tensor | None] | None,
    retain_graph: bool | None,
    create_graph: bool,
    inputs: Tensor | Sequence[Tensor] | None = None,
) -> None:
    """Accumulate into `.grad` of every leaf tensor, or of these tensors, which need not be leaves."""
    if inputs is not None:
        ins = [inputs] if isinstance(inputs, Tensor) else list(inputs)
        if not ins:
            raise ArgumentError("[backward] expected at least one tensor as inputs but got none; leave it out for all")
        grads = _grad_of(tensors, ins, gradients, retain_graph, create_graph, allow_unused=True)
        for t, g in {id(t): (t, g) for t, g in zip(ins, grads, strict=True)}.values():
            if g is not None:
                _finish(t, read(g), g._tape)
        _run_after_backward()
        return
    roots, entries = _roots("backward", tensors, gradients)
    found = _walk(roots, entries, retain_graph, create_graph)
    for leaf, node in found.items():
        cell = leaf.cell() if isinstance(leaf, Leaf) else None
        if cell is not None:
            _finish(cell, node, entries.get(node) if create_graph else None)
    _run_after_backward()


def _run_after_backward() -> None:
    while state.after_backward:
        state.after_backward.pop()()


def grad_of(
    outputs: Tensor | Sequence[Tensor],
    inputs: Tensor | Sequence[Tensor],
    grad_outputs: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool = False,
    only_inputs: bool = True,
) -> tuple[Tensor | None, ...]:
    """Gradients of the sum of outputs with respect to inputs, which need not be leaves; `.grad` stays as it is.

    `only_inputs` is PyTorch's, where it has long been without effect.

    >>> x = pf.tensor([1.0, 2.0], requires_grad=True)
    >>> pf.autograd.grad((x * x).sum(), x)
    (tensor([2., 4.]),)
    """
    before = list(state.after_backward)
    try:
        return _grad_of(outputs, inputs, grad_outputs, retain_graph, create_graph, allow_unused)
    finally:
        state.after_backward[:] = before  # no .grad has changed, unless this is a part of a backward pass


def _grad_of(
    outputs: Tensor | Sequence[Tensor],
    inputs: Tensor | Sequence[Tensor],
    grad_outputs: Tensor | Sequence[Tensor | None] | None,
    retain_graph: bool | None,
    create_graph: bool,
    allow_unused: bool,
) -> tuple[Tensor | None, ...]:
    ins = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    for position, t in enumerate(ins):
        if not isinstance(t, Tensor) or t._tape is None:
            raise GradientError(
                f"[grad] expected inputs that require grad but number {position} does not; call requires_grad_() first"
            )
    found: dict[Entry | Leaf, Node] = {}
    hooks = [(t._tape, _catch(t._tape, found)) for t in ins if t._tape is not None]
    roots, entries = _roots("grad", outputs, grad_outputs)
    try:
        for entry, hook in hooks:
            _add_hook(entry, hook)
        _walk(roots, entries, retain_graph, create_graph, {entry for entry, _ in hooks})
    finally:
        for entry, hook in hooks:
            _remove_hook(entry, hook)
    out: list[Tensor | None] = []
    for position, t in enumerate(ins):
        assert t._tape is not None
        node = found.get(t._tape)
        if node is None and not allow_unused:
            raise GradientError(
                f"[grad] expected inputs that the outputs depend on but number {position} is unused; pass "
                "allow_unused=True"
            )
        out.append(None if node is None else Tensor(node, entries.get(node) if create_graph else None))
    return tuple(out)


# --- hooks ------------------------------------------------------------------------------------------------------------


def _catch(entry: Entry | Leaf, found: dict[Entry | Leaf, Node]) -> Hook:
    def hook(g: Node, entries: dict[Node, Entry | Leaf]) -> None:
        found[entry] = g

    return hook


def _add_hook(entry: Entry | Leaf, hook: Hook) -> None:
    entry.hooks = [*(entry.hooks or ()), hook]


def _remove_hook(entry: Entry | Leaf, hook: Hook) -> None:
    entry.hooks = [h for h in entry.hooks or () if h is not hook] or None


class HookHandle:
    """Returned by register_hook; `remove()` takes the hook away again."""

    def __init__(self, remove: Callable[[], None]) -> None:
        self.remove = remove


def register_hook(self: Tensor, hook: Callable[[Tensor], Tensor | None]) -> HookHandle:
    """Call `hook(gradient)` in each backward pass, when this tensor's gradient is known; what it returns replaces it.

    >>> x = pf.tensor([1.0], requires_grad=True)
    >>> handle = x.register_hook(lambda g: g * 2)
    >>> (x * 3).sum().backward(); x.grad
    tensor([6.])
    """
    if self._tape is None:
        raise GradientError(
            "[register_hook] expected a tensor that requires grad but got one that does not; call requires_grad_() "
            "first"
        )

    def call(g: Node, entries: dict[Node, Entry | Leaf]) -> Node | None:
        result = hook(Tensor(g, entries.get(g)))
        if result is None:
            return None
        if not isinstance(result, Tensor) or result.shape != g.shape:
            raise GradientError(
                f"[register_hook] expected a gradient of shape {g.shape} or None from the hook but got {result!r}"
            )
        if result._tape is not None:
            entries[read(result)] = result._tape
        return read(result)

    _add_hook(self._tape, call)
    return HookHandle(functools.partial(_remove_hook, self._tape, call))


def register_post_accumulate_grad_hook(self: Tensor, hook: Callable[[Tensor], None]) -> HookHandle:
    """Call `hook(tensor)` in each backward pass, when `.grad` of this leaf has its gradient.

    >>> x = pf.ones(2, requires_grad=True)
    >>> _ = x.register_post_accumulate_grad_hook(lambda p: print(p.grad))
    >>> (x * 3).sum().backward()
    tensor([3., 3.])
    """
    leaf = self._tape
    if not isinstance(leaf, Leaf):
        raise GradientError(
            "[register_post_accumulate_grad_hook] expected a leaf that requires grad but got a tensor that does not "
            "require it, or was computed; use register_hook for that"
        )
    one = functools.partial(hook)  # the same function may be registered twice
    leaf.later = [*(leaf.later or ()), one]

    def remove() -> None:
        leaf.later = [h for h in leaf.later or () if h is not one] or None

    return HookHandle(remove)


class _Keep:
    """A hook that adds the gradient of what was computed to its .grad."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = weakref.ref(tensor)

    def __call__(self, g: Node, entries: dict[Node, Entry | Leaf]) -> None:
        if (tensor := self.tensor()) is not None:
            accumulate(tensor, g, entries.get(g))


def retains_grad(self: Tensor) -> bool:
    """Whether `retain_grad` was called for it; leaves keep theirs anyway, and say False."""
    hooks = self._tape.hooks if isinstance(self._tape, Entry) else None
    return any(isinstance(hook, _Keep) and hook.tensor() is self for hook in hooks or ())


def retain_grad(self: Tensor) -> None:
    """Keep the gradient of a tensor that was computed in its .grad, as leaves do."""
    if self._tape is None:
        raise GradientError("[retain_grad] expected a tensor that requires grad but got one that does not")
    if isinstance(self._tape, Entry) and not retains_grad(self):
        _add_hook(self._tape, _Keep(self))
