"""uvicorn's HTTP protocol with deadlines for clients that send or read too slowly. uvicorn itself has one for idle
connections only: headers that come byte by byte, or a reader that has stopped, would hold a connection for ever."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol


def deadline_protocol(sender_seconds: float, reader_seconds: float) -> type[asyncio.Protocol]:
    """The protocol class for uvicorn's `http=`."""

    class DeadlineProtocol(H11Protocol):
        _sender: asyncio.TimerHandle | None = None
        _reader: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._await_headers()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.cycle is None or self.cycle.response_complete:
                self._await_headers()
            else:
                self._disarm()

        def pause_writing(self) -> None:
            super().pause_writing()
            self._reader = self._reader or self.loop.call_later(reader_seconds, self.transport.abort)

        def resume_writing(self) -> None:
            super().resume_writing()
            if self._reader is not None:
                self._reader.cancel()
                self._reader = None

        def connection_lost(self, exc: Exception | None) -> None:
            self._disarm()
            self.resume_writing()
            super().connection_lost(exc)

        def _await_headers(self) -> None:
            """One deadline for all of them, however they trickle in."""
            self._sender = self._sender or self.loop.call_later(sender_seconds, self._late)

        def _late(self) -> None:
            self._sender = None
            if self.cycle is None or self.cycle.response_complete:
                self.transport.abort()

        def _disarm(self) -> None:
            if self._sender is not None:
                self._sender.cancel()
                self._sender = None

    return DeadlineProtocol
