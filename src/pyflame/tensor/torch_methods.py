"""Methods and functions of torch that are made of others here: questions about a tensor, in-place forms that change its
shape, and small compositions. `FUNCTIONS` are functions of `pf` too; `METHODS` are methods only.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pyflame.autograd import Entry
from pyflame.core.dtype import bool_
from pyflame.core.errors import ArgumentError, ArgumentTypeError, DTypeError, ShapeError
from pyflame.core.generator import Generator
from pyflame.core.shape import normalize_axis
from pyflame.tensor import creation, random, views
from pyflame.tensor.arguments import typed
from pyflame.tensor.dispatch import FUNCTIONS as F
from pyflame.tensor.grad_fn import grad_fn
from pyflame.tensor.indexing import is_mask
from pyflame.tensor.tensor import Tensor, read

# --- what it is -------------------------------------------------------------------------------------------------------


def _on(*kinds: str) -> property:
    def asked(self: Tensor) -> bool:
        return self.device.type in kinds

    return property(asked, doc=f"Whether it is on one of {', '.join(kinds) or 'no devices'}.")


def _grad_fn(self: Tensor) -> Any:
    return grad_fn(self._tape) if isinstance(self._tape, Entry) else None


def get_device(self: Tensor) -> int:
    """The number of its GPU; -1 on the CPU."""
    return -1 if self.device.index is None else self.device.index


def is_signed(self: Tensor) -> bool:
    """Whether its dtype has numbers below 0."""
    return self.dtype.is_signed


def is_nonzero(self: Tensor) -> bool:
    """Whether its one element is not 0."""
    return bool(self)


def is_same_size(self: Tensor, other: Tensor) -> bool:
    """Whether it has another tensor's shape."""
    return self.shape == other.shape


def _never(self: Tensor) -> bool:
    return False


def itself(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """The tensor itself."""
    return self


def _nothing(self: Tensor, *args: Any, **kwargs: Any) -> None:
    """Memory is reused only when the work that uses it is done: there is nothing to record."""


def new(self: Tensor, *args: Any, device: object = None) -> Tensor:
    """An uninitialised tensor of this dtype with these sizes, or one of these numbers."""
    place = creation.place_of(self, device)
    if args and not isinstance(args[0], (int, np.integer)):
        return creation.tensor(args[0], dtype=self.dtype, device=place)
    return creation.empty(*args or (0,), dtype=self.dtype, device=place)


def apply_(self: Tensor, callable: Callable[[Any], Any]) -> Tensor:
    """Replace each element by what a Python function makes of it. Slow, and for the CPU."""
    values = [callable(v) for v in self.detach().reshape(-1).tolist()]
    return self.copy_(creation.tensor(values, dtype=self.dtype).reshape(self.shape))


# --- in place, with another shape -------------------------------------------------------------------------------------


def _reshaped(name: str) -> Callable[..., Tensor]:
    function = F[name]

    def method(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        views.lie_as(self, function(self, *args, **kwargs))
        return self

    method.__name__ = method.__qualname__ = name + "_"
    method.__doc__ = f"{name}, in place: the tensor gets another shape, and lies where it did."
    return method


# --- in place, random -------------------------------------------------------------------------------------------------


def log_normal_(self: Tensor, mean: float = 1.0, std: float = 2.0, *, generator: Generator | None = None) -> Tensor:
    """Fill with numbers whose logarithm is normal."""
    if not std > 0:
        raise ArgumentError(f"[log_normal_] expected a standard deviation above 0 but got {std}")
    return self.copy_(creation.empty_like(self).normal_(mean, std, generator=generator).exp())


def cauchy_(self: Tensor, median: float = 0.0, sigma: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    """Fill with Cauchy-distributed numbers."""
    if not sigma > 0:
        raise ArgumentError(f"[cauchy_] expected a sigma above 0 but got {sigma}")
    u = creation.empty_like(self).uniform_(generator=generator)
    return self.copy_(F["tan"]((u - 0.5) * math.pi) * sigma + median)


def geometric_(self: Tensor, p: float, *, generator: Generator | None = None) -> Tensor:
    """Fill with how many trials of probability p the first success takes."""
    if not 0.0 < p < 1.0:
        raise ArgumentError(f"[geometric_] expected a probability between 0 and 1 but got {p}")
    u = random.rand(self.shape, generator=generator, device=creation.place_of(self, None))
    trials: Tensor = F["ceil"](F["log1p"](-u) / math.log1p(-p))
    return self.copy_(trials.clamp(min=1.0))


# --- compositions -----------------------------------------------------------------------------------------------------


def positive(input: Tensor) -> Tensor:
    """The tensor itself: +x.

    >>> pf.positive(pf.tensor([-1]))
    tensor([-1])
    """
    if input.dtype is bool_:
        raise DTypeError("[positive] expected numbers but got bools; use .clone()")
    return input


def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """0 where the element is at most lambd from it.

    >>> pf.hardshrink(pf.tensor([0.3, 1.0]))
    tensor([0., 1.])
    """
    return F["where"]((input >= -lambd) & (input <= lambd), creation.zeros_like(input), input)  # type: ignore[no-any-return]


def narrow_copy(input: Tensor, dim: int, start: int, length: int) -> Tensor:
    """A copy of a range along an axis.

    >>> pf.narrow_copy(pf.arange(4), 0, 1, 2)
    tensor([1, 2])
    """
    return F["clone"](F["narrow"](input, dim, start, length))  # type: ignore[no-any-return]


def split_with_sizes(input: Tensor, split_sizes: Sequence[int], dim: int = 0) -> Any:
    """Parts of these sizes along an axis.

    >>> [p.tolist() for p in pf.split_with_sizes(pf.arange(3), [1, 2])]
    [[0], [1, 2]]
    """
    return F["split"](input, list(split_sizes), dim)


def renorm(input: Tensor, p: float, dim: int, maxnorm: float) -> Tensor:
    """Each slice along an axis scaled down to a norm of at most maxnorm.

    >>> pf.renorm(pf.tensor([[3.0, 4.0], [0.3, 0.4]]), 2, 0, 1.0)
    tensor([[0.6000, 0.8000],
            [0.3000, 0.4000]])
    """
    if input.ndim < 2:
        raise ShapeError(f"[renorm] expected at least two axes but got shape {input.shape}")
    axis = normalize_axis("renorm", dim, input.ndim)
    others = tuple(a for a in range(input.ndim) if a != axis)
    norms = F["norm"](input, p, others, keepdims=True)
    return input * F["where"](norms > maxnorm, maxnorm / (norms + 1e-7), 1.0)  # type: ignore[no-any-return]


def index_put(input: Tensor, indices: Sequence[Any], values: Any, accumulate: bool = False) -> Tensor:
    """A copy with values at these indices; with `accumulate` they are added, also where an index occurs twice.

    >>> pf.index_put(pf.zeros(3), (pf.tensor([0, 0]),), pf.ones(2), accumulate=True).tolist()
    [2.0, 0.0, 0.0]
    """
    where = tuple(indices)
    if not all(isinstance(i, (Tensor, np.ndarray)) for i in where):
        raise ArgumentTypeError(f"[index_put] expected tensors as indices but got {[type(i).__name__ for i in where]}")
    if not accumulate:
        out = input.clone()
        out[where] = values
        return out
    count = sum(i.ndim if is_mask(i) else 1 for i in where)
    sizes, rest = input.shape[:count], input.shape[count:]
    flat = creation.arange(math.prod(sizes)).reshape(sizes)[where]
    added = creation.as_tensor(values).to(input.dtype).expand(*flat.shape, *rest)
    rows = input.reshape(math.prod(sizes), *rest)
    return rows.index_add(0, flat.reshape(-1), added.reshape(-1, *rest)).reshape(input.shape)


def put(input: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """A copy with elements at these row-major positions replaced, or added to.

    >>> pf.put(pf.zeros(3), pf.tensor([1]), pf.tensor([9.0])).tolist()
    [0.0, 9.0, 0.0]
    """
    values = source.reshape(index.shape)
    return index_put(input.reshape(-1), (index.long(),), values, accumulate).reshape(input.shape)


def sum_to_size(self: Tensor, *size: Any) -> Tensor:
    """Summed over the axes along which this shape would broadcast."""
    shape = creation.shape_of("sum_to_size", size)
    extra = self.ndim - len(shape)
    axes = [a for a in range(self.ndim) if a < extra or (shape[a - extra] == 1 and self.shape[a] != 1)]
    if extra < 0 or any(s not in (1, self.shape[a + extra]) for a, s in enumerate(shape)):
        raise ShapeError(f"[sum_to_size] expected a shape that broadcasts to {self.shape} but got {shape}")
    return (self.sum(tuple(axes)) if axes or not shape else self).reshape(shape)


def fill_diagonal_(self: Tensor, fill_value: float, wrap: bool = False) -> Tensor:
    """Make the main diagonal this number; with `wrap` it starts again below a tall matrix."""
    if self.ndim < 2 or (self.ndim > 2 and len(set(self.shape)) > 1):
        raise ShapeError(f"[fill_diagonal_] expected a matrix, or axes of one size, but got shape {self.shape}")
    apart = sum(math.prod(self.shape[a + 1 :]) for a in range(self.ndim))
    stop = self.numel() if wrap or self.ndim > 2 else min(self.shape[0], self.shape[1]) * self.shape[1]
    mask = np.zeros(self.numel(), bool)
    mask[:stop:apart] = True
    return self.masked_fill_(creation.tensor(mask.reshape(self.shape)), fill_value)


def resize_(self: Tensor, *size: Any) -> Tensor:
    """Another shape, of the first elements in memory order; there must be enough of them.

    >>> pf.arange(6).resize_(2, 2)
    tensor([[0, 1],
            [2, 3]])
    """
    shape = creation.shape_of("resize_", size)
    if self._link is not None and self._link.tied:
        raise ArgumentError("[resize_] expected a tensor that shares memory with no other but got one that does")
    if self.requires_grad or not self.is_contiguous() or math.prod(shape) > self.numel():
        raise ShapeError(
            f"[resize_] expected a contiguous tensor without gradient and a shape of at most {self.numel()} elements "
            f"but got {shape}; make a new tensor"
        )
    self._put(read(self._snapshot().reshape(-1)[: math.prod(shape)].reshape(shape)), None)
    return self


def resize_as_(self: Tensor, other: Tensor) -> Tensor:
    """`resize_` to the shape of another tensor."""
    return resize_(self, other.shape)


def polygamma(self: Tensor, n: int) -> Tensor:
    """The derivative of order n of digamma."""
    return F["polygamma"](n, self)  # type: ignore[no-any-return]


def _elsewhere(name: str, module: str) -> Callable[..., Any]:
    """A method that is a function of another module, which is imported when it is first called."""

    def method(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        return getattr(importlib.import_module(f"pyflame.tensor.{module}"), name)(self, *args, **kwargs)

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"See the function {name}."
    return method


_ELSEWHERE = {
    "torch_functions": (
        "adjoint", "as_strided", "as_strided_scatter", "cholesky_inverse", "cholesky_solve", "diagonal_scatter",
        "isreal", "lu_solve", "mvlgamma", "nonzero_static", "resolve_conj", "resolve_neg",
    ),
    "signals": ("istft", "stft"),
    "old_linalg": ("cholesky", "geqrf", "lu", "orgqr", "ormqr", "pinverse", "qr", "svd", "triangular_solve"),
    "torch_statistics": ("histogram",),
    "linalg": ("matrix_exp", "matrix_power"),
}  # fmt: skip
_MOVED = {name: _elsewhere(name, module) for module, names in _ELSEWHERE.items() for name in names}


def _in_place(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def method(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return self.copy_(function(self, *args, **kwargs))

    method.__name__ = method.__qualname__ = f"{function.__name__}_"
    method.__doc__ = f"{function.__name__}, in place."
    return method


_SAME = {"ger": "outer", "unsafe_chunk": "chunk", "unsafe_split": "split"}
_BOTH: dict[str, Callable[..., Any]] = {
    **{f.__name__: f for f in (hardshrink, index_put, narrow_copy, positive, put, renorm, split_with_sizes)},
    **{name: F[same] for name, same in _SAME.items()},
    "unsafe_split_with_sizes": split_with_sizes,
}
FUNCTIONS = {name: typed(f, "pyflame", name, unbound=True) for name, f in _BOTH.items()}

METHODS: dict[str, Any] = {
    **{name: typed(f, "pyflame", name) for name, f in _BOTH.items()},
    **{f"{name}_": _in_place(FUNCTIONS[name]) for name in ("index_put", "put", "renorm")},
    **{f"{name}_": _in_place(F[name]) for name in ("addbmm", "addmv", "addr", "ldexp")},
    **_MOVED,
    "conj_physical_": _in_place(F["conj_physical"]),
    "mvlgamma_": _in_place(_MOVED["mvlgamma"]), "polygamma": polygamma, "polygamma_": _in_place(polygamma),
    "resize_as_": resize_as_, "is_conj": _never, "is_neg": _never,
    **{f"{name}_": _reshaped(name) for name in ("squeeze", "swapaxes", "swapdims", "t", "transpose", "unsqueeze")},
    "is_cuda": _on("cuda", "rocm", "sim"), "is_cpu": _on("cpu"), "is_meta": _on("null", "meta"), "is_mps": _on(),
    "is_xpu": _on(), "is_sparse": _on(), "is_sparse_csr": _on(), "is_quantized": _on(),
    "is_nested": _on(), "is_mkldnn": _on(), "is_ipu": _on(), "is_maia": _on(), "is_mtia": _on(), "is_vulkan": _on(),
    "is_xla": _on(), "is_distributed": _never,
    "output_nr": property(lambda self: 0, doc="0: each result has a place of its own on the tape."),
    "name": property(lambda self: None, doc="None: tensors have no names."),
    "grad_dtype": property(lambda self: self.dtype, doc="The dtype of its gradient: its own."),
    "grad_fn": property(_grad_fn, doc="The op that gave it; None for a leaf."),
    "itemsize": property(lambda self: self.dtype.itemsize, doc="Bytes of one element."),
    "get_device": get_device, "is_signed": is_signed, "is_nonzero": is_nonzero, "is_same_size": is_same_size,
    "is_pinned": _never, "is_shared": _never, "is_inference": _never,
    "pin_memory": itself, "share_memory_": itself, "to_dense": itself, "record_stream": _nothing,
    "new": new, "apply_": apply_, "log_normal_": log_normal_, "cauchy_": cauchy_, "geometric_": geometric_,
    "resize_": resize_, "sum_to_size": sum_to_size, "fill_diagonal_": fill_diagonal_,
}  # fmt: skip
