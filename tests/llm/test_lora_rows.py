"""Adapters per request: rows of one step compute with different ones, each as if it were alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import pyflame as pf
from pyflame.core.errors import ArgumentError
from pyflame.llm import Engine, Model
from tests.llm.letters import letters_model

PROMPTS = [[5, 6, 7, 8], [5, 6, 7, 8], [5, 6, 7, 8], [40] * 70, [40] * 70, [1]]
CHOSEN = ["one", "two", None, "two", None, "one"]


def adapter(model: Model, folder: Path, rank: int, targets: tuple[str, ...], seed: int) -> Path:
    """A random adapter, written as PEFT does; the model is left without."""
    rng = np.random.default_rng(seed)
    pf.llm.add_lora(model, rank=rank, targets=targets)
    with pf.no_grad():
        for parameter in pf.llm.lora_parameters(model):
            parameter.copy_(pf.tensor(0.5 * rng.standard_normal(parameter.shape).astype(np.float32)))
    pf.llm.save_adapter(model, folder)
    pf.llm.remove_lora(model)
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Model, dict[str, Path]]:
    model = letters_model(tmp_path_factory.mktemp("letters"))
    root = tmp_path_factory.mktemp("adapters")
    return model, {
        "one": adapter(model, root / "one", 4, ("attn_q", "ffn_down"), 1),
        "two": adapter(model, root / "two", 2, ("attn_v", "attn_output", "ffn_up"), 2),
    }


@pytest.fixture(scope="module")
def alone(folders: tuple[Model, dict[str, Path]]) -> list[list[int]]:
    """What each prompt gives with its adapter put beside the layers by itself."""
    model, paths = folders
    found = []
    for prompt, name in zip(PROMPTS, CHOSEN, strict=True):
        if name is not None:
            pf.llm.load_adapter(model, paths[name])
        found.append(model.generate(prompt, max_tokens=12).tokens)
        pf.llm.remove_lora(model)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("chunk", [32, 128])  # one prompt in a launch, or several
def test_requests_of_one_batch_are_as_each_alone(
    folders: tuple[Model, dict[str, Path]], alone: list[list[int]], chunk: int
) -> None:
    model, paths = folders
    assert len({tuple(tokens) for tokens in alone[:3]}) == 3  # they do differ
    pf.llm.load_adapters(model, paths)
    try:
        with Engine(model, rows=4, chunk=chunk, start=False) as engine:
            for _ in range(2):  # the second time pages of the same tokens and adapters are shared
                requests = [
                    engine.submit(prompt, max_tokens=12, adapter=name)
                    for prompt, name in zip(PROMPTS, CHOSEN, strict=True)
                ]
                while engine.step():
                    pass
                assert [request.result()[0].tokens for request in requests] == alone
            assert requests[3].cached_tokens == 64 == requests[4].cached_tokens
            steps = engine._loop.rows._next[4]
            assert steps.traces <= 1  # one plan whatever the mixture
        assert model.generate(PROMPTS[0], max_tokens=12).tokens == alone[2]  # without an engine: the base
    finally:
        pf.llm.remove_lora(model)
    assert model.generate(PROMPTS[0], max_tokens=12).tokens == alone[2]


@pytest.mark.slow
def test_a_preempted_row_gets_its_adapter_again(folders: tuple[Model, dict[str, Path]], alone: list[list[int]]) -> None:
    model, paths = folders
    pf.llm.load_adapters(model, paths)
    try:
        with Engine(model, rows=4, pages=4, chunk=32, start=False) as engine:
            requests = [
                engine.submit(PROMPTS[n], max_tokens=12, adapter=CHOSEN[n], ignore_eos=False) for n in (3, 4, 0)
            ]
            while engine.step():
                pass
            assert [r.result()[0].tokens for r in requests] == [alone[n] for n in (3, 4, 0)]
    finally:
        pf.llm.remove_lora(model)


@pytest.mark.slow
def test_mistakes_are_named(folders: tuple[Model, dict[str, Path]]) -> None:
    model, paths = folders
    with pytest.raises(ArgumentError, match="adapters by name"):
        pf.llm.load_adapters(model, {})
    pf.llm.load_adapters(model, paths)
    try:
        unknown = pytest.raises(ArgumentError, match="among one, two but got 'onn'; did you mean 'one'")
        with Engine(model, rows=1, start=False) as engine, unknown:
            engine.submit([1], adapter="onn")
        with pytest.raises(ArgumentError, match="it has none; call add_lora"):
            pf.llm.save_adapter(model, "nowhere")
    finally:
        pf.llm.remove_lora(model)
