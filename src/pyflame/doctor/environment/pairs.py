"""Variables that contradict each other, though each alone would be right."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from pyflame.doctor.environment.table.torch import allocator_options
from pyflame.doctor.environment.variable import Rule, Verdict

Values = Mapping[str, str]
_VISIBLE = "https://github.com/pytorch/pytorch/pull/142292"
_ALLOCATORS = ("PYTORCH_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
_TUNABLE = "PYTORCH_TUNABLEOP_"


@dataclass(frozen=True)
class Together:
    """A verdict on some of the variables that are set."""

    names: tuple[str, ...]
    rule: Rule


def _blocking(values: Values) -> Iterator[Together]:
    names = ("CUDA_LAUNCH_BLOCKING", "HIP_LAUNCH_BLOCKING")
    if all(n in values for n in names) and values[names[0]] != values[names[1]]:
        why = f"{names[0]}={values[names[0]]} and {names[1]}={values[names[1]]} ask for opposite things"
        do = "remove both; to debug on AMD set AMD_SERIALIZE_KERNEL=3"
        yield Together(names, Rule(Verdict.CONTRADICTORY, why, do))


def _two_names(values: Values) -> Iterator[Together]:
    hip, cuda = "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"
    if hip in values and cuda in values:
        if values[hip] == values[cuda]:
            why = "on AMD it is a second name of HIP_VISIBLE_DEVICES, which is set too"
            yield Together((cuda,), Rule(Verdict.NEEDLESS, why, "keep HIP_VISIBLE_DEVICES"))
        else:
            why = f"{hip}={values[hip]} and {cuda}={values[cuda]} name different GPUs"
            yield Together((hip, cuda), Rule(Verdict.CONTRADICTORY, why, f"keep {hip}"))


def _counted_anew(values: Values) -> Iterator[Together]:
    """HIP counts what ROCr leaves: GPU 2 of a machine is 0 where ROCR_VISIBLE_DEVICES=2."""
    names = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
    if all(n in values for n in names):
        left = len(values[names[0]].split(","))
        beyond = [n for n in values[names[1]].split(",") if n.strip().isdigit() and int(n) >= left]
        if beyond:
            why = (
                f"{names[0]} leaves {left} GPU{'s' * (left > 1)}, which HIP counts from 0: "
                f"there is no {', '.join(n.strip() for n in beyond)}"
            )
            yield Together(names, Rule(Verdict.CONTRADICTORY, why, f"keep {names[0]} alone", source=_VISIBLE))


def _allocators(values: Values) -> Iterator[Together]:
    names = tuple(n for n in _ALLOCATORS if n in values)
    if len({tuple(sorted(allocator_options(values[n]).items())) for n in names}) > 1:
        why = f"{' and '.join(names)} are names of one setting and differ"
        yield Together(names, Rule(Verdict.CONTRADICTORY, why, f"keep {_ALLOCATORS[0]}"))


def _loopback(values: Values) -> Iterator[Together]:
    names = ("NCCL_SOCKET_IFNAME", "MASTER_ADDR")
    address = values.get(names[1], "localhost")
    if values.get(names[0], "") in ("lo", "=lo") and not (address == "localhost" or address.startswith("127.")):
        why = f"rank 0 is at {address}, which the interface lo does not reach"
        yield Together(names, Rule(Verdict.CONTRADICTORY, why, f"remove {names[0]}"))


def _without(values: Values) -> Iterator[Together]:
    """Settings of something that is off."""
    for name in values:
        if name.startswith(_TUNABLE) and name != _TUNABLE + "ENABLED" and values.get(_TUNABLE + "ENABLED") != "1":
            why = "it counts only with PYTORCH_TUNABLEOP_ENABLED=1"
            yield Together((name,), Rule(Verdict.NEEDLESS, why, "set PYTORCH_TUNABLEOP_ENABLED=1, or leave it out"))
    if "AMD_LOG_MASK" in values and values.get("AMD_LOG_LEVEL", "0") == "0":
        why = "it counts only with an AMD_LOG_LEVEL above 0"
        yield Together(("AMD_LOG_MASK",), Rule(Verdict.NEEDLESS, why, "set AMD_LOG_LEVEL, or leave it out"))


CHECKS: tuple[Callable[[Values], Iterator[Together]], ...] = (
    _blocking,
    _two_names,
    _counted_anew,
    _allocators,
    _loopback,
    _without,
)
