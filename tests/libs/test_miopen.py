"""MIOpen's binding against a stand-in that writes down what C received, by the header's own parameter names."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import pyflame as pf
from pyflame.backend import rocm
from pyflame.core.errors import ArgumentError, ArgumentTypeError, ShapeError
from pyflame.libs.binding import LibraryError
from pyflame.libs.conv import DIRECTIONS, ConvSpec
from pyflame.libs.rocm import miopen
from pyflame.libs.rocm.miopen import BatchNormParams, ConvParams, PoolParams, ROCmDNN
from pyflame.libs.rocm.tuning import FORM, MIOpenTuningCache, Solution
from tests.libs.standin import Call, StandIn, build
from tests.runtime.fake import FakeDriver
from tests.runtime.machine import machine, vendor

NAMES = {"forward": "Forward", "backward_data": "BackwardData", "backward_filter": "BackwardWeights"}
# What the header calls each operand.
PARAMETERS = {
    "forward": {"x": "x", "w": "w", "y": "y"},
    "backward_data": {"x": "dx", "w": "w", "y": "dy"},
    "backward_filter": {"x": "x", "w": "dw", "y": "dy"},
}
X, W, Y, AREA = 0x7F0000001000, 0x7F0000002000, 0x7F0000003000, 0x7F0000004000
# struct miopenConvSolution_t { float; size_t; uint64_t; enum; }: the first one needs too much room.
SOLUTIONS = """*(size_t *)solutionCount = 2;
struct { float t; size_t w; uint64_t id; int a; } *s = solutions;
s[0].t = 1.0f; s[0].w = 1 << 30; s[0].id = 7; s[0].a = 1;
s[1].t = 2.0f; s[1].w = 512; s[1].id = 1099511627776; s[1].a = 5;"""
BEHAVIOUR = {
    "miopenGetVersion": "*(size_t *)major = 3; *(size_t *)minor = 4; *(size_t *)patch = 1;",
    "miopenSetTensorDescriptor": 'ints("dims", dimsA, nbDims); ints("strides", stridesA, nbDims);',
    "miopenInitConvolutionNdDescriptor": (
        'ints("pad", padA, spatialDim); ints("stride", strideA, spatialDim); ints("dilation", dilationA, spatialDim);'
    ),
    "miopenSetNdPoolingDescriptor": (
        'ints("window", windowDimA, nbDims); ints("pad", padA, nbDims); ints("stride", stridesA, nbDims);'
    ),
    "miopenGetReductionWorkspaceSize": "*(size_t *)sizeInBytes = 8589934592;",
    "miopenActivationForward": "status = *(float *)alpha == 1.0f && *(float *)beta == 0.0f ? 0 : 3;",
    "miopenReduceTensor": "status = *(float *)alpha == 1.0f && *(float *)beta == 0.0f ? 0 : 3;",
    **{f"miopenConvolution{n}GetSolution": SOLUTIONS for n in NAMES.values()},
    **{f"miopenConvolution{n}GetWorkSpaceSize": "*(size_t *)workSpaceSize = 4294967297;" for n in NAMES.values()},
}
SPEC = ConvSpec(2, 4, (9, 8), 6, (3, 2), (2, 1), (1, 0), (1, 2), 2, "float16")


@pytest.fixture(scope="module")
def standin(tmp_path_factory: pytest.TempPathFactory) -> StandIn:
    return build("miopen", tmp_path_factory.mktemp("miopen"), BEHAVIOUR)


@pytest.fixture
def dnn(standin: StandIn) -> Iterator[ROCmDNN]:
    made = ROCmDNN(standin.path, "gfx942", MIOpenTuningCache())
    standin.calls()
    yield made
    made.close()
    assert [c.name for c in standin.calls()][-1] == "miopenDestroy"


class Seen:
    """The calls of one operation, with descriptors resolved to what they describe."""

    def __init__(self, calls: list[Call]) -> None:
        self.calls = calls
        self.tensors = {c["tensorDesc"]: c for c in calls if c.name == "miopenSetTensorDescriptor"}
        made = sum("Create" in c.name for c in calls)
        assert made == sum("miopenDestroy" in c.name for c in calls), "descriptors leak"

    def __getitem__(self, name: str) -> Call:
        (found,) = [c for c in self.calls if c.name == name]
        return found

    def names(self) -> list[str]:
        return [c.name for c in self.calls if "Descriptor" not in c.name]

    def shape(self, descriptor: int) -> tuple[list[int], int]:
        return self.tensors[descriptor]["dims[]"], self.tensors[descriptor]["dataType"]


def seen(standin: StandIn) -> Seen:
    return Seen(standin.calls())


def test_handle(dnn: ROCmDNN, standin: StandIn) -> None:
    assert dnn.version == "3.4.1"
    dnn.set_stream(0x7F0000000040)
    call = standin.call("miopenSetStream")
    assert (call["handle"], call["streamID"]) == (dnn.handle(), 0x7F0000000040)
    with pytest.raises(ArgumentTypeError, match=r"\[MIOpen\] expected a pf.Stream or a stream's handle but got 'fast'"):
        dnn.set_stream("fast")


def test_of_a_device(standin: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The names of the ROCm backend: one library per GPU, on its streams, its searches kept under its name."""
    monkeypatch.setattr(miopen, "find_rocm", lambda *_: (ctypes.CDLL(standin.path), standin.path))
    driver, path = FakeDriver(devices=2, kind="rocm", arch="gfx90a"), tmp_path / "miopen.json"
    with machine(rocm=vendor("rocm", driver)):
        first = rocm.get_dnn()
        standin.calls()
        pf.rocm_set_device(1)
        second, stream = rocm.get_dnn(), pf.rocm.Stream()
        assert driver.current == 1 and second is rocm.get_dnn("rocm:1") and first is rocm.get_dnn(0) is not second
        assert standin.call("miopenSetStream")["streamID"] == pf.current_stream().stream.handle
        driver.set_device(0)  # other work went on there
        second.set_stream(stream)
        assert driver.current == 1
        assert standin.call("miopenSetStream")["streamID"] == stream.stream.handle
        made = rocm.ROCmDNN(cache=persisted(path))
        made.convolve("forward", SPEC, X, W, Y, 0, AREA, 4096)
        (key,) = json.loads(path.read_text())["entries"]
        assert key.startswith("3.4.1 | gfx90a:xnack- | forward conv")
        for library in (made, second, first):
            library.close()


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_convolution(dnn: ROCmDNN, standin: StandIn, direction: str) -> None:
    name, called = NAMES[direction], PARAMETERS[direction]
    dnn.convolve(direction, SPEC, X, W, Y, 11, AREA, 4096)
    first = seen(standin)
    assert first.names() == [
        "miopenSetConvolutionGroupCount",
        "miopenSetStream",
        f"miopenFindConvolution{name}Algorithm",
        f"miopenConvolution{name}GetSolution",
        f"miopenConvolution{name}CompileSolution",
        f"miopenConvolution{name}Immediate",
    ]
    shapes = {"x": [2, 4, 9, 8], "w": [6, 2, 3, 2], "y": [2, 6, 5, 6]}
    assert tuple(shapes["y"]) == SPEC.y
    addresses = {"x": X, "w": W, "y": Y}
    for function in (f"miopenFindConvolution{name}Algorithm", f"miopenConvolution{name}Immediate"):
        call = first[function]
        for operand, parameter in called.items():
            assert call[parameter] == addresses[operand]
            assert first.shape(call[f"{parameter}Desc"]) == (shapes[operand], 0)
        assert (call["workSpace"], call["workSpaceSize"]) == (AREA, 4096)
    assert first[f"miopenConvolution{name}Immediate"]["solution_id"] == 1 << 40  # the one that fits
    assert first[f"miopenFindConvolution{name}Algorithm"]["exhaustiveSearch"] == 1
    window = first["miopenInitConvolutionNdDescriptor"]
    assert (window["pad[]"], window["stride[]"], window["dilation[]"]) == ([1, 0], [2, 1], [1, 2])
    assert first["miopenSetConvolutionGroupCount"]["groupCount"] == 2
    # The second time nothing is searched.
    dnn.convolve(direction, SPEC, X, W, Y, None, AREA, 4096)
    assert [n for n in seen(standin).names() if "SetConvolution" not in n] == [f"miopenConvolution{name}Immediate"]
    # What varies from run to run is left out on demand alone, in a search of its own.
    dnn.convolve(direction, SPEC, X, W, Y, None, AREA, 4096, deterministic=True)
    calls = seen(standin)
    attribute, described = calls["miopenSetConvolutionAttribute"], calls["miopenInitConvolutionNdDescriptor"]
    assert (attribute["convDesc"], attribute["attr"], attribute["value"]) == (described["convDesc"], 1, 1)
    assert f"miopenFindConvolution{name}Algorithm" in calls.names()


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_workspace(dnn: ROCmDNN, standin: StandIn, direction: str) -> None:
    assert dnn.workspace_size(direction, SPEC) == (1 << 32) + 1
    call = seen(standin)[f"miopenConvolution{NAMES[direction]}GetWorkSpaceSize"]
    assert {call[f"{p}Desc"] for p in PARAMETERS[direction].values()} & {0} == set()
    with pytest.raises(LibraryError, match="within 8 bytes of workspace but got 2"):
        dnn.convolve(direction, SPEC, X, W, Y, 0, AREA, 8)
    seen(standin)


def test_conv2d_of_the_reference(dnn: ROCmDNN, standin: StandIn) -> None:
    params = ConvParams.Conv2D(1, 1, stride_h=2, stride_w=2)
    shapes = ((1, 3, 8, 8), (5, 3, 3, 3), (1, 5, 4, 4))
    assert dnn.conv2d_forward_workspace_size("float32", *shapes, params) > 0
    seen(standin)
    dnn.conv2d_forward("float32", shapes[0], X, shapes[1], W, shapes[2], Y, params, AREA, 4096)
    call = seen(standin)["miopenConvolutionForwardImmediate"]
    assert (call["x"], call["w"], call["y"]) == (X, W, Y)
    with pytest.raises(ShapeError, match=r"\(1, 5, 4, 4\)"):
        dnn.conv2d_forward("float32", shapes[0], X, shapes[1], W, (1, 5, 8, 8), Y, params)
    with pytest.raises(ArgumentError, match="float46"):
        dnn.conv2d_forward("float46", shapes[0], X, shapes[1], W, shapes[2], Y, params)


def test_one_dimension(dnn: ROCmDNN, standin: StandIn) -> None:
    dnn.convolve("forward", ConvSpec(1, 2, (10,), 3, (4,), dtype="bfloat16"), X, W, Y, 0, AREA, 4096)
    calls = seen(standin)
    call = calls["miopenConvolutionForwardImmediate"]
    assert calls.shape(call["xDesc"]) == ([1, 2, 1, 10], 5)
    assert calls.shape(call["yDesc"]) == ([1, 3, 1, 7], 5)


def test_pooling(dnn: ROCmDNN, standin: StandIn) -> None:
    params = PoolParams.Pool2D(3, 2, 1, 0, 2, 2)
    for kind, mode in (("max_pool", 0), ("avg_pool", 2), ("avg_pool_exclusive", 1)):
        dnn.pooling2d_forward(kind, "float32", (2, 3, 7, 8), X, (2, 3, 4, 4), Y, params)
        calls = seen(standin)
        call, described = calls["miopenPoolingForward"], calls["miopenSetNdPoolingDescriptor"]
        assert described["mode"] == mode
        assert (described["window[]"], described["pad[]"], described["stride[]"]) == ([3, 2], [1, 0], [2, 2])
        assert (call["x"], call["y"], call["do_backward"], call["workSpaceSize"]) == (X, Y, 0, 0)
        assert calls.shape(call["yDesc"]) == ([2, 3, 4, 4], 1)
    with pytest.raises(ShapeError, match="rounds down"):
        dnn.pooling2d_forward("max_pool", "float32", (2, 3, 7, 8), X, (2, 3, 5, 4), Y, params)
    with pytest.raises(ArgumentError, match="did you mean 'max_pool'"):
        dnn.pooling2d_forward("maxpool", "float32", (2, 3, 7, 8), X, (2, 3, 4, 4), Y, params)


def test_batch_norm(dnn: ROCmDNN, standin: StandIn) -> None:
    at = [0x5000 + 16 * i for i in range(8)]
    dnn.batchnorm_forward_training("float16", (4, 3, 5), X, Y, *at[:6], BatchNormParams(1e-3, 0.25))
    calls = seen(standin)
    call = calls["miopenBatchNormalizationForwardTraining"]
    names = (
        "bnScale",
        "bnBias",
        "resultRunningMean",
        "resultRunningVariance",
        "resultSaveMean",
        "resultSaveInvVariance",
    )
    assert [call[n] for n in names] == at[:6]
    assert (call["bn_mode"], call["expAvgFactor"], call["epsilon"]) == (1, 0.25, 1e-3)
    assert calls.shape(call["xDesc"]) == ([4, 3, 5, 1], 0)
    assert calls.shape(call["bnScaleBiasMeanVarDesc"]) == ([1, 3, 1, 1], 1)
    dnn.batchnorm_forward_inference("float32", (4, 3, 5, 6, 7), X, Y, *at[:4])
    calls = seen(standin)
    call = calls["miopenBatchNormalizationForwardInference"]
    assert [call[n] for n in ("bnScale", "bnBias", "estimatedMean", "estimatedVariance")] == at[:4]
    assert call["epsilon"] == 1e-5
    assert calls.shape(call["bnScaleBiasMeanVarDesc"]) == ([1, 3, 1, 1, 1], 1)


@pytest.mark.parametrize(("name", "mode", "alpha"), [("relu", 3, 0.0), ("tanh", 2, 1.0), ("leaky_relu", 8, 0.2)])
def test_activation(dnn: ROCmDNN, standin: StandIn, name: str, mode: int, alpha: float) -> None:
    dnn.activation_forward(name, "float32", (3, 5, 7), X, Y, alpha=0.2)
    calls = seen(standin)
    described = calls["miopenSetActivationDescriptor"]
    assert (described["mode"], described["activAlpha"]) == (mode, alpha)
    assert calls.shape(calls["miopenActivationForward"]["xDesc"]) == ([1, 105, 1, 1], 1)


@pytest.mark.parametrize(
    ("axis", "folded"), [(-1, [24, 5, 1, 1]), (0, [1, 2, 60, 1]), (1, [2, 3, 20, 1]), (2, [6, 4, 5, 1])]
)
def test_softmax(dnn: ROCmDNN, standin: StandIn, axis: int, folded: list[int]) -> None:
    for log in (False, True):
        dnn.softmax_forward("bfloat16", (2, 3, 4, 5), X, Y, axis, log)
        calls = seen(standin)
        call = calls["miopenSoftmaxForward_V2"]
        assert (call["x"], call["y"], call["algorithm"], call["mode"]) == (X, Y, 2 if log else 1, 1)
        assert calls.shape(call["xDesc"]) == (folded, 5)
    with pytest.raises(ShapeError, match="axis"):
        dnn.softmax_forward("float32", (2, 3), X, Y, 2)


def test_reduce(dnn: ROCmDNN, standin: StandIn) -> None:
    assert dnn.reduce_workspace_size("sum", "float32", (2, 3, 4), (2, 4), [1]) == 1 << 33
    seen(standin)
    dnn.reduce("mean", "float16", (2, 3, 4), X, (2, 1, 1), Y, [-1, 1], AREA, 4096)
    calls = seen(standin)
    call = calls["miopenReduceTensor"]
    assert (call["A"], call["C"], call["workspace"], call["workspaceSizeInBytes"]) == (X, Y, AREA, 4096)
    assert calls.shape(call["aDesc"]) == ([2, 3, 4], 0)
    assert calls.shape(call["cDesc"]) == ([2, 1, 1], 0)
    described = calls["miopenSetReduceTensorDescriptor"]
    assert (described["reduceTensorOp"], described["reduceTensorCompType"], described["reduceTensorNanOpt"]) == (
        5,
        1,
        1,
    )
    with pytest.raises(ShapeError, match=r"\(2, 1, 4\)"):
        dnn.reduce("sum", "float32", (2, 3, 4), X, (2, 3), Y, [1])


def test_status_is_an_error(standin: StandIn, tmp_path: Path) -> None:
    broken = build("miopen", tmp_path, {**BEHAVIOUR, "miopenSoftmaxForward_V2": "status = 6;"})
    dnn = ROCmDNN(broken.path, cache=MIOpenTuningCache())
    with pytest.raises(LibraryError, match=r"miopenSoftmaxForward_V2 .* 6 \(miopenStatusNotImplemented\)"):
        dnn.softmax_forward("float32", (2, 3), X, Y)
    seen_calls = [c.name for c in broken.calls()]
    assert seen_calls.count("miopenCreateTensorDescriptor") == seen_calls.count("miopenDestroyTensorDescriptor")


# --- the cache --------------------------------------------------------------------------------------------------------


def persisted(path: Path) -> MIOpenTuningCache:
    return MIOpenTuningCache(MIOpenTuningCache.Config(enable_persistence=True, cache_file=str(path)))


def test_cache_outlives_the_process(standin: StandIn, tmp_path: Path) -> None:
    path = tmp_path / "miopen.json"
    for round_ in range(2):
        cache = persisted(path)
        dnn = ROCmDNN(standin.path, "gfx942", cache)
        standin.calls()
        dnn.convolve("forward", SPEC, X, W, Y, 0, AREA, 4096)
        names = [c.name for c in standin.calls()]
        assert ("miopenFindConvolutionForwardAlgorithm" in names) is (round_ == 0)
        assert "miopenConvolutionForwardCompileSolution" in names
        stats = cache.get_stats()
        assert (stats.hits, stats.misses, stats.entries) == (round_, 1 - round_, 1)
    (key,) = json.loads(path.read_text())["entries"]
    assert key.startswith("3.4.1 | gfx942 | forward conv (2, 4, 9, 8)")


def test_cache_by_version_and_device(tmp_path: Path) -> None:
    cache = persisted(tmp_path / "miopen.json")
    asked: list[bool] = []

    def search(exhaustive: bool) -> Solution:
        asked.append(exhaustive)
        return Solution(len(asked), 0)

    assert cache.solution("3.4", "gfx942", "p", search).number == 1
    assert cache.solution("3.4", "gfx942", "p", search).number == 1
    assert cache.solution("3.5", "gfx942", "p", search).number == 2
    assert cache.solution("3.4", "gfx1100", "p", search).number == 3
    cache.enable_exhaustive_search(False)
    cache.clear()
    assert cache.get_stats().entries == 0
    assert cache.solution("3.4", "gfx942", "p", search).number == 4
    assert asked == [True, True, True, False]
    assert persisted(tmp_path / "miopen.json").get_stats().entries == 1


def test_cache_without_caching() -> None:
    cache = MIOpenTuningCache(MIOpenTuningCache.Config(enable_caching=False))
    for n in (1, 2):
        assert cache.solution("1", "d", "p", lambda _, n=n: Solution(n, 0)).number == n
    assert cache.get_stats() == MIOpenTuningCache.Stats(0, 2, 0)


@pytest.mark.parametrize(
    "content", ["{", "[]", '{"entries": 3}', "\xff\xfe", '{"form": "MIOpen tuning 2", "entries": []}']
)
def test_damaged_file(tmp_path: Path, content: str) -> None:
    path = tmp_path / "miopen.json"
    path.write_text(content, encoding="latin-1")
    cache = MIOpenTuningCache()
    cache.set_cache_file(str(path))
    with pytest.warns(UserWarning, match=r"miopen\.json .* ignored"):
        assert cache.solution("1", "d", "p", lambda _: Solution(3, 4, 0.5)).number == 3
    assert persisted(path).solution("1", "d", "p", lambda _: Solution(9, 0)) == Solution(3, 4, 0.5)


def test_altered_entry_is_searched_again(tmp_path: Path) -> None:
    path = tmp_path / "miopen.json"
    path.write_text(json.dumps({"form": FORM, "entries": {"1 | d | p": {"number": "seven"}}}))
    assert persisted(path).solution("1", "d", "p", lambda _: Solution(3, 0)).number == 3
