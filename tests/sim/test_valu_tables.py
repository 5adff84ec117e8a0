"""Every row of the interpreter's vector tables is tested against an expectation, on a target that has it."""

from __future__ import annotations

import re

from pyflame.runtime.sim.interpreter import interpreter
from tests.sim import (
    test_valu_compare,
    test_valu_convert,
    test_valu_float,
    test_valu_integer,
    test_valu_lanes,
    test_valu_packed,
    test_valu_relatives,
)  # fmt: skip
from tests.sim.snippet import LANES
from tests.sim.valu import TARGETS, batches

_MATRIX = re.compile(r"v_(mfma|smfmac|wmma|swmmac)_")
BY_TABLE = (
    test_valu_integer.EXPECTED, test_valu_compare.EXPECTED, test_valu_convert.EXPECTED, test_valu_float.EXPECTED,
    test_valu_float.APPROXIMATE, test_valu_float.ROUGH, test_valu_packed.PLAIN, test_valu_packed.DOTS,
    test_valu_relatives.EXPECTED,
)  # fmt: skip


def test_every_row_is_tested() -> None:
    rows = {
        n for lanes in LANES.values() for n in interpreter(lanes).forms if n.startswith("v_") and not _MATRIX.match(n)
    }
    tested = test_valu_convert.TESTED | test_valu_float.TESTED | test_valu_packed.TESTED | test_valu_lanes.TESTED
    tested |= test_valu_integer.EXPECTED.keys() | test_valu_compare.EXPECTED.keys() | test_valu_relatives.TESTED
    assert rows - tested == set() and tested - rows == set()


def test_every_row_exists_on_a_target() -> None:
    for expected in BY_TABLE:
        found = {case.name for target in TARGETS for batch in batches(target, expected) for case in batch.cases}
        assert found == expected.keys()
