"""Package repositories of ROCm: one release, and for this distribution."""

from __future__ import annotations

import re

from pyflame.doctor.check import Check, Findings, fine, warning
from pyflame.doctor.machine import Machine
from pyflame.doctor.rocm_files import dotted, rocm_version, version_in

_FILES = ("/etc/apt/sources.list", "/etc/apt/sources.list.d/*", "/etc/yum.repos.d/*.repo", "/etc/zypp/repos.d/*.repo")
_ADDRESS = re.compile(r"^[^#\n]*?(repo\.radeon\.com/(rocm|amdgpu)/\S*?/([\d.]+|latest)/?)(?:\s+(\w+))?", re.MULTILINE)
MODES = {
    "several-releases": "repositories of several ROCm releases: packages of different ones get mixed",
    "stale-repository": "the repository is of another major release than the ROCm that is installed",
    "other-distribution": "the repository is for another release of the distribution",
}


def entries(machine: Machine) -> list[tuple[str, str, str, str]]:
    """File, kind (rocm or amdgpu), release and code name of each repository of AMD's."""
    paths = [path for pattern in _FILES for path in machine.glob(pattern)]
    return [(path, m[2], m[3], m[4] or "") for path in paths for m in _ADDRESS.finditer(machine.read(path))]


def look(machine: Machine) -> Findings:
    found = entries(machine)
    releases = sorted({release for _, kind, release, _ in found if kind == "rocm"})
    files = " ".join(dict.fromkeys(path for path, kind, _, _ in found if kind == "rocm"))
    if len(releases) > 1:
        yield warning(
            "several-releases",
            f"repositories of ROCm {', '.join(releases)} in {files}",
            f"sudo rm {files.split()[0]} && sudo apt update   # or another: keep one of {files}",
        )
    installed = rocm_version(machine)
    old = [r for r in releases if installed and (v := version_in(r)) and v[0] != installed[0]]
    if old and len(old) == len(releases):
        yield warning(
            "stale-repository",
            f"the repository is of ROCm {', '.join(old)}, installed is {dotted(installed)}",
            f"sudo rm {files}   # and amdgpu-install of the release you want",
        )
    here = re.search(r"^VERSION_CODENAME=(\w+)", machine.read("/etc/os-release"), re.MULTILINE)
    for path, _, _, name in found:
        if name and here and name != here[1] and name not in ("main", "proprietary"):
            yield warning(
                "other-distribution",
                f"{path} is for {name}, this is {here[1]}",
                f"sudo sed -i s/{name}/{here[1]}/ {path} && sudo apt update",
            )
    yield fine(f"ROCm {', '.join(releases)}" if releases else "none of AMD's")


CHECK = Check(
    "rocm-repositories", "amd", "AMD's entries in apt's, dnf's and zypper's lists", look, MODES, ("amd-device",)
)
