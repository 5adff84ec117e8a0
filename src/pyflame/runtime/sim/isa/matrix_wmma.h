/* WMMA of RDNA 3: a 16x16 D = A B + C.
 *
 * Where an element lies, with G = 2 groups of 16 lanes in a wave of 32 and 4 in one of 64:
 *   A[i][k]     lane i of every group (the program copies it), element k of the lane's registers, densely packed
 *   B[k][j]     lane j of every group, the same
 *   C, D[i][j]  register i/G, lane 16*(i%G) + j; 16-bit elements fill one half of a register (op_sel)
 * A group reads its own copies of A and B, so a program that forgets to copy them is caught out, as on the hardware.
 *
 * Sums of float16 and bfloat16: eight steps of two products over rising k, each rounded (a 16-bit C and D even to 16
 * bits). A step cuts off both products and C on one grid, 24 bits below the exponents of the larger product or 26 below
 * the leading bit of the largest term; a term whose sign is not C's counts as its complement, one unit less than its
 * negative, be it zero; what comes out is rounded to nearest. Denormals: float16 factors count, bfloat16 factors and C
 * and D of float32 and bfloat16 are zero. bfloat16 results are cut off. That was measured on gfx1100
 * (ROCm/rocm-systems, issue 12056); sums of small whole numbers are therefore not always exact.
 */
#include "matrix.h"

enum { GROUPS = PF_LANES / 16 };

typedef struct { i32 significand[16][PF_LANES], exponent[16][PF_LANES]; u32 negative[16][PF_LANES]; int finite; } Terms;

/* The 16 k of A or B; the halves of a register may be negated apart. */
INLINE void read_terms(Wave *w, const Operand *o, const Format f, Terms *out) {
  const u32 flip = (o->mods & NEG ? 0x8000u : 0) | (o->mods & NEG_HIGH ? 0x80000000u : 0);
  int finite = 1;
  for (int k = 0; k < 16; k++) {
    const u32 *from = row(w, o->index + (u32)(k / 2));
    for (int l = 0; l < PF_LANES; l++) {
      const u32 bits = (from[l] ^ flip) >> 16 * (k % 2) & 0xffff;
      const i32 field = bits >> f.fraction & ((1 << (15 - f.fraction)) - 1), fraction = bits & ((1 << f.fraction) - 1);
      const i32 whole = fraction | 1 << f.fraction;
      out->significand[k][l] = field ? whole : f.fraction == 7 ? 0 : fraction;
      out->exponent[k][l] = larger(field, 1) - f.bias;
      out->negative[k][l] = bits >> 15;
      finite &= field != (1 << (15 - f.fraction)) - 1;
    }
  }
  out->finite = finite;
}

/* The exponent of a significand's leading bit. */
INLINE i32 leading(i32 significand, i32 exponent) {
  return significand ? (i32)(bits_of((float)significand) >> 23) - 127 + exponent : NO_EXPONENT;
}
INLINE i32 onto_grid(i32 significand, i32 shift) {
  return shift >= 0 ? significand << (shift & 31) : significand >> (shift < -31 ? 31 : -shift);
}

/* One step of two products for column j; c and the result are the bits of a float32. Finite values only. */
INLINE u32 step(int to, i32 pa, i32 ea, u32 na, i32 pb, i32 eb, u32 nb, int fraction, u32 c) {
  const i32 field = c >> 23 & 255, sc = field ? (c & 0x7fffff) | 1 << 23 : 0, ec = field - 150;
  const u32 nc = c >> 31;
  const i32 lc = field ? field - 127 : NO_EXPONENT;
  const i32 product_top = larger(pa ? ea : NO_EXPONENT, pb ? eb : NO_EXPONENT);
  const i32 xa = ea - 2 * fraction, xb = eb - 2 * fraction;
  const i32 top = larger(larger(to == TO_F16 ? larger(lc, -14) : lc, leading(pa, xa)), leading(pb, xb));
  const i32 grid = larger(product_top - 24, top - 26);
  const i32 ma = onto_grid(pa, xa - grid), mb = onto_grid(pb, xb - grid), mc = onto_grid(sc, ec - grid);
  const i32 total = mc + (na != nc ? ~ma : ma) + (nb != nc ? ~mb : mb);
  const u32 sign = ((u32)total >> 31 ^ nc) << 31;
  const i32 magnitude = total < 0 ? -total : total;
  const int nothing = !(pa | pb | sc) || !total;
  if (to == TO_F16) { /* rounded once, to 11 bits or to the spacing of denormals */
    const i32 cut = larger(leading(magnitude, 0) - 10, -24 - grid);
    const i32 off = larger(cut, 0), odd = magnitude >> off & 1;
    const i32 kept = (magnitude + (1 << off >> 1) - (off ? 1 - odd : 0)) >> off;
    const u32 value = bits_of((float)kept * power(grid + off));
    const u32 bounded = value > 0x477fe000 ? 0x7f800000 : value; /* beyond 65504 */
    return nothing | !kept ? 0 : bounded | sign;
  }
  const u32 rounded = bits_of((float)magnitude);
  const i32 exponent = (i32)(rounded >> 23) + grid;
  const u32 result = exponent < 1 ? 0 : exponent > 254 ? sign | 0x7f800000
    : sign | (u32)exponent << 23 | (rounded & 0x7fffff);
  return nothing ? 0 : to == TO_BF16 ? result & 0xffff0000 : result;
}

/* A step with infinities or NaNs, told from the bits of its factors; 0 if it has none. */
static int special_step(const u32 *a, const u32 *b, const Format f, u32 c, int to, u32 *result) {
  const u32 infinity = f.fraction == 7 ? 0x7f80 : 0x7c00;
  int above = c == 0x7f800000, below = c == 0xff800000, invalid = 0;
  for (int n = 0; n < 2; n++) {
    const u32 x = a[n] & 0x7fff, y = b[n] & 0x7fff, tiny = f.fraction == 7 ? 0x7f : 0; /* counts as zero up to this */
    if (x > infinity || y > infinity) {
      *result = to == TO_F16 ? 0xffc7a000 : to == TO_BF16 ? 0xfffd0000 : 0xffc00a3d;
      return 1;
    }
    invalid |= (x == infinity && y <= tiny) || (y == infinity && x <= tiny);
    if (x == infinity || y == infinity) *((a[n] ^ b[n]) & 0x8000 ? &below : &above) |= 2;
  }
  const int products = (above | below) & 2;
  if (invalid || (above & 2 && below & 2)) { *result = 0xffc00000; return 1; }
  if ((c & 0x7fffffff) > 0x7f800000) { *result = c | 0x400000; return 1; }
  if (!products && !above && !below) return 0;
  *result = above && below ? 0xffc00000 : below ? 0xff800000 : 0x7f800000;
  return 1;
}

static u32 factor_bits(Wave *w, const Operand *o, int k, int lane) {
  const u32 flip = o->mods & (k % 2 ? NEG_HIGH : NEG) ? 0x8000 : 0;
  return (row(w, o->index + (u32)(k / 2))[lane] >> 16 * (k % 2) & 0xffff) ^ flip;
}

INLINE void multiply_wmma(Wave *w, const Inst *in, const Format f, int to) {
  const Operand *o = &in->src[2];
  const int half = o->mods & HIGH ? 16 : 0;
  u32 out[16 / GROUPS][PF_LANES];
  Terms A, B;
  read_terms(w, &in->src[0], f, &A);
  read_terms(w, &in->src[1], f, &B);
  nearest_begin(w);
  for (int i = 0; i < 16; i++) {
    const int reg = i / GROUPS, group = 16 * (i % GROUPS);
    u32 c[16], odd = 0;
    for (int j = 0; j < 16; j++) {
      u32 x = o->kind == VGPR ? row(w, o->index + (u32)reg)[group + j] >> (to == TO_F32 ? 0 : half) : (u32)o->value;
      if (to != TO_F32) x = widen(to, x & 0xffff);
      if (o->mods & NEG_HIGH) x &= 0x7fffffff;
      if (o->mods & NEG) x ^= 0x80000000;
      c[j] = x;
    }
    for (int k = 0; k < 16; k += 2) {
      const i32 sa = A.significand[k][group + i], sb = A.significand[k + 1][group + i];
      const i32 xa = A.exponent[k][group + i], xb = A.exponent[k + 1][group + i];
      const u32 na = A.negative[k][group + i], nb = A.negative[k + 1][group + i];
      const i32 *ba = B.significand[k] + group, *bb = B.significand[k + 1] + group;
      const i32 *ea = B.exponent[k] + group, *eb = B.exponent[k + 1] + group;
      const u32 *fa = B.negative[k] + group, *fb = B.negative[k + 1] + group;
      u32 next[16];
      for (int j = 0; j < 16; j++) {
        odd |= (c[j] & 0x7f800000) == 0x7f800000;
        next[j] = step(to, sa * ba[j], xa + ea[j], na ^ fa[j], sb * bb[j], xb + eb[j], nb ^ fb[j], f.fraction, c[j]);
      }
      if (__builtin_expect(odd || !A.finite || !B.finite, 0)) {
        const u32 a[2] = {factor_bits(w, &in->src[0], k, group + i), factor_bits(w, &in->src[0], k + 1, group + i)};
        for (int j = 0; j < 16; j++) {
          const u32 b[2] = {factor_bits(w, &in->src[1], k, group + j), factor_bits(w, &in->src[1], k + 1, group + j)};
          special_step(a, b, f, c[j], to, &next[j]);
        }
      }
      memcpy(c, next, sizeof c);
    }
    for (int j = 0; j < 16; j++) out[reg][group + j] = to == TO_F32 ? c[j] : narrow(to, c[j]);
  }
  nearest_end(w);
  for (int reg = 0; reg < 16 / GROUPS; reg++) {
    u32 *d = row(w, in->dst[0].index + (u32)reg);
    for (int l = 0; l < PF_LANES; l++)
      d[l] = to == TO_F32 ? out[reg][l] : (d[l] & ~(0xffffu << half)) | out[reg][l] << half;
  }
}

/* Integers of 8 or 4 bits; neg_lo says which are signed, clamp that the sum saturates. */
INLINE void multiply_integers(Wave *w, const Inst *in, int bits) {
  const int each = 32 / bits;
  i32 A[16][PF_LANES], B[16][PF_LANES];
  u32 out[16 / GROUPS][PF_LANES];
  for (int k = 0; k < 16; k++)
    for (int n = 0; n < 2; n++) {
      const u32 *from = row(w, in->src[n].index + (u32)(k / each));
      const int up = 32 - bits - bits * (k % each), is_signed = in->src[n].mods & NEG;
      i32 *to = n ? B[k] : A[k];
      for (int l = 0; l < PF_LANES; l++) {
        const u32 word = from[l] << up;
        to[l] = is_signed ? (i32)word >> (32 - bits) : (i32)(word >> (32 - bits));
      }
    }
  const Operand *o = &in->src[2];
  for (int i = 0; i < 16; i++) {
    const int reg = i / GROUPS, group = 16 * (i % GROUPS);
    i32 sum[16] = {0};
    for (int k = 0; k < 16; k++)
      for (int j = 0; j < 16; j++) sum[j] += A[k][group + i] * B[k][group + j];
    for (int j = 0; j < 16; j++) {
      const i32 c = (i32)(o->kind == VGPR ? row(w, o->index + (u32)reg)[group + j] : (u32)o->value);
      i64 total = (i64)c + sum[j];
      if (in->flags & CLAMP) total = total > INT32_MAX ? INT32_MAX : total < INT32_MIN ? INT32_MIN : total;
      out[reg][group + j] = (u32)total;
    }
  }
  memcpy(row(w, in->dst[0].index), out, sizeof out);
}

#define WMMA_INSTRUCTIONS(X)                                                              \
  X(v_wmma_f32_16x16x16_f16, F32, F32, multiply_wmma(w, in, FMT_F16, TO_F32);)            \
  X(v_wmma_f32_16x16x16_bf16, F32, F32, multiply_wmma(w, in, FMT_BF16, TO_F32);)          \
  X(v_wmma_f16_16x16x16_f16, F16, F16, multiply_wmma(w, in, FMT_F16, TO_F16);)            \
  X(v_wmma_bf16_16x16x16_bf16, BF16, PK_BF16, multiply_wmma(w, in, FMT_BF16, TO_BF16);)      \
  X(v_wmma_i32_16x16x16_iu8, U32, U32, multiply_integers(w, in, 8);)                      \
  X(v_wmma_i32_16x16x16_iu4, U32, U32, multiply_integers(w, in, 4);)
#define BODY(NAME, D, C, ...) static void NAME(Wave *w, const Inst *in) { __VA_ARGS__ }
WMMA_INSTRUCTIONS(BODY)
#undef BODY
