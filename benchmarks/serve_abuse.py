"""What clients do to a server: many at once, some that cancel, send rubbish, read slowly, or are killed mid-stream.

Asserts that every accepted request ends with an answer or a status, that all pages of the cache come back, that the
engine never restarted, and that the process does not grow: `python -m benchmarks.serve_abuse --seconds 180`. Speed is
not measured here; `pyflame llm load-test` does that.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx

GROWTH = 0.15  # of the process after its first third: caches of plans and of prompts are full by then
MOST = 8 << 20  # bytes of a body
SLOW = 2.0  # seconds between what a slow reader reads


class Clients:
    """Clients of one server, and what became of their requests."""

    def __init__(self, url: str, model: str, end: float) -> None:
        self.url, self.model, self.end = url, model, end
        self.ends: Counter[str] = Counter()
        self.wrong: list[str] = []
        # Each request has a connection of its own: one that is kept may be closed by the server as it is used again.
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
        self.http = httpx.AsyncClient(base_url=url, timeout=600.0, limits=limits)

    def body(self, rng: random.Random, **more: Any) -> dict[str, Any]:
        words = " ".join(rng.choice(("red", "sea", "tall", "moon", "walks")) for _ in range(rng.randrange(2, 40)))
        return {"model": self.model, "prompt": words, "max_tokens": rng.randrange(1, 12), "ignore_eos": True, **more}

    async def run(self, number: int) -> None:
        rng = random.Random(number)
        kinds: list[Callable[[random.Random], Awaitable[str]]] = [
            self.plain, self.plain, self.streamed, self.streamed, self.cancelled, self.oversize, self.malformed,
            self.slow, self.killed,
        ]  # fmt: skip
        while time.monotonic() < self.end:
            kind = rng.choice(kinds)
            try:
                self.ends[f"{kind.__name__}: {await kind(rng)}"] += 1
            except Exception as error:  # a client must never see a broken connection that it did not break
                self.wrong.append(f"{kind.__name__}: {type(error).__name__}: {error}")

    def want(self, what: str, status: int, *allowed: int) -> str:
        """Note an answer; 429 is one that any request may get, and 504 one that took longer than it may."""
        if status not in (*allowed, 429):
            self.wrong.append(f"{what}: status {status}")
        return str(status)

    async def plain(self, rng: random.Random) -> str:
        answer = await self.http.post("/v1/completions", json=self.body(rng, n=rng.choice((1, 1, 2))))
        return await self.waited(answer, self.want("plain", answer.status_code, 200, 504))

    async def waited(self, answer: httpx.Response, found: str) -> str:
        if answer.status_code == 429:
            await asyncio.sleep(min(5.0, float(answer.headers["retry-after"])))
        return found

    async def streamed(self, rng: random.Random, pause: float = 0.0) -> str:
        last = ""
        async with self.http.stream("POST", "/v1/completions", json=self.body(rng, stream=True)) as answer:
            async for line in answer.aiter_lines():
                last = line or last
                await asyncio.sleep(pause)
        found = self.want("streamed", answer.status_code, 200, 504)
        if answer.status_code == 200 and last != "data: [DONE]":
            found = "200, then late"  # a stream's last event is its error; late ones end so
            if '"code":"timeout"' not in last:
                self.wrong.append(f"streamed: it ended with {last!r}")
        return await self.waited(answer, found)

    async def slow(self, rng: random.Random) -> str:
        return await self.streamed(rng, SLOW / 10)

    async def cancelled(self, rng: random.Random) -> str:
        """Close the connection after a moment, before or after the first token."""
        task = asyncio.ensure_future(self.streamed(rng))
        await asyncio.sleep(rng.random() * 3)
        task.cancel()
        found = await asyncio.gather(task, return_exceptions=True)
        return str(found[0]) if isinstance(found[0], str) else "closed"

    async def oversize(self, rng: random.Random) -> str:
        if rng.random() < 0.5:  # announced, and not sent: nobody must wait for it
            head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {MOST * 100}\r\n\r\n"
            return self.want("oversize", await self.raw(head.encode()), 413)
        body = self.body(rng, max_tokens=10**6)
        return self.want("oversize", (await self.http.post("/v1/completions", json=body)).status_code, 400)

    async def malformed(self, rng: random.Random) -> str:
        text = json.dumps(self.body(rng)).encode()
        made = [text[: rng.randrange(len(text))], rng.randbytes(200), b"[]", b'{"model": 3}', b"", text + b"}"]
        answer = await self.http.post(
            "/v1/completions", content=rng.choice(made), headers={"content-type": "application/json"}
        )
        return self.want("malformed", answer.status_code, 400)

    async def killed(self, rng: random.Random) -> str:
        """A process that dies in the middle of its stream: its connection is reset."""
        body = json.dumps(self.body(rng, stream=True, max_tokens=64)).encode()
        head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        reader, writer = await self.opened()
        writer.write(head + body)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(reader.read(200), rng.random() * 5)
        writer.transport.abort()
        return "killed"

    async def raw(self, text: bytes) -> int:
        """The status that the server gives to these bytes."""
        reader, writer = await self.opened()
        writer.write(text)
        line = await asyncio.wait_for(reader.readline(), 60)
        writer.close()
        return int(line.split()[1])

    async def opened(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        url = httpx.URL(self.url)
        return await asyncio.open_connection(url.host, url.port)

    async def metric(self, name: str) -> float:
        text = (await self.http.get("/metrics")).text
        return sum(float(n) for n in re.findall(rf"^pyflame_{name}{{[^}}]*}} (\S+)$", text, re.MULTILINE))


def resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def abuse(url: str, pid: int, model: str, count: int, seconds: float) -> int:
    """Run the clients; gives how many things went wrong."""
    clients = Clients(url, model, time.monotonic() + seconds)
    sizes: list[int] = []

    async def watch() -> None:
        while time.monotonic() < clients.end:
            sizes.append(resident(pid))
            await asyncio.sleep(1.0)

    await asyncio.gather(watch(), *[clients.run(number) for number in range(count)])
    wrong = list(clients.wrong)
    for _ in range(120):  # killed clients' requests end within a step, and drained ones within their time
        left = await clients.metric("requests_running") + await clients.metric("requests_queued")
        if not left:
            break
        await asyncio.sleep(1.0)
    pages, free = await clients.metric("cache_pages"), await clients.metric("cache_free_pages")
    early, late = max(sizes[: max(1, len(sizes) // 3)]), max(sizes[-max(1, len(sizes) // 3) :])
    wrong += [f"{left:.0f} requests never ended"] if left else []
    wrong += [f"{pages - free:.0f} of {pages:.0f} pages did not come back"] if pages != free else []
    wrong += [f"the engine restarted {n:.0f} times"] if (n := await clients.metric("engine_restarts_total")) else []
    wrong += [f"the process grew from {early:,} to {late:,} bytes"] if late > early * (1 + GROWTH) else []
    for name, times in sorted(clients.ends.items()):
        print(f"{times:7,}  {name}")
    print(f"{count} clients, {seconds:g} s, {pages:.0f} pages, process {early / 2**20:.0f} MiB then {late / 2**20:.0f}")
    for text, times in Counter(wrong).most_common(20):
        print(f"WRONG {times} x {text}")
    await clients.http.aclose()
    return len(wrong)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2", help="what `pyflame serve -m` takes (default: %(default)s)")
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=600.0)
    args = parser.parse_args()
    command = [sys.executable, "-m", "pyflame", "serve", "-m", f"model={args.model}", "--port", "0", "--rows", "16"]
    command += ["--context", "512", "--queue", "64", "--log-level", "critical", "--timeout", "120"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            found = re.search(r"http://[\w.]+:\d+", server.stdout.readline())
            if found is None:
                return 1  # it has said why
            return int(asyncio.run(abuse(found[0], server.pid, "model", args.clients, args.seconds)) > 0)
        finally:
            server.terminate()


if __name__ == "__main__":
    sys.exit(main())
