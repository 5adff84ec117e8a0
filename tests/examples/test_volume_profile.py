"""The volume profile example against plain loops over ticks and levels."""

from collections import defaultdict

import numpy as np
import pytest

import pyflame as pf
from examples.volume_profile import analyzer as module
from examples.volume_profile.analyzer import VolumeProfileAnalyzer
from examples.volume_profile.features import NAMES, SIGNED, features, mirrored, next_displacement, session_range
from examples.volume_profile.ticks import make_ticks


def profile_by_loop(prices, volumes, precision, share):
    """One session: {level: volume}, POC, value area and VWAP, tick by tick and level by level."""
    table = defaultdict(float)
    for price, volume in zip(prices, volumes, strict=True):
        table[round(price / precision)] += volume
    traded = [level for level, volume in table.items() if volume]
    lowest, highest = min(traded), max(traded)
    poc = max(range(lowest, highest + 1), key=lambda level: (table[level], -level))
    low = high = poc
    covered, total = table[poc], sum(table.values())
    while covered < share * total and (low, high) != (lowest, highest):
        above = table[high + 1] if high < highest else -1.0
        below = table[low - 1] if low > lowest else -1.0
        if above >= below:
            high += 1
            covered += above
        else:
            low -= 1
            covered += below
    vwap = sum(level * precision * volume for level, volume in table.items()) / total
    return table, poc, low, high, vwap


def random_ticks(seed, sessions=7, ticks=300, whole=True):
    """Sessions of unlike sizes and ids with gaps; few levels and small volumes, so that equal ones are common."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, ticks, sessions)
    ids = np.repeat(np.cumsum(rng.integers(1, 9, sessions)) * 100, sizes)
    prices = rng.normal(50.0, 1.5, len(ids)) + np.sin(ids) * 2
    volumes = rng.integers(0, 4, len(ids)) if whole else rng.random(len(ids))
    volumes[np.searchsorted(ids, ids)] += 1  # a session of zeros is an error of its own
    return prices, volumes, ids


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize(
    ("seed", "precision", "share"), [(0, 0.25, 0.7), (1, 0.1, 0.5), (2, 1.0, 1.0), (3, 0.25, 0.01)]
)
def test_profiles_match_a_plain_loop(seed, precision, share, whole):
    prices, volumes, ids = random_ticks(seed, whole=whole)
    profile = VolumeProfileAnalyzer(precision, value_area=share).analyze(prices, volumes, ids)
    assert profile.sessions.tolist() == np.unique(ids).tolist() and len(profile) == len(np.unique(ids))
    assert profile.volume.dtype is (pf.int64 if whole else pf.float64)
    axis = profile.prices.numpy()
    for row, session in enumerate(profile.sessions):
        mine = ids == session
        table, poc, low, high, vwap = profile_by_loop(prices[mine], volumes[mine], precision, share)
        got = {round(price / precision): v for price, v in zip(axis, profile.volume.numpy()[row], strict=True) if v}
        assert got == {level: v for level, v in table.items() if v}
        levels = [round(t.numpy()[row] / precision) for t in (profile.poc, profile.value_low, profile.value_high)]
        assert levels == [poc, low, high]
        assert profile.vwap.numpy()[row] == pytest.approx(vwap, rel=1e-12)
        assert (profile.open.numpy()[row], profile.close.numpy()[row]) == (prices[mine][0], prices[mine][-1])
        traded = [level for level, v in table.items() if v]
        assert [round(t.numpy()[row] / precision) for t in (profile.low, profile.high)] == [min(traded), max(traded)]


@pytest.mark.parametrize("chunk_size", [5, 97, 10**6])
def test_chunks_change_nothing(chunk_size):
    prices, volumes, ids = random_ticks(5, sessions=5, ticks=60, whole=False)
    whole = VolumeProfileAnalyzer().analyze(prices, volumes, ids)
    parts = VolumeProfileAnalyzer(chunk_size=chunk_size).analyze(prices, volumes, ids)
    for name, value in vars(whole).items():
        np.testing.assert_array_equal(np.asarray(getattr(parts, name)), np.asarray(value), err_msg=name)


@pytest.mark.slow
def test_lists_tensors_and_arrays_are_the_same_ticks():
    prices, volumes = [10.0, 10.1, 10.5, 10.6], [5, 7, 3, 1]
    analyzer = VolumeProfileAnalyzer()
    for columns in (
        (prices, volumes),
        (np.array(prices), np.array(volumes, np.uint16)),
        (pf.tensor(np.array(prices)), pf.tensor(volumes, dtype=pf.int32), pf.zeros(4, dtype=pf.int64)),
    ):
        profile = analyzer.analyze(*columns)
        assert profile.volume.tolist() == [[12, 0, 4]] and profile.prices.tolist() == [10.0, 10.25, 10.5]
        assert (profile.poc.item(), profile.total.item()) == (10.0, 16)


def test_whole_volumes_add_up_exactly():
    ticks = 4000
    profile = VolumeProfileAnalyzer().analyze(np.full(ticks, 1.0), np.full(ticks, 2**40 + 1))
    assert profile.total.item() == ticks * (2**40 + 1)


def test_an_analyzer_on_a_named_device():
    profile = VolumeProfileAnalyzer(device="cpu").analyze([1.0, 2.0], [1, 2])
    assert profile.volume.device == "cpu" and profile.poc.item() == 2.0


@pytest.mark.parametrize(
    ("columns", "error", "words"),
    [
        (([1.0, np.nan], [1, 1]), pf.ArgumentError, "finite prices but got nan at tick 1"),
        (([np.inf, 1.0], [1, 1]), pf.ArgumentError, "finite prices but got inf at tick 0"),
        (([1.0, 1.0], [1, -2]), pf.ArgumentError, "0 or more but got -2.0 at tick 1"),
        (([1.0, 1.0], [1.0, np.nan]), pf.ArgumentError, "0 or more but got nan at tick 1"),
        (([1.0] * 4, [1] * 4, [3, 4, 4, 2]), pf.ArgumentError, "a smaller one at tick 3"),
        (([1.0, 1.0], [1, 0], [0, 1]), pf.ArgumentError, "session 1 has none"),
        (([], []), pf.ShapeError, "at least one tick"),
        (([1.0], [1, 2]), pf.ShapeError, "1 prices, 2 volumes"),
        (([1.0], [1], [1, 2]), pf.ShapeError, "2 sessions"),
        (([[1.0]], [1]), pf.ShapeError, "along one axis"),
        ((["a"], [1]), pf.DTypeError, "numbers as prices"),
        (([1.0], [1], [0.5]), pf.DTypeError, "integers as sessions"),
        (([0.0, 1e9], [1, 1]), pf.ArgumentError, "look for a bad price"),
        (([1e300], [1]), pf.ArgumentError, "2\\*\\*53 levels"),
    ],
)
def test_bad_ticks_are_refused(columns, error, words):
    with pytest.raises(error, match=words):
        VolumeProfileAnalyzer(chunk_size=3).analyze(*columns)


@pytest.mark.parametrize(
    "options", [{"price_precision": 0.0}, {"price_precision": np.nan}, {"chunk_size": 0}, {"value_area": 1.5}]
)
def test_bad_options_are_refused(options):
    with pytest.raises(pf.ArgumentError, match=next(iter(options))):
        VolumeProfileAnalyzer(**options)


def test_ticks_are_seeded_and_have_signal():
    ticks = make_ticks(40, 300, seed=3)
    again, other = make_ticks(40, 300, seed=3), make_ticks(40, 300, seed=4)
    assert all(np.array_equal(a, b) for a, b in zip(ticks, again, strict=True))
    assert not np.array_equal(ticks.prices, other.prices)
    assert ticks.volumes.min() >= 1 and np.array_equal(ticks.prices % 0.25, np.zeros(40 * 300))
    assert np.bincount(ticks.sessions).tolist() == [300] * 40
    # a session opens near where the last one closed
    days = ticks.prices.reshape(40, 300)
    assert np.abs(days[1:, 0] - days[:-1, -1]).max() < np.ptp(days, axis=1).mean()
    with pytest.raises(pf.ArgumentError, match="sessions and ticks"):
        make_ticks(0)


def test_a_chart_upside_down_has_mirrored_features():
    ticks = make_ticks(12, 200, seed=1)
    analyzer = VolumeProfileAnalyzer()
    profile = analyzer.analyze(*ticks)
    upside_down = analyzer.analyze(-ticks.prices, ticks.volumes, ticks.sessions)
    x, y = features(profile), next_displacement(profile)
    assert x.shape == (12, len(NAMES)) and y.shape == (11,) and x.dtype is pf.float32
    both, target = mirrored(x[:-1], y)
    # Equal levels are told apart from below, so only sessions without them can mirror exactly.
    same = (profile.poc.numpy() == -upside_down.poc.numpy()) & (
        profile.value_low.numpy() == -upside_down.value_high.numpy()
    )
    assert same.sum() > 6
    np.testing.assert_allclose(both.numpy()[11:][same[:-1]], features(upside_down).numpy()[:-1][same[:-1]], atol=1e-5)
    fine = same[:-1] & same[1:]
    np.testing.assert_allclose(target.numpy()[11:][fine], next_displacement(upside_down).numpy()[fine], atol=1e-5)
    expected = (profile.close.numpy() - profile.poc.numpy()) / session_range(profile).numpy()
    np.testing.assert_allclose(x.numpy()[:, SIGNED.index("close - POC")], expected, rtol=1e-5)


def test_the_guard_on_cells_is_reachable(monkeypatch):
    monkeypatch.setattr(module, "MAX_CELLS", 5)
    VolumeProfileAnalyzer(1.0).analyze([0.0, 4.0], [1, 1])
    with pytest.raises(pf.ArgumentError, match="expected at most 5 cells but 1 sessions over 6 levels"):
        VolumeProfileAnalyzer(1.0).analyze([0.0, 5.0], [1, 1])
