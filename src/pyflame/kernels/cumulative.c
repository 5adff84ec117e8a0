/* Running sums and products along one axis of a contiguous tensor seen as (outer, length, inner):
 *
 *   y[o, j, i] = x[o, 0, i] op x[o, 1, i] op ... op x[o, j, i]        (from the far end with a negative step)
 *
 * A task takes up to PF_LANES neighbouring columns i of one o, or a chunk of them: where there are few columns but long
 * ones, `total` first reduces each chunk, and `scan` starts each from the totals before it. The number of chunks
 * depends on the shape alone, so results do not depend on the number of threads.
 *
 * Bytes: x once (twice when chunked) and y once. Floats are accumulated in double, as PyTorch does on the CPU.
 *
 * Before including this file define PF_T (stored type), PF_ACC (accumulator), PF_LOAD(x), PF_STORE(v), PF_OP(a, b),
 * PF_ONE (what leaves b as it is) and the names PF_TOTAL and PF_SCAN. Buffers: x, y, totals.
 */
enum { LENGTH, INNER, BLOCKS, CHUNKS, REVERSE };
enum { PF_LANES = 64 };

typedef struct {
  int64_t at, step, count, lanes; /* first element, step along the axis, how many of them, neighbouring columns */
} pf_part;

static inline pf_part pf_part_of(const int64_t *arg, int64_t task) {
  const int64_t length = arg[LENGTH], inner = arg[INNER], chunk = task % arg[CHUNKS];
  const int64_t block = task / arg[CHUNKS] % arg[BLOCKS], outer = task / arg[CHUNKS] / arg[BLOCKS];
  const int64_t from = chunk * length / arg[CHUNKS], to = (chunk + 1) * length / arg[CHUNKS];
  const int64_t left = inner - block * PF_LANES;
  pf_part part = {outer * length * inner + block * PF_LANES, inner, to - from, left < PF_LANES ? left : PF_LANES};
  part.at += (arg[REVERSE] ? length - 1 - from : from) * inner;
  part.step = arg[REVERSE] ? -inner : inner;
  return part;
}

PF_KERNEL(PF_TOTAL) {
  for (int64_t task = begin; task < end; task++) {
    const pf_part part = pf_part_of(arg, task);
    const PF_T *x = (const PF_T *)buf[0] + part.at;
    PF_ACC *total = (PF_ACC *)buf[2] + task * PF_LANES;
    PF_ACC acc[PF_LANES];
    for (int64_t l = 0; l < PF_LANES; l++) acc[l] = PF_ONE;
    if (arg[INNER] == 1) {
      /* a chunk that lies in one piece: its order does not matter here, so every lane takes a part */
      const PF_T *low = x + (part.step < 0 ? 1 - part.count : 0);
      int64_t j = 0;
      for (; j + PF_LANES <= part.count; j += PF_LANES)
        for (int64_t l = 0; l < PF_LANES; l++) acc[l] = PF_OP(acc[l], PF_LOAD(low[j + l]));
      for (; j < part.count; j++) acc[0] = PF_OP(acc[0], PF_LOAD(low[j]));
      for (int64_t l = 1; l < PF_LANES; l++) acc[0] = PF_OP(acc[0], acc[l]);
    } else {
      for (int64_t j = 0; j < part.count; j++, x += part.step)
        for (int64_t l = 0; l < part.lanes; l++) acc[l] = PF_OP(acc[l], PF_LOAD(x[l]));
    }
    for (int64_t l = 0; l < part.lanes; l++) total[l] = acc[l];
  }
}

PF_KERNEL(PF_SCAN) {
  for (int64_t task = begin; task < end; task++) {
    const pf_part part = pf_part_of(arg, task);
    const PF_T *restrict x = (const PF_T *)buf[0] + part.at;
    PF_T *restrict y = (PF_T *)buf[1] + part.at;
    PF_ACC acc[PF_LANES];
    for (int64_t l = 0; l < part.lanes; l++) acc[l] = PF_ONE;
    const int64_t chunk = task % arg[CHUNKS];
    const PF_ACC *total = (const PF_ACC *)buf[2] + (task - chunk) * PF_LANES;
    for (int64_t c = 0; c < chunk; c++, total += PF_LANES)
      for (int64_t l = 0; l < part.lanes; l++) acc[l] = PF_OP(acc[l], total[l]);
    if (part.lanes == 1) {
      PF_ACC sum = acc[0];
      for (int64_t j = 0; j < part.count; j++, x += part.step, y += part.step) *y = PF_STORE(sum = PF_OP(sum, PF_LOAD(*x)));
    } else {
      for (int64_t j = 0; j < part.count; j++, x += part.step, y += part.step)
        for (int64_t l = 0; l < part.lanes; l++) y[l] = PF_STORE(acc[l] = PF_OP(acc[l], PF_LOAD(x[l])));
    }
  }
}
