"""`ROCmExecutor`: evaluation of a graph under the name that PyFlame's documents have always given it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pyflame.core.device import DeviceId
from pyflame.core.errors import ArgumentError, DeviceError
from pyflame.engine.devices import get_device
from pyflame.engine.evaluate import evaluate
from pyflame.ir import Node


@dataclass(frozen=True)
class ExecutionResult:
    """The evaluated outputs and, with profiling, the seconds from the first launch to the last one's end."""

    outputs: list[Node]
    seconds: float | None = None


class ROCmExecutor:
    """Runs graphs on one AMD GPU.

    >>> executor = ROCmExecutor(ROCmExecutor.Config(device_id=0))      # doctest: +SKIP
    >>> executor.execute(nodes, [len(nodes) - 1]).outputs              # doctest: +SKIP
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

    def execute(self, graph: Sequence[Node], output_ids: Sequence[int]) -> ExecutionResult:
        """Evaluate those nodes of a graph; `output_ids` are positions in it."""
        bad = [i for i in output_ids if not 0 <= i < len(graph)]
        if bad:
            raise ArgumentError(f"[execute] expected positions in a graph of {len(graph)} nodes but got {bad}")
        outputs = [graph[i] for i in output_ids]
        here = self._device.id
        for node in outputs:
            if node.meta.device not in (here, None):
                raise DeviceError(
                    f"[execute] expected nodes on {here} but got one on {node.meta.device}; move it there"
                )
        started = time.perf_counter()
        evaluate(outputs)
        if self.config.enable_profiling or self.config.sync_after_launch:
            self._device.synchronize()
        return ExecutionResult(outputs, time.perf_counter() - started if self.config.enable_profiling else None)

    def get_device_info(self) -> dict[str, Any]:
        """What the GPU says of itself."""
        info: dict[str, Any] = self._device.info()
        return info

    def get_memory_stats(self) -> Any:
        """Counters of the GPU's memory pool."""
        return self._device.pool.stats
