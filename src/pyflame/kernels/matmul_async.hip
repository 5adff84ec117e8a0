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

template <class K, class In = pf_async_in<K>, class B, class Out>
PF_FN void pf_gemm_async(const typename K::stored *a, const B *b, const int64_t *arg, const Out &out) {
  typedef pf_async_loop<K> loop;
  PF_DYNAMIC_LDS(pf_piece, lds, loop::LDS_PIECES);
  pf_gemm_place<K> place;
  place.find(arg, pf_block() / K::CLUSTER);
  if (K::CLUSTER > 1) {
    const int split = (int)arg[loop::PARTS > 1 ? PF_GEMM_SPLIT : PF_GEMM_K];
    place.from = pf_cluster_rank() * split, place.to = pf_least(place.from + split, (int)arg[PF_GEMM_K]);
  }
  In in;
  place.begin(in, a, b, arg);
  loop sums;
  sums.run(lds, in, place.from, place.to);
  const pf_gemm_entry<Out> result = {out, place.entry};
  sums.store(lds, place.first, place.left, place.m, place.n, result);
}

#endif
