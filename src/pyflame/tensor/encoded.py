"""EncodedTensor: a tensor of numbers that lie in memory as encoded blocks (core/encoding.py)."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from pyflame.core.dtype import DType, as_dtype, float32
from pyflame.core.encoding import Encoding
from pyflame.core.encoding import encoding as encoding_of
from pyflame.core.errors import ArgumentTypeError, DTypeError, type_name
from pyflame.core.shape import Shape
from pyflame.tensor.creation import as_tensor, from_numpy
from pyflame.tensor.dispatch import FUNCTIONS as OP_FUNCTIONS
from pyflame.tensor.tensor import Tensor


class EncodedTensor:
    """Rows of encoded blocks: `data`, bytes (..., row bytes), stand for numbers of `shape` (..., width).

    `dtype` is what it decodes to unless told otherwise. The bytes may be those of a mapped file: they are only read.

    >>> w = pf.quantize(pf.ones(4, 64), "q4_0")
    >>> w, w.nbytes, w.data.shape
    (EncodedTensor(shape=(4, 64), encoding=q4_0, device=cpu), 144, (4, 36))
    """

    __slots__ = ("data", "dtype", "encoding", "shape")

    def __init__(self, data: Any, encoding: object, dtype: object = float32) -> None:
        self.data: Tensor = as_tensor(data)
        self.encoding: Encoding = encoding_of(encoding, "EncodedTensor")
        self.dtype: DType = as_dtype(dtype)
        if self.data.dtype.name != "uint8" or not self.data.ndim:
            got = f"{self.data.dtype.name} of shape {self.data.shape}"
            raise DTypeError(f"[EncodedTensor] expected rows of bytes (uint8) but got {got}")
        width = self.encoding.width(self.data.shape[-1], "EncodedTensor")
        self.shape: Shape = (*self.data.shape[:-1], width)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """The bytes in memory."""
        return prod(self.data.shape)

    @property
    def device(self) -> Any:
        return self.data.device

    def to(self, device: object) -> EncodedTensor:
        """The same bytes on a device."""
        return EncodedTensor(self.data.to(device=device), self.encoding, self.dtype)

    def dequantize(self, dtype: object = None) -> Tensor:
        """The numbers as a plain tensor, of `self.dtype` unless another is named."""
        wanted = self.dtype if dtype is None else dtype
        return OP_FUNCTIONS["dequantize"](self.data, encoding=self.encoding, dtype=wanted)  # type: ignore[no-any-return]

    def __getitem__(self, rows: Any) -> EncodedTensor:
        """Rows of the outermost axis, still encoded: an int, a slice, or a tensor of indices."""
        if self.ndim < 2 or isinstance(rows, tuple) or rows is None or rows is Ellipsis:
            raise ArgumentTypeError(
                f"[EncodedTensor] expected an index of the outermost of at least two axes but got {rows!r}; "
                "dequantize() gives a tensor that takes any index"
            )
        return EncodedTensor(self.data[rows], self.encoding, self.dtype)

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"EncodedTensor(shape={tuple(self.shape)}, encoding={self.encoding.name}, device={self.device})"


def quantize(x: Any, encoding: object) -> EncodedTensor:
    """Encode a tensor, row by row. It is computed on the host, and lies where x did.

    >>> pf.quantize(pf.ones(2, 32), "q8_0")
    EncodedTensor(shape=(2, 32), encoding=q8_0, device=cpu)
    """
    values, kind = as_tensor(x), encoding_of(encoding, "quantize")
    if not values.dtype.is_float:
        raise DTypeError(f"[quantize] expected floating-point numbers but got {values.dtype.name}")
    kind.row_bytes(values.shape[-1] if values.ndim else 1, "quantize")
    data = from_numpy(kind.encode(np.asarray(values.detach().numpy(), np.float32)))
    meta = values._node.meta
    return EncodedTensor(data.to(meta.device) if meta.committed else data, kind)


def dequantize(x: Any, dtype: object = None, *, encoding: object = None) -> Tensor:
    """What an encoded tensor stands for: an EncodedTensor, or bytes (..., row bytes) whose encoding is named.

    >>> pf.dequantize(pf.quantize(pf.ones(1, 32), "q8_0")).sum()
    tensor(31.9980)
    """
    if isinstance(x, EncodedTensor):
        return x.dequantize(dtype)
    if encoding is None:
        raise ArgumentTypeError(
            f"[dequantize] expected an EncodedTensor, or bytes with their encoding=, but got {type_name(x)}"
        )
    return EncodedTensor(x, encoding).dequantize(dtype)
