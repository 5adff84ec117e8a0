"""The models that are served, by name."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from starlette.concurrency import run_in_threadpool

from pyflame.core.errors import suggest
from pyflame.llm.generate import Model, Prompt
from pyflame.llm.lora_rows import row_adapters
from pyflame.llm.server.errors import HttpError
from pyflame.llm.server.safety import Limits
from pyflame.llm.server.work import Work
from pyflame.llm.serving.engine import Engine
from pyflame.llm.serving.request import Request


@dataclass
class Served:
    """A model under a name, with one of its adapters perhaps. `engine` is None for an encoder, which only makes
    embeddings."""

    name: str
    model: Model
    engine: Engine | None
    created: int = field(default_factory=lambda: int(time.time()))
    adapter: str | None = None

    def writer(self) -> Engine:
        """The engine, where the model writes text."""
        if self.engine is None:
            raise HttpError(400, f"[serve] expected a model that writes text but {self.name!r} makes embeddings only")
        return self.engine


class Models:
    """All that are served. An adapter of a model is one of its own, under the name `model:adapter`."""

    def __init__(self, served: Sequence[Served], limits: Limits) -> None:
        adapted = [
            replace(one, name=f"{one.name}:{adapter}", adapter=adapter)
            for one in served
            for adapter in row_adapters(one.model.decoder).names
        ]
        self.by_name: Mapping[str, Served] = {one.name: one for one in (*served, *adapted)}
        self.served, self.limits = served, limits

    def __getitem__(self, name: str) -> Served:
        # Ollama's clients write names with a tag
        found = self.by_name.get(name) or self.by_name.get(name.removesuffix(":latest"))
        if found is None:
            known = ", ".join(self.by_name)
            message = f"[serve] expected one of the models {known} but got {name!r}{suggest(name, self.by_name)}"
            raise HttpError(404, message, param="model", code="model_not_found")
        return found

    async def write(
        self, name: str, options: Mapping[str, Any], *, prompts: Sequence[Prompt] = (), **chat: Any
    ) -> Work:
        """Give prompts, or a chat (`messages`, `tools`), to a model's engine."""
        one = self[name]
        engine = one.writer()
        if one.adapter is not None:
            if options.get("adapter", one.adapter) != one.adapter:
                said = f"[serve] expected one adapter but got {one.adapter!r} and {options['adapter']!r}"
                raise HttpError(400, said, param="adapter")
            options = {**options, "adapter": one.adapter}
        asked, most = max(1, len(prompts)) * options["n"], self.limits.choices
        if asked > most:
            raise HttpError(400, f"[serve] expected at most {most} texts of one request but got {asked}", param="n")
        options = {**options, "timeout": self.limits.request_seconds}
        # Encoding and the template take their time, and the loop must not wait for them.
        return Work(await run_in_threadpool(_submit, engine, options, prompts, chat), options["n"])


def _submit(engine: Engine, options: Mapping[str, Any], prompts: Sequence[Prompt], chat: Any) -> list[Request]:
    if not prompts:
        return [engine.submit(**chat, **options)]
    requests: list[Request] = []
    try:
        for prompt in prompts:
            requests.append(engine.submit(prompt, **options))
    except BaseException:
        for request in requests:
            request.cancel()
        raise
    return requests
