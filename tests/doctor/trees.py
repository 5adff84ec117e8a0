"""File trees of machines: a sound one with AMD GPUs, one with an NVIDIA GPU, and what can be done to them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from pyflame.doctor.machine import Machine, Ran

USER = os.geteuid() + 12345  # owns none of the files: rights come by group
PACKAGES = "/opt/venv/lib/python3.12/site-packages"
KERNEL = "6.8.0-60-generic"
NODES = "/sys/class/kfd/kfd/topology/nodes"


class Tree:
    """A folder that is built and damaged like a machine, and the environment and tools that go with it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.env = {"PATH": "/usr/bin", "HOME": "/home/ada"}
        self.groups = {os.stat(root).st_gid}
        self.broken_imports: dict[str, str] = {}
        self.answers: list[tuple[str, Ran]] = []  # of programs whose command holds a word
        self.system, self.arch, self.python = "Linux", "x86_64", (3, 12)
        self.free = 100 << 30
        self.refused = ""  # why device files cannot be opened
        self.write("/etc/passwd", f"root:x:0:0::/root:/bin/sh\nada:x:{USER}:{USER}::/home/ada:/bin/sh\n")
        self.render = os.stat(self.path("/etc/passwd")).st_gid
        self.write("/etc/group", f"root:x:{self.render + 1}:\nrender:x:{self.render}:bob\n")
        self.write("/etc/os-release", "ID=ubuntu\nVERSION_CODENAME=noble\n")
        self.write("/proc/sys/kernel/osrelease", f"{KERNEL}\n")
        self.write("/proc/cmdline", "BOOT_IMAGE=/vmlinuz root=/dev/sda1 quiet\n")
        self.write("/proc/mounts", "/dev/sda1 / ext4 rw 0 0\ntmpfs /dev/shm tmpfs rw,size=16384000k 0 0\n")
        self.write("/proc/self/limits", "Limit  Soft Limit  Hard Limit  Units\n"
                   "Max open files            65536                524288               files\n"
                   "Max locked memory         unlimited            unlimited            bytes\n")  # fmt: skip
        self.write("/proc/self/status", "Name:\tpython\nCpus_allowed_list:\t0-7\n")
        self.write("/proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu avx2 fma avx512f amx_tile\n")
        self.write("/proc/meminfo", "MemTotal:       65536000 kB\nMemAvailable:   60000000 kB\n")
        self.program("/usr/bin/cc")
        self.folder("/home/ada/.cache/pyflame", 0o770)

    def path(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def write(self, path: str, text: str = "", mode: int = 0o644) -> None:
        self.path(path).parent.mkdir(parents=True, exist_ok=True)
        self.path(path).write_text(text)
        self.path(path).chmod(mode)

    def folder(self, path: str, mode: int = 0o755) -> None:
        self.path(path).mkdir(parents=True, exist_ok=True)
        self.path(path).chmod(mode)

    def program(self, path: str) -> None:
        self.write(path, "#!/bin/sh\n", 0o755)

    def device(self, path: str, mode: int = 0o660) -> None:
        self.write(path, "", mode)

    def link(self, path: str, target: str) -> None:
        self.path(path).parent.mkdir(parents=True, exist_ok=True)
        self.path(path).unlink(missing_ok=True)
        self.path(path).symlink_to(target)

    def remove(self, path: str) -> None:
        found = self.path(path)
        if found.is_dir() and not found.is_symlink():
            for below in found.iterdir():
                self.remove(f"{path}/{below.name}")
            found.rmdir()
        else:
            found.unlink()

    def run(self, command: Sequence[str], seconds: float) -> Ran:
        line = " ".join(command)
        for word, answer in self.answers:
            if word in line:
                return answer
        if "pyflame.doctor.probe" in line:
            return Ran(0, probe_line())
        return Ran(0, "")

    def machine(self, live: bool = True) -> Machine:
        return Machine(
            self.root, self.env, USER, frozenset(self.groups), self.arch, self.system, (PACKAGES,), self.python, live,
            self.run, lambda name: self.broken_imports.get(name, ""), lambda path: (200 << 30, self.free),
            lambda path: self.refused,
        )  # fmt: skip


def probe_line(mode: str = "", text: str = "is right", warnings: Sequence[str] = ()) -> str:
    return "a line before\n" + json.dumps({"mode": mode, "text": text, "warnings": list(warnings)}) + "\n"


def pci(tree: Tree, address: str, vendor: str, device: str, driver: str, kind: str = "0x030000") -> None:
    folder = f"/sys/bus/pci/devices/{address}"
    for name, value in (("vendor", vendor), ("device", device), ("class", kind)):
        tree.write(f"{folder}/{name}", f"{value}\n")
    if driver:
        tree.folder(f"/sys/bus/pci/drivers/{driver}")
        tree.link(f"{folder}/driver", f"../../../../bus/pci/drivers/{driver}")


def agent(tree: Tree, node: int, version: int, vram: int = 24 << 30, gtt: int = 31 << 30, unique: int = 0) -> None:
    minor = 127 + node
    tree.write(
        f"{NODES}/{node}/properties",
        f"cpu_cores_count 0\nsimd_count 192\nsimd_per_cu 2\ngfx_target_version {version}\n"
        f"drm_render_minor {minor}\nunique_id {unique}\n",
    )
    folder = f"/sys/class/drm/renderD{minor}/device"
    for name, value in (("vram_total", vram), ("vram_used", 1 << 20), ("gtt_total", gtt)):
        tree.write(f"{folder}/mem_info_{name}", f"{value}\n")
    tree.device(f"/dev/dri/renderD{minor}")


def rocm(tree: Tree, version: str = "7.3.0", folder: str = "/opt/rocm") -> None:
    """A ROCm of the system: HIP, hiprtc, rocBLAS's kernels."""
    number = f"{version.rpartition('.')[0]}.25424"
    for name in ("amdhip64", "hiprtc"):
        tree.write(f"{folder}/lib/lib{name}.so.{number}")
        tree.link(f"{folder}/lib/lib{name}.so.{version[0]}", f"lib{name}.so.{number}")
        tree.link(f"{folder}/lib/lib{name}.so", f"lib{name}.so.{version[0]}")
    tree.write(f"{folder}/.info/version", f"{version}-43\n")
    for gfx in ("gfx942", "gfx1100"):
        tree.write(f"{folder}/lib/rocblas/library/TensileLibrary_Type_HH_Contraction_{gfx}.dat")
        tree.write(f"{folder}/lib/hipblaslt/library/{gfx}/extop_{gfx}.co")


def with_amd(root: Path) -> Tree:
    """An RX 7900 XTX on which all is well."""
    tree = Tree(root)
    pci(tree, "0000:03:00.0", "0x1002", "0x744c", "amdgpu")
    pci(tree, "0000:00:1f.0", "0x8086", "0x1234", "", "0x060100")
    tree.write("/sys/module/amdgpu/version", "6.14.14\n")
    tree.write("/lib/firmware/amdgpu/navi31.bin")
    tree.device("/dev/kfd")
    tree.write(f"{NODES}/0/properties", "cpu_cores_count 16\nsimd_count 0\ngfx_target_version 0\n")
    agent(tree, 1, 110000, unique=0x1234567890ABCDEF)
    rocm(tree)
    tree.folder(f"{PACKAGES}/rocm_bindings_hip-10.1.0.dist-info")
    tree.program("/usr/bin/clang-22")
    return tree


def with_nvidia(root: Path) -> Tree:
    """An H200 on which all is well."""
    tree = Tree(root)
    pci(tree, "0000:17:00.0", "0x10de", "0x2335", "nvidia", "0x030200")
    tree.write("/sys/module/nvidia/version", "580.65.06\n")
    for name in ("nvidia0", "nvidiactl", "nvidia-uvm"):
        tree.device(f"/dev/{name}", 0o666)
    tree.write("/usr/lib/x86_64-linux-gnu/libcuda.so.580.65.06")
    tree.link("/usr/lib/x86_64-linux-gnu/libcuda.so.1", "libcuda.so.580.65.06")
    tree.folder(f"{PACKAGES}/cuda_bindings-13.0.1.dist-info")
    tree.write(f"{PACKAGES}/nvidia/cu13/lib/libnvrtc.so.13")
    return tree


def two_gpus(tree: Tree, second: int = 110000) -> None:
    pci(tree, "0000:04:00.0", "0x1002", "0x744c", "amdgpu")
    agent(tree, 2, second, unique=0xFEDCBA0987654321)
    for node, other in ((1, 2), (2, 1)):
        tree.write(f"{NODES}/{node}/io_links/0/properties", f"type 2\nnode_from {node}\nnode_to {other}\n")


def torch(tree: Tree, hip: str = "", cuda: str = "", version: str = "2.15.0") -> None:
    def told(value: str) -> str:
        return repr(value) if value else "None"

    tree.write(
        f"{PACKAGES}/torch/version.py",
        f"from typing import Optional\n__version__ = '{version}'\ncuda: Optional[str] = {told(cuda)}\n"
        f"hip: Optional[str] = {told(hip)}\n",
    )


Damage = Callable[[Tree], object]
