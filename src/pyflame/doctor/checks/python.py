"""Python and the packages without which PyFlame does not import."""

from __future__ import annotations

from pyflame.doctor.check import Check, Findings, broken, fine, warning
from pyflame.doctor.machine import Machine

_OLDEST = (3, 10)
_NEEDED = ("numpy", "ml_dtypes", "safetensors", "platformdirs")
MODES = {
    "python-old": "Python is older than 3.10",
    "package-broken": "a package that PyFlame cannot do without does not import",
    "no-rich": "the package rich does not import: tables are plain text",
}


def look(machine: Machine) -> Findings:
    version = ".".join(map(str, machine.python))
    if machine.python < _OLDEST:
        yield broken("python-old", f"Python {version}; PyFlame needs 3.10 or newer")
    for name in _NEEDED:
        if reason := machine.import_error(name):
            mend = f"python -m pip install --force-reinstall {name.replace('_', '-')}"
            yield broken("package-broken", f"{name} does not import: {reason}", mend)
    if reason := machine.import_error("rich"):
        yield warning("no-rich", f"rich does not import: {reason}", "python -m pip install --force-reinstall rich")
    yield fine(f"Python {version}")


CHECK = Check("python", "system", "Python's version and the packages that PyFlame cannot do without", look, MODES)
