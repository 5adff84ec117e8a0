"""What is known to go wrong with which HIP and which GPU, where it was reported, and what PyFlame does about it.

One table, read by the driver (captured graphs), by `pyflame doctor` and by the documentation. None of it was seen by
us: each row is what the thread behind it tells.
"""

from __future__ import annotations

from dataclasses import dataclass

Version = tuple[int, int]  # of HIP: what follows counts builds


@dataclass(frozen=True)
class Trouble:
    """A fault of a vendor's software. `targets` empty: all; `since` and `before` bound HIP's versions."""

    symptom: str
    source: str
    answer: str  # what PyFlame does
    targets: tuple[str, ...] = ()
    since: Version | None = None
    before: Version | None = None
    launches: int = 0  # of a graph: from so many on
    off: bool = False  # whether graphs are not used; else they are compared more often
    part: str = "graphs"  # what it is in: graphs, libraries, faults, memory, start, devices, torch
    mend: str = ""  # what a user can do

    def concerns(self, version: Version, target: str) -> bool:
        """Whether this HIP on this GPU has it.

        >>> [t.source for t in GRAPHS if t.concerns((7, 2), "gfx942")]
        ['https://github.com/ROCm/clr/issues/279']
        """
        if (self.since is not None and version < self.since) or (self.before is not None and version >= self.before):
            return False
        return not self.targets or target in self.targets


_ONE_BY_ONE = "jitted functions are launched kernel by kernel; PYFLAME_GRAPHS=checked replays them all the same"
_TRIALS = (
    "a library's first use of a shape is compared with our own kernel; a wrong one is not used, and a warning says so"
)
_OURS = "PyFlame has a pool of its own; `pyflame doctor` warns of the variable"
GRAPHS = (
    Trouble(
        "replays of captured graphs give wrong results in about one process of five",
        "https://github.com/ROCm/clr/issues/279",
        _ONE_BY_ONE, ("gfx942",), (7, 2), (7, 3), off=True,
    ),
    Trouble(
        "graphs of some 200 kernels and more read stale pointers",
        "https://github.com/ROCm/hip/issues/3887",
        _ONE_BY_ONE, ("gfx1200", "gfx1201"), launches=190, off=True,
    ),
    Trouble(
        "a graph reads stale values from memory that was written just before its replay",
        "https://github.com/ROCm/hip/issues/3902",
        _ONE_BY_ONE, ("gfx950",), (7, 2), (7, 3), off=True,
    ),
    Trouble(
        "work that is captured from several streams is not always ordered",
        "https://github.com/kokkos/kokkos/issues/8359",
        "graphs are compared with single launches every 256 replays", since=(6, 4), before=(7, 2),
    ),
)  # fmt: skip
_OTHERS = (
    Trouble(
        "hipBLASLt gives wrong products",
        "https://github.com/ROCm/rocm-libraries/issues/5706",
        _TRIALS, ("gfx1201",), part="libraries", mend="export PYFLAME_LIBRARIES=none   # uses none at all",
    ),
    Trouble(
        "float64 products by the libraries are wrong",
        "https://github.com/ROCm/rocm-libraries/issues/8645",
        _TRIALS, ("gfx1201",), part="libraries", mend="export PYFLAME_LIBRARIES=none   # uses none at all",
    ),
    Trouble(
        "rocBLAS gives float32 products that are wrong by a factor of 10,000",
        "https://github.com/ROCm/rocBLAS/issues/1680",
        _TRIALS, ("gfx1151",), part="libraries", mend="export PYFLAME_LIBRARIES=none   # uses none at all",
    ),
    Trouble(
        "convolutions by MIOpen are wrong in PyTorch",
        "https://github.com/pytorch/pytorch/issues/102968",
        _TRIALS, ("gfx90a",), part="libraries",
    ),
    Trouble(
        "two streams that share one hipBLASLt handle wait for each other for ever",
        "https://github.com/ROCm/rocm-libraries/pull/10951",
        "each stream and branch of a graph has a handle of its own", ("gfx942", "gfx950"), part="libraries",
    ),
    Trouble(
        "float16 products take subnormals for zero: gradients vanish in training",
        "https://github.com/pytorch/pytorch/issues/182952",
        "gradients in float16 go to rocBLAS with its alternative implementation, to MIOpen's, or to our own kernels, "
        "which count subnormals; other float16 products by libraries take them for zero", ("gfx90a",),
        part="libraries", mend="export PYFLAME_LIBRARIES=none   # our own kernels count them in every product",
    ),
    Trouble(
        "a kernel that faults aborts the process, and no error can be caught",
        "https://github.com/ROCm/rocm-systems/blob/develop/projects/clr/CHANGELOG.md",
        "`pyflame doctor` says so, and tries kernels in a process of its own", before=(7, 0), part="faults",
        mend="# install ROCm 7.0 or newer, where it is an error that can be caught",
    ),
    Trouble(
        "a kernel that faults aborts the process where core dumps are on, or HIP_SKIP_ABORT_ON_GPU_ERROR=0",
        "https://github.com/ROCm/rocm-systems/pull/5850",
        "`pyflame doctor` says so, and tries kernels in a process of its own", since=(7, 0), part="faults",
        mend="ulimit -c 0",
    ),
    Trouble(
        "MIOpen searches for minutes at a convolution's first use",
        "https://github.com/ROCm/TheRock/issues/2591",
        "PyFlame's own convolutions compete, and results are kept", part="start",
        mend="export MIOPEN_FIND_MODE=FAST   # for other programs",
    ),
    Trouble(
        "MIOpen's cache of compiled kernels is not found again: every run takes minutes to start",
        "https://github.com/ROCm/legacy-rocm-build/issues/6369",
        "`pyflame doctor` looks where the folders lie", part="start",
        mend="export MIOPEN_USER_DB_PATH=/a/local/disk",
    ),
    Trouble(
        "loading RCCL after HIP was initialised takes 3 s",
        "https://github.com/ROCm/rocm-systems/issues/5767",
        "RCCL is not loaded", part="start",
    ),
    Trouble(
        "`expandable_segments:True` with `max_split_size_mb`: a live tensor of PyTorch reads zeros",
        "https://github.com/ROCm/legacy-rocm-build/issues/6603",
        _OURS, ("gfx1100", "gfx1201"), (7, 14), part="torch", mend="unset PYTORCH_ALLOC_CONF",
    ),
    Trouble(
        "PyTorch's expandable segments hang in hsaKmtMemoryVaMap",
        "https://github.com/pytorch/pytorch/issues/192259",
        _OURS, part="torch", mend="unset PYTORCH_ALLOC_CONF",
    ),
    Trouble(
        "updating a captured graph's arguments while the GPU's memory is full ends the process",
        "https://github.com/ROCm/rocm-systems/issues/10021",
        "graphs are never updated: what changes lies in memory, or a new graph is captured", ("gfx1100", "gfx1201"),
        (7, 2), part="memory",
    ),
    Trouble(
        "PyTorch on an integrated GPU sees the small memory that the BIOS set aside, not the host's (GTT)",
        "https://github.com/ROCm/TheRock/issues/1054",
        "`pyflame doctor` shows both", part="memory",
    ),
    Trouble(
        "HSA_OVERRIDE_GFX_VERSION of another generation faults; set to nothing it made the GPU gfx000",
        "https://github.com/ROCm/rocm-systems/pull/5686",
        "`pyflame doctor` calls it broken", part="devices", mend="unset HSA_OVERRIDE_GFX_VERSION",
    ),
    Trouble(
        "an integrated GPU among those of a collective hangs RCCL",
        "https://github.com/ROCm/rccl/issues/876",
        "integrated GPUs are passed over by default", part="devices",
        mend="export ROCR_VISIBLE_DEVICES=0   # without its number",
    ),
    Trouble(
        "RCCL faults on two RX 7900 XTX",
        "https://github.com/ROCm/legacy-rocm-build/issues/6074",
        "RCCL is not loaded", ("gfx1100",), part="devices", mend="export NCCL_P2P_DISABLE=1   # for other programs",
    ),
    Trouble(
        "several GPUs hang or fault behind an IOMMU without iommu=pt",
        "https://github.com/ROCm/vllm/issues/390",
        "`pyflame doctor` looks at the kernel's command line", part="devices", mend="# start the kernel with iommu=pt",
    ),
    Trouble(
        "WSL2: HIP finds no GPU unless HSA_ENABLE_DXG_DETECTION=1",
        "https://github.com/unslothai/unsloth/issues/9729",
        "`pyflame doctor` says so in WSL2", before=(7, 13), part="devices", mend="export HSA_ENABLE_DXG_DETECTION=1",
    ),
)  # fmt: skip
TROUBLES = (*GRAPHS, *_OTHERS)
