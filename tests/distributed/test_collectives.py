"""Collectives of 2 and 4 processes on gloo, and how processes learn who they are."""

from __future__ import annotations

import sys

import pytest

import pyflame as pf
from pyflame.collectives.launch import Launch, first_host, launch_of
from tests.distributed.processes import run_checks
from tests.needs import needs_torch


@pytest.mark.slow
@needs_torch
@pytest.mark.parametrize("size", [2, pytest.param(4, marks=pytest.mark.thorough)])
def test_collectives_are_torchs(size: int) -> None:
    run_checks(size, "collectives")


def test_names_of_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    dist = pf.distributed
    assert dist.Backend("GLOO") == dist.Backend.GLOO == "gloo" and not isinstance(None, dist.ProcessGroup)
    assert dist.get_default_backend_for_device("cpu") == "gloo" and not dist.is_backend_available("tin cans")
    assert dist.DistBackendError is dist.DistError is pf.CollectiveError and not dist.is_torchelastic_launched()
    with pytest.raises(pf.ArgumentError, match="expected LOCAL_RANK"):
        dist.get_node_local_rank()
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert dist.get_node_local_rank() == 3 and dist.default_pg_timeout.total_seconds() == 1800
    with pytest.raises(pf.ArgumentError, match=r"new_group\(ranks\)"):
        dist.ProcessGroup()
    mesh = dist.init_device_mesh("cpu", (1,))
    try:
        assert mesh.get_group() is None and mesh.get_local_rank() == 0 and mesh.get_rank() == 0
        with pytest.raises(pf.ArgumentError, match="another process"):
            dist.send_object_list([1], dst=0)
    finally:
        dist.destroy_process_group()


MEET = {"MASTER_ADDR": "host", "MASTER_PORT": "29500"}
SLURM = {
    "SLURM_STEP_NUM_TASKS": "8", "SLURM_PROCID": "3", "SLURM_JOB_ID": "1234567",
    "SLURM_STEP_NODELIST": "gpu[07-08],other",
}  # fmt: skip


def test_ranks_come_from_the_launcher() -> None:
    assert launch_of(env={}) == Launch(0, 1)
    assert launch_of(env={**MEET, "RANK": "2", "WORLD_SIZE": "4"}) == Launch(2, 4)
    assert launch_of(env=SLURM) == Launch(3, 8, "tcp://gpu07:19567")
    assert launch_of(env={**SLURM, **MEET}) == Launch(3, 8, "tcp://host:29500")
    assert launch_of(env={**SLURM, **MEET, "RANK": "0", "WORLD_SIZE": "2"}) == Launch(0, 2)  # torchrun within Slurm
    again = {**MEET, "RANK": "1", "WORLD_SIZE": "2", "TORCHELASTIC_RESTART_COUNT": "3"}
    assert launch_of(env={**again, "GROUP_WORLD_SIZE": "1"}) == Launch(1, 2, None, 3)
    assert launch_of(env={**again, "GROUP_WORLD_SIZE": "2"}) == Launch(1, 2)  # machines count for themselves
    assert launch_of(1, 2, "file:///x", {}) == Launch(1, 2, "file:///x")
    assert [first_host(n) for n in ("a", "a,b", "n[1,3]", "n[001-100]-ib")] == ["a", "a", "n1", "n001-ib"]


@pytest.mark.parametrize(
    ("rank", "size", "env", "match"),
    [
        (-1, -1, {"WORLD_SIZE": "2"}, "expected the rank of this process among 2"),
        (2, 2, MEET, "expected a rank from 0 to 1 in a world of 2 but got 2"),
        (0, 0, {}, "expected a world_size of 1 or more but got 0"),
        (0, 2, {"MASTER_ADDR": "host"}, "expected MASTER_PORT to say where 2 processes meet"),
    ],
)
def test_a_world_that_cannot_be_is_refused(rank: int, size: int, env: dict[str, str], match: str) -> None:
    with pytest.raises(pf.ArgumentError, match=match):
        launch_of(rank, size, env=env)


def test_many_processes_need_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.distributed", None)
    with pytest.raises(
        pf.NotSupportedError, match=r"expected the package torch .* pip install 'pyflame-rocm\[torch\]'"
    ):
        pf.distributed.init_process_group("gloo", "file:///nowhere", world_size=2, rank=0)
    assert not pf.distributed.is_initialized()
