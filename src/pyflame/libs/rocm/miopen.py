"""MIOpen: convolutions, pooling, batch norm, softmax, activations and reductions on AMD GPUs.

Never run on hardware by us; see the package's first paragraph. By ctypes, because AMD's Python bindings leave MIOpen
out.

Convolutions run by "immediate" calls with the number of a solution: the first question about a problem searches
(`miopenFindConvolution...`), and its answer is kept by `tuning.py` for later processes.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from pyflame.core.errors import ArgumentError, ShapeError, suggest
from pyflame.core.locks import rlock
from pyflame.libs.binding import Library, statuses, stream_handle
from pyflame.libs.conv import FORWARD, ConvSpec, packed
from pyflame.libs.rocm.errors import AMDLibraryError
from pyflame.libs.rocm.miopen_table import (
    ACTIVATIONS,
    FILES,
    FIND_ORDER,
    FUNCTIONS,
    NAMES,
    POOLINGS,
    REDUCTIONS,
    SOLUTION_ORDER,
    TYPES,
    C,
    ConvAlgoPerf,
    ConvSolution,
)
from pyflame.libs.rocm.paths import find_rocm
from pyflame.libs.rocm.tuning import MIOpenTuningCache, Solution, get_tuning_cache

Shape = Sequence[int]
SOLUTIONS = 16  # looked at, fastest first, for one that fits the workspace


@dataclass(frozen=True)
class ConvParams:
    """Padding, stride and dilation per spatial axis, and groups."""

    padding: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int = 1

    @staticmethod
    def Conv2D(
        pad_h: int,
        pad_w: int,
        stride_h: int = 1,
        stride_w: int = 1,
        dilation_h: int = 1,
        dilation_w: int = 1,
        groups: int = 1,
    ) -> ConvParams:
        """Those of two axes.

        >>> ConvParams.Conv2D(1, 1).stride
        (1, 1)
        """
        return ConvParams((pad_h, pad_w), (stride_h, stride_w), (dilation_h, dilation_w), groups)


@dataclass(frozen=True)
class PoolParams:
    """Window, padding and stride per spatial axis."""

    kernel_size: tuple[int, ...]
    padding: tuple[int, ...]
    stride: tuple[int, ...]
    ceil_mode: bool = False

    @staticmethod
    def Pool2D(
        kernel_h: int, kernel_w: int, pad_h: int = 0, pad_w: int = 0, stride_h: int = 1, stride_w: int = 1
    ) -> PoolParams:
        """Those of two axes.

        >>> PoolParams.Pool2D(2, 2, stride_h=2, stride_w=2).kernel_size
        (2, 2)
        """
        return PoolParams((kernel_h, kernel_w), (pad_h, pad_w), (stride_h, stride_w))


@dataclass(frozen=True)
class BatchNormParams:
    """`momentum` is the weight of the new batch in the running statistics."""

    epsilon: float = 1e-5
    momentum: float = 0.1
    training: bool = True


class ROCmDNN:
    """MIOpen on the GPU that HIP holds for current, which `device` names in the tuning cache. Data are addresses of
    packed tensors.

    >>> dnn = ROCmDNN(device="gfx942")                                                    # doctest: +SKIP
    >>> dnn.softmax_forward("float32", (8, 1000), x, y)                                   # doctest: +SKIP
    """

    name = "MIOpen"

    def __init__(
        self, path: str | None = None, device: str = "unknown", cache: MIOpenTuningCache | None = None
    ) -> None:
        loaded, self.path = find_rocm(self.name, "MIOpen", FILES, path)
        self._library = Library(
            self.name, loaded, FUNCTIONS, statuses=statuses(C, "miopenStatus"), error=AMDLibraryError
        )
        parts = [ctypes.c_size_t() for _ in range(3)]
        self._library.call("miopenGetVersion", *map(ctypes.byref, parts))
        self.version = ".".join(str(p.value) for p in parts)
        self.device = device
        self._cache = cache or get_tuning_cache()
        self._ready: set[tuple[str, ConvSpec, int]] = set()  # compiled in this process
        self._lock = rlock()
        self._handle = self._library.create("miopenCreate")

    def close(self) -> None:
        """Give the handle back."""
        if self._handle:
            self._library.call("miopenDestroy", self._handle)
            self._handle = 0

    def handle(self) -> int:
        """The address of MIOpen's handle."""
        return self._handle

    def set_stream(self, stream: Any) -> None:
        """Start what follows on this stream: a pf.Stream, or a stream's handle."""
        self._library.call("miopenSetStream", self._handle, stream_handle(self.name, stream))

    # --- descriptors --------------------------------------------------------------------------------------------------

    @contextmanager
    def _made(self, what: str, initialise: str, *arguments: Any) -> Iterator[int]:
        made = self._library.create(f"miopenCreate{what}Descriptor")
        try:
            self._library.call(initialise, made, *arguments)
            yield made
        finally:
            self._library.call(f"miopenDestroy{what}Descriptor", made)

    def _tensor(self, dtype: object, shape: Shape, strides: Shape | None = None) -> Any:
        sizes = (len(shape), _ints(shape), _ints(packed(tuple(shape)) if strides is None else strides))
        return self._made("Tensor", "miopenSetTensorDescriptor", _type(dtype), *sizes)

    @contextmanager
    def _convolution(self, spec: ConvSpec, deterministic: bool) -> Iterator[tuple[dict[str, int], int]]:
        """Descriptors of x, w and y, and of the convolution."""
        full = spec.flat
        with ExitStack() as stack:
            sides = {name: self._tensor(full.dtype, full.shape(name), full.strides(name)) for name in "xwy"}
            tensors = {name: stack.enter_context(made) for name, made in sides.items()}
            window = (_ints(full.padding), _ints(full.stride), _ints(full.dilation), C.miopenConvolution)
            made = self._made("Convolution", "miopenInitConvolutionNdDescriptor", len(full.size), *window)
            conv = stack.enter_context(made)
            self._library.call("miopenSetConvolutionGroupCount", conv, full.groups)
            if deterministic:  # which leaves out nearly all that use matrix cores
                self._library.call("miopenSetConvolutionAttribute", conv, C.MIOPEN_CONVOLUTION_ATTRIB_DETERMINISTIC, 1)
            yield tensors, conv

    # --- convolution --------------------------------------------------------------------------------------------------

    def supports(self, spec: ConvSpec) -> bool:
        """Whether it takes this dtype."""
        return spec.dtype in TYPES

    def workspace_size(self, direction: str, spec: ConvSpec, deterministic: bool = False) -> int:
        """Bytes that no algorithm exceeds; a search with less finds only those that fit."""
        _check(direction, NAMES, "direction")
        with self._lock, self._convolution(spec, deterministic) as (tensors, conv):
            a, b, c = (tensors[t] for t in SOLUTION_ORDER[direction])
            function = f"miopenConvolution{NAMES[direction]}GetWorkSpaceSize"
            return self._library.number(function, self._handle, a, b, conv, c)

    def convolve(
        self,
        direction: str,
        spec: ConvSpec,
        x: int,
        w: int,
        y: int,
        stream: int | None = None,
        workspace: int = 0,
        workspace_bytes: int = 0,
        deterministic: bool = False,
    ) -> None:
        """Start a convolution or a gradient of one. The first call for a problem searches, outside of any capture.
        `deterministic`: among what gives the same bits in every run."""
        _check(direction, NAMES, "direction")
        at = {"x": x, "w": w, "y": y}
        with self._lock, self._convolution(spec, deterministic) as described:
            if stream is not None:
                self.set_stream(stream)
            problem = f"{direction} {spec.text} workspace {workspace_bytes}{' deterministic' * deterministic}"
            found = self._cache.solution(
                self.version,
                self.device,
                problem,
                lambda exhaustive: self._search(
                    direction, spec, described, at, (workspace, workspace_bytes), exhaustive
                ),
            )
            tensors, conv = described
            a, b, c = SOLUTION_ORDER[direction]
            name = f"miopenConvolution{NAMES[direction]}"
            if (direction, spec, found.number) not in self._ready:
                descriptors = (tensors[a], tensors[b], conv, tensors[c])
                self._library.call(f"{name}CompileSolution", self._handle, *descriptors, found.number)
                self._ready.add((direction, spec, found.number))
            self._library.call(
                f"{name}Immediate",
                *(self._handle, tensors[a], at[a], tensors[b], at[b], conv, tensors[c], at[c]),
                *(workspace, workspace_bytes, found.number),
            )

    def _search(
        self,
        direction: str,
        spec: ConvSpec,
        described: tuple[dict[str, int], int],
        at: dict[str, int],
        workspace: tuple[int, int],
        exhaustive: bool,
    ) -> Solution:
        """Let MIOpen time its algorithms, then ask which solutions it would take now."""
        tensors, conv = described
        a, b, c = FIND_ORDER[direction]
        timed, count = ConvAlgoPerf(), ctypes.c_int()
        self._library.call(
            f"miopenFindConvolution{NAMES[direction]}Algorithm",
            *(self._handle, tensors[a], at[a], tensors[b], at[b], conv, tensors[c], at[c]),
            *(1, ctypes.byref(count), ctypes.byref(timed), *workspace, exhaustive),
        )
        solutions, found = (ConvSolution * SOLUTIONS)(), ctypes.c_size_t()
        a, b, c = SOLUTION_ORDER[direction]
        self._library.call(
            f"miopenConvolution{NAMES[direction]}GetSolution",
            *(self._handle, tensors[a], tensors[b], conv, tensors[c]),
            *(SOLUTIONS, ctypes.byref(found), ctypes.byref(solutions)),
        )
        for each in solutions[: found.value]:
            if each.workspace_size <= workspace[1]:
                return Solution(each.solution_id, each.workspace_size, each.time / 1e3)
        raise AMDLibraryError(
            f"[{self.name}] expected a solution for {direction} of {spec.text} within {workspace[1]} bytes of "
            f"workspace but got {found.value} that need more; PyFlame's own kernel does it"
        )

    def conv2d_forward(
        self,
        dtype: object,
        input_shape: Shape,
        input: int,
        weight_shape: Shape,
        weight: int,
        output_shape: Shape,
        output: int,
        params: ConvParams,
        workspace: int = 0,
        workspace_size: int = 0,
    ) -> None:
        """A convolution of NCHW tensors on the stream that was set last."""
        spec = _spec(dtype, input_shape, weight_shape, output_shape, params)
        self.convolve(FORWARD, spec, input, weight, output, None, workspace, workspace_size)

    def conv2d_forward_workspace_size(
        self, dtype: object, input_shape: Shape, weight_shape: Shape, output_shape: Shape, params: ConvParams
    ) -> int:
        """Bytes of workspace that `conv2d_forward` may ask for."""
        return self.workspace_size(FORWARD, _spec(dtype, input_shape, weight_shape, output_shape, params))

    # --- the rest -----------------------------------------------------------------------------------------------------

    def pooling2d_forward(
        self,
        pool_type: object,
        dtype: object,
        input_shape: Shape,
        input: int,
        output_shape: Shape,
        output: int,
        params: PoolParams,
    ) -> None:
        """`max_pool`, `avg_pool` (padding counts) or `avg_pool_exclusive` over NCHW tensors."""
        mode = _check(_name(pool_type), POOLINGS, "pooling")
        sizes = zip(input_shape[2:], params.kernel_size, params.padding, params.stride, strict=True)
        floor = tuple((n + 2 * p - k) // s + 1 for n, k, p, s in sizes)
        if tuple(output_shape[2:]) != floor:
            raise ShapeError(
                f"[{self.name}] expected a result of {floor} but got {tuple(output_shape[2:])}; MIOpen rounds down, "
                "so a pooling with ceil_mode is PyFlame's own kernel's work"
            )
        axes = (len(floor), _ints(params.kernel_size), _ints(params.padding), _ints(params.stride))
        with (
            self._lock,
            self._made("Pooling", "miopenSetNdPoolingDescriptor", mode, *axes) as pooling,
            self._tensor(dtype, input_shape) as x,
            self._tensor(dtype, output_shape) as y,
        ):
            through = (_ONE, x, input, _ZERO, y, output)
            self._library.call("miopenPoolingForward", self._handle, pooling, *through, False, 0, 0)

    def batchnorm_forward_training(
        self,
        dtype: object,
        shape: Shape,
        input: int,
        output: int,
        scale: int,
        bias: int,
        running_mean: int,
        running_variance: int,
        save_mean: int,
        save_inv_variance: int,
        params: BatchNormParams | None = None,
    ) -> None:
        """Normalise every channel by its own mean and variance. Scale, bias and statistics are float32."""
        params = params or BatchNormParams()
        with self._lock, self._normalised(dtype, shape, input, output) as sides:
            self._library.call(
                "miopenBatchNormalizationForwardTraining",
                *(self._handle, C.miopenBNSpatial, _ONE, _ZERO, *sides, scale, bias),
                *(params.momentum, running_mean, running_variance, params.epsilon, save_mean, save_inv_variance),
            )

    def batchnorm_forward_inference(
        self,
        dtype: object,
        shape: Shape,
        input: int,
        output: int,
        scale: int,
        bias: int,
        running_mean: int,
        running_variance: int,
        params: BatchNormParams | None = None,
    ) -> None:
        """Normalise every channel by the running mean and variance."""
        params = params or BatchNormParams(training=False)
        with self._lock, self._normalised(dtype, shape, input, output) as sides:
            self._library.call(
                "miopenBatchNormalizationForwardInference",
                *(self._handle, C.miopenBNSpatial, _ONE, _ZERO, *sides, scale, bias),
                *(running_mean, running_variance, params.epsilon),
            )

    @contextmanager
    def _normalised(self, dtype: object, shape: Shape, input: int, output: int) -> Iterator[tuple[int, ...]]:
        """x, y and the description of one number per channel."""
        full = (*shape, *(1,) * (4 - len(shape)))
        per_channel = (1, full[1], *(1,) * (len(full) - 2))
        with (
            self._tensor(dtype, full) as x,
            self._tensor(dtype, full) as y,
            self._tensor("float32", per_channel) as each,
        ):
            yield x, input, y, output, each

    def activation_forward(
        self, activation_type: object, dtype: object, shape: Shape, input: int, output: int, alpha: float = 0.0
    ) -> None:
        """relu, sigmoid, tanh, softplus, abs, leaky_relu or elu (of slope or scale `alpha`), or identity."""
        mode, *numbers = _check(_name(activation_type), ACTIVATIONS, "activation")
        values = (float(alpha) if n is None else n for n in numbers)
        with (
            self._lock,
            self._made("Activation", "miopenSetActivationDescriptor", mode, *values) as activation,
            self._tensor(dtype, _four(1, math.prod(shape), 1)) as both,
        ):
            through = (_ONE, both, input, _ZERO, both, output)
            self._library.call("miopenActivationForward", self._handle, activation, *through)

    def softmax_forward(
        self, dtype: object, shape: Shape, input: int, output: int, axis: int = -1, log_softmax: bool = False
    ) -> None:
        """Softmax along an axis: (..., axis, ...) -> (outer, axis, inner, 1), whose channels MIOpen sums over."""
        if not -len(shape) <= axis < len(shape):
            raise ShapeError(f"[{self.name}] expected an axis of {tuple(shape)} but got {axis}")
        axis %= len(shape)
        folded = _four(math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :]))
        kind = C.MIOPEN_SOFTMAX_LOG if log_softmax else C.MIOPEN_SOFTMAX_ACCURATE
        with self._lock, self._tensor(dtype, folded) as both:
            through = (_ONE, both, input, _ZERO, both, output)
            modes = (kind, C.MIOPEN_SOFTMAX_MODE_CHANNEL)
            self._library.call("miopenSoftmaxForward_V2", self._handle, *through, *modes)

    def reduce(
        self,
        reduce_type: object,
        dtype: object,
        input_shape: Shape,
        input: int,
        output_shape: Shape,
        output: int,
        reduce_dims: Sequence[int],
        workspace: int = 0,
        workspace_size: int = 0,
    ) -> None:
        """sum, prod, min, max, amax, mean, norm1 or norm2 over some axes; NaN is kept."""
        with self._lock, self._reduction(reduce_type, dtype, input_shape, output_shape, reduce_dims) as (made, a, c):
            area = (workspace, workspace_size)
            through = (_ONE, a, input, _ZERO, c, output)
            self._library.call("miopenReduceTensor", self._handle, made, 0, 0, *area, *through)

    def reduce_workspace_size(
        self, reduce_type: object, dtype: object, input_shape: Shape, output_shape: Shape, reduce_dims: Sequence[int]
    ) -> int:
        """Bytes of workspace that `reduce` needs."""
        with self._lock, self._reduction(reduce_type, dtype, input_shape, output_shape, reduce_dims) as (made, a, c):
            return self._library.number("miopenGetReductionWorkspaceSize", self._handle, made, a, c)

    @contextmanager
    def _reduction(
        self, reduce_type: object, dtype: object, input_shape: Shape, output_shape: Shape, reduce_dims: Sequence[int]
    ) -> Iterator[tuple[int, int, int]]:
        mode = _check(_name(reduce_type), REDUCTIONS, "reduction")
        dims = {d % len(input_shape) for d in reduce_dims}
        kept = tuple(1 if i in dims else n for i, n in enumerate(input_shape))
        if math.prod(kept) != math.prod(output_shape):
            raise ShapeError(
                f"[{self.name}] expected {kept} of {tuple(input_shape)} over {sorted(dims)} but got "
                f"{tuple(output_shape)}"
            )
        kinds = (C.miopenFloat, C.MIOPEN_PROPAGATE_NAN, C.MIOPEN_REDUCE_TENSOR_NO_INDICES, C.MIOPEN_32BIT_INDICES)
        with (
            self._made("ReduceTensor", "miopenSetReduceTensorDescriptor", mode, *kinds) as made,
            self._tensor(dtype, input_shape) as a,
            self._tensor(dtype, kept) as c,
        ):
            yield made, a, c


# alpha and beta of every call: float32 for all dtypes here, read on the host before the call returns.
_NUMBERS = (ctypes.c_float(1.0), ctypes.c_float(0.0))
_ONE, _ZERO = map(ctypes.byref, _NUMBERS)


def _ints(values: Shape) -> Any:
    return (ctypes.c_int * len(values))(*values)


def _four(outer: int, middle: int, inner: int) -> tuple[int, int, int, int]:
    return (outer, middle, inner, 1)


def _name(value: object) -> str:
    return str(getattr(value, "name", value))


def _type(dtype: object) -> int:
    return int(_check(_name(dtype), TYPES, "dtype"))


def _check(name: str, known: dict[str, Any], what: str) -> Any:
    if name not in known:
        raise ArgumentError(
            f"[MIOpen] expected a {what} among {', '.join(known)} but got {name!r}{suggest(name, known)}"
        )
    return known[name]


def _spec(dtype: object, x: Shape, w: Shape, y: Shape, params: ConvParams) -> ConvSpec:
    window = (tuple(params.stride), tuple(params.padding), tuple(params.dilation), params.groups)
    spec = ConvSpec(x[0], x[1], tuple(x[2:]), w[0], tuple(w[2:]), *window, dtype=_name(dtype))
    if spec.w != tuple(w) or spec.y != tuple(y):
        raise ShapeError(f"[MIOpen] expected {spec.w} and {spec.y} for {spec.text} but got {tuple(w)} and {tuple(y)}")
    return spec
