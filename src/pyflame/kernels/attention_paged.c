/* Attention of few queries over keys and values in pages: O = softmax(Q K^T * scale) V, causal (ops/attention_paged.py).
 *
 * Keys and values are read once for all queries that share a head: a task has one of SPLITS parts of the keys of a head,
 * block by block. A block of keys becomes floats in L1; scores, weights and the sums of weighted values stay there. What
 * a task found of each row (its maximum, its sum of weights, its sums of values) goes to scratch, where `join` adds up
 * the parts of a row by their maxima. How keys are split depends on shapes alone, and on the length.
 *
 *   length * (D + E) numbers are read for each head, and 4 * rows * length * D flops done.
 *
 * Before including this file define PF_PART and PF_JOIN (names), PF_Q_T, PF_K_T, PF_V_T (stored types), PF_LOAD_Q(x),
 * PF_LOAD_K(x), PF_LOAD_V(x), PF_STORE(x), and for what is there PF_SCALE_T with PF_LOAD_SCALE(x), PF_SINK_T with
 * PF_LOAD_SINK(x). Buffers: those of the operands, then the result, then scratch. Of each row SPLITS parts of
 * {maximum, sum, E sums}; behind all of them, for each worker, {queries, sums and scores of ROWS}.
 */
enum {
  HEADS, SHARE, QUERIES, DEPTH, WIDTH, PAGE, COLUMNS, PAGES, LOW, SCALE, CAP, SPLITS, CHECK, WORKER_AT, WORKER_FLOATS,
  TO_Q, TO_K = TO_Q + 4, TO_V = TO_K + 4, TO_K_SCALE = TO_V + 4, TO_V_SCALE = TO_K_SCALE + 3, TO_TABLE = TO_V_SCALE + 3,
  TO_LENGTHS = TO_TABLE + 2, TO_SINKS, OPERANDS
};
enum { PF_BLOCK = 64 }; /* keys at a time */

static inline double pf_arg_number(int64_t bits) {
  double x;
  __builtin_memcpy(&x, &bits, 8);
  return x;
}

/* `count` lines from position `first` on as floats, each of `width`; of a page that does not exist, the check is told. */
#define PF_LINES(NAME, T, LOAD)                                                                                       \
  static void NAME(char *const *buf, const int64_t *arg, int64_t b, int64_t g, int64_t operand, const int64_t *step,   \
                   int64_t scale_at, int64_t first, int64_t count, int64_t width, float *to) {                         \
    const int32_t *table = (const int32_t *)buf[3] + b * arg[TO_TABLE];                                                \
    for (int64_t n = 0; n < count; n++, to += width) {                                                                 \
      const int64_t p = first + n, in = p % arg[PAGE];                                                                 \
      int64_t page = table[p / arg[PAGE] * arg[TO_TABLE + 1]];                                                         \
      if (page < 0 || page >= arg[PAGES]) pf_bad_index(buf, arg[CHECK], page, arg[PAGES]), page = 0;                   \
      const T *line = (const T *)buf[operand] + page * step[0] + in * step[1] + g * step[2];                           \
      const float by = PF_SCALED(scale_at, page, in, g);                                                               \
      if (step[3] == 1)                                                                                                \
        _Pragma("omp simd") for (int64_t d = 0; d < width; d++) to[d] = LOAD(line[d]) * by;                            \
      else                                                                                                             \
        for (int64_t d = 0; d < width; d++) to[d] = LOAD(line[d * step[3]]) * by;                                      \
    }                                                                                                                  \
  }
#ifdef PF_SCALE_T
#define PF_SCALED(at, page, in, g)                                                                                     \
  PF_LOAD_SCALE(((const PF_SCALE_T *)buf[at == TO_K_SCALE ? 5 : 6])[page * arg[at] + in * arg[at + 1] + g * arg[at + 2]])
#else
#define PF_SCALED(at, page, in, g) 1.0f
#endif
PF_LINES(pf_key_lines, PF_K_T, PF_LOAD_K)
PF_LINES(pf_value_lines, PF_V_T, PF_LOAD_V)

static inline float pf_dot(const float *a, const float *b, int64_t n) {
  float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
  return sum;
}

typedef struct {
  int64_t b, g, rows, length, begin, end; /* the keys of this part that any query may see */
} pf_part;

static pf_part pf_part_of(char *const *buf, const int64_t *arg, int64_t task) {
  const int64_t groups = arg[HEADS] / arg[SHARE], room = arg[PAGE] * arg[COLUMNS], split = task % arg[SPLITS];
  pf_part p = {task / arg[SPLITS] / groups, task / arg[SPLITS] % groups, arg[SHARE] * arg[QUERIES]};
  const int64_t length = ((const int32_t *)buf[4])[p.b * arg[TO_LENGTHS]];
  p.length = length < room ? length : room;
  const int64_t first = p.length - arg[QUERIES] + arg[LOW], from = first < 0 ? 0 : first, to = p.length;
  const int64_t each = to > from ? ((to - from + arg[SPLITS] - 1) / arg[SPLITS] + PF_BLOCK - 1) / PF_BLOCK * PF_BLOCK : 0;
  p.begin = from + split * each, p.end = p.begin + each < to ? p.begin + each : to;
  return p;
}

/* Scores of a row over a block become weights; gives the row's new maximum and adds to its sum and values. */
static void pf_weigh(const int64_t *arg, const pf_part *p, int64_t row, int64_t at, int64_t count, float *scores,
                     float *found) {
  const int64_t position = p->length - arg[QUERIES] + row % arg[QUERIES], width = arg[WIDTH];
  const float cap = (float)pf_arg_number(arg[CAP]), two = 1.44269504f; /* weights are powers of 2 */
  if (cap != 0.0f)
    _Pragma("omp simd") for (int64_t n = 0; n < count; n++) scores[n] = pf_tanh_f32(scores[n]) * (cap * two);
  float top = found[0];
  for (int64_t n = 0; n < count; n++) {
    const int64_t ahead = at + n - position;
    scores[n] = ahead > 0 || ahead < arg[LOW] ? -INFINITY : scores[n];
    top = scores[n] > top ? scores[n] : top;
  }
  const float base = top == -INFINITY ? 0.0f : top, less = pf_exp2_f32(found[0] - base);
  float sum = found[1] * less;
#pragma omp simd
  for (int64_t n = 0; n < count; n++) scores[n] = pf_exp2_f32(scores[n] - base);
  for (int64_t n = 0; n < count; n++) sum += scores[n];
#pragma omp simd
  for (int64_t e = 0; e < width; e++) found[2 + e] *= less;
  found[0] = top, found[1] = sum;
}

PF_KERNEL(PF_PART) {
  const int64_t depth = arg[DEPTH], width = arg[WIDTH], queries = arg[QUERIES];
  const double cap = pf_arg_number(arg[CAP]), scale = pf_arg_number(arg[SCALE]);
  const float factor = (float)(cap != 0.0 ? scale / cap : scale * 1.4426950408889634);
  float *const scratch = (float *)buf[arg[OPERANDS] + 1];
  float *const queries_at = scratch + arg[WORKER_AT] + worker * arg[WORKER_FLOATS];
  for (int64_t task = begin; task < end; task++) {
    const pf_part p = pf_part_of(buf, arg, task);
    float *const block = queries_at + p.rows * depth, *const scores = block + PF_BLOCK * (depth > width ? depth : width);
    for (int64_t r = 0; r < p.rows; r++) {
      const PF_Q_T *q = (const PF_Q_T *)buf[0] + p.b * arg[TO_Q] + (p.g * arg[SHARE] + r / queries) * arg[TO_Q + 1] +
                        r % queries * arg[TO_Q + 2];
      for (int64_t d = 0; d < depth; d++) queries_at[r * depth + d] = PF_LOAD_Q(q[d * arg[TO_Q + 3]]) * factor;
    }
    float *const found = scratch + task * p.rows * (width + 2);
    for (int64_t r = 0; r < p.rows; r++) {
      for (int64_t e = 0; e < width + 2; e++) found[r * (width + 2) + e] = e ? 0.0f : -INFINITY;
#ifdef PF_SINK_T
      if (task % arg[SPLITS] == 0) { /* one more score, of the value 0 */
        const PF_SINK_T *sinks = (const PF_SINK_T *)buf[arg[OPERANDS] - 1];
        const float sink = PF_LOAD_SINK(sinks[(p.g * arg[SHARE] + r / queries) * arg[TO_SINKS]]);
        found[r * (width + 2)] = sink * 1.44269504f, found[r * (width + 2) + 1] = 1.0f;
      }
#endif
    }
    for (int64_t at = p.begin; at < p.end; at += PF_BLOCK) {
      const int64_t count = p.end - at < PF_BLOCK ? p.end - at : PF_BLOCK;
      pf_key_lines(buf, arg, p.b, p.g, 1, arg + TO_K, TO_K_SCALE, at, count, depth, block);
      for (int64_t n = 0; n < count; n++)
        for (int64_t r = 0; r < p.rows; r++)
          scores[r * PF_BLOCK + n] = pf_dot(queries_at + r * depth, block + n * depth, depth);
      for (int64_t r = 0; r < p.rows; r++)
        pf_weigh(arg, &p, r, at, count, scores + r * PF_BLOCK, found + r * (width + 2));
      pf_value_lines(buf, arg, p.b, p.g, 2, arg + TO_V, TO_V_SCALE, at, count, width, block);
      for (int64_t r = 0; r < p.rows; r++)
        for (int64_t n = 0; n < count; n++) {
          const float weight = scores[r * PF_BLOCK + n], *line = block + n * width;
          float *restrict to = found + r * (width + 2) + 2;
#pragma omp simd
          for (int64_t e = 0; e < width; e++) to[e] += weight * line[e];
        }
    }
  }
}

PF_KERNEL(PF_JOIN) { /* rows of the result, (B, T, H) */
  const int64_t width = arg[WIDTH], queries = arg[QUERIES], splits = arg[SPLITS], rows = arg[SHARE] * queries;
  const int64_t groups = arg[HEADS] / arg[SHARE];
  for (int64_t line = begin; line < end; line++) {
    const int64_t head = line % arg[HEADS], t = line / arg[HEADS] % queries, b = line / arg[HEADS] / queries;
    const int64_t row = head % arg[SHARE] * queries + t;
    const float *parts = (const float *)buf[arg[OPERANDS] + 1] +
                         ((b * groups + head / arg[SHARE]) * splits * rows + row) * (width + 2);
    const int64_t step = rows * (width + 2);
    float top = -INFINITY, total = 0.0f;
    for (int64_t s = 0; s < splits; s++) top = parts[s * step] > top ? parts[s * step] : top;
    const float base = top == -INFINITY ? 0.0f : top;
    for (int64_t s = 0; s < splits; s++) total += parts[s * step + 1] * pf_exp2_f32(parts[s * step] - base);
    const float inverse = total == 0.0f ? 1.0f : 1.0f / total;
    for (int64_t e = 0; e < width; e++) {
      float sum = 0.0f;
      for (int64_t s = 0; s < splits; s++) sum += parts[s * step + 2 + e] * pf_exp2_f32(parts[s * step] - base);
      ((PF_O_T *)buf[arg[OPERANDS]])[line * width + e] = PF_STORE(sum * inverse);
    }
  }
}
