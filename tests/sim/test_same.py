"""same.hip, by which captured graphs are compared with their launches, as machine code."""

from __future__ import annotations

import pytest

from pyflame.core.device import parse_device
from pyflame.engine import devices
from pyflame.engine.graph_check import SAME_BYTES
from tests.runtime.test_graph_checks import check_one_byte_is_seen


@pytest.mark.parametrize("target", ["gfx942", "gfx1100"])
@pytest.mark.parametrize("nbytes", [1, 8, 263, SAME_BYTES + 9])
def test_one_byte_is_seen(target: str, nbytes: int) -> None:
    check_one_byte_is_seen(devices.get_device(parse_device(f"sim:{target}")).gpu, nbytes)
