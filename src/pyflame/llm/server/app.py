"""The ASGI application: every endpoint over the models that are served, behind the guard."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool
from starlette.middleware.cors import CORSMiddleware

import pyflame
from pyflame.llm.server import (
    embeddings,
    errors,
    metrics,
    ollama,
    openai_chat,
    openai_completions,
    responses,
    status,
    tokens,
)
from pyflame.llm.server.models import Models, Served
from pyflame.llm.server.openai_schema import ErrorAnswer
from pyflame.llm.server.safety import Guard, Settings
from pyflame.llm.server.work import ClientGoneError

_ROUTERS = (openai_chat, openai_completions, responses, embeddings, tokens, ollama, metrics, status)
_REFUSED: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": ErrorAnswer, "description": "The request was refused; the message says why."},
    "5XX": {"model": ErrorAnswer, "description": "The server failed."},
}


def create_app(served: Sequence[Served], settings: Settings | None = None) -> FastAPI:
    """The application, for any ASGI server. When it ends, so do the engines: what is being written is written first.

    >>> app = create_app([Served("smollm2", model, Engine(model))])
    """
    settings = settings or Settings()
    models = Models(served, settings.limits)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        for one in served:
            if one.engine is not None:
                await run_in_threadpool(one.engine.close, drain=True, timeout=settings.limits.drain_seconds)

    app = FastAPI(
        title="PyFlame",
        description="Language models under OpenAI's and Ollama's interfaces.",
        version=pyflame.__version__,
        lifespan=lifespan,
        docs_url=None,  # its page fetches scripts from elsewhere; /docs is our own
        redoc_url=None,
        strict_content_type=False,  # curl -d says that JSON is a form; other origins are kept out by the guard
    )
    for part in _ROUTERS:
        app.include_router(part.router(models), responses=_REFUSED)
    errors.install(app)

    async def gone(_: Request, __: Exception) -> Response:
        return Response(status_code=499)

    app.add_exception_handler(ClientGoneError, gone)
    app.add_middleware(Guard, settings=settings)
    if settings.origins:
        app.add_middleware(
            CORSMiddleware, allow_origins=list(settings.origins), allow_methods=["*"], allow_headers=["*"]
        )
    return app
