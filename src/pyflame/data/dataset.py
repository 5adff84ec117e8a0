"""Datasets: what can be asked for an item by its index, or iterated.

Any object with `__getitem__` and `__len__` is a dataset. Two more methods make one faster: `__getitems__(indices)`
gives the items of a batch as a list (PyTorch's protocol), `__getbatch__(indices)` gives the finished batch, stacked (or
NotImplemented); a loader with the default collate_fn uses the latter.
"""

from __future__ import annotations

import bisect
import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any, Generic, TypeVar

import numpy as np

from pyflame.core.device import CPU
from pyflame.core.errors import ArgumentError, IndexError, ShapeError
from pyflame.core.generator import Generator
from pyflame.core.state import mode
from pyflame.data.memory import empty, host_array
from pyflame.data.seeds import check_seed, draw_seed, rng
from pyflame.ir import is_number
from pyflame.tensor import Tensor
from pyflame.tensor.creation import as_tensor, from_numpy

Item = TypeVar("Item", covariant=True)


class Dataset(Generic[Item]):
    """Base of datasets whose items have an index.

    >>> class Squares(Dataset):
    ...     def __len__(self):
    ...         return 10
    ...     def __getitem__(self, i):
    ...         return i * i
    """

    def __getitem__(self, index: Any) -> Item:
        raise NotImplementedError(f"{type(self).__name__} must define __getitem__")

    def __add__(self, other: Any) -> ConcatDataset[Any]:
        return ConcatDataset([self, other])


class IterableDataset(Dataset[Item]):
    """Base of datasets that are streams. In a worker `get_worker_info()` tells which part of the stream to give.

    >>> class Lines(IterableDataset):
    ...     def __iter__(self):
    ...         info = get_worker_info()
    ...         first, step = (info.id, info.num_workers) if info else (0, 1)
    ...         return iter(range(first, 100, step))
    """

    def __iter__(self) -> Iterator[Item]:
        raise NotImplementedError(f"{type(self).__name__} must define __iter__")

    def __add__(self, other: Any) -> ChainDataset[Any]:  # type: ignore[override]
        return ChainDataset([self, other])


class TensorDataset(Dataset[tuple[Tensor, ...]]):
    """Tensors or arrays of equal length; item i holds row i of each.

    The rows of a batch are gathered in one step. Arrays are not copied: do not write to them while they are in use.

    >>> x, y = TensorDataset(np.eye(3), [0, 1, 2])[1]
    >>> y
    tensor(1)
    """

    def __init__(self, *tensors: Any) -> None:
        if not tensors:
            raise ArgumentError("[TensorDataset] expected at least one tensor but got none")
        with mode(device=CPU):  # arrays stay on the host; batches go where they are used
            given = [as_tensor(t) for t in tensors]
        self._arrays = tuple(t.numpy() for t in given)
        self.tensors = tuple(t._snapshot() for t in given)  # cells of its own: the caller's may take other values
        for number, t in enumerate(self.tensors):
            if t.ndim == 0 or len(t) != len(self.tensors[0]):
                raise ShapeError(
                    f"[TensorDataset] expected tensors of equal length but tensor 0 has shape {self.tensors[0].shape} "
                    f"and tensor {number} has {t.shape}"
                )

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        return tuple(from_numpy(np.asarray(a[index])) for a in self._arrays)

    def __getitems__(self, indices: Sequence[int]) -> list[tuple[Tensor, ...]]:
        return list(zip(*(_rows(a, indices) for a in self._arrays), strict=True))

    def __getbatch__(self, indices: Any) -> list[Tensor]:
        return [_gather(a, indices) for a in self._arrays]

    def __len__(self) -> int:
        return len(self._arrays[0])

    def __getstate__(self) -> tuple[Tensor, ...]:
        return self.tensors

    def __setstate__(self, tensors: tuple[Tensor, ...]) -> None:
        self.__init__(*tensors)  # type: ignore[misc]


def _gather(array: np.ndarray[Any, Any], indices: Any) -> Tensor:
    """The rows with these indices."""
    if isinstance(indices, range) and indices.step == 1:  # neighbours: a view will do
        return from_numpy(array[indices.start : indices.stop])
    at = np.asarray(indices, np.int64)
    n = len(array)
    if at.size and not (-n <= at.min() and at.max() < n):
        raise IndexError(
            f"[TensorDataset] expected indices in [{-n}, {n - 1}] but got {at.min()} to {at.max()}; check the sampler"
        )
    # "wrap" because NumPy buffers `out` under "raise"; out of range was refused above.
    out = empty((len(at), *array.shape[1:]), array.dtype)
    return from_numpy(np.take(array, at, axis=0, out=out, mode="wrap"))


def _rows(array: np.ndarray[Any, Any], indices: Any) -> Iterator[Tensor]:
    gathered = host_array(_gather(array, indices))
    return (from_numpy(gathered[i : i + 1].reshape(gathered.shape[1:])) for i in range(len(gathered)))


class StackDataset(Dataset[Any]):
    """Several datasets side by side: item i is the tuple (or, with keywords, the dict) of their items i.

    >>> StackDataset(image=[1, 2], label=["a", "b"])[0]
    {'image': 1, 'label': 'a'}
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if bool(args) == bool(kwargs):
            raise ArgumentError("[StackDataset] expected datasets either by position or by keyword")
        self.datasets: Any = kwargs or args
        lengths = [len(d) for d in self._parts()]
        if len(set(lengths)) > 1:
            raise ShapeError(f"[StackDataset] expected datasets of equal length but got {lengths}")

    def _parts(self) -> list[Any]:
        return list(self.datasets.values() if isinstance(self.datasets, dict) else self.datasets)

    def _join(self, parts: list[Any]) -> Any:
        return dict(zip(self.datasets, parts, strict=True)) if isinstance(self.datasets, dict) else tuple(parts)

    def __getitem__(self, index: Any) -> Any:
        return self._join([d[index] for d in self._parts()])

    def __getbatch__(self, indices: Any) -> Any:
        batches = [d.__getbatch__(indices) if hasattr(d, "__getbatch__") else NotImplemented for d in self._parts()]
        if any(b is NotImplemented for b in batches):
            return NotImplemented
        return self._join(batches) if isinstance(self.datasets, dict) else batches

    def __len__(self) -> int:
        return len(self._parts()[0])


class ConcatDataset(Dataset[Item]):
    """Datasets one after the other.

    >>> len(ConcatDataset([[1, 2], [3]]))
    3
    """

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise ArgumentError("[ConcatDataset] expected at least one dataset but got none")
        if any(isinstance(d, IterableDataset) for d in self.datasets):
            raise ArgumentError("[ConcatDataset] expected datasets with an index but got a stream; use ChainDataset")
        self.cumulative_sizes = list(accumulate(len(d) for d in self.datasets))

    def __getitem__(self, index: int) -> Any:
        at = index + len(self) if index < 0 else index
        if not 0 <= at < len(self):
            raise IndexError(f"[ConcatDataset] expected an index in [{-len(self)}, {len(self) - 1}] but got {index}")
        part = bisect.bisect_right(self.cumulative_sizes, at)
        return self.datasets[part][at - (self.cumulative_sizes[part - 1] if part else 0)]

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]


class ChainDataset(IterableDataset[Item]):
    """Streams one after the other.

    >>> list(ChainDataset([[1, 2], [3]]))
    [1, 2, 3]
    """

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = list(datasets)

    def __iter__(self) -> Iterator[Any]:
        for dataset in self.datasets:
            yield from dataset

    def __len__(self) -> int:
        return sum(len(d) for d in self.datasets)


class Subset(Dataset[Item]):
    """Some items of another dataset.

    >>> Subset("abcd", [3, 0])[0]
    'd'
    """

    def __init__(self, dataset: Any, indices: Sequence[int]) -> None:
        self.dataset = dataset
        self.indices = indices

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, (list, tuple)):
            return self.dataset[[self.indices[i] for i in index]]
        return self.dataset[self.indices[index]]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        mine = [self.indices[i] for i in indices]
        many = getattr(self.dataset, "__getitems__", None)
        return list(many(mine)) if many is not None else [self.dataset[i] for i in mine]

    def __getbatch__(self, indices: Any) -> Any:
        if not hasattr(self.dataset, "__getbatch__"):
            return NotImplemented
        if isinstance(self.indices, np.ndarray):
            return self.dataset.__getbatch__(self.indices[np.asarray(indices)])
        return self.dataset.__getbatch__([self.indices[i] for i in indices])

    def __len__(self) -> int:
        return len(self.indices)


def random_split(
    dataset: Any, lengths: Sequence[int | float], generator: Generator | None = None, *, seed: int | None = None
) -> list[Subset[Any]]:
    """Split a dataset at random into parts of these lengths, or of these fractions if they add up to 1.

    >>> [len(part) for part in random_split(range(10), [0.75, 0.25], seed=0)]
    [8, 2]
    """
    check_seed("random_split", seed, generator)
    n = len(dataset)
    sizes = list(lengths) if isinstance(lengths, Iterable) else []
    if not sizes or not all(is_number(s) for s in sizes):
        raise ArgumentError(f"[random_split] expected a list of lengths or of fractions but got {lengths!r}")
    if math.isclose(sum(sizes), 1):
        if any(not 0 <= f <= 1 for f in sizes):
            raise ArgumentError(f"[random_split] expected fractions between 0 and 1 but got {lengths}")
        sizes = [math.floor(n * f) for f in sizes]
        for i in range(n - int(sum(sizes))):  # what rounding left over goes to the first parts in turn
            sizes[i % len(sizes)] += 1
        if 0 in sizes:
            warnings.warn(f"[random_split] part {sizes.index(0)} of {n} items is empty", stacklevel=2)
    if sum(sizes) != n or any(s < 0 or s != int(s) for s in sizes):
        raise ArgumentError(f"[random_split] expected lengths that add up to {n}, or fractions to 1, but got {lengths}")
    order = rng(draw_seed(generator) if seed is None else int(seed)).permutation(n).tolist()
    ends = list(accumulate(int(s) for s in sizes))
    return [Subset(dataset, order[end - int(size) : end]) for size, end in zip(sizes, ends, strict=True)]
