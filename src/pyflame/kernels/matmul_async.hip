/* Batched matrix multiplication of 16-bit floats on NVIDIA's GPUs, sm_80 and newer: matmul.hip's arguments and epilogue,
 * and pf_mma_async.h, for operands that lie in aligned vectors along k or across lines.
 *
 * Few tiles of a long k are cut into parts for a cluster of blocks, where a GPU has those: their sums meet in LDS. A second
 * launch adds only what several clusters have of a tile.
 */
#ifndef PF_MATMUL_ASYNC_HIP
#define PF_MATMUL_ASYNC_HIP
#include "matmul.hip"
#include "pf_mma_async.h"

/* What pf_async_loop wants to know of tiles. */
template <class K, class B, class Out> struct pf_gemm_tiles {
  typedef pf_async_loop<K> loop;
  const typename K::stored *a;
  const B *b;
  const int64_t *arg;
  const Out &out;

  template <class In> PF_MEMBER pf_gemm_place<K> begin(In &in, int number) const {
    pf_gemm_place<K> place;
    place.find(arg, number);
    if (K::CLUSTER > 1) {
      const int split = (int)arg[PF_GEMM_SPLIT], own = K::CLUSTER / loop::PARTS; /* the host's one block has all */
      place.from = place.from * K::CLUSTER + pf_cluster_rank() * split;
      place.to = pf_least(place.from + own * split, (int)arg[PF_GEMM_K]);
    }
    place.begin(in, a, b, arg);
    return place;
  }
  PF_MEMBER void store(const loop &sums, pf_piece *lds, const pf_gemm_place<K> &place) const {
    const pf_gemm_entry<Out> result = {out, place.entry};
    sums.store(lds, place.first, place.left, place.m, place.n, result);
  }
};

/* `count`, `step`: pf_async_loop's, with MANY. */
template <class K, class In = pf_async_in<K>, class B, class Out>
PF_FN void pf_gemm_async(const typename K::stored *a, const B *b, const int64_t *arg, const Out &out, int count = 0,
                         int step = 0) {
  PF_DYNAMIC_LDS(pf_piece, lds, pf_async_loop<K>::LDS_PIECES);
  const pf_gemm_tiles<K, B, Out> tiles = {a, b, arg, out};
  In in;
  pf_async_loop<K> sums;
  sums.run(lds, in, tiles, pf_block() / K::CLUSTER, count, step);
}

#endif
