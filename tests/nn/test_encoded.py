"""EncodedLinear and EncodedEmbedding: what they compute, keep, move and show."""

from __future__ import annotations

import numpy as np
import pytest

import pyflame as pf
from pyflame import nn
from pyflame.core.encoding import encoding


def layer_of(name: str = "q4_0", bias: bool = True) -> nn.EncodedLinear:
    return nn.EncodedLinear.from_linear(nn.Linear(256, 6, bias=bias), name)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["q8_0", "q4_0", "q4_k", "f16", "int4_g128"])
def test_linear_is_that_of_the_decoded_weight(name: str) -> None:
    layer, x = layer_of(name), pf.randn(5, 256)
    weight = encoding(name).decode(layer.weight.numpy())
    assert layer.bias is not None
    want = x.numpy().astype(np.float64) @ weight.T + layer.bias.numpy()
    assert np.linalg.norm(layer(x).numpy() - want) < 2e-4 * np.linalg.norm(want)  # x is rounded to 16 bits
    layer.activation_bits = 32
    np.testing.assert_allclose(layer(x).numpy(), want, rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(pf.jit(layer)(x).numpy(), want, rtol=2e-5, atol=2e-5)


def test_gradients_go_to_the_input_and_the_bias() -> None:
    layer, x = layer_of(), pf.randn(5, 256).requires_grad_()
    layer(x).sum().backward()
    assert layer.bias is not None and x.grad is not None and layer.bias.grad is not None
    want = np.broadcast_to(encoding("q4_0").decode(layer.weight.numpy()).sum(0), (5, 256))
    np.testing.assert_allclose(x.grad.numpy(), want, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(layer.bias.grad.numpy(), np.full(6, 5.0, np.float32))
    assert [name for name, _ in layer.named_parameters()] == ["bias"]


@pytest.mark.slow
def test_a_frozen_weight_trains_what_lies_around_it() -> None:
    """As in QLoRA: the encoded weight stays, an adapter beside it learns, in one jitted step."""
    layer, down, up = layer_of(bias=False), nn.Linear(256, 4, bias=False), nn.Linear(4, 6, bias=False)
    optimizer = pf.optim.SGD([*down.parameters(), *up.parameters()], lr=0.05)
    x, target, before = pf.randn(8, 256), pf.randn(8, 6), layer.weight.numpy().copy()

    @pf.jit
    def step(x: pf.Tensor, target: pf.Tensor) -> pf.Tensor:
        optimizer.zero_grad()
        loss = pf.mse_loss(layer(x) + up(down(x)), target)
        loss.backward()
        optimizer.step()
        return loss

    losses = [step(x, target).item() for _ in range(20)]
    assert losses[-1] < 0.5 * losses[0]
    np.testing.assert_array_equal(layer.weight.numpy(), before)


@pytest.mark.slow
def test_state_dict_holds_bytes() -> None:
    layer, other = layer_of(), nn.EncodedLinear(256, 6, encoding="q4_0")
    saved = layer.state_dict()
    assert saved["weight"].dtype is pf.uint8 and saved["weight"].shape == (6, 144)
    other.load_state_dict(saved)
    x = pf.randn(2, 256)
    np.testing.assert_array_equal(other(x).numpy(), layer(x).numpy())


def test_dtypes_and_devices() -> None:
    layer = layer_of().to(pf.bfloat16)
    assert layer.weight.dtype is pf.uint8 and layer.bias is not None and layer.bias.dtype is pf.bfloat16
    assert layer(pf.randn(2, 256)).dtype is pf.float32 and layer(pf.randn(2, 256).to(pf.float16)).dtype is pf.float16
    moved = layer_of().to("sim:gfx942")
    assert moved.weight.device == pf.ones(1, device="sim:gfx942").device == moved.encoded().device


def test_representations() -> None:
    assert repr(layer_of()) == "EncodedLinear(in_features=256, out_features=6, bias=True, encoding=q4_0)"
    assert repr(nn.EncodedEmbedding(7, 32, "q8_0")) == "EncodedEmbedding(7, 32, encoding=q8_0)"
    assert layer_of().encoded().shape == (6, 256)


def test_embedding_decodes_rows() -> None:
    table = nn.EncodedEmbedding.from_embedding(nn.Embedding(9, 64), "q4_1")
    whole = table.encoded().dequantize().numpy()
    index = pf.tensor([[3, 0], [8, 3]])
    np.testing.assert_array_equal(table(index).numpy(), whole[index.numpy()])
    np.testing.assert_array_equal(pf.jit(table)(index).numpy(), whole[index.numpy()])
    with pytest.raises(pf.IndexError):
        table(pf.tensor([9])).numpy()
    launches = str(pf.explain(table, index))
    assert "dequantize" in launches and "9x" not in launches, "the table is never decoded as a whole"


def test_wrong_shapes_are_refused() -> None:
    with pytest.raises(pf.ShapeError, match=r"\[EncodedLinear\] expected rows of a multiple of 32"):
        nn.EncodedLinear(33, 4, encoding="q4_0")
    with pytest.raises(pf.ShapeError, match=r"expected a bias \(4,\)"):
        nn.EncodedLinear.from_encoded(pf.quantize(pf.ones(4, 32), "q4_0"), pf.ones(3))
    with pytest.raises(pf.ShapeError, match=r"expected a weight \(rows, width\)"):
        nn.EncodedEmbedding.from_encoded(pf.quantize(pf.ones(32), "q4_0"))
