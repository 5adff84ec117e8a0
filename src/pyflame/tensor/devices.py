"""Where ops run: the current device, and what is present."""

from __future__ import annotations

from typing import Any

from pyflame.core.device import DeviceId, parse_device
from pyflame.core.state import default_device, mode, state
from pyflame.engine import choice, services
from pyflame.engine.devices import get_device as open_device


def set_device(device: object) -> None:
    """Run ops on uncommitted tensors there from now on: 'cpu', 'rocm', 'rocm:1', 'cuda:0', 'null:gfx942'.

    >>> pf.set_device("cpu")
    """
    wanted = parse_device(device)
    open_device(wanted)
    state.device = default_device.chosen = wanted


def get_device() -> str:
    """The current device: what set_device chose, else PYFLAME_DEVICE, else the first of cuda, rocm and cpu that works.

    >>> pf.get_device()
    'cpu'
    """
    return str(state.device)


class device(mode):
    """The current device within a `with` block, in this thread.

    >>> with pf.device("null:gfx942"):
    ...     pf.get_device()
    'null:gfx942'
    """

    def __init__(self, name: object) -> None:
        self.id: DeviceId = parse_device(name)
        open_device(self.id)
        super().__init__(device=self.id)

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


def reset_device(device: object = None) -> None:
    """Start a simulated device anew, after a fault. Tensors on it are gone, and functions are compiled again.

    A real GPU that has faulted needs a new process, as its driver keeps the fault.

    >>> pf.reset_device("sim:gfx942")
    """
    services.reset_device(state.device if device is None else parse_device(device))


def explain_devices() -> str:
    """Every kind of device in a line: what is there, or why it cannot be used; and where a program starts.

    >>> "opencl    not supported" in pf.explain_devices()
    True
    """
    return choice.describe()
