"""The typed errors of PyFlame. Each also is the builtin exception a Python user would catch.

All are RuntimeErrors, too: PyTorch raises that for nearly every mistake, and so programs catch it.

Messages read `[op] expected ... but got ...` and end with the way out.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable


class PyFlameError(RuntimeError):
    """Base of all errors raised by PyFlame on purpose."""


class ShapeError(PyFlameError, ValueError):
    """Shapes, axes or sizes that do not fit together."""


class AxisError(ShapeError, builtins.IndexError):
    """An axis that the tensor does not have, or that has no elements where one is chosen."""


class DTypeError(PyFlameError, TypeError):
    """An element type that an operation does not take."""


class ArgumentError(PyFlameError, ValueError):
    """An argument with the right type and a value that has no meaning."""


class ArgumentTypeError(PyFlameError, TypeError):
    """An argument of a type that an operation cannot use, or too many or too few of them."""


class DeviceError(PyFlameError, RuntimeError):
    """A device that is absent, not supported, or not the one the data lives on."""


class NoValuesError(DeviceError, NotImplementedError):
    """A tensor of the meta device, which has no values, where they are needed."""


class DeviceNameError(PyFlameError, ValueError):
    """A device string that names nothing."""


class IndexError(PyFlameError, builtins.IndexError):
    """An index outside of its axis, found when the data was read."""


class CompileError(PyFlameError, RuntimeError):
    """The compiler refused a kernel; the message shows the source around the failing line."""


class OutOfMemoryError(PyFlameError, MemoryError):
    """A device has no memory left; the message tells what was asked, held, cached and free."""


class NotAvailableError(DeviceError):
    """A kind of device that this machine, or this installation, does not have; the message says what is missing."""


class DeviceFaultError(DeviceError):
    """A device that broke while it worked: an illegal address, a failed launch. It cannot be used again."""


class AMDBackendError(PyFlameError):
    """Base of what goes wrong on AMD GPUs. Each below also is the error that any other device would raise."""


class ROCmNotAvailableError(AMDBackendError, NotAvailableError):
    """No HIP runtime, no driver, no AMD GPU, or no right to use it."""


class AMDDeviceError(AMDBackendError, DeviceError):
    """An AMD GPU that refused a call."""


class AMDDeviceFaultError(AMDDeviceError, DeviceFaultError):
    """An AMD GPU that broke while it worked."""


class HIPCompilationError(AMDBackendError, CompileError):
    """A kernel that does not compile, or whose code is not for this GPU."""


class ROCmMemoryError(AMDBackendError, OutOfMemoryError):
    """An AMD GPU has no memory left."""


class MatrixCoreError(HIPCompilationError):
    """A kernel asks for matrix instructions that its target does not have."""


class AMDOptimizationError(AMDBackendError, RuntimeError):
    """A model that AMDOptimizer cannot work on: inputs to measure with are missing, or it fails on them. A change that
    turns out bad raises nothing: it is left out, and the summary says so."""


class AMDConfigurationError(AMDBackendError, ArgumentError):
    """Options, environment variables or targets that contradict each other or mean nothing."""


class TraceError(PyFlameError, RuntimeError):
    """A traced function asked for a value that exists only when the plan runs."""


class GradientError(PyFlameError, RuntimeError):
    """A backward pass that cannot be done."""


class NotSupportedError(PyFlameError, NotImplementedError):
    """Something of PyTorch's API that PyFlame does not have; the message names what to use instead."""


class ForeignLibraryError(NotSupportedError, OSError):
    """A compiled library that calls PyTorch's own."""


class LinAlgError(PyFlameError, RuntimeError):
    """A matrix that a factorisation does not exist for: singular, or not positive."""


class FileFormatError(PyFlameError, ValueError):
    """A file that is damaged, cut off or of another format; the message names it."""


class StateDictError(PyFlameError, RuntimeError):
    """Saved state whose names or shapes are not those of the object it should go into."""


class QueueFullError(PyFlameError, RuntimeError):
    """An engine that has as many requests waiting as it may; `retry_after` seconds are a fair time to ask again."""

    def __init__(self, retry_after: float, message: str = "[engine] expected room in the queue but it is full") -> None:
        super().__init__(f"{message}; try again in {retry_after:.0f} s")
        self.retry_after = retry_after


class EngineStoppedError(PyFlameError, RuntimeError):
    """An engine that was closed, or whose device cannot be used again, and takes and finishes no requests."""


class RequestCancelledError(PyFlameError, RuntimeError):
    """A request that was cancelled before its texts were complete."""


class RequestTimeoutError(PyFlameError, TimeoutError):
    """A request that was not complete when its time was up."""


class CollectiveError(PyFlameError, RuntimeError):
    """A process of a group that ended, hung, or called something else than the others; or a group that cannot form."""


def type_name(value: object) -> str:
    """The name of a value's type; that of torch's, or another library's tensor, with the library, not to be taken for
    ours."""
    kind = type(value)
    library = kind.__module__.partition(".")[0]
    theirs = library == "torch" or (kind.__name__ == "Tensor" and library != "pyflame")
    return f"{library}.{kind.__name__}" if theirs else kind.__name__


def suggest(name: str, known: Iterable[str], likeness: float = 0.5) -> str:
    """'; did you mean ...?' for the nearest known name, or nothing where none is alike.

    Of names as near as each other the one that begins alike is meant: gfx1100 for gfx1101, not gfx1201.
    """
    import difflib  # imported here: it is needed by a mistake only

    near = difflib.get_close_matches(name, list(known), n=3, cutoff=likeness)
    if not near:
        return ""
    likest = difflib.SequenceMatcher(None, near[0], name).ratio()
    equal = [k for k in near if difflib.SequenceMatcher(None, k, name).ratio() == likest]
    return f"; did you mean {max(equal, key=lambda k: [a == b for a, b in zip(k, name, strict=False)])!r}?"
