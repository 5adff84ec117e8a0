"""The sampler against plain NumPy, row by row, and its distribution."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame.core.philox import random_uniform_f32
from pyflame.llm.sampler import Features, Sampler, Sampling

VOCAB = 40
LOGITS = np.random.default_rng(2).normal(0, 2, (1, VOCAB)).astype(np.float32)


def kept(logits: np.ndarray, s: Sampling, said: list[int], read: list[int]) -> np.ndarray:
    """Probabilities after all settings, in float64."""
    x = logits.astype(np.float64).copy()
    for t in {*said, *read}:
        x[t] = x[t] / s.repetition_penalty if x[t] > 0 else x[t] * s.repetition_penalty
    for t in set(said):
        x[t] -= s.frequency_penalty * said.count(t) + s.presence_penalty
    for t, bias in s.logit_bias.items():
        x[t] += bias
    x = x / s.temperature
    if s.top_k:
        x[np.argsort(-x)[s.top_k :]] = -np.inf
    p = np.exp(x - x.max())
    p /= p.sum()
    if s.typical_p < 1:
        with np.errstate(divide="ignore"):
            information = -np.log(p)
        distance = np.abs(information - (p[p > 0] * information[p > 0]).sum())
        order = np.argsort(distance)
        p[order[1 + np.searchsorted(np.cumsum(p[order]), s.typical_p) :]] = 0
        p /= p.sum()
    order = np.argsort(-p)
    before = np.cumsum(p[order]) - p[order]
    p[order[before >= s.top_p]] = 0
    p[p < s.min_p * p.max()] = 0
    return p / p.sum()


CASES: list[dict[str, Any]] = [
    dict(temperature=1.0),
    dict(temperature=0.6, top_k=5),
    dict(temperature=1.0, top_p=0.7),
    dict(temperature=1.3, min_p=0.2),
    dict(temperature=1.0, typical_p=0.5),
    dict(temperature=0.8, top_k=12, top_p=0.9, min_p=0.05, typical_p=0.9),
    dict(temperature=1.0, repetition_penalty=1.7, presence_penalty=0.4, frequency_penalty=0.3),
    dict(temperature=1.0, logit_bias={3: 4.0, 7: -100.0}, top_k=4),
]


@pytest.mark.parametrize("settings", CASES, ids=str)
def test_draws_by_seed(settings: dict[str, Any]) -> None:
    """Token by token what inverting the distribution by the seed's uniforms gives."""
    count, read = 30, [1, 1, 4]
    one = Sampling(seed=7, **settings)
    sampler = Sampler(1, VOCAB, count, "cpu")
    sampler.start([one], [read], [0], count)
    features = Features.of([one], None)
    pick = pf.jit(sampler.pick)
    uniforms, said = random_uniform_f32(7, 0, count), []
    for u in uniforms:
        token = int(pick(pf.tensor(LOGITS), features).tokens)
        p = kept(LOGITS[0], one, said, read)
        order = np.argsort(-p, kind="stable")
        reached = np.cumsum(p[order])
        place = int((reached <= u * reached[-1]).sum())
        near = np.abs(reached - u).min() < 1e-5  # where rounding may decide
        assert near or token == order[place]
        assert p[token] > 0
        said.append(token)


@pytest.mark.slow
def test_distribution() -> None:
    one = Sampling(temperature=1.0, top_p=0.9, seed=11)
    count = 4000
    sampler = Sampler(1, VOCAB, count, "cpu")
    sampler.start([one], [[0]], [0], count)
    pick = pf.jit(sampler.pick)
    drawn = [int(pick(pf.tensor(LOGITS), Features.of([one], None)).tokens) for _ in range(count)]
    found = np.bincount(drawn, minlength=VOCAB) / count
    want = kept(LOGITS[0], one, [], [])
    assert np.abs(found - want).max() < 4 * np.sqrt(0.25 / count)
    assert (found[want == 0] == 0).all()


def test_greedy_rows_beside_drawn_ones() -> None:
    settings = [Sampling(), Sampling(temperature=1.0, seed=1), Sampling(frequency_penalty=50.0)]
    sampler = Sampler(3, VOCAB, 8, "cpu")
    sampler.start(settings, [[0]] * 3, [0] * 3, 8)
    rows = pf.tensor(np.repeat(LOGITS, 3, 0))
    features = Features.of(settings, None)
    picks = np.array([sampler.pick(rows, features).tokens.tolist() for _ in range(4)])
    order = np.argsort(-LOGITS[0])
    assert picks[:, 0].tolist() == [order[0]] * 4
    assert picks[:, 2].tolist() == order[:4].tolist()


def test_wrong_settings() -> None:
    for wrong in (dict(temperature=-1.0), dict(top_p=0.0), dict(top_k=-1), dict(min_p=2.0), dict(seed=0.5)):
        with pytest.raises(pf.ArgumentError, match="expected temperature"):
            Sampling(**wrong)  # type: ignore[arg-type]
    sampler = Sampler(1, VOCAB, 4, "cpu")
    with pytest.raises(pf.ArgumentError, match="logit_bias"):
        sampler.start([Sampling(logit_bias={VOCAB: 1.0})], [[0]], [0], 4)
