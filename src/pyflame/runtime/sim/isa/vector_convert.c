/* Vector conversions. vector_convert.def says what each instruction does. */
#include "convert.h"
#include "small.h"

#define TWO_SMALL(A, B, S) (f32_to_small(A, S, 0, 0) | f32_to_small(B, S, 0, 0) << 8)
#define TWO_FLOATS(X, S) (bits32(small_to_f32(X & 255, S)) | (u64)bits32(small_to_f32(X >> 8 & 255, S)) << 32)
#define DOT4_SMALL(S, T)                                                                              \
  double sum = c;                                                                                     \
  for (int i = 0; i < 32; i += 8) sum += (double)small_to_f32(a >> i & 255, S) * small_to_f32(b >> i & 255, T); \
  d = (float)sum

/* A bfloat16 from the bits of a float32, to the nearest, ties to even; or, with random bits added, cut off. */
static inline u32 to_bf16(u32 bits, int cut, u32 random) {
  if ((bits & 0x7fffffff) > 0x7f800000) return bits >> 16 | 0x40;
  if ((bits & 0x7fffffff) == 0x7f800000) return bits >> 16;
  return (bits + (cut ? random >> 16 : 0x7fff + (bits >> 16 & 1))) >> 16;
}
/* A float16 with random bits, from their highest on, added to what is cut off. */
static inline u16 random_f16(float x, u32 random) {
  const u32 bits = bits32(x);
  return cut16((bits & 0x7fffffff) >= 0x7f800000 ? x : as_f32(bits + (random >> 19)));
}

HEAD(v_cvt_pk_f16_f32) SOURCE(F32, 0) SOURCE(F32, 1) u32 both[PF_LANES];
  F16_IN EACH_LANE both[l] = bits16(as_f32(p0[l])) | (u32)bits16(as_f32(p1[l])) << 16; F16_OUT
  put32(w, in, &in->dst[0], both); }

#include "vector_convert.def"
#include "rows.h"
const Entry CONVERT_TABLE[] = {
#include "vector_convert.def"
};
const int CONVERT_COUNT = sizeof CONVERT_TABLE / sizeof *CONVERT_TABLE;
