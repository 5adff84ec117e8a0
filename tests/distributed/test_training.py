"""Training on 2 and 4 processes gives the losses and weights of one: data parallel, jitted, ZeRO 1 to 3, tensor
parallel layers, pipelines. One start of the processes serves some of them."""

from __future__ import annotations

import pytest

from tests.distributed.processes import run_checks
from tests.needs import needs_torch


@pytest.mark.slow(16)
@needs_torch
@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("modules", [("data_parallel", "jitted"), ("sharded", "model_parallel")])
def test_many_processes_train_as_one(size: int, modules: tuple[str, ...]) -> None:
    run_checks(size, *modules)
