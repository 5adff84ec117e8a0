"""What keeps the server safe: who may call it, how much and how slowly; clients that leave, engines that fail."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import httpx
import pytest

from pyflame.core.errors import DeviceFaultError
from pyflame.llm.generate import Model
from pyflame.llm.server import Limits, Served, Settings
from pyflame.llm.server.run import safe_settings
from pyflame.llm.server.safety import is_loopback
from pyflame.llm.serving.engine import Engine
from pyflame.llm.serving.rows import Rows
from tests.llm.server.live import Live, running

LONG: dict[str, Any] = {"model": "letters", "prompt": "a", "max_tokens": 900, "ignore_eos": True}
LIMITS = Limits(body_bytes=20_000, sender_seconds=0.6, reader_seconds=0.6)


@pytest.fixture(scope="module")
def guarded(model: Model) -> Iterator[Live]:
    """A server with a token, an origin that may call it, and short deadlines."""
    settings = Settings(token="secret", origins=("https://friend.example",), limits=LIMITS)
    with running([Served("letters", model, Engine(model, rows=4))], settings) as live:
        yield live


def test_loopback() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.9.9.9", "::1", "localhost")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "192.168.0.1", "example.org")))


def test_other_addresses_get_a_token() -> None:
    made = safe_settings(Settings(), "0.0.0.0").token
    assert made is not None and len(made) >= 32 and made != safe_settings(Settings(), "0.0.0.0").token
    assert safe_settings(Settings(token="mine"), "0.0.0.0").token == "mine"
    assert safe_settings(Settings(), "127.0.0.1").token is None


def test_token(guarded: Live) -> None:
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "secret"}):
        answer = httpx.get(f"{guarded.url}/v1/models", headers=headers)
        assert answer.status_code == 401 and answer.json()["error"]["code"] == "invalid_api_key"
        assert httpx.get(f"{guarded.url}/metrics", headers=headers).status_code == 401
        assert "TOKEN" in httpx.get(f"{guarded.url}/api/tags", headers=headers).json()["error"]
    assert guarded.http.get("/v1/models").status_code == 200
    assert httpx.get(f"{guarded.url}/health").status_code == 200 and httpx.get(guarded.url).status_code == 200


def test_loopback_answers_to_its_own_name_only(live: Live) -> None:
    assert live.http.get("/v1/models").status_code == 200
    rebound = live.http.get("/v1/models", headers={"Host": "evil.example"})
    assert rebound.status_code == 403 and "Host" in rebound.json()["error"]["message"]


def test_pages_of_other_origins_are_refused(live: Live, guarded: Live) -> None:
    for origin in ("https://evil.example", "null"):
        refused = live.http.post("/v1/completions", json=LONG, headers={"Origin": origin})
        assert refused.status_code == 403 and "access-control-allow-origin" not in refused.headers
    assert live.http.get("/v1/models", headers={"Origin": live.url}).status_code == 200
    friend = guarded.http.get("/v1/models", headers={"Origin": "https://friend.example"})
    assert friend.headers["access-control-allow-origin"] == "https://friend.example"
    asked = {"Origin": "https://friend.example", "Access-Control-Request-Method": "POST"}
    assert httpx.options(f"{guarded.url}/v1/completions", headers=asked).status_code == 200


def test_bodies_have_a_limit(guarded: Live) -> None:
    large = guarded.http.post("/v1/completions", json={**LONG, "prompt": "a" * 30_000})
    assert large.status_code == 413 and "20,000 bytes" in large.json()["error"]["message"]

    def chunks() -> Iterator[bytes]:  # no length is announced
        for _ in range(30):
            yield b" " * 1000

    assert guarded.http.post("/v1/completions", content=chunks()).status_code == 413


def _connected(live: Live) -> socket.socket:
    return socket.create_connection(live.address, timeout=10)


def _send_until(client: socket.socket, data: bytes, end: float) -> None:
    """Send again and again, also into buffers that are full."""
    while time.monotonic() < end:
        with contextlib.suppress(TimeoutError):
            client.sendall(data)
        time.sleep(0.1)


def test_slow_senders_are_cut_off(guarded: Live) -> None:
    with closing(_connected(guarded)) as headers:  # headers that never end, a byte at a time
        begun = time.monotonic()
        headers.sendall(b"POST /v1/completions HTTP/1.1\r\n")
        with pytest.raises(ConnectionError):
            _send_until(headers, b"x", begun + 8)
        assert time.monotonic() - begun < 5
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer secret\r\nContent-Length: 100\r\n\r\n{"
    with closing(_connected(guarded)) as body:
        body.sendall(head)
        assert b" 408 " in body.recv(1000)
    with closing(_connected(guarded)) as nothing:
        assert nothing.recv(10) == b""


def test_slow_readers_are_cut_off(guarded: Live) -> None:
    """A client that sends requests and never reads: the buffers fill, and the connection ends."""
    ask = b"GET /openapi.json HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer secret\r\n\r\n"
    with closing(_connected(guarded)) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(0.2)
        with pytest.raises(ConnectionError):
            _send_until(client, ask * 50, time.monotonic() + 15)
    assert guarded.http.get("/health").status_code == 200


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_frees_the_engine(live: Live, stream: bool) -> None:
    before = live.engine.stats().cancelled
    body = json.dumps({**LONG, "stream": stream}).encode()
    with closing(_connected(live)) as client:
        client.sendall(
            b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        )
        if stream:
            assert b"200 OK" in client.recv(100)
        else:
            time.sleep(0.3)
        assert live.engine.stats().running == 1
    assert live.idle()
    stats = live.engine.stats()
    assert stats.cancelled == before + 1 and stats.free_pages == stats.pages


@pytest.mark.slow
def test_full_queue(model: Model) -> None:
    with running([Served("letters", model, Engine(model, rows=1, queue=1))]) as live:
        waiting = [live.engine.submit("a", max_tokens=900, ignore_eos=True)]
        while not live.engine.stats().running:
            time.sleep(0.01)
        waiting.append(live.engine.submit("a", max_tokens=900))
        answer = live.http.post("/v1/completions", json=LONG)
        assert answer.status_code == 429 and int(answer.headers["retry-after"]) >= 1
        assert answer.json()["error"]["type"] == "rate_limit_error"
        assert live.http.post("/api/generate", json={"model": "letters", "prompt": "a"}).status_code == 429
        for request in waiting:
            request.cancel()
        assert live.idle()


class Failing:
    """A request that breaks before its first token, or behind it."""

    prompt_tokens, cached_tokens = 1, 0

    def __init__(self, chunks: list[Any], error: Exception) -> None:
        self.chunks, self.error = chunks, error

    async def __aiter__(self) -> Any:
        for chunk in self.chunks:
            yield chunk
        raise self.error

    def cancel(self) -> None:
        pass


@pytest.mark.parametrize("stream", [True, False])
def test_faults_fail_their_requests(live: Live, stream: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    fault = DeviceFaultError("[engine] the device broke")
    monkeypatch.setattr(live.engine, "submit", lambda *_, **__: Failing([], fault))
    answer = live.http.post("/v1/completions", json={**LONG, "stream": stream})
    assert answer.status_code == 500 and answer.json()["error"]["message"] == "[engine] the device broke"
    monkeypatch.setattr(live.engine, "submit", lambda *_, **__: Failing([], KeyError("a secret of the code")))
    answer = live.http.post("/v1/completions", json={**LONG, "stream": stream})
    assert answer.status_code == 500 and "secret of the code" not in answer.text


def test_a_fault_in_the_middle_of_a_stream_is_told(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    first = next(iter(live.model.stream("a", max_tokens=2)))
    broken = Failing([first], DeviceFaultError("[engine] the device broke"))
    monkeypatch.setattr(live.engine, "submit", lambda *_, **__: broken)
    text = live.http.post("/v1/completions", json={**LONG, "stream": True}).text
    assert '"error"' in text and "the device broke" in text and "[DONE]" not in text
    lines = live.http.post("/api/generate", json={"model": "letters", "prompt": "a"}).text.splitlines()
    assert json.loads(lines[-1]) == {"error": "[engine] the device broke"}


def test_health_tells_of_faults(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    assert live.http.get("/health").json() == {"status": "ok", "models": ["bert", "letters"], "faults": {}}
    stats = live.engine.stats()
    changed = type("Broken", (), {"healthy": False, "fault": "the device broke"})
    monkeypatch.setattr(live.engine, "stats", lambda: changed)
    answer = live.http.get("/health")
    assert answer.status_code == 503 and answer.json()["faults"] == {"letters": "the device broke"}
    assert stats.healthy


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*")  # the engine tells of the fault as well
def test_a_broken_device(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine's own fault: its requests get 500, later ones 503, and /health says why."""

    def broken(*_: Any) -> None:
        raise DeviceFaultError("[device] it is dead")

    with running([Served("letters", model, Engine(model, rows=2))]) as live:
        assert live.http.post("/v1/completions", json={**LONG, "max_tokens": 2}).status_code == 200
        monkeypatch.setattr(Rows, "next", broken)
        monkeypatch.setattr(Rows, "__init__", broken)
        answer = live.http.post("/v1/completions", json=LONG)
        assert answer.status_code == 500 and "it is dead" in answer.json()["error"]["message"]
        health = live.http.get("/health")
        assert health.status_code == 503 and "it is dead" in health.json()["faults"]["letters"]
        assert live.http.post("/v1/completions", json=LONG).status_code == 503


def test_headers_of_every_answer(live: Live) -> None:
    for path in ("/", "/chat.js", "/v1/models", "/nothing"):
        headers = live.http.get(path).headers
        assert headers["x-content-type-options"] == "nosniff" and "server" not in headers
        assert "default-src 'none'" in headers["content-security-policy"]


@pytest.mark.parametrize(
    "path", ["/../../etc/passwd", "/chat.js/../../x", "/v1/models/..%2f..%2fetc%2fpasswd", "/%2e%2e/x"]
)
def test_paths_reach_no_file(live: Live, path: str) -> None:
    with closing(_connected(live)) as client:
        client.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        assert b" 404 " in client.recv(1000)


@pytest.mark.slow
def test_drains_when_asked_to_end(model: Model) -> None:
    """What is being written when the server is asked to end is written first; new connections are refused."""
    found: list[httpx.Response] = []
    with running([Served("letters", model, Engine(model, rows=4))]) as live:
        body = {**LONG, "max_tokens": 150}
        asking = threading.Thread(target=lambda: found.append(live.http.post("/v1/completions", json=body)))
        asking.start()
        while not live.engine.stats().running:
            time.sleep(0.01)
    asking.join(20)
    assert found[0].status_code == 200 and found[0].json()["usage"]["completion_tokens"] == 150
    assert live.engine.stats().healthy is False
