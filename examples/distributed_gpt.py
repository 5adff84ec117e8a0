"""A small GPT on bytes of Python files, trained by many processes.

    torchrun --standalone --nproc-per-node 2 examples/distributed_gpt.py --mode ddp
    torchrun --standalone --nproc-per-node 2 examples/distributed_gpt.py --mode zero3

Each process takes its rows of every batch, so any number of them, and every mode, gives the losses of one process:
`python examples/distributed_gpt.py`. With `--checkpoint run.safetensors` it goes on where it was ended, also with
another number of processes or in another mode.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import pyflame as pf
import pyflame.distributed as dist
from pyflame import nn, optim

MODES = {
    "ddp": "every process has all parameters, gradients and optimiser states",
    "zero1": "optimiser states are divided",
    "zero2": "optimiser states and gradients are divided",
    "zero3": "parameters are divided, too",
}


def wrapped(mode: str, model: nn.GPT, lr: float) -> tuple[Any, Any]:
    """The model and its optimiser, divided in one of the four ways."""
    options = {"lr": lr, "betas": (0.9, 0.98), "weight_decay": 0.05}
    if mode == "zero3":
        for number, block in enumerate(model.h):
            model.h[number] = dist.FullyShardedDataParallel(block)  # whole one at a time
        sharded = dist.FullyShardedDataParallel(model)
        return sharded, optim.AdamW(sharded.parameters(), **options)
    if mode == "zero2":
        return model, dist.ZeroRedundancyOptimizer(model.parameters(), optim.AdamW, stage=2, **options)
    parallel = nn.parallel.DistributedDataParallel(model)
    if mode == "zero1":
        return parallel, dist.ZeroRedundancyOptimizer(parallel.parameters(), optim.AdamW, **options)
    return parallel, optim.AdamW(parallel.parameters(), **options)


def loss_of(model: Any, tokens: pf.Tensor, targets: pf.Tensor) -> pf.Tensor:
    return nn.functional.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--mode", choices=MODES, default="ddp")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=16, help="rows of all processes together")
    parser.add_argument("--context", type=int, default=32)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--checkpoint", type=Path, help="file to go on from, and to write to every 20 steps")
    options = parser.parse_args(argv)
    dist.init_process_group("gloo", timeout=300)
    size, rank = dist.get_world_size(), dist.get_rank()
    if options.batch % size:
        parser.error(f"expected a batch that {size} processes can share equally but got {options.batch}")

    text = b"".join(path.read_bytes() for path in sorted(Path(json.__file__).parent.parent.glob("*.py")))
    data = np.frombuffer(text, np.uint8)
    pf.manual_seed(0)
    config = nn.GPTConfig(256, options.context, layers=options.layers, heads=4, width=options.width)
    model, optimizer = wrapped(options.mode, nn.GPT(config), options.lr)
    held = sum(p.numel() for p in model.parameters())
    print(f"process {rank} of {size}: {options.mode}, {MODES[options.mode]}; holds {held:,} numbers of parameters")

    done = 0
    if options.checkpoint and options.checkpoint.exists():
        done = dist.load_checkpoint(options.checkpoint, model, optimizer)["step"]
    jitted = dist.data_parallel_step(model, loss_of, optimizer) if options.mode == "ddp" else None
    first = last = float("nan")
    for number in range(done + 1, options.steps + 1):
        starts = np.random.default_rng(number).integers(0, len(data) - options.context - 1, options.batch)[rank::size]
        windows = data[starts[:, None] + np.arange(options.context + 1)].astype(np.int64)
        batch = pf.tensor(windows[:, :-1]), pf.tensor(windows[:, 1:])
        if jitted is not None:
            loss = jitted(*batch)
        else:
            optimizer.zero_grad()
            loss = loss_of(model, *batch)
            loss.backward()
            optimizer.step()
        mean = loss.detach() / size
        dist.all_reduce(mean)
        last = mean.item()
        first = last if number == done + 1 else first
        if rank == 0 and number % 10 == 0:
            print(f"step {number:5}  loss {last:.4f}", flush=True)
        if options.checkpoint and number % 20 == 0:
            dist.save_checkpoint(options.checkpoint, model, optimizer, step=number)
    if rank == 0:
        print(f"\nloss {first:.4f} -> {last:.4f}")
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
