"""A GPU that is emulated, with libraries whose work is NumPy's: plans with library calls, timed as a test says."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame.core.device import DeviceId
from pyflame.engine import devices
from pyflame.engine.evaluate import clear_plans
from pyflame.engine.libraries import decide as libraries
from pyflame.engine.libraries import tuner
from pyflame.engine.libraries.calls import LtProducts, MiopenConvolutions
from tests.emulated import EmulatedDriver, emulated_device
from tests.libs.hosts import HostDnn, Spoil, host_lt

NAME = DeviceId("rocm", 60)


class Bench:
    """The emulated GPU and what its libraries were asked for."""

    def __init__(self, patch: pytest.MonkeyPatch, folder: Path) -> None:
        self.patch = patch
        self.file = folder / "tuning.json"
        self.spoil: Spoil = lambda result: None
        self.device = devices._open[NAME]
        self.use({"matmul": {"hipBLASLt": self.lt}, "conv_general": {"HostDNN": self.dnn}})

    def lt(self, device: Any) -> LtProducts:
        self.products = host_lt(device.driver, lambda result: self.spoil(result))
        return LtProducts(self.products)

    def dnn(self, device: Any) -> MiopenConvolutions:
        self.convolutions = HostDnn(device.driver)
        return MiopenConvolutions(self.convolutions)

    def use(self, openers: dict[str, Any]) -> None:
        """Start again with these libraries, as a new process would."""
        self.patch.setitem(libraries.OPENERS, EmulatedDriver, openers)
        self.forget()

    def forget(self) -> None:
        """All plans and choices, but for those on disk."""
        clear_plans()
        libraries._libraries.pop(self.device, None)
        self.patch.setattr(tuner, "_shared", [tuner.Tuner(self.file)])

    @property
    def records(self) -> dict[str, Any]:
        entries: dict[str, Any] = json.loads(self.file.read_text())["entries"]
        return entries


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Bench]:
    if NAME not in devices._open:
        devices._open[NAME] = emulated_device(NAME.index, "gfx942")
    made = Bench(monkeypatch, tmp_path)
    with pf.device(str(NAME)):
        yield made
    clear_plans()
    libraries._libraries.pop(made.device, None)


def prefer(monkeypatch: pytest.MonkeyPatch, library: bool) -> None:
    """Times as if a library, or our own kernels, were always the faster."""

    def seconds(self: Any, best: float) -> float:
        has_call = any(not isinstance(run, list) for run in self._executable._runs)
        self.start()
        return 1e-3 if has_call == library else 2e-3

    monkeypatch.setattr("pyflame.engine.libraries.trial.Trial.seconds", seconds)


def random(*shape: int, dtype: str = "float32") -> np.ndarray[Any, Any]:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


def explained(program: Callable[[], pf.Tensor]) -> tuple[pf.transform.explain.Report, np.ndarray[Any, Any]]:
    out = program()
    report = pf.explain(out, run=False)
    return report, np.array(out.numpy())
