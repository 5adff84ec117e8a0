"""What stands before the application: hosts, origins, the token, the size and the pace of bodies, safe headers.

A server on the loopback has no token, so a page of the web must not reach it: the Host header must name the loopback
(a name that was rebound does not), and a browser's Origin must be the server's own or one that was allowed.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pyflame.llm.server.errors import HttpError

# what needs no token
OPEN = frozenset({"/", "/chat.js", "/markdown.js", "/chat.css", "/docs", "/docs.css", "/health"})
LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Limits:
    """What a client may ask for. Seconds are of the clock."""

    body_bytes: int = 8 << 20
    choices: int = 32  # texts of one request: prompts times n
    inputs: int = 256  # texts of one request for embeddings
    request_seconds: float | None = 600.0  # from the queue to the last token
    sender_seconds: float = 30.0  # for all headers, and for all of a body
    reader_seconds: float = 30.0  # that a full buffer may wait for its reader
    connections: int = 1024
    drain_seconds: float = 30.0  # for what is being written when the server is asked to end


@dataclass(frozen=True)
class Settings:
    """Who may use the server: everybody with the token, or everybody that reaches it. `hosts` are the names that a
    Host header may have, None all; `origins` are those of web pages that may call it, "*" all."""

    token: str | None = None
    hosts: tuple[str, ...] | None = None
    origins: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)


def is_loopback(host: str) -> bool:
    """Whether only programs of this machine reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Guard:
    """An ASGI middleware that lets through what `Settings` allow, with the body read."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app, self.settings = app, settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        send = _with_headers(send)
        try:
            self._admit(scope["path"], Headers(scope=scope))
            body = await self._body(Headers(scope=scope), receive)
        except HttpError as error:
            await error.response(scope["path"])(scope, receive, send)
            return
        await self.app(scope, _replayed(body, receive), send)

    def _admit(self, path: str, headers: Headers) -> None:
        host = urlsplit("//" + headers.get("host", ""))
        if self.settings.hosts is not None and host.hostname not in self.settings.hosts:
            raise HttpError(
                403, f"[serve] expected a Host of {', '.join(self.settings.hosts)} but got {host.hostname!r}"
            )
        origin, origins = headers.get("origin"), self.settings.origins
        if (
            origin is not None
            and origin not in origins
            and "*" not in origins
            and urlsplit(origin).netloc != host.netloc
        ):
            raise HttpError(403, f"[serve] expected no page of another origin but got {origin}; allow it with --cors")
        if self.settings.token is not None and path not in OPEN:
            kind, _, given = headers.get("authorization", "").partition(" ")
            if kind.lower() != "bearer" or not hmac.compare_digest(given.encode(), self.settings.token.encode()):
                raise HttpError(
                    401,
                    "[serve] expected the header Authorization: Bearer TOKEN with the server's token",
                    code="invalid_api_key",
                    headers={"WWW-Authenticate": "Bearer"},
                )

    async def _body(self, headers: Headers, receive: Receive) -> bytes:
        limits = self.settings.limits
        length = headers.get("content-length", "")
        if length.isdecimal() and int(length) > limits.body_bytes:
            raise _too_large(limits)
        try:
            return await asyncio.wait_for(_read(receive, limits), limits.sender_seconds)
        except asyncio.TimeoutError:
            message = f"[serve] expected the body within {limits.sender_seconds:g} s"
            raise HttpError(408, message, headers={"Connection": "close"}) from None


def _too_large(limits: Limits) -> HttpError:
    message = f"[serve] expected a body of at most {limits.body_bytes:,} bytes but got more"
    return HttpError(413, message, headers={"Connection": "close"})


async def _read(receive: Receive, limits: Limits) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        body += message.get("body", b"")
        if len(body) > limits.body_bytes:
            raise _too_large(limits)
        if not message.get("more_body", False):
            return bytes(body)


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Give the body that was read, then what follows: the end of the connection."""
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return first.pop() if first else await receive()

    return replay


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers.setdefault("X-Content-Type-Options", "nosniff")
            headers.setdefault("Referrer-Policy", "no-referrer")
            headers.setdefault("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
        await send(message)

    return sending
