/* How GPU kernels read encoded weights: pieces of PF_PIECE neighbours, in registers.
 *
 * A decoder D is a struct around an encoding's text, which kernels/dequantize_gpu.py writes: D::BLOCK elements in D::NBYTES
 * bytes, D::GROUP of them decoded at once. Blocks lie at multiples of D::ALIGN; where they are single elements, pieces do.
 */
#ifndef PF_DECODE_H
#define PF_DECODE_H

#include "pf_element.h"
#include "pf_encoding.h"

enum { PF_PIECE = 16 };

/* 16 bytes of a block in as few loads as its alignment allows: nvcc would take them one by one. */
template <int ALIGN> PF_FN pf_sixteen pf_aligned_sixteen(const uint8_t *p) {
  const uint8_t *at = (const uint8_t *)__builtin_assume_aligned(p, ALIGN);
  pf_vector<uint32_t, 4> words;
  if constexpr (ALIGN == 16)
    words = *(const pf_vector<uint32_t, 4> *)at;
#if defined(__CUDACC__)
  else if constexpr (ALIGN == 2) { /* whole words, and the bits of both that each of ours lies in */
    const int off = (int)((uint64_t)at & 2);
    const uint32_t *from = (const uint32_t *)(at - off);
    PF_UNROLL
    for (int k = 0; k < 4; k++) words.at[k] = __funnelshift_r(from[k], from[k < 3 || off ? k + 1 : 3], 8 * off);
  }
#endif
  else
    PF_UNROLL
    for (int k = 0; k < 4; k++) words.at[k] = pf_u32_at(at + 4 * k);
  pf_sixteen v;
  __builtin_memcpy(&v, &words, 16);
  return v;
}
#define pf_sixteen_at(p) pf_aligned_sixteen<ALIGN>(p) /* inside of a decoder */

/* PF_PIECE elements of what lies at data, from `first` on, a multiple of PF_PIECE: `rest` of them are there, the others 0.
 * I: an unsigned type that can count the bytes up to there, in which blocks are found by shifts. */
template <class D, class I> PF_FN void pf_decode_piece(const uint8_t *data, I first, int rest, float *w) {
  if constexpr (D::BLOCK == 1) /* plain numbers: a piece lies together, and is loaded as such */
    if (rest >= PF_PIECE) {
      uint8_t bytes[PF_PIECE * D::NBYTES];
      PF_UNROLL
      for (int k = 0; k < D::NBYTES; k++) {
        const pf_sixteen part = pf_aligned_sixteen<D::ALIGN>(data + first * D::NBYTES + 16 * k);
        __builtin_memcpy(bytes + 16 * k, &part, 16);
      }
      PF_UNROLL
      for (int k = 0; k < PF_PIECE; k++) D::of(bytes + k * D::NBYTES, 0, w + k);
      return;
    }
  constexpr int align = D::BLOCK == 1 ? 1 : D::ALIGN;
  PF_UNROLL
  for (int k = 0; k < PF_PIECE; k += D::GROUP) {
    const I e = first + k;
    if (k < rest) {
      const uint8_t *block = (const uint8_t *)__builtin_assume_aligned(data + e / D::BLOCK * D::NBYTES, align);
      D::of(block, (int)(e % D::BLOCK) / D::GROUP, w + k);
    } else {
      PF_UNROLL
      for (int i = 0; i < D::GROUP; i++) w[k + i] = 0.0f;
    }
  }
}

#endif
