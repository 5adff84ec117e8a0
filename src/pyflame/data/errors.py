"""What goes wrong while data is loaded."""

from __future__ import annotations

from pyflame.core.errors import PyFlameError


class DataError(PyFlameError, RuntimeError):
    """A dataset, sampler or loader that cannot deliver."""


class WorkerError(DataError):
    """A worker process failed.

    Where the dataset raised, the error is of that type as well, so `except KeyError` still catches a KeyError.
    """

    def __init__(self, message: str) -> None:
        Exception.__init__(self, message)  # not super(): the other base may ask for arguments that are not known here

    def __str__(self) -> str:
        return str(self.args[0])  # KeyError would show its repr, OSError its number


class WorkerTimeoutError(WorkerError, TimeoutError):
    """No batch arrived within the loader's `timeout`."""


def error_like(original: object, message: str) -> WorkerError:
    """A WorkerError that is an instance of the original type as well, where Python can build that."""
    # A StopIteration would end the consumer's loop in silence.
    if isinstance(original, type) and issubclass(original, Exception) and original is not StopIteration:
        try:
            body = {"__module__": original.__module__, "__qualname__": original.__qualname__}
            kind: type[WorkerError] = type(original.__name__, (WorkerError, original), body)
            return kind(message)
        except TypeError:  # two bases of different memory layouts, or a type that makes its own instances
            pass
    return WorkerError(message)
