/* Batched matrix multiplication of 16-bit floats on NVIDIA's GPUs, sm_80 and newer: matmul.hip's arguments and epilogue,
 * and pf_mma_async.h, for operands that lie in aligned vectors along k or across lines.
 *
 * Few tiles of a long k are cut into parts for a cluster of blocks, where a GPU has those: their sums meet in LDS, and
 * nobody adds them in a second launch.
 */
#ifndef PF_MATMUL_ASYNC_HIP
#define PF_MATMUL_ASYNC_HIP
#include "matmul.hip"
#include "pf_mma_async.h"

/* Results of one batch entry, and partial sums, by ROW neighbours. */
template <class Out> struct pf_entry_rows : pf_gemm_entry<Out> {
  enum { ROW = Out::ROW };
  template <class S> PF_MEMBER void row(int i, int j, const S *sums) const { this->out.row(this->batch, i, j, sums); }
};
template <class S> struct pf_partial_rows {
  enum { ROW = PF_MMA_PIECE / (int)sizeof(S) };
  S *at;
  int64_t m, n;
  PF_MEMBER S *place(int64_t batch, int64_t i, int64_t j) const { return at + (batch * m + i) * n + j; }
  PF_MEMBER void operator()(int64_t batch, int64_t i, int64_t j, S sum) const { *place(batch, i, j) = sum; }
  PF_MEMBER void row(int64_t batch, int64_t i, int64_t j, const S *sums) const {
    pf_put_row(place(batch, i, j), *(const pf_vector<S, ROW> *)sums);
  }
};

template <class K, class Out>
PF_FN void pf_gemm_async(const typename K::stored *a, const typename K::stored *b, const int64_t *arg, const Out &out) {
  typedef pf_async_loop<K> loop;
  PF_DYNAMIC_LDS(pf_piece, lds, loop::LDS_PIECES);
  pf_gemm_place<K> place;
  place.find(arg, pf_block() / K::CLUSTER);
  if (K::CLUSTER > 1) {
    const int split = (int)arg[loop::PARTS > 1 ? PF_GEMM_SPLIT : PF_GEMM_K];
    place.from = pf_cluster_rank() * split, place.to = pf_least(place.from + split, (int)arg[PF_GEMM_K]);
  }
  pf_async_in<K> in;
  place.begin(in, a, b, arg);
  loop sums;
  sums.run(lds, in, place.from, place.to);
  const pf_entry_rows<Out> result = {{out, place.entry}};
  sums.store(lds, place.first, place.left, place.m, place.n, result);
}

#endif
