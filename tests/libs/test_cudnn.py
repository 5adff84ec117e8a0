"""cuDNN's binding against a stand-in. A GPU is another matter (`tests/gpu/test_libs_on_nvidia.py`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from pyflame.core.errors import ArgumentError
from pyflame.libs.binding import LibraryError
from pyflame.libs.conv import DIRECTIONS, ConvSpec
from pyflame.libs.cuda.cudnn import Cudnn
from pyflame.libs.cuda.cudnn_table import C
from tests.libs.standin import Call, StandIn, build

X, W, Y, AREA = 0x7F0000001000, 0x7F0000002000, 0x7F0000003000, 0x7F0000004000
PARAMETERS = {
    "forward": ("FORWARD", {"x": "X", "w": "W", "y": "Y"}),
    "backward_data": ("BWD_DATA", {"x": "DX", "w": "W", "y": "DY"}),
    "backward_filter": ("BWD_FILTER", {"x": "X", "w": "DW", "y": "DY"}),
}
# Heuristics A know engines 0 to 3, B knows 3 and 4, the fallback 5. Engine 1 is not supported, 2 varies from run to
# run, 0 and 2 use tensor cores. What a descriptor stands for is found by its address.
HEAD = """
static struct { void *at; long long number, kind; } known[4096];
static int count;
static int place_of(void *at) {
    for (int i = 0; i < count; i++) if (known[i].at == at) return i;
    known[count].at = at;
    known[count].number = -1;
    return count++;
}
static long long *number_of(void *at) { return &known[place_of(at)].number; }
static long long *kind_of(void *at) { return &known[place_of(at)].kind; }
"""
SET = f"""
if (attributeType == {C.CUDNN_TYPE_INT64} || attributeType == {C.CUDNN_TYPE_BACKEND_DESCRIPTOR}
    || attributeType == {C.CUDNN_TYPE_VOID_PTR} || attributeType == {C.CUDNN_TYPE_HANDLE}) {{
  put("\\tvalues[]=");
  for (int i = 0; i < elementCount; i++) put("%lld,", ((long long *)arrayOfElements)[i]);
}} else if (attributeType == {C.CUDNN_TYPE_FLOAT}) put("\\tvalue=%.17e", (double)*(float *)arrayOfElements);
else ints("values", arrayOfElements, elementCount);
if (attributeName == {C.CUDNN_ATTR_ENGINEHEUR_MODE}) *number_of(descriptor) = *(int *)arrayOfElements;
if (attributeName == {C.CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG})
  *number_of(descriptor) = *number_of(*(void **)arrayOfElements);
"""
GET = f"""
long long me = *number_of(descriptor);
if (attributeName == {C.CUDNN_ATTR_ENGINEHEUR_RESULTS}) {{
  long long first = me == {C.CUDNN_HEUR_MODE_A} ? 0 : me == {C.CUDNN_HEUR_MODE_B} ? 3 : 5;
  long long count = me == {C.CUDNN_HEUR_MODE_A} ? 4 : me == {C.CUDNN_HEUR_MODE_B} ? 2 : 1;
  for (int i = 0; i < count; i++) *number_of(((void **)arrayOfElements)[i]) = first + i;
  *(long long *)elementCount = count;
}} else if (attributeName == {C.CUDNN_ATTR_ENGINECFG_ENGINE}) *number_of(*(void **)arrayOfElements) = me;
else if (attributeName == {C.CUDNN_ATTR_ENGINE_NUMERICAL_NOTE}) {{
  int n = 0;
  if (me == 0 || me == 2) ((int *)arrayOfElements)[n++] = {C.CUDNN_NUMERICAL_NOTE_TENSOR_CORE};
  if (me == 2) ((int *)arrayOfElements)[n++] = {C.CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC};
  *(long long *)elementCount = n;
}} else {{
  *(long long *)arrayOfElements = attributeName == {C.CUDNN_ATTR_ENGINE_GLOBAL_INDEX} ? me : (me + 1) << 32;
  *(long long *)elementCount = 1;
}}
"""
BEHAVIOUR = {
    "cudnnGetVersion": "status = 90600;",
    "cudnnBackendCreateDescriptor": "*(void **)descriptor = make(); *number_of(*(void **)descriptor) = -1; "
    '*kind_of(*(void **)descriptor) = descriptorType; put("\\tmade=%lld", *(long long *)descriptor);',
    "cudnnBackendSetAttribute": SET,
    "cudnnBackendGetAttribute": GET,
    # a heuristics' number is its mode, which may be 1 too
    "cudnnBackendFinalize": "status = *number_of(descriptor) == 1 && "
    f"*kind_of(descriptor) == {C.CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR} ? 3001 : 0;",
}
SPEC = ConvSpec(2, 4, (9, 8), 6, (3, 2), (2, 1), (1, 0), (1, 2), 2, "bfloat16")


@pytest.fixture(scope="module")
def standin(tmp_path_factory: pytest.TempPathFactory) -> StandIn:
    return build("cudnn", tmp_path_factory.mktemp("cudnn"), BEHAVIOUR, HEAD)


@pytest.fixture
def dnn(standin: StandIn) -> Iterator[Cudnn]:
    made = Cudnn(standin.path)
    standin.calls()
    yield made
    standin.calls()
    made.close()
    assert [c.name for c in standin.calls()][-1] == "cudnnDestroy"


def attributes(calls: list[Call]) -> dict[int, dict[int, Any]]:
    """What was set, by descriptor and attribute."""
    found: dict[int, dict[int, Any]] = {}
    for call in calls:
        if call.name == "cudnnBackendSetAttribute":
            value = call["values[]"] if "values[]" in call.arguments else call["value"]
            found.setdefault(call["descriptor"], {})[call["attributeName"]] = value
    return found


def test_version(dnn: Cudnn) -> None:
    assert dnn.version == "9.6.0"


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_convolution(dnn: Cudnn, standin: StandIn, direction: str, last: bool) -> None:
    spec = replace(SPEC, channels_last=last)
    found = dnn.propose(direction, spec)
    assert [(p.engine, p.deterministic) for p in found] == [(0, True), (2, False), (3, True), (4, True)]
    assert [p.workspace for p in found] == [(p.engine + 1) << 32 for p in found]
    calls = standin.calls()
    told = attributes(calls)
    kinds = {c["made"]: c["descriptorType"] for c in calls if c.name == "cudnnBackendCreateDescriptor"}
    prefix, ends = PARAMETERS[direction]
    (operation,) = [d for d, kind in kinds.items() if kind in (10, 11, 12)]
    expected = {"x": [2, 4, 9, 8], "w": [6, 2, 3, 2], "y": [2, 6, 5, 6]}
    packed = {"x": [288, 72, 8, 1], "w": [12, 6, 2, 1], "y": [180, 30, 6, 1]}
    lasts = {"x": [288, 1, 32, 4], "w": [12, 1, 4, 2], "y": [180, 1, 36, 6]}
    uids = {}
    for name, end in ends.items():
        (tensor,) = told[operation][getattr(C, f"CUDNN_ATTR_OPERATION_CONVOLUTION_{prefix}_{end}")]
        assert told[tensor][C.CUDNN_ATTR_TENSOR_DIMENSIONS] == expected[name]
        assert told[tensor][C.CUDNN_ATTR_TENSOR_STRIDES] == (lasts if last else packed)[name]
        assert told[tensor][C.CUDNN_ATTR_TENSOR_DATA_TYPE] == [C.CUDNN_DATA_BFLOAT16]
        (uids[name],) = told[tensor][C.CUDNN_ATTR_TENSOR_UNIQUE_ID]
    assert told[operation][getattr(C, f"CUDNN_ATTR_OPERATION_CONVOLUTION_{prefix}_ALPHA")] == 1.0
    assert told[operation][getattr(C, f"CUDNN_ATTR_OPERATION_CONVOLUTION_{prefix}_BETA")] == 0.0
    (window,) = told[operation][getattr(C, f"CUDNN_ATTR_OPERATION_CONVOLUTION_{prefix}_CONV_DESC")]
    assert told[window] == {
        C.CUDNN_ATTR_CONVOLUTION_COMP_TYPE: [C.CUDNN_DATA_FLOAT],
        C.CUDNN_ATTR_CONVOLUTION_CONV_MODE: [C.CUDNN_CROSS_CORRELATION],
        C.CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS: [2],
        C.CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS: [1, 0],
        C.CUDNN_ATTR_CONVOLUTION_POST_PADDINGS: [1, 0],
        C.CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES: [2, 1],
        C.CUDNN_ATTR_CONVOLUTION_DILATIONS: [1, 2],
    }
    dnn.convolve(found[2], X, W, Y, 0x41, AREA, 1 << 34)
    calls = standin.calls()
    (pack,) = attributes(calls).values()
    places = dict(
        zip(pack[C.CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS], pack[C.CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS], strict=True)
    )
    assert {name: places[uid] for name, uid in uids.items()} == {"x": X, "w": W, "y": Y}
    assert pack[C.CUDNN_ATTR_VARIANT_PACK_WORKSPACE] == [AREA]
    (run,) = [c for c in calls if c.name == "cudnnBackendExecute"]
    assert run["executionPlan"] == found[2].made.at
    assert [c["streamId"] for c in calls if c.name == "cudnnSetStream"] == [0x41]


def test_descriptors_are_given_back(dnn: Cudnn, standin: StandIn) -> None:
    found = dnn.propose("forward", SPEC)
    del found
    calls = standin.calls()
    made = [c["made"] for c in calls if c.name == "cudnnBackendCreateDescriptor"]
    assert sorted(made) == sorted(c["descriptor"] for c in calls if c.name == "cudnnBackendDestroyDescriptor")


@pytest.mark.parametrize(("tf32", "engines"), [(False, [3, 4]), (True, [0, 2, 3, 4])])
def test_single_precision(dnn: Cudnn, tf32: bool, engines: list[int]) -> None:
    """Tensor cores round float32 to TF32."""
    spec = ConvSpec(1, 1, (4, 4), 1, (2, 2), tf32=tf32)
    assert [p.engine for p in dnn.propose("forward", spec)] == engines


def test_refusals(dnn: Cudnn) -> None:
    with pytest.raises(ArgumentError, match="4294967296 bytes of workspace"):
        dnn.convolve(dnn.propose("forward", SPEC)[0], X, W, Y)
    with pytest.raises(ArgumentError, match="sideways"):
        dnn.propose("sideways", SPEC)
    double = ConvSpec(1, 1, (4,), 1, (2,), dtype="float64")
    assert not dnn.supports(double)
    with pytest.raises(LibraryError, match="float64"):
        dnn.propose("forward", double)
