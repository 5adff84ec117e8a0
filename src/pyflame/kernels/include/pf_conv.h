/* What the four convolution algorithms of conv.c share: the arguments, and reading x through padding and dilation.
 *
 * Position u of an axis (counted on the zero-dilated input, from -pad_lo) holds x[u / lhs_dilation] where that is a
 * whole number within the input, and zero elsewhere. Every read of x goes through the two readers below, so nothing
 * outside of x is touched.
 */
#ifndef PF_CONV_H
#define PF_CONV_H

#define PF_A_T PF_W_T
#define PF_B_T PF_X_T
#include "pf_gemm.h"

enum {
  PF_N, PF_G, PF_C, PF_O, PF_IN, PF_TAPS = PF_IN + 3, PF_OUT = PF_TAPS + 3, PF_STRIDE = PF_OUT + 3,
  PF_PAD = PF_STRIDE + 3, PF_LHS = PF_PAD + 3, PF_RHS = PF_LHS + 3, /* lhs, rhs: dilations of x and w */
  PF_X_N = PF_RHS + 3, PF_X_G, PF_X_C, PF_X_S, /* strides in elements */
  PF_W_G = PF_X_S + 3, PF_W_O, PF_W_C, PF_W_K,
  PF_ROWS = PF_W_K + 3, PF_COLS, PF_DEPTH, /* block of a task; gemm: k block, batch: units at a time. dot: ROWS units at a time */
  PF_WORKER_AT, PF_WORKER_BYTES,           /* byte offset and size of the workers' areas in scratch */
  PF_PARTS, PF_HIGH, PF_DEEP, PF_LONG,     /* batch, dot: partial sums; images of a panel, taps of a unit along axes 1 and 2 */
  PF_CONV_ARGS
};

PF_ALWAYS_INLINE int64_t pf_volume(const int64_t *extents) { return extents[0] * extents[1] * extents[2]; }

static const pf_b_t *pf_x_at(char *const *buf, const int64_t *arg, int64_t n, int64_t g, int64_t c) {
  return (const pf_b_t *)buf[0] + n * arg[PF_X_N] + g * arg[PF_X_G] + c * arg[PF_X_C];
}

static const pf_a_t *pf_w_at(char *const *buf, const int64_t *arg, int64_t g, int64_t o, int64_t c) {
  return (const pf_a_t *)buf[1] + g * arg[PF_W_G] + o * arg[PF_W_O] + c * arg[PF_W_C];
}

/* The index in x of position u on an axis, or -1 where a zero stands. */
PF_ALWAYS_INLINE int64_t pf_source(int64_t u, int64_t lhs, int64_t extent) {
  if (lhs == 1) return u >= 0 && u < extent ? u : -1;
  return u >= 0 && u % lhs == 0 && u / lhs < extent ? u / lhs : -1;
}

/* dst[i] = line[i] for i in [low, high), zero for the rest of [0, count); low <= high. */
PF_ALWAYS_INLINE void pf_copy_clipped(pf_b_t *dst, const pf_b_t *line, int64_t count, int64_t low, int64_t high) {
#if PF_AVX512
  if (sizeof(pf_b_t) == 4) { /* masked lanes are not read */
    for (int64_t i = 0; i < count; i += 16) {
      const uint32_t keep = count - i >= 16 ? 0xffff : (1u << (count - i)) - 1;
      const uint32_t below = high - i >= 16 ? 0xffff : high > i ? (1u << (high - i)) - 1 : 0;
      const uint32_t from = low <= i ? 0xffff : low - i >= 16 ? 0 : 0xffffu << (low - i);
      _mm512_mask_storeu_epi32(dst + i, keep, _mm512_maskz_loadu_epi32(keep & below & from, line + i));
    }
    return;
  }
#endif
  for (int64_t i = 0; i < low; i++) dst[i] = 0;
  for (int64_t i = low; i < high; i++) dst[i] = line[i];
  for (int64_t i = high; i < count; i++) dst[i] = 0;
}

static void pf_read_strided(pf_b_t *dst, const pf_b_t *line, int64_t count, int64_t u, int64_t step, int64_t lhs,
                            int64_t extent, int64_t x_stride) {
  if (step % lhs == 0) { /* all positions or none fall on elements; [low, high) of them are inside */
    const int64_t first = u / lhs, hop = step / lhs;
    const int64_t low = first >= 0 ? 0 : pf_min(count, pf_div_up(-first, hop));
    const int64_t inside = u % lhs || extent <= first ? 0 : pf_min(count, pf_div_up(extent - first, hop));
    const int64_t high = pf_max(low, inside);
    for (int64_t i = 0; i < low; i++) dst[i] = 0;
    for (int64_t i = low; i < high; i++) dst[i] = line[(first + i * hop) * x_stride];
    for (int64_t i = high; i < count; i++) dst[i] = 0;
    return;
  }
  if (step == 1) { /* every lhs-th position falls on an element */
    for (int64_t i = 0; i < count; i++) dst[i] = 0;
    const int64_t first = ((-u) % lhs + lhs) % lhs;
    for (int64_t i = first, at = (u + first) / lhs; i < count; i += lhs, at++)
      if (at >= 0 && at < extent) dst[i] = line[at * x_stride];
    return;
  }
  for (int64_t i = 0; i < count; i++) {
    const int64_t at = pf_source(u + i * step, lhs, extent);
    dst[i] = at < 0 ? 0 : line[at * x_stride];
  }
}

/* dst[i] = element at position u + i * step of the line, i in [0, count). */
PF_ALWAYS_INLINE void pf_read_line(pf_b_t *dst, const pf_b_t *line, int64_t count, int64_t u, int64_t step, int64_t lhs,
                                   int64_t extent, int64_t x_stride) {
  if (lhs == 1 && step * x_stride == 1) { /* the common case, without divisions */
    const int64_t low = pf_min(count, pf_max(0, -u)), high = pf_max(low, pf_min(count, extent - u));
    pf_copy_clipped(dst, line + u, count, low, high);
  } else
    pf_read_strided(dst, line, count, u, step, lhs, extent, x_stride);
}

/* A padded plane in which a strided window is contiguous: for every phase of axes 1 and 2,
 *   dst[phase1][phase2][q1][q2] = element at (u1 + phase1 + q1 * period1, u2 + phase2 + q2 * period2)
 * in the accumulator's type, followed by `tail` zeros, so that windows may be read in whole vectors.
 * `line` is room for q2 raw elements. */
typedef struct {
  int64_t period[2], q[2], tail;
} pf_plane;

PF_ALWAYS_INLINE int64_t pf_plane_phase(const pf_plane *plane) { return plane->q[0] * plane->q[1] + plane->tail; }
PF_ALWAYS_INLINE int64_t pf_plane_size(const pf_plane *plane) {
  return plane->period[0] * plane->period[1] * pf_plane_phase(plane);
}

/* Where the window that begins `at` positions into each axis lies in the plane. */
PF_ALWAYS_INLINE int64_t pf_plane_at(const pf_plane *plane, int64_t at1, int64_t at2) {
  const int64_t phase = at1 % plane->period[0] * plane->period[1] + at2 % plane->period[1];
  return phase * pf_plane_phase(plane) + at1 / plane->period[0] * plane->q[1] + at2 / plane->period[1];
}

PF_UNUSED static void pf_fill_plane(PF_ACC_T *dst, const pf_plane *plane, const pf_b_t *x, const int64_t *arg, int64_t u0, int64_t u1,
                          int64_t u2, pf_b_t *line) {
  const int64_t q2 = plane->q[1];
  const int64_t i0 = pf_source(u0, arg[PF_LHS], arg[PF_IN]);
  for (int64_t phase1 = 0; phase1 < plane->period[0]; phase1++)
    for (int64_t phase2 = 0; phase2 < plane->period[1]; phase2++) {
      for (int64_t q1 = 0; q1 < plane->q[0]; q1++, dst += q2) {
        const int64_t i1 = pf_source(u1 + phase1 + q1 * plane->period[0], arg[PF_LHS + 1], arg[PF_IN + 1]);
        if (i0 < 0 || i1 < 0) {
          for (int64_t i = 0; i < q2; i++) dst[i] = 0;
          continue;
        }
        pf_b_t *to = PF_B_PLAIN ? (pf_b_t *)dst : line;
        pf_read_line(to, x + i0 * arg[PF_X_S] + i1 * arg[PF_X_S + 1], q2, u2 + phase2, plane->period[1], arg[PF_LHS + 2],
                     arg[PF_IN + 2], arg[PF_X_S + 2]);
        if (!PF_B_PLAIN)
          for (int64_t i = 0; i < q2; i++) dst[i] = PF_LOAD_B(line + i);
      }
      for (int64_t i = 0; i < plane->tail; i++) *dst++ = 0;
    }
}

#endif
