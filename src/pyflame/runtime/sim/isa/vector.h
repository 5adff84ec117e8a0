/* The types of vector operands and the forms of vector instructions.
 *
 * A type T has: T_ROW the element of a fetched row, T_VAL the type that statements see, T_GET to fetch, T_LOAD from
 * element to value, T_SAVE back, T_PUT to store a row, T_IN / T_OUT around the loop that computes it. HF16, HF32 and
 * HF64 are floats seen as their bits, SF16, SF32 and SF64 bits that take the sign modifiers of floats and nothing else. The tables name types in words, which tell decode.py what a constant means.
 */
#ifndef PF_VECTOR_H
#define PF_VECTOR_H

#include "sim.h"

static inline float as_f32(u32 x) { float f; memcpy(&f, &x, 4); return f; }
static inline u32 bits32(float f) { u32 x; memcpy(&x, &f, 4); return x; }
static inline double as_f64(u64 x) { double f; memcpy(&f, &x, 8); return f; }
static inline u64 bits64(double f) { u64 x; memcpy(&x, &f, 8); return x; }
static inline float as_f16(u16 x) { _Float16 h; memcpy(&h, &x, 2); return (float)h; }
static inline u16 bits16(float f) { const _Float16 h = (_Float16)f; u16 x; memcpy(&x, &h, 2); return x; }

/* What follows a float's computation: output modifier, clamp, denormals. */
void finish_slow32(const Wave *w, const Inst *in, u32 *out);
void finish_slow64(const Wave *w, const Inst *in, u64 *out);
void finish_slow16(const Wave *w, const Inst *in, u16 *out);
static inline void finish_f32(const Wave *w, const Inst *in, u32 *out) {
  if (__builtin_expect(in->flags & CLAMP || in->omod || w->flush32, 0)) finish_slow32(w, in, out);
}
static inline void finish_f64(const Wave *w, const Inst *in, u64 *out) {
  if (__builtin_expect(in->flags & CLAMP || in->omod || w->flush16, 0)) finish_slow64(w, in, out);
}
static inline void finish_f16(const Wave *w, const Inst *in, u16 *out) {
  if (__builtin_expect(in->flags & CLAMP || in->omod || w->flush16, 0)) finish_slow16(w, in, out);
}

/* float16 and float64 have a rounding mode of their own. */
static inline int round_as_16(const Wave *w) {
  if (__builtin_expect(w->rounding16 < 0, 1)) return -1;
  const int before = fegetround();
  fesetround(w->rounding16);
  return before;
}
static inline void round_as_before(int before) { if (__builtin_expect(before >= 0, 0)) fesetround(before); }

#define U32_ROW u32
#define U32_VAL u32
#define U32_GET(w, in, o, space) get32(w, in, o, space, 0)
#define U32_LOAD(x) (x)
#define U32_SAVE(x) (u32)(x)
#define U32_PUT(w, in, o, out) put32(w, in, o, out)
#define U32_IN
#define U32_OUT
#define I32_ROW u32
#define I32_VAL i32
#define I32_GET U32_GET
#define I32_LOAD(x) (i32)(x)
#define I32_SAVE U32_SAVE
#define I32_PUT U32_PUT
#define I32_IN
#define I32_OUT
#define U64_ROW u64
#define U64_VAL u64
#define U64_GET(w, in, o, space) get64(w, in, o, space, 0)
#define U64_LOAD(x) (x)
#define U64_SAVE(x) (u64)(x)
#define U64_PUT(w, in, o, out) put64(w, in, o, out)
#define U64_IN
#define U64_OUT
#define I64_ROW u64
#define I64_VAL i64
#define I64_GET U64_GET
#define I64_LOAD(x) (i64)(x)
#define I64_SAVE U64_SAVE
#define I64_PUT U64_PUT
#define I64_IN
#define I64_OUT
#define U16_ROW u16
#define U16_VAL u16
#define U16_GET(w, in, o, space) get16(w, in, o, space, 0)
#define U16_LOAD(x) (x)
#define U16_SAVE(x) (u16)(x)
#define U16_PUT(w, in, o, out) put16(w, in, o, out)
#define U16_IN
#define U16_OUT
#define I16_ROW u16
#define I16_VAL i16
#define I16_GET U16_GET
#define I16_LOAD(x) (i16)(x)
#define I16_SAVE U16_SAVE
#define I16_PUT U16_PUT
#define I16_IN
#define I16_OUT
#define F32_ROW u32
#define F32_VAL float
#define F32_GET(w, in, o, space) ((w)->flush32 & 1 ? slow32(w, in, o, space, 1) : get32(w, in, o, space, 1))
#define F32_LOAD as_f32
#define F32_SAVE bits32
#define F32_PUT(w, in, o, out) (finish_f32(w, in, out), put32(w, in, o, out))
#define F32_IN
#define F32_OUT
#define HF32_ROW u32
#define HF32_VAL u32
#define HF32_GET F32_GET
#define HF32_LOAD(x) (x)
#define HF32_SAVE(x) (x)
#define HF32_PUT F32_PUT
#define HF32_IN
#define HF32_OUT
#define F64_ROW u64
#define F64_VAL double
#define F64_GET(w, in, o, space) get64(w, in, o, space, 1)
#define F64_LOAD as_f64
#define F64_SAVE bits64
#define F64_PUT(w, in, o, out) (finish_f64(w, in, out), put64(w, in, o, out))
#define F64_IN const int before = round_as_16(w);
#define F64_OUT round_as_before(before);
#define HF64_ROW u64
#define HF64_VAL u64
#define HF64_GET F64_GET
#define HF64_LOAD(x) (x)
#define HF64_SAVE(x) (x)
#define HF64_PUT F64_PUT
#define HF64_IN
#define HF64_OUT
#define F16_ROW u16 /* statements see a float; + - * / and sqrt round twice to the same result */
#define F16_VAL float
#define F16_GET(w, in, o, space) get16(w, in, o, space, 1)
#define F16_LOAD as_f16
#define F16_SAVE bits16
#define F16_PUT(w, in, o, out) (finish_f16(w, in, out), put16(w, in, o, out))
#define F16_IN F64_IN
#define F16_OUT F64_OUT
#define HF16_ROW u16
#define HF16_VAL u16
#define HF16_GET F16_GET
#define HF16_LOAD(x) (x)
#define HF16_SAVE(x) (x)
#define HF16_PUT F16_PUT
#define HF16_IN
#define HF16_OUT
#define SF32_ROW u32
#define SF32_VAL u32
#define SF32_GET(w, in, o, space) get32(w, in, o, space, 2)
#define SF32_LOAD(x) (x)
#define SF32_SAVE(x) (x)
#define SF32_PUT U32_PUT
#define SF32_IN
#define SF32_OUT
#define SF16_ROW u16
#define SF16_VAL u16
#define SF16_GET(w, in, o, space) get16(w, in, o, space, 2)
#define SF16_LOAD(x) (x)
#define SF16_SAVE(x) (x)
#define SF16_PUT U16_PUT
#define SF16_IN
#define SF16_OUT
#define SF64_ROW u64
#define SF64_VAL u64
#define SF64_GET(w, in, o, space) get64(w, in, o, space, 2)
#define SF64_LOAD(x) (x)
/* A bit per lane, in scalar registers. Lanes that are off give 0. */
#define MASK_ROW u8
#define MASK_VAL u32
#define MASK_GET(w, in, o, space) get_bits(w, o, space)
#define MASK_LOAD(x) (x)
#define MASK_PUT(w, in, o, out) write_mask(w, o, pack_bits(out) & lanes_on(w, in))

static inline const u8 *get_bits(Wave *w, const Operand *o, u8 *space) {
  const u64 bits = read_mask(w, o);
  EACH_LANE space[l] = bits >> l & 1;
  return space;
}

#define SOURCE(T, n) T##_ROW t##n[PF_LANES]; const T##_ROW *const p##n = T##_GET(w, in, &in->src[n], t##n);
#define VALUE(T, name, n) const T##_VAL name = T##_LOAD(p##n[l]);

/* V<n>: n sources, a result d. V<n>M: also a bit per lane, m. `clamp` is the instruction's clamp bit (integers
 * saturate), `ieee` and `nearest` the mode's (rounding of float16 and float64), `l` the lane. */
#define HEAD(NAME)                                                                                    \
  static void NAME(Wave *w, const Inst *in) {                                                         \
    const int clamp = in->flags & CLAMP, ieee = w->mode >> 9 & 1, nearest = !(w->mode >> 2 & 3);       \
    (void)clamp, (void)ieee, (void)nearest;
#define FORM(D, ...) D##_ROW out[PF_LANES]; D##_IN EACH_LANE { __VA_ARGS__ } D##_OUT D##_PUT(w, in, &in->dst[0], out);
#define V1(NAME, D, A, ...)                                                                           \
  HEAD(NAME) SOURCE(A, 0) FORM(D, VALUE(A, a, 0) D##_VAL d; __VA_ARGS__; out[l] = D##_SAVE(d);) }
/* V1S: from a scalar register to one, whatever EXEC says. */
#define V1S(NAME, D, A, ...)                                                                          \
  HEAD(NAME) SOURCE(A, 0) D##_ROW out[PF_LANES]; D##_IN                                               \
  EACH_LANE { VALUE(A, a, 0) D##_VAL d; __VA_ARGS__; out[l] = D##_SAVE(d); }                          \
  D##_OUT D##_FINISH(w, in, out); write_s32(w, &in->dst[0], out[0]); }
#define V2(NAME, D, A, B, ...)                                                                        \
  HEAD(NAME) SOURCE(A, 0) SOURCE(B, 1)                                                                \
  FORM(D, VALUE(A, a, 0) VALUE(B, b, 1) D##_VAL d; __VA_ARGS__; out[l] = D##_SAVE(d);) }
#define V3(NAME, D, A, B, C, ...)                                                                     \
  HEAD(NAME) SOURCE(A, 0) SOURCE(B, 1) SOURCE(C, 2)                                                   \
  FORM(D, VALUE(A, a, 0) VALUE(B, b, 1) VALUE(C, c, 2) D##_VAL d; __VA_ARGS__; out[l] = D##_SAVE(d);) }
#define V4(NAME, D, A, B, C, E, ...)                                                                  \
  HEAD(NAME) SOURCE(A, 0) SOURCE(B, 1) SOURCE(C, 2) SOURCE(E, 3)                                      \
  FORM(D, VALUE(A, a, 0) VALUE(B, b, 1) VALUE(C, c, 2) VALUE(E, e, 3) D##_VAL d; __VA_ARGS__; out[l] = D##_SAVE(d);) }
#define V2M(NAME, D, A, B, ...)                                                                       \
  HEAD(NAME) SOURCE(A, 0) SOURCE(B, 1) u8 bits[PF_LANES];                                             \
  FORM(D, VALUE(A, a, 0) VALUE(B, b, 1) D##_VAL d; u32 m; __VA_ARGS__; out[l] = D##_SAVE(d); bits[l] = m != 0;) \
  MASK_PUT(w, in, &in->dst[1], bits); }
#define V3M(NAME, D, A, B, C, ...)                                                                    \
  HEAD(NAME) SOURCE(A, 0) SOURCE(B, 1) SOURCE(C, 2) u8 bits[PF_LANES];                                \
  FORM(D, VALUE(A, a, 0) VALUE(B, b, 1) VALUE(C, c, 2) D##_VAL d; u32 m; __VA_ARGS__;                 \
       out[l] = D##_SAVE(d); bits[l] = m != 0;)                                                       \
  MASK_PUT(w, in, &in->dst[1], bits); }
/* A comparison; v_cmpx also (GFX9) or only (GFX11) writes EXEC: decode.py gives it EXEC as a second result. */
#define CMP(NAME, A, B, ...)                                                                          \
  HEAD(NAME) SOURCE(A, 0) SOURCE(B, 1) u8 out[PF_LANES];                                              \
  EACH_LANE { VALUE(A, a, 0) VALUE(B, b, 1) u32 d; __VA_ARGS__; out[l] = d != 0; }                    \
  const u64 found = pack_bits(out) & lanes_on(w, in);                                                 \
  write_mask(w, &in->dst[0], found);                                                                  \
  if (in->dst[1].kind) write_mask(w, &in->dst[1], found); }

/* Packed: the statement runs once for each half of the registers (P) or each register of the pairs (Q). */
#define HALF(T, n)                                                                                    \
  T##_ROW t##n[PF_LANES]; const T##_ROW *const p##n = T##_HALF(w, in, &in->src[n], t##n, upper);
#define U16_HALF(w, in, o, space, upper) get_half(w, in, o, space, 0, upper)
#define I16_HALF U16_HALF
#define F16_HALF(w, in, o, space, upper) get_half(w, in, o, space, 1, upper)
#define HF16_HALF F16_HALF
#define U32_HALF(w, in, o, space, upper) get_pair(w, in, o, space, 0, upper)
#define F32_HALF(w, in, o, space, upper) get_pair(w, in, o, space, 1, upper)
#define U16_FINISH(w, in, out)
#define I16_FINISH(w, in, out)
#define F16_FINISH finish_f16
#define HF16_FINISH finish_f16
#define U32_FINISH(w, in, out)
#define F32_FINISH finish_f32
#define PACK(D, ...)                                                                                  \
  D##_ROW half[2][PF_LANES]; D##_IN                                                                   \
  for (int upper = 0; upper < 2; upper++) { D##_ROW *out = half[upper]; __VA_ARGS__ D##_FINISH(w, in, out); } D##_OUT
#define STORE_P u32 both[PF_LANES]; EACH_LANE both[l] = half[0][l] | (u32)half[1][l] << 16; put32(w, in, &in->dst[0], both);
#define STORE_Q put_pair(w, &in->dst[0], half[0], half[1]);
static inline void put_pair(Wave *w, const Operand *o, const u32 *low, const u32 *high) { /* without DPP and SDWA */
  u32 *const a = row(w, o->index), *const b = row(w, o->index + 1);
  const u32 *mask = w->mask;
  EACH_LANE a[l] = mask[l] ? low[l] : a[l];
  EACH_LANE b[l] = mask[l] ? high[l] : b[l];
}
#define PACK2(NAME, STORE, D, A, B, ...)                                                              \
  HEAD(NAME) PACK(D, HALF(A, 0) HALF(B, 1)                                                            \
    EACH_LANE { VALUE(A, a, 0) VALUE(B, b, 1) D##_VAL d; __VA_ARGS__; out[l] = D##_SAVE(d); }) STORE }
#define PACK3(NAME, STORE, D, A, B, C, ...)                                                           \
  HEAD(NAME) PACK(D, HALF(A, 0) HALF(B, 1) HALF(C, 2)                                                 \
    EACH_LANE { VALUE(A, a, 0) VALUE(B, b, 1) VALUE(C, c, 2) D##_VAL d; __VA_ARGS__; out[l] = D##_SAVE(d); }) STORE }
#define P2(NAME, D, A, B, ...) PACK2(NAME, STORE_P, D, A, B, __VA_ARGS__)
#define P3(NAME, D, A, B, C, ...) PACK3(NAME, STORE_P, D, A, B, C, __VA_ARGS__)
#define Q2(NAME, D, A, B, ...) PACK2(NAME, STORE_Q, D, A, B, __VA_ARGS__)
#define Q3(NAME, D, A, B, C, ...) PACK3(NAME, STORE_Q, D, A, B, C, __VA_ARGS__)
#define HAND(NAME, D, S) /* written by hand in the .c file */

#endif
