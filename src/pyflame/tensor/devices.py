"""Where ops run: the current device, and what is present."""

from __future__ import annotations

from typing import Any

from pyflame.core import generator
from pyflame.core.device import DeviceId, parse_device
from pyflame.core.state import default_device, mode, state
from pyflame.engine import services
from pyflame.engine.default_device import describe
from pyflame.engine.devices import get_device as open_device


def set_device(device: object) -> None:
    """Run ops on uncommitted tensors there from now on: 'cpu', 'rocm', 'rocm:1', 'cuda:0', 'null:gfx942'.

    >>> pf.set_device("cpu")
    """
    wanted = parse_device(device)
    open_device(wanted)
    state.device = default_device.chosen = wanted


def get_device(input: Any = None) -> Any:
    """The current device: what set_device chose, else PYFLAME_DEVICE, else the first of cuda, rocm and cpu that works.
    Of a tensor, as in PyTorch: the number of its GPU, -1 on the CPU.

    >>> pf.get_device(), pf.get_device(pf.ones(2))
    ('cpu', -1)
    """
    return str(state.device) if input is None else input.get_device()


class device(str, mode):
    """The name of a device, which is the current one within a `with` block, in this thread.

    Equal to the plain name and to `tensor.device`; `type` and `index` are its parts, as in PyTorch.

    >>> with pf.device("null:gfx942"):
    ...     pf.get_device()
    'null:gfx942'
    >>> pf.device("cpu").type, pf.ones(2).device == pf.device("cpu")
    ('cpu', True)
    """

    id: DeviceId

    def __new__(cls, type: object, index: int | None = None) -> device:
        return named(parse_device(type if index is None else f"{type}:{index}"))

    def __init__(self, type: object, index: int | None = None) -> None:
        """`named` has done all there is to do. A device that is not there may be named: using it is the error."""

    def __enter__(self) -> device:
        open_device(self.id)
        return super().__enter__()

    @property
    def type(self) -> str:
        """'cpu', 'rocm', 'cuda', 'sim', 'null' or 'meta'."""
        return self.id.kind

    @property
    def index(self) -> int | None:  # type: ignore[override]
        """Its number among those of its type; None for the CPU, which is one."""
        return self.id.index if self.id.numbered else None

    def __reduce__(self) -> tuple[Any, ...]:
        return named, (self.id,)

    def __repr__(self) -> str:
        if self.id.target:
            return f"device({str(self)!r})"
        number = "" if self.index is None else f", index={self.index}"
        return f"device(type={self.type!r}{number})"


def named(found: DeviceId) -> device:
    """A device by its id, not opened."""
    out = str.__new__(device, str(found))
    out.id = found
    mode.__init__(out, device=found)
    return out


generator.as_device = device


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
    return describe()
