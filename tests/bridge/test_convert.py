"""Modules of torch as modules of ours: by class, by export, and their state dicts both ways."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import pyflame as pf
from pyflame.bridge.torch import ConvertedModule, convert
from pyflame.core.errors import ArgumentTypeError, NotSupportedError, ShapeError
from tests.bridge.models import GPT, UNet, cnn, mlp

LAYERS: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "linear": (nn.Linear(4, 3), (2, 4)),
    "linear without bias": (nn.Linear(4, 3, bias=False), (2, 4)),
    "conv1d": (nn.Conv1d(4, 6, 3, groups=2, dilation=2), (2, 4, 9)),
    "conv2d": (nn.Conv2d(3, 4, 3, padding="same", padding_mode="reflect"), (2, 3, 6, 6)),
    "conv transpose": (nn.ConvTranspose2d(3, 4, 3, stride=2, output_padding=1), (2, 3, 4, 4)),
    "layer norm": (nn.LayerNorm(4, eps=1e-3), (2, 4)),
    "group norm": (nn.GroupNorm(2, 4), (2, 4, 3)),
    "batch norm": (nn.BatchNorm2d(3).eval(), (2, 3, 4, 4)),
    "instance norm": (nn.InstanceNorm1d(3, affine=True), (2, 3, 8)),
    "prelu": (nn.PReLU(3), (2, 3)),
    "activations": (nn.Sequential(nn.ELU(0.7), nn.Hardtanh(-0.5, 0.4), nn.GLU(), nn.Softmax(-1)), (2, 4)),
    "pooling": (nn.Sequential(nn.MaxPool2d(2, padding=1), nn.AvgPool2d(2, ceil_mode=True), nn.Flatten()), (2, 3, 7, 7)),
    "lstm": (nn.LSTM(4, 5, 2, batch_first=True, bidirectional=True), (2, 3, 4)),
    "gru": (nn.GRU(4, 5), (2, 3, 4)),
    "rnn": (nn.RNN(4, 5, nonlinearity="relu"), (2, 3, 4)),
    "cnn": (cnn(), (2, 3, 16, 16)),
}  # fmt: skip


def _array(out: Any) -> np.ndarray[Any, Any]:
    out = out[0] if isinstance(out, tuple) else out
    return out.detach().numpy()


@pytest.mark.parametrize("name", LAYERS)
def test_layers_by_class(name: str) -> None:
    layer, shape = LAYERS[name]
    x = torch.randn(shape)
    ours = convert(layer)
    assert type(ours).__name__ == type(layer).__name__ and type(ours).__module__.startswith("pyflame.nn")
    assert ours.training == layer.training
    assert {k: tuple(v.shape) for k, v in ours.state_dict().items()} == {
        k: tuple(v.shape) for k, v in layer.state_dict().items()
    }
    np.testing.assert_allclose(_array(ours(pf.from_torch(x))), _array(layer(x)), rtol=1e-4, atol=1e-5)


def test_attention_and_embedding_by_class() -> None:
    attention, x = nn.MultiheadAttention(8, 2, batch_first=True, bias=False), torch.randn(2, 3, 8)
    ours, given = convert(attention), pf.from_torch(x)
    np.testing.assert_allclose(_array(ours(given, given, given)), _array(attention(x, x, x)), rtol=1e-4, atol=1e-5)
    table, at = nn.Embedding(5, 3, padding_idx=1), torch.tensor([[0, 1], [4, 2]])
    np.testing.assert_array_equal(_array(convert(table)(pf.from_torch(at))), _array(table(at)))


def test_state_dicts_go_both_ways() -> None:
    theirs = mlp()
    theirs[0].weight.requires_grad_(False)
    ours = convert(theirs)
    assert not dict(ours.named_parameters())["0.weight"].requires_grad
    with pf.no_grad():
        for parameter in ours.parameters():
            parameter.mul_(0.5)
    theirs.load_state_dict({k: v.to_torch() for k, v in ours.state_dict().items()})
    x = torch.randn(3, 8)
    np.testing.assert_allclose(_array(ours(pf.from_torch(x))), _array(theirs(x)), rtol=1e-4, atol=1e-5)
    ours.load_state_dict(mlp().state_dict())  # and torch's into ours, as everywhere


@pytest.mark.parametrize("bits", [torch.bfloat16, torch.float64])
def test_dtypes_are_kept(bits: torch.dtype) -> None:
    ours = convert(nn.Linear(2, 2).to(bits))
    assert {p.dtype for p in ours.parameters()} == {pf.as_dtype(bits)}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt", "unet", "bn"])
def test_modules_by_export_with_gradients_and_buffers(name: str) -> None:
    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.norm(x)

    made: dict[str, Any] = {
        "gpt": (GPT(), torch.randint(50, (2, 16))),
        "unet": (UNet(), torch.randn(2, 1, 8, 8)),
        "bn": (Residual(), torch.randn(6, 4)),
    }
    theirs, x = made[name]
    ours = convert(theirs, (x,))
    assert isinstance(ours, ConvertedModule) and sorted(ours.state_dict()) == sorted(theirs.state_dict())
    got, want = ours(pf.from_torch(x)), theirs(x)
    np.testing.assert_allclose(_array(got), _array(want), rtol=1e-4, atol=1e-5)
    (got**2).mean().backward()
    (want**2).mean().backward()
    mine = dict(ours.named_parameters())
    for key, parameter in theirs.named_parameters():
        np.testing.assert_allclose(mine[key].grad.numpy(), parameter.grad.numpy(), rtol=1e-3, atol=1e-5)
    for key, buffer in theirs.named_buffers():
        np.testing.assert_allclose(ours.get_buffer(key).numpy(), buffer.numpy(), rtol=1e-5, atol=1e-6)


class Doubled(nn.Module):
    def forward(self, x: torch.Tensor, factor: float = 2.0) -> dict[str, torch.Tensor]:
        return {"out": x.reshape(x.shape[0], -1) * factor}


def test_exported_sizes_hold_unless_they_may_change() -> None:
    fixed = convert(Doubled(), (torch.ones(2, 3),))
    assert fixed(pf.ones(2, 3))["out"].tolist() == [[2, 2, 2]] * 2
    with pytest.raises(ShapeError, match="dynamic_shapes"):
        fixed(pf.ones(4, 3))
    with pytest.raises(ArgumentTypeError, match="PyFlame tensor"):
        fixed(torch.ones(2, 3))
    batch = torch.export.Dim("batch")
    free = convert(Doubled(), (torch.ones(2, 3),), dynamic_shapes={"x": {0: batch}})
    assert free(pf.ones(5, 3))["out"].shape == (5, 3)


class Inverse(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.inv(x)


class Rounded(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -128, 127)


def test_factorisations_convert_with_gradients() -> None:
    x = (torch.randn(3, 3) + 3 * torch.eye(3)).requires_grad_()
    ours = pf.tensor(x.detach()).requires_grad_()
    out = convert(Inverse(), (x.detach(),))(ours)
    out.sum().backward()
    torch.linalg.inv(x).sum().backward()
    torch.testing.assert_close(out.detach().to_torch(), torch.linalg.inv(x).detach())
    torch.testing.assert_close(ours.grad.to_torch(), x.grad)


def test_what_cannot_be_converted_is_named() -> None:
    with pytest.raises(NotSupportedError, match="example inputs"):
        convert(Rounded())
    with pytest.raises(NotSupportedError, match="fake_quantize"):
        convert(Rounded(), (torch.eye(3),))
    with pytest.raises(ArgumentTypeError, match=r"torch\.nn\.Module"):
        convert(torch.ones(2))  # type: ignore[arg-type]
