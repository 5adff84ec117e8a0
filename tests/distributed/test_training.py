"""Training on 2 and 4 processes gives the losses and weights of one: data parallel, ZeRO 1 to 3, tensor parallel
layers, pipelines. One start of the processes serves all of them."""

from __future__ import annotations

import pytest

from tests.distributed.processes import run_checks
from tests.needs import needs_torch


@needs_torch
@pytest.mark.parametrize("size", [2, pytest.param(4, marks=pytest.mark.thorough)])
def test_many_processes_train_as_one(size: int) -> None:
    run_checks(size, "data_parallel", "sharded", "model_parallel")
