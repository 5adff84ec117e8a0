"""Encoded weights on simulated GPUs: every encoding to the bit, layers over them, and what is decoded when."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame import nn
from pyflame.core.encoding import ENCODINGS, encoding
from pyflame.kernels import encoded_gemm_gpu
from tests.gpu import encoded_cases
from tests.unit.test_encoding import assert_same_bits, random_bytes

TARGETS = ("gfx942", "gfx1100")

one_in_three = pytest.mark.share(3)


@pytest.mark.slow(16)
@one_in_three
@pytest.mark.parametrize("target", TARGETS)
def test_every_encoding_gives_the_bits_of_numpy(target: str) -> None:
    """In one plan, so that they are compiled together."""
    given = {name: random_bytes(kind, seed=3) for name, kind in ENCODINGS.items()}
    found = {
        name: pf.dequantize(pf.tensor(data, device=f"sim:{target}"), encoding=name) for name, data in given.items()
    }
    pf.eval(*found.values())
    for name, data in given.items():
        assert_same_bits(found[name].numpy(), encoding(name).decode(data))


def layer(name: str, out: int, width: int) -> tuple[nn.EncodedLinear, Any]:
    weight = encoding(name).encode(np.random.default_rng(5).normal(size=(out, width)).astype(np.float32))
    made = nn.EncodedLinear.from_encoded(pf.EncodedTensor(weight, name), pf.tensor(np.arange(out, dtype=np.float32)))
    return made, encoding(name).decode(weight).astype(np.float64)


@pytest.mark.slow
@one_in_three
@pytest.mark.parametrize("target", TARGETS)
def test_layers_by_rows(target: str) -> None:
    """Few rows and more have kernels of their own. Both under jit, and equal to NumPy."""
    for name in ("q4_0", "int4_g128"):
        made, weight = layer(name, 21, 256)
        made.to(f"sim:{target}")
        for rows in (3, 17):
            x = np.random.default_rng(rows).normal(size=(rows, 256)).astype(np.float32)
            got = pf.jit(made)(pf.tensor(x, device=f"sim:{target}")).numpy()
            want = x @ weight.T + np.arange(21)
            np.testing.assert_allclose(got, want, atol=2e-5 * np.abs(want).max())


# Both kinds of instructions with all encodings; their relatives, in which layouts and dtypes differ, with some.
PRODUCTS = {
    "gfx942": ("bfloat16", tuple(ENCODINGS)), "gfx1100": ("float16", tuple(ENCODINGS)),
    "gfx90a": ("float16", ("q4_0", "q6_k", "f16")), "gfx950": ("bfloat16", ("q4_k", "q8_0", "bf16", "fp8_g128")),
    "gfx1201": ("bfloat16", ("q5_k", "mxfp4", "f32", "fp8_g32")),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("target", PRODUCTS)
def test_products_of_many_rows(target: str) -> None:
    """Lines and rows that no tile ends with, in one plan."""
    dtype, names = PRODUCTS[target]
    given = {name: encoded_cases.random_layer(name, 18, 37, pf.as_dtype(dtype)) for name in names}
    found = {name: encoded_cases.layer(name, *arrays, device=f"sim:{target}") for name, arrays in given.items()}
    pf.eval(*found.values())
    for name, arrays in given.items():
        encoded_cases.check_layer(found[name].numpy(), name, *arrays)


@pytest.mark.slow
@one_in_three
@pytest.mark.parametrize("dtype", [pf.float32, pf.float64], ids=lambda d: d.name)
@pytest.mark.parametrize("target", ["gfx90a", "gfx1100"])
def test_wide_dtypes(target: str, dtype: pf.DType) -> None:
    """By matrix tiles where there are some, else lines are decoded first."""
    for name, rows in (("q4_k", 20), ("f16", 3)):
        arrays = encoded_cases.random_layer(name, rows, 21, dtype)
        encoded_cases.check_layer(encoded_cases.layer(name, *arrays, device=f"sim:{target}").numpy(), name, *arrays)


@pytest.mark.slow
@one_in_three
@pytest.mark.parametrize("target", TARGETS)
def test_lines_are_decoded_in_parts(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for many rows of a weight that is larger than the scratch: the last part is smaller."""
    monkeypatch.setattr(encoded_gemm_gpu, "_MANY", 1)
    monkeypatch.setattr(encoded_gemm_gpu, "_LINES_BYTES", 1)
    monkeypatch.setattr(encoded_gemm_gpu, "_LINES_STEP", 16)
    for name, dtype in (("q4_0", pf.bfloat16), ("q6_k", pf.float32)):
        arrays = encoded_cases.random_layer(name, 19, 39, dtype)
        found = encoded_cases.layer(name, *arrays, device=f"sim:{target}")
        encoded_cases.check_layer(found.numpy(), name, *arrays)


@pytest.mark.slow
def test_sources_that_do_not_lie_in_order() -> None:
    x, data, bias = encoded_cases.random_layer("q4_k", 40, 37, pf.bfloat16)
    device = "sim:gfx942"
    rows, lines = pf.tensor(np.repeat(x, 2, 1), device=device)[3:, ::2], pf.tensor(data, device=device)[2:]
    got = pf.encoded_linear(rows, lines, pf.tensor(bias, device=device)[2:], encoding="q4_k", width=x.shape[1])
    encoded_cases.check_layer(got.numpy(), "q4_k", x[3:], data[2:], bias[2:])


@pytest.mark.slow
def test_who_decodes() -> None:
    device = "sim:gfx942"
    made, _ = layer("q4_0", 40, 64)
    made.to(device)

    def launches(rows: int, dtype: pf.DType = pf.float32) -> str:
        return str(pf.explain(made.to(dtype), pf.ones(rows, 64, device=device, dtype=dtype)))

    assert "encoded_gpu" in launches(16) and "encoded_gemm" not in launches(16)
    for text in (launches(17), launches(17, pf.bfloat16), launches(1, pf.float64)):
        assert "encoded_gemm_gpu" in text and "dequantize" not in text


@pytest.mark.slow
def test_what_follows_is_fused() -> None:
    """A gated feed-forward network is as many launches as it has weights."""
    device = "sim:gfx942"
    gate, up = (layer("q4_0", 40, 64)[0].to(device) for _ in range(2))
    for rows in (1, 33):
        made = pf.explain(
            lambda x, r: pf.silu(gate(x)) * up(x) + r, pf.ones(rows, 64, device=device), pf.ones(40, device=device)
        )
        assert str(made).startswith("2 launches") and "dequantize" not in str(made)


def test_gradients_reach_the_input() -> None:
    made, weight = layer("q4_k", 9, 256)
    made.to("sim:gfx1100")
    x = pf.ones(2, 256, device="sim:gfx1100").requires_grad_()
    made(x).sum().backward()
    assert x.grad is not None and made.bias is not None
    np.testing.assert_allclose(x.grad.numpy()[0], weight.sum(0), rtol=1e-4, atol=1e-5)


def test_embeddings_decode_only_their_rows() -> None:
    table = nn.EncodedEmbedding.from_embedding(nn.Embedding(50, 64), "q4_0")
    whole = table.encoded().dequantize().numpy()
    table.to("sim:gfx942")
    index = pf.tensor([[7, 49, 0]], device="sim:gfx942")
    np.testing.assert_array_equal(pf.jit(table)(index).numpy(), whole[[[7, 49, 0]]])
    assert "50x" not in str(pf.explain(table, index))


def by_dots(device: str, name: str, rows: int, out: int, width: int, dtype: pf.DType) -> tuple[Any, Any, pf.Tensor]:
    """x, the product in float64, and ours."""
    rng, kind = np.random.default_rng([rows, width]), encoding(name)
    data = kind.encode(rng.normal(size=(out, width)).astype(np.float32))
    x = rng.normal(size=(rows, width)).astype(dtype.numpy)
    bias = rng.normal(size=out).astype(dtype.numpy)
    given = (pf.tensor(a, device=device) for a in (x, data, bias))
    want = x.astype(np.float64) @ kind.decode(data).astype(np.float64).T + bias.astype(np.float64)
    return x, want, pf.encoded_linear(*given, encoding=name, width=width)


@pytest.mark.slow(16)
@one_in_three
@pytest.mark.parametrize("target", TARGETS)
def test_integer_dots(target: str) -> None:
    """Of every encoding of scaled integers: x in 16 bits, by the largest of 16 neighbours."""
    named = {n: k for n, k in ENCODINGS.items() if k.pair}
    assert len(named) == 19
    cases = {(n, 1, 9, max(k.block, 96 // k.block * k.block), pf.float32) for n, k in named.items()}
    cases |= {("q4_0", 3, 20, 4128, pf.float32), ("q4_k", 4, 5, 2304, pf.bfloat16), ("q6_k", 2, 33, 4352, pf.float16)}
    made = {case: by_dots(f"sim:{target}", *case) for case in cases}
    pf.eval(*(got for *_, got in made.values()))
    for (name, *_, dtype), (_, want, got) in made.items():
        loose = {4: 5e-5, 2: 1e-2}[dtype.itemsize]
        far = np.abs(got.numpy().astype(np.float64) - want).max()
        assert far <= loose * np.abs(want).max(), (name, far)


def test_integer_dots_of_what_is_no_number() -> None:
    """NaN and infinity make their row NaN, and no other; what is tiny counts as 0."""
    kind = encoding("q4_1")
    data = kind.encode(np.random.default_rng(0).normal(size=(3, 64)).astype(np.float32))
    x = np.full((4, 64), 1e-35, np.float32)
    x[0, 3], x[1, 40] = np.nan, -np.inf
    x[2] = 1.0
    given = (pf.tensor(a, device="sim:gfx1100") for a in (x, data))
    got = pf.encoded_linear(*given, encoding="q4_1", width=64).numpy()
    assert np.isnan(got[:2]).all()
    np.testing.assert_allclose(got[2], kind.decode(data).sum(-1), rtol=1e-5)
    assert (got[3] == 0).all()
