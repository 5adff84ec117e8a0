"""Write src/pyflame/quasirandom.npz: the numbers of Joe and Kuo that Sobol sequences begin with, read from torch.

    python tools/make_sobol.py

The first s numbers of a dimension, of which the i-th is odd and below 2**i, follow from nothing; all others follow from
them and from a primitive polynomial of degree s. Only these are written: bits of the numbers, one behind the other.
"""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import torch  # noqa: TID251  what it reads

OUT = Path(__file__).parents[1] / "src" / "pyflame" / "quasirandom.npz"
DIMENSIONS, BITS = 21201, 30


def times_x(value: int, by: int, polynomial: int, degree: int) -> int:
    """A product of polynomials over GF(2), modulo another one."""
    out = 0
    while by:
        out ^= value if by & 1 else 0
        value <<= 1
        value ^= polynomial if value >> degree else 0
        by >>= 1
    return out


def power(exponent: int, polynomial: int, degree: int) -> int:
    """x ** exponent, modulo the polynomial."""
    out, base = 1, 2 if degree > 1 else 1
    while exponent:
        out = times_x(out, base, polynomial, degree) if exponent & 1 else out
        base = times_x(base, base, polynomial, degree)
        exponent >>= 1
    return out


@functools.cache
def primes(number: int) -> list[int]:
    """Those that divide it."""
    return [p for p in range(2, number + 1) if number % p == 0 and all(p % q for q in range(2, int(p**0.5) + 1))]


def is_primitive(polynomial: int, degree: int) -> bool:
    order = 2**degree - 1
    if power(order, polynomial, degree) != 1:
        return False
    return all(power(order // p, polynomial, degree) != 1 for p in primes(order))


def polynomials() -> np.ndarray:
    found = [1]  # of the first dimension, which has none
    degree = 1
    while len(found) < DIMENSIONS:
        found += [p for p in range((1 << degree) + 1, 2 << degree, 2) if is_primitive(p, degree)]
        degree += 1
    return np.array(found[:DIMENSIONS], np.uint32)


def main() -> None:
    state = torch.zeros(DIMENSIONS, BITS, dtype=torch.long)
    torch._sobol_engine_initialize_state_(state, DIMENSIONS)
    numbers = state.numpy() >> np.arange(BITS - 1, -1, -1)
    wanted = polynomials()
    degrees = np.frexp(wanted.astype(np.float64))[1] - 1
    place, bit = np.arange(18)[:, None], np.arange(18)
    kept = (place < degrees[:, None, None]) & (bit >= 1) & (bit <= place)
    bits = (numbers[:, :18, None] >> bit & 1).astype(bool)[kept]
    np.savez_compressed(OUT, polynomials=wanted, bits=np.packbits(bits))


if __name__ == "__main__":
    main()
