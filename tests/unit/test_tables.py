"""Tables are bounded: a program that sees a new shape at every step may run for days."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import pyflame as pf
from pyflame.engine import evaluate, views
from pyflame.ir import opdef, recipe
from pyflame.ir.node import Meta
from pyflame.tensor import basic_index, known_calls


def _sizes() -> tuple[int, ...]:
    gc.collect()
    inferred = len(opdef._inferred) + len(opdef._old_inferred)
    plans = len(evaluate._plans) + len(evaluate._old_plans)
    signatures, recipes = len(opdef._signatures) + len(opdef._old_signatures), len(known_calls.RECIPES.table)
    return signatures, inferred, len(Meta._all), plans, len(views.LAYOUTS), recipes


@pytest.mark.slow(16)
def test_new_shapes_at_every_step_leave_the_tables_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opdef, "MAX_KNOWN", 300)
    monkeypatch.setattr(opdef, "_signatures", {})
    monkeypatch.setattr(opdef, "_old_signatures", {})
    monkeypatch.setattr(basic_index, "_MAX_KNOWN", 50)
    monkeypatch.setattr(opdef, "_inferred", {})
    monkeypatch.setattr(opdef, "_old_inferred", {})
    monkeypatch.setattr(basic_index, "_MAX_KNOWN", 300)
    monkeypatch.setattr(basic_index, "KNOWN", {})
    monkeypatch.setattr(recipe, "MAX_KNOWN", 300)
    known_calls.RECIPES.table.clear()
    monkeypatch.setattr(views, "LAYOUTS", {})
    monkeypatch.setattr(views, "_MAX_KNOWN", 50)
    monkeypatch.setenv("PYFLAME_PLAN_CACHE", "20")
    evaluate.clear_plans()
    data = pf.tensor(np.arange(4000, dtype=np.float32))

    def steps(first: int, last: int) -> None:
        for n in range(first, last):
            assert (data[:n] * 2).sum().item() == n * (n - 1)

    steps(1, 400)
    before = _sizes()
    steps(400, 1200)
    after = _sizes()
    assert max(after[:2]) <= 600
    assert after[3] <= 20
    assert after[4] <= 50
    assert 0 < after[5] <= 300 + 64
    # recipes go all at once, so how many there are depends on what came before
    assert all(b <= 1.2 * a + 100 for a, b in zip(before[:-1], after[:-1], strict=True))


def test_what_is_used_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opdef, "MAX_KNOWN", 50)
    monkeypatch.setattr(opdef, "_signatures", {})
    monkeypatch.setattr(opdef, "_old_signatures", {})
    used = opdef.signature("used", 1)
    unused = opdef.signature("unused", 1)
    for n in range(1000):
        assert opdef.signature("new", n) not in (used, unused)
        assert opdef.signature("used", 1) == used
    assert opdef.signature("unused", 1) > used


def test_equal_metas_are_one_object_for_as_long_as_one_is_used() -> None:
    x = pf.zeros(7, 11, 13)
    assert pf.ones(7, 11, 13)._node.meta is x._node.meta
