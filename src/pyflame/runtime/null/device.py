"""The null device: plans for a target and computes nothing. For tests of the schedule and for looking at plans.
As `meta` it does not even plan: its tensors have shapes and dtypes, and no values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyflame.core.device import DeviceId, Target
from pyflame.core.errors import DeviceError, suggest
from pyflame.core.locks import rlock
from pyflame.core.targets import TARGETS
from pyflame.runtime.base import Device


class NullDevice:
    """Plans as `null:<target>`; plain `null` plans as a two-core CPU."""

    pool = gpu = None
    interprets = False

    def __init__(self, name: str = "", kind: str = "null") -> None:
        self.id = DeviceId(kind, 0, name)
        if name and name not in TARGETS:
            raise DeviceError(
                f"[device] expected null:<target> with one of {', '.join(TARGETS)} but got {f'null:{name}'!r}"
                f"{suggest(f'null:{name}', [f'null:{t}' for t in TARGETS])}"
            )
        self.lock = rlock()
        self.target: Target = TARGETS[name or "cpu"]

    def memory_info(self) -> tuple[int, int]:
        """It has no memory."""
        return 0, 0

    def empty_cache(self) -> int:
        return 0

    def info(self) -> dict[str, Any]:
        if self.id.kind == "meta":
            return {"type": "meta", "name": "shapes and dtypes without values"}
        return {"type": "null", "name": f"null device planning for {self.target.name}"}

    def synchronize(self) -> None:
        """Nothing runs."""


if TYPE_CHECKING:  # it is what the engine asks for

    def _fits(device: NullDevice) -> Device:
        return device
