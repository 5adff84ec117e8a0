"""Worker processes, seen from the parent: starting them, asking for batches, and noticing when one dies."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing import connection, forkserver
from multiprocessing.reduction import recv_handle
from typing import Any, NoReturn

import numpy as np

from pyflame.data.errors import WorkerError, WorkerTimeoutError, error_like
from pyflame.data.fetch import Recipe
from pyflame.data.memory import Allocator
from pyflame.data.outbox import Message
from pyflame.data.shared import map_file
from pyflame.data.worker import End, Failure, Luggage, Task, main

_MOST_LENT = 64  # batches of one worker that a consumer may keep in shared memory; later ones are copied out
_GRACE = 0.5  # seconds that a worker gets to finish what it does


def _context() -> Any:
    """Workers are forked off a small server process that has imported PyFlame and nothing else has touched.

    Forking this process itself would copy locks that other threads hold.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    if getattr(forkserver._forkserver, "_preload_modules", None) == ["__main__"]:
        context.set_forkserver_preload(["__main__", "pyflame.data.worker"])  # unless the user asked for others
    return context


class _Worker:
    """One process and what is known of it."""

    def __init__(self, number: int, process: Any, channel: Any) -> None:
        self.number = number
        self.process = process
        self.channel = channel
        self.answered = False
        self._segments: dict[int | None, Any] = {}  # number -> its memory
        self._leases: dict[int, weakref.ref[Any]] = {}
        self._returned: deque[int] = deque()

    def ask(self, run: int, epoch: int, number: int, indices: Any) -> None:
        returned = [self._returned.popleft() for _ in range(len(self._returned))]
        with suppress(OSError):  # it died: whoever waits for its answer will say so
            self.channel.send(Task(run, epoch, number, indices, returned))

    def read(self, allocator: Allocator) -> tuple[int, Any] | None:
        """(run, value) of the next answer; None if it is gone."""
        try:
            message: Message = self.channel.recv()
            if message.new_size:
                fd = recv_handle(self.channel)
                self._segments[message.segment] = map_file(fd, message.new_size)
                os.close(fd)
        except (EOFError, OSError):
            return None
        self.answered = True
        for number in message.dropped:
            self._segments.pop(number, None)
        if message.segment is None:
            return message.run, pickle.loads(message.pickled, buffers=message.inline)
        buffers = self._lend(message.segment, message.spans)
        pickled = message.pickled or buffers.pop().tobytes()
        if allocator is not np.empty or len(self._leases) > _MOST_LENT:
            buffers = [_copied(b, allocator) for b in buffers]
        return message.run, pickle.loads(pickled, buffers=buffers)

    def _lend(self, segment: int, spans: list[tuple[int, int]]) -> list[Any]:
        """Arrays over parts of a segment. When the last one is gone the segment goes back with the next task."""
        block = np.frombuffer(self._segments[segment], np.uint8)
        leases, returned = self._leases, self._returned

        def end(_: Any) -> None:
            leases.pop(segment, None)
            returned.append(segment)

        leases[segment] = weakref.ref(block, end)
        return [block[at : at + size] for at, size in spans]


def _copied(buffer: Any, allocator: Allocator) -> Any:
    out = allocator(buffer.shape, buffer.dtype)
    out[...] = buffer
    return out


class Pool:
    """The worker processes of a loader."""

    def __init__(
        self, recipe: Recipe, worker_init_fn: Callable[[int], Any] | None, seed: int, epoch: int, count: int
    ) -> None:
        self._workers: list[_Worker] = []
        self._stop = weakref.finalize(self, _stop, self._workers)  # also when the loader is forgotten, or Python ends
        self._run = 0
        context = _context()
        luggage = Luggage(dataset=recipe.dataset, collate_fn=recipe.collate_fn, worker_init_fn=worker_init_fn)
        try:
            for number in range(count):
                mine, theirs = context.Pipe()
                arguments = (theirs, luggage, recipe.batching(), seed, epoch, number, count)
                process = context.Process(target=main, args=arguments, daemon=True, name=f"pyflame-data-{number}")
                self._workers.append(_Worker(number, process, mine))
                process.start()
                theirs.close()
        except BaseException:
            self.close()
            raise
        finally:
            luggage.close()

    # --- an epoch ---------------------------------------------------------------------------------------------------

    def indexed(
        self, batches: Iterator[Any], start: int, epoch: int, prefetch: int, timeout: float, allocator: Allocator
    ) -> Iterator[Any]:
        """The batches in order. Batch n is loaded by worker n modulo their number, `prefetch` ahead in each.

        Gives None once, when all workers have been asked.
        """
        self._run += 1
        run, workers = self._run, self._workers
        numbered = enumerate(batches, start)
        asked: deque[int] = deque()

        def ask() -> None:
            for number, indices in numbered:
                asked.append(number)
                workers[number % len(workers)].ask(run, epoch, number, indices)
                return

        for _ in range(prefetch * len(self._workers)):
            ask()
        yield None
        while asked:
            number = asked.popleft()
            value = self._answer(workers[number % len(workers)], run, number, timeout, allocator)
            ask()
            yield value
            del value  # its memory may serve for the next one

    def streamed(self, epoch: int, prefetch: int, timeout: float, allocator: Allocator) -> Iterator[Any]:
        """The batches of an iterable dataset: one of each worker in turn, until all have ended.

        Gives None once, when all workers have been asked.
        """
        self._run += 1
        run = self._run
        turns = deque((worker, 0) for worker in self._workers)
        for worker, _ in turns:
            for number in range(prefetch):
                worker.ask(run, epoch, number, None)
        yield None
        while turns:
            worker, number = turns.popleft()
            value = self._answer(worker, run, number, timeout, allocator)
            if value is not End:
                worker.ask(run, epoch, number + prefetch, None)
                turns.append((worker, number + 1))
                yield value
            del value

    # --- answers ----------------------------------------------------------------------------------------------------

    def _answer(self, worker: _Worker, run: int, number: int, timeout: float, allocator: Allocator) -> Any:
        deadline = time.monotonic() + timeout if timeout else None
        while True:
            self._wait(worker, number, timeout, deadline)
            answer = worker.read(allocator)
            if answer is None:
                self._died(worker, number)
            of_run, value = answer
            if of_run != run:  # asked for by an iteration that was left
                continue
            if isinstance(value, Failure):
                self._raise(worker, number, value)
            return value

    def _wait(self, worker: _Worker, number: int, timeout: float, deadline: float | None) -> None:
        """Until this worker has answered; raises when any of them dies meanwhile."""
        if worker.channel.poll():
            return
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        sentinels = {w.process.sentinel: w for w in self._workers}
        ready = connection.wait([worker.channel, *sentinels], left)
        if worker.channel in ready:
            return
        if ready:
            self._died(sentinels[ready[0]], number)
        raise WorkerTimeoutError(
            f"[DataLoader] expected batch {number} from worker {worker.number} within {timeout} s but it did not come; "
            "raise timeout=, or see with num_workers=0 which item takes so long"
        )

    def _raise(self, worker: _Worker, number: int, failure: Failure) -> NoReturn:
        try:
            kind = pickle.loads(failure.kind) if failure.kind else None
        except Exception:  # whatever importing the type's module raises here; its name is in the text
            kind = None
        wanted = f"batch {number} from worker {worker.number}"
        way_out = "Use num_workers=0 to debug it in this process."
        if failure.starting:
            wanted = f"worker {worker.number} to start"
            way_out = "Its dataset and functions reach a worker by name: define them in a module it can import."
        message = (
            f"[DataLoader] expected {wanted} but it raised {failure.summary}\n"
            f"{way_out} The worker's traceback:\n\n{failure.trace}"
        )
        raise error_like(kind, message)

    def _died(self, worker: _Worker, number: int) -> NoReturn:
        worker.process.join(1)
        code = worker.process.exitcode
        if code is not None and code < 0:
            names = {s.value: s.name for s in signal.Signals}
            how = f"was killed by {names.get(-code, 'a signal')} (exit code {code})"
            way_out = (
                "the system kills processes when memory runs out: use fewer workers, a smaller batch_size or a smaller "
                "prefetch_factor"
            )
        else:
            how = f"ended with exit code {code}"
            way_out = "look for its own words above, or use num_workers=0 to see it fail in this process"
            if not worker.answered:
                way_out += "; a script that starts workers needs `if __name__ == '__main__':` around its main part"
        which = f"worker {worker.number} (pid {worker.process.pid})"
        raise WorkerError(f"[DataLoader] expected batch {number} but {which} {how}; {way_out}")

    # --- the end ----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop all workers: those that are busy for more than a moment by force."""
        self._stop()


def _stop(workers: list[_Worker]) -> None:
    running = [w for w in workers if w.process.pid is not None]
    workers.clear()
    for worker in running:
        with suppress(OSError):  # it is gone
            worker.channel.send(None)
    deadline = time.monotonic() + _GRACE
    for worker in running:
        worker.process.join(max(0.0, deadline - time.monotonic()))
    for end in ("terminate", "kill"):
        busy = [w.process for w in running if w.process.exitcode is None]
        for process in busy:
            getattr(process, end)()
        for process in busy:
            process.join(1)
    for worker in running:
        worker.channel.close()
