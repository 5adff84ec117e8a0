"""`torch.compile(..., options={...})`: what a user may choose."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyflame.core.device import DeviceId, parse_device
from pyflame.core.errors import ArgumentError, ArgumentTypeError, suggest
from pyflame.core.state import mode
from pyflame.engine.devices import get_device


@dataclass(frozen=True)
class Options:
    """`device`: where to compute, None: where the tensors are. `deterministic`: as `pf.deterministic()`.
    `libraries`: as PYFLAME_LIBRARIES, for these graphs alone. `fuse`: False launches each op for itself;
    `matrix_cores`: False builds kernels without matrix instructions; `tune`: False times no implementations."""

    device: DeviceId | None = None
    deterministic: bool = False
    libraries: str | None = None
    fuse: bool = True
    matrix_cores: bool = True
    tune: bool = True

    def modes(self, device: DeviceId) -> mode:
        """The thread's state while graphs are traced and run."""
        changes: dict[str, Any] = {"device": device, "grad_enabled": False, "autocast": None}
        if self.deterministic:
            changes["deterministic"] = True
        if self.libraries is not None:
            changes["libraries"] = self.libraries
        changes |= {"matrix_cores": self.matrix_cores, "tune": self.tune, "max_fused": None if self.fuse else 1}
        return mode(**changes)


_SWITCHES = ("deterministic", "fuse", "matrix_cores", "tune")
_NAMES = ("device", "libraries", *_SWITCHES)


def parse_options(given: Mapping[str, Any] | None) -> Options:
    """The options of a user, checked.

    >>> parse_options({"deterministic": True}).deterministic
    True
    """
    values = dict(given or {})
    for name in values:
        if name not in _NAMES:
            raise ArgumentError(
                f"[torch.compile] expected options among {', '.join(_NAMES)} but got {name!r}{suggest(name, _NAMES)}"
            )
    for name, kind in (*((switch, bool) for switch in _SWITCHES), ("libraries", str)):
        if name in values and not isinstance(values[name], kind):
            raise ArgumentTypeError(
                f"[torch.compile] expected the option {name} to be a {kind.__name__} but got {values[name]!r}"
            )
    if values.get("device") is not None:
        values["device"] = parse_device(values["device"])
        get_device(values["device"])  # one that is not there is refused now
    return Options(**values)
