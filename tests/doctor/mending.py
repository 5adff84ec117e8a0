"""A shell for the commands that the doctor prints, with programs that stand in for the real ones."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

# Whatever a mend may start. A word that is none of them is prose, which belongs behind a #.
TOOLS = (
    "amd-smi", "amdgpu-install", "apt", "chgrp", "chmod", "dkms", "dmesg", "docker", "dpkg", "driverctl", "git", "grep",
    "head", "ln", "mkdir", "modprobe", "mokutil", "mount", "newgrp", "nvidia-modprobe", "podman", "ps", "python",
    "reboot", "rm", "rmmod", "sed", "stat", "sudoedit", "tail", "tee", "uname", "update-grub", "update-initramfs",
    "usermod", "wsl", "wsl.exe",
)  # fmt: skip


@pytest.fixture(scope="session")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of programs that do nothing, and of a sudo that starts them."""
    folder = tmp_path_factory.mktemp("tools")
    for name in TOOLS:
        folder.joinpath(name).write_text("#!/bin/sh\nexit 0\n")
    folder.joinpath("sudo").write_text('#!/bin/sh\nexec "$@"\n')
    for path in folder.iterdir():
        path.chmod(0o755)
    return folder


def run_mend(mend: str, tools: Path) -> None:
    """Run it where no other program is found."""
    bash = shutil.which("bash")
    assert bash is not None
    environment = {"PATH": str(tools), "USER": "ada"}
    done = subprocess.run(
        [bash, "-e", "-c", f"ulimit() {{ :; }}\n{mend}"], env=environment, cwd=tools, capture_output=True, text=True
    )
    assert done.returncode == 0 and not done.stderr, f"{mend}: {done.stderr}"
