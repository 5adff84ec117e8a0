"""Checks that several optimisers make of their options."""

from __future__ import annotations

from typing import Any

from pyflame.core.errors import ArgumentError


def not_negative(op: str, group: dict[str, Any], *keys: str) -> None:
    """Raise for an option below zero, and for NaN."""
    for key in keys:
        if not group[key] >= 0.0:
            raise ArgumentError(f"[{op}] expected {key} of at least 0 but got {group[key]}")


def fraction(op: str, group: dict[str, Any], key: str) -> None:
    """Raise for an option outside of [0, 1]."""
    if not 0.0 <= group[key] <= 1.0:
        raise ArgumentError(f"[{op}] expected {key} in [0, 1] but got {group[key]}")


def betas(op: str, group: dict[str, Any]) -> None:
    """Raise for decay rates outside of [0, 1)."""
    for position, beta in enumerate(group["betas"]):
        if not 0.0 <= beta < 1.0:
            raise ArgumentError(f"[{op}] expected betas in [0, 1) but got {beta} at position {position}")
