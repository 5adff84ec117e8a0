/* Vector arithmetic of floats. vector_float.def says what each instruction does. */
#include "convert.h"
#include "float16.h"

static inline int between(i32 x, int low, int high) { return x < low ? low : x > high ? high : x; }

/* x * 2^n rounded once: exact in double before. */
static inline float scaled_f32(float x, i32 n) { return (float)(x * as_f64((u64)(between(n, -400, 400) + 1023) << 52)); }

/* --- approximations --- */

/* v_rcp, v_rsq, v_sqrt, v_exp, v_log, v_sin and v_cos of float32 know no denormals, whatever the mode says. */
static inline float tiny_is_zero(float x) { return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x; }

/* v_mad_f32 and its like round twice, and know no denormals either. */
static inline float multiply_add(float a, float b, float c) {
  return tiny_is_zero(tiny_is_zero(tiny_is_zero(a) * tiny_is_zero(b)) + tiny_is_zero(c));
}

/* v_rcp_f64, v_rsq_f64 and v_sqrt_f64 are right to 2^29 units in the last place: the rest is not there to be used. */
static inline double approximately(double x) {
  if (!isfinite(x) || x == 0) return x;
  return as_f64((bits64(x) + 0x8000000) & ~(u64)0xfffffff);
}

/* Sine and cosine of an angle in turns. */
static double sine(double turns) {
  const double x = turns - rint(turns); /* exact */
  return x == 0 || fabs(x) == 0.5 ? copysign(0, turns) : sin(2 * M_PI * x);
}
static double cosine(double turns) {
  const double x = turns - rint(turns);
  return fabs(x) == 0.25 || fabs(x) == 0.75 ? 0 : cos(2 * M_PI * x); /* rint rounds as the mode says */
}

/* 53 bits of 2/pi from bit 53 * segment on (further for a large argument), in their place: for the reduction of large
 * angles. The hardware keeps 1201 bits. */
static const u32 TWO_BY_PI[38] = {
  0xa2f9836e, 0x4e441529, 0xfc2757d1, 0xf534ddc0, 0xdb629599, 0x3c439041, 0xfe5163ab, 0xdebbc561,
  0xb7246e3a, 0x424dd2e0, 0x06492eea, 0x09d1921c, 0xfe1deb1c, 0xb129a73e, 0xe88235f5, 0x2ebb4484,
  0xe99c7026, 0xb45f7e41, 0x3991d639, 0x835339f4, 0x9c845f8b, 0xbdf9283b, 0x1ff897ff, 0xde05980f,
  0xef2f118b, 0x5a0a6d1f, 0x6d367ecf, 0x27cb09b7, 0x4f463f66, 0x9e5fea2d, 0x7527bac7, 0xebe5f17b,
  0x3d0739f7, 0x8a5292ea, 0x6bfb5fb1, 0x1f8d5d08, 0x56033046, 0xfc7b0000,
};
static double trig_preop(u32 exponent, u32 segment) {
  const u32 shift = 53 * segment + (exponent > 1077 ? exponent - 1077 : 0), word = shift / 32, bit = shift % 32;
  u32 x[3];
  for (u32 i = 0; i < 3; i++) x[i] = word + i < 38 ? TWO_BY_PI[word + i] : 0;
  u64 bits = (u64)x[0] << 32 | x[1];
  if (bit) bits = bits << bit | x[2] >> (32 - bit);
  return scalbn((double)(bits >> 11), -53 - (int)shift + (exponent >= 1968 ? 128 : 0));
}

/* --- division: a scale, an approximation that the program refines, and the special cases --- */

/* One of numerator and denominator (`x`), scaled so that the steps in between neither overflow nor underflow. */
#define DIV_SCALE(T, VAL, BITS, MANTISSA, EXPONENTS, HUGE_APART, SMALLEST, RECIPROCAL_TINY, NUMERATOR_TINY, SCALE)    \
  static VAL div_scale_##T(VAL x, VAL denominator, VAL numerator, u32 *flag) {                                      \
    const int n = BITS(numerator) >> MANTISSA & EXPONENTS, d = BITS(denominator) >> MANTISSA & EXPONENTS;            \
    if (numerator == 0 || denominator == 0) { *flag = 1; return (VAL)NAN; }                                          \
    if (n - d >= HUGE_APART) { *flag = 1; return x == denominator ? SCALE(x, 1) : x; }                               \
    if (d == 0) return SCALE(x, 1);                                                                                  \
    if (n - d <= SMALLEST) {                                                                                         \
      *flag = 1;                                                                                                     \
      if (d >= RECIPROCAL_TINY) return x == denominator ? SCALE(x, -1) : x;                                          \
      return x == numerator ? SCALE(x, 1) : x;                                                                       \
    }                                                                                                                \
    if (d >= RECIPROCAL_TINY) return SCALE(x, -1);                                                                   \
    return n <= NUMERATOR_TINY ? SCALE(x, 1) : x;                                                                    \
  }
#define SCALE32(x, sign) scalbnf(x, 64 * (sign))
#define SCALE64(x, sign) scalbn(x, 128 * (sign))
DIV_SCALE(f32, float, bits32, 23, 255, 96, -126, 253, 23, SCALE32)
DIV_SCALE(f64, double, bits64, 52, 2047, 768, -1022, 2045, 53, SCALE64)

/* (a * b + c) * 2^by rounded once: for a denormal, whether the sum lost bits is kept in its last bit. */
static double scaled_fma(double a, double b, double c, int by) {
  double s = fma(a, b, c);
  if (!isfinite(s) || fabs(scalbn(s, by)) >= 0x1p-1022) return scalbn(s, by);
  const double lost = fma(a, b, c - s);
  if (lost != 0 && !(bits64(s) & 1)) s = as_f64(bits64(s) + ((lost < 0) == (s < 0) ? 1 : -1));
  return scalbn(s, by);
}

/* The quotient's sign and what no approximation gets right. SMALL: its square
 * underflows. */
#define DIV_FIXUP(T, VAL, BITS, MANTISSA, EXPONENTS, LOWEST, SMALL)                                                  \
  static VAL div_fixup_##T(VAL quotient, VAL denominator, VAL numerator) {                                           \
    const int n = BITS(numerator) >> MANTISSA & EXPONENTS, d = BITS(denominator) >> MANTISSA & EXPONENTS;            \
    VAL x;                                                                                                           \
    if (numerator != numerator) return numerator + numerator;                                                        \
    if (denominator != denominator) return denominator + denominator;                                                \
    if (denominator == 0 && numerator == 0) return -(VAL)NAN;                                                        \
    if (isinf(denominator) && isinf(numerator)) return -(VAL)NAN;                                                    \
    if (denominator == 0 || isinf(numerator)) x = (VAL)INFINITY;                                                     \
    else if (isinf(denominator) || numerator == 0) x = 0;                                                            \
    else if (n - d < LOWEST) { const volatile VAL small = SMALL; x = small * small; }                                \
    else x = quotient == quotient ? quotient : (VAL)INFINITY;                                                        \
    x = signbit(x) ? -x : x;                                                                                         \
    return signbit(denominator) != signbit(numerator) ? -x : x;                                                      \
  }
DIV_FIXUP(f32, float, bits32, 23, 255, -150, 0x1p-126f)
DIV_FIXUP(f64, double, bits64, 52, 2047, -1075, 0x1p-1022)
DIV_FIXUP(f16, float, bits32, 23, 255, -1000, 0) /* float16: no case of an underflow */

#include "vector_float.def"
#include "rows.h"
const Entry FLOAT_TABLE[] = {
#include "vector_float.def"
};
const int FLOAT_COUNT = sizeof FLOAT_TABLE / sizeof *FLOAT_TABLE;
