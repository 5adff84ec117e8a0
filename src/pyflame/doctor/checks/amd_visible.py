"""Which GPUs the environment lets a process see: ROCR_VISIBLE_DEVICES first, HIP's variables count what it leaves."""

from __future__ import annotations

from pyflame.doctor.check import Check, Findings, broken, fine, warning
from pyflame.doctor.gpus import Agent, agents
from pyflame.doctor.machine import Machine, as_number

_HIP = ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")  # the second is the first one's alias
_ALL = ("ROCR_VISIBLE_DEVICES", *_HIP, "GPU_DEVICE_ORDINAL")
MODES = {
    "hidden": "a variable hides every GPU",
    "outside": "a variable names a GPU that is not there, or that ROCR_VISIBLE_DEVICES took away before",
    "contradiction": "HIP_VISIBLE_DEVICES and its alias CUDA_VISIBLE_DEVICES differ",
}


def chosen(value: str, known: list[Agent]) -> list[Agent] | None:
    """The GPUs that a variable leaves, in its order; None if it names one that is not there.

    >>> chosen("-1", [])
    []
    """
    left: list[Agent] = []
    for name in value.split(","):
        name = name.strip()
        number = as_number(name)
        if name in ("", "-1"):
            break  # what follows is not read
        if name.upper().startswith("GPU-"):
            same = [a for a in known if a.unique_id and f"gpu-{a.unique_id:016x}" == name.lower()]
        else:
            same = known[number : number + 1] if number is not None and number >= 0 else []
        if not same:
            return None
        left += same
    return left


def visible(machine: Machine) -> list[tuple[int, Agent]]:
    """The GPUs that HIP counts, with its numbers for them; none where a variable names one that is not there."""
    left = agents(machine)
    for name in ("ROCR_VISIBLE_DEVICES", next((n for n in _HIP if n in machine.env), "")):
        if name in machine.env:
            left = chosen(machine.env[name], left) or []
    return list(enumerate(left))


def look(machine: Machine) -> Findings:
    given = {name: machine.env[name] for name in _ALL if name in machine.env}
    mend = f"unset {' '.join(given)}"
    hip = [given[name] for name in _HIP if name in given]
    if len(set(hip)) > 1:
        yield warning("contradiction", " and ".join(f"{n}={given[n]}" for n in _HIP), "unset CUDA_VISIBLE_DEVICES")
    left = agents(machine)
    for name, value in given.items():
        kept = chosen(value, left)
        if kept is None:
            yield broken("outside", f"{name}={value}, but there are {len(left)} GPUs to choose from", mend)
            return
        if not kept and left:
            yield broken("hidden", f"{name}={value!r} hides every GPU", mend)
            return
        if name != "CUDA_VISIBLE_DEVICES" or "HIP_VISIBLE_DEVICES" not in given:
            left = kept
    yield fine(f"{len(left)} seen" + (f" ({', '.join(f'{n}={v}' for n, v in given.items())})" if given else ""))


CHECK = Check(
    "amd-visible",
    "amd",
    "ROCR_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES, CUDA_VISIBLE_DEVICES, GPU_DEVICE_ORDINAL",
    look,
    MODES,
    ("amd-agents",),
)
