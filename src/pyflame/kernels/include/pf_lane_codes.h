/* Codes and scales of interleaved lines (pf_interleaved.h), decoded for a vector of lines at a time. */
#ifndef PF_LANE_CODES_H
#define PF_LANE_CODES_H

#include "pf_codes.h"
#include "pf_lanes.h"

_Static_assert(PF_INTERLEAVED == PF_LANES, "lines were interleaved for other vectors");

PF_ALWAYS_INLINE void pf_lane_codes(const uint8_t *b, const int s, pf_codes16 *codes) {
#pragma GCC unroll 4
  for (int word = 0; word < 4; word++) {
    pf_codes16 part[PF_VECS];
    pf_block_codes(b, s, word, part);
#pragma GCC unroll 2
    for (int v = 0; v < PF_VECS; v++) codes[4 * v + word] = part[v];
  }
}

PF_ALWAYS_INLINE pf_floats pf_lane_halves(const uint8_t *b) {
#if PF_VNNI
  return (pf_floats)_mm512_cvtph_ps(_mm256_loadu_si256((const void *)b));
#elif PF_MADD && defined(__F16C__)
  return (pf_floats)_mm256_cvtph_ps(_mm_loadu_si128((const void *)b));
#else
  pf_floats out;
#pragma GCC unroll 4
  for (int l = 0; l < PF_LANES; l += 4) {
    const pf_float4 four = pf_halves(pf_u32_at(b + 2 * l) | (uint64_t)pf_u32_at(b + 2 * l + 4) << 32);
    __builtin_memcpy((float *)&out + l, &four, sizeof four);
  }
  return out;
#endif
}

/* Byte `at` of each word, as a float. */
PF_ALWAYS_INLINE pf_floats pf_lane_bytes(pf_codes16 words, const int at) {
#ifdef __aarch64__
  /* As pf_byte_floats: the second vector of the table has the upper byte of 2^23. */
  const uint8x16x2_t table = {{(uint8x16_t)words, vreinterpretq_u8_u32(vdupq_n_u32(0x4b000000))}};
  const uint32_t index = 0x13101000 + (uint32_t)at;
  const uint32x4_t indices = {index, index + 4, index + 8, index + 12};
  return (pf_floats)vqtbl2q_u8(table, vreinterpretq_u8_u32(indices)) - 0x1p23f;
#else
  return __builtin_convertvector((pf_ints)words >> 8 * at & 255, pf_floats);
#endif
}

/* Scale and least number of group s. */
PF_ALWAYS_INLINE void pf_lane_scales(const uint8_t *b, const int s, pf_floats *scale, pf_floats *least) {
#define PF_AT(offset) (*(const pf_codes16 *)(b + (offset) * PF_LANES))
  (void)s, (void)least;
#if PF_IS(q4_k)
  const pf_codes16 first = PF_AT(4), second = PF_AT(8), third = PF_AT(12);
  const pf_codes16 d = s < 4 ? first & 63 : (third & 15) | (first >> 2 & 48);
  const pf_codes16 m = s < 4 ? second & 63 : third >> 4 | (second >> 2 & 48);
  *scale = pf_lane_bytes(d, s % 4) * pf_lane_halves(b), *least = pf_lane_bytes(m, s % 4) * -pf_lane_halves(b + 2 * PF_LANES);
#elif PF_IS(q6_k)
  const pf_codes16 d = PF_AT(192 + s / 4 * 4) ^ 128;
  *scale = (pf_lane_bytes(d, s % 4) - 128) * pf_lane_halves(b + 208 * PF_LANES);
#else
  *scale = pf_lane_halves(b);
  if (PF_LEAST) *least = pf_lane_halves(b + 2 * PF_LANES);
#endif
#undef PF_AT
}

#endif
