"""Networks for images, small: residual, depthwise, dense, gated, plain, shuffled, and without convolutions."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


def conv_norm(inside: int, outside: int, size: int, act: nn.Module | None = None, **geometry: int) -> nn.Sequential:
    """A convolution that keeps the image's size (at stride 1), batch norm, an activation."""
    conv = nn.Conv2d(inside, outside, size, padding=size // 2, bias=False, **geometry)
    return nn.Sequential(conv, nn.BatchNorm2d(outside), act or nn.Identity())


class BasicBlock(nn.Module):
    """Two convolutions beside a shortcut, which is a convolution where sizes change."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.first = conv_norm(inside, outside, 3, nn.ReLU(inplace=True), stride=stride)
        self.second = conv_norm(outside, outside, 3)
        changes = stride != 1 or inside != outside
        self.shortcut = conv_norm(inside, outside, 1, stride=stride) if changes else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.second(self.first(x)) + self.shortcut(x))


def resnet(classes: int = 10, widths: tuple[int, ...] = (8, 16)) -> nn.Module:
    """The stem of ResNet-18 and two blocks for each width."""
    layers: list[nn.Module] = [conv_norm(3, widths[0], 7, nn.ReLU(inplace=True), stride=2), nn.MaxPool2d(3, 2, 1)]
    inside = widths[0]
    for width in widths:
        layers += [BasicBlock(inside, width, 2 if width != inside else 1), BasicBlock(width, width, 1)]
        inside = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, classes))


class SqueezeExcite(nn.Module):
    """Channels scaled by what the whole image says."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.scale = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(width, inner, 1), nn.SiLU(), nn.Conv2d(inner, width, 1), nn.Sigmoid()
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale(x)


class InvertedResidual(nn.Module):
    """Wider, a convolution for each channel, narrow again (MobileNetV2); with squeeze and excitation: EfficientNet."""

    def __init__(self, inside: int, outside: int, stride: int, act: type[nn.Module], excite: bool = False) -> None:
        super().__init__()
        wide = inside * 4
        layers: list[nn.Module] = [conv_norm(inside, wide, 1, act())]
        layers.append(conv_norm(wide, wide, 5 if excite else 3, act(), stride=stride, groups=wide))
        if excite:
            layers.append(SqueezeExcite(wide, 4))
        self.body = nn.Sequential(*layers, conv_norm(wide, outside, 1))
        self.residual = stride == 1 and inside == outside

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.body(x) if self.residual else self.body(x)


def _inverted(act: type[nn.Module], excite: bool) -> nn.Module:
    return nn.Sequential(
        conv_norm(3, 8, 3, act(), stride=2), InvertedResidual(8, 8, 1, act, excite),
        InvertedResidual(8, 12, 2, act, excite), conv_norm(12, 24, 1, act()), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(24, 10),
    )  # fmt: skip


def mobilenet() -> nn.Module:
    return _inverted(nn.ReLU6, excite=False)


def efficientnet() -> nn.Module:
    return _inverted(nn.SiLU, excite=True)


class DenseLayer(nn.Module):
    """Adds channels to those it reads."""

    def __init__(self, inside: int, growth: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.BatchNorm2d(inside), nn.ReLU(), nn.Conv2d(inside, 2 * growth, 1, bias=False),
            nn.BatchNorm2d(2 * growth), nn.ReLU(), nn.Conv2d(2 * growth, growth, 3, padding=1, bias=False),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, self.body(x)], 1)


def densenet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False), DenseLayer(8, 4), DenseLayer(12, 4), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 8, 1, bias=False), nn.AvgPool2d(2), DenseLayer(8, 4), nn.BatchNorm2d(12), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 10),
    )  # fmt: skip


class ConvNeXtBlock(nn.Module):
    """A 7x7 convolution for each channel, then an MLP over channels last, scaled."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.scale = nn.Parameter(torch.full((width,), 0.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + (self.mlp(self.norm(self.conv(x).permute(0, 2, 3, 1))) * self.scale).permute(0, 3, 1, 2)


def convnext() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 4, 4), nn.GroupNorm(1, 8), ConvNeXtBlock(8), nn.Conv2d(8, 16, 2, 2), ConvNeXtBlock(16),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(16), nn.Linear(16, 10),
    )  # fmt: skip


def vgg() -> nn.Module:
    layers: list[nn.Module] = []
    for inside, outside in ((3, 8), (8, 16)):
        layers += [nn.Conv2d(inside, outside, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2, 2)]
    layers += [nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(256, 32), nn.ReLU(inplace=True), nn.Linear(32, 10)]
    return nn.Sequential(*layers)


class ShuffleBlock(nn.Module):
    """Half of the channels pass, the other half is convolved, then both are interleaved (ShuffleNetV2)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        half = width // 2
        self.body = nn.Sequential(
            conv_norm(half, half, 1, nn.ReLU()), conv_norm(half, half, 3, groups=half),
            conv_norm(half, half, 1, nn.ReLU()),
        )  # fmt: skip
        self.shuffle = nn.ChannelShuffle(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        passed, taken = x.chunk(2, dim=1)
        return self.shuffle(torch.cat([passed, self.body(taken)], 1))


def shufflenet() -> nn.Module:
    return nn.Sequential(
        conv_norm(3, 16, 3, nn.ReLU(), stride=2), ShuffleBlock(16), nn.MaxPool2d(2), ShuffleBlock(16),
        nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(16, 10),
    )  # fmt: skip


class MixerBlock(nn.Module):
    """An MLP across patches, an MLP across channels."""

    def __init__(self, patches: int, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.patches, self.channels = (
            nn.Sequential(nn.Linear(n, 2 * n), nn.GELU(), nn.Linear(2 * n, n)) for n in (patches, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.patches(self.norms[0](x).mT).mT
        return x + self.channels(self.norms[1](x))


class Mixer(nn.Module):
    """MLP-Mixer: patches of an image, blocks, the mean."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, 4)
        self.blocks = nn.Sequential(MixerBlock(16, width), MixerBlock(16, width), nn.LayerNorm(width))
        self.head = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.patches(x).flatten(2).mT).mean(1))
