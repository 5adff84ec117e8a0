"""PyTorch models on PyFlame's engine: `torch.compile(model, backend="pyflame")`, and modules converted to ours.

Dynamo and AOTAutograd give functional graphs of aten ops, forward and backward. `table.py` maps an aten op to a
function of ours, `split.py` cuts a graph where one has none, `program.py` runs the parts: ours jitted, the others in
torch. Tensors cross without a copy, so that weights stay torch's.
"""

from pyflame.core.optional import optional as _optional

_optional("torch", "torch", "bridge.torch")  # a friendly error comes first

from pyflame.bridge.torch.backend import backend, register  # noqa: E402
from pyflame.bridge.torch.convert import ConvertedModule, convert  # noqa: E402
from pyflame.bridge.torch.report import Explanation, explain  # noqa: E402

__all__ = ["ConvertedModule", "Explanation", "backend", "convert", "explain", "register"]
