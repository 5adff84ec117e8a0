/* WMMA and SWMMAC of RDNA 4: a 16x16 D = A B + C. No element is in two lanes.
 *
 * Where an element lies in a wave of 32 (AMD's matrix instruction calculator prints the same; RDNA 4's A and B alternate
 * between the halves of the wave every 64 bits of a lane, T = 64 / bits elements, or all that a lane holds if fewer):
 *   A[i][k]     lane i + 16*(k/T%2), element k/(2T)*T + k%T of the lane's registers, densely packed
 *   B[k][j]     lane j + 16*(k/T%2), the same; twice that T where A is sparse
 *   C, D[i][j]  lane j + 16*(i/8), register i%8; 16-bit elements are densely packed
 *   index       the lane of a sparse A, two bits for each element that it holds: its place among four k
 * In a wave of 64 the upper half of the registers, if there are several, lies in lanes 32 to 63.
 *
 * Sums of float16 and bfloat16: steps of four products over rising k. Two products of a step are cut off 24 bits below
 * the exponents of the larger one and added; both sums and C, cut off on one grid (24 bits below the largest product's
 * exponents or 26 below C's leading bit), are added and rounded to nearest; a bfloat16 result is cut off. All cutting off
 * is towards minus infinity; denormals count. That was measured on gfx1201 (ROCm/rocm-systems, issue 12056 and rocjitsu's
 * gfx12_dot.h). For 8-bit floats and sparse ones nothing was measured: they are taken to sum alike.
 */
#include "matrix.h"

enum { REGS_D = 256 / PF_LANES };

/* Of K elements of `bits` in a row of A or a column of B: those of a lane in a wave of 32, and T. */
typedef struct { int bits, per, run; } Layout;
INLINE Layout layout(int K, int bits, int times) {
  const int per = K / 2, run = 64 * times / bits;
  return (Layout){bits, per, run < per ? run : per};
}
INLINE int moved_up(int registers, int reg) { return PF_LANES == 64 && registers > 1 && reg >= registers / 2; }
INLINE void find(Layout a, int k, int *lane, int *slot) {
  const int at = k / (2 * a.run) * a.run + k % a.run, registers = a.per * a.bits / 32;
  const int up = moved_up(registers, at * a.bits / 32);
  *lane = 16 * (k / a.run % 2) + 32 * up;
  *slot = up ? at - a.per / 2 : at;
}
INLINE int index_bits(Layout a) { /* that say where the elements of a lane belong */
  return 2 * (PF_LANES == 64 && a.per * a.bits > 32 ? a.per / 2 : a.per);
}

/* Elements of a row of A or a column of B, as [k][row]: significand times 2^exponent, or a class of its own. */
enum { FINITE, INFINITE, NOT_A_NUMBER };
typedef struct { i32 significand[32][16], exponent[32][16]; u8 class[32][16]; int finite; } Elements;

INLINE u32 element_bits(Wave *w, const Operand *o, Layout a, int k, int row_number) {
  int lane, slot;
  find(a, k, &lane, &slot);
  const u32 word = row(w, o->index + (u32)(slot * a.bits / 32))[lane + row_number];
  return word >> slot * a.bits % 32 & (u32)(((u64)1 << a.bits) - 1);
}

INLINE void read_elements(Wave *w, const Operand *o, const Format f, int K, Layout a, Elements *out) {
  const u32 sign_bit = 1u << (f.bits - 1), top = (sign_bit - 1) >> f.fraction;
  out->finite = 1;
  for (int k = 0; k < K; k++) {
    const u32 flip = f.bits == 16 && o->mods & (k % 2 ? NEG_HIGH : NEG) ? sign_bit : 0;
    for (int i = 0; i < 16; i++) {
      const u32 bits = element_bits(w, o, a, k, i) ^ flip, magnitude = bits & (sign_bit - 1);
      const u32 field = magnitude >> f.fraction, fraction = magnitude & ((1u << f.fraction) - 1);
      const int finite = f.special == FN ? magnitude != sign_bit - 1 : field != top;
      const i32 s = (i32)(field ? fraction | 1u << f.fraction : fraction);
      out->significand[k][i] = bits & sign_bit ? -s : s;
      out->exponent[k][i] = larger((i32)field, 1) - f.bias;
      out->class[k][i] = finite ? FINITE : f.special == FN || fraction ? NOT_A_NUMBER : INFINITE;
      out->finite &= finite;
    }
  }
}

enum { EMPTY = -1024 };

INLINE i32 shifted(i32 x, i32 by) { return by >= 0 ? (i32)((u32)x << (by & 31)) : x >> (by < -31 ? 31 : -by); }

/* One step onto C, the bits of a float32, of products p with the exponents e of their factors, in units of 2^(e-below). */
INLINE u32 step12(int to, const i32 *p, const i32 *e, int below, u32 c) {
  const i32 field = c >> 23 & 255, sc = (i32)((c & 0x7fffff) | (field ? 1u << 23 : 0)), ec = larger(field, 1) - 150;
  const i32 floor_of_c = to == TO_F16 ? -14 : -126;
  const i32 lead = sc ? (i32)(bits_of((float)sc) >> 23) - 127 + ec : EMPTY;
  i32 grids[2], pairs[2];
  for (int n = 0; n < 2; n++) {
    const i32 ga = p[2 * n] ? e[2 * n] - 24 : EMPTY, gb = p[2 * n + 1] ? e[2 * n + 1] - 24 : EMPTY;
    grids[n] = larger(ga, gb);
    pairs[n] = shifted(p[2 * n], e[2 * n] - below - grids[n]) + shifted(p[2 * n + 1], e[2 * n + 1] - below - grids[n]);
  }
  const i32 grid = larger(larger(grids[0], grids[1]), larger(floor_of_c, lead) - 26);
  const i32 whole_c = shifted(sc, ec - grid);
  const i32 cut_c = grid > floor_of_c && !whole_c ? 0 : shifted(c >> 31 ? -sc : sc, ec - grid);
  const i32 total = cut_c + shifted(pairs[0], grids[0] - grid) + shifted(pairs[1], grids[1] - grid);
  const double exact = (double)total * power64(grid);
  if (to == TO_F16) return bits_of((float)(_Float16)exact + 0.0f);
  const u32 rounded = bits_of((float)exact + 0.0f);
  return to == TO_BF16 ? rounded & 0xffff0000 : rounded;
}

/* A step with infinities or NaNs; 0 if it has none. */
static int special12(int to, const i32 *p, const u8 (*classes)[2], const int *negative, u32 c, u32 *result) {
  int above = c == 0x7f800000, below = c == 0xff800000, invalid = 0, up = 0, down = 0;
  for (int n = 0; n < 4; n++) {
    if (classes[n][0] == NOT_A_NUMBER || classes[n][1] == NOT_A_NUMBER) {
      *result = to == TO_F16 ? 0xffc7a000 : to == TO_BF16 ? 0xfffd0000 : 0xffc00a3d;
      return 1;
    }
    if (!classes[n][0] && !classes[n][1]) continue;
    invalid |= !p[n];
    *(negative[n] ? &down : &up) = 1;
  }
  if (invalid || (up && down)) { *result = 0xffc00000; return 1; }
  if ((c & 0x7fffffff) > 0x7f800000) { *result = c | 0x400000; return 1; }
  above |= up, below |= down;
  if (!above && !below) return 0;
  *result = above && below ? 0xffc00000 : below ? 0xff800000 : 0x7f800000;
  return 1;
}

/* Where C and D of row i lie: the first lane, the register, and the bits to shift by. */
INLINE void place12(int to, int i, int *lane, int *reg, int *shift) {
  const int slot = i % 8, registers = to == TO_F32 ? 8 : 4, at = to == TO_F32 ? slot : slot / 2;
  const int up = moved_up(registers, at);
  *lane = 16 * (i / 8) + 32 * up, *reg = up ? at - registers / 2 : at, *shift = to == TO_F32 ? 0 : 16 * (slot % 2);
}

/* The k of each element that a row of a sparse A holds. */
INLINE void read_places(Wave *w, const Inst *in, Layout a, int held, int i, u8 *which) {
  const int shift = in->bytes * index_bits(a) % 32;
  for (int k = 0; k < held; k++) {
    int lane, slot;
    find(a, k, &lane, &slot);
    which[k] = (u8)(k / 2 * 4 + (row(w, in->src[2].index)[lane + i] >> (shift + 2 * slot) & 3));
  }
}

static NOINLINE void row12(int to, int held, int below, int i, const Elements *A, const Elements *B, const u8 *which, u32 *c) {
  for (int k = 0; k < held; k += 4)
    for (int j = 0; j < 16; j++) {
      i32 p[4], e[4];
      for (int n = 0; n < 4; n++) {
        const int m = which[k + n];
        p[n] = A->significand[k + n][i] * B->significand[m][j], e[n] = A->exponent[k + n][i] + B->exponent[m][j];
      }
      u32 next = step12(to, p, e, below, c[j]);
      if (__builtin_expect(!A->finite || !B->finite || (c[j] & 0x7f800000) == 0x7f800000, 0)) {
        u8 classes[4][2];
        int negative[4];
        for (int n = 0; n < 4; n++) {
          const int m = which[k + n];
          classes[n][0] = A->class[k + n][i], classes[n][1] = B->class[m][j];
          negative[n] = (A->significand[k + n][i] ^ B->significand[m][j]) < 0;
        }
        special12(to, p, classes, negative, c[j], &next);
      }
      c[j] = next;
    }
}

/* Not once per instruction: that would take the C compiler long, and most time goes to row12. */
static NOINLINE void multiply12(Wave *w, const Inst *in, const Format fa, const Format fb, int K, int to, int sparse) {
  const int held = sparse ? K / 2 : K;
  const Layout a = layout(held, fa.bits, 1), b = layout(K, fb.bits, 1 + sparse);
  const Operand *o = sparse ? &in->dst[0] : &in->src[2];
  u32 out[REGS_D][PF_LANES] = {0};
  u8 which[32];
  Elements A, B;
  read_elements(w, &in->src[0], fa, held, a, &A);
  read_elements(w, &in->src[1], fb, K, b, &B);
  nearest_begin(w);
  for (int k = 0; k < held; k++) which[k] = (u8)k;
  for (int i = 0; i < 16; i++) {
    int lane, reg, shift;
    u32 c[16];
    place12(to, i, &lane, &reg, &shift);
    for (int j = 0; j < 16; j++) {
      u32 x = o->kind == VGPR ? row(w, o->index + (u32)reg)[lane + j] >> shift : (u32)o->value;
      if (to != TO_F32) x = widen(to, x & 0xffff);
      if (!sparse && o->mods & NEG_HIGH) x &= 0x7fffffff;
      if (!sparse && o->mods & NEG) x ^= 0x80000000;
      c[j] = x;
    }
    if (sparse) read_places(w, in, a, held, i, which);
    row12(to, held, fa.fraction + fb.fraction, i, &A, &B, which, c);
    for (int j = 0; j < 16; j++) out[reg][lane + j] |= to == TO_F32 ? c[j] : narrow(to, c[j]) << shift;
  }
  nearest_end(w);
  memcpy(row(w, in->dst[0].index), out, sizeof out / (to == TO_F32 ? 1 : 2));
}

/* Integers of 8 or 4 bits; neg_lo says which are signed, clamp that the sum saturates. */
static NOINLINE void multiply_integers12(Wave *w, const Inst *in, int bits, int K, int sparse) {
  const int held = sparse ? K / 2 : K;
  const Layout layouts[2] = {layout(held, bits, 1), layout(K, bits, 1 + sparse)};
  const Operand *o = sparse ? &in->dst[0] : &in->src[2];
  i32 factors[2][64][16];
  u32 out[REGS_D][PF_LANES];
  u8 which[64];
  for (int n = 0; n < 2; n++)
    for (int k = 0; k < (n ? K : held); k++)
      for (int i = 0; i < 16; i++) {
        const u32 word = element_bits(w, &in->src[n], layouts[n], k, i) << (32 - bits);
        factors[n][k][i] = in->src[n].mods & NEG ? (i32)word >> (32 - bits) : (i32)(word >> (32 - bits));
      }
  for (int k = 0; k < held; k++) which[k] = (u8)k;
  for (int i = 0; i < 16; i++) {
    int lane, reg, shift;
    i32 sum[16] = {0};
    place12(TO_F32, i, &lane, &reg, &shift);
    if (sparse) read_places(w, in, layouts[0], held, i, which);
    for (int k = 0; k < held; k++)
      for (int j = 0; j < 16; j++) sum[j] += factors[0][k][i] * factors[1][which[k]][j];
    for (int j = 0; j < 16; j++) {
      i64 total = (i64)(i32)(o->kind == VGPR ? row(w, o->index + (u32)reg)[lane + j] : (u32)o->value) + sum[j];
      if (in->flags & CLAMP) total = total > INT32_MAX ? INT32_MAX : total < INT32_MIN ? INT32_MIN : total;
      out[reg][lane + j] = (u32)total;
    }
  }
  memcpy(row(w, in->dst[0].index), out, sizeof out);
}

#define WMMA12_BYTES(X, A, B, FA, FB)                                                                                  \
  X(v_wmma_f32_16x16x16_##A##_##B, F32, F32, multiply12(w, in, FA, FB, 16, TO_F32, 0);)                            \
  X(v_swmmac_f32_16x16x32_##A##_##B, F32, U32, multiply12(w, in, FA, FB, 32, TO_F32, 1);)
#define WMMA12_INSTRUCTIONS(X)                                                                                         \
  X(v_wmma_f32_16x16x16_f16_gfx12, F32, F32, multiply12(w, in, FMT_F16, FMT_F16, 16, TO_F32, 0);)                  \
  X(v_wmma_f32_16x16x16_bf16_gfx12, F32, F32, multiply12(w, in, FMT_BF16, FMT_BF16, 16, TO_F32, 0);)               \
  X(v_wmma_f16_16x16x16_f16_gfx12, F16, F16, multiply12(w, in, FMT_F16, FMT_F16, 16, TO_F16, 0);)                  \
  X(v_wmma_bf16_16x16x16_bf16_gfx12, BF16, PK_BF16, multiply12(w, in, FMT_BF16, FMT_BF16, 16, TO_BF16, 0);)        \
  X(v_swmmac_f32_16x16x32_f16, F32, U32, multiply12(w, in, FMT_F16, FMT_F16, 32, TO_F32, 1);)                      \
  X(v_swmmac_f32_16x16x32_bf16, F32, U32, multiply12(w, in, FMT_BF16, FMT_BF16, 32, TO_F32, 1);)                   \
  X(v_swmmac_f16_16x16x32_f16, F16, U32, multiply12(w, in, FMT_F16, FMT_F16, 32, TO_F16, 1);)                      \
  X(v_swmmac_bf16_16x16x32_bf16, BF16, U32, multiply12(w, in, FMT_BF16, FMT_BF16, 32, TO_BF16, 1);)                \
  WMMA12_BYTES(X, fp8, fp8, FMT_FP8_OCP, FMT_FP8_OCP) WMMA12_BYTES(X, fp8, bf8, FMT_FP8_OCP, FMT_BF8_OCP)              \
  WMMA12_BYTES(X, bf8, fp8, FMT_BF8_OCP, FMT_FP8_OCP) WMMA12_BYTES(X, bf8, bf8, FMT_BF8_OCP, FMT_BF8_OCP)              \
  X(v_wmma_i32_16x16x16_iu8_gfx12, U32, U32, multiply_integers12(w, in, 8, 16, 0);)                                    \
  X(v_wmma_i32_16x16x16_iu4_gfx12, U32, U32, multiply_integers12(w, in, 4, 16, 0);)                                    \
  X(v_wmma_i32_16x16x32_iu4, U32, U32, multiply_integers12(w, in, 4, 32, 0);)                                          \
  X(v_swmmac_i32_16x16x32_iu8, U32, U32, multiply_integers12(w, in, 8, 32, 1);)                                        \
  X(v_swmmac_i32_16x16x32_iu4, U32, U32, multiply_integers12(w, in, 4, 32, 1);)                                        \
  X(v_swmmac_i32_16x16x64_iu4, U32, U32, multiply_integers12(w, in, 4, 64, 1);)
#define BODY(NAME, D, C, ...) static void NAME(Wave *w, const Inst *in) { __VA_ARGS__ }
WMMA12_INSTRUCTIONS(BODY)
#undef BODY
