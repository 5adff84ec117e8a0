"""Special functions made of rational and Chebyshev approximations: Bessel functions J, Y and K, Airy's Ai, and erfcx.

Each is one formula over `F` or NumPy, whose functions have the same names. It is computed in float64, whatever the
dtype, for all elements alike: a near and a far approximation, one of which is taken. The coefficients, highest degree
first, are those of Cephes (Stephen Moshier), which PyTorch has as well; its J and Y lack the leading 1 of some
denominators, and so have 1e-7 of error in float64 around 5, where these have 1e-14. erfcx is a fit of our own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from pyflame.core.dtype import default, float64
from pyflame.ir import F, Node, Sample, cast, primitive
from pyflame.ir.opdef import COMPOSITE

Table = tuple[float, ...]

# --- coefficients -----------------------------------------------------------------------------------------------------

_J0_NEAR = (
    (  # over
        -4794432209.782018, 1956174919465.5657, -249248344360967.72, 9708622510473064.0,
    ),
    (  # below, as everywhere here
        1.0, 499.563147152651, 173785.4016763747, 48440965.83399621, 11185553704.535683, 2112775201154.892,
        310518229857422.56, 3.1812195594320496e+16, 1.7108629408104315e+18,
    ),
)  # fmt: skip
_Y0_NEAR = (
    (  # over
        15592.436785523574, -14663929.59039716, 5435264770.518765, -982136065717.9115, 87590639439536.7,
        -3466283033847297.0, 4.4273326857256984e+16, -1.8495080043698668e+16,
    ),
    (  # below
        1.0, 1041.2835366425984, 626107.330137135, 268919633.39381415, 86400248710.3935, 20297961275010.555,
        3171577528429750.5, 2.5059625617265306e+17,
    ),
)  # fmt: skip
_FAR0 = (
    (  # of the cosine: over
        0.0007969367292973471, 0.08283523921074408, 1.239533716464143, 5.447250030587687, 8.74716500199817,
        5.303240382353949, 1.0,
    ),
    (  # below
        0.0009244088105588637, 0.08562884743544745, 1.2535274390105895, 5.470977403304171, 8.761908832370695,
        5.306052882353947, 1.0,
    ),
    (  # of the sine: over
        -0.011366383889846916, -1.2825271867050931, -19.553954425773597, -93.20601521237683, -177.68116798048806,
        -147.07750515495118, -51.41053267665993, -6.050143506007285,
    ),
    (  # below
        1.0, 64.3178256118178, 856.4300259769806, 3882.4018360540163, 7240.467741956525, 5930.727011873169,
        2062.0933166032783, 242.0057402402914,
    ),
)  # fmt: skip
_J1_NEAR = (
    (  # over
        -899971225.7055594, 452228297998.19403, -72749424522181.83, 3682957328638529.0,
    ),
    (  # below, as everywhere here
        1.0, 620.8364781180543, 256987.25675774884, 83514679.14319493, 22151159547.97925, 4749141220799.914,
        784369607876235.9, 8.952223361846274e+16, 5.322786203326801e+18,
    ),
)  # fmt: skip
_Y1_NEAR = (
    (  # over
        1263204747.9017804, -647355876379.1603, 114509511541823.73, -8127702555013251.0, 2.024394757135949e+17,
        -7.788771962659501e+17,
    ),
    (  # below
        1.0, 594.3015923461282, 235564.09294306856, 73481194.44597217, 18760131610.870617, 3882312774962.3857,
        620557727146953.8, 6.871410873553005e+16, 3.9727060811656064e+18,
    ),
)  # fmt: skip
_FAR1 = (
    (  # of the cosine: over
        0.0007621256162081731, 0.07313970569409176, 1.1271960812968493, 5.112079511468076, 8.424045901417724,
        5.214515986823615, 1.0,
    ),
    (  # below
        0.0005713231280725487, 0.06884559087544954, 1.105142326340617, 5.073863861286015, 8.399855543276042,
        5.209828486823619, 1.0,
    ),
    (  # of the sine: over
        0.05108625947501766, 4.982138729512334, 75.82382841325453, 366.7796093601508, 710.8563049989261,
        597.4896124006136, 211.68875710057213, 25.207020585802372,
    ),
    (  # below
        1.0, 74.23732770356752, 1056.4488603826283, 4986.410583376536, 9562.318924047562, 7997.041604473507,
        2826.1927851763908, 336.0936078106983,
    ),
)  # fmt: skip
_K0_NEAR = (
    1.374465435613523e-16, 4.25981614279661e-14, 1.0349695257633842e-11, 1.904516377220209e-09,
    2.5347910790261494e-07, 2.286212103119452e-05, 0.001264615411446926, 0.0359799365153615, 0.3442898999246285,
    -0.5353273932339028,
)  # fmt: skip
_K0_FAR = (
    5.300433772686263e-18, -1.6475804301524212e-17, 5.2103915050390274e-17, -1.678231096805412e-16,
    5.512055978524319e-16, -1.848593377343779e-15, 6.3400764774050706e-15, -2.2275133269916698e-14,
    8.032890775363575e-14, -2.9800969231727303e-13, 1.140340588208475e-12, -4.514597883373944e-12,
    1.8559491149547177e-11, -7.957489244477107e-11, 3.577397281400301e-10, -1.69753450938906e-09,
    8.574034017414225e-09, -4.660489897687948e-08, 2.766813639445015e-07, -1.8317555227191195e-06,
    1.39498137188765e-05, -0.00012849549581627802, 0.0015698838857300533, -0.0314481013119645, 2.4403030820659555,
)  # fmt: skip
_K1_NEAR = (
    -7.023863479386288e-18, -2.427449850519366e-15, -6.666901694199329e-13, -1.4114883926335278e-10,
    -2.213387630734726e-08, -2.4334061415659684e-06, -0.0001730288957513052, -0.006975723859639864,
    -0.12261118082265715, -0.3531559607765449, 1.5253002273389478,
)  # fmt: skip
_K1_FAR = (
    -5.756744483665017e-18, 1.7940508731475592e-17, -5.689462558442859e-17, 1.838093544366639e-16,
    -6.057047248373319e-16, 2.038703165624334e-15, -7.019837090418314e-15, 2.4771544244813043e-14,
    -8.976705182324994e-14, 3.3484196660784293e-13, -1.2891739609510289e-12, 5.13963967348173e-12,
    -2.1299678384275683e-11, 9.218315187605006e-11, -4.1903547593418965e-10, 2.015049755197033e-09,
    -1.0345762465678097e-08, 5.7410841254500495e-08, -3.5019606030878126e-07, 2.406484947837217e-06,
    -1.936197974166083e-05, 0.00019521551847135162, -0.002857816859622779, 0.10392373657681724, 2.7206261904844427,
)  # fmt: skip
_AIRY_ABOVE = (
    (  # over
        0.346538101525629, 12.007595273964581, 76.27960536152345, 168.08922493463058, 159.75639135016442,
        70.53609068404442, 14.026469116338967, 1.0,
    ),
    (  # below
        0.5675945326387702, 14.75625625848472, 84.51389701414746, 177.31808814540045, 164.2346928715297,
        71.47784008255756, 14.095913560783403, 1.0,
    ),
)  # fmt: skip
_AIRY_BELOW = (
    (  # of the sine: over
        -0.1316963234183318, -0.6264565444319123, -0.6931580360369335, -0.2797799815451191, -0.04919001326095003,
        -0.004062659235948854, -0.0001592764962392621, -2.776491081552329e-06, -1.6778769848911465e-08,
    ),
    (  # below
        1.0, 13.356042070655324, 32.682503279522464, 26.736704094149957, 9.187074029072596, 1.4752914677166642,
        0.11568717379518804, 0.004402916416152112, 7.547203482874142e-05, 4.5185009297058035e-07,
    ),
    (  # of the cosine: over
        0.01973399320916857, 0.39110302961568827, 1.0657989759959559, 0.9391692298166502, 0.35146565610554764,
        0.06338889196289255, 0.005858041130483885, 0.000282851600836737, 6.98793669997261e-06, 8.117892395543892e-08,
        3.415517847659236e-10,
    ),
    (  # below
        1.0, 9.30892908077442, 19.835292871831214, 15.564662893286462, 5.476860694229755, 0.9542936116189619,
        0.08645808263523921, 0.004126565238242226, 0.00010125908511650914, 1.1716673321441352e-06,
        4.9183457006293e-09,
    ),
)  # fmt: skip
_ERFCX = (
    -4.1796818392698915e-18, 6.164032198401936e-18, 1.0501564927720586e-16, -1.0963030130900087e-16,
    -2.704740368320276e-15, 2.8807292328713077e-15, 7.242772425819852e-14, -1.1724828156626574e-13,
    -1.993785314415682e-12, 5.780745301094449e-12, 5.307787477918412e-11, -2.9040184105173024e-10,
    -1.0830423386818938e-09, 1.355826598349273e-08, -9.53473146659699e-09, -4.936920694378021e-07,
    3.086971620657423e-06, 1.971677029425334e-06, -0.0001678661262168746, 0.0015696224296742666,
    -0.009506139167741073, 0.044234890018353, -0.16770511573096467, 0.5310168126584589, -1.4155291636062,
    3.1605439508178033,
)  # fmt: skip

# sums of x^2k / 4^k / (k! k!) and, for Airy's two series of x^3, 1 / (2 3 5 6 ..) and 1 / (3 4 6 7 ..)
_I0 = tuple(1 / math.factorial(k) ** 2 for k in reversed(range(14)))
_I1 = tuple(1 / (math.factorial(k) * math.factorial(k + 1)) for k in reversed(range(14)))
_AIRY_F = tuple(1 / math.prod((3 * j - 1) * 3 * j for j in range(1, k + 1)) for k in reversed(range(16)))
_AIRY_G = tuple(1 / math.prod(3 * j * (3 * j + 1) for j in range(1, k + 1)) for k in reversed(range(16)))
_AIRY_AT_0, _AIRY_SLOPE_AT_0 = 0.3550280538878172, -0.2588194037928068

# --- formulas ---------------------------------------------------------------------------------------------------------


def _power_series(z: Any, table: Table) -> Any:
    total = z * table[0] + table[1]
    for c in table[2:]:
        total = total * z + c
    return total


def _ratio(z: Any, over: Table, below: Table) -> Any:
    return _power_series(z, over) / _power_series(z, below)


def _chebyshev_series(y: Any, table: Table) -> Any:
    """The sum of table[-1 - k] T_k(y / 2), half of the last: Clenshaw's way."""
    before, now = 0.0, y * 0.0 + table[0]
    older: Any = before
    for c in table[1:]:
        older, before, now = before, now, y * now - before + c
    return (now - older) * 0.5


def _waves(m: Any, x: Any, order: int) -> tuple[Any, Any, Any, Any]:
    """Of x above 5: sqrt(2 / (pi x)) times the parts of the wave, and its cosine and sine."""
    over, below, over_q, below_q = (_FAR0, _FAR1)[order]
    w = 5.0 / x
    scale = m.sqrt(2.0 / (math.pi * x))
    angle = x - math.pi * (0.25 + 0.5 * order)
    p, q = _ratio(w * w, over, below) * scale, w * _ratio(w * w, over_q, below_q) * scale
    return p, q, m.cos(angle), m.sin(angle)


def _j0(m: Any, x: Any) -> Any:
    x, z = m.abs(x), x * x
    # the first factors have J0's first zeros
    near = (z - 5.783185962946784) * (z - 30.471262343662087) * _ratio(z, *_J0_NEAR)
    p, q, cos, sin = _waves(m, x, 0)
    return m.where(x <= 5.0, near, p * cos - q * sin)


def _j1(m: Any, x: Any) -> Any:
    z = x * x
    near = x * (z - 14.681970642123893) * (z - 49.21845632169460) * _ratio(z, *_J1_NEAR)
    p, q, cos, sin = _waves(m, m.abs(x), 1)
    far = p * cos - q * sin
    return m.where(m.abs(x) <= 5.0, near, m.where(x < 0.0, -far, far))


def _y0(m: Any, x: Any) -> Any:
    near = _ratio(x * x, *_Y0_NEAR) + 2.0 / math.pi * m.log(x) * _j0(m, x)
    p, q, cos, sin = _waves(m, x, 0)
    return m.where(x <= 5.0, near, p * sin + q * cos)


def _y1(m: Any, x: Any) -> Any:
    near = x * _ratio(x * x, *_Y1_NEAR) + 2.0 / math.pi * (m.log(x) * _j1(m, x) - 1.0 / x)
    p, q, cos, sin = _waves(m, x, 1)
    return m.where(m.abs(x) <= 0.0, -math.inf, m.where(x <= 5.0, near, p * sin + q * cos))


def _k(m: Any, x: Any, order: int, scaled: bool) -> Any:
    below, above = ((_K0_NEAR, _K0_FAR), (_K1_NEAR, _K1_FAR))[order]
    smooth, far = _chebyshev_series(x * x - 2.0, below), _chebyshev_series(8.0 / x - 2.0, above) / m.sqrt(x)
    log, q = m.log(0.5 * x), 0.25 * x * x
    # of x up to 2: I0 and I1 by their series
    near = log * (0.5 * x * _power_series(q, _I1)) + smooth / x if order else smooth - log * _power_series(q, _I0)
    grown = m.exp(x if scaled else -x)
    whole = m.where(x <= 2.0, near * grown, far) if scaled else m.where(x <= 2.0, near, far * grown)
    return m.where(m.abs(x) <= 0.0, math.inf, whole)


def _airy(m: Any, x: Any) -> Any:
    root, z = m.sqrt(m.abs(x)), x * x * x
    far = 2.0 / 3.0 * m.abs(x) * root
    w, scale = 1.0 / far, 1.0 / math.sqrt(math.pi) / m.sqrt(root)
    over, below, over_cos, below_cos = _AIRY_BELOW
    sine, cosine = w * w * _ratio(w * w, over, below) + 1.0, w * _ratio(w * w, over_cos, below_cos)
    wave = scale * (m.sin(far + math.pi / 4) * sine - m.cos(far + math.pi / 4) * cosine)
    decay = 0.5 * scale * _ratio(w, *_AIRY_ABOVE) * m.exp(-far)
    near = _AIRY_AT_0 * _power_series(z, _AIRY_F) + _AIRY_SLOPE_AT_0 * x * _power_series(z, _AIRY_G)
    return m.where(x < -2.09, wave, m.where(x < 2.09, near, decay))


def _erfcx(m: Any, x: Any) -> Any:
    a = m.abs(x)
    right = _chebyshev_series(2.0 - 15.0 / (a + 3.75), _ERFCX) / (a + 3.75)
    return m.where(x < 0.0, 2.0 * m.exp(x * x) - right, right)


# --- ops --------------------------------------------------------------------------------------------------------------

_X = np.array([[0.3, 1.5, 4.2], [5.5, 7.3, 25.0]])  # on both sides of where approximations meet
_BOTH = np.concatenate([_X, -_X])
_ODD = np.array([0.0, -0.0, math.nan, 1e-9, 1e-300, 100.0])

Rule = Callable[..., Any]

# Bessel's equation gives the slopes: C1 is the order 1 of C0, and C1' = C0 - C1 / x for J and Y, -K0 - K1 / x for K.
_OPS: dict[str, tuple[Callable[[Any, Any], Any], Rule | None, Any, str]] = {
    "bessel_j0": (_j0, lambda g, x: (-(g * F.bessel_j1(x)),), _BOTH, "The Bessel function of the first kind, order 0."),
    "bessel_j1": (
        _j1,
        lambda g, x, out: (g * F.where(F.eq(x, 0.0), 0.5, F.bessel_j0(x) - out / x),),
        _BOTH,
        "The Bessel function of the first kind, order 1.",
    ),
    "bessel_y0": (
        _y0,
        lambda g, x: (-(g * F.bessel_y1(x)),),
        _X,
        "The Bessel function of the second kind, order 0; NaN below 0.",
    ),
    "bessel_y1": (
        _y1,
        lambda g, x, out: (g * (F.bessel_y0(x) - out / x),),
        _X,
        "The Bessel function of the second kind, order 1; NaN below 0.",
    ),
    "modified_bessel_k0": (
        lambda m, x: _k(m, x, 0, False),
        lambda g, x: (-(g * F.modified_bessel_k1(x)),),
        _X,
        "The modified Bessel function of the second kind, order 0; NaN below 0.",
    ),
    "modified_bessel_k1": (
        lambda m, x: _k(m, x, 1, False),
        lambda g, x, out: (-(g * (F.modified_bessel_k0(x) + out / x)),),
        _X,
        "The modified Bessel function of the second kind, order 1; NaN below 0.",
    ),
    "scaled_modified_bessel_k0": (
        lambda m, x: _k(m, x, 0, True),
        lambda g, x, out: (g * (out - F.scaled_modified_bessel_k1(x)),),
        _X,
        "modified_bessel_k0(x), times e^x.",
    ),
    "scaled_modified_bessel_k1": (
        lambda m, x: _k(m, x, 1, True),
        lambda g, x, out: (g * (out - F.scaled_modified_bessel_k0(x) - out / x),),
        _X,
        "modified_bessel_k1(x), times e^x.",
    ),
    "airy_ai": (_airy, None, _BOTH, "Airy's function Ai. It has no gradient."),
    "erfcx": (
        _erfcx,
        lambda g, x, out: (g * (2.0 * x * out - 2.0 / math.sqrt(math.pi)),),
        np.concatenate([_X, -0.25 * _X[:1]]),
        "e^(x^2) erfc(x), where the factors would be infinite and 0, too.",
    ),
}


def _declare(name: str, formula: Callable[[Any, Any], Any], grad: Rule | None, tried: Any, doc: str) -> None:
    def fn(x: Node) -> Any:
        """See above: they differ in name, formula and text."""
        return (x if x.dtype.is_float else cast(x, default.float),), ()

    def decompose(x: Node) -> Node:
        return cast(formula(F, cast(x, float64)), x.dtype)

    def reference(x: Any) -> Any:
        with np.errstate(all="ignore"):
            return formula(np, np.asarray(x, np.float64)).astype(x.dtype)

    fn.__name__ = fn.__qualname__ = name
    fn.__doc__ = doc
    primitive(
        COMPOSITE,
        infer=lambda m: (m.shape, m.dtype),
        reference=reference,
        decompose=decompose,
        grad=grad,
        differentiable=grad is not None,
        cost=120,
        samples=lambda: (
            [Sample((a,)) for a in (tried, tried.T[::2], tried[0, 1, ...], tried[:0])]
            + [Sample((_ODD,), grad=False), Sample((np.arange(1, 9),), grad=False)]
        ),
        method=False,
    )(fn)


for _name, _row in _OPS.items():
    _declare(_name, *_row)
