"""A module of the shape of AMD's hipBLASLt bindings whose products are NumPy's, by columns.

Names of functions, parameters and constants come from AMD's own stub (`facts/hipblaslt.json`), so a name that the
bindings do not have is missing here too.
"""

from __future__ import annotations

import ctypes
import enum
import json
from collections.abc import Callable
from copy import copy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np

FACTS = json.loads(Path(__file__).with_name("facts").joinpath("hipblaslt.json").read_text())


def enums(module: str, start: int) -> dict[str, Any]:
    """Enums of a module. Values are not the real ones: the binding must ask for them by name."""
    return {
        name: enum.IntEnum(name, {m: start * 10 + i for i, m in enumerate(members)})
        for start, (name, members) in enumerate(FACTS["enums"][module].items(), start)
    }


BLAS = SimpleNamespace(**enums("hipblas", 30))
BLAS.hipblasStatus_t = enum.IntEnum(
    "hipblasStatus_t", {m: i for i, m in enumerate(FACTS["enums"]["hipblas"]["hipblasStatus_t"])}
)
HIP = SimpleNamespace(**enums("hip", 60))
NUMPY: dict[str, Any] = {
    "HIP_R_32F": np.float32,
    "HIP_R_64F": np.float64,
    "HIP_R_8I": np.int8,
    "HIP_R_32I": np.int32,
    "HIP_R_16F": np.float16,
    "HIP_R_16BF": ml_dtypes.bfloat16,
}
RESULT = 56  # bytes of the bindings' heuristic result


class Memory:
    """What the bindings call a Pointer to a struct."""

    def __init__(self, address: int, owner: Any = None) -> None:
        self.address, self.owner = address, owner

    def __int__(self) -> int:
        return self.address

    def c_sizeof(self) -> int:
        return RESULT

    @property
    def algo(self) -> Memory:
        return Memory(self.address)

    @property
    def workspaceSize(self) -> int:
        return int(ctypes.c_uint64.from_address(self.address + 24).value)

    @property
    def state(self) -> int:
        return int(ctypes.c_int32.from_address(self.address + 32).value)

    @staticmethod
    def allocate(count: int = 1) -> Memory:
        buffer = ctypes.create_string_buffer(RESULT * count)
        return Memory(ctypes.addressof(buffer), buffer)

    @staticmethod
    def fromObj(obj: int) -> Memory:
        return Memory(obj)


def gelu(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return 0.5 * x * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (x + 0.044715 * x**3)))


class Lt:
    """The module. `give` starts a handle's work on a stream, at once or later; `spoil` may change a result."""

    hipblasLtMatmulHeuristicResult_t = Memory

    def __init__(
        self,
        heuristic: str = "HIPBLAS_STATUS_SUCCESS",
        give: Callable[[Callable[[], None], int, int], None] = lambda work, handle, stream: work(),
        spoil: Callable[[np.ndarray[Any, Any]], None] = lambda result: None,
    ) -> None:
        self.give, self.spoil = give, spoil
        self.__dict__.update(enums("hipblaslt", 90))
        self.heuristic = BLAS.hipblasStatus_t[heuristic]
        self.alive: set[int] = set()
        self.ran: list[dict[str, Any]] = []
        self.streams: dict[int, int | None] = {}  # of each handle the stream that uses it

    def __getattr__(self, name: str) -> Any:
        if name not in FACTS["functions"]:
            raise AttributeError(name)
        parameters = FACTS["functions"][name]

        def call(*arguments: Any) -> tuple[Any, ...]:
            assert len(arguments) == len(parameters), name
            given = dict(zip(parameters, arguments, strict=True))
            values = getattr(self, "_" + name.removeprefix("hipblasLt"))(given)
            return values if isinstance(values, tuple) else (BLAS.hipblasStatus_t.HIPBLAS_STATUS_SUCCESS, values)

        return call

    def _new(self, **fields: Any) -> SimpleNamespace:
        made = SimpleNamespace(attributes={}, **fields)
        self.alive.add(id(made))
        self.__dict__.setdefault("kept", []).append(made)
        return made

    def _Create(self, given: dict[str, Any]) -> Any:
        handle = 0xABC + len(self.streams)
        self.streams[handle] = None
        return handle

    def _GetVersion(self, given: dict[str, Any]) -> Any:
        assert given["handle"] in self.streams
        return 1 * 100000 + 4 * 100 + 2

    def _Destroy(self, given: dict[str, Any]) -> Any:
        assert not self.alive, "descriptors leak"
        del self.streams[given["handle"]]

    def _MatrixLayoutCreate(self, given: dict[str, Any]) -> Any:
        assert isinstance(given["type"], HIP.hipDataType)
        return self._new(**given)

    def _MatmulDescCreate(self, given: dict[str, Any]) -> Any:
        assert isinstance(given["computeType"], BLAS.hipblasComputeType_t)
        assert isinstance(given["scaleType"], HIP.hipDataType)
        return self._new(**given)

    def _MatmulPreferenceCreate(self, given: dict[str, Any]) -> Any:
        return self._new()

    def _gone(self, given: dict[str, Any]) -> Any:
        (made,) = given.values()
        self.alive.remove(id(made))

    _MatrixLayoutDestroy = _MatmulDescDestroy = _MatmulPreferenceDestroy = _gone

    def _set(self, given: dict[str, Any]) -> Any:
        target, attr, buf, size = given.values()
        assert isinstance(attr, enum.IntEnum)
        target.attributes[attr.name] = int.from_bytes(ctypes.string_at(buf, size), "little", signed=True)

    _MatrixLayoutSetAttribute = _MatmulDescSetAttribute = _MatmulPreferenceSetAttribute = _set

    def _MatmulAlgoGetHeuristic(self, given: dict[str, Any]) -> Any:
        for i in range(given["requestedAlgoCount"]):
            at = int(given["heuristicResultsArray"]) + i * RESULT
            ctypes.c_int64.from_address(at).value = 1000 + i
            ctypes.c_uint64.from_address(at + 24).value = 64 * i
            ctypes.c_int32.from_address(at + 32).value = 0 if i != 1 else 7
        self.preference = given["pref"].attributes
        return self.heuristic, given["requestedAlgoCount"]

    def _Matmul(self, given: dict[str, Any]) -> Any:
        self._use(given["handle"], given["stream"])
        # Descriptions may change behind the call: it takes them as they are.
        kept = {k: copy(v) if isinstance(v, SimpleNamespace) else v for k, v in given.items()}
        for value in kept.values():
            if isinstance(value, SimpleNamespace):
                value.attributes = dict(value.attributes)
        scale = NUMPY[kept["matmulDesc"].scaleType.name]
        numbers = [ctypes.string_at(given[k], np.dtype(scale).itemsize) for k in ("alpha", "beta")]
        alpha, beta = (np.frombuffer(n, scale)[0] for n in numbers)
        self.give(lambda: self._multiply(kept, alpha, beta), given["handle"], given["stream"])
        self.ran.append({**given, "chosen": ctypes.c_int64.from_address(int(given["algo"])).value})

    def _use(self, handle: int, stream: int) -> None:
        """Nothing here knows of events: only work of one stream is in order."""
        assert self.streams[handle] in (None, stream), "a handle whose synchroniser another stream may be using"
        self.streams[handle] = stream

    def _memory(self, address: int, nbytes: int, write: bool = False) -> Any:
        return (ctypes.c_char * nbytes).from_address(address)

    def _multiply(self, given: dict[str, Any], alpha: Any, beta: Any) -> None:
        desc = given["matmulDesc"]
        names = dict(EPILOGUE=self.hipblasLtEpilogue_t, TRANSA=BLAS.hipblasOperation_t, TRANSB=BLAS.hipblasOperation_t)
        flags = {k: kind(desc.attributes[f"HIPBLASLT_MATMUL_DESC_{k}"]).name for k, kind in names.items()}
        for i in range(given["Ddesc"].attributes.get("HIPBLASLT_MATRIX_LAYOUT_BATCH_COUNT", 1)):
            a, b, c, d = (self._view(given[f"{k}desc"], given[k], i, k == "D") for k in "ABCD")
            sums = np.float32 if d.itemsize == 2 else d.dtype
            a = a.T if flags["TRANSA"].endswith("_T") else a
            b = b.T if flags["TRANSB"].endswith("_T") else b
            out = alpha * (a.astype(sums) @ b.astype(sums))
            if beta:
                out = out + beta * c.astype(sums)
            if "BIAS" in flags["EPILOGUE"]:
                at = desc.attributes["HIPBLASLT_MATMUL_DESC_BIAS_POINTER"]
                assert desc.attributes["HIPBLASLT_MATMUL_DESC_BIAS_DATA_TYPE"] == given["Ddesc"].type
                bias = np.frombuffer(self._memory(at, d.shape[0] * d.itemsize), d.dtype)
                out = out + bias.astype(sums)[:, None]
            out = np.maximum(out, 0) if "RELU" in flags["EPILOGUE"] else out
            d[...] = gelu(out) if "GELU" in flags["EPILOGUE"] else out
            self.spoil(d)

    def _view(self, layout: Any, address: int, index: int, write: bool) -> np.ndarray[Any, Any]:
        kind = np.dtype(NUMPY[layout.type.name])
        start = address + index * kind.itemsize * layout.attributes.get(
            "HIPBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET", 0
        )
        whole = np.frombuffer(self._memory(start, kind.itemsize * layout.ld * layout.cols, write), kind)
        return np.lib.stride_tricks.as_strided(
            whole, (layout.rows, layout.cols), (kind.itemsize, kind.itemsize * layout.ld)
        )
