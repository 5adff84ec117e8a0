"""A driver for one device, each of whose calls may find out that the device broke and then says which kernels ran."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from pyflame.core.errors import DeviceFaultError
from pyflame.runtime.gpu.driver import Driver


class _Guard:
    """Passes every call on."""

    def __init__(self, driver: Driver, told: Callable[[DeviceFaultError], DeviceFaultError]) -> None:
        self._driver = driver
        self._told = told

    def __getattr__(self, name: str) -> Any:
        driver, told = self._driver, self._told
        found = getattr(driver, name)
        if not callable(found):
            return found

        def call(*args: Any, **options: Any) -> Any:
            try:
                return getattr(driver, name)(*args, **options)
            except DeviceFaultError as error:
                raise told(error) from error

        setattr(self, name, call)  # looked up once
        return call


def guard(driver: Driver, told: Callable[[DeviceFaultError], DeviceFaultError]) -> Driver:
    """The driver; a fault that a call finds is raised as what `told` makes of it.

    A fault of a kernel is found by whichever call comes next: not only by one that waits, but by an allocation too.

    >>> guard(driver, told).alloc(1024)  # doctest: +SKIP
    """
    return cast(Driver, _Guard(driver, told))
