"""Instructions that reach memory: their names say the space, the width, and what becomes of the bytes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from pyflame.runtime.sim.decode.inst import COHERENT, D16_HIGH, RETURNS, TO_LDS, Inst, Operand
from pyflame.runtime.sim.decode.ordering import coherent
from pyflame.runtime.sim.decode.text import Line, Undecodable

GLOBAL, LDS, SCRATCH, FLAT = range(4)
SIGNED, HALF = 1, 2  # `extra` of loads
OFFEN, IDXEN = 1, 2  # `dpp` of buffer instructions: which vector operands come with it
_SPACES = {"global": GLOBAL, "scratch": SCRATCH, "flat": FLAT, "buffer": GLOBAL}
_SCALAR = re.compile(
    r"s_(?P<buffer>buffer_)?load_(?:dword(?:x(?P<words>\d+))?|b(?P<bits>\d+)|(?P<sign>[ui])(?P<part>8|16))$"
)
_NAME = re.compile(r"(?P<space>global|flat|scratch|buffer)_(?P<what>load|store|atomic)_(?P<rest>\w+)$")
_WIDTHS = {
    "ubyte": 1, "sbyte": 1, "byte": 1, "u8": 1, "i8": 1, "b8": 1, "ushort": 2, "sshort": 2, "short": 2, "u16": 2,
    "i16": 2, "b16": 2, "dword": 4, "dwordx2": 8, "dwordx3": 12, "dwordx4": 16, "b32": 4, "b64": 8, "b96": 12,
    "b128": 16,
}  # fmt: skip
_SIGNED = {"sbyte", "i8", "sshort", "i16"}
# Caching, and orders between accesses: only whether an access is coherent has a meaning here.
_IGNORED = {"glc", "slc", "dlc", "sc0", "sc1", "nt", "scope", "th"}
_KNOWN = _IGNORED | {"offset", "offset0", "offset1", "offen", "idxen", "lds"}

_CODES = {
    name: n
    for n, name in enumerate(
        (
            "swap", "cmpswap", "add", "sub", "rsub", "smin", "umin", "smax", "umax", "and", "or", "xor", "inc", "dec",
            "add_f32", "add_f64", "pk_add_f16", "pk_add_bf16", "min_f32", "max_f32", "min_f64", "max_f64",
            "cmpswap_f32", "cmpswap_f64", "csub", "mskor", "wrap", "condxchg32", "cond_sub",
        )
    )
}  # fmt: skip
_ATOMIC = re.compile(r"(?P<op>[a-z]+?(?:_[a-z]+)*?)(?P<wide>_x2)?(?:_(?P<kind>[buif]|bf)(?P<bits>\d+))?$")
_ATOMIC_WORDS = {
    "storexchg": "swap", "wrxchg": "swap", "cmpst": "cmpswap", "cmpstore": "cmpswap", "min_num": "min",
    "max_num": "max", "sub_clamp": "csub",
}  # fmt: skip
_LDS_PLAIN = re.compile(r"ds_(?P<what>read|load|write|store)_(?P<rest>[bui]\d+(?:_d16)?(?:_hi)?)$")
_LDS_TWO = re.compile(
    r"ds_(?P<what>read2|load_2addr|write2|store_2addr|wrxchg2|storexchg_2addr)(?P<stride>st64|_stride64)?"
    r"(?P<rtn>_rtn)?_b(?P<bits>\d+)$"
)
_TRANSPOSED = re.compile(r"(?:global_load|ds_read)(?:_(?P<wide>b\d+))?_tr_b(?P<bits>\d+)$")
_LDS_OTHER = {
    "ds_permute_b32": "ds_permute", "ds_bpermute_b32": "ds_bpermute", "ds_swizzle_b32": "ds_swizzle",
    "ds_append": "ds_append", "ds_consume": "ds_append",
}  # fmt: skip
_SWIZZLE = re.compile(r"swizzle\((?P<mode>\w+),(?P<values>.*)\)$")

Make = Callable[[str, str], Operand]


def decode_memory(line: Line, inst: Inst, forms: Mapping[str, Any], operand: Make) -> bool:
    """Fill `inst` if the line reaches memory."""
    scalar, name, transposed = (pattern.match(line.name) for pattern in (_SCALAR, _NAME, _TRANSPOSED))
    if scalar:
        _scalar(line, scalar, inst, operand)
        handler = "s_buffer_load" if scalar["buffer"] else "s_load"
    elif transposed:
        handler = _transposed(line, transposed, inst, operand)
    elif name:
        handler = _vector(line, name, inst, operand)
    elif line.name.startswith("ds_"):
        handler = _lds(line, inst, operand)
    else:
        return False
    unknown = set(line.modifiers) - _KNOWN
    if unknown:
        raise Undecodable(f"the modifier {', '.join(sorted(unknown))}")
    inst.run = forms[handler].run
    return True


def _offset(line: Line, name: str = "offset") -> int:
    return int(line.modifiers.get(name, "0"), 0)


def _scalar(line: Line, name: re.Match[str], inst: Inst, operand: Make) -> None:
    inst.count = int(name["bits"]) // 32 if name["bits"] else int(name["words"] or 1)
    if name["part"]:
        inst.bytes, inst.extra = int(name["part"]) // 8, SIGNED * (name["sign"] == "i")
    to, base, offset = line.operands
    inst.dst[0], inst.src[0] = operand(to, "U32"), operand(base, "U64")
    inst.offset = _offset(line)
    if offset.startswith(("s", "m", "n", "t", "v")):
        inst.src[1] = operand(offset, "U32")
    else:
        inst.offset += int(offset, 0)


def _width(words: list[str], line: Line, inst: Inst) -> None:
    """`ubyte_d16_hi`, `d16_hi_u8`, `dwordx4`: bytes of a lane, and the part of the register they go to or come from."""
    left = [w for w in words if w not in ("d16", "hi", "lds")]
    if len(left) != 1 or left[0] not in _WIDTHS:
        raise Undecodable("it is not implemented")
    inst.bytes = _WIDTHS[left[0]]
    inst.extra = (SIGNED if left[0] in _SIGNED else 0) | (HALF if "d16" in words else 0)
    if "hi" in words:
        inst.flags |= D16_HIGH
    if "lds" in words or "lds" in line.modifiers:
        inst.flags |= TO_LDS
        inst.omod = max(inst.bytes, 4)  # bytes from lane to lane


def _vector(line: Line, name: re.Match[str], inst: Inst, operand: Make) -> str:
    inst.space, inst.offset = _SPACES[name["space"]], _offset(line)
    words = name["rest"].split("_")
    operands = list(line.operands)
    by_thread = "addtid" in words
    if by_thread:
        words.remove("addtid")
    if name["what"] == "atomic":
        _atomic(name["rest"], inst)
    else:
        _width(words, line, inst)
        inst.flags |= COHERENT * coherent(name["what"], line.modifiers)
    if name["space"] == "buffer":
        return _buffer(line, name["what"], inst, operand)
    if name["space"] == "flat":
        operands.append("off")
    loads, returns = name["what"] == "load", name["what"] == "atomic" and len(operands) == 4
    if (loads and not inst.flags & TO_LDS) or returns:
        inst.dst[0] = operand(operands.pop(0), "U32")
    if returns:
        inst.flags |= RETURNS
    if by_thread:
        data = None if loads else operands.pop(0)
        inst.count = 4  # bytes from lane to lane
        inst.src[0] = operand("0", "U32")
    else:
        inst.src[0] = operand(operands.pop(0), "U32")
        data = None if loads else operands.pop(0)
    if data is not None:
        inst.src[2] = operand(data, "U32")
    inst.src[1] = operand(operands.pop(0), "U64")
    if operands:
        raise Undecodable("the number of its operands")
    return "mem_" + name["what"]


def _transposed(line: Line, name: re.Match[str], inst: Inst, operand: Make) -> str:
    """`extra`: bits of an element. GFX12 names the bytes of a lane and GFX950 both: b128 is of 16 bits, b64 of 8."""
    to, address, *base = line.operands
    inst.bytes = int(name["wide"][1:] if name["wide"] else name["bits"]) // 8
    inst.extra = int(name["bits"]) if name["wide"] else inst.bytes
    if to != f"v[{(first := int(to[2:].partition(':')[0]))}:{first + inst.bytes // 4 - 1}]":
        raise Undecodable("it is for waves of 64")
    inst.space, inst.offset = GLOBAL if base else LDS, _offset(line)
    inst.dst[0], inst.src[0] = operand(to, "U32"), operand(address, "U32")
    if base:
        inst.src[1] = operand(base[0], "U64")
    return "mem_load_transposed"


def _buffer(line: Line, what: str, inst: Inst, operand: Make) -> str:
    """vdata, vaddr, the descriptor (src[3]), a scalar offset (src[4])."""
    operands = list(line.operands)
    if not inst.flags & TO_LDS:
        data = operand(operands.pop(0), "U32")
        returns = bool({"sc0", "glc"} & line.modifiers.keys()) or "RETURN" in line.modifiers.get("th", "")
        if what == "load" or (what == "atomic" and returns):
            inst.dst[0] = data
        if what != "load":
            inst.src[2] = data
        if what == "atomic" and returns:
            inst.flags |= RETURNS
    vector, descriptor, scalar = operands
    inst.src[0], inst.src[3], inst.src[4] = operand(vector, "U32"), operand(descriptor, "U32"), operand(scalar, "U32")
    inst.dpp = (OFFEN if "offen" in line.modifiers else 0) | (IDXEN if "idxen" in line.modifiers else 0)
    return "buffer_" + what


def _atomic(rest: str, inst: Inst, bits: int = 32) -> None:
    """`add_x2`, `add_f32`, `smax`, `min_i64`, `pk_add_bf16`, `cmpswap_b32`: what is done, and to how many bytes."""
    found = _ATOMIC.match(rest)
    if not found:
        raise Undecodable("it is not implemented")
    name, kind = _ATOMIC_WORDS.get(found["op"], found["op"]), found["kind"] or ""
    bits = 64 if found["wide"] else int(found["bits"] or bits)
    if kind in ("f", "bf"):
        name += f"_{kind}{bits}"
        bits = 32 if name.startswith("pk_") else bits
    elif name in ("min", "max"):
        name = ("u" if kind == "u" else "s") + name
    if name not in _CODES or bits not in (32, 64):
        raise Undecodable("it is not implemented")
    inst.extra, inst.bytes = _CODES[name], bits // 8


def _lds(line: Line, inst: Inst, operand: Make) -> str:
    inst.space = LDS
    if "gds" in line.modifiers:
        raise Undecodable("global data share")
    if line.name == "ds_nop":
        return "s_nop"
    plain, two = _LDS_PLAIN.match(line.name), _LDS_TWO.match(line.name)
    if two:
        return _lds_two(line, two, inst, operand)
    if line.name in _LDS_OTHER:
        return _lds_other(line, inst, operand)
    operands = list(line.operands)
    inst.offset = _offset(line)
    if line.name.endswith("_addtid_b32"):
        loads = "read" in line.name or "load" in line.name
        inst.bytes = inst.count = 4
        inst.src[0] = operand("m0", "U32")
        if loads:
            inst.dst[0] = operand(operands[0], "U32")
        else:
            inst.src[2] = operand(operands[0], "U32")
        return "mem_load" if loads else "mem_store"
    if plain:
        loads = plain["what"] in ("read", "load")
        _width(plain["rest"].split("_"), line, inst)
        if loads:
            inst.dst[0] = operand(operands.pop(0), "U32")
        inst.src[0] = operand(operands[0], "U32")
        if not loads:
            inst.src[2] = operand(operands[1], "U32")
        return "mem_load" if loads else "mem_store"
    rest = line.name.removeprefix("ds_")
    returns = "_rtn" in rest
    if rest.startswith("condxchg32"):
        inst.extra, inst.bytes = _CODES["condxchg32"], 8
    else:
        _atomic(rest.replace("_rtn", ""), inst)
    if returns:
        inst.flags |= RETURNS
        inst.dst[0] = operand(operands.pop(0), "U32")
    inst.src[0], inst.src[2] = operand(operands[0], "U32"), operand(operands[1], "U32")
    if len(operands) == 3:
        inst.src[3] = operand(operands[2], "U32")
        # GFX9's ds_cmpst has the value to compare with first; all others have the new one first.
        if line.name.startswith("ds_cmpst_"):
            inst.src[2], inst.src[3] = operand(operands[2], "U32"), operand(operands[1], "U32")
    return "mem_atomic"


def _lds_two(line: Line, name: re.Match[str], inst: Inst, operand: Make) -> str:
    """Two elements of each lane, at two offsets that count elements, or 64 of them."""
    operands = list(line.operands)
    inst.bytes = int(name["bits"]) // 8
    scale = inst.bytes * (64 if name["stride"] else 1)
    inst.offset = scale * _offset(line, "offset0")
    inst.src[4] = operand(str(scale * _offset(line, "offset1")), "U32")
    reads = name["what"] in ("read2", "load_2addr")
    if reads or name["rtn"]:
        inst.dst[0] = operand(operands.pop(0), "U32")
    inst.src[0] = operand(operands.pop(0), "U32")
    if not reads:
        inst.src[2], inst.src[3] = operand(operands[0], "U32"), operand(operands[1], "U32")
    if name["rtn"]:
        inst.flags |= RETURNS
        inst.extra = _CODES["swap"]
    return "ds_read2" if reads else "ds_exchange2" if name["rtn"] else "ds_write2"


def _lds_other(line: Line, inst: Inst, operand: Make) -> str:
    inst.dst[0] = operand(line.operands[0], "U32")
    if line.name == "ds_swizzle_b32":
        inst.src[0] = operand(line.operands[1], "U32")
        inst.offset = swizzle(line.modifiers.get("offset", "0"))
        return "ds_swizzle"
    inst.offset = _offset(line)
    if line.name in ("ds_append", "ds_consume"):
        inst.bytes = 4
        inst.count = int(line.name == "ds_consume")
    else:
        inst.src[0], inst.src[2] = operand(line.operands[1], "U32"), operand(line.operands[2], "U32")
    return _LDS_OTHER[line.name]


def swizzle(text: str) -> int:
    """The 16 bits of a pattern.

    >>> hex(swizzle("swizzle(SWAP,16)")), hex(swizzle("swizzle(QUAD_PERM,0,1,2,3)")), hex(swizzle("37428"))
    ('0x401f', '0x80e4', '0x9234')
    """
    found = _SWIZZLE.match(text)
    if not found:
        return int(text, 0)
    mode, values = found["mode"], found["values"].split(",")
    if mode == "BITMASK_PERM":  # a letter per bit of the lane's number, the highest first
        keep = flip = force = 0
        for letter in values[0].strip('"'):
            keep, force, flip = (
                bits << 1 | on for bits, on in ((keep, letter in "pi"), (force, letter == "1"), (flip, letter == "i"))
            )
        return flip << 10 | force << 5 | keep
    numbers = [int(v, 0) for v in values]
    if mode == "SWAP":
        return numbers[0] << 10 | 0x1F
    if mode == "REVERSE":
        return (numbers[0] - 1) << 10 | 0x1F
    if mode == "BROADCAST":
        group, lane = numbers
        return lane << 5 | (0x1F & ~(group - 1))
    if mode == "QUAD_PERM":
        return 0x8000 | sum(lane << 2 * n for n, lane in enumerate(numbers))
    if mode == "FFT":
        return 0xE000 | numbers[0]
    if mode == "ROTATE":
        back, count = numbers
        return 0xC000 | back << 10 | count << 5
    raise Undecodable(f"the pattern {text}")
