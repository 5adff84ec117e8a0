/* Arithmetic that float16 shares between single and packed instructions. */
#ifndef PF_FLOAT16_H
#define PF_FLOAT16_H

#include "vector.h"

/* The smaller and the larger number. A NaN loses against a number; in IEEE mode a signalling one wins, made quiet. -0 is
 * below 0. */
#define EXTREMES(T, WORD, LOAD, QUIET, INFINITE)                                                      \
  static inline int signals_##T(WORD x) {                                                             \
    const WORD rest = x & (WORD)~((WORD)1 << (8 * sizeof(WORD) - 1));                                 \
    return (rest > INFINITE) & !(x & QUIET);                                                           \
  }                                                                                                   \
  static inline WORD choose_##T(WORD x, WORD y, WORD number, int ieee) {                              \
    WORD d = LOAD(y) != LOAD(y) ? x : number;                                                         \
    d = LOAD(x) != LOAD(x) ? y : d;                                                                   \
    d = ieee & signals_##T(y) ? y | QUIET : d;                                                        \
    return ieee & signals_##T(x) ? x | QUIET : d;                                                     \
  }                                                                                                   \
  static inline WORD min_##T(WORD x, WORD y, int ieee) {                                              \
    return choose_##T(x, y, LOAD(x) < LOAD(y) ? x : LOAD(x) > LOAD(y) ? y : x | y, ieee);             \
  }                                                                                                   \
  static inline WORD max_##T(WORD x, WORD y, int ieee) {                                              \
    return choose_##T(x, y, LOAD(x) > LOAD(y) ? x : LOAD(x) < LOAD(y) ? y : x & y, ieee);             \
  }
EXTREMES(f16, u16, as_f16, 0x0200, 0x7c00)
EXTREMES(f32, u32, as_f32, 0x00400000u, 0x7f800000u)
EXTREMES(f64, u64, as_f64, 0x0008000000000000u, 0x7ff0000000000000u)

/* GFX12: min_num prefers a number to a NaN whatever the mode, minimum gives the NaN, a signalling one first. */
#define EXTREMES_12(T, WORD, LOAD, QUIET)                                                             \
  static inline WORD min_num_##T(WORD x, WORD y) {                                                    \
    return LOAD(x) != LOAD(x) && LOAD(y) != LOAD(y) ? x | QUIET : min_##T(x, y, 0);                   \
  }                                                                                                   \
  static inline WORD max_num_##T(WORD x, WORD y) {                                                    \
    return LOAD(x) != LOAD(x) && LOAD(y) != LOAD(y) ? x | QUIET : max_##T(x, y, 0);                   \
  }                                                                                                   \
  static inline WORD nan_or_##T(WORD x, WORD y, WORD number) {                                        \
    WORD d = LOAD(y) != LOAD(y) ? y | QUIET : number;                                                 \
    d = LOAD(x) != LOAD(x) ? x | QUIET : d;                                                           \
    return signals_##T(y) & ~signals_##T(x) & 1 ? y | QUIET : d;                                         \
  }                                                                                                   \
  static inline WORD minimum_##T(WORD x, WORD y) { return nan_or_##T(x, y, min_##T(x, y, 0)); }       \
  static inline WORD maximum_##T(WORD x, WORD y) { return nan_or_##T(x, y, max_##T(x, y, 0)); }
EXTREMES_12(f16, u16, as_f16, 0x0200)
EXTREMES_12(f32, u32, as_f32, 0x00400000u)
EXTREMES_12(f64, u64, as_f64, 0x0008000000000000u)

/* The median; with a NaN among the three, their minimum. A statement: it sees a, b, c and gives d. */
#define MEDIAN_BY(LOAD, LOW, HIGH)                                                                    \
  d = HIGH(HIGH(a, b), c);                                                                            \
  d = LOAD(a) != LOAD(a) || LOAD(b) != LOAD(b) || LOAD(c) != LOAD(c) ? LOW(LOW(a, b), c)              \
      : LOAD(d) == LOAD(a) ? HIGH(b, c) : LOAD(d) == LOAD(b) ? HIGH(a, c) : HIGH(a, b)
#define LOW_f16(x, y) min_f16(x, y, ieee)
#define LOW_f32(x, y) min_f32(x, y, ieee)
#define HIGH_f16(x, y) max_f16(x, y, ieee)
#define HIGH_f32(x, y) max_f32(x, y, ieee)
#define MEDIAN(T, LOAD) MEDIAN_BY(LOAD, LOW_##T, HIGH_##T)

/* a * b + c rounded once to float16. The sum in double has lost bits at times; whether it has is kept in the last bit
 * of a float ("round to odd"), whose conversion to float16 then rounds as the exact sum would. With a directed rounding
 * mode rounding twice does no harm. */
static inline float fma16(float a, float b, float c, int nearest) {
  const double p = (double)a * b, s = p + c, t = s - p, lost = (p - (s - t)) + (c - t);
  const i64 sum = (i64)bits64(s), rest = nearest ? (i64)bits64(lost) : 0;
  const i64 inexact = rest << 1 != 0, opposite = (i64)((u64)(sum ^ rest) >> 63);
  const i64 bits = sum - (inexact & opposite); /* cut off, not rounded */
  /* Sums are 0 or at least 2^-48: normal in float32, so 24 bits of the double are exact there. */
  const i64 kept = bits & ~(i64)0x1fffffff;
  const u32 odd = bits32((float)as_f64((u64)kept)) | (u32)(inexact | (bits != kept));
  const float plain = (float)s;
  return fabs(s) < 0x1p120 ? as_f32(odd) : plain; /* else infinite or a NaN */
}

#endif
