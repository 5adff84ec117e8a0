"""LBFGS: limited-memory BFGS, which evaluates a closure several times in a step.

Vectors stay tensors on their device; the decisions of the algorithm are made on the host, so a step cannot be jitted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyflame.core.errors import ArgumentError, TraceError
from pyflame.core.state import state
from pyflame.optim.line_search import Point, WolfeSearch
from pyflame.optim.optimizer import Optimizer, Params
from pyflame.tensor import Tensor
from pyflame.tensor.dispatch import FUNCTIONS
from pyflame.tensor.gradients import enable_grad, no_grad
from pyflame.tensor.modes import eval as evaluate


class LBFGS(Optimizer):
    """Quasi-Newton steps from the last `history_size` changes of parameters and gradients.

    `step` needs a closure that clears the gradients, computes the loss, calls backward and returns the loss. With
    `line_search_fn="strong_wolfe"` the length of each step is searched for, else it is `lr`.

    >>> optimizer = optim.LBFGS(model.parameters(), line_search_fn="strong_wolfe")
    >>> optimizer.step(closure)    # doctest: +SKIP
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:
        if line_search_fn not in (None, "strong_wolfe"):
            raise ArgumentError(f"[LBFGS] expected 'strong_wolfe' or None as line_search_fn but got {line_search_fn!r}")
        super().__init__(
            params,
            {
                "lr": lr,
                "max_iter": max_iter,
                "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
                "tolerance_grad": tolerance_grad,
                "tolerance_change": tolerance_change,
                "history_size": history_size,
                "line_search_fn": line_search_fn,
            },
        )
        if len(self.param_groups) != 1:
            raise ArgumentError(f"[LBFGS] expected one group of parameters but got {len(self.param_groups)}")
        self._params: list[Tensor] = self.param_groups[0]["params"]

    @no_grad()
    def step(self, closure: Callable[[], Any] | None = None, **options: Any) -> Any:
        """Minimise for up to max_iter iterations; gives the loss of the first evaluation."""
        if closure is None:
            raise ArgumentError("[LBFGS] expected a closure that computes the loss but got none; step(closure)")
        if state.tracer is not None:
            raise TraceError("[LBFGS] expected step() outside of a jitted function: it decides by values")
        run = enable_grad()(closure)
        group, kept = self.param_groups[0], self.state[self._params[0]]
        kept.setdefault("func_evals", 0)
        kept.setdefault("n_iter", 0)
        first = run()
        loss, gradient, evaluations = float(first), self._gradient(), 1
        kept["func_evals"] += 1
        if _largest(gradient) <= group["tolerance_grad"]:
            return first
        for number in range(1, group["max_iter"] + 1):
            kept["n_iter"] += 1
            direction = self._direction(kept, gradient, group["history_size"])
            kept["prev_flat_grad"], kept["prev_loss"] = gradient, loss
            start = min(1.0, 1.0 / _item(gradient.abs().sum())) if kept["n_iter"] == 1 else 1.0
            kept["d"], kept["t"] = direction, start * group["lr"]
            slope = _dot(gradient, direction)
            if slope > -group["tolerance_change"]:
                break
            last = number == group["max_iter"]
            before = loss
            loss, gradient, used = self._move(run, kept, Point(0.0, loss, gradient, slope), evaluations, last)
            evaluations += used
            kept["func_evals"] += used
            if last or evaluations >= group["max_eval"] or _largest(gradient) <= group["tolerance_grad"]:
                break
            moved = _largest(direction * kept["t"])
            if moved <= group["tolerance_change"] or abs(loss - before) < group["tolerance_change"]:
                break
        return first

    def _move(
        self, run: Callable[[], Any], kept: dict[str, Any], start: Point, evaluations: int, last: bool
    ) -> tuple[float, Tensor, int]:
        """Step along the direction; gives the loss and the gradient there, and how often they were evaluated."""
        group, direction = self.param_groups[0], kept["d"]
        if group["line_search_fn"] is None:
            self._add(direction, kept["t"])
            if last:  # the next step evaluates it
                return start.loss, start.gradient, 0
            return float(run()), self._gradient(), 1
        origin = [p.detach().clone() for p in self._params]

        def at(t: float) -> Point:
            self._add(direction, t)
            loss, gradient = float(run()), self._gradient()
            for p, value in zip(self._params, origin, strict=True):
                p.copy_(value)
            return Point(t, loss, gradient, _dot(gradient, direction))

        search = WolfeSearch(at, start, _largest(direction), 1e-9, group["max_eval"] - evaluations)
        found = search.run(kept["t"])
        kept["t"] = found.t
        self._add(direction, found.t)
        return found.loss, found.gradient, search.evaluations

    def _direction(self, kept: dict[str, Any], gradient: Tensor, history_size: int) -> Tensor:
        """Minus the gradient times the inverse Hessian that past steps suggest (the two-loop recursion)."""
        if kept["n_iter"] == 1:
            kept.update(old_dirs=[], old_stps=[], ro=[], H_diag=1.0)
            return -gradient
        y, s = gradient - kept["prev_flat_grad"], kept["d"] * kept["t"]
        ys = _dot(y, s)
        if ys > 1e-10:
            for name, value in (("old_dirs", y), ("old_stps", s), ("ro", 1.0 / ys)):
                kept[name] = [*kept[name], value][-history_size:]
            kept["H_diag"] = ys / _dot(y, y)
        past = list(zip(kept["old_dirs"], kept["old_stps"], kept["ro"], strict=True))
        q, weights = -gradient, []
        for y, s, ro in reversed(past):
            weights.append(FUNCTIONS["dot"](s, q) * ro)
            q = q - y * weights[-1]
        r: Tensor = q * kept["H_diag"]
        for (y, s, ro), weight in zip(past, reversed(weights), strict=True):
            r = r + s * (weight - FUNCTIONS["dot"](y, r) * ro)
        evaluate(r)
        return r

    def _gradient(self) -> Tensor:
        """The gradients of all parameters as one vector."""
        parts = [p.detach() * 0.0 if p.grad is None else p.grad.detach() for p in self._params]
        flat: Tensor = FUNCTIONS["cat"]([g.reshape(-1) for g in parts])
        evaluate(flat)
        return flat

    def _add(self, direction: Tensor, t: float) -> None:
        at = 0
        for p in self._params:
            p.add_(direction[at : at + p.numel()].reshape(p.shape), alpha=t)
            at += p.numel()
        evaluate(self._params)


def _item(value: Tensor) -> float:
    return float(value.item())


def _largest(vector: Tensor) -> float:
    return _item(vector.abs().max())


def _dot(a: Tensor, b: Tensor) -> float:
    return _item(FUNCTIONS["dot"](a, b))
