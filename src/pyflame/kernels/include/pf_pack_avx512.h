/* The inner loops of packing where registers hold 16 words: lines that are copied. */
#ifndef PF_PACK_AVX512_H
#define PF_PACK_AVX512_H

#include "pf_transpose_16.h"

/* `rows` rows of `count` words of a panel: read where they lie, written one behind the other, `width` words each. */
PF_ALWAYS_INLINE void pf_copy_lines(const int rows, uint32_t *to, int64_t width, const uint32_t *src, int64_t src_stride,
                                    int64_t count) {
  const uint32_t read = (uint32_t)((UINT64_C(1) << count) - 1), written = (uint32_t)((UINT64_C(1) << width) - 1);
  if (width <= 16) {
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
      _mm512_mask_storeu_epi32(to + r * width, (__mmask16)written, _mm512_maskz_loadu_epi32((__mmask16)read, src + r * src_stride));
    return;
  }
#pragma GCC unroll 8
  for (int r = 0; r < rows; r++) {
    _mm512_storeu_si512(to + r * width, _mm512_maskz_loadu_epi32((__mmask16)read, src + r * src_stride));
    _mm512_mask_storeu_epi32(to + r * width + 16, (__mmask16)(written >> 16),
                             _mm512_maskz_loadu_epi32((__mmask16)(read >> 16), src + r * src_stride + 16));
  }
}

/* Rows of `count` words become panels of `step` lines, one behind the other, the last one `unit`-rounded with zeros.
 * Eight rows at a time go into each panel: rows are far apart, often by a multiple of the first cache's size, so what is
 * read in one go must not be more than its ways; what is written lies together. Of the next eight rows each panel asks for
 * its part: each row is a page of its own, where hardware does not look ahead. */
PF_UNUSED static void pf_copy_rows(uint32_t *dst, int64_t step, int64_t unit, const uint32_t *src, int64_t src_stride,
                                   int64_t count, int64_t words) {
  enum { ROWS = 8 };
  for (int64_t w = 0; w < words; w += ROWS, src += ROWS * src_stride)
    for (int64_t line = 0; line < count; line += step) {
      const int64_t here = pf_min(step, count - line), width = pf_round_up(here, unit);
      uint32_t *to = dst + line * words + w * width;
      if (w + 2 * ROWS <= words)
        for (int64_t r = ROWS; r < 2 * ROWS; r++)
          for (int64_t at = 0; at < width; at += 16) __builtin_prefetch(src + line + at + r * src_stride);
      if (w + ROWS <= words) pf_copy_lines(ROWS, to, width, src + line, src_stride, here);
      else
        for (int64_t r = 0; r < words - w; r++) pf_copy_lines(1, to + r * width, width, src + line + r * src_stride, 0, here);
    }
}

#if PF_AMX && PF_GROUP == 2
/* The same of 2-byte elements, of which two neighbours along k are a word: two rows at a time are interleaved. A row of a
 * panel is written as whole vectors. */
PF_UNUSED static void pf_interleave_rows(uint32_t *dst, int64_t step, int64_t unit, const uint16_t *src, int64_t src_stride,
                                         int64_t count, int64_t k) {
  uint16_t from[2][32]; /* number 2i of a word row is element i of the first row, number 2i + 1 of the second (32 + i) */
  for (int i = 0; i < 32; i++) from[0][i] = (uint16_t)(i / 2 + i % 2 * 32), from[1][i] = (uint16_t)(from[0][i] + 16);
  const __m512i low = _mm512_loadu_si512(from[0]), high = _mm512_loadu_si512(from[1]);
  const int64_t words = pf_words(k);
  for (int64_t w = 0; w < words; w++, src += 2 * src_stride)
    for (int64_t line = 0; line < count; line += step) {
      const int64_t here = pf_min(step, count - line), width = pf_round_up(here, unit);
      const uint32_t read = (uint32_t)((UINT64_C(1) << here) - 1);
      uint32_t *to = dst + line * words + w * width;
      __builtin_prefetch(src + line + 16 * src_stride);
      __builtin_prefetch(src + line + 17 * src_stride);
      const __m512i even = _mm512_maskz_loadu_epi16(2 * w < k ? read : 0, src + line);
      const __m512i odd = _mm512_maskz_loadu_epi16(2 * w + 1 < k ? read : 0, src + line + src_stride);
      _mm512_storeu_si512(to, _mm512_permutex2var_epi16(even, low, odd));
      if (width > 16) _mm512_storeu_si512(to + 16, _mm512_permutex2var_epi16(even, high, odd));
    }
}
#endif

#endif
