"""`pyflame devices`: what this machine can compute on."""

from __future__ import annotations

import pyflame as pf


def run(argv: list[str]) -> int:
    for name in pf.devices():
        with pf.device(name):
            info = pf.device_info()
        print(f"{name:8} {info['name']}")
    print(f"rocm     {pf.rocm_device_count()} devices")
    return 0
