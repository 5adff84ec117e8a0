"""Models whose layers look back over a window: an engine gives back the pages that it has passed."""

from __future__ import annotations

from pathlib import Path

import pytest

import pyflame as pf
from pyflame.llm import Engine, Model
from pyflame.llm.load import load_decoder
from tests.llm.checkpoints import make

PROMPT = [n % 90 for n in range(100)]
LENGTH = 60
CONTEXT = 192


def made(kind: str, folder: Path) -> Model:
    checkpoint, _ = make(kind, folder)
    checkpoint.metadata["max_position_embeddings"] = CONTEXT
    return Model(load_decoder(checkpoint), None, None, "cpu", pf.float32, CONTEXT)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    found = made("mistral_window", tmp_path_factory.mktemp("window"))
    assert set(found.config.windows) == {5}
    return found


def used(engine: Engine) -> int:
    stats = engine.stats()
    return stats.pages - stats.free_pages


@pytest.mark.slow
def test_pages_behind_the_window_come_back_while_a_text_is_written(model: Model) -> None:
    alone = model.generate(PROMPT, max_tokens=LENGTH).tokens
    with Engine(model, rows=2, chunk=32, start=False) as engine:
        request = engine.submit(PROMPT, max_tokens=LENGTH)
        seen = []
        while engine.step():
            seen.append(used(engine))
        assert request.result()[0].tokens == alone
        assert seen[0] == 4  # all of the prompt's
        assert max(seen[-LENGTH // 2 :]) <= 2  # a window of 5 lies in two pages at most, of five
        assert used(engine) == 0
        again = engine.submit(PROMPT, max_tokens=LENGTH)  # what came back is still known
        while engine.step():
            pass
        assert again.result()[0].tokens == alone
        assert again.cached_tokens == 96


@pytest.mark.slow
def test_texts_that_share_and_are_preempted_are_as_alone(model: Model) -> None:
    asked = [PROMPT[:n] for n in (40, 64, 100, 40, 97, 3)]
    alone = [model.generate(prompt, max_tokens=LENGTH).tokens for prompt in asked]
    with Engine(model, rows=4, pages=7, start=False) as engine:
        requests = [engine.submit(prompt, max_tokens=LENGTH, n=1) for prompt in asked]
        while engine.step():
            pass
        assert [request.result()[0].tokens for request in requests] == alone
        assert used(engine) == 0


@pytest.mark.slow
def test_a_layer_that_sees_all_keeps_all_pages(tmp_path: Path) -> None:
    mixed = made("gemma2", tmp_path)
    assert None in mixed.config.windows
    with Engine(mixed, rows=1, chunk=32, start=False) as engine:
        engine.submit(PROMPT[:70], max_tokens=30)
        for _ in range(20):
            engine.step()
        assert used(engine) >= 3
