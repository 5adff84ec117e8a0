/* Rows of numbers times encoded weights, in float32: for weights that are floats, for formats without codes in pf_codes.h,
 * and where x must not be rounded.
 *
 *   y[i, j] = sum_k x[i, k] * weight[j, k]  (+ bias[j])
 *
 * Memory policy. `few` (up to PF_FEW rows): reads the weights once, where they lie; blocks are decoded PF_CHUNK elements
 * at a time into L1. `mul`: `pack` has x in panels (pf_gemm.h); a task is a block of rows by a block of lines, and makes
 * panels of arg[PF_DEPTH] elements of its lines, which stay in L2 while the rows pass by.
 * Bytes: of `few` the weights; of `mul` the weights for each block of rows, and x for each block of lines.
 *
 * Before including this file define PF_NAME, PF_X_T and PF_LOAD_X, PF_BIAS (whether there is one), PF_EPILOGUE, PF_FEW (0:
 * compile pack and mul; else `few` for so many rows) and PF_B_T: the dtype that the weights are, or float32 with
 * PF_DECODE(block, g, y), PF_BLOCK, PF_BLOCK_BYTES and PF_DECODED, the elements that it decodes. Buffers: x, weights,
 * (bias,) scratch.
 */
#define PF_A_T float32
#define PF_ACC_T float
#define PF_OWN_PANELS
#include "pf_gemm.h"

enum {
  PF_M, PF_N, PF_K, PF_ROW_BYTES,
  PF_ROW_BLOCK, PF_COL_BLOCK, PF_DEPTH,      /* block of a task: rows (of PF_MR), lines (of PF_NR), and the k block */
  PF_WORKER_AT, PF_WORKER_BYTES, PF_ENCODED_ARGS /* byte offsets in scratch; panels of x are at 0 */
};

enum { PF_SCRATCH = PF_BIAS ? 3 : 2 };

PF_ALWAYS_INLINE void pf_widen(const PF_X_T *x, int64_t k, float *to) {
  for (int64_t i = 0; i < k; i++) to[i] = PF_LOAD_X(x[i]);
}

PF_ALWAYS_INLINE void pf_add_bias(char *const *buf, int64_t j, int64_t count, float *out) {
#if PF_BIAS
  const PF_X_T *bias = (const PF_X_T *)buf[2] + j;
  for (int64_t i = 0; i < count; i++) out[i] += PF_LOAD_X(bias[i]);
#else
  (void)buf, (void)j, (void)count, (void)out;
#endif
}

#ifdef PF_DECODE
/* Elements [k, k + count) of the line, both multiples of PF_DECODED. */
static void pf_decode_line(const uint8_t *line, int64_t k, int64_t count, float *to) {
  for (int64_t at = 0; at < count; at += PF_DECODED)
    PF_DECODE(line + (k + at) / PF_BLOCK * PF_BLOCK_BYTES, (int)((k + at) % PF_BLOCK / PF_DECODED), to + at);
}
#endif

#if PF_FEW

enum { PF_LINES = PF_FEW > 4 ? 2 : 4, PF_CHUNK = 256, PF_AHEAD = 4096 /* bytes: hardware follows a line to its end */ };

/* acc[l][t] += a vector of line l by one of row t. */
PF_ALWAYS_INLINE void pf_dot_vectors(const int lines, const pf_b_t *w, int64_t stride, const float *x, int64_t ld,
                                     pf_vec (*acc)[PF_FEW]) {
  pf_vec weight[PF_LINES];
#pragma GCC unroll 4
  for (int l = 0; l < lines; l++) weight[l] = pf_vector_b(w + l * stride);
#pragma GCC unroll 8
  for (int t = 0; t < PF_FEW; t++) {
    const pf_vec row = *(const pf_vec *)(x + t * ld);
#pragma GCC unroll 4
    for (int l = 0; l < lines; l++) acc[l][t] += weight[l] * row;
  }
}

/* acc[l][t] += line l by row t, and what is left over of whole vectors to rest. */
PF_ALWAYS_INLINE void pf_dots(const int lines, const pf_b_t *w, int64_t stride, const float *x, int64_t ld, int64_t count,
                              pf_vec (*acc)[PF_FEW], float (*rest)[PF_FEW]) {
  const int64_t cache_line = 64 / (int64_t)sizeof(pf_b_t);
  int64_t k = 0;
  for (; k + cache_line <= count; k += cache_line) {
#pragma GCC unroll 4
    for (int l = 0; l < lines; l++) __builtin_prefetch((const char *)(w + l * stride + k) + PF_AHEAD);
#pragma GCC unroll 8
    for (int64_t v = 0; v < cache_line; v += PF_LANES) pf_dot_vectors(lines, w + k + v, stride, x + k + v, ld, acc);
  }
  for (; k + PF_LANES <= count; k += PF_LANES) pf_dot_vectors(lines, w + k, stride, x + k, ld, acc);
  for (; k < count; k++)
    for (int l = 0; l < lines; l++)
      for (int t = 0; t < PF_FEW; t++) rest[l][t] += PF_LOAD_B(w + l * stride + k) * x[t * ld + k];
}

PF_ALWAYS_INLINE void pf_few_lines(const int lines, const uint8_t *line, int64_t stride, const float *x, int64_t k, float *out,
                                   int64_t out_ld) {
  pf_vec acc[PF_LINES][PF_FEW] = {{{0}}};
  float rest[PF_LINES][PF_FEW] = {{0}};
#ifdef PF_DECODE
  for (int64_t at = 0; at < k; at += PF_CHUNK) {
    float weights[PF_LINES][PF_CHUNK];
    const int64_t count = pf_min(PF_CHUNK, k - at);
    for (int l = 0; l < lines; l++) pf_decode_line(line + l * stride, at, count, weights[l]);
    pf_dots(lines, weights[0], PF_CHUNK, x + at, k, count, acc, rest);
  }
#else
  pf_dots(lines, (const pf_b_t *)line, stride / (int64_t)sizeof(pf_b_t), x, k, k, acc, rest);
#endif
  for (int l = 0; l < lines; l++)
    for (int t = 0; t < PF_FEW; t++) {
      for (int i = 0; i < PF_LANES; i++) rest[l][t] += acc[l][t][i];
      out[t * out_ld + l] = rest[l][t];
    }
}

/* One iteration is PF_COL_BLOCK lines. */
PF_KERNEL(PF_GLUE(PF_NAME, _few)) {
  const int64_t n = arg[PF_N], k = arg[PF_K], block = arg[PF_COL_BLOCK], stride = arg[PF_ROW_BYTES];
  float *x = (float *)(buf[PF_SCRATCH] + arg[PF_WORKER_AT] + worker * arg[PF_WORKER_BYTES]), *out = x + PF_FEW * k;
  pf_widen((const PF_X_T *)buf[0], PF_FEW * k, x);
  for (int64_t task = begin; task < end; task++) {
    const int64_t j = task * block, count = pf_min(block, n - j);
    const uint8_t *line = (const uint8_t *)buf[1] + j * stride;
    int64_t c = 0;
    for (; c + PF_LINES <= count; c += PF_LINES) pf_few_lines(PF_LINES, line + c * stride, stride, x, k, out + c, block);
    for (; c < count; c++) pf_few_lines(1, line + c * stride, stride, x, k, out + c, block);
    for (int64_t t = 0; t < PF_FEW; t++) {
      pf_add_bias(buf, j, count, out + t * block);
      PF_EPILOGUE(buf, arg, uni, 0, t, j, count, out + t * block);
    }
  }
}

#else

/* One iteration is PF_MR rows. The panels of a k block lie behind each other; so do k blocks. */
PF_KERNEL(PF_GLUE(PF_NAME, _pack)) {
  const int64_t m = arg[PF_M], k = arg[PF_K], depth = arg[PF_DEPTH];
  float *rows = (float *)(buf[PF_SCRATCH] + arg[PF_WORKER_AT] + worker * arg[PF_WORKER_BYTES]);
  (void)uni;
  for (int64_t panel = begin; panel < end; panel++) {
    const int64_t i = panel * PF_MR, count = pf_min(PF_MR, m - i);
    pf_widen((const PF_X_T *)buf[0] + i * k, count * k, rows);
    for (int64_t at = 0; at < k; at += depth) {
      const int64_t words = pf_min(depth, k - at);
      pf_pack_left((float *)buf[PF_SCRATCH] + m * at + i * words, count, rows + at, count, words, k, 1);
    }
  }
}

/* PF_NR lines of `words` elements from k on, as a panel; `lines` is room to decode them into. */
PF_ALWAYS_INLINE void pf_pack_lines(float *panel, const uint8_t *line, int64_t stride, int64_t count, int64_t k, int64_t words,
                                    float *lines) {
#ifdef PF_DECODE
  for (int64_t c = 0; c < count; c++) pf_decode_line(line + c * stride, k, words, lines + c * words);
  pf_pack_right(panel, pf_width(count), lines, count, words, words, 1);
#else
  (void)lines;
  pf_pack_right(panel, pf_width(count), (const pf_b_t *)line + k, count, words, stride / (int64_t)sizeof(pf_b_t), 1);
#endif
}

/* One iteration is PF_ROW_BLOCK x PF_COL_BLOCK outputs; rows change fastest. */
PF_KERNEL(PF_GLUE(PF_NAME, _mul)) {
  const int64_t m = arg[PF_M], n = arg[PF_N], k = arg[PF_K], rows = arg[PF_ROW_BLOCK], cols = arg[PF_COL_BLOCK];
  const int64_t depth = arg[PF_DEPTH], row_blocks = pf_div_up(m, rows), stride = arg[PF_ROW_BYTES];
  float *panels = (float *)(buf[PF_SCRATCH] + arg[PF_WORKER_AT] + worker * arg[PF_WORKER_BYTES]);
  float *lines = panels + cols * depth, *out = lines + PF_NR * depth;
  for (int64_t task = begin; task < end; task++) {
    const int64_t i0 = task % row_blocks * rows, j0 = task / row_blocks * cols;
    const int64_t height = pf_min(rows, m - i0), width = pf_min(cols, n - j0);
    for (int64_t at = 0; at < k; at += depth) {
      const int64_t words = pf_min(depth, k - at);
      for (int64_t j = 0; j < width; j += PF_NR)
        pf_pack_lines(panels + j * words, (const uint8_t *)buf[1] + (j0 + j) * stride, stride, pf_min(PF_NR, width - j), at,
                      words, lines);
      for (int64_t i = 0; i < height; i += PF_MR)
        pf_strip(pf_min(PF_MR, height - i), width, words, (const float *)buf[PF_SCRATCH] + m * at + (i0 + i) * words, panels,
                 out + i * cols, cols, at > 0);
    }
    for (int64_t i = 0; i < height; i++) {
      if (k == 0) __builtin_memset(out + i * cols, 0, (size_t)width * 4);
      pf_add_bias(buf, j0, width, out + i * cols);
      PF_EPILOGUE(buf, arg, uni, 0, i0 + i, j0, width, out + i * cols);
    }
  }
}

#endif
