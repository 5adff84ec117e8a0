"""Every way in which the doctor knows a machine to be broken: what is done to a sound one, and what it must say."""

from __future__ import annotations

import os
from dataclasses import dataclass

from pyflame.doctor.machine import Ran
from tests.doctor.trees import (
    KERNEL,
    NODES,
    PACKAGES,
    Damage,
    Tree,
    agent,
    pci,
    probe_line,
    rocm,
    torch,
    two_gpus,
)


@dataclass(frozen=True)
class Case:
    """What is done to a sound machine with this GPU, and words of what is said about it and of the mend."""

    base: str  # "amd", "nvidia", "plain"
    check: str
    mode: str
    says: str
    mend: str
    damages: tuple[Damage, ...]


def case(base: str, check: str, mode: str, says: str, mend: str, *damages: Damage) -> Case:
    return Case(base, check, mode, says, mend, damages)


def env(**values: str) -> Damage:
    return lambda tree: tree.env.update(values)


def write(path: str, text: str = "", mode: int = 0o644) -> Damage:
    return lambda tree: tree.write(path, text, mode)


def remove(*paths: str) -> Damage:
    return lambda tree: [tree.remove(path) for path in paths]


def link(path: str, target: str) -> Damage:
    return lambda tree: tree.link(path, target)


def answer(word: str, status: int, text: str = "") -> Damage:
    return lambda tree: tree.answers.append((word, Ran(status, text)))


def attribute(**values: object) -> Damage:
    return lambda tree: [setattr(tree, name, value) for name, value in values.items()]


def no_import(name: str) -> Damage:
    return lambda tree: tree.broken_imports.update({name: "ImportError: undefined symbol"})


def no_groups(tree: Tree) -> None:
    tree.groups.clear()


def member(tree: Tree) -> None:
    tree.groups.clear()
    tree.write("/etc/group", f"render:x:{tree.render}:bob,ada\n")


def docker(tree: Tree) -> None:
    tree.write("/.dockerenv")


def wsl(tree: Tree) -> None:
    """The GPU of a Windows machine."""
    tree.write("/proc/sys/kernel/osrelease", "6.6.87.2-microsoft-standard-WSL2\n")
    for path in ("/sys/bus/pci/devices", "/dev/kfd", "/dev/dri", "/sys/class/kfd", "/sys/module/amdgpu"):
        tree.remove(path)
    tree.device("/dev/dxg", 0o666)
    tree.write("/opt/rocm/lib/librocdxg.so.1")


def integrated(tree: Tree) -> None:
    agent(tree, 2, 100306, vram=512 << 20)
    pci(tree, "0000:0d:00.0", "0x1002", "0x164e", "amdgpu")


def small_integrated(tree: Tree) -> None:
    tree.remove("/sys/class/drm")
    agent(tree, 1, 110501, vram=512 << 20, gtt=8 << 30)


def second_gpu(tree: Tree) -> None:
    two_gpus(tree)


def no_links(tree: Tree) -> None:
    two_gpus(tree)
    tree.remove(f"{NODES}/2/io_links")


def other_owner_group(tree: Tree) -> None:
    tree.groups.clear()
    docker(tree)


def secure_boot(tree: Tree) -> None:
    tree.remove("/sys/module")
    tree.write(f"/var/lib/dkms/amdgpu/6.14.14/{KERNEL}/x86_64")
    tree.write("/sys/firmware/efi/efivars/SecureBoot-8be4df61", "\6\0\0\0\1")


def used_memory(tree: Tree) -> None:
    tree.write("/sys/class/drm/renderD128/device/mem_info_vram_used", f"{23 << 30}\n")


def torch_hip(tree: Tree) -> None:
    torch(tree, hip="7.3.25424")


def torch_with_hip6(tree: Tree) -> None:
    torch(tree, hip="6.4.43482")
    tree.write(f"{PACKAGES}/torch/lib/libamdhip64.so")


def only_torch(tree: Tree) -> None:
    tree.remove("/opt/rocm")
    torch_hip(tree)
    tree.write(f"{PACKAGES}/torch/lib/libamdhip64.so")
    tree.write(f"{PACKAGES}/torch/lib/libhiprtc.so")


def two_loaded(tree: Tree) -> None:
    rows = [f"7f00-7f01 r-xp 0 0:0 {n} {p}/libamdhip64.so.7" for n, p in enumerate(("/opt/rocm/lib", "/usr/lib"))]
    tree.write("/proc/self/maps", "\n".join(rows))


def old_rocm(version: str) -> Damage:
    def damage(tree: Tree) -> None:
        tree.remove("/opt/rocm")
        rocm(tree, version)

    return damage


def known_fault(tree: Tree) -> None:
    old_rocm("7.2.1")(tree)
    tree.remove(f"{NODES}/1")
    agent(tree, 1, 90402, vram=192 << 30)


def other_rocm_in_path(tree: Tree) -> None:
    tree.write("/opt/rocm-6.3.0/.info/version", "6.3.0\n")
    tree.folder("/opt/rocm-6.3.0/lib")
    tree.env["LD_LIBRARY_PATH"] = "/opt/rocm-6.3.0/lib"


def half_removed(tree: Tree) -> None:
    tree.remove("/opt/rocm")
    tree.link("/opt/rocm", "rocm-6.0.0")
    rocm(tree, folder="/opt/rocm-7.3.0")


def miopen(tree: Tree) -> None:
    tree.write("/opt/rocm/lib/libMIOpen.so.1")
    for folder in ("/home/ada", "/home/ada/.cache", "/home/ada/.config"):
        tree.folder(folder, 0o770)


def rootless(tree: Tree) -> None:
    """As if the group of the file were mapped away: only its number tells."""
    tree.groups.clear()
    tree.write("/run/.containerenv")
    os.chown(tree.path("/dev/kfd"), -1, 65534)


def repository(tree: Tree, release: str, name: str = "noble") -> None:
    tree.write(
        f"/etc/apt/sources.list.d/rocm-{release}.list",
        f"# deb https://repo.radeon.com/rocm/apt/5.0 focal main\n"
        f"deb [arch=amd64] https://repo.radeon.com/rocm/apt/{release} {name} main\n",
    )


def dpkg(package: str, state: str) -> Damage:
    return write(
        "/var/lib/dpkg/status", f"Package: gcc\nStatus: install ok installed\n\nPackage: {package}\nStatus: {state}\n"
    )


_NO_GPU_COMPILER = ("/usr/bin/clang-22", *(f"/opt/rocm/lib/libhiprtc.so{s}" for s in ("", ".7", ".7.3.25424")))
SYSTEM = [
    case("plain", "platform", "windows", "this is Windows", "wsl --install", attribute(system="Windows")),
    case("plain", "platform", "not-linux", "this is Darwin", "", attribute(system="Darwin")),
    case("plain", "platform", "architecture", "riscv64", "", attribute(arch="riscv64")),
    case("plain", "python", "python-old", "Python 3.9", "", attribute(python=(3, 9))),
    case("plain", "python", "package-broken", "numpy does not import", "--force-reinstall numpy", no_import("numpy")),
    case("plain", "python", "no-rich", "rich does not import", "--force-reinstall rich", no_import("rich")),
    case("plain", "limits", "no-shm", "no /dev/shm", "mount -t tmpfs", write("/proc/mounts",
         "/dev/sda1 / ext4 rw 0 0\n")),
    case("plain", "limits", "small-shm", "64 MiB", "--shm-size=8g",
         write("/proc/mounts", "shm /dev/shm tmpfs rw,size=65536k 0 0\n")),
    case("plain", "limits", "few-files", "1024 files", "ulimit -n",
         write("/proc/self/limits", "Max open files            1024                 4096                 files\n")),
    case("amd", "limits", "little-locked", "8 MiB", "memlock=-1",
         write("/proc/self/limits", "Max locked memory         8388608              8388608              bytes\n")),
    case("plain", "cache", "no-home", "neither HOME", "PYFLAME_CACHE_DIR", lambda tree: tree.env.pop("HOME")),
    case("plain", "cache", "no-folder", "/home/ada/.cache is no folder", "PYFLAME_CACHE_DIR",
         remove("/home/ada/.cache"), write("/home/ada/.cache")),
    case("plain", "cache", "not-writable", "/home/ada/.cache/pyflame is no folder that this user may write to",
         "PYFLAME_CACHE_DIR", lambda tree: tree.folder("/home/ada/.cache/pyflame", 0o755)),
    case("plain", "cache", "others-write", "mode 0777", "chmod go-w",
         lambda tree: tree.folder("/home/ada/.cache/pyflame", 0o777)),
    case("plain", "cache", "network", "lies on nfs4", "a/local/disk", write("/proc/mounts",
         "srv:/home /home nfs4 rw 0 0\n"), lambda tree: tree.folder("/dev/shm")),
    case("plain", "cache", "full", "100 MiB are free", "disk/with/room", attribute(free=100 << 20)),
]  # fmt: skip
CPU = [
    case("plain", "cpu-compiler", "no-compiler", "none of cc, gcc and clang", "apt install gcc",
         remove("/usr/bin/cc")),
    case("plain", "cpu-compiler", "named-missing", "PYFLAME_CC names icc", "unset PYFLAME_CC", env(PYFLAME_CC="icc")),
    case("plain", "cpu-compiler", "trial-failed", "math.h: No such file", "libc6-dev", answer("trial.c", 1,
         "fatal error: math.h: No such file")),
    case("plain", "cpu-cores", "quota", "may use 2.0", "PYFLAME_THREADS=2", write("/sys/fs/cgroup/cpu.max",
         "200000 100000\n")),
    case("plain", "cpu-cores", "threads", "'64' on 8 cores", "unset PYFLAME_THREADS", env(PYFLAME_THREADS="64")),
    case("plain", "cpu-features", "no-vectors", "neither AVX2 nor NEON", "-cpu host", write("/proc/cpuinfo",
         "flags : fpu sse2\n")),
    case("plain", "cpu-memory", "little-memory", "195 MiB of", "ps aux", write("/proc/meminfo",
         "MemTotal: 8000000 kB\nMemAvailable: 200000 kB\n")),
    case("plain", "cpu-memory", "memory-limit", "may use 2 GiB", "--memory", write("/sys/fs/cgroup/memory.max",
         f"{2 << 30}\n")),
    case("plain", "cpu-memory", "memory-limit", "may use 3 GiB", "--memory", write("/proc/self/cgroup",
         "0::/user.slice/job\n"), write("/sys/fs/cgroup/user.slice/memory.max", f"{3 << 30}\n")),
]  # fmt: skip
DRIVER = [
    case("amd", "amd-module", "blacklisted", "/etc/modprobe.d/no.conf", "sed -i", remove("/sys/module"),
         write("/etc/modprobe.d/no.conf", "blacklist amdgpu\n")),
    case("amd", "amd-module", "blacklisted", "command line blacklists", "update-grub", remove("/sys/module"),
         write("/proc/cmdline", "quiet modprobe.blacklist=nouveau,amdgpu")),
    case("amd", "amd-module", "nomodeset", "nomodeset", "update-grub", remove("/sys/module"), write("/proc/cmdline",
         "quiet nomodeset")),
    case("amd", "amd-module", "not-built", f"not built for Linux {KERNEL}, only for 6.5.0-1-generic",
         "dkms autoinstall",
         remove("/sys/module"), write("/var/lib/dkms/amdgpu/6.14.14/6.5.0-1-generic/x86_64")),
    case("amd", "amd-module", "secure-boot", "Secure Boot is on", "mokutil", secure_boot),
    case("amd", "amd-module", "not-loaded", "amdgpu is not loaded", "modprobe amdgpu", remove("/sys/module")),
    case("amd", "amd-module", "other-driver", "vfio-pci holds 0000:03:00.0", "driverctl",
         link("/sys/bus/pci/devices/0000:03:00.0/driver", "../vfio-pci")),
    case("amd", "amd-module", "no-driver", "did not take 0000:03:00.0", "dmesg",
         remove("/sys/bus/pci/devices/0000:03:00.0/driver", "/dev/kfd")),
    case("amd", "amd-module", "no-firmware", "/lib/firmware/amdgpu is empty", "linux-firmware",
         remove("/sys/bus/pci/devices/0000:03:00.0/driver", "/dev/kfd", "/lib/firmware")),
    case("amd", "amd-container", "docker-desktop", "Docker Desktop", "docs.docker.com", docker, remove("/dev/kfd"),
         write("/proc/sys/kernel/osrelease", "6.10.14-linuxkit\n")),
    case("amd", "amd-container", "no-kfd", "docker container without /dev/kfd",
         "--device=/dev/kfd --device=/dev/dri --group-add", docker, remove("/dev/kfd")),
    case("amd", "amd-container", "no-dri", "without /dev/dri", "--device=/dev/dri", docker, remove("/dev/dri")),
    case("amd", "amd-wsl", "no-dxg", "without /dev/dxg", "wsl.exe --update", write("/proc/sys/kernel/osrelease",
         "5.15.0-microsoft-standard\n")),
    case("amd", "amd-wsl", "no-librocdxg", "librocdxg.so is not installed", "ROCm/librocdxg", wsl,
         remove("/opt/rocm/lib/librocdxg.so.1")),
    case("amd", "amd-wsl", "dxg-variable", "HSA_ENABLE_DXG_DETECTION is not 1", "export HSA_ENABLE_DXG_DETECTION=1",
         wsl),
    case("amd", "amd-nodes", "no-kfd", "no /dev/kfd", "HSA_AMD", remove("/dev/kfd")),
    case("amd", "amd-nodes", "no-render", "no /dev/dri/renderD*", "modprobe", remove("/dev/dri")),
    case("amd", "amd-permission", "not-in-group", "/dev/kfd belongs to group render",
         "usermod -aG render,video ada", no_groups),
    case("amd", "amd-permission", "stale-login", "ada is in group render, but this process is not", "newgrp render",
         member),
    case("amd", "amd-permission", "container-group", "this container's process is not in", "--group-add",
         other_owner_group),
    case("amd", "amd-permission", "open-refused", "Operation not permitted", "--device=/dev/kfd",
         attribute(refused="Operation not permitted")),
    case("amd", "amd-permission", "file-mode", "nobody but root", "chmod 660 /dev/kfd", no_groups,
         lambda tree: tree.path("/dev/kfd").chmod(0o600)),
    case("amd", "amd-agents", "no-agents", "topology has no GPU", "atomics", remove(f"{NODES}/1")),
    case("amd", "amd-agents", "missing-agent", "2 AMD GPUs on the PCI bus, but 1 compute", "dmesg",
         lambda tree: pci(tree, "0000:04:00.0", "0x1002", "0x744c", "amdgpu")),
    case("amd", "amd-agents", "old-gpu", "gfx803", "", lambda tree: agent(tree, 2, 80003)),
    case("amd", "amd-agents", "unknown-gpu", "no figures of gfx1102", "", lambda tree: agent(tree, 2, 110002)),
]  # fmt: skip
ROCM = [
    case("amd", "amd-override", "override-empty", "set, but empty", "unset HSA_OVERRIDE_GFX_VERSION",
         env(HSA_OVERRIDE_GFX_VERSION="")),
    case("amd", "amd-override", "override-malformed", "'gfx1030'", "unset HSA_OVERRIDE_GFX_VERSION",
         env(HSA_OVERRIDE_GFX_VERSION="gfx1030")),
    case("amd", "amd-override", "override-generation", "makes gfx1100 run code for gfx1030", "unset",
         env(HSA_OVERRIDE_GFX_VERSION="10.3.0")),
    case("amd", "amd-override", "override-needless", "gfx1100 needs no", "unset",
         env(HSA_OVERRIDE_GFX_VERSION="11.0.0")),
    case("amd", "amd-override", "override-mixed", "makes gfx1036 run code for gfx1100", "unset", integrated,
         env(HSA_OVERRIDE_GFX_VERSION="11.0.0")),
    case("amd", "amd-visible", "hidden", "HIP_VISIBLE_DEVICES='-1' hides", "unset HIP_VISIBLE_DEVICES",
         env(HIP_VISIBLE_DEVICES="-1")),
    case("amd", "amd-visible", "outside", "HIP_VISIBLE_DEVICES=1, but there are 1",
         "unset ROCR_VISIBLE_DEVICES HIP_VISIBLE_DEVICES",
         second_gpu, env(ROCR_VISIBLE_DEVICES="1", HIP_VISIBLE_DEVICES="1")),
    case("amd", "amd-visible", "contradiction", "HIP_VISIBLE_DEVICES=0 and CUDA_VISIBLE_DEVICES=1", "unset CUDA",
         second_gpu, env(HIP_VISIBLE_DEVICES="0", CUDA_VISIBLE_DEVICES="1")),
    case("amd", "amd-hip", "no-hip", "no libamdhip64.so", "rocm[libraries]", remove("/opt/rocm")),
    case("amd", "amd-hip", "only-torch", "PyTorch's", "rocm[libraries]", only_torch),
    case("amd", "amd-hip", "dangling", "/usr/lib/libamdhip64.so leads nowhere", "rm /usr/lib/libamdhip64.so",
         link("/usr/lib/libamdhip64.so", "libamdhip64.so.5")),
    case("amd", "amd-hip", "old-hip", "older than 6.0", "newer ROCm", old_rocm("5.7.1")),
    case("amd", "amd-hip", "several-hip", "/opt/rocm-6.3.0/lib", "LD_LIBRARY_PATH=/opt/rocm/lib",
         lambda tree: rocm(tree, "6.3.0", "/opt/rocm-6.3.0")),
    case("amd", "amd-hip", "two-loaded", "/opt/rocm/lib/libamdhip64.so.7 and /usr/lib", "unset LD_LIBRARY_PATH",
         two_loaded),
    case("amd", "amd-hip", "torch-other-major", "HIP 6.4.43482, the system has 7.3", "whl-multi-arch", torch_with_hip6),
    case("amd", "amd-troubles", "fault-aborts", "aborts the process", "7.0 or newer", old_rocm("6.3.1")),
    case("amd", "amd-troubles", "core-dumps", "core dumps are on", "ulimit -c 0", write("/proc/self/limits",
         "Max core file size        unlimited            unlimited            bytes\n")),
    case("amd", "amd-troubles", "core-dumps", "=0: a kernel that faults aborts", "unset HIP_SKIP",
         env(HIP_SKIP_ABORT_ON_GPU_ERROR="0")),
    case("amd", "amd-troubles", "known", "ROCm/clr/issues/279", "", known_fault),
    case("amd", "amd-bindings", "no-bindings", "rocm-bindings-hip is not installed", "pyflame-rocm[rocm]",
         remove(f"{PACKAGES}/rocm_bindings_hip-10.1.0.dist-info")),
    case("amd", "amd-bindings", "no-bindings-aarch64", "x86-64 only", "x86-64 machine", attribute(arch="aarch64"),
         remove(f"{PACKAGES}/rocm_bindings_hip-10.1.0.dist-info")),
    case("amd", "amd-bindings", "old-bindings", "9.0.0 is older", "--upgrade",
         remove(f"{PACKAGES}/rocm_bindings_hip-10.1.0.dist-info"),
         lambda tree: tree.folder(f"{PACKAGES}/rocm_bindings_hip-9.0.0.dist-info")),
    case("amd", "amd-bindings", "bindings-broken", "rocm.bindings.hip does not import", "--force-reinstall",
         answer("import rocm.bindings.hip", 1, "Traceback\nImportError: undefined symbol")),
    case("amd", "amd-compiler", "no-gpu-compiler", "neither libhiprtc.so nor a clang", "apt install clang",
         remove(*_NO_GPU_COMPILER)),
    case("amd", "amd-compiler", "clang-missing", "names clang-99", "unset PYFLAME_HIP_CLANG",
         env(PYFLAME_HIP_CLANG="clang-99")),
    case("amd", "amd-compiler", "gpu-trial-failed", "builds nothing for gfx1100", "apt install clang",
         remove(*_NO_GPU_COMPILER[1:]), answer("trial.hip", 1, "unknown target")),
    case("amd", "amd-compiler", "clang-too-old", "builds nothing for gfx1100", "apt install clang",
         answer("trial.hip", 1, "unknown target")),
    case("amd", "amd-library-kernels", "rocblas-lacks-gfx", "no kernels for gfx1100, but for gfx942",
         "rocm[libraries]", remove("/opt/rocm/lib/rocblas/library/TensileLibrary_Type_HH_Contraction_gfx1100.dat")),
    case("amd", "amd-library-kernels", "hipblaslt-lacks-gfx", "no kernels for gfx1100", "rocm[libraries]",
         remove("/opt/rocm/lib/hipblaslt/library/gfx1100")),
    case("amd", "amd-library-kernels", "libpath-empty", "holds no kernels", "unset ROCBLAS_TENSILE_LIBPATH",
         env(ROCBLAS_TENSILE_LIBPATH="/nowhere")),
    case("amd", "amd-miopen", "miopen-network", "/home/ada/.config/miopen lies on nfs4", "MIOPEN_USER_DB_PATH=",
         miopen,
         write("/proc/mounts", "srv:/home /home nfs4 rw 0 0\n")),
    case("amd", "amd-miopen", "miopen-not-kept", "/home/ada/.cache/miopen cannot be written",
         "MIOPEN_CUSTOM_CACHE_DIR=", miopen,
         lambda tree: tree.folder("/home/ada/.cache", 0o755)),
    case("amd", "amd-miopen", "miopen-searches", "NORMAL", "MIOPEN_FIND_MODE=FAST", miopen,
         env(MIOPEN_FIND_MODE="1")),
    case("amd", "amd-memory", "memory-used", "23 GiB of 24 GiB", "amd-smi process", used_memory),
    case("amd", "amd-memory", "small-gtt", "gfx1151 may use 8 GiB", "pages_limit=12288000", small_integrated),
    case("amd", "amd-igpu", "igpu-visible", "gfx1036, number 1", "ROCR_VISIBLE_DEVICES=GPU-1234567890abcdef",
         integrated),
    case("amd", "amd-peers", "iommu", "without iommu=pt", "iommu=pt", second_gpu, write("/sys/class/iommu/ivhd0/x")),
    case("amd", "amd-peers", "no-links", "reaches no other GPU", "Above 4G", no_links),
    case("amd", "rocm-path", "rocm-path-missing", "HIP_PATH=/opt/old", "unset HIP_PATH", env(HIP_PATH="/opt/old")),
    case("amd", "rocm-path", "not-in-path", "/opt/rocm/bin is not in PATH", "export PATH",
         lambda tree: tree.program("/opt/rocm/bin/rocminfo")),
    case("amd", "rocm-path", "library-path-mixed", "/opt/rocm-6.3.0/lib of ROCm 6.3", "unset LD_LIBRARY_PATH",
         other_rocm_in_path),
    case("amd", "rocm-path", "opt-rocm-dangling", "leads nowhere", "ln -sfn /opt/rocm-7.3.0 /opt/rocm", half_removed),
    case("amd", "rocm-repositories", "several-releases", "ROCm 6.3, 7.3", "keep one of",
         lambda tree: repository(tree, "6.3"), lambda tree: repository(tree, "7.3")),
    case("amd", "rocm-repositories", "stale-repository", "of ROCm 6.3, installed is 7.3", "sudo rm",
         lambda tree: repository(tree, "6.3")),
    case("amd", "rocm-repositories", "other-distribution", "is for jammy, this is noble", "s/jammy/noble/",
         lambda tree: repository(tree, "7.3", "jammy")),
    case("amd", "rocm-packages", "half-installed", "amdgpu-dkms", "dpkg --configure -a", dpkg("amdgpu-dkms",
         "install ok half-configured")),
    case("amd", "rocm-packages", "gone-package", "rocm-dkms", "apt remove rocm-dkms", dpkg("rocm-dkms",
         "install ok installed")),
    case("amd", "rocm-packages", "failed-dkms", "building amdgpu failed", "tail",
         write("/var/lib/dkms/amdgpu/6.14.14/build/make.log", "make: *** Error 2\n")),
]  # fmt: skip
PROBES = [
    case(base, f"{base}-{check}", mode, says, "", answer(probe, status, text))
    for base in ("amd", "nvidia")
    for check, probe in (("kernel", "kernel"), ("libraries", "libraries"), ("graphs", "graph"))
    for mode, says, status, text in (
        ("wrong", "wrong by 3", 0, probe_line("wrong", "wrong by 3")),
        ("failed", "DeviceFaultError", 0, probe_line("failed", "DeviceFaultError: [rocm] a kernel faulted")),
        ("crashed", "SIGABRT: Memory access fault", -6, "Memory access fault by GPU node-1"),
        ("hung", "no answer", 124, "no answer within 120 s"),
        ("told", "cuBLASLt gave a wrong result", 0, probe_line("", "right", ["cuBLASLt gave a wrong result"])),
    )
]
NVIDIA = [
    case("nvidia", "nvidia-module", "nouveau", "nouveau holds", "nvidia-driver", remove("/sys/module"),
         link("/sys/bus/pci/devices/0000:17:00.0/driver", "../nouveau")),
    case("nvidia", "nvidia-module", "nvidia-not-loaded", "nvidia is not loaded", "modprobe nvidia",
         remove("/sys/module")),
    case("nvidia", "nvidia-module", "nvidia-other-driver", "vfio-pci holds", "driverctl",
         link("/sys/bus/pci/devices/0000:17:00.0/driver", "../vfio-pci")),
    case("nvidia", "nvidia-nodes", "nvidia-container", "docker container without /dev/nvidia0", "--gpus all",
         docker, remove("/dev/nvidia0")),
    case("nvidia", "nvidia-nodes", "nvidia-no-nodes", "no /dev/nvidia-uvm", "nvidia-modprobe",
         remove("/dev/nvidia-uvm")),
    case("nvidia", "nvidia-nodes", "nvidia-forbidden", "may not use /dev/nvidia0", "chmod 666",
         lambda tree: tree.path("/dev/nvidia0").chmod(0o600)),
    case("nvidia", "nvidia-driver", "no-libcuda", "no libcuda.so.1", "libcuda1", remove("/usr/lib/x86_64-linux-gnu")),
    case("nvidia", "nvidia-driver", "driver-mismatch", "libcuda is 580.65.06, the kernel module is 570.1.2",
         "reboot", write("/sys/module/nvidia/version", "570.1.2\n")),
    case("nvidia", "nvidia-visible", "nvidia-hidden", "hides every GPU", "unset CUDA_VISIBLE_DEVICES",
         env(CUDA_VISIBLE_DEVICES="")),
    case("nvidia", "nvidia-visible", "nvidia-outside", "but there are 1 GPUs", "unset",
         env(CUDA_VISIBLE_DEVICES="3")),
    case("nvidia", "nvidia-bindings", "no-cuda-bindings", "cuda-bindings is not installed", "pyflame-rocm[cuda]",
         remove(f"{PACKAGES}/cuda_bindings-13.0.1.dist-info")),
    case("nvidia", "nvidia-bindings", "old-cuda-bindings", "12.6.0 is older", "--upgrade",
         remove(f"{PACKAGES}/cuda_bindings-13.0.1.dist-info"),
         lambda tree: tree.folder(f"{PACKAGES}/cuda_bindings-12.6.0.dist-info")),
    case("nvidia", "nvidia-bindings", "driver-too-old", "needs driver 580, this is 535.1.1", "cuda-bindings<13",
         write("/sys/module/nvidia/version", "535.1.1\n"), write("/usr/lib/x86_64-linux-gnu/libcuda.so.535.1.1")),
    case("nvidia", "nvidia-bindings", "cuda-bindings-broken", "does not import", "--force-reinstall",
         answer("import cuda.bindings.driver", 1, "ImportError: no")),
    case("nvidia", "nvidia-compiler", "no-nvrtc", "no libnvrtc.so", "cuda-bindings[all]",
         remove(f"{PACKAGES}/nvidia")),
]  # fmt: skip
TORCH = [
    case("amd", "torch", "cuda-build", "built for CUDA 12.8; the GPU is AMD's", "whl-multi-arch",
         lambda tree: torch(tree, cuda="12.8")),
    case("nvidia", "torch", "hip-build", "the GPU is NVIDIA's", "whl/cu130", torch_hip),
    case("amd", "torch", "cpu-build", "for the CPU alone", "whl-multi-arch", lambda tree: torch(tree)),
    case("amd", "torch", "torch-lacks-gfx", "no kernels for gfx1100", "whl-multi-arch", torch_hip,
         write(f"{PACKAGES}/torch/lib/rocblas/library/TensileLibrary_gfx942.dat")),
    case("amd", "torch", "allocator-zeros", "legacy-rocm-build/issues/6603", "unset PYTORCH_ALLOC_CONF", torch_hip,
         env(PYTORCH_ALLOC_CONF="expandable_segments:True,max_split_size_mb:128")),
    case("amd", "torch", "allocator-no-op", "does nothing in torch 2.9.1", "unset PYTORCH_HIP",
         lambda tree: torch(tree, hip="7.1.1", version="2.9.1+rocm7.1"),
         env(PYTORCH_HIP_ALLOC_CONF="expandable_segments:True")),
]  # fmt: skip
# Where a test may give files to other groups.
ROOTLESS = [
    case("amd", "amd-permission", "rootless", "does not map", "--group-add keep-groups", rootless,
         write("/proc/self/uid_map", "0 1000 1\n")),
]  # fmt: skip
CASES = [*SYSTEM, *CPU, *DRIVER, *ROCM, *PROBES, *NVIDIA, *TORCH, *(ROOTLESS if os.geteuid() == 0 else [])]
