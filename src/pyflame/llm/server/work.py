"""Work: what an HTTP request gives to an engine, and that ends when its client goes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine
from dataclasses import replace
from typing import Any, TypeVar

from fastapi import Request as HttpRequest

from pyflame.llm.serving.request import Request
from pyflame.llm.text import Chunk

T = TypeVar("T")


class Work:
    """The engine's requests behind one HTTP request, with `n` texts each. Whoever makes one cancels it in the end:
    that ends nothing that has finished."""

    def __init__(self, requests: list[Request], n: int) -> None:
        self.requests, self.n = requests, n
        self.tokens = 0
        self.begun = time.perf_counter()
        self.first = self.begun  # when the first token came
        self._chunks = self._single(0) if len(requests) == 1 else self._merged()
        self._ready: list[Chunk] = []

    @property
    def count(self) -> int:
        """How many texts there will be."""
        return len(self.requests) * self.n

    @property
    def prompt_tokens(self) -> int:
        return sum(r.prompt_tokens for r in self.requests)

    @property
    def cached_tokens(self) -> int:
        return sum(r.cached_tokens for r in self.requests)

    def cancel(self) -> None:
        for request in self.requests:
            request.cancel()

    async def begin(self) -> None:
        """Wait for the first token. What goes wrong before it can still be told by the answer's status."""
        async for chunk in self._chunks:
            self.first = time.perf_counter()
            self._ready.append(chunk)
            return

    async def chunks(self) -> AsyncIterator[Chunk]:
        """What was written, as it comes; `index` counts the texts of all prompts."""
        for chunk in self._ready:
            self.tokens += 1
            yield chunk
        async for chunk in self._chunks:
            self.tokens += 1
            yield chunk

    async def _single(self, at: int) -> AsyncIterator[Chunk]:
        async for chunk in self.requests[at]:
            yield replace(chunk, index=at * self.n + chunk.index) if at else chunk

    async def _merged(self) -> AsyncIterator[Chunk]:
        queue: asyncio.Queue[Chunk | BaseException | None] = asyncio.Queue()

        async def pump(at: int) -> None:
            try:
                async for chunk in self._single(at):
                    queue.put_nowait(chunk)
                queue.put_nowait(None)
            except Exception as error:
                queue.put_nowait(error)

        tasks = [asyncio.ensure_future(pump(at)) for at in range(len(self.requests))]
        try:
            left = len(tasks)
            while left:
                found = await queue.get()
                if isinstance(found, BaseException):
                    raise found
                if found is None:
                    left -= 1
                else:
                    yield found
        finally:
            for task in tasks:
                task.cancel()


class ClientGoneError(Exception):
    """The client has closed the connection; nobody reads an answer."""


async def while_connected(http: HttpRequest, work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine, which is cancelled as soon as the client is gone."""
    task, gone = asyncio.ensure_future(work), asyncio.ensure_future(_disconnected(http))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientGoneError
        return task.result()
    finally:
        task.cancel()
        gone.cancel()


async def _disconnected(http: HttpRequest) -> None:
    while (await http.receive())["type"] != "http.disconnect":
        pass
