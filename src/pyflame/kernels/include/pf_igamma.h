/* The incomplete gamma functions P(a, x) (igamma) and Q(a, x) = 1 - P (igammac) of double; floats are computed in double.
 *
 * P is a power series up to x = a, Q a continued fraction beyond; where P is near 1 for a small x, Q has a series of
 * its own; for large a and x near it, where all of these are long, both follow Temme's uniform expansion. About 1e-13
 * relative, where results are no subnormals.
 */
#ifndef PF_IGAMMA_H
#define PF_IGAMMA_H

#define PF_IGAMMA_LARGE 1000.0 /* of a: with five terms the expansion is exact to the last bits from here on */
#define PF_IGAMMA_NEAR 0.4     /* of x / a - 1 */

/* log(gamma(1 + a)) for 0 <= a; small a would be lost in 1 + a */
PF_FN double pf_lgamma1p_f64(double a) {
  if (a > 0.2) return pf_lgamma_f64(1.0 + a);
  double p = 4.374866789907488e-06;
  p = PF_FMAD(p, a, -9.439488275268397e-06);
  p = PF_FMAD(p, a, 2.050721277567069e-05);
  p = PF_FMAD(p, a, -4.492623673813314e-05);
  p = PF_FMAD(p, a, 9.945751278180853e-05);
  p = PF_FMAD(p, a, -0.00022315475845357939);
  p = PF_FMAD(p, a, 0.0005096695247430425);
  p = PF_FMAD(p, a, -0.001192753911703261);
  p = PF_FMAD(p, a, 0.0028905103307415234);
  p = PF_FMAD(p, a, -0.007385551028673986);
  p = PF_FMAD(p, a, 0.020580808427784546);
  p = PF_FMAD(p, a, -0.0673523010531981);
  p = PF_FMAD(p, a, 0.3224670334241132);
  return PF_FMAD(a * a, p, 0.42278433509846714 * a) - log1p(a); /* terms (zeta(k) - 1) (-a)^k / k */
}

/* m - log(1 + m) */
PF_FN double pf_log1p_gap_f64(double m) {
  if (fabs(m) >= PF_IGAMMA_NEAR) return m - log1p(m);
  double r = m / (2.0 + m), q = r * r, s = 0.0; /* log(1 + m) = 2 atanh(r), and m - 2 r = m r */
  for (int k = 29; k >= 3; k -= 2) s = PF_FMAD(s, q, 1.0 / k);
  return m * r - 2.0 * r * q * s;
}

/* x^a e^-x / gamma(a + 1) */
PF_FN double pf_igamma_factor_f64(double a, double x) {
  if (a < 20.0) return exp(a * log(x) - x - pf_lgamma1p_f64(a));
  double t = 1.0 / (a * a); /* Stirling's series */
  double s = (1.0 / 12 - t * (1.0 / 360 - t * (1.0 / 1260 - t * (1.0 / 1680 - t / 1188.0)))) / a;
  return exp(-a * pf_log1p_gap_f64((x - a) / a) - s) / __builtin_sqrt(2.0 * M_PI * a);
}

PF_FN double pf_igamma_series_f64(double a, double x) {
  double sum = 1.0, term = 1.0;
  for (int n = 1; n < 2000 && term > 1e-17 * sum; ++n) sum += term *= x / (a + n);
  return sum * pf_igamma_factor_f64(a, x);
}

/* x^a e^-x / gamma(a) times a continued fraction, by Lentz's method */
PF_FN double pf_igammac_fraction_f64(double a, double x) {
  double b = x + 1.0 - a, c = 1e300, d = 1.0 / b, h = d;
  for (int n = 1; n < 2000; ++n) {
    double up = n * (a - n);
    b += 2.0;
    d = 1.0 / (up * d + b);
    c = b + up / c;
    h *= c * d;
    if (fabs(c * d - 1.0) < 1e-16) break;
  }
  return h * a * pf_igamma_factor_f64(a, x);
}

/* 1 - x^a / gamma(a + 1) (1 + a * sum of (-x)^n / (n! (a + n))), for x up to 1.1 */
PF_FN double pf_igammac_series_f64(double a, double x) {
  double sum = 0.0, term = 1.0, power = a * log(x) - pf_lgamma1p_f64(a);
  for (int n = 1; n < 60; ++n) {
    term *= -x / n;
    sum += term / (a + n);
  }
  return -expm1(power) - exp(power) * a * sum;
}

/* Q for sign = 1, P for sign = -1: erfc(+-eta sqrt(a / 2)) / 2 +- e^(-a eta^2 / 2) / sqrt(2 pi a) sum of c_k(eta) a^-k,
 * with eta^2 / 2 = m - log(1 + m) for m = x / a - 1. c_0 = 1 / m - 1 / eta, eta c_k = c_(k-1)' - c_(k-1)'(0) eta / m */
PF_FN double pf_igamma_temme_f64(double a, double x, double sign) {
  double m = (x - a) / a, half = pf_log1p_gap_f64(m), eta = copysign(__builtin_sqrt(2.0 * half), m), r = 1.0 / a;
  double c0 = 2.4361948020667415e-11;
  c0 = PF_FMAD(c0, eta, -5.830772132550426e-11);
  c0 = PF_FMAD(c0, eta, -2.5514193994946248e-11);
  c0 = PF_FMAD(c0, eta, 9.14769958223679e-10);
  c0 = PF_FMAD(c0, eta, -4.382036018453353e-09);
  c0 = PF_FMAD(c0, eta, 1.0261809784240309e-08);
  c0 = PF_FMAD(c0, eta, 6.707853543401498e-09);
  c0 = PF_FMAD(c0, eta, -1.7665952736826078e-07);
  c0 = PF_FMAD(c0, eta, 8.296711340953087e-07);
  c0 = PF_FMAD(c0, eta, -1.85406221071516e-06);
  c0 = PF_FMAD(c0, eta, -2.185448510679992e-06);
  c0 = PF_FMAD(c0, eta, 3.919263178522438e-05);
  c0 = PF_FMAD(c0, eta, -0.0001787551440329218);
  c0 = PF_FMAD(c0, eta, 0.0003527336860670194);
  c0 = PF_FMAD(c0, eta, 0.0011574074074074073);
  c0 = PF_FMAD(c0, eta, -0.014814814814814815);
  c0 = PF_FMAD(c0, eta, 0.08333333333333333);
  c0 = PF_FMAD(c0, eta, -0.3333333333333333);
  double c1 = -1.0091543710600413e-09;
  c1 = PF_FMAD(c1, eta, -1.7543241719747647e-11);
  c1 = PF_FMAD(c1, eta, 1.1951628599778148e-08);
  c1 = PF_FMAD(c1, eta, -5.752545603517705e-08);
  c1 = PF_FMAD(c1, eta, 1.378633446915721e-07);
  c1 = PF_FMAD(c1, eta, 4.647127802807434e-09);
  c1 = PF_FMAD(c1, eta, -1.6120900894563446e-06);
  c1 = PF_FMAD(c1, eta, 7.64916091608111e-06);
  c1 = PF_FMAD(c1, eta, -1.8098550334489977e-05);
  c1 = PF_FMAD(c1, eta, -4.018775720164609e-07);
  c1 = PF_FMAD(c1, eta, 0.00020576131687242798);
  c1 = PF_FMAD(c1, eta, -0.0009902263374485596);
  c1 = PF_FMAD(c1, eta, 0.0026455026455026454);
  c1 = PF_FMAD(c1, eta, -0.003472222222222222);
  c1 = PF_FMAD(c1, eta, -0.001851851851851852);
  double c2 = 1.4280614206064242e-07;
  c2 = PF_FMAD(c2, eta, -6.298992138380055e-07);
  c2 = PF_FMAD(c2, eta, 1.3721957309062934e-06);
  c2 = PF_FMAD(c2, eta, 3.423578734096138e-08);
  c2 = PF_FMAD(c2, eta, -1.2760635188618728e-05);
  c2 = PF_FMAD(c2, eta, 5.2923448829120125e-05);
  c2 = PF_FMAD(c2, eta, -0.0001073665322636516);
  c2 = PF_FMAD(c2, eta, 2.0093878600823047e-06);
  c2 = PF_FMAD(c2, eta, 0.0007716049382716049);
  c2 = PF_FMAD(c2, eta, -0.0026813271604938273);
  c2 = PF_FMAD(c2, eta, 0.004133597883597883);
  double c3 = -5.6749528269915965e-06;
  c3 = PF_FMAD(c3, eta, 1.1082654115347302e-05);
  c3 = PF_FMAD(c3, eta, -2.396505113867297e-07);
  c3 = PF_FMAD(c3, eta, -7.561801671883977e-05);
  c3 = PF_FMAD(c3, eta, 0.00026772063206283885);
  c3 = PF_FMAD(c3, eta, -0.0004691894943952557);
  c3 = PF_FMAD(c3, eta, 0.00022947209362139917);
  c3 = PF_FMAD(c3, eta, 0.0006494341563786008);
  double c4 = 6.641498215465122e-05;
  c4 = PF_FMAD(c4, eta, -1.4638452578843418e-06);
  c4 = PF_FMAD(c4, eta, -0.0002990724803031902);
  c4 = PF_FMAD(c4, eta, 0.0007840392217200666);
  c4 = PF_FMAD(c4, eta, -0.0008618882909167117);
  double sum = c0 + r * (c1 + r * (c2 + r * (c3 + r * c4)));
  double rest = exp(-a * half) / __builtin_sqrt(2.0 * M_PI * a) * sum;
  return 0.5 * erfc(sign * eta * __builtin_sqrt(0.5 * a)) + sign * rest;
}

/* The ends: NaN below 0 and where both are 0 or infinite; else P is 0 or 1. -1 where there is something to compute. */
PF_FN double pf_igamma_end_f64(double a, double x) {
  if (!(a >= 0.0) || !(x >= 0.0)) return NAN;
  if (a == 0.0) return x > 0.0 ? 1.0 : NAN;
  if (x == 0.0) return 0.0;
  if (a == INFINITY) return x == INFINITY ? NAN : 0.0;
  return x == INFINITY ? 1.0 : -1.0;
}

PF_FN double pf_igammac_f64(double a, double x) {
  double end = pf_igamma_end_f64(a, x);
  if (!(end == -1.0)) return 1.0 - end;
  if (a >= PF_IGAMMA_LARGE && fabs(x - a) < PF_IGAMMA_NEAR * a) return pf_igamma_temme_f64(a, x, 1.0);
  if (x > 1.1) return x < a ? 1.0 - pf_igamma_series_f64(a, x) : pf_igammac_fraction_f64(a, x);
  double edge = x <= 0.5 ? -0.4 / log(x) : 1.1 * x; /* of a: beyond it P is small */
  return a > edge ? 1.0 - pf_igamma_series_f64(a, x) : pf_igammac_series_f64(a, x);
}

PF_FN double pf_igamma_f64(double a, double x) {
  double end = pf_igamma_end_f64(a, x);
  if (!(end == -1.0)) return end;
  if (a >= PF_IGAMMA_LARGE && fabs(x - a) < PF_IGAMMA_NEAR * a) return pf_igamma_temme_f64(a, x, -1.0);
  return x > 1.0 && x > a ? 1.0 - pf_igammac_f64(a, x) : pf_igamma_series_f64(a, x);
}

PF_FN float pf_igamma_f32(float a, float x) { return (float)pf_igamma_f64((double)a, (double)x); }
PF_FN float pf_igammac_f32(float a, float x) { return (float)pf_igammac_f64((double)a, (double)x); }

#endif
