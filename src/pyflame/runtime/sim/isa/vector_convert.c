/* Vector conversions. vector_convert.def says what each instruction does. */
#include "convert.h"

/* 8-bit floats: bits of the exponent, its bias, and whether they are OCP's, with -0, infinities where there are two bits
 * of a fraction, and NaNs; else 0x80 is the one NaN, and nothing is infinite. */
typedef struct { int exponent_bits, bias, ocp; } Small;
static const Small FP8 = {4, 8, 0}, BF8 = {5, 16, 0}, FP8_OCP = {4, 7, 1}, BF8_OCP = {5, 15, 1};

static inline float small_to_f32(u32 x, const Small s) {
  const int mantissa = 7 - s.exponent_bits;
  const u32 rest = x & 127, e = rest >> mantissa, m = rest & ((1u << mantissa) - 1);
  if (s.ocp ? rest > (s.exponent_bits == 4 ? 0x7e : 0x7c) : x == 0x80) return NAN;
  const float finite = scalbnf((float)(e ? m | 1u << mantissa : m), (int)(e ? e : 1) - s.bias - mantissa);
  const float magnitude = s.ocp && s.exponent_bits == 5 && rest == 0x7c ? INFINITY : finite;
  return x >> 7 ? -magnitude : magnitude;
}
/* … and back, to the nearest, ties to even; or, with random bits added to the fraction, cut off. What is too large becomes
 * infinite, or a NaN where nothing is. */
static inline u16 f32_to_small(float x, const Small s, int cut, u32 random) {
  const int mantissa = 7 - s.exponent_bits;
  const u32 bits = bits32(x), rest = bits & 0x7fffffff, sign = bits >> 24 & 0x80;
  const u32 large = !s.ocp ? 0x80 : sign | (s.exponent_bits == 4 ? 0x7f : 0x7c), most = !s.ocp ? 127 : large & 0x7f;
  if (rest > 0x7f800000) return (u16)(!s.ocp ? 0x80 : sign | (s.exponent_bits == 4 ? 0x7f : 0x7e));
  if (rest == 0x7f800000) return (u16)large;
  const u32 moved = rest + (cut ? random >> (32 - (23 - mantissa)) : 0); /* a carry raises the exponent */
  int e = (int)(moved >> 23) - 127 + s.bias; /* of the 8-bit float */
  u32 m = moved >> 23 ? (moved & 0x7fffff) | 0x800000 : moved & 0x7fffff;
  int drop = 23 - mantissa;
  if (e < 1) drop += 1 - e, e = 1;
  if (drop > 31) return (u16)(s.ocp ? sign : 0);
  const u32 half = 1u << (drop - 1), kept = m >> drop, lost = m & ((1u << drop) - 1);
  m = kept + (!cut && (lost > half || (lost == half && kept & 1)));
  const u32 small = ((u32)(e - 1) << mantissa) + m; /* the leading bit counts into the exponent */
  if (s.ocp ? small >= most : small > most) return (u16)large;
  return (u16)(small || s.ocp ? small | sign : 0);
}
#define TWO_SMALL(A, B, S) (f32_to_small(A, S, 0, 0) | f32_to_small(B, S, 0, 0) << 8)
#define TWO_FLOATS(X, S) (bits32(small_to_f32(X & 255, S)) | (u64)bits32(small_to_f32(X >> 8 & 255, S)) << 32)
#define DOT4_SMALL(S, T)                                                                              \
  double sum = c;                                                                                     \
  for (int i = 0; i < 32; i += 8) sum += (double)small_to_f32(a >> i & 255, S) * small_to_f32(b >> i & 255, T); \
  d = (float)sum

#include "vector_convert.def"
#include "rows.h"
const Entry CONVERT_TABLE[] = {
#include "vector_convert.def"
};
const int CONVERT_COUNT = sizeof CONVERT_TABLE / sizeof *CONVERT_TABLE;
