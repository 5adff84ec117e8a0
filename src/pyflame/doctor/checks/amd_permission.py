"""Whether this process, with the groups it has now, may use the device files."""

from __future__ import annotations

import os

from pyflame.doctor.check import Check, Finding, Findings, broken, fine
from pyflame.doctor.containers import OVERFLOW, amd_options, container_kind
from pyflame.doctor.gpus import is_wsl
from pyflame.doctor.machine import Machine

MODES = {
    "stale-login": "the user was put into the group, but this process was started before: log in anew",
    "not-in-group": "the user is not in the group that owns the file (render, video)",
    "container-group": "in a container the group must be added by number, since images number theirs otherwise",
    "rootless": "a rootless container maps the file's group away",
    "open-refused": "its rights would do, but opening it fails: a container without --device, or a security module",
    "file-mode": "the file's mode forbids it to everybody but root",
}


def look(machine: Machine) -> Findings:
    places = [] if is_wsl(machine) else ["/dev/kfd", *machine.glob("/dev/dri/renderD*")]
    refused = [(path, s) for path in places if (s := machine.status(path)) and not machine.may_use(s)]
    renders = [path for path, _ in refused if path != "/dev/kfd"]
    if refused and (refused[0][0] == "/dev/kfd" or len(renders) == len(places) - 1):
        yield _why(machine, *refused[0])
    elif places and (reason := machine.open_error("/dev/kfd")):
        mend = f"{amd_options(machine, container_kind(machine) or 'docker')}   # on the host of a container"
        yield broken("open-refused", f"/dev/kfd cannot be opened: {reason}", mend)
    else:  # one GPU that another user's service was given does no harm
        yield fine("this process may use them" + (f", except {', '.join(renders)}" if renders else ""))


def _why(machine: Machine, path: str, status: os.stat_result) -> Finding:
    names = {number: (name, members) for name, number, members in machine.group_lines()}
    group, members = names.get(status.st_gid, (str(status.st_gid), []))
    user, kind = machine.user(), container_kind(machine)
    owned = f"{path} belongs to group {group} ({status.st_gid}, mode {status.st_mode & 0o777:03o})"
    if status.st_gid == OVERFLOW:
        return broken(
            "rootless",
            f"{path} belongs to a group that this container does not map",
            f"{amd_options(machine, kind or 'podman')}   # on the host",
        )
    if status.st_mode & 0o060 != 0o060:
        mend = f"sudo chmod 660 {path} && sudo chgrp render {path}   # and udev's rules: apt install --reinstall udev"
        return broken("file-mode", f"{owned}, which nobody but root may use", mend)
    if kind:
        return broken(
            "container-group",
            f"{owned}, which this container's process is not in",
            f"{amd_options(machine, kind)}   # on the host",
        )
    if user in members:
        return broken(
            "stale-login",
            f"{user} is in group {group}, but this process is not: it began before",
            f"newgrp {group}   # for this shell; for all others log out and in again",
        )
    wanted = ",".join(dict.fromkeys((group, "video")))
    return broken(
        "not-in-group",
        f"{owned}, which {user or 'this user'} is not in",
        f"sudo usermod -aG {wanted} {user or '$USER'}   # then log out and in again",
    )


CHECK = Check(
    "amd-permission",
    "amd",
    "owner, group and mode of the device files against the groups this process has",
    look,
    MODES,
    ("amd-nodes",),
)
