"""Element types and PyTorch's promotion rules.

A DType is one of a fixed set of frozen values; compare with `is`. Kernels compute 16- and 8-bit floats in
float32 (`compute`), so a value is rounded only where it is stored or cast.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from pyflame.core.cached import cached_property
from pyflame.core.errors import DTypeError, suggest


@dataclass(frozen=True, eq=False)
class DType:
    """An element type: its name, its size in bytes and its category (b, i, f or c)."""

    name: str
    itemsize: int
    category: str

    @cached_property
    def numpy(self) -> np.dtype[Any]:
        """NumPy's dtype of the same elements; ml_dtypes is imported where it is one of those."""
        if self not in _OF_ML_DTYPES:
            return np.dtype(self.name.removesuffix("_"))
        import ml_dtypes

        found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, self.name))
        return found

    def __repr__(self) -> str:
        return f"pyflame.{self.name.rstrip('_')}"  # Python's bool has the name that NumPy and PyTorch use

    def __reduce__(self) -> str:
        # One object per dtype, also after pickling: they are compared by identity.
        return self.name

    @property
    def is_float(self) -> bool:
        return self.category == "f"

    @property
    def is_int(self) -> bool:
        return self.category == "i"

    @property
    def is_complex(self) -> bool:
        return self.category == "c"

    @property
    def is_floating_point(self) -> bool:
        """PyTorch's name of `is_float`."""
        return self.is_float

    @property
    def is_signed(self) -> bool:
        """Whether values of it can be negative.

        >>> pf.int8.is_signed, pf.uint8.is_signed
        (True, False)
        """
        return self.category != "b" and self.name[0] != "u"

    def to_real(self) -> DType:
        """PyTorch's name of `real`."""
        return self.real

    def to_complex(self) -> DType:
        """The complex dtype whose parts have this dtype, or are its nearest.

        >>> pf.float64.to_complex()
        pyflame.complex128
        """
        return complex_of(self)

    @property
    def has_gradient(self) -> bool:
        """Whether values of it can be differentiated."""
        return self.category in "fc"

    @property
    def real(self) -> DType:
        """The dtype of a complex number's parts; of other dtypes themselves."""
        return {complex64: float32, complex128: float64}.get(self, self)

    @property
    def compute(self) -> DType:
        """The type in which kernels hold a value of this dtype between load and store."""
        return float32 if self.is_float and self.itemsize < 4 else self

    @property
    def accumulate(self) -> DType:
        """The type in which sums of this dtype are kept: PyTorch sums integers and bools as int64."""
        return self.compute if self.has_gradient else int64


# Libraries walk through the fields of dataclasses that they are given; to them it is a leaf, as torch.dtype is.
del DType.__dataclass_fields__


bool_ = DType("bool_", 1, "b")
uint8 = DType("uint8", 1, "i")
int8 = DType("int8", 1, "i")
int16 = DType("int16", 2, "i")
int32 = DType("int32", 4, "i")
int64 = DType("int64", 8, "i")
uint16 = DType("uint16", 2, "i")
uint32 = DType("uint32", 4, "i")
uint64 = DType("uint64", 8, "i")
float8_e4m3fn = DType("float8_e4m3fn", 1, "f")
float8_e4m3fnuz = DType("float8_e4m3fnuz", 1, "f")
float8_e5m2 = DType("float8_e5m2", 1, "f")
float16 = DType("float16", 2, "f")
bfloat16 = DType("bfloat16", 2, "f")
float32 = DType("float32", 4, "f")
float64 = DType("float64", 8, "f")
# Kernels only move complex numbers and take them apart: ops compute with their real and imaginary parts.
complex64 = DType("complex64", 8, "c")
complex128 = DType("complex128", 16, "c")

FLOAT8 = (float8_e4m3fn, float8_e4m3fnuz, float8_e5m2)
WIDE_UNSIGNED = (uint16, uint32, uint64)
_INTEGERS = (uint8, int8, int16, int32, int64, *WIDE_UNSIGNED)
ALL = (bool_, *_INTEGERS, *FLOAT8, float16, bfloat16, float32, float64, complex64, complex128)
_BY_NAME = {d.name: d for d in ALL} | {
    "bool": bool_,
    "float": float32,
    "double": float64,
    "half": float16,
    "int": int32,
    "long": int64,
    "cfloat": complex64,
    "cdouble": complex128,
}
_OF_ML_DTYPES = frozenset((*FLOAT8, bfloat16))
_PYTHON = {bool: bool_, int: int64, float: float32, complex: complex64}


class _Default:
    """What Python floats become, and integers where a result must be a float: float32 unless a program says so."""

    def __init__(self) -> None:
        self.float = float32


default = _Default()


def get_default_dtype() -> DType:
    """The dtype of tensors that are made of Python floats, or without `dtype=`.

    >>> pf.get_default_dtype()
    pyflame.float32
    """
    return default.float


def set_default_dtype(d: object) -> None:
    """Make tensors of another floating-point dtype where none is asked for.

    >>> pf.set_default_dtype(pf.float32)
    """
    wanted = as_dtype(d)
    if wanted not in (float16, bfloat16, float32, float64):
        raise DTypeError(f"[set_default_dtype] expected a floating-point dtype but got {wanted.name}")
    default.float = wanted


def as_dtype(value: object) -> DType:
    """The DType named by a DType, a string, a NumPy dtype, a Python type or a torch dtype.

    >>> as_dtype("float32") is as_dtype(np.float32)
    True
    """
    if isinstance(value, DType):
        return value
    if isinstance(value, str):
        if value in _BY_NAME:
            return _BY_NAME[value]
        raise DTypeError(f"[dtype] expected the name of a dtype but got {value!r}{suggest(value, _BY_NAME)}")
    if isinstance(value, type):
        if value in _PYTHON:
            return _PYTHON[value]
        if isinstance(found := getattr(value, "dtype", None), DType):  # pf.FloatTensor
            return found
    name = str(value)
    if name.startswith("torch.") and name[6:] in _BY_NAME:
        return _BY_NAME[name[6:]]
    try:
        return _of_numpy(np.dtype(value))  # type: ignore[call-overload]
    except (TypeError, ValueError, KeyError):
        raise DTypeError(f"[dtype] expected one of {', '.join(d.name for d in ALL)} but got {value!r}") from None


@lru_cache(256)
def _of_numpy(dtype: np.dtype[Any]) -> DType:
    """The DType of a NumPy dtype, or a KeyError."""
    found = _BY_NAME[dtype.name]
    if found.numpy != dtype:  # bytes in the other order
        raise KeyError(dtype)
    return found


_RANK = {d: i for i, d in enumerate(ALL)}
_CATEGORY_ORDER = {"b": 0, "i": 1, "f": 2, "c": 3}


def promote_types(a: DType, b: DType) -> DType:
    """The smallest dtype that PyTorch gives an operation over both.

    >>> promote_types(float16, bfloat16)
    pyflame.float32
    """
    if a is b:
        return a
    if (a in FLOAT8) or (b in FLOAT8):
        raise DTypeError(
            f"[promote] expected dtypes that mix but got {a.name} and {b.name}; fp8 is for storage: "
            "cast it first, x.to(pf.float32)"
        )
    if (a in WIDE_UNSIGNED or b in WIDE_UNSIGNED) and not (a.is_float or b.is_float):
        raise DTypeError(
            f"[promote] expected dtypes that mix but got {a.name} and {b.name}; uint16, uint32 and uint64 mix with "
            "floats only, as in PyTorch: cast one, x.to(pf.int64)"
        )
    if a.is_complex or b.is_complex:
        return complex128 if float64 in (a.real, b.real) else complex64
    if a.category != b.category:
        return a if _CATEGORY_ORDER[a.category] > _CATEGORY_ORDER[b.category] else b
    if {a, b} == {float16, bfloat16}:
        return float32
    if {a, b} == {uint8, int8}:
        return int16
    return a if _RANK[a] > _RANK[b] else b


def complex_of(dtype: DType) -> DType:
    """The complex dtype whose parts have this dtype, or are its nearest."""
    return complex128 if dtype in (float64, complex128) else complex64


def of_scalar(value: bool | int | float | complex) -> DType:
    """The default dtype of a Python number."""
    found = _PYTHON.get(type(value), float32)
    return default.float if found.is_float else found


def outranks(one: DType, other: DType) -> bool:
    """Whether a dtype is of a higher category: bool, integer, float, complex."""
    return _CATEGORY_ORDER[one.category] > _CATEGORY_ORDER[other.category]


def promote_scalar(tensor: DType, value: bool | int | float | complex) -> DType:
    """The dtype of `tensor op number`: the number only raises the category, never the width.

    >>> promote_scalar(float16, 2.5), promote_scalar(int8, 2.5)
    (pyflame.float16, pyflame.float32)
    """
    scalar = of_scalar(value)
    if not outranks(scalar, tensor):
        return tensor
    return complex_of(tensor) if scalar.is_complex else scalar
