"""What holds for every test."""

from __future__ import annotations

import os
import signal

# A shell lets jobs in the background ignore Ctrl-C, and what they start inherits that; tests send it.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The tests are the CPU's, also on a machine with a GPU; those of a GPU name it. Programs that tests start inherit this.
os.environ.setdefault("PYFLAME_DEVICE", "cpu")

from collections.abc import Generator

import pytest

import pyflame as pf
from tests.needs import torch
from tests.seed import share


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--without-torch", action="store_true", help="leave out what needs torch, where it is missing")


def pytest_configure(config: pytest.Config) -> None:
    if torch is None and not config.getoption("--without-torch"):
        raise pytest.UsageError("expected torch, the oracle of the tests: run `make setup`, or add --without-torch")


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of the tests that one `share(n)` marks, `make test` runs every nth, others for each state of the code."""
    alike: dict[int, tuple[int, dict[str, pytest.Item]]] = {}
    for item in items:
        mark = item.get_closest_marker("share")
        if mark is not None:
            alike.setdefault(id(mark), (mark.args[0], {}))[1][item.nodeid] = item
    for part, group in alike.values():
        for name in group.keys() - share(group, part):
            group[name].add_marker("thorough")


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """A file that imports torch, or a package of an extra, is skipped where there is no torch."""
    report = yield
    served = ("fastapi", "httpx", "langchain_openai", "openai", "playwright", "prometheus_client", "schemathesis")
    for name in ("torch", "tokenizers", "gguf", "transformers", "llguidance", *served):
        if torch is None and report.failed and f"No module named '{name}'" in str(report.longrepr):
            report.outcome, report.longrepr = "skipped", (report.nodeid, 0, f"Skipped: {name} is not installed")
    return report


@pytest.fixture(autouse=True)
def seeded() -> None:
    """The same random numbers in every run: a failure can be repeated."""
    pf.manual_seed(20261115)
