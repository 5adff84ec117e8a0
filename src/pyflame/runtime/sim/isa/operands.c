/* How operands are fetched and results stored when a plain row will not do: modifiers, halves, DPP, SDWA, denormals. */
#include "vector.h"

/* The lane that each lane reads from under a DPP control; -1: none. Controls as in the encoding (VOP_DPP). */
static void dpp_sources(const Inst *in, i8 *from) {
  const u32 ctrl = in->dpp;
  const int n = (int)(ctrl & 15);
#define FROM(EXPRESSION) EACH_LANE { const int r = l & 15, start = l & ~15; (void)r, (void)start; from[l] = (i8)(EXPRESSION); }
  if (ctrl == 0xffff) FROM((l & ~7) | ((u32)in->offset >> 3 * (l & 7) & 7)) /* dpp8 */
  else if (ctrl <= 0xff) FROM((l & ~3) | (ctrl >> 2 * (l & 3) & 3))         /* quad_perm */
  else switch (ctrl & 0xff0) {
  case 0x100: FROM(r + n > 15 ? -1 : start + r + n) break;    /* row_shl */
  case 0x110: FROM(r - n < 0 ? -1 : start + r - n) break;     /* row_shr */
  case 0x120: FROM(start + ((r - n) & 15)) break;             /* row_ror */
  case 0x150: FROM(start + n) break;                          /* row_share, row_newbcast */
  case 0x160: FROM(start + (r ^ n)) break;                    /* row_xmask */
  default:
    switch (ctrl) {
    case 0x130: FROM(l + 1 < PF_LANES ? l + 1 : -1) break;    /* wave_shl:1 */
    case 0x134: FROM((l + 1) % PF_LANES) break;               /* wave_rol:1 */
    case 0x138: FROM(l - 1) break;                            /* wave_shr:1 */
    case 0x13c: FROM((l + PF_LANES - 1) % PF_LANES) break;    /* wave_ror:1 */
    case 0x140: FROM(start + 15 - r) break;                   /* row_mirror */
    case 0x141: FROM((l & ~7) + 7 - (l & 7)) break;           /* row_half_mirror */
    case 0x142: FROM(l < 16 ? -1 : start - 1) break;          /* row_bcast:15 */
    default: FROM(l < 32 ? -1 : 31) break;                    /* row_bcast:31 */
    }
  }
#undef FROM
}

static void apply_dpp(Wave *w, const Inst *in, const u32 *from, u32 *to) {
  const u64 exec = exec_of(w);
  const int fetch_inactive = in->extra & 1;
  u64 disabled = 0;
  i8 sources[PF_LANES];
  dpp_sources(in, sources);
  EACH_LANE {
    const int source = sources[l];
    const int valid = source >= 0 && (fetch_inactive || exec >> (source & 63) & 1);
    const int masked = !(in->row_mask >> (l / 16) & 1) || !(in->bank_mask >> (l % 16 / 4) & 1);
    disabled |= (u64)(masked || (!valid && !(in->flags & BOUND_CTRL))) << l;
    to[l] = valid ? from[source] : 0;
  }
  w->writes = exec & ~disabled;
}

static u32 flushed32(u32 bits) { return bits & 0x7f800000 ? bits : bits & 0x80000000; }

const u32 *slow32(Wave *w, const Inst *in, const Operand *o, u32 *space, int is_float) {
  if (!o->special && o->kind != VGPR && !(is_float & w->flush32 & 1)) {
    const u32 value = read_s32(w, o);
    EACH_LANE space[l] = value;
    return space;
  }
  u32 moved[PF_LANES];
  const u32 *from;
  if (o->kind == VGPR) {
    from = row(w, o->index);
  } else {
    const u32 value = read_s32(w, o);
    EACH_LANE moved[l] = value;
    from = moved;
  }
  if (in->flags & DPP && o == &in->src[0]) {
    u32 shuffled[PF_LANES];
    apply_dpp(w, in, from, shuffled);
    memcpy(moved, shuffled, sizeof moved);
    from = moved;
  }
  if (o->select) {
    const u32 bits = o->select <= 4 ? 8 : 16, shift = o->select <= 4 ? 8 * (o->select - 1u) : 16 * (o->select - 5u);
    const u32 up = 32 - bits - shift;
    if (o->mods & SEXT) EACH_LANE moved[l] = (u32)((i32)(from[l] << up) >> (32 - bits));
    else EACH_LANE moved[l] = from[l] << up >> (32 - bits);
    from = moved;
  }
  const u32 keep = is_float && o->mods & ABS ? 0x7fffffff : ~0u, flip = is_float && o->mods & NEG ? 0x80000000 : 0;
  if (w->flush32 & is_float & 1) EACH_LANE space[l] = (flushed32(from[l]) & keep) ^ flip;
  else EACH_LANE space[l] = (from[l] & keep) ^ flip;
  return space;
}

const u64 *get64(Wave *w, const Inst *in, const Operand *o, u64 *space, int is_float) {
  if (o->kind == VGPR) {
    const u32 *low = row(w, o->index), *high = row(w, o->index + 1);
    u32 moved_low[PF_LANES], moved_high[PF_LANES];
    if (in->flags & DPP && o == &in->src[0]) {
      apply_dpp(w, in, low, moved_low);
      apply_dpp(w, in, high, moved_high);
      low = moved_low, high = moved_high;
    }
    EACH_LANE space[l] = (u64)high[l] << 32 | low[l];
  } else {
    const u64 value = read_s64(w, o);
    EACH_LANE space[l] = value;
  }
  if (!is_float) return space;
  if (w->flush16 & is_float & 1) EACH_LANE if (!(space[l] & 0x7ff0000000000000)) space[l] &= 0x8000000000000000;
  if (o->mods & ABS) EACH_LANE space[l] &= 0x7fffffffffffffff;
  if (o->mods & NEG) EACH_LANE space[l] ^= 0x8000000000000000;
  return space;
}

/* Half of a register, which DPP or SDWA may have moved before. */
static const u16 *half_of(Wave *w, const Inst *in, const Operand *o, u16 *space, int high, int abs, int neg, int flush) {
  u32 wide[PF_LANES];
  const u32 *from = wide;
  const int moved = in->flags & DPP && o == &in->src[0], shift = high ? 16 : 0;
  if (moved || o->select) {
    from = slow32(w, in, o, wide, 0);
  } else if (o->kind == VGPR) {
    from = row(w, o->index);
  } else {
    const u32 value = read_s32(w, o);
    EACH_LANE wide[l] = value;
  }
  EACH_LANE space[l] = (u16)(from[l] >> shift);
  if (flush) EACH_LANE space[l] &= space[l] & 0x7c00 ? 0xffff : 0x8000;
  if (abs) EACH_LANE space[l] &= 0x7fff;
  if (neg) EACH_LANE space[l] ^= 0x8000;
  return space;
}

const u16 *get16(Wave *w, const Inst *in, const Operand *o, u16 *space, int is_float) {
  const int mods = is_float ? o->mods : o->mods & HIGH;
  return half_of(w, in, o, space, mods & HIGH, mods & ABS, mods & NEG, w->flush16 & is_float & 1);
}

const u16 *get_half(Wave *w, const Inst *in, const Operand *o, u16 *space, int is_float, int upper) {
  const int high = o->mods & (upper ? HIGH_OF_HIGH : HIGH), neg = o->mods & (upper ? NEG_HIGH : NEG);
  return half_of(w, in, o, space, high, 0, is_float && neg, w->flush16 & is_float & 1);
}

const u32 *get_pair(Wave *w, const Inst *in, const Operand *o, u32 *space, int is_float, int upper) {
  const int high = o->mods & (upper ? HIGH_OF_HIGH : HIGH), neg = o->mods & (upper ? NEG_HIGH : NEG);
  if (o->kind == VGPR) {
    const u32 *from = row(w, o->index + !!high);
    if (!(is_float && (neg || w->flush32 & 1))) return from;
    EACH_LANE space[l] = from[l];
  } else {
    const u32 value = o->kind == SGPR ? w->s[o->index + !!high] : (u32)o->value;
    EACH_LANE space[l] = value;
  }
  if (is_float && w->flush32 & 1) EACH_LANE space[l] = flushed32(space[l]);
  if (is_float && neg) EACH_LANE space[l] ^= 0x80000000;
  return space;
}

/* Where SDWA puts a result of 32 bits, and what becomes of the rest of the register. */
static u32 sdwa_place(const Inst *in, u32 value, u32 old) {
  const u32 select = in->dst_select;
  if (!select) return value;
  const u32 bits = select <= 4 ? 8 : 16, shift = select <= 4 ? 8 * (select - 1) : 16 * (select - 5);
  const u32 field = ((u32)(((u64)1 << bits) - 1)) << shift;
  const u32 placed = value << shift & field;
  if (in->dst_unused == 2) return placed | (old & ~field);
  if (in->dst_unused == 1) return (u32)((i32)(placed << (32 - bits - shift)) >> (32 - bits - shift)) | placed;
  return placed;
}

void put32_slow(Wave *w, const Inst *in, const Operand *o, const u32 *out) {
  u32 *to = row(w, o->index);
  const u64 writes = lanes_on(w, in);
  EACH_LANE if (writes >> l & 1) to[l] = in->flags & SDWA ? sdwa_place(in, out[l], to[l]) : out[l];
}

void put64(Wave *w, const Inst *in, const Operand *o, const u64 *out) {
  u32 *low = row(w, o->index), *high = row(w, o->index + 1);
  if (in->flags & DPP) {
    EACH_LANE if (w->writes >> l & 1) low[l] = (u32)out[l], high[l] = (u32)(out[l] >> 32);
    return;
  }
  const u32 *mask = w->mask;
  EACH_LANE low[l] = mask[l] ? (u32)out[l] : low[l];
  EACH_LANE high[l] = mask[l] ? (u32)(out[l] >> 32) : high[l];
}

/* GFX9 zeroes the upper half of the register, save where decode.py has marked the result as one that keeps it
 * (HIGH_OF_HIGH); GFX11 keeps it. */
void put16(Wave *w, const Inst *in, const Operand *o, const u16 *out) {
  u32 wide[PF_LANES];
  const u32 *old = row(w, o->index);
  if (o->mods & HIGH) EACH_LANE wide[l] = (u32)out[l] << 16 | (old[l] & 0xffff);
  else if (w->launch->generation >= 11 || o->mods & HIGH_OF_HIGH) EACH_LANE wide[l] = out[l] | (old[l] & 0xffff0000);
  else EACH_LANE wide[l] = out[l];
  put32(w, in, o, wide);
}

u64 pack_bits(const u8 *bits) {
  u64 packed = 0;
  for (int i = 0; i < PF_LANES / 8; i++) {
    u64 eight;
    memcpy(&eight, bits + 8 * i, 8);
    packed |= (eight * 0x0102040810204080) >> 56 << 8 * i;
  }
  return packed;
}

/* --- what follows the computation of a float --- */

/* The output modifier takes effect only where denormals are flushed and the mode is not IEEE's; it turns -0 into 0. */
static int has_omod(const Wave *w, const Inst *in, u32 flush) { return in->omod && flush & 2 && !(w->mode >> 9 & 1); }
static const float SCALES[4] = {1, 2, 4, 0.5f};
#define CLAMPED(x) ((x) > 1 ? 1 : (x) > 0 ? (x) : (x) == (x) || w->mode >> 8 & 1 ? 0 : (x)) /* DX10_CLAMP: NaN is 0 */

void finish_slow32(const Wave *w, const Inst *in, u32 *out) {
  const int omod = has_omod(w, in, w->flush32);
  EACH_LANE {
    float x = as_f32(out[l]);
    if (omod) x = x * SCALES[in->omod] + 0.0f;
    if (in->flags & CLAMP) x = CLAMPED(x);
    if (w->flush32 & 2 && fabsf(x) < 0x1p-126f) x = omod ? 0 : copysignf(0, x);
    if (omod || in->flags & CLAMP || w->flush32 & 2) out[l] = bits32(x);
  }
}
void finish_slow64(const Wave *w, const Inst *in, u64 *out) {
  const int omod = has_omod(w, in, w->flush16);
  EACH_LANE {
    double x = as_f64(out[l]);
    if (omod) x = x * SCALES[in->omod] + 0.0;
    if (in->flags & CLAMP) x = CLAMPED(x);
    if (w->flush16 & 2 && fabs(x) < 0x1p-1022) x = omod ? 0 : copysign(0, x);
    if (omod || in->flags & CLAMP || w->flush16 & 2) out[l] = bits64(x);
  }
}
void finish_slow16(const Wave *w, const Inst *in, u16 *out) {
  const int omod = has_omod(w, in, w->flush16);
  EACH_LANE {
    float x = as_f16(out[l]);
    if (omod) x = x * SCALES[in->omod] + 0.0f;
    if (in->flags & CLAMP) x = CLAMPED(x);
    if (w->flush16 & 2 && fabsf(x) < 0x1p-14f) x = omod ? 0 : copysignf(0, x);
    if (omod || in->flags & CLAMP || w->flush16 & 2) out[l] = bits16(x);
  }
}
