"""Errors that kernels leave in a record: what a plan's checks of indices have found."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from pyflame.core.errors import IndexError as PyFlameIndexError
from pyflame.ir.kernel import Plan


def raise_bad_index(plan: Plan, record: bytes, lines: Sequence[str]) -> None:
    """An error if a kernel met an index outside of its axis. `lines`: where this graph's ops were called."""
    number, index, size = struct.unpack("=3q", record)
    if number:
        name, line = plan.checks[number - 1]
        at = plan.check_lines[number - 1]
        line = lines[at] if lines and at >= 0 else line
        raise PyFlameIndexError(
            f"[{name}] expected an index in [{-size}, {size - 1}] but got {index}; called at {line}"
        )
