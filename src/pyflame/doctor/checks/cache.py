"""The folder of compiled kernels: it must be this user's alone, writable, and have room."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath

from pyflame.core.cache_folder import distrust
from pyflame.core.sizes import human_bytes
from pyflame.doctor.check import Check, Finding, Findings, Fix, fine, warning
from pyflame.doctor.machine import Machine

_ROOM = 256 << 20
NETWORK = ("nfs", "nfs4", "cifs", "smb3", "lustre", "beegfs", "fuse.sshfs", "9p", "ceph", "gpfs")
MODES = {
    "no-home": "neither HOME nor PYFLAME_CACHE_DIR names a folder",
    "no-folder": "the folder cannot be made: what should be above it is no folder, or is not writable",
    "not-writable": "this user may not write to the folder: kernels are compiled anew by each process",
    "others-write": "others may write to the folder, and could put code there that this user would run",
    "network": "the folder lies on a network file system: slow, and its locks may fail",
    "full": "less than 256 MiB are free for kernels",
}


def folder_of(machine: Machine) -> str:
    """Where kernels are kept; empty if no folder is known."""
    named = machine.env.get("PYFLAME_CACHE_DIR", "")
    home = machine.env.get("HOME", "")
    if named.startswith("/"):
        return named
    if named.startswith("~/"):
        return f"{home}{named[1:]}" if home else ""
    caches = machine.env.get("XDG_CACHE_HOME", "")
    if not caches.startswith("/"):
        caches = f"{home}/.cache" if home.startswith("/") else ""
    return f"{caches.rstrip('/')}/pyflame" if caches else ""


def file_system(machine: Machine, path: str) -> str:
    """The kind of file system that a path lies on."""
    best, kind = "", ""
    for row in machine.read("/proc/mounts").splitlines():
        parts = row.split()
        if len(parts) >= 3 and len(parts[1]) >= len(best) and f"{path}/".startswith(f"{parts[1].rstrip('/')}/"):
            best, kind = parts[1], parts[2]
    return kind


def nearest(machine: Machine, path: str) -> str:
    """The path itself, or the lowest folder above it that is there."""
    places = (PurePosixPath(path), *PurePosixPath(path).parents)
    return next((str(place) for place in places if machine.exists(str(place))), "/")


def look(machine: Machine) -> Findings:
    folder = folder_of(machine)
    if not folder:
        yield warning(
            "no-home", "neither HOME nor PYFLAME_CACHE_DIR names a folder", "export PYFLAME_CACHE_DIR=/some/folder"
        )
        return
    there = nearest(machine, folder)
    status = machine.status(there)
    is_folder = os.path.isdir(machine.path(there))
    sealed = machine.live and not os.access(machine.path(there), os.W_OK)  # a file system that is mounted to be read
    if not is_folder or status is None or sealed or not machine.may_use(status):
        mend = "export PYFLAME_CACHE_DIR=/some/folder/of/yours"
        mode = "not-writable" if there == folder and is_folder else "no-folder"
        yield warning(
            mode, f"{there} is no folder that this user may write to" if is_folder else f"{there} is no folder", mend
        )
        return
    if there == folder and (reason := _distrusted(machine, folder, status)):
        yield _others_write(machine, folder, reason, status)
    if (kind := file_system(machine, folder)) in NETWORK:
        yield warning("network", f"{folder} lies on {kind}", "export PYFLAME_CACHE_DIR=/a/local/disk")
    total, free = machine.disk_space(machine.path(there))
    if total and free < _ROOM:
        yield warning(
            "full", f"{human_bytes(free)} are free where {folder} lies", "export PYFLAME_CACHE_DIR=/a/disk/with/room"
        )
    shown = folder if there == folder else f"{folder} will be made"
    yield fine(f"{shown}, {human_bytes(free)} free" if total else shown)


def _others_write(machine: Machine, folder: str, reason: str, status: os.stat_result) -> Finding:
    if not status.st_mode & 0o022:
        return warning("others-write", reason, "export PYFLAME_CACHE_DIR=/some/folder/of/yours")
    here = Path(machine.path(folder))
    fix = Fix(f"take the right to write to {folder} from others", lambda: here.chmod(status.st_mode & 0o7755))
    return warning("others-write", reason, f"chmod go-w {folder}", fix)


def _distrusted(machine: Machine, folder: str, status: os.stat_result) -> str:
    """Why somebody else could put code there; of this machine as PyFlame itself judges, of a copy by the mode alone."""
    if machine.root == Path("/"):
        return distrust(Path(folder))
    return f"others may write to {folder} (mode {status.st_mode & 0o7777:04o})" if status.st_mode & 0o002 else ""


CHECK = Check(
    "cache",
    "system",
    "the folder of compiled kernels: whose it is, whether it can be written, room, kind of disk",
    look,
    MODES,
)
