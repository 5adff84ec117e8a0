"""What the tests on a real NVIDIA GPU share."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator

import pytest

from tests.gpu import nvidia
from tests.gpu.nvidia import Nvidia

_ended: dict[str, str] = {}  # the test in which the GPU's context ended, and how


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--part", default="1/1", help="run one part of several: 2/3 is the second of three")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    number, count = map(int, config.getoption("--part", "1/1").split("/"))
    items[:] = items[number - 1 :: count]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    how = nvidia.ended() if report.failed and not _ended else ""
    if how:
        _ended[item.nodeid] = how
    return report


def pytest_runtest_setup() -> None:
    """A fault ends the context for good: what follows would fail with the same words, and hide which one did it."""
    for test, how in _ended.items():
        pytest.fail(f"the GPU's context has ended, {how} in {test}; run the others without it", pytrace=False)


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
