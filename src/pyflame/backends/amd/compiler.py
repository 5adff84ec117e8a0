"""ROCmCompiler: HIP source to code for an AMD GPU, by hiprtc or clang. What they refuse raises, with their words."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from pathlib import Path
from typing import Any

from pyflame.backends.amd.backend import AMDBackend
from pyflame.core.config import AMDArchitecture, AMDConfig
from pyflame.core.device import Target
from pyflame.core.errors import ArgumentError, CompileError, HIPCompilationError
from pyflame.engine.user.kernels import CacheChoice, clear_kernel_cache, compile_for_device, compile_for_target
from pyflame.tensor.kernels import BuiltKernel, Kernel, compiler_options

_ANYWHERE = AMDArchitecture.CDNA3


class ROCmCompiler:
    """Compiles kernels for the configuration's GPU, or where there is none for its architecture: such a kernel can be
    looked at (`code`, `resources`) and not launched.

    >>> compiler = ROCmCompiler(AMDConfig(device="cpu", architecture="cdna3"))
    >>> source = 'extern "C" __global__ void twice(float* x) { x[threadIdx.x] *= 2; }'
    >>> compiler.compile_kernel(source, "twice").architecture
    'gfx942'
    """

    def __init__(self, config: AMDConfig | None = None) -> None:
        self.backend = AMDBackend(config)
        self.config = self.backend.config
        self.target = self._target()
        folder = self.config.hip_compiler_cache_dir
        self._cache = CacheChoice(None if folder is None else Path(folder), self.config.hip_kernel_cache_enabled)
        self._kernels: OrderedDict[Any, BuiltKernel] = OrderedDict()
        self._hits = self._compiled = 0
        self._seconds = 0.0

    def _target(self) -> Target:
        if self.backend.is_available():
            return self.backend.target
        if self.config.architecture is not AMDArchitecture.AUTO:
            return self.config.architecture.target
        warnings.warn(
            f"[ROCmCompiler] no AMD GPU to ask for its architecture: kernels are compiled for {_ANYWHERE.target.name}; "
            "name one with AMDConfig(architecture=...)",
            RuntimeWarning,
            stacklevel=3,
        )
        return _ANYWHERE.target

    def compile_kernel(self, source: str, name: str, options: tuple[str, ...] | list[str] = ()) -> BuiltKernel:
        """The kernel of this name in a source. On a GPU call it as `kernel(..., grid=..., block=...)`."""
        key = source, name, tuple(options)
        known = self._kernels.get(key) if self._cache.enabled else None
        if known is not None:
            self._kernels.move_to_end(key)
            self._hits += 1
            return known
        made = self._compile(source, name, compiler_options((), {}, options))
        self._count(made)
        if self._cache.enabled:
            self._kernels[key] = made
            while len(self._kernels) > self.config.hip_compiler_cache_size:
                self._kernels.popitem(last=False)
        return made

    def _compile(self, source: str, name: str, options: list[str]) -> BuiltKernel:
        try:
            if self.backend.is_available():
                return Kernel(*compile_for_device(source, name, self.backend.id, options, self._cache))
            return BuiltKernel(compile_for_target(source, name, self.target.name, options, self._cache))
        except HIPCompilationError:
            raise
        except (ArgumentError, CompileError) as error:  # found in the source before a compiler saw it
            raise HIPCompilationError(str(error)) from error

    def _count(self, kernel: BuiltKernel) -> None:
        if kernel.cached:
            self._hits += 1
        else:
            self._compiled += 1
            self._seconds += kernel.compile_seconds

    def get_compilation_stats(self) -> dict[str, Any]:
        """kernels asked for, compiled, cached (in memory or on disk), compile_seconds, cache_hit_rate_percent."""
        asked = self._hits + self._compiled
        return {
            "architecture": self.target.name,
            "kernels": asked,
            "compiled": self._compiled,
            "cached": self._hits,
            "compile_seconds": self._seconds,
            "cache_hit_rate_percent": 100.0 * self._hits / asked if asked else 0.0,
        }

    def clear_cache(self) -> int:
        """Forget this compiler's kernels, in memory and in its folder; gives the bytes freed. PyFlame's own folder is
        left to `pf.clear_cache`."""
        self._kernels.clear()
        return clear_kernel_cache(self._cache)
