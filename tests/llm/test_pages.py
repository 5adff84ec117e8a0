"""Pages of the engine's cache: who has them, who may share them, which go first, and how many there are."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import pyflame as pf
from pyflame.llm.cache import PAGE, cache_bytes
from pyflame.llm.serving import room
from pyflame.llm.serving.pages import PagePool, extend_keys
from pyflame.llm.serving.stats import Times
from tests.llm.letters import letters_model


def keys_of(tokens: list[int], salt: bytes = b"0") -> list[bytes]:
    keys: list[bytes] = []
    extend_keys(keys, tokens, salt)
    return keys


def test_keys_tell_beginnings_apart() -> None:
    tokens = list(range(3 * PAGE + 5))
    keys = keys_of(tokens)
    assert len(keys) == 3 and keys_of(tokens[: 2 * PAGE]) == keys[:2]
    assert keys_of([*tokens[:PAGE], 0, *tokens[PAGE + 1 :]])[0] == keys[0]
    assert not set(keys_of([7, *tokens[1:]])) & set(keys)  # one token changes all pages behind it
    assert not set(keys_of(tokens, b"1")) & set(keys)
    grown = keys[:1]
    extend_keys(grown, tokens, b"0")
    assert grown == keys


def test_pages_are_shared_and_the_oldest_go_first() -> None:
    pool, keys = PagePool(6), keys_of(list(range(2 * PAGE)))
    first = pool.take(2)
    assert 0 not in first and pool.available == 3
    for page, key in zip(first, keys, strict=True):
        pool.keep(page, key)
    assert pool.share(keys) == first
    pool.give_back(first)
    assert pool.available == 3  # somebody still has them
    pool.give_back(first)
    assert (pool.available, pool.cached) == (5, 2)
    pool.take(4)  # of the two that hold lines the last of the sequence goes first
    assert pool.share(keys) == first[:1] and pool.available == 0
    with pytest.raises(pf.OutOfMemoryError, match="expected 1 pages of the cache but 0 are free"):
        pool.take(1)


def test_nothing_is_shared_after_a_change_of_weights() -> None:
    pool, keys = PagePool(4), keys_of(list(range(PAGE)))
    used, idle = pool.take(1), pool.take(1)
    pool.keep(used[0], keys[0])
    pool.keep(idle[0], b"other")
    pool.give_back(idle)
    pool.forget_all()
    assert (pool.share(keys), pool.available, pool.cached) == ([], 2, 0)
    pool.give_back(used)
    assert pool.available == 3


def test_no_page_is_lost_or_given_twice() -> None:
    rng, pool, held = random.Random(0), PagePool(20), []
    keys = [bytes([n]) for n in range(12)]
    for _ in range(3000):
        if held and rng.random() < 0.5:
            pool.give_back(held.pop(rng.randrange(len(held))))
        else:
            mine = pool.share(keys[: rng.randrange(4)])
            mine += pool.take(min(rng.randrange(5), pool.available))
            for page, key in zip(mine, keys[: rng.randrange(6)], strict=False):
                pool.keep(page, key)
            held.append(mine)
        own = {page for pages in held for page in pages}
        assert 0 not in own and len(own) + pool.available == 19
    for pages in held:
        pool.give_back(pages)
    assert pool.available == 19


def test_as_many_pages_as_there_is_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = letters_model(tmp_path)  # a context of 4 pages
    page = cache_bytes(model.config, 1, PAGE, model.kv)
    for free, count in ((1 << 40, 12), (2 * page * 7, 7), (page, 4)):  # half of it; at least one context
        monkeypatch.setattr(room, "memory_info", lambda place, free=free: (free, free))
        assert room.pages_for(model, 3) == count


def test_histograms() -> None:
    times = Times((0.1, 1.0))
    for seconds in (0.05, 0.1, 0.5, 7.0):
        times.add(seconds)
    found = times.histogram()
    assert found.counts == (2, 1, 1) and found.count == 4 and abs(found.sum - 7.65) < 1e-9
    assert found.cumulative() == [(0.1, 2), (1.0, 3), (float("inf"), 4)]
