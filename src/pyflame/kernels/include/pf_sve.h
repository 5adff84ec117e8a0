/* The steps of pf_neon.h for SVE of a known length; pf_neon.h includes this.
 *
 * SVE multiplies each 16 bytes as NEON does: words of A are repeated for each of them, those of B follow one another.
 */
#ifndef PF_SVE_H
#define PF_SVE_H

#if PF_MMLA

PF_ALWAYS_INLINE pf_vec pf_tile(pf_vec acc, const pf_word_t *a, const pf_word_t *b) {
  const svuint64_t left = svld1rq_u64(svptrue_b64(), a), right = svld1_u64(svptrue_b64(), b);
#if PF_A_TAG == PF_TAG_bfloat16
  return (pf_vec)(pf_sve_f32)svbfmmla_f32((pf_sve_f32)acc, svreinterpret_bf16(left), svreinterpret_bf16(right));
#elif PF_A_TAG == PF_TAG_int8
  return (pf_vec)(pf_sve_s32)svmmla_s32((pf_sve_s32)acc, svreinterpret_s8(left), svreinterpret_s8(right));
#else
  return (pf_vec)(pf_sve_u32)svmmla_u32((pf_sve_u32)acc, svreinterpret_u8(left), svreinterpret_u8(right));
#endif
}

/* Two rows of outputs become tiles of two by two, those of the left half of the columns first; `back` undoes it. */
PF_ALWAYS_INLINE void pf_turn(const int rows, const int vecs, pf_vec (*acc)[PF_NV], const int back) {
#pragma GCC unroll 16
  for (int r = 0; r < rows; r += 2)
#pragma GCC unroll 2
    for (int v = 0; v < vecs; v++) {
      const svuint64_t x = (pf_sve_u64)acc[r][v], y = (pf_sve_u64)acc[r + 1][v];
      acc[r][v] = (pf_vec)(pf_sve_u64)(back ? svuzp1_u64(x, y) : svzip1_u64(x, y));
      acc[r + 1][v] = (pf_vec)(pf_sve_u64)(back ? svuzp2_u64(x, y) : svzip2_u64(x, y));
    }
}

#else

PF_ALWAYS_INLINE pf_vec pf_dot(pf_vec acc, svuint32_t b, svuint32_t a) {
#if PF_A_TAG == PF_TAG_int8
  return (pf_vec)(pf_sve_s32)svdot_s32((pf_sve_s32)acc, svreinterpret_s8(b), svreinterpret_s8(a));
#else
  return (pf_vec)(pf_sve_u32)svdot_u32((pf_sve_u32)acc, svreinterpret_u8(b), svreinterpret_u8(a));
#endif
}

PF_ALWAYS_INLINE void pf_step(const int rows, const int vecs, const pf_word_t *a, const pf_word_t *b, pf_vec (*acc)[PF_NV]) {
#pragma GCC unroll 16
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
    for (int v = 0; v < vecs; v++)
      acc[r][v] = pf_dot(acc[r][v], svld1_u32(svptrue_b32(), b + v * PF_LANES), svdup_u32(a[r]));
}

#endif

#endif
