"""Sizes for people."""

from __future__ import annotations


def human_bytes(count: float) -> str:
    """Bytes in the unit that fits, by three digits.

    >>> human_bytes(512), human_bytes(1536), human_bytes(1000 << 10), human_bytes(24 << 30)
    ('512 B', '1.5 KiB', '1000 KiB', '24 GiB')
    """
    size, units = float(count), ["B", "KiB", "MiB", "GiB", "TiB"]
    while abs(size) >= 1023.5 and len(units) > 1:
        size /= 1024
        del units[0]
    return f"{size:.0f} {units[0]}" if units[0] == "B" or abs(size) >= 999.5 else f"{size:.3g} {units[0]}"
