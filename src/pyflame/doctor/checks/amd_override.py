"""HSA_OVERRIDE_GFX_VERSION, which makes ROCm take a GPU for another one."""

from __future__ import annotations

import re

from pyflame.core.targets import TARGETS
from pyflame.doctor.check import Check, Findings, broken, fine, warning
from pyflame.doctor.gpus import agents
from pyflame.doctor.machine import Machine

_NAME = "HSA_OVERRIDE_GFX_VERSION"
# GPUs whose instructions are those of another: code for it is right for them.
_SAME = {"gfx1030": {"gfx1031", "gfx1032", "gfx1033", "gfx1034", "gfx1035", "gfx1036"}}
MODES = {
    "override-empty": "HSA_OVERRIDE_GFX_VERSION is set to nothing, which older ROCm reads as gfx000",
    "override-malformed": "HSA_OVERRIDE_GFX_VERSION is no version such as 10.3.0",
    "override-generation": "HSA_OVERRIDE_GFX_VERSION names another generation: code for it faults or computes nonsense",
    "override-needless": "HSA_OVERRIDE_GFX_VERSION is set for a GPU that needs none",
    "override-mixed": "HSA_OVERRIDE_GFX_VERSION holds for every GPU, and one of them is none of that kind",
}


def look(machine: Machine) -> Findings:
    value, mend = (
        machine.env.get(_NAME),
        f"unset {_NAME}   # and take it out of ~/.bashrc, ~/.profile, /etc/environment",
    )
    if value is None:
        yield fine("not set")
        return
    if not value.strip():
        yield broken("override-empty", f"{_NAME} is set, but empty", mend)
        return
    parts = re.fullmatch(r"(\d{1,2})\.(\d{1,2})\.(\d{1,2})", value.strip())
    if parts is None:
        yield broken("override-malformed", f"{_NAME} is {value!r}, not a version such as 10.3.0", mend)
        return
    major, minor, step = map(int, parts.groups())
    target = f"gfx{major}{minor:x}{step:x}"
    found = {agent.gfx for agent in agents(machine)}
    alien = sorted(gfx for gfx in found if int(gfx[3:-2] or 0) != major)
    if alien:
        mode = "override-generation" if len(alien) == len(found) else "override-mixed"
        yield broken(mode, f"{_NAME}={value} makes {', '.join(alien)} run code for {target}", mend)
        return
    native = sorted(gfx for gfx in found if gfx in TARGETS and gfx not in _SAME.get(target, ()))
    if native:
        yield warning("override-needless", f"{', '.join(native)} needs no {_NAME}; {value} hides what it can do", mend)
        return
    yield fine(f"{value}, for {', '.join(sorted(found)) or 'no GPU'}")


CHECK = Check(
    "amd-override", "amd", "HSA_OVERRIDE_GFX_VERSION against the GPUs that are there", look, MODES, ("amd-device",)
)
