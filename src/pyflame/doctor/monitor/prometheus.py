"""Samples in Prometheus' text format, over HTTP on this machine only."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from pyflame.doctor.monitor.sample import Gpu, Sample


def _ratio(percent: float | None) -> float | None:
    return None if percent is None else percent / 100


def _throttled(gpu: Gpu) -> float | None:
    return None if gpu.throttled is None else float(bool(gpu.throttled))


# name, help, how it is read from a GPU
_GPU: tuple[tuple[str, str, Callable[[Gpu], float | None]], ...] = (
    ("gpu_use_ratio", "Share of time that the GPU works.", lambda g: _ratio(g.use)),
    ("gpu_memory_used_bytes", "Memory in use.", lambda g: g.memory_used),
    ("gpu_memory_total_bytes", "Memory of the GPU.", lambda g: g.memory_total),
    ("gpu_gtt_used_bytes", "Host memory in use by the GPU.", lambda g: g.gtt_used),
    ("gpu_gtt_total_bytes", "Host memory that the GPU may use.", lambda g: g.gtt_total),
    ("gpu_power_watts", "Power.", lambda g: g.power),
    ("gpu_power_limit_watts", "Limit of power.", lambda g: g.power_limit),
    ("gpu_clock_hertz", "Clock of the compute units.", lambda g: None if g.clock is None else g.clock * 1e6),
    ("gpu_temperature_celsius", "Temperature.", lambda g: g.temperature),
    ("gpu_throttled", "1 while a limit holds the clock down.", _throttled),
    ("gpu_ecc_corrected_errors", "Corrected memory errors.", lambda g: g.ecc_corrected),
    ("gpu_ecc_uncorrected_errors", "Uncorrected memory errors.", lambda g: g.ecc_uncorrected),
)  # fmt: skip


def metrics(sample: Sample | None) -> str:
    """The page of /metrics.

    >>> "pyflame_host_memory_used_bytes 5" in metrics(Sample(0.0, Host(1.0, 5, 8)))
    True
    """
    return "\n".join(_lines(sample)) + "\n" if sample is not None else ""


def _lines(sample: Sample) -> Iterator[str]:
    numbers = {gpu.bus: str(number) for number, gpu in enumerate(sample.gpus)}
    for name, about, read in _GPU:
        told = [(gpu, value) for gpu in sample.gpus if (value := read(gpu)) is not None]
        yield from _head(name, about) if told else ()
        for gpu, value in told:
            yield _line(name, value, gpu=numbers[gpu.bus], bus=gpu.bus, name=gpu.name)
    for name, about, field in (
        ("process_gpu_memory_bytes", "Memory of the GPU that a process holds.", "memory"),
        ("process_gpu_use_percent", "How busy a process keeps the GPU.", "use"),
    ):
        held = [(p, value) for p in sample.processes if (value := getattr(p, field)) is not None]
        yield from _head(name, about) if held else ()
        for process, value in held:
            gpu_number = numbers.get(process.bus, "")
            yield _line(name, value, gpu=gpu_number, pid=str(process.pid), name=process.name)
    host = sample.host
    for name, about, host_value in (
        ("host_cpu_use_ratio", "Share of time that the CPU works.", _ratio(host.cpu_use)),
        ("host_memory_used_bytes", "Memory of the host in use.", host.memory_used),
        ("host_memory_total_bytes", "Memory of the host.", host.memory_total),
    ):  # fmt: skip
        if host_value is not None:
            yield from _head(name, about)
            yield _line(name, host_value)


def _head(name: str, about: str) -> list[str]:
    return [f"# HELP pyflame_{name} {about}", f"# TYPE pyflame_{name} gauge"]


def _line(metric: str, value: float, **labels: str) -> str:
    inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
    return f"pyflame_{metric}{'{' + inside + '}' if inside else ''} {float(value):.10g}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


class Endpoint:
    """http://127.0.0.1:PORT/metrics, answered in threads; port 0 takes any that is free."""

    def __init__(self, port: int, latest: Callable[[], Sample | None]) -> None:
        class Handler(BaseHTTPRequestHandler):
            timeout = 10  # seconds for a slow client

            def do_GET(self) -> None:
                found = self.path.partition("?")[0] in ("/", "/metrics")
                body = (metrics(latest()) if found else "see /metrics\n").encode()
                self.send_response(200 if found else 404)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                """The terminal shows the table."""

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, name="pyflame metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=5.0)
