"""The code objects that are loaded on a device."""

from __future__ import annotations

from collections.abc import Sequence

from pyflame.core.locks import lock
from pyflame.runtime.gpu.compiler import Function
from pyflame.runtime.gpu.driver import Driver


class Modules:
    """Code objects, each loaded once and kept until it is unloaded as often: a launch may be under way. Whoever calls
    has made the device current."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._loaded: dict[bytes, tuple[int, int]] = {}  # handle, and how often it was asked for
        self._lock = lock()

    def load(self, code: bytes, names: Sequence[str]) -> list[Function]:
        """Kernels of a code object."""
        with self._lock:
            module, uses = self._loaded.get(code, (None, 0))
            module = self._driver.load_module(code) if module is None else module
            self._loaded[code] = module, uses + 1
        return [Function(name, self._driver.get_function(module, name)) for name in names]

    def given_up(self, code: bytes) -> int | None:
        """The handle of a code object that nobody uses any more, once this use of it has ended."""
        with self._lock:
            module, uses = self._loaded.pop(code, (0, 0))
            if uses > 1:
                self._loaded[code] = module, uses - 1
        return module if uses == 1 else None
