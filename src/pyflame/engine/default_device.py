"""Which device a program starts on: what PYFLAME_DEVICE says, else the first of CUDA, ROCm and the CPU that works.

It is chosen when a device is first needed, never at import. A GPU that is there and cannot be used is never passed over
silently: one warning says why.
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

from pyflame.core import knobs
from pyflame.core.device import CPU, NOT_SUPPORTED, DeviceId, meaning, parse_device
from pyflame.core.errors import PyFlameError
from pyflame.core.state import default_device
from pyflame.engine.devices import GPUS, get_device

ORDER = ("cuda", "rocm")  # before the CPU


class Finding(NamedTuple):
    """What became of a kind of GPU: its device, or why there is none; `alarming` if the machine seems to have one."""

    kind: str
    device: DeviceId | None = None
    why: str = ""
    alarming: bool = False


def look_for(kind: str) -> Finding:
    """The best device of a kind, opened, or why there is none. Raises nothing: a broken driver is a finding."""
    vendor = GPUS[kind]
    try:
        if vendor.count():
            device = DeviceId(kind, vendor.best())
            get_device(device)
            return Finding(kind, device)
        why, alarming = vendor.why_absent(), False
    except Exception as error:  # whatever bindings and drivers raise when they do not fit together
        why, alarming = str(error) or type(error).__name__, True
    sign = vendor.sign()
    return Finding(kind, None, f"{why} ({sign} exists)" if sign else why, alarming or bool(sign))


def choose() -> DeviceId:
    """The device to start on, opened."""
    named = knobs.DEVICE.text().strip()
    if named:
        return _named(named)
    passed_over: list[Finding] = []
    for kind in ORDER:
        found = look_for(kind)
        if found.device is not None:
            break
        passed_over.append(found)
    chosen = found.device or CPU
    problems = [f"{f.kind}: {f.why}" for f in passed_over if f.alarming]
    if problems:
        warnings.warn(
            f"PyFlame computes on {chosen} although this machine seems to have another GPU. {'. '.join(problems)}. "
            f"Set PYFLAME_DEVICE={chosen} if that is as you want it.",
            RuntimeWarning,
            stacklevel=2,
        )
    return chosen


def _named(name: str) -> DeviceId:
    """The device of PYFLAME_DEVICE; what is wrong with it is said in that name."""
    try:
        device = parse_device(name)
        get_device(device)
    except PyFlameError as error:
        raise type(error)(
            f"[PYFLAME_DEVICE] expected a device of this machine but got {name!r}: {error}. Unset it to have one chosen"
        ) from error
    return device


def describe() -> str:
    """Every kind of device in a line: what is there, or why it is not."""
    lines = []
    for kind in ORDER:
        found = look_for(kind)
        if found.device is not None:
            vendor = GPUS[kind]
            names = [vendor.driver.properties(i) for i in range(vendor.count())]
            lines += [f"{DeviceId(kind, i)!s:<9} {p.name}, {p.arch_full}" for i, p in enumerate(names)]
        else:
            lines.append(f"{kind:<9} not available: {found.why}")
    lines.append(f"{'cpu':<9} {get_device(CPU).info()['name']}")
    lines += [f"{kind:<9} not supported: {NOT_SUPPORTED[kind]}" for kind in ("metal", "opencl")]
    try:
        current = default_device.get()
    except PyFlameError as error:
        lines.append(f"default   none: {error}")
    else:
        lines.append(f"default   {current}{' (PYFLAME_DEVICE)' if knobs.DEVICE.text().strip() else ''}")
    return "\n".join(lines)


class CudaMeaning:
    """'rocm' where the machine has AMD GPUs and none of NVIDIA, else 'cuda'; remembered once a GPU was found."""

    def __init__(self) -> None:
        self._known: tuple[object, object, str] | None = None

    def __call__(self) -> str:
        cuda, rocm = GPUS["cuda"], GPUS["rocm"]
        if self._known is None or self._known[:2] != (cuda, rocm):
            found = next((kind for kind in ORDER if look_count(kind)), None)
            if found is None:
                return "cuda"
            self._known = (cuda, rocm, found)
        return self._known[2]


def look_count(kind: str) -> int:
    """How many devices of a kind there are; 0 also where its driver is broken."""
    try:
        return GPUS[kind].count()
    except Exception:  # whatever bindings and drivers raise; whoever uses the device is told
        return 0


default_device.choose = choose
meaning.cuda = CudaMeaning()
