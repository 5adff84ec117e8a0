/* MFMA of CDNA 2 where it computes otherwise than CDNA 3: float16 and bfloat16. Layouts are those of matrix_mfma.h; the
 * older forms of bfloat16, without _1k, have half the k.
 *
 * Sums, as measured on MI200 (arXiv 2511.10909 and its code, MMA-Sim; AMD's MIOpen says the same of denormals): denormals
 * of A, B and C are zero. Groups of four products over rising k (two of the older bfloat16) are added in pairs, each sum
 * rounded to nearest; then the group's sum is added to C. Whatever turns out denormal becomes zero, and keeps its sign.
 */
#include "matrix.h"

#if PF_LANES == 64

INLINE float flushed_f32(float x) { return fabsf(x) < 0x1p-126f ? x * 0.0f : x; }

/* Elements as floats, denormals of the format as zeros. */
INLINE void read_halves(Wave *w, const Operand *o, int blgp, int count, const Format f, float (*to)[64]) {
  u32 space[64];
  for (int e = 0; e < count; e++) {
    const u32 *from = lanes_of(w, o->index + (u32)(e / 2), blgp, space);
    for (int l = 0; l < 64; l++) {
      const u32 half = from[l] >> 16 * (e % 2) & 0xffff;
      const int zero = !(half & (f.fraction == 7 ? 0x7f80 : 0x7c00));
      to[e][l] = zero ? 0.0f : float_of(widen(f.fraction == 7 ? TO_BF16 : TO_F16, half));
    }
  }
}

INLINE void multiply_pairs(Wave *w, const Inst *in, int M, int N, int K, int blocks, int group, const Format f) {
  const int per_a = K * M * blocks / 64, per_b = K * N * blocks / 64;
  float A[4][64], B[4][64];
  u32 out[M * N * blocks / 64][64];
  Accumulator C;
  read_halves(w, &in->src[0], 0, per_a, f, A);
  read_halves(w, &in->src[1], in->count, per_b, f, B);
  read_c(w, &in->src[2], &C);
  nearest_begin(w);
  for (int b = 0; b < blocks; b++)
    for (int i = 0; i < M; i++) {
      int reg, lane;
      float d[32];
      place_of(M, N, 4, b, i, &reg, &lane);
      memcpy(d, c_at(&C, reg, lane), 4 * (size_t)N);
      for (int j = 0; j < N; j++) d[j] = fabsf(d[j]) < 0x1p-126f ? 0.0f : d[j];
      for (int k = 0; k < K; k += group) {
        float products[4][32];
        for (int n = 0; n < group; n++) {
          const int at = k + n;
          const float a = A[at % per_a][at / per_a * M * blocks + cbsz_block(in, b) * M + i];
          const float *column = B[at % per_b] + at / per_b * N * blocks + b * N;
          for (int j = 0; j < N; j++) products[n][j] = flushed_f32(a * column[j]);
        }
        for (int j = 0; j < N; j++) {
          float sum = flushed_f32(products[0][j] + products[1][j]);
          if (group == 4) sum = flushed_f32(sum + flushed_f32(products[2][j] + products[3][j]));
          d[j] = flushed_f32(d[j] + sum);
        }
      }
      memcpy(&out[reg][lane], d, 4 * (size_t)N);
    }
  nearest_end(w);
  memcpy(row(w, in->dst[0].index), out, sizeof out);
}

/* One body per shape. */
#define PAIRED(NAME, M, N, K, BLOCKS, GROUP)                                                           \
  static NOINLINE void NAME(Wave *w, const Inst *in, const Format f) { multiply_pairs(w, in, M, N, K, BLOCKS, GROUP, f); }
PAIRED(paired_32x32x8, 32, 32, 8, 1, 4)
PAIRED(paired_16x16x16, 16, 16, 16, 1, 4)
PAIRED(paired_32x32x4_2b, 32, 32, 4, 2, 4)
PAIRED(paired_16x16x4_4b, 16, 16, 4, 4, 4)
PAIRED(paired_4x4x4_16b, 4, 4, 4, 16, 4)
PAIRED(paired_32x32x4, 32, 32, 4, 1, 2)
PAIRED(paired_16x16x8, 16, 16, 8, 1, 2)
PAIRED(paired_32x32x2_2b, 32, 32, 2, 2, 2)
PAIRED(paired_16x16x2_4b, 16, 16, 2, 4, 2)
PAIRED(paired_4x4x2_16b, 4, 4, 2, 16, 2)

#define PAIRS(X, SHAPE, T, FORMAT) X(v_mfma_f32_##SHAPE##_##T##_gfx90a, F32, F32, paired_##SHAPE(w, in, FORMAT);)
#define PAIRS_OF_HALVES(X, T, FORMAT)                                                                  \
  PAIRS(X, 32x32x8, T, FORMAT)                                                                         \
  PAIRS(X, 16x16x16, T, FORMAT)                                                                        \
  PAIRS(X, 32x32x4_2b, T, FORMAT)                                                                      \
  PAIRS(X, 16x16x4_4b, T, FORMAT)                                                                      \
  PAIRS(X, 4x4x4_16b, T, FORMAT)
#define MFMA90A_INSTRUCTIONS(X)                                                                        \
  PAIRS_OF_HALVES(X, f16, FMT_F16) PAIRS_OF_HALVES(X, bf16, FMT_BF16)                                  \
  PAIRS(X, 32x32x4, bf16, FMT_BF16)                                                                    \
  PAIRS(X, 16x16x8, bf16, FMT_BF16)                                                                    \
  PAIRS(X, 32x32x2_2b, bf16, FMT_BF16)                                                                 \
  PAIRS(X, 16x16x2_4b, bf16, FMT_BF16)                                                                 \
  PAIRS(X, 4x4x2_16b, bf16, FMT_BF16)                                                                  \
  X(v_mfma_i32_32x32x8_i8_gfx90a, U32, U32, multiply_i8(w, in, 32, 32, 8, 1, 0);)                      \
  X(v_mfma_i32_16x16x16_i8_gfx90a, U32, U32, multiply_i8(w, in, 16, 16, 16, 1, 0);)
#define BODY(NAME, D, C, ...) static void NAME(Wave *w, const Inst *in) { __VA_ARGS__ }
MFMA90A_INSTRUCTIONS(BODY)
#undef BODY

#endif
