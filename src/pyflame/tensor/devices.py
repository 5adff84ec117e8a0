"""Where ops run: the current device, what is present, and the seeds' `rocm_*` functions."""

from __future__ import annotations

from types import TracebackType
from typing import Any, NoReturn

from pyflame.core import knobs
from pyflame.core.device import DeviceId, parse_device
from pyflame.core.errors import DeviceError
from pyflame.core.state import DEFAULT_DEVICE, state
from pyflame.engine import services
from pyflame.engine.devices import get_device as open_device


def start_from_environment() -> None:
    """Make PYFLAME_DEVICE the current device. It is opened when first used."""
    if knobs.DEVICE.text():
        state.device = DEFAULT_DEVICE[0] = parse_device(knobs.DEVICE.text())


def set_device(device: object) -> None:
    """Run ops on uncommitted tensors there from now on: 'cpu', 'rocm', 'rocm:1', 'cuda:0', 'null:gfx942'.

    >>> pf.set_device("cpu")
    """
    wanted = parse_device(device)
    open_device(wanted)
    state.device = DEFAULT_DEVICE[0] = wanted


def get_device() -> str:
    """The current device.

    >>> pf.get_device()
    'cpu'
    """
    return str(state.device)


class device:
    """The current device within a `with` block, in this thread.

    >>> with pf.device("null:gfx942"):
    ...     pf.get_device()
    'null:gfx942'
    """

    def __init__(self, name: object) -> None:
        self.id: DeviceId = parse_device(name)
        open_device(self.id)
        self._before: list[DeviceId] = []

    def __enter__(self) -> device:
        self._before.append(state.device)
        state.device = self.id
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        state.device = self._before.pop()

    def __repr__(self) -> str:
        return f"device({str(self.id)!r})"


def device_info(device: object = None) -> dict[str, Any]:
    """What a device is: its type, name and size.

    >>> pf.device_info("cpu")["type"]
    'cpu'
    """
    return services.device_info(state.device if device is None else parse_device(device))


def devices() -> list[str]:
    """The devices of this machine that compute. (`null` plans for any target and computes nothing.)

    >>> "cpu" in pf.devices()
    True
    """
    return [str(d) for d in services.present()]


def synchronize(device: object = None) -> None:
    """Wait until a device has finished what it was given. On the CPU nothing is ever outstanding."""
    open_device(state.device if device is None else parse_device(device)).synchronize()


# --- the seeds' names -------------------------------------------------------------------------------------------------


def rocm_device_count() -> int:
    """How many AMD GPUs can be used; 0 where there is none."""
    return sum(d.kind == "rocm" for d in services.present())


def rocm_is_available() -> bool:
    """Whether an AMD GPU can be used.

    >>> pf.rocm_is_available() == (pf.rocm_device_count() > 0)
    True
    """
    return rocm_device_count() > 0


def rocm_missing(op: str) -> NoReturn:
    """Say why an AMD GPU cannot be used."""
    raise DeviceError(f"[{op}] expected an AMD GPU but none is available: {services.why_absent('rocm')}")


def _rocm(op: str, device_id: object) -> DeviceId:
    count = rocm_device_count()
    if not count:
        rocm_missing(op)
    if not isinstance(device_id, int) or isinstance(device_id, bool) or not 0 <= device_id < count:
        raise DeviceError(f"[{op}] expected the number of an AMD GPU, 0 to {count - 1}, but got {device_id!r}")
    return DeviceId("rocm", device_id)


def rocm_get_device_info(device_id: int = 0) -> dict[str, Any]:
    """device_id, name, architecture, total_memory, free_memory and compute_units of an AMD GPU."""
    return services.device_info(_rocm("rocm_get_device_info", device_id))


def rocm_set_device(device_id: int) -> None:
    """Make an AMD GPU the current device, by number."""
    set_device(_rocm("rocm_set_device", device_id))


def rocm_get_device() -> int:
    """Number of the current AMD GPU; -1 if the current device is none.

    >>> pf.rocm_get_device()
    -1
    """
    return state.device.index if state.device.kind == "rocm" else -1


def rocm_synchronize() -> None:
    """Wait for the current AMD GPU."""
    synchronize(_rocm("rocm_synchronize", max(rocm_get_device(), 0)))
