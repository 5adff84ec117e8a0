"""Random requests made of the server's own OpenAPI document: it describes every answer, and none is a failure."""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import content_type_conformance, not_a_server_error, response_schema_conformance
from schemathesis.specs.openapi.checks import status_code_conformance

from tests.llm.server.live import Live

pytestmark = pytest.mark.thorough
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


def _answerable(body: Any) -> None:
    """Let a random body reach the engine: name a model that is there, and ask for little."""
    if isinstance(body, dict) and isinstance(body.get("model"), str):
        body["model"] = "bert" if "input" in body and "instructions" not in body else "letters"
        for name in ("max_tokens", "max_completion_tokens", "max_output_tokens"):
            if isinstance(body.get(name), int):
                body[name] = 3


def _run(live: Live, operation: Any) -> list[int]:
    """The statuses of some random calls."""
    statuses: list[int] = []

    @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(operation.as_strategy())
    def run(case: Any) -> None:
        _answerable(case.body)
        answer = case.call(base_url=live.url, timeout=60)
        case.validate_response(answer, checks=CHECKS)
        statuses.append(answer.status_code)

    run()
    return statuses


def test_every_answer_is_described(live: Live) -> None:
    schema = schemathesis.openapi.from_url(f"{live.url}/openapi.json")
    found = {one.ok().label: _run(live, one.ok()) for one in schema.get_all_operations()}
    assert all(found.values()) and 200 in found["GET /v1/models"]
    assert live.idle()
