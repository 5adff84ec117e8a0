"""`pf.compile_kernel`: kernels that users write, called with tensors. docs/kernels.md tells the rules."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from typing import Any

import numpy as np

from pyflame.core.device import DeviceId, parse_device
from pyflame.core.errors import ArgumentError, ArgumentTypeError, DeviceError, GradientError
from pyflame.core.state import mode, state
from pyflame.engine.aot.resources import KernelResources
from pyflame.engine.devices import current_of
from pyflame.engine.on_demand import evaluate
from pyflame.engine.ownership import sole_owner
from pyflame.engine.services import clear_cache
from pyflame.engine.user.kernels import (
    LoadedKernel,
    UserKernel,
    compile_for_device,
    compile_for_target,
    misfit,
    number_word,
)
from pyflame.engine.user.prototype import Parameter
from pyflame.engine.value import Value
from pyflame.ir import F, Node, copy_to, placed
from pyflame.tensor.creation import leaf
from pyflame.tensor.streams import Stream
from pyflame.tensor.tensor import Tensor


class BuiltKernel:
    """A kernel's code for a target, built where no such GPU need be: it can be looked at, not launched.

    >>> kernel = pf.compile_kernel(source, "scale", target="gfx942")
    >>> kernel.resources.spills, kernel.code[:4]
    (0, b'\\x7fELF')
    """

    def __init__(self, kernel: UserKernel) -> None:
        self._kernel = kernel

    @property
    def name(self) -> str:
        return self._kernel.name

    @property
    def architecture(self) -> str:
        """What it was built for: 'gfx942', 'sm_90'."""
        return self._kernel.target.name

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """What it takes, as read from its prototype."""
        return self._kernel.parameters

    @property
    def code(self) -> bytes:
        """The code object: an ELF for AMD GPUs, a cubin for NVIDIA's."""
        return self._kernel.code

    @property
    def resources(self) -> KernelResources | None:
        """Registers, LDS, spills and occupancy, read from AMD's code objects; None for other code."""
        return self._kernel.resources

    @property
    def cached(self) -> bool:
        """Whether nothing had to be compiled: it was in memory or on disk."""
        return self._kernel.cached

    @property
    def compile_seconds(self) -> float:
        return self._kernel.seconds

    def __call__(self, *args: Any, **launch: Any) -> None:
        raise DeviceError(
            f"[{self.name}] expected a kernel on a device but this one was only built, for {self.architecture}; "
            "compile it with device= to launch it"
        )

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} {self.name}({', '.join(p.text for p in self.parameters)}) for {self.architecture}>"
        )


class Kernel(BuiltKernel):
    """A kernel on a GPU. Call it with its arguments and how many blocks of how many threads.

    >>> kernel(x, 2.0, x.numel(), grid=4, block=256)
    >>> kernel[4, 256](x, 2.0, x.numel())
    """

    def __init__(self, kernel: UserKernel, loaded: LoadedKernel, device: Any) -> None:
        super().__init__(kernel)
        self._loaded = loaded
        self._opened = device
        self._device: DeviceId = device.id

    @property
    def device(self) -> str:
        return str(self._device)

    @property
    def attributes(self) -> dict[str, int]:
        """What the driver says of it: registers, lds_bytes, local_bytes (spills and stack), max_threads."""
        return dict(self._loaded.attributes)

    def __getitem__(self, shape: tuple[Any, ...]) -> Callable[..., None]:
        """`kernel[grid, block]` and `kernel[grid, block, shared]`, to be called with the arguments."""
        if not isinstance(shape, tuple) or not 2 <= len(shape) <= 3:
            raise ArgumentError(
                f"[{self.name}] expected kernel[grid, block] or kernel[grid, block, shared] but got {shape!r}"
            )
        return functools.partial(self, **dict(zip(("grid", "block", "shared"), shape, strict=False)))

    def __call__(self, *args: Any, grid: Any, block: Any, shared: int = 0, stream: Any = None) -> None:
        """Launch it, behind all that the device was given before.

        `grid`, `block`: blocks, and threads of a block, one to three numbers each. `shared`: bytes of dynamic shared
        memory. `stream`: a pf.Stream of the device to run on, instead of the current one.

        A tensor that a pointer to non-const gets takes a new value, as by an in-place op: the kernel writes into its
        memory if nobody else can see it, into a copy otherwise.
        """
        if state.tracer is not None:
            state.tracer.escaped(f"the launch of {self.name}")
        if stream is not None and (not isinstance(stream, Stream) or stream.device != self.device):
            raise ArgumentTypeError(f"[{self.name}] expected a pf.Stream of {self.device} as stream but got {stream!r}")
        if len(args) != len(self.parameters):
            wanted = ", ".join(p.text for p in self.parameters)
            raise ArgumentTypeError(
                f"[{self.name}] expected {len(self.parameters)} arguments ({wanted}) but got {len(args)}"
            )
        for position, (parameter, value) in enumerate(zip(self.parameters, args, strict=True)):
            self._check(position, parameter, value)
        given = {id(a): a for a in args if isinstance(a, Tensor)}
        written = {
            id(a): a for a, p in zip(args, self.parameters, strict=True) if isinstance(a, Tensor) and not p.const
        }
        values = self._values(given, written)
        kernel_args = [
            values[id(value)].address
            if isinstance(value, Tensor)
            else 0
            if value is None
            else number_word(self._kernel, position, value)
            for position, value in enumerate(args)
        ]
        with nullcontext() if stream is None else stream:
            self._loaded.launch(self._opened, kernel_args, grid, block, shared, [v.storage for v in values.values()])
        for key, tensor in written.items():
            meta = tensor._node.meta
            tensor._rebind(Tensor(leaf(values[key], meta.shape, meta.dtype, meta.device, meta.committed)))

    def _check(self, position: int, parameter: Parameter, value: Any) -> None:
        if isinstance(value, Tensor):
            if not parameter.pointer:
                raise misfit(self._kernel, position, _shown(value), "give its number, x.item()")
            if parameter.dtypes and value.dtype not in parameter.dtypes:
                raise misfit(self._kernel, position, _shown(value), f"cast it, x.to(pf.{parameter.dtypes[0].name})")
            home = value._node.meta
            if home.committed and home.device != self._device:
                raise DeviceError(
                    f"[{self.name}] expected argument {position} on {self._device} but it is committed to "
                    f"{home.device}; move it with .to({str(self._device)!r})"
                )
            if state.grad_enabled and value._tape is not None:
                raise GradientError(
                    f"[{self.name}] expected tensors that need no gradient but argument {position} does, and a kernel "
                    "has none; call it inside pf.custom_gradient or pf.autograd.Function, or under pf.no_grad()"
                )
        elif parameter.pointer:
            if isinstance(value, np.ndarray):
                raise misfit(self._kernel, position, "a NumPy array", "make it a tensor with pf.tensor")
            if value is not None:
                raise misfit(self._kernel, position, f"{type(value).__name__} {value!r}"[:80])
        else:
            number_word(self._kernel, position, value)

    def _values(self, given: Mapping[int, Tensor], written: Mapping[int, Tensor]) -> dict[int, Value]:
        """Memory of the device for each tensor: computed, dense and, where it is written to, seen by nobody else."""
        nodes = {key: self._here(tensor._node) for key, tensor in given.items()}
        evaluate(list(nodes.values()))
        for key in nodes:
            if nodes[key].data.strides is not None:
                nodes[key] = F.contiguous(nodes[key])
        evaluate(list(nodes.values()))
        values = {}
        for key, tensor in given.items():
            if key in written:
                tensor._node = nodes.pop(key)  # the same value, here and dense
                values[key] = tensor._node.data if _alone(tensor) else self._copied(tensor)
            else:
                values[key] = nodes[key].data
        return values

    def _here(self, node: Node) -> Node:
        """The same value on the kernel's device."""
        with mode(device=self._device):
            return copy_to(placed(node), self._device)

    def _copied(self, tensor: Tensor) -> Value:
        device, nbytes = self._opened, tensor.nbytes
        storage = device.allocate(nbytes)
        device.copy(storage.address, tensor._node.data.address, nbytes)
        return Value(storage)


def _shown(tensor: Tensor) -> str:
    return f"a tensor of {tensor.dtype.name} with shape {tensor.shape}"


def _alone(tensor: Tensor) -> bool:
    """Whether only this tensor can see its memory, so that a kernel may write to it."""
    return state.rebinds is None and sole_owner([tensor._node], [1])[0]  # a checkpoint restores what it rebinds


def compile_kernel(
    source: str,
    name: str,
    *,
    device: object = None,
    target: str | None = None,
    include_dirs: Iterable[str | os.PathLike[str]] = (),
    defines: Mapping[str, object] | None = None,
    options: Iterable[str] = (),
) -> Any:
    """A kernel of your own, in HIP or CUDA C++, on a GPU (`device`, else the current one); or its code for a `target`.

    Compiled code is kept on disk: `pf.compile_stats()` tells how often it was found there. `options` go to the compiler
    (hiprtc, clang or NVRTC) as they are.

    >>> source = 'extern "C" __global__ void scale(float* x, float by, int n) { /* ... */ }'
    >>> pf.compile_kernel(source, "scale", target="gfx942")
    <BuiltKernel scale(float* x, float by, int n) for gfx942>
    """
    if target is not None and device is not None:
        raise ArgumentError(f"[compile_kernel] expected a device or a target but got {device!r} and {target!r}")
    given = compiler_options(include_dirs, defines or {}, options)
    if target is not None:
        return BuiltKernel(compile_for_target(source, name, target, given))
    return Kernel(*compile_for_device(source, name, state.device if device is None else parse_device(device), given))


def compiler_options(
    include_dirs: Iterable[str | os.PathLike[str]], defines: Mapping[str, object], options: Iterable[str]
) -> list[str]:
    """Folders, macros and further options as a compiler takes them."""
    for what, value in (("include_dirs", include_dirs), ("options", options)):
        if isinstance(value, (str, bytes)):
            raise ArgumentTypeError(
                f"[compile_kernel] expected {what} to be a list but got {value!r}; put it in brackets"
            )
    folders = [os.path.abspath(folder) for folder in include_dirs]
    for folder in folders:
        if not os.path.isdir(folder):
            raise ArgumentError(f"[compile_kernel] expected include_dirs to name folders but {folder} is none")
    values = {n: int(v) if isinstance(v, bool) else v for n, v in defines.items()}
    named = [f"-D{n}" if v is None else f"-D{n}={v}" for n, v in values.items()]
    return [*(f"-I{folder}" for folder in folders), *named, *map(str, options)]


class ROCmCompiler:
    """Compiles kernels for an AMD GPU (`device`, else the current one) or a target, and counts what was in the cache.

    >>> compiler = pyflame.backend.rocm.ROCmCompiler(target="gfx942")
    >>> kernel = compiler.compile_kernel(source, "scale")
    >>> compiler.get_compilation_stats()["kernels"]
    1
    """

    def __init__(self, device: object = None, target: str | None = None) -> None:
        self._device = device
        self._target = target
        self._kernels: list[tuple[bool, float]] = []

    def compile_kernel(self, source: str, name: str, **options: Any) -> Any:
        """As `pf.compile_kernel`, for this compiler's device or target."""
        device = current_of("rocm") if self._device is None and self._target is None else self._device
        kernel = compile_kernel(source, name, device=device, target=self._target, **options)
        self._kernels.append((kernel.cached, 0.0 if kernel.cached else kernel.compile_seconds))
        return kernel

    def get_compilation_stats(self) -> dict[str, float]:
        """kernels, compiled, cached, compile_seconds and cache_hit_rate_percent of this compiler."""
        count, cached = len(self._kernels), sum(cached for cached, _ in self._kernels)
        return {
            "kernels": count,
            "compiled": count - cached,
            "cached": cached,
            "compile_seconds": sum(seconds for _, seconds in self._kernels),
            "cache_hit_rate_percent": 100.0 * cached / count if count else 0.0,
        }

    def clear_cache(self) -> int:
        """As `pf.clear_cache`: forget all compiled code, in memory and on disk; gives the bytes freed."""
        return clear_cache()
