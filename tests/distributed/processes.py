"""Groups of processes for tests: each file of checks is run once, by all processes of a group together.

A check is a function `check_<name>` of a module in this folder. All processes run all checks of the module in order,
and each ends at its first failure; `Results` says how each check went. Processes meet in a file, so no port is fixed.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from datetime import timedelta
from pathlib import Path

LIMIT = 300.0  # seconds for a whole file of checks, on slow machines


def names_of(module: str) -> list[str]:
    """The checks of a module, in order."""
    source = Path(__file__).with_name(f"{module}.py").read_text()
    return [line[4 : line.index("(")] for line in source.splitlines() if line.startswith("def check_")]


class Results:
    """What a group of processes found."""

    def __init__(self, module: str, size: int) -> None:
        with tempfile.TemporaryDirectory() as folder:
            self.texts = _run(module, size, Path(folder))

    def check(self, name: str) -> None:
        """Fail as the check did, on any process."""
        for rank, text in enumerate(self.texts):
            found = json.loads(text or "{}").get(name, "did not run: an earlier check failed, or the process ended")
            assert found == "ok", f"rank {rank}: {found}"


def _run(module: str, size: int, folder: Path) -> list[str]:
    command = [sys.executable, "-m", "tests.distributed.processes", module, str(folder)]
    common = {"WORLD_SIZE": str(size), "PYFLAME_THREADS": "1", "OMP_NUM_THREADS": "1"}
    started = [subprocess.Popen(command, env={**os.environ, **common, "RANK": str(rank)}) for rank in range(size)]
    end = time.monotonic() + LIMIT
    try:
        while any(p.poll() is None for p in started) and time.monotonic() < end:
            time.sleep(0.05)
    finally:
        for process in started:
            process.kill()
            process.wait()
    files = [folder / f"{rank}.json" for rank in range(size)]
    return [file.read_text() if file.exists() else "" for file in files]


def main(module: str, folder: str) -> None:
    """One process: its results go into a file of its rank."""
    import pyflame as pf

    found: dict[str, str] = {}
    file = Path(folder) / f"{os.environ['RANK']}.json"
    checks = importlib.import_module(f"tests.distributed.{module}")
    pf.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", timeout=timedelta(seconds=120))
    for name in names_of(module):
        try:
            getattr(checks, name)()
            found[name] = "ok"
        except BaseException:
            found[name] = traceback.format_exc()
            raise
        finally:
            file.write_text(json.dumps(found))
    pf.distributed.barrier()
    pf.distributed.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
