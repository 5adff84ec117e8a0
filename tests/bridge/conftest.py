"""torch.compile starts afresh in each test, and the backend has its name also where the package is not installed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Iterator[None]:
    import pyflame.bridge.torch as bridge

    bridge.register()
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()
