"""Every call of the drivers exists in the vendors' bindings, with that many parameters.

Read from the drivers' source on one side and from the bindings' stubs or docstrings on the other, so it holds without a
GPU, and without HIP or CUDA being installed.
"""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Any

import pytest

from pyflame.runtime.cuda import compiler as cuda_compiler
from pyflame.runtime.cuda import driver as cuda_driver
from pyflame.runtime.cuda import errors as cuda_errors
from pyflame.runtime.rocm import compiler as rocm_compiler
from pyflame.runtime.rocm import driver as rocm_driver
from pyflame.runtime.rocm import errors as rocm_errors
from tests.needs import amd_bindings

Used = dict[str, set[int]]
PARAMETERS = {"create": 5, "compile": 3, "destroy": 1, "log_size": 1, "log": 2, "code_size": 1, "code": 2}


def calls(
    module: Any, callees: tuple[str, ...] = ("self._call", "self._call.raw", "self._call.succeeds", "call", "runtime")
) -> Used:
    """Names given to a driver's `self._call` and `self._call.raw`, with how many arguments follow."""
    found: Used = {}
    for node in ast.walk(ast.parse(Path(module.__file__).read_text())):
        if not isinstance(node, ast.Call) or not node.args or not isinstance(node.args[0], ast.Constant):
            continue
        if ast.unparse(node.func) in callees:
            # A starred argument is a grid or a block.
            count = sum(3 if isinstance(a, ast.Starred) else 1 for a in node.args[1:])
            found.setdefault(str(node.args[0].value), set()).add(count)
    return found


def attributes(module: Any, owner: str) -> set[str]:
    """What a driver reads of an object that it calls by this name."""
    tree = ast.parse(Path(module.__file__).read_text())
    return {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute) and ast.unparse(n.value) == owner}


# --- AMD --------------------------------------------------------------------------------------------------------------


def stub(name: str) -> dict[str, ast.AST]:
    """Top-level names of a stub of AMD's bindings."""
    folder = Path(amd_bindings(name).__file__).parent
    out: dict[str, ast.AST] = {}
    for node in ast.parse((folder / f"{name}.pyi").read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            out[node.name] = node
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            out[node.target.id] = node
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            value = node.value
            out[node.targets[0].id] = out[value.id] if isinstance(value, ast.Name) and value.id in out else node
    return out


def members(node: ast.AST) -> set[str]:
    assert isinstance(node, ast.ClassDef)
    return {n.target.id for n in node.body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)} | {
        n.name for n in node.body if isinstance(n, ast.FunctionDef)
    }


def test_hip_calls() -> None:
    known = stub("hip")
    used = calls(rocm_driver)
    assert len(used) > 35
    for name, counts in used.items():
        function = known.get(name)
        assert isinstance(function, ast.FunctionDef), f"{name} is not in rocm.bindings.hip"
        assert counts == {len(function.args.args)}, f"{name} takes {len(function.args.args)} parameters"


def test_hip_names() -> None:
    known = stub("hip")
    kinds = known["hipFunction_attribute"]
    assert set(rocm_driver._ATTRIBUTES.values()) <= members(kinds)
    assert "hipStreamCaptureModeRelaxed" in members(known["hipStreamCaptureMode"])
    read = attributes(rocm_driver, "self._call.module") | attributes(rocm_driver, "hip")
    assert {"hipStreamNonBlocking", "hipEventDisableTiming", "hipHostMallocPortable"} <= read <= known.keys()
    fields = attributes(rocm_driver, "p")
    assert len(fields) > 12
    assert fields <= members(known["hipDeviceProp_t"])


def test_hip_status_codes() -> None:
    hip = amd_bindings()
    for code, cause in rocm_errors.CAUSES.items():
        assert int(getattr(hip.hipError_t, cause.name)) == code
    codes = rocm_driver._NO_DEVICE, rocm_driver._NOT_READY, rocm_driver._PEER_ALREADY_ENABLED
    assert [hip.hipError_t(c).name for c in codes] == [
        "hipErrorNoDevice",
        "hipErrorNotReady",
        "hipErrorPeerAccessAlreadyEnabled",
    ]


def test_hiprtc_calls() -> None:
    known = stub("hiprtc")
    for role, name in vars(rocm_compiler.Hiprtc.names).items():
        function = known.get(name)
        assert isinstance(function, ast.FunctionDef), f"{name} is not in rocm.bindings.hiprtc"
        assert len(function.args.args) == PARAMETERS[role]
    known |= stub("hip")
    for name in calls(rocm_compiler):
        assert name in known


# --- NVIDIA -----------------------------------------------------------------------------------------------------------


def parameters(function: Any) -> int:
    """How many a function of NVIDIA's bindings takes, by the first line of its docstring."""
    inside = inspect.getdoc(function).splitlines()[0].split("(", 1)[1].rsplit(")", 1)[0]  # type: ignore[union-attr]
    depth, count = 0, bool(inside.strip()) + 0
    for letter in inside:
        depth += (letter in "[(") - (letter in "])")
        count += letter == "," and depth == 0
    return count


def test_cuda_calls() -> None:
    cuda = pytest.importorskip("cuda.bindings.driver")
    used = calls(cuda_driver)
    assert len(used) > 35
    for name, counts in used.items():
        assert counts == {parameters(getattr(cuda, name))}, name
    read = attributes(cuda_driver, "self._call.module")
    assert all(hasattr(cuda, name) for name in read)
    assert all(hasattr(cuda.CUfunction_attribute, name) for name in cuda_driver._ATTRIBUTES.values())
    asked = calls(cuda_driver, ("read",))
    assert len(asked) >= 11
    assert all(hasattr(cuda.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}") for name in asked)


def test_cuda_status_codes() -> None:
    cuda = pytest.importorskip("cuda.bindings.driver")
    for code, cause in cuda_errors.CAUSES.items():
        assert int(getattr(cuda.CUresult, cause.name)) == code
    codes = cuda_driver._NO_DEVICE, cuda_driver._NOT_READY, cuda_driver._PEER_ALREADY_ENABLED
    assert [cuda.CUresult(c).name for c in codes] == [
        "CUDA_ERROR_NO_DEVICE",
        "CUDA_ERROR_NOT_READY",
        "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED",
    ]


def test_nvrtc_calls() -> None:
    nvrtc = pytest.importorskip("cuda.bindings.nvrtc")
    for role, name in vars(cuda_compiler.Nvrtc.names).items():
        assert parameters(getattr(nvrtc, name)) == PARAMETERS[role]
    assert all(hasattr(nvrtc, name) for name in calls(cuda_compiler))
