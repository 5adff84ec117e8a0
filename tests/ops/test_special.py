"""Bessel functions, Airy's, erfcx and polynomials: against values of 40 digits, torch, and each other's slopes."""

from __future__ import annotations

import math

import numpy as np
import pytest

import pyflame as pf
from tests.needs import needs_torch, torch

# x -> J0, J1, Y0, Y1, K0, K1, Ai(x), Ai(-x), erfcx(x), erfcx(-x), of mpmath; on both sides of where formulas change
KNOWN = {
    0.25: (0.9844359292958527, 0.12402597732272692, -0.9315730249300587, -2.7041052293152825, 1.5415067512483027,
        3.7470259744407115, 0.2911639543485452, 0.41872461427545293, 0.7703465477309968, 1.358642370104722),
    1.0: (0.7651976865579666, 0.4400505857449335, 0.08825696421567696, -0.7812128213002887, 0.42102443824070834,
        0.6019072301972346, 0.13529241631288141, 0.5355608832923521, 0.427583576155807, 5.008980080762283),
    1.9375: (0.26004565867589036, 0.579969048446659, 0.5025766836447507, -0.14266350852541657, 0.12300567052555429,
        0.151894691359947, 0.03838162203263807, 0.26512061491299604, 0.2622376065503814, 85.11277201256529),
    2.0625: (0.1879876297425429, 0.5719172723653017, 0.5159721550030212, -0.07218956146114695, 0.10550071349007924,
        0.12888016682027845, 0.03173952616423258, 0.1879203485468008, 0.24888049618416236, 140.51071384907988),
    2.125: (0.1524331929285059, 0.5655704009300364, 0.5194166179040304, -0.03817482453986461, 0.0977642576540254,
        0.1188353617424229, 0.028810683246957205, 0.14692191656424264, 0.24267036461265454, 182.62671933949107),
    4.9375: (-0.1978378795985959, -0.3199179456636228, -0.2986190763124927, 0.16883545627193985,
        0.0039528873960409565, 0.004336084772189763, 0.00012491321528066695, 0.3677388608622706,
        0.11205390697846082, 77384584462.80788),
    5.0625: (-0.15691789894737626, -0.33392472902494025, -0.3170959204910404, 0.126600500066479,
        0.003446895041411694, 0.003773098112739616, 9.389455915930529e-05, 0.32694433006584955,
        0.10938694058485879, 270098739396.1542),
    8.5: (0.041939251842934504, 0.2731219636740537, 0.27020510536578746, -0.02616867939853747,
        8.625756634932507e-05, 9.119724775006898e-05, 1.0997009755195506e-08, -0.33029023763020887,
        0.06592512249998035, 4.7731635244483685e+31),
    25.0: (0.09626678327595811, -0.1253502495802899, -0.12724943226800614, -0.09882996478323741,
        3.4641615622131143e-12, 3.5327780731999337e-12, 8.116026824691387e-38, 0.16352657883042948,
        0.02254957243264136, 5.4335189393274735e+271),
}  # fmt: skip
NAMES = ("bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "modified_bessel_k0", "modified_bessel_k1")
POLYNOMIALS = [
    *[f"{shift}chebyshev_polynomial_{kind}" for shift in ("", "shifted_") for kind in "tuvw"],
    "hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p",
]  # fmt: skip


def columns(dtype: pf.DType) -> list[tuple[str, float, float, np.ndarray]]:
    """Name, sign of the argument, tolerance and values."""
    table = np.array(list(KNOWN.values())).T
    x = np.array(list(KNOWN))
    rows = [(name, 1.0, table[i]) for i, name in enumerate(NAMES)]
    rows += [("scaled_" + NAMES[i], 1.0, table[i] * np.exp(x)) for i in (4, 5)]
    rows += [
        ("airy_ai", 1.0, table[6]),
        ("airy_ai", -1.0, table[7]),
        ("erfcx", 1.0, table[8]),
        ("erfcx", -1.0, table[9]),
    ]
    return [(name, sign, 2e-14 if dtype is pf.float64 else 2e-7, want) for name, sign, want in rows]


@pytest.mark.parametrize("dtype", [pf.float32, pf.float64])
def test_known_values(dtype: pf.DType) -> None:
    x = np.array(list(KNOWN))
    for name, sign, rtol, want in columns(dtype):
        got = getattr(pf.special, name)(pf.tensor(sign * x, dtype=dtype))
        assert got.dtype is dtype
        # waves cross 0: their error is that of their height
        atol = rtol * 0.3 if name.startswith("bessel") or sign < 0 else 1e-38
        with np.errstate(over="ignore"):
            np.testing.assert_allclose(got.numpy(), want.astype(dtype.numpy), rtol=rtol, atol=atol, err_msg=name)


@needs_torch
def test_ends_and_dtypes_are_those_of_torch() -> None:
    x = np.array([0.0, -0.0, -1.0, -5.5, math.nan, 1e-30, 40.0])
    for name in (*NAMES, "scaled_modified_bessel_k0", "scaled_modified_bessel_k1", "airy_ai", "erfcx"):
        ours, theirs = getattr(pf.special, name), getattr(torch.special, name)
        np.testing.assert_allclose(ours(pf.tensor(x)).numpy(), theirs(torch.tensor(x)).numpy(), rtol=2e-6, atol=2e-6)
        for dtype in ("int64", "bool", "float32", "float64"):
            got = ours(pf.ones(2, dtype=getattr(pf, dtype))).dtype
            want = theirs(torch.ones(2, dtype=getattr(torch, dtype))).dtype
            assert str(want) == f"torch.{got.name}", (name, dtype)
        with pytest.raises(pf.DTypeError, match="real numbers"):
            ours(pf.ones(2, dtype=pf.complex64))


@needs_torch
@pytest.mark.parametrize("name", POLYNOMIALS)
def test_polynomials(name: str) -> None:
    x = np.concatenate([np.linspace(-1.3, 1.3, 14), [1.0, -1.0, 0.0]])
    n = np.array([-3.0, -0.5, 0.0, 1.0, 2.9, 6.0, 7.0, 8.0, 30.0])[:, None]
    ours, theirs = getattr(pf.special, name), getattr(torch.special, name)
    for dtype, rtol in (("float64", 1e-10), ("float32", 1e-3)):
        a, b = x.astype(dtype), n.astype(dtype)
        got, want = ours(pf.tensor(a), pf.tensor(b)).numpy(), theirs(torch.tensor(a), torch.tensor(b)).numpy()
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol)
    for args in ((x.astype("float32"), 3), (0.25, np.arange(9)), (np.arange(3), np.arange(3))):
        mine, its = ([lib.tensor(v) if isinstance(v, np.ndarray) else v for v in args] for lib in (pf, torch))
        got, want = ours(*mine), theirs(*its)
        assert f"torch.{got.dtype.name}" == str(want.dtype)
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-4, atol=1e-4)
    assert not ours(pf.ones(2).requires_grad_(), 3).requires_grad
    assert ours(pf.tensor(0.3), math.inf).item() == 0.0  # no endless loop
    assert math.isnan(ours(pf.tensor(math.nan), 3).item())  # torch returns what was in memory
    far = ours(pf.tensor([0.3, 1.7], dtype=pf.float64), 1e30)  # no endless loop either
    assert math.isnan(far[1].item())


def test_slope_at_0_and_large_degrees() -> None:
    x = pf.zeros(1).requires_grad_()
    pf.special.bessel_j1(x).sum().backward()
    assert x.grad.item() == 0.5
    n = pf.tensor([1e9], dtype=pf.float64)
    ends = [getattr(pf.special, f"chebyshev_polynomial_{k}")(pf.tensor([1.0, -1.0]), n).tolist() for k in "tuvw"]
    assert ends == [[1.0, 1.0], [1e9 + 1, 1e9 + 1], [1.0, 2e9 + 1], [2e9 + 1, 1.0]]
