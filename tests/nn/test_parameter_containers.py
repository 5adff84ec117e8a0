"""ParameterList and ParameterDict against PyTorch's: what they hold, in which order, and what they offer."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

import pyflame as pf


def _facts(m: Any) -> list[Any]:
    listed = m.nn.ParameterList([m.ones(2), "text", 3])
    listed.append(m.zeros(1))
    listed[1] = m.ones(3)
    listed += [None]
    keyed = m.nn.ParameterDict({"z": m.ones(2), "a": 5})
    keyed["m"] = m.zeros(3)
    keyed |= {"b": m.ones(1)}
    other = m.nn.ParameterDict([("z", m.zeros(4)), ("y", m.ones(1))])
    joined = keyed | other
    facts: list[Any] = [
        [type(value).__name__ for value in listed],
        list(listed.state_dict()),
        [name for name, _ in listed.named_parameters()],
        (list(keyed), list(reversed(keyed)), list(joined), list(keyed.copy()), "a" in keyed, len(keyed)),
        (
            keyed.get("q", 7),
            keyed.setdefault("q", 8),
            keyed["q"],
            keyed.pop("a"),
            keyed.popitem()[0],
            list(keyed.keys()),
        ),
        [type(value).__name__ for value in keyed.values()],
        [name for name, _ in joined.named_parameters()],
        tuple(joined["z"].shape),
        [name for name, _ in keyed.fromkeys(["k"], m.ones(1)).named_parameters()],
        [type(value).__name__ for value in copy.deepcopy(listed)],
        list(pickle.loads(pickle.dumps(joined))),
    ]
    del joined["z"]
    keyed.clear()
    return [*facts, list(joined.state_dict()), len(keyed), list(keyed.state_dict())]


def test_they_hold_what_pytorchs_hold() -> None:
    assert _facts(pf) == _facts(torch)


@pytest.mark.parametrize("m", [torch, pf])
def test_they_are_not_called(m: Any) -> None:
    with pytest.raises(RuntimeError):
        m.nn.ParameterList([m.ones(1)])(m.ones(1))
    with pytest.raises(TypeError):
        m.nn.ParameterList(3)
    with pytest.raises(TypeError):
        m.nn.ParameterDict()[3] = m.ones(1)
