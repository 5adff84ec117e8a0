"""What the backends of all vendors share: finding the device, or saying that the CPU stands in; preparing models."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any, ClassVar, Generic, TypeVar

import pyflame as pf
from pyflame.backends import models
from pyflame.core.config import KernelPyTorchConfig, RunSettings
from pyflame.core.device import CPU, DeviceId, Target, parse_device
from pyflame.core.errors import ArgumentError, NotAvailableError, OutOfMemoryError
from pyflame.core.state import mode, state
from pyflame.engine import services
from pyflame.engine.devices import get_device
from pyflame.tensor import devices
from pyflame.tensor.torch_cuda import TorchGpus

C = TypeVar("C", bound=KernelPyTorchConfig)
_OF_LIBRARIES = ("rocblas_enabled", "miopen_enabled", "enable_rocblas_tuning", "miopen_find_mode")
# Fields that say something of GPUs alone.
_OF_GPUS = (
    "enable_matrix_cores", "enable_memory_pooling", "memory_pool_size_gb", "max_memory_fraction", *_OF_LIBRARIES,
)  # fmt: skip


class BackendDevice(devices.device):
    """Where a backend computes. To torch it is the CPU, where tensors of torch stay: `x.to(backend.device)` leaves them
    there, and a prepared model copies what it needs.

    >>> BackendDevice.of(parse_device("sim:gfx942")).type
    'sim'
    """

    @staticmethod
    def of(found: DeviceId) -> BackendDevice:
        """The device of an id, not opened."""
        made = str.__new__(BackendDevice, "cpu")  # what torch reads
        made.id = found
        mode.__init__(made, device=found)
        return made

    def __str__(self) -> str:
        return str(self.id)

    def __format__(self, spec: str) -> str:
        return format(str(self.id), spec)

    def __eq__(self, other: object) -> bool:
        return str(self.id) == (str(other) if isinstance(other, (str, DeviceId)) else other)

    def __ne__(self, other: object) -> bool:  # str has its own
        return not self == other

    def __hash__(self) -> int:
        return hash(str(self.id))

    def __reduce__(self) -> tuple[Any, ...]:
        return BackendDevice.of, (self.id,)

    def __repr__(self) -> str:
        return f"device({str(self.id)!r})"


class Backend(Generic[C]):
    """A kind of GPU that models are prepared for; where there is none, the CPU, and a warning that says so."""

    gpus: ClassVar[TorchGpus]
    vendor: ClassVar[str]
    language: ClassVar[str]  # of its targets
    config_class: ClassVar[type[Any]]
    absent: ClassVar[type[NotAvailableError]] = NotAvailableError
    misconfigured: ClassVar[type[ArgumentError]] = ArgumentError
    full: ClassVar[type[OutOfMemoryError]] = OutOfMemoryError

    def __init__(self, config: C | None = None) -> None:
        self.config: C = self.config_class() if config is None else config
        if type(self.config) is not self.config_class:
            wanted, got = self.config_class.__name__, type(config).__name__
            raise self.misconfigured(f"[{type(self).__name__}] expected a {wanted} but got {got}")
        self.fallback_reason = ""
        self.id = self._find()
        self.target: Target = get_device(self.id).target
        self._check_target()
        if self.is_available() and self.config.max_memory_fraction < 1:
            pf.set_memory_fraction(self.config.max_memory_fraction, self.id)

    def _find(self) -> DeviceId:
        name = self.config.device
        if name is None and state.device.kind == "sim" and get_device(state.device).target.language == self.language:
            return state.device
        if name is not None:
            found = parse_device(name)
            target = get_device(found).target
            if found != CPU and (target.language != self.language or found.kind == "null"):
                raise self.misconfigured(
                    f"[{type(self).__name__}] expected a device of {self.vendor}, or 'cpu', but got {name!r}"
                )
            return found
        if self.gpus.device_count():
            return self.gpus.id_of(type(self).__name__, self.config.device_id)
        why = self.gpus.why_absent()
        if self.config.enable_strict_validation:
            raise self.absent(
                f"[{type(self).__name__}] expected a GPU of {self.vendor} but none is available: {why}; "
                "enable_strict_validation=False computes on the CPU"
            )
        self.fallback_reason = why
        warnings.warn(
            f"[{type(self).__name__}] no GPU of {self.vendor} is available ({why}): models run on the CPU. Say "
            "device='cpu' if that is as you want it; `pyflame doctor` looks for the cause",
            RuntimeWarning,
            stacklevel=4,
        )
        return CPU

    def _check_target(self) -> None:
        """Refuse what the device's target contradicts."""

    # --- what it is ---------------------------------------------------------------------------------------------------

    def is_available(self) -> bool:
        """Whether models run on a GPU of the vendor, simulated ones too; False: on the CPU."""
        return self.id != CPU

    @property
    def device(self) -> BackendDevice:
        """Where models run. Tensors of torch stay on the CPU when they are sent `.to` it."""
        return BackendDevice.of(self.id)

    def get_device_info(self) -> dict[str, Any]:
        """What the device tells of itself, and `fallback`: why it is the CPU; `without_effect`: options that were given
        and mean nothing there."""
        info = dict(services.device_info(self.id))
        info["simulated"] = self.id.kind == "sim"
        info["fallback"] = self.fallback_reason
        info["without_effect"] = self._without_effect()
        return info

    def _without_effect(self) -> list[str]:
        here = _OF_GPUS if not self.is_available() else _OF_LIBRARIES if self.id.kind == "sim" else ()
        given = dataclasses.fields(self.config)
        return [f.name for f in given if f.name in here and getattr(self.config, f.name) != f.default]

    # --- models -------------------------------------------------------------------------------------------------------

    def settings(self) -> RunSettings:
        """How models run by this configuration."""
        config = self.config
        low = None if config.default_precision == "fp32" else config.default_precision
        return RunSettings(
            self.id,
            autocast=low if config.enable_mixed_precision else None,
            dtype=None if config.enable_mixed_precision else low,
            libraries=config.libraries(),
            matrix_cores=config.enable_matrix_cores is not False,
            fuse=config.enable_operator_fusion,
            tune=config.tunes(),
        )

    def prepare_model(self, model: Any) -> Any:
        """The model run by PyFlame's engine on the device: the same class, parameters and state dict.

        A module of torch keeps its tensors, which are copied to the device when it runs; one of ours is moved.

        >>> model = AMDBackend(AMDConfig(device="cpu")).prepare_model(nn.Linear(4, 2))  # doctest: +SKIP
        """
        library = models.library_of(model, "prepare_model")
        if self.config.enable_oom_protection and self.is_available():
            self._check_fits(model)
        if self.config.enable_strict_validation:
            for name, value in model.state_dict().items():
                if value.is_floating_point() and not bool(library.isfinite(value.float()).all()):
                    raise self.misconfigured(f"[prepare_model] expected finite weights but {name} has others")
        settings = self.settings()
        return models.prepare(models.cast(models.origin(model), settings.dtype), settings)

    def _check_fits(self, model: Any) -> None:
        needed = models.nbytes(model)
        free, total = pf.memory_info(self.id)
        room = min(free, int(total * self.config.max_memory_fraction))
        if needed > room:
            raise self.full(
                f"[prepare_model] expected a model of at most {room:,} bytes on {self.id} but got {needed:,} of "
                f"parameters and buffers ({free:,} of {total:,} are free); use a smaller dtype, or raise "
                f"max_memory_fraction, which is {self.config.max_memory_fraction}"
            )

    # --- the device ---------------------------------------------------------------------------------------------------

    def synchronize(self) -> None:
        """Wait for the device. Unused memory beyond what the configuration lets the pool keep goes back."""
        pf.synchronize(self.id)
        config = self.config
        kept = config.memory_pool_size_gb * 2**30 if config.enable_memory_pooling else 0
        if self.is_available() and pf.memory_stats(self.id).cached > kept:
            pf.empty_cache(self.id)

    def cleanup(self) -> None:
        """Wait for the device, give unused memory back and take the limit away. The backend may be used again."""
        pf.synchronize(self.id)
        if self.is_available():
            pf.empty_cache(self.id)
            pf.set_memory_fraction(1.0, self.id)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: object) -> None:
        self.cleanup()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.id)!r})"


__all__ = ["Backend", "BackendDevice"]
