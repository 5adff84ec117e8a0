"""Copies of encoded matrices for products on the CPU: when they are made, used, made anew and given back."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import numpy as np
import pytest

import pyflame as pf
from pyflame.llm.estimate import estimate
from pyflame.llm.files import open_checkpoint
from pyflame.llm.generate import Model
from pyflame.llm.layers import Linear, Matrix
from pyflame.llm.load import load_decoder
from pyflame.nn.parameter import replace
from tests.llm import small


def loaded(tmp_path: Path, **options: object) -> Model:
    path = small.gguf(tmp_path / "small.gguf")
    return Model(load_decoder(open_checkpoint(path), "cpu", **options), None, None, "cpu", pf.float32, 64)  # type: ignore[arg-type]


def linears(model: Model) -> list[Linear]:
    return [layer for layer in model.decoder.modules() if isinstance(layer, Linear)]


def test_copies_are_made_with_the_first_text(tmp_path: Path) -> None:
    model = loaded(tmp_path)
    assert all(layer.interleaved is None for layer in linears(model))
    before = {name: value.numpy().copy() for name, value in model.decoder.state_dict().items()}
    model.generate([3, 4, 5], max_tokens=2)
    copies = [layer.interleaved for layer in linears(model) if layer.encoding is not None]
    assert copies and all(copy is not None for copy in copies)
    held = sum(m.weight.nbytes for m in model.decoder.modules() if isinstance(m, Matrix) and m.interleaved)
    assert held == estimate(tmp_path / "small.gguf", device="cpu").interleaved
    after = model.decoder.state_dict()
    assert list(after) == list(before), "state dicts hold weights as they are stored, and no copies"
    for name, value in before.items():
        np.testing.assert_array_equal(after[name].numpy(), value)
    model.generate([3, 4], max_tokens=1)
    assert [layer.interleaved for layer in linears(model) if layer.encoding is not None] == copies


@pytest.mark.slow
def test_text_is_that_of_weights_as_they_lie(tmp_path: Path) -> None:
    prompt, options = [3, 9, 4, 1, 7], {"max_tokens": 12, "ignore_eos": True}
    want = loaded(tmp_path, interleave=False)
    assert want.generate(prompt, **options).tokens == loaded(tmp_path).generate(prompt, **options).tokens
    assert all(layer.interleaved is None for layer in linears(want))
    exact = loaded(tmp_path, activation_bits=32)
    exact.generate(prompt, **options)
    assert all(layer.interleaved is None for layer in linears(exact)), "x is not rounded: floats are multiplied"


@pytest.mark.slow
def test_another_weight_another_copy(tmp_path: Path) -> None:
    model = loaded(tmp_path)
    layer = next(layer for layer in linears(model) if layer.encoding is not None)
    x = pf.randn(2, layer.inputs)
    step = pf.jit(layer)
    model.generate([3, 4, 5], max_tokens=1)
    first = step(x).numpy()
    replace(layer.weight, pf.quantize(pf.randn(layer.weight.shape[0], layer.inputs), layer.encoding).data)
    assert layer.interleaved is None
    want = layer.multiply(x, layer.weight, None).numpy()
    np.testing.assert_array_equal(step(x).numpy(), want)
    assert np.abs(first - want).max() > 0.1
    model.generate([3, 4, 5], max_tokens=1)
    assert layer.interleaved is not None
    np.testing.assert_allclose(step(x).numpy(), want, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_memory_is_given_back(tmp_path: Path) -> None:
    model = loaded(tmp_path)
    model.generate([3, 4, 5], max_tokens=1)
    copies = [weakref.ref(layer.interleaved.data) for layer in linears(model) if layer.interleaved is not None]
    assert copies
    del model
    gc.collect()
    assert not any(copy() for copy in copies)
