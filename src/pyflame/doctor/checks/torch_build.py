"""PyTorch where it is installed: whether its build is for these GPUs. Its files are read, it is not imported."""

from __future__ import annotations

from pyflame.doctor.check import Check, Findings, fine, nothing, warning
from pyflame.doctor.checks.amd_library_kernels import targets_in
from pyflame.doctor.gpus import AMD, NVIDIA, agents, pci_gpus
from pyflame.doctor.machine import Machine
from pyflame.doctor.rocm_files import rocm_version, torch_install, torch_versions

MODES = {
    "cuda-build": "PyTorch is built for CUDA, and the GPU is AMD's",
    "hip-build": "PyTorch is built for ROCm, and the GPU is NVIDIA's",
    "cpu-build": "PyTorch is built for the CPU alone",
    "torch-lacks-gfx": "PyTorch's own libraries have no kernels for this gfx",
    "allocator-zeros": "expandable_segments together with max_split_size_mb: live tensors read zeros on ROCm",
    "allocator-no-op": "expandable_segments does nothing before torch 2.11 with ROCm 7.0",
}
_TROUBLE = "https://github.com/ROCm/legacy-rocm-build/issues/6603"
_ALLOCATOR = ("PYTORCH_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")


def look(machine: Machine) -> Findings:
    folder = next((f"{p}/torch" for p in machine.packages if machine.exists(f"{p}/torch/version.py")), "")
    if not folder:
        yield nothing("PyTorch is not installed; PyFlame does not need it")
        return
    told = torch_versions(machine, folder)
    hip, cuda, version = told.get("hip", ""), told.get("cuda", ""), told.get("__version__", "of unknown version")
    amd, nvidia = pci_gpus(machine, AMD), pci_gpus(machine, NVIDIA)
    for_rocm, for_cuda = torch_install(rocm_version(machine)), torch_install()
    if amd and not nvidia and cuda:
        yield warning("cuda-build", f"torch {version} is built for CUDA {cuda}; the GPU is AMD's", for_rocm)
    elif nvidia and not amd and hip:
        yield warning("hip-build", f"torch {version} is built for ROCm {hip}; the GPU is NVIDIA's", for_cuda)
    elif (amd or nvidia) and not hip and not cuda:
        yield warning("cpu-build", f"torch {version} is built for the CPU alone", for_rocm if amd else for_cuda)
    if hip:
        yield from _kernels(machine, folder)
        yield from _allocator(machine, version)
    kind = f"ROCm {hip}" if hip else f"CUDA {cuda}" if cuda else "the CPU"
    yield fine(f"torch {version} for {kind}")


def _kernels(machine: Machine, folder: str) -> Findings:
    have = targets_in(machine, f"{folder}/lib/rocblas/library")
    missing = sorted({agent.gfx for agent in agents(machine)} - have)
    if have and missing:
        yield warning(
            "torch-lacks-gfx",
            f"torch's rocBLAS has no kernels for {', '.join(missing)}",
            torch_install((10, 0)),
        )


def _allocator(machine: Machine, version: str) -> Findings:
    for name in _ALLOCATOR:
        value = machine.env.get(name, "")
        if "expandable_segments:True" not in value:
            continue
        if "max_split_size_mb" in value:
            yield warning(
                "allocator-zeros", f"{name}={value}: live tensors were seen to read zeros ({_TROUBLE})", f"unset {name}"
            )
        numbers = [int(p) for p in version.split("+")[0].split(".")[:2] if p.isdecimal()]
        if len(numbers) == 2 and (numbers < [2, 11] or rocm_version(machine)[:1] < (7,)):
            yield warning("allocator-no-op", f"{name}={value} does nothing in torch {version} on ROCm", f"unset {name}")


CHECK = Check(
    "torch",
    "python",
    "PyTorch's version.py, its libraries' kernel files and its allocator's variables",
    look,
    MODES,
    ("platform",),
)
