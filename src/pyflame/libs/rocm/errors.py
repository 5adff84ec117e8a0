"""What goes wrong in AMD's libraries: errors of a library, and of an AMD GPU."""

from __future__ import annotations

from pyflame.core.errors import AMDDeviceError, ROCmNotAvailableError
from pyflame.libs.binding import LibraryError


class AMDLibraryError(AMDDeviceError, LibraryError):
    """A library of AMD's that refuses a call, or lacks a function."""


class AMDLibraryMissingError(ROCmNotAvailableError, LibraryError):
    """A library of AMD's that is not installed."""
