"""`pyflame devices`: what this machine can compute on, and why not on the rest."""

from __future__ import annotations

import pyflame as pf


def run(argv: list[str]) -> int:
    print(pf.explain_devices())
    return 0
