/* MFMA and SMFMAC of CDNA 3: D = A B + C of one or several blocks, spread over 64 lanes.
 *
 * Where an element lies (AMD's matrix instruction calculator prints the same):
 *   A[i][k] of block b   lane b*M + (k/P)*M*blocks + i, element k%P of the lane's registers; P = K*M*blocks/64
 *   B[k][j] of block b   the same with N and j
 *   C, D[i][j], 32 bits  register b*M*N/64 + i/(4*R)*4 + i%4, lane (b%S)*N + (i/4%R)*S*N + j; R = 64/N,
 *                        S = max(1, 256/(M*N)) blocks in a register
 *   C, D[i][j], 64 bits  the same with 1 in place of 4, and 64 for 256
 *   index of a sparse A  lane of A, two bits for each element it holds: its place among four k
 * So a row of B and one of D lie side by side for all j, and the loops below run over j.
 *
 * Sums: float32 and float64 are chains of FMA over rising k. The others sum 8 products at a time (16 of float8, 4 of
 * xf32, whose factors lose their lowest 13 bits): products are cut off 24 bits below the largest exponent and added;
 * then that sum and C, both cut off towards minus infinity, the sum 31 and C 24 bits below the larger of both
 * exponents, and what comes out is rounded to nearest. float8 adds products of even and of odd k apart first.
 * Denormals count in full. That is what MI300 was measured to do (arXiv 2511.10909 and its code, MMA-Sim); AMD's guides
 * do not say. For sparse ones nothing was measured: products are taken in the order in which A holds them.
 */
#include "matrix.h"

#if PF_LANES == 64

enum { MOST = 16 }; /* elements that a lane holds of A or B */

typedef struct {
  float significand[MOST][64];
  i32 exponent[MOST][64];
  i32 highest; /* exponent */
  int finite;
} Factors;

/* The lane whose part of B lane `l` gets. */
INLINE int blgp_lane(int blgp, int l) {
  switch (blgp) {
  case 1: return l % 32;
  case 2: return l % 32 + 32;
  case 3: return (l + 16) % 64;
  case 0: return l;
  }
  return l % 16 + 16 * (blgp - 4);
}

/* A register as lanes, after BLGP. */
INLINE const u32 *lanes_of(Wave *w, u32 index, int blgp, u32 *space) {
  const u32 *from = row(w, index);
  if (!blgp) return from;
  for (int l = 0; l < 64; l++) space[l] = from[blgp_lane(blgp, l)];
  return space;
}

INLINE void read_factors(Wave *w, const Operand *o, int blgp, int count, const Format f, Factors *out) {
  u32 space[64];
  i32 highest = NO_EXPONENT, finite = 1;
  for (int e = 0; e < count; e++) {
    const u32 *from = lanes_of(w, o->index + (u32)(e * f.bits / 32), blgp, space);
    const int shift = e * f.bits % 32;
    for (int l = 0; l < 64; l++) {
      const u32 word = f.bits == 32 ? from[l] & ~0x1fffu : from[l] >> shift;
      finite &= take_apart(word, f, &out->significand[e][l], &out->exponent[e][l]);
      highest = larger(highest, out->exponent[e][l]);
    }
  }
  out->highest = highest, out->finite = finite;
}
#define READER(NAME, FORMAT)                                                                           \
  static void NAME(Wave *w, const Operand *o, int blgp, int count, Factors *out) {                     \
    if (count == 4) read_factors(w, o, blgp, 4, FORMAT, out); else read_factors(w, o, blgp, count, FORMAT, out); }
READER(read_f16, FMT_F16)
READER(read_bf16, FMT_BF16)
READER(read_xf32, FMT_XF32)
READER(read_fp8, FMT_FP8)
READER(read_bf8, FMT_BF8)

/* Where row i of block b of C and D begins; `height`: 4 of 32-bit, 1 of 64-bit elements. */
INLINE void place_of(int M, int N, int height, int b, int i, int *reg, int *lane) {
  const int across = 64 / N, shared = 64 * height > M * N ? 64 * height / (M * N) : 1;
  *reg = b * (M * N / 64) + i / (height * across) * height + i % height;
  *lane = b % shared * N + i / height % across * shared * N;
}

typedef struct { const u32 *rows; u32 fill[64]; } Accumulator; /* C: registers, or one value everywhere */

INLINE void read_c(Wave *w, const Operand *o, Accumulator *c) {
  c->rows = o->kind == VGPR ? row(w, o->index) : 0;
  if (!c->rows) for (int l = 0; l < 64; l++) c->fill[l] = (u32)o->value;
}
INLINE const u32 *c_at(const Accumulator *c, int reg, int lane) {
  return c->rows ? c->rows + 64 * reg + lane : c->fill;
}

static int cbsz_block(const Inst *in, int b) { return (b >> in->space << in->space) + (in->space ? in->bytes : 0); }

/* --- groups of products, cut off below the largest --- */

/* `sum` in units of 2^(top-24) of the products of `count` k, every `step`th. */
INLINE void sum_products(int N, int count, int step, const float *as, const i32 *ae, const float *const *bs,
                         const i32 *const *be, i32 *sum, i32 *top) {
  for (int j = 0; j < N; j++) top[j] = 2 * NO_EXPONENT, sum[j] = 0;
  for (int k = 0; k < count; k += step)
    for (int j = 0; j < N; j++) top[j] = larger(top[j], ae[k] + be[k][j]);
  for (int k = 0; k < count; k += step)
    for (int j = 0; j < N; j++)
      sum[j] += (i32)(as[k] * bs[k][j] * power(24 + larger(ae[k] + be[k][j] - top[j], -64)));
}

INLINE double value_of(float significand, i32 exponent) {
  return exponent == NO_EXPONENT ? significand : significand * power64(exponent);
}

/* What a group with infinities, NaNs or products beyond 2^128 gives; 0 if it is an ordinary one after all. */
static int special_sum(int count, const float *as, const i32 *ae, const float *const *bs, const i32 *const *be, int j,
                       u32 c, u32 *result) {
  double sum = float_of(c);
  int above = 0, below = 0, nan = (c & 0x7fffffff) > 0x7f800000;
  for (int k = 0; k < count; k++) {
    const double product = value_of(as[k], ae[k]) * value_of(bs[k][j], be[k][j]);
    nan |= as[k] != as[k] || bs[k][j] != bs[k][j];
    above |= product >= 0x1p128, below |= product <= -0x1p128;
    sum += product;
  }
  if (!isfinite(sum)) *result = nan ? 0x7fc00000 : sum != sum ? 0xffc00000 : bits_of((float)sum);
  else if (above || below) *result = above && below ? 0xffc00000 : above ? 0x7f800000 : 0xff800000;
  else return 0;
  return 1;
}

/* One group of products onto C, for all j; `pairs`: products of even and odd k are summed apart (float8). */
INLINE void add_group(int N, int count, int pairs, const float *as, const i32 *ae, const float *const *bs,
                      const i32 *const *be, int special, u32 *c) {
  i32 sum[32], top[32];
  u32 out[32], odd = 0;
  if (pairs) {
    i32 sum1[32], top1[32];
    sum_products(N, count, 2, as, ae, bs, be, sum, top);
    sum_products(N, count, 2, as + 1, ae + 1, bs + 1, be + 1, sum1, top1);
    for (int j = 0; j < N; j++) {
      const i32 both = larger(top[j], top1[j]);
      sum[j] = (sum[j] >> -larger(top[j] - both, -31)) + (sum1[j] >> -larger(top1[j] - both, -31));
      top[j] = both;
    }
  } else {
    sum_products(N, count, 1, as, ae, bs, be, sum, top);
  }
  for (int j = 0; j < N; j++) {
    const i32 field = c[j] >> 23 & 255, exponent = larger(field, 1) - 127, fraction = c[j] & 0x7fffff;
    const i32 magnitude = 2 * (field ? fraction | 1 << 23 : fraction);
    const i32 most = larger(top[j], exponent), lost = most - exponent;
    i32 cut = (c[j] >> 31 ? -magnitude : magnitude) >> (lost > 31 ? 31 : lost);
    if (pairs && lost > 25) cut = 0;
    const double wide = floor((double)sum[j] * power64(7 - (most - top[j] > 60 ? 60 : most - top[j])));
    out[j] = bits_of((float)((wide + 128.0 * (double)cut) * power64(most - 31)));
    odd |= field == 255;
  }
  if (__builtin_expect(special || odd, 0))
    for (int j = 0; j < N; j++) special_sum(count, as, ae, bs, be, j, c[j], &out[j]);
  memcpy(c, out, 4 * (size_t)N);
}

/* `which`: for a sparse A, the k of each element that it holds. */
INLINE void multiply_groups(Wave *w, const Inst *in, int M, int N, int K, int blocks, int group, int pairs,
                            const Factors *A, const Factors *B, const u8 *which) {
  const int held = which ? K / 2 : K;
  const int per_a = held * M * blocks / 64, per_b = K * N * blocks / 64;
  const int special = !A->finite || !B->finite || A->highest + B->highest >= 126;
  const Operand *from = which ? &in->dst[0] : &in->src[2];
  u32 out[M * N * blocks / 64][64];
  Accumulator C;
  read_c(w, from, &C);
  for (int b = 0; b < blocks; b++) {
    const int from_block = which ? b : cbsz_block(in, b);
    const float *bs[64];
    const i32 *be[64];
    if (!which)
      for (int k = 0; k < K; k++) {
        bs[k] = B->significand[k % per_b] + k / per_b * N * blocks + b * N;
        be[k] = B->exponent[k % per_b] + k / per_b * N * blocks + b * N;
      }
    for (int i = 0; i < M; i++) {
      float as[64];
      i32 ae[64];
      for (int k = 0; k < held; k++) {
        const int lane = k / per_a * M * blocks + from_block * M + i;
        as[k] = A->significand[k % per_a][lane], ae[k] = A->exponent[k % per_a][lane];
        if (which) {
          const int dense = which[i * held + k];
          bs[k] = B->significand[dense % per_b] + dense / per_b * N;
          be[k] = B->exponent[dense % per_b] + dense / per_b * N;
        }
      }
      int reg, lane;
      place_of(M, N, 4, b, i, &reg, &lane);
      u32 c[32];
      memcpy(c, c_at(&C, reg, lane), 4 * (size_t)N);
      for (int k = 0; k < held; k += group)
        add_group(N, group, pairs, as + k, ae + k, bs + k, be + k, special, c);
      memcpy(&out[reg][lane], c, 4 * (size_t)N);
    }
  }
  memcpy(row(w, in->dst[0].index), out, sizeof out);
}

/* The place among k of each element that a sparse A holds, from the register that says so. */
INLINE void read_which(Wave *w, const Inst *in, int M, int K, u8 *which) {
  const u32 *index = row(w, in->src[2].index);
  const int held = K / 2, per = held * M / 64, shift = in->space ? 0 : in->bytes * 2 * per % 32;
  for (int i = 0; i < M; i++)
    for (int k = 0; k < held; k++)
      which[i * held + k] = (u8)(k / 2 * 4 + (index[k / per * M + i] >> (shift + 2 * (k % per)) & 3));
}

/* One body per shape; the formats of A and B only matter to the readers. */
#define GROUPED(NAME, M, N, K, BLOCKS, GROUP, PAIRS)                                                   \
  static __attribute__((noinline)) void NAME(Wave *w, const Inst *in, const Factors *A, const Factors *B) { \
    nearest_begin(w);                                                                                  \
    multiply_groups(w, in, M, N, K, BLOCKS, GROUP, PAIRS, A, B, 0);                                    \
    nearest_end(w); }
GROUPED(grouped_32x32x8, 32, 32, 8, 1, 8, 0)
GROUPED(grouped_16x16x16, 16, 16, 16, 1, 8, 0)
GROUPED(grouped_32x32x4_2b, 32, 32, 4, 2, 4, 0)
GROUPED(grouped_16x16x4_4b, 16, 16, 4, 4, 4, 0)
GROUPED(grouped_4x4x4_16b, 4, 4, 4, 16, 4, 0)
GROUPED(grouped_16x16x8_xf32, 16, 16, 8, 1, 4, 0)
GROUPED(grouped_32x32x4_xf32, 32, 32, 4, 1, 4, 0)
GROUPED(grouped_16x16x32, 16, 16, 32, 1, 16, 1)
GROUPED(grouped_32x32x16, 32, 32, 16, 1, 16, 1)
#define SPARSE(NAME, M, N, K, GROUP, PAIRS)                                                            \
  static __attribute__((noinline)) void NAME(Wave *w, const Inst *in, const Factors *A, const Factors *B) { \
    u8 which[M * K / 2];                                                                               \
    read_which(w, in, M, K, which);                                                                    \
    nearest_begin(w);                                                                                  \
    multiply_groups(w, in, M, N, K, 1, GROUP, PAIRS, A, B, which);                                     \
    nearest_end(w); }
SPARSE(sparse_16x16x32, 16, 16, 32, 8, 0)
SPARSE(sparse_32x32x16, 32, 32, 16, 8, 0)
SPARSE(sparse_16x16x64, 16, 16, 64, 16, 1)
SPARSE(sparse_32x32x32, 32, 32, 32, 16, 1)

/* --- chains of FMA --- */

INLINE void multiply_f32(Wave *w, const Inst *in, int M, int N, int K, int blocks) {
  u32 out[M * N * blocks / 64][64], space[64];
  const float *A = (const float *)row(w, in->src[0].index);
  const float *B = (const float *)lanes_of(w, in->src[1].index, in->count, space);
  Accumulator C;
  read_c(w, &in->src[2], &C);
  nearest_begin(w);
  for (int b = 0; b < blocks; b++)
    for (int i = 0; i < M; i++) {
      int reg, lane;
      place_of(M, N, 4, b, i, &reg, &lane);
      float d[32];
      memcpy(d, c_at(&C, reg, lane), 4 * (size_t)N);
      for (int k = 0; k < K; k++) { /* a lane holds one element */
        const float a = A[k * M * blocks + cbsz_block(in, b) * M + i], *at = B + k * N * blocks + b * N;
        for (int j = 0; j < N; j++) d[j] = __builtin_fmaf(a, at[j], d[j]);
      }
      memcpy(&out[reg][lane], d, 4 * (size_t)N);
    }
  nearest_end(w);
  memcpy(row(w, in->dst[0].index), out, sizeof out);
}

INLINE void read_f64(Wave *w, const Operand *o, int negated, int pairs, double *to) {
  const u64 sign = negated ? (u64)1 << 63 : 0;
  for (int p = 0; p < pairs; p++)
    for (int l = 0; l < 64; l++) {
      const u64 bits = o->kind == VGPR
        ? (u64)row(w, o->index + 2 * (u32)p + 1)[l] << 32 | row(w, o->index + 2 * (u32)p)[l] : o->value;
      const u64 signed_bits = bits ^ sign;
      memcpy(&to[p * 64 + l], &signed_bits, 8);
    }
}

/* BLGP negates A, B and C here. */
INLINE void multiply_f64(Wave *w, const Inst *in, int M, int N, int K, int blocks) {
  double A[64], B[64], C[4 * 64], D[4][64];
  const int pairs = M * N * blocks / 64;
  read_f64(w, &in->src[0], in->count & 1, 1, A);
  read_f64(w, &in->src[1], in->count & 2, 1, B);
  read_f64(w, &in->src[2], in->count & 4, pairs, C);
  nearest_begin(w);
  for (int b = 0; b < blocks; b++)
    for (int i = 0; i < M; i++) {
      int reg, lane;
      place_of(M, N, 1, b, i, &reg, &lane);
      double d[16];
      memcpy(d, &C[64 * reg + lane], 8 * (size_t)N);
      for (int k = 0; k < K; k++) {
        const double a = A[k * M * blocks + b * M + i], *at = B + k * N * blocks + b * N;
        for (int j = 0; j < N; j++) d[j] = __builtin_fma(a, at[j], d[j]);
      }
      memcpy(&D[reg][lane], d, 8 * (size_t)N);
    }
  nearest_end(w);
  for (int p = 0; p < pairs; p++) {
    u32 *low = row(w, in->dst[0].index + 2 * (u32)p), *high = low + 64;
    for (int l = 0; l < 64; l++) {
      u64 bits;
      memcpy(&bits, &D[p][l], 8);
      low[l] = (u32)bits, high[l] = (u32)(bits >> 32);
    }
  }
}

/* --- int8: sums wrap --- */

INLINE void multiply_i8(Wave *w, const Inst *in, int M, int N, int K, int blocks, int sparse) {
  const int held = sparse ? K / 2 : K, per_a = held * M * blocks / 64, per_b = K * N * blocks / 64;
  u32 out[M * N * blocks / 64][64], space[64];
  i32 A[MOST][64], B[MOST][64];
  u8 which[32 * 64];
  if (sparse) read_which(w, in, M, K, which);
  for (int e = 0; e < per_a; e++) {
    const u32 *from = row(w, in->src[0].index + (u32)(e / 4));
    for (int l = 0; l < 64; l++) A[e][l] = (i8)(from[l] >> 8 * (e % 4));
  }
  for (int e = 0; e < per_b; e++) {
    const u32 *from = lanes_of(w, in->src[1].index + (u32)(e / 4), sparse ? 0 : in->count, space);
    for (int l = 0; l < 64; l++) B[e][l] = (i8)(from[l] >> 8 * (e % 4));
  }
  Accumulator C;
  read_c(w, sparse ? &in->dst[0] : &in->src[2], &C);
  for (int b = 0; b < blocks; b++)
    for (int i = 0; i < M; i++) {
      int reg, lane;
      place_of(M, N, 4, b, i, &reg, &lane);
      u32 d[32];
      memcpy(d, c_at(&C, reg, lane), 4 * (size_t)N);
      for (int k = 0; k < held; k++) {
        const int block = sparse ? b : cbsz_block(in, b), dense = sparse ? which[i * held + k] : k;
        const i32 a = A[k % per_a][k / per_a * M * blocks + block * M + i];
        const i32 *at = B[dense % per_b] + dense / per_b * N * blocks + b * N;
        for (int j = 0; j < N; j++) d[j] += (u32)(a * at[j]);
      }
      memcpy(&out[reg][lane], d, 4 * (size_t)N);
    }
  memcpy(row(w, in->dst[0].index), out, sizeof out);
}

/* --- the instructions --- */

/* X(name, types of D, A, B and C or the index, body) */
#define OF_FACTORS(SHAPE, A, B, NA, NB)                                                                \
  Factors a, b;                                                                                        \
  read_##A(w, &in->src[0], 0, NA, &a);                                                                 \
  read_##B(w, &in->src[1], in->count, NB, &b);                                                         \
  SHAPE(w, in, &a, &b);
#define MFMA_INSTRUCTIONS(X)                                                                           \
  X(v_mfma_f32_32x32x1_2b_f32, F32, F32, multiply_f32(w, in, 32, 32, 1, 2);)                           \
  X(v_mfma_f32_16x16x1_4b_f32, F32, F32, multiply_f32(w, in, 16, 16, 1, 4);)                           \
  X(v_mfma_f32_4x4x1_16b_f32, F32, F32, multiply_f32(w, in, 4, 4, 1, 16);)                             \
  X(v_mfma_f32_32x32x2_f32, F32, F32, multiply_f32(w, in, 32, 32, 2, 1);)                              \
  X(v_mfma_f32_16x16x4_f32, F32, F32, multiply_f32(w, in, 16, 16, 4, 1);)                              \
  X(v_mfma_f64_16x16x4_f64, F64, F64, multiply_f64(w, in, 16, 16, 4, 1);)                              \
  X(v_mfma_f64_4x4x4_4b_f64, F64, F64, multiply_f64(w, in, 4, 4, 4, 4);)                               \
  X(v_mfma_i32_32x32x4_2b_i8, U32, U32, multiply_i8(w, in, 32, 32, 4, 2, 0);)                          \
  X(v_mfma_i32_16x16x4_4b_i8, U32, U32, multiply_i8(w, in, 16, 16, 4, 4, 0);)                          \
  X(v_mfma_i32_4x4x4_16b_i8, U32, U32, multiply_i8(w, in, 4, 4, 4, 16, 0);)                            \
  X(v_mfma_i32_32x32x16_i8, U32, U32, multiply_i8(w, in, 32, 32, 16, 1, 0);)                           \
  X(v_mfma_i32_16x16x32_i8, U32, U32, multiply_i8(w, in, 16, 16, 32, 1, 0);)                           \
  X(v_smfmac_i32_16x16x64_i8, U32, U32, multiply_i8(w, in, 16, 16, 64, 1, 1);)                         \
  X(v_smfmac_i32_32x32x32_i8, U32, U32, multiply_i8(w, in, 32, 32, 32, 1, 1);)                         \
  X(v_mfma_f32_16x16x8_xf32, F32, F32, OF_FACTORS(grouped_16x16x8_xf32, xf32, xf32, 2, 2))             \
  X(v_mfma_f32_32x32x4_xf32, F32, F32, OF_FACTORS(grouped_32x32x4_xf32, xf32, xf32, 2, 2))             \
  MFMA_HALVES(X, f16) MFMA_HALVES(X, bf16)                                                             \
  MFMA_BYTES(X, fp8, fp8) MFMA_BYTES(X, fp8, bf8) MFMA_BYTES(X, bf8, fp8) MFMA_BYTES(X, bf8, bf8)
#define MFMA_HALVES(X, T)                                                                              \
  X(v_mfma_f32_32x32x8_##T, F32, F32, OF_FACTORS(grouped_32x32x8, T, T, 4, 4))                         \
  X(v_mfma_f32_16x16x16_##T, F32, F32, OF_FACTORS(grouped_16x16x16, T, T, 4, 4))                       \
  X(v_mfma_f32_32x32x4_2b_##T, F32, F32, OF_FACTORS(grouped_32x32x4_2b, T, T, 4, 4))                   \
  X(v_mfma_f32_16x16x4_4b_##T, F32, F32, OF_FACTORS(grouped_16x16x4_4b, T, T, 4, 4))                   \
  X(v_mfma_f32_4x4x4_16b_##T, F32, F32, OF_FACTORS(grouped_4x4x4_16b, T, T, 4, 4))                     \
  X(v_smfmac_f32_16x16x32_##T, F32, U32, OF_FACTORS(sparse_16x16x32, T, T, 4, 8))                      \
  X(v_smfmac_f32_32x32x16_##T, F32, U32, OF_FACTORS(sparse_32x32x16, T, T, 4, 8))
#define MFMA_BYTES(X, A, B)                                                                            \
  X(v_mfma_f32_16x16x32_##A##_##B, F32, F32, OF_FACTORS(grouped_16x16x32, A, B, 8, 8))                 \
  X(v_mfma_f32_32x32x16_##A##_##B, F32, F32, OF_FACTORS(grouped_32x32x16, A, B, 8, 8))                 \
  X(v_smfmac_f32_16x16x64_##A##_##B, F32, U32, OF_FACTORS(sparse_16x16x64, A, B, 8, 16))               \
  X(v_smfmac_f32_32x32x32_##A##_##B, F32, U32, OF_FACTORS(sparse_32x32x32, A, B, 8, 16))

#define BODY(NAME, D, C, ...) static void NAME(Wave *w, const Inst *in) { __VA_ARGS__ }
MFMA_INSTRUCTIONS(BODY)
#undef BODY

#endif
