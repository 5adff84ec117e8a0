/* Squares of 16 x 16 words, turned in registers of AVX-512. */
#ifndef PF_TRANSPOSE_16_H
#define PF_TRANSPOSE_16_H

#include <immintrin.h>

/* dst[c * dst_stride + r] = word c of the row at src + r * src_bytes, for 1 to 16 rows of 16 4-byte words. Rows are
 * read in quarters, each into its place of a register: a merging load costs no shuffle. */
__attribute__((unused)) static void pf_transpose_16(uint32_t *dst, int64_t dst_stride, const char *src, int64_t src_bytes, int64_t rows) {
  const __mmask16 kept = (__mmask16)((1u << rows) - 1);
  __m512 part[4][4]; /* [quarter of the words][r]: rows r, 4 + r, 8 + r and 12 + r, one after the other */
#pragma GCC unroll 4
  for (int r = 0; r < 4; r++)
#pragma GCC unroll 4
    for (int q = 0; q < 4; q++) {
      const float *row = (const float *)(src + (4 * q + r < rows ? 4 * q + r : rows - 1) * src_bytes);
#pragma GCC unroll 4
      for (int i = 0; i < 4; i++)
        part[i][r] = q ? _mm512_mask_broadcast_f32x4(part[i][r], (__mmask16)(15 << 4 * q), _mm_loadu_ps(row + 4 * i))
                       : _mm512_castps128_ps512(_mm_loadu_ps(row + 4 * i));
    }
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) {
    const __m512d low01 = _mm512_castps_pd(_mm512_unpacklo_ps(part[i][0], part[i][1]));
    const __m512d high01 = _mm512_castps_pd(_mm512_unpackhi_ps(part[i][0], part[i][1]));
    const __m512d low23 = _mm512_castps_pd(_mm512_unpacklo_ps(part[i][2], part[i][3]));
    const __m512d high23 = _mm512_castps_pd(_mm512_unpackhi_ps(part[i][2], part[i][3]));
    uint32_t *to = dst + 4 * i * dst_stride;
    _mm512_mask_storeu_ps(to, kept, _mm512_castpd_ps(_mm512_unpacklo_pd(low01, low23)));
    _mm512_mask_storeu_ps(to + dst_stride, kept, _mm512_castpd_ps(_mm512_unpackhi_pd(low01, low23)));
    _mm512_mask_storeu_ps(to + 2 * dst_stride, kept, _mm512_castpd_ps(_mm512_unpacklo_pd(high01, high23)));
    _mm512_mask_storeu_ps(to + 3 * dst_stride, kept, _mm512_castpd_ps(_mm512_unpackhi_pd(high01, high23)));
  }
}

#endif
