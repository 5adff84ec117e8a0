"""Encoded weights on simulated GPUs: every encoding to the bit, layers over them, and what is decoded when."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame import nn
from pyflame.core.encoding import ENCODINGS, encoding
from tests.unit.test_encoding import assert_same_bits, random_bytes

TARGETS = ("gfx942", "gfx1100")


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


@pytest.mark.parametrize("target", TARGETS)
def test_layers_by_rows(target: str) -> None:
    """Few rows read the bytes; more are multiplied with the decoded weight. Both under jit, and equal to NumPy."""
    for name in ("q4_0", "int4_g128"):
        made, weight = layer(name, 21, 256)
        made.to(f"sim:{target}")
        for rows in (3, 17):
            x = np.random.default_rng(rows).normal(size=(rows, 256)).astype(np.float32)
            got = pf.jit(made)(pf.tensor(x, device=f"sim:{target}")).numpy()
            want = x @ weight.T + np.arange(21)
            np.testing.assert_allclose(got, want, atol=2e-5 * np.abs(want).max())


def test_who_decodes() -> None:
    device = "sim:gfx942"
    made, _ = layer("q4_0", 40, 64)
    made.to(device)

    def launches(rows: int) -> str:
        return str(pf.explain(made, pf.ones(rows, 64, device=device)))

    assert "encoded_gpu" in launches(16) and "dequantize" not in launches(16)
    assert "dequantize_gpu" in launches(17) and "encoded_gpu" not in launches(17)
    wide = str(pf.explain(made, pf.ones(1, 64, device=device, dtype=pf.float64)))
    assert "dequantize_gpu" in wide, "float64 is not summed in float32"


def test_what_follows_is_fused() -> None:
    """A gated feed-forward network of one row is as many launches as it has weights."""
    device = "sim:gfx942"
    gate, up = (layer("q4_0", 40, 64)[0].to(device) for _ in range(2))
    made = pf.explain(
        lambda x, r: pf.silu(gate(x)) * up(x) + r, pf.ones(1, 64, device=device), pf.ones(40, device=device)
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
