"""Encoded weights on a real NVIDIA GPU: every encoding to the bit, few rows and many."""

from __future__ import annotations

import numpy as np
import pytest

import pyflame as pf
from pyflame.core.encoding import ENCODINGS, encoding
from pyflame.engine.devices import get_device
from pyflame.engine.evaluate import clear_plans
from pyflame.engine.pending import PendingGraph
from pyflame.engine.planning import draft_plan
from pyflame.kernels import Epilogue, encoded_gemm_gpu
from pyflame.kernels.encoded_gemm_gpu import Layer, Way
from tests.gpu import encoded_cases
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
@pytest.mark.parametrize("rows", [1, 5, 16, 40, 300])
@pytest.mark.parametrize("name", ["q4_0", "q4_k", "q6_k", "q8_0", "f16", "int4_g128", "mxfp4"])
def test_layers(name: str, rows: int, dtype: pf.DType) -> None:
    rng, kind = np.random.default_rng(1), encoding(name)
    data = kind.encode(rng.normal(size=(777, 2048)).astype(np.float32))
    x = rng.normal(size=(rows, 2048)).astype(np.float32).astype(dtype.numpy)
    got = pf.encoded_linear(pf.tensor(x, device=GPU), pf.tensor(data, device=GPU), encoding=name, width=2048).numpy()
    want = x.astype(np.float64) @ kind.decode(data).T.astype(np.float64)
    loose = {4: 1e-4, 2: 1e-2}[dtype.itemsize]
    np.testing.assert_allclose(got.astype(np.float64), want, atol=loose * np.abs(want).max())


@pytest.mark.parametrize("name", ENCODINGS)
@pytest.mark.parametrize("dtype", [pf.float16, pf.bfloat16], ids=lambda d: d.name)
def test_products_of_many_rows(name: str, dtype: pf.DType) -> None:
    arrays = encoded_cases.random_layer(name, 141, 333, dtype)
    encoded_cases.check_layer(encoded_cases.layer(name, *arrays, device=GPU).numpy(), name, *arrays)


def ways(name: str, rows: int, out: int, dtype: pf.DType) -> list[Way]:
    """Every block of every kind, in tiles that decode and with lines decoded first."""
    x, data, bias = encoded_cases.random_layer(name, rows, out, dtype, 8)
    node = encoded_cases.layer(name, x, data, bias, GPU)._node
    plan = draft_plan(PendingGraph([node]), get_device(node.meta.device).target)
    (launch,) = (n for n in plan.launches if n.kernel.anchor and n.kernel.anchor.op.name == "encoded_linear")
    made = Layer(launch, get_device(node.meta.device).target, Epilogue("", ()), aligned=True)
    matrix = made.product(0).matrix_kind
    assert matrix is not None
    return [Way(lines, cut) for lines in (0, made.lines) for cut in made.product(lines).cuts(matrix)]


@pytest.mark.parametrize("name", ["q4_0", "q4_k", "q6_k", "f16", "int4_g128"])
def test_every_way(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With lines and rows that no block ends with, and more steps than LDS holds."""
    monkeypatch.setattr(encoded_gemm_gpu, "_LINES_BYTES", 1)
    x, data, bias = encoded_cases.random_layer(name, 271, 523, pf.bfloat16, 8)
    for way in ways(name, 271, 523, pf.bfloat16):
        clear_plans()
        monkeypatch.setattr(Layer, "ways", (way,))
        encoded_cases.check_layer(encoded_cases.layer(name, x, data, bias, GPU).numpy(), name, x, data, bias)


def test_misaligned_sources() -> None:
    x, data, bias = encoded_cases.random_layer("q4_0", 65, 99, pf.bfloat16)
    flat = [pf.tensor(np.concatenate([v.reshape(-1)[:1], v.reshape(-1)]), device=GPU)[1:] for v in (x, data)]
    given = [v.reshape(*a.shape) for v, a in zip(flat, (x, data), strict=True)]
    got = pf.encoded_linear(*given, pf.tensor(bias, device=GPU), encoding="q4_0", width=x.shape[1]).numpy()
    encoded_cases.check_layer(got, "q4_0", x, data, bias)
