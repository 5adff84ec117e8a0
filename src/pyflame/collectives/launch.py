"""How this process was started: its rank, the number of processes and where they meet, from environment variables.

torchrun, Ray Train and most others set RANK and WORLD_SIZE; Slurm's srun has names of its own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import NamedTuple

from pyflame.core.errors import ArgumentError


class Launch(NamedTuple):
    """`init_method` is None where torch reads MASTER_ADDR and MASTER_PORT itself. `restart` counts what torchrun did on
    its one machine: it keeps the store of the processes that failed, whose addresses must not be taken for new ones.
    """

    rank: int
    world_size: int
    init_method: str | None = None
    restart: int = 0


def launch_of(
    rank: int = -1, world_size: int = -1, init_method: str | None = None, env: Mapping[str, str] | None = None
) -> Launch:
    """What was given; where nothing was, what the environment says; where that says nothing, one process.

    >>> launch_of(env={"RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"})
    Launch(rank=1, world_size=4, init_method=None, restart=0)
    """
    env = os.environ if env is None else env
    if rank == world_size == -1 and "RANK" not in env and "WORLD_SIZE" not in env and "SLURM_STEP_NUM_TASKS" in env:
        return _checked(_by_slurm(env, init_method), env)
    size = int(env.get("WORLD_SIZE", "1")) if world_size == -1 else world_size
    if rank == -1:
        if size > 1 and "RANK" not in env:
            raise ArgumentError(
                f"[init_process_group] expected the rank of this process among {size} but got none; start the program "
                "with torchrun, which sets RANK, or pass rank"
            )
        rank = int(env.get("RANK", "0"))
    one_machine = init_method in (None, "env://") and env.get("GROUP_WORLD_SIZE") == "1"
    restart = int(env.get("TORCHELASTIC_RESTART_COUNT", "0")) if one_machine else 0
    return _checked(Launch(rank, size, init_method, restart), env)


def _checked(found: Launch, env: Mapping[str, str]) -> Launch:
    if found.world_size < 1:
        raise ArgumentError(f"[init_process_group] expected a world_size of 1 or more but got {found.world_size}")
    if not 0 <= found.rank < found.world_size:
        raise ArgumentError(
            f"[init_process_group] expected a rank from 0 to {found.world_size - 1} in a world of {found.world_size} "
            f"but got {found.rank}"
        )
    missing = [name for name in ("MASTER_ADDR", "MASTER_PORT") if name not in env]
    if found.world_size > 1 and found.init_method in (None, "env://") and missing:
        raise ArgumentError(
            f"[init_process_group] expected {' and '.join(missing)} to say where {found.world_size} processes meet but "
            "got nothing; start the program with torchrun, or pass init_method='file:///shared/path'"
        )
    return found


def _by_slurm(env: Mapping[str, str], init_method: str | None) -> Launch:
    """srun's names. Processes meet on the first node, at a port that follows from the job's number."""
    rank, size = int(env["SLURM_PROCID"]), int(env["SLURM_STEP_NUM_TASKS"])
    if init_method is None and size > 1:
        host = env.get("MASTER_ADDR") or first_host(env.get("SLURM_STEP_NODELIST") or env["SLURM_NODELIST"])
        port = env.get("MASTER_PORT") or str(15000 + int(env["SLURM_JOB_ID"]) % 10000)
        init_method = f"tcp://{host}:{port}"
    return Launch(rank, size, init_method)


def first_host(nodes: str) -> str:
    """The first name of a list as Slurm writes it.

    >>> first_host("node[07-09,12],login")
    'node07'
    """
    found = re.match(r"([^\[,]+)(?:\[(\d+)[^\]]*\]([^,]*))?", nodes)
    if found is None:
        raise ArgumentError(f"[init_process_group] expected Slurm's list of nodes but got {nodes!r}; set MASTER_ADDR")
    return "".join(part or "" for part in found.groups())
