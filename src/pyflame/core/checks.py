"""Checks of arguments that many functions share."""

from __future__ import annotations

import operator
from typing import SupportsIndex, cast

from pyflame.core.errors import ArgumentError, ArgumentTypeError


def natural(op: str, what: str, value: object) -> int:
    """A whole number of 0 or more: a size, an address.

    >>> natural("allocate", "a size", 4096)
    4096
    """
    try:
        number = operator.index(cast(SupportsIndex, value))
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        raise ArgumentTypeError(f"[{op}] expected {what}, a whole number, but got {value!r}")
    if number < 0:
        raise ArgumentError(f"[{op}] expected {what} of 0 or more but got {number}")
    return number
