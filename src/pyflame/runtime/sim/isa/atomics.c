/* Atomics in memory and in the LDS: the lanes take their turns in order. */
#include "access.h"

static float f32_of(u64 x) { const u32 b = (u32)x; float f; memcpy(&f, &b, 4); return f; }
static u64 of_f32(float f) { u32 b; memcpy(&b, &f, 4); return b; }
static double f64_of(u64 x) { double f; memcpy(&f, &x, 8); return f; }
static u64 of_f64(double f) { u64 b; memcpy(&b, &f, 8); return b; }

static u16 add_f16(u16 a, u16 b) {
  _Float16 x, y;
  memcpy(&x, &a, 2), memcpy(&y, &b, 2);
  x = (_Float16)((float)x + (float)y);
  memcpy(&a, &x, 2);
  return a;
}
static u16 add_bf16(u16 a, u16 b) {
  const u32 sum = (u32)of_f32(f32_of((u64)a << 16) + f32_of((u64)b << 16));
  if ((sum & 0x7fffffff) > 0x7f800000) return (u16)(sum >> 16 | 0x40); /* a NaN stays one */
  return (u16)((sum + 0x7fff + (sum >> 16 & 1)) >> 16);
}
static u64 halves(u64 a, u64 b, u16 (*add)(u16, u16)) {
  return (u64)add((u16)a, (u16)b) | (u64)add((u16)(a >> 16), (u16)(b >> 16)) << 16;
}
/* The exchange of a half of 64 bits happens if the highest bit of the new half is set. */
static u64 exchange_halves(u64 old, u64 x) {
  const u32 low = (u32)x, high = (u32)(x >> 32);
  const u32 new_low = low >> 31 ? low & 0x7fffffff : (u32)old, new_high = high >> 31 ? high & 0x7fffffff : (u32)(old >> 32);
  return (u64)new_high << 32 | new_low;
}

/* In the order of decode_memory.py. */
enum {
  SWAP, CMPSWAP, ADD, SUB, RSUB, SMIN, UMIN, SMAX, UMAX, AND, OR, XOR, INC, DEC, ADD_F32, ADD_F64, PK_ADD_F16,
  PK_ADD_BF16, MIN_F32, MAX_F32, MIN_F64, MAX_F64, CMPSWAP_F32, CMPSWAP_F64, CSUB, MSKOR, WRAP, CONDXCHG32, COND_SUB
};

/* What memory holds afterwards. x: the operand, y: a second one (what to compare with). */
static u64 combine(u32 code, u32 bytes, u64 old, u64 x, u64 y) {
  const i64 signed_old = bytes == 4 ? (i32)old : (i64)old, signed_x = bytes == 4 ? (i32)x : (i64)x;
  switch (code) {
  case SWAP: return x;
  case CMPSWAP: return old == y ? x : old;
  case ADD: return old + x;
  case SUB: return old - x;
  case RSUB: return x - old;
  case SMIN: return signed_old < signed_x ? old : x;
  case UMIN: return old < x ? old : x;
  case SMAX: return signed_old > signed_x ? old : x;
  case UMAX: return old > x ? old : x;
  case AND: return old & x;
  case OR: return old | x;
  case XOR: return old ^ x;
  case INC: return old >= x ? 0 : old + 1;
  case DEC: return old == 0 || old > x ? x : old - 1;
  case ADD_F32: return of_f32(f32_of(old) + f32_of(x));
  case ADD_F64: return of_f64(f64_of(old) + f64_of(x));
  case PK_ADD_F16: return halves(old, x, add_f16);
  case PK_ADD_BF16: return halves(old, x, add_bf16);
  case MIN_F32: return of_f32(fminf(f32_of(old), f32_of(x)));
  case MAX_F32: return of_f32(fmaxf(f32_of(old), f32_of(x)));
  case MIN_F64: return of_f64(fmin(f64_of(old), f64_of(x)));
  case MAX_F64: return of_f64(fmax(f64_of(old), f64_of(x)));
  case CMPSWAP_F32: return f32_of(old) == f32_of(y) ? x : old;
  case CMPSWAP_F64: return f64_of(old) == f64_of(y) ? x : old;
  case CSUB: return old >= x ? old - x : 0;
  case COND_SUB: return old >= x ? old - x : old;
  case MSKOR: return (old & ~x) | y;
  case WRAP: return old >= x ? old - x : old + y;
  default: return exchange_halves(old, x);
  }
}

/* src[2]: the operand; the second one is src[3], or follows in the registers behind. */
void visit_atomic(Wave *w, const Inst *in, const Piece *p) {
  const u32 bytes = in->bytes, words = bytes / 4;
  const u32 *x = row(w, in->src[2].index);
  const u32 *y = in->src[3].kind == VGPR ? row(w, in->src[3].index) : x + words * PF_LANES;
  const int two = in->extra == CMPSWAP || in->extra == CMPSWAP_F32 || in->extra == CMPSWAP_F64 || in->extra == MSKOR ||
                  in->extra == WRAP;
  u32 out[2][PF_LANES];
  EACH_OF(p->mask) {
    const u32 l = (u32)LANE_OF;
    u64 old = 0, first = x[l], second = two ? y[l] : 0;
    if (words == 2) first |= (u64)x[PF_LANES + l] << 32;
    if (words == 2 && two) second |= (u64)y[PF_LANES + l] << 32;
    memcpy(&old, p->data + p->at[l], bytes);
    const u64 now = combine(in->extra, bytes, old, first, second);
    memcpy(p->data + p->at[l], &now, bytes);
    out[0][l] = (u32)old, out[1][l] = (u32)(old >> 32);
  }
  if (in->flags & RETURNS)
    for (u32 k = 0; k < words; k++) put_lanes(w, p->mask, in->dst[0].index + k, out[k]);
}

void mem_atomic(Wave *w, const Inst *in) {
  Access a;
  addresses(w, in, &a);
  a.how = ATOMIC;
  reach(w, in, &a, exec_of(w), visit_atomic);
}
