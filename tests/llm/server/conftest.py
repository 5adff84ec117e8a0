"""Models and a server that the tests share. Imports are inside: without the packages of `[dev]` tests are skipped."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from tests.llm.server.live import letters

    return letters(tmp_path_factory.mktemp("letters"))


@pytest.fixture(scope="session")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from tests.llm.server.live import encoder

    return encoder(tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="module")
def live(model: Any, bert: Any) -> Iterator[Any]:
    from pyflame.llm.server import Served
    from tests.llm.server.live import Engine, running

    with running([Served("letters", model, Engine(model, rows=4)), Served("bert", bert, None)]) as found:
        yield found
