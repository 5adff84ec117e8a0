/* Elementary functions of float for generated CPU kernels; include pf_math.h, which gives them generic names.
 *
 * Why not libm: gcc vectorises no call to it without -ffast-math, and a fused loop with one scalar call runs 10 times
 * slower. So every function here is straight-line code: no branch, table or call. Selections are `cond ? a : b` on values
 * that are there already, and rounding to an integer is the addition of 1.5 * 2^23, which any target vectorises. A loop
 * becomes 512-bit code under -O3 -fno-math-errno -fno-trapping-math -mprefer-vector-width=512 (never -ffast-math).
 *
 * Largest error in ulp over the whole of float32 (every 7th bit pattern; FMA target), and GB/s of read + write of one
 * core (4th gen. Xeon, gcc 12, 16M floats; scaling by a constant moves 14.2, NumPy's exp 11.5, log 9.8, tanh 11.4):
 *             ulp  GB/s              ulp  GB/s              ulp  GB/s              ulp  GB/s
 *   exp       1.02  13.0    sin       1.53  10.2    sinh      1.62  10.9    erfc      4.33   7.7
 *   exp2      0.87  13.4    cos       1.54   9.9    cosh      1.48  10.8    sigmoid   2.30  11.0
 *   expm1     1.51  13.1    tan       2.66   9.5    tanh      2.53  11.9    silu      2.69  10.5
 *   log       0.94  10.0    asin      1.88  13.6    asinh     2.03   7.7    softplus  1.94   5.0
 *   log2      1.07   9.6    acos      1.26  13.2    acosh     1.95   9.1    rsqrt     1.49  13.5
 *   log10     1.01  10.7    atan      1.30  12.3    atanh     2.19   8.2    pow       0.52   4.0
 *   log1p     1.65  11.0    atan2     1.50  13.0    erf       1.00   8.7    gelu_tanh    *   9.6
 *   sin, cos, tan: |x| < 2^47 (2^20 without FMA), NaN beyond. sigmoid, silu: 0 below x = -88.4, where sigmoid is denormal.
 *   pow, atan2: 10M random pairs. erfinv: 3.3 ulp. * gelu_tanh: 3 ulp for x > -1, 13 for x > -3, 50 for x > -6; gelu: 5, 6
 *   and 18. Their slopes: 2e-7 absolute. NaN gives NaN, infinities and signed zeros follow C's Annex F (as NumPy and
 *   PyTorch do), denormals are kept.
 * A GPU computes powers of two and reciprocals in hardware: where pf_gpu.h brings PF_HARDWARE_EXP, PF_HARDWARE_EXP2 and
 * PF_HARDWARE_RECIPROCAL, exp, sigmoid, silu, tanh and both gelus are made of them, an ulp less exact.
 */
#ifndef PF_MATH_F32_H
#define PF_MATH_F32_H

#ifndef PF_GPU_H /* which brings its own of what follows */
#include <math.h>
#include <stdint.h>

/* gcc's jump threading copies code for each outcome of a selection; vectorised, both copies run: up to 1.5x slower. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-thread-jumps")
#endif
/* Always inlined: a call left in a loop would keep it from being vectorised. */
#define PF_FN static inline __attribute__((always_inline, unused))
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
#define PF_FMA(a, b, c) __builtin_fmaf(a, b, c)
#define PF_FMAD(a, b, c) __builtin_fma(a, b, c)
#define PF_HAS_FMA 1
#define PF_TRIG_LIMIT 0x1p47f
#else
#define PF_FMA(a, b, c) ((a) * (b) + (c))
#define PF_FMAD(a, b, c) ((a) * (b) + (c))
#define PF_HAS_FMA 0
#define PF_TRIG_LIMIT 0x1p20f
#endif
#endif

#define PF_INF __builtin_inff()
#define PF_NAN __builtin_nanf("")

PF_FN uint32_t pf_bits_f32(float x) {
  uint32_t u;
  __builtin_memcpy(&u, &x, 4);
  return u;
}
PF_FN float pf_from_bits_f32(uint32_t u) {
  float x;
  __builtin_memcpy(&x, &u, 4);
  return x;
}
PF_FN uint64_t pf_bits_f64(double x) {
  uint64_t u;
  __builtin_memcpy(&u, &x, 8);
  return u;
}
PF_FN double pf_from_bits_f64(uint64_t u) {
  double x;
  __builtin_memcpy(&x, &u, 8);
  return x;
}
/* Clamps of a variable that keep NaN. A comparison with NaN is false; gcc makes seven instructions of NEON of it, and one
 * of fminf, which drops NaN. */
#if defined(__aarch64__) && !defined(PF_GPU_H)
#define PF_AT_MOST(x, high) x = x == x ? __builtin_fminf(x, high) : x
#define PF_CLAMP(x, low, high) x = x == x ? __builtin_fmaxf(__builtin_fminf(x, high), low) : x
#else
#define PF_AT_MOST(x, high) x = x > high ? high : x
#define PF_CLAMP(x, low, high) PF_AT_MOST(x, high), x = x < low ? low : x
#endif
/* The rounding error of p = a * b, exactly. */
PF_FN float pf_mul_err_f32(float a, float b, float p) {
#if PF_HAS_FMA
  return __builtin_fmaf(a, b, -p);
#else
  return (float)((double)a * (double)b - (double)p);
#endif
}

/* ---- exponentials ------------------------------------------------------------------------------------------ */

/* x = n ln2 + r with |r| <= ln2/2: returns expm1(r) and stores n (as 1.5 * 2^23 + n, so its low bits are n).
 * ln2 is split so that n * hi is exact for |n| < 2^9. Degree 6, 2^-26.1. */
PF_FN float pf_exp_reduced_f32(float x, float *shifted) {
  float t = PF_FMA(x, 1.44269504f, 12582912.0f);
  float n = t - 12582912.0f;
  float r = PF_FMA(n, -0.693145752f, x);
  r = PF_FMA(n, -1.42860677e-06f, r);
  float q = 0.00138706923f;
  q = PF_FMA(q, r, 0.00836627185f);
  q = PF_FMA(q, r, 0.0416674353f);
  q = PF_FMA(q, r, 0.166665465f);
  q = PF_FMA(q, r, 0.49999997f);
  *shifted = t;
  return PF_FMA(r * r, q, r);
}
/* 2^(n + k) as a float, for results inside the normal range. `shifted` is 1.5 * 2^23 + n. */
PF_FN float pf_pow2_f32(float shifted, int k) {
  return pf_from_bits_f32((pf_bits_f32(shifted) << 23) + ((uint32_t)(127 + k) << 23));
}
/* y * 2^n for any n that exp can have: 2^(n +- 64) is in range, and the last multiplication overflows to inf or
 * rounds to a denormal as it should. `negative` is n <= 0. */
PF_FN float pf_scale_f32(float y, float shifted, int negative) {
  uint32_t u = (pf_bits_f32(shifted) << 23) + (negative ? (127u + 64u) << 23 : (127u - 64u) << 23);
  return y * pf_from_bits_f32(u) * (negative ? 0x1p-64f : 0x1p64f);
}
#ifdef PF_HARDWARE_EXP
PF_FN float pf_exp_f32(float x) { return PF_HARDWARE_EXP(x); }
PF_FN float pf_exp_normal_f32(float x) { return PF_HARDWARE_EXP(x); }
/* e^x for an x that is a rounded difference: as far off as if x had one more rounding, and 0 where it is denormal. */
PF_FN float pf_exp_near_f32(float x) { return PF_HARDWARE_EXP2(x * 1.44269504f); }
PF_FN float pf_exp_beside_1_f32(float x) { return pf_exp_near_f32(x); }
PF_FN float pf_bell_f32(float x) { return PF_HARDWARE_EXP2(x * x * -0.72134752f); }
#define PF_QUOTIENT(a, b) ((a) * PF_HARDWARE_RECIPROCAL(b)) /* b in the normal range, or infinite */
#else
#define PF_QUOTIENT(a, b) ((a) / (b))
PF_FN float pf_exp_f32(float x) {
  float t;
  PF_CLAMP(x, -105.0f, 90.0f);
  float p = pf_exp_reduced_f32(x, &t);
  return pf_scale_f32(1.0f + p, t, x < 0.0f);
}
/* e^x where the caller needs no denormal: x below -87 counts as -87, x above 88.4 gives inf. */
PF_FN float pf_exp_normal_f32(float x) {
  float t;
  PF_CLAMP(x, -87.0f, 88.5f);
  float p = pf_exp_reduced_f32(x, &t);
  return (1.0f + p) * pf_pow2_f32(t, 0);
}
PF_FN float pf_exp_near_f32(float x) { return pf_exp_f32(x); }
/* e^x beside 1, of an x that is rounded already: it matters how far off it is, not by how much of itself. */
PF_FN float pf_exp_beside_1_f32(float x) { return pf_exp_normal_f32(x); }
/* e^(-x^2 / 2); 0 below e^-87, where what follows from it would be denormal */
PF_FN float pf_bell_f32(float x) {
  float t, y = x * x * -0.5f, p = pf_exp_reduced_f32(y < -87.0f ? -87.0f : y, &t);
  return y < -87.0f ? 0.0f : (1.0f + p) * pf_pow2_f32(t, 0);
}
#endif

/* 2^x: the reduction is exact, degree 6, 2^-28.3. */
PF_FN float pf_exp2_f32(float x) {
  PF_CLAMP(x, -151.0f, 129.0f);
  float t = x + 12582912.0f;
  float r = x - (t - 12582912.0f);
  float q = 0.000153264715f;
  q = PF_FMA(q, r, 0.00133908063f);
  q = PF_FMA(q, r, 0.00961850584f);
  q = PF_FMA(q, r, 0.0555035993f);
  q = PF_FMA(q, r, 0.240226477f);
  q = PF_FMA(q, r, 0.693147182f);
  return pf_scale_f32(PF_FMA(q, r, 1.0f), t, x < 0.0f);
}

/* e^x - 1 = 2 (2^(n-1) expm1(r) + (2^(n-1) - 1/2)); the halving keeps 2^128 in range. */
PF_FN float pf_expm1_f32(float x) {
  float t;
  float c = x;
  PF_CLAMP(c, -20.0f, 90.0f);
  float p = pf_exp_reduced_f32(c, &t);
  float s = pf_pow2_f32(t, -1);
  float y = 2.0f * PF_FMA(p, s, s - 0.5f);
  y = x > 88.7228394f ? PF_INF : y;
  return fabsf(x) < 1e-10f ? x : y;
}

/* ---- logarithms -------------------------------------------------------------------------------------------- */

/* x = 2^e (1 + f) with 2/3 <= 1 + f < 4/3; denormals are scaled up first. x <= 0, inf, NaN: any values. */
PF_FN float pf_log_split_f32(float x, float *e) {
  int tiny = x < 1.17549435e-38f;
  uint32_t u = pf_bits_f32(tiny ? x * 8388608.0f : x);
  uint32_t d = u - 0x3f2aaaabu;
  *e = (float)((int32_t)d >> 23) - (tiny ? 23.0f : 0.0f);
  return pf_from_bits_f32(u - (d & 0xff800000u)) - 1.0f;
}
/* log(1 + f) - f, degree 10, 2^-27.7 of log(1 + f). */
PF_FN float pf_log_tail_f32(float f) {
  float q = -0.128800407f;
  q = PF_FMA(q, f, 0.139845937f);
  q = PF_FMA(q, f, -0.121874794f);
  q = PF_FMA(q, f, 0.14005734f);
  q = PF_FMA(q, f, -0.166801959f);
  q = PF_FMA(q, f, 0.200104266f);
  q = PF_FMA(q, f, -0.249998063f);
  q = PF_FMA(q, f, 0.333332151f);
  return f * f * PF_FMA(q, f, -0.5f);
}
/* e ln2 + f + tail, the large terms added with their rounding error kept. */
PF_FN float pf_log_sum_f32(float e, float f, float tail) {
  float h = e * 0.693145752f;
  float a = h + f;
  float b = f - (a - h);
  return a + (b + PF_FMA(e, 1.42860677e-06f, tail));
}
/* e * scale_e + (f + tail) * scale, as log2 and log10 need it; scale_e and scale come as hi + lo. */
PF_FN float pf_log_scaled_sum_f32(float e, float f, float tail, float e_hi, float e_lo, float s_hi, float s_lo) {
  float p = f * s_hi;
  float l = PF_FMA(f, s_lo, pf_mul_err_f32(f, s_hi, p));
  float h = e * e_hi;
  float a = h + p;
  float b = p - (a - h);
  return a + (b + PF_FMA(e, e_lo, PF_FMA(tail, s_hi, l)));
}
PF_FN float pf_log_special_f32(float x, float y) {
  y = x < PF_INF ? y : x;
  y = x == 0.0f ? -PF_INF : y;
  return x < 0.0f ? PF_NAN : y;
}
PF_FN float pf_log_f32(float x) {
  float e, f = pf_log_split_f32(x, &e);
  return pf_log_special_f32(x, pf_log_sum_f32(e, f, pf_log_tail_f32(f)));
}
PF_FN float pf_log2_f32(float x) {
  float e, f = pf_log_split_f32(x, &e);
  return pf_log_special_f32(
      x, pf_log_scaled_sum_f32(e, f, pf_log_tail_f32(f), 1.0f, 0.0f, 1.44269502f, 1.92596303e-08f));
}
PF_FN float pf_log10_f32(float x) {
  float e, f = pf_log_split_f32(x, &e);
  return pf_log_special_f32(x, pf_log_scaled_sum_f32(e, f, pf_log_tail_f32(f), 0.301025391f, 4.60503907e-06f,
                                                     0.434294492f, -1.01030533e-08f));
}
/* log of u = 1 + x; what the rounding of u lost is added to f, scaled like u. */
PF_FN float pf_log1p_f32(float x) {
  float u = 1.0f + x;
  float c = x - (u - 1.0f);
  uint32_t d = pf_bits_f32(u) - 0x3f2aaaabu;
  float e = (float)((int32_t)d >> 23);
  float s = u < 1e9f ? pf_from_bits_f32(0x3f800000u - (d & 0xff800000u)) : 0.0f;
  float f = PF_FMA(c, s, pf_from_bits_f32(pf_bits_f32(u) - (d & 0xff800000u)) - 1.0f);
  float y = __builtin_copysignf(pf_log_sum_f32(e, f, pf_log_tail_f32(f)), x);
  y = x < PF_INF ? y : x;
  y = x == -1.0f ? -PF_INF : y;
  return x < -1.0f ? PF_NAN : y;
}

/* ---- trigonometry ------------------------------------------------------------------------------------------ */

/* a = n pi/2 + r, a >= 0: returns r, stores n modulo 4. In double, where pi/2 as two parts is exact enough up to
 * 2^47 = 1.4e14. Beyond, neighbouring floats are over 2^24 apart and the answer is NaN: the reduction that serves all
 * floats (Payne and Hanek's, by gathers) made every sine 2.5 times slower under clang, and gcc 12 left it scalar. */
PF_FN float pf_trig_reduce_f32(float a, uint32_t *quadrant) {
  double d = a;
  double t = PF_FMAD(d, 0.63661977236758134308, 6755399441055744.0);
  double n = t - 6755399441055744.0;
#if PF_HAS_FMA
  double r = __builtin_fma(n, -1.5707963267948966192, d);
  r = __builtin_fma(n, -6.1232339957367658861e-17, r);
#else
  double r = d - n * 1.57079632673412561417e+00;
  r = r - n * 6.07710050650619224932e-11;
#endif
  *quadrant = (uint32_t)pf_bits_f64(t);
  return a < PF_TRIG_LIMIT ? (float)r : PF_NAN;
}
/* sin on |r| <= pi/4, degree 7, 2^-27.9; cos, degree 8, 2^-33. */
PF_FN float pf_sin_poly_f32(float r, float t) {
  float p = -0.00019518286f;
  p = PF_FMA(p, t, 0.00833218917f);
  p = PF_FMA(p, t, -0.166666552f);
  return PF_FMA(r * t, p, r);
}
PF_FN float pf_cos_poly_f32(float t) {
  float p = 2.44323273e-05f;
  p = PF_FMA(p, t, -0.00138873095f);
  p = PF_FMA(p, t, 0.0416666456f);
  p = PF_FMA(p, t, -0.5f);
  return PF_FMA(p, t, 1.0f);
}
/* sin(r + quadrant pi/2) */
PF_FN float pf_sin_quadrant_f32(float r, uint32_t quadrant) {
  float t = r * r;
  float y = quadrant & 1u ? pf_cos_poly_f32(t) : pf_sin_poly_f32(r, t);
  return pf_from_bits_f32(pf_bits_f32(y) ^ ((quadrant & 2u) << 30));
}
PF_FN float pf_sin_f32(float x) {
  uint32_t q;
  float r = pf_trig_reduce_f32(fabsf(x), &q);
  float y = pf_sin_quadrant_f32(r, q);
  return pf_from_bits_f32(pf_bits_f32(y) ^ (pf_bits_f32(x) & 0x80000000u));
}
PF_FN float pf_cos_f32(float x) {
  uint32_t q;
  float r = pf_trig_reduce_f32(fabsf(x), &q);
  return pf_sin_quadrant_f32(r, q + 1u);
}
/* tan on |r| <= pi/4, degree 15, 2^-29.5; -1/tan in odd quadrants. */
PF_FN float pf_tan_f32(float x) {
  uint32_t q;
  float r = pf_trig_reduce_f32(fabsf(x), &q);
  float t = r * r;
  float p = 0.00437269825f;
  p = PF_FMA(p, t, 9.82459678e-05f);
  p = PF_FMA(p, t, 0.0108274436f);
  p = PF_FMA(p, t, 0.0212862082f);
  p = PF_FMA(p, t, 0.0540589131f);
  p = PF_FMA(p, t, 0.133326754f);
  p = PF_FMA(p, t, 0.333333492f);
  p = PF_FMA(r * t, p, r);
  float y = (q & 1u ? -1.0f : p) / (q & 1u ? p : 1.0f);
  return pf_from_bits_f32(pf_bits_f32(y) ^ (pf_bits_f32(x) & 0x80000000u));
}

/* asin(s) with t = s^2 <= 1/4, degree 11, 2^-27.6. */
PF_FN float pf_asin_poly_f32(float s, float t) {
  float p = 0.0421664119f;
  p = PF_FMA(p, t, 0.0241807736f);
  p = PF_FMA(p, t, 0.0454697721f);
  p = PF_FMA(p, t, 0.0749530643f);
  p = PF_FMA(p, t, 0.166667521f);
  return PF_FMA(s * t, p, s);
}
/* |x| > 1/2: asin x = pi/2 - 2 asin sqrt((1 - x) / 2). The root of a negative number makes the NaN. */
PF_FN float pf_asin_f32(float x) {
  float a = fabsf(x);
  int big = a > 0.5f;
  float t = big ? 0.5f - 0.5f * a : a * a;
  float s = big ? __builtin_sqrtf(t) : a;
  float p = pf_asin_poly_f32(s, t);
  float y = big ? PF_FMA(-2.0f, p, 1.57079637f) - 4.37113883e-08f : p;
  return __builtin_copysignf(y, x);
}
PF_FN float pf_acos_f32(float x) {
  float a = fabsf(x);
  int big = a > 0.5f;
  float t = big ? 0.5f - 0.5f * a : a * a;
  float s = big ? __builtin_sqrtf(t) : x;
  float p = pf_asin_poly_f32(s, t);
  float far = x > 0.0f ? 2.0f * p : PF_FMA(-2.0f, p, 3.14159274f) - 8.74227766e-08f;
  return big ? far : 1.57079637f - (p + 4.37113883e-08f);
}
/* atan on [0, 1], degree 21, 2^-31. */
PF_FN float pf_atan_poly_f32(float x) {
  float t = x * x;
  float p = 0.00113451562f;
  p = PF_FMA(p, t, -0.00742535107f);
  p = PF_FMA(p, t, 0.0227776114f);
  p = PF_FMA(p, t, -0.0449832566f);
  p = PF_FMA(p, t, 0.0676364899f);
  p = PF_FMA(p, t, -0.0882146209f);
  p = PF_FMA(p, t, 0.110612333f);
  p = PF_FMA(p, t, -0.142803431f);
  p = PF_FMA(p, t, 0.199997157f);
  p = PF_FMA(p, t, -0.333333284f);
  return PF_FMA(x * t, p, x);
}
/* |x| > 1: atan x = pi/2 - atan 1/x */
PF_FN float pf_atan_f32(float x) {
  float a = fabsf(x);
  int big = a > 1.0f;
  float p = pf_atan_poly_f32((big ? 1.0f : a) / (big ? a : 1.0f));
  return __builtin_copysignf(big ? 1.57079637f - (p + 4.37113883e-08f) : p, x);
}
PF_FN float pf_atan2_f32(float y, float x) {
  float ay = fabsf(y), ax = fabsf(x);
  int steep = ay > ax;
  float lo = steep ? ax : ay, hi = steep ? ay : ax;
  float t = lo / hi;
  t = lo == hi ? 1.0f : t; /* inf / inf */
  t = hi == 0.0f ? 0.0f : t;
  float p = pf_atan_poly_f32(t);
  p = steep ? 1.57079637f - (p + 4.37113883e-08f) : p;
  p = pf_bits_f32(x) >> 31 ? 3.14159274f - (p + 8.74227766e-08f) : p;
  p = ((x != x) | (y != y)) ? PF_NAN : p;
  return __builtin_copysignf(p, y);
}

/* ---- hyperbolic functions ---------------------------------------------------------------------------------- */

/* e^a / 2 for a >= 0, overflowing where it must and not at e^a. */
PF_FN float pf_half_exp_f32(float a) {
  float t;
  PF_AT_MOST(a, 90.0f);
  float p = pf_exp_reduced_f32(a, &t);
  return 2.0f * ((1.0f + p) * pf_pow2_f32(t, -2));
}
/* |x| < 1: odd polynomial, degree 9, 2^-31.6; else h - 1/(4h) with h = e^|x| / 2. */
PF_FN float pf_sinh_f32(float x) {
  float a = fabsf(x), t = a * a;
  float h = pf_half_exp_f32(a);
  float p = 2.78221319e-06f;
  p = PF_FMA(p, t, 0.000198428956f);
  p = PF_FMA(p, t, 0.00833331048f);
  p = PF_FMA(p, t, 0.166666672f);
  p = PF_FMA(a * t, p, a);
  return __builtin_copysignf(a < 1.0f ? p : h - 0.25f / h, x);
}
PF_FN float pf_cosh_f32(float x) {
  float h = pf_half_exp_f32(fabsf(x));
  return h + 0.25f / h;
}
/* tanh x = m / (m + 2) with m = expm1(2|x|) */
PF_FN float pf_tanh_f32(float x) {
  float t, a = fabsf(x);
  PF_AT_MOST(a, 9.5f);
  float p = pf_exp_reduced_f32(2.0f * a, &t);
  float s = pf_pow2_f32(t, 0);
  float m = PF_FMA(p, s, s - 1.0f);
  return __builtin_copysignf(PF_QUOTIENT(m, m + 2.0f), x);
}
/* asinh x = log1p(a + a^2 / (1 + sqrt(1 + a^2))); log(2a) where a^2 would overflow */
PF_FN float pf_asinh_f32(float x) {
  float a = fabsf(x);
  int big = a > 1e9f;
  float t = a * a;
  float z = a + t / (1.0f + __builtin_sqrtf(t + 1.0f));
  float y = pf_log1p_f32(big ? a : z) + (big ? 0.693147182f : 0.0f);
  return __builtin_copysignf(y, x);
}
/* acosh x = log1p(t + sqrt(2t + t^2)), t = x - 1; log(2x) where t^2 would overflow */
PF_FN float pf_acosh_f32(float x) {
  int big = x > 1e9f;
  float t = x - 1.0f;
  float z = t + __builtin_sqrtf(PF_FMA(t, t, 2.0f * t));
  float y = pf_log1p_f32(big ? x : z) + (big ? 0.693147182f : 0.0f);
  return x < 1.0f ? PF_NAN : y;
}
/* atanh x = log1p(2a / (1 - a)) / 2; a > 1 reaches log1p below -1, which is NaN */
PF_FN float pf_atanh_f32(float x) {
  float a = fabsf(x);
  return __builtin_copysignf(0.5f * pf_log1p_f32(2.0f * a / (1.0f - a)), x);
}

/* ---- error function, activations --------------------------------------------------------------------------- */

/* erf(a) / a - 1 for |a| < 0.95, t = a^2, 2^-30 */
PF_FN float pf_erf_poly_f32(float t) {
  float p = 8.00277485e-05f;
  p = PF_FMA(p, t, -0.000805080403f);
  p = PF_FMA(p, t, 0.00519246049f);
  p = PF_FMA(p, t, -0.0268557407f);
  p = PF_FMA(p, t, 0.112836257f);
  p = PF_FMA(p, t, -0.376126289f);
  return PF_FMA(p, t, 0.128379166f);
}
/* |x| >= 0.94: 1 - e^-(a + a P(a)), 2^-30.5 */
PF_FN float pf_erf_f32(float x) {
  float a = fabsf(x);
  float near = PF_FMA(pf_erf_poly_f32(a * a), a, a);
  float b = a;
  PF_AT_MOST(b, 4.0f);
  float p = 1.20005752e-05f;
  p = PF_FMA(p, b, -0.000330531941f);
  p = PF_FMA(p, b, 0.00367400725f);
  p = PF_FMA(p, b, -0.0238290764f);
  p = PF_FMA(p, b, 0.106315039f);
  p = PF_FMA(p, b, 0.635103822f);
  p = PF_FMA(p, b, 0.128660247f);
  float far = 1.0f - pf_exp_beside_1_f32(-PF_FMA(p, b, b));
  return __builtin_copysignf(a < 0.94f ? near : far, x);
}
/* |x| > 0.5: e^(-a^2) P(q) / (1 + 2a), q = (a - 2) / (a + 2), 2^-25.9; the rounding error of a^2 is put back */
PF_FN float pf_erfc_f32(float x) {
  float a = fabsf(x);
  PF_AT_MOST(a, 10.5f);
  float q = (a - 2.0f) / (a + 2.0f);
  float p = -0.000404749531f;
  p = PF_FMA(p, q, -0.00123831839f);
  p = PF_FMA(p, q, 0.00131404784f);
  p = PF_FMA(p, q, 0.00864046346f);
  p = PF_FMA(p, q, -0.00805790164f);
  p = PF_FMA(p, q, -0.0542075075f);
  p = PF_FMA(p, q, 0.164054587f);
  p = PF_FMA(p, q, -0.166030958f);
  p = PF_FMA(p, q, -0.0927639157f);
  p = PF_FMA(p, q, 1.27697837f);
  float s = a * a;
  float lost = pf_mul_err_f32(a, a, s);
  float d = p / PF_FMA(2.0f, a, 1.0f);
  float far = pf_exp_f32(-s) * PF_FMA(-lost, d, d);
  float near = 1.0f - PF_FMA(pf_erf_poly_f32(s), a, a);
  float y = a < 0.5f ? near : far;
  return x < 0.0f ? 2.0f - y : y;
}
/* x P(w), w = -log(1 - x^2): below 5 a polynomial in w, 2^-27.4; beyond one in sqrt(w), 2^-26.6 while x is a float */
PF_FN float pf_erfinv_ratio_f32(float w) {
  float t = w - 2.5f;
  float near = -8.791109173955647e-09f;
  near = PF_FMA(near, t, 2.3232672674566857e-08f);
  near = PF_FMA(near, t, 4.6617140014859615e-07f);
  near = PF_FMA(near, t, -3.462705080892192e-06f);
  near = PF_FMA(near, t, -4.963351329934085e-06f);
  near = PF_FMA(near, t, 0.00021834444487467408f);
  near = PF_FMA(near, t, -0.0012527419021353126f);
  near = PF_FMA(near, t, -0.004177386872470379f);
  near = PF_FMA(near, t, 0.24664027988910675f);
  near = PF_FMA(near, t, 1.5014094114303589f);
  float s = __builtin_sqrtf(w) - 3.0f;
  float far = 0.00011517663369886577f;
  far = PF_FMA(far, s, -0.00030911745852790773f);
  far = PF_FMA(far, s, -5.6003162171691656e-05f);
  far = PF_FMA(far, s, 0.0014845359837636352f);
  far = PF_FMA(far, s, -0.003597812494263053f);
  far = PF_FMA(far, s, 0.00568717997521162f);
  far = PF_FMA(far, s, -0.0076372032053768635f);
  far = PF_FMA(far, s, 0.00944526307284832f);
  far = PF_FMA(far, s, 1.001675009727478f);
  far = PF_FMA(far, s, 2.832976818084717f);
  return w < 5.0f ? near : far;
}
PF_FN float pf_erfinv_f32(float x) { return x * pf_erfinv_ratio_f32(-pf_log_f32((1.0f - x) * (1.0f + x))); }
/* 1 / (1 + e^-x); 0 below -88.4, where the true value is a denormal */
PF_FN float pf_sigmoid_f32(float x) { return PF_QUOTIENT(1.0f, 1.0f + pf_exp_normal_f32(-x)); }
PF_FN float pf_silu_f32(float x) { return x * pf_sigmoid_f32(x); }
/* P(x), the share of a normal distribution below x. P(-a) = e^(-a^2 / 2) t Q(t), t = 1 / (1 + 0.34 a), 2^-24.9: the
 * exponential is the one that the density has, and far below 0 nothing cancels, as in 1 + erf(x / sqrt 2). */
PF_FN float pf_normal_f32(float x, float bell) {
  float t = PF_QUOTIENT(1.0f, PF_FMA(0.34f, fabsf(x), 1.0f));
  float q = -0.0261210985f;
  q = PF_FMA(q, t, 0.139502212f);
  q = PF_FMA(q, t, -0.273137748f);
  q = PF_FMA(q, t, 0.202187687f);
  q = PF_FMA(q, t, -0.0447214656f);
  q = PF_FMA(q, t, 0.11536026f);
  q = PF_FMA(q, t, 0.11519742f);
  q = PF_FMA(q, t, 0.136112228f);
  q = PF_FMA(q, t, 0.135620505f);
  float tail = q * t * bell;
  return x < 0.0f ? tail : 1.0f - tail;
}
PF_FN float pf_gelu_f32(float x) { return x * pf_normal_f32(x, pf_bell_f32(x)); }
/* (x P(x))' = P(x) + x p(x), p the density */
PF_FN float pf_gelu_slope_f32(float x) {
  float bell = pf_bell_f32(x);
  return PF_FMA(x * bell, 0.398942280f, pf_normal_f32(x, bell));
}
/* x (1 + tanh u) / 2 = x s, s = sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3): one exponential, no cancellation */
PF_FN float pf_gelu_tanh_share_f32(float x) {
  return PF_QUOTIENT(1.0f, 1.0f + pf_exp_beside_1_f32(-x * PF_FMA(0.0713548163f, x * x, 1.59576912f)));
}
PF_FN float pf_gelu_tanh_f32(float x) { return x * pf_gelu_tanh_share_f32(x); }
/* (x s)' = s + x s (1 - s) 2u' */
PF_FN float pf_gelu_tanh_slope_f32(float x) {
  float s = pf_gelu_tanh_share_f32(x);
  return s * PF_FMA(x * (1.0f - s), PF_FMA(0.214064449f, x * x, 1.59576912f), 1.0f);
}
/* log(1 + e^x) = max(x, 0) + log1p(e^-|x|) */
PF_FN float pf_softplus_f32(float x) {
  return (x < 0.0f ? 0.0f : x) + pf_log1p_f32(pf_exp_f32(-fabsf(x)));
}

/* ---- powers ------------------------------------------------------------------------------------------------ */

PF_FN float pf_rsqrt_f32(float x) { return 1.0f / __builtin_sqrtf(x); }

/* 2^(y log2|x|) in double: log2 by the atanh series (2^-35.5), exp2 of degree 7 (2^-32); then C's special values. */
PF_FN float pf_pow_f32(float x, float y) {
  /* Zero, but from x: where y is the same for a whole loop gcc turns what depends on y alone into branches, and then
   * does not vectorise. */
  float near = x >= -1.0f ? x : -1.0f;
  near = near <= 1.0f ? near : 1.0f;
  y += near - near;
  float a = fabsf(x), e, f = pf_log_split_f32(a, &e);
  double d = (double)f + 2.0, r0 = (double)(1.0f / (float)d);
  double s = (double)f * (r0 * PF_FMAD(-d, r0, 2.0)), t = s * s; /* f / (f + 2), to 2^-47 */
  double q = 0.3484026288032564;
  q = PF_FMAD(q, t, 0.4112057953654406);
  q = PF_FMAD(q, t, 0.5770923516614365);
  q = PF_FMAD(q, t, 0.961796621739148);
  q = PF_FMAD(q, t, 2.885390081835993);
  double l = PF_FMAD(s, q, (double)e);
  double z = (double)y * l;
  z = z > 200.0 ? 200.0 : z;
  z = z < -200.0 ? -200.0 : z;
  double shifted = z + 6755399441055744.0;
  double r = z - (shifted - 6755399441055744.0);
  double p = 1.3349156309840507e-05;
  p = PF_FMAD(p, r, 0.0001546150514922465);
  p = PF_FMAD(p, r, 0.0013342004302499156);
  p = PF_FMAD(p, r, 0.009618056577778577);
  p = PF_FMAD(p, r, 0.05550400300725972);
  p = PF_FMAD(p, r, 0.24022650922360705);
  p = PF_FMAD(p, r, 0.6931471838424426);
  p = PF_FMAD(p, r, 1.0);
  float w = (float)(p * pf_from_bits_f64((pf_bits_f64(shifted) + 1023u) << 52));
  float half = 0.5f * y;
  int whole = __builtin_truncf(y) == y;
  int odd = whole & (__builtin_truncf(half) != half);
  int outer = (a == 0.0f) | (a == PF_INF), grows = (a > 1.0f) == (y > 0.0f);
  w = (outer & (y == y)) ? (grows ? PF_INF : 0.0f) : w;
  w = ((a == 1.0f) & (fabsf(y) == PF_INF)) ? 1.0f : w;
  w = odd ? __builtin_copysignf(w, x) : w;
  w = ((x < 0.0f) & !outer & !whole) ? PF_NAN : w;
  w = x == x ? w : x;
  return ((x == 1.0f) | (y == 0.0f)) ? 1.0f : w;
}

#endif
