/* Batched matrix multiplication by a BLAS library with the CBLAS interface and 64-bit integers.
 *
 *   C[b] = A[b] B[b], all contiguous. The library threads by itself, so one task runs the batch.
 *
 * arg: address of cblas_?gemm, M, N, K.
 * buf: A, B, C. The text defines PF_T (float or double) and PF_KEY.
 */
typedef void (*pf_cblas_gemm)(int order, int trans_a, int trans_b, int64_t m, int64_t n, int64_t k, PF_T alpha,
                              const PF_T *a, int64_t lda, const PF_T *b, int64_t ldb, PF_T beta, PF_T *c, int64_t ldc);

static void pf_blas(char *const *buf, const int64_t *arg, int64_t begin, int64_t end) {
  const pf_cblas_gemm gemm = (pf_cblas_gemm)(intptr_t)arg[0];
  const int64_t m = arg[1], n = arg[2], k = arg[3];
  const int row_major = 101, plain = 111;
  for (int64_t b = begin; b < end; b++)
    gemm(row_major, plain, plain, m, n, k, 1, (const PF_T *)buf[0] + b * m * k, k > 0 ? k : 1,
         (const PF_T *)buf[1] + b * k * n, n, 0, (PF_T *)buf[2] + b * m * n, n);
}
