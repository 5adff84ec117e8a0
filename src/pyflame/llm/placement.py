"""Where the layers of a model lie: all on one device, in order over several, or each over several (parallel.py).

`device_map={"blk.0-11": "cuda:0", "blk.12-23": "cuda:1"}` names blocks, and `token_embd` and `output` where they are to
lie elsewhere than the first and the last block. "auto" fills GPUs in order, and the CPU last.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyflame.core.device import DeviceId, parse_device
from pyflame.core.errors import ArgumentError, OutOfMemoryError
from pyflame.llm.config import ModelConfig
from pyflame.tensor.devices import devices
from pyflame.tensor.memory import memory_info

DeviceMap = str | Mapping[str, object]
TensorParallel = int | Sequence[object]
_BLOCKS = re.compile(r"blk\.(\d+)(?:-(\d+))?")
_FREE = 0.9  # the share of a device's free memory that is planned with


@dataclass(frozen=True)
class Placement:
    """The device of each layer. `first` has the embeddings: tokens go in and logits come out there; `last` the head.
    `parallel`: devices that have a part of every layer each; then the others are the first of these."""

    first: Any
    layers: tuple[Any, ...]
    last: Any
    parallel: tuple[Any, ...] = ()

    @classmethod
    def whole(cls, device: object, config: ModelConfig) -> Placement:
        """All on one device."""
        return cls(device, (device,) * config.layers, device)

    @classmethod
    def divided(cls, devices: Sequence[object], config: ModelConfig) -> Placement:
        """Every layer over all of these devices."""
        return replace(cls.whole(devices[0], config), parallel=tuple(devices))

    @property
    def split(self) -> bool:
        return bool(self.parallel) or len({self.first, *self.layers, self.last}) > 1

    def of(self, name: str) -> object:
        """The device of a tensor, by GGUF's name."""
        if name.startswith("blk."):
            return self.layers[int(name.split(".")[1])]
        return self.last if name.startswith("output") else self.first

    def shares(self) -> Counter[object]:
        """How many layers each device has."""
        return Counter(self.layers)

    def __str__(self) -> str:
        if self.parallel:
            return f"{len(self.layers)} layers divided over {', '.join(map(str, self.parallel))}"
        return ", ".join(f"{count} layers on {device}" for device, count in self.shares().items())


def candidates() -> list[DeviceId]:
    """The devices that "auto" fills, in order: GPUs, then the CPU."""
    return sorted(map(parse_device, devices()), key=lambda device: device.kind == "cpu")


def parallel_devices(wanted: TensorParallel) -> list[DeviceId]:
    """The devices of tensor parallelism: those that are named, or so many GPUs of one vendor."""
    if isinstance(wanted, int):
        gpus = [device for device in candidates() if device.kind != "cpu"]
        found = [device for device in gpus if device.kind == gpus[0].kind][: max(wanted, 0)]
        if wanted < 1 or len(found) < wanted:
            raise ArgumentError(
                f"[load] expected tensor_parallel of 1 to the number of GPUs but got {wanted} and this machine has "
                f"{', '.join(map(str, gpus)) or 'none'}; name devices to take others: tensor_parallel=['cuda:0', 'cpu']"
            )
        return found
    found = [] if isinstance(wanted, str) else [parse_device(device) for device in wanted]
    if not found or len(set(found)) < len(found):
        raise ArgumentError(
            f"[load] expected tensor_parallel to be a number or a list of different devices but got {wanted!r}"
        )
    return found


def placed(device_map: DeviceMap, config: ModelConfig, sizes: Callable[[], Mapping[str, int]], cache: int) -> Placement:
    """What a device map says. `sizes`: the bytes of each tensor, `cache`: those of a layer's keys and values."""
    if isinstance(device_map, str):
        if device_map != "auto":
            raise ArgumentError(f"[load] expected device_map to be 'auto' or a dict but got {device_map!r}")
        return _automatic(config, sizes(), cache)
    found: dict[int, object] = {}
    ends: dict[str, object] = {}
    for key, device in device_map.items():
        match = _BLOCKS.fullmatch(key)
        if match is not None:
            numbers = range(int(match[1]), int(match[2] or match[1]) + 1)
            found |= dict.fromkeys(numbers, parse_device(device))
        elif key in ("token_embd", "output"):
            ends[key] = parse_device(device)
        else:
            raise ArgumentError(f"[load] expected blk.N, blk.N-M, token_embd or output in a device_map but got {key!r}")
    if sorted(found) != list(range(config.layers)):
        raise ArgumentError(f"[load] expected a device_map of all {config.layers} blocks but got {sorted(found)}")
    layers = tuple(found[n] for n in range(config.layers))
    first = ends.get("token_embd", layers[0])
    last = ends.get("output", first if config.tied else layers[-1])
    if config.tied and last != first:
        raise ArgumentError(f"[load] expected output beside token_embd on {first}, which it is, but got {last}")
    return Placement(first, layers, last)


def _automatic(config: ModelConfig, sizes: Mapping[str, int], cache: int) -> Placement:
    """Layers in order, each on the first device that has room left for it."""
    blocks, ends = [cache] * config.layers, 0
    for name, size in sizes.items():
        if name.startswith("blk."):
            blocks[int(name.split(".")[1])] += size
        else:
            ends += size
    room = {device: int(memory_info(device)[0] * _FREE) for device in candidates()}
    order = list(room)
    layers: list[DeviceId] = []
    needed, at = ends, 0
    for size in blocks:  # embeddings and head are the first device's, which has a layer too
        while at < len(order) and needed + size > room[order[at]]:
            at, needed = at + 1, 0 if layers else ends
        if at == len(order):
            raise OutOfMemoryError(
                f"[load] expected {sum(blocks) + ends:,} bytes of weights, keys and values to fit but "
                f"{', '.join(f'{device} has {free:,}' for device, free in room.items())}; take a shorter context, a "
                "narrower kv, or quantize"
            )
        needed += size
        layers.append(order[at])
    return Placement(layers[0], tuple(layers), layers[0])
