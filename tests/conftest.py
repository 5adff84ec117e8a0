"""What holds for every test."""

from __future__ import annotations

import gc
import os
import signal

# A shell lets jobs in the background ignore Ctrl-C, and what they start inherits that; tests send it.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The tests are the CPU's, also on a machine with a GPU; those of a GPU name it. Programs that tests start inherit this.
os.environ.setdefault("PYFLAME_DEVICE", "cpu")

from collections.abc import Generator, Iterator

import pytest

import pyflame as pf
from pyflame.core.state import state
from pyflame.runtime.cache import DiskCache
from tests.needs import torch
from tests.seed import share

MANY, SHARE = 4, 10  # of a function with more cases than 4 `make test` runs every tenth
SLOW = 12  # and of slow tests every twelfth, where they do not say otherwise


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--without-torch", action="store_true", help="leave out what needs torch, where it is missing")
    parser.addoption("--every", action="store_true", help="no share of tests that are alike or slow, but all of them")


def pytest_configure(config: pytest.Config) -> None:
    if torch is None and not config.getoption("--without-torch"):
        raise pytest.UsageError("expected torch, the oracle of the tests: run `make setup`, or add --without-torch")
    gc.disable()  # a third of what the collection would take: it makes a million objects, and all stay


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of tests that are alike, and of slow ones, `make test` runs a share, others for each state of the code."""
    if config.getoption("--every"):
        return
    groups: dict[tuple[object, int], dict[str, pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("thorough") is None:
            groups.setdefault(_group(item), {})[item.nodeid] = item
    for (_, part), group in groups.items():
        for name in group.keys() - share(group, part or (SHARE if len(group) > MANY else 1)):
            group[name].add_marker("thorough")


def _group(item: pytest.Item) -> tuple[object, int]:
    """What a test is alike with, and which share of that `make test` runs; 0: it depends on how many they are."""
    if (mark := item.get_closest_marker("share")) is not None:
        return id(mark), mark.args[0]
    if (mark := item.get_closest_marker("slow")) is not None:
        part = mark.args[0] if mark.args else SLOW
        return ("slow", part), part
    return item.nodeid.partition("[")[0], 0


@pytest.hookimpl(tryfirst=True)  # also before xdist's, whose controller collects nothing
def pytest_runtestloop() -> None:
    """What was imported and collected is not looked through again when garbage is."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """A file that imports torch, or a package of an extra, is skipped where there is no torch."""
    report = yield
    served = ("fastapi", "httpx", "langchain_openai", "openai", "playwright", "prometheus_client", "schemathesis")
    for name in ("torch", "tokenizers", "gguf", "transformers", "llguidance", *served):
        if torch is None and report.failed and f"No module named '{name}'" in str(report.longrepr):
            report.outcome, report.longrepr = "skipped", (report.nodeid, 0, f"Skipped: {name} is not installed")
    return report


@pytest.fixture(autouse=True, scope="session")
def compiled_stays() -> Iterator[None]:
    """Tests find what others compiled; one that clears a cache takes one of its own, or minutes of work are lost."""
    shared, clear = DiskCache().root, DiskCache.clear

    def clear_own(cache: DiskCache) -> int:
        assert cache.root != shared, f"{shared} is every test's: clear a DiskCache of a temporary folder"
        return clear(cache)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DiskCache, "clear", clear_own)
        yield


@pytest.fixture(autouse=True)
def seeded() -> None:
    """The same random numbers in every run: a failure can be repeated."""
    pf.manual_seed(20261115)


@pytest.fixture(autouse=True)
def modes() -> Iterator[None]:
    """A test leaves the thread's modes as it found them: the next ones would compute in another way."""
    before = _modes()
    yield
    assert _modes() == before


def _modes() -> dict[str, str]:
    own = ("pending", "device", "after_backward")  # what the thread has to do, and where
    return {name: repr(value) for name, value in vars(state).items() if name not in own}
