"""Reading a tensor while its GPU goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyflame.core.device import parse_device
from pyflame.engine.devices import get_device
from pyflame.engine.memory import gpu_of
from pyflame.tensor.modes import eval
from pyflame.tensor.tensor import Tensor


def arriving(x: Tensor) -> Callable[[], Any]:
    """Begin to copy a tensor to the host, behind what its GPU was given so far. What this gives is `x.tolist()`, and
    waits for that copy alone; bad indices of kernels are reported when something else waits.

    >>> tokens = arriving(step())          # doctest: +SKIP
    >>> ahead = step()                     # doctest: +SKIP
    >>> tokens()                           # doctest: +SKIP
    [17]
    """
    eval(x)
    place, value = parse_device(x.device), x._node.data
    if get_device(place).gpu is None or value.strides is not None:
        return x.tolist
    from pyflame.engine.arriving import Arriving  # not before a GPU is used

    found = Arriving(gpu_of("tolist", place), value, x._node.meta.shape, x._node.meta.dtype)
    return lambda: found.array().tolist()
