"""The kernel module amdgpu: loaded, built for this kernel, and holding the GPUs."""

from __future__ import annotations

import re

from pyflame.doctor.check import Check, Finding, Findings, broken, fine, warning
from pyflame.doctor.gpus import AMD, PciGpu, is_wsl, pci_gpus
from pyflame.doctor.machine import Machine

MODES = {
    "blacklisted": "a file in modprobe.d, or the kernel's command line, keeps amdgpu from loading",
    "nomodeset": "the kernel was started with nomodeset, so no GPU driver takes hold",
    "not-built": "amdgpu-dkms is not built for the kernel that runs (kernel, distribution and ROCm disagree)",
    "secure-boot": "Secure Boot refuses a module of amdgpu-dkms that nobody signed",
    "not-loaded": "amdgpu is not loaded",
    "no-firmware": "the GPU's firmware files are missing, so amdgpu gave up",
    "other-driver": "another driver (vfio-pci, radeon) holds the GPU",
    "no-driver": "amdgpu is loaded, but did not take this GPU: too new for the kernel, or its firmware is missing",
}
_REBUILD = "sudo apt install linux-headers-$(uname -r) && sudo dkms autoinstall && sudo modprobe amdgpu"
_FIRMWARE = "sudo apt install firmware-amd-graphics || sudo apt install linux-firmware   # then reboot"


def look(machine: Machine) -> Findings:
    gpus = pci_gpus(machine, AMD)
    if not gpus and is_wsl(machine):
        yield fine("WSL2: Windows has the driver")
        return
    if not machine.exists("/sys/module/amdgpu"):
        yield _why_not_loaded(machine)
        return
    yield from _holders(machine, gpus)
    version = machine.line("/sys/module/amdgpu/version")
    kernel = machine.kernel()
    yield fine(f"amdgpu {version} (DKMS) on Linux {kernel}" if version else f"amdgpu of Linux {kernel}")


def _why_not_loaded(machine: Machine) -> Finding:
    for path in machine.glob("/etc/modprobe.d/*.conf"):
        if re.search(
            r"^\s*(blacklist\s+amdgpu\b|install\s+amdgpu\s+/bin/(true|false))", machine.read(path), re.MULTILINE
        ):
            mend = f"sudo sed -i '/amdgpu/s/^/#/' {path} && sudo update-initramfs -u && sudo modprobe amdgpu"
            return broken("blacklisted", f"{path} keeps amdgpu from loading", mend)
    words = machine.read("/proc/cmdline").split()
    if any(w.startswith(("modprobe.blacklist=", "module_blacklist=")) and "amdgpu" in w for w in words):
        return broken(
            "blacklisted",
            "the kernel's command line blacklists amdgpu",
            "sudoedit /etc/default/grub && sudo update-grub   # take it out of GRUB_CMDLINE_LINUX, then reboot",
        )
    if "nomodeset" in words:
        return broken(
            "nomodeset",
            "the kernel was started with nomodeset",
            "sudo sed -i 's/ *nomodeset//' /etc/default/grub && sudo update-grub   # then reboot",
        )
    kernel = machine.kernel()
    built = machine.glob("/var/lib/dkms/amdgpu/*/*/*")
    if machine.glob("/var/lib/dkms/amdgpu/*") and not any(f"/{kernel}/" in path for path in built):
        have = sorted({path.split("/")[-2] for path in built})
        return broken(
            "not-built", f"amdgpu-dkms is not built for Linux {kernel}, only for {', '.join(have) or 'none'}", _REBUILD
        )
    if built and _secure_boot(machine):
        return broken(
            "secure-boot",
            "Secure Boot is on and amdgpu-dkms did not load",
            "sudo mokutil --import /var/lib/shim-signed/mok/MOK.der   # reboot, enrol the key; or turn Secure Boot off",
        )
    return broken(
        "not-loaded",
        "an AMD GPU is there, but the kernel module amdgpu is not loaded",
        "sudo modprobe amdgpu && sudo dmesg | grep -i amdgpu | tail",
    )


def _secure_boot(machine: Machine) -> bool:
    """Whether firmware checks signatures: the last byte of its variable."""
    return any(machine.read(path).endswith("\x01") for path in machine.glob("/sys/firmware/efi/efivars/SecureBoot-*"))


def _holders(machine: Machine, gpus: list[PciGpu]) -> Findings:
    firmware = machine.glob("/lib/firmware/amdgpu/*") or machine.glob("/usr/lib/firmware/amdgpu/*")
    held = [gpu for gpu in gpus if gpu.driver == "amdgpu"]
    for gpu in gpus:
        if gpu.driver not in ("amdgpu", ""):
            tell = warning if held else broken
            mend = (
                f"sudo driverctl unset-override {gpu.address}   # and take it out of vfio-pci.ids= in /etc/default/grub"
            )
            yield tell("other-driver", f"{gpu.driver} holds {gpu}", mend)
        elif not gpu.driver and not machine.exists("/dev/kfd"):
            tell = warning if held else broken
            if firmware:
                yield tell(
                    "no-driver",
                    f"amdgpu did not take {gpu}",
                    "sudo dmesg | grep -i amdgpu | tail   # a newer kernel or linux-firmware",
                )
            else:
                yield tell("no-firmware", f"amdgpu did not take {gpu}, and /lib/firmware/amdgpu is empty", _FIRMWARE)


CHECK = Check(
    "amd-module",
    "amd",
    "the kernel module amdgpu, its version, and which driver holds each GPU",
    look,
    MODES,
    ("amd-device",),
)
