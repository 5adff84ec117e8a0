"""One trial run of a batch size: what it takes of a device's memory, measured, beside what its plans say it takes.

A probe runs under a limit of the device's pool, so that one that is too large ends in an OutOfMemoryError before the
driver or the system is out of memory. Functions are jitted anew for each probe: plans and captured graphs go with it.
"""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from pyflame.core.device import DeviceId
from pyflame.core.errors import DeviceError, TraceError
from pyflame.engine.devices import get_device
from pyflame.engine.memory import pool_of
from pyflame.nn import Module
from pyflame.tensor import Tensor
from pyflame.tensor.creation import tensor
from pyflame.tensor.gradients import no_grad
from pyflame.tensor.modes import eval as evaluate
from pyflame.train import batches
from pyflame.train.steps import Steps
from pyflame.transform import autocast, jit
from pyflame.transform.explain import call_bytes
from pyflame.transform.jit import Jitted
from pyflame.transform.tree import flatten, is_tensor

ABOVE = "the estimate is above the limit"
RUNS = 3  # a GPU captures a function at its second or third call, and a graph holds memory of its own
Call = tuple[Callable[..., Any], tuple[Any, ...]]
Calls = Callable[[Any], list[Call]]  # what is done to a batch, as functions and their arguments
Trial = Callable[[], Calls]  # makes new ones, with nothing planned yet


@dataclass(frozen=True)
class Probe:
    """A batch that was tried. `peak`: the most bytes in use while it ran; `held`: the most that the pool held, with
    blocks it had cached; `estimate`: what was expected. One with an estimate above the limit is not run."""

    batch: int
    fits: bool
    peak: int | None
    held: int | None
    estimate: int | None
    seconds: float
    why: str = ""  # it does not fit


class StillSteps(Steps):
    """Training steps that compute everything and change no weight and no state of the optimiser: `skip` is true."""

    still: Tensor | None = None

    def _update(self) -> Tensor | None:
        if self.still is None:
            return super()._update()
        if self.scaler is not None:
            self.scaler.unscale_(self.optimizer)
        norm = self._clipped()
        self.optimizer.step(skip=self.still)
        if self.scaler is not None:
            self.scaler.update()
        return norm


def training(model: Module, make: Callable[[], StillSteps], accumulate: bool, device: DeviceId) -> Trial:
    """Steps of a training run. `make`: new ones for each probe."""

    def trial() -> Calls:
        model.train()
        steps = make()
        if not steps.optimizer._pf_steps_itself:  # one that does may not know `skip`; it is put back afterwards
            steps.still = tensor(True, device=device)
        if not accumulate:
            return lambda batch: [(steps.step, (batch,))]
        steps.start_accumulating()
        return lambda batch: [(steps.micro, (batch,)), (steps.apply, (0.5,))]

    return trial


def inference(model: Module, dtype: object, compiled: bool) -> Trial:
    """The model's answers, in evaluation mode."""

    def forward(batch: Any) -> Any:
        with no_grad(), autocast(dtype) if dtype is not None else contextlib.nullcontext():
            return batches.call(model, batch)

    def trial() -> Calls:
        model.eval()
        function = jit(forward) if compiled else forward
        return lambda batch: [(function, (batch,))]

    return trial


def stepping(step: Callable[[Any], Any]) -> Trial:
    """A function of the user's. One that is jitted is jitted anew: its own traces stay as they are."""

    def trial() -> Calls:
        function = Jitted(step.fn, step.static, step.static_names, False) if isinstance(step, Jitted) else step
        return lambda batch: [(function, (batch,))]

    return trial


class _Above(Exception):
    """A batch is not run: its plans take more than there is."""

    def __init__(self, estimate: int) -> None:
        super().__init__()
        self.estimate = estimate


class Prober:
    """Runs probes on one device. `usable`: the bytes that its pool may hold."""

    def __init__(self, trial: Trial, make_batch: Callable[[int], Any], device: DeviceId, usable: int) -> None:
        self._trial = trial
        self._make = make_batch
        self._place = device
        self._device = get_device(device)
        self._pool = pool_of("find_batch_size", device)
        self.usable = usable
        gc.collect()  # what is garbage now shall not be taken for the model
        self.base = self._pool.stats.allocated  # weights, optimiser state and whatever else is there already
        self.probes: list[Probe] = []
        self._outside = 0  # of the batch

    def probe(self, batch: int) -> Probe:
        """Run a batch, unless the estimate is beyond the limit; all memory is given back."""
        started = time.perf_counter()
        self._give_back()
        estimate = self._extended(batch)
        why = ""
        try:
            if self._device.gpu is None and estimate is not None and estimate > self.usable:
                why = ABOVE  # a batch is host memory, too: it is not even made
            else:
                with self._limited():
                    estimate = self._tried(batch, estimate)
        except _Above as error:
            why, estimate = ABOVE, error.estimate
        except MemoryError as error:  # OutOfMemoryError is one, and so is the host's
            why = str(error) or "the host has no more memory"
            error.__traceback__ = None  # its frames hold what has filled the memory
        stats = self._pool.stats
        peak, held = stats.peak_allocated + self._outside, stats.peak_reserved + self._outside
        seconds = time.perf_counter() - started
        self.probes.append(
            Probe(batch, False, None, None, estimate, seconds, why)
            if why
            else Probe(batch, True, peak, held, estimate, seconds)
        )
        self._give_back()
        return self.probes[-1]

    def _tried(self, batch: int, extended: int | None) -> int | None:
        """Make a batch, look at its plans, and run it; gives the estimate."""
        given, calls = self._make(batch), self._trial()
        self._outside = _outside(given)
        assert self._pool.limit is not None
        self._pool.limit -= self._outside
        self._pool.reset_peak()
        planned = self._planned(calls(given))
        if planned is not None and planned > self.usable:
            raise _Above(planned)
        self._run(calls(given))
        return extended if planned is None else planned

    def _run(self, calls: list[Call]) -> None:
        held: list[Any] = [None] * len(calls)
        for _ in range(RUNS):
            for number, (function, args) in enumerate(calls):
                held[number] = function(*args)  # the result before lives until then, as in a program's loop
                tensors: list[Tensor] = []
                flatten(held[number], tensors, is_tensor)
                evaluate(tensors)
            self._device.synchronize()

    def _planned(self, calls: list[Call]) -> int | None:
        """From the plans of jitted functions, made and not run."""
        jitted = [(function, args) for function, args in calls if isinstance(function, Jitted)]
        if len(jitted) == len(calls):
            with contextlib.suppress(TraceError, DeviceError):  # it reads values, or crosses devices
                needed = max(call_bytes(function, self._place, *args) for function, args in jitted)
                return self._pool.stats.allocated + self._outside + needed
        return None

    def _extended(self, batch: int) -> int | None:
        """From the last two probes that fitted, as a line."""
        known = [(p.batch, p.peak) for p in self.probes if p.peak is not None][-2:]
        if len(known) < 2:
            return None
        (a, low), (b, high) = known
        return round(high + (high - low) * (batch - b) / (b - a))

    @contextlib.contextmanager
    def _limited(self) -> Iterator[None]:
        before, self._pool.limit = self._pool.limit, self.usable
        try:
            yield
        finally:
            self._pool.limit = before

    def _give_back(self) -> None:
        if self._pool.stats.allocated > self.base:
            gc.collect()  # traces and their cells refer to each other
        self._device.empty_cache()


def _outside(batch: Any) -> int:
    """Bytes of a batch in memory of the host that is not the pool's: an array's, which a tensor shares."""
    tensors: list[Tensor] = []
    flatten(batch, tensors, is_tensor)
    places = [(t.nbytes, t._node.data.storage) for t in tensors]
    return sum(nbytes for nbytes, storage in places if storage.on_host and storage.read_only)
