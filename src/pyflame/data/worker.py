"""What runs in a worker process: it loads the batches it is asked for and sends them to its parent."""

from __future__ import annotations

import os
import pickle
import queue
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing import reduction
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from pyflame.data.errors import DataError
from pyflame.data.fetch import Recipe
from pyflame.data.info import WorkerInfo, set_worker_info
from pyflame.data.memory import allocating
from pyflame.data.outbox import Outbox
from pyflame.data.seeds import derive, seed_process
from pyflame.data.shared import aligned, anonymous_file, dumps, map_file, parts_of
from pyflame.tensor.devices import set_device


@dataclass
class Task:
    """A batch to load: which one, of which items (None: the next of a stream). `run` counts the parent's iterations."""

    run: int
    epoch: int
    number: int
    indices: Any
    returned: list[int]  # segments that the parent does not need any more


@dataclass
class Failure:
    """An exception, told by its type (pickled apart: the parent may not know it) and its text."""

    kind: bytes
    summary: str
    trace: str
    starting: bool  # before any item was asked for

    @classmethod
    def of(cls, error: Exception, starting: bool = False) -> Failure:
        try:
            kind = pickle.dumps(type(error))
        except Exception:  # a class that has no name, or no module; whatever pickle raises for it
            kind = b""
        summary = "".join(traceback.format_exception_only(type(error), error)).strip()
        trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        return cls(kind, summary, trace, starting)


class End:
    """Sent instead of a batch when a stream has ended."""


class Luggage:
    """What every worker gets when it starts: named values, with their arrays in memory that all workers share.

    It is pickled while a process is being started, when locks and queues of multiprocessing can be as well. A worker
    that writes to its dataset's arrays changes its own copy of those pages only.
    """

    def __init__(self, **values: Any) -> None:
        self._values = values
        self._files: dict[tuple[Any, ...], tuple[int, int]] = {}  # arrays -> descriptor and size
        self._received: tuple[Any, ...] = ()

    def __getstate__(self) -> dict[str, Any]:
        pickles, buffers = {}, []
        for name, value in self._values.items():
            try:
                pickles[name], found = dumps(value)
            except Exception as error:
                raise DataError(
                    f"[DataLoader] expected a {name} that can be pickled, for the worker processes, but got "
                    f"{type(value).__name__}: {error}; define its class and functions at the top of a module (no "
                    "lambda, no open file or connection among its attributes), or use num_workers=0"
                ) from error
            buffers.append(found)
        sizes = [[b.nbytes for b in found] for found in buffers]
        flat = [b for found in buffers for b in found]
        key = tuple((b.ctypes.data, b.nbytes) for b in flat)
        if flat and key not in self._files:  # once for all workers, unless pickling makes new arrays each time
            size = sum(aligned(b.nbytes) for b in flat) or 1
            fd = anonymous_file(size)
            block = np.frombuffer(map_file(fd, size), np.uint8)
            for part, buffer in zip(parts_of(block, [b.nbytes for b in flat]), flat, strict=True):
                part[:] = buffer
            self._files[key] = (fd, size)
        shared, size = self._files.get(key, (None, 0))
        return {"_received": (pickles, sizes, None if shared is None else reduction.DupFd(shared), size)}

    def unpack(self) -> dict[str, Any]:
        """In the worker: the values."""
        pickles, sizes, handle, size = self._received
        parts: list[Any] = []
        if handle is not None:
            fd = handle.detach()
            parts = parts_of(np.frombuffer(map_file(fd, size, private=True), np.uint8), [n for ns in sizes for n in ns])
            os.close(fd)
        values = {}
        for (name, pickled), mine in zip(pickles.items(), sizes, strict=True):
            values[name] = pickle.loads(pickled, buffers=parts[: len(mine)])
            parts = parts[len(mine) :]
        return values

    def close(self) -> None:
        """In the parent, once all workers run."""
        for fd, _ in self._files.values():
            os.close(fd)
        self._files.clear()


class _Inbox:
    """Reads tasks in a thread: the parent is never kept waiting, and its end is noticed at once."""

    def __init__(self, channel: Connection) -> None:
        self._channel = channel
        self._tasks: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        self._newest = 0
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        while True:
            try:
                task: Task | None = self._channel.recv()
            except (EOFError, OSError):
                os._exit(0)  # the parent is gone; even if this process is busy with an item
            if task is not None:
                self._newest = max(self._newest, task.run)
            self._tasks.put(task)

    def next(self, outbox: Outbox) -> Task | None:
        """The next task that somebody still waits for; None: stop."""
        while True:
            task = self._tasks.get()
            if task is None:
                return None
            outbox.take_back(task.returned)
            if task.run == self._newest:
                return task


class _Loader:
    """Loads batches for one worker."""

    def __init__(self, recipe: Recipe, seed: int, worker: int, workers: int) -> None:
        self.recipe = recipe
        self.seed = seed
        self.worker = worker
        self.workers = workers
        self._run = -1
        self._stream: Iterator[Any] = iter(())

    def start_epoch(self, epoch: int) -> None:
        seed = derive(self.seed, epoch, self.worker)
        seed_process(seed)
        set_worker_info(WorkerInfo(self.worker, self.workers, seed, self.recipe.dataset))

    def load(self, task: Task) -> Any:
        if task.run != self._run:
            self._run = task.run
            self.start_epoch(task.epoch)
            if task.indices is None:
                self._stream = self.recipe.stream()
        if task.indices is None:
            return next(self._stream, End)
        # By batch rather than by worker: the numbers that a dataset draws then depend neither on how many workers there
        # are nor on where in the epoch a loader started.
        seed_process(self.seed, task.epoch, task.number, 1)
        return self.recipe.load(task.indices)


def main(
    channel: Connection, luggage: Luggage, batching: dict[str, Any], seed: int, epoch: int, worker: int, workers: int
) -> None:
    """Serve until the parent says stop, or is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent stops its workers
    os.environ.setdefault("PYFLAME_THREADS", "1")  # workers are many already
    set_device("cpu")  # whatever the environment says: batches are made here and used elsewhere
    inbox, outbox = _Inbox(channel), Outbox(channel)
    broken: Failure | None = None
    try:
        values = luggage.unpack()
        recipe = Recipe(values["dataset"], values["collate_fn"], **batching)
        loader = _Loader(recipe, seed, worker, workers)
        loader.start_epoch(epoch)
        start: Callable[[int], Any] | None = values["worker_init_fn"]
        if start is not None:
            start(worker)
    except Exception as error:
        broken = Failure.of(error, starting=True)
    with allocating(outbox.empty):
        while (task := inbox.next(outbox)) is not None:
            try:
                outbox.send(task.run, task.number, broken or loader.load(task))
            except BrokenPipeError:
                return  # the parent is gone
            except Exception as error:
                outbox.reset()
                outbox.send(task.run, task.number, Failure.of(error))
