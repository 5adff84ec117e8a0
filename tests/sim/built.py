"""The instructions that a function's kernels are built of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pyflame as pf
from pyflame.runtime.rocm.disassembly import disassemble, find_objdump
from pyflame.runtime.sim.decode.text import read_listing


def mnemonics(target: str, function: Callable[..., Any], *inputs: Any) -> Counter[str]:
    """How often each instruction is in the code of all kernels, by its name without the encoding."""
    objdump = find_objdump()
    assert objdump is not None
    found: Counter[str] = Counter()
    for launch in pf.aot.compile(function, *inputs, target=target).launches:
        lines, _ = read_listing(disassemble(launch.code_object, objdump))
        found.update(half.name for halves in lines for half in halves)
    return found
