/* encoded_gemm.hip over blocks whose x is copied to LDS asynchronously (pf_mma_async.h), on NVIDIA's GPUs: while wgmma
 * multiplies one step, the lanes decode another. */
#ifndef PF_ENCODED_GEMM_ASYNC_HIP
#define PF_ENCODED_GEMM_ASYNC_HIP
#include "encoded_gemm.hip"
#include "matmul_async.hip"
#include "pf_decode_panels.h"

template <class K, class Out>
PF_FN void pf_encoded_async(const typename K::stored *x, const uint8_t *data, const int64_t *arg, const Out &out) {
  pf_gemm_async<K, pf_async_in<K, pf_decoded_panels<K, K::COLS>>>(x, data, arg, out);
}

#endif
