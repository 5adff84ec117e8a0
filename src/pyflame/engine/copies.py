"""Values on their way from one device's memory to another's."""

from __future__ import annotations

from pyflame.engine.devices import cpu
from pyflame.engine.value import Value
from pyflame.runtime.base import Device, Storage


def moved(value: Value, nbytes: int, here: Device, there: Device) -> Value:
    """The same contiguous bytes in the memory of another device; the value itself where it is there already."""
    if not (here.id.computes and there.id.computes):
        return Value(None, 0, value.strides)
    if here is there:
        return value
    source, target = here.gpu, there.gpu
    if target is None:
        storage: Storage = cpu().allocate(nbytes)
        assert source is not None, "there is one CPU"
        source.download(storage.address, value.address, nbytes)
    elif source is None:
        storage = target.received(value.host_address, nbytes)
    else:
        storage = target.allocate(nbytes)
        if here.id.kind == there.id.kind and target.reaches(source):
            target.copy_from_peer(storage.address, source, value.address, nbytes)
        else:  # between vendors, or where the bus has no way: through the host
            staged = moved(value, nbytes, here, cpu())
            target.upload_from(storage.address, staged.host_address, nbytes)
    return Value(storage)
