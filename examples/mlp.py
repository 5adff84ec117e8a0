"""A multilayer perceptron that tells the arms of a spiral apart: the whole training loop on one page.

python examples/mlp.py --steps 400
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence

import pyflame as pf
from pyflame import nn, optim

ARMS = 3


def spiral(count: int, noise: float = 0.15) -> tuple[pf.Tensor, pf.Tensor]:
    """Points (count, 2) on three arms that wind around each other, and the arm of each."""
    label = pf.randint(0, ARMS, (count,))
    radius = pf.rand(count)
    angle = 2 * math.pi * label / ARMS + 5.0 * radius + noise * pf.randn(count)
    return pf.stack([radius * pf.cos(angle), radius * pf.sin(angle)], 1), label


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--lr", type=float, default=1e-2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device")
    options = parser.parse_args(argv)
    if options.device:
        pf.set_device(options.device)
    pf.manual_seed(options.seed)

    model = nn.Sequential(
        nn.Linear(2, options.width),
        nn.ReLU(),
        nn.Linear(options.width, options.width),
        nn.ReLU(),
        nn.Linear(options.width, ARMS),
    )
    optimizer = optim.Adam(model.parameters(), lr=options.lr)

    @pf.jit  # traced once: data, forward, backward and update become one plan
    def step() -> pf.Tensor:
        x, y = spiral(options.batch)
        loss = pf.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    losses = []
    for number in range(1, options.steps + 1):
        losses.append(step())  # not read here, so nothing waits
        if number % max(1, options.steps // 10) == 0:
            print(f"step {number:5}  loss {losses[-1].item():.4f}")

    with pf.no_grad():
        x, y = spiral(2000)
        right = (model(x).argmax(1) == y).to(pf.float32).mean().item()
    print(f"loss {losses[0].item():.4f} -> {losses[-1].item():.4f}")
    print(f"accuracy {right:.3f} on new points (chance: {1 / ARMS:.3f})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
