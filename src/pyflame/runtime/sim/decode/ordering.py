"""Instructions that order accesses to memory: where LLVM's memory model has a release or an acquire on a target.

Of scopes that matter between blocks (agent and system); within a block, barriers order. From LLVM's "User Guide for
AMDGPU Backend", Memory Model, and from what clang 22 makes of `__builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent")`:
gfx90a and gfx11 have released a store when it was waited for; dies of gfx942 and gfx950 must write their L2 back.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_RELEASE = {
    "gfx90a": r"s_waitcnt .*\bvmcnt\(0\)|buffer_wbl2",
    "gfx942": r"buffer_wbl2.* sc1",
    "gfx950": r"buffer_wbl2.* sc1",
    "gfx1100": r"s_waitcnt_vscnt null, 0x0",
    "gfx1201": r"s_wait_storecnt(_dscnt)? 0x0|global_wb(inv)? scope:SCOPE_(DEV|SYS)",
}
_ACQUIRE = {
    "gfx90a": r"buffer_wbinvl1",
    "gfx942": r"buffer_inv.* sc1",
    "gfx950": r"buffer_inv.* sc1",
    "gfx1100": r"buffer_gl1_inv",
    "gfx1201": r"global_inv scope:SCOPE_(DEV|SYS)",
}
_HANDLERS = {
    target: (
        (re.compile(_RELEASE[target]), "mem_release"),
        (re.compile(_ACQUIRE[target]), "mem_acquire"),
        (re.compile("s_dcache_inv"), "scalar_forget"),
    )
    for target in _RELEASE
}
STORES_MARKED = ("gfx942", "gfx950", "gfx1201")  # targets that tell atomic stores from plain ones


def ordering(text: str, target: str) -> str | None:
    """The handler of an instruction that orders memory, if it is one.

    >>> ordering("s_waitcnt vmcnt(0) lgkmcnt(0)", "gfx90a"), ordering("buffer_inv sc1", "gfx942")
    ('mem_release', 'mem_acquire')
    """
    return next((handler for pattern, handler in _HANDLERS[target] if pattern.match(text)), None)


def coherent(what: str, modifiers: Mapping[str, str]) -> bool:
    """Whether a load or a store goes around caches: it is atomic, or volatile. gfx90a and gfx11 mark no stores."""
    if "sc1" in modifiers or modifiers.get("scope") in ("SCOPE_DEV", "SCOPE_SYS"):
        return True
    return what == "load" and "glc" in modifiers and "slc" not in modifiers
