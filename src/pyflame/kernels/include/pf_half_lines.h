/* Up to four rows by lines of float16 on CPUs that add float16; encoded_float.c includes this. k is a multiple of 32.
 *
 *   PF_HALVES 8   x is rounded to float16, and eight products are summed in float16: an error of about 0.04%
 *   PF_HALVES 16  float32. FCVTL takes one of a Neoverse N1's two vector units for two cycles and four weights, so for one
 *                 row one vector of four is widened by the other unit: bits shifted into place are the weight times 2^-112.
 *                 That is wrong for infinities and NaN, whose product with zero makes the sum a NaN.
 *
 * x is multiplied by a power of two first, so that neither float16 nor weights times 2^-112 come near the ends of their
 * range. A sum that is no number is computed again by pf_few_lines.
 */
#ifndef PF_HALF_LINES_H
#define PF_HALF_LINES_H

#include <arm_neon.h>

/* The exponent that the largest of x gets: 2^8, or 2^64. */
enum { PF_TOP = PF_HALVES == 8 ? 8 : 64 };

PF_ALWAYS_INLINE float pf_power(int exponent) {
  float power;
  __builtin_memcpy(&power, &(uint32_t){(uint32_t)(exponent + 127) << 23}, 4);
  return power;
}

/* x times a power of two, in place and as float16; gives that power's exponent. It is applied in halves, which are numbers. */
static int pf_scale_row(float *x, int64_t k, float16_t *halves) {
  uint32_t most = 0; /* as bits, without the sign */
  for (int64_t i = 0; i < k; i++) {
    uint32_t bits;
    __builtin_memcpy(&bits, x + i, 4);
    bits &= 0x7fffffff;
    most = bits > most ? bits : most;
  }
  const int exponent = most >> 23 == 255 ? 0 : PF_TOP + 127 - (int)(most >> 23);
  const float first = pf_power(exponent / 2), second = pf_power(exponent - exponent / 2);
  for (int64_t i = 0; i < k; i++) {
    x[i] = x[i] * first * second;
    if (PF_HALVES == 8) halves[i] = (float16_t)x[i];
  }
  return exponent;
}

#if PF_HALVES == 8

/* acc[l][t] += `count` products of line l and row t. */
PF_ALWAYS_INLINE void pf_add_products(const int count, const int lines, const float16_t *w, int64_t stride, const float16_t *x,
                                      int64_t k, float32x4_t (*acc)[PF_FEW]) {
  float16x8_t sum[PF_LINES][PF_FEW];
#pragma GCC unroll 8
  for (int v = 0; v < count; v += 8)
#pragma GCC unroll 4
    for (int l = 0; l < lines; l++) {
      const float16x8_t weights = vld1q_f16(w + l * stride + v);
#pragma GCC unroll 4
      for (int t = 0; t < PF_FEW; t++) {
        const float16x8_t row = vld1q_f16(x + t * k + v);
        sum[l][t] = v ? vfmaq_f16(sum[l][t], weights, row) : vmulq_f16(weights, row);
      }
    }
#pragma GCC unroll 4
  for (int l = 0; l < lines; l++)
#pragma GCC unroll 4
    for (int t = 0; t < PF_FEW; t++) acc[l][t] += vcvt_f32_f16(vget_low_f16(sum[l][t])) + vcvt_high_f32_f16(sum[l][t]);
}

/* out[t][l] = line l by row t. */
PF_ALWAYS_INLINE void pf_half_lines(const int lines, const float16_t *w, int64_t stride, const float *x, const float16_t *halves,
                                    int64_t k, float *out, int64_t out_ld) {
  float32x4_t acc[PF_LINES][PF_FEW] = {{{0}}};
  int64_t i = 0;
  (void)x;
  for (; i + 64 <= k; i += 64) {
    pf_prefetch_lines(lines, w + i, stride, i);
    pf_prefetch_lines(lines, w + i + 32, stride, i + 32);
    pf_add_products(64, lines, w + i, stride, halves + i, k, acc);
  }
  if (i < k) pf_add_products(32, lines, w + i, stride, halves + i, k, acc);
  for (int l = 0; l < lines; l++)
    for (int t = 0; t < PF_FEW; t++) out[t * out_ld + l] = vaddvq_f32(acc[l][t]);
}

#else

/* How many of 32 weights are widened by FCVTL; more rows keep the other vector unit busy. */
enum { PF_CONVERTED = PF_FEW == 1 ? 24 : 32 };

/* Float16 times 2^-112, as sign-extended words. */
PF_ALWAYS_INLINE float32x4_t pf_shifted(int32x4_t words) {
  return vreinterpretq_f32_s32(vandq_s32(words, vdupq_n_s32((int32_t)0x8fffe000)));
}

/* acc[l][t] += four weights of each line by a vector of each row. */
PF_ALWAYS_INLINE void pf_add_vectors(const int lines, const float32x4_t *weights, const float *x, int64_t k,
                                     float32x4_t (*acc)[PF_FEW]) {
#pragma GCC unroll 4
  for (int t = 0; t < PF_FEW; t++) {
    const float32x4_t row = vld1q_f32(x + t * k);
#pragma GCC unroll 4
    for (int l = 0; l < lines; l++) acc[l][t] = vfmaq_f32(acc[l][t], weights[l], row);
  }
}

/* out[t][l] = line l by row t. */
PF_ALWAYS_INLINE void pf_half_lines(const int lines, const float16_t *w, int64_t stride, const float *x, const float16_t *halves,
                                    int64_t k, float *out, int64_t out_ld) {
  float32x4_t acc[PF_LINES][PF_FEW] = {{{0}}}, shifted[PF_LINES][PF_FEW] = {{{0}}};
  float16x8_t check = {0};
  const float16x8_t zero = {0};
  (void)halves;
  for (int64_t i = 0; i < k; i += 32) {
    pf_prefetch_lines(lines, w + i, stride, i);
#pragma GCC unroll 4
    for (int v = 0; v < 32; v += 8) {
      float32x4_t low[PF_LINES], high[PF_LINES];
#pragma GCC unroll 4
      for (int l = 0; l < lines; l++) {
        const float16x8_t weights = vld1q_f16(w + i + l * stride + v);
        const int16x8_t bits = vreinterpretq_s16_f16(weights);
        if (v < PF_CONVERTED) {
          low[l] = vcvt_f32_f16(vget_low_f16(weights)), high[l] = vcvt_high_f32_f16(weights);
        } else {
          low[l] = pf_shifted(vshll_n_s16(vget_low_s16(bits), 13)), high[l] = pf_shifted(vshll_high_n_s16(bits, 13));
          check = vfmaq_f16(check, weights, zero);
        }
      }
      pf_add_vectors(lines, low, x + i + v, k, v < PF_CONVERTED ? acc : shifted);
      pf_add_vectors(lines, high, x + i + v + 4, k, v < PF_CONVERTED ? acc : shifted);
    }
  }
  const float32x4_t checks = vcvt_f32_f16(vget_low_f16(check)) + vcvt_high_f32_f16(check);
  for (int l = 0; l < lines; l++)
    for (int t = 0; t < PF_FEW; t++) out[t * out_ld + l] = vaddvq_f32(acc[l][t] + shifted[l][t] * 0x1p112f + checks);
}

#endif

/* As pf_few_lines, of which it takes lines whose sums are no numbers. */
PF_ALWAYS_INLINE void pf_lines(const int lines, const uint8_t *line, int64_t stride, const float *x, const float16_t *halves,
                               const int *exponent, int64_t k, float *out, int64_t out_ld) {
  int numbers = 1;
  pf_half_lines(lines, (const float16_t *)line, stride / 2, x, halves, k, out, out_ld);
  for (int l = 0; l < lines; l++)
    for (int t = 0; t < PF_FEW; t++) numbers &= __builtin_fabsf(out[t * out_ld + l]) < __builtin_inff();
  if (!numbers) pf_few_lines(lines, line, stride, x, k, out, out_ld);
  for (int l = 0; l < lines; l++)
    for (int t = 0; t < PF_FEW; t++) {
      const int half = exponent[t] / 2;
      out[t * out_ld + l] = out[t * out_ld + l] * pf_power(-half) * pf_power(half - exponent[t]);
    }
}

#endif
