"""Cases in a process of their own: one that aborts or hangs it is a failure, and the next gets a new process.

Parent and child speak in lines of JSON. What anybody prints in the child goes to a file, whose end tells how it died.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pyflame
from pyflame.core.device import parse_device
from pyflame.doctor.selftest.bench import Case, Result, run_case
from pyflame.doctor.selftest.cases import find_case

LIMIT = 180.0  # seconds that a case may take before its process is ended
LAST_WORDS = 400  # characters


class Worker:
    """Runs cases for a device in a child process, which is started anew whenever it was lost.

    >>> with Worker("cpu") as worker:
    ...     worker.run(find_case("copies/bytes")).passed
    True
    """

    def __init__(self, device: str, seed: int = 0, limit: float = LIMIT) -> None:
        self._command = [sys.executable, "-m", __name__, device, str(seed)]
        self._limit = limit
        self._process: subprocess.Popen[bytes] | None = None
        self._words = tempfile.TemporaryFile()  # noqa: SIM115  closed by __exit__

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *exc: object) -> None:
        self._end()
        self._words.close()

    def run(self, case: Case) -> Result:
        process = self._process or self._start()
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # it is gone: there will be no answer either
            process.stdin.write(f"{case.id}\n".encode())
            process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], self._limit)
        line = process.stdout.readline() if ready else b""
        if line.endswith(b"\n"):
            result = Result(**json.loads(line))
            if result.fault:
                self._end()
            return result
        return Result(case.family, case.name, failures=[self._how_it_ended(bool(ready))], fault=True)

    def _start(self) -> subprocess.Popen[bytes]:
        self._words.seek(0)
        self._words.truncate()
        folder = str(Path(pyflame.__file__).parent.parent)
        paths = os.pathsep.join(filter(None, [folder, os.environ.get("PYTHONPATH", "")]))
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._words,
            env={**os.environ, "PYTHONPATH": paths},
        )
        return self._process

    def _how_it_ended(self, answered: bool) -> str:
        process = self._process
        assert process is not None
        if not answered:
            self._end()
            return f"it had not ended after {self._limit:.0f} s, and was killed"
        code = process.wait()
        self._words.seek(0)
        words = self._words.read().decode(errors="replace").strip()[-LAST_WORDS:]
        self._end()
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
        return f"its process ended with {how}: {words or 'without a word'}"

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


def main() -> None:
    """The child: a case's id for each line of input, its result for each line of output."""
    device, seed = parse_device(sys.argv[1]), int(sys.argv[2])
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)
        for line in sys.stdin:
            json.dump(run_case(find_case(line.strip()), device, seed).to_json(), answers)
            answers.write("\n")
            answers.flush()


if __name__ == "__main__":
    main()
