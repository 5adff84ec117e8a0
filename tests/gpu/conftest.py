"""What the tests on a real NVIDIA GPU share."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.gpu.nvidia import Nvidia


@pytest.fixture(scope="module", autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A cache of the test's own, unless there is one: the usual place needs platformdirs."""
    with pytest.MonkeyPatch.context() as patch:
        if not os.environ.get("PYFLAME_CACHE_DIR"):
            patch.setenv("PYFLAME_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def gpu() -> Nvidia:
    found = Nvidia()
    found.compile([])  # with a header that is refused nothing else is worth a try
    return found
