"""torch.quasirandom by its path: Sobol sequences, points that fill a cube more evenly than random ones do.

The points are PyTorch's, scrambled ones too where a seed is given: its generator is the one of NumPy's RandomState.
`quasirandom.npz`, written by tools/make_sobol.py, has the numbers of S. Joe and F. Y. Kuo (2008) that sequences begin
with. They are computed on the host.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from pyflame.core.dtype import as_dtype, get_default_dtype
from pyflame.core.errors import ArgumentError
from pyflame.tensor import Tensor
from pyflame.tensor.creation import tensor
from pyflame.tensor.random import randint

__all__ = ["SobolEngine"]

Array = np.ndarray[Any, Any]
_MAXBIT, _MAXDIM, _DEGREE = 30, 21201, 18


def _directions(dimension: int) -> Array:
    """(dimensions, bits): what bit i of a point's number in Gray code adds to it, in each dimension."""
    with np.load(Path(__file__).with_suffix(".npz")) as file:
        polynomials, packed = file["polynomials"][:dimension].astype(np.int64), file["bits"]
    degrees = np.frexp(polynomials.astype(np.float64))[1] - 1
    place, bit = np.arange(_DEGREE)[:, None], np.arange(_DEGREE)
    kept = (place < degrees[:, None, None]) & (bit >= 1) & (bit <= place)
    bits = np.zeros(kept.shape, np.int64)
    bits[kept] = np.unpackbits(packed, count=int(kept.sum()))
    numbers = np.zeros((dimension, _MAXBIT), np.int64)
    numbers[:, :_DEGREE] = ((bits << bit).sum(-1) | 1) * (np.arange(_DEGREE) < degrees[:, None])
    numbers[0] = 1
    # m[i] = 2 c[1] m[i-1] ^ 4 c[2] m[i-2] ^ ... ^ 2**s m[i-s] ^ m[i-s], with the coefficients c of the polynomial
    for degree in range(1, _DEGREE + 1):
        rows = degrees == degree
        own, polynomial = numbers[rows], polynomials[rows]
        for i in range(degree, _MAXBIT):
            own[:, i] = own[:, i - degree]
            for k in range(1, degree + 1):
                own[:, i] ^= (own[:, i - k] << k) * (polynomial >> (degree - k) & 1)
        numbers[rows] = own
    return numbers << np.arange(_MAXBIT - 1, -1, -1)


class SobolEngine:
    """Points of a Sobol sequence in the unit cube, one behind the other. `scramble` moves them at random, by `seed`.

    >>> pf.quasirandom.SobolEngine(2).draw(3)
    tensor([[0.0000, 0.0000],
            [0.5000, 0.5000],
            [0.7500, 0.2500]])
    """

    MAXBIT = _MAXBIT
    MAXDIM = _MAXDIM

    def __init__(self, dimension: int, scramble: bool = False, seed: int | None = None) -> None:
        if not 1 <= dimension <= _MAXDIM:
            raise ArgumentError(f"[SobolEngine] expected a dimension in [1, {_MAXDIM}] but got {dimension}")
        self.dimension = dimension
        self.scramble = scramble
        self.seed = seed
        self.num_generated = 0
        self._state = _directions(dimension)
        self._shift = np.zeros(dimension, np.int64)
        if scramble:
            self._scramble()

    def _scramble(self) -> None:
        """Multiply the directions by random triangular matrices over GF(2), and shift by a random point."""
        seed = int(randint(2**31, ()).item()) if self.seed is None else self.seed
        draw = np.random.RandomState(seed & 0xFFFFFFFF)

        def bits(*shape: int) -> Array:
            return draw.randint(0, 2**32, size=shape, dtype=np.uint32).astype(np.int64) & 1

        weights = 1 << np.arange(_MAXBIT)
        self._shift = bits(self.dimension, _MAXBIT) @ weights
        # unit diagonals; the first row is the highest bit
        rows = np.tril(bits(self.dimension, _MAXBIT, _MAXBIT), -1) | np.eye(_MAXBIT, dtype=np.int64)
        have = self._state[:, :, None] >> np.arange(_MAXBIT - 1, -1, -1) & 1
        mixed = np.einsum("drb,dib->dir", rows, have) & 1
        self._state = mixed @ weights[::-1]

    def _next(self, n: int) -> Array:
        """(n, dimension): whole numbers of the next points."""
        numbers = np.arange(self.num_generated, self.num_generated + n)
        gray = numbers ^ (numbers >> 1)
        out = np.tile(self._shift, (n, 1))
        for bit in range(int(gray.max(initial=0)).bit_length()):
            out ^= (gray >> bit & 1)[:, None] * self._state[:, bit]
        self.num_generated += n
        return out

    def draw(self, n: int = 1, out: Tensor | None = None, dtype: object = None) -> Tensor:
        """(n, dimension): the next points, of the default dtype."""
        points = tensor(self._next(n) / 2**_MAXBIT, dtype=as_dtype(dtype) if dtype else get_default_dtype())
        return points if out is None else out.copy_(points)

    def draw_base2(self, m: int, out: Tensor | None = None, dtype: object = None) -> Tensor:
        """The next 2**m points, which must make a power of two together with those before."""
        total = self.num_generated + 2**m
        if total & (total - 1):
            raise ArgumentError(
                f"[draw_base2] expected a power of two of points in all but got {self.num_generated} + 2**{m}; use draw"
            )
        return self.draw(2**m, out, dtype)

    def reset(self) -> SobolEngine:
        """Begin again."""
        self.num_generated = 0
        return self

    def fast_forward(self, n: int) -> SobolEngine:
        """Leave out the next n points."""
        self.num_generated += n
        return self

    def __repr__(self) -> str:
        options = [f"dimension={self.dimension}", *(["scramble=True"] if self.scramble else [])]
        return f"SobolEngine({', '.join(options + ([f'seed={self.seed}'] if self.seed is not None else []))})"
