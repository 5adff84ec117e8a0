/* Vector conversions. vector_convert.def says what each instruction does. */
#include "vector.h"

static inline i32 i32_of(float x) {
  return x >= 0x1p31f ? INT32_MAX : x < -0x1p31f ? INT32_MIN : x == x ? (i32)x : 0;
}
static inline u32 u32_of(float x) { return x >= 0x1p32f ? ~0u : x > 0 ? (u32)x : 0; }
static inline i32 i32_of_f64(double x) {
  return x >= 0x1p31 ? INT32_MAX : x <= -0x1p31 ? INT32_MIN : x == x ? (i32)x : 0;
}
static inline u32 u32_of_f64(double x) { return x >= 0x1p32 ? ~0u : x > 0 ? (u32)x : 0; }
static inline i16 i16_of(float x) { return x >= 32767 ? 32767 : x <= -32768 ? -32768 : x == x ? (i16)(i32)x : 0; }
static inline u16 u16_of(float x) { return x >= 65535 ? 65535 : x > 0 ? (u16)(i32)x : 0; }
static inline i16 i16_sat(i32 x) { return x > 32767 ? 32767 : x < -32768 ? -32768 : (i16)x; }

/* To float16, towards zero whatever the mode. */
static inline u16 cut16(float x) {
  u32 bits = bits32(x);
  const u32 sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
  if (rest > 0x7f800000) return (u16)(sign | 0x7e00 | (rest >> 13 & 0x3ff));
  if (rest == 0x7f800000) return (u16)(sign | 0x7c00);
  if (rest >= 0x47800000) return (u16)(sign | 0x7bff);                    /* too large: the largest */
  if (rest >= 0x38800000) return (u16)(sign | (rest - 0x38000000) >> 13); /* normal */
  const u32 shift = 126 - (rest >> 23);                                   /* a denormal: 2^-14 is the first normal */
  return (u16)(sign | (shift > 24 ? 0 : ((rest & 0x7fffff) | 0x800000) >> shift));
}

/* 8-bit floats with 4 or 5 bits of exponent and a bias of 2^(bits - 1). */
static inline float small_to_f32(u32 x, int exponent_bits) {
  const int mantissa = 7 - exponent_bits, bias = 1 << (exponent_bits - 1);
  const u32 rest = x & 127, e = rest >> mantissa, m = rest & ((1u << mantissa) - 1);
  if (x == 0x80) return NAN;
  const float magnitude = scalbnf((float)(e ? m | 1u << mantissa : m), (int)(e ? e : 1) - bias - mantissa);
  return x >> 7 ? -magnitude : magnitude;
}
/* … and back, to the nearest, ties to even. What is too large becomes the NaN. */
static inline u16 f32_to_small(float x, int exponent_bits) {
  const int mantissa = 7 - exponent_bits, bias = 1 << (exponent_bits - 1);
  const u32 bits = bits32(x), rest = bits & 0x7fffffff;
  if (rest >= 0x7f800000) return 0x80;
  int e = (int)(rest >> 23) - 127 + bias; /* of the 8-bit float */
  u32 m = rest >> 23 ? (rest & 0x7fffff) | 0x800000 : rest & 0x7fffff;
  int drop = 23 - mantissa;
  if (e < 1) drop += 1 - e, e = 1;
  if (drop > 31) return 0;
  const u32 half = 1u << (drop - 1), kept = m >> drop, lost = m & ((1u << drop) - 1);
  m = kept + (lost > half || (lost == half && kept & 1));
  const u32 small = ((u32)(e - 1) << mantissa) + m; /* the leading bit counts into the exponent */
  if (small > 127) return 0x80;
  return (u16)(small ? small | (bits >> 24 & 0x80) : 0);
}

#include "vector_convert.def"
#include "rows.h"
const Entry CONVERT_TABLE[] = {
#include "vector_convert.def"
};
const int CONVERT_COUNT = sizeof CONVERT_TABLE / sizeof *CONVERT_TABLE;
