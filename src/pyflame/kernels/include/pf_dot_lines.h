/* Dot products of lines as they lie: what `few` of encoded.c multiplies with.
 *
 *   pf_group_sums(count, codes, x)   of up to four groups, which lie PF_SPAN apart in x, in all planes
 */
#ifndef PF_DOT_LINES_H
#define PF_DOT_LINES_H

#include "pf_dot.h"

/* pf_zero: four partial sums; pf_add_dots: those of `count` groups, += a plane; pf_join: four such, each added up. */
#if PF_SDOT

PF_ALWAYS_INLINE pf_int4 pf_zero(void) {
  pf_int4 sum;
  __asm__ volatile("movi %0.4s, #0" : "=w"(sum)); /* free, unlike the copy of a zero that gcc makes */
  return sum;
}

/* Groups by turns, so that an instruction seldom waits for the one before. */
PF_ALWAYS_INLINE void pf_add_dots(const int count, pf_int4 *sum, pf_codes16 (*codes)[PF_VECS], const int8_t *x) {
#pragma GCC unroll 2
  for (int v = 0; v < PF_VECS; v++)
#pragma GCC unroll 4
    for (int j = 0; j < count; j++)
      sum[j] = (pf_int4)vdotq_s32((int32x4_t)sum[j], (int8x16_t)codes[j][v], vld1q_s8(x + j * PF_SPAN + 16 * v));
}

PF_ALWAYS_INLINE pf_int4 pf_join(const pf_int4 *p) {
  return (pf_int4)vpaddq_s32(vpaddq_s32((int32x4_t)p[0], (int32x4_t)p[1]), vpaddq_s32((int32x4_t)p[2], (int32x4_t)p[3]));
}

#elif PF_VNNI || PF_MADD

PF_ALWAYS_INLINE pf_int4 pf_zero(void) { return (pf_int4){0}; }

PF_ALWAYS_INLINE void pf_add_dots(const int count, pf_int4 *sum, pf_codes16 (*codes)[PF_VECS], const int8_t *x) {
#pragma GCC unroll 4
  for (int j = 0; j < count; j++, x += PF_SPAN) {
#if PF_VECS == 2
    const __m256i both = _mm256_inserti128_si256(_mm256_castsi128_si256((__m128i)codes[j][0]), (__m128i)codes[j][1], 1);
    const __m256i dots = pf_products(_mm256_setzero_si256(), both, _mm256_loadu_si256((const void *)x));
    sum[j] += (pf_int4)_mm_add_epi32(_mm256_castsi256_si128(dots), _mm256_extracti128_si256(dots, 1));
#else
    const __m256i dots = pf_products(_mm256_setzero_si256(), _mm256_castsi128_si256((__m128i)codes[j][0]),
                                     _mm256_castsi128_si256(_mm_loadu_si128((const void *)x)));
    sum[j] += (pf_int4)_mm256_castsi256_si128(dots);
#endif
  }
}

PF_ALWAYS_INLINE pf_int4 pf_join(const pf_int4 *p) {
  return (pf_int4)_mm_hadd_epi32(_mm_hadd_epi32((__m128i)p[0], (__m128i)p[1]), _mm_hadd_epi32((__m128i)p[2], (__m128i)p[3]));
}

#else

PF_ALWAYS_INLINE pf_int4 pf_zero(void) { return (pf_int4){0}; }

PF_ALWAYS_INLINE void pf_add_dots(const int count, pf_int4 *sum, pf_codes16 (*codes)[PF_VECS], const int8_t *x) {
  for (int j = 0; j < count; j++)
    for (int i = 0; i < 16 * PF_VECS; i++) sum[j][i % 16 / 4] += (int8_t)codes[j][i / 16][i % 16] * x[j * PF_SPAN + i];
}

PF_ALWAYS_INLINE pf_int4 pf_join(const pf_int4 *p) {
  pf_int4 out;
  for (int j = 0; j < 4; j++) out[j] = p[j][0] + p[j][1] + p[j][2] + p[j][3];
  return out;
}

#endif

PF_ALWAYS_INLINE pf_float4 pf_group_sums(const int count, pf_codes16 (*codes)[PF_VECS], const int8_t *x) {
  pf_int4 sum[4] = {{0}};
#pragma GCC unroll 4
  for (int j = 0; j < count; j++) sum[j] = pf_zero();
  pf_add_dots(count, sum, codes, x);
  if (PF_PLANES == 2) {
#pragma GCC unroll 4
    for (int j = 0; j < count; j++) sum[j] <<= 7;
    pf_add_dots(count, sum, codes, x + PF_GROUP);
  }
#if PF_SDOT && PF_PLANES == 1
  return (pf_float4)(pf_join(sum) + PF_START) - 0x1.8p23f;
#else
  return __builtin_convertvector(pf_join(sum), pf_float4);
#endif
}

#endif
