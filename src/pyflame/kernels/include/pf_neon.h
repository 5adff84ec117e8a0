/* Steps of the micro-kernels that multiply words of several neighbours along k; pf_gemm.h includes this on aarch64.
 * pf_sve.h has the same for longer vectors.
 *
 *   SDOT, UDOT            word = 4 bytes: a lane adds 4 products, 4 times the multiply-adds of fp32
 *   SMMLA, UMMLA, BFMMLA  word = 8 bytes (8 int8 or 4 bf16): two words of A by two of B give a 2 x 2 tile, twice that
 *
 * BFMMLA rounds the products of a pair to odd and adds no subnormal numbers, as AMX does.
 */
#ifndef PF_NEON_H
#define PF_NEON_H

#if PF_SVE
#include "pf_sve.h"
#elif PF_MMLA

PF_ALWAYS_INLINE pf_vec pf_tile(pf_vec acc, const pf_word_t *a, const pf_word_t *b) {
  const uint8x16_t left = vld1q_u8((const uint8_t *)a), right = vld1q_u8((const uint8_t *)b);
#if PF_A_TAG == PF_TAG_bfloat16
  return (pf_vec)vbfmmlaq_f32((float32x4_t)acc, (bfloat16x8_t)left, (bfloat16x8_t)right);
#elif PF_A_TAG == PF_TAG_int8
  return (pf_vec)vmmlaq_s32((int32x4_t)acc, (int8x16_t)left, (int8x16_t)right);
#else
  return (pf_vec)vmmlaq_u32((uint32x4_t)acc, left, right);
#endif
}

/* Two rows of four outputs become two tiles of two by two, and back, which is the same here. */
PF_ALWAYS_INLINE void pf_turn(const int rows, const int vecs, pf_vec (*acc)[PF_NV], const int back) {
  (void)back;
#pragma GCC unroll 16
  for (int r = 0; r < rows; r += 2)
#pragma GCC unroll 2
    for (int v = 0; v < vecs; v++) {
      const uint64x2_t even = (uint64x2_t)acc[r][v], odd = (uint64x2_t)acc[r + 1][v];
      acc[r][v] = (pf_vec)vzip1q_u64(even, odd), acc[r + 1][v] = (pf_vec)vzip2q_u64(even, odd);
    }
}

#else

#if PF_A_TAG == PF_TAG_int8
#define PF_DOT(acc, b, a, lane) (pf_vec) vdotq_laneq_s32((int32x4_t)(acc), (int8x16_t)(b), (int8x16_t)(a), lane)
#else
#define PF_DOT(acc, b, a, lane) (pf_vec) vdotq_laneq_u32((uint32x4_t)(acc), (uint8x16_t)(b), (uint8x16_t)(a), lane)
#endif

PF_ALWAYS_INLINE void pf_step(const int rows, const int vecs, const pf_word_t *a, const pf_word_t *b, pf_vec (*acc)[PF_NV]) {
  uint32x4_t column[PF_NV];
#pragma GCC unroll 2
  for (int v = 0; v < vecs; v++) column[v] = vld1q_u32(b + v * PF_LANES);
#pragma GCC unroll 4
  for (int r = 0; r + 4 <= rows; r += 4) {
    const uint32x4_t left = vld1q_u32(a + r);
#pragma GCC unroll 2
    for (int v = 0; v < vecs; v++) {
      acc[r][v] = PF_DOT(acc[r][v], column[v], left, 0), acc[r + 1][v] = PF_DOT(acc[r + 1][v], column[v], left, 1);
      acc[r + 2][v] = PF_DOT(acc[r + 2][v], column[v], left, 2), acc[r + 3][v] = PF_DOT(acc[r + 3][v], column[v], left, 3);
    }
  }
#pragma GCC unroll 4
  for (int r = rows / 4 * 4; r < rows; r++)
#pragma GCC unroll 2
    for (int v = 0; v < vecs; v++) acc[r][v] = PF_DOT(acc[r][v], column[v], vdupq_n_u32(a[r]), 0);
}

#endif

#if PF_MMLA
PF_ALWAYS_INLINE void pf_step(const int rows, const int vecs, const pf_word_t *a, const pf_word_t *b, pf_vec (*acc)[PF_NV]) {
#pragma GCC unroll 16
  for (int r = 0; r < rows; r += 2)
#pragma GCC unroll 2
    for (int v = 0; v < vecs; v++) {
      acc[r][v] = pf_tile(acc[r][v], a + r, b + v * PF_LANES);
      acc[r + 1][v] = pf_tile(acc[r + 1][v], a + r, b + v * PF_LANES + PF_LANES / 2);
    }
}
#endif

/* Eight words whose elements lie k_stride apart: to[c] = {line[c], line[c + k_stride], ..}. */
PF_ALWAYS_INLINE void pf_interleave(pf_word_t *to, const void *line, int64_t k_stride) {
#if PF_GROUP == 8
  const uint8_t *at = line;
  uint16x8x4_t pairs;
  for (int p = 0; p < 4; p++, at += 2 * k_stride) {
    const uint8x8x2_t pair = vzip_u8(vld1_u8(at), vld1_u8(at + k_stride));
    pairs.val[p] = (uint16x8_t)vcombine_u8(pair.val[0], pair.val[1]);
  }
  vst4q_u16((uint16_t *)to, pairs);
#elif PF_MMLA
  const uint16_t *at = line;
  uint16x8x4_t lines = {{vld1q_u16(at), vld1q_u16(at + k_stride), vld1q_u16(at + 2 * k_stride), vld1q_u16(at + 3 * k_stride)}};
  vst4q_u16((uint16_t *)to, lines);
#else
  const uint8_t *at = line;
  uint8x8x4_t lines = {{vld1_u8(at), vld1_u8(at + k_stride), vld1_u8(at + 2 * k_stride), vld1_u8(at + 3 * k_stride)}};
  vst4_u8((uint8_t *)to, lines);
#endif
}

#endif
