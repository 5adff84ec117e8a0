"""What Linux tells a process about an aarch64 CPU, as names of instruction sets.

Not from /proc/cpuinfo: it has no length of SVE's vectors, and under an emulator it is that of another CPU. Only the
standard library is imported, so that an emulated CPU can run this file by itself.
"""

from __future__ import annotations

import ctypes

# Bits of AT_HWCAP and AT_HWCAP2 (asm/hwcap.h), by the names in /proc/cpuinfo.
_HWCAPS = {
    16: {"asimd": 1, "atomics": 8, "asimdhp": 10, "asimddp": 20, "asimdfhm": 23},
    26: {"i8mm": 13, "bf16": 14},
}
_PR_SVE_GET_VL, _VL_MASK = 51, 0xFFFF


def features() -> set[str]:
    """Of this process; `sve256` or `sve512`: SVE whose vectors have so many bits.

    SVE of 128 bits is left out, since NEON's vectors are as long.
    """
    libc = ctypes.CDLL(None)
    libc.getauxval.restype = ctypes.c_ulong
    libc.getauxval.argtypes = [ctypes.c_ulong]
    found = {name for kind, bits in _HWCAPS.items() for name, bit in bits.items() if libc.getauxval(kind) >> bit & 1}
    length = libc.prctl(_PR_SVE_GET_VL, 0, 0, 0, 0)  # in bytes, below some flags; -1 without SVE
    bits = 8 * (length & _VL_MASK) if length > 0 else 0
    return found | {f"sve{bits}"} if bits in (256, 512) else found


if __name__ == "__main__":
    print(*sorted(features()))
