"""How many pages of keys and values memory has room for."""

from __future__ import annotations

from pyflame.core.device import parse_device
from pyflame.llm.cache import PAGE, cache_bytes, pages_of
from pyflame.llm.generate import Model
from pyflame.tensor.memory import memory_info

_SHARE = {"cpu": 0.5}  # of free memory: other programs use the host's, too
_GPU_SHARE = 0.8  # what is left is for intermediates, the sampler and graphs


def pages_for(model: Model, rows: int) -> int:
    """As many as `rows` full contexts take, where there is room for them; at least those of one context."""
    config, places = model.config, model.decoder.places
    shares = places.shares() if places.split else {model.device: config.layers}
    count = rows * pages_of(model.context)
    for place, layers in shares.items():
        kind = parse_device(place).kind
        if kind != "null":
            page = cache_bytes(config, 1, PAGE, model.kv) * layers // config.layers
            free, _ = memory_info(place)
            count = min(count, int(free * _SHARE.get(kind, _GPU_SHARE)) // page)
    return max(count, pages_of(model.context))
