"""Which cases a run has chosen: what is compiled for all of them at once is compiled for no others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


def chosen(request: pytest.FixtureRequest, test: Callable[..., Any], name: str, **others: Any) -> list[Any]:
    """The values of a parameter of a test function in this run, of those cases whose other parameters are these."""
    found = []
    for item in request.session.items:
        if isinstance(item, pytest.Function) and item.function is test:
            params = item.callspec.params
            if all(params[key] == value for key, value in others.items()):
                found.append(params[name])
    return found
