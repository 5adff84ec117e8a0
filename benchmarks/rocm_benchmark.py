"""The GPU benchmarks under the name that PyFlame's ROCm guide gives them, on an AMD GPU.

    python benchmarks/rocm_benchmark.py --all
    python benchmarks/rocm_benchmark.py --matmul --conv
    python benchmarks/rocm_benchmark.py --iterations 200 --warmup 20

Every benchmark of `python -m benchmarks.gpu` is a flag here; its other options (`--json FILE`, ...) are as there.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":  # run by its path: the folder above this one holds the package
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from benchmarks.gpu.__main__ import NAMES, main


def translated(arguments: list[str]) -> list[str]:
    """
    >>> translated(["--matmul", "--conv", "--warmup", "20"])
    ['matmul', 'conv', '--device', 'rocm:0', '--warmup', '20']
    """
    names = [n for n in NAMES if f"--{n}" in arguments]
    others = [a for a in arguments if a != "--all" and a.removeprefix("--") not in NAMES]
    return [*([] if "--all" in arguments else names), "--device", "rocm:0", *others]


if __name__ == "__main__":
    sys.exit(main(translated(sys.argv[1:])))
