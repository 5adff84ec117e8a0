/* y = x W^T + bias with W encoded, for few rows of x: y[r, o] = sum_k x[r, k] W[o, k] + bias[o]
 *
 * Rows are whole pieces of PF_PIECE elements. LANES lanes share EACH rows of W and go through them piece by piece: a lane decodes its piece of each row in
 * registers and multiplies it with that piece of all ROWS rows of x, which neighbouring lanes read from memory that lies
 * together, and mostly from cache. Sums are float32; lanes add theirs up by shuffles. Fewer rows than ROWS: the last one
 * is computed again and not stored. The epilogue is as in matmul.hip.
 *
 * Bytes: W once, which is nearly all of it; x once for every EACH rows of W, from cache; y once.
 */
#ifndef PF_ENCODED_HIP
#define PF_ENCODED_HIP

#include "pf_decode.h"
#include "pf_tile.h"

namespace pf_encoded {

enum { PF_ROWS, PF_OUT, PF_WIDTH, PF_ROW_BYTES };

template <class E, int VECTOR> PF_FN void pf_read_piece(const typename E::stored *x, float *v) {
  typedef pf_vector<typename E::stored, VECTOR> V;
  PF_UNROLL
  for (int i = 0; i < PF_PIECE; i += VECTOR) {
    const V part = *(const V *)(x + i);
    PF_UNROLL
    for (int k = 0; k < VECTOR; k++) v[i + k] = E::load(part.at[k]);
  }
}

/* Rows of x as they come. `row`: of x, and `line`: of the result, that number r is. */
struct pf_rows {
  int count;
  PF_MEMBER int row(int r) const { return r < count ? r : count - 1; }
  PF_MEMBER int line(int r) const { return r; }
};

/* Lines [first, first + EACH) of the `out` lines of W by the rows. */
template <class E, class D, int ROWS, int EACH, int LANES, int VECTOR, int BIASED, class Rows, class Out>
PF_FN void pf_encoded_rows(const typename E::stored *x, const uint8_t *data, const typename E::stored *bias, int first,
                           int out, int width, int64_t row_bytes, const Rows &rows, const Out &give) {
  const int lane = pf_thread() % LANES;
  float sums[EACH][ROWS] = {};
  for (int at = lane * PF_PIECE; at < width; at += LANES * PF_PIECE) {
    float w[EACH][PF_PIECE];
    PF_UNROLL
    for (int j = 0; j < EACH; j++) {
      const int o = first + j < out ? first + j : out - 1; /* all lanes meet at the shuffles */
      pf_decode_piece<D>(data + o * row_bytes, (uint64_t)at, PF_PIECE, w[j]);
    }
    PF_UNROLL
    for (int r = 0; r < ROWS; r++) {
      float v[PF_PIECE];
      pf_read_piece<E, VECTOR>(x + (int64_t)rows.row(r) * width + at, v);
      PF_UNROLL
      for (int i = 0; i < PF_PIECE; i++)
        PF_UNROLL
        for (int j = 0; j < EACH; j++) sums[j][r] = PF_FMA(w[j][i], v[i], sums[j][r]);
    }
  }
  PF_UNROLL
  for (int j = 0; j < EACH; j++)
    PF_UNROLL
    for (int r = 0; r < ROWS; r++) {
      float sum = sums[j][r];
      PF_UNROLL
      for (int step = 1; step < LANES; step *= 2) sum += pf_shuffle_xor(sum, step);
      if (lane == (j * ROWS + r) % LANES && r < rows.count && first + j < out) {
        if (BIASED) sum += E::load(bias[first + j]);
        give(0, rows.line(r), first + j, sum);
      }
    }
}

template <class E, class D, int ROWS, int EACH, int LANES, int VECTOR, int BIASED, int THREADS, class Out>
PF_FN void pf_encoded_linear(const typename E::stored *x, const uint8_t *data, const typename E::stored *bias,
                             const int64_t *arg, const Out &give) {
  const int first = (pf_block() * (THREADS / LANES) + pf_thread() / LANES) * EACH;
  const pf_rows rows = {(int)arg[PF_ROWS]};
  pf_encoded_rows<E, D, ROWS, EACH, LANES, VECTOR, BIASED>(x, data, bias, first, (int)arg[PF_OUT], (int)arg[PF_WIDTH],
                                                           arg[PF_ROW_BYTES], rows, give);
}

}  // namespace pf_encoded

#endif
