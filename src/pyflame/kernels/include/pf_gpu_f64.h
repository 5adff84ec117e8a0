/* Functions of double for AMD GPUs, which have no libm without ROCm's device libraries. CUDA brings its own.
 *
 * Straight-line code without tables. ulp away from glibc's, on random arguments (tests/null/test_gpu_text.py):
 *   1   exp exp2 expm1 log log2 log10 log1p atan asinh acosh atanh erf pow, sin and cos of |x| < 1e4
 *   2   tan        3   asin acos sinh cosh tanh        4   erfc, lgamma above 10 (below: 1e-14 absolute)
 * sin, cos and tan of larger arguments keep an absolute error of about |x| 2^-106 + 1e-16. Annex F's special values.
 */
#ifndef PF_GPU_F64_H
#define PF_GPU_F64_H

#define PF_LN2_HI 6.93147180369123816490e-01 /* 21 bits short, so that n times it is exact */
#define PF_LN2_LO 1.90821492927058770002e-10

/* ---- exponentials ------------------------------------------------------------------------------------------ */

/* expm1(r) for |r| <= ln2 / 2: Taylor to degree 13, 4e-18. */
PF_FN double pf_expm1_reduced_f64(double r) {
  double q = 1.6059043836821613e-10;
  q = PF_FMAD(q, r, 2.08767569878681e-09);
  q = PF_FMAD(q, r, 2.505210838544172e-08);
  q = PF_FMAD(q, r, 2.755731922398589e-07);
  q = PF_FMAD(q, r, 2.7557319223985893e-06);
  q = PF_FMAD(q, r, 2.48015873015873e-05);
  q = PF_FMAD(q, r, 1.984126984126984e-04);
  q = PF_FMAD(q, r, 1.388888888888889e-03);
  q = PF_FMAD(q, r, 8.333333333333333e-03);
  q = PF_FMAD(q, r, 4.1666666666666664e-02);
  q = PF_FMAD(q, r, 1.6666666666666666e-01);
  q = PF_FMAD(q, r, 0.5);
  return PF_FMAD(r * r, q, r);
}
/* y * 2^n in two steps, so that denormals round once and 2^1024 is reached. */
PF_FN double pf_scale_f64(double y, int n) {
  int half = n / 2;
  double a = pf_from_bits_f64((uint64_t)(1023 + half) << 52), b = pf_from_bits_f64((uint64_t)(1023 + n - half) << 52);
  return y * a * b;
}
PF_FN double pf_libm_exp(double x) {
  double c = x > 710.0 ? 710.0 : x;
  c = c < -746.0 ? -746.0 : c;
  double n = __builtin_rint(c * 1.4426950408889634);
  double r = PF_FMAD(n, -PF_LN2_LO, PF_FMAD(n, -PF_LN2_HI, c));
  return x != x ? x : pf_scale_f64(1.0 + pf_expm1_reduced_f64(r), (int)n);
}
PF_FN double pf_libm_exp2(double x) {
  double c = x > 1025.0 ? 1025.0 : x;
  c = c < -1076.0 ? -1076.0 : c;
  double n = __builtin_rint(c);
  return x != x ? x : pf_scale_f64(1.0 + pf_expm1_reduced_f64((c - n) * 0.6931471805599453), (int)n);
}
/* e^x - 1 = 2^n expm1(r) + (2^n - 1) */
PF_FN double pf_libm_expm1(double x) {
  double c = x > 709.7 ? 709.7 : x;
  c = c < -50.0 ? -50.0 : c;
  double n = __builtin_rint(c * 1.4426950408889634);
  double r = PF_FMAD(n, -PF_LN2_LO, PF_FMAD(n, -PF_LN2_HI, c));
  double p = pf_expm1_reduced_f64(r), s = pf_from_bits_f64((uint64_t)(1022 + (int)n) << 52);
  double y = 2.0 * PF_FMAD(p, s, s - 0.5);
  y = x > 709.782712893384 ? (double)PF_INF : x > 709.7 ? pf_libm_exp(x) : y;
  return x != x || x == 0.0 ? x : y;
}

/* ---- logarithms -------------------------------------------------------------------------------------------- */

/* x = 2^e (1 + f), 2/3 <= 1 + f < 4/3, for positive finite x. */
PF_FN double pf_log_split_f64(double x, double *e) {
  int tiny = x < 2.2250738585072014e-308;
  uint64_t u = pf_bits_f64(tiny ? x * 0x1p54 : x);
  uint64_t d = u - 0x3fe5555555555555ull;
  *e = (double)((int64_t)d >> 52) - (tiny ? 54.0 : 0.0);
  return pf_from_bits_f64(u - (d & 0xfff0000000000000ull)) - 1.0;
}
/* log(1 + f) = 2 atanh(s), s = f / (2 + f), |s| <= 1/5: returns 2 (s^3/3 + s^5/5 + ...), 7e-19 of the whole. */
PF_FN double pf_atanh_tail_f64(double s) {
  double t = s * s;
  double q = 2.0 / 23;
  q = PF_FMAD(q, t, 2.0 / 21);
  q = PF_FMAD(q, t, 2.0 / 19);
  q = PF_FMAD(q, t, 2.0 / 17);
  q = PF_FMAD(q, t, 2.0 / 15);
  q = PF_FMAD(q, t, 2.0 / 13);
  q = PF_FMAD(q, t, 2.0 / 11);
  q = PF_FMAD(q, t, 2.0 / 9);
  q = PF_FMAD(q, t, 2.0 / 7);
  q = PF_FMAD(q, t, 2.0 / 5);
  q = PF_FMAD(q, t, 2.0 / 3);
  return q * t * s;
}
PF_FN double pf_log_special_f64(double x, double y) {
  y = x < (double)PF_INF ? y : x;
  y = x == 0.0 ? -(double)PF_INF : y;
  return x < 0.0 ? (double)PF_NAN : y;
}
/* log x as hi + lo, lo with the rounding errors of hi; positive finite x. */
PF_FN double pf_log_pair_f64(double x, double *lo) {
  double e, f = pf_log_split_f64(x, &e);
  double d = 2.0 + f, d_lo = f - (d - 2.0);
  double s = f / d, s_lo = PF_FMAD(-s, d_lo, PF_FMAD(-s, d, f)) / d;
  double a = e * PF_LN2_HI, b = 2.0 * s;
  double h = a + b;
  double l = (a - (h - (h - a))) + (b - (h - a));
  l += PF_FMAD(e, PF_LN2_LO, 2.0 * s_lo) + pf_atanh_tail_f64(s);
  double hi = h + l;
  *lo = l - (hi - h);
  return hi;
}
PF_FN double pf_libm_log(double x) {
  double lo;
  return pf_log_special_f64(x, pf_log_pair_f64(x, &lo));
}
PF_FN double pf_libm_log2(double x) {
  double e, f = pf_log_split_f64(x, &e), lo, hi = pf_log_pair_f64(1.0 + f, &lo);
  return pf_log_special_f64(x, e + PF_FMAD(hi, 1.4426950408889634, PF_FMAD(hi, 2.0355273740931033e-17, lo * 1.4426950408889634)));
}
PF_FN double pf_libm_log10(double x) {
  double lo, hi = pf_log_pair_f64(x, &lo);
  return pf_log_special_f64(x, PF_FMAD(hi, 0.4342944819032518, PF_FMAD(hi, 1.098319650216765e-17, lo * 0.4342944819032518)));
}
/* log(1 + x) = log(u) + (x - (u - 1)) / u, u = fl(1 + x) */
PF_FN double pf_libm_log1p(double x) {
  double u = 1.0 + x, lo, hi = pf_log_pair_f64(u, &lo);
  double y = hi + (lo + (x - (u - 1.0)) / u);
  y = __builtin_fabs(x) < 1e-8 ? x - 0.5 * x * x : y;
  y = x < (double)PF_INF ? y : x;
  y = x == -1.0 ? -(double)PF_INF : y;
  y = x == 0.0 ? x : y;
  return x < -1.0 ? (double)PF_NAN : y;
}
/* 2^(y log2 x) with log x as a pair; then C's special values. */
PF_FN double pf_libm_pow(double x, double y) {
  double a = __builtin_fabs(x), lo, hi = pf_log_pair_f64(a, &lo);
  hi = a < (double)PF_INF ? hi : a;
  hi = a == 0.0 ? -(double)PF_INF : hi;
  lo = a < (double)PF_INF && a != 0.0 ? lo : 0.0;
  double p = y * hi;
  double rest = __builtin_fabs(p) < (double)PF_INF ? PF_FMAD(y, lo, PF_FMAD(y, hi, -p)) : 0.0;
  double w = pf_libm_exp(p);
  w = w < (double)PF_INF ? PF_FMAD(w, rest, w) : w;
  int whole = __builtin_trunc(y) == y, odd = whole && __builtin_trunc(0.5 * y) != 0.5 * y;
  w = a == 1.0 && __builtin_fabs(y) == (double)PF_INF ? 1.0 : w;
  w = odd ? __builtin_copysign(w, x) : w;
  w = x < 0.0 && a < (double)PF_INF && !whole ? (double)PF_NAN : w;
  w = x != x || y != y ? x + y : w;
  return x == 1.0 || y == 0.0 ? 1.0 : w;
}

/* ---- trigonometry ------------------------------------------------------------------------------------------ */

/* a = n pi/2 + r: pi/2 in three parts. */
PF_FN double pf_trig_reduce_f64(double a, int *quadrant) {
  double n = __builtin_rint(a * 0.6366197723675814);
  double r = PF_FMAD(n, -1.5707963267948966, a);
  r = PF_FMAD(n, -6.123233995736766e-17, r);
  r = PF_FMAD(n, 1.4973849048591833e-33, r);
  *quadrant = (int)(int64_t)(n - 4.0 * __builtin_floor(n * 0.25));
  return r;
}
PF_FN double pf_sin_poly_f64(double r) {
  double t = r * r, p = 2.8114572543455206e-15;
  p = PF_FMAD(p, t, -7.647163731819816e-13);
  p = PF_FMAD(p, t, 1.6059043836821613e-10);
  p = PF_FMAD(p, t, -2.505210838544172e-08);
  p = PF_FMAD(p, t, 2.7557319223985893e-06);
  p = PF_FMAD(p, t, -1.984126984126984e-04);
  p = PF_FMAD(p, t, 8.333333333333333e-03);
  p = PF_FMAD(p, t, -1.6666666666666666e-01);
  return PF_FMAD(r * t, p, r);
}
PF_FN double pf_cos_poly_f64(double r) {
  double t = r * r, p = -1.5619206968586225e-16;
  p = PF_FMAD(p, t, 4.779477332387385e-14);
  p = PF_FMAD(p, t, -1.1470745597729725e-11);
  p = PF_FMAD(p, t, 2.08767569878681e-09);
  p = PF_FMAD(p, t, -2.755731922398589e-07);
  p = PF_FMAD(p, t, 2.48015873015873e-05);
  p = PF_FMAD(p, t, -1.388888888888889e-03);
  p = PF_FMAD(p, t, 4.1666666666666664e-02);
  p = PF_FMAD(p, t, -0.5);
  return PF_FMAD(p, t, 1.0);
}
PF_FN double pf_sin_quadrant_f64(double r, int quadrant) {
  double y = quadrant & 1 ? pf_cos_poly_f64(r) : pf_sin_poly_f64(r);
  return quadrant & 2 ? -y : y;
}
PF_FN double pf_libm_sin(double x) {
  int q;
  double r = pf_trig_reduce_f64(x, &q);
  return x == 0.0 ? x : pf_sin_quadrant_f64(r, q);
}
PF_FN double pf_libm_cos(double x) {
  int q;
  double r = pf_trig_reduce_f64(x, &q);
  return pf_sin_quadrant_f64(r, q + 1);
}
PF_FN double pf_libm_tan(double x) {
  int q;
  double r = pf_trig_reduce_f64(x, &q), s = pf_sin_poly_f64(r), c = pf_cos_poly_f64(r);
  return x == 0.0 ? x : q & 1 ? -c / s : s / c;
}
/* |x| <= tan(pi/8), 2^-58; above it pi/4 + atan((a - 1) / (a + 1)), above its inverse pi/2 - atan(1/a). */
PF_FN double pf_libm_atan(double x) {
  double a = __builtin_fabs(x);
  int far = a > 2.414213562373095, mid = a > 0.4142135623730951;
  double s = far ? -1.0 / a : mid ? (a - 1.0) / (a + 1.0) : a, t = s * s;
  double p = 0.01628357235648259;
  p = PF_FMAD(p, t, -0.0345685906686069);
  p = PF_FMAD(p, t, 0.045515165635903104);
  p = PF_FMAD(p, t, -0.052304374642516874);
  p = PF_FMAD(p, t, 0.05878926715756726);
  p = PF_FMAD(p, t, -0.066664246872465);
  p = PF_FMAD(p, t, 0.07692296363979952);
  p = PF_FMAD(p, t, -0.09090908753118594);
  p = PF_FMAD(p, t, 0.11111111105147764);
  p = PF_FMAD(p, t, -0.14285714285659748);
  p = PF_FMAD(p, t, 0.19999999999999804);
  p = PF_FMAD(p, t, -0.3333333333333333);
  double y = PF_FMAD(s * t, p, s);
  y = far ? 1.5707963267948966 + (y + 6.123233995736766e-17) : mid ? 0.7853981633974483 + (y + 3.061616997868383e-17) : y;
  return __builtin_copysign(y, x);
}
PF_FN double pf_libm_atan2(double y, double x) {
  double ay = __builtin_fabs(y), ax = __builtin_fabs(x);
  int same = ay == ax && (ax == (double)PF_INF);
  double r = ax == 0.0 && ay == 0.0 ? 0.0 : same ? 1.0 : ay / ax;
  double p = pf_libm_atan(r);
  p = pf_bits_f64(x) >> 63 ? 3.141592653589793 - (p - 1.2246467991473532e-16) : p;
  return x != x || y != y ? x + y : __builtin_copysign(p, y);
}
PF_FN double pf_libm_asin(double x) { return pf_libm_atan2(x, __builtin_sqrt((1.0 - x) * (1.0 + x))); }
PF_FN double pf_libm_acos(double x) { return pf_libm_atan2(__builtin_sqrt((1.0 - x) * (1.0 + x)), x); }

/* ---- hyperbolic -------------------------------------------------------------------------------------------- */

PF_FN double pf_libm_sinh(double x) {
  double a = __builtin_fabs(x), t = pf_libm_expm1(a < 22.0 ? a : 22.0), h = pf_libm_exp(0.5 * a);
  double y = a < 22.0 ? 0.5 * (t + t / (t + 1.0)) : 0.5 * h * h;
  return x != x ? x : __builtin_copysign(y, x);
}
PF_FN double pf_libm_cosh(double x) {
  double a = __builtin_fabs(x), h = pf_libm_exp(0.5 * a), t = h * h;
  return a < 22.0 ? 0.5 * (t + 1.0 / t) : 0.5 * h * h;
}
PF_FN double pf_libm_tanh(double x) {
  double a = __builtin_fabs(x), t = pf_libm_expm1(2.0 * (a < 22.0 ? a : 22.0));
  return x != x ? x : __builtin_copysign(t / (t + 2.0), x);
}
PF_FN double pf_libm_asinh(double x) {
  double a = __builtin_fabs(x), t = a * a;
  double y = a < 1e9 ? pf_libm_log1p(a + t / (1.0 + __builtin_sqrt(t + 1.0))) : pf_libm_log(a) + 0.6931471805599453;
  return __builtin_copysign(y, x);
}
PF_FN double pf_libm_acosh(double x) {
  double t = x - 1.0;
  return x < 1e9 ? pf_libm_log1p(t + __builtin_sqrt(t * (x + 1.0))) : pf_libm_log(x) + 0.6931471805599453;
}
PF_FN double pf_libm_atanh(double x) {
  double a = __builtin_fabs(x);
  return __builtin_copysign(0.5 * pf_libm_log1p(2.0 * a / (1.0 - a)), x);
}

/* ---- error function and gamma ------------------------------------------------------------------------------ */

/* a >= 1: e^(-a^2) P(q) / (1 + 2a), q = (a - 4) / (a + 4), 2^-65 */
PF_FN double pf_erfc_far_f64(double a) {
  double c = a < 28.0 ? a : 28.0, q = (c - 4.0) / (c + 4.0);
  double p = 4.529704430362367e-09;
  p = PF_FMAD(p, q, -1.2119666465501294e-08);
  p = PF_FMAD(p, q, -2.4133173606115747e-08);
  p = PF_FMAD(p, q, 1.0877288406792579e-07);
  p = PF_FMAD(p, q, 8.113791671069694e-08);
  p = PF_FMAD(p, q, -8.2490282933586e-07);
  p = PF_FMAD(p, q, 2.8976368740283807e-07);
  p = PF_FMAD(p, q, 5.70950745920389e-06);
  p = PF_FMAD(p, q, -1.1220393371116355e-05);
  p = PF_FMAD(p, q, -2.439910914080203e-05);
  p = PF_FMAD(p, q, 0.0001506212347275764);
  p = PF_FMAD(p, q, -0.00019925672949056228);
  p = PF_FMAD(p, q, -0.0007577732100292642);
  p = PF_FMAD(p, q, 0.005031969984828199);
  p = PF_FMAD(p, q, -0.016197734066735848);
  p = PF_FMAD(p, q, 0.03716751553673277);
  p = PF_FMAD(p, q, -0.06633036581161061);
  p = PF_FMAD(p, q, 0.09373283499839212);
  p = PF_FMAD(p, q, -0.10103906603632595);
  p = PF_FMAD(p, q, 0.06809705425469163);
  p = PF_FMAD(p, q, 0.015379652102620048);
  p = PF_FMAD(p, q, -0.1396211168405625);
  p = PF_FMAD(p, q, 1.2329951186255526);
  double s = c * c, lost = PF_FMAD(c, c, -s), d = p / (1.0 + 2.0 * c);
  return pf_libm_exp(-s) * PF_FMAD(-lost, d, d);
}
/* |x| <= 1: x + x P(x^2), 2^-62 */
PF_FN double pf_erf_near_f64(double x) {
  double t = x * x, p = 5.957176147748911e-11;
  p = PF_FMAD(p, t, -1.1372848856791674e-09);
  p = PF_FMAD(p, t, 1.4659775274047436e-08);
  p = PF_FMAD(p, t, -1.6350312701054695e-07);
  p = PF_FMAD(p, t, 1.6461000484121368e-06);
  p = PF_FMAD(p, t, -1.4925595266831182e-05);
  p = PF_FMAD(p, t, 0.0001205533111164271);
  p = PF_FMAD(p, t, -0.000854832698083379);
  p = PF_FMAD(p, t, 0.0052239776248180145);
  p = PF_FMAD(p, t, -0.026866170645076792);
  p = PF_FMAD(p, t, 0.11283791670954879);
  p = PF_FMAD(p, t, -0.3761263890318375);
  p = PF_FMAD(p, t, 0.1283791670955126);
  return PF_FMAD(p, x, x);
}
PF_FN double pf_libm_erf(double x) {
  double a = __builtin_fabs(x);
  return x != x ? x : a < 1.0 ? pf_erf_near_f64(x) : __builtin_copysign(1.0 - pf_erfc_far_f64(a), x);
}
PF_FN double pf_libm_erfc(double x) {
  double a = __builtin_fabs(x);
  if (x != x) return x;
  if (a < 1.0) return 1.0 - pf_erf_near_f64(x);
  return x < 0.0 ? 2.0 - pf_erfc_far_f64(a) : pf_erfc_far_f64(a);
}
/* Recurrence up to 10, then Stirling's series; reflection below 1/2. */
PF_FN double pf_libm_lgamma_r(double x, int *sign) {
  *sign = 1;
  if (x != x || __builtin_fabs(x) == (double)PF_INF) return x * x;
  if (x == 1.0 || x == 2.0) return 0.0;
  if (__builtin_fabs(x) < 1e-16) {
    *sign = pf_bits_f64(x) >> 63 ? -1 : 1;
    return -pf_libm_log(__builtin_fabs(x));
  }
  int reflect = x < 0.5;
  double z = reflect ? 1.0 - x : x, shifted = 1.0;
  for (; z < 10.0; z += 1.0) shifted *= z;
  double r = 1.0 / z, t = r * r;
  double s = r * (1.0 / 12 - t * (1.0 / 360 - t * (1.0 / 1260 - t * (1.0 / 1680 - t * (1.0 / 1188 - t * (691.0 / 360360 - t / 156))))));
  double y = (z - 0.5) * pf_libm_log(z) - z + 0.9189385332046728 + s - pf_libm_log(shifted);
  if (!reflect) return y;
  double part = __builtin_fabs(x - __builtin_rint(x)), wave = pf_libm_sin(3.141592653589793 * part);
  *sign = x < 0.0 && (int64_t)__builtin_floor(x) % 2 ? -1 : 1;
  return part == 0.0 ? (double)PF_INF : 1.1447298858494002 - pf_libm_log(wave) - y;
}
/* The significand of a positive number, with its highest bit in front, and its exponent; subnormals are shifted up. */
PF_FN uint64_t pf_significand_f64(uint64_t bits, int *exponent) {
  int up = bits >> 52 ? 0 : __builtin_clzll(bits) - 11;
  *exponent = up ? 1 - up : (int)(bits >> 52);
  return up ? bits << up : (bits & 0xfffffffffffffull) | 1ull << 52;
}
/* The exact rest of x / y: of compilers only those of LLVM 21 and newer give it. Quotients below 2^52 may round up to the
 * next integer, which shows in the sign; others are divided as on paper, eleven bits at a time. */
PF_FN double pf_libm_fmod(double x, double y) {
  uint64_t a = pf_bits_f64(__builtin_fabs(x)), b = pf_bits_f64(__builtin_fabs(y)), infinity = 2047ull << 52;
  if (a >= infinity || b > infinity || b == 0) return (double)PF_NAN;
  if (a < b) return x;
  double u = __builtin_fabs(x), v = __builtin_fabs(y), q = u / v;
  if (q < 0x1p52) {
    double r = PF_FMAD(-__builtin_trunc(q), v, u);
    return __builtin_copysign(r < 0.0 ? r + v : r, x);
  }
  int left, e;
  uint64_t r = pf_significand_f64(a, &left), m = pf_significand_f64(b, &e);
  left -= e;
  for (r %= m; left > 0 && r; left -= 11) r = (r << (left < 11 ? left : 11)) % m;
  if (r == 0) return __builtin_copysign(0.0, x);
  int up = __builtin_clzll(r) - 11, to = e - up;
  uint64_t bits = to > 0 ? (r << up) - (1ull << 52) + ((uint64_t)to << 52) : r << up >> (1 - to);
  return __builtin_copysign(pf_from_bits_f64(bits), x);
}

#endif
