/* y = what rows of encoded blocks stand for. On the CPU: dequantize.c.
 *
 * A thread decodes PF_PIECE neighbours, so that a group's scale is read once, and stores them as vectors. Rows are whole
 * blocks, so that nothing is known of rows here. D is the encoding's decoder, of GROUP elements of a block at a time; the
 * bytes lie at a multiple of ALIGN, and VECTOR elements of y are stored as one.
 *
 * Bytes: each block once, y once.
 */
#ifndef PF_DEQUANTIZE_HIP
#define PF_DEQUANTIZE_HIP

#include "pf_decode.h"

namespace pf_dequantizing {

enum { PF_TOTAL };

template <class E, class D, int VECTOR, int THREADS> PF_FN void pf_dequantize(const uint8_t *data, typename E::stored *y, const int64_t *arg) {
  typedef pf_vector<typename E::stored, VECTOR> V;
  const int64_t first = ((int64_t)pf_block() * THREADS + pf_thread()) * PF_PIECE;
  float w[PF_PIECE];
  const int64_t rest = arg[PF_TOTAL] - first;
  pf_decode_piece<D>(data, (uint64_t)first, rest < PF_PIECE ? (int)rest : PF_PIECE, w);
  PF_UNROLL
  for (int i = 0; i < PF_PIECE; i += VECTOR)
    if (i < rest) {
      V out;
      PF_UNROLL
      for (int k = 0; k < VECTOR; k++) out.at[k] = E::store(w[i + k]);
      *(V *)(y + first + i) = out;
    }
}

}  // namespace pf_dequantizing

#endif
