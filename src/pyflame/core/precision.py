"""How exact float32 products must be, by the names that PyTorch gives the choice."""

from __future__ import annotations

from pyflame.core import knobs
from pyflame.core.errors import ArgumentError, suggest

PRECISIONS = ("highest", "high", "medium")


class Choice:
    """What was chosen, where it can be looked at."""

    precision: str | None = None


choice = Choice()


def set_float32_matmul_precision(precision: str) -> None:
    """Say how exact float32 products and convolutions must be, in this process.

    "highest" (the default) is float32 throughout. "high" and "medium" allow an NVIDIA GPU to round what is multiplied
    to TF32, which keeps 10 bits of the mantissa and is several times as fast. Sums are float32 always.

    >>> pf.set_float32_matmul_precision("highest")
    """
    if precision not in PRECISIONS:
        raise ArgumentError(
            f"[set_float32_matmul_precision] expected one of {', '.join(PRECISIONS)} but got {precision!r}"
            f"{suggest(str(precision), PRECISIONS)}"
        )
    choice.precision = precision


def get_float32_matmul_precision() -> str:
    """What `set_float32_matmul_precision` was told last, else PYFLAME_FLOAT32_MATMUL_PRECISION.

    >>> pf.get_float32_matmul_precision()
    'highest'
    """
    if choice.precision is None:
        set_float32_matmul_precision(knobs.MATMUL_PRECISION.text())
    assert choice.precision is not None
    return choice.precision


def tf32_allowed() -> bool:
    """Whether float32 operands of a product may be rounded to TF32."""
    return get_float32_matmul_precision() != "highest"
