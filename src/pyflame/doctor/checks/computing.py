"""What a GPU computes: a kernel, a captured graph, products by libraries. For both vendors."""

from __future__ import annotations

from functools import partial

from pyflame.doctor.check import Check
from pyflame.doctor.probing import MODES, probed

_DEVICES = {"amd": "rocm:0", "nvidia": "cuda:0"}


def _checks(chain: str) -> tuple[Check, ...]:
    def check(name: str, probe: str, looks: str, *needs: str) -> Check:
        look = partial(probed, device=_DEVICES[chain], what=probe)
        return Check(f"{chain}-{name}", chain, looks, look, MODES, tuple(f"{chain}-{link}" for link in needs))

    return (
        check("kernel", "kernel", "a kernel on the first GPU, against NumPy", "bindings", "compiler", "visible"),
        check("libraries", "libraries", "products in three dtypes and a convolution, against NumPy", "kernel"),
        check("graphs", "graph", "32 calls of a jitted function, replayed as a graph, against counting", "kernel"),
    )


AMD, NVIDIA = _checks("amd"), _checks("nvidia")
