/* y = x W^T + bias with W encoded, for more rows of x than encoded.hip takes: matmul.hip, with W^T as its B.
 *
 *   out(i, j) <- sum_k x[i, k] * W[j, k] + bias[j]      2 * rows * out * width flops
 *
 * Two ways, which give the same numbers, since W is rounded to x's dtype in both:
 *
 *   tiles    blocks decode their lines of W on the way to LDS (pf_decode_lines.h). No decoded W lies in memory, but each
 *            tile of rows decodes it again. Bytes: x and the encoded W once for each tile across and down, from L2 mostly.
 *   lines    some lines of W at a time are decoded into scratch (dequantize.hip) and multiplied as any matrix is. Once for
 *            all rows, for one more write and read of what was decoded: for many rows, and for dtypes without matrix tiles.
 */
#ifndef PF_ENCODED_GEMM_HIP
#define PF_ENCODED_GEMM_HIP
#include "dequantize.hip"
#include "matmul.hip"
#include "pf_decode_lines.h"

/* Results of the lines from `first` on, to which a bias is added. */
template <class E, int BIASED, class Out> struct pf_biased {
  const Out &out;
  const typename E::stored *bias;
  int64_t first;
  template <class S> PF_MEMBER S with_bias(int64_t j, S sum) const { return BIASED ? sum + (S)E::load(bias[j]) : sum; }
  template <class S> PF_MEMBER void operator()(int64_t batch, int64_t i, int64_t j, S sum) const {
    out(batch, i, first + j, with_bias(first + j, sum));
  }
  template <class S, int N> PF_MEMBER void several(int64_t batch, int64_t i, int64_t j, const S (&sums)[N]) const {
    S biased[N];
    PF_UNROLL
    for (int n = 0; n < N; n++) biased[n] = with_bias(first + j + n, sums[n]);
    out.several(batch, i, first + j, biased);
  }
};

template <class K, class Out>
PF_FN void pf_encoded_mma(const typename K::stored *x, const uint8_t *data, const int64_t *arg, const Out &out) {
  pf_gemm_mma<K, pf_mma_in<K, pf_decoded_lines<K, K::COLS>>>(x, data, arg, out);
}

#endif
