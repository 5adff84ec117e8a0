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
 * With PF_HALVES (float16 weights and a CPU that adds float16: the bits of activations, or 0) `few` does as pf_half_lines.h
 * says.
 *
 * Before including this file define PF_NAME, PF_X_T and PF_LOAD_X, PF_BIAS and PF_EXPERTS (whether there are, see
 * pf_encoded.h), PF_EPILOGUE, PF_FEW (0: compile pack and mul; else `few` for so many rows at a time), PF_HALVES and PF_B_T:
 * the dtype that the weights are, or float32 with PF_DECODE(block, g, y), PF_BLOCK, PF_BLOCK_BYTES and PF_DECODED, the
 * elements that it decodes.
 */
#define PF_A_T float32
#define PF_ACC_T float
#define PF_OWN_PANELS
#include "pf_gemm.h"

enum {
  PF_M, PF_N, PF_K, PF_ROW_BYTES,
  PF_ROWS, PF_COLS, PF_DEPTH,                /* block of a task: rows (of PF_MR), lines (of PF_NR), and the k block */
  PF_WORKER_AT, PF_WORKER_BYTES, PF_ENCODED_ARGS /* byte offsets in scratch; panels of x are at 0 */
};
#include "pf_encoded.h"

PF_ALWAYS_INLINE void pf_widen(const PF_X_T *x, int64_t k, float *to) {
  for (int64_t i = 0; i < k; i++) to[i] = PF_LOAD_X(x[i]);
}

#ifdef PF_DECODE
/* Elements [k, k + count) of the line, both multiples of PF_DECODED. */
static void pf_decode_line(const uint8_t *line, int64_t k, int64_t count, float *to) {
  for (int64_t at = 0; at < count; at += PF_DECODED)
    PF_DECODE(line + (k + at) / PF_BLOCK * PF_BLOCK_BYTES, (int)((k + at) % PF_BLOCK / PF_DECODED), to + at);
}
#endif

#if PF_FEW

enum {
  PF_LINES = PF_FEW > 4 || (PF_HALVES == 8 && PF_FEW > 1) ? 2 : 4,
  PF_CHUNK = 256,
  PF_AHEAD = PF_HALVES ? 16384 / PF_LINES : 4096 /* bytes of each line */
};

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

/* PF_AHEAD of lines at `w`, which is element k. Hardware follows a line to its end, behind which the next set of lines is
 * read. */
PF_ALWAYS_INLINE void pf_prefetch_lines(const int lines, const void *w, int64_t stride, int64_t k) {
  const int64_t ahead = PF_AHEAD / (int64_t)sizeof(pf_b_t);
  const pf_b_t *next = (const pf_b_t *)w + ahead + (k + ahead < stride ? 0 : (lines - 1) * stride);
#pragma GCC unroll 4
  for (int l = 0; l < lines; l++) __builtin_prefetch(next + l * stride);
}

/* acc[l][t] += line l by row t, and what is left over of whole vectors to rest. */
PF_ALWAYS_INLINE void pf_dots(const int lines, const pf_b_t *w, int64_t stride, const float *x, int64_t ld, int64_t count,
                              pf_vec (*acc)[PF_FEW], float (*rest)[PF_FEW]) {
  const int64_t cache_line = 64 / (int64_t)sizeof(pf_b_t);
  int64_t k = 0;
  for (; k + cache_line <= count; k += cache_line) {
    pf_prefetch_lines(lines, w + k, stride, k);
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
    for (int t = 0; t < PF_FEW; t++) out[t * out_ld + l] = rest[l][t] + pf_sum_of_lanes(acc[l][t]);
}

#if PF_HALVES
#include "pf_half_lines.h"
#endif

/* One iteration is PF_COLS lines. */
PF_KERNEL(PF_GLUE(PF_NAME, _few)) {
  const int64_t k = arg[PF_K], block = arg[PF_COLS], stride = arg[PF_ROW_BYTES], most = arg[PF_ROWS];
  float *x = (float *)(buf[PF_SCRATCH] + arg[PF_WORKER_AT] + worker * arg[PF_WORKER_BYTES]), *out = x + most * k;
#if PF_HALVES
  int *exponent = (int *)(out + most * block);
  float16_t *halves = (float16_t *)(exponent + most);
#define PF_DO_LINES(lines) pf_lines(lines, line, stride, x + t * k, halves + t * k, exponent + t, k, to + c, block)
#else
#define PF_DO_LINES(lines) pf_few_lines(lines, line, stride, x + t * k, k, to + c, block)
#endif
  for (int64_t task = begin, widened = -1; task < end; task++) {
    const pf_part part = pf_part_of(buf, arg, task);
    for (int64_t t = 0; part.i != widened && t < part.height; t++) {
      pf_widen(pf_row_of(buf, arg, part.i + t), k, x + t * k);
#if PF_HALVES
      exponent[t] = pf_scale_row(x + t * k, k, halves + t * k);
#endif
    }
    widened = part.i;
    for (int64_t t = 0; t < part.height; t += PF_FEW) {
      const uint8_t *line = part.weights;
      float *to = out + t * block;
      int64_t c = 0;
      for (; c + PF_LINES <= part.width; c += PF_LINES, line += PF_LINES * stride) PF_DO_LINES(PF_LINES);
      for (; c < part.width; c++, line += stride) PF_DO_LINES(1);
    }
    pf_finish(buf, arg, uni, part, out, block);
  }
}

#else

/* A panel of up to PF_MR rows. Those of a k block lie behind each other; so do k blocks. `room` is for rows as floats. */
static void pf_pack_rows(char *const *buf, const int64_t *arg, int64_t i, int64_t count, float *room) {
  const int64_t m = arg[PF_M], k = arg[PF_K], depth = arg[PF_DEPTH];
  for (int64_t r = 0; r < count; r++) pf_widen(pf_row_of(buf, arg, i + r), k, room + r * k);
  for (int64_t at = 0; at < k; at += depth) {
    const int64_t words = pf_min(depth, k - at);
    pf_pack_left((float *)buf[PF_SCRATCH] + m * at + i * words, count, room + at, count, words, k, 1);
  }
}

/* One iteration is PF_MR rows or, of experts, a part. */
PF_KERNEL(PF_GLUE(PF_NAME, _pack)) {
  float *room = (float *)(buf[PF_SCRATCH] + arg[PF_WORKER_AT] + worker * arg[PF_WORKER_BYTES]);
  (void)uni;
  for (int64_t task = begin; task < end; task++) {
#if PF_EXPERTS
    const int64_t *part = pf_sorted(buf, arg) + 3 * task, first = part[0], last = first + part[1];
#else
    const int64_t first = task * PF_MR, last = pf_min(first + PF_MR, arg[PF_M]);
#endif
    for (int64_t i = first; i < last; i += PF_MR) pf_pack_rows(buf, arg, i, pf_min(PF_MR, last - i), room);
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

/* One iteration is PF_ROWS x PF_COLS outputs. */
PF_KERNEL(PF_GLUE(PF_NAME, _mul)) {
  const int64_t m = arg[PF_M], k = arg[PF_K], cols = arg[PF_COLS], depth = arg[PF_DEPTH], stride = arg[PF_ROW_BYTES];
  float *panels = (float *)(buf[PF_SCRATCH] + arg[PF_WORKER_AT] + worker * arg[PF_WORKER_BYTES]);
  float *lines = panels + cols * depth, *out = lines + PF_NR * depth;
  for (int64_t task = begin; task < end; task++) {
    const pf_part part = pf_part_of(buf, arg, task);
    if (part.height == 0) continue;
    for (int64_t at = 0; at < k; at += depth) {
      const int64_t words = pf_min(depth, k - at);
      for (int64_t j = 0; j < part.width; j += PF_NR)
        pf_pack_lines(panels + j * words, part.weights + j * stride, stride, pf_min(PF_NR, part.width - j), at, words, lines);
      for (int64_t i = 0; i < part.height; i += PF_MR)
        pf_strip(pf_min(PF_MR, part.height - i), part.width, words, (const float *)buf[PF_SCRATCH] + m * at + (part.i + i) * words,
                 panels, out + i * cols, cols, at > 0);
    }
    if (k == 0) __builtin_memset(out, 0, (size_t)(part.height * cols) * 4);
    pf_finish(buf, arg, uni, part, out, cols);
  }
}

#endif
