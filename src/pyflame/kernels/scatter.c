/* Writes at computed positions:
 *
 *   base[f(o)] = base[f(o)] op values[o]   for every o of the index space
 *
 * f(o) adds up the steps of o's coordinates and, for each indexed axis, index * stride. Coordinates are either columns
 * (a free axis of the base: different columns never meet) or rows (several rows may hit one element). Rows run in
 * row-major order inside one task, so the last write wins and sums do not depend on the number of threads. Tasks are
 * blocks of columns or, where columns are few, parts of the indexed range: then each task scans all rows and keeps its own.
 *
 * Bytes: every index and value once (once per part), every element that is hit once to read and once to write.
 *
 * PF_T, PF_R, PF_LOAD, PF_STORE: stored type of the base, the type it is computed in, and the way between them;
 * PF_VALUE_T, PF_VALUE: the same for values; PF_OP(a, b): what is stored; PF_INDICES: number of index buffers.
 * PF_NAME, PF_CHECK_NAME: the functions. Buffers: base, values, indices. An axis of the nest is its extent and its steps in base, values and each index buffer.
 */
#define PF_STREAMS (2 + PF_INDICES)
#define PF_AXIS (1 + PF_STREAMS)
enum { MAX_RANK = 64, BLOCK = 256 };

enum { CHECK, ROWS_OUTSIDE, PARTS, LOWEST, REACH, ROWS, COLUMNS, ROW_RANK, COLUMN_RANK, OFFSET, CHECKED, INDEXED };

typedef struct {
  int64_t rank;
  const int64_t *axis;
  int64_t at[PF_STREAMS];
  int64_t coordinate[MAX_RANK];
} pf_walk;

static void pf_seek(pf_walk *w, int64_t flat) {
  for (int64_t s = 0; s < PF_STREAMS; s++) w->at[s] = 0;
  for (int64_t d = w->rank - 1; d >= 0; d--) {
    const int64_t *axis = w->axis + d * PF_AXIS;
    w->coordinate[d] = flat % axis[0];
    flat /= axis[0];
    for (int64_t s = 0; s < PF_STREAMS; s++) w->at[s] += w->coordinate[d] * axis[1 + s];
  }
}

/* n steps along the last axis, which end there at the latest. */
static inline void pf_advance(pf_walk *w, int64_t n) {
  int64_t d = w->rank - 1;
  const int64_t *axis = w->axis + d * PF_AXIS;
  w->coordinate[d] += n;
  for (int64_t s = 0; s < PF_STREAMS; s++) w->at[s] += n * axis[1 + s];
  for (; d > 0 && w->coordinate[d] == axis[0]; d--, axis -= PF_AXIS) {
    w->coordinate[d] = 0;
    w->coordinate[d - 1]++;
    for (int64_t s = 0; s < PF_STREAMS; s++) w->at[s] += axis[1 + s - PF_AXIS] - axis[0] * axis[1 + s];
  }
}

typedef struct {
  const int64_t *from[PF_INDICES];
  int64_t size[PF_INDICES], stride[PF_INDICES], lowest;
} pf_indices;

/* What the indices at these addresses add to the position, counted from the lowest (steps may be negative); -1 where one
 * is out of range, which is reported. */
static inline int64_t pf_indexed(char *const *buf, const int64_t *arg, const pf_indices *x, const int64_t *at) {
  int64_t position = -x->lowest;
  for (int64_t k = 0; k < PF_INDICES; k++) {
    const int64_t index = x->from[k][at[2 + k]], size = x->size[k];
    const int64_t wrapped = index < 0 ? index + size : index;
    if (__builtin_expect((uint64_t)wrapped >= (uint64_t)size, 0)) {
      pf_bad_index(buf, arg[CHECK], index, size);
      return -1;
    }
    position += wrapped * x->stride[k];
  }
  return position;
}

static inline void pf_row(PF_T *base, const PF_VALUE_T *values, int64_t n, int64_t base_step, int64_t value_step) {
  if (base_step == 1 && value_step == 1) {
    for (int64_t j = 0; j < n; j++) PF_STORE(base[j], PF_OP(PF_LOAD(base[j]), PF_VALUE(values[j])));
  } else {
    for (int64_t j = 0; j < n; j++)
      PF_STORE(base[j * base_step], PF_OP(PF_LOAD(base[j * base_step]), PF_VALUE(values[j * value_step])));
  }
}

/* All of `inner` in [first, last) for each of `outer` in [begin, end); only positions in [low, low + span). */
static void pf_nest(char *const *buf, const int64_t *arg, pf_walk *outer, int64_t begin, int64_t end, pf_walk *inner,
                    int64_t first, int64_t last, int64_t low, int64_t span) {
  PF_T *base = (PF_T *)buf[0] + arg[OFFSET] + arg[LOWEST];
  const PF_VALUE_T *values = (const PF_VALUE_T *)buf[1];
  const int64_t *axis = inner->axis + (inner->rank - 1) * PF_AXIS;
  /* Copies in registers: stores to the base could otherwise change them. */
  pf_indices indices = {.lowest = arg[LOWEST]};
  int64_t step[PF_STREAMS], moving = 0;
  for (int64_t k = 0; k < PF_INDICES; k++) {
    indices.from[k] = (const int64_t *)buf[2 + k];
    indices.size[k] = arg[INDEXED + 2 * k];
    indices.stride[k] = arg[INDEXED + 1 + 2 * k];
    moving |= axis[3 + k];
  }
  for (int64_t s = 0; s < PF_STREAMS; s++) step[s] = axis[1 + s];
  pf_seek(outer, begin);
  for (int64_t o = begin; o < end; o++, pf_advance(outer, 1)) {
    pf_seek(inner, first);
    for (int64_t left = last - first; left > 0;) {
      const int64_t rest = axis[0] - inner->coordinate[inner->rank - 1], n = rest < left ? rest : left;
      int64_t at[PF_STREAMS];
      for (int64_t s = 0; s < PF_STREAMS; s++) at[s] = outer->at[s] + inner->at[s];
      if (!moving) {
        const int64_t position = pf_indexed(buf, arg, &indices, at);
        if (position >= 0 && (uint64_t)(position - low) < (uint64_t)span)
          pf_row(base + at[0] + position, values + at[1], n, step[0], step[1]);
      } else {
        /* Positions first, without a branch on whose they are: it would be mispredicted half of the time. */
        for (int64_t block = 0; block < n; block += BLOCK) {
          int64_t to[BLOCK], from[BLOCK], kept = 0;
          const int64_t count = n - block < BLOCK ? n - block : BLOCK;
          for (int64_t j = 0; j < count; j++) {
            const int64_t position = pf_indexed(buf, arg, &indices, at);
            to[kept] = at[0] + position;
            from[kept] = at[1];
            kept += (position >= 0) & ((uint64_t)(position - low) < (uint64_t)span);
            for (int64_t s = 0; s < PF_STREAMS; s++) at[s] += step[s];
          }
          for (int64_t j = 0; j < kept; j++)
            PF_STORE(base[to[j]], PF_OP(PF_LOAD(base[to[j]]), PF_VALUE(values[from[j]])));
        }
      }
      pf_advance(inner, n);
      left -= n;
    }
  }
}

/* All indices, before anything is written: for a base that must stay whole where one of them is bad. */
PF_KERNEL(PF_CHECK_NAME) {
  const int64_t *nest = arg + arg[CHECKED]; /* the axes along which indices change */
  pf_walk walk = {nest[0], nest + 1};
  pf_indices indices = {.lowest = 0};
  for (int64_t k = 0; k < PF_INDICES; k++) {
    indices.from[k] = (const int64_t *)buf[2 + k];
    indices.size[k] = arg[INDEXED + 2 * k];
  }
  pf_seek(&walk, begin);
  for (int64_t n = begin; n < end; n++, pf_advance(&walk, 1)) pf_indexed(buf, arg, &indices, walk.at);
}

PF_KERNEL(PF_NAME) {
  pf_walk rows = {arg[ROW_RANK], arg + INDEXED + 2 * PF_INDICES};
  pf_walk columns = {arg[COLUMN_RANK], rows.axis + rows.rank * PF_AXIS};
  const int64_t parts = arg[PARTS], reach = arg[REACH];
  if (parts == 1) {
    if (arg[ROWS_OUTSIDE])
      pf_nest(buf, arg, &rows, 0, arg[ROWS], &columns, begin, end, 0, reach);
    else
      pf_nest(buf, arg, &columns, begin, end, &rows, 0, arg[ROWS], 0, reach);
    return;
  }
  for (int64_t part = begin; part < end; part++) {
    const int64_t low = reach * part / parts, span = reach * (part + 1) / parts - low;
    if (arg[ROWS_OUTSIDE])
      pf_nest(buf, arg, &rows, 0, arg[ROWS], &columns, 0, arg[COLUMNS], low, span);
    else
      pf_nest(buf, arg, &columns, 0, arg[COLUMNS], &rows, 0, arg[ROWS], low, span);
  }
}
