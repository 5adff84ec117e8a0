"""Views and copies, casts, comparisons with Python's operators: values are all that a functional graph knows."""

from __future__ import annotations

from typing import Any

import pyflame as pf
from pyflame.bridge.torch.rows.registry import row


@row("alias", "detach", "lift_fresh", "lift_fresh_copy", "clone", "contiguous", "alias_copy", "detach_copy", "view_of")
def same(x: Any) -> Any:
    return x


@row("view", "_unsafe_view", "reshape", "view_copy", "_reshape_alias", "_reshape_copy")
def reshape(x: Any, size: Any, stride: Any = None) -> Any:
    return x.reshape(tuple(size))


@row("view.dtype", "view_copy.dtype")
def bits(x: Any, dtype: Any) -> Any:
    return x.view(dtype)


@row("_to_copy", "convert_element_type")
def to_copy(x: Any, dtype: Any = None) -> Any:
    return x if dtype is None else x.to(dtype)


@row("copy")
def copy(x: Any, src: Any) -> Any:
    return src.to(x.dtype).expand(x.shape)


@row("expand", "expand_copy")
def expand(x: Any, size: Any, implicit: bool = False) -> Any:
    return x.expand(tuple(size))


@row("slice", "slice_copy")
def part(x: Any, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Any:
    return x[(slice(None),) * (dim % x.ndim) + (slice(start, end, step),)]


@row("slice_scatter")
def slice_scatter(x: Any, src: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    out = x.clone()
    out[(slice(None),) * (dim % x.ndim) + (slice(start, end, step),)] = src
    return out


@row("select_scatter")
def select_scatter(x: Any, src: Any, dim: int, index: int) -> Any:
    out = x.clone()
    out[(slice(None),) * (dim % x.ndim) + (index,)] = src
    return out


@row("squeeze.dims", "squeeze_copy.dims")
def squeeze(x: Any, dim: Any) -> Any:
    return x.squeeze(tuple(dim))


@row("sort.stable")
def sort(x: Any, *, stable: Any = None, dim: int = -1, descending: bool = False) -> Any:
    return pf.sort(x, dim, descending)


@row("scatter.value")
def scatter(x: Any, dim: int, index: Any, value: Any) -> Any:
    return pf.scatter(x, dim, index, value)


@row("__and__")
def both(x: Any, y: Any) -> Any:
    return x & y


@row("__or__")
def either(x: Any, y: Any) -> Any:
    return x | y


@row("__xor__")
def one_of(x: Any, y: Any) -> Any:
    return x ^ y


@row("fill")
def fill(x: Any, value: Any) -> Any:
    if isinstance(value, pf.Tensor):
        return value.to(x.dtype).expand(x.shape)
    return pf.full_like(x, value)


@row("sym_size")
def sym_size(x: Any, dim: int) -> int:
    return int(x.shape[dim])


@row("sym_numel")
def sym_numel(x: Any) -> int:
    return int(x.numel())


def _is_reshape(x: Any, size: Any, stride: Any, offset: int | None) -> bool:
    """Whether these strides read all of x in its own order."""
    step = 1
    for n, s in zip(reversed(size), reversed(stride), strict=True):
        if n != 1 and s != step:
            return False
        step *= n
    return step == x.numel() and not offset


@row("as_strided", "as_strided_copy")
def as_strided(x: Any, size: Any, stride: Any, storage_offset: int | None = None) -> Any:
    if _is_reshape(x, size, stride, storage_offset):
        return x.reshape(tuple(size))
    return pf.as_strided(x.clone(), size, stride, storage_offset)


@row("as_strided_scatter")
def as_strided_scatter(x: Any, src: Any, size: Any, stride: Any, storage_offset: int | None = None) -> Any:
    if _is_reshape(x, size, stride, storage_offset):
        return src.reshape(x.shape)
    return pf.as_strided_scatter(x, src, size, stride, storage_offset)
