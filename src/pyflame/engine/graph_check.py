"""Whether a captured graph computes what its launches compute one by one: asked before it is trusted.

Drivers have replayed graphs wrongly (`runtime/rocm/troubles.py`), in silence. So a graph is replayed, its results are
set aside, all that it has overwritten is put back, and its launches are given one by one over the same memory: theirs
are the results that go on. Where they differ in a bit the launches are given once more, since some kernels add in an
order of their own: the graph may differ as far as they do. Where memory for that is missing it counts as wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pyflame.core.errors import OutOfMemoryError
from pyflame.engine.binding import Written
from pyflame.engine.pieces import fetched, pieces
from pyflame.runtime.base import GpuDevice
from pyflame.runtime.gpu.driver import KernelArguments
from pyflame.runtime.pool import POISON

SAME_BLOCK, SAME_BYTES = 256, 1 << 15  # threads of a block of same.hip, and bytes that it looks at
PIECE = 1 << 20  # bytes whose numbers are compared at once where some differ
NOISE = 8.0  # times as far as two runs of the launches may the graph be from them
CLOSE = {2: 2e-2, 4: 1e-4, 8: 1e-10}  # share of the largest number, by bytes of a float, that counts as noise anyway
_SAME = f"""#include "same.hip"
PF_GLOBAL({SAME_BLOCK}) PF_KEY_0(const char *one, const char *other, int64_t nbytes, int32_t *differs) {{
  pf_same(one, other, nbytes, differs);
}}
"""


def compare(
    device: GpuDevice, written: Sequence[Written], replay: Callable[[], Any], launch: Callable[[], Any]
) -> str | None:
    """Run a plan once, by its launches, and say in what a replay differs; empty: in nothing. None where memory for the
    comparison is missing: nothing has run then."""
    try:
        before = {w: device.allocate(w.nbytes) for w in written if w.state}
        graph = {w: device.allocate(w.nbytes) for w in written}
        marks = device.allocate(4 * len(written))
    except OutOfMemoryError:
        return None
    _copy(device, before, back=False)
    for w in written:
        if not w.state:  # what lies there may be an older run's results
            device.fill(w.address, POISON, w.nbytes)
    replay()
    _copy(device, graph, back=False)
    _copy(device, before, back=True)
    launch()
    differing = _differing(device, graph, marks)
    if not differing:
        return ""
    graph = {w: graph[w] for w in differing}
    try:
        again = {w: device.allocate(w.nbytes) for w in differing}
    except OutOfMemoryError:
        wrong = differing
    else:
        _copy(device, again, back=False)
        _copy(device, before, back=True)
        launch()
        wrong = [w for w in differing if _farther(device, w, graph[w].address, again[w].address)]
    if wrong:
        _copy(device, before, back=True)  # the caller gives the launches once more
        return f"{len(wrong)} of {len(written)} buffers, the first of {wrong[0].nbytes:,} bytes"
    return ""


def _copy(device: GpuDevice, kept: dict[Written, Any], back: bool) -> None:
    for w, block in kept.items():
        to, source = (w.address, block.address) if back else (block.address, w.address)
        device.copy(to, source, w.nbytes)


def _differing(device: GpuDevice, kept: dict[Written, Any], marks: Any) -> list[Written]:
    """Those whose bytes are others than those kept of them. The device looks, for a cache of keys is gigabytes, and
    marks them."""
    ((same,),) = device.functions([(_SAME, ("_0",))])
    device.fill(marks.address, 0, 4 * len(kept))
    for n, (w, block) in enumerate(kept.items()):
        if w.nbytes:
            arguments = KernelArguments([block.address, w.address, w.nbytes, marks.address + 4 * n])
            grid, block = (-(-w.nbytes // SAME_BYTES), 1, 1), (SAME_BLOCK, 1, 1)
            device.guard.launch(same.handle, grid, block, 0, device.stream.handle, arguments)  # in nobody's profile
    found = fetched(device, marks.address, 4 * len(kept)).view(np.int32)
    return [w for w, mark in zip(kept, found.tolist(), strict=True) if mark]


def _farther(device: GpuDevice, w: Written, graph: int, again: int) -> bool:
    """Whether the graph's numbers, which differ from the launches', are farther from these than those of another run.
    Where they are no floats there is no noise."""
    if w.dtype is None or w.dtype.category != "f" or w.dtype.itemsize not in CLOSE:
        return True
    off = noise = largest = 0.0
    for start, size in pieces(w.nbytes, PIECE, -(-w.nbytes // PIECE)):
        size -= size % w.dtype.itemsize
        places = (w.address, graph, again)
        launched, replayed, other = (
            fetched(device, place + start, size).view(w.dtype.numpy).astype(np.float64) for place in places
        )
        if not np.array_equal(np.isfinite(launched), np.isfinite(replayed)):
            return True
        finite = np.isfinite(launched) & np.isfinite(other)
        largest = max(largest, float(np.abs(launched[finite]).max(initial=0.0)))
        off = max(off, float(np.abs(launched - replayed)[finite].max(initial=0.0)))
        noise = max(noise, float(np.abs(launched - other)[finite].max(initial=0.0)))
    return off > max(NOISE * noise, CLOSE[w.dtype.itemsize] * largest)
