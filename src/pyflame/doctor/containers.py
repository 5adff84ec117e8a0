"""Whether a machine is a container, and how one is started so that it sees the GPUs."""

from __future__ import annotations

from pyflame.doctor.machine import Machine

OVERFLOW = 65534  # how numbers of groups appear that a container does not map


def container_kind(machine: Machine) -> str:
    """docker, podman or another name; empty outside of containers."""
    if machine.exists("/run/.containerenv"):
        return "podman"
    if machine.exists("/.dockerenv"):
        return "docker"
    groups = machine.read("/proc/1/cgroup")
    named = next((kind for kind in ("kubepods", "docker", "libpod", "lxc") if kind in groups), "")
    return named or machine.env.get("container", "")


def is_rootless(machine: Machine) -> bool:
    """Whether root within is not root without: its users are mapped."""
    words = machine.line("/proc/self/uid_map").split()
    return len(words) == 3 and (words[1] != "0" or words[2] != "4294967295")


def amd_options(machine: Machine, kind: str) -> str:
    """The line that starts a container with AMD's GPUs. Groups go by number: images give `render` other numbers."""
    if kind == "podman" and is_rootless(machine):
        return "podman run --device=/dev/kfd --device=/dev/dri --group-add keep-groups ..."
    places = ("/dev/kfd", *machine.glob("/dev/dri/renderD*"))
    numbers = {s.st_gid for path in places if (s := machine.status(path)) and s.st_gid not in (0, OVERFLOW)}
    groups = [f"--group-add {n}" for n in sorted(numbers)] or ["--group-add $(stat -c %g /dev/kfd)"]
    tool = "podman" if kind == "podman" else "docker"
    return f"{tool} run --device=/dev/kfd --device=/dev/dri {' '.join(groups)} ..."
