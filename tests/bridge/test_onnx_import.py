"""ONNX files as modules: names, shapes on the host, control flow, quantisation, gradients, and files that are wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

import onnx
from onnx import TensorProto, helper

import pyflame as pf
from pyflame.cli import main
from tests.bridge.onnx_models import linear, model, saved, value

W = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)
X = np.linspace(-2, 2, 8, dtype=np.float32).reshape(2, 4)


def test_positional_and_named_inputs(tmp_path: Path) -> None:
    net = pf.onnx.load(saved(tmp_path, linear(W)))
    assert (net.input_names, net.output_names) == (["x"], ["y"])
    want = np.maximum(X @ W, 0)
    np.testing.assert_allclose(net(pf.tensor(X)).numpy(), want, rtol=1e-6)
    np.testing.assert_allclose(net(x=X).numpy(), want, rtol=1e-6)
    np.testing.assert_allclose(pf.onnx.run(tmp_path / "model.onnx", {"x": X})["y"], want, rtol=1e-6)
    np.testing.assert_allclose(pf.jit(net)(pf.tensor(X)).numpy(), want, rtol=1e-6)


def test_weights_are_parameters_frozen_unless_asked(tmp_path: Path) -> None:
    path = saved(tmp_path, linear(W))
    assert [p.requires_grad for p in pf.onnx.load(path).parameters()] == [False]
    net = pf.onnx.load(path, trainable=True)
    net(pf.tensor(X)).sum().backward()
    (weight,) = net.parameters()
    want = X.T @ (X @ W > 0)
    assert weight.grad is not None
    np.testing.assert_allclose(weight.grad.numpy(), want, rtol=1e-5)
    assert net.weight_names == {"w": "w"} and list(net.state_dict()) == ["w"]


@pytest.mark.parametrize(
    ("args", "named", "message"),
    [
        ((), {}, r"expected all of the inputs \['x'\]"),
        ((X, X), {}, "expected at most 1 inputs but got 2"),
        ((), {"y": X}, "expected inputs among"),
        ((X[:, :3],), {}, r"expected input 'x' of shape \('n', 4\) but got \(2, 3\)"),
        ((X.astype(np.float64),), {}, "expected input 'x' as float32 but got float64"),
    ],
)
def test_wrong_inputs(tmp_path: Path, args: Any, named: Any, message: str) -> None:
    net = pf.onnx.load(saved(tmp_path, linear(W)))
    with pytest.raises(pf.PyFlameError, match=message):
        net(*args, **named)


def test_shapes_are_folded_so_that_it_jits(tmp_path: Path) -> None:
    """Shape -> Gather -> Concat -> Reshape."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "first"], ["n"], axis=0),
        helper.make_node("Concat", ["n", "rest"], ["to"], axis=0),
        helper.make_node("Reshape", ["x", "to"], ["y"]),
    ]
    constants = {"first": np.array([0]), "rest": np.array([2, -1])}
    net = pf.onnx.load(saved(tmp_path, model(nodes, [value("x", ["n", 4])], [value("y", None)], constants)))
    for rows in (1, 3):
        x = pf.randn(rows, 4)
        assert pf.jit(net)(x).shape == (rows, 2, 2)


def _loop() -> Any:
    """h = h * 2 for a number of times, with all values on the way."""
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["cond"], ["again"]),
            helper.make_node("Mul", ["h", "two"], ["next"]),
            helper.make_node("Identity", ["next"], ["seen"]),
        ],
        "body",
        [value("i", [], TensorProto.INT64), value("cond", [], TensorProto.BOOL), value("h", [2])],
        [value("again", [], TensorProto.BOOL), value("next", [2]), value("seen", [2])],
    )
    node = helper.make_node("Loop", ["count", "", "x"], ["y", "all"], body=body)
    inputs = [value("count", [], TensorProto.INT64), value("x", [2])]
    return model([node], inputs, [value("y", [2]), value("all", ["n", 2])], {"two": np.float32([2, 2])})


def test_loop(tmp_path: Path) -> None:
    net = pf.onnx.load(saved(tmp_path, _loop()))
    y, seen = net(np.int64(3), np.float32([1, 2]))
    assert y.tolist() == [8, 16] and seen.tolist() == [[2, 4], [4, 8], [8, 16]]


def test_if_takes_one_branch(tmp_path: Path) -> None:
    def branch(name: str, op: str) -> Any:
        return helper.make_graph([helper.make_node(op, ["x"], [name])], name, [], [value(name, [2])])

    node = helper.make_node("If", ["c"], ["y"], then_branch=branch("a", "Exp"), else_branch=branch("b", "Neg"))
    proto = model([node], [value("c", [], TensorProto.BOOL), value("x", [2])], [value("y", [2])])
    net = pf.onnx.load(saved(tmp_path, proto))
    assert net(False, np.float32([1, 2])).tolist() == [-1, -2]
    np.testing.assert_allclose(net(True, np.float32([1, 2])).numpy(), np.exp([1, 2]), rtol=1e-6)


def test_quantised_pairs_equal_onnxruntime(tmp_path: Path) -> None:
    """Weights of 7 bits: without VNNI onnxruntime adds pairs of products in 16 bits, and cuts what is more."""
    ort = pytest.importorskip("onnxruntime")
    rng = np.random.default_rng(3)
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "xs", "xz"], ["xf"]),
        helper.make_node("DequantizeLinear", ["wq", "ws", "wz"], ["wf"], axis=0),
        helper.make_node("Conv", ["xf", "wf"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("QLinearConv", ["xq", "xs", "xz", "wq", "ws", "wz", "ys", "yz"], ["q"], pads=[1, 1, 1, 1]),
        helper.make_node("DynamicQuantizeLinear", ["x"], ["dq", "ds", "dz"]),
    ]
    weights = {
        "xs": np.float32(0.02), "xz": np.uint8(120), "wq": rng.integers(-64, 64, (4, 3, 3, 3), np.int8),
        "ws": np.float32([0.01, 0.02, 0.03, 0.04]), "wz": np.zeros(4, np.int8), "ys": np.float32(0.1),
        "yz": np.uint8(128),
    }  # fmt: skip
    outputs = [value("c", None), value("q", None, TensorProto.UINT8), value("dq", None, TensorProto.UINT8)]
    path = saved(
        tmp_path, model(nodes, [value("x", [1, 3, 6, 6])], outputs, {k: np.array(v) for k, v in weights.items()})
    )
    x = rng.standard_normal((1, 3, 6, 6)).astype(np.float32)
    want = ort.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    found = list(pf.onnx.run(path, {"x": x}).values())
    np.testing.assert_allclose(found[0], want[0], rtol=1e-4, atol=1e-5)
    for got, exact in zip(found[1:], want[1:], strict=True):
        assert got.dtype == exact.dtype
        assert np.abs(got.astype(int) - exact.astype(int)).max() <= 1  # a half, rounded the other way


def test_a_quantised_convolution_is_exact_for_weights_of_8_bits(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    x, w = rng.integers(0, 256, (1, 3, 6, 6), np.uint8), rng.integers(-128, 128, (4, 3, 3, 3), np.int8)
    node = helper.make_node("QLinearConv", ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz"], ["y"])
    weights = {
        "xs": np.float32(0.5), "xz": np.uint8(120), "w": w, "ws": np.float32(0.25), "wz": np.int8(0),
        "ys": np.float32(64), "yz": np.uint8(128),
    }  # fmt: skip
    inputs, outputs = [value("x", x.shape, TensorProto.UINT8)], [value("y", None, TensorProto.UINT8)]
    proto = model([node], inputs, outputs, {k: np.array(v) for k, v in weights.items()})
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(int) - 120, (3, 3), axis=(2, 3))
    sums = np.einsum("bchwij,ocij->bohw", windows, w.astype(int))
    (found,) = pf.onnx.run(saved(tmp_path, proto), {"x": x}).values()
    np.testing.assert_array_equal(found, np.clip(np.round(sums / 512) + 128, 0, 255))


# --- what is missing and what is damaged ------------------------------------------------------------------------------


def test_all_missing_operators_are_named_at_once(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Strange", ["a"], ["b"], "first", domain="my.domain"),
        helper.make_node("ImageDecoder", ["b"], ["s"], "second"),
        helper.make_node("StringConcat", ["s", "at"], ["y"], "third"),
    ]
    proto = model(nodes, [value("x", [2])], [value("y", [2])], {"at": np.array(0)}, opset=20)
    proto.opset_import.append(helper.make_opsetid("my.domain", 1))
    with pytest.raises(pf.NotSupportedError, match=r"my\.domain::Strange") as error:
        pf.onnx.load(saved(tmp_path, proto))
    for part in ("'first'", "ImageDecoder (node 'second')", "StringConcat (node 'third')"):
        assert part in str(error.value)


@pytest.mark.parametrize("content", [b"", b"not a model", b"\x08\x07\x12\xff\xff\xff\xff\x0f"])
def test_what_is_no_model(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises((pf.FileFormatError, pf.NotSupportedError), match=r"model\.onnx"):
        pf.onnx.load(path)


def test_truncated_files(tmp_path: Path) -> None:
    whole = saved(tmp_path, linear(W)).read_bytes()
    path = tmp_path / "cut.onnx"
    for length in range(1, len(whole), 17):
        path.write_bytes(whole[:length])
        with pytest.raises(pf.PyFlameError, match=r"\[onnx\].*cut\.onnx"):
            pf.onnx.load(path)


def test_an_opset_of_the_future(tmp_path: Path) -> None:
    proto = linear(W)
    proto.opset_import[0].version = 99
    with pytest.raises(pf.NotSupportedError, match=r"but .* has 99"):
        pf.onnx.load(saved(tmp_path, proto))


def _external(folder: Path, **fields: str) -> Path:
    """The model with its weight in a file beside it, as the fields say."""
    proto = linear(W)
    onnx.save(proto, folder / "model.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    proto = onnx.load(folder / "model.onnx", load_external_data=False)
    for entry in proto.graph.initializer[0].external_data:
        entry.value = fields.get(entry.key, entry.value)
    (folder / "model.onnx").write_bytes(proto.SerializeToString())
    return folder / "model.onnx"


def test_external_data(tmp_path: Path) -> None:
    found = pf.onnx.run(_external(tmp_path), {"x": X})["y"]
    np.testing.assert_allclose(found, np.maximum(X @ W, 0), rtol=1e-6)


@pytest.mark.parametrize("location", ["../w.bin", "/etc/passwd", "", ".", "a/../../w.bin", "link"])
def test_external_data_stays_in_its_folder(tmp_path: Path, location: str) -> None:
    folder = tmp_path / "inside"
    folder.mkdir()
    (tmp_path / "w.bin").write_bytes(W.tobytes())
    (folder / "link").symlink_to(tmp_path / "w.bin")
    with pytest.raises(pf.FileFormatError, match=r"field location of tensor 'w'"):
        pf.onnx.load(_external(folder, location=location))


@pytest.mark.parametrize("fields", [{"length": "99999"}, {"offset": "40"}, {"offset": "-1"}, {"length": "x"}])
def test_external_data_within_its_file(tmp_path: Path, fields: dict[str, str]) -> None:
    with pytest.raises(pf.FileFormatError, match="offset and length of tensor 'w'"):
        pf.onnx.load(_external(tmp_path, **fields))


# --- the command ------------------------------------------------------------------------------------------------------


def test_command_info(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["onnx", "info", str(saved(tmp_path, linear(W))), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["opset"] == 18 and found["weight_bytes"] == W.nbytes
    assert found["operators"][0] == {"name": "MatMul", "count": 1, "supported": True}


def test_command_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(saved(tmp_path, linear(W)))
    np.save(tmp_path / "x.npy", X)
    out = tmp_path / "y.npz"
    assert main(["onnx", "run", path, "--input", f"x={tmp_path / 'x.npy'}", "--json", "--output", str(out)]) == 0
    found = json.loads(capsys.readouterr().out)
    want = np.maximum(X @ W, 0)
    assert found["outputs"][0]["shape"] == [2, 3] and found["outputs"][0]["max"] == pytest.approx(want.max())
    np.testing.assert_allclose(np.load(out)["y"], want, rtol=1e-6)
    assert main(["onnx", "run", path, "--shape", "x=5,4"]) == 0
    assert "(5, 3)" in capsys.readouterr().out
    assert main(["onnx", "run", path, "--input", "x"]) == 1
    assert "expected --input NAME=FILE.npy" in capsys.readouterr().err
