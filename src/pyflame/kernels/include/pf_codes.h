/* The block formats of weights whose numbers are small integers, as integer dot products want them.
 *
 *   weight[i] = scale[g] * (code[i] - PF_OFFSET) + least[g],   g = i / PF_GROUP
 *
 * PF_ENCODING is the name of the format, PF_GROUP how many elements share a scale: 32, or 16 as in Q6_K; a block has
 * PF_BLOCK elements in PF_BLOCK_BYTES. A format says:
 *   PF_OFFSET   what is taken off every code;  PF_LEAST: whether groups have a least number
 *   PF_SIGNED   whether codes are signed bytes; else they are 0 to 63
 *   pf_codes    the codes of a group, in order (pf_block_codes: of a block)
 *   pf_scales   scale and least number of `count` (1 to 4) neighbouring groups; where a block has several scales, of four
 */
#ifndef PF_CODES_H
#define PF_CODES_H

#include "pf_encoding.h"

#define PF_FORMAT_q4_0 1
#define PF_FORMAT_q4_1 2
#define PF_FORMAT_q5_0 3
#define PF_FORMAT_q5_1 4
#define PF_FORMAT_q8_0 5
#define PF_FORMAT_iq4_nl 6
#define PF_FORMAT_mxfp4 7
#define PF_FORMAT_q2_k 8
#define PF_FORMAT_q3_k 9
#define PF_FORMAT_q4_k 10
#define PF_FORMAT_q5_k 11
#define PF_FORMAT_q6_k 12
#define PF_FORMAT_iq4_xs 13
#define PF_FORMAT PF_GLUE(PF_FORMAT_, PF_ENCODING)
#define PF_IS(name) (PF_FORMAT == PF_FORMAT_##name)

#define PF_OFFSET (PF_IS(q4_0) ? 8 : PF_IS(q5_0) ? 16 : PF_IS(q3_k) ? 4 : PF_IS(q6_k) ? 32 : 0)
#define PF_LEAST (PF_IS(q4_1) || PF_IS(q5_1) || PF_IS(q2_k) || PF_IS(q4_k) || PF_IS(q5_k))
#define PF_SIGNED (PF_IS(q8_0) || PF_IS(iq4_nl) || PF_IS(iq4_xs) || PF_IS(mxfp4))
#define PF_SUPER (PF_FORMAT >= PF_FORMAT_q2_k) /* blocks of 256 with a scale for each group */
#define PF_VECS (PF_GROUP / 16)

/* 16 codes of a line or, where lines lie interleaved, four of each. */
typedef uint8_t pf_codes16 __attribute__((vector_size(PF_INTERLEAVED ? 4 * PF_LANES : 16), aligned(1), may_alias));
typedef int32_t pf_int4 __attribute__((vector_size(16), aligned(4), may_alias));
typedef float pf_float4 __attribute__((vector_size(16), aligned(4), may_alias));

/* Four float16, the first in the lowest bits. */
PF_ALWAYS_INLINE pf_float4 pf_halves(uint64_t bits) {
#ifdef __aarch64__
  return (pf_float4)vcvt_f32_f16((float16x4_t)vcreate_u16(bits));
#elif defined(__F16C__)
  return (pf_float4)_mm_cvtph_ps(_mm_cvtsi64_si128((int64_t)bits));
#else
  return (pf_float4){pf_f16_to_f32((uint16_t)bits), pf_f16_to_f32((uint16_t)(bits >> 16)), pf_f16_to_f32((uint16_t)(bits >> 32)),
                     pf_f16_to_f32((uint16_t)(bits >> 48))};
#endif
}

/* Four bytes as floats, the first in the lowest bits. */
PF_ALWAYS_INLINE pf_float4 pf_byte_floats(uint32_t bytes) {
#ifdef __aarch64__
  /* Each byte into a word (an index out of range gives 0), which is the mantissa of a float of 2^23 and more. */
  static const uint8_t at[16] = {0, 255, 255, 255, 1, 255, 255, 255, 2, 255, 255, 255, 3, 255, 255, 255};
  const uint32x4_t words = (uint32x4_t)vqtbl1q_u8((uint8x16_t)vdupq_n_u32(bytes), vld1q_u8(at));
  return (pf_float4)vorrq_u32(words, vdupq_n_u32(0x4b000000)) - 0x1p23f;
#else
  return (pf_float4){(float)(bytes & 255), (float)(bytes >> 8 & 255), (float)(bytes >> 16 & 255), (float)(bytes >> 24)};
#endif
}

#define PF_LOW(v) ((v) & 15)
#define PF_HIGH(v) ((v) >> 4)
#define PF_NIBBLES(high, v) ((high) ? (pf_codes16)PF_HIGH(v) : (pf_codes16)PF_LOW(v))

/* The bits `mask << from` of bytes, moved to `mask << to`. */
#define PF_MOVED(v, mask, from, to)                                                                            \
  ((from) > (to) ? (pf_codes16)((v) >> ((from) > (to) ? (from) - (to) : 0) & (mask) << (to))                   \
                 : (pf_codes16)((v) << ((from) > (to) ? 0 : (to) - (from)) & (mask) << (to)))

#if PF_IS(q5_0) || PF_IS(q5_1)
/* 16 where a bit is set, else 0: bit i of the word at `p`, or bit 16 + i if `high`, for byte i. */
PF_ALWAYS_INLINE pf_codes16 pf_fifth_bits(const uint8_t *p, const int high) {
  const pf_codes16 one = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
  const pf_codes16 at = (pf_codes16){0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1} + (uint8_t)(2 * high);
#ifdef __aarch64__
  const pf_codes16 bytes = (pf_codes16)vqtbl1q_u8((uint8x16_t)vdupq_n_u32(pf_u32_at(p)), (uint8x16_t)at);
  return (pf_codes16)vtstq_u8((uint8x16_t)bytes, (uint8x16_t)one) & 16;
#elif defined(__SSSE3__)
  const pf_codes16 bytes = (pf_codes16)_mm_shuffle_epi8(_mm_set1_epi32((int32_t)pf_u32_at(p)), (__m128i)at);
#else
  pf_codes16 bytes;
  for (int i = 0; i < 16; i++) bytes[i] = p[at[i]];
#endif
  return (pf_codes16)((bytes & one) == one) & 16;
}
#endif

#if PF_IS(iq4_nl) || PF_IS(iq4_xs) || PF_IS(mxfp4)
#if PF_IS(mxfp4) /* twice the numbers of E2M1 */
#define PF_TABLE 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12
#else
#define PF_TABLE -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113
#endif
PF_ALWAYS_INLINE pf_codes16 pf_table_codes(pf_codes16 at) {
  static const int8_t table[16] = {PF_TABLE};
#ifdef __aarch64__
  return (pf_codes16)vqtbl1q_u8(vld1q_u8((const uint8_t *)table), (uint8x16_t)at);
#elif defined(__SSSE3__)
  return (pf_codes16)_mm_shuffle_epi8(_mm_loadu_si128((const void *)table), (__m128i)at);
#else
  pf_codes16 out;
  for (int i = 0; i < 16; i++) out[i] = (uint8_t)table[at[i]];
  return out;
#endif
}
#endif

/* ---- codes of group s of the block at `b`; of interleaved lines: words `word` and 4 + `word` of the group ---- */

PF_ALWAYS_INLINE void pf_block_codes(const uint8_t *b, const int s, const int word, pf_codes16 *out) {
  (void)s, (void)word;
#if PF_INTERLEAVED
#define PF_AT(offset) (*(const pf_codes16 *)(b + ((offset) + 4 * word) * PF_LANES))
#else
#define PF_AT(offset) (*(const pf_codes16 *)(b + (offset)))
#endif
#if PF_IS(q4_0)
  out[0] = PF_LOW(PF_AT(2)), out[1] = PF_HIGH(PF_AT(2));
#elif PF_IS(q4_1)
  out[0] = PF_LOW(PF_AT(4)), out[1] = PF_HIGH(PF_AT(4));
#elif PF_IS(q5_0)
  out[0] = PF_LOW(PF_AT(6)) | pf_fifth_bits(b + 2, 0), out[1] = PF_HIGH(PF_AT(6)) | pf_fifth_bits(b + 2, 1);
#elif PF_IS(q5_1)
  out[0] = PF_LOW(PF_AT(8)) | pf_fifth_bits(b + 4, 0), out[1] = PF_HIGH(PF_AT(8)) | pf_fifth_bits(b + 4, 1);
#elif PF_IS(q8_0)
  out[0] = PF_AT(2), out[1] = PF_AT(18);
#elif PF_IS(iq4_nl)
  out[0] = pf_table_codes(PF_LOW(PF_AT(2))), out[1] = pf_table_codes(PF_HIGH(PF_AT(2)));
#elif PF_IS(mxfp4)
  out[0] = pf_table_codes(PF_LOW(PF_AT(1))), out[1] = pf_table_codes(PF_HIGH(PF_AT(1)));
#elif PF_IS(q2_k)
  out[0] = PF_AT(16 + s / 8 * 32 + s % 2 * 16) >> (s % 8 / 2 * 2) & 3;
#elif PF_IS(q3_k)
  const pf_codes16 low = PF_AT(32 + s / 8 * 32 + s % 2 * 16) >> (s % 8 / 2 * 2) & 3;
  out[0] = low | PF_MOVED(PF_AT(s % 2 * 16), 1, s / 2, 2);
#elif PF_IS(q4_k)
  const pf_codes16 low = PF_AT(16 + s / 2 * 32), high = PF_AT(32 + s / 2 * 32);
  out[0] = PF_NIBBLES(s % 2, low), out[1] = PF_NIBBLES(s % 2, high);
#elif PF_IS(q5_k)
  const pf_codes16 low = PF_AT(48 + s / 2 * 32), high = PF_AT(64 + s / 2 * 32);
  out[0] = PF_NIBBLES(s % 2, low) | PF_MOVED(PF_AT(16), 1, s, 4);
  out[1] = PF_NIBBLES(s % 2, high) | PF_MOVED(PF_AT(32), 1, s, 4);
#elif PF_IS(q6_k)
  const int quarter = s % 8 / 2;
  const pf_codes16 low = PF_AT(s / 8 * 64 + quarter % 2 * 32 + s % 2 * 16);
  out[0] = PF_NIBBLES(quarter / 2, low) | PF_MOVED(PF_AT(128 + s / 8 * 32 + s % 2 * 16), 3, quarter * 2, 4);
#elif PF_IS(iq4_xs)
  out[0] = pf_table_codes(PF_LOW(PF_AT(8 + s * 16))), out[1] = pf_table_codes(PF_HIGH(PF_AT(8 + s * 16)));
#endif
#undef PF_AT
}

#if !PF_INTERLEAVED

/* Codes of group g of the row at `row`. */
PF_ALWAYS_INLINE void pf_codes(const uint8_t *row, int64_t g, pf_codes16 *out) {
  const int64_t groups = PF_BLOCK / PF_GROUP;
  pf_block_codes(row + g / groups * PF_BLOCK_BYTES, (int)(g % groups), 0, out);
}

/* ---- scales of groups [g, g + count) ---- */

#if !PF_SUPER

PF_ALWAYS_INLINE void pf_scales(const int count, const uint8_t *row, int64_t g, pf_float4 *scale, pf_float4 *least) {
  const uint8_t *b = row + g * PF_BLOCK_BYTES;
#if PF_IS(mxfp4)
  pf_int4 bits = {0};
#pragma GCC unroll 4
  for (int j = 0; j < count; j++) { /* 2^(e - 128), half of the scale, since the table is twice the numbers */
    const int e = b[j * PF_BLOCK_BYTES];
    bits[j] = e < 2 ? 0x200000 << e : (e - 1) << 23;
  }
  *scale = (pf_float4)bits;
#else
  uint64_t d = 0, m = 0;
#pragma GCC unroll 4
  for (int j = 0; j < count; j++, b += PF_BLOCK_BYTES) {
    d |= (uint64_t)pf_u16_at(b) << 16 * j;
    if (PF_LEAST) m |= (uint64_t)pf_u16_at(b + 2) << 16 * j;
  }
  *scale = pf_halves(d);
  if (PF_LEAST) *least = pf_halves(m);
#endif
}

#else

PF_ALWAYS_INLINE void pf_scales(const int count, const uint8_t *row, int64_t g, pf_float4 *scale, pf_float4 *least) {
  const int64_t groups = PF_BLOCK / PF_GROUP;
  const uint8_t *b = row + g / groups * PF_BLOCK_BYTES;
  const int s = (int)(g % groups);
  (void)count, (void)least, (void)s;
#if PF_IS(q2_k)
  const uint32_t both = pf_u32_at(b + s);
  *scale = pf_byte_floats(both & 0x0f0f0f0f) * pf_halves(pf_u16_at(b + 80))[0];
  *least = pf_byte_floats(both >> 4 & 0x0f0f0f0f) * -pf_halves(pf_u16_at(b + 82))[0];
#elif PF_IS(q3_k)
  const uint32_t low = pf_u32_at(b + 96 + s / 4 % 2 * 4) >> s / 8 * 4 & 0x0f0f0f0f;
  const uint32_t high = pf_u32_at(b + 104) >> s / 4 * 2 & 0x03030303;
  *scale = (pf_byte_floats(low | high << 4) - 32) * pf_halves(pf_u16_at(b + 108))[0];
#elif PF_IS(q4_k) || PF_IS(q5_k)
  const uint32_t first = pf_u32_at(b + 4), second = pf_u32_at(b + 8), third = pf_u32_at(b + 12);
  const uint32_t d = s < 4 ? first & 0x3f3f3f3f : (third & 0x0f0f0f0f) | (first >> 6 & 0x03030303) << 4;
  const uint32_t m = s < 4 ? second & 0x3f3f3f3f : (third >> 4 & 0x0f0f0f0f) | (second >> 6 & 0x03030303) << 4;
  const pf_float4 both = pf_halves(pf_u32_at(b));
  *scale = pf_byte_floats(d) * both[0], *least = pf_byte_floats(m) * -both[1];
#elif PF_IS(q6_k)
  *scale = (pf_byte_floats(pf_u32_at(b + 192 + s) ^ 0x80808080) - 128) * pf_halves(pf_u16_at(b + 208))[0];
#elif PF_IS(iq4_xs)
  const uint32_t low = pf_u16_at(b + 4 + s / 2), high = pf_u16_at(b + 2) >> 2 * s;
  const uint32_t d = (low & 0xf) | (low & 0xf0) << 4 | (low & 0xf00) << 8 | (low & 0xf000) << 12;
  const uint32_t top = (high & 3) | (high & 12) << 6 | (high & 48) << 12 | (high & 192) << 18;
  *scale = (pf_byte_floats(d | top << 4) - 32) * pf_halves(pf_u16_at(b))[0];
#endif
}

#endif

#endif

#endif
