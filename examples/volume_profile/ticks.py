"""Made-up ticks of a market with two kinds of day, so that a day's profile tells something about the next one.

Price is pulled towards a fair value. On a quiet day the fair value stands still: volume piles up there, the close
wanders off, and the next day comes back. On a trending day it moves all day long and goes on by a part of that over
night: the profile is wide and the close stands at its edge. Volume comes in bursts that know nothing of this.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import pyflame as pf


class Ticks(NamedTuple):
    """Ticks in order of time, one column per field."""

    prices: np.ndarray[Any, Any]  # float64, multiples of the precision
    volumes: np.ndarray[Any, Any]  # int64, 1 or more
    sessions: np.ndarray[Any, Any]  # int64, 0 ... sessions - 1


def make_ticks(sessions: int = 200, ticks: int = 2000, seed: int = 0, precision: float = 0.25) -> Ticks:
    """`sessions` days of `ticks` ticks each. The same seed gives the same ticks.

    >>> make_ticks(2, 3).sessions
    array([0, 0, 0, 1, 1, 1])
    """
    if sessions < 1 or ticks < 1:
        raise pf.ArgumentError(f"[make_ticks] expected sessions and ticks of 1 or more but got {sessions} and {ticks}")
    rng = np.random.default_rng(seed)
    trending = rng.random(sessions) < 0.3
    travel = trending * rng.choice([-1.0, 1.0], sessions) * rng.uniform(30.0, 50.0, sessions)  # levels in a day
    overnight = 0.5 * travel + rng.normal(0.0, 2.0, sessions)
    opening = 16000.0 + np.concatenate([[0.0], np.cumsum(travel + overnight)[:-1]])
    fair = opening + np.outer(np.linspace(0.0, 1.0, ticks), travel)  # (ticks, sessions)

    # distance from fair value: pulled back by `decay` per tick, pushed by noise; a day starts where the last one ended
    decay = np.exp(-6.0 / ticks)
    push = rng.normal(0.0, 12.0 * np.sqrt(1 - decay**2), (ticks, sessions))
    distance = np.empty((ticks, sessions))
    last = np.zeros(sessions)
    for tick in range(ticks):
        last = decay * last + push[tick]
        distance[tick] = last
    fading = decay ** np.arange(1, ticks + 1)
    for day in range(1, sessions):
        gap = fair[-1, day - 1] + distance[-1, day - 1] - fair[0, day]
        distance[:, day] += fading * gap

    # more is traded near fair value; about four bursts a day triple volume and die away
    burst = np.zeros(sessions)
    volume = np.empty((ticks, sessions))
    starts = rng.random((ticks, sessions)) < 4.0 / ticks
    for tick in range(ticks):
        burst = burst * np.exp(-40.0 / ticks) + starts[tick]
        volume[tick] = 1.0 + 2.0 * burst
    volume *= rng.lognormal(2.5, 0.7, (ticks, sessions)) * np.exp(-0.5 * (distance / 4.0) ** 2)
    volume *= np.exp(np.outer(np.linspace(0.0, -4.0, ticks), trending))  # a trend is born in much volume

    prices = np.round(fair + distance).T * precision
    volumes = 1 + np.floor(volume).T.astype(np.int64)
    return Ticks(prices.reshape(-1), volumes.reshape(-1), np.repeat(np.arange(sessions), ticks))
