"""What a dtype can hold: `finfo` for floats, `iinfo` for integers, as PyTorch describes them."""

from __future__ import annotations

from dataclasses import dataclass
from math import log10

import ml_dtypes
import numpy as np

from pyflame.core.dtype import as_dtype, float32, float64
from pyflame.core.errors import DTypeError


@dataclass(frozen=True, init=False, repr=False)
class finfo:
    """The limits of a floating-point dtype; of a complex one, those of its parts.

    >>> pf.finfo(pf.float16).max
    65504.0
    """

    bits: int
    eps: float  # from 1 to the next number
    max: float
    min: float
    tiny: float
    smallest_normal: float
    resolution: float
    dtype: str

    def __init__(self, dtype: object = float32) -> None:
        wanted = as_dtype(dtype)
        if wanted.is_complex:
            wanted = float32 if wanted.itemsize == 8 else float64
        if not wanted.is_float:
            raise DTypeError(f"[finfo] expected a floating-point dtype but got {wanted.name}; use iinfo for integers")
        found = ml_dtypes.finfo(wanted.numpy)  # type: ignore[no-untyped-call]
        smallest = float(found.smallest_normal)
        values = {"bits": int(found.bits), "eps": float(found.eps), "max": float(found.max), "min": float(found.min)}
        values |= {"tiny": smallest, "smallest_normal": smallest, "resolution": 10.0 ** -int(found.nmant * log10(2))}
        for name, value in {**values, "dtype": wanted.name}.items():
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        names = ("resolution", "min", "max", "eps", "smallest_normal", "tiny")
        return f"finfo({', '.join(f'{name}={getattr(self, name):g}' for name in names)}, dtype={self.dtype})"


@dataclass(frozen=True, init=False, repr=False)
class iinfo:
    """The limits of an integer dtype.

    >>> pf.iinfo(pf.int8).max
    127
    """

    bits: int
    max: int
    min: int
    dtype: str

    def __init__(self, dtype: object) -> None:
        wanted = as_dtype(dtype)
        if not wanted.is_int:
            raise DTypeError(f"[iinfo] expected an integer dtype but got {wanted.name}; use finfo for floats")
        found = np.iinfo(wanted.numpy)
        values = {"bits": int(found.bits), "max": int(found.max), "min": int(found.min)}
        for name, value in {**values, "dtype": wanted.name}.items():
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        return f"iinfo(min={self.min:g}, max={self.max:g}, dtype={self.dtype})"
