"""cuDNN: convolutions and their gradients on NVIDIA GPUs.

Through the graph interface, where a convolution is a graph of one operation: its heuristics propose engines, each of
which becomes an execution plan. Tensors may lie in any order, which is how channels-last reaches the tensor cores.
Constants and signatures are checked against facts read from cudnn_graph.h (`tests/libs/facts`).
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Sequence
from typing import Any

from pyflame.core.errors import ArgumentError
from pyflame.core.locks import lock
from pyflame.libs.binding import Library, LibraryError, find, statuses
from pyflame.libs.conv import ConvSpec
from pyflame.libs.cuda import cublaslt
from pyflame.libs.cuda.cudnn_table import DIRECTIONS, FUNCTIONS, PLAIN, TYPES, C

FILES = ("libcudnn.so.9",)
FOLDERS = ("nvidia/cudnn/lib", "/usr/local/cuda/lib64", "/usr/lib/x86_64-linux-gnu")
# Heuristics in the order in which they are asked, and how many plans of each are made at most. B takes longer to answer
# and often finds better ones; what is called fallback is asked where both have nothing.
HEURISTICS = ((C.CUDNN_HEUR_MODE_A, 6), (C.CUDNN_HEUR_MODE_B, 4), (C.CUDNN_HEUR_MODE_FALLBACK, 4))
ALIGNMENT = 16  # bytes, of every operand
NOTES = 16  # numerical notes of an engine that are read; there are ten kinds
UIDS = {"x": 1, "w": 2, "y": 3}
# attribute types and what they are to ctypes
_KINDS = {
    C.CUDNN_TYPE_HANDLE: ctypes.c_void_p,
    C.CUDNN_TYPE_INT64: ctypes.c_int64,
    C.CUDNN_TYPE_FLOAT: ctypes.c_float,
    C.CUDNN_TYPE_VOID_PTR: ctypes.c_void_p,
    C.CUDNN_TYPE_BACKEND_DESCRIPTOR: ctypes.c_void_p,
}


class _NotSupported(LibraryError):
    """What cuDNN has no kernel for, which is an answer and no error."""


class _Descriptor:
    """An object of the graph interface, given back when nobody holds it. It keeps what it was made of."""

    __slots__ = ("at", "keeps", "library")

    def __init__(self, library: Library, kind: int, *keeps: Any) -> None:
        self.library = library
        self.keeps = keeps
        self.at = 0
        made = ctypes.c_void_p()
        library.call("cudnnBackendCreateDescriptor", kind, ctypes.byref(made))
        self.at = made.value or 0

    def __del__(self) -> None:
        if self.at:
            self.library.status("cudnnBackendDestroyDescriptor", self.at)
            self.at = 0

    def set(self, name: int, kind: int, *values: Any) -> _Descriptor:
        array = (_KINDS.get(kind, ctypes.c_int32) * len(values))(*values)
        self.library.call("cudnnBackendSetAttribute", self.at, name, kind, len(values), array)
        return self

    def finalize(self) -> _Descriptor:
        self._call("cudnnBackendFinalize")
        return self

    def get(self, name: int, kind: int, most: int = 1, into: Sequence[_Descriptor] = ()) -> list[Any]:
        """Values of an attribute. Descriptors are filled in by cuDNN, `into` those that are brought."""
        element: Any = _KINDS.get(kind, ctypes.c_int32)
        array, count = (element * (len(into) or most))(*(d.at for d in into)), ctypes.c_int64()
        self._call("cudnnBackendGetAttribute", name, kind, len(array), ctypes.byref(count), array)
        return list(array[: min(count.value, len(array))])

    def _call(self, function: str, *arguments: Any) -> None:
        status = self.library.status(function, self.at, *arguments)
        # an internal error is an engine's own, as where it cannot be compiled
        if status // 1000 * 1000 in (C.CUDNN_STATUS_NOT_SUPPORTED, C.CUDNN_STATUS_INTERNAL_ERROR):
            raise _NotSupported(f"[cuDNN] expected {function} to succeed but got status {status}: not supported")
        if status:
            self.library.fail(function, status)


class ConvPlan:
    """One way to run a convolution: an engine's execution plan, its workspace, and whether its results vary."""

    def __init__(self, direction: str, spec: ConvSpec, made: _Descriptor, engine: int, notes: Sequence[int]) -> None:
        self.direction = direction
        self.spec = spec
        self.made = made
        self.engine = engine
        (self.workspace,) = made.get(C.CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, C.CUDNN_TYPE_INT64)
        self.deterministic = C.CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC not in notes

    def __repr__(self) -> str:
        return f"ConvPlan({self.direction} of {self.spec.text}, engine {self.engine}, {self.workspace} bytes)"


class Cudnn:
    """cuDNN on the device whose context is current when this is made.

    `x`, `w` and `y` are addresses of tensors that lie as the spec says; the direction says which of them is written.

    >>> dnn = Cudnn()                                                 # doctest: +SKIP
    >>> best = dnn.propose("forward", spec)[0]                        # doctest: +SKIP
    >>> dnn.convolve(best, x, w, y, stream, workspace, size)          # doctest: +SKIP
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
        self._lock = lock()

    def close(self) -> None:
        """Give the handle back to the library."""
        with self._lock:
            if self._handle:
                self._library.call("cudnnDestroy", self._handle)
                self._handle = 0

    def supports(self, spec: ConvSpec) -> bool:
        """Whether it takes this dtype."""
        return spec.dtype in TYPES

    def propose(self, direction: str, spec: ConvSpec) -> list[ConvPlan]:
        """Plans in the order in which cuDNN expects them to be fast. Runs nothing."""
        if direction not in DIRECTIONS:
            raise ArgumentError(f"[cuDNN] expected one of {', '.join(DIRECTIONS)} but got {direction!r}")
        if not self.supports(spec):
            raise LibraryError(f"[{self.name}] expected one of {', '.join(TYPES)} but got {spec.dtype}")
        found: list[ConvPlan] = []
        with self._lock, contextlib.suppress(_NotSupported):
            graph = self._graph(direction, spec)
            for mode, most in HEURISTICS:
                if mode == C.CUDNN_HEUR_MODE_FALLBACK and found:
                    break
                known = {(p.engine, p.workspace) for p in found}
                with contextlib.suppress(_NotSupported):
                    plans = self._plans(direction, spec, graph, mode, most)
                    found += [p for p in plans if (p.engine, p.workspace) not in known]
        return found

    def convolve(
        self, plan: ConvPlan, x: int, w: int, y: int, stream: int = 0, workspace: int = 0, workspace_bytes: int = 0
    ) -> None:
        """Start a convolution or a gradient of one on a stream."""
        if workspace_bytes < plan.workspace:
            raise ArgumentError(
                f"[{self.name}] expected {plan.workspace} bytes of workspace for {plan.spec.text} but got "
                f"{workspace_bytes}; take a plan that needs less"
            )
        with self._lock:
            pack = _Descriptor(self._library, C.CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)
            pack.set(C.CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, C.CUDNN_TYPE_INT64, *UIDS.values())
            pack.set(C.CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, C.CUDNN_TYPE_VOID_PTR, x, w, y)
            pack.set(C.CUDNN_ATTR_VARIANT_PACK_WORKSPACE, C.CUDNN_TYPE_VOID_PTR, workspace).finalize()
            self._library.call("cudnnSetStream", self._handle, stream)
            self._library.call("cudnnBackendExecute", self._handle, plan.made.at, pack.at)

    # --- descriptions -------------------------------------------------------------------------------------------------

    def _tensor(self, spec: ConvSpec, name: str) -> _Descriptor:
        made = _Descriptor(self._library, C.CUDNN_BACKEND_TENSOR_DESCRIPTOR)
        made.set(C.CUDNN_ATTR_TENSOR_UNIQUE_ID, C.CUDNN_TYPE_INT64, UIDS[name])
        made.set(C.CUDNN_ATTR_TENSOR_DATA_TYPE, C.CUDNN_TYPE_DATA_TYPE, TYPES[spec.dtype])
        made.set(C.CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, C.CUDNN_TYPE_INT64, ALIGNMENT)
        made.set(C.CUDNN_ATTR_TENSOR_DIMENSIONS, C.CUDNN_TYPE_INT64, *spec.shape(name))
        return made.set(C.CUDNN_ATTR_TENSOR_STRIDES, C.CUDNN_TYPE_INT64, *spec.strides(name)).finalize()

    def _window(self, spec: ConvSpec) -> _Descriptor:
        made = _Descriptor(self._library, C.CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR)
        # sums in float32 for every dtype
        made.set(C.CUDNN_ATTR_CONVOLUTION_COMP_TYPE, C.CUDNN_TYPE_DATA_TYPE, C.CUDNN_DATA_FLOAT)
        made.set(C.CUDNN_ATTR_CONVOLUTION_CONV_MODE, C.CUDNN_TYPE_CONVOLUTION_MODE, C.CUDNN_CROSS_CORRELATION)
        made.set(C.CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, C.CUDNN_TYPE_INT64, len(spec.size))
        made.set(C.CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, C.CUDNN_TYPE_INT64, *spec.padding)
        made.set(C.CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, C.CUDNN_TYPE_INT64, *spec.padding)
        made.set(C.CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, C.CUDNN_TYPE_INT64, *spec.stride)
        return made.set(C.CUDNN_ATTR_CONVOLUTION_DILATIONS, C.CUDNN_TYPE_INT64, *spec.dilation).finalize()

    def _graph(self, direction: str, spec: ConvSpec) -> _Descriptor:
        """A graph of one operation. Groups follow from the channels of x and w."""
        full = spec.flat
        kind, prefix, ends = DIRECTIONS[direction]
        tensors, window = [self._tensor(full, name) for name in UIDS], self._window(full)
        made = _Descriptor(self._library, kind, *tensors, window)
        made.set(getattr(C, f"{prefix}CONV_DESC"), C.CUDNN_TYPE_BACKEND_DESCRIPTOR, window.at)
        for end, tensor in zip(ends, tensors, strict=True):
            made.set(getattr(C, prefix + end), C.CUDNN_TYPE_BACKEND_DESCRIPTOR, tensor.at)
        made.set(getattr(C, f"{prefix}ALPHA"), C.CUDNN_TYPE_FLOAT, 1.0)
        made.set(getattr(C, f"{prefix}BETA"), C.CUDNN_TYPE_FLOAT, 0.0).finalize()
        graph = _Descriptor(self._library, C.CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, made)
        graph.set(C.CUDNN_ATTR_OPERATIONGRAPH_HANDLE, C.CUDNN_TYPE_HANDLE, self._handle)
        return graph.set(C.CUDNN_ATTR_OPERATIONGRAPH_OPS, C.CUDNN_TYPE_BACKEND_DESCRIPTOR, made.at).finalize()

    def _plans(self, direction: str, spec: ConvSpec, graph: _Descriptor, mode: int, most: int) -> list[ConvPlan]:
        """What one kind of heuristics proposes, of as much precision as the spec wants."""
        asked = _Descriptor(self._library, C.CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, graph)
        asked.set(C.CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, C.CUDNN_TYPE_BACKEND_DESCRIPTOR, graph.at)
        asked.set(C.CUDNN_ATTR_ENGINEHEUR_MODE, C.CUDNN_TYPE_HEUR_MODE, mode).finalize()
        # more than `most`, since some will not do
        configs = [_Descriptor(self._library, C.CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, asked) for _ in range(4 * most)]
        which = (C.CUDNN_ATTR_ENGINEHEUR_RESULTS, C.CUDNN_TYPE_BACKEND_DESCRIPTOR)
        count = len(asked.get(*which, into=configs))
        found: list[ConvPlan] = []
        for config in configs[:count]:
            engine, notes = self._engine(config)
            if len(found) == most or not _exact(spec, notes):
                continue
            made = _Descriptor(self._library, C.CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, config)
            made.set(C.CUDNN_ATTR_EXECUTION_PLAN_HANDLE, C.CUDNN_TYPE_HANDLE, self._handle)
            made.set(C.CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, C.CUDNN_TYPE_BACKEND_DESCRIPTOR, config.at)
            with contextlib.suppress(_NotSupported):
                found.append(ConvPlan(direction, spec, made.finalize(), engine, notes))
        return found

    def _engine(self, config: _Descriptor) -> tuple[int, list[int]]:
        """The number and the numerical notes of a configuration's engine."""
        engine = _Descriptor(self._library, C.CUDNN_BACKEND_ENGINE_DESCRIPTOR)
        config.get(C.CUDNN_ATTR_ENGINECFG_ENGINE, C.CUDNN_TYPE_BACKEND_DESCRIPTOR, into=[engine])
        (number,) = engine.get(C.CUDNN_ATTR_ENGINE_GLOBAL_INDEX, C.CUDNN_TYPE_INT64)
        return number, engine.get(C.CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, C.CUDNN_TYPE_NUMERICAL_NOTE, NOTES)


def _exact(spec: ConvSpec, notes: Sequence[int]) -> bool:
    """Whether an engine keeps to the wanted precision: float32 is rounded to TF32 only where that is allowed."""
    unwanted = {C.CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION, C.CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS}
    if spec.dtype == "float32" and not spec.tf32:
        unwanted.add(C.CUDNN_NUMERICAL_NOTE_TENSOR_CORE)
    return not unwanted & set(notes)


def _load_cublaslt() -> None:
    """cuDNN opens cuBLASLt by its bare name, which the dynamic loader knows once it is loaded from wherever it lies."""
    for file in cublaslt.FILES:
        with contextlib.suppress(LibraryError):  # of two versions one is there at best; cuDNN says if it misses its own
            find(cublaslt.CublasLt.name, (file,), cublaslt.FOLDERS)
