"""HIP (ROCclr) and the HSA runtime below it."""

from __future__ import annotations

from pyflame.doctor.environment.variable import Rule, Variable, Verdict, equals

_CLR = "https://github.com/ROCm/clr/blob/develop/rocclr/utils/flags.hpp"
_ROCR = "https://github.com/ROCm/ROCR-Runtime/blob/master/runtime/hsa-runtime/core/util/flag.h"
_HIP = "https://rocm.docs.amd.com/projects/HIP/en/latest/reference/env_variables.html"
_NOBODY = "nothing"
_DEBUGGING = "for debugging"


def _dead(name: str, do: str, meaning: str = "found in scripts only") -> Variable:
    rule = Rule(Verdict.DEAD, "nothing reads it", do)
    return Variable(name, _NOBODY, meaning, rules=(rule,))


def _only(verdict: Verdict, why: str, do: str, *values: str) -> tuple[Rule, ...]:
    return (Rule(verdict, why, do, when=equals(*values)),)


VARIABLES = (
    Variable(
        "HSA_ENABLE_SDMA", "ROCr", "copies by the GPU's copy engines; 0: by kernels", "0 or 1", "1", "[01]",
        _only(
            Verdict.NEEDLESS,
            "copies then take compute units and run less beside kernels: a way around copies that hang (PCIe without "
            "atomics), not an optimisation",
            "leave it out unless copies hang",
            "0",
        ),
        _ROCR, early=True,
    ),
    Variable(
        "HSA_ENABLE_INTERRUPT", "ROCr", "wait for the GPU by interrupts; 0: a core polls", "0 or 1", "1", "[01]",
        _only(
            Verdict.NEEDLESS,
            "a CPU core polls all the time: a way around lost interrupts under some profilers, not an optimisation",
            "leave it out",
            "0",
        ),
        _ROCR, early=True,
    ),
    Variable(
        "HSA_NO_SCRATCH_RECLAIM", "ROCr", "1: scratch memory stays assigned: no stalls to get it back, less free",
        "0 or 1", "0", "[01]", source=_ROCR, early=True,
    ),
    Variable(
        "HSA_XNACK", "ROCr", "1: page faults of the GPU are retried, for unified memory on GPUs that have it", "0 or 1",
        "", "[01]", source=_ROCR, early=True,
    ),
    Variable(
        "HSA_FORCE_FINE_GRAIN_PCIE", "ROCr", "1: memory of other GPUs over PCIe is fine-grained", "0 or 1", "0", "[01]",
        source=_ROCR, early=True,
    ),
    Variable(
        "HIP_HIDDEN_FREE_MEM", "HIP", "MB by which hipMemGetInfo reports less free memory", "a number", "0", r"\d+",
        (
            Rule(
                Verdict.NEEDLESS,
                "it only lowers what is reported: nothing is kept free",
                "leave it out; limit the allocator instead",
                when=lambda value, _: value != "0",
            ),
        ),
        _CLR, early=True,
    ),
    Variable(
        "GPU_SINGLE_ALLOC_PERCENT", "HIP, OpenCL", "largest allocation as a share of memory, from OpenCL's days",
        "a percentage", "85", r"\d+",
        (Rule(Verdict.NEEDLESS, "no program of HIP is known to need it", "leave it out"),), _CLR, early=True,
    ),
    Variable(
        "GPU_MAX_HEAP_SIZE", "HIP, OpenCL", "share of memory to use, from OpenCL's days", "a percentage", "100",
        r"\d+", (Rule(Verdict.NEEDLESS, "no program of HIP is known to need it", "leave it out"),), _CLR, early=True,
    ),
    Variable(
        "GPU_MAX_HW_QUEUES", "HIP", "hardware queues of a process on a GPU; more streams share them", "a number", "4",
        r"\d+", source=_CLR, early=True,
    ),
    Variable(
        "HIP_SKIP_ABORT_ON_GPU_ERROR", "HIP", "1: a kernel that faults gives an error, from ROCm 7.0 on; 0: it aborts",
        "0 or 1", "1", "[01]", (
            Rule(
                Verdict.NEEDLESS,
                "a kernel that faults then ends the process, with no error that could be caught",
                "leave it out; for a core file of the fault set it in that run alone",
                equals("0"),
            ),
        ), "https://github.com/ROCm/rocm-systems/pull/5850", early=True,
    ),
    Variable(
        "HIP_FORCE_DEV_KERNARG", "HIP", "1: kernel arguments lie in the GPU's memory; said to help launches on MI300",
        "0 or 1", "0", "[01]", early=True,
    ),
    Variable(
        "HIP_LAUNCH_BLOCKING", "HIP", "1: each launch waits until the kernel has ended", "0 or 1", "0", "[01]",
        _only(Verdict.NEEDLESS, f"everything waits for everything: {_DEBUGGING} only", "leave it out", "1"),
        _HIP, early=True,
    ),
    Variable(
        "CUDA_LAUNCH_BLOCKING", "CUDA, PyTorch", "1: each launch waits until the kernel has ended", "0 or 1", "0",
        "[01]",
        _only(
            Verdict.NEEDLESS,
            f"everything waits for everything: {_DEBUGGING} only",
            "leave it out; on AMD debug with AMD_SERIALIZE_KERNEL=3",
            "1",
        ),
        _HIP, early=True,
    ),
    Variable(
        "AMD_SERIALIZE_KERNEL", "HIP", "wait before (1), after (2) or around (3) each kernel", "0 to 3", "0", "[0-3]",
        _only(Verdict.NEEDLESS, f"everything waits for everything: {_DEBUGGING} only", "leave it out", "1", "2", "3"),
        _CLR, early=True,
    ),
    Variable(
        "AMD_SERIALIZE_COPY", "HIP", "wait before (1), after (2) or around (3) each copy", "0 to 3", "0", "[0-3]",
        _only(Verdict.NEEDLESS, f"every copy waits: {_DEBUGGING} only", "leave it out", "1", "2", "3"),
        _CLR, early=True,
    ),
    Variable(
        "AMD_LOG_LEVEL", "HIP", "how much HIP writes to stderr", "0 to 5", "0", "[0-5]", source=_CLR, early=True,
    ),
    Variable(
        "AMD_LOG_MASK", "HIP", "which kinds of messages AMD_LOG_LEVEL shows", "a number", "0x7FFFFFFF",
        r"0[xX][0-9a-fA-F]+|\d+", source=_CLR, early=True,
    ),
    Variable("ROCM_PATH", "builds, PyFlame's bindings", "folder of ROCm", "a folder", "/opt/rocm"),
    _dead("GPU_MAX_ALLOC_PERCENT", "remove it", "of scripts for miners"),
    _dead("HSA_UNALIGNED_ACCESS_MODE", "remove it"),
    _dead("ROCM_LOG_LEVEL", "remove it; HIP logs by AMD_LOG_LEVEL=0 to 5"),
)  # fmt: skip
