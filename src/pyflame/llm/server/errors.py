"""Errors as answers: OpenAI's form everywhere, Ollama's under /api/."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from pyflame.core.errors import (
    ArgumentError,
    ArgumentTypeError,
    EngineStoppedError,
    IndexError,
    NotSupportedError,
    PyFlameError,
    QueueFullError,
    ShapeError,
)

log = logging.getLogger("pyflame.serve")
# What a caller can mend: other errors are the server's.
_REQUEST = (ArgumentError, ArgumentTypeError, IndexError, NotSupportedError, ShapeError)


class HttpError(Exception):
    """An answer that is an error."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code, self.headers = status, message, param, code, headers

    @property
    def type(self) -> str:
        named = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
        return named.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")

    def body(self, path: str) -> dict[str, Any]:
        """The JSON of it, in the form of the API that the path belongs to."""
        if path.startswith("/api/"):
            return {"error": self.message}
        return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code}}

    def response(self, path: str) -> JSONResponse:
        return JSONResponse(self.body(path), self.status, self.headers)


def as_http(error: BaseException) -> HttpError:
    """The answer that an exception deserves. What is no mistake of the caller's is logged."""
    if isinstance(error, HttpError):
        return error
    if isinstance(error, QueueFullError):
        wait = str(max(1, math.ceil(error.retry_after)))
        return HttpError(429, str(error), code="queue_full", headers={"Retry-After": wait})
    if isinstance(error, EngineStoppedError):
        return HttpError(503, str(error), code="engine_stopped")
    if isinstance(error, TimeoutError):
        return HttpError(504, str(error) or "[serve] the request took longer than it may", code="timeout")
    if isinstance(error, _REQUEST):
        return HttpError(400, str(error))
    log.error("a request failed", exc_info=error)
    if isinstance(error, PyFlameError):
        return HttpError(500, str(error), code="engine_fault")
    return HttpError(500, "[serve] the server failed; its log says why", code="internal_error")


def _invalid(error: RequestValidationError | ValidationError) -> HttpError:
    """The first thing that is wrong with a body, by the name of its field. Other APIs' bodies are checked a second time
    when they are turned into OpenAI's."""
    first = error.errors()[0]
    path = ".".join(str(part) for part in first["loc"] if part != "body")
    more = f" (and {len(error.errors()) - 1} more)" if len(error.errors()) > 1 else ""
    return HttpError(400, f"{path or 'body'}: {first['msg']}{more}", param=path or None, code=first["type"])


def install(app: FastAPI) -> None:
    """Let the application answer every exception in this form."""

    async def answer(http: Request, error: Exception) -> Response:
        if isinstance(error, (RequestValidationError, ValidationError)):
            error = _invalid(error)
        elif isinstance(error, HTTPException):
            what = f"[serve] {http.method} {http.url.path}: {error.detail or HTTPStatus(error.status_code).phrase}"
            error = HttpError(error.status_code, what, headers=error.headers)
        return as_http(error).response(http.url.path)

    for kind in (
        HttpError,
        PyFlameError,
        TimeoutError,
        RequestValidationError,
        ValidationError,
        HTTPException,
        Exception,
    ):
        app.add_exception_handler(kind, answer)
