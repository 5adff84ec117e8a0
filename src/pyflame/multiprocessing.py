"""torch.multiprocessing by its path: Python's multiprocessing, and `spawn`, which raises what a process raised.

Tensors that go to another process (as arguments, through a Queue or a Pipe) are copied: both sides have values of their
own, and what one writes the other does not see. A model that several processes train together needs
`pf.distributed`; `DataLoader` has shared memory of its own.
"""

from __future__ import annotations

import ctypes
import multiprocessing as _python
import multiprocessing.connection as _connection
import os
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from multiprocessing import *  # noqa: F403
from pathlib import Path
from typing import Any

from pyflame.core.errors import ArgumentError

__all__ = [
    *_python.__all__,
    "ProcessContext", "ProcessException", "ProcessExitedException", "ProcessRaisedException",
    "get_all_sharing_strategies", "get_sharing_strategy", "set_sharing_strategy", "spawn", "start_processes",
]  # fmt: skip

_STRATEGIES = {"file_descriptor", "file_system"}
_strategy = ["file_descriptor"]


def get_all_sharing_strategies() -> set[str]:
    """PyTorch's ways to share memory. Tensors are copied here, so they differ in nothing.

    >>> sorted(pf.multiprocessing.get_all_sharing_strategies())
    ['file_descriptor', 'file_system']
    """
    return set(_STRATEGIES)


def get_sharing_strategy() -> str:
    """The one that was set.

    >>> pf.multiprocessing.get_sharing_strategy()
    'file_descriptor'
    """
    return _strategy[0]


def set_sharing_strategy(new_strategy: str) -> None:
    """Taken, and without effect: copies hold no file open.

    >>> pf.multiprocessing.set_sharing_strategy("file_descriptor")
    """
    if new_strategy not in _STRATEGIES:
        raise ArgumentError(f"[set_sharing_strategy] expected one of {sorted(_STRATEGIES)} but got {new_strategy!r}")
    _strategy[0] = new_strategy


class ProcessException(Exception):
    """A process of `spawn` failed: `error_index` is its number, `error_pid` its id."""

    def __init__(self, msg: str, error_index: int, error_pid: int) -> None:
        super().__init__(msg)
        self.msg, self.error_index, self.error_pid = msg, error_index, error_pid

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.msg, self.error_index, self.error_pid)


class ProcessRaisedException(ProcessException):
    """It raised: the message has its traceback."""


class ProcessExitedException(ProcessException):
    """It ended with another exit code than 0, or by a signal."""

    def __init__(
        self, msg: str, error_index: int, error_pid: int, exit_code: int, signal_name: str | None = None
    ) -> None:
        super().__init__(msg, error_index, error_pid)
        self.exit_code, self.signal_name = exit_code, signal_name

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.msg, self.error_index, self.error_pid, self.exit_code, self.signal_name)


class ProcessContext:
    """The processes that `start_processes(join=False)` started."""

    def __init__(self, processes: list[Any], error_files: list[Path]) -> None:
        self.processes = processes
        self.error_files = error_files
        self.sentinels = {process.sentinel: index for index, process in enumerate(processes)}

    def pids(self) -> list[int]:
        """Their ids."""
        return [process.pid for process in self.processes]

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Wait until one has ended, or for `timeout` seconds: True once all have ended well. Where one has failed, end
        the others, which have `grace_period` seconds to end by themselves, and raise what it raised."""
        failed = None
        for sentinel in _connection.wait(list(self.sentinels), timeout) if self.sentinels else ():
            index = self.sentinels.pop(sentinel)
            self.processes[index].join()
            if self.processes[index].exitcode != 0:
                failed = index
                break
        if failed is None:
            done = not self.sentinels
            if done:
                self._forget()
            return done
        self._stop(grace_period)
        error = self._error(failed)
        self._forget()
        raise error

    def _stop(self, grace_period: float | None) -> None:
        if grace_period is not None:
            self._wait(grace_period)
        for process in self.processes:
            process.terminate()
        self._wait(30.0 if grace_period is None else grace_period)
        for process in self.processes:
            if process.is_alive():
                process.kill()
            process.join()

    def _wait(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        for process in self.processes:
            process.join(max(0.0, end - time.monotonic()))

    def _error(self, index: int) -> ProcessException:
        pid, code = self.processes[index].pid, self.processes[index].exitcode
        if self.error_files[index].exists():
            text = self.error_files[index].read_text()
            message = f"\n\n-- Process {index} terminated with the following error:\n{text}"
            return ProcessRaisedException(message, index, pid)
        if code >= 0:
            return ProcessExitedException(f"process {index} terminated with exit code {code}", index, pid, code)
        known = {s.value: s.name for s in signal.Signals}
        name = known.get(-code, f"<Unknown signal {-code}>")
        return ProcessExitedException(f"process {index} terminated with signal {name}", index, pid, code, name)

    def _forget(self) -> None:
        for file in self.error_files:
            file.unlink(missing_ok=True)


def _run(fn: Callable[..., Any], index: int, args: tuple[Any, ...], error_file: Path) -> None:
    """What a process does: call the function, and write down what it raises."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGINT)  # PR_SET_PDEATHSIG: end when the parent does
    try:
        fn(index, *args)
    except KeyboardInterrupt:
        return  # the parent is ending
    except Exception:
        error_file.write_text(traceback.format_exc())
        sys.exit(1)


def start_processes(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """As `spawn`, with any of Python's ways to start a process.

    >>> pf.multiprocessing.start_processes(print, ("hello",), nprocs=2)                        # doctest: +SKIP
    """
    python = _python.get_context(start_method)
    processes: list[Any] = []
    files: list[Path] = []
    for index in range(nprocs):
        handle, name = tempfile.mkstemp(prefix="pyflame-error-", suffix=".txt")
        os.close(handle)
        files.append(Path(name))
        files[-1].unlink()  # a file that is there tells of an error
        processes.append(python.Process(target=_run, args=(fn, index, args, files[-1]), daemon=daemon))  # type: ignore[attr-defined]
        processes[-1].start()
    context = ProcessContext(processes, files)
    if not join:
        return context
    while not context.join():
        pass
    return None


def spawn(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """Run fn(index, *args) in `nprocs` new processes, and wait for them. If one fails the others are ended, and what
    it raised is raised here. `fn` must be a function of a module, and the program must start them below
    `if __name__ == "__main__":`.

    >>> pf.multiprocessing.spawn(train, args=(world_size,), nprocs=world_size)                 # doctest: +SKIP
    """
    if start_method != "spawn":
        warnings.warn(
            f"[spawn] expected start_method='spawn' but got {start_method!r}; use start_processes for others",
            FutureWarning,
            stacklevel=2,
        )
    return start_processes(fn, args, nprocs, join, daemon, "spawn")
