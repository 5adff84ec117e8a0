/* Scalar instructions on floats. scalar_float.def says what each one does. */
#include "convert.h"
#include "float16.h"

static inline u32 read_f32(const Wave *w, const Operand *o) {
  const u32 bits = read_s32(w, o);
  return w->flush32 & 1 && !(bits & 0x7f800000) ? bits & 0x80000000 : bits;
}
static inline u16 read_f16(const Wave *w, const Operand *o) {
  const u16 bits = (u16)read_s32(w, o);
  return w->flush16 & 1 && !(bits & 0x7c00) ? bits & 0x8000 : bits;
}
static inline void write_f32(Wave *w, const Operand *o, u32 bits) {
  write_s32(w, o, w->flush32 & 2 && !(bits & 0x7f800000) ? bits & 0x80000000 : bits);
}
static inline void write_f16(Wave *w, const Operand *o, u16 bits) { /* the upper half becomes 0 */
  write_s32(w, o, w->flush16 & 2 && !(bits & 0x7c00) ? bits & 0x8000 : bits);
}

#define READ_U32(w, o) read_s32(w, o)
#define READ_F32(w, o) as_f32(read_f32(w, o))
#define READ_HF32 read_f32
#define READ_F16(w, o) as_f16(read_f16(w, o))
#define READ_HF16 read_f16
#define WRITE_U32 write_s32
#define WRITE_F32(w, o, d) write_f32(w, o, bits32(d))
#define WRITE_HF32 write_f32
#define WRITE_F16(w, o, d) const volatile u16 bits = bits16(d); F16_OUT write_f16(w, o, bits)
#define WRITE_HF16 write_f16
#define NONE_IN
#define NONE_VAL u32
#define WRITE_NONE(w, o, d) (void)(d)

/* Between setting a rounding mode and setting it back nothing is kept in registers: sources are read after the first, and
 * what is written passes through memory before the second. */
#define HEAD_OF(NAME, D) static void NAME(Wave *w, const Inst *in) { D##_IN u32 scc = w->scc; D##_VAL d = 0;
#define SOURCE_OF(T, name, n) const T##_VAL name = READ_##T(w, &in->src[n]);
#define TAIL_OF(D, ...) __VA_ARGS__; w->scc = scc; WRITE_##D(w, &in->dst[0], d); }
#define S1(NAME, D, A, ...) HEAD_OF(NAME, D) SOURCE_OF(A, a, 0) TAIL_OF(D, __VA_ARGS__)
#define S2(NAME, D, A, B, ...) HEAD_OF(NAME, D) SOURCE_OF(A, a, 0) SOURCE_OF(B, b, 1) TAIL_OF(D, __VA_ARGS__)
#define S3(NAME, D, A, B, C, ...)                                                                     \
  HEAD_OF(NAME, D) SOURCE_OF(A, a, 0) SOURCE_OF(B, b, 1) SOURCE_OF(C, c, 2) TAIL_OF(D, __VA_ARGS__)
#define SCALAR_CONDITIONS(NAME, T)                                                                    \
  S2(s_cmp_lt_##NAME, NONE, T, T, scc = a < b) S2(s_cmp_eq_##NAME, NONE, T, T, scc = a == b)          \
  S2(s_cmp_le_##NAME, NONE, T, T, scc = a <= b) S2(s_cmp_gt_##NAME, NONE, T, T, scc = a > b)          \
  S2(s_cmp_ge_##NAME, NONE, T, T, scc = a >= b) S2(s_cmp_lg_##NAME, NONE, T, T, scc = a < b || a > b) \
  S2(s_cmp_o_##NAME, NONE, T, T, scc = a == a && b == b) S2(s_cmp_u_##NAME, NONE, T, T, scc = a != a || b != b) \
  S2(s_cmp_nge_##NAME, NONE, T, T, scc = !(a >= b)) S2(s_cmp_ngt_##NAME, NONE, T, T, scc = !(a > b))  \
  S2(s_cmp_nle_##NAME, NONE, T, T, scc = !(a <= b)) S2(s_cmp_neq_##NAME, NONE, T, T, scc = !(a == b)) \
  S2(s_cmp_nlt_##NAME, NONE, T, T, scc = !(a < b)) S2(s_cmp_nlg_##NAME, NONE, T, T, scc = !(a < b || a > b))

#include "scalar_float.def"
#undef S1
#undef S2
#undef S3
#define S1(NAME, D, A, ...) {#NAME, NAME, #D, #A},
#define S2(NAME, D, A, B, ...) {#NAME, NAME, #D, #A " " #B},
#define S3(NAME, D, A, B, C, ...) {#NAME, NAME, #D, #A " " #B " " #C},
const Entry SCALAR_FLOAT_TABLE[] = {
#include "scalar_float.def"
};
const int SCALAR_FLOAT_COUNT = sizeof SCALAR_FLOAT_TABLE / sizeof *SCALAR_FLOAT_TABLE;
