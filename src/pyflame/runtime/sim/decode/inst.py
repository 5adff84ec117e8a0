"""Decoded instructions, as the interpreter reads them: the C structures of isa/sim.h."""

from __future__ import annotations

import ctypes

from pyflame.runtime.sim.memory import Span

VCC, TTMP, M0, NULL, EXEC = 106, 108, 124, 125, 126

NO_OPERAND, VGPR, SGPR, CONSTANT = range(4)
NEG, ABS, SEXT, HIGH, HIGH_OF_HIGH, NEG_HIGH = (1 << n for n in range(6))
CLAMP, PAIRED, DPP, SDWA, BOUND_CTRL, RETURNS, TO_LDS, D16_HIGH, COHERENT = (1 << n for n in range(9))
AGPR_ROW = 256  # accumulation registers follow the ordinary ones in a wave's rows
SPARE_ROW = 512  # where one half of a dual instruction waits for the other; loads to the LDS use three more
ROWS = SPARE_ROW + 4


class Operand(ctypes.Structure):
    """A source or a result."""

    _fields_ = [
        ("kind", ctypes.c_uint8),
        ("mods", ctypes.c_uint8),
        ("select", ctypes.c_uint8),
        ("special", ctypes.c_uint8),
        ("index", ctypes.c_uint32),
        ("value", ctypes.c_uint64),
    ]


class Inst(ctypes.Structure):
    """An instruction."""

    _fields_ = [
        ("run", ctypes.c_void_p),
        ("address", ctypes.c_uint32),
        ("target", ctypes.c_uint32),
        ("dst", Operand * 2),
        ("src", Operand * 5),
        ("offset", ctypes.c_int32),
        ("flags", ctypes.c_uint32),
        ("dpp", ctypes.c_uint16),
        ("row_mask", ctypes.c_uint8),
        ("bank_mask", ctypes.c_uint8),
        ("omod", ctypes.c_uint8),
        ("dst_select", ctypes.c_uint8),
        ("dst_unused", ctypes.c_uint8),
        ("space", ctypes.c_uint8),
        ("bytes", ctypes.c_uint8),
        ("count", ctypes.c_uint8),
        ("extra", ctypes.c_uint8),
    ]


class Entry(ctypes.Structure):
    """A row of the interpreter's tables: the types of results and sources are words such as "F32 MASK"."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("run", ctypes.c_void_p),
        ("results", ctypes.c_char_p),
        ("sources", ctypes.c_char_p),
    ]


class Fault(ctypes.Structure):
    """Where and why a launch stopped."""

    _fields_ = [
        ("kind", ctypes.c_uint32),
        ("space", ctypes.c_uint32),
        ("lane", ctypes.c_uint32),
        ("wave", ctypes.c_uint32),
        ("other", ctypes.c_uint32),
        ("inst", ctypes.c_uint32),
        ("write", ctypes.c_uint32),
        ("bytes", ctypes.c_uint32),
        ("other_write", ctypes.c_uint32),
        ("other_inst", ctypes.c_uint32),
        ("group", ctypes.c_uint32 * 3),
        ("other_group", ctypes.c_uint32),
        ("address", ctypes.c_uint64),
    ]


COUNTED = ("steps", "lanes", "lines", "least", "passes", "conflicts", "taken", "divergent")


class Counts(ctypes.Structure):
    """What one instruction did in a counted launch."""

    _fields_ = [(name, ctypes.c_uint64) for name in COUNTED]


class Program(ctypes.Structure):
    """The instructions of a code object."""

    _fields_ = [
        ("insts", ctypes.POINTER(Inst)),
        ("inst_count", ctypes.c_uint32),
        ("by_address", ctypes.POINTER(ctypes.c_int32)),
        ("text_start", ctypes.c_uint64),
        ("text_bytes", ctypes.c_uint64),
        ("load_base", ctypes.c_uint64),
    ]


class Launch(ctypes.Structure):
    """A launch and its result."""

    _fields_ = [
        ("program", ctypes.POINTER(Program)),
        ("spans", ctypes.c_void_p),
        ("span_count", ctypes.c_uint64),
        ("entry", ctypes.c_uint32),
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("vgprs", ctypes.c_uint32),
        ("used_vgprs", ctypes.c_uint32),
        ("used_agprs", ctypes.c_uint32),
        ("lds_bytes", ctypes.c_uint32),
        ("scratch_bytes", ctypes.c_uint32),
        ("sgprs", ctypes.c_uint32 * 32),
        ("user_sgprs", ctypes.c_uint32),
        ("group_ids", ctypes.c_uint32),
        ("mode", ctypes.c_uint32),
        ("checks", ctypes.c_uint32),
        ("generation", ctypes.c_uint32),
        ("seed", ctypes.c_uint64),
        ("step_limit", ctypes.c_uint64),
        ("counts", ctypes.POINTER(Counts)),
        ("steps", ctypes.c_uint64),
        ("fault", Fault),
        ("stops", ctypes.c_void_p),
        ("stop_wave", ctypes.c_uint32),
        ("stop_group", ctypes.c_uint32 * 3),
        ("stop_after", ctypes.c_uint32),
        ("stop_scc", ctypes.c_uint32),
        ("stop_state", ctypes.c_void_p),
        ("start_state", ctypes.c_void_p),
        ("modes", ctypes.c_uint32),
        ("dies", ctypes.c_uint32),
        ("scalar_cache", ctypes.c_void_p),
    ]


LAYOUT = (Operand, Inst, Span, Fault, Counts, Program, Launch)  # in the order of pf_sim_layout
