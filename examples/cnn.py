"""A convolutional network that names shapes in noisy images it has never seen, trained by the Trainer.

python examples/cnn.py --epochs 3
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

import pyflame as pf
from pyflame import nn, optim
from pyflame.data import DataLoader, TensorDataset
from pyflame.train import Accuracy, Trainer

SHAPES = ("horizontal bar", "vertical bar", "square", "disc", "cross")
SIDE = 20


def make_images(count: int, seed: int, noise: float = 0.4) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Images (count, 1, SIDE, SIDE) of one shape each, somewhere, of some size and brightness, and which shape."""
    rng = np.random.default_rng(seed)
    label = rng.integers(0, len(SHAPES), count)
    size = rng.integers(3, 6, (count, 1, 1))  # from the middle to the edge
    at = rng.integers(5, SIDE - 5, (2, count, 1, 1))
    y, x = np.mgrid[:SIDE, :SIDE][:, None] - at
    inside = (np.abs(x) <= size) & (np.abs(y) <= size)
    drawn = np.choose(
        label[:, None, None],
        [
            inside & (np.abs(y) <= 1),
            inside & (np.abs(x) <= 1),
            inside & (np.maximum(np.abs(x), np.abs(y)) == size),
            x * x + y * y <= size * size,
            inside & ((x == 0) | (y == 0)),
        ],
    )
    image = drawn * rng.uniform(0.7, 1.3, (count, 1, 1)) + noise * rng.standard_normal((count, SIDE, SIDE))
    return image[:, None].astype(np.float32), label


def make_model(width: int = 16) -> nn.Sequential:
    """(N, 1, SIDE, SIDE) -> (N, shapes)."""
    return nn.Sequential(
        nn.Conv2d(1, width, 3, padding=1),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(width, 2 * width, 3, padding=1),
        nn.BatchNorm2d(2 * width),
        nn.ReLU(),
        nn.AdaptiveMaxPool2d(1),  # a shape counts wherever it is
        nn.Flatten(),
        nn.Linear(2 * width, len(SHAPES)),
    )


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--images", type=int, default=4096, help="images to train on (default 4096)")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--checkpoint", help="folder to save to, and to continue from")
    parser.add_argument("--device")
    options = parser.parse_args(argv)
    if options.device:
        pf.set_device(options.device)
    pf.manual_seed(options.seed)

    model = make_model()
    trainer = Trainer(
        model,
        optim.AdamW(model.parameters(), lr=options.lr),
        nn.CrossEntropyLoss(),
        train_data=DataLoader(
            TensorDataset(*make_images(options.images, options.seed)),
            batch_size=options.batch,
            shuffle=True,
            drop_last=True,
            seed=options.seed,
        ),
        eval_data=DataLoader(TensorDataset(*make_images(1024, options.seed + 1)), batch_size=256),
        metrics=[Accuracy()],
        max_epochs=options.epochs,
        checkpoint=options.checkpoint,
        unit="images",
    )
    before = trainer.evaluate()
    after = trainer.fit().metrics
    print(f"loss {before['loss']:.4f} -> {after['loss']:.4f}")
    print(f"accuracy {after['accuracy']:.3f} on new images (chance: {1 / len(SHAPES):.3f})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
