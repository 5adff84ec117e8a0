"""Streams of our server and of llama.cpp's, by turns, with the same file and the same cores.

`python -m benchmarks.serve_streams --llama-server build/bin/llama-server`: each server has as many slots as there are
streams, which all begin at once; both are up all the time, and one of them works. llama.cpp rounds activations to 8
bits, as `--activation-bits 8` does here; 16 is our default. The client, the same for all, takes its share of the cores.
Where other programs compute beside, tokens per second of the server's CPU time with `--threads 1` can be compared;
with more threads llama.cpp's wait for each other in loops, so that the one whose core is taken holds up all.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx

from pyflame.llm.default import resolve
from pyflame.llm.load_test import Lengths, Load, load_test

STARTING = 600.0  # seconds
COLUMNS: dict[str, Callable[[dict[str, Any]], str]] = {
    "output tokens/s": lambda r: f"{r['generated_tokens_per_second']:.1f}",
    "of CPU time": lambda r: f"{r['generated_tokens'] / r['cpu_seconds']:.1f}",
    "first token p50, s": lambda r: f"{r['time_to_first_token']['p50']:.2f}",
    "p99, s": lambda r: f"{r['time_to_first_token']['p99']:.2f}",
    "between tokens p50, ms": lambda r: f"{1e3 * r['inter_token']['p50']:.1f}",
    "p99, ms": lambda r: f"{1e3 * r['inter_token']['p99']:.1f}",
}


@contextlib.contextmanager
def running(command: list[str], threads: int) -> Iterator[int]:
    """A server's process id."""
    environment = {**os.environ, "PYFLAME_THREADS": str(threads)}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment) as server:
        try:
            yield server.pid
        finally:
            server.terminate()


def wait_for(url: str) -> None:
    """Until a server answers."""
    end = time.monotonic() + STARTING
    while time.monotonic() < end:
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(f"{url}/health").status_code == 200:
                return
        time.sleep(0.5)
    raise TimeoutError(f"[serve_streams] expected a server at {url} within {STARTING:g} s but got no answer")


def cpu_seconds(pid: int) -> float:
    """What a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def commands(args: argparse.Namespace) -> dict[str, tuple[str, list[str]]]:
    """Addresses and commands by name."""
    model, found = str(resolve(args.model)), {}
    for bits in args.bits:
        port = free_port()
        ours = [sys.executable, "-m", "pyflame", "serve", "-m", f"model={model}", "--port", str(port)]
        ours += ["--rows", str(args.streams), "--context", str(args.context), "--activation-bits", str(bits)]
        found[f"pyflame, {bits} bits"] = f"http://127.0.0.1:{port}", [*ours, "--log-level", "critical"]
    if args.llama_server is not None:
        port = free_port()
        theirs = [str(args.llama_server), "-m", model, "--port", str(port), "-np", str(args.streams)]
        theirs += ["-c", str(args.streams * args.context), "-t", str(args.threads), *args.llama_options.split()]
        found["llama.cpp"] = f"http://127.0.0.1:{port}", theirs
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2", help="a GGUF file (default: %(default)s)")
    parser.add_argument("--llama-server", type=Path, help="llama.cpp's program (default: ours alone)")
    parser.add_argument("--llama-options", default="", help="more arguments of it")
    parser.add_argument("--bits", type=int, nargs="*", default=[8, 16], help="activation bits of ours (default: 8 16)")
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument(
        "--prompt", default="64-256", help="tokens, as `llm load-test` takes them (default: %(default)s)"
    )
    parser.add_argument("--output", default="128", help="likewise (default: %(default)s)")
    parser.add_argument("--context", type=int, default=512, help="of each stream (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=2, help="of each server (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="of each, behind one that does not count")
    args = parser.parse_args()
    found: dict[str, list[dict[str, Any]]] = {}
    with contextlib.ExitStack() as stack:
        asked = commands(args)
        pids = {}
        for name, (url, command) in asked.items():
            pids[name] = stack.enter_context(running(command, args.threads))
            wait_for(url)
        for seed in range(args.rounds + 1):
            for name, (url, _) in asked.items():
                load = Load(
                    url, None, args.streams, math.inf, "fixed", Lengths(args.prompt), Lengths(args.output), seed
                )
                before = cpu_seconds(pids[name])
                report = load_test(load).to_json() | {"cpu_seconds": cpu_seconds(pids[name]) - before}
                if report["failed"]:
                    raise RuntimeError(f"[serve_streams] expected answers of {name} but got {report['failed']}")
                if seed:
                    found.setdefault(name, []).append(report)
                print(f"{name}: {' | '.join(column(report) for column in COLUMNS.values())}", file=sys.stderr)
    show(args, found)
    return 0


def show(args: argparse.Namespace, found: dict[str, list[dict[str, Any]]]) -> None:
    """The median round of each, as a table."""
    print(f"{args.streams} streams, {args.prompt} tokens in and {args.output} out, median of {args.rounds} rounds\n")
    print(f"| | {' | '.join(COLUMNS)} |\n|---|{'---|' * len(COLUMNS)}")
    for name, reports in found.items():
        middle = sorted(reports, key=lambda r: r["seconds"])[len(reports) // 2]
        print(f"| {name} | {' | '.join(column(middle) for column in COLUMNS.values())} |")


if __name__ == "__main__":
    sys.exit(main())
