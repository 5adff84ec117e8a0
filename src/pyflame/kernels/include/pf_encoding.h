/* What decoders of encoded weights (core/encodings/) are written against, on the CPU and on GPUs.
 *
 *   pf_half_at(p), pf_float_at(p), pf_u16_at(p), pf_u32_at(p)      numbers that lie at any byte
 *   pf_sixteen_at(p).at[i]                                         16 bytes, which begin where the largest power of two (up
 *                                                                  to 16) that divides the block's bytes divides, too
 *   pf_bits_of(sixteen, shift, mask), pf_joined(low, high, by)     some bits of each byte; bytes of both put together
 *   pf_sixes_of(sixteen, g).scale, .least                          of the first bytes of a block as Q4_K's: two float16, each
 *                                                                  times one of its 8 numbers of 6 bits in 12 bytes
 *   pf_with_fifth(sixteen, bits)                                   bit i becomes bit 4 of byte i
 *   pf_looked_up(sixteen, low, high)                               of each byte i that of 16 in two words: a table without memory
 *   PF_UNROLL                                                      before a loop over a group: `y` stays in registers
 * A decoder's products are rounded one by one: its text is compiled without contraction, so that all devices agree.
 */
#ifndef PF_ENCODING_H
#define PF_ENCODING_H

#ifndef PF_UNROLL
#define PF_UNROLL
#endif

PF_FN uint16_t pf_u16_at(const uint8_t *p) {
  uint16_t u;
  __builtin_memcpy(&u, p, 2);
  return u;
}
PF_FN uint32_t pf_u32_at(const uint8_t *p) {
  uint32_t u;
  __builtin_memcpy(&u, p, 4);
  return u;
}
typedef struct {
  uint8_t at[16];
} pf_sixteen;
PF_FN pf_sixteen pf_sixteen_at(const uint8_t *p) {
  pf_sixteen v;
  __builtin_memcpy(&v, p, 16);
  return v;
}
/* Bits of every byte, from bit `shift` on, where `mask` has a 1. In words: a GPU takes a byte of a word as a number. */
PF_FN pf_sixteen pf_bits_of(pf_sixteen v, int shift, uint32_t mask) {
  uint32_t words[4];
  __builtin_memcpy(words, &v, 16);
  PF_UNROLL
  for (int k = 0; k < 4; k++) words[k] = words[k] >> shift & mask * 0x01010101u;
  __builtin_memcpy(&v, words, 16);
  return v;
}
/* low | high << by, of every byte. */
PF_FN pf_sixteen pf_joined(pf_sixteen low, pf_sixteen high, int by) {
  uint32_t a[4], b[4];
  __builtin_memcpy(a, &low, 16);
  __builtin_memcpy(b, &high, 16);
  PF_UNROLL
  for (int k = 0; k < 4; k++) a[k] |= b[k] << by;
  __builtin_memcpy(&low, a, 16);
  return low;
}
PF_FN float pf_half_at(const uint8_t *p) { return pf_f16_to_f32(pf_u16_at(p)); }
PF_FN float pf_float_at(const uint8_t *p) { return pf_from_bits_f32(pf_u32_at(p)); }
typedef struct {
  float scale, least;
} pf_both;
/* A pair of 6 bits of those 12 bytes: the first, and 256 times the second. */
PF_FN int pf_sixes(const uint8_t *p, int g) {
  const int by = (g & 3) * 8;
  const uint32_t last = 0u - (uint32_t)(g >> 2 & 1), both = pf_u32_at(p + 8) >> by & 255; /* last: all bits, for 4 to 7 */
  const uint32_t pair = (pf_u32_at(p) >> by & 255) | (pf_u32_at(p + 4) >> by & 255) << 8;
  return (int)((pair & (0x3f3f & ~last)) | ((both | both << 4) & (0x0f0f & last)) | (pair >> 2 & (0x3030 & last)));
}
PF_FN pf_both pf_sixes_of(pf_sixteen head, int g) {
  const uint32_t halves = pf_u32_at(head.at);
  const int sixes = pf_sixes(head.at + 4, g);
  pf_both out;
  out.scale = pf_f16_to_f32((uint16_t)halves) * (float)(sixes & 255);
  out.least = pf_f16_to_f32((uint16_t)(halves >> 16)) * (float)(sixes >> 8);
  return out;
}
PF_FN pf_sixteen pf_with_fifth(pf_sixteen v, uint32_t bits) {
  uint32_t words[4];
  __builtin_memcpy(words, &v, 16);
  PF_UNROLL
  for (int k = 0; k < 4; k++) /* four bits, each times 1 << 7 n: bit n is the lowest of byte n */
    words[k] |= ((bits >> 4 * k & 15) * 0x00204081u & 0x01010101u) << 4;
  __builtin_memcpy(&v, words, 16);
  return v;
}
PF_FN pf_sixteen pf_looked_up(pf_sixteen v, uint64_t low, uint64_t high) {
  PF_UNROLL
  for (int i = 0; i < 16; i++) v.at[i] = (uint8_t)((v.at[i] < 8 ? low : high) >> (v.at[i] & 7) * 8);
  return v;
}

#endif
