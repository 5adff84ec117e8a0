"""cuDNN: convolutions and their gradients on NVIDIA GPUs.

Through the convolution functions that cuDNN 9 calls legacy: they take addresses and descriptors and nothing more, while
the graph interface wants a compiler's worth of objects for the same kernels. Constants, signatures and structs are
checked against facts read from cudnn_graph.h, cudnn_ops.h and cudnn_cnn.h (`tests/libs/facts`).
"""

from __future__ import annotations

import contextlib
import ctypes
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyflame.core.errors import ArgumentError
from pyflame.core.locks import lock
from pyflame.libs.binding import Library, LibraryError, find, statuses
from pyflame.libs.conv import BACKWARD_DATA, BACKWARD_FILTER, FORWARD, ConvSpec, packed
from pyflame.libs.cuda import cublaslt

FILES = ("libcudnn.so.9",)
FOLDERS = ("nvidia/cudnn/lib", "/usr/local/cuda/lib64", "/usr/lib/x86_64-linux-gnu")
PLANS = 256  # problems kept described
ALGORITHMS = 10  # asked for; no direction has more than eight kinds


class C:
    """Constants, by the names of the headers."""

    CUDNN_STATUS_SUCCESS = 0
    CUDNN_STATUS_NOT_INITIALIZED = 1001
    CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH = 1002
    CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED = 1008
    CUDNN_STATUS_BAD_PARAM = 2000
    CUDNN_STATUS_NOT_SUPPORTED = 3000
    CUDNN_STATUS_INTERNAL_ERROR = 4000
    CUDNN_STATUS_EXECUTION_FAILED = 5000

    CUDNN_DATA_FLOAT = 0
    CUDNN_DATA_HALF = 2
    CUDNN_DATA_BFLOAT16 = 9

    CUDNN_DEFAULT_MATH = 0
    CUDNN_TENSOR_OP_MATH = 1
    CUDNN_FMA_MATH = 3

    CUDNN_TENSOR_NCHW = 0
    CUDNN_CROSS_CORRELATION = 1


_FIND = "i32 requestedAlgoCount, ptr returnedAlgoCount, ptr perfResults"
_AREA = "ptr workSpace, size workSpaceSizeInBytes"
FUNCTIONS = {
    "cudnnCreate": "ptr handle",
    "cudnnDestroy": "ptr handle",
    "cudnnSetStream": "ptr handle, ptr streamId",
    "cudnnCreateTensorDescriptor": "ptr tensorDesc",
    "cudnnSetTensorNdDescriptor": "ptr tensorDesc, i32 dataType, i32 nbDims, ptr dimA, ptr strideA",
    "cudnnDestroyTensorDescriptor": "ptr tensorDesc",
    "cudnnCreateFilterDescriptor": "ptr filterDesc",
    "cudnnSetFilterNdDescriptor": "ptr filterDesc, i32 dataType, i32 format, i32 nbDims, ptr filterDimA",
    "cudnnDestroyFilterDescriptor": "ptr filterDesc",
    "cudnnCreateConvolutionDescriptor": "ptr convDesc",
    "cudnnDestroyConvolutionDescriptor": "ptr convDesc",
    "cudnnSetConvolutionNdDescriptor": (
        "ptr convDesc, i32 arrayLength, ptr padA, ptr filterStrideA, ptr dilationA, i32 mode, i32 computeType"
    ),
    "cudnnSetConvolutionMathType": "ptr convDesc, i32 mathType",
    "cudnnSetConvolutionGroupCount": "ptr convDesc, i32 groupCount",
    "cudnnGetConvolutionForwardAlgorithm_v7": (
        f"ptr handle, ptr srcDesc, ptr filterDesc, ptr convDesc, ptr destDesc, {_FIND}"
    ),
    "cudnnGetConvolutionBackwardDataAlgorithm_v7": (
        f"ptr handle, ptr filterDesc, ptr diffDesc, ptr convDesc, ptr gradDesc, {_FIND}"
    ),
    "cudnnGetConvolutionBackwardFilterAlgorithm_v7": (
        f"ptr handle, ptr srcDesc, ptr diffDesc, ptr convDesc, ptr gradDesc, {_FIND}"
    ),
    "cudnnFindConvolutionForwardAlgorithmEx": (
        f"ptr handle, ptr xDesc, ptr x, ptr wDesc, ptr w, ptr convDesc, ptr yDesc, ptr y, {_FIND}, {_AREA}"
    ),
    "cudnnFindConvolutionBackwardDataAlgorithmEx": (
        f"ptr handle, ptr wDesc, ptr w, ptr dyDesc, ptr dy, ptr convDesc, ptr dxDesc, ptr dx, {_FIND}, {_AREA}"
    ),
    "cudnnFindConvolutionBackwardFilterAlgorithmEx": (
        f"ptr handle, ptr xDesc, ptr x, ptr dyDesc, ptr y, ptr convDesc, ptr dwDesc, ptr dw, {_FIND}, {_AREA}"
    ),
    "cudnnConvolutionForward": (
        f"ptr handle, ptr alpha, ptr xDesc, ptr x, ptr wDesc, ptr w, ptr convDesc, i32 algo, {_AREA}, ptr beta, "
        "ptr yDesc, ptr y"
    ),
    "cudnnConvolutionBackwardData": (
        f"ptr handle, ptr alpha, ptr wDesc, ptr w, ptr dyDesc, ptr dy, ptr convDesc, i32 algo, {_AREA}, ptr beta, "
        "ptr dxDesc, ptr dx"
    ),
    "cudnnConvolutionBackwardFilter": (
        f"ptr handle, ptr alpha, ptr xDesc, ptr x, ptr dyDesc, ptr dy, ptr convDesc, i32 algo, {_AREA}, ptr beta, "
        "ptr dwDesc, ptr dw"
    ),
}
PLAIN = {"cudnnGetVersion": (ctypes.c_size_t, "")}


class AlgoPerf(ctypes.Structure):
    """cudnnConvolutionFwdAlgoPerf_t, and its twins of the other two directions."""

    _fields_ = (
        ("algo", ctypes.c_int),
        ("status", ctypes.c_int),
        ("time", ctypes.c_float),  # milliseconds
        ("memory", ctypes.c_size_t),
        ("determinism", ctypes.c_int),
        ("mathType", ctypes.c_int),
        ("reserved", ctypes.c_int * 3),
    )


STRUCTS = {f"cudnnConvolution{d}AlgoPerf_t": AlgoPerf for d in ("Fwd", "BwdData", "BwdFilter")}
TYPES = {"float32": C.CUDNN_DATA_FLOAT, "float16": C.CUDNN_DATA_HALF, "bfloat16": C.CUDNN_DATA_BFLOAT16}
NAMES = {FORWARD: "Forward", BACKWARD_DATA: "BackwardData", BACKWARD_FILTER: "BackwardFilter"}
ORDER = {  # two sources, then what is written
    FORWARD: ("x", "w", "y"),
    BACKWARD_DATA: ("w", "y", "x"),
    BACKWARD_FILTER: ("x", "y", "w"),
}


@dataclass(frozen=True)
class ConvAlgorithm:
    """One way to run a convolution: cuDNN's number and kind of arithmetic, its time and workspace."""

    number: int
    math: int
    workspace: int
    seconds: float  # measured by `find`, estimated by `propose`
    deterministic: bool = True  # whether it gives the same bits at every run


class _Described:
    """Descriptors of a problem."""

    def __init__(self, library: Library, spec: ConvSpec) -> None:
        self.library = library
        full = spec.flat
        kind = TYPES[full.dtype]
        self.tensors = {name: library.create("cudnnCreateTensorDescriptor") for name in "xy"}
        for name, made in self.tensors.items():
            shape = full.shape(name)
            library.call("cudnnSetTensorNdDescriptor", made, kind, len(shape), _ints(shape), _ints(packed(shape)))
        self.tensors["w"] = library.create("cudnnCreateFilterDescriptor")
        layout = (C.CUDNN_TENSOR_NCHW, len(full.w), _ints(full.w))
        library.call("cudnnSetFilterNdDescriptor", self.tensors["w"], kind, *layout)
        self.conv = library.create("cudnnCreateConvolutionDescriptor")
        window = (_ints(full.padding), _ints(full.stride), _ints(full.dilation))
        modes = (C.CUDNN_CROSS_CORRELATION, C.CUDNN_DATA_FLOAT)  # sums in float32 for every dtype
        library.call("cudnnSetConvolutionNdDescriptor", self.conv, len(full.size), *window, *modes)
        library.call("cudnnSetConvolutionGroupCount", self.conv, full.groups)
        self.wanted = C.CUDNN_TENSOR_OP_MATH
        if full.dtype == "float32":
            self.wanted = C.CUDNN_DEFAULT_MATH if full.tf32 else C.CUDNN_FMA_MATH
        self.math = C.CUDNN_DEFAULT_MATH

    def use(self, math: int) -> None:
        """Allow a kind of arithmetic: `wanted` in a search, what was found when it runs."""
        if math != self.math:
            self.library.call("cudnnSetConvolutionMathType", self.conv, math)
            self.math = math

    def close(self) -> None:
        for name in "xy":
            self.library.call("cudnnDestroyTensorDescriptor", self.tensors[name])
        self.library.call("cudnnDestroyFilterDescriptor", self.tensors["w"])
        self.library.call("cudnnDestroyConvolutionDescriptor", self.conv)


class Cudnn:
    """cuDNN on the device whose context is current when this is made.

    `x`, `w` and `y` are addresses of packed tensors in NCHW order; the direction says which of them is written.

    >>> dnn = Cudnn()                                                          # doctest: +SKIP
    >>> best = dnn.find("forward", spec, x, w, y, stream, workspace, size)[0]  # doctest: +SKIP
    >>> dnn.convolve("forward", spec, x, w, y, best, stream, workspace, size)  # doctest: +SKIP
    """

    name = "cuDNN"

    def __init__(self, path: str | None = None) -> None:
        if path is None:
            _load_cublaslt()
        loaded, self.path = find(self.name, FILES, FOLDERS, path)
        self._library = Library(self.name, loaded, FUNCTIONS, PLAIN, statuses(C, "CUDNN_STATUS_"))
        number = int(self._library.plain("cudnnGetVersion"))
        self.version = f"{number // 10000}.{number // 100 % 100}.{number % 100}"
        self._handle = self._library.create("cudnnCreate")
        self._described: OrderedDict[ConvSpec, _Described] = OrderedDict()
        self._lock = lock()

    def close(self) -> None:
        """Give everything back to the library."""
        with self._lock:
            while self._described:
                self._described.popitem()[1].close()
            if self._handle:
                self._library.call("cudnnDestroy", self._handle)
                self._handle = 0

    def supports(self, spec: ConvSpec) -> bool:
        """Whether it takes this dtype."""
        return spec.dtype in TYPES

    def propose(self, direction: str, spec: ConvSpec) -> list[ConvAlgorithm]:
        """Algorithms in the order in which cuDNN expects them to be fast. Runs nothing."""
        with self._lock:
            found = self._find(spec)
            found.use(found.wanted)
            a, b, c = (found.tensors[t] for t in _order(direction))
            results, count, ends = _results()
            function = f"cudnnGetConvolution{NAMES[direction]}Algorithm_v7"
            self._library.call(function, self._handle, a, b, found.conv, c, *ends)
            return _good(results, count)

    def find(
        self,
        direction: str,
        spec: ConvSpec,
        x: int,
        w: int,
        y: int,
        stream: int = 0,
        workspace: int = 0,
        workspace_bytes: int = 0,
    ) -> list[ConvAlgorithm]:
        """Time all algorithms that fit the workspace, fastest first. Overwrites what the direction writes."""
        with self._lock:
            found = self._find(spec)
            found.use(found.wanted)
            self._library.call("cudnnSetStream", self._handle, stream)
            a, b, c = _order(direction)
            at = {"x": x, "w": w, "y": y}
            results, count, ends = _results()
            self._library.call(
                f"cudnnFindConvolution{NAMES[direction]}AlgorithmEx",
                *(self._handle, found.tensors[a], at[a], found.tensors[b], at[b], found.conv, found.tensors[c], at[c]),
                *ends,
                *(workspace, workspace_bytes),
            )
            return _good(results, count)

    def convolve(
        self,
        direction: str,
        spec: ConvSpec,
        x: int,
        w: int,
        y: int,
        algorithm: ConvAlgorithm,
        stream: int = 0,
        workspace: int = 0,
        workspace_bytes: int = 0,
    ) -> None:
        """Start a convolution or a gradient of one on a stream."""
        if workspace_bytes < algorithm.workspace:
            raise ArgumentError(
                f"[{self.name}] expected {algorithm.workspace} bytes of workspace for {spec.text} but got "
                f"{workspace_bytes}; take an algorithm that needs less"
            )
        one, zero = ctypes.c_float(1.0), ctypes.c_float(0.0)
        with self._lock:
            found = self._find(spec)
            found.use(algorithm.math)
            self._library.call("cudnnSetStream", self._handle, stream)
            a, b, c = _order(direction)
            at = {"x": x, "w": w, "y": y}
            self._library.call(
                f"cudnnConvolution{NAMES[direction]}",
                *(self._handle, ctypes.byref(one), found.tensors[a], at[a], found.tensors[b], at[b], found.conv),
                *(algorithm.number, workspace, workspace_bytes, ctypes.byref(zero), found.tensors[c], at[c]),
            )

    def _find(self, spec: ConvSpec) -> _Described:
        found = self._described.get(spec)
        if found is None:
            if not self.supports(spec):
                raise LibraryError(f"[{self.name}] expected one of {', '.join(TYPES)} but got {spec.dtype}")
            found = self._described[spec] = _Described(self._library, spec)
            if len(self._described) > PLANS:
                self._described.popitem(last=False)[1].close()
        self._described.move_to_end(spec)
        return found


def _load_cublaslt() -> None:
    """cuDNN opens cuBLASLt by its bare name, which the dynamic loader knows once it is loaded from wherever it lies."""
    for file in cublaslt.FILES:
        with contextlib.suppress(LibraryError):  # of two versions one is there at best; cuDNN says if it misses its own
            find(cublaslt.CublasLt.name, (file,), cublaslt.FOLDERS)


def _order(direction: str) -> tuple[str, str, str]:
    if direction not in ORDER:
        raise ArgumentError(f"[cuDNN] expected one of {', '.join(ORDER)} but got {direction!r}")
    return ORDER[direction]


def _ints(values: Sequence[int]) -> Any:
    return (ctypes.c_int * len(values))(*values)


def _results() -> tuple[Any, Any, tuple[Any, ...]]:
    results, count = (AlgoPerf * ALGORITHMS)(), ctypes.c_int()
    return results, count, (ALGORITHMS, ctypes.byref(count), ctypes.byref(results))


def _good(results: Any, count: Any) -> list[ConvAlgorithm]:
    good = [r for r in results[: count.value] if r.status == C.CUDNN_STATUS_SUCCESS]
    return [ConvAlgorithm(r.algo, r.mathType, r.memory, r.time / 1e3, bool(r.determinism)) for r in good]
