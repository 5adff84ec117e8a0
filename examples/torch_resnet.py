"""A ResNet of torch, fine-tuned on PyFlame: learnt on many images of one task, then on few of another.

python examples/torch_resnet.py --steps 60

The tasks are made up: to tell the angle of stripes, then whether stripes are bent left or right. Data, optimiser and
loop are torch's; forward and backward passes run here, in bfloat16 where autocast wants it. Needs torch.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

import torch
from torch import nn
from torch.nn import functional as F

import pyflame.bridge.torch as bridge

SIZE = 24
Data = Callable[[int], tuple[torch.Tensor, torch.Tensor]]


class Block(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inside, outside, 3, stride, 1, bias=False), nn.BatchNorm2d(outside), nn.ReLU(),
            nn.Conv2d(outside, outside, 3, 1, 1, bias=False), nn.BatchNorm2d(outside),
        )  # fmt: skip
        short = nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))
        self.shortcut = short if stride > 1 or inside != outside else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.body(x) + self.shortcut(x))


def resnet(classes: int) -> nn.Sequential:
    """The body of a small ResNet, and a head."""
    body = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), Block(8, 8, 1), Block(8, 16, 2),
        Block(16, 32, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
    )  # fmt: skip
    return nn.Sequential(body, nn.Linear(32, classes))


def stripes(angle: torch.Tensor, bend: torch.Tensor) -> torch.Tensor:
    """Noisy images (N, 1, SIZE, SIZE) of stripes at these angles, bent by so much."""
    line = torch.linspace(-1, 1, SIZE)
    y, x = torch.meshgrid(line, line, indexing="ij")
    angle, bend = angle[:, None, None], bend[:, None, None]
    along, across = x * angle.cos() + y * angle.sin(), y * angle.cos() - x * angle.sin()
    phase = 6.28 * torch.rand_like(angle)
    image = torch.sin(9 * (across + bend * along**2) + phase)
    return (image + 0.3 * torch.randn_like(image))[:, None]


def angles(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    label = torch.randint(6, (count,))
    return stripes(3.14 / 6 * label, 0.7 * torch.randn(count)), label


def bends(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    label = torch.randint(2, (count,))
    return stripes(0.3 * torch.randn(count), 1.0 * label - 0.5), label


def train(model: nn.Sequential, data: Data, steps: int, rates: tuple[float, float], bf16: bool) -> None:
    """Train body and head, each with its own learning rate."""
    model.train()
    compiled = torch.compile(model, backend="pyflame")
    groups = [{"params": part.parameters(), "lr": rate} for part, rate in zip(model, rates, strict=True)]
    optimizer = torch.optim.AdamW(groups)
    for _ in range(steps):
        images, labels = data(64)
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            loss = F.cross_entropy(compiled(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@torch.no_grad()
def accuracy(model: nn.Module, data: Data) -> float:
    images, labels = data(1024)
    return float((torch.compile(model.eval(), backend="pyflame")(images).argmax(1) == labels).float().mean())


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=60, help="of the first task")
    parser.add_argument("--fine-steps", type=int, default=20, help="of the second")
    parser.add_argument("--images", type=int, default=128, help="of the second task, for training")
    parser.add_argument("--bf16", action="store_true")
    options = parser.parse_args(argv)
    torch.manual_seed(0)
    bridge.register()
    model = resnet(6)
    train(model, angles, options.steps, (3e-3, 3e-3), options.bf16)
    print(f"angles: accuracy {accuracy(model, angles):.3f} on new images (chance: {1 / 6:.3f})")

    images, labels = bends(options.images)

    def few(count: int) -> tuple[torch.Tensor, torch.Tensor]:
        chosen = torch.randint(len(images), (count,))
        return images[chosen], labels[chosen]

    fresh = resnet(2)
    train(fresh, few, options.fine_steps, (3e-3, 3e-3), options.bf16)
    model[1] = nn.Linear(32, 2)  # a new head; the body changes slowly
    train(model, few, options.fine_steps, (1e-3, 1e-2), options.bf16)
    print(f"bends: accuracy {accuracy(model, bends):.3f} fine-tuned, {accuracy(fresh, bends):.3f} from nothing")
    return 0


if __name__ == "__main__":
    sys.exit(main())
