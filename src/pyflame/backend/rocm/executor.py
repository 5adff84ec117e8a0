"""`ROCmExecutor`: evaluation of a graph under the name that PyFlame's documents have always given it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from pyflame.core.device import DeviceId
from pyflame.core.errors import ArgumentError, ArgumentTypeError, DeviceError
from pyflame.core.state import mode
from pyflame.engine.devices import get_device
from pyflame.engine.evaluate import evaluate
from pyflame.ir import Node, copy_to, placed, signature
from pyflame.ir.node import Meta
from pyflame.ir.opdef import COPY, LEAF


@dataclass(frozen=True)
class DeviceInfo(Mapping[str, Any]):
    """What an AMD GPU says of itself: `info.name` or `info["name"]`."""

    device_id: int
    name: str
    architecture: str
    total_memory: int
    free_memory: int
    compute_units: int

    @staticmethod
    def of(info: Mapping[str, Any]) -> DeviceInfo:
        """From all that a GPU tells."""
        return DeviceInfo(**{f.name: info[f.name] for f in fields(DeviceInfo)})

    def __getitem__(self, name: str) -> Any:
        return vars(self)[name]

    def __iter__(self) -> Iterator[str]:
        return iter(vars(self))

    def __len__(self) -> int:
        return len(vars(self))


@dataclass(frozen=True)
class ExecutionResult:
    """The evaluated outputs and, with profiling, the seconds from the first launch to the last one's end."""

    outputs: list[Any]  # tensors for tensors, nodes for nodes
    seconds: float | None = None


class ROCmExecutor:
    """Runs graphs on one AMD GPU.

    >>> executor = ROCmExecutor(ROCmExecutor.Config(device_id=0))      # doctest: +SKIP
    >>> executor.execute([x, y, z], [2]).outputs                       # doctest: +SKIP
    """

    kind: ClassVar[str] = "rocm"

    @dataclass(frozen=True)
    class Config:
        """`workspace_size_mb` is taken for the sake of old programs: workspaces come from the pool as needed."""

        device_id: int = 0
        enable_profiling: bool = False
        sync_after_launch: bool = False
        workspace_size_mb: int = 256

    def __init__(self, config: Config | None = None) -> None:
        self.config = config or self.Config()
        self._device = get_device(DeviceId(self.kind, self.config.device_id))

    def execute(self, graph: Sequence[Any], output_ids: Sequence[int]) -> ExecutionResult:
        """Evaluate some of these tensors, or nodes, together; `output_ids` are positions among them.

        What is not committed to another device is computed, and then lies, on this one.
        """
        bad = [i for i in output_ids if not 0 <= i < len(graph)]
        if bad:
            raise ArgumentError(f"[execute] expected positions in a graph of {len(graph)} nodes but got {bad}")
        outputs = [graph[i] for i in output_ids]
        nodes = _placed([_node(value) for value in outputs], self._device.id)
        started = time.perf_counter()
        evaluate(nodes)
        if self.config.enable_profiling or self.config.sync_after_launch:
            self._device.synchronize()
        seconds = time.perf_counter() - started if self.config.enable_profiling else None
        for at, node in enumerate(nodes):
            if isinstance(outputs[at], Node):
                outputs[at] = node
            else:
                outputs[at]._node = node  # the tensor's value, here
        return ExecutionResult(outputs, seconds)

    def get_device_info(self) -> DeviceInfo:
        """What the GPU says of itself."""
        return DeviceInfo.of(self._device.info())

    def get_memory_stats(self) -> Any:
        """Counters of the GPU's memory pool."""
        pool = self._device.pool
        assert pool is not None, "a GPU has memory"
        return pool.stats


def _node(value: Any) -> Node:
    """The node of a tensor, or a node itself."""
    found = getattr(value, "_node", value)
    if not isinstance(found, Node):
        raise ArgumentTypeError(f"[execute] expected tensors or nodes but got {value!r}")
    return found


def _placed(nodes: Sequence[Node], here: DeviceId) -> list[Node]:
    """The same values computed on a device: nodes that were meant for another, if uncommitted, are built anew."""
    done: dict[Node, Node] = {}
    stack = list(nodes)
    while stack:
        node = stack[-1]
        meta = node.meta
        if node in done:
            stack.pop()
        elif meta.device in (here, None):
            done[node] = node
        elif meta.committed:
            raise DeviceError(f"[execute] expected nodes on {here} but got one on {meta.device}; move it there")
        elif node.op.kind == LEAF:
            done[node] = copy_to(node, here)
        elif missing := [s for s in node.srcs if s not in done]:
            stack += missing
        elif node.op.kind == COPY:
            done[node] = done[node.srcs[0]]
        else:
            there = Meta(meta.shape, meta.dtype, here)
            srcs = tuple(done[s] for s in node.srcs)
            done[node] = Node(node.op, srcs, node.attrs, there, signature(node.op.name, node.attrs, there))
            done[node].line = node.line
    with mode(device=here):  # what is made of numbers alone has no device yet
        return [placed(done[n]) for n in nodes]
