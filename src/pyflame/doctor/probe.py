"""Computes on a device in a process of its own, and prints one line of JSON: `{"mode": "", "text": "...", ...}`.

A process of its own, because a GPU that is not well may hang or end the process that uses it.

    python -m pyflame.doctor.probe rocm:0 kernel        # or graph, libraries
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable


def kernel(device: str) -> tuple[str, str]:
    """A fused kernel and a reduction against NumPy."""
    import numpy as np

    import pyflame as pf

    numbers = np.linspace(-3.0, 3.0, 1 << 16, dtype=np.float32)
    x = pf.tensor(numbers).to(device)
    got = (x * 2.0 + 1.0).relu().numpy(), (x * x).sum().item()
    right = np.maximum(numbers * 2.0 + 1.0, 0.0), float((numbers.astype(np.float64) ** 2).sum())
    error = float(np.abs(got[0] - right[0]).max())
    if not error <= 1e-5 or not abs(got[1] - right[1]) <= 1e-4 * right[1]:
        return "wrong", f"wrong by up to {error:.3g}; the sum is {got[1]!r} and should be {right[1]!r}"
    return "", "a fused kernel and a sum are right"


def graph(device: str) -> tuple[str, str]:
    """A jitted function with state, replayed, against counting by hand."""
    import pyflame as pf

    total = pf.zeros(64, device=device) + 0.0
    pf.eval(total)

    @pf.jit
    def step(x: pf.Tensor) -> pf.Tensor:
        total.add_(x)
        return total * 2.0

    x = pf.ones(64, device=device) + 0.0
    pf.eval(x)
    for n in range(1, 33):
        if step(x).tolist() != [2.0 * n] * 64:
            return "wrong", f"call {n} of a jitted function gave a wrong result"
    return "", pf.explain(step, x).replay or "32 calls of a jitted function are right"


def libraries(device: str) -> tuple[str, str]:
    """Products and a convolution, by libraries where they are, against NumPy in float64."""
    import numpy as np

    import pyflame as pf

    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((512, 512)).astype(np.float32) for _ in range(2))
    with pf.device(device):
        for dtype, allowed in ((pf.float32, 1e-4), (pf.float16, 5e-3), (pf.bfloat16, 4e-2)):
            got = (pf.tensor(a).to(dtype) @ pf.tensor(b).to(dtype)).float().numpy()
            error = float(np.abs(got - a.astype(np.float64) @ b).max()) / 512**0.5
            if not error <= allowed:
                return "wrong", f"a {dtype.name} product is wrong by {error:.3g} of its scale"
        images, weight = rng.standard_normal((2, 8, 16, 16)), rng.standard_normal((8, 8, 1, 1))
        got = pf.conv2d(pf.tensor(images).float(), pf.tensor(weight).float()).numpy()
        error = float(np.abs(got - np.einsum("nchw,oc->nohw", images, weight[:, :, 0, 0])).max())
        if not error <= 1e-3:
            return "wrong", f"a convolution is wrong by {error:.3g}"
    return "", "products in three dtypes and a convolution are right"


PROBES: dict[str, Callable[[str], tuple[str, str]]] = {"kernel": kernel, "graph": graph, "libraries": libraries}


def main(device: str, what: str) -> int:
    """Print how a probe went. Warnings are part of the answer: a library that failed its trial is told by one."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            mode, text = PROBES[what](device)
        except Exception as error:  # whatever it is, the doctor wants to tell it
            mode, text = "failed", f"{type(error).__name__}: {error}"
    told = [str(w.message) for w in said if issubclass(w.category, RuntimeWarning)]
    print(json.dumps({"mode": mode, "text": text, "warnings": told}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
