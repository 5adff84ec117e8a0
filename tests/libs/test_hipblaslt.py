"""hipBLASLt against a module of the bindings' shape that computes on the host.

Names of functions, parameters and constants come from AMD's own stub (`facts/hipblaslt.json`), so a name that the
bindings do not have is missing here too.
"""

from __future__ import annotations

import ctypes
import enum
import importlib
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pyflame.core.errors import ROCmNotAvailableError
from pyflame.libs.binding import LibraryError
from pyflame.libs.gemm import GemmSpec
from pyflame.libs.rocm.hipblaslt import HipBlasLt

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
NUMPY = {"HIP_R_32F": np.float32, "HIP_R_64F": np.float64, "HIP_R_8I": np.int8, "HIP_R_32I": np.int32}
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


class Lt:
    """The module. A matmul is done with NumPy, by columns."""

    hipblasLtMatmulHeuristicResult_t = Memory

    def __init__(self, heuristic: str = "HIPBLAS_STATUS_SUCCESS") -> None:
        self.__dict__.update(enums("hipblaslt", 90))
        self.heuristic = BLAS.hipblasStatus_t[heuristic]
        self.alive: set[int] = set()
        self.ran: list[dict[str, Any]] = []

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
        return 0xABC

    def _GetVersion(self, given: dict[str, Any]) -> Any:
        assert given["handle"] == 0xABC
        return 1 * 100000 + 4 * 100 + 2

    def _Destroy(self, given: dict[str, Any]) -> Any:
        assert not self.alive, "descriptors leak"

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
        desc = given["matmulDesc"]
        names = dict(EPILOGUE=self.hipblasLtEpilogue_t, TRANSA=BLAS.hipblasOperation_t, TRANSB=BLAS.hipblasOperation_t)
        flags = {k: kind(desc.attributes[f"HIPBLASLT_MATMUL_DESC_{k}"]).name for k, kind in names.items()}
        scale = NUMPY[desc.scaleType.name]
        alpha, beta = (ctypes.string_at(given[k], np.dtype(scale).itemsize) for k in ("alpha", "beta"))
        for i in range(given["Ddesc"].attributes.get("HIPBLASLT_MATRIX_LAYOUT_BATCH_COUNT", 1)):
            a, b, c, d = (self._view(given[f"{k}desc"], given[k], i) for k in "ABCD")
            a = a.T if flags["TRANSA"].endswith("_T") else a
            b = b.T if flags["TRANSB"].endswith("_T") else b
            out = np.frombuffer(alpha, scale)[0] * (a.astype(d.dtype) @ b.astype(d.dtype))
            if np.frombuffer(beta, scale)[0]:
                out = out + np.frombuffer(beta, scale)[0] * c
            if "BIAS" in flags["EPILOGUE"]:
                at = desc.attributes["HIPBLASLT_MATMUL_DESC_BIAS_POINTER"]
                assert desc.attributes["HIPBLASLT_MATMUL_DESC_BIAS_DATA_TYPE"] == given["Ddesc"].type
                bias = np.frombuffer(ctypes.string_at(at, d.shape[0] * d.itemsize), d.dtype)
                out = out + bias[:, None]
            d[...] = np.maximum(out, 0) if "RELU" in flags["EPILOGUE"] else out
        self.ran.append({**given, "chosen": ctypes.c_int64.from_address(int(given["algo"])).value})

    def _view(self, layout: Any, address: int, index: int) -> np.ndarray[Any, Any]:
        kind = np.dtype(NUMPY[layout.type.name])
        start = address + index * kind.itemsize * layout.attributes.get(
            "HIPBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET", 0
        )
        flat = (ctypes.c_char * (kind.itemsize * layout.ld * layout.cols)).from_address(start)
        whole = np.frombuffer(flat, kind)
        return np.lib.stride_tricks.as_strided(
            whole, (layout.rows, layout.cols), (kind.itemsize, kind.itemsize * layout.ld)
        )


def numbers(*shape: int, dtype: str = "float32") -> np.ndarray[Any, Any]:
    return np.random.default_rng(sum(shape)).integers(-4, 5, shape).astype(dtype)


def opened(module: Lt | None = None) -> tuple[HipBlasLt, Lt]:
    module = module or Lt()
    return HipBlasLt(module, BLAS, HIP), module


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8"])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("columns", [(False, False), (True, False), (False, True), (True, True)], ids=str)
def test_matmul(dtype: str, batch: int, columns: tuple[bool, bool]) -> None:
    m, n, k, out = 5, 7, 3, {"int8": "int32"}.get(dtype, dtype)
    a = numbers(batch, k, m, dtype=dtype).swapaxes(1, 2) if columns[0] else numbers(batch, m, k, dtype=dtype)
    b = numbers(batch, n, k, dtype=dtype).swapaxes(1, 2) if columns[1] else numbers(batch, k, n, dtype=dtype)
    c = numbers(batch, m, n, dtype=out)
    before = c.copy()
    spec = GemmSpec(
        *(m, n, k, dtype),
        batch=batch,
        a=(1, m, m * k) if columns[0] else (k, 1, m * k),
        b=(1, k, k * n) if columns[1] else (n, 1, k * n),
        alpha=2.0,
        beta=3.0,
    )
    lt, module = opened()
    lt.matmul(spec, a.ctypes.data, b.ctypes.data, c.ctypes.data, 0, 0x77, 0x1000, 4096)
    np.testing.assert_array_equal(c, 2 * (a.astype(out) @ b.astype(out)) + 3 * before)
    (ran,) = module.ran
    assert (ran["stream"], ran["workspace"], ran["workspaceSizeInBytes"], ran["chosen"]) == (0x77, 0x1000, 4096, 1000)
    assert module.preference == {"HIPBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES": 4096}
    lt.close()  # asserts that nothing leaks


@pytest.mark.parametrize("activation", ["", "relu"])
def test_epilogue(activation: str) -> None:
    a, b, bias, c = numbers(4, 6), numbers(6, 5), numbers(5), np.zeros((4, 5), np.float32)
    lt, _ = opened()
    spec = GemmSpec(4, 5, 6, bias=True, activation=activation)
    lt.matmul(spec, a.ctypes.data, b.ctypes.data, c.ctypes.data, bias.ctypes.data)
    want = a @ b + bias
    np.testing.assert_array_equal(c, np.maximum(want, 0) if activation else want)
    assert lt.version == "1.4.2"


def test_every_name_exists() -> None:
    lt, _ = opened()
    for dtype in ("float16", "bfloat16", "float32"):
        for activation in ("", "relu", "gelu"):
            for bias in (False, True):
                assert lt.supports(GemmSpec(4, 4, 4, dtype, tf32=True, bias=bias, activation=activation))
    assert set(FACTS["result fields"]) >= {"algo", "workspaceSize", "state"}
    assert set(FACTS["result methods"]) >= {"allocate", "fromObj", "c_sizeof"}
    lt.close()


def test_algorithms() -> None:
    lt, module = opened()
    spec = GemmSpec(4, 4, 4)
    assert lt.count(spec, 1 << 20, wanted=4) == 3  # one of four has failed
    a, out = numbers(4, 4), np.zeros((4, 4), np.float32)
    where = (a.ctypes.data, a.ctypes.data, out.ctypes.data)
    lt.matmul(spec, *where, workspace_bytes=1 << 20, rank=0)
    assert lt.count(spec, 0, wanted=2) == 1
    with pytest.raises(LibraryError, match="algorithm number 1"):
        lt.matmul(spec, *where, rank=1)
    assert [r["chosen"] for r in module.ran] == [1000]


def test_refusals() -> None:
    refusing, _ = opened(Lt("HIPBLAS_STATUS_NOT_SUPPORTED"))
    assert not refusing.supports(GemmSpec(4, 4, 4))
    broken, _ = opened(Lt("HIPBLAS_STATUS_INTERNAL_ERROR"))
    with pytest.raises(LibraryError, match="HIPBLAS_STATUS_INTERNAL_ERROR"):
        broken.supports(GemmSpec(4, 4, 4))


def test_without_the_library() -> None:
    class Absent(Lt):
        def _Create(self, given: dict[str, Any]) -> Any:
            raise RuntimeError("failed to dlopen 'libhipblaslt.so'")

    with pytest.raises(LibraryError, match="failed to dlopen"):
        opened(Absent())


def test_the_bindings_themselves() -> None:
    """Where they are installed, they have what their stub says; where not, the way to get them is told."""
    try:
        modules = {name: importlib.import_module(f"rocm.bindings.{name}") for name in FACTS["enums"]}
    except ImportError:
        with pytest.raises(ROCmNotAvailableError, match=r"pip install 'pyflame-rocm\[rocm\]'"):
            HipBlasLt()
        return
    for module, found in modules.items():
        for name, members in FACTS["enums"][module].items():
            assert set(members) <= set(getattr(found, name).__members__)
    assert all(hasattr(modules["hipblaslt"], f) for f in FACTS["functions"])
