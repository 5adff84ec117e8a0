"""PyTorch on ROCm."""

from __future__ import annotations

from pyflame.doctor.environment.variable import Machine, Rule, Variable, Verdict, equals

_ALLOCATOR = "https://docs.pytorch.org/docs/stable/notes/cuda.html#memory-management"
_ZEROS = "https://github.com/ROCm/legacy-rocm-build/issues/6603"
_GROWTH = "https://github.com/pytorch/pytorch/issues/123548"
_TUNABLE = "https://docs.pytorch.org/docs/stable/cuda.tunable.html"
_NEW_NAME = "PYTORCH_ALLOC_CONF"


def allocator_options(value: str) -> dict[str, str]:
    """`a:1,b:2` as a dict.

    >>> allocator_options("expandable_segments:True,max_split_size_mb:128")["max_split_size_mb"]
    '128'
    """
    pairs = (part.partition(":") for part in value.split(","))
    return {name.strip(): text.strip() for name, _, text in pairs if name.strip()}


def _expandable(value: str, _: Machine) -> bool:
    return allocator_options(value).get("expandable_segments", "").lower() == "true"


def _pair(value: str, machine: Machine) -> bool:
    return _expandable(value, machine) and "max_split_size_mb" in allocator_options(value)


_ALONE = "keep one of the two: expandable_segments:True or max_split_size_mb"
_ALLOCATION = (
    Rule(
        Verdict.DANGEROUS,
        "expandable_segments:True and max_split_size_mb together are known to fail and to fill the memory",
        _ALONE, lambda value, machine: machine.cuda and _pair(value, machine), source=_GROWTH,
    ),
    Rule(Verdict.RIGHT, "on NVIDIA's GPUs it counts", "", lambda _, machine: machine.cuda),
    Rule(
        Verdict.NEEDLESS,
        "this torch ignores expandable_segments on ROCm. From torch 2.11 with ROCm 7.0 on it counts, and together with "
        "max_split_size_mb fills the memory; with ROCm 7.14 live tensors read as zeros",
        _ALONE, _pair, torch=(None, (2, 11)), known=True, source=_ZEROS,
    ),
    Rule(
        Verdict.NEEDLESS,
        "ROCm before 7.0 ignores expandable_segments. From torch 2.11 with ROCm 7.0 on it counts, and together with "
        "max_split_size_mb fills the memory; with ROCm 7.14 live tensors read as zeros",
        _ALONE, _pair, rocm=(None, (7, 0)), known=True, source=_ZEROS,
    ),
    Rule(
        Verdict.DANGEROUS,
        "with expandable_segments:True and max_split_size_mb together reserved memory grows until the GPU is full "
        "(torch 2.11 and newer); with ROCm 7.14 live tensors read as zeros",
        _ALONE, _pair, rocm=((7, 0), (7, 14)), known=True, source=_GROWTH,
    ),
    Rule(
        Verdict.DANGEROUS,
        "with expandable_segments:True and max_split_size_mb together a live tensor silently reads as zeros (ROCm "
        "7.14, torch 2.12, seen on gfx1100 and gfx1201), and reserved memory grows until the GPU is full",
        _ALONE, _pair, source=_ZEROS,
    ),
    Rule(
        Verdict.NEEDLESS, "on ROCm expandable_segments counts from torch 2.11 on", "leave it out", _expandable,
        torch=(None, (2, 11)), known=True,
    ),
    Rule(
        Verdict.NEEDLESS, "expandable_segments counts from ROCm 7.0 on", "leave it out", _expandable,
        rocm=(None, (7, 0)), known=True,
    ),
)  # fmt: skip
_TOO_NEW = Rule(
    Verdict.DEAD,
    "torch reads this name from 2.9 on",
    "write PYTORCH_HIP_ALLOC_CONF, on NVIDIA PYTORCH_CUDA_ALLOC_CONF",
    torch=(None, (2, 9)),
    known=True,
)
_OLD_NAME = Rule(
    Verdict.RIGHT, "an old name, for which torch warns from 2.9 on", f"write {_NEW_NAME}", torch=((2, 9), None)
)
_RDNA3 = ("gfx1100", "gfx1101", "gfx1102", "gfx1150", "gfx1151")
_PREFERRED = "this torch takes hipBLASLt on this GPU without it"
_HIPBLASLT = (
    Rule(
        Verdict.RIGHT, "with ROCm 6 hipBLASLt is slower than rocBLAS on this GPU", "", equals("0"), _RDNA3,
        rocm=(None, (7, 0)), known=True, source="https://github.com/ROCm/pytorch/pull/2167",
    ),
    Rule(
        Verdict.DANGEROUS,
        "rocBLAS fails on some float16 shapes of this GPU, and libraries beside torch rely on hipBLASLt; from torch "
        "2.10 on it is preferred here",
        "remove it", equals("0"), _RDNA3, rocm=((7, 0), None), known=True,
        source="https://github.com/ROCm/pytorch/pull/3207",
    ),
    Rule(
        Verdict.NEEDLESS, "it keeps products from the library that torch prefers where it is faster", "remove it",
        equals("0"),
    ),
    Rule(
        Verdict.NEEDLESS, _PREFERRED, "leave it out", equals("1"), _RDNA3, torch=((2, 10), None), known=True,
        source="https://github.com/ROCm/pytorch/pull/3207",
    ),
    Rule(Verdict.NEEDLESS, _PREFERRED, "leave it out", equals("1"), ("gfx90a", "gfx942"), known=True),
)  # fmt: skip


def _dead(name: str, do: str) -> Variable:
    return Variable(name, "nothing", "found in scripts only", rules=(Rule(Verdict.DEAD, "nothing reads it", do),))


def _tunable(name: str, meaning: str, values: str, default: str, pattern: str) -> Variable:
    return Variable(f"PYTORCH_TUNABLEOP_{name}", "PyTorch", meaning, values, default, pattern, source=_TUNABLE)


VARIABLES = (
    Variable(
        _NEW_NAME, "PyTorch", "options of the caching allocator", "name:value pairs with commas",
        pattern=r"\w+:.+", rules=(_TOO_NEW, *_ALLOCATION), source=_ALLOCATOR, early=True,
    ),
    Variable(
        "PYTORCH_HIP_ALLOC_CONF", "PyTorch", f"an old name of {_NEW_NAME}", "name:value pairs with commas",
        rules=(*_ALLOCATION, _OLD_NAME), source=_ALLOCATOR, early=True,
    ),
    Variable(
        "PYTORCH_CUDA_ALLOC_CONF", "PyTorch", f"an old name of {_NEW_NAME}", "name:value pairs with commas",
        rules=(*_ALLOCATION, _OLD_NAME), source=_ALLOCATOR, early=True,
    ),
    Variable(
        "PYTORCH_ROCM_ARCH", "builds of PyTorch and of extensions", "GPUs to compile for", "gfx names with semicolons",
        rules=(
            Rule(Verdict.BUILD, "an installed torch does not read it", "set it where torch or an extension is built"),
        ),
    ),
    Variable(
        "TORCH_BLAS_PREFER_HIPBLASLT", "PyTorch", "1: products by hipBLASLt, 0: by rocBLAS; unset: by GPU", "0 or 1",
        pattern="[01]",
        rules=_HIPBLASLT,
        source="https://github.com/pytorch/pytorch/issues/138067",
    ),
    Variable(
        "TORCH_ROCM_AOTRITON_ENABLE_EXPERIMENTAL", "PyTorch",
        "1: fused attention also on GPUs for which it is still called experimental", "0 or 1", "0", "[01]",
        source="https://github.com/ROCm/aotriton/issues/16",
    ),
    Variable(
        "FLASH_ATTENTION_TRITON_AMD_ENABLE", "the package flash-attn", "TRUE: its Triton kernels, which run on RDNA",
        "TRUE or FALSE", "FALSE", "(?i)true|false", source="https://github.com/ROCm/flash-attention",
    ),
    _tunable("ENABLED", "1: products use tuned results", "0 or 1", "0", "[01]"),
    _tunable("TUNING", "1: what has no result is tuned when it is first met", "0 or 1", "1", "[01]"),
    _tunable("FILENAME", "file of results; the GPU's number is put into its name", "a path", "", ""),
    _tunable("MAX_TUNING_DURATION_MS", "limit of one tuning, not kept for large products", "a number", "30", r"\d+"),
    _tunable("MAX_TUNING_ITERATIONS", "limit of one tuning, not kept for large products", "a number", "100", r"\d+"),
    _tunable("ROTATING_BUFFER_SIZE", "MB that are cycled through; 0 avoids a fault", "a number", "", r"-?\d+"),
    _tunable("HIPBLASLT_ENABLED", "0: hipBLASLt is not tried", "0 or 1", "1", "[01]"),
    _tunable("VERBOSE", "how much is told", "0 to 3", "0", "[0-3]"),
    _dead("PYTORCH_ROCM_WAVE32_MODE", "remove it; the compiler chooses the wave size by GPU"),
    _dead("PYTORCH_ROCM_FUSION", "remove it; torch.compile fuses"),
    _dead("TORCH_COMPILE_BACKEND", "remove it; torch.compile(model, backend=...) chooses"),
)  # fmt: skip
