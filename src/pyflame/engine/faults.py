"""Errors that kernels leave in a record: what a plan's checks of indices have found."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from pyflame.core.errors import IndexError as PyFlameIndexError


def raise_bad_index(
    record: bytes, checks: Sequence[tuple[str, str]], check_lines: Sequence[int] = (), lines: Sequence[str] = ()
) -> None:
    """An error if a kernel met an index outside of its axis.

    `checks`: op and line of each check. Where the plan is used again, by a graph whose ops were called elsewhere,
    `check_lines` says which of that graph's `lines` belongs to each.
    """
    number, index, size = struct.unpack("=3q", record)
    if number:
        name, line = checks[number - 1]
        at = check_lines[number - 1] if lines else -1
        line = lines[at] if at >= 0 else line
        raise PyFlameIndexError(
            f"[{name}] expected an index in [{-size}, {size - 1}] but got {index}; called at {line}"
        )
