"""Run the server: where it listens, who may use it, and how it ends."""

from __future__ import annotations

import dataclasses
import secrets
import socket
from collections.abc import Mapping
from typing import Any

import uvicorn

from pyflame.llm.generate import Model
from pyflame.llm.server.app import create_app
from pyflame.llm.server.models import Served
from pyflame.llm.server.protocol import deadline_protocol
from pyflame.llm.server.safety import LOOPBACK, Settings, is_loopback
from pyflame.llm.serving.engine import Engine


def safe_settings(settings: Settings, host: str) -> Settings:
    """Settings for an address. The loopback answers to its own names only, unless there is a token; any other address
    gets a token where none was given."""
    if is_loopback(host):
        named = settings.hosts is not None or settings.token is not None
        return settings if named else dataclasses.replace(settings, hosts=LOOPBACK)
    return settings if settings.token is not None else dataclasses.replace(settings, token=secrets.token_urlsafe(24))


def server_config(app: Any, settings: Settings, **options: Any) -> uvicorn.Config:
    """uvicorn's settings: deadlines for slow clients, a limit of connections, time to finish when asked to end."""
    limits = settings.limits
    return uvicorn.Config(
        app,
        http=deadline_protocol(limits.sender_seconds, limits.reader_seconds),
        ws="none",
        limit_concurrency=limits.connections,
        timeout_graceful_shutdown=max(1, int(limits.drain_seconds)),
        server_header=False,
        **options,
    )


def serve(
    models: Mapping[str, Model],
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    settings: Settings | None = None,
    log_level: str = "info",
    **engine: Any,
) -> None:
    """Serve models by name until SIGTERM or Ctrl-C, then finish what is being written. Port 0 is any that is free;
    `engine` holds options of `Engine` (rows, pages, queue, chunk, burst, prepare).

    >>> serve({"smollm2": pf.llm.load("smollm2")}, port=8000)
    """
    asked = settings or Settings()
    settings = safe_settings(asked, host)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        served = [_started(name, model, engine) for name, model in models.items()]
        if settings.token is not None and asked.token is None:
            print(f"token: {settings.token}\n(made for this run, as others reach {host}; --token-file sets one)")
        where = f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}"
        print(f"serving {', '.join(models)}: {where}/ is a chat page, {where}/v1 OpenAI's interface", flush=True)
        config = server_config(create_app(served, settings), settings, log_level=log_level)
        uvicorn.Server(config).run(sockets=[listening])


def _started(name: str, model: Model, options: Mapping[str, Any]) -> Served:
    """A model that is ready: its steps are planned now, rather than while the first clients wait."""
    return Served(name, model, Engine(model, **{"prepare": True, **options}) if model.config.causal else None)
