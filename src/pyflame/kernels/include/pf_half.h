/* The 16- and 8-bit floats, which kernels store as uint16_t and uint8_t and compute with as float.
 *
 * Conversions to a narrow type round to nearest even and keep denormals; they agree bit for bit with ml_dtypes and
 * NumPy (the payload of a float16 NaN aside, and on NVIDIA, gfx950 and gfx1250 of a bfloat16 NaN). All are straight-line
 * code and vectorise.
 *
 *   type        exponent, mantissa   largest   too large gives      NaN                  negative zero
 *   f16         5, 10                65504     inf                  0x7e00 with sign     yes
 *   bf16        8, 7                 3.39e38   inf                  0x7fc0 with sign     yes
 *   f8e4m3fn    4, 3                 448       NaN (inf too)        0x7f with sign       yes
 *   f8e4m3fnuz  4, 3 (bias 8)        240       NaN (inf too)        0x80                 no, 0x80 is NaN
 *   f8e5m2      5, 2                 57344     inf                  0x7e with sign       yes
 *
 * From double: pf_f64_to_f32_odd first, which leaves the second rounding right.
 */
#ifndef PF_HALF_H
#define PF_HALF_H

#include "pf_math_f32.h"

/* |x| as float bits -> magnitude code of a float with `man` mantissa bits and `bias`, rounded to nearest even and
 * not limited above. Below the smallest normal, adding a power of two makes the float adder do the rounding. */
PF_FN uint32_t pf_narrow_encode(uint32_t a, int man, int bias) {
  uint32_t drop = 23u - (uint32_t)man;
  uint32_t normal = ((a + (1u << (drop - 1)) - 1u + ((a >> drop) & 1u)) >> drop) - ((uint32_t)(127 - bias) << man);
  uint32_t magic = (uint32_t)(127 + 24 - bias - man) << 23;
  uint32_t denormal = pf_bits_f32(pf_from_bits_f32(a) + pf_from_bits_f32(magic)) - magic;
  return a < (uint32_t)(128 - bias) << 23 ? denormal : normal;
}
/* Magnitude code -> float bits, inf and NaN codes not handled. A denormal is (1 + m) - 1 at the lowest exponent. */
PF_FN uint32_t pf_narrow_decode(uint32_t code, int man, int bias) {
  uint32_t shifted = code << (23 - man), one = (uint32_t)(128 - bias) << 23;
  uint32_t normal = shifted + ((uint32_t)(127 - bias) << 23);
  uint32_t denormal = pf_bits_f32(pf_from_bits_f32(shifted + one) - pf_from_bits_f32(one));
  return code < 1u << man ? denormal : normal;
}

/* double -> float, rounded to odd: an inexact result gets an odd last bit, so that rounding it again, to any type
 * with two bits less, is as rounding the double once. */
PF_FN float pf_f64_to_f32_odd(double x) {
  float f = (float)x;
  uint32_t u = pf_bits_f32(f);
  int inexact = ((double)f != x) & (x == x);
  u -= (uint32_t)(inexact & (fabs((double)f) > fabs(x)));
  return pf_from_bits_f32(inexact ? u | 1u : u);
}

/* _Float16 where a loop over it becomes conversion instructions: clang does that, gcc 12 leaves it scalar. */
#if defined(__clang__) && (defined(__F16C__) || defined(__ARM_FP16_FORMAT_IEEE) || defined(__AMDGCN__))
PF_FN float pf_f16_to_f32(uint16_t h) {
  _Float16 x;
  __builtin_memcpy(&x, &h, 2);
  return (float)x;
}
PF_FN uint16_t pf_f32_to_f16(float f) {
  _Float16 x = (_Float16)f;
  uint16_t h;
  __builtin_memcpy(&h, &x, 2);
  return h;
}
#elif defined(__CUDACC__)
PF_FN float pf_f16_to_f32(uint16_t h) {
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h));
  return x;
}
PF_FN uint16_t pf_f32_to_f16(float f) {
  uint16_t h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
  return h;
}
#else
PF_FN float pf_f16_to_f32(uint16_t h) {
  uint32_t code = h & 0x7fffu;
  uint32_t u = code >= 0x7c00u ? 0x7f800000u | code << 13 : pf_narrow_decode(code, 10, 15);
  return pf_from_bits_f32(u | (uint32_t)(h & 0x8000u) << 16);
}
PF_FN uint16_t pf_f32_to_f16(float f) {
  uint32_t u = pf_bits_f32(f), a = u & 0x7fffffffu;
  uint32_t code = pf_narrow_encode(a, 10, 15);
  code = code > 0x7c00u ? 0x7c00u : code;
  code = a > 0x7f800000u ? 0x7e00u : code;
  return (uint16_t)(code | (u >> 16 & 0x8000u));
}
#endif
PF_FN uint16_t pf_f64_to_f16(double x) { return pf_f32_to_f16(pf_f64_to_f32_odd(x)); }

PF_FN float pf_bf16_to_f32(uint16_t h) { return pf_from_bits_f32((uint32_t)h << 16); }
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
PF_FN uint16_t pf_f32_to_bf16(float f) {
  uint16_t h;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(f));
  return h;
}
#elif defined(__gfx950__) || defined(__gfx1250__)
PF_FN uint16_t pf_f32_to_bf16(float f) { return __builtin_bit_cast(uint16_t, (__bf16)f); }
#elif defined(__AMDGCN__)
/* No choice between words: clang 22 loses the sign of -x where x is one (pairs on gfx90a, gfx942, gfx950). A quiet NaN
 * is at least 0x7fc00000, and every result of arithmetic is quiet. */
PF_FN uint16_t pf_f32_to_bf16(float f) {
  uint32_t u = pf_bits_f32(__builtin_canonicalizef(f)), a = u & 0x7fffffffu;
  a = a < 0x7fc00000u ? a : 0x7fc00000u;
  return (uint16_t)((a + 0x7fffu + (a >> 16 & 1u) | (u & 0x80000000u)) >> 16);
}
#else
PF_FN uint16_t pf_f32_to_bf16(float f) {
  uint32_t u = pf_bits_f32(f);
  uint32_t code = (u + 0x7fffu + (u >> 16 & 1u)) >> 16;
  return (uint16_t)(f != f ? (u >> 16 & 0x8000u) | 0x7fc0u : code);
}
#endif
PF_FN uint16_t pf_f64_to_bf16(double x) { return pf_f32_to_bf16(pf_f64_to_f32_odd(x)); }

/* CDNA3 converts its own kind of 8-bit floats, what came after it OCP's: the nearest, and NaN or infinity past the
 * largest. A word has its first number in the lowest byte. */
#if defined(__gfx942__)
#define PF_CONVERTS_FNUZ 1
#elif defined(__gfx950__) || defined(__gfx1200__) || defined(__gfx1201__) || defined(__gfx1250__)
#define PF_CONVERTS_OCP 1
#endif
#define PF_CONVERTED(name, kind)                                                              \
  PF_FN float pf_##name##_to_f32(uint8_t h) { return __builtin_amdgcn_cvt_f32_##kind(h, 0); } \
  PF_FN uint8_t pf_f32_to_##name(float f) {                                                   \
    return (uint8_t)pf_one_nan_##kind(__builtin_amdgcn_cvt_pk_##kind##_f32(f, f, 0, 0));      \
  }
#define pf_one_nan_fp8(word) (word)
/* AMD does not say which of its three NaNs a bf8 becomes: 0x7d to 0x7f give 0x7e, in each byte. */
PF_FN uint32_t pf_one_nan_bf8(uint32_t word) {
  const uint32_t nan = ((word & 0x7f7f7f7fu) + 0x03030303u) & 0x80808080u;
  return (word & ~(nan >> 7)) | nan >> 6;
}

#if PF_CONVERTS_OCP
PF_CONVERTED(f8e4m3fn, fp8)
PF_CONVERTED(f8e5m2, bf8)
#else
#if PF_CONVERTS_FNUZ /* half of a number of OCP's has its code in CDNA3's kind, and 0x80 is NaN and what is too large */
#define pf_e4m3_code(f) (uint32_t)__builtin_amdgcn_cvt_pk_fp8_f32(0.5f * fabsf(f), 0.0f, 0, 0)
#define pf_e5m2_code(f) (uint32_t)__builtin_amdgcn_cvt_pk_bf8_f32(0.5f * fabsf(f), 0.0f, 0, 0)
#else
#define pf_e4m3_code(f) pf_narrow_encode(pf_bits_f32(f) & 0x7fffffffu, 3, 7)
#define pf_e5m2_code(f) pf_narrow_encode(pf_bits_f32(f) & 0x7fffffffu, 2, 15)
#endif
PF_FN uint8_t pf_f32_to_f8e4m3fn(float f) {
  uint32_t code = pf_e4m3_code(f);
  return (uint8_t)((code > 0x7fu ? 0x7fu : code) | (pf_bits_f32(f) >> 24 & 0x80u));
}
PF_FN uint8_t pf_f32_to_f8e5m2(float f) {
  uint32_t code = pf_e5m2_code(f);
  code = code > 0x7cu ? 0x7cu : code;
  code = f != f ? 0x7eu : code;
  return (uint8_t)(code | (pf_bits_f32(f) >> 24 & 0x80u));
}
PF_FN float pf_f8e5m2_to_f32(uint8_t h) { return pf_f16_to_f32((uint16_t)(h << 8)); }
#if defined(__AMDGCN__)
/* 2^-8 of the two numbers in the upper bytes of a word's halves: a float16 has their bits, moved by one below the sign.
 * NaN is all ones: one more at its end carries into the fifth bit of the exponent, which makes it float16's. */
typedef short pf_short2 __attribute__((ext_vector_type(2)));
typedef _Float16 pf_half2 __attribute__((ext_vector_type(2)));
PF_FN pf_half2 pf_f8e4m3fn_pair(uint32_t word) {
  uint32_t code = __builtin_bit_cast(uint32_t, __builtin_bit_cast(pf_short2, word) >> 1) & 0xbf80bf80u;
  code |= (code + 0x00800080u) & 0x40004000u;
  return __builtin_bit_cast(pf_half2, code);
}
PF_FN pf_half2 pf_f8e5m2_pair(uint32_t word) { return __builtin_bit_cast(pf_half2, word & 0xff00ff00u); }
PF_FN float pf_f8e4m3fn_to_f32(uint8_t h) { return 256.0f * pf_f8e4m3fn_pair((uint32_t)h << 8)[0]; }
#else
PF_FN float pf_f8e4m3fn_to_f32(uint8_t h) {
  uint32_t code = h & 0x7fu;
  uint32_t u = code == 0x7fu ? 0x7fc00000u : pf_narrow_decode(code, 3, 7);
  return pf_from_bits_f32(u | (uint32_t)(h & 0x80u) << 24);
}
#endif
#endif
#if PF_CONVERTS_FNUZ
PF_CONVERTED(f8e4m3fnuz, fp8)
#else
PF_FN float pf_f8e4m3fnuz_to_f32(uint8_t h) {
  uint32_t u = pf_narrow_decode(h & 0x7fu, 3, 8) | (uint32_t)(h & 0x80u) << 24;
  return pf_from_bits_f32(u | (h == 0x80u ? 0x7fc00000u : 0u));
}
PF_FN uint8_t pf_f32_to_f8e4m3fnuz(float f) {
  uint32_t u = pf_bits_f32(f);
  uint32_t code = pf_narrow_encode(u & 0x7fffffffu, 3, 8);
  uint32_t sign = code == 0u ? 0u : u >> 24 & 0x80u;
  return (uint8_t)(code > 0x7fu ? 0x80u : code | sign);
}
#endif
#ifndef __cplusplus
#define pf_f8e4m3fn_at(x, k) pf_f8e4m3fn_to_f32((x)[k]) /* pf_gpu.h has it by pairs */
#endif
PF_FN uint8_t pf_f64_to_f8e4m3fn(double x) { return pf_f32_to_f8e4m3fn(pf_f64_to_f32_odd(x)); }
PF_FN uint8_t pf_f64_to_f8e4m3fnuz(double x) { return pf_f32_to_f8e4m3fnuz(pf_f64_to_f32_odd(x)); }
PF_FN uint8_t pf_f64_to_f8e5m2(double x) { return pf_f32_to_f8e5m2(pf_f64_to_f32_odd(x)); }

/* The neighbour of x towards y among the numbers of a 16-bit type: see pf_nextafter_f32. */
#define PF_NEXT_HALF(S)                                                                                        \
  PF_FN float pf_nextafter_##S(float x, float y) {                                                             \
    uint16_t u = pf_f32_to_##S(x), sign = pf_f32_to_##S(y) & 0x8000u;                                          \
    x = pf_##S##_to_f32(u);                                                                                    \
    y = pf_##S##_to_f32(pf_f32_to_##S(y));                                                                     \
    float next = pf_##S##_to_f32((uint16_t)(x == 0 ? sign | 1u : (x < y) == (x > 0) ? u + 1u : u - 1u));       \
    return x != x || y != y ? PF_NAN : x == y ? y : next;                                                      \
  }
PF_NEXT_HALF(f16)
PF_NEXT_HALF(bf16)

#endif
