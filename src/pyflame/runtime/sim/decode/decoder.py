"""From the disassembler's text to instructions that the interpreter runs.

The text is LLVM's own, so no encoding is guessed here. What an operand's constant means depends on its type, which the
interpreter's tables give for each instruction.
"""

from __future__ import annotations

import ctypes
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyflame.runtime.sim.decode.convert import decode_scaled
from pyflame.runtime.sim.decode.inst import (
    ABS,
    AGPR_ROW,
    BOUND_CTRL,
    CLAMP,
    CONSTANT,
    DPP,
    EXEC,
    HIGH,
    HIGH_OF_HIGH,
    M0,
    NEG,
    NEG_HIGH,
    NULL,
    PAIRED,
    SDWA,
    SEXT,
    SGPR,
    SPARE_ROW,
    TTMP,
    VCC,
    VGPR,
    Inst,
    Operand,
)  # fmt: skip
from pyflame.runtime.sim.decode.matrix import decode_matrix
from pyflame.runtime.sim.decode.memory import decode_memory
from pyflame.runtime.sim.decode.names import IGNORED, KEEPS_UPPER_HALF, SATURATES, canonical, variant
from pyflame.runtime.sim.decode.ordering import ordering
from pyflame.runtime.sim.decode.text import Line, Undecodable, split

_REGISTER = re.compile(
    r"(?P<file>[vas]|ttmp)(?:(?P<one>\d+)|\[(?P<first>\d+)(?::(?P<last>\d+))?\])(?:\.(?P<half>[lh]))?$"
)
_NAMED = {
    "vcc": VCC, "vcc_lo": VCC, "vcc_hi": VCC + 1, "exec": EXEC, "exec_lo": EXEC, "exec_hi": EXEC + 1, "m0": M0,
    "null": NULL, "flat_scratch": 102, "flat_scratch_lo": 102, "flat_scratch_hi": 103, "xnack_mask": 104,
    "xnack_mask_lo": 104, "xnack_mask_hi": 105,
}  # fmt: skip
_FILES = {"v": (VGPR, 0), "a": (VGPR, AGPR_ROW), "s": (SGPR, 0), "ttmp": (SGPR, TTMP)}
SHARED_BASE, PRIVATE_BASE = 0x0001_0000_0000_0000, 0x0002_0000_0000_0000  # apertures of flat addresses
_VALUES = {
    "src_shared_base": SHARED_BASE, "src_shared_limit": SHARED_BASE | 0xFFFFFFFF, "src_private_base": PRIVATE_BASE,
    "src_private_limit": PRIVATE_BASE | 0xFFFFFFFF, "off": 0,
}  # fmt: skip
_INVERSE_TWO_PI = {2: 0x3118, 4: 0x3E22F983, 8: 0x3FC45F306DC9C882}
_FLOAT_FORMATS = {2: "<e", 4: "<f", 8: "<d"}
_OMODS = {"mul:2": 1, "mul:4": 2, "div:2": 3}
_SELECTS = {"BYTE_0": 1, "BYTE_1": 2, "BYTE_2": 3, "BYTE_3": 4, "WORD_0": 5, "WORD_1": 6, "DWORD": 0}
_UNUSED = {"UNUSED_PAD": 0, "UNUSED_SEXT": 1, "UNUSED_PRESERVE": 2}
_INDEXED = {"SRC0": 1, "SRC1": 2, "SRC2": 4, "DST": 8}
_HWREG = re.compile(r"hwreg\((?P<name>\w+)(?:, (?P<first>\d+), (?P<bits>\d+))?\)$")
_HWREGS = {"HW_REG_MODE": 1}
_DPP_CONTROLS = {
    "row_shl": 0x100, "row_shr": 0x110, "row_ror": 0x120, "row_share": 0x150, "row_newbcast": 0x150, "row_xmask": 0x160,
}  # fmt: skip
_DPP_FIXED = {
    "wave_shl": 0x130, "wave_rol": 0x134, "wave_shr": 0x138, "wave_ror": 0x13C, "row_mirror": 0x140,
    "row_half_mirror": 0x141,
}  # fmt: skip


@dataclass(frozen=True)
class Form:
    """What the interpreter's table says of an instruction."""

    run: int
    results: tuple[str, ...]
    sources: tuple[str, ...]


def width(kind: str) -> int:
    """Bytes of an operand's type: 4 of "F32", 2 of "U16", 8 of "I64" and of lane masks; 4 of a packed register."""
    bits = re.search(r"(\d+)$", kind)
    if kind.startswith("PK") or kind == "MIX":
        return 4
    return int(bits[1]) // 8 if bits else 8 if kind == "MASK" else 4


def constant(text: str, kind: str) -> int | None:
    """The bits of an inline constant or a literal for an operand of a type; None if it is neither.

    >>> hex(constant("0.5", "F32")), hex(constant("-1", "U64")), hex(constant("0xc0875000", "F64"))
    ('0x3f000000', '0xffffffffffffffff', '0xc087500000000000')
    """
    size = width(kind)
    is_float = "F" in kind
    if text.startswith("lit("):  # a literal where an inline constant would do, as relocations leave them
        text = text[4:-1]
    if re.fullmatch(r"-?\d+", text):  # an inline integer: its bits, whatever the type
        return int(text) & ((1 << 8 * size) - 1)
    if re.fullmatch(r"-?0x[0-9a-f]+", text):
        value = int(text, 16)
        if size == 8 and is_float and not kind.startswith("PK") and abs(value) < 1 << 32:
            return value << 32  # a literal has 32 bits: the upper ones of a double
        if size == 8 and kind == "I64" and 0x80000000 <= value < 1 << 32:
            value -= 1 << 32
        return value & ((1 << 8 * size) - 1)
    if re.fullmatch(r"-?\d+\.\d+(e[-+]?\d+)?", text):
        if kind in ("U16", "I16"):
            raise Undecodable(f"the float {text} as a 16-bit integer")
        size = 2 if kind in ("PK_F16", "PK_HF16", "PK_BF16") else size
        if text.startswith("0.15915494"):
            return _INVERSE_TWO_PI[size]
        if kind == "PK_BF16":
            return int.from_bytes(struct.pack("<f", float(text)), "little") >> 16
        return int.from_bytes(struct.pack(_FLOAT_FORMATS[size], float(text)), "little")
    return None


def operand(text: str, kind: str) -> Operand:
    """A register or a constant with its sign modifiers: `v3`, `-|v[0:1]|`, `sext(v2)`, `v0.h`, `vcc`, `0x3f`, `1.0`."""
    o = Operand()
    value = constant(text, kind)
    if value is not None:
        o.kind, o.value = CONSTANT, value
        return o
    if text.startswith("sext("):
        o.mods |= SEXT
        text = text[5:-1]
    if text.startswith(("-v", "-s", "-a", "-|", "-t", "-e", "-m")):
        o.mods |= NEG
        text = text[1:]
    elif text.startswith("neg("):
        o.mods |= NEG
        text = text[4:-1]
    if text.startswith("|"):
        o.mods |= ABS
        text = text[1:-1]
    if text.startswith("abs("):
        o.mods |= ABS
        text = text[4:-1]
    found = _REGISTER.match(text)
    if found:
        o.kind, base = _FILES[found["file"]]
        o.index = base + int(found["one"] or found["first"])
        if found["half"] == "h":
            o.mods |= HIGH
    elif text in _NAMED:
        o.kind, o.index = SGPR, _NAMED[text]
    elif text in _VALUES:
        o.kind, o.value = CONSTANT, _VALUES[text]
    else:
        value = constant(text, kind)
        if value is None:
            raise Undecodable(f"the operand {text}")
        o.kind, o.value = CONSTANT, value
    o.special = int(bool(o.mods & (NEG | ABS | SEXT)))
    if o.mods & (NEG | ABS) and "F" not in kind and kind != "MIX":
        raise Undecodable(f"the sign of the integer {text}")
    return o


def registers(text: str) -> set[tuple[str, int]]:
    """The vector registers that an operand names, for finding out whether two halves touch each other's."""
    found = _REGISTER.search(text.strip("-|"))
    if not found or found["file"] != "v":
        return set()
    first = int(found["one"] or found["first"])
    return {("v", n) for n in range(first, int(found["last"] or first) + 1)}


class Decoder:
    """Turns lines into instructions for one target.

    `forms`: name -> what the interpreter can run.
    """

    def __init__(self, forms: Mapping[str, Form], target: str) -> None:
        self.forms = forms
        self.target = target
        self._indexed = False  # between s_set_gpr_idx_on and _off
        self._known: dict[tuple[Any, ...], list[Inst]] = {}

    def decode(self, halves: list[Line]) -> list[Inst]:
        """One instruction; two or three where it is a dual one. The target of a branch is still an address."""
        key = (self._indexed, *(half.text for half in halves))
        known = self._known.get(key)
        if known is None:
            known = [self._single(halves[0])] if len(halves) == 1 else self._dual(halves)
            # Kernels are much alike: most lines were seen before. Not those whose meaning depends on where they stand.
            if not any(inst.target for inst in known) and not halves[0].name.startswith("s_set_gpr_idx_"):
                self._known[key] = known
            return known
        made = []
        for inst in known:
            copy = Inst.from_buffer_copy(inst)
            copy.address = halves[0].address
            made.append(copy)
        return made

    def begin(self) -> None:
        """Forget what the last code object left open."""
        self._indexed = False

    def illegal(self, line: Line) -> Inst:
        """What stops a wave that comes to a line which cannot be decoded."""
        inst = Inst()
        inst.run, inst.address = self.forms["s_trap"].run, line.address
        return inst

    def _dual(self, halves: list[Line]) -> list[Inst]:
        """Both halves read before either writes: in order, reversed, or with one result waiting in a spare register."""
        first, second = (self._single(half) for half in halves)
        writes = [registers(half.operands[0]) for half in halves]
        # v_fmac reads what it writes; that is its own register and never the other half's.
        reads = [set().union(*(registers(o) for o in half.operands[1:])) for half in halves]
        if not writes[0] & reads[1]:
            order = [first, second]
        elif not writes[1] & reads[0]:
            order = [second, first]
        else:
            move = Inst()
            ctypes.memmove(ctypes.byref(move), ctypes.byref(first), ctypes.sizeof(Inst))
            move.run = self.forms["v_mov_b32"].run
            move.flags = 0
            move.src[0] = Operand(VGPR, 0, 0, 0, SPARE_ROW, 0)
            if first.src[2].kind == VGPR and first.src[2].index == first.dst[0].index:
                raise Undecodable("two halves that need each other's result")
            first.dst[0].index = SPARE_ROW
            order = [first, second, move]
        for inst in order[:-1]:
            inst.flags |= PAIRED
        return order

    def _single(self, line: Line) -> Inst:
        inst = Inst()
        inst.address = line.address
        inst.row_mask = inst.bank_mask = 15
        if IGNORED.match(line.name):
            inst.run = self.forms[ordering(line.text, self.target) or "s_nop"].run
            return inst
        if decode_memory(line, inst, self.forms, operand):
            return inst
        name = variant(canonical(line.name), self.target, self.forms)
        if name.startswith("s_set_gpr_idx_"):
            self._indexed = name == "s_set_gpr_idx_on"
        elif self._indexed:
            name += "_indexed"
        form = self.forms.get(name)
        if form is None:
            raise Undecodable("it is not implemented")
        inst.run = form.run
        self._operands(line, form, inst)
        self._modifiers(line, name, form, inst)
        decode_matrix(line, name, inst)
        decode_scaled(line, name, inst)
        return inst

    def _operands(self, line: Line, form: Form, inst: Inst) -> None:
        given = list(line.operands)
        results, sources = [r for r in form.results if r != "NONE"], list(form.sources)
        if line.name.startswith("v_cmpx_"):
            inst.dst[1] = operand("exec", "MASK")
            if len(given) == len(sources):  # GFX10 and later write nothing else
                given.insert(0, "null")
        # Sources that are not written down: VCC of v_cndmask, the accumulator of v_fmac.
        for kind in sources[len(given) - len(results) :]:
            given.append("vcc" if kind == "MASK" else given[0])
        if len(given) != len(results) + len(sources):
            raise Undecodable(f"expected {len(results) + len(sources)} operands")
        for n, (text, kind) in enumerate(zip(given, results, strict=False)):
            if kind == "HWREG":
                self._hwreg(text, inst)
            else:
                inst.dst[n] = operand(text, kind)
        for n, (text, kind) in enumerate(zip(given[len(results) :], sources, strict=True)):
            if kind == "LABEL":
                jump = int(text, 0)
                inst.target = line.address + 4 + 4 * (jump - 0x10000 if jump >= 0x8000 else jump)
            elif kind == "IMM":
                inst.offset = _immediate(text)
            elif kind == "HWREG":
                self._hwreg(text, inst)
            elif kind == "INDEXED":
                inst.offset = sum(_INDEXED[part] for part in split(text[len("gpr_idx(") : -1], ","))
            elif kind == "MIX" and _bits(line.modifiers, "op_sel_hi", len(sources))[n]:
                inst.src[n] = operand(text, "F16")
            else:
                inst.src[n] = operand(text, kind)

    def _hwreg(self, text: str, inst: Inst) -> None:
        found = _HWREG.match(text)
        if not found or found["name"] not in _HWREGS:
            raise Undecodable(f"the hardware register {text}")
        inst.space = _HWREGS[found["name"]]
        inst.bytes, inst.count = int(found["first"] or 0), int(found["bits"] or 32)

    # --- modifiers ----------------------------------------------------------------------------------------------------

    def _modifiers(self, line: Line, name: str, form: Form, inst: Inst) -> None:
        rest = dict(line.modifiers)
        if "clamp" in rest:
            if not re.match(r"(PK_)?H?F\d", form.results[0]) and not SATURATES.match(name):
                raise Undecodable("its clamp")
            inst.flags |= CLAMP
        for key in ("mul", "div"):
            if key in rest:
                inst.omod = _OMODS[f"{key}:{rest[key]}"]
        self._halves(rest, name, form, inst)
        if "src0_sel" in rest or "dst_sel" in rest:
            self._sdwa(rest, inst)
        self._bytes(rest, name, inst)
        if "bitop3" in rest:
            inst.offset = int(rest["bitop3"], 0)
        self._dpp(rest, inst)
        known = {
            "clamp", "mul", "div", "op_sel", "op_sel_hi", "neg_lo", "neg_hi", "src0_sel", "src1_sel", "dst_sel",
            "dst_unused", "row_mask", "bank_mask", "bound_ctrl", "fi", "quad_perm", "row_bcast", "dpp8", "cbsz", "abid",
            "blgp", "neg", "index_key", "byte_sel", "bitop3", *_DPP_CONTROLS, *_DPP_FIXED,
        }  # fmt: skip
        unknown = set(rest) - known
        if unknown:
            raise Undecodable(f"the modifier {', '.join(sorted(unknown))}")

    def _halves(self, rest: dict[str, str], name: str, form: Form, inst: Inst) -> None:
        """Which half of a register each operand is, and the signs of packed ones."""
        count = len(form.sources)
        packed = form.sources[:1] != ("MIX",) and name.startswith(("v_pk_", "v_dot"))
        selected, negated = _bits(rest, "op_sel", count + 1), _bits(rest, "neg_lo", count)
        upper, upper_negated = _bits(rest, "op_sel_hi", count, int(packed)), _bits(rest, "neg_hi", count)
        for n, kind in enumerate(form.sources):
            o = inst.src[n]
            o.mods |= selected[n] * HIGH | upper[n] * HIGH_OF_HIGH | negated[n] * NEG | upper_negated[n] * NEG_HIGH
            if kind == "F32" and o.mods & NEG:
                o.special = 1
            halves = o.mods & (HIGH if name == "v_pk_mov_b32" else HIGH | HIGH_OF_HIGH)
            if kind in ("PK_F32", "PK_U32") and o.kind == CONSTANT and o.value and halves:
                raise Undecodable("the upper half of a constant")
        if selected[count]:
            inst.dst[0].mods |= HIGH
        elif KEEPS_UPPER_HALF.match(name):
            inst.dst[0].mods |= HIGH_OF_HIGH

    def _sdwa(self, rest: dict[str, str], inst: Inst) -> None:
        inst.flags |= SDWA
        inst.dst_select = _SELECTS[rest.get("dst_sel", "DWORD")]
        inst.dst_unused = _UNUSED[rest.get("dst_unused", "UNUSED_PAD")]
        for n in range(2):
            inst.src[n].select = _SELECTS[rest.get(f"src{n}_sel", "DWORD")]
            inst.src[n].special |= int(inst.src[n].select != 0)

    def _bytes(self, rest: dict[str, str], name: str, inst: Inst) -> None:
        """The byte that an instruction on 8-bit floats takes (byte_sel), or that it fills, leaving the others alone."""
        if re.match(r"v_cvt_sr_[fb][pf]8_", name):
            selected = _bits(rest, "op_sel", 4)
            inst.flags |= SDWA
            inst.dst[0].mods &= ~HIGH
            inst.dst_select, inst.dst_unused = 1 + int(rest.get("byte_sel", selected[2] + 2 * selected[3])), 2
        elif "byte_sel" in rest:
            inst.src[0].select = 1 + int(rest["byte_sel"])
            inst.src[0].special = 1
        elif name.startswith("v_cvt_pk_f32_") and inst.src[0].mods & HIGH:
            inst.src[0].select, inst.src[0].special = _SELECTS["WORD_1"], 1

    def _dpp(self, rest: dict[str, str], inst: Inst) -> None:
        if "dpp8" in rest:
            lanes = [int(n) for n in rest["dpp8"].strip("[]").split(",")]
            inst.dpp, inst.offset = 0xFFFF, sum(lane << 3 * n for n, lane in enumerate(lanes))
            inst.flags |= BOUND_CTRL  # a lane that is off gives 0
        elif "quad_perm" in rest:
            inst.dpp = sum(int(lane) << 2 * n for n, lane in enumerate(rest["quad_perm"].strip("[]").split(",")))
        elif "row_bcast" in rest:
            inst.dpp = {"15": 0x142, "31": 0x143}[rest["row_bcast"]]
        else:
            for key, base in _DPP_CONTROLS.items():
                if key in rest:
                    inst.dpp = base + int(rest[key])
                    break
            else:
                for key, value in _DPP_FIXED.items():
                    if key in rest:
                        inst.dpp = value
                        break
                else:
                    return
        inst.flags |= DPP
        inst.src[0].special = 1
        inst.row_mask, inst.bank_mask = int(rest.get("row_mask", "0xf"), 0), int(rest.get("bank_mask", "0xf"), 0)
        if rest.get("bound_ctrl") == "1":
            inst.flags |= BOUND_CTRL
        inst.extra = int(rest.get("fi", "0"), 0)


def _immediate(text: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        raise Undecodable(f"the immediate {text}") from None


def _bits(modifiers: Mapping[str, str], name: str, count: int, default: int = 0) -> list[int]:
    """The bits of `op_sel:[0,1,1]`, one per operand."""
    if name not in modifiers:
        return [default] * count
    bits = [int(n) for n in modifiers[name].strip("[]").split(",")]
    return bits + [0] * (count - len(bits))
