"""The simulated HIP offers what AMD's bindings offer, in their calling convention: it cannot drift from them."""

from __future__ import annotations

import ast
import enum
import inspect
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from pyflame.runtime.rocm import driver as rocm_driver
from pyflame.runtime.sim.hip import types as hip_types
from pyflame.runtime.sim.hip.arguments import DeviceArray, Handle
from pyflame.runtime.sim.hip.module import Hip
from tests.needs import amd_bindings
from tests.runtime.test_bindings import calls
from tests.sim.machines import fake_hip

OFFERED = sorted(n for n in dir(Hip) if n.startswith("hip"))
ENUMS = sorted(
    n for n, v in vars(hip_types).items() if isinstance(v, type) and issubclass(v, enum.IntEnum) and n != "IntEnum"
)
CONSTANTS = sorted(n for n, v in vars(hip_types).items() if isinstance(v, int) and not n.startswith("_"))


@cache
def stub() -> dict[str, ast.FunctionDef]:
    tree = ast.parse((Path(amd_bindings().__file__).parent / "hip.pyi").read_text())
    return {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef)}


def arity(function: ast.FunctionDef) -> int:
    """How many values a function of the stub gives, by its docstring."""
    found = re.search(r"of size (\d+)", ast.get_docstring(function) or "")
    assert found is not None, function.name
    return int(found[1])


def test_there_is_enough_to_compare() -> None:
    assert len(OFFERED) > 100
    assert len(ENUMS) == 11
    assert len(CONSTANTS) > 35


@pytest.mark.parametrize("name", OFFERED)
def test_signature(name: str) -> None:
    official = stub().get(name)
    assert official is not None, f"{name} is not in rocm.bindings.hip"
    mine = list(inspect.signature(getattr(Hip, name)).parameters.values())[1:]  # without self
    theirs = official.args
    assert [p.name for p in mine] == [a.arg for a in theirs.args]
    assert not theirs.kwonlyargs and theirs.vararg is None and theirs.kwarg is None
    assert all(p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD for p in mine)
    assert [p.default for p in mine if p.default is not inspect.Parameter.empty] == list(
        map(ast.literal_eval, theirs.defaults)
    )
    values = getattr(getattr(Hip, name), "values", 0)  # those that are no `hip(...)` give the status alone
    assert values + 1 == arity(official)


@pytest.mark.parametrize("name", ENUMS)
def test_enumeration(name: str) -> None:
    hip = amd_bindings()
    official = getattr(hip, name).__members__
    mine = getattr(hip_types, name).__members__
    assert {n: int(v) for n, v in mine.items()} == {n: int(official[n]) for n in mine}
    if name != "hipDeviceAttribute_t":  # of the many attributes, those that are answered
        assert set(mine) == set(official)


def test_constants() -> None:
    hip = amd_bindings()
    assert {n: getattr(hip_types, n) for n in CONSTANTS} == {n: getattr(hip, n) for n in CONSTANTS}


def test_results_know_what_the_bindings_objects_know() -> None:
    types = amd_bindings("util.types")
    for mine, official in ((Handle, types.Pointer), (DeviceArray, types.DeviceArray)):
        added = {n for n in vars(mine) if not n.startswith("_") or n == "__cuda_array_interface__"}
        assert added and all(hasattr(official, n) for n in added), mine
    array = DeviceArray(0x1000, 12)
    theirs = types.DeviceArray(0x1000)
    theirs.configure(_force=True, shape=(12,))
    assert array.__cuda_array_interface__["data"] == theirs.__cuda_array_interface__["data"]
    assert array.shape == theirs.shape and int(array) == int(theirs) and array.as_c_void_p.value == 0x1000


@pytest.mark.parametrize("call", ["hipGetDeviceProperties", "hipPointerGetAttributes"])
def test_structures_have_only_official_fields(call: str) -> None:
    official = amd_bindings()
    hip = fake_hip()
    given: Any = 0 if call == "hipGetDeviceProperties" else hip.hipMalloc(4)[1]
    kind = official.hipDeviceProp_t if call == "hipGetDeviceProperties" else official.hipPointerAttribute_t
    fields = vars(getattr(hip, call)(given)[1])
    assert fields and all(hasattr(kind, f) for f in fields)


def test_everything_the_driver_calls_is_simulated() -> None:
    assert set(calls(rocm_driver)) <= set(OFFERED)


def test_a_function_that_is_not_simulated_says_so() -> None:
    hip = fake_hip()
    assert hip.has_symbol("hipMalloc") and hip.has_symbol(b"hipFree") and not hip.has_symbol("hipTexRefSetAddress")
    with pytest.raises(AttributeError, match=r"expected a function that is simulated but got hipTexRefSetAddress"):
        hip.hipTexRefSetAddress
    assert hip.hipStreamNonBlocking == 1
    assert hip.hipError_t.hipErrorOutOfMemory == 2
