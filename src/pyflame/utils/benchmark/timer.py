"""Timer: runs a statement many times, and waits for its results.

Ops build a graph that is computed when somebody asks for values. Nobody asks here, so what a statement leaves is
evaluated after each run: the value of its last expression, and the names that it assigns. Devices are waited for at the
end of each measurement.
"""

from __future__ import annotations

import ast
import textwrap
import time
from collections.abc import Callable
from typing import Any

from pyflame.core.errors import ArgumentError
from pyflame.tensor import modes
from pyflame.tensor.devices import synchronize
from pyflame.tensor.torch_names import get_num_threads, set_num_threads
from pyflame.utils.benchmark.measurement import Measurement, TaskSpec

Clock = Callable[[], float]


def timer() -> float:
    """The clock, after all devices have finished."""
    synchronize()
    return time.perf_counter()


class Timer:
    """Measures how long a statement takes, after `setup`, with the names in `globals`. Results are computed, not only
    planned. Threads are those of the CPU device: another `num_threads` than it has is warned about.

    >>> t = pf.utils.benchmark.Timer("x @ x", globals={"x": pf.ones(8, 8)}, label="square")
    >>> t.timeit(5).number_per_run
    5
    """

    def __init__(
        self,
        stmt: str = "pass",
        setup: str = "pass",
        global_setup: str = "",
        timer: Clock = timer,
        globals: dict[str, Any] | None = None,
        label: str | None = None,
        sub_label: str | None = None,
        description: str | None = None,
        env: str | None = None,
        num_threads: int | None = None,
        language: str = "python",
    ) -> None:
        if str(language).lower() not in ("python", "language.python"):
            raise ArgumentError(f"[Timer] expected statements in Python but got language={language!r}")
        if num_threads is not None:
            set_num_threads(num_threads)
        stmt, setup = textwrap.dedent(stmt).strip(), textwrap.dedent(setup).strip()
        self._spec = TaskSpec(stmt, setup, global_setup, label, sub_label, description, env, get_num_threads())
        self._clock = timer
        self._run = _compiled(stmt, setup, dict(globals or {}))

    def _time(self, number: int) -> float:
        return float(self._run(number, self._clock))

    def timeit(self, number: int = 1_000_000) -> Measurement:
        """Run the statement this often, after a short warm-up, as one measurement."""
        self._time(max(number // 100, 2))
        return Measurement(number, [self._time(number)], self._spec)

    def blocked_autorange(
        self, callback: Callable[[int, float], Any] | None = None, min_run_time: float = 0.2
    ) -> Measurement:
        """Measure for this many seconds, in blocks so long that the clock itself costs little of them."""
        number = self._block(min_run_time)
        times = _measured(lambda: self._time(number), number, callback, lambda taken: sum(taken) >= min_run_time)
        return Measurement(number, times, self._spec)

    def adaptive_autorange(
        self,
        threshold: float = 0.1,
        *,
        min_run_time: float = 0.01,
        max_run_time: float = 10.0,
        callback: Callable[[int, float], Any] | None = None,
    ) -> Measurement:
        """Measure until the quartiles are closer than `threshold` of the median, or for max_run_time seconds."""
        number = self._block(0.05)

        def enough(taken: list[float]) -> bool:
            steady = len(taken) > 3 and Measurement(number, taken, self._spec).meets_confidence(threshold)
            return sum(taken) >= max_run_time or (sum(taken) >= min_run_time and steady)

        return Measurement(number, _measured(lambda: self._time(number), number, callback, enough), self._spec)

    def _block(self, min_run_time: float) -> int:
        """How many runs take about a thousandth of the time, or so long that the clock costs little of it."""
        clock = min(_elapsed(self._clock) for _ in range(5))
        number = 1
        while True:
            taken = self._time(number)
            if taken >= min_run_time or (taken > min_run_time / 1000 and clock / taken <= 1e-4):
                return number
            number *= 10


def _elapsed(clock: Clock) -> float:
    start = clock()
    return max(clock() - start, 1e-9)


def _measured(
    measure: Callable[[], float], number: int, callback: Any, enough: Callable[[list[float]], bool]
) -> list[float]:
    times: list[float] = []
    while not times or not enough(times):
        times.append(measure())
        if callback is not None:
            callback(number, times[-1])
    return times


def _assigned(body: list[ast.stmt]) -> list[str]:
    """The names that are surely bound when these statements have run."""
    targets = [t for s in body if isinstance(s, ast.Assign) for t in s.targets]
    targets += [s.target for s in body if isinstance(s, ast.AugAssign)]
    return [n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]


_LOOP = """
def _inner(_number, _clock):
    pass
    _start = _clock()
    for _ in range(_number):
        pass
    return _clock() - _start
"""


def _compiled(stmt: str, setup: str, names: dict[str, Any]) -> Callable[[int, Clock], float]:
    """A function that runs setup once, and the statement many times, each followed by evaluating what it left."""
    body = ast.parse(stmt, "<timeit-stmt>").body
    left = sorted(set(_assigned(body)))
    if body and isinstance(last := body[-1], ast.Expr):
        body[-1] = ast.copy_location(ast.Assign([ast.Name("_value", ast.Store())], last.value), last)
        left.append("_value")
    tree = ast.parse(_LOOP)
    inner: Any = tree.body[0]
    inner.body[0:1] = ast.parse(setup, "<timeit-setup>").body
    loop = next(node for node in inner.body if isinstance(node, ast.For) and getattr(node.target, "id", "") == "_")
    loop.body = [*body, *ast.parse(f"_evaluate([{', '.join(left)}])" if left else "pass").body]
    space = {**names, "_evaluate": modes.eval}
    exec(compile(ast.fix_missing_locations(tree), "<timeit>", "exec"), space)
    return space["_inner"]  # type: ignore[no-any-return]
