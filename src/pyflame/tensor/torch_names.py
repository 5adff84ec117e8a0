"""Small names of `torch` itself: questions about tensors, typed tensors as `torch.FloatTensor`, switches, constants."""

from __future__ import annotations

import enum
import functools
import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from pyflame.core import dtype as dt
from pyflame.core import generator, shape
from pyflame.core import memory_format as formats
from pyflame.core.device import CPU
from pyflame.core.dtype import DType, as_dtype, bool_, outranks
from pyflame.core.errors import ArgumentError, ArgumentTypeError, DTypeError, type_name
from pyflame.core.state import state
from pyflame.core.torch_paths import refused
from pyflame.engine.devices import get_device as _opened
from pyflame.ir.declare import common_dtype
from pyflame.tensor import printing
from pyflame.tensor.creation import arange, as_tensor, empty, tensor
from pyflame.tensor.devices import device, named, set_device
from pyflame.tensor.dispatch import unwrap
from pyflame.tensor.storage import UntypedStorage
from pyflame.tensor.tensor import Tensor

pi, e, inf, nan = math.pi, math.e, math.inf, math.nan
newaxis = None
dtype = DType
Size = shape.Size
default_generator = generator.default_generator


memory_format = formats.memory_format
contiguous_format, preserve_format = formats.contiguous_format, formats.preserve_format
legacy_contiguous_format = contiguous_format
channels_last, channels_last_3d = formats.channels_last, formats.channels_last_3d


class layout(enum.Enum):
    """How tensors lie: dense, or sparse in coordinates or compressed rows.

    >>> pf.ones(2).layout is pf.strided, pf.eye(2).to_sparse().layout is pf.sparse_coo
    (True, True)
    """

    strided = 0
    sparse_coo = 1
    sparse_csr = 2
    # no tensor lies so here: programs compare with them
    sparse_csc = 3
    sparse_bsr = 4
    sparse_bsc = 5
    jagged = 6

    def __repr__(self) -> str:
        return f"pyflame.{self.name}"

    __str__ = __repr__


strided, sparse_coo, sparse_csr, sparse_csc, sparse_bsr, sparse_bsc, jagged = layout

_SIZES = "sizes are numbers, also where pf.jit traces"
SymInt, SymFloat, SymBool = (refused(name, _SIZES) for name in ("SymInt", "SymFloat", "SymBool"))
# dtypes that no tensor has: programs compare with them
complex32, qint8, quint8, qint32 = (
    refused(name, "complex64 and int8 are there") for name in ("complex32", "qint8", "quint8", "qint32")
)
chalf = complex32
PyTorchFileReader = refused("PyTorchFileReader", "pf.load reads files")
sym_int, sym_float, sym_max, sym_min = int, float, max, min

# --- questions --------------------------------------------------------------------------------------------------------


def is_tensor(obj: object) -> bool:
    """Whether this is a tensor.

    >>> pf.is_tensor(pf.ones(2)), pf.is_tensor([1.0])
    (True, False)
    """
    return isinstance(obj, Tensor)


def is_storage(obj: object) -> bool:
    """Whether it is a storage, as `x.storage()` gives it.

    >>> pf.is_storage(pf.ones(2)), pf.is_storage(pf.ones(2).storage())
    (False, True)
    """
    return isinstance(obj, UntypedStorage)


def typename(obj: Any) -> str:
    """An object's type with its module; of a tensor, PyTorch's name of its dtype.

    >>> pf.typename(pf.ones(2)), pf.typename(1)
    ('torch.FloatTensor', 'int')
    """
    if isinstance(obj, Tensor):
        return str(obj.type())
    named = obj if hasattr(obj, "__qualname__") else type(obj)
    module = getattr(named, "__module__", "") or ""
    return named.__qualname__ if module in ("", "builtins") else f"{module}.{named.__qualname__}"


def is_conj(input: Tensor) -> bool:
    """Whether it is conjugated lazily: never."""
    return input.is_conj()


def is_neg(input: Tensor) -> bool:
    """Whether it is negated lazily: never."""
    return input.is_neg()


def is_inference(input: Tensor) -> bool:
    """Whether it can never have a gradient: tensors of inference_mode are like all others, so never."""
    return input.is_inference()


def is_floating_point(input: Tensor) -> bool:
    """Whether the elements are floats.

    >>> pf.is_floating_point(pf.ones(2))
    True
    """
    return input.dtype.is_float


def is_complex(input: Tensor) -> bool:
    """Whether the elements are complex.

    >>> pf.is_complex(pf.ones(2))
    False
    """
    return input.dtype.is_complex


def _assert(condition: Any, message: str) -> None:
    """`assert condition, message`, which torch.fx traces."""
    if not condition:
        raise AssertionError(message)


def _check(cond: bool, message: Callable[[], str] | None = None) -> None:
    """Raise RuntimeError with what `message` gives, if a condition does not hold."""
    if not cond:
        raise RuntimeError(message() if message else "expected a condition to hold but it does not")


def _check_with(error_type: type[Exception], cond: Any, message: Callable[[], str] | None = None) -> None:
    """`_check` with an exception of the caller's."""
    if not cond:
        raise error_type(message() if message else "expected a condition to hold but it does not")


_check_value = functools.partial(_check_with, ValueError)
_check_type = functools.partial(_check_with, TypeError)
_check_index = functools.partial(_check_with, IndexError)
_check_not_implemented = functools.partial(_check_with, NotImplementedError)


def _check_is_size(i: int, message: Callable[[], str] | None = None, *, max: int | None = None) -> None:
    """Raise RuntimeError unless a number is a size: from 0, and up to `max`."""
    _check(i >= 0 and (max is None or i <= max), message)


def _check_tensor_all_with(error_type: type[Exception], cond: Tensor, message: Callable[[], str] | None = None) -> None:
    """`_check_with` of all elements of a tensor of bools."""
    if not isinstance(cond, Tensor) or cond.dtype is not bool_:
        raise ArgumentTypeError(f"[_check_tensor_all] expected a tensor of bools but got {type_name(cond)}")
    _check_with(error_type, bool(cond.all()), message)


_check_tensor_all = functools.partial(_check_tensor_all_with, RuntimeError)


def _assert_async(condition: Any, message: str = "Expected Tensor with single nonzero value, but got zero") -> None:
    """As `_assert`, at once: PyTorch raises RuntimeError here, and may do so later."""
    if not condition:
        raise RuntimeError(message)


def is_nonzero(input: Tensor) -> bool:
    """Whether the one element of a tensor is not 0.

    >>> pf.is_nonzero(pf.tensor([3]))
    True
    """
    return bool(input)


def result_type(tensor1: Any, tensor2: Any) -> DType:
    """The dtype of an operation over two tensors or numbers.

    >>> pf.result_type(pf.ones(2, dtype=pf.int32), 1.0)
    pyflame.float32
    """
    return common_dtype("result_type", (unwrap(tensor1), unwrap(tensor2)))


def can_cast(from_: object, to: object) -> bool:
    """Whether PyTorch casts a result of one dtype to another by itself: floats not to integers, numbers not to bool.

    >>> pf.can_cast(pf.float32, pf.int64)
    False
    """
    return not outranks(as_dtype(from_), as_dtype(to))


def broadcast_shapes(*shapes: Any) -> Size:
    """The shape that shapes broadcast to.

    >>> pf.broadcast_shapes((3, 1), (4,))
    (3, 4)
    """
    return Size(shape.broadcast_shapes("broadcast_shapes", *[(s,) if isinstance(s, int) else tuple(s) for s in shapes]))


def is_autocast_enabled(device_type: str | None = None) -> bool:
    """Whether ops are inside of pf.autocast.

    >>> pf.is_autocast_enabled()
    False
    """
    return state.autocast is not None


def get_autocast_dtype(device_type: str | None = None) -> DType:
    """The 16-bit dtype of pf.autocast.

    >>> pf.get_autocast_dtype("cpu")
    pyflame.bfloat16
    """
    return state.autocast if state.autocast is not None else dt.bfloat16


is_autocast_cpu_enabled = is_autocast_enabled
get_autocast_cpu_dtype = get_autocast_gpu_dtype = get_autocast_dtype


# --- making tensors ---------------------------------------------------------------------------------------------------


def scalar_tensor(s: Any, *, dtype: object = None, device: object = None, requires_grad: bool = False) -> Tensor:
    """A number as a 0-d tensor of the default dtype.

    >>> pf.scalar_tensor(3)
    tensor(3.)
    """
    return tensor(s, dtype or dt.default.float, device, requires_grad)


def asarray(
    obj: Any, *, dtype: object = None, device: object = None, copy: bool | None = None, requires_grad: bool = False
) -> Tensor:
    """The data as a tensor; with `copy=True` always in memory of its own.

    >>> pf.asarray([1, 2])
    tensor([1, 2])
    """
    out = tensor(obj, dtype, device) if copy else as_tensor(obj, dtype, device)
    return out.requires_grad_() if requires_grad else out


def frombuffer(buffer: Any, *, dtype: object, count: int = -1, offset: int = 0, requires_grad: bool = False) -> Tensor:
    """A tensor over the bytes of an object, without a copy. It is never written to: an in-place op copies.

    >>> pf.frombuffer(b"abc", dtype=pf.uint8)
    tensor([97, 98, 99], dtype=pyflame.uint8)
    """
    out = as_tensor(np.frombuffer(buffer, as_dtype(dtype).numpy, count, offset))
    return out.requires_grad_() if requires_grad else out


class TensorType(type):
    """The class of FloatTensor and its like: tensors of one dtype, whoever made them."""

    dtype: DType
    place: str | None = None  # where they are: None, anywhere

    def on(cls, place: str) -> TensorType:
        """The type of such tensors on the GPU: torch.cuda.FloatTensor."""
        return TensorType(cls.__name__, (), {"dtype": cls.dtype, "place": place, "__module__": f"pyflame.{place}"})

    def __call__(cls, *args: Any, **kwargs: Any) -> Tensor:
        """FloatTensor(2, 3) has no values yet; FloatTensor([1, 2]) has these."""
        if not args:
            return empty(0, dtype=cls.dtype, device=cls.place)
        if all(isinstance(a, (int, np.integer)) and not isinstance(a, bool) for a in args):
            return empty(*args, dtype=cls.dtype, device=cls.place)
        if len(args) == 1 and isinstance(args[0], Size):
            return empty(args[0], dtype=cls.dtype, device=cls.place)
        if len(args) != 1:
            raise ArgumentTypeError(f"[{cls.__name__}] expected sizes or one list of numbers but got {args!r}")
        return tensor(args[0], dtype=cls.dtype, device=cls.place)

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, Tensor) and value.dtype is cls.dtype and (cls.place is None or bool(value.is_cuda))


def _typed(name: str, dtype: DType) -> TensorType:
    text = f"Tensors of {dtype.name}.\n\n>>> pf.{name}(2, 3).shape\n(2, 3)\n"
    return TensorType(name, (), {"dtype": dtype, "__doc__": text, "__module__": "pyflame"})


FloatTensor = _typed("FloatTensor", dt.float32)
DoubleTensor = _typed("DoubleTensor", dt.float64)
HalfTensor = _typed("HalfTensor", dt.float16)
BFloat16Tensor = _typed("BFloat16Tensor", dt.bfloat16)
LongTensor = _typed("LongTensor", dt.int64)
IntTensor = _typed("IntTensor", dt.int32)
ShortTensor = _typed("ShortTensor", dt.int16)
CharTensor = _typed("CharTensor", dt.int8)
ByteTensor = _typed("ByteTensor", dt.uint8)
BoolTensor = _typed("BoolTensor", dt.bool_)


def range(
    start: float = 0, end: float | None = None, step: float = 1, *, dtype: object = None, **options: Any
) -> Tensor:
    """The numbers from start to end, which is one of them, unlike arange's. PyTorch has it for old programs.

    >>> pf.range(1, 4)
    tensor([1., 2., 3., 4.])
    """
    first, last = (0, start) if end is None else (start, end)
    if not step or (last - first) / step < 0:
        raise ArgumentError(f"[range] expected a step that leads from {first} to {last} but got {step}")
    steps = arange(math.floor((last - first) / step) + 1, dtype=dt.float64, **options)
    return (steps * step + first).to(dtype or dt.default.float)


# --- switches ---------------------------------------------------------------------------------------------------------


def set_default_tensor_type(t: Any) -> None:
    """Make tensors of this type's dtype where none is asked for: FloatTensor, DoubleTensor, HalfTensor.

    >>> pf.set_default_tensor_type(pf.FloatTensor)
    """
    name = t.rpartition(".")[2] if isinstance(t, str) else None
    found = globals().get(name) if name is not None else t
    if not isinstance(found, TensorType):
        raise DTypeError(f"[set_default_tensor_type] expected a type such as pf.FloatTensor but got {t!r}")
    dt.set_default_dtype(found.dtype)


def is_inference_mode_enabled() -> bool:
    """Whether inference_mode is on: it is no_grad here.

    >>> pf.is_inference_mode_enabled()
    False
    """
    return not state.grad_enabled


def is_anomaly_enabled() -> bool:
    """Whether backward passes are searched for NaN: never."""
    return False


def set_flush_denormal(mode: bool) -> bool:
    """Whether small numbers can be made 0: no kernel does so.

    >>> pf.set_flush_denormal(True)
    False
    """
    return False


def clear_autocast_cache() -> None:
    """Nothing: autocast keeps no copies."""


def is_autocast_cache_enabled() -> bool:
    """Whether autocast keeps copies of weights: a graph has each cast once anyway."""
    return False


def set_autocast_cache_enabled(enabled: bool) -> None:
    """Nothing: autocast keeps no copies."""


def set_default_device(device: object) -> None:
    """Make tensors there where no device is asked for: pf.set_device.

    >>> pf.set_default_device("cpu")
    """
    set_device("cpu" if device is None else device)


def get_default_device() -> device:
    """Where tensors are made.

    >>> pf.get_default_device()
    device(type='cpu')
    """
    return named(state.device)


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Use only implementations that give the same bits in every run, in this thread from now on: see pf.deterministic.

    >>> pf.use_deterministic_algorithms(False)
    """
    state.deterministic = bool(mode)


def are_deterministic_algorithms_enabled() -> bool:
    """Whether only implementations are used that give the same bits in every run."""
    return state.deterministic


_DEBUG_MODES = ("default", "warn", "error")


def set_deterministic_debug_mode(debug_mode: int | str) -> None:
    """0 or "default": any implementation; 1, 2, "warn" or "error": only those with the same bits in every run.

    There always is one, so that there is nothing to warn of.

    >>> pf.set_deterministic_debug_mode("default")
    """
    if debug_mode not in (0, 1, 2, *_DEBUG_MODES):
        raise ArgumentError(f"[set_deterministic_debug_mode] expected 0, 1, 2 or {_DEBUG_MODES} but got {debug_mode!r}")
    use_deterministic_algorithms(debug_mode not in (0, "default"))


def get_deterministic_debug_mode() -> int:
    """2 where only implementations are used that give the same bits in every run, else 0."""
    return 2 if state.deterministic else 0


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """Whether implementations that may differ from run to run only warn: never."""
    return False


def get_num_threads() -> int:
    """Worker threads of the CPU device."""
    return int(_opened(CPU).target.workers)


def get_num_interop_threads() -> int:
    """Plans run one after another: 1."""
    return 1


def set_num_threads(num: int) -> None:
    """The number of threads is fixed when the CPU is first used; warns where another is asked for."""
    if num != get_num_threads():
        warnings.warn(
            f"[set_num_threads] the CPU device has {get_num_threads()} threads; start the program with "
            f"PYFLAME_THREADS={num} for {num}",
            stacklevel=2,
        )


def set_num_interop_threads(num: int) -> None:
    """Plans run one after another; there is nothing to set."""


def set_printoptions(
    precision: int | None = None,
    threshold: int | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """How tensors print: digits, elements from which on some are left out, how many stay at each end, columns.

    >>> pf.set_printoptions(precision=2); pf.tensor([1 / 3])
    tensor([0.33])
    >>> pf.set_printoptions(profile="default")
    """
    printing.set_options(precision, threshold, edgeitems, linewidth, profile, sci_mode)
