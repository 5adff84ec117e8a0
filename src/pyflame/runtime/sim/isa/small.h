/* Floats of 8, 6 and 4 bits. */
#ifndef PF_SMALL_H
#define PF_SMALL_H

#include "vector.h"

/* What becomes of too large a number. TO_NAN: 0x80 is the one NaN and there is no -0 (FNUZ). TO_ONES: a NaN is all ones
 * (OCP's E4M3). TO_INFINITY: as IEEE's. TO_LARGEST: nothing else is there, a NaN becomes it as well. */
enum { TO_NAN, TO_ONES, TO_INFINITY, TO_LARGEST };
typedef struct { int bits, exponent_bits, bias, large; } Small;
static const Small FP8 = {8, 4, 8, TO_NAN}, BF8 = {8, 5, 16, TO_NAN}, FP8_OCP = {8, 4, 7, TO_ONES},
                   BF8_OCP = {8, 5, 15, TO_INFINITY};

static inline float small_to_f32(u32 x, const Small s) {
  const int mantissa = s.bits - 1 - s.exponent_bits;
  const u32 sign = x >> (s.bits - 1) & 1, ones = (1u << (s.bits - 1)) - 1, rest = x & ones;
  const u32 e = rest >> mantissa, m = rest & ((1u << mantissa) - 1), top = (1u << s.exponent_bits) - 1;
  if (s.large == TO_NAN ? sign && !rest : s.large == TO_ONES ? rest == ones : s.large == TO_INFINITY && e == top && m)
    return NAN;
  const float finite = scalbnf((float)(e ? m | 1u << mantissa : m), (int)(e ? e : 1) - s.bias - mantissa);
  const float magnitude = s.large == TO_INFINITY && e == top ? INFINITY : finite;
  return sign ? -magnitude : magnitude;
}

/* … and back, to the nearest, ties to even; or, with random bits, from their highest on, added to the fraction, cut off. */
static inline u16 f32_to_small(float x, const Small s, int cut, u32 random) {
  const int mantissa = s.bits - 1 - s.exponent_bits;
  const u32 bits = bits32(x), rest = bits & 0x7fffffff, ones = (1u << (s.bits - 1)) - 1;
  const u32 sign = bits >> 31 << (s.bits - 1), infinite = ((1u << s.exponent_bits) - 1) << mantissa;
  const u32 most = s.large == TO_INFINITY ? infinite - 1 : s.large == TO_ONES ? ones - 1 : ones;
  const u32 large = s.large == TO_NAN ? 0x80 : sign | (s.large == TO_INFINITY ? infinite : ones);
  /* AMD does not say which NaN. All ones, as HIP's headers have it on the host: kernels that need another one are seen. */
  if (rest > 0x7f800000) return (u16)(s.large == TO_INFINITY ? sign | ones : large);
  if (rest == 0x7f800000) return (u16)large;
  const u32 moved = rest + (cut ? random >> (9 + mantissa) : 0); /* a carry raises the exponent */
  int e = (int)(moved >> 23) - 127 + s.bias; /* of the small float */
  u32 m = moved >> 23 ? (moved & 0x7fffff) | 0x800000 : moved & 0x7fffff;
  int drop = 23 - mantissa;
  if (e < 1) drop += 1 - e, e = 1;
  if (drop > 31) return (u16)(s.large == TO_NAN ? 0 : sign);
  const u32 half = 1u << (drop - 1), kept = m >> drop, lost = m & ((1u << drop) - 1);
  m = kept + (!cut && (lost > half || (lost == half && kept & 1)));
  const u64 small = ((u64)(e - 1) << mantissa) + m; /* the leading bit counts into the exponent */
  if (small > most) return (u16)large;
  return (u16)(small || s.large != TO_NAN ? (u32)small | sign : 0);
}

#endif
