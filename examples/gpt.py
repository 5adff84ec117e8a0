"""A small GPT that learns to write Python from a folder of Python files, byte by byte.

    python examples/gpt.py --steps 300 --prompt "def "

`pyflame demo` trains a better one, with larger tokens, checkpoints and a report.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import pyflame as pf
from pyflame import nn, optim


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--context", type=int, default=64)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--bf16", action="store_true", help="compute in bfloat16 where that is safe")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, default=Path(json.__file__).parent.parent, help="where *.py files are")
    parser.add_argument("--prompt", default="def ")
    parser.add_argument("--bytes", type=int, default=200, help="bytes to write at the end (default 200)")
    parser.add_argument("--device")
    options = parser.parse_args(argv)
    if options.device:
        pf.set_device(options.device)
    pf.manual_seed(options.seed)

    text = b"".join(path.read_bytes() for path in sorted(options.folder.glob("*.py")))
    data = np.frombuffer(text, np.uint8)
    share = np.bincount(data, minlength=256) / len(data)
    frequencies = -sum(p * np.log(p) for p in share if p)  # the loss of a model that knows no order

    model = nn.GPT(nn.GPTConfig(256, options.context, layers=options.layers, heads=options.heads, width=options.width))
    optimizer = optim.AdamW(model.parameters(), lr=options.lr, betas=(0.9, 0.98), weight_decay=0.05)
    schedule = optim.lr_scheduler.OneCycleLR(
        optimizer, options.lr, total_steps=options.steps, pct_start=0.1, cycle_momentum=False
    )
    rng = np.random.default_rng(options.seed)
    print(f"{len(data):,} bytes, {sum(p.numel() for p in model.parameters()):,} parameters")

    @pf.jit
    def step(tokens: pf.Tensor, targets: pf.Tensor) -> pf.Tensor:
        with pf.autocast(pf.bfloat16, enabled=options.bf16):
            loss = model.loss(tokens, targets)
        optimizer.zero_grad()
        loss.backward()
        optim.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    losses = []
    started = time.perf_counter()
    for number in range(1, options.steps + 1):
        starts = rng.integers(0, len(data) - options.context - 1, options.batch)
        windows = data[starts[:, None] + np.arange(options.context + 1)].astype(np.int64)
        losses.append(step(pf.tensor(windows[:, :-1]), pf.tensor(windows[:, 1:])))
        schedule.step()
        if number % max(1, options.steps // 10) == 0:
            loss = losses[-1].item()
            speed = number * options.batch * options.context / (time.perf_counter() - started)
            print(f"step {number:5}  loss {loss:.4f}  {speed:,.0f} tokens/s")

    print(f"\n{options.prompt}", end="")
    for token in model.generate(options.prompt.encode(), options.bytes, temperature=0.7, top_k=40, seed=options.seed):
        print(bytes([token]).decode(errors="replace"), end="", flush=True)
    last = np.mean([loss.item() for loss in losses[-10:]])
    print(f"\n\nloss {losses[0].item():.4f} -> {last:.4f} (byte frequencies alone: {frequencies:.4f})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
