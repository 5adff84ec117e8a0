/* Packed vector instructions, those of mixed precision, and dot products. */
#include "float16.h"

static inline i16 to_i16(i64 x) { return x < INT16_MIN ? INT16_MIN : x > INT16_MAX ? INT16_MAX : (i16)x; }
#define SIGNED(SUM) const i64 s = (SUM); d = clamp ? (s < INT32_MIN ? INT32_MIN : s > INT32_MAX ? INT32_MAX : s) : s
#define UNSIGNED(SUM) const u64 s = (u64)(SUM); d = clamp && s >> 32 ? ~0u : (u32)s

/* The sum of products of the fields of two registers. */
static inline i64 dot(u32 a, u32 b, int bits, int a_signed, int b_signed) {
  i64 sum = 0;
  for (int i = 0; i < 32; i += bits) {
    const u32 x = a << (32 - bits - i), y = b << (32 - bits - i);
    const i64 p = a_signed ? (i32)x >> (32 - bits) : (i64)(x >> (32 - bits));
    const i64 q = b_signed ? (i32)y >> (32 - bits) : (i64)(y >> (32 - bits));
    sum += p * q;
  }
  return sum;
}

/* A half of each source: the lower result's with 0, the upper one's with 1. */
#define HALVES(T, is_float)                                                                           \
  u16 t[4][PF_LANES];                                                                                 \
  const u16 *const a0 = get_half(w, in, &in->src[0], t[0], is_float, 0);                              \
  const u16 *const a1 = get_half(w, in, &in->src[0], t[1], is_float, 1);                              \
  const u16 *const b0 = get_half(w, in, &in->src[1], t[2], is_float, 0);                              \
  const u16 *const b1 = get_half(w, in, &in->src[1], t[3], is_float, 1);

/* Products of 16-bit floats are exact in float32; each sum is rounded. */
static inline float as_bf16(u16 x) { return as_f32((u32)x << 16); }
#define DOT2_FLOAT(NAME, LOAD, IS_FLOAT)                                                              \
  HEAD(NAME) HALVES(u16, IS_FLOAT) SOURCE(F32, 2)                                                     \
  FORM(F32, VALUE(F32, c, 2) const float s = LOAD(a0[l]) * LOAD(b0[l]) + c;                           \
       out[l] = bits32(LOAD(a1[l]) * LOAD(b1[l]) + s);) }
DOT2_FLOAT(v_dot2_f32_f16, as_f16, 1)
DOT2_FLOAT(v_dot2c_f32_f16, as_f16, 1)
DOT2_FLOAT(v_dot2_f32_bf16, as_bf16, 2)
DOT2_FLOAT(v_dot2c_f32_bf16, as_bf16, 2)
#define DOT2_INTEGER(NAME, T, HALF_T, SATURATE)                                                       \
  HEAD(NAME) HALVES(u16, 0) SOURCE(T, 2)                                                              \
  FORM(T, VALUE(T, c, 2) T##_VAL d;                                                                   \
       SATURATE((i64)(HALF_T)a0[l] * (HALF_T)b0[l] + (i64)(HALF_T)a1[l] * (HALF_T)b1[l] + c); out[l] = T##_SAVE(d);) }
DOT2_INTEGER(v_dot2_i32_i16, I32, i16, SIGNED)
DOT2_INTEGER(v_dot2c_i32_i16, I32, i16, SIGNED)
DOT2_INTEGER(v_dot2_u32_u16, U32, u16, UNSIGNED)

/* Each source gives one of its two registers; which, the first two bits of op_sel say. */
static void v_pk_mov_b32(Wave *w, const Inst *in) {
  u32 t0[PF_LANES], t1[PF_LANES];
  const u32 *const a = get_pair(w, in, &in->src[0], t0, 0, 0), *const b = get_pair(w, in, &in->src[1], t1, 0, 0);
  u64 out[PF_LANES];
  EACH_LANE out[l] = (u64)b[l] << 32 | a[l];
  put64(w, in, &in->dst[0], out);
}

/* Mixed precision: op_sel_hi makes a source a float16 (op_sel: its upper half), else it is a float32. */
static void get_mixed(Wave *w, const Inst *in, const Operand *o, float *to) {
  u32 wide[PF_LANES];
  u16 narrow[PF_LANES];
  if (o->mods & HIGH_OF_HIGH) {
    const u16 *const from = get16(w, in, o, narrow, 1);
    EACH_LANE to[l] = as_f16(from[l]);
  } else {
    const u32 *const from = F32_GET(w, in, o, wide);
    EACH_LANE to[l] = as_f32(from[l]);
  }
}
static void mixed_fma(Wave *w, const Inst *in, float *out) {
  float a[PF_LANES], b[PF_LANES], c[PF_LANES];
  get_mixed(w, in, &in->src[0], a), get_mixed(w, in, &in->src[1], b), get_mixed(w, in, &in->src[2], c);
  EACH_LANE out[l] = fmaf(a[l], b[l], c[l]);
}
static void v_fma_mix_f32(Wave *w, const Inst *in) {
  float sum[PF_LANES];
  u32 out[PF_LANES];
  mixed_fma(w, in, sum);
  EACH_LANE out[l] = bits32(sum[l]);
  F32_PUT(w, in, &in->dst[0], out);
}
static void fma_mix_half(Wave *w, const Inst *in, int mods) { /* the other half of the register stays */
  float sum[PF_LANES];
  u16 out[PF_LANES];
  Operand to = in->dst[0];
  to.mods = (u8)mods;
  mixed_fma(w, in, sum);
  F16_IN
  EACH_LANE out[l] = bits16(sum[l]);
  F16_OUT
  F16_PUT(w, in, &to, out);
}
static void v_fma_mixlo_f16(Wave *w, const Inst *in) { fma_mix_half(w, in, HIGH_OF_HIGH); }
static void v_fma_mixhi_f16(Wave *w, const Inst *in) { fma_mix_half(w, in, HIGH); }

#include "vector_packed.def"
#include "rows.h"
const Entry PACKED_TABLE[] = {
#include "vector_packed.def"
};
const int PACKED_COUNT = sizeof PACKED_TABLE / sizeof *PACKED_TABLE;
