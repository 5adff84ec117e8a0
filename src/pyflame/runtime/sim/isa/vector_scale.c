/* Conversions of GFX950 between floats of 8, 6 and 4 bits and wider ones, times or divided by a power of two: the exponent
 * of a float32 of each lane, the last source. What too large a number becomes: small.h.
 *
 * What the name says is in fields of the instruction (decode/convert.py): space, the small format; extra, the wide one;
 * count, how many; bytes, the first byte of the small ones in their register, the others of which stay.
 */
#include "small.h"

static const Small FORMATS[] = {{8, 4, 7, TO_ONES}, {8, 5, 15, TO_INFINITY}, {6, 2, 1, TO_LARGEST}, {6, 3, 3, TO_LARGEST},
                                {4, 2, 1, TO_LARGEST}};
enum { WIDE_F32, WIDE_F16, WIDE_BF16 };

static double scale_of(u32 bits) {
  const u32 e = bits >> 23 & 255;
  return e == 255 ? NAN : scalbn(1, (int)e - 127);
}

static u32 wide_bits(float x, int wide) {
  const u32 bits = bits32(x);
  if (wide == WIDE_F32) return bits;
  if (wide == WIDE_F16) return bits16(x);
  return (bits & 0x7fffffff) > 0x7f800000 ? bits >> 16 | 0x40 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
static float from_wide(u32 bits, int wide) {
  return wide == WIDE_F32 ? as_f32(bits) : wide == WIDE_F16 ? as_f16((u16)bits) : as_f32(bits << 16);
}

/* dst[0].mods: HIGH where a single float16 goes to the upper half. */
static void widen_scaled(Wave *w, const Inst *in) {
  const Small s = FORMATS[in->space];
  const int each = in->extra == WIDE_F32 ? 1 : 2, n = in->count;
  u32 space[PF_LANES];
  const u32 *scales = get32(w, in, &in->src[1], space, 0);
  F16_IN
  EACH_LANE {
    u32 out[32] = {0};
    for (int e = 0; e < n; e++) {
      const int at = 8 * in->bytes + e * s.bits;
      const u32 *from = row(w, in->src[0].index + (u32)(at / 32)) + l;
      const u64 both = (u64)(at % 32 + s.bits > 32 ? from[PF_LANES] : 0) << 32 | *from;
      const float x = small_to_f32((u32)(both >> at % 32) & ((1u << s.bits) - 1), s);
      out[e / each] |= wide_bits((float)((double)x * scale_of(scales[l])), in->extra) << (e % each * 16);
    }
    if (!w->mask[l]) continue;
    u32 *to = row(w, in->dst[0].index) + l;
    if (n == 1 && each == 2) *to = in->dst[0].mods & HIGH ? out[0] << 16 | (*to & 0xffff) : out[0] | (*to & 0xffff0000);
    else for (int k = 0; k < (n + each - 1) / each; k++) to[k * PF_LANES] = out[k];
  }
  F16_OUT
}

/* omod: 1 where the source before the last has random bits. Two float32 come from two sources. */
static void narrow_scaled(Wave *w, const Inst *in) {
  const Small s = FORMATS[in->space];
  const int each = in->extra == WIDE_F32 ? 1 : 2, n = in->count, cut = in->omod;
  const int last = cut || (n == 2 && each == 1) ? 2 : 1;
  u32 space[3][PF_LANES];
  const u32 *scales = get32(w, in, &in->src[last], space[0], 0);
  const u32 *second = last == 2 ? get32(w, in, &in->src[1], space[1], 0) : scales;
  const u32 *first = n > 2 ? row(w, in->src[0].index) : get32(w, in, &in->src[0], space[2], 0);
  EACH_LANE {
    u32 out[6] = {0};
    for (int e = 0; e < n; e++) {
      const u32 *from = each == 1 && e ? second + l : first + e / each * PF_LANES + l;
      const float x = (float)((double)from_wide(*from >> (each == 2 && e % 2 ? 16 : 0), in->extra) / scale_of(scales[l]));
      const u32 small = f32_to_small(x, s, cut, second[l]);
      const int at = n > 2 ? e * s.bits : 8 * in->bytes + e * s.bits;
      out[at / 32] |= small << at % 32;
      if (at % 32 + s.bits > 32) out[at / 32 + 1] |= small >> (32 - at % 32);
    }
    if (!w->mask[l]) continue;
    u32 *to = row(w, in->dst[0].index) + l;
    const u32 keep = n > 2 ? 0 : ~(((1u << n * s.bits) - 1) << 8 * in->bytes);
    *to = (*to & keep) | out[0];
    for (int k = 1; n > 2 && k < 6; k++) to[k * PF_LANES] = out[k];
  }
}

#define WIDEN(NAME) {"v_cvt_scalef32_" #NAME, widen_scaled, "U32", "U32 U32"},
#define NARROW(NAME, SOURCES) {"v_cvt_scalef32_" #NAME, narrow_scaled, "U32", SOURCES},
#define OF_8_BITS(T)                                                                                  \
  WIDEN(f32_##T) WIDEN(f16_##T) WIDEN(pk_f32_##T) WIDEN(pk_f16_##T) WIDEN(pk_bf16_##T)                \
  NARROW(pk_##T##_f32, "U32 U32 U32") NARROW(pk_##T##_f16, "U32 U32") NARROW(pk_##T##_bf16, "U32 U32") \
  NARROW(sr_##T##_f32, "U32 U32 U32") NARROW(sr_##T##_f16, "U32 U32 U32") NARROW(sr_##T##_bf16, "U32 U32 U32")
#define OF_6_BITS(T)                                                                                  \
  WIDEN(pk32_f32_##T) WIDEN(pk32_f16_##T) WIDEN(pk32_bf16_##T)                                        \
  NARROW(pk32_##T##_f16, "U32 U32") NARROW(pk32_##T##_bf16, "U32 U32")
const Entry SCALE_TABLE[] = {
  OF_8_BITS(fp8) OF_8_BITS(bf8) OF_6_BITS(fp6) OF_6_BITS(bf6)
  WIDEN(pk_f32_fp4) WIDEN(pk_f16_fp4) WIDEN(pk_bf16_fp4)
  NARROW(pk_fp4_f32, "U32 U32 U32") NARROW(pk_fp4_f16, "U32 U32") NARROW(pk_fp4_bf16, "U32 U32")
};
const int SCALE_COUNT = sizeof SCALE_TABLE / sizeof *SCALE_TABLE;
