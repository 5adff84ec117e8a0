"""GET /v1/models, /health, the chat page and the page of the OpenAPI document."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import cache
from importlib import resources

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import JSONResponse, Response

from pyflame.llm.server.models import Models, Served
from pyflame.llm.server.openai_schema import ModelCard, ModelList
from pyflame.llm.server.reference import reference

# The page runs its own script and talks to its own server, and nothing else.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_FILES = {
    "/": ("index.html", "text/html"),
    "/chat.js": ("chat.js", "text/javascript"),
    "/markdown.js": ("markdown.js", "text/javascript"),
    "/chat.css": ("chat.css", "text/css"),
    "/docs.css": ("docs.css", "text/css"),
}


def router(models: Models) -> APIRouter:
    made = APIRouter()

    @made.get("/v1/models", response_model=ModelList, tags=["OpenAI"])
    async def list_models() -> ModelList:
        return ModelList(data=[_card(one) for one in models.by_name.values()])

    @made.get("/v1/models/{name:path}", response_model=ModelCard, tags=["OpenAI"])
    async def retrieve_model(name: str) -> ModelCard:
        return _card(models[name])

    @made.get("/health", tags=["operation"], responses={503: {"description": "An engine has a fault."}})
    async def health() -> JSONResponse:
        """200 while every engine works; 503 with what is wrong."""
        faults = {one.name: why for one in models.served if (why := _fault(one))}
        about = {"status": "fault" if faults else "ok", "models": sorted(models.by_name), "faults": faults}
        return JSONResponse(about, 503 if faults else 200)

    @cache
    def document(app: FastAPI) -> bytes:
        return reference(app.openapi()).encode()

    @made.get("/docs", include_in_schema=False)
    async def docs(request: Request) -> Response:
        return await _static(document(request.app), "text/html")()

    page = resources.files("pyflame.llm.server") / "page"
    for path, (file, kind) in _FILES.items():
        serve = made.api_route(path, methods=["GET", "HEAD"], include_in_schema=False)  # Ollama's client asks by HEAD
        serve(_static((page / file).read_bytes(), kind))
    return made


def _static(data: bytes, kind: str) -> Callable[[], Awaitable[Response]]:
    async def get() -> Response:
        headers = {"Content-Security-Policy": _POLICY, "Cache-Control": "no-cache"}
        return Response(data, media_type=kind, headers=headers)

    return get


def _card(one: Served) -> ModelCard:
    return ModelCard(
        id=one.name,
        created=one.created,
        context_length=one.model.context,
        kind="embeddings" if one.engine is None else "text",
    )


def _fault(one: Served) -> str | None:
    stats = None if one.engine is None else one.engine.stats()
    return None if stats is None or stats.healthy else stats.fault or "unknown"
