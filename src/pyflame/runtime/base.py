"""What a device must offer. The engine knows devices through these protocols only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from pyflame.core.device import DeviceId, Target
from pyflame.core.locks import Lock


class Storage(Protocol):
    """Memory of a device, given back when nothing refers to it."""

    @property
    def address(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def on_host(self) -> bool:
        """Whether the host may read it at its address. A GPU's memory it may not, wherever that is."""

    @property
    def read_only(self) -> bool:
        """Foreign memory: no plan may write to it."""


class Device(Protocol):
    """A machine that runs launches."""

    id: DeviceId
    target: Target
    # Held by who runs a plan, from the choice of memory to overwrite until results are taken; never while compiling or
    # waiting. Who needs those of several devices takes them in the order of their names.
    lock: Lock

    def allocate(self, nbytes: int) -> Storage: ...

    def functions(self, texts: Sequence[tuple[str, Sequence[str]]]) -> list[list[int]]: ...

    def info(self) -> dict[str, Any]: ...

    def synchronize(self) -> None: ...
