"""Models as people train them, written once against torch's names: `lib` is torch or pyflame.

Each function gives a module, and a batch as arrays: what goes in, and what should come out.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Model:
    """`make(lib)` gives the module, `batch()` its input and target, `loss(lib, output, target)` what is minimised."""

    name: str
    make: Callable[[Any], Any]
    batch: Callable[[], tuple[Array, Array]]
    loss: Callable[[Any, Any, Any], Any]
    unit: str = "steps/s"


def classes(lib: Any, out: Any, y: Any) -> Any:
    """The cross-entropy of logits."""
    return lib.nn.functional.cross_entropy(out, y)


def distance(lib: Any, out: Any, y: Any) -> Any:
    """The mean squared distance."""
    return lib.nn.functional.mse_loss(out.float(), y)


def images(batch: int, size: int, count: int) -> Callable[[], tuple[Array, Array]]:
    """Random images of three channels, each of one of `count` classes."""

    def made() -> tuple[Array, Array]:
        rng = np.random.default_rng(0)
        return rng.standard_normal((batch, 3, size, size), np.float32), rng.integers(0, count, batch)

    return made


def resnet(lib: Any, blocks: tuple[int, ...], width: int, count: int) -> Any:
    """ResNet with bottlenecks: (3, 4, 6, 3) blocks and width 64 are ResNet-50."""
    nn = lib.nn

    class Bottleneck(nn.Module):  # type: ignore[misc]
        def __init__(self, inside: int, middle: int, stride: int) -> None:
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(inside, middle, 1, bias=False), nn.BatchNorm2d(middle)
            self.conv2, self.bn2 = nn.Conv2d(middle, middle, 3, stride, 1, bias=False), nn.BatchNorm2d(middle)
            self.conv3, self.bn3 = nn.Conv2d(middle, 4 * middle, 1, bias=False), nn.BatchNorm2d(4 * middle)
            self.around = None
            if stride != 1 or inside != 4 * middle:
                conv = nn.Conv2d(inside, 4 * middle, 1, stride, bias=False)
                self.around = nn.Sequential(conv, nn.BatchNorm2d(4 * middle))

        def forward(self, x: Any) -> Any:
            y = lib.relu(self.bn1(self.conv1(x)))
            y = lib.relu(self.bn2(self.conv2(y)))
            return lib.relu(self.bn3(self.conv3(y)) + (x if self.around is None else self.around(x)))

    layers = [nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    inside = width
    for stage, depth in enumerate(blocks):
        for number in range(depth):
            layers.append(Bottleneck(inside, width << stage, 2 if stage and not number else 1))
            inside = 4 * (width << stage)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, count))


def unet(lib: Any, widths: tuple[int, ...]) -> Any:
    """A U-Net with group norm and SiLU that goes up by transposed convolutions."""
    nn = lib.nn

    def twice(inside: int, outside: int) -> Any:
        layers: list[Any] = []
        for channels in (inside, outside):
            layers += [nn.Conv2d(channels, outside, 3, padding=1), nn.GroupNorm(8, outside), nn.SiLU()]
        return nn.Sequential(*layers)

    class UNet(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            pairs = list(itertools.pairwise(widths))
            self.first, self.pool = twice(3, widths[0]), nn.MaxPool2d(2)
            self.down = nn.ModuleList(twice(a, b) for a, b in pairs)
            self.up = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, 2) for a, b in reversed(pairs))
            self.join = nn.ModuleList(twice(2 * a, a) for a, _ in reversed(pairs))
            self.last = nn.Conv2d(widths[0], 3, 1)

        def forward(self, x: Any) -> Any:
            seen = [self.first(x)]
            for down in self.down:
                seen.append(down(self.pool(seen[-1])))
            y = seen.pop()
            for up, join in zip(self.up, self.join, strict=True):
                y = join(lib.cat([up(y), seen.pop()], 1))
            return self.last(y)

    return UNet()


def vit(lib: Any, size: int, patch: int, width: int, depth: int, heads: int, count: int) -> Any:
    """A vision transformer: ViT-S/16 is of width 384, with 12 layers of 6 heads."""
    nn, f = lib.nn, lib.nn.functional
    tokens = (size // patch) ** 2 + 1

    class Block(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            n, t, _ = x.shape
            q, k, v = self.qkv(self.norm1(x)).reshape(n, t, 3, heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
            a = f.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, t, width)
            x = x + self.out(a)
            return x + self.narrow(f.gelu(self.wide(self.norm2(x))))

    class ViT(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.patches = nn.Conv2d(3, width, patch, patch)
            self.first = nn.Parameter(lib.zeros(1, 1, width))
            self.places = nn.Parameter(0.02 * lib.randn(1, tokens, width))
            self.blocks = nn.Sequential(*[Block() for _ in range(depth)])
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, count)

        def forward(self, x: Any) -> Any:
            y = self.patches(x).flatten(2).transpose(1, 2)
            y = lib.cat([self.first.expand(y.shape[0], -1, -1).to(y.dtype), y], 1) + self.places
            return self.head(self.norm(self.blocks(y))[:, 0])

    return ViT()


def lstm(lib: Any, width: int, layers: int, count: int) -> Any:
    """A bidirectional LSTM over vectors, read at its last step."""
    nn = lib.nn

    class Tagger(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(width, width, layers, batch_first=True, bidirectional=True)
            self.head = nn.Linear(2 * width, count)

        def forward(self, x: Any) -> Any:
            return self.head(self.lstm(x)[0][:, -1])

    return Tagger()


def sequences(batch: int, steps: int, width: int, count: int) -> Callable[[], tuple[Array, Array]]:
    """Random sequences of vectors, each of one of `count` classes."""

    def made() -> tuple[Array, Array]:
        rng = np.random.default_rng(0)
        return rng.standard_normal((batch, steps, width), np.float32), rng.integers(0, count, batch)

    return made


def pictures(batch: int, size: int) -> Callable[[], tuple[Array, Array]]:
    """Random images, and others to become."""

    def made() -> tuple[Array, Array]:
        rng = np.random.default_rng(0)
        x, y = rng.standard_normal((2, batch, 3, size, size), np.float32)
        return x, y

    return made


MODELS = {
    "resnet50": Model(
        "ResNet-50, 128x224x224", lambda lib: resnet(lib, (3, 4, 6, 3), 64, 1000), images(128, 224, 1000), classes
    ),
    "unet": Model(
        "U-Net 64-128-256-512, 32x128x128", lambda lib: unet(lib, (64, 128, 256, 512)), pictures(32, 128), distance
    ),
    "vit": Model(
        "ViT-S/16, 128x224x224", lambda lib: vit(lib, 224, 16, 384, 12, 6, 1000), images(128, 224, 1000), classes
    ),
    "lstm": Model(
        "bidirectional LSTM 2x512, 64x128", lambda lib: lstm(lib, 512, 2, 10), sequences(64, 128, 512, 10), classes
    ),
}
SMALL = {
    "resnet50": Model("ResNet, small", lambda lib: resnet(lib, (1, 1), 8, 4), images(2, 32, 4), classes),
    "unet": Model("U-Net, small", lambda lib: unet(lib, (8, 16)), pictures(2, 8), distance),
    "vit": Model("ViT, small", lambda lib: vit(lib, 16, 8, 16, 1, 2, 4), images(2, 16, 4), classes),
    "lstm": Model("LSTM, small", lambda lib: lstm(lib, 8, 2, 4), sequences(2, 5, 8, 4), classes),
}
