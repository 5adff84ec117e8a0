/* How GPU kernels read encoded weights: pieces of PF_PIECE neighbours, in registers.
 *
 * A decoder D is a struct around an encoding's text, which kernels/dequantize_gpu.py writes: D::BLOCK elements in D::NBYTES
 * bytes, D::GROUP of them decoded at once, bytes at multiples of D::ALIGN.
 */
#ifndef PF_DECODE_H
#define PF_DECODE_H

#include "pf_element.h"
#include "pf_encoding.h"

enum { PF_PIECE = 16 };

/* Elements [first, first + PF_PIECE) of what lies at data, 0 from `end` on. first is a multiple of PF_PIECE. */
template <class D> PF_FN void pf_decode_piece(const uint8_t *data, int64_t first, int64_t end, float *w) {
  PF_UNROLL
  for (int k = 0; k < PF_PIECE; k += D::GROUP) {
    const int64_t e = first + k;
    if (e < end)
      D::of((const uint8_t *)__builtin_assume_aligned(data + e / D::BLOCK * D::NBYTES, D::ALIGN), (int)(e % D::BLOCK) / D::GROUP, w + k);
    else
      PF_UNROLL
      for (int i = 0; i < D::GROUP; i++) w[k + i] = 0.0f;
  }
}

#endif
