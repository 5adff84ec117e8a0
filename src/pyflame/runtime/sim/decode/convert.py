"""Conversions of GFX950 with a scale: their names say what the handlers in isa/vector_scale.c want to know."""

from __future__ import annotations

import re

from pyflame.runtime.sim.decode.inst import HIGH, Inst
from pyflame.runtime.sim.decode.text import Line

_NAME = re.compile(
    r"v_cvt_scalef32_(?P<random>sr_)?(?:pk(?P<many>32)?_)?(?P<to>fp8|bf8|fp6|bf6|fp4|f32|f16|bf16)_(?P<of>\w+)$"
)
_SMALL = {"fp8": 0, "bf8": 1, "fp6": 2, "bf6": 3, "fp4": 4}
_WIDE = {"f32": 0, "f16": 1, "bf16": 2}


def decode_scaled(line: Line, name: str, inst: Inst) -> None:
    """Fill space, extra, count, bytes and omod: the formats, how many, where, and whether rounding is random."""
    found = _NAME.match(name)
    if not found:
        return
    widens = found["to"] in _WIDE
    small, wide = (found["of"], found["to"]) if widens else (found["to"], found["of"])
    inst.space, inst.extra, inst.omod = _SMALL[small], _WIDE[wide], int(found["random"] is not None)
    inst.count = 32 if found["many"] else 2 if "_pk_" in name else 1
    selected = [int(bit) for bit in line.modifiers.get("op_sel", "[0]").strip("[]").split(",")] + [0] * 4
    for source in inst.src:
        source.mods &= ~HIGH
    inst.dst[0].mods &= ~HIGH
    in_words = small in ("fp8", "bf8") and inst.count == 2  # else a byte is chosen
    if widens:
        inst.bytes = 2 * selected[0] if in_words else selected[0] + 2 * selected[1]
        inst.dst[0].mods |= HIGH * (inst.count == 1 and selected[2])
    elif in_words:
        inst.bytes = 2 * selected[3 if wide == "f32" else 2]
    else:
        inst.bytes = selected[2] + 2 * selected[3]
