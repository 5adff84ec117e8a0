"""A Trainer's `batch_size="auto"`: the largest batch that fits is found before the first step.

A resumed run takes the size that it began with, whatever fits now: the order of the data and the updates depend on it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from pyflame.core.device import parse_device
from pyflame.core.errors import ArgumentError, ArgumentTypeError
from pyflame.data import DataLoader
from pyflame.train.batch_size import LARGEST, BatchSize, Search, candidates_of, find_for_training

if TYPE_CHECKING:
    from pyflame.train.trainer import Trainer

_ITEMS = 64  # that batches of any size are made of


class AutoBatch:
    """Sets a trainer's loader, and with `effective` its `accumulate`. It is what a checkpoint knows as the data."""

    def __init__(self, trainer: Trainer, effective: int | None) -> None:
        loader = trainer.train_data
        if not isinstance(loader, DataLoader) or loader.batch_size is None:
            raise ArgumentTypeError(
                f"[Trainer] expected a DataLoader with a batch_size for batch_size='auto' but got "
                f"{type(loader).__name__}; only that can be made anew with another size"
            )
        if trainer.accumulate != 1:
            raise ArgumentError(
                f"[Trainer] expected no accumulate beside batch_size='auto' but got {trainer.accumulate}; give the "
                "samples per step as effective_batch, and the rest is accumulated"
            )
        self._trainer = trainer
        self._effective = effective
        self._known = False

    def find(self, options: dict[str, Any], progress: Any) -> BatchSize | None:
        """Try batches of the first items, unless the size is known. `options`: those of the trainer's Steps."""
        if self._known:
            return None
        trainer, loader = self._trainer, self._trainer.train_data
        largest = LARGEST if loader.is_stream else min(LARGEST, max(1, len(loader.dataset)))
        sizes: Sequence[int] = candidates_of(1, largest, 1, self._effective)
        sizes = sizes[1:] or sizes  # batch norm cannot train on one
        search = Search(
            _maker(loader), sizes, parse_device(trainer.device), effective=self._effective, progress=progress
        )
        found = find_for_training(
            trainer.model, trainer.optimizer, trainer.compute, trainer.loss_fn, options, (), search
        )
        self._set(found.batch, found.accumulate)
        return found

    def _set(self, batch: int, accumulate: int) -> None:
        self._known = True
        self._trainer.train_data = self._trainer.train_data.with_batch_size(batch)
        self._trainer.accumulate = accumulate

    def state_dict(self) -> dict[str, Any]:
        """The loader's position, and how many batches make a step."""
        return {**self._trainer.train_data.state_dict(), "accumulate": self._trainer.accumulate}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on with the size that the run began with."""
        if "accumulate" not in state:
            raise ArgumentError(
                "[fit] expected a run that began with batch_size='auto' but the checkpoint's did not; leave it out"
            )
        self._set(int(state["batch_size"]), int(state["accumulate"]))
        self._trainer.train_data.load_state_dict(state)


def _maker(loader: DataLoader[Any]) -> Callable[[int], Any]:
    """Batches of the dataset's first items, over and over."""
    items: list[Any] = []

    def make(count: int) -> Any:
        if not items:
            items.extend(islice(iter(loader.dataset), _ITEMS) if loader.is_stream else _first(loader.dataset))
        return loader.collate_fn([items[i % len(items)] for i in range(count)])

    return make


def _first(dataset: Any) -> list[Any]:
    return [dataset[i] for i in range(min(len(dataset), _ITEMS))]
