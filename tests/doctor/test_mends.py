"""What the doctor's mends do. That a shell runs each of them is test_modes.py's."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from pyflame.doctor.chain import CHECKS
from pyflame.doctor.check import examine
from pyflame.runtime.rocm.troubles import TROUBLES
from tests.doctor.mending import run_mend, tools
from tests.doctor.modes import CASES
from tests.doctor.test_modes import BASES
from tests.doctor.trees import with_amd

__all__ = ["tools"]  # a fixture


def test_mends_of_known_troubles_run(tools: Path) -> None:
    for trouble in TROUBLES:
        run_mend(trouble.mend, tools)


def test_prose_would_be_noticed(tools: Path) -> None:
    for text in ("log out and in again", "take it out of /etc/default/grub; sudo update-grub", "on the host: docker"):
        with pytest.raises(AssertionError):
            run_mend(text, tools)


@pytest.mark.parametrize(
    ("name", "before", "after", "mend"),
    [
        ("grub", 'GRUB_CMDLINE_LINUX_DEFAULT="quiet"\nGRUB_CMDLINE_LINUX="a=1"\n',
         'GRUB_CMDLINE_LINUX_DEFAULT="quiet"\nGRUB_CMDLINE_LINUX="iommu=pt a=1"\n', ("amd-peers", "iommu")),
        ("grub", 'GRUB_CMDLINE_LINUX="quiet nomodeset a=1"\n', 'GRUB_CMDLINE_LINUX="quiet a=1"\n',
         ("amd-module", "nomodeset")),
        ("no.conf", "blacklist amdgpu\nblacklist nouveau\n", "#blacklist amdgpu\nblacklist nouveau\n",
         ("amd-module", "blacklisted")),
    ],
)  # fmt: skip
def test_what_sed_makes_of_a_file(name: str, before: str, after: str, mend: tuple[str, str], tmp_path: Path) -> None:
    """The real sed, on a copy of the file that a mend names."""
    (tmp_path / "tree").mkdir()
    case = next(c for c in CASES if (c.check, c.mode) == mend)
    tree = BASES[case.base](tmp_path / "tree")
    for damage in case.damages:
        damage(tree)
    findings = next(r.findings for r in examine(tree.machine(), CHECKS) if r.check.name == mend[0])
    command = next(f.mend for f in findings if f.mode == mend[1]).partition(" && ")[0].removeprefix("sudo ")
    expression, file = command.removeprefix("sed -i ").rsplit(" ", 1)
    copy = tmp_path / name
    copy.write_text(before)
    assert Path(file).name == name
    subprocess.run(["bash", "-c", f"sed -i {expression} {copy}"], check=True)
    assert copy.read_text() == after


def test_a_sound_machine_has_nothing_to_mend(tmp_path: Path) -> None:
    assert not [f.mend for r in examine(with_amd(tmp_path).machine(), CHECKS) for f in r.findings if f.mend]
