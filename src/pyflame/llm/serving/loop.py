"""Loop: the steps of an engine. What is launched on the device, for whom, and what becomes of the tokens it gives.

A step takes in at most `chunk` tokens of prompts and writes one token of each text that runs, so a long prompt delays
others by one chunk at a time; where many texts wait to be read, it takes in up to `burst`. On a GPU
the next step is launched before the host reads the tokens of this one. What a device's fault has touched fails; its
memory is made anew, and what was not touched is read again. One thread uses it.
"""

from __future__ import annotations

import gc
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pyflame.core.errors import RequestCancelledError, RequestTimeoutError
from pyflame.llm.batch import same_weights, weights_of
from pyflame.llm.generate import Model
from pyflame.llm.sampler import Features, Picked
from pyflame.llm.serving.prefill import Prefill, prefill
from pyflame.llm.serving.request import Request, TextSequence, want_row
from pyflame.llm.serving.rows import Rows
from pyflame.llm.serving.scheduler import Scheduler
from pyflame.llm.serving.stats import Counts
from pyflame.llm.stream import logprobs_of
from pyflame.llm.text import Logprob
from pyflame.tensor import Tensor
from pyflame.tensor.arriving import arriving

_LOGPROBS = (-1, 0, 5, 20)
_QUEUED = 8  # so many times fewer texts that wait, and more than so many, count for more than those that are written
_LAUNCHES = 4  # that read prompts in a step at most: each of them reads all weights


@dataclass
class Launched:
    """A step that was launched: whose tokens it picks, and how to read them."""

    step: int
    sequences: list[TextSequence]
    picked: Picked
    read: Callable[[], Any]


class Loop:
    """Requests over `rows` rows and `pages` pages."""

    def __init__(self, model: Model, rows: int, pages: int, chunk: int, burst: int, counts: Counts) -> None:
        self.model, self.count, self.pages, self.counts = model, rows, pages, counts
        self.chunk, self.burst = chunk, burst
        self.requests: dict[Request, None] = {}  # that have not ended
        self._suspects: set[Request] = set()  # one of them made a step fail: each is read by itself
        self.steps = 0
        self._launched: list[Launched] = []
        self._concerned: list[TextSequence] = []  # whose work the device does now
        self._make()

    def _make(self) -> None:
        """The device's memory and whose it is."""
        model = self.model
        self._weights = weights_of(model.decoder)
        budgets = self.chunk, self.burst
        self.rows = Rows(model.decoder, self.count, model.context, self.pages + 1, budgets, model.kv, model.device)
        windows = [window for window in model.config.windows if window is not None]
        # Layers share one table: where one of them sees everything, all pages stay.
        window = max(windows) if len(windows) == model.config.layers else None
        self.scheduler = Scheduler(self.count, self.pages + 1, window)

    def free(self) -> None:
        """Let go of the device's memory, which plans and cells hold in circles."""
        vars(self).pop("rows", None)
        gc.collect()

    def add(self, request: Request) -> None:
        """Let a request wait for its turn."""
        self.requests[request] = None
        for sequence in request.sequences:
            self.scheduler.wait(sequence)

    def step(self) -> None:
        """Take in some tokens of prompts and write a token of each text that runs. Raises what keeps it from going on
        after a fault."""
        self.steps += 1
        self._concerned = []
        try:
            self._drop_ended()
            self._admit()
            self._read()
            self._write()
            self._settle(self.steps if self._runs_ahead else None)
        except Exception as error:  # whatever a device raises
            self._restart(error)

    @property
    def _runs_ahead(self) -> bool:
        """Whether steps are launched before tokens of the one before are known: not where the host says what may
        follow, and not on the CPU, where a step for nothing costs more than waiting."""
        return self.model.device.kind != "cpu" and not any(s.matcher for s in self.scheduler.active)

    def _drop_ended(self) -> None:
        """End what was cancelled and what is late."""
        now = time.perf_counter()
        for request in list(self.requests):
            if request.cancelled:
                self.end(
                    request, RequestCancelledError("[engine] expected the texts to be completed but got a cancel()")
                )
            elif request.deadline is not None and now > request.deadline:
                late = f"[engine] expected to finish within {request.deadline - request.begun:.3g} s but did not"
                self.end(request, RequestTimeoutError(late))

    def _admit(self) -> None:
        """Let sequences join, in place of others of lower priority if need be."""
        scheduler = self.scheduler
        if not scheduler.may_admit:  # a look at all weights costs milliseconds
            return
        now = weights_of(self.model.decoder)
        if not same_weights(now, self._weights):
            self._weights = now
            scheduler.forget()
        while True:
            admitted = scheduler.admit()
            while admitted:
                self._concerned = self._together(admitted)
                self.rows.begin(self._concerned)
                admitted = [one for one in admitted if one not in self._concerned]
            if scheduler.weaker is None:
                return
            self._make_way(scheduler.waiting[0].request.priority)

    def _make_way(self, below: int | None = None) -> None:
        """Take row and pages of a sequence that is served last. What was picked comes first: it counts, and may end a
        text."""
        if self._launched:
            self._settle()
            return
        victim = self.scheduler.victim(below)
        if victim is not None:
            self.scheduler.preempt(victim)
            self.counts.preempted += 1

    def _read(self) -> None:
        """Take in tokens of prompts, in turns."""
        scheduler = self.scheduler
        reading, running = len(scheduler.reading), len(scheduler.running)
        many = reading > running or _QUEUED * reading > max(running, _QUEUED * _QUEUED)
        whole = room = self.burst if many else self.chunk
        while scheduler.reading:
            for one in scheduler.reading:
                if scheduler.share_more(one):
                    self.rows.put_pages(want_row(one), 0, one.pages)
            waiting = self._together(sorted(scheduler.reading, key=lambda s: -s.request.priority))
            given = prefill(waiting, self.rows.shapes, room, self.rows.capacity)
            if given is None:
                return
            self._take_in(given)
            room -= max(given.shape.tokens, whole // _LAUNCHES)

    def _together(self, sequences: list[TextSequence]) -> list[TextSequence]:
        """The first of these and those that may be handled with it: a suspect is by itself."""
        if sequences[0].request in self._suspects:
            return sequences[:1]
        return [one for one in sequences if one.request not in self._suspects]

    def _take_in(self, given: Prefill) -> None:
        """Read these pieces, and pick the tokens behind prompts that end with them."""
        self._concerned = given.sequences
        logits = self.rows.read(given)
        for piece in given.pieces:
            piece.sequence.lines += piece.count
        for one in given.sequences:
            self.scheduler.turned(one)
            self._filled(one)
        read = [piece.sequence for piece in given.pieces if piece.last]
        if read:
            self._pick_first(read, logits)

    def _pick_first(self, read: list[TextSequence], logits: Tensor) -> None:
        """The tokens behind prompts, or behind what was written before their pages were taken."""
        self._allow(read)
        picked = self.rows.first(read, logits, self._features(read))
        for one in read:
            if not one.text.tokens:
                one.cached = one.shared
                if one.index == 0:
                    one.request.cached_tokens = one.cached
                    self.counts.cached_tokens += one.cached
            self.scheduler.runs(one)
        self._launch(read, picked)

    def _write(self) -> None:
        """One token of each text that runs."""
        if not self._runs_ahead:
            self._settle()
        ready = self._with_pages()
        if not ready:
            return
        self._concerned = ready
        self._allow(ready)
        picked = self.rows.next([want_row(s) for s in ready], self._features(ready))
        for one in ready:
            one.lines += 1
        self._launch(ready, picked)

    def _allow(self, sequences: list[TextSequence]) -> None:
        """Only what their constraints let through may come next."""
        masks = {want_row(s): s.matcher.allowed() for s in sequences if s.matcher is not None}
        if masks:
            self.rows.allow(masks)

    def _features(self, sequences: list[TextSequence]) -> Features:
        """What a step of these needs. How many log probabilities it reports has few values, since each is a plan."""
        found = reduce(Features.joined, [s.request.options.features for s in sequences])
        most = next((n for n in _LOGPROBS if n >= found.logprobs), found.logprobs)
        return found._replace(logprobs=min(most, self.model.config.vocab))

    def _with_pages(self) -> list[TextSequence]:
        """The sequences that run and have room for one more line, the first served first."""
        scheduler = self.scheduler
        for one in sorted(scheduler.running, key=lambda s: s.rank):
            while one.wants_page and not scheduler.pool.available:
                self._make_way()
            if one.wants_page:
                one.pages += scheduler.pool.take(1)
                self.rows.put_pages(want_row(one), len(one.pages) - 1, one.pages[-1:])
        return [s for s in scheduler.running if s.picked < s.text.limit]

    def _launch(self, sequences: list[TextSequence], picked: Picked) -> None:
        for one in sequences:
            one.picked += 1
        self._launched.append(Launched(self.steps, sequences, picked, arriving(picked.tokens)))

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
        counts, before = self.counts, one.times[-1:]
        try:
            chunk = one.push(token, logprob)
        except Exception as error:  # a tokenizer or a grammar that breaks concerns this request alone
            self.end(one.request, error)
            return
        counts.tokens += 1
        if before:
            counts.inter_token.add(one.times[-1] - before[0])
        else:
            counts.ttft.add(one.times[-1] - one.request.begun)
        self._filled(one)
        one.request.push(chunk)
        if one.text.finish is not None:
            self.scheduler.leave(one)
            if all(s.text.finish for s in one.request.sequences):
                self.end(one.request)

    def _filled(self, one: TextSequence) -> None:
        """Let others share what is full, and have what the window has passed."""
        self.scheduler.filled(one)
        gone = self.scheduler.slide(one)
        if gone:
            self.rows.drop_pages(want_row(one), gone)

    def end(self, request: Request, error: Exception | None = None) -> None:
        """A request is complete, or `error` ends it."""
        counts = self.counts
        for one in request.sequences:
            self.scheduler.leave(one)
        self.requests.pop(request, None)
        self._suspects.discard(request)
        if error is None:
            counts.finished += 1
            counts.took(time.perf_counter() - request.begun)
        elif isinstance(error, RequestCancelledError):
            counts.cancelled += 1
        else:
            counts.failed += 1
        request.end(error)

    def _restart(self, error: Exception) -> None:
        """Fail what a fault has touched, make the device's memory anew, and let the rest be read again."""
        counts, scheduler = self.counts, self.scheduler
        counts.fault, counts.restarts = f"{type(error).__name__}: {error}", counts.restarts + 1
        said = f"[engine] a step failed, and the engine starts anew: {counts.fault}"
        warnings.warn(said, RuntimeWarning, stacklevel=2)
        _let_go(error)
        concerned = self._concerned or scheduler.active
        live = [r for r in dict.fromkeys(s.request for s in concerned) if not r.done]
        if len(live) > 1 and not any(s.running for s in concerned):  # they were read together, so one may be to blame
            self._suspects.update(live)
            live = []
        elif not live:
            live = list(self.requests)  # one at least, or it might go on for ever
        for request in live:
            self.end(request, error)
        for one in scheduler.active:
            scheduler.preempt(one)
        waiting, self._launched, self._concerned = scheduler.waiting, [], []
        self.free()
        self._make()
        self.scheduler.waiting = waiting


def _let_go(error: BaseException | None) -> None:
    """Of what the frames of an error hold: whoever keeps the error would keep the device's memory."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__
