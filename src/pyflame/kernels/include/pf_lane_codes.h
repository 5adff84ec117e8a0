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
  /* As pf_byte_floats; an index out of range leaves a byte of 2^23, which is loaded each time: the vector units are busier
   * than the loads, and would copy it. */
  static const uint32_t high[4] = {0x4b000000, 0x4b000000, 0x4b000000, 0x4b000000};
  const uint32_t index = 0xffffff00 + (uint32_t)at;
  const uint32x4_t indices = {index, index + 4, index + 8, index + 12};
  uint8x16_t number;
  __asm__ volatile("ld1 {%0.16b}, %1" : "=w"(number) : "Q"(high));
  return (pf_floats)vqtbx1q_u8(number, (uint8x16_t)words, vreinterpretq_u8_u32(indices)) - 0x1p23f;
#else
  return __builtin_convertvector((pf_ints)words >> 8 * at & 255, pf_floats);
#endif
}

/* What the groups of a block share: `d` and `least` become scales and least numbers, by bytes of words where a block has
 * a scale for each group: scales[s / 4], leasts[s / 4]. */
typedef struct {
  pf_floats d, least;
  pf_codes16 scales[4], leasts[2];
} pf_lane_head;

PF_ALWAYS_INLINE pf_lane_head pf_lane_head_of(const uint8_t *b) {
#define PF_AT(offset) (*(const pf_codes16 *)(b + (offset) * PF_LANES))
  pf_lane_head head;
#if PF_IS(q4_k)
  const pf_codes16 first = PF_AT(4), second = PF_AT(8), third = PF_AT(12);
  head.d = pf_lane_halves(b), head.least = -pf_lane_halves(b + 2 * PF_LANES);
  head.scales[0] = first & 63, head.scales[1] = (third & 15) | (first >> 2 & 48);
  head.leasts[0] = second & 63, head.leasts[1] = third >> 4 | (second >> 2 & 48);
#elif PF_IS(q6_k)
  head.d = pf_lane_halves(b + 208 * PF_LANES);
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) head.scales[i] = PF_AT(192 + 4 * i) ^ 128;
#else
  head.d = pf_lane_halves(b);
  if (PF_LEAST) head.least = pf_lane_halves(b + 2 * PF_LANES);
#endif
#undef PF_AT
  return head;
}

/* Scale and least number of group s. */
PF_ALWAYS_INLINE void pf_lane_scales(const pf_lane_head *head, const int s, pf_floats *scale, pf_floats *least) {
  (void)s, (void)least;
#if PF_IS(q4_k)
  *scale = pf_lane_bytes(head->scales[s / 4], s % 4) * head->d, *least = pf_lane_bytes(head->leasts[s / 4], s % 4) * head->least;
#elif PF_IS(q6_k)
  *scale = (pf_lane_bytes(head->scales[s / 4], s % 4) - 128) * head->d;
#else
  *scale = head->d;
  if (PF_LEAST) *least = head->least;
#endif
}

#endif
