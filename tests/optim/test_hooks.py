"""Hooks of optimisers, against PyTorch's."""

from __future__ import annotations

import copy
import importlib
from typing import Any

import pytest

import pyflame as pf
from tests.needs import needs_torch, torch

BOTH = pytest.mark.parametrize("library", [pf, pytest.param(torch, marks=needs_torch)], ids=["pyflame", "torch"])


def stepped(library: Any, optimizer: Any, p: Any, *args: Any) -> list[float]:
    p.grad = library.ones(2)
    optimizer.step(*args)
    return p.tolist()  # type: ignore[no-any-return]


@BOTH
def test_hooks_run_before_and_after_a_step_until_they_are_removed(library: Any) -> None:
    p = library.nn.Parameter(library.zeros(2))
    optimizer = library.optim.SGD([p], lr=1.0)
    seen: list[Any] = []

    def before(o: Any, args: Any, kwargs: Any) -> Any:
        seen.append(("before", o is optimizer, len(args), p.tolist()))
        return (o, lambda: seen.append("closure")), kwargs

    first = optimizer.register_step_pre_hook(before)
    last = optimizer.register_step_post_hook(lambda o, args, kwargs: seen.append(("after", len(args), p.tolist())))
    assert stepped(library, optimizer, p) == [-1, -1]
    assert seen == [("before", True, 1, [0, 0]), "closure", ("after", 2, [-1, -1])]
    first.remove()
    last.remove()
    stepped(library, optimizer, p)
    assert len(seen) == 3
    optimizer.register_step_pre_hook(lambda *given: 3)
    with pytest.raises(pf.ArgumentError if library is pf else RuntimeError, match="None or"):
        optimizer.step()


@BOTH
def test_hooks_of_all_optimisers_and_of_one_with_a_step_of_its_own(library: Any) -> None:
    names = importlib.import_module(f"{library.__name__}.optim.optimizer")
    seen: list[str] = []

    class Doubled(library.optim.SGD):  # type: ignore[misc,name-defined]
        def step(self, closure: Any = None) -> Any:
            super().step()
            return super().step()

    p = library.nn.Parameter(library.zeros(2))
    optimizer = Doubled([p], lr=1.0)
    handles = [
        names.register_optimizer_step_pre_hook(lambda *given: seen.append("any before")),
        names.register_optimizer_step_post_hook(lambda *given: seen.append("any after")),
    ]
    optimizer.register_step_pre_hook(lambda *given: seen.append("before"))
    optimizer._patch_step_function()
    assert stepped(library, optimizer, p) == [-2, -2]
    for handle in handles:
        handle.remove()
    assert seen[:2] == ["any before", "before"] and seen[-1] == "any after"
    if library is pf:  # PyTorch hooks a base's step as well once there was one of the base
        assert len(seen) == 3


@BOTH
def test_hooks_of_state_dicts(library: Any) -> None:
    p = library.nn.Parameter(library.zeros(2))
    optimizer = library.optim.Adam([p], lr=1.0)
    seen: list[str] = []
    optimizer.register_state_dict_pre_hook(lambda o: seen.append("saving"))
    optimizer.register_state_dict_post_hook(lambda o, saved: {**saved, "note": 1})
    optimizer.register_state_dict_pre_hook(lambda o: seen.append("first"), prepend=True)
    saved = optimizer.state_dict()
    assert saved["note"] == 1 and seen == ["first", "saving"]

    def halved(o: Any, given: Any) -> Any:
        groups = [{**group, "lr": group["lr"] / 2} for group in given["param_groups"]]
        return {**given, "param_groups": groups}

    optimizer.register_load_state_dict_pre_hook(halved)
    optimizer.register_load_state_dict_post_hook(lambda o: seen.append(f"loaded {o.param_groups[0]['lr']}"))
    optimizer.load_state_dict(saved)
    assert seen[-1] == "loaded 0.5"
    copy.deepcopy(optimizer).load_state_dict(saved)  # hooks are not copied
    assert len(seen) == 3
