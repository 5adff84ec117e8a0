"""A line search for LBFGS: a step length that satisfies the strong Wolfe conditions.

Points are bracketed first, then the bracket is narrowed by cubic interpolation, in the order in which PyTorch does it
(after Schmidt's minFunc), so that both take the same steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from pyflame.tensor import Tensor

C1, C2 = 1e-4, 0.9  # how much the value must fall, how much the slope must flatten


@dataclass(frozen=True)
class Point:
    """A step length, the loss there, its gradient, and the slope along the direction."""

    t: float
    loss: float
    gradient: Tensor
    slope: float


def cubic_minimum(a: Point, b: Point, bounds: tuple[float, float] | None = None) -> float:
    """Where the cubic through two points, with their slopes, is smallest; the middle where it has no minimum."""
    low, high = bounds if bounds is not None else (min(a.t, b.t), max(a.t, b.t))
    d1 = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.t - b.t)
    square = d1**2 - a.slope * b.slope
    if not square >= 0:
        return (low + high) / 2.0
    d2 = math.sqrt(square)
    near, far = (a, b) if a.t <= b.t else (b, a)
    divisor = far.slope - near.slope + 2 * d2
    if divisor == 0:
        return math.nan
    return min(max(far.t - (far.t - near.t) * ((far.slope + d2 - d1) / divisor), low), high)


class WolfeSearch:
    """One search from a start along a direction. `at(t)` evaluates a step length."""

    def __init__(self, at: Callable[[float], Point], start: Point, longest: float, tolerance: float, most: int) -> None:
        self.at, self.start, self.longest, self.tolerance, self.most = at, start, longest, tolerance, most
        self.evaluations = 0
        self.rounds = 0

    def _evaluate(self, t: float) -> Point:
        self.evaluations += 1
        return self.at(t)

    def _too_high(self, point: Point) -> bool:
        return point.loss > self.start.loss + C1 * point.t * self.start.slope

    def _flat(self, point: Point) -> bool:
        return abs(point.slope) <= -C2 * self.start.slope

    def run(self, t: float) -> Point:
        """The point to step to, from a first guess of its length."""
        found = self._bracket(t)
        return found if isinstance(found, Point) else self._zoom(*found)

    def _bracket(self, t: float) -> Point | tuple[Point, Point]:
        """A point that satisfies both conditions, or two with one between them."""
        before, new = self.start, self._evaluate(t)
        while self.rounds < self.most:
            if self._too_high(new) or (self.rounds > 1 and new.loss >= before.loss):
                return before, new
            if self._flat(new):
                return new
            if new.slope >= 0:
                return before, new
            bounds = (new.t + 0.01 * (new.t - before.t), new.t * 10)
            before, new = new, self._evaluate(cubic_minimum(before, new, bounds))
            self.rounds += 1
        return self.start, new

    def _zoom(self, first: Point, second: Point) -> Point:
        """Narrow the bracket until a point satisfies both conditions or nothing moves any more."""
        ends = [first, second]
        low, high = (0, 1) if first.loss <= second.loss else (1, 0)
        stuck = False
        while self.rounds < self.most:
            if abs(ends[1].t - ends[0].t) * self.longest < self.tolerance:
                break
            t, stuck = self._inside(cubic_minimum(ends[0], ends[1]), ends, stuck)
            new = self._evaluate(t)
            self.rounds += 1
            if self._too_high(new) or new.loss >= ends[low].loss:
                ends[high] = new
                low, high = (0, 1) if ends[0].loss <= ends[1].loss else (1, 0)
                continue
            done = self._flat(new)
            if not done and new.slope * (ends[high].t - ends[low].t) >= 0:
                ends[high] = ends[low]
            ends[low] = new
            if done:
                break
        return ends[low]

    @staticmethod
    def _inside(t: float, ends: list[Point], stuck: bool) -> tuple[float, bool]:
        """A trial that is not too near an end twice in a row."""
        least, most = sorted(point.t for point in ends)
        margin = 0.1 * (most - least)
        if not min(most - t, t - least) < margin:
            return t, False
        if not (stuck or t >= most or t <= least):
            return t, True
        return (most - margin if abs(t - most) < abs(t - least) else least + margin), False
