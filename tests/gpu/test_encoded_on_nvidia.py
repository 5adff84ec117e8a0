"""Encoded weights on a real NVIDIA GPU: every encoding to the bit, and few rows at the shapes of a large model."""

from __future__ import annotations

import numpy as np
import pytest

import pyflame as pf
from pyflame.core.encoding import ENCODINGS, encoding
from tests.gpu.nvidia import absent
from tests.unit.test_encoding import assert_same_bits, random_bytes

pytestmark = pytest.mark.gpu
if absent():
    pytest.skip(absent(), allow_module_level=True)

GPU = "cuda:0"


@pytest.mark.parametrize("name", ENCODINGS)
def test_decodes_to_the_bits_of_numpy(name: str) -> None:
    data = random_bytes(encoding(name), 2000)
    assert_same_bits(pf.dequantize(pf.tensor(data, device=GPU), encoding=name).numpy(), encoding(name).decode(data))
    rows = pf.tensor(data, device=GPU)[1:]  # begins behind one row, which may be misaligned
    assert_same_bits(pf.dequantize(rows, encoding=name).numpy(), encoding(name).decode(data[1:]))


@pytest.mark.parametrize("dtype", [pf.float32, pf.float16, pf.bfloat16], ids=lambda d: d.name)
@pytest.mark.parametrize("rows", [1, 5, 16, 40])
@pytest.mark.parametrize("name", ["q4_0", "q4_k", "q6_k", "q8_0", "f16", "int4_g128", "mxfp4"])
def test_layers(name: str, rows: int, dtype: pf.DType) -> None:
    rng, kind = np.random.default_rng(1), encoding(name)
    data = kind.encode(rng.normal(size=(777, 2048)).astype(np.float32))
    x = rng.normal(size=(rows, 2048)).astype(np.float32).astype(dtype.numpy)
    got = pf.encoded_linear(pf.tensor(x, device=GPU), pf.tensor(data, device=GPU), encoding=name, width=2048).numpy()
    want = x.astype(np.float64) @ kind.decode(data).T.astype(np.float64)
    loose = {4: 1e-4, 2: 1e-2}[dtype.itemsize]
    np.testing.assert_allclose(got.astype(np.float64), want, atol=loose * np.abs(want).max())
