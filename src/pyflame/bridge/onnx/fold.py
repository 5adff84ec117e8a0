"""Values that are known on the host stay there: nodes over shapes and small constants are computed with NumPy.

Shape -> Gather -> Concat -> Reshape chains of exported models end in Python numbers this way, so the graph around them
has static shapes. The arithmetic is that of the `onnx` package's reference evaluator, which is NumPy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pyflame.bridge.onnx.table import Array, Value
from pyflame.core.optional import optional

MAX_FOLDED = 1 << 16  # elements of all inputs: more than any chain of shapes has


class Folder:
    """Computes one node on the host."""

    def __init__(self, node: Any, opset_imports: Sequence[Any]) -> None:
        self._node, self._opsets = node, opset_imports
        self._evaluator: Any = None

    def takes(self, inputs: Sequence[Value]) -> bool:
        """Whether all inputs are on the host and small."""
        arrays = [x for x in inputs if x is not None]
        return (
            bool(arrays)
            and all(isinstance(x, np.ndarray) for x in arrays)
            and sum(x.size for x in arrays if isinstance(x, np.ndarray)) <= MAX_FOLDED
        )

    def __call__(self, inputs: Sequence[Value]) -> list[Array]:
        if self._evaluator is None:
            self._evaluator = self._made()
        given = {name: x for name, x in zip(self._node.input, inputs, strict=False) if name and x is not None}
        found = self._evaluator.run(None, given)
        return [np.asarray(x) for x in found]

    def _made(self) -> Any:
        helper = optional("onnx.helper", "onnx", "onnx")
        reference = optional("onnx.reference", "onnx", "onnx")

        def untyped(names: Any) -> list[Any]:
            return [helper.make_empty_tensor_value_info(name) for name in dict.fromkeys(names) if name]

        graph = helper.make_graph([self._node], "node", untyped(self._node.input), untyped(self._node.output))
        return reference.ReferenceEvaluator(helper.make_model(graph, opset_imports=self._opsets))
