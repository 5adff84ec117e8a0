"""Modules and functions as ONNX files: onnxruntime and our own importer compute what we do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame import nn
from pyflame.nn.gpt import GPT, GPTConfig
from pyflame.transform.tree import flatten, is_tensor

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")


def _mlp() -> Any:
    return nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 2)).eval(), (pf.randn(3, 4),)


def _cnn() -> Any:
    layers = [
        nn.Conv2d(3, 8, 3, padding=1, stride=2), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, groups=4, dilation=2, padding=2), nn.SiLU(), nn.AvgPool2d(2, padding=1),
        nn.ConvTranspose2d(8, 4, 3, stride=2, output_padding=1), nn.Flatten(), nn.Linear(256, 5), nn.Softmax(-1),
    ]  # fmt: skip
    return nn.Sequential(*layers).eval(), (pf.randn(2, 3, 20, 20),)


def _gpt() -> Any:
    return GPT(GPTConfig(vocab_size=50, context=16, layers=1, heads=2, width=16)).eval(), (pf.randint(0, 50, (2, 12)),)


def _function() -> Any:
    def fn(x: pf.Tensor, y: pf.Tensor) -> Any:
        return (
            x.sort(-1)[0] + pf.cat([y, y], -1)[..., :4].cumsum(0),
            x.argmax(-1),
            x[pf.tensor([1, 0])],
            nn.functional.pad(x, (1, 2)).mean(0),
            x.std(-1),
            (x > 0).any(0),
            x.flip(1),
            pf.gather(x, 1, pf.tensor([[0, 2], [3, 3], [1, 0]])),
        )

    return fn, (pf.randn(3, 4), pf.randn(3, 2))


@pytest.mark.parametrize(("make", "opset"), [(_mlp, 13), (_mlp, 21), (_cnn, 18), (_gpt, 18), (_function, 13)])
def test_onnxruntime_and_our_importer_agree(tmp_path: Path, make: Callable[[], Any], opset: int) -> None:
    pf.manual_seed(0)
    model, args = make()
    path = tmp_path / "model.onnx"
    pf.onnx.export(model, args, path, opset=opset)
    want: list[pf.Tensor] = []
    flatten(model(*args), want, is_tensor)
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    feed = {i.name: a.numpy() for i, a in zip(session.get_inputs(), args, strict=True)}
    theirs, ours = session.run(None, feed), pf.onnx.run(path, feed).values()
    for exact, *found in zip(want, theirs, ours, strict=True):
        for got in found:
            assert got.dtype == exact.detach().numpy().dtype
            np.testing.assert_allclose(got, exact.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_names(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    pf.onnx.export(nn.Linear(4, 2), pf.randn(3, 4), path, input_names=["pixels"], output_names=["scores"])
    proto = onnx.load(path)
    assert [i.name for i in proto.graph.input] == ["pixels"] and [o.name for o in proto.graph.output] == ["scores"]
    assert {"weight", "bias"} <= {t.name for t in proto.graph.initializer}


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (lambda: lambda x: pf.lgamma(x) + pf.i0(x), {}, "ONNX has but got (lgamma, i0|i0, lgamma)"),
        (lambda: nn.BatchNorm1d(4), {}, "changes nothing"),
        (lambda: nn.Dropout(0.5), {}, "no random numbers"),
        (lambda: 3, {}, "expected a function or a module but got int"),
        (lambda: nn.Linear(4, 2), {"opset": 5}, "expected opset 13 to"),
        (lambda: nn.Linear(4, 2), {"input_names": ["a", "b"]}, "expected 1 different input names"),
    ],
)
def test_what_cannot_be_written(tmp_path: Path, make: Any, options: Any, message: str) -> None:
    with pytest.raises(pf.PyFlameError, match=message):
        pf.onnx.export(make(), (pf.randn(3, 4),), tmp_path / "model.onnx", **options)
    assert not (tmp_path / "model.onnx").exists()
