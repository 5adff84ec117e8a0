"""The checks that compute on a GPU: they start `doctor/probe.py` and read what it says."""

from __future__ import annotations

import json
import signal
import sys
from typing import Any

from pyflame.doctor.check import Findings, broken, fine, unseen, warning
from pyflame.doctor.machine import Machine

_SECONDS = 120.0  # the first use of a GPU compiles kernels
_HANG = 124
MODES = {
    "wrong": "it runs, and its result is wrong",
    "failed": "it raises an error",
    "crashed": "it ends the process that tried it",
    "hung": "it gave no answer within two minutes",
    "told": "it is right, with a warning: a library that failed its trial is not used",
}
_SAW = "AMD_LOG_LEVEL=3 python -m pyflame.doctor.probe {device} {what}   # shows the calls that lead there"


def probed(machine: Machine, device: str, what: str) -> Findings:
    """Compute something on a device and judge how it went."""
    if not machine.live:
        yield unseen("nothing is computed in a copy of a machine")
        return
    mend = _SAW.format(device=device, what=what) if device.startswith("rocm") else ""
    done = machine.run([sys.executable, "-m", "pyflame.doctor.probe", device, what], _SECONDS)
    answer = _answer(done.text)
    if done.status == _HANG:
        yield broken("hung", f"{what} on {device}: {done.text}", mend)
    elif answer is None:
        name = signal.Signals(-done.status).name if -done.status in list(signal.Signals) else f"status {done.status}"
        yield broken("crashed", f"{what} on {device} ended with {name}: {done.text.strip()[-400:]}", mend)
    elif mode := answer["mode"]:
        yield broken(mode, f"{what} on {device}: {answer['text']}", mend)
    else:
        for text in answer["warnings"]:
            yield warning("told", text)
        yield fine(answer["text"])


def import_failure(machine: Machine, module: str) -> str:
    """Why a vendor's bindings do not import, tried in a process of its own: they load drivers."""
    if not machine.live:
        return ""
    done = machine.run([sys.executable, "-c", f"import {module}"], _SECONDS)
    return (done.text.strip().splitlines() or [f"status {done.status}"])[-1] if done.status else ""


def _answer(text: str) -> dict[str, Any] | None:
    """The probe's line, behind whatever else was printed."""
    for row in reversed(text.splitlines()):
        try:
            found = json.loads(row)
        except ValueError:
            continue
        if isinstance(found, dict) and {"mode", "text", "warnings"} <= found.keys():
            return found
    return None
