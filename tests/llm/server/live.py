"""A live server over small random models, in a thread of the test's process."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import ollama
import openai
import uvicorn

import pyflame as pf
from pyflame.llm.generate import Model
from pyflame.llm.load import load_decoder
from pyflame.llm.server import Served, Settings, create_app
from pyflame.llm.server.run import safe_settings, server_config
from pyflame.llm.serving.engine import Engine
from pyflame.llm.tokenizer import Tokenizer
from tests.llm.checkpoints import make, make_bert
from tests.llm.letters import EOS, TEMPLATE, letters_tokenizer

CONTEXT = 1024


@dataclass
class Live:
    """A server that runs: where, and over what."""

    url: str
    model: Model
    engine: Engine
    server: Any
    token: str | None = None

    @property
    def openai(self) -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key=self.token or "none", max_retries=0)

    @property
    def ollama(self) -> ollama.Client:
        return ollama.Client(self.url)

    @property
    def http(self) -> httpx.Client:
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        return httpx.Client(base_url=self.url, headers=headers, timeout=30.0)

    @property
    def address(self) -> tuple[str, int]:
        parts = httpx.URL(self.url)
        return parts.host, parts.port or 80

    def idle(self, seconds: float = 10.0) -> bool:
        """Whether the engine soon has nothing to do."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            stats = self.engine.stats()
            if stats.running == stats.queued == 0:
                return True
            time.sleep(0.02)
        return False


def letters(folder: Path, context: int = CONTEXT) -> Model:
    """The small model whose tokens are letters."""
    checkpoint, _ = make("qwen3", folder)
    checkpoint.metadata["max_position_embeddings"] = context
    tokenizer = Tokenizer(letters_tokenizer(), Path("letters"), None, {EOS})
    return Model(load_decoder(checkpoint), tokenizer, TEMPLATE, "cpu", pf.float32, context)


def encoder(folder: Path) -> Model:
    """A small BERT over the same letters."""
    checkpoint, _ = make_bert(folder)
    tokenizer = Tokenizer(letters_tokenizer(), Path("letters"), None, {EOS})
    return Model(load_decoder(checkpoint), tokenizer, None, "cpu", pf.float32, 64)


@contextmanager
def running(served: list[Served], settings: Settings | None = None) -> Iterator[Live]:
    """Serve on a free port until the block ends."""
    settings = safe_settings(settings or Settings(), "127.0.0.1")
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    config = server_config(create_app(served, settings), settings, log_level="warning")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the server did not start"
        time.sleep(0.01)
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    try:
        assert served[0].engine is not None
        yield Live(url, served[0].model, served[0].engine, server, settings.token)
    finally:
        server.should_exit = True
        thread.join(20)
        assert not thread.is_alive(), "the server did not end"
