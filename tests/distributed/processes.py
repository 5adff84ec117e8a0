"""Groups of processes for tests: files of checks are run once, by all processes of a group together.

A check is a function `check_<name>` of a module in this folder. All processes run all checks of some modules in order,
and each ends at its first failure. One test runs them all: test workers that share a file's tests would start the
processes again. Processes meet in a file, so no port is fixed.
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


def names_of(*modules: str) -> list[str]:
    """The checks of modules, in order, as "module.check_name"."""
    found = []
    for module in modules:
        lines = Path(__file__).with_name(f"{module}.py").read_text().splitlines()
        found += [f"{module}.{line[4 : line.index('(')]}" for line in lines if line.startswith("def check_")]
    return found


def run_checks(size: int, *modules: str) -> None:
    """Run all checks in so many processes; fail as the first one did that failed, on any process."""
    with tempfile.TemporaryDirectory() as folder:
        texts = _run(size, Path(folder), modules)
    for name in names_of(*modules):
        for rank, text in enumerate(texts):
            found = json.loads(text or "{}").get(name, "did not run: the process ended before")
            assert found == "ok", f"{name} on rank {rank}: {found}"


def _run(size: int, folder: Path, modules: tuple[str, ...]) -> list[str]:
    command = [sys.executable, "-m", "tests.distributed.processes", str(folder), *modules]
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


def main(folder: str, *modules: str) -> None:
    """One process: its results go into a file of its rank."""
    import pyflame as pf

    found: dict[str, str] = {}
    file = Path(folder) / f"{os.environ['RANK']}.json"
    pf.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", timeout=timedelta(seconds=120))
    for name in names_of(*modules):
        module, _, check = name.partition(".")
        try:
            getattr(importlib.import_module(f"tests.distributed.{module}"), check)()
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
