"""Shared memory and the limits of a process: loaders and several processes on GPUs need both."""

from __future__ import annotations

from pyflame.core.sizes import human_bytes
from pyflame.doctor.check import Check, Findings, fine, warning
from pyflame.doctor.gpus import AMD, NVIDIA, pci_gpus
from pyflame.doctor.machine import Machine, as_number

_SHM, _FILES, _LOCKED = 1 << 30, 4096, 64 << 20
_UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
MODES = {
    "no-shm": "there is no /dev/shm: workers of a DataLoader and RCCL cannot share memory",
    "small-shm": "/dev/shm is smaller than 1 GiB, as Docker makes it: RCCL and loaders with workers fail in it",
    "few-files": "a process may open fewer than 4096 files",
    "little-locked": "a process may lock less than 64 MiB beside a GPU: RCCL and network cards pin more",
}


def shm_bytes(machine: Machine) -> int | None:
    """The size that /dev/shm was mounted with; None if it is not mounted, 0 if the mount does not say."""
    for row in machine.read("/proc/mounts").splitlines():
        parts = row.split()
        if len(parts) >= 4 and parts[1] == "/dev/shm":
            size = next((o.partition("=")[2] for o in parts[3].split(",") if o.startswith("size=")), "0")
            return (as_number(size.rstrip("kmgKMG")) or 0) * _UNITS.get(size[-1:].lower(), 1)
    return 0 if machine.exists("/dev/shm") else None


def soft_limit(machine: Machine, name: str) -> int | None:
    """A limit of this process; None: unlimited or unknown."""
    rows = [row for row in machine.read("/proc/self/limits").splitlines() if row.startswith(name)]
    words = rows[0].removeprefix(name).split() if rows else []
    return as_number(words[0]) if words else None


def look(machine: Machine) -> Findings:
    size = shm_bytes(machine)
    if size is None:
        yield warning("no-shm", "there is no /dev/shm", "sudo mount -t tmpfs -o size=50% shm /dev/shm")
    elif 0 < size < _SHM:
        mend = "docker run --shm-size=8g ...   # in a container; else: sudo mount -o remount,size=50% /dev/shm"
        yield warning("small-shm", f"/dev/shm holds {human_bytes(size)}", mend)
    files, locked = soft_limit(machine, "Max open files"), soft_limit(machine, "Max locked memory")
    if files is not None and files < _FILES:
        yield warning("few-files", f"this process may open {files} files", "ulimit -n 65536")
    if locked is not None and locked < _LOCKED and (pci_gpus(machine, AMD) or pci_gpus(machine, NVIDIA)):
        mend = "ulimit -l unlimited   # in a container: docker run --ulimit memlock=-1 ..."
        yield warning("little-locked", f"this process may lock {human_bytes(locked)} of memory", mend)
    yield fine(f"/dev/shm {human_bytes(size) if size else 'of unknown size'}; {files or 'any number of'} open files")


CHECK = Check(
    "limits", "system", "the size of /dev/shm, and how many files and locked pages a process may have", look, MODES
)
