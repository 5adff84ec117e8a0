"""What a simulated kernel did wrong."""

from __future__ import annotations

from pyflame.core.errors import DeviceFaultError

KINDS = ("illegal address", "uninitialised read", "race", "barrier", "limit", "illegal instruction", "handle")


class SimulationFault(DeviceFaultError):
    """A simulated GPU that had to stop. `kind` is one of `KINDS`, `message` the full report.

    >>> raise SimulationFault("illegal address", "[sim] expected ...")    # doctest: +SKIP
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message

    def __reduce__(self) -> tuple[type[SimulationFault], tuple[str, str]]:
        return SimulationFault, (self.kind, self.message)
