"""Loading ahead in a thread of this process, so that collating the next batches overlaps with computing on this one."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Any

from pyflame.core.state import mode, state


def prefetched(batches: Iterator[Any], ahead: int) -> Iterator[Any]:
    """The same batches, up to `ahead` of them loaded before they are asked for. Gives None once, when it has begun."""
    room = threading.Semaphore(ahead)
    ready: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
    stopped = threading.Event()
    device = state.device  # the thread's batches belong where the consumer's would

    def produce() -> None:
        try:
            with mode(device=device):
                while room.acquire() and not stopped.is_set():
                    ready.put(("batch", next(batches)))
        except StopIteration:
            ready.put(("end", None))
        except BaseException as error:  # raised where the consumer asks for the batch
            ready.put(("error", error))

    thread = threading.Thread(target=produce, name="pyflame-prefetch", daemon=True)
    thread.start()
    try:
        yield None
        while True:
            what, value = ready.get()
            if what == "error":
                raise value
            if what == "end":
                return
            room.release()
            yield value
    finally:
        stopped.set()
        room.release()
        thread.join(1)  # a slow item is not waited for: the thread ends after it
