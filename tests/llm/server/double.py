"""A stand-in for the engine: each request is a thread over Model.stream."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

from pyflame.core.errors import EngineStoppedError, RequestCancelledError
from pyflame.llm.generate import Model


class Request:
    def __init__(self, stream: Any, count: int) -> None:
        self.prompt_tokens, self.cached_tokens, self.error = count, 0, None
        self._stream, self._chunks, self._done, self._cancelled = stream, [], False, False
        self._condition = threading.Condition()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        try:
            for chunk in self._stream:
                if self._cancelled:
                    self._stream.close()
                    self.error = RequestCancelledError("[engine] cancelled")
                    break
                with self._condition:
                    self._chunks.append(chunk)
                    self._condition.notify_all()
        except Exception as error:
            self.error = error
        with self._condition:
            self._done = True
            self._condition.notify_all()

    def cancel(self) -> None:
        self._cancelled = True

    async def __aiter__(self) -> Any:
        at = 0
        while True:
            if at < len(self._chunks):
                yield self._chunks[at]
                at += 1
            elif self._done:
                if self.error:
                    raise self.error
                return
            else:
                await asyncio.sleep(0.002)


class Histogram:
    bounds, counts, sum, count = (0.1,), (1, 1), 2.0, 2

    def cumulative(self) -> Any:
        return [(0.1, 1), (float("inf"), 2)]


class Engine:
    def __init__(self, model: Model, **_: Any) -> None:
        self.model, self.requests, self.closed = model, [], False

    def submit(self, prompt: Any = None, *, messages: Any = None, tools: Any = None, n: int = 1, priority: int = 0,
               timeout: Any = None, **options: Any) -> Request:  # fmt: skip
        if self.closed:
            raise EngineStoppedError("[engine] closed")
        if messages is not None:
            prompt = self.model.chat_tokens(messages, tools)
        tokens = self.model.encode(prompt)
        self.requests.append(Request(self.model.stream(tokens, n=n, **options), len(tokens)))
        return self.requests[-1]

    def stats(self) -> Any:
        names = "queued running pages free_pages cached_pages prompt_tokens cached_tokens tokens finished failed cancelled preempted restarts"
        found = SimpleNamespace(**dict.fromkeys(names.split(), 1), healthy=not self.closed, fault=None)
        found.running = sum(not r._done for r in self.requests)
        found.ttft = found.inter_token = Histogram()
        return found

    def close(self, drain: bool = True, timeout: float | None = None) -> None:
        self.closed = True
