"""What a GPU computes: a kernel, a captured graph, products by libraries. For both vendors."""

from __future__ import annotations

from functools import partial

from pyflame.doctor.check import Check, Findings
from pyflame.doctor.checks.amd_visible import visible
from pyflame.doctor.machine import Machine
from pyflame.doctor.probing import MODES, probed


def _device(machine: Machine, chain: str) -> str:
    """The first GPU of a vendor that is no part of a processor, else its first."""
    discrete = [index for index, agent in visible(machine) if not agent.integrated] if chain == "amd" else []
    return f"{'rocm' if chain == 'amd' else 'cuda'}:{discrete[0] if discrete else 0}"


def _look(machine: Machine, chain: str, probe: str) -> Findings:
    yield from probed(machine, _device(machine, chain), probe)


def _checks(chain: str) -> tuple[Check, ...]:
    def check(name: str, probe: str, looks: str, *needs: str) -> Check:
        look = partial(_look, chain=chain, probe=probe)
        return Check(f"{chain}-{name}", chain, looks, look, MODES, tuple(f"{chain}-{link}" for link in needs))

    return (
        check("kernel", "kernel", "a kernel on the first GPU, against NumPy", "bindings", "compiler", "visible"),
        check("libraries", "libraries", "products in three dtypes and a convolution, against NumPy", "kernel"),
        check("graphs", "graph", "32 calls of a jitted function, replayed as a graph, against counting", "kernel"),
    )


AMD, NVIDIA = _checks("amd"), _checks("nvidia")
