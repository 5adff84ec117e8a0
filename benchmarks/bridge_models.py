"""GPT-2, BERT, ViT-B/16 and ResNet-50 as published, of plain torch.nn with random weights, and a batch each."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

CLASSES = 1000


class Small(nn.Module):
    """Five small ops: what a call costs is what surrounds its one kernel."""

    def forward(self, a: Any, b: Any) -> Any:
        return ((a + b) * a - b) * 0.5 + a


def compiled(model: nn.Module, backend: Any) -> Any:
    """A copy of a model, compiled by a backend; None: as it is."""
    own = copy.deepcopy(model)
    return own if backend is None else torch.compile(own, backend=backend, dynamic=False)


class Layer(nn.Module):
    """Attention and an MLP. `first`: norms come before them (GPT-2, ViT), else behind (BERT)."""

    def __init__(self, width: int, heads: int, causal: bool, first: bool) -> None:
        super().__init__()
        self.heads, self.causal, self.first = heads, causal, first
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def attention(self, x: torch.Tensor) -> torch.Tensor:
        b, t, c = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(y.transpose(1, 2).reshape(b, t, c))  # type: ignore[no-any-return]

    def mlp(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.gelu(self.up(x), approximate="tanh" if self.causal else "none"))  # type: ignore[no-any-return]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.first:
            x = x + self.attention(self.norm1(x))
            return x + self.mlp(self.norm2(x))
        x = self.norm1(x + self.attention(x))
        return self.norm2(x + self.mlp(x))  # type: ignore[no-any-return]


class Language(nn.Module):
    """GPT-2 (causal) or BERT with its head over the vocabulary."""

    def __init__(self, vocabulary: int, length: int, causal: bool, width: int = 768, layers: int = 12) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList(Layer(width, width // 64, causal, first=causal) for _ in range(layers))
        self.causal = causal
        self.head = nn.Linear(width, vocabulary, bias=not causal)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        x = x if self.causal else self.norm(x)
        for layer in self.layers:
            x = layer(x)
        x = self.head(self.norm(x) if self.causal else x)
        return F.cross_entropy(x.flatten(0, 1).float(), tokens.flip(1).flatten())


class ViT(nn.Module):
    """ViT-B/16 over images of 224 x 224."""

    def __init__(self, width: int = 768, layers: int = 12) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.randn(1, 197, width) * 0.02)
        self.layers = nn.ModuleList(Layer(width, width // 64, causal=False, first=True) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, CLASSES)

    def forward(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.positions
        for layer in self.layers:
            x = layer(x)
        return F.cross_entropy(self.head(self.norm(x[:, 0])).float(), labels)


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions beside a shortcut."""

    def __init__(self, channels: int, inner: int, stride: int) -> None:
        super().__init__()
        out = 4 * inner

        def conv(a: int, b: int, size: int, step: int = 1) -> list[nn.Module]:
            return [nn.Conv2d(a, b, size, step, size // 2, bias=False), nn.BatchNorm2d(b)]

        self.body = nn.Sequential(
            *conv(channels, inner, 1), nn.ReLU(), *conv(inner, inner, 3, stride), nn.ReLU(), *conv(inner, out, 1)
        )
        same = channels == out and stride == 1
        self.shortcut = nn.Identity() if same else nn.Sequential(*conv(channels, out, 1, stride))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.body(x) + self.shortcut(x))


class ResNet50(nn.Module):
    """Over images of 224 x 224."""

    def __init__(self) -> None:
        super().__init__()
        stages: list[nn.Module] = [
            nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
        ]  # fmt: skip
        channels = 64
        for stage, (inner, blocks) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3))):
            for block in range(blocks):
                stages.append(Bottleneck(channels, inner, 2 if stage and not block else 1))
                channels = 4 * inner
        self.body = nn.Sequential(*stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, CLASSES))

    def forward(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.body(images).float(), labels)


def _tokens(vocabulary: int, batch: int, length: int) -> tuple[torch.Tensor, ...]:
    return (torch.randint(vocabulary, (batch, length)),)


def _images(batch: int) -> tuple[torch.Tensor, ...]:
    images = torch.randn(batch, 3, 224, 224).contiguous(memory_format=torch.channels_last)
    return images, torch.randint(CLASSES, (batch,))


# name -> model and arguments; a model gives its loss
MODELS: dict[str, Callable[[], tuple[nn.Module, tuple[Any, ...]]]] = {
    "gpt2": lambda: (Language(50304, 1024, causal=True), _tokens(50304, 8, 1024)),
    "bert": lambda: (Language(30522, 512, causal=False), _tokens(30522, 16, 512)),
    "vit": lambda: (ViT(), _images(64)),
    "resnet50": lambda: (ResNet50().to(memory_format=torch.channels_last), _images(128)),  # type: ignore[call-overload]
}
