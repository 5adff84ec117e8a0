"""MIOpen's folders and search mode: where what it found cannot be kept, every run searches for minutes."""

from __future__ import annotations

from pyflame.doctor.check import Check, Findings, fine, nothing, warning
from pyflame.doctor.checks.cache import NETWORK, file_system, nearest
from pyflame.doctor.machine import Machine
from pyflame.doctor.rocm_files import libraries

_FOLDERS = {"MIOPEN_USER_DB_PATH": ".config/miopen", "MIOPEN_CUSTOM_CACHE_DIR": ".cache/miopen"}
MODES = {
    "miopen-network": "MIOpen's database or kernels lie on a network file system, where its locks fail",
    "miopen-not-kept": "this user may not write to MIOpen's folders: every run searches and compiles anew",
    "miopen-searches": "MIOPEN_FIND_MODE=NORMAL tries every solver at each new shape, for minutes",
}


def look(machine: Machine) -> Findings:
    found = [library for library in libraries(machine, "MIOpen") if library.whole]
    if not found:
        yield nothing("MIOpen is not installed; PyFlame's own convolutions do")
        return
    for variable, usual in _FOLDERS.items():
        folder = machine.env.get(variable) or f"{machine.env.get('HOME', '')}/{usual}"
        kind, status = file_system(machine, folder), machine.status(nearest(machine, folder))
        mend = f"export {variable}=/a/local/disk/of/yours"
        if kind in NETWORK:
            yield warning("miopen-network", f"{folder} lies on {kind}", mend)
        elif status is None or not machine.may_use(status):
            yield warning("miopen-not-kept", f"{folder} cannot be written", mend)
    if machine.env.get("MIOPEN_FIND_MODE") in ("1", "NORMAL"):
        yield warning("miopen-searches", "MIOPEN_FIND_MODE is NORMAL", "export MIOPEN_FIND_MODE=FAST")
    yield fine(str(found[0]))


CHECK = Check("amd-miopen", "amd", "MIOpen's folders and MIOPEN_FIND_MODE", look, MODES, ("amd-hip",))
