"""find_batch_size: the largest batch that fits into a device's memory, found by running it.

Sizes are doubled until one does not fit, then the gap is halved. Nothing of it stays: weights, optimiser state,
buffers, gradients, random state and memory are as they were.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from pyflame.core.device import DeviceId, parse_device
from pyflame.core.errors import ArgumentError, ArgumentTypeError, OutOfMemoryError, type_name
from pyflame.core.sizes import human_bytes
from pyflame.core.state import state
from pyflame.engine.devices import get_device
from pyflame.engine.memory import pool_of
from pyflame.nn import Module
from pyflame.optim import Optimizer
from pyflame.tensor import Tensor
from pyflame.tensor.modes import eval as evaluate
from pyflame.train import batches
from pyflame.train.probe import ABOVE, Probe, Prober, StillSteps, Trial, inference, stepping, training
from pyflame.train.unchanged import unchanged
from pyflame.transform.tree import flatten, is_tensor, rebuild

LARGEST = 4096


@dataclass(frozen=True)
class BatchSize:
    """The batch that fits, and how that was found. `int(found)` is the batch; printed it is a table of the probes.

    `accumulate`: batches per update that make up the effective batch; `usable`: bytes that the device's pool may hold,
    with the margin taken off `memory`; `base`: bytes that were in use before, weights and optimiser state among them.
    """

    batch: int
    accumulate: int
    device: str
    memory: int
    usable: int
    base: int
    probes: tuple[Probe, ...]

    @property
    def effective(self) -> int:
        """Samples per update of the weights."""
        return self.batch * self.accumulate

    @property
    def bytes_per_sample(self) -> float:
        """Between the smallest and the largest batch that fit, or of the only one."""
        fit = sorted((p.batch, p.peak) for p in self.probes if p.peak is not None)
        (small, low), (large, high) = fit[0], fit[-1]
        return (high - low) / (large - small) if large > small else (high - self.base) / large

    def __int__(self) -> int:
        return self.batch

    __index__ = __int__

    def __str__(self) -> str:
        rows: list[tuple[str, ...]] = [("batch", "peak", "held", "estimate", "seconds", "")]
        for p in self.probes:
            sizes = ["-" if n is None else human_bytes(n) for n in (p.peak, p.held, p.estimate)]
            outcome = "fits" if p.fits else "not run" if p.why == ABOVE else "out of memory"
            rows.append((f"{p.batch:,}", *sizes, f"{p.seconds:.2f}", outcome))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(c.rjust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows]
        times = f" x {self.accumulate} accumulated = {self.effective:,}" if self.accumulate > 1 else ""
        lines.append(
            f"batch {self.batch:,}{times} on {self.device}: {human_bytes(self.bytes_per_sample)} a sample, "
            f"{human_bytes(self.base)} before, {human_bytes(self.usable)} usable of {human_bytes(self.memory)}"
        )
        return "\n".join(lines)


def find_batch_size(
    target: Module | Callable[[Any], Any],
    batch: Any,
    *,
    loss_fn: Callable[..., Tensor] | None = None,
    optimizer: Optimizer | None = None,
    scaler: Any = None,
    autocast: object = None,
    clip_norm: float | None = None,
    target_key: str = "labels",
    keep: Sequence[Any] = (),
    device: object = None,
    memory: int | None = None,
    margin: float = 0.1,
    smallest: int = 1,
    largest: int | None = None,
    multiple_of: int = 1,
    effective: int | None = None,
    jit: bool = True,
    progress: bool | Console = True,
) -> BatchSize:
    """The largest batch that fits into memory.

    - `target`: a module, for inference (in evaluation mode); with an `optimizer`, for training, as a Trainer with the
      same arguments does it; or a function of a batch that does a step. What such a function changes it must be told:
      `keep=(model, optimizer)` are put back afterwards, as is anything else with state_dict and load_state_dict.
    - `batch`: a function that makes a batch of n samples, or an example whose first sample is repeated.
    - `memory`: bytes that tensors may take on the device, if less than what is free. On the CPU that is what the
      machine, or the control group of a container, can give without swapping. `margin`: the share to leave free.
    - `effective`: samples per update. Then the batch divides it and the rest is accumulated.
    - `smallest` (batch norm trains on 2 or more), `largest` (4096, or `effective`), `multiple_of`: which are tried.

    >>> found = pf.train.find_batch_size(model, lambda n: (pf.rand(n, 784), pf.zeros(n, dtype=pf.int64)),
    ...                                  loss_fn=nn.CrossEntropyLoss(), optimizer=optimizer, effective=256)
    >>> found.batch, found.accumulate
    (64, 4)
    """
    candidates = candidates_of(smallest, largest, multiple_of, effective)
    search = Search(_maker(batch), candidates, _place(target, device), memory, margin, effective, progress)
    if optimizer is not None:
        if not isinstance(target, Module):
            raise ArgumentTypeError(
                f"[find_batch_size] expected a module beside an optimizer but got {type_name(target)}; a function "
                "that does the whole step takes keep=(model, optimizer) instead"
            )
        return find_for_training(
            target, optimizer, partial(batches.computed, target, loss_fn, target_key=target_key), loss_fn,
            {"autocast_dtype": autocast, "scaler": scaler, "clip_norm": clip_norm, "compiled": jit}, keep, search,
        )  # fmt: skip
    trial = inference(target, autocast, jit) if isinstance(target, Module) else stepping(target)
    still = [target] if isinstance(target, Module) else []
    with unchanged(keep), unchanged(still, weights=False):
        return search.run(trial)


def find_for_training(
    model: Module,
    optimizer: Optimizer,
    compute: Callable[[Any], Any],
    loss_fn: Any,
    options: dict[str, Any],
    keep: Sequence[Any],
    search: Search,
) -> BatchSize:
    """The batch for training steps of `compute`, made with `options` (see Steps)."""
    make = partial(StillSteps, compute, model, optimizer, {}, **options)
    trial = training(model, make, search.effective is not None, search.device)
    moved = [model, optimizer] if optimizer._pf_steps_itself else []  # such a step may not know `skip`
    kept = [*keep, *moved, *(v for v in (options["scaler"], loss_fn) if hasattr(v, "load_state_dict"))]
    with unchanged(kept), unchanged([model, optimizer], weights=False):
        return search.run(trial)


def candidates_of(smallest: int, largest: int | None, multiple_of: int, effective: int | None) -> Sequence[int]:
    """The batches that may be tried, from the smallest on."""
    given = {"smallest": smallest, "largest": largest, "multiple_of": multiple_of, "effective": effective}
    for name, value in given.items():
        if value is not None and (not isinstance(value, int) or value < 1):
            raise ArgumentError(f"[find_batch_size] expected {name} of at least 1 but got {value!r}")
    most = min(n for n in (largest or LARGEST, effective) if n is not None)
    found = range(-(-smallest // multiple_of) * multiple_of, most + 1, multiple_of)
    if effective is not None:
        found = [n for n in found if effective % n == 0]  # type: ignore[assignment]
    if not found:
        raise ArgumentError(
            f"[find_batch_size] expected a batch of {smallest} to {most} that is a multiple of {multiple_of}"
            f"{'' if effective is None else f' and divides {effective}'} but there is none"
        )
    return found


@dataclass(frozen=True)
class Search:
    """Where to look for a batch: its maker, the sizes, the device and what it may take of its memory."""

    make_batch: Callable[[int], Any]
    candidates: Sequence[int]
    device: DeviceId
    memory: int | None = None
    margin: float = 0.1
    effective: int | None = None
    progress: bool | Console = True

    def run(self, trial: Trial) -> BatchSize:
        """Grow by doubling, then halve the gap between what fits and what does not."""
        if not 0 <= self.margin < 1:
            raise ArgumentError(f"[find_batch_size] expected a margin from 0 to below 1 but got {self.margin}")
        if self.memory is not None and self.memory < 1:
            raise ArgumentError(f"[find_batch_size] expected memory of at least 1 byte but got {self.memory}")
        most, sizes = _memory(self.device, self.memory), self.candidates
        prober = Prober(trial, self._made, self.device, int(most * (1 - self.margin)))
        fits, fails, at = -1, len(sizes), 0
        with _Shown(self.progress, prober, len(sizes)) as shown:
            while fails - fits > 1:
                if shown.probe(sizes[at]).fits:
                    fits = at
                else:
                    fails = at
                growing = fails == len(sizes)
                at = min(bisect_left(sizes, 2 * sizes[at]), fails - 1) if growing else (fits + fails) // 2
        if fits < 0:
            raise OutOfMemoryError(
                f"[find_batch_size] expected memory for a batch of {sizes[0]} on {self.device} but "
                f"{human_bytes(prober.usable)} do not do: {prober.probes[-1].why}; use a smaller model, dtype or "
                "optimiser, checkpointing, or a device with more memory"
            )
        times = 1 if self.effective is None else self.effective // sizes[fits]
        return BatchSize(
            sizes[fits], times, str(self.device), most, prober.usable, prober.base, tuple(prober.probes)
        )  # fmt: skip

    def _made(self, count: int) -> Any:
        """A batch in the device's memory."""
        batch = batches.prepared(self.make_batch(count), self.device)
        tensors: list[Tensor] = []
        flatten(batch, tensors, is_tensor)
        evaluate(tensors)
        return batch


class _Shown:
    """Probes on a console: a bar in a terminal, a line for each elsewhere."""

    def __init__(self, wanted: bool | Console, prober: Prober, candidates: int) -> None:
        self._console = wanted if isinstance(wanted, Console) else Console(quiet=not wanted)
        self._prober = prober
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[text]}"))
        self._bar = Progress(*columns, console=self._console, transient=True, auto_refresh=False)
        # at most so many to grow, and then to halve
        self._task = self._bar.add_task("batch size", total=2 * candidates.bit_length(), text="")

    def __enter__(self) -> _Shown:
        if self._console.is_terminal:
            self._bar.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._bar.stop()

    def probe(self, batch: int) -> Probe:
        if self._console.is_terminal:
            self._bar.update(self._task, text=f"trying {batch:,}")
            self._bar.refresh()
        found = self._prober.probe(batch)
        took = found.peak if found.peak is not None else found.estimate
        words = f"batch {batch:,} {'fits' if found.fits else 'does not fit'}"
        words += "" if took is None else f": {human_bytes(took)} of {human_bytes(self._prober.usable)}"
        if self._console.is_terminal:
            self._bar.update(self._task, advance=1, text=words)
            self._bar.refresh()
        else:
            self._console.print(words, highlight=False, markup=False, soft_wrap=True)
        return found


def _place(target: Any, device: object) -> DeviceId:
    """Where it runs: where it was told, or where the module's parameters lie."""
    if device is not None:
        return parse_device(device)
    first = next(iter(target.parameters()), None) if isinstance(target, Module) else None
    return state.device if first is None else parse_device(first.device)


def _memory(device: DeviceId, wanted: int | None) -> int:
    """Bytes that the device's pool may hold: what it holds already and what is free."""
    opened, pool = get_device(device), pool_of("find_batch_size", device)
    opened.empty_cache()
    found = pool.stats.reserved + opened.memory_info()[0]
    limits = [found, *(n for n in (wanted, pool.limit) if n is not None)]
    return min(limits)


def _maker(batch: Any) -> Callable[[int], Any]:
    """What makes a batch of n samples, of a function or of an example."""
    if callable(batch):
        return batch  # type: ignore[no-any-return]
    leaves: list[Tensor] = []
    flatten(batches.prepared(batch, None), leaves, is_tensor)
    samples = [np.array(leaf.numpy()[:1]) for leaf in leaves]
    if not samples:
        raise ArgumentTypeError(
            f"[find_batch_size] expected an example batch of tensors or a function that makes one but got "
            f"{type(batch).__name__}"
        )

    def make(count: int) -> Any:
        return rebuild(batch, batches.is_array, iter([np.repeat(one, count, axis=0) for one in samples]))

    return make
