"""`import pyflame` beside `import numpy`, which it needs: CPU seconds of a process, less those of a Python that imports
nothing. The shortest of many runs, with bytecode, as an installed package has it.
"""

from __future__ import annotations

import os
import sys
import tempfile

from benchmarks.timing import Result

ROUNDS = 25


def _cpu_seconds(program: str, environment: dict[str, str]) -> float:
    child = os.posix_spawn(sys.executable, [sys.executable, "-c", program], environment)
    _, status, used = os.wait4(child, 0)
    if status:
        raise RuntimeError(f"[imports] expected {program!r} to run but it ended with {status}")
    return used.ru_utime + used.ru_stime


def run() -> list[Result]:
    programs = {"": "pass", "numpy": "import numpy", "pyflame": "import pyflame"}
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": folder, "PYTHONDONTWRITEBYTECODE": ""}
        for program in programs.values():  # writes the bytecode
            _cpu_seconds(program, environment)
        rounds = [{n: _cpu_seconds(p, environment) for n, p in programs.items()} for _ in range(ROUNDS)]
    least = {name: min(seconds[name] for seconds in rounds) for name in programs}
    bare = least.pop("")
    return [Result("import", 1, "s", {name: seconds - bare for name, seconds in least.items()}, reach=0.5)]
