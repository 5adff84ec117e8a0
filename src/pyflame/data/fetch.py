"""How one batch is loaded; the same code in this process, in a thread and in a worker process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from pyflame.data.collate import default_collate


@dataclass
class Recipe:
    """A dataset and how its items become batches."""

    dataset: Any
    collate_fn: Callable[[Any], Any]
    batched: bool  # False: every item is a batch of its own
    batch_size: int | None = None  # of an iterable dataset
    drop_last: bool = False

    def batching(self) -> dict[str, Any]:
        """All but the dataset and the function, as plain values."""
        return {"batched": self.batched, "batch_size": self.batch_size, "drop_last": self.drop_last}

    def load(self, indices: Any) -> Any:
        """The batch of these items. Not batched: the one item with this index."""
        dataset, collate_fn = self.dataset, self.collate_fn
        if not self.batched:
            return collate_fn(dataset[indices])
        if collate_fn is default_collate and hasattr(dataset, "__getbatch__"):
            batch = dataset.__getbatch__(indices)
            if batch is not NotImplemented:
                return batch
        listed = indices.tolist() if hasattr(indices, "tolist") else list(indices)
        if hasattr(dataset, "__getitems__"):
            return collate_fn(dataset.__getitems__(listed))
        return collate_fn([dataset[i] for i in listed])

    def stream(self) -> Iterator[Any]:
        """The batches of an iterable dataset."""
        items = iter(self.dataset)
        if not self.batched:
            yield from map(self.collate_fn, items)
            return
        while batch := list(islice(items, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield self.collate_fn(batch)
