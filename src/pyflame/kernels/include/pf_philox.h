/* Random numbers: Philox4x32-10 (Salmon et al., SC 2011), counter-based, so every device gives the same bits.
 *
 * A random tensor is named by (seed, offset). Its block number b is the four words
 *     philox4x32_10(key = (seed lo, seed hi), counter = (b lo, b hi, offset lo, offset hi))
 * The offset thus numbers independent streams of 2^64 blocks: adding 1 per call is enough. Element i takes
 *     32-bit words     word i % 4 of block i / 4
 *     float uniform    (word >> 8) * 2^-24, exact, in [0, 1)
 *     float normal     words 2p and 2p + 1 of block i / 4, p = i % 4 / 2: Box-Muller, cosine for even i, sine for odd
 *     64-bit words     words 2p (high) and 2p + 1 (low) of block i / 2, p = i % 2
 *     double uniform   its high 53 bits: (word64 >> 11) * 2^-53, exact, in [0, 1)
 *     double normal    both 64-bit words of block i / 2, as for float
 * core/philox.py says the same in NumPy. A loop over elements computes each block four times; a loop over blocks
 * (pf_philox, then pf_uniform_f32 of its words or pf_normal_pair_f32) does so once and is about 4 times faster.
 */
#ifndef PF_PHILOX_H
#define PF_PHILOX_H

#include "pf_math_f32.h"

typedef struct {
  uint32_t w0, w1, w2, w3;
} pf_philox_block;

/* High and low halves are separate products: gcc then uses 32-bit lanes, not its slow 64-bit multiplication. */
PF_FN uint32_t pf_mulhi_u32(uint32_t a, uint32_t b) { return (uint32_t)(((uint64_t)a * b) >> 32); }

PF_FN pf_philox_block pf_philox(uint64_t seed, uint64_t offset, uint64_t block) {
  uint32_t c0 = (uint32_t)block, c1 = (uint32_t)(block >> 32), c2 = (uint32_t)offset, c3 = (uint32_t)(offset >> 32);
  uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
#pragma GCC unroll 10
  for (int round = 0; round < 10; ++round) {
    uint32_t h0 = pf_mulhi_u32(0xd2511f53u, c0), h2 = pf_mulhi_u32(0xcd9e8d57u, c2);
    uint32_t l0 = 0xd2511f53u * c0, l2 = 0xcd9e8d57u * c2;
    c0 = h2 ^ c1 ^ k0;
    c1 = l2;
    c2 = h0 ^ c3 ^ k1;
    c3 = l0;
    k0 += 0x9e3779b9u;
    k1 += 0xbb67ae85u;
  }
  pf_philox_block out = {c0, c1, c2, c3};
  return out;
}

PF_FN uint32_t pf_random_u32(uint64_t seed, uint64_t offset, uint64_t i) {
  pf_philox_block b = pf_philox(seed, offset, i >> 2);
  uint32_t even = i & 2u ? b.w2 : b.w0, odd = i & 2u ? b.w3 : b.w1;
  return i & 1u ? odd : even;
}
PF_FN uint64_t pf_random_u64(uint64_t seed, uint64_t offset, uint64_t i) {
  pf_philox_block b = pf_philox(seed, offset, i >> 1);
  uint32_t high = i & 1u ? b.w2 : b.w0, low = i & 1u ? b.w3 : b.w1;
  return (uint64_t)high << 32 | low;
}

/* An integer in [0, span) from a 64-bit word: floor(word * span / 2^64), by 32-bit products. span 0 stands for 2^64. */
PF_FN uint64_t pf_random_below(uint64_t word, uint64_t span) {
  uint64_t a = word >> 32, b = (uint32_t)word, c = span >> 32, d = (uint32_t)span;
  uint64_t middle = a * d + (b * d >> 32), other = b * c + (uint32_t)middle;
  return span == 0 ? word : a * c + (middle >> 32) + (other >> 32);
}

PF_FN float pf_uniform_f32(uint32_t w) { return (float)(int32_t)(w >> 8) * 0x1p-24f; }
PF_FN double pf_uniform_f64(uint64_t w) { return (double)(int64_t)(w >> 11) * 0x1p-53; }
PF_FN float pf_random_uniform_f32(uint64_t seed, uint64_t offset, uint64_t i) {
  return pf_uniform_f32(pf_random_u32(seed, offset, i));
}
PF_FN double pf_random_uniform_f64(uint64_t seed, uint64_t offset, uint64_t i) {
  return pf_uniform_f64(pf_random_u64(seed, offset, i));
}

/* Box-Muller: radius sqrt(-2 log u) with u = (a + 1/2) 2^-32, which is never 0 (largest normal: 6.77); angle
 * 2 pi b 2^-32. The angle is split into quadrant and remainder as an integer, so both values are good to a few ulp
 * even beside their zeros: within 3 ulp of the exact value, whatever the device. */
PF_FN float pf_normal_radius_f32(uint32_t a) {
  return __builtin_sqrtf(-2.0f * pf_log_f32((float)a * 0x1p-32f + 0x1p-33f));
}
PF_FN float pf_normal_angle_f32(uint32_t b, uint32_t *quadrant) {
  *quadrant = (b + 0x20000000u) >> 30;
  float r = (float)(int32_t)(b - (*quadrant << 30));
  return PF_FMA(r, 1.46291812e-09f, r * -4.07094027e-17f); /* 2 pi / 2^32 in two parts */
}
/* The normals of elements 2p and 2p + 1 from words 2p and 2p + 1. */
PF_FN void pf_normal_pair_f32(uint32_t a, uint32_t b, float *even, float *odd) {
  uint32_t q;
  float r = pf_normal_radius_f32(a), t = pf_normal_angle_f32(b, &q);
  *even = r * pf_sin_quadrant_f32(t, q + 1u);
  *odd = r * pf_sin_quadrant_f32(t, q);
}
PF_FN float pf_random_normal_f32(uint64_t seed, uint64_t offset, uint64_t i) {
  pf_philox_block block = pf_philox(seed, offset, i >> 2);
  uint32_t a = i & 2u ? block.w2 : block.w0, b = i & 2u ? block.w3 : block.w1, q;
  float r = pf_normal_radius_f32(a), t = pf_normal_angle_f32(b, &q);
  return r * pf_sin_quadrant_f32(t, q + 1u - (uint32_t)(i & 1u));
}
/* The same in double, by libm. u = 1 - uniform is never 0. */
PF_FN double pf_random_normal_f64(uint64_t seed, uint64_t offset, uint64_t i) {
  pf_philox_block block = pf_philox(seed, offset, i >> 1);
  uint64_t a = (uint64_t)block.w0 << 32 | block.w1, b = (uint64_t)block.w2 << 32 | block.w3;
  uint64_t q = (b + (1ull << 61)) >> 62;
  double r = __builtin_sqrt(-2.0 * log(1.0 - pf_uniform_f64(a)));
  double t = (double)(int64_t)(b - (q << 62)) * 0x1.921fb54442d18p-62; /* 2 pi / 2^64 */
  q += 1u - (i & 1u);
  double y = r * (q & 1u ? cos(t) : sin(t));
  return q & 2u ? -y : y;
}

#endif
