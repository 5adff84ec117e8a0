"""Which GPUs a program sees, and as what."""

from __future__ import annotations

import re

from pyflame.doctor.environment.variable import Machine, Rule, Variable, Verdict

_LIST = r"(GPU-[0-9a-fA-F]+|\d+)(,\s*(GPU-[0-9a-fA-F]+|\d+))*"
_VISIBLE = "numbers or `GPU-<uuid>` with commas"
# GPUs whose instructions are those of gfx1030, for which libraries have kernels.
LIKE_GFX1030 = ("gfx1031", "gfx1032", "gfx1033", "gfx1034", "gfx1035", "gfx1036")


def override_target(value: str) -> str:
    """The GPU that HSA_OVERRIDE_GFX_VERSION pretends.

    >>> override_target("10.3.0"), override_target("9.0.10")
    ('gfx1030', 'gfx90a')
    """
    found = re.fullmatch(r"(\d+)\.(\d+)\.(\d+)", value.strip())
    return f"gfx{int(found[1])}{int(found[2]):x}{int(found[3]):x}" if found else ""


def _major(gfx: str) -> str:
    return gfx.removeprefix("gfx")[:-2]


def _crosses(value: str, machine: Machine) -> bool:
    target = override_target(value)
    return bool(target) and any(_major(gpu) != _major(target) for gpu in machine.gpus)


def _same(value: str, machine: Machine) -> bool:
    return bool(machine.gpus) and all(gpu == override_target(value) for gpu in machine.gpus)


def _compatible(value: str, machine: Machine) -> bool:
    return (
        override_target(value) == "gfx1030"
        and bool(machine.gpus)
        and all(gpu in (*LIKE_GFX1030, "gfx1030") for gpu in machine.gpus)
    )


_OVERRIDE = (
    Rule(
        Verdict.DANGEROUS,
        "an empty value has been read as gfx000, which no code is for",
        "unset HSA_OVERRIDE_GFX_VERSION",
        when=lambda value, _: not value.strip(),
        source="https://github.com/ROCm/rocm-systems/pull/5686",
    ),
    Rule(
        Verdict.DANGEROUS,
        "it claims another generation than this GPU's: such code faults, and new runtimes refuse it",
        "remove it",
        when=_crosses,
        source="https://github.com/ROCm/rocm-systems/pull/5686",
    ),
    Rule(Verdict.NEEDLESS, "this is what the GPU is", "leave it out", when=_same),
    Rule(Verdict.RIGHT, "the instructions are those of gfx1030, for which libraries have kernels", when=_compatible),
    Rule(
        Verdict.DANGEROUS,
        "the GPU runs code for another one: page faults and wrong results were reported",
        "install a build for the GPU itself, and remove it",
        when=lambda value, machine: bool(machine.gpus and override_target(value)),
        source="https://github.com/ROCm/MIOpen/issues/3540",
    ),
    Rule(
        Verdict.DANGEROUS,
        "the GPU runs code for another one; that is known to be right only for gfx1031 to gfx1036 with 10.3.0",
        "name the GPU with --gpu to have it judged",
        when=lambda value, _: bool(override_target(value)),
        source="https://github.com/ROCm/MIOpen/issues/3540",
    ),
)

VARIABLES = (
    Variable(
        "ROCR_VISIBLE_DEVICES",
        "ROCr",
        "which GPUs there are, for everything above; AMD's choice on Linux. Where ranks have different ones, RCCL "
        "cannot share memory between them",
        _VISIBLE,
        pattern=_LIST,
        source="https://github.com/ROCm/rocm-systems/issues/5756",
        early=True,
    ),
    Variable(
        "HIP_VISIBLE_DEVICES",
        "HIP",
        "which GPUs HIP shows, counted among those that ROCR_VISIBLE_DEVICES leaves",
        _VISIBLE,
        pattern=_LIST + "|-1",
        source="https://rocm.docs.amd.com/projects/HIP/en/latest/reference/env_variables.html",
        early=True,
    ),
    Variable(
        "CUDA_VISIBLE_DEVICES",
        "HIP, CUDA",
        "on AMD a second name of HIP_VISIBLE_DEVICES, which AMD's documentation no longer lists",
        _VISIBLE,
        pattern=_LIST + "|-1|(MIG-|GPU-)[-0-9a-fA-F,]+|",
        rules=(
            Rule(
                Verdict.RIGHT,
                "on AMD a second name, which AMD's documentation no longer lists",
                "write HIP_VISIBLE_DEVICES",
                when=lambda _, machine: bool(machine.gpus),
            ),
        ),
        source="https://github.com/vllm-project/vllm/pull/46636",
        early=True,
    ),
    Variable(
        "GPU_DEVICE_ORDINAL",
        "HIP, OpenCL",
        "which GPUs HIP and OpenCL show",
        "numbers with commas",
        pattern=r"\d+(,\s*\d+)*",
        source="https://github.com/ROCm/clr/blob/develop/rocclr/utils/flags.hpp",
        early=True,
    ),
    Variable(
        "HSA_OVERRIDE_GFX_VERSION",
        "ROCr",
        "what GPU to pretend, so that kernels for it are loaded; within one generation only, and not supported by AMD",
        "three numbers such as 10.3.0",
        pattern=r"\d+\.\d+\.\d+",
        rules=_OVERRIDE,
        early=True,
    ),
    Variable(
        "HSA_ENABLE_DXG_DETECTION",
        "ROCr",
        "look for GPUs behind /dev/dxg, as in WSL2",
        "0 or 1",
        pattern="[01]",
        rules=(
            Rule(
                Verdict.NEEDLESS,
                "from ROCm 7.13 on GPUs of WSL2 are found without it",
                "leave it out",
                rocm=((7, 13), None),
                known=True,
            ),
            Rule(
                Verdict.NEEDLESS,
                "this is not WSL2",
                "leave it out",
                when=lambda _, machine: machine.wsl is False,
            ),
        ),
        source="https://github.com/ROCm/librocdxg/issues/34",
        early=True,
    ),
)  # fmt: skip
