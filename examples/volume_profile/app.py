"""Volume profiles of made-up ticks, and a model that foretells the next session's point of control.

    python examples/volume_profile/app.py --sessions 600 --ticks 2000

Prints the last session's profile and what the model is worth on sessions it has not seen, beside three baselines.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from analyzer import VolumeProfileAnalyzer
from draw import page, text
from features import NAMES, features, mirrored, next_displacement
from model import train
from ticks import make_ticks

import pyflame as pf
from pyflame.train import MAE, R2


def score(prediction: pf.Tensor, target: pf.Tensor) -> tuple[float, float]:
    """(R2, mean absolute error)."""
    metrics = R2(), MAE()
    for metric in metrics:
        metric.update(prediction, target)
    return metrics[0].compute(), metrics[1].compute()


def least_squares(x: pf.Tensor, y: pf.Tensor, unseen: pf.Tensor) -> pf.Tensor:
    """A line through the training sessions, read off for others."""
    known, other = (np.c_[t.numpy(), np.ones(len(t))] for t in (x, unseen))
    return pf.tensor((other @ np.linalg.lstsq(known, y.numpy(), rcond=None)[0]).astype(np.float32))


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sessions", type=int, default=600, help="sessions to make, at least 20 (default 600)")
    parser.add_argument("--ticks", type=int, default=2000, help="ticks per session (default 2000)")
    parser.add_argument("--precision", type=float, default=0.25, help="height of a price level (default 0.25)")
    parser.add_argument("--value-area", type=float, default=0.7, help="share of volume in the value area (default 0.7)")
    parser.add_argument("--chunk-size", type=int, default=3500, help="ticks read at a time (default 3500)")
    parser.add_argument("--device", help="where to compute (default: the current device)")
    parser.add_argument("--epochs", type=int, default=25, help="passes over the training sessions (default 25)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--bf16", action="store_true", help="train in bfloat16 where that is safe")
    parser.add_argument("--html", type=Path, help="also draw the last session into this file")
    options = parser.parse_args(argv)
    if options.sessions < 20:
        parser.error(f"argument --sessions: expected at least 20, some of them to test on, but got {options.sessions}")
    if options.device:
        pf.set_device(options.device)

    ticks = make_ticks(options.sessions, options.ticks, options.seed, options.precision)
    analyzer = VolumeProfileAnalyzer(options.precision, options.device, options.chunk_size, options.value_area)
    started = time.perf_counter()
    profile = analyzer.analyze(*ticks)
    seconds = time.perf_counter() - started
    sessions, levels = profile.volume.shape
    print(f"{len(ticks.prices):,} ticks in {sessions:,} sessions over {levels:,} levels: {seconds:.2f} s\n")
    print(text(profile, len(profile) - 1), end="\n\n")
    if options.html:
        options.html.write_text(page(profile, len(profile) - 1), encoding="utf-8")
        print(f"drawn to {options.html}\n")

    # Time has one direction: train on the first sessions, test on the last.
    x, y = features(profile)[:-1], next_displacement(profile)
    split = int(0.75 * len(y))
    model = train(
        *mirrored(x[:split], y[:split]),
        epochs=options.epochs,
        seed=options.seed,
        autocast=pf.bfloat16 if options.bf16 else None,
    )
    unseen, truth = x[split:], y[split:]
    with pf.no_grad():
        predictions = {
            "mean of the training sessions": pf.full_like(truth, y[:split].mean().item()),
            "back to this session's POC": -unseen[:, NAMES.index("close - POC")],
            "least squares": least_squares(x[:split], y[:split], unseen),
            "SiLU + LayerNorm model": model(unseen),
        }
    print(f"next POC - close, in ranges of the session: {split} sessions to train on, {len(truth)} to test\n")
    print(f"{'':30} {'R2':>7} {'MAE':>7}")
    for name, prediction in predictions.items():
        r2, mae = score(prediction, truth)
        print(f"{name:30} {r2:7.3f} {mae:7.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
