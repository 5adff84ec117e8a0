"""Device names and Targets: what the compute side may know of a machine, as plain values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from pyflame.core.errors import DeviceError, DeviceNameError, suggest

KINDS = ("cpu", "rocm", "cuda", "sim", "null", "meta")
NOT_SUPPORTED = {
    "cerebras": "its SDK is proprietary and PyFlame does not support it; use 'cpu', 'rocm' or 'cuda'",
    "metal": "PyFlame does not support Metal; use 'cpu'",
    "mps": "PyFlame does not support Metal; use 'cpu'",
    "opencl": "PyFlame does not support OpenCL; use 'rocm', 'cuda' or 'cpu'",
}


@dataclass(frozen=True, eq=False)
class DeviceId:
    """Names a device without opening it: a kind and an index and, for `null` and `sim`, its target. One object each."""

    kind: str
    index: int = 0
    target: str = ""

    _all: ClassVar[dict[tuple[str, int, str], DeviceId]] = {}

    def __new__(cls, kind: str, index: int = 0, target: str = "") -> DeviceId:
        return cls._all.setdefault((kind, index, target), super().__new__(cls))

    @property
    def computes(self) -> bool:
        """Whether its tensors have values: `null` plans only, and `meta` knows shapes and dtypes alone."""
        return self.kind not in ("null", "meta")

    @property
    def numbered(self) -> bool:
        """Whether there may be several of its kind."""
        return self.computes and self.kind != "cpu"

    def __reduce__(self) -> tuple[type[DeviceId], tuple[str, int, str]]:
        return DeviceId, (self.kind, self.index, self.target)

    @staticmethod
    def of(kind: str, index: int) -> DeviceId:
        """A device by its driver's kind ("rocm", "sim:gfx942") and its number there."""
        first, _, target = kind.partition(":")
        return DeviceId(first, index, target)

    def __str__(self) -> str:
        if not self.numbered and not self.target:
            return self.kind
        if not self.target:
            return f"{self.kind}:{self.index}"
        return f"{self.kind}:{self.target}:{self.index}" if self.index else f"{self.kind}:{self.target}"


CPU = DeviceId("cpu")


class _Meaning:
    """What 'cuda' stands for: programs written for PyTorch say it for AMD GPUs too.

    `cuda` gives "rocm" on a machine with AMD GPUs and without NVIDIA's. The engine, which knows the machine, puts it
    here; it is asked only where a program says 'cuda'.
    """

    def __init__(self) -> None:
        self.cuda: Callable[[], str] = lambda: "cuda"


meaning = _Meaning()


def parse_device(name: object) -> DeviceId:
    """Read 'cpu', 'rocm', 'rocm:1', 'cuda:0', 'sim:gfx942', 'sim:gfx942:1', 'null', 'null:gfx942' or 'meta'.

    'cuda' is an AMD GPU on a machine that has no other, as in PyTorch.

    >>> parse_device("rocm:1")
    DeviceId(kind='rocm', index=1, target='')
    """
    name = getattr(name, "id", name)  # an opened device, or a pf.device
    if isinstance(name, DeviceId):
        return name
    if not isinstance(name, str):
        raise DeviceNameError(f"[device] expected a string such as 'cpu' or 'rocm:0' but got {name!r}")
    kind, _, rest = name.strip().lower().partition(":")
    if kind in NOT_SUPPORTED:
        raise DeviceError(f"[device] {name!r} is not available: {NOT_SUPPORTED[kind]}")
    if kind not in KINDS:
        raise DeviceNameError(
            f"[device] expected one of cpu, rocm[:N], cuda[:N], sim:target[:N], null[:target], meta but got {name!r}"
            f"{suggest(kind, KINDS)}"
        )
    if kind == "cuda":
        kind = meaning.cuda()
    if kind == "null":
        return DeviceId("null", 0, rest)
    if kind == "meta":
        return DeviceId("meta")
    if kind == "sim":
        target, _, number = rest.partition(":")
        if not target or (number and not number.isdecimal()):
            raise DeviceNameError(f"[device] expected a target after 'sim:', such as 'sim:gfx942', but got {name!r}")
        return DeviceId("sim", int(number or 0), target)
    if kind == "cpu" and rest.isdecimal() and int(rest):
        raise DeviceNameError(f"[device] expected 'cpu' but got {name!r}; the CPU is one device, with all of its cores")
    if rest and not rest.isdecimal():
        raise DeviceNameError(f"[device] expected a device number after '{kind}:' but got {name!r}")
    return DeviceId(kind, int(rest or 0))


@dataclass(frozen=True)
class Target:
    """What kernels are built for. Passes branch on these capabilities, never on a vendor's name."""

    name: str  # "cpu", "gfx942", "sm_90"
    language: str  # "c", "hip" or "cuda": picks the codegen dialect
    isa: tuple[str, ...] = ()  # CPU: resolved instruction sets, e.g. ("avx512f", "amx-bf16")
    workers: int = 1  # CPU threads, or compute units
    wave_size: int = 1
    lds_bytes: int = 0
    matrix_core: str = ""  # "", "mfma", "wmma", "mma", "wgmma" (with mma, and clusters of blocks), "amx"
    fp8: str = ""  # "", "fnuz" or "ocp"

    @property
    def is_gpu(self) -> bool:
        return self.language != "c"
