"""Datasets and collation against torch's."""

from __future__ import annotations

import collections
import dataclasses
import pickle
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest
import torch
from torch.utils import data as peer

import pyflame as pf
from pyflame.data import (
    ChainDataset,
    ConcatDataset,
    Dataset,
    StackDataset,
    Subset,
    TensorDataset,
    default_collate,
    default_convert,
    random_split,
)


def plain(value: Any) -> Any:
    """Tensors of either library as (dtype name, nested list), structure kept."""
    if isinstance(value, pf.Tensor):
        return value.dtype.name.rstrip("_"), value.tolist()
    if isinstance(value, torch.Tensor):
        return str(value.dtype).removeprefix("torch."), value.tolist()
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [type(value).__name__, *map(plain, value)]
    return value


X, Y = np.arange(24, dtype=np.float32).reshape(6, 2, 2), np.arange(6)


def test_tensor_dataset() -> None:
    ours, theirs = TensorDataset(X, pf.tensor(Y)), peer.TensorDataset(torch.tensor(X), torch.tensor(Y))
    assert len(ours) == len(theirs)
    assert plain(ours[2]) == plain(theirs[2])
    assert plain(ours[1:3]) == plain(theirs[1:3])
    assert plain(ours[-1]) == plain(theirs[-1])
    assert [plain(i) for i in ours.__getitems__([4, 0])] == [plain(theirs[4]), plain(theirs[0])]
    assert plain(ours.__getbatch__(np.array([5, -6]))) == plain(default_collate([ours[5], ours[0]]))
    assert plain(pickle.loads(pickle.dumps(ours))[3]) == plain(ours[3])


def test_tensor_dataset_keeps_its_values() -> None:
    x = pf.arange(3)
    data = TensorDataset(x)
    x += 1
    assert data[0][0].item() == 0 and data.tensors[0].tolist() == [0, 1, 2]


def test_tensor_dataset_refuses() -> None:
    with pytest.raises(pf.ShapeError, match="equal length"):
        TensorDataset(X, Y[:3])
    with pytest.raises(pf.ShapeError, match="equal length"):
        TensorDataset(pf.tensor(1.0))
    with pytest.raises(pf.ArgumentError, match="at least one"):
        TensorDataset()
    with pytest.raises(IndexError, match=r"expected indices in \[-6, 5\] but got 2 to 6"):
        TensorDataset(X).__getbatch__([2, 6])


def test_combined_datasets() -> None:
    parts = [list("abc"), list("de")]
    ours, theirs = ConcatDataset(parts), peer.ConcatDataset(parts)
    assert [ours[i] for i in range(-5, 5)] == [theirs[i] for i in range(-5, 5)]
    assert ours.cumulative_sizes == theirs.cumulative_sizes
    with pytest.raises(IndexError, match="got 5"):
        ours[5]
    assert list(ChainDataset(parts)) == list("abcde") and len(ChainDataset(parts)) == 5
    assert Subset("abcdef", [5, 0])[1] == "a" and Subset("abcdef", [5, 0]).__getitems__([1, 0]) == ["a", "f"]
    assert StackDataset([1, 2], "ab")[1] == peer.StackDataset([1, 2], "ab")[1]
    assert StackDataset(x=[1, 2], y="ab")[0] == {"x": 1, "y": "a"}
    with pytest.raises(pf.ShapeError, match="equal length"):
        StackDataset([1], [1, 2])

    class Squares(Dataset[int]):
        def __len__(self) -> int:
            return 4

        def __getitem__(self, i: int) -> int:
            return i * i

    assert (Squares() + Squares())[5] == 1


def test_fast_paths_give_what_items_give() -> None:
    data = TensorDataset(X, Y)
    at = np.array([3, 1, 1])
    for fast in (Subset(data, [5, 4, 3, 2]), Subset(data, np.array([5, 4, 3, 2])), StackDataset(a=data, b=data)):
        assert plain(fast.__getbatch__(at)) == plain(default_collate([fast[i] for i in at]))
    assert Subset([1, 2], [0]).__getbatch__(at) is NotImplemented
    assert StackDataset(data, list("abcdef")).__getbatch__(at) is NotImplemented


@pytest.mark.parametrize("lengths", [[7, 3], [0.5, 0.5], [0.7, 0.2, 0.1], [0.34, 0.33, 0.33]])
def test_random_split(lengths: list[float]) -> None:
    ours = random_split(range(10), lengths, seed=3)
    assert [len(s) for s in ours] == [len(s) for s in peer.random_split(range(10), lengths)]
    assert sorted(i for part in ours for i in part) == list(range(10))
    again = random_split(range(10), lengths, seed=3)
    assert [s.indices for s in ours] == [s.indices for s in again]
    pf.manual_seed(1)
    drawn = random_split(range(10), lengths)
    pf.manual_seed(1)
    assert [s.indices for s in drawn] == [s.indices for s in random_split(range(10), lengths)]
    assert [s.indices for s in drawn] != [s.indices for s in random_split(range(10), lengths)]


def test_random_split_refuses() -> None:
    with pytest.raises(pf.ArgumentError, match="add up to 10"):
        random_split(range(10), [5, 4])
    for lengths in (3, None, "ab", [None], []):
        with pytest.raises(pf.ArgumentError, match="expected a list of lengths or of fractions"):
            random_split(range(10), lengths)
    with pytest.raises(pf.ArgumentError, match="both"):
        random_split(range(2), [1, 1], pf.Generator(0), seed=1)
    with pytest.warns(UserWarning, match="part 1 of 1 items is empty"):
        random_split(range(1), [0.5, 0.5])


class Point(NamedTuple):
    x: Any
    y: Any


COLLATED = {
    "arrays": [np.ones((2, 3), np.float32), np.zeros((2, 3), np.float32)],
    "0-d": [np.float64(1.5), np.float64(2.5)],
    "ints": [1, 2, 3],
    "bools": [True, False],
    "strings": ["a", "b"],
    "bytes": [b"a", b"b"],
    "tuples": [(np.ones(2), 1), (np.zeros(2), 2)],
    "lists": [[1, 2], [3, 4]],
    "dicts": [{"x": np.ones(2, np.int32), "y": {"z": "a"}}, {"x": np.zeros(2, np.int32), "y": {"z": "b"}}],
    "namedtuples": [Point(1, np.ones(1)), Point(2, np.ones(1))],
    "ordered": [collections.OrderedDict(a=1), collections.OrderedDict(a=2)],
    "default": [collections.defaultdict(int, a=1), collections.defaultdict(int, a=2)],
}


@pytest.mark.parametrize("name", COLLATED)
def test_collate_as_torch_does(name: str) -> None:
    batch = COLLATED[name]
    ours, theirs = default_collate(batch), peer.default_collate(batch)
    assert plain(ours) == plain(theirs)
    assert type(ours) is type(theirs) or isinstance(ours, pf.Tensor)
    if name not in ("0-d", "ints", "bools"):
        converted = default_convert(batch[0])
        assert plain(converted) == plain(peer._utils.collate.default_convert(batch[0]))


@dataclasses.dataclass(frozen=True)
class Sample:
    image: Any
    label: int
    length: int = dataclasses.field(init=False, default=7)


def test_collate_beyond_torch() -> None:
    batch = default_collate([Sample(np.ones(2), 3), Sample(np.zeros(2), 4)])
    assert isinstance(batch, Sample) and batch.image.shape == (2, 2) and batch.label.tolist() == [3, 4]
    assert batch.length.tolist() == [7, 7]
    assert default_convert(Sample(np.ones(2), 3)).image.shape == (2,)
    floats = default_collate([1.5, 2, 3.0])
    assert floats.dtype is pf.float64 and floats.tolist() == [1.5, 2.0, 3.0]
    assert default_collate([True, 2]).tolist() == [1, 2]
    half = default_collate([np.ones(2, ml_dtypes.bfloat16), np.zeros(2, ml_dtypes.bfloat16)])
    assert half.dtype is pf.bfloat16 and half.shape == (2, 2)
    assert plain(default_collate([torch.ones(2), torch.zeros(2)])) == ("float32", [[1, 1], [0, 0]])
    lazy = default_collate([pf.ones(2) * 2, pf.ones(2) * 3])
    assert lazy.tolist() == [[2, 2], [3, 3]]
    leaf = pf.ones(2, requires_grad=True)
    default_collate([leaf * 2, leaf * 3]).sum().backward()
    assert leaf.grad.tolist() == [5, 5]


@pytest.mark.parametrize(
    ("batch", "error", "text"),
    [
        (
            [{"a": [np.ones(2), np.ones(3)]}, {"a": [np.ones(2), np.ones(4)]}],
            pf.ShapeError,
            r"at \['a'\]\[1\] but item 0",
        ),
        ([[1, 2], [3]], pf.ShapeError, "equal length but got lengths"),
        ([{"a": 1}, {"b": 1}], pf.ShapeError, r"got \['a'\] and \['b'\]"),
        ([np.ones(2), 3], pf.DTypeError, "item 0 is ndarray and item 1 is int; give"),
        ([(1,), print], pf.DTypeError, "item 0 is tuple and item 1 is builtin"),
        ([(None,), (None,)], pf.DTypeError, r"NoneType at \[0\]; give a collate_fn"),
        ([1, "a"], pf.DTypeError, "expected numbers"),
        ([2**70, 1], pf.DTypeError, "64 bits"),
        ([np.array("a"), np.array("b")], pf.DTypeError, "expected numbers"),
        ([], pf.DTypeError, "at least one item"),
    ],
)
def test_collate_refuses(batch: list[Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        default_collate(batch)
