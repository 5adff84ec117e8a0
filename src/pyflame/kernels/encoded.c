/* Rows of numbers times encoded weights, in integer dot products.
 *
 *   y[i, j] = sum_g scale[j, g] d[i, g] sum_(k in g) (code[j, k] - offset) q[i, k] + least[j, g] s[i, g]  (+ bias[j])
 *
 * x is rounded in groups of PF_GROUP: q = round(x / d), d = max |x| / PF_LARGEST, s = d sum q. With PF_PLANES = 1 q is an
 * int8; with 2 it is 128 high + low, each an int8 plane with products of its own: an error of max |x| / 2^15 at most. No
 * byte is -128, which x86 could not negate. A group that holds NaN or an infinity has d = NaN, and so have the outputs.
 * Sums of a plane are integers, at most 128 * 127 * 32, and exact; the rest is float32.
 *
 * Memory policy. `few` (up to PF_FEW rows): every range of lines rounds x for itself, which is cheaper than to wait for
 * another phase, and reads the weights once, where they lie. `mul`: `round` has rounded x; a task is a block of rows by
 * a block of lines, and unpacks PF_DEPTH elements of PF_NR lines at a time into a panel that stays in L1 while the rows
 * pass by.
 * Bytes: of `few` the weights; of `mul` the weights for each block of rows, and x for each block of lines, from L2.
 *
 * Each output is summed in one order, whatever the blocks and the number of workers; `few` and `mul` differ in theirs but
 * for interleaved lines.
 *
 * Before including this file define PF_NAME, what pf_codes.h asks for, PF_X_T and PF_LOAD_X, PF_BIAS and
 * PF_EXPERTS (whether there are, see pf_encoded.h), PF_EPILOGUE, PF_PLANES, PF_FEW (0: compile round and mul; else
 * `few` for so many rows at a time) and PF_INTERLEAVED: how many lines lie interleaved (pf_interleaved.h), or 0.
 */
#include "pf_abi.h"

#ifdef __x86_64__
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#define PF_GLUE2(a, b) a##b
#define PF_GLUE(a, b) PF_GLUE2(a, b)
#define PF_ALWAYS_INLINE static inline __attribute__((always_inline))

#include "pf_lanes.h"
#include "pf_codes.h"
#include "pf_dot.h"

enum {
  PF_M, PF_N, PF_K, PF_ROW_BYTES,
  PF_ROWS, PF_COLS,                                             /* block of a task */
  PF_ROUNDED_BYTES,                                             /* of one row of x */
  PF_WORKER_AT, PF_WORKER_BYTES, PF_ENCODED_ARGS /* byte offsets in scratch; rounded rows are at 0 */
};
#include "pf_encoded.h"

#define PF_CODE_SHIFT (PF_FEW ? 0 : PF_SHIFT) /* of what `s` makes good; starts of interleaved lines do it for these */
#define PF_SHIFTED (PF_OFFSET + PF_CODE_SHIFT != 0)
#define PF_SUM_FACTOR (PF_SHIFTED ? -(PF_OFFSET + PF_CODE_SHIFT) : 1)

PF_ALWAYS_INLINE int64_t pf_least(int64_t a, int64_t b) { return a < b ? a : b; }

/* ---- a rounded row of x: for each group its planes, then d[groups] and s[groups] float ---- */

enum { PF_LARGEST = PF_PLANES == 2 ? 127 * 128 : 127 };

/* Where the first group of a row becomes what; the next one lies so many bytes behind. */
typedef struct {
  int8_t *q;
  float *d, *s;
  int64_t q_bytes, step_bytes;
} pf_rounded_row;

PF_ALWAYS_INLINE const float *pf_steps_of(const int8_t *q, int64_t k) { return (const float *)(q + k * PF_PLANES); }

/* ---- panels: for each group PF_NR scales, (PF_NR least numbers,) and PF_GROUP / 4 words of every line ---- */

enum {
  PF_PANEL_HEAD = (1 + PF_LEAST) * PF_NR * 4,
  PF_PANEL_BYTES = PF_PANEL_HEAD + PF_GROUP * PF_NR,
  PF_DEPTH = 16384 / PF_NR /* elements of each line in a panel: 16 KB of codes, which L1 has room for */
};

#if PF_INTERLEAVED
#include "pf_interleaved.h"
#elif PF_FEW
#include "pf_dot_lines.h"
#else
#include "pf_transpose.h"
#endif

/* Four elements times `by`, rounded: not with a sum, which an FMA would round otherwise. */
PF_ALWAYS_INLINE pf_int4 pf_rounded(const PF_X_T *x, float by) {
  const pf_float4 value = (pf_float4){PF_LOAD_X(x[0]), PF_LOAD_X(x[1]), PF_LOAD_X(x[2]), PF_LOAD_X(x[3])} * by;
#ifdef __aarch64__
  return (pf_int4)vcvtnq_s32_f32((float32x4_t)value);
#elif defined(__SSE2__)
  return (pf_int4)_mm_cvtps_epi32((__m128)value);
#else
  pf_int4 out;
  for (int i = 0; i < 4; i++) out[i] = (int32_t)__builtin_rintf(value[i]);
  return out;
#endif
}

#define PF_BEHIND(p, bytes) ((p) = (void *)((char *)(p) + (bytes)))

/* d, and its inverse in the place of s: steps of all groups first, since a group by itself would wait for its division. */
static void pf_steps(const PF_X_T *x, int64_t groups, pf_rounded_row to) {
  for (int64_t g = 0; g < groups; g++, PF_BEHIND(to.d, to.step_bytes), PF_BEHIND(to.s, to.step_bytes)) {
    uint32_t most = 0; /* as bits: NaN is more than infinity, and that more than any number */
    for (int i = 0; i < PF_GROUP; i++) {
      const float value = PF_LOAD_X(x[g * PF_GROUP + i]);
      uint32_t bits;
      __builtin_memcpy(&bits, &value, 4);
      bits &= 0x7fffffff;
      most = bits > most ? bits : most;
    }
    float largest;
    __builtin_memcpy(&largest, &most, 4);
    const int counts = largest > 0x1p-100f && most < 0x7f800000;
    *to.d = counts ? largest / PF_LARGEST : most < 0x7f800000 ? 0 : __builtin_nanf("");
    *to.s = counts ? PF_LARGEST / largest : 0;
  }
}

/* Row t of those that are multiplied at once, which begin at `rows`. */
static void pf_round_row(const PF_X_T *x, int64_t k, char *rows, int64_t t, int64_t ld) {
#if PF_INTERLEAVED && PF_FEW
  pf_rounded_row to = pf_lane_row_of(rows, t);
  (void)ld;
#else
  float *d = (float *)(rows + t * ld + k * PF_PLANES);
  pf_rounded_row to = {(int8_t *)rows + t * ld, d, d + k / PF_GROUP, PF_SPAN, sizeof(float)};
#endif
  pf_steps(x, k / PF_GROUP, to);
  for (int64_t g = 0; g < k / PF_GROUP; g++, x += PF_GROUP) {
    int32_t whole[PF_GROUP] = {0}, sum = 0, highs = 0;
    if (*to.s > 0)
#pragma GCC unroll 8
      for (int i = 0; i < PF_GROUP; i += 4) *(pf_int4 *)(whole + i) = pf_rounded(x + i, *to.s);
    for (int i = 0; i < PF_GROUP; i++) {
      const int32_t high = PF_PLANES == 2 ? (whole[i] + 64) >> 7 : whole[i];
      to.q[i] = (int8_t)high;
      if (PF_PLANES == 2) to.q[PF_GROUP + i] = (int8_t)(whole[i] - high * 128);
      sum += whole[i], highs += high;
    }
    *to.s = *to.d * (float)(sum * PF_SUM_FACTOR);
#if PF_INTERLEAVED && PF_FEW
    pf_start_sums(pf_starts_of(rows, t) + g * (PF_RECORD / 4), highs, sum - 128 * highs);
#else
    (void)highs;
#endif
    PF_BEHIND(to.q, to.q_bytes), PF_BEHIND(to.d, to.step_bytes), PF_BEHIND(to.s, to.step_bytes);
  }
}

#if PF_FEW

#if !PF_INTERLEAVED

enum {
  PF_LINES = 2,   /* that are multiplied at once, so that x is loaded for all of them */
  PF_AHEAD = 12288 /* bytes: hardware follows a line to its end, and lines are short */
};

/* acc[l][t] += `count` groups of line l, from group `at` on, times those of row t of x. */
PF_ALWAYS_INLINE void pf_groups(const int count, const int lines, const uint8_t *line, int64_t stride, int64_t at,
                                const int8_t *x, const float *d, int64_t ld, int64_t groups, pf_float4 (*acc)[PF_FEW]) {
  pf_codes16 codes[PF_LINES][4][PF_VECS];
  pf_float4 scale[PF_LINES], least[PF_LINES];
#pragma GCC unroll 2
  for (int l = 0; l < lines; l++) {
    const uint8_t *ahead = line + l * stride + at * PF_GROUP / PF_BLOCK * PF_BLOCK_BYTES + PF_AHEAD;
    if (at * PF_GROUP % PF_BLOCK == 0)
#pragma GCC unroll 4
      for (int byte = 0; byte < (PF_SUPER ? PF_BLOCK_BYTES : 4 * PF_BLOCK_BYTES - 8); byte += 64) __builtin_prefetch(ahead + byte);
#pragma GCC unroll 4
    for (int j = 0; j < count; j++) pf_codes(line + l * stride, at + j, codes[l][j]);
    pf_scales(count, line + l * stride, at, scale + l, least + l);
  }
#pragma GCC unroll 8
  for (int t = 0; t < PF_FEW; t++, x += ld, d += ld / 4) {
    pf_float4 d4 = {0}, s4 = {0};
    __builtin_memcpy(&d4, d + at, 4 * count);
    __builtin_memcpy(&s4, d + groups + at, 4 * count);
#pragma GCC unroll 2
    for (int l = 0; l < lines; l++) {
      pf_float4 sum = pf_group_sums(count, codes[l], x + at * PF_SPAN) * d4;
      if (PF_OFFSET) sum += s4;
      acc[l][t] += sum * scale[l];
      if (PF_LEAST) acc[l][t] += least[l] * s4;
    }
  }
}

PF_ALWAYS_INLINE void pf_dot_lines(const int lines, const uint8_t *line, int64_t stride, const int8_t *x, int64_t ld, int64_t k,
                                   float *out, int64_t out_ld) {
  const int64_t groups = k / PF_GROUP;
  const float *d = pf_steps_of(x, k);
  pf_float4 acc[PF_LINES][PF_FEW] = {{{0}}};
#if PF_SUPER
  for (; k > 0; k -= PF_BLOCK, line += PF_BLOCK_BYTES, x += PF_PLANES * PF_BLOCK, d += PF_BLOCK / PF_GROUP)
#pragma GCC unroll 4
    for (int at = 0; at < PF_BLOCK / PF_GROUP; at += 4) pf_groups(4, lines, line, stride, at, x, d, ld, groups, acc);
#else
  int64_t g = 0;
  for (; g + 4 <= groups; g += 4) pf_groups(4, lines, line, stride, g, x, d, ld, groups, acc);
  for (; g < groups; g++) pf_groups(1, lines, line, stride, g, x, d, ld, groups, acc);
#endif
  for (int l = 0; l < lines; l++)
    for (int t = 0; t < PF_FEW; t++) out[t * out_ld + l] = acc[l][t][0] + acc[l][t][1] + (acc[l][t][2] + acc[l][t][3]);
}

#endif

/* One iteration is PF_COLS lines. */
PF_KERNEL(PF_GLUE(PF_NAME, _few)) {
  const int64_t k = arg[PF_K], block = arg[PF_COLS], ld = arg[PF_ROUNDED_BYTES], stride = arg[PF_ROW_BYTES];
  int8_t *x = (int8_t *)buf[PF_SCRATCH] + arg[PF_WORKER_AT] + worker * arg[PF_WORKER_BYTES];
  float *out = (float *)(x + arg[PF_ROWS] * ld);
  for (int64_t task = begin, rounded = -1; task < end; task++) {
    const pf_part part = pf_part_of(buf, arg, task);
    if (part.i != rounded)
      for (int64_t t = 0; t < part.height; t++) pf_round_row(pf_row_of(buf, arg, part.i + t), k, (char *)x, t, ld);
    rounded = part.i;
    for (int64_t t = 0; t < part.height; t += PF_FEW) {
      const int8_t *rows = x + t * ld;
      float *to = out + t * block;
      int64_t c = 0;
#if PF_INTERLEAVED
      for (; c + (PF_SETS - 1) * PF_LANES < part.width; c += PF_SETS * PF_LANES)
        pf_dot_sets(PF_SETS, part.weights + c * stride, PF_LANES * stride, (const char *)rows, k, to + c, block);
      for (; c < part.width; c += PF_LANES) pf_dot_sets(1, part.weights + c * stride, 0, (const char *)rows, k, to + c, block);
#else
      for (; c + PF_LINES <= part.width; c += PF_LINES)
        pf_dot_lines(PF_LINES, part.weights + c * stride, stride, rows, ld, k, to + c, block);
      for (; c < part.width; c++) pf_dot_lines(1, part.weights + c * stride, stride, rows, ld, k, to + c, block);
#endif
    }
    pf_finish(buf, arg, uni, part, out, block);
  }
}

#else

/* One iteration is a row; rows that fill up the last PF_MR are of zeros. */
PF_KERNEL(PF_GLUE(PF_NAME, _round)) {
  (void)uni, (void)worker;
  for (int64_t i = begin; i < end; i++) {
    char *to = buf[PF_SCRATCH] + i * arg[PF_ROUNDED_BYTES];
    if (i < arg[PF_M])
      pf_round_row(pf_row_of(buf, arg, i), arg[PF_K], to, 0, 0);
    else
      __builtin_memset(to, 0, (size_t)arg[PF_ROUNDED_BYTES]);
  }
}

#if !PF_INTERLEAVED

/* Scales of `count` groups of a line, from g on, for column c. */
PF_ALWAYS_INLINE void pf_unpack_scales(const int count, const uint8_t *line, int64_t g, int c, char *panel) {
  pf_float4 scale, least;
  pf_scales(count, line, g, &scale, &least);
#pragma GCC unroll 4
  for (int j = 0; j < count; j++) {
    float *head = (float *)(panel + j * PF_PANEL_BYTES);
    head[c] = scale[j];
    if (PF_LEAST) head[PF_NR + c] = least[j];
  }
}

/* Groups [g, end) of four lines, as columns c to c + 3 of the panel. */
static void pf_unpack_lines(const uint8_t *const *line, int64_t g, int64_t end, int c, char *panel) {
  char *to = panel;
  int64_t at = g;
  for (; at + 4 <= end; at += 4, to += 4 * PF_PANEL_BYTES)
    for (int l = 0; l < 4; l++) pf_unpack_scales(4, line[l], at, c + l, to);
  for (; at < end; at++, to += PF_PANEL_BYTES)
    for (int l = 0; l < 4; l++) pf_unpack_scales(1, line[l], at, c + l, to);
  for (; g < end; g++, panel += PF_PANEL_BYTES) {
    pf_codes16 codes[4][PF_VECS];
#pragma GCC unroll 4
    for (int l = 0; l < 4; l++) {
      pf_codes(line[l], g, codes[l]);
      for (int v = 0; v < PF_VECS; v++) codes[l][v] += (uint8_t)PF_SHIFT;
    }
#pragma GCC unroll 2
    for (int v = 0; v < PF_VECS; v++)
      pf_transpose_4x4((uint32_t *)(panel + PF_PANEL_HEAD) + 4 * v * PF_NR + c, PF_NR, (const char *)&codes[0][v],
                       sizeof codes[0]);
  }
}

#endif

/* sum = 128 high + low, the planes of a group by its codes. */
PF_ALWAYS_INLINE void pf_group_products(pf_floats (*sum)[PF_NV], const int8_t *w, const int8_t *x, int64_t ld) {
  pf_ints dots[PF_MR][PF_NV];
#pragma GCC unroll 2
  for (int plane = 0; plane < PF_PLANES; plane++) {
    __asm__ volatile("" : : : "memory"); /* or gcc would keep the codes of both planes in registers, and spill sums */
#pragma GCC unroll 8
    for (int r = 0; r < PF_MR; r++)
#pragma GCC unroll 2
      for (int v = 0; v < PF_NV; v++) dots[r][v] = plane && PF_JOINED ? dots[r][v] << 7 : pf_no_sum();
#pragma GCC unroll 2
    for (int v = 0; v < PF_VECS; v++) pf_dots(dots, w + 16 * PF_NR * v, x + plane * PF_GROUP + 16 * v, ld);
    if (PF_JOINED && plane == 0) continue;
#pragma GCC unroll 8
    for (int r = 0; r < PF_MR; r++)
#pragma GCC unroll 2
      for (int v = 0; v < PF_NV; v++)
        if (plane && !PF_JOINED)
          sum[r][v] = sum[r][v] * 128 + pf_as_floats(dots[r][v]);
        else
          sum[r][v] = pf_as_floats(dots[r][v]);
  }
}

/* out (+)= PF_MR rows of x by a panel of groups [g, end). */
static void pf_tile(const char *panel, int64_t g, int64_t end, const int8_t *x, int64_t ld, int64_t k, float *out, int64_t out_ld) {
  pf_floats acc[PF_MR][PF_NV];
  const float *d = pf_steps_of(x, k) + g;
#pragma GCC unroll 8
  for (int r = 0; r < PF_MR; r++)
#pragma GCC unroll 2
    for (int v = 0; v < PF_NV; v++) acc[r][v] = g ? *(pf_floats *)(out + r * out_ld + v * PF_LANES) : (pf_floats){0};
  for (x += g * PF_SPAN; g < end; g++, panel += PF_PANEL_BYTES, x += PF_SPAN, d++) {
    pf_floats sum[PF_MR][PF_NV];
    const int8_t *w = (const int8_t *)panel + PF_PANEL_HEAD;
    const pf_floats *head = (const pf_floats *)panel;
    pf_group_products(sum, w, x, ld);
#pragma GCC unroll 8
    for (int r = 0; r < PF_MR; r++) {
      const float *row = (const float *)((const char *)d + r * ld);
#pragma GCC unroll 2
      for (int v = 0; v < PF_NV; v++) {
        if (PF_SHIFTED)
          acc[r][v] += (sum[r][v] * row[0] + row[k / PF_GROUP]) * head[v];
        else
          acc[r][v] += sum[r][v] * (head[v] * row[0]);
        if (PF_LEAST) acc[r][v] += head[PF_NV + v] * row[k / PF_GROUP];
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < PF_MR; r++)
#pragma GCC unroll 2
    for (int v = 0; v < PF_NV; v++) *(pf_floats *)(out + r * out_ld + v * PF_LANES) = acc[r][v];
}

/* Lines [j, j + PF_NR) of a part, groups [g, end), as a panel. */
PF_ALWAYS_INLINE void pf_unpack(pf_part part, int64_t j, int64_t stride, int64_t g, int64_t end, char *panel) {
  const int64_t lines = pf_least(PF_NR, part.width - j);
#if PF_INTERLEAVED
  for (int64_t c = 0; c < PF_NR; c += PF_LANES) /* where fewer are left, the last set again */
    pf_unpack_set(part.weights + (j + (c < lines ? c : 0)) * stride, g, end, (int)c, panel);
#else
  for (int64_t c = 0; c < PF_NR; c += 4) {
    const uint8_t *line[4]; /* where fewer are left, the last one again */
    for (int64_t l = 0; l < 4; l++) line[l] = part.weights + (j + pf_least(c + l, lines - 1)) * stride;
    pf_unpack_lines(line, g, end, (int)c, panel);
  }
#endif
}

/* One iteration is PF_ROWS x PF_COLS outputs. */
PF_KERNEL(PF_GLUE(PF_NAME, _mul)) {
  const int64_t k = arg[PF_K], cols = arg[PF_COLS], ld = arg[PF_ROUNDED_BYTES], groups = k / PF_GROUP, stride = arg[PF_ROW_BYTES];
  char *panel = buf[PF_SCRATCH] + arg[PF_WORKER_AT] + worker * arg[PF_WORKER_BYTES];
  float *out = (float *)(panel + PF_DEPTH / PF_GROUP * PF_PANEL_BYTES);
  for (int64_t task = begin; task < end; task++) {
    const pf_part part = pf_part_of(buf, arg, task);
    const int8_t *x = (const int8_t *)buf[PF_SCRATCH] + part.i * ld;
    if (part.height == 0) continue;
    for (int64_t j = 0; j < part.width; j += PF_NR)
      for (int64_t g = 0; g == 0 || g < groups; g += PF_DEPTH / PF_GROUP) {
        const int64_t last = pf_least(g + PF_DEPTH / PF_GROUP, groups);
        pf_unpack(part, j, stride, g, last, panel);
        for (int64_t i = 0; i < part.height; i += PF_MR) pf_tile(panel, g, last, x + i * ld, ld, k, out + i * cols + j, cols);
      }
    pf_finish(buf, arg, uni, part, out, cols);
  }
}

#endif
