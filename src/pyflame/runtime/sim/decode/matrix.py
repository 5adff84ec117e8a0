"""What only matrix instructions carry: cbsz and abid, which broadcast blocks of A, blgp, which moves lanes of B, and
index_key, which says where in its register the index of a sparse A lies."""

from __future__ import annotations

import re

from pyflame.runtime.sim.decode.inst import Inst
from pyflame.runtime.sim.decode.text import Line, Undecodable

_BLOCKS = re.compile(r"_\d+b_(?!f64)")  # several blocks, as in 16x16x4_4b


def decode_matrix(line: Line, name: str, inst: Inst) -> None:
    """Fill the fields that handlers read: cbsz, abid and blgp as space, bytes and count; index_key as bytes.

    The bits of blgp negate A, B and C of float64 ones, and are then written as neg.
    """
    if name.startswith("v_swmmac_"):
        inst.bytes = int(line.modifiers.get("index_key", "0"))
    if not name.startswith(("v_mfma_", "v_smfmac_")):
        return
    blocks = _BLOCKS.search(name) is not None
    takes = {"cbsz": blocks or "smfmac" in name, "blgp": blocks or name.endswith("_f32")}
    takes["abid"] = takes["cbsz"]
    if name.endswith("_f8f6f4"):  # there they are the formats of A and B
        takes["cbsz"] = takes["blgp"] = True
    for key, allowed in takes.items():
        if not allowed and int(line.modifiers.get(key, "0")):
            raise Undecodable(f"{key}, which this instruction does not have")
    inst.space, inst.bytes, inst.count = (int(line.modifiers.get(key, "0")) for key in ("cbsz", "abid", "blgp"))
    if "_mfma_scale_" in name:  # op_sel and op_sel_hi: the bits of the number of a byte
        for n in range(2):
            low, high = (
                int(line.modifiers.get(key, default).strip("[]").split(",")[n])
                for key, default in (("op_sel", "[0,0]"), ("op_sel_hi", "[1,1]"))
            )
            inst.src[3 + n].select = low | high << 1
    if "neg" in line.modifiers:
        inst.count = sum(int(bit) << n for n, bit in enumerate(line.modifiers["neg"].strip("[]").split(",")))
