"""The C compiler that builds kernels for the CPU."""

from __future__ import annotations

import tempfile
from pathlib import Path

from pyflame.doctor.check import Check, Findings, broken, fine, unseen, warning
from pyflame.doctor.machine import Machine

_PROGRAM = "#include <math.h>\nfloat pf_trial(float x) { return sqrtf(x) + 1.0f; }\n"
MODES = {
    "no-compiler": "there is no C compiler: every op runs as its NumPy reference, slowly",
    "named-missing": "PYFLAME_CC names a compiler that is not there",
    "trial-failed": "the compiler does not build a small program, often because the C library's headers are missing",
}
_INSTALL = "sudo apt install gcc libc6-dev   # or: sudo dnf install gcc"


def look(machine: Machine) -> Findings:
    named = machine.env.get("PYFLAME_CC", "")
    found = next((p for n in ([named] if named else ["cc", "gcc", "clang"]) if (p := machine.which(n))), "")
    if not found and named:
        yield broken("named-missing", f"PYFLAME_CC names {named}, which is not there", "unset PYFLAME_CC")
        return
    if not found:
        yield warning("no-compiler", "none of cc, gcc and clang is in PATH", _INSTALL)
        return
    if not machine.live:
        yield unseen(f"{found}; nothing is compiled in a copy of a machine")
        return
    with tempfile.TemporaryDirectory(prefix="pyflame-doctor-") as folder:
        source, out = Path(folder) / "trial.c", Path(folder) / "trial.so"
        source.write_text(_PROGRAM)
        done = machine.run([found, "-O1", "-shared", "-fPIC", str(source), "-o", str(out), "-lm"], 20.0)
    if done.status:
        yield broken("trial-failed", f"{found} ended with {done.status}: {done.text.strip()[:300]}", _INSTALL)
    else:
        yield fine(f"{found} builds a kernel")


CHECK = Check("cpu-compiler", "cpu", "the C compiler, by building a small program", look, MODES, ("platform",))
