"""Checksums of the tensors in a file, and of what its header says of them.

The format has none: a flipped bit in a weight, or one that turns F32 into I32, reads like any other value. Ours go into
the metadata, where other readers ignore them. A tensor's is the CRC-32 of those of its pieces, so that all cores can
work on one tensor; CRC-32 is the fastest that Python brings, and finds every short burst of flipped bits.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

KEY = "pyflame.checksums"
PIECE = 1 << 22  # bytes


def of_tensors(contents: Mapping[str, memoryview]) -> dict[str, str]:
    """Each tensor's checksum, from its bytes.

    >>> of_tensors({"x": memoryview(b"abc")})
    {'x': '2b033be3'}
    """
    pieces = [raw[at : at + PIECE] for raw in contents.values() for at in range(0, max(raw.nbytes, 1), PIECE)]
    workers = min(8, len(os.sched_getaffinity(0)), sum(piece.nbytes for piece in pieces) // PIECE)
    if workers > 1:
        with ThreadPoolExecutor(workers) as pool:  # zlib lets other threads run
            parts = iter(list(pool.map(zlib.crc32, pieces)))
    else:
        parts = map(zlib.crc32, pieces)
    found = {}
    for name, raw in contents.items():
        count = -(-max(raw.nbytes, 1) // PIECE)
        found[name] = f"{zlib.crc32(b''.join(next(parts).to_bytes(4, 'little') for _ in range(count))):08x}"
    return found


def of_header(tensors: Mapping[str, tuple[str, tuple[int, ...], str]], metadata: Mapping[str, str]) -> str:
    """The checksum of all names, dtypes, shapes and checksums of tensors, and of the metadata.

    Where tensors lie needs no checksum of its own: at another place there are other bytes.
    """
    rows: list[Any] = [[name, *about] for name, about in sorted(tensors.items())]
    content = [rows, sorted(metadata.items())]
    return hashlib.sha256(json.dumps(content, separators=(",", ":")).encode()).hexdigest()
