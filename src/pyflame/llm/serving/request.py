"""Request: what `Engine.submit` gives. Its chunks come to a thread or to asyncio while the engine writes."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field

from pyflame.llm.cache import PAGE
from pyflame.llm.constraint import Matcher
from pyflame.llm.options import Options
from pyflame.llm.text import Chunk, Generation, Logprob, Text, Timings


class Request:
    """One prompt and the `n` texts that follow it.

    >>> with pf.llm.Engine(model) as engine:
    ...     request = engine.submit("Once upon a time", max_tokens=50)
    ...     for chunk in request:                       # or: async for chunk in request
    ...         print(chunk.text, end="")
    """

    def __init__(
        self,
        prompt: list[int],
        options: Options,
        priority: int,
        timeout: float | None,
        wake: Callable[[], None],
        adapter: int = 0,
    ) -> None:
        self.prompt, self.options, self.priority, self.adapter = prompt, options, priority, adapter
        self.prompt_tokens, self.cached_tokens = len(prompt), 0
        self.error: Exception | None = None  # what ended it before its texts were complete
        self.begun = time.perf_counter()
        self.deadline = None if timeout is None else self.begun + timeout
        self.cancelled = False
        self.sequences = [TextSequence(self, index, options.text(prompt)) for index in range(options.n)]
        self._wake_engine = wake
        self._chunks: list[Chunk] = []
        self._done = False
        self._changed = threading.Condition()
        self._wakers: list[Callable[[], None]] = []  # of tasks that wait in event loops

    @property
    def done(self) -> bool:
        """Whether it has ended: all texts are complete, or there is an error."""
        return self._done

    def cancel(self) -> None:
        """End it within a step of the engine. One that has ended stays as it is."""
        self.cancelled = True
        self._wake_engine()

    def __iter__(self) -> Iterator[Chunk]:
        """The chunks from the first on, as they come; every iterator gets all of them."""
        at = 0
        while True:
            with self._changed:
                self._changed.wait_for(lambda at=at: at < len(self._chunks) or self._done)  # type: ignore[misc]
            if at == len(self._chunks):
                self._raise()
                return
            yield self._chunks[at]
            at += 1

    async def __aiter__(self) -> AsyncIterator[Chunk]:
        """The same in an event loop: the engine's thread wakes it."""
        loop, changed, at = asyncio.get_running_loop(), asyncio.Event(), 0

        def wake() -> None:
            loop.call_soon_threadsafe(changed.set)

        with self._changed:
            self._wakers.append(wake)
        try:
            while True:
                changed.clear()
                if at < len(self._chunks):
                    yield self._chunks[at]
                    at += 1
                elif self._done:
                    self._raise()
                    return
                else:
                    await changed.wait()
        finally:
            with self._changed:
                self._wakers.remove(wake)

    def result(self) -> list[Generation]:
        """The texts, once all are complete."""
        with self._changed:
            self._changed.wait_for(lambda: self._done)
        self._raise()
        return [s.generation() for s in self.sequences]

    def _raise(self) -> None:
        if self.error is not None:
            raise self.error

    def push(self, chunk: Chunk) -> None:
        """The engine has written a token."""
        self._tell(lambda: self._chunks.append(chunk))

    def end(self, error: Exception | None = None) -> None:
        """All is written, or something has ended it."""

        def ended() -> None:
            self.error, self._done = error, True

        self._tell(ended)

    def _tell(self, change: Callable[[], None]) -> None:
        with self._changed:
            change()
            self._changed.notify_all()
            for wake in self._wakers:
                try:
                    wake()
                except RuntimeError:  # its loop was closed: nobody waits there
                    continue


@dataclass(eq=False)
class TextSequence:
    """One text of a request: what the scheduler moves between the queue and rows."""

    request: Request
    index: int
    text: Text
    number: int = 0  # in the order of requests
    row: int | None = None
    pages: list[int] = field(default_factory=list)
    keys: list[bytes] = field(default_factory=list)  # of its full pages
    known: int = 0  # how many of its pages others may share
    gone: int = 0  # how many of its first pages it has given back, since no layer looks that far back
    salt: bytes = b""  # of the weights that make its lines
    lines: int = 0  # tokens whose lines are in its pages, or will be behind the steps that were launched
    picked: int = 0  # tokens that were picked, or will be
    running: bool = False  # its tokens are read: it picks one at each step
    shared: int = 0  # tokens that it need not read, since others had
    cached: int = 0  # as many of its prompt, when its first token was picked
    times: list[float] = field(default_factory=list)  # of its first and its last token
    matcher: Matcher | None = None

    def __post_init__(self) -> None:
        constraint = self.request.options.constraint
        self.matcher = None if constraint is None else constraint.matcher()

    @property
    def tokens(self) -> list[int]:
        """All that is known of it."""
        return [*self.request.prompt, *self.text.tokens]

    @property
    def unread(self) -> int:
        """How many of them are not in its pages."""
        return len(self.request.prompt) + len(self.text.tokens) - self.lines

    @property
    def rank(self) -> tuple[int, int, int]:
        """The order in which sequences are served: by priority, then by age."""
        return -self.request.priority, self.number, self.index

    @property
    def wants_page(self) -> bool:
        """Whether its next line needs a new page."""
        return self.running and self.picked < self.text.limit and self.lines == len(self.pages) * PAGE

    @property
    def most_lines(self) -> int:
        """How many tokens are taken in at most: the last one is not."""
        return len(self.request.prompt) + self.text.limit - 1

    def push(self, token: int, logprob: Logprob | None) -> Chunk:
        """Take a token that was picked."""
        wanted = self.request.options.logprobs
        if wanted is None or logprob is None:
            logprob = None
        elif len(logprob.top) > wanted:
            logprob = Logprob(logprob.token, logprob.logprob, dict(list(logprob.top.items())[:wanted]))
        complete = self.matcher is not None and self.matcher.push(token)
        shown = self.text.push(token, logprob, complete)
        now = time.perf_counter()
        self.times = [self.times[0] if self.times else now, now]
        return Chunk(shown, token, self.index, self.text.finish, logprob)

    def generation(self) -> Generation:
        text, request = self.text, self.request
        first, last = self.times
        timings = Timings(len(request.prompt), first - request.begun, len(text.tokens), last - first, self.cached)
        logprobs = None if request.options.logprobs is None else text.logprobs
        return Generation(text.text, text.tokens, text.finish or "length", timings, logprobs)


def want_row(one: TextSequence) -> int:
    """The row of a sequence that has one."""
    assert one.row is not None
    return one.row
