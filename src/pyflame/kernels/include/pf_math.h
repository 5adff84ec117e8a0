/* Scalar functions of generated CPU kernels, by generic names: pf_exp(x) is pf_exp_f32 or pf_exp_f64 by x's type.
 *
 * Float versions are our own, straight-line and vectorisable (pf_math_f32.h has the table of errors); double
 * versions call libm. Two arguments meet in the type of their sum, so int8 and bool are served as int. Integer
 * arithmetic here neither traps nor has undefined behaviour: x / 0 is 0, INT_MIN / -1 wraps, as the casts do.
 *
 *   float, double          exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh
 *                          atanh erf erfc erfinv lgamma digamma i0 i0e i1 i1e sigmoid silu gelu gelu_slope
 *                          gelu_tanh gelu_tanh_slope softplus sqrt
 *                          rsqrt floor ceil round trunc mantissa exponent isnan isinf isfinite; pow atan2 fmod copysign
 *                          nextafter zeta igamma igammac; the polynomials of pf_polynomial.h
 *   any arithmetic type    abs sign min max clamp mod floordiv; ipow gcd lcm (integers)
 *   casts                  to_i8 to_u8 to_i16 to_u16 to_i32 to_u32 to_i64 to_u64 to_bool
 *
 * Not vectorisable: fmod, mod, floordiv, ipow, gcd, lcm, lgamma, digamma, i0 to i1e, zeta, igamma(c), polynomials and every
 * libm function of double.
 */
#ifndef PF_MATH_H
#define PF_MATH_H

#include "pf_math_f32.h"

/* ---- complex numbers: kernels take them apart and put them together ---------------------------------------- */

typedef struct {
  float re, im;
} pf_c64;
typedef struct {
  double re, im;
} pf_c128;

PF_FN pf_c64 pf_complex_float(float re, float im) {
  pf_c64 z;
  z.re = re;
  z.im = im;
  return z;
}
PF_FN pf_c128 pf_complex_double(double re, double im) {
  pf_c128 z;
  z.re = re;
  z.im = im;
  return z;
}

/* ---- float and double -------------------------------------------------------------------------------------- */

PF_FN double pf_exp_f64(double x) { return exp(x); }
PF_FN double pf_exp_near_f64(double x) { return exp(x); }
PF_FN double pf_exp2_f64(double x) { return exp2(x); }
PF_FN double pf_expm1_f64(double x) { return expm1(x); }
PF_FN double pf_log_f64(double x) { return log(x); }
PF_FN double pf_log2_f64(double x) { return log2(x); }
PF_FN double pf_log10_f64(double x) { return log10(x); }
PF_FN double pf_log1p_f64(double x) { return log1p(x); }
PF_FN double pf_sin_f64(double x) { return sin(x); }
PF_FN double pf_cos_f64(double x) { return cos(x); }
PF_FN double pf_tan_f64(double x) { return tan(x); }
PF_FN double pf_asin_f64(double x) { return asin(x); }
PF_FN double pf_acos_f64(double x) { return acos(x); }
PF_FN double pf_atan_f64(double x) { return atan(x); }
PF_FN double pf_sinh_f64(double x) { return sinh(x); }
PF_FN double pf_cosh_f64(double x) { return cosh(x); }
PF_FN double pf_tanh_f64(double x) { return tanh(x); }
PF_FN double pf_asinh_f64(double x) { return asinh(x); }
PF_FN double pf_acosh_f64(double x) { return acosh(x); }
PF_FN double pf_atanh_f64(double x) { return atanh(x); }
PF_FN double pf_erf_f64(double x) { return erf(x); }
PF_FN double pf_erfc_f64(double x) { return erfc(x); }
PF_FN double pf_pow_f64(double x, double y) { return pow(x, y); }
PF_FN double pf_atan2_f64(double y, double x) { return atan2(y, x); }
PF_FN double pf_rsqrt_f64(double x) { return 1.0 / __builtin_sqrt(x); }
PF_FN double pf_sigmoid_f64(double x) {
  double z = exp(-fabs(x));
  return (x < 0.0 ? z : 1.0) / (1.0 + z);
}
PF_FN double pf_silu_f64(double x) { return x * pf_sigmoid_f64(x); }
PF_FN double pf_gelu_f64(double x) { return 0.5 * x * erfc(x * -0.7071067811865476); }
PF_FN double pf_gelu_slope_f64(double x) {
  return 0.5 * erfc(x * -0.7071067811865476) + x * exp(-0.5 * x * x) * 0.3989422804014327;
}
PF_FN double pf_gelu_tanh_share_f64(double x) {
  return pf_sigmoid_f64(x * (1.5957691216057308 + 0.07135481627260025 * x * x));
}
PF_FN double pf_gelu_tanh_f64(double x) { return x * pf_gelu_tanh_share_f64(x); }
PF_FN double pf_gelu_tanh_slope_f64(double x) {
  double s = pf_gelu_tanh_share_f64(x);
  return s * (1.0 + x * (1.0 - s) * (1.5957691216057308 + 0.21406444881780074 * x * x));
}
PF_FN double pf_softplus_f64(double x) { return (x < 0.0 ? 0.0 : x) + log1p(exp(-fabs(x))); }

/* The reentrant form: lgamma itself writes a global. */
#ifndef PF_GPU_H
double lgamma_r(double x, int *sign);
#endif
PF_FN double pf_lgamma_f64(double x) {
  int sign;
  return lgamma_r(x, &sign);
}
PF_FN float pf_lgamma_f32(float x) { return (float)pf_lgamma_f64((double)x); }
/* Reflection below 0, recurrence up to 10, then the asymptotic series: about 1e-14 relative, away from the root 1.46 */
PF_FN double pf_digamma_f64(double x) {
  if (x == 0.0) return copysign(INFINITY, -x);
  double y = 0.0;
  if (x < 0.0) {
    if (x == floor(x)) return NAN;
    y = -M_PI / tan(M_PI * (x - floor(x)));
    x = 1.0 - x;
  }
  for (; x < 10.0; x += 1.0) y -= 1.0 / x;
  double t = 1.0 / (x * x);
  double p = 1.0 / 12 - t * (1.0 / 120 - t * (1.0 / 252 - t * (1.0 / 240 - t * (1.0 / 132 - t * (691.0 / 32760)))));
  return y + log(x) - 0.5 / x - t * p;
}
PF_FN float pf_digamma_f32(float x) { return (float)pf_digamma_f64((double)x); }

/* Hurwitz's zeta, the sum of (q + k)^-s over k >= 0 for s > 1: terms up to s + 10, then Euler's and Maclaurin's. */
PF_FN double pf_zeta_above_f64(double s, double q) {
  double y = 0.0, end = s < 60.0 ? s + 10.0 : 70.0;
  for (; q < end; q += 1.0) y += pow(q, -s);
  if (q == INFINITY || s == INFINITY) return y;
  double r = 1.0 / (q * q), p = 691.0 / 1307674368000 - r * (s + 11.0) * (s + 12.0) / 74724249600;
  p = 1.0 / 47900160 - r * (s + 9.0) * (s + 10.0) * p;
  p = 1.0 / 1209600 - r * (s + 7.0) * (s + 8.0) * p;
  p = 1.0 / 30240 - r * (s + 5.0) * (s + 6.0) * p;
  p = 1.0 / 720 - r * (s + 3.0) * (s + 4.0) * p;
  p = 1.0 / 12 - r * (s + 1.0) * (s + 2.0) * p;
  return y + pow(q, -s) * (q / (s - 1.0) + 0.5 + s / q * p);
}
/* Below 0, for whole s: the terms on either side of 0 are sums of terms above it. About 1e-14 relative. */
PF_FN double pf_zeta_f64(double s, double q) {
  if (!(s > 1.0)) return s == 1.0 ? INFINITY : NAN;
  if (!(q <= 0.0)) return pf_zeta_above_f64(s, q);
  if (q == floor(q)) return INFINITY;
  if (s != floor(s)) return NAN;
  double below = pf_zeta_above_f64(s, -q - floor(-q)) - pf_zeta_above_f64(s, 1.0 - q);
  return pf_zeta_above_f64(s, q - floor(q)) + (fmod(s, 2.0) == 0.0 ? below : -below);
}
PF_FN float pf_zeta_f32(float s, float q) { return (float)pf_zeta_f64((double)s, (double)q); }

/* The float's approximation (a line where floats end), then two of Halley's steps, each of which triples the digits */
PF_FN double pf_erfinv_f64(double x) {
  double a = fabs(x);
  if (!(a < 1.0)) return a == 1.0 ? copysign(INFINITY, x) : NAN;
  double w = -log((1.0 - a) * (1.0 + a));
  double y = a * (w < 16.0 ? (double)pf_erfinv_ratio_f32((float)w) : 1.0101 * __builtin_sqrt(w) - 0.2006);
  for (int step = 0; step < 2; ++step) {
    double off = (a < 0.5 ? erf(y) - a : (1.0 - a) - erfc(y)) * 0.886226925452758 * exp(y * y);
    y -= off / (1.0 + y * off);
  }
  return copysign(y, x);
}

#include "pf_bessel.h"
#include "pf_igamma.h"
#include "pf_polynomial.h"

/* fmod of floats in double: exact while the quotient is below 2^29; libm takes the rest. */
PF_FN float pf_fmod_f32(float a, float b) {
  double q = (double)a / (double)b;
  if (!(fabs(q) < 536870912.0) || !(fabsf(b) < PF_INF)) return fmodf(a, b);
  double r = (double)a - __builtin_trunc(q) * (double)b;
  r = (r < 0.0) != (a < 0.0f) && r != 0.0 ? r + __builtin_copysign((double)b, (double)a) : r; /* q had rounded up */
  return __builtin_copysignf((float)r, a);
}
PF_FN double pf_fmod_f64(double a, double b) { return fmod(a, b); }

/* The parts of x = mantissa * 2^exponent with 0.5 <= |mantissa| < 1; 0, infinities and NaN are their own, with exponent 0.
 * A subnormal is scaled first. And the neighbour of x towards y: magnitudes are ordered as their bits are. */
#define PF_PARTS(T, U, S, TINY, SHIFT, MAN, BIAS)                                                              \
  PF_FN T pf_exponent_##S(T x) {                                                                               \
    U a = pf_bits_##S(x) << 1 >> 1, inf = pf_bits_##S((T)PF_INF);                                              \
    U tiny = a < (U)1 << MAN, u = tiny ? pf_bits_##S(x * TINY) << 1 >> 1 : a;                                  \
    return a == 0 || a >= inf ? (T)0 : (T)((int)(u >> MAN) - (BIAS - 1) - (tiny ? SHIFT : 0));                 \
  }                                                                                                            \
  PF_FN T pf_mantissa_##S(T x) {                                                                               \
    U a = pf_bits_##S(x) << 1 >> 1, inf = pf_bits_##S((T)PF_INF);                                              \
    U u = pf_bits_##S(a < (U)1 << MAN ? x * TINY : x), field = inf;                                            \
    return a == 0 || a >= inf ? x : pf_from_bits_##S((u & ~field) | (U)(BIAS - 1) << MAN);                     \
  }                                                                                                            \
  PF_FN T pf_nextafter_##S(T x, T y) {                                                                         \
    U u = pf_bits_##S(x), sign = pf_bits_##S(y) >> (sizeof(U) * 8 - 1) << (sizeof(U) * 8 - 1);                 \
    T next = pf_from_bits_##S((x < y) == (x > 0) ? u + 1 : u - 1);                                             \
    next = x == 0 ? pf_from_bits_##S(sign | 1) : next;                                                         \
    return x != x || y != y ? (T)PF_NAN : x == y ? y : next;                                                   \
  }
PF_PARTS(float, uint32_t, f32, 0x1p32f, 32, 23, 127)
PF_PARTS(double, uint64_t, f64, 0x1p64, 64, 52, 1023)

/* What is the same text for float and double. `mod` has the sign of the divisor (torch.remainder, Python's %);
 * `floordiv` is torch.floor_divide. max and min return the NaN, whichever side it is on. sign(NaN) is NaN (NumPy). */
#define PF_FLOAT_FUNCTIONS(T, S, F)                                                                            \
  PF_FN T pf_sqrt_##S(T x) { return __builtin_sqrt##F(x); }                                                    \
  PF_FN T pf_floor_##S(T x) { return __builtin_floor##F(x); }                                                  \
  PF_FN T pf_ceil_##S(T x) { return __builtin_ceil##F(x); }                                                    \
  PF_FN T pf_round_##S(T x) { return __builtin_rint##F(x); } /* half to even */                                \
  PF_FN T pf_trunc_##S(T x) { return __builtin_trunc##F(x); }                                                  \
  PF_FN T pf_abs_##S(T x) { return __builtin_fabs##F(x); }                                                     \
  PF_FN T pf_sign_##S(T x) { return x > 0 ? (T)1 : (x < 0 ? (T)-1 : (x == 0 ? (T)0 : x)); }                    \
  PF_FN T pf_copysign_##S(T x, T y) { return __builtin_copysign##F(x, y); }                                    \
  PF_FN T pf_max_##S(T a, T b) {                                                                               \
    T m = b > a ? b : a; /* one instruction that keeps a's NaN; the next line is free for a constant b */      \
    return b != b ? b : m;                                                                                     \
  }                                                                                                            \
  PF_FN T pf_min_##S(T a, T b) {                                                                               \
    T m = b < a ? b : a;                                                                                       \
    return b != b ? b : m;                                                                                     \
  }                                                                                                            \
  PF_FN int pf_isnan_##S(T x) { return x != x; }                                                               \
  PF_FN int pf_isinf_##S(T x) { return __builtin_fabs##F(x) == (T)PF_INF; }                                    \
  PF_FN int pf_isfinite_##S(T x) { return __builtin_fabs##F(x) < (T)PF_INF; }                                  \
  PF_FN T pf_mod_##S(T a, T b) {                                                                               \
    T r = pf_fmod_##S(a, b);                                                                                   \
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;                                                           \
  }                                                                                                            \
  PF_FN T pf_floordiv_##S(T a, T b) {                                                                          \
    if (b == 0) return a / b;                                                                                  \
    T r = pf_fmod_##S(a, b);                                                                                   \
    T q = (a - r) / b;                                                                                         \
    if (r != 0 && (r < 0) != (b < 0)) q -= 1;                                                                  \
    if (q == 0) return __builtin_copysign##F((T)0, a / b);                                                     \
    T n = __builtin_floor##F(q);                                                                               \
    return q - n > (T)0.5 ? n + 1 : n;                                                                         \
  }
PF_FLOAT_FUNCTIONS(float, f32, f)
PF_FLOAT_FUNCTIONS(double, f64, )

/* ---- integers ---------------------------------------------------------------------------------------------- */

/* A divisor of -1 is kept from the divide instruction: INT_MIN / -1 traps on x86. U is T unsigned. */
#define PF_SIGNED_FUNCTIONS(T, U, S)                                                                           \
  PF_FN T pf_abs_##S(T x) { return (T)(x < 0 ? (U)0 - (U)x : (U)x); }                                          \
  PF_FN T pf_sign_##S(T x) { return (T)((x > 0) - (x < 0)); }                                                  \
  PF_FN T pf_max_##S(T a, T b) { return a > b ? a : b; }                                                       \
  PF_FN T pf_min_##S(T a, T b) { return a < b ? a : b; }                                                       \
  PF_FN T pf_mod_##S(T a, T b) {                                                                               \
    if (b == 0 || b == -1) return 0;                                                                           \
    T r = a % b;                                                                                               \
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;                                                           \
  }                                                                                                            \
  PF_FN T pf_floordiv_##S(T a, T b) {                                                                          \
    if (b == 0) return 0;                                                                                      \
    if (b == -1) return (T)((U)0 - (U)a);                                                                      \
    return a / b - (a % b != 0 && (a < 0) != (b < 0));                                                         \
  }
#define PF_UNSIGNED_FUNCTIONS(T, S)                                                                            \
  PF_FN T pf_abs_##S(T x) { return x; }                                                                        \
  PF_FN T pf_sign_##S(T x) { return x > 0; }                                                                   \
  PF_FN T pf_max_##S(T a, T b) { return a > b ? a : b; }                                                       \
  PF_FN T pf_min_##S(T a, T b) { return a < b ? a : b; }                                                       \
  PF_FN T pf_mod_##S(T a, T b) { return b == 0 ? 0 : a % b; }                                                  \
  PF_FN T pf_floordiv_##S(T a, T b) { return b == 0 ? 0 : a / b; }
PF_SIGNED_FUNCTIONS(int32_t, uint32_t, i32)
PF_SIGNED_FUNCTIONS(int64_t, uint64_t, i64)
PF_UNSIGNED_FUNCTIONS(uint32_t, u32)
PF_UNSIGNED_FUNCTIONS(uint64_t, u64)

/* Integer power modulo 2^64, so modulo any narrower type after the cast. Negative exponents as in torch:
 * 1 for base 1, +-1 for base -1, else 0. */
PF_FN uint64_t pf_ipow_u64(uint64_t base, uint64_t exponent) {
  uint64_t y = 1;
  for (; exponent; exponent >>= 1, base *= base) y *= exponent & 1 ? base : 1;
  return y;
}
PF_FN int64_t pf_ipow_i64(int64_t base, int64_t exponent) {
  if (exponent < 0) return base == 1 ? 1 : (base == -1 ? (exponent & 1 ? -1 : 1) : 0);
  return (int64_t)pf_ipow_u64((uint64_t)base, (uint64_t)exponent);
}

/* Euclid's: of the sizes, so the smallest integer is a number like others. lcm wraps, as products do. */
#define PF_DIVISORS(T, U, S)                                                                                   \
  PF_FN T pf_gcd_##S(T a, T b) {                                                                               \
    U x = a < 0 ? (U)0 - (U)a : (U)a, y = b < 0 ? (U)0 - (U)b : (U)b;                                          \
    while (y) {                                                                                                \
      U rest = x % y;                                                                                          \
      x = y;                                                                                                   \
      y = rest;                                                                                                \
    }                                                                                                          \
    return (T)x;                                                                                               \
  }                                                                                                            \
  PF_FN T pf_lcm_##S(T a, T b) {                                                                               \
    U g = (U)pf_gcd_##S(a, b), x = a < 0 ? (U)0 - (U)a : (U)a;                                                 \
    return g ? pf_abs_##S((T)(x / g * (U)b)) : (T)0;                                                           \
  }
PF_DIVISORS(int32_t, uint32_t, i32)
PF_DIVISORS(int64_t, uint64_t, i64)
PF_DIVISORS(uint32_t, uint32_t, u32)
PF_DIVISORS(uint64_t, uint64_t, u64)

/* ---- casts ------------------------------------------------------------------------------------------------- */

/* Truncation as cvttss2si does it: out of range and NaN give the smallest integer; narrower types wrap the int32,
 * uint32 wraps the int64. The value is made safe before the conversion, which then is defined and vectorises. */
#define PF_CASTS(T, S)                                                                                         \
  PF_FN int32_t pf_to_i32_##S(T x) {                                                                           \
    return (int32_t)(((x > (T)-2147483649.0) & (x < (T)0x1p31)) ? x : (T)-0x1p31);                             \
  }                                                                                                            \
  PF_FN int64_t pf_to_i64_##S(T x) { return (int64_t)(fabs(x) < (T)0x1p63 ? x : (T)-0x1p63); }                 \
  PF_FN uint64_t pf_to_u64_##S(T x) {                                                                          \
    int high = (x >= (T)0x1p63) & (x < (T)0x1p64);                                                             \
    return (uint64_t)pf_to_i64_##S(high ? x - (T)0x1p63 : x) ^ ((uint64_t)high << 63);                         \
  }                                                                                                            \
  PF_FN uint32_t pf_to_u32_##S(T x) { return (uint32_t)pf_to_i64_##S(x); }                                     \
  PF_FN int16_t pf_to_i16_##S(T x) { return (int16_t)pf_to_i32_##S(x); }                                       \
  PF_FN uint16_t pf_to_u16_##S(T x) { return (uint16_t)pf_to_i32_##S(x); }                                     \
  PF_FN int8_t pf_to_i8_##S(T x) { return (int8_t)pf_to_i32_##S(x); }                                          \
  PF_FN uint8_t pf_to_u8_##S(T x) { return (uint8_t)pf_to_i32_##S(x); }                                        \
  PF_FN uint8_t pf_to_bool_##S(T x) { return x != 0; }
PF_CASTS(float, f32)
PF_CASTS(double, f64)
#define PF_INT_CAST(T, S) \
  PF_FN T pf_to_##S##_int(int64_t x) { return (T)x; }
PF_INT_CAST(int8_t, i8)
PF_INT_CAST(uint8_t, u8)
PF_INT_CAST(int16_t, i16)
PF_INT_CAST(uint16_t, u16)
PF_INT_CAST(int32_t, i32)
PF_INT_CAST(uint32_t, u32)
PF_INT_CAST(int64_t, i64)
PF_INT_CAST(uint64_t, u64)
PF_FN uint8_t pf_to_bool_int(int64_t x) { return x != 0; }

/* ---- generic names ----------------------------------------------------------------------------------------- */

#ifndef PF_GPU_H /* C++ overloads there */
#define PF_OF_FLOAT(name, x) _Generic((x), float: pf_##name##_f32, double: pf_##name##_f64)
#define PF_OF_NUMBER(name, x)                                                                                  \
  _Generic((x), float: pf_##name##_f32, double: pf_##name##_f64, int: pf_##name##_i32,                         \
      unsigned: pf_##name##_u32, long: pf_##name##_i64, unsigned long: pf_##name##_u64,                        \
      long long: pf_##name##_i64, unsigned long long: pf_##name##_u64)
#define PF_OF_CAST(name, x)                                                                                    \
  _Generic((x), float: pf_##name##_f32, double: pf_##name##_f64, default: pf_##name##_int)

#define pf_exp(x) PF_OF_FLOAT(exp, x)(x)
#define pf_exp2(x) PF_OF_FLOAT(exp2, x)(x)
#define pf_expm1(x) PF_OF_FLOAT(expm1, x)(x)
#define pf_log(x) PF_OF_FLOAT(log, x)(x)
#define pf_log2(x) PF_OF_FLOAT(log2, x)(x)
#define pf_log10(x) PF_OF_FLOAT(log10, x)(x)
#define pf_log1p(x) PF_OF_FLOAT(log1p, x)(x)
#define pf_sin(x) PF_OF_FLOAT(sin, x)(x)
#define pf_cos(x) PF_OF_FLOAT(cos, x)(x)
#define pf_tan(x) PF_OF_FLOAT(tan, x)(x)
#define pf_asin(x) PF_OF_FLOAT(asin, x)(x)
#define pf_acos(x) PF_OF_FLOAT(acos, x)(x)
#define pf_atan(x) PF_OF_FLOAT(atan, x)(x)
#define pf_sinh(x) PF_OF_FLOAT(sinh, x)(x)
#define pf_cosh(x) PF_OF_FLOAT(cosh, x)(x)
#define pf_tanh(x) PF_OF_FLOAT(tanh, x)(x)
#define pf_asinh(x) PF_OF_FLOAT(asinh, x)(x)
#define pf_acosh(x) PF_OF_FLOAT(acosh, x)(x)
#define pf_atanh(x) PF_OF_FLOAT(atanh, x)(x)
#define pf_erf(x) PF_OF_FLOAT(erf, x)(x)
#define pf_erfc(x) PF_OF_FLOAT(erfc, x)(x)
#define pf_erfinv(x) PF_OF_FLOAT(erfinv, x)(x)
#define pf_lgamma(x) PF_OF_FLOAT(lgamma, x)(x)
#define pf_digamma(x) PF_OF_FLOAT(digamma, x)(x)
#define pf_i0(x) PF_OF_FLOAT(i0, x)(x)
#define pf_i0e(x) PF_OF_FLOAT(i0e, x)(x)
#define pf_i1(x) PF_OF_FLOAT(i1, x)(x)
#define pf_i1e(x) PF_OF_FLOAT(i1e, x)(x)
#define pf_sigmoid(x) PF_OF_FLOAT(sigmoid, x)(x)
#define pf_silu(x) PF_OF_FLOAT(silu, x)(x)
#define pf_gelu(x) PF_OF_FLOAT(gelu, x)(x)
#define pf_gelu_slope(x) PF_OF_FLOAT(gelu_slope, x)(x)
#define pf_gelu_tanh(x) PF_OF_FLOAT(gelu_tanh, x)(x)
#define pf_gelu_tanh_slope(x) PF_OF_FLOAT(gelu_tanh_slope, x)(x)
#define pf_softplus(x) PF_OF_FLOAT(softplus, x)(x)
#define pf_sqrt(x) PF_OF_FLOAT(sqrt, x)(x)
#define pf_rsqrt(x) PF_OF_FLOAT(rsqrt, x)(x)
#define pf_floor(x) PF_OF_FLOAT(floor, x)(x)
#define pf_ceil(x) PF_OF_FLOAT(ceil, x)(x)
#define pf_round(x) PF_OF_FLOAT(round, x)(x)
#define pf_trunc(x) PF_OF_FLOAT(trunc, x)(x)
#define pf_mantissa(x) PF_OF_FLOAT(mantissa, x)(x)
#define pf_exponent(x) PF_OF_FLOAT(exponent, x)(x)
#define pf_isnan(x) PF_OF_FLOAT(isnan, x)(x)
#define pf_isinf(x) PF_OF_FLOAT(isinf, x)(x)
#define pf_isfinite(x) PF_OF_FLOAT(isfinite, x)(x)
#define pf_pow(x, y) PF_OF_FLOAT(pow, (x) + (y))(x, y)
#define pf_atan2(y, x) PF_OF_FLOAT(atan2, (y) + (x))(y, x)
#define pf_fmod(a, b) PF_OF_FLOAT(fmod, (a) + (b))(a, b)
#define pf_copysign(x, y) PF_OF_FLOAT(copysign, (x) + (y))(x, y)
#define pf_nextafter(x, y) PF_OF_FLOAT(nextafter, (x) + (y))(x, y)
#define pf_zeta(s, q) PF_OF_FLOAT(zeta, (s) + (q))(s, q)
#define pf_igamma(a, x) PF_OF_FLOAT(igamma, (a) + (x))(a, x)
#define pf_igammac(a, x) PF_OF_FLOAT(igammac, (a) + (x))(a, x)
#define pf_chebyshev_polynomial_t(x, n) PF_OF_FLOAT(chebyshev_polynomial_t, (x) + (n))(x, n)
#define pf_chebyshev_polynomial_u(x, n) PF_OF_FLOAT(chebyshev_polynomial_u, (x) + (n))(x, n)
#define pf_chebyshev_polynomial_v(x, n) PF_OF_FLOAT(chebyshev_polynomial_v, (x) + (n))(x, n)
#define pf_chebyshev_polynomial_w(x, n) PF_OF_FLOAT(chebyshev_polynomial_w, (x) + (n))(x, n)
#define pf_hermite_polynomial_h(x, n) PF_OF_FLOAT(hermite_polynomial_h, (x) + (n))(x, n)
#define pf_hermite_polynomial_he(x, n) PF_OF_FLOAT(hermite_polynomial_he, (x) + (n))(x, n)
#define pf_laguerre_polynomial_l(x, n) PF_OF_FLOAT(laguerre_polynomial_l, (x) + (n))(x, n)
#define pf_legendre_polynomial_p(x, n) PF_OF_FLOAT(legendre_polynomial_p, (x) + (n))(x, n)

#define pf_abs(x) PF_OF_NUMBER(abs, +(x))(x)
#define pf_sign(x) PF_OF_NUMBER(sign, +(x))(x)
#define pf_max(a, b) PF_OF_NUMBER(max, (a) + (b))(a, b)
#define pf_min(a, b) PF_OF_NUMBER(min, (a) + (b))(a, b)
#define pf_clamp(x, low, high) pf_min(pf_max(x, low), high)
#define pf_mod(a, b) PF_OF_NUMBER(mod, (a) + (b))(a, b)
#define pf_floordiv(a, b) PF_OF_NUMBER(floordiv, (a) + (b))(a, b)
#define pf_ipow(base, exponent)                                                                                \
  _Generic((base) + (exponent), unsigned long: pf_ipow_u64, unsigned long long: pf_ipow_u64,                   \
      default: pf_ipow_i64)(base, exponent)
#define PF_OF_INTEGER(name, x)                                                                                 \
  _Generic((x), int: pf_##name##_i32, unsigned: pf_##name##_u32, unsigned long: pf_##name##_u64,               \
      unsigned long long: pf_##name##_u64, default: pf_##name##_i64)
#define pf_gcd(a, b) PF_OF_INTEGER(gcd, (a) + (b))(a, b)
#define pf_lcm(a, b) PF_OF_INTEGER(lcm, (a) + (b))(a, b)

#define pf_to_i8(x) PF_OF_CAST(to_i8, x)(x)
#define pf_to_u8(x) PF_OF_CAST(to_u8, x)(x)
#define pf_to_i16(x) PF_OF_CAST(to_i16, x)(x)
#define pf_to_u16(x) PF_OF_CAST(to_u16, x)(x)
#define pf_to_i32(x) PF_OF_CAST(to_i32, x)(x)
#define pf_to_u32(x) PF_OF_CAST(to_u32, x)(x)
#define pf_to_i64(x) PF_OF_CAST(to_i64, x)(x)
#define pf_to_u64(x) PF_OF_CAST(to_u64, x)(x)
#define pf_to_bool(x) PF_OF_CAST(to_bool, x)(x)
#endif

#endif
