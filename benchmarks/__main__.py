"""Runs the CPU's benchmarks named on the command line, or all of them. Those of a GPU: `python -m benchmarks.gpu`.

`bridge --device cuda` measures the torch bridge on a GPU, with the models named behind it (`benchmarks/bridge_gpu.py`),
`loops --device cuda` the loops.

`--one-thread` is for a machine on which other programs run: CPU time, one thread for everybody, the shortest round.
"""

from __future__ import annotations

import importlib
import os
import sys

from benchmarks.timing import one_thread, show

NAMES = (
    "elementwise", "rows", "matmul", "encoded", "conv", "attention", "overhead", "graphs", "loops", "training",
    "memory", "logits", "data", "imports", "first_call", "trials", "sim", "bridge",
)  # fmt: skip


def main(names: list[str]) -> int:
    if "--one-thread" in names:
        names = [n for n in names if n != "--one-thread"]
        one_thread()
    if "--device" in names:
        at = names.index("--device")
        device, names = names[at + 1], names[:at] + names[at + 2 :]
        if names[:1] == ["bridge"]:
            return int(importlib.import_module("benchmarks.bridge_gpu").main(names[1:], device))
        if names != ["loops"]:
            print("--device is for the bridge and for loops: python -m benchmarks bridge --device cuda")
            return 2
        show(importlib.import_module("benchmarks.loops").run_on(device))
        return 0
    unknown = [n for n in names if n not in NAMES]
    if unknown:
        print(f"unknown benchmark {unknown[0]!r}; there are {', '.join(NAMES)}")
        return 2
    for variable in ("PYFLAME_DEVICE", "JAX_PLATFORMS"):  # these are the CPU's, also where there is a GPU
        os.environ.setdefault(variable, "cpu")
    for name in names or NAMES:
        print(f"running {name} ...", file=sys.stderr)
        show(importlib.import_module(f"benchmarks.{name}").run())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
