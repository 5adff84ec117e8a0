"""A decoding step on a GPU is one replay of a graph, also while the host holds what the step before has picked."""

from __future__ import annotations

from pathlib import Path

import pytest

import pyflame as pf
from pyflame.engine.arriving import Arriving
from pyflame.llm.generate import Model
from pyflame.llm.load import load_decoder
from pyflame.llm.sampler import Features, Sampling
from pyflame.runtime.gpu.device import GpuDevice
from tests.llm.checkpoints import make

GPU = "sim:gfx1100"


@pytest.fixture(autouse=True)
def trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a comparison of a graph with its launches does is not counted."""
    monkeypatch.setenv("PYFLAME_GRAPHS", "trusted")


@pytest.mark.slow
def test_steps_are_replayed(tmp_path: Path) -> None:
    model = Model(load_decoder(make("llama", tmp_path)[0], GPU), None, None, GPU, pf.float32, 64)
    with model.lease(1) as batch:
        batch.sampler.start([Sampling()], [[5, 17]], [0], 16)
        batch.first(batch.prefill([[5, 17]]), Features())
        picked = [batch.next(Features()) for _ in range(3)]
        with pf.profile(graphs=True) as found:
            picked.append(batch.next(Features()))
        assert [k.implementation for k in found.kernels if k.calls] == ["captured graph"]


@pytest.mark.slow
def test_another_text_is_replayed_from_its_first_step_on(tmp_path: Path) -> None:
    """What a text begins with is written where it lay, so the graphs of the texts before serve."""
    model = Model(load_decoder(make("llama", tmp_path)[0], GPU), None, None, GPU, pf.float32, 64)
    for first in (5, 6):
        model.generate([first, 17], max_tokens=8, ignore_eos=True)
    with pf.profile(graphs=True) as found:
        model.generate([7, 17], max_tokens=8, ignore_eos=True)
    replays = {k.name: k.calls for k in found.kernels if k.implementation == "captured graph"}
    assert sorted(replays.values()) == [1, 1, 8]  # the prompt, the first token and all others


@pytest.mark.slow
def test_tokens_are_read_while_the_next_step_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each step the host waits for the copy of its tokens, which lies before the next step in the stream."""
    model = Model(load_decoder(make("llama", tmp_path)[0], GPU), None, None, GPU, pf.float32, 64)
    plain = model.generate([5, 17], max_tokens=12).tokens
    seen: list[str] = []
    for kind in (GpuDevice, Arriving):
        for name in {"download", "fetch", "array"} & vars(kind).keys():
            own = vars(kind)[name]
            monkeypatch.setattr(kind, name, lambda *a, own=own, name=name: (seen.append(name), own(*a))[1])
    assert model.generate([5, 17], max_tokens=12).tokens == plain
    assert seen.count("array") >= 10 and seen.count("download") <= 2
    begun = [n for n, name in enumerate(seen) if name == "fetch"]
    assert all(seen[n + 1] == "array" for n in begun)
