"""The programs of test_emulated.py on simulated GPUs, compared with the CPU; MLP and GPT are in test_end_to_end.py."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import pyflame as pf
from tests.runtime import test_emulated as emulated


@pytest.fixture(params=("gfx942", "gfx1100"))
def gpu(request: pytest.FixtureRequest) -> Iterator[str]:
    with pf.device(f"sim:{request.param}"):
        yield f"sim:{request.param}"


test_cnn = emulated.test_cnn_learns_as_on_the_cpu
test_kernels = emulated.test_kernels
test_in_place = emulated.test_state_is_updated_in_place
test_moves = emulated.test_moves_between_devices
test_bad_index = emulated.test_bad_index_is_found_when_the_host_looks
test_graphs = emulated.test_replays_are_graphs
test_graph_state = emulated.test_a_graph_does_not_hold_the_state_that_it_updates
test_bad_index_in_a_replay = emulated.test_a_bad_index_in_a_replay
