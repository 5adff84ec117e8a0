"""AMDOptimizer: changes to a model that make it faster or smaller, each measured and left out where it does not pay.

A change stays if its results differ from the unchanged model's by no more than the level allows, and if the model is
not slower with it. Times of a simulator mean nothing, so there only results decide.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from pyflame.backends import models
from pyflame.backends.amd.backend import AMDBackend
from pyflame.backends.amd.rewrites import ALLOWED, REWRITES, Situation, Subject
from pyflame.core.config import LEVELS, AMDConfig
from pyflame.core.dtype import float32
from pyflame.core.errors import AMDConfigurationError, AMDOptimizationError, PyFlameError, suggest
from pyflame.doctor.closeness import gap

SLOWER = 1.1  # a change may cost so much: less cannot be told from noise
_RUNS, _SECONDS = (4, 20), 0.5  # that two models are timed for, side by side; the first run plans, the second captures
_SIZES = (8, 32, 64, 224)  # of images that are tried on a model whose size of image is not known
_LAYERS = ("Linear", "Conv1d", "Conv2d", "Conv3d", "Embedding")


@dataclass(frozen=True)
class Measured:
    """A change: `outcome` is applied, refused or skipped, `why` says what was done or why not. `deviation` is the worst
    error against the unchanged model, `gain` how many times as fast as before; None: not measured."""

    name: str
    outcome: str
    why: str
    deviation: float | None = None
    gain: float | None = None


@dataclass(frozen=True)
class Running:
    """A subject that runs, and the worst error of its results."""

    deviation: float
    call: Callable[[], Any]


class AMDOptimizer:
    """Optimises models of torch.nn and of pyflame.nn for a device.

    >>> optimizer = AMDOptimizer(AMDConfig(device="cpu", optimization_level="conservative"))
    >>> model = optimizer.optimize(nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)).eval())  # doctest: +SKIP
    >>> optimizer.get_optimization_summary()["optimizations_applied"]                          # doctest: +SKIP
    ['operator_fusion', 'batch_norm_folding']
    """

    def __init__(self, config: AMDConfig | None = None) -> None:
        self.backend = AMDBackend(config)
        self.config = self.backend.config
        self._level = self.config.optimization_level
        self._changes: list[Measured] = []
        self._total: tuple[float | None, float | None] = (None, None)

    def optimize(self, model: Any, level: str | None = None, example_inputs: Sequence[Any] | None = None) -> Any:
        """A model that gives the same results within what the level allows, prepared for the device.

        `example_inputs`: arguments to measure with; without them they are made up, where the first layer tells what it
        takes. The model itself stays as it is; one in training mode keeps its parameters, so it can be trained, and is
        measured in evaluation mode, since dropout differs from run to run.
        """
        self._level = self._checked(level or self.config.optimization_level)
        start = models.origin(model)
        library = models.library_of(start, "optimize")
        inputs = example_inputs if example_inputs is not None else _made_up(start, library)
        want = models.on_host(_plain(start, library, models.mapped(tuple(inputs), lambda t: t.to("cpu"))))
        there = models.mapped(tuple(inputs), lambda t: t.to(self.backend.device))
        at = Situation(library, there, self.config, self.backend.target, bool(start.training))
        settings = replace(self.backend.settings(), fuse=False)
        own = models.cast(start if at.training else models.copied(start), settings.dtype)
        subject, self._changes = Subject(own, settings), []
        first = current = self._running(subject, at, want)
        for name, rewrite in REWRITES[self._level].items():
            candidate, what = rewrite(subject, at)
            if candidate is None:
                self._changes.append(Measured(name, "skipped", what))
                continue
            found, change = self._judged(name, what, candidate, at, want, current)
            self._changes.append(change)
            if found is not None:
                subject, current = candidate, found
        self._total = current.deviation, self._gain(first, current)
        return models.prepare(subject.model, subject.settings)

    def get_optimization_summary(self) -> dict[str, Any]:
        """What the last `optimize` did: the changes with what was measured of each, and of all together."""
        target = self.backend.target
        named = {o: [c.name for c in self._changes if c.outcome == o] for o in ("applied", "refused", "skipped")}
        return {
            "level": self._level,
            "device": str(self.backend.id),
            "architecture": self.backend.architecture.value,
            "matrix_cores_enabled": bool(target.matrix_core) and self.config.enable_matrix_cores is not False,
            "optimizations_applied": named["applied"],
            "optimizations_refused": named["refused"],
            "optimizations_skipped": named["skipped"],
            "changes": [asdict(c) for c in self._changes],
            "allowed_deviation": ALLOWED[self._level],
            "deviation": self._total[0],
            "gain": self._total[1],
        }

    # --- measuring ----------------------------------------------------------------------------------------------------

    def _judged(
        self, name: str, what: str, candidate: Subject, at: Situation, want: list[Any], before: Running
    ) -> tuple[Running | None, Measured]:
        """A candidate that stays, running, and what to say of it."""
        try:
            found = self._running(candidate, at, want)
        except (PyFlameError, RuntimeError) as error:
            return None, Measured(name, "refused", f"{what}: it does not run: {str(error).splitlines()[0]}")
        # a configured precision may be coarser than the level allows: then no change may make that worse
        allowed = max(ALLOWED[self._level], 1.1 * before.deviation)
        if not found.deviation <= allowed:
            why = f"{what}: results differ by {found.deviation:.2g}, and {self._level} allows {allowed:.2g}"
            return None, Measured(name, "refused", why, found.deviation)
        gain = self._gain(before, found)
        if gain is not None and gain * SLOWER < 1:
            return None, Measured(name, "refused", f"{what}: it is slower", found.deviation, gain)
        return found, Measured(name, "applied", what, found.deviation, gain)

    def _running(self, subject: Subject, at: Situation, want: list[Any]) -> Running:
        """A subject that has run, so that it is compiled, and the worst error of its results."""
        own = models.copied(subject.model).eval() if at.training else subject.model
        run = models.prepare(own, subject.settings)

        def call() -> Any:
            with at.library.no_grad():
                return models.finished(run(*at.inputs))

        got = models.on_host(call())
        if len(got) != len(want):
            raise AMDOptimizationError(f"[optimize] expected {len(want)} results but got {len(got)}")
        return Running(max((gap(g, w, float32).error for g, w in zip(got, want, strict=True)), default=0.0), call)

    def _gain(self, before: Running, after: Running) -> float | None:
        """How many times as fast it is as before; None where times mean nothing."""
        if self.backend.id.kind == "sim":
            return None
        times: list[tuple[float, float]] = []
        started = time.perf_counter()
        while len(times) < _RUNS[0] or (len(times) < _RUNS[1] and time.perf_counter() - started < _SECONDS):
            times.append((_seconds(before.call), _seconds(after.call)))  # side by side: a machine's speed drifts
        return min(b for b, _ in times) / min(a for _, a in times)

    def _checked(self, level: str) -> str:
        if level not in LEVELS:
            raise AMDConfigurationError(
                f"[optimize] expected a level of {', '.join(LEVELS)} but got {level!r}{suggest(str(level), LEVELS)}"
            )
        return level


def _plain(model: Any, library: Any, inputs: Sequence[Any]) -> Any:
    """What the model gives as it is, on the CPU."""
    plain = models.copied(model).eval()
    try:
        with library.no_grad():
            return models.finished(plain.to("cpu")(*inputs))
    except (PyFlameError, RuntimeError, TypeError, ValueError) as error:
        raise AMDOptimizationError(
            f"[optimize] expected inputs that the model takes but it failed on them: {error}; pass example_inputs="
        ) from error


def _seconds(call: Callable[[], Any]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def _made_up(model: Any, library: Any) -> tuple[Any, ...]:
    """Inputs for a model whose first layer tells what it takes."""
    first = next((m for m in model.modules() if type(m).__name__ in _LAYERS), None)
    dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), None)
    for shape in _shapes(first):
        if type(first).__name__ == "Embedding":
            x = library.zeros(*shape, dtype=library.int64)
        else:
            values = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
            x = library.from_numpy(values).to(dtype)
        try:
            _plain(model, library, (x,))
        except AMDOptimizationError:
            continue  # another size may do
        return (x,)
    raise AMDOptimizationError(
        "[optimize] expected a model whose first layer (linear, convolution, embedding) tells what it takes "
        f"but got {type(model).__name__}; pass example_inputs=(x,)"
    )


def _shapes(layer: Any) -> list[tuple[int, ...]]:
    """The shapes of inputs that are worth a try."""
    kind = type(layer).__name__
    if kind == "Linear":
        return [(4, layer.in_features), (4, 2, layer.in_features)]
    if kind == "Embedding":
        return [(2, 8)]
    if kind.startswith("Conv"):
        axes = int(kind[4])
        return [(2, layer.in_channels, *(size,) * axes) for size in _SIZES]
    return []
