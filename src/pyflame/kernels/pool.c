/* Pooling over windows of up to three axes, and its gradient.
 *
 *   PF_MAX           out[p] = max of x over window p; NaN wins
 *   PF_INDICES       out[p] = position in its plane of that maximum: the first one, or the last NaN, as torch has it
 *   PF_MAX_BACKWARD  out = 0; out[position of window p's maximum] += g[p]
 *   PF_AVG           out[p] = sum of x over window p / count of p
 *   PF_AVG_BACKWARD  out = 0; out[every s of window p] += g[p] / count of p
 *
 * Windows are boxes, so both reductions go axis by axis: first the rows of a window are combined element by element into
 * one line, with vectors running along memory, then each output combines its stretch of the line. The line has room for
 * the padding on both sides, filled with what changes nothing, so no window needs a test at the edges. Where windows tile
 * the last axis, the lines of PF_ROWS rows of outputs follow one another and are combined as one. The gradients take the
 * same two steps the other way round. Where squares of 2 x 2 tile a plane, its gradient is written while it is read.
 *
 * Bytes: x, g and out once from memory; a row that several windows share comes from the cache after the first. Forward
 * tasks are rows of outputs, gradients are cut by planes, since windows may overlap.
 *
 * Before including this file define PF_NAME, PF_MODE, PF_T (storage), PF_ACC_T (what it is computed in), PF_LOAD(x),
 * PF_STORE(v), PF_LOWEST and PF_DIRECT (1 where PF_T is PF_ACC_T).
 */
#define PF_MAX 0
#define PF_INDICES 1
#define PF_MAX_BACKWARD 2
#define PF_AVG 3
#define PF_AVG_BACKWARD 4
#define PF_ARGMAX (PF_MODE == PF_INDICES || PF_MODE == PF_MAX_BACKWARD)
#define PF_BACKWARD (PF_MODE == PF_MAX_BACKWARD || PF_MODE == PF_AVG_BACKWARD)
#define PF_SUM (PF_MODE == PF_AVG || PF_MODE == PF_AVG_BACKWARD)
#define PF_INLINE static inline __attribute__((always_inline))

enum {
  PF_SIZE, PF_OUT = PF_SIZE + 3, PF_STEP = PF_OUT + 3, /* extents of x and out; distance of a window's elements */
  PF_TAPS = PF_STEP + 3, PF_STRIDE = PF_TAPS + 3,      /* PF_TAPS 0: windows of different lengths that share the axis */
  PF_PAD = PF_STRIDE + 3,
  PF_COUNTED = PF_PAD + 3,                             /* whether a mean's padding counts */
  PF_DIVISOR,                                          /* 0: the count of the window */
  PF_WIDTH, PF_ROWS, PF_WORKER_BYTES,
  PF_SQUARES /* whether windows of 2 x 2 tile planes */
};

typedef struct {
  int64_t first, end, count;
} pf_window;

typedef struct {
  pf_window *windows[3];        /* of every axis, for every output */
  PF_ACC_T *line, *row, *plane; /* the padded line, a row of outputs, the sums of a gradient */
  int32_t *line_at, *row_at;    /* positions in the plane of the maxima in line and row */
} pf_room;

#define PF_NOWHERE INT32_MAX

PF_INLINE int64_t pf_at_most(int64_t n, int64_t limit) { return n < limit ? n : limit; }

/* Window p along an axis, as Window.spans in core/window.py says. */
static pf_window pf_window_of(const int64_t *arg, int axis, int64_t p) {
  const int64_t size = arg[PF_SIZE + axis], out = arg[PF_OUT + axis], step = arg[PF_STEP + axis];
  const int64_t taps = arg[PF_TAPS + axis], pad = arg[PF_PAD + axis], start = p * arg[PF_STRIDE + axis] - pad;
  if (!taps) {
    const int64_t first = p * size / out, end = ((p + 1) * size + out - 1) / out;
    return (pf_window){first, end, end - first};
  }
  const int64_t first = start >= 0 ? start : start + (step - 1 - start) / step * step;
  const int64_t end = pf_at_most(start + (taps - 1) * step + 1, size);
  return (pf_window){first, end, arg[PF_COUNTED] ? pf_at_most(start + taps, size + pad) - start : end - first};
}

static pf_room pf_make_room(char *scratch, const int64_t *arg, int64_t worker) {
  pf_room room;
  pf_window *next = (pf_window *)(scratch + worker * arg[PF_WORKER_BYTES]);
  for (int axis = 0; axis < 3; next += arg[PF_OUT + axis++]) {
    room.windows[axis] = next;
    for (int64_t p = 0; p < arg[PF_OUT + axis]; p++) next[p] = pf_window_of(arg, axis, p);
  }
  room.line = (PF_ACC_T *)next;
  room.row = room.line + arg[PF_WIDTH];
  room.plane = room.row + arg[PF_ROWS] * arg[PF_OUT + 2];
  room.line_at = (int32_t *)(room.plane + (PF_BACKWARD && !PF_DIRECT ? arg[PF_SIZE] * arg[PF_SIZE + 1] * arg[PF_SIZE + 2] : 0));
  room.row_at = room.line_at + arg[PF_WIDTH];
  for (int64_t i = 0; i < arg[PF_WIDTH]; i++) {
    room.line[i] = PF_SUM ? 0 : PF_LOWEST;
    if (PF_ARGMAX) room.line_at[i] = PF_NOWHERE;
  }
  return room;
}

PF_INLINE int pf_is_nan(PF_ACC_T v) { return v != v; }

#if PF_MODE != PF_AVG_BACKWARD

/* Combine the rows of window (p0, p1) into the line, or its part for that row of outputs. */
PF_INLINE void pf_take_rows(const pf_room *room, const int64_t *arg, const PF_T *x, int64_t p0, int64_t p1, int64_t part) {
  const pf_window w0 = room->windows[0][p0], w1 = room->windows[1][p1];
  const int64_t n = arg[PF_SIZE + 2];
  PF_ACC_T *restrict line = room->line + arg[PF_PAD + 2] + part * n;
  int32_t *restrict at = room->line_at + arg[PF_PAD + 2] + part * n;
  int begun = 0;
  for (int64_t s0 = w0.first; s0 < w0.end; s0 += arg[PF_STEP])
    for (int64_t s1 = w1.first; s1 < w1.end; s1 += arg[PF_STEP + 1], begun = 1) {
      const int64_t base = (s0 * arg[PF_SIZE + 1] + s1) * n;
      const PF_T *restrict from = x + base;
      if (!begun) {
        for (int64_t i = 0; i < n; i++) line[i] = PF_LOAD(from[i]);
#if PF_ARGMAX
        for (int64_t i = 0; i < n; i++) at[i] = (int32_t)(base + i);
#endif
        continue;
      }
      for (int64_t i = 0; i < n; i++) {
        const PF_ACC_T v = PF_LOAD(from[i]);
#if PF_SUM
        line[i] += v;
#elif PF_ARGMAX
        const int take = v > line[i] || pf_is_nan(v);
        line[i] = take ? v : line[i];
        at[i] = take ? (int32_t)(base + i) : at[i];
#else
        line[i] = pf_max(line[i], v);
#endif
      }
    }
}

/* One more element of each window: the maximum found first in row-major order is the one at the lowest position. */
PF_INLINE void pf_take_one(const pf_room *room, int64_t p, int64_t from) {
  const PF_ACC_T v = room->line[from];
#if PF_SUM
  room->row[p] += v;
#elif PF_ARGMAX
  const PF_ACC_T best = room->row[p];
  const int32_t i = room->line_at[from], have = room->row_at[p];
  const int nan = pf_is_nan(v) & (!pf_is_nan(best) | (i > have)), greater = (v > best) | ((v == best) & (i < have));
  room->row[p] = nan | greater ? v : best;
  room->row_at[p] = nan | greater ? i : have;
#else
  room->row[p] = pf_max(room->row[p], v);
#endif
}

PF_INLINE void pf_take_taps(const pf_room *room, const int64_t *arg, int64_t n, const int64_t stride) {
  const pf_room r = *room;
#pragma GCC ivdep
  for (int64_t p = 0; p < n; p++) {
    r.row[p] = r.line[p * stride];
    if (PF_ARGMAX) r.row_at[p] = r.line_at[p * stride];
  }
  for (int64_t tap = 1; tap < arg[PF_TAPS + 2]; tap++) {
    const int64_t shift = tap * arg[PF_STEP + 2];
#pragma GCC ivdep
    for (int64_t p = 0; p < n; p++) pf_take_one(&r, p, shift + p * stride);
  }
}

/* Combine each output's stretch of the line into `n` outputs, of one row or of several. */
PF_INLINE void pf_take_line(const pf_room *room, const int64_t *arg, int64_t n) {
  if (!arg[PF_TAPS + 2]) {
    for (int64_t p = 0; p < n; p++) {
      const pf_window w = room->windows[2][p];
      room->row[p] = PF_SUM ? 0 : PF_LOWEST;
      if (PF_ARGMAX) room->row_at[p] = PF_NOWHERE;
      for (int64_t s = w.first; s < w.end; s += arg[PF_STEP + 2]) pf_take_one(room, p, s);
    }
  } else if (arg[PF_STRIDE + 2] == 1)
    pf_take_taps(room, arg, n, 1);
  else if (arg[PF_STRIDE + 2] == 2)
    pf_take_taps(room, arg, n, 2);
  else
    pf_take_taps(room, arg, n, arg[PF_STRIDE + 2]);
}

#endif

#if PF_MODE == PF_MAX_BACKWARD

/* The gradient of `n` squares of 2 x 2 side by side, in two lines. */
PF_INLINE void pf_give_squares(PF_T *restrict to, const PF_T *restrict x, const PF_T *restrict g, int64_t n) {
  const int64_t line = 2 * n;
#pragma GCC ivdep
  for (int64_t p = 0; p < n; p++) {
    PF_ACC_T best = PF_LOAD(x[2 * p]);
    int32_t at = 0;
    for (int k = 1; k < 4; k++) {
      const PF_ACC_T v = PF_LOAD(x[k / 2 * line + 2 * p + k % 2]);
      const int take = (v > best) | pf_is_nan(v);
      best = take ? v : best;
      at = take ? k : at;
    }
    for (int k = 0; k < 4; k++) to[k / 2 * line + 2 * p + k % 2] = at == k ? g[p] : 0;
  }
}

#endif

#if PF_SUM

/* row[p] /= count of window (p0, p1, p) */
PF_INLINE void pf_divide(const pf_room *room, PF_ACC_T *row, const int64_t *arg, int64_t p0, int64_t p1) {
  const int64_t outer = room->windows[0][p0].count * room->windows[1][p1].count;
  const pf_window *w2 = room->windows[2];
  const PF_ACC_T given = (PF_ACC_T)arg[PF_DIVISOR];
  for (int64_t p = 0; p < arg[PF_OUT + 2]; p++) row[p] /= arg[PF_DIVISOR] ? given : (PF_ACC_T)(outer * w2[p].count);
}

#endif

#if PF_MODE == PF_AVG_BACKWARD

PF_INLINE void pf_give_taps(const pf_room *room, const int64_t *arg, const int64_t stride) {
  const PF_ACC_T *restrict row = room->row;
  for (int64_t tap = 0; tap < arg[PF_TAPS + 2]; tap++) {
    PF_ACC_T *restrict line = room->line + tap * arg[PF_STEP + 2];
    for (int64_t p = 0; p < arg[PF_OUT + 2]; p++) line[p * stride] += row[p];
  }
}

/* Spread the row over the line, then the line over the rows of window (p0, p1). */
PF_INLINE void pf_give(const pf_room *room, const int64_t *arg, PF_ACC_T *plane, int64_t p0, int64_t p1) {
  const int64_t n = arg[PF_SIZE + 2];
  for (int64_t i = 0; i < arg[PF_WIDTH]; i++) room->line[i] = 0;
  if (!arg[PF_TAPS + 2]) {
    for (int64_t p = 0; p < arg[PF_OUT + 2]; p++) {
      const pf_window w = room->windows[2][p];
      for (int64_t s = w.first; s < w.end; s++) room->line[s] += room->row[p];
    }
  } else if (arg[PF_STRIDE + 2] == 1)
    pf_give_taps(room, arg, 1);
  else if (arg[PF_STRIDE + 2] == 2)
    pf_give_taps(room, arg, 2);
  else
    pf_give_taps(room, arg, arg[PF_STRIDE + 2]);
  const pf_window w0 = room->windows[0][p0], w1 = room->windows[1][p1];
  const PF_ACC_T *restrict line = room->line + arg[PF_PAD + 2];
  for (int64_t s0 = w0.first; s0 < w0.end; s0++)
    for (int64_t s1 = w1.first; s1 < w1.end; s1++) {
      PF_ACC_T *restrict to = plane + (s0 * arg[PF_SIZE + 1] + s1) * n;
      for (int64_t i = 0; i < n; i++) to[i] += line[i];
    }
}

#endif

#if !PF_BACKWARD

/* One iteration is one row of outputs. */
PF_KERNEL(PF_NAME) {
  (void)uni;
  const pf_room room = pf_make_room(buf[2], arg, worker);
  const int64_t *size = arg + PF_SIZE, *out = arg + PF_OUT;
  for (int64_t task = begin, rows; task < end; task += rows) {
    const int64_t p1 = task % out[1], p0 = task / out[1] % out[0], plane = task / (out[1] * out[0]);
    const PF_T *x = (const PF_T *)buf[0] + plane * size[0] * size[1] * size[2];
    rows = pf_at_most(arg[PF_ROWS], pf_at_most(out[1] - p1, end - task));
    const int64_t n = rows * out[2];
    for (int64_t r = 0; r < rows; r++) pf_take_rows(&room, arg, x, p0, p1 + r, r);
    pf_take_line(&room, arg, n);
#if PF_MODE == PF_INDICES
    int64_t *to = (int64_t *)buf[1] + task * out[2];
    for (int64_t p = 0; p < n; p++) to[p] = room.row_at[p];
#else
#if PF_MODE == PF_AVG
    for (int64_t r = 0; r < rows; r++) pf_divide(&room, room.row + r * out[2], arg, p0, p1 + r);
#endif
    PF_T *to = (PF_T *)buf[1] + task * out[2];
    for (int64_t p = 0; p < n; p++) to[p] = PF_STORE(room.row[p]);
#endif
  }
}

#else

/* One iteration is one plane. Buffers: g, x where maxima are looked for, out. */
PF_KERNEL(PF_NAME) {
  (void)uni;
  enum { out_buffer = PF_MODE == PF_MAX_BACKWARD ? 2 : 1 };
  const pf_room room = pf_make_room(buf[out_buffer + 1], arg, worker);
  const int64_t *size = arg + PF_SIZE, *out = arg + PF_OUT, volume = size[0] * size[1] * size[2];
  for (int64_t plane = begin; plane < end; plane++) {
    PF_T *to = (PF_T *)buf[out_buffer] + plane * volume;
    PF_ACC_T *sums = PF_DIRECT ? (PF_ACC_T *)to : room.plane;
    const PF_T *g = (const PF_T *)buf[0] + plane * out[0] * out[1] * out[2];
#if PF_MODE == PF_MAX_BACKWARD
    const PF_T *x = (const PF_T *)buf[1] + plane * volume;
    for (int64_t row = 0; row < out[0] * out[1] && arg[PF_SQUARES]; row++)
      pf_give_squares(to + 4 * row * out[2], x + 4 * row * out[2], g + row * out[2], out[2]);
    if (arg[PF_SQUARES]) continue;
#endif
    for (int64_t i = 0; i < volume; i++) sums[i] = 0;
    for (int64_t p0 = 0; p0 < out[0]; p0++)
      for (int64_t p1 = 0, rows; p1 < out[1]; p1 += rows, g += rows * out[2]) {
#if PF_MODE == PF_MAX_BACKWARD
        rows = pf_at_most(arg[PF_ROWS], out[1] - p1);
        for (int64_t r = 0; r < rows; r++) pf_take_rows(&room, arg, x, p0, p1 + r, r);
        pf_take_line(&room, arg, rows * out[2]);
        for (int64_t p = 0; p < rows * out[2]; p++) sums[room.row_at[p]] += PF_LOAD(g[p]);
#else
        rows = 1;
        for (int64_t p = 0; p < out[2]; p++) room.row[p] = PF_LOAD(g[p]);
        pf_divide(&room, room.row, arg, p0, p1);
        pf_give(&room, arg, sums, p0, p1);
#endif
      }
    if (!PF_DIRECT)
      for (int64_t i = 0; i < volume; i++) to[i] = PF_STORE(sums[i]);
  }
}

#endif
