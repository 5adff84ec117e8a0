/* Rows of numbers times encoded weights, in integer dot products.
 *
 *   y[i, j] = sum_g scale[j, g] d[i, g] sum_(k in g) (code[j, k] - offset) q[i, k] + least[j, g] s[i, g]  (+ bias[j])
 *
 * x is rounded to int8 in groups of PF_GROUP: q = round(x / d), d = max |x| / 127, s = d sum q. A group that holds NaN or
 * an infinity has d = NaN, and so have the outputs. Sums of a group are integers and exact; the rest is float32.
 *
 * Memory policy. `few` (up to PF_FEW rows): every range of lines rounds x for itself, which is cheaper than to wait for
 * another phase, and reads the weights once, where they lie. `mul`: `round` has rounded x; a task is a block of rows by
 * a block of lines, and unpacks PF_NR lines at a time into a panel that stays in L1 while the rows pass by.
 * Bytes: of `few` the weights; of `mul` the weights for each block of rows, and x for each block of lines, from L2.
 *
 * Each output is summed in one order, whatever the blocks and the number of workers; `few` and `mul` differ in theirs.
 *
 * Before including this file define PF_NAME, PF_ENCODING (a format of pf_codes.h), PF_X_T and PF_LOAD_X, PF_BIAS (whether
 * there is one), PF_EPILOGUE and PF_FEW (0: compile round and mul; else `few` for so many rows). Buffers: x, weights,
 * (bias,) scratch.
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

#include "pf_codes.h"
#include "pf_dot.h"
#include "pf_transpose.h"

enum {
  PF_M, PF_N, PF_K, PF_ROW_BYTES,
  PF_ROWS, PF_COLS,                                             /* block of a task */
  PF_ROUNDED_BYTES,                                             /* of one row of x */
  PF_WORKER_AT, PF_WORKER_BYTES, PF_ENCODED_ARGS                /* byte offsets in scratch; rounded rows are at 0 */
};

#define PF_CODE_SHIFT (PF_FEW ? 0 : PF_SHIFT)
#define PF_SHIFTED (PF_OFFSET + PF_CODE_SHIFT != 0)
#define PF_SUM_FACTOR (PF_SHIFTED ? -(PF_OFFSET + PF_CODE_SHIFT) : 1)
enum { PF_SCRATCH = PF_BIAS ? 3 : 2 };

PF_ALWAYS_INLINE int64_t pf_least(int64_t a, int64_t b) { return a < b ? a : b; }

/* ---- a rounded row of x: q[k] int8, then d[groups] and s[groups] float ---- */

PF_ALWAYS_INLINE const float *pf_steps_of(const int8_t *q, int64_t k) { return (const float *)(q + k); }

static void pf_round_row(const PF_X_T *x, int64_t k, int8_t *q) {
  float *d = (float *)(q + k), *s = d + k / PF_GROUP;
  for (int64_t g = 0; g < k / PF_GROUP; g++, x += PF_GROUP, q += PF_GROUP) {
    float value[PF_GROUP];
    uint32_t most = 0; /* as bits: NaN is more than infinity, and that more than any number */
    for (int i = 0; i < PF_GROUP; i++) {
      uint32_t bits;
      value[i] = PF_LOAD_X(x[i]);
      __builtin_memcpy(&bits, value + i, 4);
      bits &= 0x7fffffff;
      most = bits > most ? bits : most;
    }
    float largest;
    int32_t sum = 0;
    __builtin_memcpy(&largest, &most, 4);
    const int number = most < 0x7f800000;
    const float inverse = number && largest > 0x1p-100f ? 127 / largest : 0;
    for (int i = 0; i < PF_GROUP; i++) {
      const float whole = value[i] * inverse + 0x1.8p23f; /* rounds to even; the integer is in the low bits */
      int32_t bits;
      __builtin_memcpy(&bits, &whole, 4);
      q[i] = (int8_t)bits;
      sum += (int8_t)bits;
    }
    d[g] = number ? (inverse > 0 ? largest / 127 : 0) : __builtin_nanf("");
    s[g] = d[g] * (float)(sum * PF_SUM_FACTOR);
  }
}

PF_ALWAYS_INLINE void pf_add_bias(char *const *buf, int64_t j, int64_t count, float *out) {
#if PF_BIAS
  const PF_X_T *bias = (const PF_X_T *)buf[2] + j;
  for (int64_t i = 0; i < count; i++) out[i] += PF_LOAD_X(bias[i]);
#else
  (void)buf, (void)j, (void)count, (void)out;
#endif
}

#if PF_FEW

enum {
  PF_LINES = 2,   /* that are multiplied at once, so that x is loaded for all of them */
  PF_AHEAD = 4096 /* bytes: hardware follows a line to its end, and lines are short */
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
      pf_int4 part[4] = {{0}};
#pragma GCC unroll 4
      for (int j = 0; j < count; j++) part[j] = pf_dot(codes[l][j], x + (at + j) * PF_GROUP);
      pf_float4 sum = pf_as_floats4(pf_join(part)) * d4;
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
  for (; k > 0; k -= PF_BLOCK, line += PF_BLOCK_BYTES, x += PF_BLOCK, d += PF_BLOCK / PF_GROUP)
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

/* One iteration is PF_COLS lines. */
PF_KERNEL(PF_GLUE(PF_NAME, _few)) {
  const int64_t n = arg[PF_N], k = arg[PF_K], block = arg[PF_COLS], ld = arg[PF_ROUNDED_BYTES];
  const int64_t stride = arg[PF_ROW_BYTES];
  int8_t *x = (int8_t *)buf[PF_SCRATCH] + arg[PF_WORKER_AT] + worker * arg[PF_WORKER_BYTES];
  float *out = (float *)(x + PF_FEW * ld);
  for (int64_t t = 0; t < PF_FEW; t++) pf_round_row((const PF_X_T *)buf[0] + t * k, k, x + t * ld);
  for (int64_t task = begin; task < end; task++) {
    const int64_t j = task * block, count = pf_least(block, n - j);
    const uint8_t *line = (const uint8_t *)buf[1] + j * stride;
    int64_t c = 0;
    for (; c + PF_LINES <= count; c += PF_LINES) pf_dot_lines(PF_LINES, line + c * stride, stride, x, ld, k, out + c, block);
    for (; c < count; c++) pf_dot_lines(1, line + c * stride, stride, x, ld, k, out + c, block);
    for (int64_t t = 0; t < PF_FEW; t++) {
      pf_add_bias(buf, j, count, out + t * block);
      PF_EPILOGUE(buf, arg, uni, 0, t, j, count, out + t * block);
    }
  }
}

#else

/* One iteration is a row; rows that fill up the last PF_MR are of zeros. */
PF_KERNEL(PF_GLUE(PF_NAME, _round)) {
  const int64_t k = arg[PF_K];
  (void)uni, (void)worker;
  for (int64_t i = begin; i < end; i++) {
    int8_t *to = (int8_t *)buf[PF_SCRATCH] + i * arg[PF_ROUNDED_BYTES];
    if (i < arg[PF_M])
      pf_round_row((const PF_X_T *)buf[0] + i * k, k, to);
    else
      __builtin_memset(to, 0, (size_t)arg[PF_ROUNDED_BYTES]);
  }
}

/* ---- panels: for each group PF_NR scales, (PF_NR least numbers,) and PF_GROUP / 4 words of every line ---- */

enum { PF_PANEL_HEAD = (1 + PF_LEAST) * PF_NR * 4, PF_PANEL_BYTES = PF_PANEL_HEAD + PF_GROUP * PF_NR };

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

/* Four lines, as columns c to c + 3 of the panel. */
static void pf_unpack_lines(const uint8_t *const *line, int64_t groups, int c, char *panel) {
  int64_t g = 0;
  for (; g + 4 <= groups; g += 4)
    for (int l = 0; l < 4; l++) pf_unpack_scales(4, line[l], g, c + l, panel + g * PF_PANEL_BYTES);
  for (; g < groups; g++)
    for (int l = 0; l < 4; l++) pf_unpack_scales(1, line[l], g, c + l, panel + g * PF_PANEL_BYTES);
  for (g = 0; g < groups; g++, panel += PF_PANEL_BYTES) {
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

/* PF_MR rows of x by a panel. */
static void pf_tile(const char *panel, int64_t groups, const int8_t *x, int64_t ld, int64_t k, float *out, int64_t out_ld) {
  pf_floats acc[PF_MR][PF_NV] = {{{0}}};
  const float *d = pf_steps_of(x, k);
  for (int64_t g = 0; g < groups; g++, panel += PF_PANEL_BYTES, x += PF_GROUP, d++) {
    pf_ints sum[PF_MR][PF_NV];
    const int8_t *w = (const int8_t *)panel + PF_PANEL_HEAD;
    const pf_floats *head = (const pf_floats *)panel;
#pragma GCC unroll 4
    for (int r = 0; r < PF_MR; r++)
#pragma GCC unroll 2
      for (int v = 0; v < PF_NV; v++) sum[r][v] = pf_no_sum();
#pragma GCC unroll 2
    for (int v = 0; v < PF_VECS; v++) pf_dots(sum, w + 16 * PF_NR * v, x + 16 * v, ld);
#pragma GCC unroll 4
    for (int r = 0; r < PF_MR; r++) {
      const float *row = (const float *)((const char *)d + r * ld);
#pragma GCC unroll 2
      for (int v = 0; v < PF_NV; v++) {
        if (PF_SHIFTED)
          acc[r][v] += (pf_as_floats(sum[r][v]) * row[0] + row[k / PF_GROUP]) * head[v];
        else
          acc[r][v] += pf_as_floats(sum[r][v]) * (head[v] * row[0]);
        if (PF_LEAST) acc[r][v] += head[PF_NV + v] * row[k / PF_GROUP];
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < PF_MR; r++)
#pragma GCC unroll 2
    for (int v = 0; v < PF_NV; v++) *(pf_floats *)(out + r * out_ld + v * PF_LANES) = acc[r][v];
}

/* One iteration is PF_ROWS x PF_COLS outputs; rows change fastest. */
PF_KERNEL(PF_GLUE(PF_NAME, _mul)) {
  const int64_t m = arg[PF_M], n = arg[PF_N], k = arg[PF_K], rows = arg[PF_ROWS], cols = arg[PF_COLS], ld = arg[PF_ROUNDED_BYTES];
  const int64_t row_blocks = (m + rows - 1) / rows, groups = k / PF_GROUP, stride = arg[PF_ROW_BYTES];
  char *panel = buf[PF_SCRATCH] + arg[PF_WORKER_AT] + worker * arg[PF_WORKER_BYTES];
  float *out = (float *)(panel + groups * PF_PANEL_BYTES);
  for (int64_t task = begin; task < end; task++) {
    const int64_t i0 = task % row_blocks * rows, j0 = task / row_blocks * cols;
    const int64_t height = pf_least(rows, m - i0), width = pf_least(cols, n - j0);
    const int8_t *x = (const int8_t *)buf[PF_SCRATCH] + i0 * ld;
    for (int64_t j = 0; j < width; j += PF_NR) {
      const int64_t lines = pf_least(PF_NR, width - j);
      for (int64_t c = 0; c < PF_NR; c += 4) {
        const uint8_t *line[4]; /* where fewer are left, the last one again */
        for (int64_t l = 0; l < 4; l++) line[l] = (const uint8_t *)buf[1] + (j0 + j + pf_least(c + l, lines - 1)) * stride;
        pf_unpack_lines(line, groups, (int)c, panel);
      }
      for (int64_t i = 0; i < height; i += PF_MR) pf_tile(panel, groups, x + i * ld, ld, k, out + i * cols + j, cols);
    }
    for (int64_t i = 0; i < height; i++) {
      pf_add_bias(buf, j0, width, out + i * cols);
      PF_EPILOGUE(buf, arg, uni, 0, i0 + i, j0, width, out + i * cols);
    }
  }
}

#endif
