"""Engine: continuous batching. Requests join and leave at every step of one thread that owns the device's work.

Any thread submits; what a step does is in `loop.py`.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Sequence
from typing import Any

from pyflame.core.errors import ArgumentError, EngineStoppedError, QueueFullError
from pyflame.llm.batch import LARGE
from pyflame.llm.cache import PAGE, pages_of
from pyflame.llm.generate import Model, Prompt
from pyflame.llm.lora_rows import row_adapters
from pyflame.llm.options import Options
from pyflame.llm.serving.loop import Loop
from pyflame.llm.serving.request import Request
from pyflame.llm.serving.room import pages_for
from pyflame.llm.serving.stats import Counts, EngineStats


class Engine:
    """Serves requests to a model, many at once.

    `rows`: texts that are written at once; `pages` of 32 tokens for their keys and values (None: what memory has room
    for, and no more than all rows can fill); `queue`: texts that may wait; `chunk`: tokens of prompts, of one request
    or several, that a step takes in; `burst`: as many where many texts wait to be read: more than are written, or more
    than eight and an eighth of those (None: 2048 on a GPU, which computes many at once faster, else as `chunk`).
    `start=False` leaves steps to whoever calls `step()`. `prepare` has steps of every size planned, and captured on a
    GPU, before this returns; otherwise that happens when one is first needed.

    >>> with pf.llm.Engine(model) as engine:
    ...     requests = [engine.submit(text, max_tokens=50) for text in ("One", "Two", "Three")]
    ...     print([request.result()[0].text for request in requests])
    """

    def __init__(
        self,
        model: Model,
        *,
        rows: int = 16,
        pages: int | None = None,
        queue: int = 256,
        chunk: int = 256,
        burst: int | None = None,
        start: bool = True,
        prepare: bool = False,
    ) -> None:
        if not model.config.causal:
            raise ArgumentError(f"[engine] expected a decoder but got {model.config.architecture}; use embed()")
        if burst is None:
            burst = chunk if model.device.kind == "cpu" else max(chunk, LARGE)
        budgets = PAGE <= chunk <= burst and chunk % PAGE == burst % PAGE == 0
        if min(rows, queue) < 1 or not budgets or (pages is not None and pages < 1):
            raise ArgumentError(
                f"[engine] expected rows, pages and queue of at least 1, a chunk that is a multiple of {PAGE} and a "
                f"burst that is one, too, and no smaller, but got rows={rows}, pages={pages}, queue={queue}, "
                f"chunk={chunk}, burst={burst}"
            )
        self.model, self.rows, self.queue, self.chunk, self.burst = model, rows, queue, chunk, burst
        self.pages = pages_for(model, rows) if pages is None else pages
        self._counts = Counts()
        self._changed = threading.Condition()  # guards what follows
        self._inbox: list[Request] = []  # that the loop has not seen yet
        self._number = 0
        self._closing = self._stopped = False
        self._loop = Loop(model, rows, self.pages, chunk, burst, self._counts)
        if prepare:
            self._loop.rows.prepare()
        self._thread: threading.Thread | None = None
        if start:
            self._thread = threading.Thread(target=self._run, name="pyflame-engine", daemon=True)
            self._thread.start()
            atexit.register(self.close, drain=False)

    # --- what callers use: any thread --------------------------------------------------------------------------------

    def submit(
        self,
        prompt: Prompt | None = None,
        *,
        messages: Sequence[dict[str, Any]] | None = None,
        tools: Any = None,
        n: int = 1,
        priority: int = 0,
        timeout: float | None = None,
        adapter: str | None = None,
        **options: Any,
    ) -> Request:
        """Ask for the continuation of a prompt, or the answer to messages. Options are those of `Model.generate`, but
        for speculative decoding and prompts on disk. Higher priorities come first. A request that is not complete after
        `timeout` seconds ends with a RequestTimeoutError. `adapter`: one that `load_adapters` has given the model.
        Raises an ArgumentError for what can never be done, and a QueueFullError where too many wait.

        >>> request = engine.submit("The capital of France is", max_tokens=5)
        >>> request.result()[0].text
        ' Paris.'
        """
        prompts, several = self.model.read_prompts(prompt, messages, tools)
        if several:
            raise ArgumentError("[submit] expected one prompt but got several; submit each, or use pf.llm.batch")
        number = row_adapters(self.model.decoder).number(adapter)
        request = Request(prompts[0], Options(self.model, n, **options), priority, timeout, self._wake, number)
        most = max(pages_of(s.most_lines) for s in request.sequences)
        if most > self.pages:
            raise ArgumentError(
                f"[submit] expected a prompt and max_tokens that fit into {self.pages} pages of {PAGE} tokens but got "
                f"{len(prompts[0])} tokens and max_tokens={request.sequences[0].text.limit}; make an engine of more "
                "pages, or ask for fewer tokens"
            )
        with self._changed:
            self._want_open(n)
            self._number += 1
            for sequence in request.sequences:
                sequence.number = self._number
            self._inbox.append(request)
            self._counts.prompt_tokens += request.prompt_tokens
            self._changed.notify_all()
        return request

    def _want_open(self, count: int) -> None:
        if self._closing or self._stopped:
            raise EngineStoppedError(
                f"[submit] expected an engine that runs but {self._counts.fault or 'it is closed'}"
            )
        queued = self._queued
        if queued + count > self.queue:
            wait = max(1.0, self._counts.seconds * queued / self.rows)
            raise QueueFullError(wait, f"[submit] expected room in the queue but {queued} of {self.queue} texts wait")

    @property
    def _queued(self) -> int:
        return len(self._loop.scheduler.waiting) + sum(len(r.sequences) for r in self._inbox)

    def stats(self) -> EngineStats:
        """What waits, runs and was done so far."""
        counts, scheduler = self._counts, self._loop.scheduler
        with self._changed:
            return EngineStats(
                self._queued, scheduler.count, self.pages, scheduler.pool.available, scheduler.pool.cached,
                counts.prompt_tokens, counts.cached_tokens, counts.tokens, counts.finished, counts.failed,
                counts.cancelled, counts.preempted, counts.restarts, not (self._closing or self._stopped), counts.fault,
                counts.ttft.histogram(), counts.inter_token.histogram(),
            )  # fmt: skip

    def close(self, drain: bool = True, timeout: float | None = None) -> None:
        """Take no more requests, and end: when all are complete, or, without `drain` or after `timeout` seconds, at
        once with an EngineStoppedError for each that is not."""
        end = None if timeout is None else time.perf_counter() + timeout
        with self._changed:
            self._closing = True
            if not drain:
                self._stopped = True
            self._changed.notify_all()
        if self._thread is None:
            while not self._stopped and (end is None or time.perf_counter() < end) and self.step():
                pass
        elif drain:
            self._thread.join(timeout)
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
            atexit.unregister(self.close)
        self._end_all(EngineStoppedError("[engine] expected time to finish but the engine was closed"))
        self._loop.free()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self.close(drain=kind is None)

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    # --- the engine's own thread --------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopped:
            if not self.step():
                with self._changed:
                    if self._closing and not self._inbox:
                        return
                    self._changed.wait_for(lambda: self._inbox or self._closing or self._stopped)

    def step(self) -> bool:
        """Take in some tokens of prompts and write a token of each text that runs; gives whether there is more to do.
        Only for an engine that has no thread of its own."""
        with self._changed:
            for request in self._inbox:
                self._loop.add(request)
            self._inbox = []
        try:
            self._loop.step()
        except Exception as error:  # it could not start anew
            self._give_up(error)
        return bool(self._loop.requests or self._inbox) and not self._stopped

    def _give_up(self, error: Exception) -> None:
        """Nothing can be done any more: say so to all that wait."""
        self._counts.fault, self._stopped = f"{type(error).__name__}: {error}", True
        stopped = EngineStoppedError(f"[engine] expected to go on but got {self._counts.fault}")
        stopped.__cause__ = error
        self._end_all(stopped)

    def _end_all(self, error: Exception) -> None:
        with self._changed:
            left, self._inbox = [*self._loop.requests, *self._inbox], []
        for request in left:
            self._loop.end(request, error)
