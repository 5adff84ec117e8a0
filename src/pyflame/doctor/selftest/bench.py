"""What a case of the self-test is, what it may ask for while it runs, and what comes out."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from math import isfinite
from typing import Any

import numpy as np

from pyflame.core.device import CPU, DeviceId
from pyflame.core.dtype import DType, as_dtype
from pyflame.core.errors import DeviceFaultError
from pyflame.core.generator import default_generator
from pyflame.core.state import mode
from pyflame.doctor.closeness import Array, allowed, gap
from pyflame.engine import reference, services
from pyflame.ir.graph import topological
from pyflame.tensor import Tensor
from pyflame.tensor.creation import tensor

SHOWN = 3  # failures of one case that are told


class Skip(Exception):
    """A case that this device has nothing for; the text says why."""


@dataclass
class Result:
    """What a case found. `ulp` and `error`: the worst of all its comparisons."""

    family: str
    name: str
    checks: int = 0
    failures: list[str] = field(default_factory=list)
    skipped: str = ""
    ulp: float = 0.0
    error: float = 0.0
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)
    fault: bool = False  # the device broke: it needs a new process

    @property
    def passed(self) -> bool:
        return not self.failures and not self.skipped

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Case:
    """One thing to try: a function that computes on the bench's device and checks it."""

    family: str
    name: str
    run: Callable[[Bench], None]

    @property
    def id(self) -> str:
        return f"{self.family}/{self.name}"


class Bench:
    """A device, the sizes that suit it, and the comparisons of one case."""

    def __init__(self, device: DeviceId, result: Result, seed: int = 0) -> None:
        self.device, self.result = device, result
        self.small = device.kind == "sim"  # every instruction is interpreted
        self.random = np.random.default_rng(seed)

    def check(
        self, what: str, got: Any, want: Any, *, terms: int = 1, looser: float = 1.0, floor: float = 0.0, eps: float = 0
    ) -> None:
        """Compare with what is right; a difference is a failure of the case, which goes on."""
        array = got.detach().numpy() if isinstance(got, Tensor) else np.asarray(got)
        right = want.detach().numpy() if isinstance(want, Tensor) else np.asarray(want)
        dtype: DType = as_dtype(array.dtype)
        limit = looser * allowed(dtype, terms, eps)
        found = gap(array, right, dtype, floor)
        self.result.checks += 1
        if isfinite(found.ulp):
            self.result.ulp = max(self.result.ulp, found.ulp)
            self.result.error = max(self.result.error, found.error)
        if found.error > limit:
            words = found.words or f"error {found.error:.3g} ({found.ulp:.3g} ulp), allowed {limit:.3g}"
            self.fail(f"{what}: {words}")

    def same(self, what: str, got: Any, want: Any) -> None:
        """Every bit."""
        left, right = (v.detach().numpy() if isinstance(v, Tensor) else np.asarray(v) for v in (got, want))
        self.result.checks += 1
        if left.shape != right.shape or left.dtype != right.dtype:
            self.fail(f"{what}: {left.dtype}{list(left.shape)} instead of {right.dtype}{list(right.shape)}")
        elif left.tobytes() != right.tobytes():
            rows = [np.ascontiguousarray(a).reshape(-1).view(np.uint8).reshape(-1, a.itemsize) for a in (left, right)]
            wrong = int((rows[0] != rows[1]).any(1).sum())
            self.fail(f"{what}: {wrong} of {left.size} elements have other bits")

    def true(self, what: str, holds: bool) -> None:
        self.result.checks += 1
        if not holds:
            self.fail(what)

    def fail(self, what: str) -> None:
        if len(self.result.failures) < SHOWN:
            self.result.failures.append(what)

    def here(self, array: Array) -> Tensor:
        """An array on the device."""
        return tensor(array, device=str(self.device))

    def normal(self, *shape: int, dtype: DType) -> Array:
        """Normal numbers that the dtype can hold."""
        return self.random.standard_normal(shape).astype(dtype.numpy)

    def right(self, fn: Callable[..., Tensor], *arrays: Array) -> Array:
        """A function's result in float64: of the CPU, or of the NumPy references where the CPU itself is tested."""
        wide = [a.astype(np.float64) if as_dtype(a.dtype).is_float else a for a in arrays]
        with mode(device=CPU):
            out = fn(*[tensor(a) for a in wide])
            if self.device is not CPU:
                return out.detach().numpy()
            node = out._node
            return reference.compute(topological([node]))[node]


def run_case(case: Case, device: DeviceId, seed: int = 0) -> Result:
    """Run one case; whatever goes wrong in it is a failure in its result.

    >>> run_case(find_case("copies/bytes"), parse_device("cpu")).passed
    True
    """
    result = Result(case.family, case.name)
    begin = time.perf_counter()
    try:
        default_generator.manual_seed(seed)
        with mode(device=device, eager=False, autocast=None, grad_enabled=True):
            case.run(Bench(device, result, seed))
    except Skip as why:
        result.skipped = str(why)
    except Exception as error:  # of whatever kind: the next case may still be right
        result.failures.append(_told(error))
        result.fault = isinstance(error, DeviceFaultError)
        if result.fault and device.kind == "sim":
            services.reset_device(device)
    result.seconds = time.perf_counter() - begin
    return result


def _told(error: Exception) -> str:
    """An error's words, and the innermost line of ours that it came through."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {str(error)[:600]} ({last.filename.rpartition('pyflame/')[2]}:{last.lineno})"
