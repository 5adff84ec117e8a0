"""The engine on simulated GPUs, where steps are launched before the tokens of the one before are read; and SmolLM2."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import pyflame as pf
from pyflame.llm import Engine, Model
from pyflame.llm.load import load_decoder
from pyflame.llm.placement import placed
from pyflame.llm.serving.rows import Rows
from tests.llm.checkpoints import make
from tests.llm.test_engine import steps

GPU = "sim:gfx942"
PROMPTS = [[5, 17], [3], [9, 8, 7, 6, 5, 4], [1, 2]]
KINDS: list[dict[str, Any]] = [dict(), dict(temperature=1.0, seed=3, frequency_penalty=0.5)]
ASKED = [dict(prompt=p, max_tokens=12 - n, **KINDS[n % 2]) for n, p in enumerate(PROMPTS)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    checkpoint, _ = make("llama", tmp_path_factory.mktemp("llama"))
    return Model(load_decoder(checkpoint, GPU), None, None, GPU, pf.float32, 64)


@pytest.mark.slow(16)
def test_together_as_alone_and_every_step_is_a_graph(model: Model) -> None:
    """Requests join in between. A step of a size and kind is captured at its second call."""
    alone = [model.generate(**one).tokens for one in ASKED]
    engine = Engine(model, rows=2, chunk=32, start=False)
    requests = []
    while engine.step() or len(requests) < len(ASKED):
        if engine._loop.steps % 3 == 1 and len(requests) < len(ASKED):
            requests.append(engine.submit(**ASKED[len(requests)]))
    assert [r.result()[0].tokens for r in requests] == alone
    found = [r.runner.why for step in engine._loop.rows._next.values() for kept in step.cache.values() for r in kept]
    assert found.count("replayed as a graph") >= 3 and set(found) <= {"replayed as a graph", "it was the first call"}
    stats = engine.stats()
    assert (stats.free_pages, stats.running) == (stats.pages, 0)


def test_steps_are_launched_before_tokens_are_read(model: Model) -> None:
    engine = Engine(model, rows=2, chunk=32, start=False)
    request = engine.submit([5, 17], max_tokens=6, ignore_eos=True)
    lead = []
    while engine.step():
        sequence = request.sequences[0]
        lead.append(sequence.picked - len(sequence.text.tokens))
    assert max(lead) == 2  # at first the one behind the prompt and the next; then one
    assert lead[1:4] == [1, 1, 1] and len(request.result()[0].tokens) == 6


@pytest.mark.slow(16)
def test_preemption_and_faults_of_steps_under_way(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = [dict(prompt=p, max_tokens=36) for p in PROMPTS]
    alone = [model.generate(**one).tokens for one in asked]
    engine = Engine(model, rows=2, pages=3, chunk=32, start=False)
    requests = [engine.submit(**one) for one in asked]
    steps(engine)
    assert [r.result()[0].tokens for r in requests] == alone and engine.stats().preempted > 0
    own, calls = Rows.next, []

    def step(self: Rows, *args: Any) -> Any:
        calls.append(args)
        if len(calls) == 5:
            raise pf.DeviceFaultError("illegal address")
        return own(self, *args)

    monkeypatch.setattr(Rows, "next", step)
    requests = [engine.submit(**one) for one in asked]
    with pytest.warns(RuntimeWarning, match="illegal address"):
        steps(engine)
    assert [r.error is None for r in requests] == [False, False, True, True]
    assert [r.result()[0].tokens for r in requests[2:]] == alone[2:]


@pytest.mark.slow
def test_layers_on_two_devices(tmp_path: Path) -> None:
    checkpoint, _ = make("llama", tmp_path)
    whole = load_decoder(checkpoint)
    one = Model(whole, None, None, "cpu", pf.float32, 64)
    places = placed({"blk.0": "cpu", "blk.1": GPU}, whole.config, dict, 0)
    two = Model(load_decoder(checkpoint, places), None, None, places.first, pf.float32, 64)
    alone = [one.generate(p, max_tokens=4).tokens for p in PROMPTS[:3]]
    with Engine(two, rows=2, chunk=32) as engine:
        requests = [engine.submit(p, max_tokens=4) for p in PROMPTS[:3]]
        assert [r.result()[0].tokens for r in requests] == alone


@pytest.mark.thorough
def test_smollm2_64_prompts_together_as_alone(smollm2: Path) -> None:
    model = pf.llm.load(smollm2, device="cpu", context=256)
    words = Path(pf.__file__).read_text("utf-8").split()
    prompts = [" ".join(words[n * 7 : n * 7 + 2 + n // 4]) for n in range(64)]
    alone = [model.generate(p, max_tokens=8).tokens for p in prompts]
    with Engine(model) as engine:
        assert [r.result()[0].tokens for r in [engine.submit(p, max_tokens=8) for p in prompts]] == alone
