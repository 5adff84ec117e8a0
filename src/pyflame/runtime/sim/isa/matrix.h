/* What MFMA and WMMA share: factors taken apart, and the rounding they compute with. */
#ifndef PF_MATRIX_H
#define PF_MATRIX_H

#include "sim.h"

#define INLINE static inline __attribute__((always_inline))
#define NOINLINE __attribute__((noinline, noclone))

enum { NO_EXPONENT = -2000 }; /* of a zero: below whatever a product can have */

INLINE float float_of(u32 bits) { float f; memcpy(&f, &bits, 4); return f; }
INLINE u32 bits_of(float f) { u32 bits; memcpy(&bits, &f, 4); return bits; }
INLINE float power(i32 e) { return float_of((u32)(e + 127) << 23); } /* 2^e for -126 <= e <= 127 */
INLINE double power64(i32 e) { const u64 bits = (u64)(e + 1023) << 52; double d; memcpy(&d, &bits, 8); return d; }
INLINE i32 larger(i32 a, i32 b) { return a > b ? a : b; }

/* How a factor is written down: bits in all, of the fraction, the exponent's bias, and what is not finite. FNUZ: no
 * infinities, and minus zero is the one NaN. FN: no infinities, NaN is all ones. NONE: every value is finite. */
enum { IEEE, FNUZ, FN, NONE };
typedef struct { int bits, fraction, bias, special; } Format;
#define FMT_F16 ((Format){16, 10, 15, IEEE})
#define FMT_BF16 ((Format){16, 7, 127, IEEE})
#define FMT_XF32 ((Format){32, 23, 127, IEEE})
#define FMT_FP8 ((Format){8, 3, 8, FNUZ})
#define FMT_BF8 ((Format){8, 2, 16, FNUZ})
#define FMT_FP8_OCP ((Format){8, 3, 7, FN})
#define FMT_BF8_OCP ((Format){8, 2, 15, IEEE})

/* A factor as significand * 2^exponent, the significand signed and below 2; it is below 1 for denormals, and infinite
 * or NaN (with no exponent) for those. Returns whether it is finite. */
INLINE int take_apart(u32 word, const Format f, float *significand, i32 *exponent) {
  const u32 all = f.bits == 32 ? ~0u : (1u << f.bits) - 1, sign_bit = 1u << (f.bits - 1);
  const u32 magnitude = word & all & ~sign_bit, field = magnitude >> f.fraction;
  const u32 fraction = magnitude & ((1u << f.fraction) - 1);
  const u32 top = (1u << (f.bits - 1 - f.fraction)) - 1;
  const int finite = f.special == FNUZ ? (word & all) != sign_bit : f.special == FN ? magnitude != sign_bit - 1
                     : f.special == NONE || field != top;
  float s = (float)(i32)(fraction | (field ? 1u << f.fraction : 0)) * power(-f.fraction);
  s = finite ? s : f.special != IEEE || fraction ? NAN : INFINITY;
  *significand = word & sign_bit ? -s : s;
  *exponent = magnitude == 0 || !finite ? NO_EXPONENT : (i32)(field ? field : 1) - f.bias;
  return finite;
}

/* C and D of 16 bits are computed with as float32. */
enum { TO_F32, TO_F16, TO_BF16 };
INLINE u32 widen(int to, u32 half) {
  if (to == TO_BF16) return half << 16;
  _Float16 h;
  const u16 bits = (u16)half;
  memcpy(&h, &bits, 2);
  if ((half & 0x7c00) == 0x7c00) return (half & 0x8000) << 16 | 0x7f800000 | (half & 0x3ff) << 13;
  return bits_of((float)h);
}
INLINE u32 narrow(int to, u32 bits) { /* what has been rounded to 16 bits already */
  if (to == TO_BF16) return bits >> 16;
  if ((bits & 0x7f800000) == 0x7f800000) return (bits >> 16 & 0x8000) | 0x7c00 | (bits >> 13 & 0x3ff);
  const _Float16 h = (_Float16)float_of(bits);
  u16 half;
  memcpy(&half, &h, 2);
  return half;
}

/* Matrix instructions round to nearest whatever MODE says. clang vectorises no sums as long as the mode may differ. */
#ifdef __clang__
#pragma STDC FENV_ACCESS OFF
#endif
INLINE void nearest_begin(const Wave *w) { if (w->mode & 15) fesetround(FE_TONEAREST); }
INLINE void nearest_end(Wave *w) { if (w->mode & 15) mode_changed(w); }

#endif
