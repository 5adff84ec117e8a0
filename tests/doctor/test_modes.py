"""Each known way in which a machine is broken is found on a built file tree, with what it must say."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from pyflame.doctor.chain import CHECKS
from pyflame.doctor.check import Result, Status, examine, first_broken
from pyflame.doctor.machine import Ran
from tests.doctor.mending import run_mend, tools
from tests.doctor.modes import CASES, Case
from tests.doctor.trees import PACKAGES, Tree, agent, pci, probe_line, rocm, with_amd, with_nvidia

__all__ = ["tools"]  # a fixture
BASES = {"plain": Tree, "amd": with_amd, "nvidia": with_nvidia}


def results(tree: Tree) -> dict[str, Result]:
    return {result.check.name: result for result in examine(tree.machine(), CHECKS)}


@pytest.mark.parametrize("base", BASES)
def test_a_sound_machine(base: str, tmp_path: Path) -> None:
    found = results(BASES[base](tmp_path))
    bad = {n: r.findings for n, r in found.items() if r.status not in (Status.FINE, Status.NOTHING)}
    assert not bad
    if base != "plain":
        assert found[f"{base}-graphs"].status is Status.FINE


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.check}-{c.mode}")
def test_modes(case: Case, tmp_path: Path, tools: Path) -> None:
    tree = BASES[case.base](tmp_path)
    for damage in case.damages:
        damage(tree)
    found = results(tree)
    findings = [f for f in found[case.check].findings if f.mode == case.mode]
    assert findings, found[case.check].findings
    assert any(case.says in f.text and case.mend in f.mend for f in findings), findings
    unknown = [r.findings for r in found.values() if r.status is Status.UNKNOWN]
    assert not unknown
    for finding in (f for r in found.values() for f in r.findings if f.mend):
        run_mend(finding.mend, tools)
    if findings[0].status is Status.BROKEN:
        first = first_broken(found.values())
        assert first is not None and first.check.name == case.check


def test_every_mode_is_tested() -> None:
    declared = {(check.name, mode) for check in CHECKS for mode in check.modes}
    tested = {(case.check, case.mode) for case in CASES}
    assert declared - tested <= (set() if os.geteuid() == 0 else {("amd-permission", "rootless")})
    assert tested <= declared


def test_links_behind_a_broken_one_are_not_looked_at(tmp_path: Path) -> None:
    tree = with_amd(tmp_path)
    tree.groups.clear()
    found = results(tree)
    for name in ("amd-agents", "amd-hip", "amd-bindings", "amd-kernel", "amd-graphs"):
        assert found[name].status is Status.UNSEEN
        assert found[name].findings[0].text == "not looked at: amd-permission is broken"
    assert found["cpu-compiler"].status is Status.FINE


def test_the_probe_takes_the_discrete_gpu(tmp_path: Path) -> None:
    tree = with_amd(tmp_path)
    agent(tree, 2, 110000)
    tree.remove("/sys/class/kfd/kfd/topology/nodes/1")
    agent(tree, 1, 100306, vram=512 << 20)
    tree.answers.append(("rocm:1 kernel", Ran(0, probe_line(text="this one"))))
    assert results(tree)["amd-kernel"].findings[0].text == "this one"


def test_a_processor_with_graphics_beside_an_nvidia_gpu(tmp_path: Path) -> None:
    """Most of AMD's processors have a small GPU: without ROCm nobody means to compute on it."""
    tree = with_nvidia(tmp_path)
    pci(tree, "0000:0d:00.0", "0x1002", "0x164e", "amdgpu")
    agent(tree, 1, 100306, vram=512 << 20)
    found = results(tree)
    assert found["amd-device"].status is found["amd-hip"].status is Status.NOTHING
    assert "gfx1036" in found["amd-device"].findings[0].text
    rocm(tree)
    assert results(tree)["amd-device"].status is Status.FINE


def test_a_cache_folder_that_will_be_made_is_no_trouble(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.remove("/home/ada/.cache/pyflame")
    tree.path("/home/ada/.cache").chmod(0o770)
    found = results(tree)["cache"]
    assert found.status is Status.FINE and "/home/ada/.cache/pyflame will be made" in found.findings[0].text
    tree.path("/home/ada/.cache").chmod(0o555)
    assert {f.mode for f in results(tree)["cache"].findings} == {"no-folder"}


def test_files_of_others_do_no_harm(tmp_path: Path) -> None:
    """A second GPU that another user's service was given."""
    tree = with_amd(tmp_path)
    tree.device("/dev/dri/renderD200", 0o600)
    found = results(tree)["amd-permission"]
    assert found.status is Status.FINE and "except /dev/dri/renderD200" in found.findings[0].text


def test_versions_of_wheels(tmp_path: Path) -> None:
    """AMD's pip wheels are found without a variable, with the version of their dist-info."""
    tree = with_amd(tmp_path)
    tree.remove("/opt/rocm")
    tree.write(f"{PACKAGES}/_rocm_sdk_core/lib/libamdhip64.so.7")
    tree.write(f"{PACKAGES}/_rocm_sdk_core/lib/libhiprtc.so.7")
    tree.folder(f"{PACKAGES}/rocm_sdk_core-7.14.0.dist-info")
    text = results(tree)["amd-hip"].findings[0].text
    assert text == f"{PACKAGES}/_rocm_sdk_core/lib/libamdhip64.so.7 (7.14.0)"


def test_the_modes_of_rocm_cli_are_those_of_checks() -> None:
    """docs/doctor.md says where each of them is found: by checks and modes that there are."""
    modes = {check.name: set(check.modes) for check in CHECKS}
    text = Path(__file__).parents[2].joinpath("docs/doctor.md").read_text()
    rows = re.findall(r"^\| \d+ .*\| (.*) \|$", text.partition("## rocm-cli")[2].partition("\n## ")[0], re.MULTILINE)
    assert len(rows) == 13
    for row in rows[:-1]:
        for name, named in re.findall(r"`([\w-]+)` ([\w-]+(?:, [\w-]+)*)", row):
            assert set(named.split(", ")) <= modes[name], row
