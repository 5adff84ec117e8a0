"""Accesses outside of a buffer are found when a plan is made."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import pyflame as pf
from pyflame.schedule.verify import verify
from tests.plans import plan_of

X = pf.tensor(np.ones((4, 6), np.float32))


def test_loops_beyond_a_buffer() -> None:
    (launch,) = plan_of(pf.tanh(X)).launches
    buffers = [(X._node, 0)] * len(launch.buffers)
    verify(launch.kernel, [], buffers)
    with pytest.raises(pf.CompileError, match=r"elements 0 to 23 of .* 0 to 24, .* fault of PyFlame's compiler"):
        verify(replace(launch.kernel, loops=((25,),)), [], buffers)
    with pytest.raises(pf.CompileError, match="but got 1 to 24"):
        verify(launch.kernel, [], [(X._node, 1)] * len(launch.buffers))


def test_an_epilogue_over_a_part_of_the_results() -> None:
    (launch,) = plan_of(pf.relu(X @ X.T)).launches
    buffers = [(X._node, 0)] * len(launch.buffers)
    verify(launch.kernel, launch.operands, buffers)
    with pytest.raises(pf.CompileError, match=r"loops over 16 results of matmul but got \[4, 3\]"):
        verify(replace(launch.kernel, loops=((4, 3),)), launch.operands, buffers)
