"""What the tests of memory instructions share: names of both targets, filled memory, expected registers."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyflame.runtime.sim.memory import Memory
from tests.sim.snippet import LANES

TARGETS = tuple(LANES)
# What GFX9 calls a load, what GFX11 calls it, bytes, signed, which half of the register it fills.
LOADS = (
    ("ubyte", "u8", 1, False, None), ("sbyte", "i8", 1, True, None), ("ushort", "u16", 2, False, None),
    ("sshort", "i16", 2, True, None), ("dword", "b32", 4, False, None), ("dwordx2", "b64", 8, False, None),
    ("dwordx3", "b96", 12, False, None), ("dwordx4", "b128", 16, False, None),
    ("ubyte_d16", "d16_u8", 1, False, 0), ("ubyte_d16_hi", "d16_hi_u8", 1, False, 1),
    ("sbyte_d16", "d16_i8", 1, True, 0), ("sbyte_d16_hi", "d16_hi_i8", 1, True, 1),
    ("short_d16", "d16_b16", 2, False, 0), ("short_d16_hi", "d16_hi_b16", 2, False, 1),
)  # fmt: skip
OLD = 0xDEADBEEF
SIZE = 4096


def name_of(target: str, old: str, new: str) -> str:
    return new if target.startswith("gfx1") else old


def kept(target: str) -> str:
    """The modifier that makes an atomic give back what was there."""
    return {"gfx942": "sc0", "gfx950": "sc0", "gfx1201": "th:TH_ATOMIC_RETURN"}.get(target, "glc")


def no_offset(target: str) -> str:
    """The scalar offset of a buffer instruction, where there is none."""
    return "null" if target == "gfx1201" else "0"


def words(address: int) -> tuple[int, int]:
    return address & 0xFFFFFFFF, address >> 32


def some_bytes(n: int = SIZE) -> Any:
    return np.random.default_rng(7).integers(0, 256, n, dtype=np.uint8)


def filled(data: Any) -> tuple[Memory, int]:
    memory = Memory(1 << 20)
    address = memory.allocate(len(data))
    memory.view(address, len(data), write=True)[:] = data
    return memory, address


def lanes_on(target: str, mask: int) -> Any:
    return np.array([mask >> lane & 1 for lane in range(LANES[target])], bool)


def register(width: int) -> str:
    """The registers from v8 on that hold some bytes."""
    return "v8" if width <= 4 else f"v[8:{7 + width // 4}]"


def loaded(raw: bytes, signed: bool, half: int | None) -> list[int]:
    """What a lane's registers hold after a load of these bytes; before, each held OLD."""
    if len(raw) >= 4:
        return [int.from_bytes(raw[n : n + 4], "little") for n in range(0, len(raw), 4)]
    value = int.from_bytes(raw, "little", signed=signed)
    if half is None:
        return [value & 0xFFFFFFFF]
    value &= 0xFFFF
    return [value << 16 | OLD & 0xFFFF] if half else [OLD & 0xFFFF0000 | value]


def check_loads(
    target: str, state: Any, data: Any, at: Any, width: int, signed: bool, half: int | None, on: Any
) -> None:
    for lane in range(LANES[target]):
        got = [int(state.v[8 + n][lane]) for n in range(max(width // 4, 1))]
        want = loaded(bytes(data[at[lane] : at[lane] + width]), signed, half) if on[lane] else [OLD] * len(got)
        assert got == want, (lane, [hex(g) for g in got], [hex(w) for w in want])


# How addresses come about: all lanes in a row, spread, the same for all, unaligned.
def patterns(target: str, width: int) -> dict[str, Any]:
    lane = np.arange(LANES[target], dtype=np.uint32)
    return {
        "in a row": lane * width,
        "spread": lane * 37 % 50 * 32,
        "the same": lane * 0 + 64,
        "unaligned": lane * 31 + 1,
    }
