"""/metrics, read by Prometheus' own parser."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.llm.server.live import Live


def samples(live: Live) -> dict[tuple[str, str], float]:
    answer = live.http.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    found = [s for family in text_string_to_metric_families(answer.text) for s in family.samples]
    assert {s.labels["model"] for s in found} == {"letters"}
    return {(s.name, s.labels.get("le", "")): s.value for s in found}


@pytest.mark.slow
def test_metrics(live: Live) -> None:
    before = samples(live)
    live.http.post("/v1/completions", json={"model": "letters", "prompt": "abc", "max_tokens": 5, "ignore_eos": True})
    assert live.idle()
    after = samples(live)

    def grown(name: str, le: str = "") -> float:
        return after[f"pyflame_{name}", le] - before[f"pyflame_{name}", le]

    assert grown("requests_finished_total") == 1 and grown("prompt_tokens_total") == 3
    assert grown("generated_tokens_total") == 5
    assert grown("time_to_first_token_seconds_count") == 1 and grown("inter_token_seconds_count") == 4
    assert grown("time_to_first_token_seconds_bucket", "+Inf") == 1 and grown("inter_token_seconds_sum") > 0
    stats = live.engine.stats()
    assert after["pyflame_cache_pages", ""] == stats.pages and after["pyflame_engine_healthy", ""] == 1
    assert 0 <= after["pyflame_cache_use_ratio", ""] <= 1 and 0 <= after["pyflame_cache_hit_ratio", ""] <= 1
    assert ("pyflame_generated_tokens_per_second", "") in after and after["pyflame_requests_queued", ""] == 0
