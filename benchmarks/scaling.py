"""How data parallel training scales: measured with processes on this machine, and a model for many GPUs.

    python -m benchmarks.scaling                                  both, the model for a GPT-2 of 124M parameters
    python -m benchmarks.scaling --model-only --parameters 8e9 --step-ms 900 --bytes 2

The second table is a model: it divides bytes by link speeds, and nobody has run it. It takes what is built, which
begins to send when all gradients are there, and beside it what would be left if sending hid behind the backward pass.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass

WIDTHS = (512, 2048, 2048, 512)  # of the MLP that is measured: 6.3M parameters, 25 MB of gradients
ROWS = 64  # of each process
STEPS = 20
BACKWARD = 2 / 3  # of a step's time
NODE = 8  # GPUs of a machine


@dataclass(frozen=True)
class Links:
    """Bytes a second that one GPU sends, within its machine and to others; seconds of a message; of its memory."""

    inside: float
    outside: float
    latency: float
    memory: float


def exchange_seconds(nbytes: float, count: int, bucket: float, links: Links) -> float:
    """An average of gradients over `count` GPUs: rings within machines, then rings of one GPU from each.

    >>> round(exchange_seconds(100e9, 2, 25e6, Links(100e9, 1, 0, 1e30)), 3)
    1.0
    """
    if count == 1:
        return 0.0
    local, nodes = min(count, NODE), -(-count // NODE)
    within = 2 * (local - 1) / local * nbytes / links.inside
    between = 2 * (nodes - 1) / nodes * nbytes / local / links.outside
    messages = -(-nbytes // bucket) * (2 * (local - 1) + 2 * (nodes - 1))
    packing = 4 * nbytes / links.memory  # into buckets and out of them: read and written twice
    return within + between + messages * links.latency + packing


def modelled(parameters: float, nbytes: int, step: float, bucket: float, links: Links) -> list[str]:
    """Lines of the model's table."""
    lines = [f"{'GPUs':>6}{'exchange':>12}{'efficiency':>12}{'if it were hidden':>20}"]
    for count in (1, 2, 8, 64, 1000):
        took = exchange_seconds(parameters * nbytes, count, bucket, links)
        hidden = max(0.0, took - BACKWARD * step)
        lines.append(f"{count:>6}{took * 1e3:>9.1f} ms{step / (step + took):>12.0%}{step / (step + hidden):>20.0%}")
    return lines


def worker() -> None:
    """One process: prints the seconds of a step."""
    import pyflame as pf
    from pyflame import nn, optim

    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        pf.distributed.init_process_group("gloo")
    pf.manual_seed(0)
    layers = [layer for a, b in itertools.pairwise(WIDTHS) for layer in (nn.Linear(a, b), nn.GELU())]
    model = nn.parallel.DistributedDataParallel(nn.Sequential(*layers))
    optimizer = optim.SGD(model.parameters(), lr=1e-3)
    x = pf.randn(ROWS, WIDTHS[0])
    step = pf.distributed.data_parallel_step(model, lambda model, x: (model(x) ** 2).mean(), optimizer)
    for _ in range(3):
        pf.eval(step(x))
    begun = time.perf_counter()
    for _ in range(STEPS):
        pf.eval(step(x))
    if int(os.environ.get("RANK", "0")) == 0:
        print(json.dumps((time.perf_counter() - begun) / STEPS))


def measured(count: int) -> float:
    """Seconds of a step on each of so many processes of one thread."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count)] if count > 1 else []
    env = {**os.environ, "PYFLAME_THREADS": "1", "OMP_NUM_THREADS": "1", "PYFLAME_DEVICE": "cpu"}
    command = [sys.executable, *torchrun, "-m", "benchmarks.scaling", "--worker"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"the processes failed:\n{done.stderr}")
    return float(json.loads(done.stdout.strip().splitlines()[-1]))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--model-only", action="store_true", help="start no processes")
    parser.add_argument("--parameters", type=float, default=124e6)
    parser.add_argument("--bytes", type=int, default=4, help="of a gradient's element (default 4)")
    parser.add_argument("--step-ms", type=float, default=45.0, help="of one GPU alone (default 45)")
    parser.add_argument("--bucket-mb", type=float, default=25.0)
    parser.add_argument("--inside", type=float, default=300.0, help="GB/s within a machine (default 300)")
    parser.add_argument("--outside", type=float, default=40.0, help="GB/s of a GPU's network card (default 40)")
    parser.add_argument("--latency-us", type=float, default=8.0)
    parser.add_argument("--memory", type=float, default=4000.0, help="GB/s of a GPU's memory (default 4000)")
    options = parser.parse_args(arguments)
    if options.worker:
        worker()
        return 0
    if not options.model_only:
        sizes = [n for n in (1, 2, 4) if n <= (os.cpu_count() or 1)]
        took = {n: measured(n) for n in sizes}
        print("measured on this machine: an MLP of 6.3M parameters, one thread and 64 rows a process, gloo")
        for n in sizes:
            print(f"{n:>6} processes{took[n] * 1e3:>9.1f} ms a step{took[1] / took[n]:>8.0%} of the speed of one, each")
    links = Links(options.inside * 1e9, options.outside * 1e9, options.latency_us * 1e-6, options.memory * 1e9)
    print(
        f"\na model, not a measurement: {options.parameters:.3g} parameters, {options.step_ms:g} ms a step, "
        f"{options.inside:g} GB/s within machines of {NODE} GPUs, {options.outside:g} GB/s between them"
    )
    args = (options.parameters, options.bytes, options.step_ms * 1e-3, options.bucket_mb * 1e6)
    print("\n".join(modelled(*args, links)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
