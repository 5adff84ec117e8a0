"""Many prompts at once, without a server: `pf.llm.batch`, and what `pyflame llm batch` is made of."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pyflame.core.errors import ArgumentError, PyFlameError, QueueFullError
from pyflame.llm.generate import Model, Prompt
from pyflame.llm.load import load
from pyflame.llm.serving.engine import Engine
from pyflame.llm.serving.request import Request
from pyflame.llm.text import Generation

Asked = Prompt | Mapping[str, Any]


def batch(
    prompts: Iterable[Asked], model: Model | str | None = None, *, rows: int = 16, **options: Any
) -> list[Generation]:
    """The continuation of each prompt, in order, many written at once. A prompt is text, tokens, or a dict with a
    `prompt` or `messages` and options of its own; `options` of `generate` are for all. A prompt that cannot be written
    raises.

    >>> [g.text for g in pf.llm.batch(["One, two,", "Red, green,"], max_tokens=3)]
    [' three, four', ' blue, yellow']
    """
    with Engine(model if isinstance(model, Model) else load(model), rows=rows) as engine:
        found = []
        for one in answers(engine, prompts, **options):
            if isinstance(one, Exception):
                raise one
            found.append(one)
        return found


def answers(engine: Engine, prompts: Iterable[Asked], **options: Any) -> Iterator[Generation | Exception]:
    """The continuation of each prompt, in order, or what was wrong with it. The queue is kept full."""
    ahead: deque[Request | Exception] = deque()
    for prompt in prompts:
        asked = {**options, **(prompt if isinstance(prompt, Mapping) else {"prompt": prompt})}
        while True:
            try:
                ahead.append(_submitted(engine, asked))
                break
            except QueueFullError as full:
                if ahead:
                    yield _answer(ahead.popleft())
                else:
                    time.sleep(full.retry_after)  # others have filled it
    while ahead:
        yield _answer(ahead.popleft())


def _submitted(engine: Engine, asked: dict[str, Any]) -> Request | Exception:
    try:
        if asked.get("n", 1) != 1:
            raise ArgumentError(f"[batch] expected one text for each prompt but got n={asked['n']}")
        return engine.submit(**asked)
    except QueueFullError:
        raise
    except PyFlameError as error:
        return error


def _answer(one: Request | Exception) -> Generation | Exception:
    if isinstance(one, Exception):
        return one
    try:
        return one.result()[0]
    except PyFlameError as error:
        return error
