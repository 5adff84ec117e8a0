"""How many pages of keys and values memory has room for."""

from __future__ import annotations

from pyflame.core.device import parse_device
from pyflame.llm.cache import pages_of
from pyflame.llm.generate import Model
from pyflame.tensor.memory import memory_info

_SHARE = {"cpu": 0.5}  # of free memory: other programs use the host's, too
_GPU_SHARE = 0.8  # what is left is for intermediates, the sampler and graphs


def pages_for(model: Model, rows: int) -> int:
    """As many as `rows` full contexts take, where there is room for them; at least those of one context."""
    count = rows * pages_of(model.context)
    for place, page in model.decoder.page_bytes(model.kv, model.device).items():
        kind = parse_device(place).kind
        if kind != "null":
            free, _ = memory_info(place)
            count = min(count, int(free * _SHARE.get(kind, _GPU_SHARE)) // page)
    return max(count, pages_of(model.context))
