"""same.hip, by which captured graphs are compared with their launches, as machine code."""

from __future__ import annotations

import pytest

from pyflame.core.device import parse_device
from pyflame.engine import devices
from pyflame.engine.binding import Written
from pyflame.engine.graph_check import SAME_BYTES, _differing


@pytest.mark.parametrize("target", ["gfx942", "gfx1100"])
@pytest.mark.parametrize("nbytes", [1, 8, 263, SAME_BYTES + 9])
def test_one_byte_is_seen(target: str, nbytes: int) -> None:
    device = devices.get_device(parse_device(f"sim:{target}")).gpu
    assert device is not None
    for start in (0, 1):
        block, other, marks = (device.allocate(nbytes + 4) for _ in range(3))
        written = Written(other.address + start, nbytes, None, False)
        for place in {0, nbytes // 2, nbytes - 1}:
            for address in (block.address, written.address):
                device.fill(address, 7, nbytes)
            assert _differing(device, {written: block}, marks) == []
            device.fill(written.address + place, 8, 1)
            assert _differing(device, {written: block}, marks) == [written]
