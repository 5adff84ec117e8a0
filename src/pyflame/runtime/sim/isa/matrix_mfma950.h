/* MFMA that CDNA 4 brings: more k of float16, bfloat16 and int8, and products of 8-, 6- and 4-bit floats whose blocks of 32
 * k have scales.
 *
 * Layouts are those of matrix_mfma.h, with K/2 or K/4 elements in a lane; 8-bit floats of 16x16x128 and 32x32x64 lie in
 * two runs of 16: A[i][k] in lane (k/16%G)*M + i with G = 64/M, element k/(16*G)*16 + k%16. The scale of k/32 is a byte
 * (op_sel says which of four) of lane k/32*M + i: 2^(byte - 127), NaN for 255 (AMD's "Matrix Core Programming on CDNA 3
 * and CDNA 4", and ROCm/rocm-systems' rocjitsu).
 *
 * How they sum is not known to have been measured: float16 and bfloat16 are taken to do what MI300 does, scaled blocks of
 * 32 products to be summed exactly and rounded when they are added to C.
 */
#include "matrix.h"

#if PF_LANES == 64

GROUPED(grouped_16x16x32_halves, 16, 16, 32, 1, 8, 0)
GROUPED(grouped_32x32x16_halves, 32, 32, 16, 1, 8, 0)
READER(read_fp8_ocp, FMT_FP8_OCP)
READER(read_bf8_ocp, FMT_BF8_OCP)


/* The formats by number, as cbsz tells A's and blgp B's. */
static Format small_format(u32 number) {
  static const Format formats[] = {{8, 3, 7, FN}, {8, 2, 15, IEEE}, {6, 3, 1, NONE}, {6, 2, 3, NONE}, {4, 1, 1, NONE}};
  return formats[number];
}

/* Rows of A or columns of B, as [k][row]. */
static void read_small(Wave *w, const Operand *o, u32 number, int M, int K, double (*to)[32]) {
  const Format f = small_format(number);
  const int groups = 64 / M, per = K / groups, run = f.bits == 8 ? 16 : per;
  for (int k = 0; k < K; k++) {
    const int group = k / run % groups, slot = k / (run * groups) * run + k % run, at = slot * f.bits;
    const u32 *low = row(w, o->index + (u32)(at / 32)), *high = at % 32 + f.bits > 32 ? low + 64 : low;
    for (int i = 0; i < M; i++) {
      const int lane = group * M + i;
      const u64 both = (u64)high[lane] << 32 | low[lane];
      float significand;
      i32 exponent;
      const int finite = take_apart((u32)(both >> at % 32), f, &significand, &exponent);
      to[k][i] = finite && exponent != NO_EXPONENT ? (double)significand * power64(exponent) : (double)significand;
    }
  }
}

/* The scale of a block of 32 k, if the instruction has them: a byte of its fourth and fifth source. */
INLINE double scale_of(Wave *w, const Operand *o, int lane) {
  const u32 byte = o->kind == VGPR ? row(w, o->index)[lane] >> 8 * o->select & 255 : 127;
  return byte == 255 ? NAN : power64((i32)byte - 127);
}

INLINE void multiply_scaled(Wave *w, const Inst *in, int M, int K) {
  static _Thread_local double A[128][32], B[128][32];
  u32 out[M * M / 64][64];
  Accumulator C;
  read_small(w, &in->src[0], in->space, M, K, A);
  read_small(w, &in->src[1], in->count, M, K, B);
  read_c(w, &in->src[2], &C);
  nearest_begin(w);
  for (int i = 0; i < M; i++) {
    int reg, lane;
    float d[32];
    place_of(M, M, 4, 0, i, &reg, &lane);
    memcpy(d, c_at(&C, reg, lane), 4 * (size_t)M);
    for (int block = 0; block < K / 32; block++) {
      const double sa = scale_of(w, &in->src[3], block * M + i);
      double sum[32] = {0};
      for (int k = 32 * block; k < 32 * block + 32; k++)
        for (int j = 0; j < M; j++) sum[j] += A[k][i] * B[k][j];
      for (int j = 0; j < M; j++) d[j] = (float)(d[j] + sum[j] * sa * scale_of(w, &in->src[4], block * M + j));
    }
    memcpy(&out[reg][lane], d, 4 * (size_t)M);
  }
  nearest_end(w);
  memcpy(row(w, in->dst[0].index), out, sizeof out);
}

#define MFMA950_BYTES(X, A, B)                                                                         \
  X(v_mfma_f32_16x16x32_##A##_##B##_ocp, F32, F32, OF_FACTORS(grouped_16x16x32, A##_ocp, B##_ocp, 8, 8))     \
  X(v_mfma_f32_32x32x16_##A##_##B##_ocp, F32, F32, OF_FACTORS(grouped_32x32x16, A##_ocp, B##_ocp, 8, 8))     \
  X(v_smfmac_f32_16x16x64_##A##_##B##_ocp, F32, U32, OF_FACTORS(sparse_16x16x64, A##_ocp, B##_ocp, 8, 16))   \
  X(v_smfmac_f32_32x32x32_##A##_##B##_ocp, F32, U32, OF_FACTORS(sparse_32x32x32, A##_ocp, B##_ocp, 8, 16))
#define MFMA950_INSTRUCTIONS(X)                                                                        \
  X(v_mfma_f32_16x16x32_f16, F32, F32, OF_FACTORS(grouped_16x16x32_halves, f16, f16, 8, 8))            \
  X(v_mfma_f32_16x16x32_bf16, F32, F32, OF_FACTORS(grouped_16x16x32_halves, bf16, bf16, 8, 8))         \
  X(v_mfma_f32_32x32x16_f16, F32, F32, OF_FACTORS(grouped_32x32x16_halves, f16, f16, 8, 8))            \
  X(v_mfma_f32_32x32x16_bf16, F32, F32, OF_FACTORS(grouped_32x32x16_halves, bf16, bf16, 8, 8))         \
  X(v_mfma_i32_16x16x64_i8, U32, U32, multiply_i8(w, in, 16, 16, 64, 1, 0);)                           \
  X(v_mfma_i32_32x32x32_i8, U32, U32, multiply_i8(w, in, 32, 32, 32, 1, 0);)                           \
  X(v_mfma_f32_16x16x128_f8f6f4, F32, F32, multiply_scaled(w, in, 16, 128);)                           \
  X(v_mfma_f32_32x32x64_f8f6f4, F32, F32, multiply_scaled(w, in, 32, 64);)                             \
  MFMA950_BYTES(X, fp8, fp8) MFMA950_BYTES(X, fp8, bf8) MFMA950_BYTES(X, bf8, fp8) MFMA950_BYTES(X, bf8, bf8)
/* … with two sources more. */
#define MFMA950_SCALED(X)                                                                              \
  X(v_mfma_scale_f32_16x16x128_f8f6f4, multiply_scaled(w, in, 16, 128);)                               \
  X(v_mfma_scale_f32_32x32x64_f8f6f4, multiply_scaled(w, in, 32, 64);)
#define BODY(NAME, D, C, ...) static void NAME(Wave *w, const Inst *in) { __VA_ARGS__ }
MFMA950_INSTRUCTIONS(BODY)
#undef BODY
#define BODY(NAME, ...) static void NAME(Wave *w, const Inst *in) { __VA_ARGS__ }
MFMA950_SCALED(BODY)
#undef BODY

#endif
