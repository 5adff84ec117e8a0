"""Engine: continuous batching. Requests join and leave at every step of one thread that owns the device's work.

A step takes in at most `chunk` tokens of prompts and writes one token of each text that runs, so a long prompt delays
others by one chunk at a time. On a GPU the next step is launched before the host reads the tokens of this one. What a
device's fault has touched fails; the engine makes its memory there anew, and what was not touched is read again.
"""

from __future__ import annotations

import atexit
import gc
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pyflame.core.errors import (
    ArgumentError,
    EngineStoppedError,
    QueueFullError,
    RequestCancelledError,
    RequestTimeoutError,
)
from pyflame.llm.batch import same_weights, weights_of
from pyflame.llm.cache import PAGE, pages_of
from pyflame.llm.generate import Model, Prompt
from pyflame.llm.options import Options
from pyflame.llm.sampler import Features, Picked
from pyflame.llm.serving.request import Request, TextSequence
from pyflame.llm.serving.room import pages_for
from pyflame.llm.serving.rows import Rows
from pyflame.llm.serving.scheduler import Scheduler
from pyflame.llm.serving.stats import Counts, EngineStats
from pyflame.llm.stream import logprobs_of
from pyflame.llm.text import Logprob
from pyflame.tensor import Tensor
from pyflame.tensor.arriving import arriving

_LOGPROBS = (-1, 0, 5, 20)
_PROMPTS = 4  # that a step reads at most: each of them reads all weights


@dataclass
class Launched:
    """A step that was launched: whose tokens it picks, and how to read them."""

    step: int
    sequences: list[TextSequence]
    picked: Picked
    read: Callable[[], Any]


class Engine:
    """Serves requests to a model, many at once.

    `rows`: texts that are written at once; `pages` of 32 tokens for their keys and values (None: what memory has room
    for, and no more than all rows can fill); `queue`: texts that may wait; `chunk`: tokens of prompts that a step takes
    in. `start=False` leaves steps to whoever calls `step()`. `prepare` has steps of every size planned, and captured on
    a GPU, before this returns; otherwise that happens when one is first needed.

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
        start: bool = True,
        prepare: bool = False,
    ) -> None:
        if not model.config.causal:
            raise ArgumentError(f"[engine] expected a decoder but got {model.config.architecture}; use embed()")
        if min(rows, queue) < 1 or chunk < PAGE or chunk % PAGE or (pages is not None and pages < 1):
            raise ArgumentError(
                f"[engine] expected rows, pages and queue of at least 1 and a chunk that is a multiple of {PAGE} but "
                f"got rows={rows}, pages={pages}, queue={queue}, chunk={chunk}"
            )
        self.model, self.rows, self.queue, self.chunk = model, rows, queue, chunk
        self.pages = pages_for(model, rows) if pages is None else pages
        self._counts = Counts()
        self._changed = threading.Condition()  # guards what follows
        self._inbox: list[Request] = []
        self._requests: dict[int, Request] = {}  # that have not ended, by number
        self._number = self._steps = 0
        self._closing = self._stopped = False
        self._launched: list[Launched] = []
        self._concerned: list[TextSequence] = []  # whose work the device does now
        self._make()
        if prepare:
            self._rows.prepare()
        self._thread: threading.Thread | None = None
        if start:
            self._thread = threading.Thread(target=self._run, name="pyflame-engine", daemon=True)
            self._thread.start()
            atexit.register(self.close, drain=False)

    def _make(self) -> None:
        """The device's memory and whose it is."""
        model = self.model
        self._weights = weights_of(model.decoder)
        self._rows = Rows(model.decoder, self.rows, model.context, self.pages + 1, self.chunk, model.kv, model.device)
        self._scheduler = Scheduler(self.rows, self.pages + 1)

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
        **options: Any,
    ) -> Request:
        """Ask for the continuation of a prompt, or the answer to messages. Options are those of `Model.generate`, but
        for speculative decoding and prompts on disk. Higher priorities come first. A request that is not complete after
        `timeout` seconds ends with a RequestTimeoutError. Raises an ArgumentError for what can never be done, and a
        QueueFullError where too many wait.

        >>> request = engine.submit("The capital of France is", max_tokens=5)
        >>> request.result()[0].text
        ' Paris.'
        """
        prompts, several = self.model.read_prompts(prompt, messages, tools)
        if several:
            raise ArgumentError("[submit] expected one prompt but got several; submit each, or use pf.llm.batch")
        request = Request(prompts[0], Options(self.model, n, **options), priority, timeout, self._wake)
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
            self._requests[self._number] = request
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
        return len(self._scheduler.waiting) + sum(len(r.sequences) for r in self._inbox)

    def stats(self) -> EngineStats:
        """What waits, runs and was done so far."""
        counts, pool = self._counts, self._scheduler.pool
        with self._changed:
            return EngineStats(
                self._queued, self._scheduler.count, self.pages, pool.available, pool.cached,
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
        self._free()

    def _free(self) -> None:
        """Let go of the device's memory, which plans and cells hold in circles."""
        vars(self).pop("_rows", None)
        gc.collect()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self.close(drain=kind is None)

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    # --- the engine's own thread --------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._stopped:
                if not self.step():
                    with self._changed:
                        if self._closing:
                            return
                        self._changed.wait_for(lambda: self._inbox or self._closing or self._stopped)
        except Exception as error:  # nobody must wait for a thread that is gone
            self._give_up(error)
            raise

    def step(self) -> bool:
        """Take in some tokens of prompts and write a token of each text that runs; gives whether there is more to do.
        Only for an engine that has no thread of its own."""
        with self._changed:
            arrived, self._inbox = self._inbox, []
            for request in arrived:
                for sequence in request.sequences:
                    self._scheduler.wait(sequence)
        self._steps += 1
        self._concerned = []
        try:
            self._drop_ended()
            self._admit()
            self._read()
            self._write()
            self._settle(self._steps if self._runs_ahead else None)
        except Exception as error:  # whatever a device raises
            self._restart(error)
        return bool(self._requests) and not self._stopped

    @property
    def _runs_ahead(self) -> bool:
        """Whether steps are launched before tokens of the one before are known: not where the host says what may
        follow, and not on the CPU, where a step for nothing costs more than waiting."""
        return self.model.device.kind != "cpu" and not any(s.matcher for s in self._scheduler.active)

    def _drop_ended(self) -> None:
        """End what was cancelled and what is late."""
        now = time.perf_counter()
        for request in list(self._requests.values()):
            if request.cancelled:
                self._end(
                    request, RequestCancelledError("[engine] expected the texts to be completed but got a cancel()")
                )
            elif request.deadline is not None and now > request.deadline:
                late = f"[engine] expected to finish within {request.deadline - request.begun:.3g} s but did not"
                self._end(request, RequestTimeoutError(late))

    def _admit(self) -> None:
        """Let sequences join, in place of others of lower priority if need be."""
        scheduler = self._scheduler
        if not scheduler.waiting:
            return
        now = weights_of(self.model.decoder)
        if not same_weights(now, self._weights):
            self._weights = now
            scheduler.forget()
        while True:
            for one in scheduler.admit():
                options, row = one.request.options, want_row(one)
                self._concerned = [one]
                self._rows.begin(row, options.sampling, one.request.prompt, one.text.tokens, one.index, one.text.limit)
                self._rows.put_pages(row, 0, one.pages)
            if not scheduler.waiting or scheduler.victim(scheduler.waiting[0].request.priority) is None:
                return
            self._make_way(scheduler.waiting[0].request.priority)

    def _make_way(self, below: int | None = None) -> None:
        """Take row and pages of a sequence that is served last. What was picked comes first: it counts, and may end a
        text."""
        if self._launched:
            self._settle()
            return
        victim = self._scheduler.victim(below)
        if victim is not None:
            self._scheduler.preempt(victim)
            self._counts.preempted += 1

    def _read(self) -> None:
        """Take in tokens of prompts, in turns."""
        scheduler, room = self._scheduler, self.chunk
        while scheduler.reading and room > 0:
            one = min(scheduler.reading, key=lambda s: -s.request.priority)
            scheduler.reading.remove(one)
            scheduler.reading.append(one)
            self._concerned = [one]
            if scheduler.share_more(one):
                self._rows.put_pages(want_row(one), 0, one.pages)
            tokens = one.tokens
            count = min(len(tokens) - one.lines, room)
            count = min(count, self._rows.size_for(count, one.lines))
            if one.lines + count < len(tokens) and count >= PAGE:
                count -= count % PAGE  # whole pages can be shared
            logits = self._rows.read(want_row(one), tokens[one.lines : one.lines + count], one.lines)
            one.lines += count
            scheduler.filled(one)
            if one.lines == len(tokens):
                self._pick_first(one, logits)
            room -= max(count, self.chunk // _PROMPTS)

    def _pick_first(self, one: TextSequence, logits: Tensor) -> None:
        """The token behind a prompt, or behind what was written before its pages were taken."""
        row = want_row(one)
        if one.matcher is not None:
            self._rows.allow({row: one.matcher.allowed()})
        picked = self._rows.first(row, logits, one.lines, self._features([one]))
        if not one.text.tokens:
            one.cached = one.shared
            if one.index == 0:
                one.request.cached_tokens = one.cached
                self._counts.cached_tokens += one.cached
        self._scheduler.runs(one)
        self._launch([one], picked)

    def _write(self) -> None:
        """One token of each text that runs."""
        if not self._runs_ahead:
            self._settle()
        ready = self._with_pages()
        if not ready:
            return
        self._concerned = ready
        masks = {want_row(s): s.matcher.allowed() for s in ready if s.matcher is not None}
        if masks:
            self._rows.allow(masks)
        picked = self._rows.next([want_row(s) for s in ready], self._features(ready))
        for one in ready:
            one.lines += 1
        self._launch(ready, picked)

    def _features(self, sequences: list[TextSequence]) -> Features:
        """What a step of these needs. How many log probabilities it reports has few values, since each is a plan."""
        found = reduce(Features.joined, [s.request.options.features for s in sequences])
        most = next((n for n in _LOGPROBS if n >= found.logprobs), found.logprobs)
        return found._replace(logprobs=min(most, self.model.config.vocab))

    def _with_pages(self) -> list[TextSequence]:
        """The sequences that run and have room for one more line, the first served first."""
        scheduler = self._scheduler
        for one in sorted(scheduler.running, key=lambda s: s.rank):
            while one.wants_page and not scheduler.pool.available:
                self._make_way()
            if one.wants_page:
                one.pages += scheduler.pool.take(1)
                self._rows.put_pages(want_row(one), len(one.pages) - 1, one.pages[-1:])
        return [s for s in scheduler.running if s.picked < s.text.limit]

    def _launch(self, sequences: list[TextSequence], picked: Picked) -> None:
        for one in sequences:
            one.picked += 1
        self._launched.append(Launched(self._steps, sequences, picked, arriving(picked.tokens)))

    def _settle(self, before: int | None = None) -> None:
        """Read the tokens of steps that were launched before one, or of all."""
        while self._launched and (before is None or self._launched[0].step < before):
            self._concerned = [s for step in self._launched for s in step.sequences]
            step = self._launched[0]
            tokens = step.read()
            found = zip(step.sequences, tokens, logprobs_of(tokens, step.picked), strict=False)  # but for padding
            del self._launched[0]
            for one, token, logprob in found:
                if not one.request.done and one.text.finish is None:
                    self._push(one, token, logprob)

    def _push(self, one: TextSequence, token: int, logprob: Logprob | None) -> None:
        counts, before = self._counts, one.times[-1:]
        try:
            chunk = one.push(token, logprob)
        except Exception as error:  # a tokenizer or a grammar that breaks concerns this request alone
            self._end(one.request, error)
            return
        counts.tokens += 1
        if before:
            counts.inter_token.add(one.times[-1] - before[0])
        else:
            counts.ttft.add(one.times[-1] - one.request.begun)
        self._scheduler.filled(one)
        one.request.push(chunk)
        if one.text.finish is not None:
            self._scheduler.leave(one)
            if all(s.text.finish for s in one.request.sequences):
                self._end(one.request)

    def _end(self, request: Request, error: Exception | None = None) -> None:
        """A request is complete, or `error` ends it."""
        counts = self._counts
        for one in request.sequences:
            self._scheduler.leave(one)
        with self._changed:
            self._requests.pop(request.sequences[0].number, None)
        if error is None:
            counts.finished += 1
            counts.took(time.perf_counter() - request.begun)
        elif isinstance(error, RequestCancelledError):
            counts.cancelled += 1
        else:
            counts.failed += 1
        request.end(error)

    def _end_all(self, error: Exception) -> None:
        with self._changed:
            self._inbox = []
        for request in list(self._requests.values()):
            self._end(request, error)

    def _restart(self, error: Exception) -> None:
        """Fail what a fault has touched, make the device's memory anew, and let the rest be read again."""
        counts, scheduler = self._counts, self._scheduler
        counts.fault, counts.restarts = f"{type(error).__name__}: {error}", counts.restarts + 1
        said = f"[engine] a step failed, and the engine starts anew: {counts.fault}"
        warnings.warn(said, RuntimeWarning, stacklevel=2)
        _let_go(error)
        concerned = [s.request for s in self._concerned] or [s.request for s in scheduler.active]
        live = [r for r in dict.fromkeys(concerned) if not r.done]
        for request in live or list(self._requests.values()):  # one at least, or it might go on for ever
            self._end(request, error)
        for one in scheduler.active:
            scheduler.preempt(one)
        waiting, self._launched, self._concerned = scheduler.waiting, [], []
        self._free()
        try:
            self._make()
        except Exception as second:
            self._give_up(second)
            return
        self._scheduler.waiting = waiting

    def _give_up(self, error: Exception) -> None:
        """Nothing can be done any more: say so to all that wait."""
        self._counts.fault, self._stopped = f"{type(error).__name__}: {error}", True
        stopped = EngineStoppedError(f"[engine] expected to go on but got {self._counts.fault}")
        stopped.__cause__ = error
        self._end_all(stopped)


def want_row(one: TextSequence) -> int:
    assert one.row is not None
    return one.row


def _let_go(error: BaseException | None) -> None:
    """Of what the frames of an error hold: whoever keeps the error would keep the device's memory."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__
