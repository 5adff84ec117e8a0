/* Dot products of codes (pf_codes.h) and int8, by instruction set; encoded.c includes this.
 *
 *   pf_dots(sum, w, x)   PF_MR rows of x by PF_NR lines: lane l += four codes of line l times four x
 *
 *   SDOT                        16 products in an instruction
 *   VPDPBUSD                    32 or 64; codes must be unsigned
 *   VPMADDUBSW + VPMADDWD       32 in two; codes must be unsigned and, as pairs are summed in 16 bits, at most 128
 * Signed codes of x86: their sign moves to x (VPSIGNB), which never is -128; AVX-512 has no such instruction, so panels
 * hold code + 128 there, and the least number of the group takes that off again.
 */
#ifndef PF_DOT_H
#define PF_DOT_H

#include "pf_lanes.h"

/* What a panel's codes are shifted by. */
#if PF_VNNI
#define PF_SHIFT (PF_SIGNED ? 128 : 0)
#elif PF_MADD
#define PF_SHIFT 0
#else
#define PF_SHIFT (-PF_OFFSET)
#endif

enum { PF_SPAN = PF_PLANES * PF_GROUP };

#if PF_VNNI || PF_MADD
PF_ALWAYS_INLINE __m256i pf_products(__m256i sum, __m256i codes, __m256i x) {
  if (PF_SIGNED) x = _mm256_sign_epi8(x, codes), codes = _mm256_abs_epi8(codes);
#if PF_VNNI
  return _mm256_dpbusd_epi32(sum, codes, x);
#else
  return _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(codes, x), _mm256_set1_epi16(1)));
#endif
}
#endif

/* ---- 16 elements of PF_MR rows of x by a panel of lines: sum[r][v] += w[word][v] * x[r][word], for four words ---- */

/* Of VPDPBUSD two start in a cycle and end five later: fewer than 10 sums would wait for themselves. */
enum { PF_MR = PF_VNNI ? 6 : 4, PF_NR = PF_NV * PF_LANES };

/* Sums begin with PF_START: as the bits of a float it is 1.5 * 2^23, so that subtracting that makes floats of them, if they
 * are below 2^22. N1 and its like take two cycles to convert four integers. */
#if PF_SDOT
#define PF_START 0x4b400000
#else
#define PF_START 0
#endif

/* Whether planes are joined as integers, 128 high + low: the sums of the low plane begin with those of the high one, shifted. */
#define PF_JOINED (PF_PLANES == 2 && (!PF_START || PF_IS(q4_0)))

#if PF_SDOT
enum { PF_FIRST = PF_JOINED ? PF_START >> 7 : PF_START };
static const int32_t pf_first_sum[4] = {PF_FIRST, PF_FIRST, PF_FIRST, PF_FIRST};
PF_ALWAYS_INLINE pf_ints pf_no_sum(void) {
  pf_ints sum;
  __asm__ volatile("ld1 {%0.4s}, %1" : "=w"(sum) : "Q"(pf_first_sum)); /* the vector units are busier than the loads */
  return sum;
}
PF_ALWAYS_INLINE pf_floats pf_as_floats(pf_ints sum) { return (pf_floats)sum - 0x1.8p23f; }
#else
PF_ALWAYS_INLINE pf_ints pf_no_sum(void) { return (pf_ints){0}; }
PF_ALWAYS_INLINE pf_floats pf_as_floats(pf_ints sum) { return __builtin_convertvector(sum, pf_floats); }
#endif

#if PF_SDOT

/* In assembly, since gcc 12 copies sums between registers here: 12 copies for 64 products. Two words of all lines come by
 * one load, which wants neighbouring registers. */
#define PF_ROW_WORD(row, i, left, right)                                                                       \
  "sdot %[s" #row "0].4s, " left ".16b, %[x" #row "].4b[" #i "]\n"                                             \
  "sdot %[s" #row "1].4s, " right ".16b, %[x" #row "].4b[" #i "]\n"
#define PF_WORD(i, left, right)                                                                                \
  PF_ROW_WORD(0, i, left, right) PF_ROW_WORD(1, i, left, right) PF_ROW_WORD(2, i, left, right) PF_ROW_WORD(3, i, left, right)
#define PF_WORDS(i, j) "ld1 {v28.16b-v31.16b}, [%[w]], #64\n" PF_WORD(i, "v28", "v29") PF_WORD(j, "v30", "v31")
PF_ALWAYS_INLINE void pf_dots(pf_ints (*sum)[PF_NV], const int8_t *w, const int8_t *x, int64_t ld) {
  int8x16_t words[PF_MR];
#pragma GCC unroll 8
  for (int r = 0; r < PF_MR; r++) words[r] = vld1q_s8(x + r * ld);
  __asm__ volatile(PF_WORDS(0, 1) PF_WORDS(2, 3)
          : [s00] "+w"(sum[0][0]), [s01] "+w"(sum[0][1]), [s10] "+w"(sum[1][0]), [s11] "+w"(sum[1][1]),
            [s20] "+w"(sum[2][0]), [s21] "+w"(sum[2][1]), [s30] "+w"(sum[3][0]), [s31] "+w"(sum[3][1]), [w] "+r"(w)
          : [x0] "w"(words[0]), [x1] "w"(words[1]), [x2] "w"(words[2]), [x3] "w"(words[3])
          : "v28", "v29", "v30", "v31", "memory"); /* or gcc would load all words of x before, and spill sums */
}
#undef PF_ROW_WORD
#undef PF_WORD
#undef PF_WORDS

#elif PF_VNNI || PF_MADD

PF_ALWAYS_INLINE void pf_dots(pf_ints (*sum)[PF_NV], const int8_t *w, const int8_t *x, int64_t ld) {
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++)
#pragma GCC unroll 8
    for (int r = 0; r < PF_MR; r++) {
      int32_t word;
      __builtin_memcpy(&word, x + r * ld + 4 * i, 4);
#if PF_VNNI
#pragma GCC unroll 2
      for (int v = 0; v < PF_NV; v++)
        sum[r][v] = (pf_ints)_mm512_dpbusd_epi32((__m512i)sum[r][v], _mm512_loadu_si512(w + 64 * (PF_NV * i + v)),
                                                 _mm512_set1_epi32(word));
#else
      const __m256i line = _mm256_loadu_si256((const void *)(w + 32 * i));
      sum[r][0] = (pf_ints)pf_products((__m256i)sum[r][0], line, _mm256_set1_epi32(word));
#endif
    }
}

#else

PF_ALWAYS_INLINE void pf_dots(pf_ints (*sum)[PF_NV], const int8_t *w, const int8_t *x, int64_t ld) {
  for (int i = 0; i < 4; i++)
    for (int r = 0; r < PF_MR; r++)
      for (int v = 0; v < PF_NV; v++)
        for (int l = 0; l < PF_LANES * 4; l++)
          sum[r][v][l / 4] += w[PF_LANES * 4 * (PF_NV * i + v) + l] * x[r * ld + 4 * i + l % 4];
}

#endif

#endif
