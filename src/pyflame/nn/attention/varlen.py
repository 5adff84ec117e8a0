"""torch.nn.attention.varlen by its path: attention over packed sequences."""

from __future__ import annotations

from pyflame.tensor.dispatch import FUNCTIONS as _F

__all__ = ["varlen_attn"]

varlen_attn = _F["varlen_attn"]
