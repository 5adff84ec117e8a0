"""cuDNN's binding against a stand-in. A GPU is another matter (`tests/gpu/test_libs_on_nvidia.py`)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pyflame.core.errors import ArgumentError
from pyflame.libs.binding import LibraryError
from pyflame.libs.conv import DIRECTIONS, ConvSpec
from pyflame.libs.cuda.cudnn import ConvAlgorithm, Cudnn
from tests.libs.standin import StandIn, build

X, W, Y, AREA = 0x7F0000001000, 0x7F0000002000, 0x7F0000003000, 0x7F0000004000
NAMES = {"forward": "Forward", "backward_data": "BackwardData", "backward_filter": "BackwardFilter"}
PARAMETERS = {
    "forward": {"x": "x", "w": "w", "y": "y"},
    "backward_data": {"x": "dx", "w": "w", "y": "dy"},
    "backward_filter": {"x": "x", "w": "dw", "y": "dy"},
}
# Of three results the second has failed.
RESULTS = """
struct { int algo, status; float time; size_t memory; int determinism, math, reserved[3]; } *p = perfResults;
for (int i = 0; i < 3; i++) { p[i].algo = 6 - i; p[i].status = i == 1 ? 3000 : 0; p[i].time = 2.0f + i;
                              p[i].memory = (size_t)(3 - i) << 32; p[i].math = i == 0 ? 1 : 3;
                              p[i].determinism = i == 0; }
*(int *)returnedAlgoCount = 3;"""
BEHAVIOUR = {
    "cudnnGetVersion": "status = 92700;",
    "cudnnSetTensorNdDescriptor": 'ints("dims", dimA, nbDims); ints("strides", strideA, nbDims);',
    "cudnnSetFilterNdDescriptor": 'ints("dims", filterDimA, nbDims);',
    "cudnnSetConvolutionNdDescriptor": (
        'ints("pad", padA, arrayLength); ints("stride", filterStrideA, arrayLength); '
        'ints("dilation", dilationA, arrayLength);'
    ),
    **{f"cudnnFindConvolution{n}AlgorithmEx": RESULTS for n in NAMES.values()},
    **{f"cudnnGetConvolution{n}Algorithm_v7": RESULTS for n in NAMES.values()},
    **{
        f"cudnnConvolution{n}": "status = *(float *)alpha == 1.0f && *(float *)beta == 0.0f ? 0 : 2000;"
        for n in NAMES.values()
    },
}
SPEC = ConvSpec(2, 4, (9, 8), 6, (3, 2), (2, 1), (1, 0), (1, 2), 2, "bfloat16")


@pytest.fixture(scope="module")
def standin(tmp_path_factory: pytest.TempPathFactory) -> StandIn:
    return build("cudnn", tmp_path_factory.mktemp("cudnn"), BEHAVIOUR)


@pytest.fixture
def dnn(standin: StandIn) -> Iterator[Cudnn]:
    made = Cudnn(standin.path)
    standin.calls()
    yield made
    standin.calls()
    made.close()
    assert [c.name for c in standin.calls()][-1] == "cudnnDestroy"


def test_version(dnn: Cudnn) -> None:
    assert dnn.version == "9.27.0"


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_convolution(dnn: Cudnn, standin: StandIn, direction: str) -> None:
    name = NAMES[direction]
    found = dnn.find(direction, SPEC, X, W, Y, 0x40, AREA, 1 << 34)
    assert found == [ConvAlgorithm(6, 1, 3 << 32, 2e-3), ConvAlgorithm(4, 3, 1 << 32, 4e-3, deterministic=False)]
    dnn.convolve(direction, SPEC, X, W, Y, found[1], 0x41, AREA, 1 << 34)
    calls = standin.calls()
    shapes = {c["tensorDesc"]: c["dims[]"] for c in calls if c.name == "cudnnSetTensorNdDescriptor"}
    shapes |= {c["filterDesc"]: c["dims[]"] for c in calls if c.name == "cudnnSetFilterNdDescriptor"}
    expected = {"x": [2, 4, 9, 8], "w": [6, 2, 3, 2], "y": [2, 6, 5, 6]}
    addresses = {"x": X, "w": W, "y": Y}
    (search,) = [c for c in calls if c.name == f"cudnnFindConvolution{name}AlgorithmEx"]
    (run,) = [c for c in calls if c.name == f"cudnnConvolution{name}"]
    for call in (search, run):
        for operand, parameter in PARAMETERS[direction].items():
            if parameter not in call.arguments:
                parameter = "y"  # cudnn_cnn.h itself calls dy so, once
            assert call[parameter] == addresses[operand]
            descriptor = f"{PARAMETERS[direction][operand]}Desc"
            assert shapes[call[descriptor]] == expected[operand]
        assert (call["workSpace"], call["workSpaceSizeInBytes"]) == (AREA, 1 << 34)
    assert run["algo"] == 4
    assert [c["mathType"] for c in calls if c.name == "cudnnSetConvolutionMathType"] == [1, 3]
    assert [c["streamId"] for c in calls if c.name == "cudnnSetStream"] == [0x40, 0x41]
    (window,) = [c for c in calls if c.name == "cudnnSetConvolutionNdDescriptor"]
    assert (window["pad[]"], window["stride[]"], window["dilation[]"]) == ([1, 0], [2, 1], [1, 2])
    assert (window["mode"], window["computeType"]) == (1, 0)
    assert [c["groupCount"] for c in calls if c.name == "cudnnSetConvolutionGroupCount"] == [2]
    # A later search asks for the spec's own arithmetic again.
    assert dnn.propose(direction, SPEC)[0].number == 6
    calls = standin.calls()
    assert [c.name for c in calls] == ["cudnnSetConvolutionMathType", f"cudnnGetConvolution{name}Algorithm_v7"]
    assert calls[0]["mathType"] == 1


@pytest.mark.parametrize(("tf32", "math"), [(False, [3]), (True, [])])
def test_single_precision(dnn: Cudnn, standin: StandIn, tf32: bool, math: list[int]) -> None:
    dnn.propose("forward", ConvSpec(1, 1, (4, 4), 1, (2, 2), tf32=tf32))
    assert [c["mathType"] for c in standin.calls() if c.name == "cudnnSetConvolutionMathType"] == math


def test_refusals(dnn: Cudnn) -> None:
    with pytest.raises(ArgumentError, match="4294967296 bytes of workspace"):
        dnn.convolve("forward", SPEC, X, W, Y, ConvAlgorithm(4, 3, 1 << 32, 1.0))
    with pytest.raises(ArgumentError, match="sideways"):
        dnn.propose("sideways", SPEC)
    double = ConvSpec(1, 1, (4,), 1, (2,), dtype="float64")
    assert not dnn.supports(double)
    with pytest.raises(LibraryError, match="float64"):
        dnn.propose("forward", double)
