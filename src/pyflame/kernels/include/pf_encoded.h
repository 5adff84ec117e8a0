/* What encoded.c and encoded_float.c share: what a task multiplies, and how rows of sums become results.
 *
 * Buffers: x, weights, (bias or ids,) scratch. PF_EXPERTS: there is no one weight but a stack, and ids say which of its
 * matrices each line is multiplied with. `sort` orders lines by that; what is called row i then is line order[i], and a
 * task has rows of one matrix only.
 */
#ifndef PF_ENCODED_H
#define PF_ENCODED_H

enum { PF_SCRATCH = 2 + PF_BIAS + PF_EXPERTS };

/* Rows [i, i + height) by lines [j, j + width) of `weights`, which begin at line j. */
typedef struct {
  int64_t i, height, j, width;
  const uint8_t *weights;
} pf_part;

PF_ALWAYS_INLINE int64_t pf_up_to(int64_t most, int64_t n) { return n < most ? n : most; }

#if PF_EXPERTS

enum {
  PF_SHARE = PF_ENCODED_ARGS, PF_MATRICES, /* lines for one row of x; matrices of the stack */
  PF_PARTS, PF_ID_CHECK, PF_SORTED_AT      /* room for parts; number of the check; byte offset in scratch */
};

/* What `sort` makes: PF_PARTS of {first row, rows, matrix}, of which the last may have no rows; then order. */
PF_ALWAYS_INLINE int64_t *pf_sorted(char *const *buf, const int64_t *arg) {
  return (int64_t *)(buf[PF_SCRATCH] + arg[PF_SORTED_AT]);
}
PF_ALWAYS_INLINE int64_t pf_line_of(char *const *buf, const int64_t *arg, int64_t i) {
  return pf_sorted(buf, arg)[3 * arg[PF_PARTS] + i];
}

PF_ALWAYS_INLINE int64_t pf_matrix_of(char *const *buf, const int64_t *arg, int64_t line) {
  const int64_t id = ((const int64_t *)buf[2])[line], count = arg[PF_MATRICES], matrix = id < 0 ? id + count : id;
  if (matrix >= 0 && matrix < count) return matrix;
  pf_bad_index(buf, arg[PF_ID_CHECK], id, count);
  return 0;
}

/* One iteration does it all: there are few ids beside what they are multiplied with. */
PF_KERNEL(PF_GLUE(PF_NAME, _sort)) {
  const int64_t lines = arg[PF_M], count = arg[PF_MATRICES], rows = arg[PF_ROWS];
  int64_t *part = pf_sorted(buf, arg), *order = part + 3 * arg[PF_PARTS], *at = order + lines, next = 0;
  (void)uni, (void)begin, (void)end, (void)worker;
  for (int64_t e = 0; e < count; e++) at[e] = 0;
  for (int64_t l = 0; l < lines; l++) at[pf_matrix_of(buf, arg, l)]++;
  for (int64_t e = 0; e < count; e++) {
    const int64_t first = next, own = at[e];
    for (int64_t r = 0; r < own; r += rows, part += 3) part[0] = first + r, part[1] = pf_up_to(rows, own - r), part[2] = e;
    at[e] = first;
    next += own;
  }
  for (; part < order; part += 3) part[0] = part[1] = part[2] = 0;
  for (int64_t l = 0; l < lines; l++) order[at[pf_matrix_of(buf, arg, l)]++] = l;
}

/* Blocks of lines change fastest: rows stay in cache, and a matrix is read through. */
PF_ALWAYS_INLINE pf_part pf_part_of(char *const *buf, const int64_t *arg, int64_t task) {
  const int64_t n = arg[PF_N], cols = arg[PF_COLS], blocks = (n + cols - 1) / cols, j = task % blocks * cols;
  const int64_t *part = pf_sorted(buf, arg) + task / blocks * 3;
  return (pf_part){part[0], part[1], j, pf_up_to(cols, n - j), (const uint8_t *)buf[1] + (part[2] * n + j) * arg[PF_ROW_BYTES]};
}

#else

PF_ALWAYS_INLINE int64_t pf_line_of(char *const *buf, const int64_t *arg, int64_t i) {
  (void)buf, (void)arg;
  return i;
}

/* Rows change fastest. */
PF_ALWAYS_INLINE pf_part pf_part_of(char *const *buf, const int64_t *arg, int64_t task) {
  const int64_t m = arg[PF_M], n = arg[PF_N], rows = arg[PF_ROWS], cols = arg[PF_COLS], blocks = (m + rows - 1) / rows;
  const int64_t i = task % blocks * rows, j = task / blocks * cols;
  return (pf_part){i, pf_up_to(rows, m - i), j, pf_up_to(cols, n - j), (const uint8_t *)buf[1] + j * arg[PF_ROW_BYTES]};
}

#endif

/* Row i of x. */
PF_ALWAYS_INLINE const PF_X_T *pf_row_of(char *const *buf, const int64_t *arg, int64_t i) {
#if PF_EXPERTS
  i = pf_line_of(buf, arg, i) / arg[PF_SHARE];
#endif
  return (const PF_X_T *)buf[0] + i * arg[PF_K];
}

/* Give the sums of a part, rows `ld` apart, to the epilogue; first the bias is added. */
PF_ALWAYS_INLINE void pf_finish(char *const *buf, const int64_t *arg, const pf_word *uni, pf_part part, float *out, int64_t ld) {
  for (int64_t r = 0; r < part.height; r++, out += ld) {
#if PF_BIAS
    const PF_X_T *bias = (const PF_X_T *)buf[2] + part.j;
    for (int64_t c = 0; c < part.width; c++) out[c] += PF_LOAD_X(bias[c]);
#endif
    PF_EPILOGUE(buf, arg, uni, 0, pf_line_of(buf, arg, part.i + r), part.j, part.width, out);
  }
}

#endif
