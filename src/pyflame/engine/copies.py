"""Values on their way from one device's memory to another's."""

from __future__ import annotations

from typing import Any

from pyflame.engine.devices import cpu
from pyflame.engine.value import Value


def moved(value: Value, nbytes: int, here: Any, there: Any) -> Value:
    """The same contiguous bytes in the memory of another device; the value itself where it is there already."""
    kinds = {here.id.kind, there.id.kind}
    if "null" in kinds:
        return Value(None, 0, value.strides)
    if here is there:
        return value
    if here.id.kind == "cpu":
        return Value(there.received(value.host_address, nbytes))
    storage = there.allocate(nbytes)
    if there.id.kind == "cpu":
        here.download(storage.address, value.address, nbytes)
    elif here.id.kind == there.id.kind and there.reaches(here):
        there.copy_from_peer(storage.address, here, value.address, nbytes)
    else:  # between vendors, or where the bus has no way: through the host
        staged = moved(value, nbytes, here, cpu())
        there.upload_from(storage.address, staged.host_address, nbytes)
    return Value(storage)
