"""Methods of Tensor that are not ops: what it is, conversions, in-place forms and Python's protocols."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

from pyflame.core import dtype as dt
from pyflame.core.device import DeviceId
from pyflame.core.dtype import DType, as_dtype
from pyflame.core.errors import ArgumentError, GradientError, ShapeError, type_name
from pyflame.core.memory_format import contiguous_format, lies_in, order_of
from pyflame.core.shape import contiguous_strides, is_contiguous, normalize_axis
from pyflame.core.state import mode, state
from pyflame.engine.on_demand import evaluate
from pyflame.engine.value import Value
from pyflame.ir import OPS, F, cast, copy_to, placed
from pyflame.ir.opdef import ELEMENTWISE, LEAF
from pyflame.ops.names import ALIASES
from pyflame.tensor import (
    counted,
    creation,
    factorizations,
    gradients,
    indexing,
    interop,
    random,
    sets,
    storage,
    torch_methods,
    views,
)
from pyflame.tensor.arguments import typed
from pyflame.tensor.custom import attach
from pyflame.tensor.devices import device as device_context
from pyflame.tensor.dispatch import FUNCTIONS, call, in_place, settle
from pyflame.tensor.paths import committing, layout_after, reinterpreted, seen_as
from pyflame.tensor.tensor import ITEM, Tensor, alias, exchange, read

# --- what it is -------------------------------------------------------------------------------------------------------


def size(self: Tensor, dim: int | None = None) -> Any:
    """The shape, or the size of one axis. (`numel()` counts elements.)"""
    return self.shape if dim is None else self.shape[_axis("size", dim, self)]


def dim(self: Tensor) -> int:
    """Number of axes."""
    return self.ndim


def element_size(self: Tensor) -> int:
    """Bytes of one element."""
    return self.dtype.itemsize


def is_floating_point(self: Tensor) -> bool:
    """Whether the elements are floats."""
    return self.dtype.is_float


def is_complex(self: Tensor) -> bool:
    """Whether the elements are complex numbers."""
    return self.dtype.is_complex


def _real(self: Tensor) -> Tensor:
    return FUNCTIONS["real"](self)  # type: ignore[no-any-return]


def _set_real(self: Tensor, value: Any) -> None:
    _real(self)[...] = value


def _imag(self: Tensor) -> Tensor:
    return FUNCTIONS["imag"](self)  # type: ignore[no-any-return]


def _set_imag(self: Tensor, value: Any) -> None:
    _imag(self)[...] = value


def stride(self: Tensor, dim: int | None = None) -> Any:
    """How many elements apart neighbours along each axis lie in memory, as PyTorch would hold them. Evaluates what is
    no view."""
    strides = _strides(self)
    return strides if dim is None else strides[_axis("stride", dim, self)]


def _strides(self: Tensor) -> Any:
    root = views.root_of(self)
    if root is not self and is_contiguous(root.shape, _known_strides(root)):
        return views.strides(self)  # it may have been evaluated into memory of its own, which nobody is to see
    node = self._node
    if node.op.kind != LEAF:
        node = exchange(self, node, placed(node))
        evaluate([node])
    strides = node.data.strides or contiguous_strides(self.shape)
    if any(s == 0 and n > 1 for s, n in zip(strides, self.shape, strict=True)):  # one number stands for all of zeros(3)
        strides = views.strides(self)
    return strides


def contiguous_memory(self: Tensor, memory_format: Any = contiguous_format) -> bool:
    """Whether the elements lie in row-major order, or in another memory format, without gaps. Evaluates the tensor."""
    order = order_of("is_contiguous", memory_format, self.ndim)
    return lies_in(self.shape, stride(self), tuple(range(self.ndim)) if order is None else order)


def _known_strides(self: Tensor) -> Any:
    """Where a tensor's elements lie, or will when it is evaluated, as far as that is known before."""
    node = self._node
    if node.op.kind == LEAF and isinstance(node.data, Value):
        return node.data.strides or contiguous_strides(self.shape)
    if node.op.name == "permute" and node.srcs[0].op.name == "contiguous":
        steps = contiguous_strides(node.srcs[0].shape)
        return tuple(steps[a] for a in node.attrs[0])
    return views.strides(self)


def _axis(op: str, dim: int, tensor: Tensor) -> int:
    axis = normalize_axis(op, dim, tensor.ndim)
    if not tensor.ndim:
        raise ArgumentError(f"[{op}] expected a tensor with axes but got a 0-d tensor")
    return axis


# --- conversions ------------------------------------------------------------------------------------------------------


def parsed_to(args: tuple[Any, ...], dtype: object, device: object) -> tuple[Any, Any]:
    """The dtype and the device that arguments of `to` ask for, None where they ask for none."""
    for arg in args:
        if isinstance(arg, Tensor):
            dtype, device = arg.dtype, arg._node.meta.device if arg._node.meta.committed else device
        elif isinstance(arg, (DeviceId, device_context)) or (isinstance(arg, str) and arg not in DTYPE_NAMES):
            device = arg
        elif arg is not None and not isinstance(arg, bool):  # to("cuda", True): non_blocking
            dtype = arg
    return None if dtype is None else as_dtype(dtype), device


def to(
    self: Tensor,
    *args: Any,
    dtype: object = None,
    device: object = None,
    copy: bool = False,
    non_blocking: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """Another dtype or device: to(pf.float16), to("cpu"), to(other). The tensor itself where nothing changes.

    `memory_format`: as in `contiguous`. `non_blocking` is PyTorch's and changes nothing: copies overlap with work as
    they can.

    >>> pf.tensor([1.5]).to(pf.int32)
    tensor([1], dtype=pyflame.int32)
    """
    wanted, device = parsed_to(args, dtype, device)
    out = self
    order_of("to", memory_format, self.ndim)
    if wanted is not None and wanted is not self.dtype:
        out = FUNCTIONS["cast"](out, wanted)
    if device is not None:
        target = creation.target_of(device)
        meta = out._node.meta
        if meta.device != target or not meta.committed:
            same = out is self and meta.device in (None, target)  # memory that is only tied down
            out = call(lambda x: copy_to(placed(x), target, commit=True), (out,), {})
            if same:
                views.link_view(out, self, (committing(target),))
    if memory_format is not None:
        out = contiguous(out, memory_format)
    return FUNCTIONS["clone"](out, memory_format=memory_format) if copy and out is self else out


DTYPE_NAMES = frozenset(d.name for d in dt.ALL) | {"bool", "float", "double", "half", "int", "long"}


def cpu(self: Tensor) -> Tensor:
    """The same values on the host."""
    return to(self, device="cpu")


def cuda(self: Tensor, device: object = None, non_blocking: bool = False, memory_format: Any = None) -> Tensor:
    """The same values on an NVIDIA GPU, or on an AMD GPU where there is no other. `device`: its number or name."""
    return to(self, device=gpu_named("cuda", device), memory_format=memory_format)


def rocm(self: Tensor, device: object = None, non_blocking: bool = False, memory_format: Any = None) -> Tensor:
    """The same values on an AMD GPU. `device`: its number or name."""
    return to(self, device=gpu_named("rocm", device), memory_format=memory_format)


def gpu_named(kind: str, device: object) -> object:
    """The device that `cuda(device)` means: the first, one by number, or one by name."""
    return f"{kind}:{0 if device is None else device}" if device is None or isinstance(device, int) else device


def type_(self: Tensor, dtype: object = None) -> Any:
    """PyTorch's name of what it is, as "torch.cuda.FloatTensor", or a conversion to another dtype."""
    from pyflame.tensor import torch_names  # here: it needs methods

    if dtype is None:
        kinds = [k for k in vars(torch_names).values() if isinstance(k, torch_names.TensorType)]
        name = next((k.__name__ for k in kinds if k.dtype is self.dtype), self.dtype.name)
        return f"torch.cuda.{name}" if self.device.type in ("cuda", "rocm") else f"torch.{name}"
    if isinstance(dtype, str) and dtype.endswith("Tensor"):  # "torch.cuda.FloatTensor"
        room, _, name = dtype.rpartition(".")
        dtype = getattr(torch_names, name, dtype)
        dtype = dtype.on("cuda") if room.endswith("cuda") and isinstance(dtype, torch_names.TensorType) else dtype
    if dtype is Tensor:  # PyTorch's name of its default type
        dtype = dt.get_default_dtype()
    return to(self, dtype=dtype, device=getattr(dtype, "place", None))


def type_as(self: Tensor, other: Tensor) -> Tensor:
    """A conversion to another tensor's dtype and device."""
    return to(self, other)


def _caster(dtype: DType) -> Callable[[Tensor], Tensor]:
    def convert(self: Tensor) -> Tensor:
        return to(self, dtype=dtype)

    convert.__doc__ = f"A conversion to {dtype.name}."
    return convert


_CASTS = {
    "float": dt.float32, "double": dt.float64, "half": dt.float16, "bfloat16": dt.bfloat16, "int": dt.int32,
    "long": dt.int64, "short": dt.int16, "char": dt.int8, "byte": dt.uint8, "bool": dt.bool_,
    "cfloat": dt.complex64, "cdouble": dt.complex128,
}  # fmt: skip


def contiguous(self: Tensor, memory_format: Any = contiguous_format) -> Tensor:
    """The same values in row-major memory, or in another memory format: the tensor itself where they lie so.

    >>> pf.ones(2, 3, 4, 5).contiguous(memory_format=pf.channels_last).stride()
    (60, 1, 15, 3)
    """
    order = order_of("contiguous", memory_format, self.ndim)
    if order is None or lies_in(self.shape, _known_strides(self), order):
        return self
    return FUNCTIONS["contiguous"](self, memory_format=memory_format)  # type: ignore[no-any-return]


def view(self: Tensor, *shape: Any, dtype: object = None) -> Tensor:
    """The same memory under another shape, or as another dtype; one size may be -1. Where that needs a copy it raises.

    As a dtype of another size the last axis grows or shrinks. No gradient flows through a view as a dtype.

    >>> pf.arange(6).view(2, -1).shape
    (2, 3)
    >>> pf.tensor([1.0, -2.0]).view(pf.int32)
    tensor([ 1065353216, -1073741824], dtype=pyflame.int32)
    """
    if dtype is not None or (len(shape) == 1 and isinstance(shape[0], DType)):
        return _view_as_dtype(self, as_dtype(shape[0] if dtype is None else dtype))
    out: Tensor = FUNCTIONS["reshape"](self, *shape)
    if out._link is None:
        raise ShapeError(
            f"[view] expected a shape that fits the memory of a view of shape {self.shape} and strides "
            f"{views.strides(self)} but got {out.shape}, which needs a copy; use reshape"
        )
    return out


def _view_as_dtype(self: Tensor, dtype: DType) -> Tensor:
    """What is written to one is seen by the other, in its bits."""
    have, layout = self.dtype, views.layout(self)
    if not any(views.links_above(self)):
        layout = layout._replace(strides=_known_strides(self))
    if layout.shape and layout_after(layout, (seen_as(dtype),)) is None:
        raise ShapeError(
            f"[view] expected a last stride of 1, and a last size, an offset and other strides that are multiples of "
            f"{max(dtype.itemsize // have.itemsize, 1)}, to see {have.name} as {dtype.name} but got shape "
            f"{self.shape}, strides {layout.strides} and offset {layout.offset}; use .contiguous() first"
        )
    with mode(recorder=None):
        node = reinterpreted(read(self), dtype)
    out = Tensor(alias(node) if node is read(self) else node)
    return settle(views.link_detached(out, self, (seen_as(dtype),)))  # type: ignore[no-any-return]


def view_as(self: Tensor, other: Tensor) -> Tensor:
    """The same memory under the shape of another tensor."""
    return view(self, other.shape)


# --- made like this one -----------------------------------------------------------------------------------------------


def new_tensor(
    self: Tensor, data: Any, *, dtype: object = None, device: object = None, requires_grad: bool = False
) -> Tensor:
    """A tensor of this data with the dtype and device of this one."""
    return creation.tensor(data, dtype or self.dtype, creation.place_of(self, device), requires_grad)


def new_full(
    self: Tensor,
    size: Any,
    fill_value: Any,
    *,
    dtype: object = None,
    device: object = None,
    requires_grad: bool = False,
) -> Tensor:
    """One number under another shape, with the dtype and device of this tensor."""
    place = creation.place_of(self, device)
    return creation.full(size, fill_value, dtype=dtype or self.dtype, device=place, requires_grad=requires_grad)


def new_zeros(
    self: Tensor, *size: Any, dtype: object = None, device: object = None, requires_grad: bool = False
) -> Tensor:
    """Zeros under another shape, with the dtype and device of this tensor."""
    return new_full(
        self, creation.shape_of("new_zeros", size), 0, dtype=dtype, device=device, requires_grad=requires_grad
    )


def new_ones(
    self: Tensor, *size: Any, dtype: object = None, device: object = None, requires_grad: bool = False
) -> Tensor:
    """Ones under another shape, with the dtype and device of this tensor."""
    return new_full(
        self, creation.shape_of("new_ones", size), 1, dtype=dtype, device=device, requires_grad=requires_grad
    )


def new_empty(
    self: Tensor, *size: Any, dtype: object = None, device: object = None, requires_grad: bool = False
) -> Tensor:
    """Uninitialised memory under another shape, with the dtype and device of this tensor."""
    place = creation.place_of(self, device)
    return creation.empty(*size, dtype=dtype or self.dtype, device=place, requires_grad=requires_grad)


# --- in place ---------------------------------------------------------------------------------------------------------


def copy_(self: Tensor, src: Any, non_blocking: bool = False) -> Tensor:
    """Take the values of another tensor, which broadcasts and is converted. Nothing waits for it in any case."""
    value = src if isinstance(src, Tensor) else creation.tensor(src, dtype=self.dtype)
    home = read(self).meta

    def converted(x: Any) -> Any:
        x = F.expand(cast(x, self.dtype), self.shape)
        return copy_to(x, home.device, commit=home.committed) if home.device is not None else x

    return self._rebind(call(converted, (value,), {}))


def fill_(self: Tensor, value: Any) -> Tensor:
    """Make every element this number."""
    if isinstance(value, Tensor):
        return copy_(self, value)
    if self.requires_grad and not self.is_leaf:  # stays on the tape, with a gradient of 0
        return self._rebind(attach("fill", creation.full_like(self, value).detach(), [self], creation.zeros_like))
    return self._rebind(creation.full_like(self, value))


def zero_(self: Tensor) -> Tensor:
    """Make every element 0."""
    return fill_(self, 0)


def detach_(self: Tensor) -> Tensor:
    """Leave the tape."""
    if self._tape is not None and _is_view(self):
        raise GradientError(
            "[detach_] expected a tensor that is no view but got one; use .detach(), which is not in place"
        )
    self._set_tape(None)
    return self


def _get_data(self: Tensor) -> Tensor:
    return self.detach()


def _is_view(self: Tensor) -> bool:
    return self._link is not None and self._link.parent is not None and self._link.attached


def _base(self: Tensor) -> Tensor | None:
    base = self
    while _is_view(base):
        base = base._link.parent  # type: ignore[union-attr,assignment]
    return None if base is self else base


def _set_data(self: Tensor, value: Tensor) -> None:
    if not isinstance(value, Tensor):
        raise ArgumentError(f"[data] expected a tensor but got {type_name(value)}")
    if self.requires_grad and not value.dtype.has_gradient:
        raise GradientError(
            f"[data] expected floating-point or complex values, since gradients are wanted, but got {value.dtype.name}"
        )
    if views.same_memory(self, value):  # `p.data -= x` writes to p.data, then assigns it
        return
    if state.tracer is None:
        views.replace(self, value)
        return
    with mode(grad_enabled=False):  # memory is the plan's affair: in a trace this is a write
        self._rebind(value._snapshot())


# Composites with an in-place form in PyTorch, beside the elementwise ops, which all have one.
_ALSO_IN_PLACE = (
    "addcdiv", "addcmul", "addmm", "baddbmm", "celu", "clamp", "cumprod", "cumsum", "deg2rad", "div", "elu",
    "float_power", "frac", "gelu", "hardsigmoid", "hardswish", "hardtanh", "heaviside", "hypot", "index_add",
    "index_copy", "index_fill", "index_reduce", "leaky_relu", "lerp", "logit", "masked_fill", "masked_scatter", "mish",
    "nan_to_num", "rad2deg", "scatter", "scatter_add", "scatter_reduce", "selu", "sigmoid", "silu", "sinc", "softplus",
    "square", "tril", "triu",
)  # fmt: skip
_NOT_IN_PLACE = (
    "cast", "clone", "contiguous", "fmax", "fmin", "isfinite", "isinf", "isnan", "isneginf", "isposinf", "where",
)  # fmt: skip


def in_place_names() -> list[str]:
    """Ops that get a form with an underscore."""
    names = [
        n for n, op in OPS.items() if op.public and op.method and op.kind == ELEMENTWISE and n not in _NOT_IN_PLACE
    ]
    return sorted({*names, *_ALSO_IN_PLACE})


# --- Python's protocols -----------------------------------------------------------------------------------------------


def to_sparse(self: Tensor) -> Any:
    """The elements that are not 0, and their positions (see pf.sparse). Evaluates the tensor."""
    from pyflame.tensor.sparse import to_sparse as convert  # here: few programs need it

    return convert(self)


def to_sparse_csr(self: Tensor, dense_dim: int | None = None) -> Any:
    """The elements of a matrix that are not 0, in compressed rows. Evaluates the tensor."""
    from pyflame.tensor.sparse_csr import to_sparse_csr as convert  # here: few programs need it

    return convert(self, dense_dim)


def _contains(self: Tensor, value: Any) -> bool:
    return bool(FUNCTIONS["any"](FUNCTIONS["eq"](self, value)))


def _format(self: Tensor, spec: str) -> str:
    number = self.ndim == 0 and (spec or state.tracer is None) and self.device.id.computes
    return format(self.item(), spec) if number else format(str(self), spec)


def _reversed(self: Tensor) -> Iterator[Tensor]:
    return (self[i] for i in range(len(self) - 1, -1, -1))


def _complex(self: Tensor) -> complex:
    return complex(self.item())


def _round(self: Tensor, digits: int | None = None) -> Tensor:
    if not digits:
        return FUNCTIONS["round"](self)  # type: ignore[no-any-return]
    scale = 10.0**digits
    return FUNCTIONS["round"](self * scale) / scale  # type: ignore[no-any-return]


def _transposed(self: Tensor) -> Tensor:
    return FUNCTIONS["permute"](self, tuple(range(self.ndim))[::-1])  # type: ignore[no-any-return]


def _matrix_transposed(self: Tensor) -> Tensor:
    if self.ndim < 2:
        raise ArgumentError(f"[mT] expected at least 2 axes but got shape {self.shape}")
    n = self.ndim
    return FUNCTIONS["permute"](self, (*range(n - 2), n - 1, n - 2))  # type: ignore[no-any-return]


def _adjoint(self: Tensor) -> Tensor:
    return FUNCTIONS["conj"](_matrix_transposed(self))  # type: ignore[no-any-return]


def _hermitian(self: Tensor) -> Tensor:
    if self.ndim not in (0, 2):
        raise ShapeError(f"[H] expected a matrix but got shape {self.shape}; use mH for batches of them")
    return _adjoint(self) if self.ndim else FUNCTIONS["conj"](self)


METHODS: dict[str, Any] = {
    "size": size, "dim": dim, "element_size": element_size,
    "stride": stride, "is_floating_point": is_floating_point, "is_complex": is_complex,
    "is_contiguous": contiguous_memory, "to_sparse": to_sparse, "to_sparse_coo": to_sparse, "is_sparse": False,
    "to_sparse_csr": to_sparse_csr,
    "to": to, "cpu": cpu, "cuda": cuda, "rocm": rocm, "type": type_, "type_as": type_as,
    "new_tensor": new_tensor, "new_full": new_full, "new_zeros": new_zeros, "new_ones": new_ones,
    "new_empty": new_empty, "contiguous": contiguous, "view": view, "view_as": view_as,
    "copy_": copy_, "fill_": fill_, "zero_": zero_, "detach_": detach_,
    "register_hook": gradients.register_hook, "retain_grad": gradients.retain_grad,
    "register_post_accumulate_grad_hook": gradients.register_post_accumulate_grad_hook,
    "retains_grad": property(gradients.retains_grad, doc="Whether `retain_grad` was called for what was computed."),
    "__contains__": _contains, "__format__": _format, "__reversed__": _reversed,
    "__round__": _round, "__complex__": _complex,
    "_base": property(_base, doc="The tensor at the root of a view that gradients flow through; None for any other."),
    "_is_view": _is_view,
    "data": property(_get_data, _set_data, doc="The same memory without its tape; assigning replaces it."),
    "real": property(_real, _set_real, doc="The real parts; assigning writes them."),
    "imag": property(_imag, _set_imag, doc="The imaginary parts, of complex numbers; assigning writes them."),
    "T": property(_transposed, doc="All axes in reverse order."),
    "mT": property(_matrix_transposed, doc="The last two axes swapped."),
    "mH": property(_adjoint, doc="The last two axes swapped, and conjugated."),
    "H": property(_hermitian, doc="A matrix transposed and conjugated."),
    **{name: _caster(dtype) for name, dtype in _CASTS.items()},
    **indexing.METHODS,
    **interop.METHODS,
    **random.METHODS,
    **sets.FUNCTIONS,
    **counted.FUNCTIONS,
    **storage.METHODS,
    **{name: method for name, method in torch_methods.METHODS.items() if not hasattr(Tensor, name)},
    **factorizations.METHODS,
}  # fmt: skip


def install() -> None:
    """Give Tensor these methods, and an in-place form of every op that has one."""
    own = {n: m for n, m in vars(Tensor).items() if isinstance(m, FunctionType) and m.__module__ == Tensor.__module__}
    for name, method in {**own, **METHODS}.items():
        if isinstance(method, FunctionType) and name.startswith("__"):
            method.__name__ = name
        plain = isinstance(method, FunctionType) and not name.startswith("_")
        setattr(Tensor, name, as_method(method, name) if plain else method)
    for name in in_place_names():
        if not hasattr(Tensor, name + "_"):
            setattr(Tensor, name + "_", in_place(name, name + "_"))
    for name, same in ALIASES.items():
        if hasattr(Tensor, same + "_"):
            setattr(Tensor, name + "_", as_method(getattr(Tensor, same + "_"), name + "_"))
    for name, of in (("nelement", "numel"), ("ndimension", "dim"), ("__pos__", "positive")):
        setattr(Tensor, name, vars(Tensor)[of])


_IN_C = {"item": ITEM}


def as_method(function: Any, name: str) -> Any:
    """A function as a method of Tensor by this name, which `__torch_function__` is given."""
    method = typed(function, "pyflame", name, _IN_C.get(name))
    method.__qualname__ = f"Tensor.{name}"
    return method


install()

from pyflame.tensor import subclasses  # noqa: E402, F401  at the end: what subclasses inherit is all there
