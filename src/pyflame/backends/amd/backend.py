"""AMDBackend: models on an AMD GPU."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pyflame.backends.base import Backend
from pyflame.core.config import AMDArchitecture, AMDConfig
from pyflame.core.errors import AMDConfigurationError, ROCmMemoryError, ROCmNotAvailableError
from pyflame.tensor.torch_cuda import rocm

_FIND_MODE = "MIOPEN_FIND_MODE"


class AMDBackend(Backend[AMDConfig]):
    """Models on an AMD GPU, by ROCm or simulated; where there is none, on the CPU, with a warning.

    >>> backend = AMDBackend(AMDConfig(device="sim:gfx942"))  # doctest: +SKIP
    >>> prepared = backend.prepare_model(model)               # doctest: +SKIP
    """

    gpus = rocm
    vendor = "AMD"
    language = "hip"
    config_class = AMDConfig
    absent = ROCmNotAvailableError
    misconfigured = AMDConfigurationError
    full = ROCmMemoryError

    @property
    def architecture(self) -> AMDArchitecture:
        """The device's family; on the CPU what the configuration names."""
        return AMDArchitecture.of_gfx(self.target.name) if self.is_available() else self.config.architecture

    def get_device_info(self) -> dict[str, Any]:
        return {**super().get_device_info(), "family": self.architecture.value}

    def _check_target(self) -> None:
        wanted = self.config.architecture
        if self.is_available() and wanted not in (AMDArchitecture.AUTO, self.architecture):
            raise AMDConfigurationError(
                f"[AMDBackend] expected architecture to be that of {self.id}, {self.architecture.value} "
                f"({self.target.name}), but got {wanted.value}; say AUTO"
            )
        self.config.check_matrix_cores(self.target)
        if self.config.miopen_find_mode is not None and self.id.kind == "rocm":
            _set_find_mode(self.config.miopen_find_mode)


def _set_find_mode(mode: str) -> None:
    """Tell MIOpen, which reads it once, when it is first used."""
    if os.environ.get(_FIND_MODE) == mode:
        return
    if "libMIOpen" in Path("/proc/self/maps").read_text(errors="replace"):
        raise AMDConfigurationError(
            f"[AMDBackend] expected miopen_find_mode before MIOpen was loaded but it is; export {_FIND_MODE}={mode}"
        )
    os.environ[_FIND_MODE] = mode
