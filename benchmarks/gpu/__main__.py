"""Runs a GPU's benchmarks: `python -m benchmarks.gpu [NAME ...]`, on cuda:0, else rocm:0, unless --device says another.

`--device cpu --small` runs all of it in a moment, anywhere: that tries the benchmark, and measures nothing.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

NAMES = (
    *("chain", "rows", "long", "backward", "moves", "matmul", "own", "conv", "attention", "decode", "encoded"),
    *("calls", "experts", "mlp", "gpt", "resnet50", "unet", "vit", "lstm", "llm", "serve"),
)


def parser() -> argparse.ArgumentParser:
    out = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description="A GPU's benchmarks beside their peers.")
    out.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}; all without one")
    out.add_argument("--device", help="cuda:0, rocm:0, ...; else the first GPU that is found")
    out.add_argument("--small", action="store_true", help="tiny sizes, to try the benchmark itself")
    out.add_argument("--rounds", type=int, default=5, help="the median of so many counts")
    out.add_argument("--iterations", type=int, help="calls of a round; else what fills 40 ms")
    out.add_argument("--warmup", type=int, default=5, help="calls before anything is measured")
    out.add_argument("--skip", default="", metavar="PEERS", help="leave out: torch,torch.compile,jax")
    out.add_argument("--json", type=Path, metavar="FILE", help="write results and conditions there")
    out.add_argument("--jax-gpt", action="store_true", help="GPT-2 in jax too, which compiles for long")
    out.add_argument("--profile", action="store_true", help="print profiles of the training steps")
    return out


def prepare(device: str | None) -> None:
    """What jax reads when it is imported, and a place for compiled kernels."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # the GPU's memory is shared with the others
    os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.4")
    if device == "cpu":
        os.environ.setdefault("JAX_PLATFORMS", "cpu")
    if importlib.util.find_spec("platformdirs") is None:  # which knows the usual place
        os.environ.setdefault("PYFLAME_CACHE_DIR", tempfile.mkdtemp(prefix="pyflame-"))


def first_gpu() -> str | None:
    import pyflame as pf

    found = pf.devices()
    return next((d for d in ("cuda:0", "rocm:0") if d in found), None)


def write(path: Path | None, bench: Any, told: dict[str, str]) -> None:
    if path is not None:
        path.write_text(json.dumps({"conditions": told, **bench.as_json()}, indent=1) + "\n")


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    if unknown := [n for n in options.names if n not in NAMES]:
        print(f"unknown benchmark {unknown[0]!r}; there are {', '.join(NAMES)}")
        return 2
    prepare(options.device)
    import pyflame as pf

    device = options.device or first_gpu()
    if device is None:
        print(f"no GPU was found; --device cpu --small tries the benchmark without one.\n{pf.explain_devices()}")
        return 1
    try:
        pf.set_device(device)
        from benchmarks.gpu.conditions import clocks_of, conditions

        told = conditions(device)
    except pf.PyFlameError as error:
        print(error)
        return 1
    from benchmarks.gpu import (
        attention,
        calls,
        convolutions,
        encoded,
        experts,
        llm,
        models,
        ops,
        products,
        serve,
        training,
    )
    from benchmarks.gpu.harness import Bench, guarded

    for name, text in told.items():
        print(f"{name:16} {text}")
    seconds = 0.001 if options.small else 0.04
    bench = Bench(
        device, options.small, options.rounds, seconds, options.iterations, max(options.warmup, 1), options.profile,
        options.jax_gpt, frozenset(options.skip.split(",")),
    )  # fmt: skip
    others = {
        "matmul": products.matmul, "own": products.own, "conv": convolutions.conv, "attention": attention.attention,
        "decode": attention.decode, "calls": calls.calls, "encoded": encoded.encoded, "experts": experts.experts,
        "mlp": training.mlp, "gpt": training.gpt, "llm": llm.llm, "serve": serve.serve,
    }  # fmt: skip
    others |= {name: functools.partial(models.run, section=name) for name in models.MODELS}
    started, broken = time.perf_counter(), {}
    ops.copy(bench)
    bench.show("copy")
    for name in options.names or NAMES:
        with guarded(broken, name):
            others[name](bench) if name in others else ops.run(bench, name)
        bench.show(name)
        if name in broken:
            print(f"FAILED {name}: {broken[name]}", flush=True)
        told |= {"clocks after": clocks} if (clocks := clocks_of(device)) else {}
        told["seconds"] = f"{time.perf_counter() - started:.0f}"
        write(options.json, bench, told)
    if options.profile:  # once more, since profiles are long
        for name in bench.lines:
            bench.show(name)
    print(f"\n{told.get('clocks after', '')}\n{told['seconds']} s")
    failed = [f"{x.work}, {n}" for lines in bench.lines.values() for x in lines for n in x.failed]
    for which in failed:
        print(f"failed: {which}")
    return 1 if broken or any(n.startswith("pyflame") for w in bench.lines.values() for x in w for n in x.failed) else 0


if __name__ == "__main__":
    sys.exit(main())
