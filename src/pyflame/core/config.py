"""What `pyflame.backends.amd` and `.nvidia` are told: plain data, checked when it is made.

Facts of a family of GPUs come from core/targets.py. A field that has no meaning on the device in use is named by
`get_device_info()["without_effect"]`; one that contradicts the device raises there.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass, field, fields
from typing import Any

from pyflame.core.device import DeviceId, Target
from pyflame.core.dtype import as_dtype
from pyflame.core.errors import AMDConfigurationError, ArgumentError, suggest
from pyflame.core.state import mode
from pyflame.core.targets import TARGETS

__all__ = ["LEVELS", "AMDArchitecture", "AMDConfig", "KernelPyTorchConfig", "RunSettings"]

LEVELS = ("conservative", "balanced", "aggressive")
PRECISIONS = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
# MIOpen's names; which one it takes by itself differs between its releases.
FIND_MODES = ("NORMAL", "FAST", "HYBRID", "DYNAMIC_HYBRID", "TRUST_VERIFY", "TRUST_VERIFY_FULL")


class AMDArchitecture(enum.Enum):
    """A family of AMD GPUs; AUTO is that of the device.

    >>> AMDArchitecture.CDNA3.target.fp8, AMDArchitecture.of_gfx("gfx1101")
    ('fnuz', <AMDArchitecture.RDNA3: 'rdna3'>)
    """

    AUTO = "auto"
    GCN5 = "gcn5"  # MI50, MI60
    CDNA = "cdna"  # MI100
    CDNA2 = "cdna2"  # MI210, MI250
    CDNA3 = "cdna3"  # MI300, MI325
    CDNA4 = "cdna4"  # MI350, MI355
    RDNA2 = "rdna2"  # RX 6000
    RDNA3 = "rdna3"  # RX 7000
    RDNA3_5 = "rdna3.5"  # Strix Halo
    RDNA4 = "rdna4"  # RX 9000

    @property
    def target(self) -> Target:
        """The target that kernels of the family are built for where its GPU is not here."""
        if self is AMDArchitecture.AUTO:
            raise AMDConfigurationError(
                "[AMDArchitecture] expected a family but got AUTO, which is the device's; name one"
            )
        return TARGETS[_GFX[self.value]]

    @staticmethod
    def of_gfx(name: str) -> AMDArchitecture:
        """The family of a gfx name."""
        short = name.partition(":")[0]
        for family, pattern in _PATTERNS.items():
            if re.fullmatch(pattern, short):
                return AMDArchitecture(family)
        raise AMDConfigurationError(
            f"[AMDArchitecture] expected a gfx name of {', '.join(_GFX)} but got {name!r}{suggest(short, TARGETS)}"
        )


_GFX = {
    "gcn5": "gfx906", "cdna": "gfx908", "cdna2": "gfx90a", "cdna3": "gfx942", "cdna4": "gfx950", "rdna2": "gfx1030",
    "rdna3": "gfx1100", "rdna3.5": "gfx1151", "rdna4": "gfx1201",
}  # fmt: skip
_PATTERNS = {
    "gcn5": "gfx906", "cdna": "gfx908", "cdna2": "gfx90a", "cdna3": "gfx94.", "cdna4": "gfx95.", "rdna2": "gfx103.",
    "rdna3": "gfx110.", "rdna3.5": "gfx115.", "rdna4": "gfx120.",
}  # fmt: skip


@dataclass(frozen=True)
class RunSettings:
    """How a prepared model runs. `autocast`: products in this dtype, weights as they are; `dtype`: all of it."""

    device: DeviceId
    autocast: str | None = None
    dtype: str | None = None
    libraries: str | None = None
    matrix_cores: bool = True
    fuse: bool = True
    tune: bool = True

    def modes(self) -> mode:
        """The thread's state while a model of ours is traced and run."""
        chosen: dict[str, Any] = dict(libraries=self.libraries, matrix_cores=self.matrix_cores, tune=self.tune)
        if self.autocast:
            chosen["autocast"] = as_dtype(PRECISIONS[self.autocast])
        return mode(device=self.device, max_fused=None if self.fuse else 1, **chosen)


def _limit(low: float, high: float = float("inf"), whole: bool = False) -> dict[str, Any]:
    return {"low": low, "high": high, "whole": whole}


@dataclass(frozen=True)
class KernelPyTorchConfig:
    """What every backend is told. Change one with `dataclasses.replace`.

    device: where to compute, such as 'rocm:1', 'sim:gfx942' or 'cpu'; None: the current
        device if it is a simulated GPU of the vendor's, else the vendor's GPU number `device_id`.
    optimization_level: what `optimize` does where it is not told.
    enable_matrix_cores: None, as the GPU has; False builds kernels without their instructions; True where there are
        none raises.
    default_precision: fp32 leaves a model as it is; fp16 and bf16 multiply in that dtype (enable_mixed_precision), or
        make all of the model that dtype.
    enable_operator_fusion: False launches every op for itself.
    enable_memory_pooling: False gives unused memory back to the driver at each `synchronize`, else what is beyond
        memory_pool_size_gb. max_memory_fraction: the most of a GPU's memory that the process holds, by the
        backend that was made last.
    enable_oom_protection: `prepare_model` refuses a model that does not fit, before it moves.
    enable_strict_validation: no fallback to the CPU, and no model with weights that are not finite.

    >>> KernelPyTorchConfig(default_precision="bf16").default_precision
    'bf16'
    """

    device: str | None = None
    device_id: int = field(default=0, metadata=_limit(0, whole=True))
    optimization_level: str = "balanced"
    enable_matrix_cores: bool | None = None
    enable_mixed_precision: bool = True
    enable_operator_fusion: bool = True
    enable_memory_pooling: bool = True
    memory_pool_size_gb: float = field(default=8.0, metadata=_limit(0))
    max_memory_fraction: float = field(default=0.9, metadata=_limit(1e-3, 1))
    default_precision: str = "fp32"
    allow_fp16: bool = True
    allow_bf16: bool = True
    enable_profiling: bool = False
    enable_strict_validation: bool = False
    enable_oom_protection: bool = True

    def __post_init__(self) -> None:
        for option in fields(self):
            self._check(option.name, getattr(self, option.name), str(option.type), option.metadata)
        self._choice("optimization_level", LEVELS)
        self._choice("default_precision", tuple(PRECISIONS))
        if self.device is not None and self.device_id:
            self._refuse("device_id", "0 where device names the GPU", self.device_id)
        if self.default_precision != "fp32" and not self.allows(self.default_precision):
            self._refuse(
                "default_precision", f"what allow_{self.default_precision}=False allows", self.default_precision
            )

    def allows(self, precision: str) -> bool:
        """Whether a 16-bit precision may be used."""
        return self.allow_fp16 if precision == "fp16" else self.allow_bf16

    def half_precision(self) -> str | None:
        """The 16-bit precision to use where one is wanted; None: none is allowed."""
        first = [self.default_precision] if self.default_precision != "fp32" else []
        return next((p for p in (*first, "bf16", "fp16") if self.allows(p)), None)

    def libraries(self) -> str | None:
        """The vendor libraries that may run, as PYFLAME_LIBRARIES names them; None: as that says."""
        return None

    def tunes(self) -> bool:
        """Whether implementations of a product are timed."""
        return True

    def _check(self, name: str, value: Any, kind: str, limits: Any) -> None:
        if value is None and "None" in kind:
            return
        if "bool" in kind and not isinstance(value, bool):
            self._refuse(name, "True or False", value)
        if kind.startswith("str") and not isinstance(value, str):
            self._refuse(name, "a string", value)
        if limits and not (_is_number(value, limits["whole"]) and limits["low"] <= value <= limits["high"]):
            most = f" up to {limits['high']:g}" if limits["high"] != float("inf") else ""
            self._refuse(name, f"a {'whole ' if limits['whole'] else ''}number from {limits['low']:g}{most}", value)

    def _choice(self, name: str, known: tuple[str, ...]) -> None:
        value = getattr(self, name)
        if value is not None and value not in known:
            self._refuse(name, f"one of {', '.join(known)}", value, suggest(str(value), known))

    def _refuse(self, name: str, wanted: str, value: Any, way_out: str = "") -> None:
        error = AMDConfigurationError if isinstance(self, AMDConfig) else ArgumentError
        raise error(f"[{type(self).__name__}] expected {name} to be {wanted} but got {value!r}{way_out}")


def _is_number(value: Any, whole: bool) -> bool:
    return isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)


@dataclass(frozen=True)
class AMDConfig(KernelPyTorchConfig):
    """What the AMD backend is told, beside what every backend is.

    architecture: must be the device's; without an AMD GPU it says what kernels are compiled for.
    hip_kernel_cache_enabled: False compiles a kernel anew each time. hip_compiler_cache_size: kernels that a compiler
        keeps in memory. hip_compiler_cache_dir: folder of compiled kernels; None: PyFlame's.
    rocblas_enabled, miopen_enabled: whether these may run parts of a model. enable_rocblas_tuning: whether they and
        our kernels are timed against each other. miopen_find_mode: MIOpen's MIOPEN_FIND_MODE; None: as it is.

    >>> AMDConfig(architecture="rdna2", enable_matrix_cores=True)
    Traceback (most recent call last):
    ...
    pyflame.core.errors.AMDConfigurationError: [AMDConfig] expected enable_matrix_cores to be False or None, since \
rdna2 (gfx1030) has no matrix cores, but got True
    """

    architecture: AMDArchitecture = AMDArchitecture.AUTO
    hip_kernel_cache_enabled: bool = True
    hip_compiler_cache_size: int = field(default=100, metadata=_limit(1, whole=True))
    hip_compiler_cache_dir: str | None = None
    rocblas_enabled: bool = True
    enable_rocblas_tuning: bool = True
    miopen_enabled: bool = True
    miopen_find_mode: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.architecture, AMDArchitecture):
            known = [a.value for a in AMDArchitecture]
            if self.architecture not in known:
                self._refuse("architecture", f"one of {', '.join(known)}", self.architecture)
            object.__setattr__(self, "architecture", AMDArchitecture(self.architecture))
        super().__post_init__()
        self._choice("miopen_find_mode", FIND_MODES)
        if self.miopen_find_mode is not None and not self.miopen_enabled:
            self._refuse("miopen_find_mode", "None where miopen_enabled is False", self.miopen_find_mode)
        if self.architecture is not AMDArchitecture.AUTO:
            self.check_matrix_cores(self.architecture.target)

    def check_matrix_cores(self, target: Target) -> None:
        """Refuse a wish for matrix cores that a target has not."""
        if self.enable_matrix_cores and target.is_gpu and not target.matrix_core:
            family = AMDArchitecture.of_gfx(target.name).value
            self._refuse(
                "enable_matrix_cores", f"False or None, since {family} ({target.name}) has no matrix cores,", True
            )

    def libraries(self) -> str | None:
        if self.rocblas_enabled and self.miopen_enabled:
            return None
        return ",".join(["hipBLASLt", *["rocBLAS"] * self.rocblas_enabled, *["MIOpen"] * self.miopen_enabled])

    def tunes(self) -> bool:
        return self.enable_rocblas_tuning
