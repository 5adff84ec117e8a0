/* Attention of few queries over keys and values in pages: O = softmax(Q K^T * scale) V, causal (ops/attention_paged.py).
 *
 * Keys and values are read once for all queries that share a head: a task has one of SPLITS parts of the keys of a head,
 * block by block. A block of keys becomes floats in L1; scores, weights and the sums of weighted values stay there. What
 * a task found of each row (its maximum, its sum of weights, its sums of values) goes to scratch, where `join` adds up
 * the parts of a row by their maxima. How keys are split depends on shapes alone, and on the length.
 *
 *   length * (D + E) numbers are read for each head, and 4 * rows * length * D flops done.
 *
 * Before including this file define PF_PART and PF_JOIN (names), PF_Q_T, PF_K_T, PF_V_T, PF_O_T (stored types),
 * PF_LOAD_Q(x), PF_LOAD_K(x), PF_LOAD_V(x), PF_STORE(x), for what is there PF_SCALE_T with PF_LOAD_SCALE(x) and PF_SINK_T
 * with PF_LOAD_SINK(x), and what pf_gemm.h asks for; PF_K_VECTOR where that knows the types of keys and values. Buffers:
 * those of the operands, then the result, then scratch: of each row SPLITS parts of {maximum, sum, E sums}, and behind
 * them for each worker queries, a block of keys and one of values, and scores.
 */
#include "pf_gemm.h"

enum {
  HEADS, SHARE, QUERIES, DEPTH, WIDTH, PAGE, COLUMNS, PAGES, LOW, SCALE, CAP, SPLITS, CHECK, WORKER_AT, WORKER_FLOATS,
  TO_Q, TO_K = TO_Q + 4, TO_V = TO_K + 4, TO_K_SCALE = TO_V + 4, TO_V_SCALE = TO_K_SCALE + 3, TO_TABLE = TO_V_SCALE + 3,
  TO_LENGTHS = TO_TABLE + 2, TO_SINKS, OPERANDS
};
enum { PF_BLOCK = 64 }; /* keys at a time */
#define PF_FOUND (pf_width(arg[WIDTH]) + 2)

static inline double pf_arg_number(int64_t bits) {
  double x;
  __builtin_memcpy(&x, &bits, 8);
  return x;
}

#ifdef PF_K_VECTOR
#define PF_KEY(direct, line, d) \
  ((direct) ? pf_vector_a((const pf_a_t *)(line) + (d)) : *(const pf_vec *)((const float *)(line) + (d)))
#define PF_VALUE(direct, line, d) \
  ((direct) ? pf_vector_b((const pf_b_t *)(line) + (d)) : *(const pf_vec *)((const float *)(line) + (d)))
#else
#define PF_KEY(direct, line, d) (*(const pf_vec *)((const float *)(line) + (d)))
#define PF_VALUE PF_KEY
#endif
#ifdef PF_SCALE_T
#define PF_SCALED(at, number) \
  PF_LOAD_SCALE(((const PF_SCALE_T *)buf[number])[page * arg[at] + in * arg[at + 1] + g * arg[at + 2]])
#else
#define PF_SCALED(at, number) 1.0f
#endif

/* A block of keys and values: where their lines lie, which are read as they are (direct) or as floats in `copies`, and
 * what their numbers are multiplied with. */
typedef struct {
  const void *keys[PF_BLOCK], *values[PF_BLOCK];
  float by_key[PF_BLOCK], by_value[PF_BLOCK];
  int direct;
  float *copies;
} pf_found_lines;

/* Whether lines are whole vectors of types that can be read so. */
static int pf_is_direct(const int64_t *arg) {
#ifdef PF_K_VECTOR
  return arg[TO_K + 3] == 1 && arg[TO_V + 3] == 1 && arg[DEPTH] % PF_LANES == 0 && arg[WIDTH] % PF_LANES == 0;
#else
  return 0;
#endif
}

#define PF_COPY(LOAD, line, step, width, to)                                            \
  if ((step) == 1)                                                                      \
    _Pragma("omp simd") for (int64_t d = 0; d < (width); d++) (to)[d] = LOAD((line)[d]); \
  else                                                                                  \
    for (int64_t d = 0; d < (width); d++) (to)[d] = LOAD((line)[d * (step)]);           \
  for (int64_t d = (width); d < pf_width(width); d++) (to)[d] = 0.0f;

/* `count` of them from position `first` on; of a page that does not exist, the check is told. */
static void pf_find(char *const *buf, const int64_t *arg, int64_t b, int64_t g, int64_t first, int64_t count, pf_found_lines *to) {
  const int32_t *table = (const int32_t *)buf[3] + b * arg[TO_TABLE];
  const int64_t *to_k = arg + TO_K, *to_v = arg + TO_V, depth = pf_width(arg[DEPTH]), width = pf_width(arg[WIDTH]);
  int64_t column = first / arg[PAGE], in = first % arg[PAGE];
  for (int64_t n = 0; n < count; n++) {
    int64_t page = table[column * arg[TO_TABLE + 1]];
    if (page < 0 || page >= arg[PAGES]) pf_bad_index(buf, arg[CHECK], page, arg[PAGES]), page = 0;
    const PF_K_T *key = (const PF_K_T *)buf[1] + page * to_k[0] + in * to_k[1] + g * to_k[2];
    const PF_V_T *value = (const PF_V_T *)buf[2] + page * to_v[0] + in * to_v[1] + g * to_v[2];
    to->by_key[n] = PF_SCALED(TO_K_SCALE, 5), to->by_value[n] = PF_SCALED(TO_V_SCALE, 6);
    to->keys[n] = key, to->values[n] = value;
    if (!to->direct) {
      float *const keys = to->copies + n * depth, *const values = to->copies + PF_BLOCK * depth + n * width;
      PF_COPY(PF_LOAD_K, key, to_k[3], arg[DEPTH], keys)
      PF_COPY(PF_LOAD_V, value, to_v[3], arg[WIDTH], values)
      to->keys[n] = keys, to->values[n] = values;
    }
    if (++in == arg[PAGE]) in = 0, column++;
  }
}

/* Products of ROWS queries with KEYS keys, of `depth` numbers each, a whole number of vectors. */
PF_ALWAYS_INLINE void pf_products(const int direct, const int rows, const int keys, const float *q, const void *const *k,
                                  int64_t depth, float *scores) {
  pf_vec sums[4][4] = {0};
  for (int64_t d = 0; d < depth; d += PF_LANES)
#pragma GCC unroll 4
    for (int n = 0; n < keys; n++) {
      const pf_vec key = PF_KEY(direct, k[n], d);
#pragma GCC unroll 4
      for (int r = 0; r < rows; r++) sums[r][n] += *(const pf_vec *)(q + r * depth + d) * key;
    }
#pragma GCC unroll 4
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
    for (int n = 0; n < keys; n++) scores[r * PF_BLOCK + n] = pf_sum_of_lanes(sums[r][n]);
}
PF_ALWAYS_INLINE void pf_score_of(const int direct, const int rows, int64_t count, const float *q, const pf_found_lines *block,
                                  int64_t depth, float *scores) {
  int64_t n = 0;
  for (; n + 4 <= count; n += 4) pf_products(direct, rows, 4, q, block->keys + n, depth, scores + n);
  for (; n < count; n++) pf_products(direct, rows, 1, q, block->keys + n, depth, scores + n);
}

/* sums += weights times values, for ROWS rows that lie `step` apart, and 4 vectors or one from number `e` on. */
PF_ALWAYS_INLINE void pf_sums(const int direct, const int rows, const int vecs, const float *weights,
                              const void *const *values, int64_t count, int64_t e, float *to, int64_t step) {
  pf_vec sums[4][4];
#pragma GCC unroll 16
  for (int n = 0; n < rows * vecs; n++) sums[n / vecs][n % vecs] = *(pf_vec *)(to + n / vecs * step + n % vecs * PF_LANES);
  for (int64_t k = 0; k < count; k++)
#pragma GCC unroll 4
    for (int v = 0; v < vecs; v++) {
      const pf_vec value = PF_VALUE(direct, values[k], e + v * PF_LANES);
#pragma GCC unroll 4
      for (int r = 0; r < rows; r++) sums[r][v] += weights[r * PF_BLOCK + k] * value;
    }
#pragma GCC unroll 16
  for (int n = 0; n < rows * vecs; n++) *(pf_vec *)(to + n / vecs * step + n % vecs * PF_LANES) = sums[n / vecs][n % vecs];
}
PF_ALWAYS_INLINE void pf_mix_of(const int direct, const int rows, int64_t count, const float *weights, const pf_found_lines *block,
                                int64_t width, float *to, int64_t step) {
  int64_t e = 0;
  for (; e + 4 * PF_LANES <= width; e += 4 * PF_LANES)
    pf_sums(direct, rows, 4, weights, block->values, count, e, to + e, step);
  for (; e < width; e += PF_LANES) pf_sums(direct, rows, 1, weights, block->values, count, e, to + e, step);
}

/* For rows of a block, 4 at a time: their scores, or what weights add to their sums. */
#define PF_ROWS(NAME, CALL)                                                                                             \
  static void NAME(int64_t rows, int64_t count, float *q, const pf_found_lines *block, int64_t size, float *scores, int64_t step) { \
    for (int64_t r = 0; r < rows; r += 4, q += 4 * step, scores += 4 * PF_BLOCK) {                                      \
      const int64_t left = rows - r;                                                                                    \
      if (block->direct) {                                                                                              \
        if (left == 1) CALL(1, 1);                                                                                      \
        else if (left == 2) CALL(1, 2);                                                                                 \
        else if (left == 3) CALL(1, 3);                                                                                 \
        else CALL(1, 4);                                                                                                \
      } else {                                                                                                          \
        if (left == 1) CALL(0, 1);                                                                                      \
        else if (left == 2) CALL(0, 2);                                                                                 \
        else if (left == 3) CALL(0, 3);                                                                                 \
        else CALL(0, 4);                                                                                                \
      }                                                                                                                 \
    }                                                                                                                   \
  }
#define PF_SCORE_CALL(direct, n) pf_score_of(direct, n, count, q, block, size, scores)
#define PF_MIX_CALL(direct, n) pf_mix_of(direct, n, count, scores, block, size, q, step)
PF_ROWS(pf_score, PF_SCORE_CALL)
PF_ROWS(pf_mix, PF_MIX_CALL)

typedef struct {
  int64_t b, g, rows, length, begin, end; /* the keys of this part that any query may see */
} pf_paged_part;

static pf_paged_part pf_part_of(char *const *buf, const int64_t *arg, int64_t task) {
  const int64_t groups = arg[HEADS] / arg[SHARE], room = arg[PAGE] * arg[COLUMNS], split = task % arg[SPLITS];
  pf_paged_part p = {task / arg[SPLITS] / groups, task / arg[SPLITS] % groups, arg[SHARE] * arg[QUERIES]};
  const int64_t length = ((const int32_t *)buf[4])[p.b * arg[TO_LENGTHS]];
  p.length = length < room ? length : room;
  const int64_t first = p.length - arg[QUERIES] + arg[LOW], from = first < 0 ? 0 : first, to = p.length;
  const int64_t each = to > from ? ((to - from + arg[SPLITS] - 1) / arg[SPLITS] + PF_BLOCK - 1) / PF_BLOCK * PF_BLOCK : 0;
  p.begin = from + split * each, p.end = p.begin + each < to ? p.begin + each : to;
  return p;
}

/* Scores of a row over a block become weights; gives the row's new maximum and adds to its sum and values. */
static void pf_weigh(const int64_t *arg, const pf_paged_part *p, int64_t row, int64_t at, int64_t count, const pf_found_lines *block,
                     float *scores, float *found) {
  const int64_t position = p->length - arg[QUERIES] + row % arg[QUERIES], width = arg[WIDTH];
  const float cap = (float)pf_arg_number(arg[CAP]), two = 1.44269504f; /* weights are powers of 2 */
#pragma omp simd
  for (int64_t n = 0; n < count; n++) scores[n] *= block->by_key[n];
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
  for (int64_t n = 0; n < count; n++) scores[n] *= block->by_value[n];
#pragma omp simd
  for (int64_t e = 0; e < pf_width(width); e++) found[2 + e] *= less;
  found[0] = top, found[1] = sum;
}

/* What is known of a row before any key: nothing, or in the first part its sink, a score whose value is 0. */
static void pf_begin(char *const *buf, const int64_t *arg, const pf_paged_part *p, int64_t row, int first, float *found) {
  for (int64_t e = 0; e < PF_FOUND; e++) found[e] = e ? 0.0f : -INFINITY;
#ifdef PF_SINK_T
  const PF_SINK_T *sinks = (const PF_SINK_T *)buf[arg[OPERANDS] - 1];
  const float sink = PF_LOAD_SINK(sinks[(p->g * arg[SHARE] + row / arg[QUERIES]) * arg[TO_SINKS]]);
  if (first) found[0] = sink * 1.44269504f, found[1] = 1.0f;
#endif
}

PF_KERNEL(PF_PART) {
  const int64_t depth = pf_width(arg[DEPTH]), width = pf_width(arg[WIDTH]), queries = arg[QUERIES];
  const double cap = pf_arg_number(arg[CAP]), scale = pf_arg_number(arg[SCALE]);
  const float factor = (float)(cap != 0.0 ? scale / cap : scale * 1.4426950408889634);
  float *const scratch = (float *)buf[arg[OPERANDS] + 1];
  float *const own = scratch + arg[WORKER_AT] + worker * arg[WORKER_FLOATS];
  for (int64_t task = begin; task < end; task++) {
    const pf_paged_part p = pf_part_of(buf, arg, task);
    pf_found_lines block = {.direct = pf_is_direct(arg), .copies = own + p.rows * (depth + PF_BLOCK)};
    float *const scores = own + p.rows * depth, *const found = scratch + task * p.rows * PF_FOUND;
    for (int64_t r = 0; r < p.rows; r++) {
      const int64_t *to = arg + TO_Q, head = p.g * arg[SHARE] + r / queries;
      const PF_Q_T *q = (const PF_Q_T *)buf[0] + p.b * to[0] + head * to[1] + r % queries * to[2];
      for (int64_t d = 0; d < depth; d++)
        own[r * depth + d] = d < arg[DEPTH] ? PF_LOAD_Q(q[d * to[3]]) * factor : 0.0f;
      pf_begin(buf, arg, &p, r, task % arg[SPLITS] == 0, found + r * PF_FOUND);
    }
    for (int64_t at = p.begin; at < p.end; at += PF_BLOCK) {
      const int64_t count = p.end - at < PF_BLOCK ? p.end - at : PF_BLOCK;
      pf_find(buf, arg, p.b, p.g, at, count, &block);
      pf_score(p.rows, count, own, &block, depth, scores, depth);
      for (int64_t r = 0; r < p.rows; r++)
        pf_weigh(arg, &p, r, at, count, &block, scores + r * PF_BLOCK, found + r * PF_FOUND);
      pf_mix(p.rows, count, found + 2, &block, width, scores, PF_FOUND);
    }
  }
}

PF_KERNEL(PF_JOIN) { /* rows of the result, (B, T, H) */
  const int64_t width = arg[WIDTH], queries = arg[QUERIES], splits = arg[SPLITS], rows = arg[SHARE] * queries;
  const int64_t groups = arg[HEADS] / arg[SHARE];
  for (int64_t line = begin; line < end; line++) {
    const int64_t head = line % arg[HEADS], t = line / arg[HEADS] % queries, b = line / arg[HEADS] / queries;
    const int64_t row = head % arg[SHARE] * queries + t;
    float *parts = (float *)buf[arg[OPERANDS] + 1] + ((b * groups + head / arg[SHARE]) * splits * rows + row) * PF_FOUND;
    float *const sums = parts + 2; /* of the first part, where all are added up */
    const int64_t step = rows * PF_FOUND;
    float top = -INFINITY, total = 0.0f;
    for (int64_t s = 0; s < splits; s++) top = parts[s * step] > top ? parts[s * step] : top;
    const float base = top == -INFINITY ? 0.0f : top;
    for (int64_t s = 0; s < splits; s++, parts += step) {
      const float weight = pf_exp2_f32(parts[0] - base);
      total += parts[1] * weight;
#pragma omp simd
      for (int64_t e = 0; e < width; e++) sums[e] = (s ? sums[e] : 0.0f) + parts[2 + e] * weight;
    }
    const float inverse = total == 0.0f ? 1.0f : 1.0f / total;
    for (int64_t e = 0; e < width; e++)
      ((PF_O_T *)buf[arg[OPERANDS]])[line * width + e] = PF_STORE(sums[e] * inverse);
  }
}
