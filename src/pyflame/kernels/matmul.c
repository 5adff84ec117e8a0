/* Batched matrix multiplication with a generated epilogue.
 *
 *   acc[b, i, j] = sum_k A[b, i, k] * B[b, k, j];   PF_EPILOGUE(b, i, j.., acc)
 *
 * Memory policy. `pack` copies the operands that several tasks share into panels (pf_gemm.h), once. `mul` gives each
 * task a block of arg[PF_ROWS] x arg[PF_COLS] outputs: for every k block of arg[PF_DEPTH] the B block stays in L2,
 * one A panel at a time stays in L1, and the accumulators stay in the worker's scratch until k is done, so the
 * epilogue sees each output once, a row of the block at a time. `finish` adds the partial sums of a split k. Rows of B
 * that are short and few stay where they lie, and sums that are stored as they are go there at once.
 * `thin` serves up to eight rows or columns: it reads the large matrix once, where it lies, and packs nothing.
 *
 * 2*M*N*K flops. Bytes: A and B are read once and written and read once more as panels; from the last cache level a
 * task then reads (rows + cols) * K words for 2 * rows * cols * K flops. The accumulators never leave L2.
 *
 * Each output is one chain of multiply-adds in order of k (per split), so results do not depend on the number of
 * workers or on the size of the blocks.
 *
 * Before including this file define PF_NAME, PF_A_T, PF_B_T, PF_ACC_T, PF_EPILOGUE and PF_THIN (0: compile pack, mul
 * and finish; 1-8: compile thin for that many rows or columns, both operands of one type); matmul.py plans the launch.
 */
#include "pf_gemm.h"

enum {
  PF_M, PF_N, PF_K, PF_A_ROW, PF_A_COL, PF_B_ROW, PF_B_COL, PF_BATCH, PF_DIMS, /* strides in elements */
  PF_EXTENTS, PF_A_STRIDES = PF_EXTENTS + 6, PF_B_STRIDES = PF_A_STRIDES + 6,
  PF_FLAGS = PF_B_STRIDES + 6, /* PF_PACKED_* and PF_SHARED_* below */
  PF_ROWS, PF_COLS, PF_DEPTH,  /* block of a task: rows (of PF_MR), columns (of PF_NR), and the k block */
  PF_SPLIT,                    /* k range of one partial sum; >= K: no split */
  PF_B_AT, PF_PARTIAL_AT, PF_WORKER_AT, PF_WORKER_BYTES, /* byte offsets in scratch; the A panels are at 0 */
  PF_OUT, PF_OUT_BYTES, /* the buffer whose rows of N elements of so many bytes the epilogue writes; 0: not known */
  PF_GEMM_ARGS
};

enum {
  PF_PACKED_A = 1, PF_PACKED_B = 2, /* the operand was packed by the `pack` phase */
  PF_SHARED_A = 4, PF_SHARED_B = 8, /* one operand for all batch entries */
  PF_B_IN_PLACE = 16,               /* B's panels of whole vectors are multiplied where they lie */
  PF_SUMS_IN_PLACE = 32,            /* the epilogue only stores: sums are made in PF_OUT, whose rows are whole vectors */
};

#define PF_SKEW (64 / (int64_t)sizeof(PF_ACC_T)) /* keeps accumulator rows out of each other's cache sets */

static int64_t pf_batch_offset(const int64_t *arg, const int64_t *stride, int64_t batch) {
  int64_t offset = 0;
  for (int64_t d = arg[PF_DIMS] - 1; d >= 0; d--) {
    offset += batch % arg[PF_EXTENTS + d] * stride[d];
    batch /= arg[PF_EXTENTS + d];
  }
  return offset;
}

static const pf_a_t *pf_a_at(char *const *buf, const int64_t *arg, int64_t batch) {
  return (const pf_a_t *)buf[0] + pf_batch_offset(arg, arg + PF_A_STRIDES, batch);
}

static const pf_b_t *pf_b_at(char *const *buf, const int64_t *arg, int64_t batch) {
  return (const pf_b_t *)buf[1] + pf_batch_offset(arg, arg + PF_B_STRIDES, batch);
}

#if !PF_THIN

/* Where the panels of k block [k, ..) begin in the packed operand of `lines` (rounded) lines. */
static pf_word_t *pf_panels(char *packed, int64_t batch, int64_t lines, int64_t k_total, int64_t k) {
  return (pf_word_t *)packed + lines * (batch * pf_words(k_total) + pf_words(k));
}

/* ---- pack: one iteration is one group of panels of one k block, A's first, then B's ---- */

enum { PF_PACK_PANELS = 4 };

PF_KERNEL(PF_GLUE(PF_NAME, _pack)) {
  (void)uni, (void)worker;
  const int64_t m = arg[PF_M], n = arg[PF_N], k = arg[PF_K], depth = arg[PF_DEPTH], flags = arg[PF_FLAGS];
  const int64_t k_blocks = pf_div_up(k, depth);
  const int64_t a_groups = pf_div_up(m, PF_PACK_PANELS * PF_MR), b_groups = pf_div_up(n, PF_PACK_PANELS * PF_NR);
  const int64_t a_batches = flags & PF_SHARED_A ? 1 : arg[PF_BATCH];
  const int64_t a_units = flags & PF_PACKED_A ? a_batches * k_blocks * a_groups : 0;
  for (int64_t unit = begin; unit < end; unit++) {
    const int left = unit < a_units;
    const int64_t groups = left ? a_groups : b_groups, within = left ? unit : unit - a_units;
    const int64_t lines = left ? m : n, step = left ? PF_MR : PF_NR;
    const int64_t batch = within / (groups * k_blocks), k0 = within / groups % k_blocks * depth;
    const int64_t kc = pf_min(depth, k - k0), words = pf_words(kc);
    const int64_t first = within % groups * PF_PACK_PANELS * step, last = pf_min(lines, first + PF_PACK_PANELS * step);
    pf_word_t *to = left ? pf_panels(buf[2], batch, pf_height(m), k, k0)
                         : pf_panels(buf[2] + arg[PF_B_AT], batch, pf_width(n), k, k0);
    if (left)
      pf_pack_panels_a(to + first * words, pf_a_at(buf, arg, batch) + first * arg[PF_A_ROW] + k0 * arg[PF_A_COL], last - first, kc,
                       arg[PF_A_ROW], arg[PF_A_COL]);
    else
      pf_pack_panels_b(to + first * words, pf_b_at(buf, arg, batch) + first * arg[PF_B_COL] + k0 * arg[PF_B_ROW], last - first, kc,
                       arg[PF_B_COL], arg[PF_B_ROW]);
  }
}

/* Asks for what the epilogue will write of rows [i, i + rows), from column j on: memory is read before it is written, and
 * that takes longer than an epilogue that comes all at once can hide. */
PF_ALWAYS_INLINE void pf_ask(char *const *buf, const int64_t *arg, int64_t batch, int64_t i, int64_t rows, int64_t j, int64_t cols) {
  const int64_t bytes = arg[PF_OUT_BYTES];
  for (int64_t r = 0; r < rows; r++) {
    const char *out = buf[arg[PF_OUT]] + ((batch * arg[PF_M] + i + r) * arg[PF_N] + j) * bytes;
    for (int64_t at = 0; at < cols * bytes; at += 64) __builtin_prefetch(out + at, 1);
  }
}

/* ---- mul: one iteration is one block of outputs (of one partial sum, if k is split) ---- */

PF_KERNEL(PF_GLUE(PF_NAME, _mul)) {
  const int64_t m = arg[PF_M], n = arg[PF_N], k = arg[PF_K], flags = arg[PF_FLAGS], depth = arg[PF_DEPTH];
  const int64_t row_blocks = pf_div_up(m, arg[PF_ROWS]), col_blocks = pf_div_up(n, arg[PF_COLS]);
  const int64_t a_row = arg[PF_A_ROW], a_col = arg[PF_A_COL], b_row = arg[PF_B_ROW], b_col = arg[PF_B_COL];
  const int split = arg[PF_SPLIT] < k, sums_in_place = (flags & PF_SUMS_IN_PLACE) != 0;
  const int64_t together = b_col == 1 ? arg[PF_COLS] : PF_PACK_PANELS * PF_NR; /* rows are read as far as they go */
  char *scratch = buf[2] + arg[PF_WORKER_AT] + worker * arg[PF_WORKER_BYTES];
  const int64_t a_lines = flags & PF_PACKED_A ? 0 : pf_min(PF_PACK_PANELS * PF_MR, arg[PF_ROWS]);
  pf_word_t *a_local = (pf_word_t *)scratch, *b_local = a_local + a_lines * pf_words(depth);
  const int64_t b_lines = flags & PF_PACKED_B ? 0 : flags & PF_B_IN_PLACE ? PF_NR : arg[PF_COLS];
  PF_ACC_T *block = (PF_ACC_T *)(b_local + b_lines * pf_words(depth));
  pf_kernel_begin();
  for (int64_t task = begin; task < end; task++) {
    /* Neighbouring tasks share B's columns, which are the larger block. */
    const int64_t i0 = task % row_blocks * arg[PF_ROWS], rows = pf_min(arg[PF_ROWS], m - i0);
    const int64_t j0 = task / row_blocks % col_blocks * arg[PF_COLS], cols = pf_min(arg[PF_COLS], n - j0);
    const int64_t batch = task / (row_blocks * col_blocks) % arg[PF_BATCH];
    const int64_t part = task / (row_blocks * col_blocks * arg[PF_BATCH]);
    const int64_t k_first = part * arg[PF_SPLIT], k_end = pf_min(k, k_first + arg[PF_SPLIT]);
    const pf_a_t *a = pf_a_at(buf, arg, batch) + i0 * a_row;
    const pf_b_t *b = pf_b_at(buf, arg, batch) + j0 * b_col;
    const int64_t a_batch = flags & PF_SHARED_A ? 0 : batch, b_batch = flags & PF_SHARED_B ? 0 : batch;

    PF_ACC_T *c = block;
    int64_t ldc = arg[PF_COLS] + PF_SKEW, strip_stride = k > depth ? PF_MR * ldc : 0; /* one k block: reuse one strip */
    if (split) {
      ldc = pf_width(n), strip_stride = PF_MR * ldc;
      c = (PF_ACC_T *)(buf[2] + arg[PF_PARTIAL_AT]) + ((part * arg[PF_BATCH] + batch) * pf_height(m) + i0) * ldc + j0;
    } else if (sums_in_place) {
      ldc = n, strip_stride = PF_MR * n;
      c = (PF_ACC_T *)buf[arg[PF_OUT]] + (batch * m + i0) * n + j0;
    }
    /* Columns from here on are packed: all, or the panel that ends within a vector. */
    const int64_t first = !(flags & PF_B_IN_PLACE) ? 0 : cols % PF_LANES ? cols / PF_NR * PF_NR : cols;
    int64_t k0 = k_first;
    do { /* runs once for k == 0, which gives zeros */
      const int64_t kc = pf_min(depth, k_end - k0), words = pf_words(kc);
      const int last = k0 + kc >= k_end;
      const pf_word_t *b_panels = b_local, *b_rows = (const pf_word_t *)(b + k0 * b_row);
      if (flags & PF_PACKED_B)
        b_panels = pf_panels(buf[2] + arg[PF_B_AT], b_batch, pf_width(n), k, k0) + j0 * words;
      else
        for (int64_t j = first; j < cols; j += together)
          pf_pack_panels_b(b_local + (j - first) * words, b + j * b_col + k0 * b_row, pf_min(together, cols - j), kc, b_col, b_row);
      const pf_word_t *a_panels = pf_panels(buf[2], a_batch, pf_height(m), k, k0) + i0 * words;
      for (int64_t i = 0; i < rows; i += PF_MR) {
        const int64_t count = pf_min(PF_MR, rows - i);
        const pf_word_t *a_panel = a_panels + i * words;
        if (!(flags & PF_PACKED_A)) {
          const int64_t at = i % (PF_PACK_PANELS * PF_MR);
          if (!at)
            pf_pack_panels_a(a_local, a + i * a_row + k0 * a_col, pf_min(PF_PACK_PANELS * PF_MR, rows - i), kc, a_row, a_col);
          a_panel = a_local + at * words;
        }
        PF_ACC_T *strip = c + i / PF_MR * strip_stride;
        const int ask = !split && (sums_in_place ? k0 == k_first : last) && arg[PF_OUT] && words >= 64;
        for (int64_t j = 0; j < cols; j += PF_NR) {
          const int64_t width = pf_min(PF_NR, cols - j);
          if (ask) pf_ask(buf, arg, batch, i0 + i, count, j0 + j, width);
#if !PF_AMX
          if (j < first)
            pf_micro_at(pf_height(count), width, words, a_panel, b_rows + j, b_row, strip + j, ldc, k0 > k_first);
          else
#endif
            pf_micro(pf_height(count), pf_width(width), words, a_panel, b_panels + (j - first) * words, strip + j, ldc, k0 > k_first);
        }
        if (last && !split && !sums_in_place)
          for (int64_t r = 0; r < count; r++) PF_EPILOGUE(buf, arg, uni, batch, i0 + i + r, j0, cols, strip + r * ldc);
      }
      k0 += depth;
    } while (k0 < k_end);
  }
  pf_kernel_end();
}

/* ---- finish: one iteration is one output row; adds the partial sums in their order ---- */

PF_KERNEL(PF_GLUE(PF_NAME, _finish)) {
  (void)worker;
  const int64_t m = arg[PF_M], n = arg[PF_N], ld = pf_width(n), parts = pf_div_up(arg[PF_K], arg[PF_SPLIT]);
  const int64_t part_stride = arg[PF_BATCH] * pf_height(m) * ld;
  enum { chunk = 256 };
  for (int64_t row = begin; row < end; row++) {
    const int64_t batch = row / m, i = row % m;
    const PF_ACC_T *partial = (const PF_ACC_T *)(buf[2] + arg[PF_PARTIAL_AT]) + (batch * pf_height(m) + i) * ld;
    for (int64_t j = 0; j < n; j += chunk) {
      const int64_t cols = pf_min(chunk, n - j);
      PF_ACC_T sum[chunk];
      for (int64_t c = 0; c < cols; c++) sum[c] = partial[j + c];
      for (int64_t part = 1; part < parts; part++)
        for (int64_t c = 0; c < cols; c++) sum[c] += partial[part * part_stride + j + c];
      PF_EPILOGUE(buf, arg, uni, batch, i, j, cols, sum);
    }
  }
}

#else

/* ---- thin: A has PF_THIN rows or B has PF_THIN columns; one iteration is a block of lines of the other operand ---- */

enum {
  PF_THIN_ACCUMULATORS = PF_VECTOR_BYTES == 64 ? 16 : 8,
  PF_THIN_LINES = PF_THIN >= PF_THIN_ACCUMULATORS ? 1 : PF_THIN_ACCUMULATORS / PF_THIN > 4 ? 4 : PF_THIN_ACCUMULATORS / PF_THIN,
};

/* out[t * ld + r] = sum_k line_r[k] * vector_t[k], lines contiguous along k: vectors run along k. */
PF_ALWAYS_INLINE void pf_thin_dots(const int lines, const pf_b_t *line, int64_t stride, int64_t k, const PF_ACC_T *vectors,
                                   PF_ACC_T *out, int64_t ld) {
  pf_vec acc[PF_THIN_LINES][PF_THIN] = {{{0}}};
  int64_t at = 0;
  for (; at + PF_LANES <= k; at += PF_LANES) {
    pf_vec vector[PF_THIN];
#pragma GCC unroll 8
    for (int t = 0; t < PF_THIN; t++) vector[t] = *(const pf_vec *)(vectors + t * k + at);
#pragma GCC unroll 4
    for (int r = 0; r < lines; r++) {
      const pf_vec values = pf_vector_b(line + r * stride + at);
#pragma GCC unroll 8
      for (int t = 0; t < PF_THIN; t++) acc[r][t] += values * vector[t];
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < lines; r++)
#pragma GCC unroll 8
    for (int t = 0; t < PF_THIN; t++) {
      PF_ACC_T sum = 0;
      for (int64_t lane = 0; lane < PF_LANES; lane++) sum += acc[r][t][lane];
      for (int64_t tail = at; tail < k; tail++) sum += PF_LOAD_B(line + r * stride + tail) * vectors[t * k + tail];
      out[t * ld + r] = sum;
    }
}

/* out[t * ld + r] += steps of k, for lines that are neighbours in memory: vectors run across the lines. Several k at
 * a time, so that the sums are loaded and stored rarely and the rows of the matrix stream side by side. */
PF_ALWAYS_INLINE void pf_thin_columns(const int steps, const pf_b_t *line, int64_t lines, int64_t k_stride, int64_t k,
                                      const PF_ACC_T *vectors, PF_ACC_T *out, int64_t ld) {
  for (int64_t r = 0; r + PF_LANES <= lines; r += PF_LANES) {
    pf_vec values[8];
#pragma GCC unroll 8
    for (int s = 0; s < steps; s++) values[s] = pf_vector_b(line + s * k_stride + r);
#pragma GCC unroll 8
    for (int t = 0; t < PF_THIN; t++) {
      pf_vec acc = *(pf_vec *)(out + t * ld + r);
#pragma GCC unroll 8
      for (int s = 0; s < steps; s++) acc += values[s] * vectors[t * k + s];
      *(pf_vec *)(out + t * ld + r) = acc;
    }
  }
}

static void pf_thin_lines(const pf_b_t *line, int64_t lines, int64_t stride, int64_t k_stride, int64_t k,
                          const PF_ACC_T *vectors, PF_ACC_T *out, int64_t ld) {
  int64_t r = 0;
  if (k_stride == 1) {
    for (; r + PF_THIN_LINES <= lines; r += PF_THIN_LINES)
      pf_thin_dots(PF_THIN_LINES, line + r * stride, stride, k, vectors, out + r, ld);
    for (; r < lines; r++) pf_thin_dots(1, line + r * stride, stride, k, vectors, out + r, ld);
  } else if (stride == 1) {
    int64_t at = 0;
    r = lines / PF_LANES * PF_LANES;
    for (int t = 0; t < PF_THIN; t++)
      for (int64_t i = 0; i < r; i++) out[t * ld + i] = 0;
    for (; at + 8 <= k; at += 8) pf_thin_columns(8, line + at * k_stride, r, k_stride, k, vectors + at, out, ld);
    for (; at < k; at++) pf_thin_columns(1, line + at * k_stride, r, k_stride, k, vectors + at, out, ld);
  }
  for (; r < lines; r++)
    for (int t = 0; t < PF_THIN; t++) {
      PF_ACC_T sum = 0;
      for (int64_t at = 0; at < k; at++) sum += PF_LOAD_B(line + r * stride + at * k_stride) * vectors[t * k + at];
      out[t * ld + r] = sum;
    }
}

PF_KERNEL(PF_GLUE(PF_NAME, _thin)) {
  const int64_t m = arg[PF_M], n = arg[PF_N], k = arg[PF_K], block = arg[PF_ROWS];
  const int few_rows = m == PF_THIN;
  const int64_t lines = few_rows ? n : m, blocks = pf_div_up(lines, block);
  const int64_t stride = arg[few_rows ? PF_B_COL : PF_A_ROW], k_stride = arg[few_rows ? PF_B_ROW : PF_A_COL];
  const int64_t thin_stride = arg[few_rows ? PF_A_ROW : PF_B_COL], thin_k_stride = arg[few_rows ? PF_A_COL : PF_B_ROW];
  PF_ACC_T *vectors = (PF_ACC_T *)(buf[2] + arg[PF_WORKER_AT] + worker * arg[PF_WORKER_BYTES]), *out = vectors + PF_THIN * k;
  for (int64_t task = begin; task < end; task++) {
    const int64_t batch = task / blocks, r0 = task % blocks * block, count = pf_min(block, lines - r0);
    const pf_b_t *a = pf_a_at(buf, arg, batch), *b = pf_b_at(buf, arg, batch);
    const pf_b_t *few = few_rows ? a : b, *line = (few_rows ? b : a) + r0 * stride;
    for (int64_t t = 0; t < PF_THIN; t++)
      for (int64_t at = 0; at < k; at++) vectors[t * k + at] = PF_LOAD_B(few + t * thin_stride + at * thin_k_stride);
    pf_thin_lines(line, count, stride, k_stride, k, vectors, out, block);
    if (few_rows)
      for (int64_t t = 0; t < PF_THIN; t++) PF_EPILOGUE(buf, arg, uni, batch, t, r0, count, out + t * block);
    else
      for (int64_t r = 0; r < count; r++) {
        PF_ACC_T row[PF_THIN];
        for (int64_t t = 0; t < PF_THIN; t++) row[t] = out[t * block + r];
        PF_EPILOGUE(buf, arg, uni, batch, r0 + r, 0, PF_THIN, row);
      }
  }
}

#endif

/* ---- the tile permission of AMX builds, asked for once per process; 0: granted or not needed ---- */

int64_t PF_GLUE(PF_NAME, _permit)(void) { return pf_kernel_permit(); }
