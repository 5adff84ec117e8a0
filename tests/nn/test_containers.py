"""Sequential, ModuleList, ModuleDict, ParameterList and ParameterDict beside torch's."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import pytest
import torch

import pyflame as pf
from pyflame import nn

BOTH = pytest.mark.parametrize("library", [nn, torch.nn], ids=["pyflame", "torch"])


def kinds(row: Any) -> list[tuple[str, str]]:
    return [(name, type(m).__name__) for name, m in row.named_children()]


@BOTH
def test_row_of_modules(library: Any) -> None:
    for make in (lambda *m: library.Sequential(*m), lambda *m: library.ModuleList(m)):
        row = make(library.ReLU(), library.Tanh(), library.Sigmoid())
        assert kinds(row) == [("0", "ReLU"), ("1", "Tanh"), ("2", "Sigmoid")]
        assert len(row) == 3 and row[-1] is row[2] and next(iter(row)) is row[0]
        assert type(row[1:]) is type(row) and [k for _, k in kinds(row[1:])] == ["Tanh", "Sigmoid"]
        row[0] = library.GELU()
        row.append(library.SiLU())
        row.extend([library.Mish()])
        assert [k for _, k in kinds(row)] == ["GELU", "Tanh", "Sigmoid", "SiLU", "Mish"]
        row.insert(1, library.ELU())
        assert [n for n, _ in kinds(row)] == ["0", "1", "2", "3", "4", "5"]
        assert [k for _, k in kinds(row)] == ["GELU", "ELU", "Tanh", "Sigmoid", "SiLU", "Mish"]
        del row[1]
        assert [n for n, _ in kinds(row)] == ["0", "1", "2", "3", "4"]
        del row[1:3]
        assert [k for _, k in kinds(row)] == ["GELU", "SiLU", "Mish"]
        assert type(row.pop(0)).__name__ == "GELU"
        assert kinds(row) == [("0", "SiLU"), ("1", "Mish")]
        assert [k for _, k in kinds(row + make(library.ReLU()))] == ["SiLU", "Mish", "ReLU"]
        row += make(library.ReLU())
        assert [k for _, k in kinds(row)] == ["SiLU", "Mish", "ReLU"]
        with pytest.raises(IndexError):
            row[3]


@BOTH
def test_sequential_with_names(library: Any) -> None:
    row = library.Sequential(OrderedDict(a=library.Linear(2, 3), b=library.ReLU(), c=library.Linear(3, 1)))
    assert [n for n, _ in row.named_parameters()] == ["a.weight", "a.bias", "c.weight", "c.bias"]
    assert row.a is row[0] and kinds(row[1:]) == [("b", "ReLU"), ("c", "Linear")]
    del row[1]
    assert kinds(row) == [("0", "Linear"), ("1", "Linear")]


def test_sequential_runs_in_order() -> None:
    row = nn.Sequential(nn.Flatten(), nn.Linear(4, 2), nn.ReLU())
    x = pf.randn(3, 2, 2)
    assert (row(x).numpy() == row[2](row[1](row[0](x))).numpy()).all()
    assert nn.Sequential()(x) is x


@BOTH
def test_dict_of_modules(library: Any) -> None:
    held = library.ModuleDict({"a": library.ReLU(), "b": library.Linear(2, 2)})
    held["c"] = library.Tanh()
    held.update([("a", library.Sigmoid())])
    assert list(held) == list(held.keys()) == ["a", "b", "c"] and len(held) == 3 and "b" in held and "d" not in held
    assert [type(m).__name__ for m in held.values()] == ["Sigmoid", "Linear", "Tanh"]
    assert [n for n, _ in held.items()] == ["a", "b", "c"]
    assert [n for n, _ in held.named_parameters()] == ["b.weight", "b.bias"]
    assert type(held.pop("c")).__name__ == "Tanh"
    del held["a"]
    assert list(held) == ["b"]
    held.clear()
    assert not len(held)
    with pytest.raises(KeyError):
        held["b"]


@pytest.mark.parametrize(("library", "ones"), [(nn, pf.ones), (torch.nn, torch.ones)], ids=["pyflame", "torch"])
def test_parameters_in_lists_and_dicts(library: Any, ones: Any) -> None:
    row = library.ParameterList([library.Parameter(ones(1)), ones(2)])
    row.append(ones(3))
    row += [ones(4)]
    row[0] = ones(5)
    assert [(n, tuple(p.shape)) for n, p in row.named_parameters()] == [
        ("0", (5,)),
        ("1", (2,)),
        ("2", (3,)),
        ("3", (4,)),
    ]
    assert len(row) == 4 and len(row[1:3]) == 2 and tuple(row[-1].shape) == (4,)
    assert list(row.state_dict()) == ["0", "1", "2", "3"]
    held = library.ParameterDict({"a": ones(1)})
    held["b"] = library.Parameter(ones(2))
    held.update({"c": ones(3)})
    assert list(held) == ["a", "b", "c"] and "a" in held and len(held) == 3
    assert [n for n, _ in held.named_parameters()] == ["a", "b", "c"]
    assert isinstance(held["a"], library.Parameter)
    del held["a"]
    assert tuple(held.pop("b").shape) == (2,) and next(iter(held.values())) is held["c"]


@BOTH
@pytest.mark.parametrize("name", ["ModuleDict", "ModuleList", "ParameterDict", "ParameterList"])
def test_nothing_is_added_where_nothing_is_given(library: Any, name: str) -> None:
    """A subclass may give these methods another meaning, with attributes that are there later."""

    class Other(getattr(library, name)):  # type: ignore[misc]
        def extend(self, values: Any) -> None:
            raise AssertionError

        update = extend

    assert len(Other()) == 0
