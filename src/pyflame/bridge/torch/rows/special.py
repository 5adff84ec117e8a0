"""Elementwise functions that our catalogue lacks, and that optimisers need."""

from __future__ import annotations

from typing import Any

from pyflame.bridge.torch.rows.registry import row


@row("fma")
def fma(x: Any, y: Any, z: Any) -> Any:
    return x * y + z
