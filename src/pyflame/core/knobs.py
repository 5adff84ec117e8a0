"""Every environment variable that PyFlame reads, typed, in one place. Values are read when first used."""

from __future__ import annotations

import os
from dataclasses import dataclass

from pyflame.core.errors import ArgumentError


@dataclass(frozen=True)
class Knob:
    """One environment variable: its name, kind, default and meaning."""

    name: str
    default: str
    doc: str

    def text(self) -> str:
        return os.environ.get(self.name, self.default)

    def integer(self) -> int:
        value = self.text()
        try:
            return int(value)
        except ValueError:
            raise ArgumentError(
                f"[{self.name}] expected a whole number but got {value!r}; unset it for {self.default}"
            ) from None

    def choice(self, *allowed: str) -> str:
        value = self.text()
        if value not in (self.default, *allowed):
            raise ArgumentError(
                f"[{self.name}] expected {' or '.join(allowed)} but got {value!r}; unset it for the default"
            )
        return value


DEVICE = Knob("PYFLAME_DEVICE", "", "device to start on, such as cpu or rocm:0; empty: the first of cuda, rocm, cpu")
DEBUG = Knob(
    "PYFLAME_DEBUG", "0", "1 prints each plan, 2 each launch with its time and GB/s, 4 also the generated source"
)
CACHE_DIR = Knob(
    "PYFLAME_CACHE_DIR",
    "",
    "folder of compiled kernels, which others must not be able to write to; empty: the user's cache folder",
)
CACHE_MB = Knob("PYFLAME_CACHE_MB", "1024", "size in MB above which the least recently used kernels are removed")
MODELS_DIR = Knob(
    "PYFLAME_MODELS_DIR",
    "",
    "folder of the default language model, fetched when first used; empty: the user's data folder",
)
CC = Knob("PYFLAME_CC", "", "C compiler for CPU kernels; empty: cc, gcc or clang, whichever is found first")
CPU_FLAGS = Knob("PYFLAME_CPU_FLAGS", "", "more flags for the C compiler, such as -fsanitize=address or -g")
HIP_CLANG = Knob("PYFLAME_HIP_CLANG", "", "clang with the AMDGPU target, for building without hiprtc; empty: search")
THREADS = Knob("PYFLAME_THREADS", "0", "worker threads of the CPU device; 0: one per core this process may use")
MAX_PENDING = Knob("PYFLAME_MAX_PENDING", "200000", "nodes a thread may build before the newest one is evaluated")
MAX_FUSED = Knob("PYFLAME_MAX_FUSED", "128", "ops in one generated kernel")
MAX_LOGITS = Knob(
    "PYFLAME_MAX_LOGITS",
    "536870912",
    "bytes of logits above which those that only a cross-entropy reads are computed in chunks of rows; 0: never",
)
CUT_GRAPHS = Knob(
    "PYFLAME_CUT_GRAPHS", "192", "nodes from which on a graph that repeats itself, as a loop's, is computed in portions"
)
PLAN_CACHE = Knob("PYFLAME_PLAN_CACHE", "1024", "plans kept in memory")
LIBRARIES = Knob(
    "PYFLAME_LIBRARIES", "all", "vendor libraries that may run parts of a plan: all, none, or names as cuBLASLt,cuDNN"
)
TUNE = Knob("PYFLAME_TUNE", "1", "1 measures the implementations of a product once per shape, 0 goes by expectations")
MATMUL_PRECISION = Knob(
    "PYFLAME_FLOAT32_MATMUL_PRECISION", "highest", "highest: float32 products are float32; high, medium: TF32 may do"
)
CONV_LAYOUT = Knob(
    "PYFLAME_CONV_LAYOUT",
    "",
    "memory order of convolution networks on GPUs: nhwc, nchw, or empty: nhwc where matrix cores may multiply",
)
GRAPH_BRANCHES = Knob(
    "PYFLAME_GRAPH_BRANCHES", "2", "2 lets a jitted function's launches run beside each other on a GPU, 1 does not"
)
GRAPH_OVERLAP = Knob(
    "PYFLAME_GRAPH_OVERLAP",
    "1",
    "1 lets captured launches begin while those before them end, where a GPU can (NVIDIA, sm_90 and newer); 0 does not",
)
GRAPHS = Knob(
    "PYFLAME_GRAPHS",
    "",
    "how jitted functions run on a GPU: checked compares the first replay of a function's first graph with its "
    "launches one by one, trusted does not, off launches one by one; empty: checked, and off where the driver is known "
    "to replay wrongly",
)
GRAPH_CHECKS = Knob(
    "PYFLAME_GRAPH_CHECKS", "0", "replays of a captured graph after which it is compared again; 0: at the first alone"
)
MEMORY_POOL = Knob(
    "PYFLAME_MEMORY_POOL",
    "",
    "cached, or exact: each tensor and each buffer of a plan is an allocation of its own with exact bounds, as address "
    "sanitizers and simulated GPUs check them; on the CPU new memory holds bytes of 0xFF, which are NaN or -1. Empty: "
    "exact on simulated GPUs, cached elsewhere",
)
SIM_DEVICES = Knob("PYFLAME_SIM_DEVICES", "1", "simulated GPUs of each target: 1 to 8")
SIM_MEMORY_MB = Knob(
    "PYFLAME_SIM_MEMORY_MB",
    "4096",
    "memory in MB of a simulated GPU; the host needs twice what is used, and four times what a launch writes",
)
SIM_SEED = Knob(
    "PYFLAME_SIM_SEED", "0", "seed of what a simulated GPU may choose: the order of work, new memory's content"
)
SIM_CHECKS = Knob(
    "PYFLAME_SIM_CHECKS", "all", "what a simulated GPU checks besides bounds: all, none, or some of uninitialised,races"
)
SIM_MODES = Knob(
    "PYFLAME_SIM_MODES",
    "",
    "what a simulated GPU does as hardware may: all, or some of interleave,stale,replay,handles,abort "
    "(docs/simulator.md)",
)
SIM_CODE_OBJECTS = Knob(
    "PYFLAME_SIM_CODE_OBJECTS", "5", "newest version of code objects that a simulated runtime loads; HIP 6.0 loads 5"
)
CHECK_COLLECTIVES = Knob(
    "PYFLAME_CHECK_COLLECTIVES", "1", "1 compares shapes and dtypes of all processes before each collective, 0 does not"
)

ALL = (
    DEVICE,
    DEBUG,
    CACHE_DIR,
    CACHE_MB,
    MODELS_DIR,
    CC,
    CPU_FLAGS,
    HIP_CLANG,
    THREADS,
    MAX_PENDING,
    MAX_FUSED,
    MAX_LOGITS,
    CUT_GRAPHS,
    PLAN_CACHE,
    LIBRARIES,
    TUNE,
    MATMUL_PRECISION,
    CONV_LAYOUT,
    GRAPH_BRANCHES,
    GRAPH_OVERLAP,
    GRAPHS,
    GRAPH_CHECKS,
    MEMORY_POOL,
    SIM_DEVICES,
    SIM_MEMORY_MB,
    SIM_SEED,
    SIM_CHECKS,
    SIM_MODES,
    SIM_CODE_OBJECTS,
    CHECK_COLLECTIVES,
)
