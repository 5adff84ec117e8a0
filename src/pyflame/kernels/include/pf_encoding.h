/* What decoders of encoded weights (core/encodings/) are written against, on the CPU and on GPUs.
 *
 *   pf_half_at(p), pf_float_at(p), pf_u16_at(p), pf_u32_at(p)      numbers that lie at any byte
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
PF_FN float pf_half_at(const uint8_t *p) { return pf_f16_to_f32(pf_u16_at(p)); }
PF_FN float pf_float_at(const uint8_t *p) { return pf_from_bits_f32(pf_u32_at(p)); }

#endif
