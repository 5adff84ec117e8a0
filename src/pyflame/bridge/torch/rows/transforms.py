"""Fourier transforms. aten writes the norm as a number (0: none, 1: by the root of the points, 2: by the points), which
ours names from the direction; complex numbers, whose conjugates are views in torch and values here.
"""

from __future__ import annotations

from typing import Any

import pyflame as pf
from pyflame.bridge.torch.rows.registry import row

_FORWARD = ("backward", "ortho", "forward")
_INVERSE = ("forward", "ortho", "backward")


@row("_fft_c2c")
def complex_to_complex(x: Any, dim: Any, norm: int, forward: bool) -> Any:
    if forward:
        return pf.fft.fftn(x, dim=tuple(dim), norm=_FORWARD[norm])
    return pf.fft.ifftn(x, dim=tuple(dim), norm=_INVERSE[norm])


@row("_fft_r2c")
def real_to_complex(x: Any, dim: Any, norm: int, onesided: bool) -> Any:
    return (pf.fft.rfftn if onesided else pf.fft.fftn)(x, dim=tuple(dim), norm=_FORWARD[norm])


@row("_fft_c2r")
def complex_to_real(x: Any, dim: Any, norm: int, last: int) -> Any:
    sizes = (*[-1] * (len(dim) - 1), last)
    return pf.fft.irfftn(x, s=sizes, dim=tuple(dim), norm=_INVERSE[norm])


@row("_conj", "_conj_physical", "conj_physical")
def conj(x: Any) -> Any:
    return x.conj()


@row("_neg_view")
def negative(x: Any) -> Any:
    return -x


@row("resolve_conj", "resolve_neg")
def resolved(x: Any) -> Any:
    return x
