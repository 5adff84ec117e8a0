/* A convolution with few outputs and a long reduction, as the gradient of a weight is (conv.c includes this).
 *
 *   sums[p][n][o] = sum_{c, k} x[n, c, (p * stride + k * rhs_dilation - pad_lo) / lhs_dilation] * w[o, c, k]
 *
 * For each output pixel that is a matrix product over (c, k) of x by w. Packed form, in the accumulator's type:
 *   x planes: [image panel][unit][p0][position 1][position 2][PF_HIGH images], zeros where positions lie outside of x;
 *             another p or k is another position, so one plane serves all of them without a copy.
 *   w panels: [output panel][unit][k1][k2][PF_NR outputs], the last panel rounded up to whole vectors with zeros.
 * A unit is (c, k0) and up to PF_DEEP x PF_LONG taps; arg[PF_DEPTH] units are packed at a time. A w panel stays in L1
 * while all panels of x and all pixels meet it, sums in L2. Where output pixels are neighbours in the plane and panels
 * are low, several of them are rows of one block.
 *
 * 2*N*O*C*|P|*|K| flops. A task reads each of its elements of x and w about once from memory. A number of partial sums
 * that follows from the shape; `finish` adds them in order, so threads do not change the result.
 */
enum { PF_BATCH_ROWS = PF_AVX512 ? 14 : PF_ARM ? 12 : 6 };

/* What a block of sums runs over: `units` of `lines` of `steps` k, and distances in x's plane. */
typedef struct {
  int64_t units, lines, steps, a_unit, a_line, a_step;
} pf_batch_walk;

/* sums[r][o] (+)= x plane by w panel. */
PF_ALWAYS_INLINE void pf_batch_block(const int rows, const int vecs, const pf_batch_walk *walk, const PF_ACC_T *a,
                                     const PF_ACC_T *b, PF_ACC_T *sums, int64_t ld, int resume) {
  pf_vec acc[PF_BATCH_ROWS][PF_NV];
#pragma GCC unroll 16
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
    for (int v = 0; v < vecs; v++) acc[r][v] = resume ? *(pf_vec *)(sums + r * ld + v * PF_LANES) : (pf_vec){0};
  for (int64_t unit = 0; unit < walk->units; unit++)
    for (int64_t line = 0; line < walk->lines; line++) {
      const PF_ACC_T *at = a + unit * walk->a_unit + line * walk->a_line;
      for (int64_t step = walk->steps; step > 0; step--, at += walk->a_step, b += vecs * PF_LANES) pf_vector_step(rows, vecs, at, b, acc);
    }
#pragma GCC unroll 16
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
    for (int v = 0; v < vecs; v++) *(pf_vec *)(sums + r * ld + v * PF_LANES) = acc[r][v];
}

static void pf_batch_rows(int64_t rows, int64_t width, const pf_batch_walk *walk, const PF_ACC_T *a, const PF_ACC_T *b,
                          PF_ACC_T *sums, int64_t ld, int resume) {
#define PF_ROWS_CASE(n)                                                                                        \
  case n:                                                                                                      \
    if (width > PF_LANES)                                                                                      \
      pf_batch_block(n, 2, walk, a, b, sums, ld, resume);                                                      \
    else                                                                                                       \
      pf_batch_block(n, 1, walk, a, b, sums, ld, resume);                                                      \
    break;
  switch (rows) {
    PF_ROWS_CASE(1) PF_ROWS_CASE(2) PF_ROWS_CASE(3) PF_ROWS_CASE(4) PF_ROWS_CASE(5) PF_ROWS_CASE(6)
#if PF_AVX512 || PF_ARM
    PF_ROWS_CASE(7) PF_ROWS_CASE(8) PF_ROWS_CASE(9) PF_ROWS_CASE(10) PF_ROWS_CASE(11) PF_ROWS_CASE(12)
#endif
#if PF_AVX512
    PF_ROWS_CASE(13) PF_ROWS_CASE(14)
#endif
  }
#undef PF_ROWS_CASE
}

/* dst[i * width + r] = element i of line r; lines are `stride` apart. */
static void pf_turn_lines(PF_ACC_T *dst, int64_t width, const PF_ACC_T *src, int64_t stride, int64_t lines, int64_t count) {
  if (sizeof(PF_ACC_T) == 4 && lines >= 4 && count >= 4) {
    pf_transpose((uint32_t *)dst, width, (const char *)src, stride * (int64_t)sizeof(PF_ACC_T), lines, count);
    return;
  }
  for (int64_t i = 0; i < count; i++)
    for (int64_t r = 0; r < lines; r++) dst[i * width + r] = src[r * stride + i];
}

/* One plane of `images` images: dst[v1][v2][image] = element at (u[0], u[1] + v1, u[2] + v2), v below `extent`.
 * `lines` is room for a converted line of each image and, behind that, for a raw one. */
static void pf_batch_plane(PF_ACC_T *dst, int64_t images, const pf_b_t *x, const int64_t *arg, const int64_t u[3],
                           const int64_t extent[2], PF_ACC_T *lines) {
  const int64_t count = extent[1], i0 = pf_source(u[0], arg[PF_LHS], arg[PF_IN]);
  const int direct = PF_B_PLAIN && arg[PF_LHS + 2] == 1 && arg[PF_X_S + 2] == 1;
  const int64_t low = direct ? pf_min(count, pf_max(0, -u[2])) : 0;
  const int64_t high = direct ? pf_max(low, pf_min(count, arg[PF_IN + 2] - u[2])) : count;
  for (int64_t v1 = 0; v1 < extent[0]; v1++, dst += count * images) {
    const int64_t i1 = pf_source(u[1] + v1, arg[PF_LHS + 1], arg[PF_IN + 1]);
    if (i0 < 0 || i1 < 0) {
      for (int64_t i = 0; i < count * images; i++) dst[i] = 0;
      continue;
    }
    const pf_b_t *line = x + i0 * arg[PF_X_S] + i1 * arg[PF_X_S + 1];
    if (direct) {
      for (int64_t i = 0; i < low * images; i++) dst[i] = 0;
      for (int64_t i = high * images; i < count * images; i++) dst[i] = 0;
      pf_turn_lines(dst + low * images, images, (const PF_ACC_T *)line + u[2] + low, arg[PF_X_N], images, high - low);
      continue;
    }
    pf_b_t *raw = (pf_b_t *)(lines + images * count);
    for (int64_t n = 0; n < images; n++) {
      pf_read_line(raw, line + n * arg[PF_X_N], count, u[2], 1, arg[PF_LHS + 2], arg[PF_IN + 2], arg[PF_X_S + 2]);
      for (int64_t i = 0; i < count; i++) lines[n * count + i] = PF_LOAD_B(raw + i);
    }
    pf_turn_lines(dst, images, lines, count, images, count);
  }
}

/* One panel of w: dst[k1][k2][width], for `deep` x `wide` taps of `count` outputs. `lines`: room for `wide` numbers of each. */
static void pf_batch_panel(PF_ACC_T *dst, const pf_a_t *w, const int64_t *arg, int64_t count, int64_t deep, int64_t wide, PF_ACC_T *lines) {
  const int64_t width = pf_width(count), step = arg[PF_W_K + 2];
  const int plain = __builtin_types_compatible_p(pf_a_t, PF_ACC_T) && step == 1;
  if (plain && arg[PF_W_K + 1] == wide) wide *= deep, deep = 1; /* all taps are one line */
  if (count < width)
    for (int64_t i = 0; i < deep * wide; i++)
      for (int64_t o = count; o < width; o++) dst[i * width + o] = 0;
  for (int64_t k1 = 0; k1 < deep; k1++, dst += wide * width, w += arg[PF_W_K + 1]) {
    if (plain) {
      pf_turn_lines(dst, width, (const PF_ACC_T *)w, arg[PF_W_O], count, wide);
      continue;
    }
    for (int64_t o = 0; o < count; o++)
      for (int64_t i = 0; i < wide; i++) lines[o * wide + i] = PF_LOAD_A(w + o * arg[PF_W_O] + i * step);
    pf_turn_lines(dst, width, lines, wide, count, wide);
  }
}

/* ---- batch: one iteration is a block of images x outputs of one partial sum of one group ---- */

/* A task's block, and how it is packed. */
typedef struct {
  int64_t g, n0, images, o0, outputs, high;
  int64_t extent[2], plane, x_unit, x_panel, w_panel; /* positions of a plane; distances in x planes and w panels */
  PF_ACC_T *x_planes, *w_panels, *lines;
} pf_batch_task;

/* Taps of the chunk that a unit is in: how many, and which are the first. */
typedef struct {
  int64_t k1, k2, deep, wide;
} pf_batch_taps;

static pf_batch_taps pf_taps_of(const int64_t *arg, int64_t unit) {
  const int64_t *taps = arg + PF_TAPS, across = pf_div_up(taps[2], arg[PF_LONG]);
  const int64_t chunk = unit / (arg[PF_C] * taps[0]);
  pf_batch_taps at = {chunk / across * arg[PF_DEEP], chunk % across * arg[PF_LONG], 0, 0};
  at.deep = pf_min(arg[PF_DEEP], taps[1] - at.k1), at.wide = pf_min(arg[PF_LONG], taps[2] - at.k2);
  return at;
}

static void pf_batch_pack(const pf_batch_task *task, char *const *buf, const int64_t *arg, int64_t first, int64_t units,
                          const pf_batch_taps *taps) {
  const int64_t *stride = arg + PF_STRIDE, *rhs = arg + PF_RHS, *pad = arg + PF_PAD, words = taps->deep * taps->wide;
  for (int64_t i = 0; i < units; i++) {
    const int64_t unit = (first + i) % (arg[PF_C] * arg[PF_TAPS]), c = unit / arg[PF_TAPS], k0 = unit % arg[PF_TAPS];
    const pf_b_t *x = pf_x_at(buf, arg, task->n0, task->g, c);
    for (int64_t n = 0; n < task->images; n += task->high)
      for (int64_t p0 = 0; p0 < arg[PF_OUT]; p0++) {
        const int64_t u[3] = {p0 * stride[0] + k0 * rhs[0] - pad[0], taps->k1 * rhs[1] - pad[1], taps->k2 * rhs[2] - pad[2]};
        pf_batch_plane(task->x_planes + n / task->high * task->x_panel + i * task->x_unit + p0 * task->plane,
                       pf_min(task->high, task->images - n), x + n * arg[PF_X_N], arg, u, task->extent, task->lines);
      }
    const pf_a_t *w = pf_w_at(buf, arg, task->g, task->o0, c) + k0 * arg[PF_W_K] + taps->k1 * arg[PF_W_K + 1] + taps->k2 * arg[PF_W_K + 2];
    for (int64_t o = 0; o < task->outputs; o += PF_NR) {
      const int64_t count = pf_min(PF_NR, task->outputs - o);
      pf_batch_panel(task->w_panels + o / PF_NR * task->w_panel + i * words * pf_width(count), w + o * arg[PF_W_O], arg, count,
                     taps->deep, taps->wide, task->lines);
    }
  }
}

/* Adds the packed units to the sums of the task's block. */
static void pf_batch_multiply(const pf_batch_task *task, const int64_t *arg, int64_t units, const pf_batch_taps *taps,
                              PF_ACC_T *sums, int resume) {
  const int64_t *out = arg + PF_OUT, *stride = arg + PF_STRIDE, *rhs = arg + PF_RHS, ld = arg[PF_COLS];
  for (int64_t o = 0; o < task->outputs; o += PF_NR) {
    const PF_ACC_T *w = task->w_panels + o / PF_NR * task->w_panel;
    const int64_t width = pf_width(pf_min(PF_NR, task->outputs - o));
    PF_ACC_T *to = sums + o;
    for (int64_t n = 0; n < task->images; n += task->high) {
      const int64_t high = pf_min(task->high, task->images - n), pitch = task->extent[1] * high;
      const pf_batch_walk walk = {units, taps->deep, taps->wide, task->x_unit, rhs[1] * pitch, rhs[2] * high};
      const int64_t most = stride[2] == 1 ? PF_BATCH_ROWS / high : 1; /* pixels whose rows lie one behind the other */
      const PF_ACC_T *x = task->x_planes + n / task->high * task->x_panel;
      for (int64_t p0 = 0; p0 < out[0]; p0++)
        for (int64_t p1 = 0; p1 < out[1]; p1++)
          for (int64_t p2 = 0, here; p2 < out[2]; p2 += here, to += here * high * ld) {
            here = pf_min(most, out[2] - p2);
            const PF_ACC_T *at = x + p0 * task->plane + p1 * stride[1] * pitch + p2 * stride[2] * high;
            pf_batch_rows(here * high, width, &walk, at, w, to, ld, resume);
          }
    }
  }
}

PF_KERNEL(PF_GLUE(PF_NAME, _batch)) {
  (void)uni;
  const int64_t *out = arg + PF_OUT, *taps = arg + PF_TAPS, *stride = arg + PF_STRIDE, *rhs = arg + PF_RHS;
  const int64_t row_blocks = pf_div_up(arg[PF_N], arg[PF_ROWS]), col_blocks = pf_div_up(arg[PF_O], arg[PF_COLS]), parts = arg[PF_PARTS];
  const int64_t chunks = pf_div_up(taps[1], arg[PF_DEEP]) * pf_div_up(taps[2], arg[PF_LONG]), units = chunks * arg[PF_C] * taps[0];
  pf_batch_task task = {.high = arg[PF_HIGH], .w_panel = arg[PF_DEPTH] * arg[PF_DEEP] * arg[PF_LONG] * PF_NR};
  task.extent[0] = (out[1] - 1) * stride[1] + (arg[PF_DEEP] - 1) * rhs[1] + 1;
  task.extent[1] = (out[2] - 1) * stride[2] + (arg[PF_LONG] - 1) * rhs[2] + 1;
  task.plane = task.extent[0] * task.extent[1] * task.high;
  task.x_unit = out[0] * task.plane, task.x_panel = arg[PF_DEPTH] * task.x_unit;
  task.x_planes = (PF_ACC_T *)(buf[2] + arg[PF_WORKER_AT] + worker * arg[PF_WORKER_BYTES]);
  task.w_panels = task.x_planes + arg[PF_ROWS] / task.high * task.x_panel;
  task.lines = task.w_panels + arg[PF_COLS] / PF_NR * task.w_panel;
  for (int64_t item = begin; item < end; item++) {
    const int64_t part = item / (row_blocks * col_blocks) % parts, end_unit = units * (part + 1) / parts;
    task.n0 = item % row_blocks * arg[PF_ROWS], task.images = pf_min(arg[PF_ROWS], arg[PF_N] - task.n0);
    task.o0 = item / row_blocks % col_blocks * arg[PF_COLS], task.outputs = pf_min(arg[PF_COLS], arg[PF_O] - task.o0);
    task.g = item / (row_blocks * col_blocks * parts);
    PF_ACC_T *sums = (PF_ACC_T *)buf[2] + item * arg[PF_ROWS] * pf_volume(out) * arg[PF_COLS];
    int64_t first = units * part / parts;
    for (int64_t here, resume = 0; first < end_unit; first += here, resume = 1) {
      const pf_batch_taps at = pf_taps_of(arg, first);
      const int64_t of_chunk = arg[PF_C] * taps[0] - first % (arg[PF_C] * taps[0]);
      here = pf_min(arg[PF_DEPTH], pf_min(end_unit - first, of_chunk));
      pf_batch_pack(&task, buf, arg, first, here, &at);
      pf_batch_multiply(&task, arg, here, &at, sums, resume != 0);
    }
  }
}

/* ---- finish: one iteration is one image and group of one block of outputs: adds the partial sums, in order ---- */

PF_KERNEL(PF_GLUE(PF_NAME, _finish)) {
  (void)worker;
  enum { chunk = 64 };
  const int64_t pixels = pf_volume(arg + PF_OUT), parts = arg[PF_PARTS], high = arg[PF_HIGH], ld = arg[PF_COLS];
  const int64_t row_blocks = pf_div_up(arg[PF_N], arg[PF_ROWS]), col_blocks = pf_div_up(arg[PF_O], ld), block = arg[PF_ROWS] * pixels * ld;
  for (int64_t item = begin; item < end; item++) {
    const int64_t n = item % arg[PF_N], col_block = item / arg[PF_N] % col_blocks, g = item / (arg[PF_N] * col_blocks);
    const int64_t within = n % arg[PF_ROWS], panel = within / high * high;
    const int64_t rows = pf_min(high, pf_min(arg[PF_ROWS] - panel, arg[PF_N] - (n - within) - panel)); /* of its panel */
    const PF_ACC_T *sums = (const PF_ACC_T *)buf[2] + ((g * parts * col_blocks + col_block) * row_blocks + n / arg[PF_ROWS]) * block +
                           (panel * pixels + within % high) * ld;
    const int64_t outputs = pf_min(ld, arg[PF_O] - col_block * ld);
    for (int64_t o = 0; o < outputs; o += PF_LANES)
      for (int64_t p0 = 0; p0 < pixels; p0 += chunk) {
        const int64_t count = pf_min(chunk, pixels - p0);
        PF_ACC_T total[PF_LANES][chunk];
        for (int64_t p = 0; p < count; p++) {
          const PF_ACC_T *sum = sums + (p0 + p) * rows * ld + o;
          pf_vec lanes = *(const pf_vec *)sum;
          for (int64_t part = 1; part < parts; part++) lanes += *(const pf_vec *)(sum + part * row_blocks * col_blocks * block);
          for (int64_t lane = 0; lane < PF_LANES; lane++) total[lane][p] = lanes[lane];
        }
        for (int64_t lane = 0; lane < pf_min(PF_LANES, outputs - o); lane++)
          PF_EPILOGUE(buf, arg, uni, n * arg[PF_G] + g, col_block * ld + o + lane, p0, count, total[lane]);
      }
  }
}
