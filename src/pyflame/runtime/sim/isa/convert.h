/* Conversions that scalar and vector instructions share. To integers they cut off, saturate, and make 0 of a NaN. */
#ifndef PF_CONVERT_H
#define PF_CONVERT_H

#include "vector.h"

/* To whole numbers, ties to even, whatever the mode's rounding: the steps are exact. */
static inline float even_f32(float x) {
  const float low = floorf(x), rest = x - low, half = low * 0.5f;
  const float r = (rest > 0.5f) | ((rest == 0.5f) & (floorf(half) != half)) ? low + 1 : low;
  return copysignf(r, x);
}
static inline double even_f64(double x) {
  const double low = floor(x), rest = x - low, half = low * 0.5;
  const double r = (rest > 0.5) | ((rest == 0.5) & (floor(half) != half)) ? low + 1 : low;
  return copysign(r, x);
}
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

#endif
