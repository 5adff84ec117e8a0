"""Reading of LLVM's listings."""

from __future__ import annotations

from pyflame.runtime.sim.decode.text import read_listing


def test_blocks_behind_the_end_begin_with_a_pause() -> None:
    """Compilers put blocks behind s_endpgm; what they begin with also fills the room between kernels."""
    listing = """
0000000000001000 <first>:
\ts_cbranch_scc0 2                                           // 000000001000: BF840002
\ts_endpgm                                                   // 000000001004: BF810000
\ts_nop 0                                                    // 000000001008: BF800000
\ts_mov_b32 s0, s1                                           // 00000000100C: BE800001
\ts_endpgm                                                   // 000000001010: BF810000
\ts_nop 0                                                    // 000000001014: BF800000

0000000000001100 <second>:
\ts_endpgm                                                   // 000000001100: BF810000
\ts_nop 0                                                    // 000000001104: BF800000
"""
    instructions, labels = read_listing(listing)
    assert [half.address for (half,) in instructions] == [0x1000, 0x1004, 0x1008, 0x100C, 0x1010, 0x1100]
    assert labels == {"first": 0x1000, "second": 0x1100}
