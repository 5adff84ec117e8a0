"""Processes that run programs. One that dies or hangs is replaced, and its program is the finding."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
TIMEOUT = 240.0
KNOBS = {"PYFLAME_MAX_LOGITS": "128"}  # logits of programs are small: some of them are to be in chunks


@dataclass
class Answer:
    """What came of a program: "ok", "unfit" or the signature of a failure."""

    outcome: str
    details: str = ""
    program: str | None = None

    @property
    def failed(self) -> bool:
        return self.outcome not in ("ok", "unfit")


class Worker:
    """One process at a time, started when it is needed. `exact`: buffers are allocations of their own."""

    def __init__(self, device: str, sanitize: bool = False, timeout: float = TIMEOUT, exact: bool = False) -> None:
        self.device = device
        self.sanitize = sanitize
        self.exact = exact
        self.timeout = timeout
        self.process: subprocess.Popen[str] | None = None
        self.lines: queue.Queue[str | None] = queue.Queue()

    def start(self) -> subprocess.Popen[str]:
        env = environment(self.device, self.sanitize, self.exact)
        self.errors = open(f"/tmp/programs-{os.getpid()}-{id(self)}.log", "w+")  # noqa: SIM115  closed in stop
        command = [sys.executable, "-m", "tests.programs.worker", self.device]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True, env=env, cwd=ROOT
        )
        self.lines = queue.Queue()
        threading.Thread(target=self._listen, args=(process, self.lines), daemon=True).start()
        return process

    @staticmethod
    def _listen(process: subprocess.Popen[str], lines: queue.Queue[str | None]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.put(line)
        lines.put(None)

    def ask(self, task: dict[str, Any]) -> Answer:
        if self.process is None:
            self.process = self.start()
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(task) + "\n")
        self.process.stdin.flush()
        program = task.get("program")
        while True:
            try:
                line = self.lines.get(timeout=self.timeout)
            except queue.Empty:
                self.stop()
                return Answer("hang", f"no answer within {self.timeout} s", program)
            if line is None:
                code = self.process.wait()
                said = self._said()
                self.stop()
                return Answer(f"crash ({code}) {_place(said)}", said, program)
            said = json.loads(line)
            if "runs" in said:
                program = said["runs"]
            else:
                if "DeviceFault" in said["outcome"]:  # the device is broken for the rest of the process
                    self.stop()
                return Answer(said["outcome"], said.get("details", ""), program)

    def _said(self) -> str:
        self.errors.seek(0)
        return self.errors.read()[-6000:]

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None
            self.errors.close()
            Path(self.errors.name).unlink()


def environment(device: str, sanitize: bool, exact: bool) -> dict[str, str]:
    """On GPUs and under a sanitizer each buffer is an allocation, so that an access behind it is found."""
    folders = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    env = {**os.environ, "PYTHONPATH": folders, "OMP_NUM_THREADS": "1", "PYFLAME_DEVICE": "cpu", **KNOBS}
    if device.startswith("sim") or sanitize or exact:
        env["PYFLAME_MEMORY_POOL"] = "exact"
    if sanitize:
        found = [
            subprocess.check_output(["gcc", f"-print-file-name={name}"], text=True)
            for name in ("libasan.so", "libubsan.so")
        ]
        env["LD_PRELOAD"] = ":".join(map(str.strip, found))
        env["ASAN_OPTIONS"] = "detect_leaks=0:halt_on_error=1"
        env["UBSAN_OPTIONS"] = "halt_on_error=1:print_stacktrace=1"
        env["PYFLAME_CC"] = "gcc"
        env["PYFLAME_CPU_FLAGS"] = "-fsanitize=address,undefined -fno-sanitize-recover=all -g -fno-omit-frame-pointer"
    return env


def _place(said: str) -> str:
    """What a sanitizer or an assertion said last."""
    found = [line for line in said.splitlines() if "ERROR: AddressSanitizer" in line or "runtime error" in line]
    return found[0].split("ERROR:")[-1].split(" on address")[0].strip() if found else ""
