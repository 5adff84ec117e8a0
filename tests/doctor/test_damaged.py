"""Whatever is done to a machine's files, no check falls over: 500 trees that are damaged at random."""

from __future__ import annotations

import io
import os
import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from pyflame.doctor.chain import CHECKS
from pyflame.doctor.check import Status, examine
from pyflame.doctor.machine import Ran, recorded_machine
from pyflame.doctor.report import as_json, print_results, verdict
from tests.doctor.modes import repository, wsl
from tests.doctor.trees import PACKAGES, Tree, torch, two_gpus, with_amd, with_nvidia

ALL = [replace(check, needs=()) for check in CHECKS]  # also those behind a broken link
JUNK = (
    "",
    "\0\0\0",
    "-1",
    "0x",
    "99999999999999999999999",
    "a:b:c",
    "\n\n",
    "²",
    "GPU-zz,7,,",
    "1 2\n3\n",
    "5 0",
    "=" * 5000,
    "gfx",
)
NAMES = (
    "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "HSA_OVERRIDE_GFX_VERSION", "PATH",
    "HOME", "LD_LIBRARY_PATH", "ROCM_PATH", "PYFLAME_CC", "PYFLAME_THREADS", "PYFLAME_CACHE_DIR",
    "ROCBLAS_TENSILE_LIBPATH", "PYTORCH_ALLOC_CONF", "MIOPEN_USER_DB_PATH", "VIRTUAL_ENV",
)  # fmt: skip


def everything(root: Path) -> Tree:
    """Files that every check looks at."""
    tree = with_nvidia(root)
    with_amd(root)
    two_gpus(tree)
    torch(tree, hip="7.1.1")
    repository(tree, "6.3")
    tree.write("/var/lib/dpkg/status", "Package: rocm\nStatus: install ok installed\n")
    tree.write("/var/lib/dkms/amdgpu/6.14.14/6.8.0/x86_64")
    tree.write("/proc/self/maps", "7f00-7f01 r-xp 0 0:0 1 /opt/rocm/lib/libamdhip64.so.7\n")
    tree.write("/sys/fs/cgroup/cpu.max", "200000 100000\n")
    tree.write("/proc/self/environ", "HOME=/home/ada\0PATH=/usr/bin\0VIRTUAL_ENV=/opt/venv\0")
    tree.write("/proc/self/status", "Uid:\t99 99 99 99\nGid:\t7 7 7 7\nGroups:\t7\nCpus_allowed_list:\t0-7\n")
    return tree


def damage(root: Path, files: list[Path], rng: random.Random) -> None:
    """Take a file or a folder away, or put something else in its place."""
    path = rng.choice(files)
    if not path.exists() and not path.is_symlink():
        return
    folder = path.is_dir() and not path.is_symlink()
    what = rng.choice(["remove", "junk", "folder", "loop", "outside", "cut", "bytes", "locked"])
    if what == "locked":
        if not path.is_symlink():
            path.chmod(rng.choice([0, 0o200, 0o777]))
        return
    text = b"" if folder or not path.is_file() else path.read_bytes()
    shutil.rmtree(path) if folder else path.unlink()
    if what == "junk":
        path.write_text(rng.choice(JUNK))
    elif what == "folder":
        path.mkdir()
    elif what == "loop":
        path.symlink_to(path.name)
    elif what == "outside":
        path.symlink_to(rng.choice(["/nowhere/at/all", "/", "../../../../../../../..", "/opt/rocm"]))
    elif what == "cut":
        path.write_bytes(text[: rng.randrange(len(text) + 1)])
    elif what == "bytes":
        path.write_bytes(rng.randbytes(rng.choice([1, 64, 4096])))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_damaged_trees(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    for number in range(50):
        if number % 5 == 0:  # from anew; the trees between are damaged ever more
            root = tmp_path / str(number)
            root.mkdir()
            tree = everything(root)
            files = sorted(root.rglob("*"))
            files += [path for path in files if path.is_file()] * 3  # what is in files, more often than folders
            if number == 5:
                tree.write("/usr/lib/wsl/lib/libcuda.so.1")
                wsl(tree)
        for _ in range(rng.randrange(1, 7)):
            damage(root, files, rng)
        tree.env = {
            name: rng.choice([*JUNK, "/opt/rocm", "0", "10.3.0"]).replace("\0", "") for name in rng.sample(NAMES, 4)
        }
        tree.answers = [("", Ran(rng.choice([0, 1, -11, 124]), rng.choice([*JUNK, '{"mode": 1}', "[]", "{}"])))]
        tree.groups = rng.choice([set(), {tree.render}])
        machine = rng.choice([tree.machine(), tree.machine(live=False), recorded_machine(root)])
        results = examine(machine, ALL)
        fallen = [(r.check.name, r.findings) for r in results if r.status is Status.UNKNOWN]
        assert not fallen, f"seed {seed}, tree {number}: {fallen}"
        assert verdict(results) and as_json(results)
        if number % 5 == 4:
            print_results(results, io.TextIOWrapper(io.BytesIO(), encoding="utf-8"))


def test_a_copy_is_read_without_this_machine(tmp_path: Path) -> None:
    """Environment, user and groups of a copy come from its own files, and links that say /opt/... mean its own."""
    tree = with_amd(tmp_path)
    tree.write("/proc/self/environ", "HOME=/home/ada\0PATH=/usr/bin\0HIP_VISIBLE_DEVICES=5\0")
    tree.write("/proc/self/status", f"Uid:\t7 4242 4242 4242\nGid:\t8 8 8 8\nGroups:\t{tree.render} 27\n")
    shutil.move(tmp_path / "opt/rocm", tmp_path / "opt/rocm-7.3.0")
    tree.link("/opt/rocm", "/opt/rocm-7.3.0")
    machine = recorded_machine(tmp_path)
    assert machine.uid == 4242 and tree.render in machine.groups and machine.packages == (PACKAGES,)
    found = {r.check.name: r for r in examine(machine, CHECKS)}
    assert found["amd-visible"].status is Status.BROKEN and not machine.live
    assert found["amd-hip"].status is Status.FINE
    assert os.environ.get("HIP_VISIBLE_DEVICES") != "5"
