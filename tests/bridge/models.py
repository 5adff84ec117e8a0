"""Models that the bridge's tests and benchmark run: made of torch, small, with random weights."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


class GPT(nn.Module):
    """Token and position embeddings, layers of causal attention and GELU, logits."""

    def __init__(
        self, vocabulary: int = 50, width: int = 32, heads: int = 4, length: int = 16, layers: int = 1
    ) -> None:
        super().__init__()
        self.heads = heads
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Parameter(torch.randn(length, width) * 0.1)
        self.layers = nn.ModuleList(
            nn.ModuleDict(
                {
                    "norm1": nn.LayerNorm(width),
                    "qkv": nn.Linear(width, 3 * width),
                    "out": nn.Linear(width, width),
                    "norm2": nn.LayerNorm(width),
                    "mlp": nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)),
                }
            )
            for _ in range(layers)
        )
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.positions
        batch, length, width = x.shape
        for layer in self.layers:
            qkv = layer["qkv"](layer["norm1"](x)).view(batch, length, 3, self.heads, width // self.heads)
            q, k, v = qkv.permute(2, 0, 3, 1, 4)
            seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + layer["out"](seen.transpose(1, 2).reshape(batch, length, width))
            x = x + layer["mlp"](layer["norm2"](x))
        return self.head(x)


def cnn(channels: int = 8) -> nn.Module:
    """Convolutions, batch norms with running statistics, pooling of three kinds."""
    return nn.Sequential(
        nn.Conv2d(3, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(channels, 16, 3, stride=2, padding=1, groups=2, bias=False), nn.BatchNorm2d(16), nn.SiLU(),
        nn.AvgPool2d(2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 5),
    )  # fmt: skip


class UNet(nn.Module):
    """Down and up again: a transposed convolution, interpolation, group norm, reflection padding, a skip."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 4, 3, padding=1)
        self.norm = nn.GroupNorm(2, 4)
        self.down = nn.Conv2d(4, 8, 3, padding=1, stride=2)
        self.up = nn.ConvTranspose2d(8, 4, 2, stride=2)
        self.last = nn.Conv2d(12, 1, 3, padding=1, padding_mode="reflect")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = F.silu(self.norm(self.first(x)))
        low = F.leaky_relu(self.down(wide))
        high = F.interpolate(low[:, :4], scale_factor=2, mode="bilinear")
        return self.last(torch.cat([wide, self.up(low), high], 1))


class Recurrent(nn.Module):
    """An LSTM and a linear layer over all its steps."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(6, 8, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(x)[0])


def mlp(width: int = 32) -> nn.Module:
    return nn.Sequential(nn.Linear(8, width), nn.LayerNorm(width), nn.GELU(), nn.Linear(width, 4))
