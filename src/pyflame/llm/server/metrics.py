"""GET /metrics: what the engines do, in Prometheus' text format."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from fastapi import APIRouter
from fastapi.responses import PlainTextResponse

from pyflame.llm.server.models import Models

# name, kind, help, how it is read from an engine's stats
_NUMBERS: tuple[tuple[str, str, str, Any], ...] = (
    ("requests_queued", "gauge", "Requests that wait.", lambda s: s.queued),
    ("requests_running", "gauge", "Requests that are being read or written.", lambda s: s.running),
    ("requests_finished_total", "counter", "Requests that were answered.", lambda s: s.finished),
    ("requests_failed_total", "counter", "Requests that failed.", lambda s: s.failed),
    ("requests_cancelled_total", "counter", "Requests whose client left.", lambda s: s.cancelled),
    ("requests_preempted_total", "counter", "Times that a request gave up its pages.", lambda s: s.preempted),
    ("prompt_tokens_total", "counter", "Tokens of prompts.", lambda s: s.prompt_tokens),
    ("prompt_tokens_cached_total", "counter", "Tokens of prompts that were known.", lambda s: s.cached_tokens),
    ("generated_tokens_total", "counter", "Tokens that were written.", lambda s: s.tokens),
    ("cache_pages", "gauge", "Pages of keys and values.", lambda s: s.pages),
    ("cache_free_pages", "gauge", "Pages that nothing uses.", lambda s: s.free_pages),
    ("cache_kept_pages", "gauge", "Pages that are kept for prompts to come.", lambda s: s.cached_pages),
    ("cache_use_ratio", "gauge", "Share of pages in use.", lambda s: _share(s.pages - s.free_pages, s.pages)),
    (
        "cache_hit_ratio",
        "gauge",
        "Share of prompt tokens that were known.",
        lambda s: _share(s.cached_tokens, s.prompt_tokens),
    ),
    ("engine_restarts_total", "counter", "Times that the engine began anew after a fault.", lambda s: s.restarts),
    ("engine_healthy", "gauge", "1 while the engine works.", lambda s: int(s.healthy)),
)
_HISTOGRAMS = (
    ("time_to_first_token_seconds", "From a request to its first token.", "ttft"),
    ("inter_token_seconds", "Between two tokens of a text.", "inter_token"),
)


def _share(part: int, of: int) -> float:
    return part / of if of else 0.0


class Metrics:
    """All numbers of all engines. The rate is that since the last time somebody asked, a second ago or more."""

    def __init__(self, models: Models) -> None:
        self.models, self._begun = models, time.monotonic()
        self._rates: dict[str, tuple[float, int, float]] = {}  # when, tokens by then, tokens per second before

    def text(self) -> str:
        stats = {one.name: one.engine.stats() for one in self.models.served if one.engine is not None}
        lines: list[str] = []
        for name, kind, about, read in _NUMBERS:
            lines += _head(name, kind, about)
            lines += [_sample(name, read(s), model=model) for model, s in stats.items()]
        lines += _head("generated_tokens_per_second", "gauge", "Tokens written per second, lately.")
        rates = {model: self._rate(model, s.tokens) for model, s in stats.items()}
        lines += [_sample("generated_tokens_per_second", rate, model=model) for model, rate in rates.items()]
        for name, about, field in _HISTOGRAMS:
            lines += _head(name, "histogram", about)
            for model, s in stats.items():
                lines += _histogram(name, getattr(s, field), model)
        return "\n".join(lines) + "\n"

    def _rate(self, model: str, tokens: int) -> float:
        now = time.monotonic()
        then, before, rate = self._rates.get(model, (self._begun, 0, 0.0))
        if now - then >= 1.0:
            rate = (tokens - before) / (now - then)
            self._rates[model] = now, tokens, rate
        return rate


def _head(name: str, kind: str, about: str) -> list[str]:
    return [f"# HELP pyflame_{name} {about}", f"# TYPE pyflame_{name} {kind}"]


def _sample(name: str, value: float, **labels: str) -> str:
    quoted = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
    return f"pyflame_{name}{{{quoted}}} {f'{value:.9g}' if isinstance(value, float) else value}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _histogram(name: str, histogram: Any, model: str) -> Iterator[str]:
    for bound, count in histogram.cumulative():
        limit = "+Inf" if bound == float("inf") else f"{bound:g}"
        yield _sample(f"{name}_bucket", count, model=model, le=limit)
    yield _sample(f"{name}_sum", float(histogram.sum), model=model)
    yield _sample(f"{name}_count", histogram.count, model=model)


def router(models: Models) -> APIRouter:
    made = APIRouter(tags=["operation"])
    metrics = Metrics(models)

    @made.get("/metrics", response_class=PlainTextResponse)
    async def get_metrics() -> PlainTextResponse:
        """Prometheus' text format."""
        return PlainTextResponse(metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    return made
