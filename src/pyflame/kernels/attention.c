/* Attention without its matrix: blocks of queries meet blocks of keys, forward and backward.
 *
 *   S = Q K^T scale + mask,  P = exp(S - max) / sum,  O = P V
 *   dV = P^T dO,  dP = dO V^T,  dS = P (dP - rowsum(dO O)),  dQ = dS K scale,  dK = dS^T Q scale
 * Capped: S = cap tanh(Q K^T scale / cap) + mask, and dS is multiplied by 1 - tanh^2 before it meets K and Q.
 * Query i sees key j where low <= j - i <= high: causal, windows and offsets are all that. Blocks of keys that a panel
 * sees nothing of are left out.
 *
 * Scores are kept transposed, S^T[key][query], in panels of PF_NR queries, so that they are an operand of the products
 * that follow as they stand (pf_attention.h) and maxima and sums run down the lanes: nothing of the size of S is
 * transposed, packed or written beyond the cache.
 *
 * Memory policy. A task is some of the queries of one head of K and V. It copies K and V once, as left operands, which
 * stay in L2 (O(S D) bytes per worker), takes PF_PANELS panels of queries at a time and walks over blocks of keys.
 * Forward: the scores of a panel and a block live in L1; O^T is rescaled where a query's maximum rises.
 * Backward: the scores of the panels and all keys, 4 PF_NR bytes per key and panel, live in L2; maxima and sums follow
 * from them, so the forward pass has nothing to store but O. The task sums dK and dV while the queries pass by.
 * Where heads are too few for the workers, `rows` computes dQ and stores maxima and sums, and then `keys` computes dK
 * and dV, a block of keys per task; Q K^T and dO V^T are then computed twice.
 *
 * 4 T S D flops forward, 10 T S D backward, less by what nobody sees. Bytes: Q, K, V, O and the gradients once from memory;
 * K and V once from L2 per PF_PANELS panels, which is 1 byte per 32 flops.
 *
 * Each sum is one chain in order of keys, queries or elements, whoever computes it: results do not depend on workers.
 *
 * Before including this file define PF_NAME, PF_A_T and PF_B_T (the dtype of all but the mask), PF_ACC_T (float),
 * PF_STORE(x) and PF_BACKWARD (0: compile forward; 1: backward, rows and keys); attention.py plans the launch.
 */
#include "pf_attention.h"

enum {
  PF_HEADS, PF_SHARE,                      /* heads of K and V; heads of Q that share one */
  PF_QUERIES, PF_KEYS, PF_DEPTH, PF_WIDTH, /* T, S, elements of Q and K, elements of V */
  PF_MASK, PF_LEAST, PF_MOST,                /* one of PF_*_MASK; the least and greatest key - query that is seen */
  PF_SCALE, PF_CAP,                        /* the bits of doubles; no cap: 0 */
  PF_SPANS,                                /* one of PF_WHOLE .. PF_PACKED */
  PF_STORED, PF_ROOM, PF_FIRST,            /* keys there are, beside those that count; queries of a head; this one's first */
  PF_TAKEN, PF_SPLITS,                     /* queries taken together, whole panels; tasks of a head */
  PF_WORKER_AT, PF_WORKER_BYTES,           /* scratch: maxima and sums, then what each worker has for itself */
  /* strides of batch, head, row and column */
  PF_Q, PF_K = PF_Q + 4, PF_V = PF_K + 4, PF_M = PF_V + 4, PF_G = PF_M + 4, PF_O = PF_G + 4,
  /* where the results begin, and their strides of batch and row: out or dQ, dK, dV */
  PF_TO_Q = PF_O + 4, PF_TO_K = PF_TO_Q + 3, PF_TO_V = PF_TO_K + 3,
  PF_ATTENTION_ARGS = PF_TO_V + 3
};

enum { PF_NO_MASK, PF_BOOL_MASK, PF_FLOAT_MASK };
enum { PF_WHOLE, PF_LIMITED, PF_PACKED }; /* spans: none, one for each batch entry, sequences packed in one */
enum { PF_INPUTS = PF_BACKWARD ? 5 : 3, PF_BUFFERS = PF_INPUTS + 4 }; /* before the mask; with spans, out and scratch */

#define PF_LOG2E 1.44269504f     /* scores are multiplied by it: powers of 2 are cheaper */
#define PF_LOWEST (-__FLT_MAX__) /* of a maximum; finite, so that -inf less a maximum is not NaN */

typedef struct {
  char *const *buf;
  const int64_t *arg;
  const char *mask;    /* of this head, or NULL */
  float *bias, *spare; /* a block of the mask, [key][PF_NR]; PF_NR rows of anything */
  float scale, cap;
} pf_job;

/* The next `count` words of a worker's scratch. */
PF_ALWAYS_INLINE void *pf_take(char **at, int64_t count) {
  char *taken = *at;
  *at += pf_round_up(count * (int64_t)sizeof(float), 64);
  return taken;
}

static pf_job pf_job_of(char *const *buf, const int64_t *arg) {
  pf_job job = {.buf = buf, .arg = arg};
  double scale, cap;
  __builtin_memcpy(&scale, arg + PF_SCALE, sizeof scale);
  __builtin_memcpy(&cap, arg + PF_CAP, sizeof cap);
  job.scale = (float)scale, job.cap = (float)cap;
  return job;
}

/* Buffers and arguments of one entry. With spans (ops/attention_spans.py) as if there were nothing but its lines. */
typedef struct {
  char *buf[PF_BUFFERS];
  int64_t arg[PF_ATTENTION_ARGS], b; /* b: of the batch in memory */
} pf_entry;

static int64_t pf_extras(const int64_t *arg) { return (arg[PF_MASK] != PF_NO_MASK) + (arg[PF_SPANS] != PF_WHOLE); }

static void pf_move(pf_entry *e, int buffer, int strides, int64_t lines) {
  e->buf[buffer] += lines * e->arg[strides + 2] * (int64_t)sizeof(pf_a_t);
}

static void pf_enter(pf_entry *e, char *const *buf, const int64_t *arg, int64_t b) {
  for (int64_t i = 0; i < PF_INPUTS + pf_extras(arg) + 2; i++) e->buf[i] = buf[i];
  for (int64_t i = 0; i < PF_ATTENTION_ARGS; i++) e->arg[i] = arg[i];
  e->b = arg[PF_SPANS] == PF_PACKED ? 0 : b;
  if (arg[PF_SPANS] == PF_WHOLE) return;
  const int32_t *span = (const int32_t *)buf[PF_INPUTS + (arg[PF_MASK] != PF_NO_MASK)] + 6 * b;
  const int64_t first = span[0], start = span[2];
  e->arg[PF_FIRST] = first, e->arg[PF_QUERIES] = span[1];
  e->arg[PF_STORED] = span[3], e->arg[PF_KEYS] = span[4];
  e->arg[PF_LEAST] += span[5], e->arg[PF_MOST] += span[5];
  pf_move(e, PF_BACKWARD, PF_Q, first), pf_move(e, PF_BACKWARD + 1, PF_K, start), pf_move(e, PF_BACKWARD + 2, PF_V, start);
  if (PF_BACKWARD) pf_move(e, 0, PF_G, first), pf_move(e, 4, PF_O, first);
  e->arg[PF_TO_Q] += first * arg[PF_TO_Q + 2];
  e->arg[PF_TO_K] += start * arg[PF_TO_K + 2], e->arg[PF_TO_V] += start * arg[PF_TO_V + 2];
}

PF_ALWAYS_INLINE const pf_a_t *pf_head(const pf_job *job, int buffer, int strides, int64_t b, int64_t h, int64_t row) {
  const int64_t *step = job->arg + strides;
  return (const pf_a_t *)job->buf[buffer] + b * step[0] + h * step[1] + row * step[2];
}

PF_ALWAYS_INLINE pf_a_t *pf_result(const pf_job *job, int buffer, int place, int64_t b, int64_t row) {
  const int64_t *to = job->arg + place;
  return (pf_a_t *)job->buf[buffer] + to[0] + b * to[1] + row * to[2];
}

static void pf_find_mask(pf_job *job, int buffer, int64_t b, int64_t h) {
  const int64_t kind = job->arg[PF_MASK], at = b * job->arg[PF_M] + h * job->arg[PF_M + 1];
  job->mask = kind == PF_NO_MASK ? NULL : job->buf[buffer] + at * (kind == PF_BOOL_MASK ? 1 : (int64_t)sizeof(float));
}

/* ---- scores ---- */

/* bias[key][PF_NR] from the mask's rows [row, row + count) and keys [j, j + keys), in powers of 2; -inf if unseen. */
static void pf_load_mask(const pf_job *job, int64_t row, int64_t count, int64_t j, int64_t keys) {
  const int64_t stride = job->arg[PF_M + 2], step = job->arg[PF_M + 3];
  for (int64_t r = 0; r < PF_NR; r++) {
    float *to = job->spare + r * PF_BLOCK;
    const int64_t at = (row + pf_min(r, count - 1)) * stride + j * step;
    if (job->arg[PF_MASK] == PF_BOOL_MASK)
      for (int64_t k = 0; k < keys; k++) to[k] = ((const uint8_t *)job->mask)[at + k * step] ? 0.0f : -__builtin_inff();
    else
      for (int64_t k = 0; k < keys; k++) {
        const float x = ((const float *)job->mask)[at + k * step], y = x * PF_LOG2E;
        to[k] = (y < PF_LOWEST) & (x >= PF_LOWEST) ? PF_LOWEST : y; /* what was finite stays so: no -inf */
      }
    const int64_t ahead = row + r - j, near = pf_min(keys, ahead + job->arg[PF_LEAST]);
    for (int64_t k = 0; k < near; k++) to[k] = -__builtin_inff();
    for (int64_t k = pf_max(0, ahead + job->arg[PF_MOST] + 1); k < keys; k++) to[k] = -__builtin_inff();
  }
  pf_transpose((uint32_t *)job->bias, PF_NR, (const char *)job->spare, PF_BLOCK * 4, PF_NR, pf_max(keys, 4));
}

enum { PF_PLAIN, PF_DIAGONAL, PF_BIASED };

/* Scores [from, to) of a panel: scaled and masked, and top raised. Diagonal: lane i sees keys i + low to i + high. */
PF_ALWAYS_INLINE void pf_limit(const int kind, float *s, int64_t from, int64_t to, float scale, int64_t low,
                               int64_t high, const float *bias, float *top) {
  const pf_vec none = (pf_vec){0} - __builtin_inff(), lowest = (pf_vec){0} + PF_LOWEST;
  pf_vec most[PF_NV];
  pf_ints lane;
  for (int i = 0; i < PF_LANES; i++) lane[i] = i;
  for (int v = 0; v < PF_NV; v++) most[v] = *pf_at(top, 0, v);
  for (int64_t k = from; k < to; k++)
#pragma GCC unroll 2
    for (int v = 0; v < PF_NV; v++) {
      pf_vec x = *pf_at(s, k, v) * scale;
      if (kind == PF_BIASED) x = pf_select(*pf_at(bias, k, v) >= lowest, x + *pf_at(bias, k, v), *pf_at(bias, k, v));
      if (kind == PF_DIAGONAL) {
        const pf_ints first = (pf_ints){0} + (int32_t)(k - high - v * PF_LANES);
        const pf_ints last = (pf_ints){0} + (int32_t)(k - low - v * PF_LANES);
        x = pf_select((lane >= first) & (lane <= last), x, none);
      }
      most[v] = pf_larger(most[v], x);
      *pf_at(s, k, v) = x;
    }
  for (int v = 0; v < PF_NV; v++) *pf_at(top, 0, v) = most[v];
}

/* s = cap tanh(s scale / cap); bent, where it is wanted: what that multiplies a change of s by */
static void pf_bend(float *s, int64_t count, float scale, float cap, float *bent) {
  for (int64_t i = 0; i < count; i++) {
    const float x = pf_tanh_f32(s[i] * (scale / cap));
    s[i] = x * cap;
    if (bent) bent[i] = 1 - x * x;
  }
}

/* How many of `keys` keys from j on the panel of queries from `row` on sees, or has before those it sees. */
PF_ALWAYS_INLINE int64_t pf_seen(const int64_t *arg, int64_t row, int64_t j, int64_t keys) {
  return pf_max(0, pf_min(keys, row + PF_NR + arg[PF_MOST] - j));
}

/* The first of the blocks from `base` on that the panel sees any of. */
PF_ALWAYS_INLINE int64_t pf_begin(const int64_t *arg, int64_t row, int64_t base) {
  return base + pf_max(0, row + arg[PF_LEAST] - base) / PF_BLOCK * PF_BLOCK;
}

/* S^T in powers of 2 of `count` queries from `row` on and `seen` keys from j on; side k begins with key `base`. */
static void pf_scores(const pf_job *job, const pf_side *k, int64_t base, const pf_word_t *query, int64_t row,
                      int64_t count, int64_t j, int64_t seen, float *s, float *top, float *bent) {
  const float scale = (job->cap > 0 ? 1 : job->scale) * PF_LOG2E;
  pf_by_rows(k, j - base, seen, query, s);
  if (job->cap > 0) pf_bend(s, seen * PF_NR, job->scale, job->cap, bent);
  if (job->mask) {
    pf_load_mask(job, row, count, j, seen);
    pf_limit(PF_BIASED, s, 0, seen, scale, 0, 0, job->bias, top);
    return;
  }
  const int64_t low = row - j + job->arg[PF_LEAST], high = row - j + job->arg[PF_MOST]; /* what lane 0 sees */
  const int64_t to = pf_max(0, pf_min(seen, high + 1)), from = pf_max(0, pf_min(to, low + PF_NR - 1));
  pf_limit(PF_DIAGONAL, s, 0, from, scale, low, high, NULL, top);
  pf_limit(PF_PLAIN, s, from, to, scale, 0, 0, NULL, top);
  pf_limit(PF_DIAGONAL, s, to, seen, scale, low, high, NULL, top);
}

/* ---- queries in, rows out ---- */

/* Right operands of `count` rows of x, a panel per PF_NR of them. */
static void pf_pack_rows(pf_word_t *to, const pf_a_t *x, int64_t count, int64_t depth, const int64_t *strides) {
  const int64_t row = strides[2], column = strides[3];
  for (int64_t r = 0; r < count; r += PF_NR)
    pf_pack_right(to + r * pf_words(depth), PF_NR, x + r * row, pf_min(PF_NR, count - r), depth, row, column);
}

/* 1 / x; 0 for the sum of a query that sees nothing */
static void pf_invert(float *x, int64_t count) {
  for (int64_t i = 0; i < count; i++) x[i] = x[i] == 0 ? 0 : 1 / x[i];
}

/* to[row][depth] = c[depth][row] * factor[row] */
static void pf_store_panel(pf_a_t *to, int64_t stride, float *c, int64_t depth, int64_t count, const float *factor,
                           float *spare) {
  for (int64_t d = 0; d < depth; d++)
    for (int v = 0; v < PF_NV; v++) *pf_at(c, d, v) *= *pf_at(factor, 0, v);
  if (depth >= 4)
    pf_transpose((uint32_t *)spare, depth, (const char *)c, PF_NR * 4, depth, PF_NR);
  else
    for (int64_t d = 0; d < depth; d++)
      for (int64_t r = 0; r < count; r++) spare[r * depth + d] = c[d * PF_NR + r];
  for (int64_t r = 0; r < count; r++)
    for (int64_t d = 0; d < depth; d++) to[r * stride + d] = PF_STORE(spare[r * depth + d]);
}

#if !PF_BACKWARD

/* ---- forward: buffers query, key, value, (mask), out, scratch ---- */

/* Part `split` of `splits` of the queries that share a head of K and V. Inline: gcc left to itself spills in its tiles. */
PF_ALWAYS_INLINE void pf_forward(const pf_entry *e, int64_t head, int64_t split, int64_t splits, int64_t worker) {
  const int64_t *arg = e->arg, share = arg[PF_SHARE], queries = arg[PF_QUERIES], keys = arg[PF_KEYS], b = e->b;
  const int64_t depth = arg[PF_DEPTH], width = arg[PF_WIDTH], taken = arg[PF_TAKEN], to = 3 + pf_extras(arg);
  const int64_t masked = arg[PF_MASK] != PF_NO_MASK, groups = pf_div_up(queries, taken), units = share * groups;
  const int64_t sums = pf_sum_lines(width) * PF_NR;
  pf_job job = pf_job_of(e->buf, arg);
  char *at = e->buf[to + 1] + arg[PF_WORKER_AT] + worker * arg[PF_WORKER_BYTES];
  pf_side k = {.lines = keys, .depth = depth}, v = {.lines = keys, .depth = width};
  k.rows = pf_take(&at, pf_rows_words(keys, depth));
  v.cols = pf_take(&at, pf_cols_words(keys, width));
  pf_word_t *query = pf_take(&at, taken * pf_words(depth)), *right = pf_take(&at, pf_right_words());
  float *s = pf_take(&at, (PF_BLOCK + PF_MR) * PF_NR), *o = pf_take(&at, taken / PF_NR * sums);
  float *top = pf_take(&at, taken), *total = pf_take(&at, taken);
  job.bias = pf_take(&at, masked * PF_BLOCK * PF_NR), job.spare = pf_take(&at, pf_max(width, PF_BLOCK) * PF_NR);
  pf_pack_side(&k, pf_head(&job, 1, PF_K, b, head, 0), arg[PF_K + 2], arg[PF_K + 3]);
  pf_pack_side(&v, pf_head(&job, 2, PF_V, b, head, 0), arg[PF_V + 2], arg[PF_V + 3]);
  for (int64_t unit = units * split / splits; unit < units * (split + 1) / splits; unit++) {
    const int64_t h = head * share + unit / groups, first = unit % groups * taken;
    const int64_t count = pf_min(taken, queries - first);
    pf_find_mask(&job, 3, b, h);
    pf_pack_rows(query, pf_head(&job, 0, PF_Q, b, h, first), count, depth, arg + PF_Q);
    for (int64_t i = 0; i < taken; i++) top[i] = PF_LOWEST, total[i] = 0;
    for (int64_t i = 0; i < taken / PF_NR * sums; i++) o[i] = 0;
    for (int64_t j = pf_begin(arg, first, 0); j < keys; j += PF_BLOCK)
      for (int64_t r = 0; r < count; r += PF_NR) {
        const int64_t seen = pf_seen(arg, first + r, j, pf_min(PF_BLOCK, keys - j));
        float *sum = total + r, *high = top + r, *out = o + r / PF_NR * sums;
        if (seen == 0 || j < pf_begin(arg, first + r, 0)) continue;
        pf_vec before[PF_NV];
        for (int x = 0; x < PF_NV; x++) before[x] = *pf_at(high, 0, x);
        pf_scores(&job, &k, 0, query + r * pf_words(depth), first + r, pf_min(PF_NR, count - r), j, seen, s, high, NULL);
        for (int x = 0; x < PF_NV && j > 0; x++) {
          const pf_vec shrink = pf_exp2_vec(before[x] - *pf_at(high, 0, x));
          *pf_at(sum, 0, x) *= shrink;
          for (int64_t d = 0; d < width; d++) *pf_at(out, d, x) *= shrink;
        }
        pf_by_cols(&v, j, seen, pf_raise(s, seen, high, sum, right), out);
      }
    pf_invert(total, count);
    for (int64_t r = 0; r < count; r += PF_NR)
      pf_store_panel(pf_result(&job, (int)to, PF_TO_Q, b, first + r) + h * width, arg[PF_TO_Q + 2],
                     o + r / PF_NR * sums, width, pf_min(PF_NR, count - r), total + r, job.spare);
  }
}

/* One iteration is some of the queries that share a head of K and V. */
PF_KERNEL(PF_GLUE(PF_NAME, _forward)) {
  (void)uni;
  const int64_t heads = arg[PF_HEADS], splits = arg[PF_SPLITS];
  pf_entry e;
  pf_kernel_begin();
  for (int64_t task = begin; task < end; task++) {
    pf_enter(&e, buf, arg, task / splits / heads);
    pf_forward(&e, task / splits % heads, task % splits, splits, worker);
  }
  pf_kernel_end();
}

#else

/* ---- backward: buffers dO, query, key, value, out, (mask), gradients, scratch ---- */

enum { PF_SUM_QUERIES = 1, PF_SUM_KEYS = 2 };

/* Keys [base, base + lines) of a head, what is summed of them, and where a worker keeps it. */
typedef struct {
  pf_job job;
  int sum;
  int64_t b, head, base, lines, room; /* room: lines of a strip */
  pf_side k, v;
  pf_word_t *query, *slope, *query_cross, *slope_cross; /* Q and dO as right operands of both kinds */
  pf_word_t *p, *ds, *right;                            /* P and dS of a block as left operands; dS as a right one */
  float *strip, *bent, *dp, *top, *total, *delta, *dq, *dk, *dv, *factor, *none; /* none: zeros; bent: of the strip, where capped */
} pf_task;

static void pf_open(pf_task *t, int64_t worker) {
  const int64_t *arg = t->job.arg, depth = arg[PF_DEPTH], width = arg[PF_WIDTH], taken = arg[PF_TAKEN];
  const int64_t masked = arg[PF_MASK] != PF_NO_MASK, lines = t->lines;
  char *at = t->job.buf[6 + pf_extras(arg)] + arg[PF_WORKER_AT] + worker * arg[PF_WORKER_BYTES];
  t->room = lines + PF_MR;
  t->k = (pf_side){.lines = lines, .depth = depth}, t->v = (pf_side){.lines = lines, .depth = width};
  t->k.rows = pf_take(&at, pf_rows_words(lines, depth)), t->v.rows = pf_take(&at, pf_rows_words(lines, width));
  t->k.cols = PF_AMX ? pf_take(&at, pf_cols_words(lines, depth)) : NULL;
  t->dk = pf_take(&at, pf_sums_words(lines, depth)), t->dv = pf_take(&at, pf_sums_words(lines, width));
  t->query = pf_take(&at, taken * pf_words(depth)), t->slope = pf_take(&at, taken * pf_words(width));
  t->query_cross = pf_take(&at, pf_cross_words(taken, depth));
  t->slope_cross = pf_take(&at, pf_cross_words(taken, width));
  t->strip = pf_take(&at, taken * t->room), t->bent = t->job.cap > 0 ? pf_take(&at, taken * t->room) : NULL;
  t->dp = pf_take(&at, (PF_BLOCK + PF_MR) * PF_NR);
  t->p = pf_take(&at, PF_PANELS * PF_SCORES), t->ds = pf_take(&at, PF_PANELS * PF_SCORES);
  t->right = pf_take(&at, pf_right_words()), t->dq = pf_take(&at, taken * pf_sum_lines(depth));
  t->top = pf_take(&at, taken), t->total = pf_take(&at, taken), t->delta = pf_take(&at, taken);
  t->factor = pf_take(&at, PF_NR), t->none = pf_take(&at, PF_NR);
  t->job.bias = pf_take(&at, masked * PF_BLOCK * PF_NR), t->job.spare = pf_take(&at, pf_max(depth, PF_BLOCK) * PF_NR);
  for (int i = 0; i < PF_NR; i++) t->factor[i] = t->job.scale, t->none[i] = 0;
}

/* delta[row] = sum of g * o */
static void pf_delta(float *delta, const pf_a_t *g, const int64_t *gs, const pf_a_t *o, const int64_t *os,
                     int64_t count, int64_t width) {
  for (int64_t r = 0; r < count; r++, g += gs[2], o += os[2]) {
    pf_vec lanes = {0};
    float sum = 0;
    int64_t d = 0;
    if (gs[3] == 1 && os[3] == 1)
      for (; d + PF_LANES <= width; d += PF_LANES) lanes += pf_vector_a(g + d) * pf_vector_a(o + d);
    for (; d < width; d++) sum += PF_LOAD_A(g + d * gs[3]) * PF_LOAD_A(o + d * os[3]);
    for (int i = 0; i < PF_LANES; i++) sum += lanes[i];
    delta[r] = sum;
  }
}

/* The strip of a group of queries: powers of all scores, [panel][key][PF_NR]; their maxima; their sums, inverted. Tasks
 * that see only some of the keys take maxima and sums from `stats`, where others left them. */
static void pf_fill_strip(pf_task *t, int64_t first, int64_t count, float *stats) {
  const int64_t *arg = t->job.arg, end = t->base + t->lines;
  for (int64_t i = 0; i < arg[PF_TAKEN]; i++) t->top[i] = PF_LOWEST, t->total[i] = 0;
  for (int64_t j = pf_begin(arg, first, t->base); j < end; j += PF_BLOCK)
    for (int64_t r = 0; r < count; r += PF_NR) {
      const int64_t seen = pf_seen(arg, first + r, j, pf_min(PF_BLOCK, end - j));
      const int64_t at = r * t->room + (j - t->base) * PF_NR;
      if (seen == 0 || j < pf_begin(arg, first + r, t->base)) continue;
      pf_scores(&t->job, &t->k, t->base, t->query + r * pf_words(arg[PF_DEPTH]), first + r, pf_min(PF_NR, count - r), j,
                seen, t->strip + at, t->top + r, t->bent ? t->bent + at : NULL);
    }
  for (int64_t i = 0; i < count && t->sum == PF_SUM_KEYS; i++) t->top[i] = stats[2 * i];
  for (int64_t r = 0; r < count; r += PF_NR) {
    const int64_t begin = pf_begin(arg, first + r, t->base) - t->base;
    pf_raise_in_place(t->strip + r * t->room + begin * PF_NR, pf_seen(arg, first + r, t->base, t->lines) - begin,
                      t->top + r, t->total + r);
  }
  pf_invert(t->total, count);
  for (int64_t i = 0; i < count; i++) {
    if (t->sum == PF_SUM_KEYS) t->total[i] = stats[2 * i + 1];
    if (t->sum == PF_SUM_QUERIES) stats[2 * i] = t->top[i], stats[2 * i + 1] = t->total[i];
  }
}

/* dp = (dp - delta) bent */
static void pf_unbend(float *dp, int64_t keys, const float *delta, const float *bent) {
  for (int64_t k = 0; k < keys; k++)
    for (int v = 0; v < PF_NV; v++) *pf_at(dp, k, v) = (*pf_at(dp, k, v) - *pf_at(delta, 0, v)) * *pf_at(bent, k, v);
}

/* What a group of queries adds to dK and dV, and its dQ. */
static void pf_back_group(pf_task *t, int64_t h, int64_t first, int64_t count) {
  const int64_t *arg = t->job.arg, depth = arg[PF_DEPTH], width = arg[PF_WIDTH];
  const int64_t heads = arg[PF_HEADS] * arg[PF_SHARE], to = 5 + pf_extras(arg);
  const int64_t panels = pf_div_up(count, PF_NR), sums = pf_sum_lines(depth) * PF_NR, end = t->base + t->lines;
  const pf_a_t *g = pf_head(&t->job, 0, PF_G, t->b, h, first), *q = pf_head(&t->job, 1, PF_Q, t->b, h, first);
  pf_find_mask(&t->job, 5, t->b, h);
  pf_pack_rows(t->query, q, count, depth, arg + PF_Q);
  pf_pack_rows(t->slope, g, count, width, arg + PF_G);
  if (t->sum & PF_SUM_KEYS) {
    pf_pack_cross(t->query_cross, q, count, depth, arg[PF_Q + 2], arg[PF_Q + 3]);
    pf_pack_cross(t->slope_cross, g, count, width, arg[PF_G + 2], arg[PF_G + 3]);
  }
  for (int64_t i = 0; i < arg[PF_TAKEN]; i++) t->delta[i] = 0;
  pf_delta(t->delta, g, arg + PF_G, pf_head(&t->job, 4, PF_O, t->b, h, first), arg + PF_O, count, width);
  pf_fill_strip(t, first, count,
                (float *)t->job.buf[to + 1] + 2 * ((t->b * heads + h) * arg[PF_ROOM] + arg[PF_FIRST] + first));
  for (int64_t i = 0; i < panels * sums; i++) t->dq[i] = 0;
  for (int64_t j = pf_begin(arg, first, t->base); j < end; j += PF_BLOCK) {
    const int64_t block = pf_min(PF_BLOCK, end - j), most = pf_seen(arg, first + (panels - 1) * PF_NR, j, block);
    const int64_t ahead = j - first - arg[PF_MOST];
    for (int64_t panel = 0; panel < panels; panel++) {
      const int64_t r = panel * PF_NR, at = r * t->room + (j - t->base) * PF_NR;
      const int64_t past = j < pf_begin(arg, first + r, t->base), seen = past ? 0 : pf_seen(arg, first + r, j, block);
      if (seen == 0 && !past) continue; /* pf_cross leaves it out; but one that is past has to be zeros */
      pf_by_rows(&t->v, j - t->base, seen, t->slope + r * pf_words(width), t->dp);
      if (t->bent) pf_unbend(t->dp, seen, t->delta + r, t->bent + at);
      const pf_word_t *slopes = pf_slopes(t->strip + at, t->dp, seen, most, panel, t->total + r,
                                          t->bent ? t->none : t->delta + r, t->p, t->ds, t->right);
      if (seen && t->sum & PF_SUM_QUERIES) pf_by_cols(&t->k, j - t->base, seen, slopes, t->dq + panel * sums);
    }
    if (t->sum & PF_SUM_KEYS) {
      pf_cross(t->p, most, ahead, panels, t->slope_cross, width, t->dv, j - t->base, t->lines);
      pf_cross(t->ds, most, ahead, panels, t->query_cross, depth, t->dk, j - t->base, t->lines);
    }
  }
  for (int64_t r = 0; r < count && t->sum & PF_SUM_QUERIES; r += PF_NR)
    pf_store_panel(pf_result(&t->job, (int)to, PF_TO_Q, t->b, first + r) + h * depth, arg[PF_TO_Q + 2],
                   t->dq + r / PF_NR * sums, depth, pf_min(PF_NR, count - r), t->factor, t->job.spare);
}

static void pf_store_sums(pf_a_t *to, const float *c, int64_t line, int64_t lines, int64_t depth, float factor) {
  for (int64_t d = 0, run; d < depth; d += run) {
    const float *from = pf_sums_at(c, line, d, lines, depth, &run);
    for (int64_t i = 0; i < run; i++) to[d + i] = PF_STORE(from[i] * factor);
  }
}

/* Part `split` of `splits` of the queries that share a head, and of its keys as many as `most` from `base` on. */
static void pf_back(const pf_entry *e, int sum, int64_t head, int64_t split, int64_t splits, int64_t base, int64_t most,
                    int64_t worker) {
  const int64_t *arg = e->arg, lines = pf_max(0, pf_min(most, arg[PF_KEYS] - base));
  const int64_t depth = arg[PF_DEPTH], width = arg[PF_WIDTH], taken = arg[PF_TAKEN], queries = arg[PF_QUERIES];
  const int64_t share = arg[PF_SHARE], groups = pf_div_up(queries, taken), units = share * groups;
  pf_task t = {pf_job_of(e->buf, arg), sum, e->b, head, base, lines};
  pf_open(&t, worker);
  pf_pack_side(&t.k, pf_head(&t.job, 2, PF_K, t.b, t.head, base), arg[PF_K + 2], arg[PF_K + 3]);
  pf_pack_side(&t.v, pf_head(&t.job, 3, PF_V, t.b, t.head, base), arg[PF_V + 2], arg[PF_V + 3]);
  for (int64_t i = 0; i < pf_sums_words(lines, depth); i++) t.dk[i] = 0;
  for (int64_t i = 0; i < pf_sums_words(lines, width); i++) t.dv[i] = 0;
  for (int64_t unit = units * split / splits; unit < units * (split + 1) / splits; unit++) {
    const int64_t first = unit % groups * taken, count = pf_min(taken, queries - first);
    const int64_t seen = first + count + arg[PF_MOST] > base && first + arg[PF_LEAST] < base + lines;
    if (seen || sum & PF_SUM_QUERIES) /* what sees nothing has a gradient, too: 0 */
      pf_back_group(&t, t.head * share + unit / groups, first, count);
  }
  const int to = (int)(5 + pf_extras(arg));
  const int64_t stored = pf_min(most, arg[PF_STORED] - base); /* those that do not count have gradients, too: 0 */
  for (int64_t i = lines; i < stored && sum & PF_SUM_KEYS; i++) {
    pf_a_t *dk = pf_result(&t.job, to, PF_TO_K, t.b, base + i), *dv = pf_result(&t.job, to, PF_TO_V, t.b, base + i);
    for (int64_t d = 0; d < depth; d++) dk[t.head * depth + d] = PF_STORE(0.0f);
    for (int64_t d = 0; d < width; d++) dv[t.head * width + d] = PF_STORE(0.0f);
  }
  for (int64_t i = 0; i < lines && sum & PF_SUM_KEYS; i++) {
    pf_a_t *dk = pf_result(&t.job, to, PF_TO_K, t.b, base + i), *dv = pf_result(&t.job, to, PF_TO_V, t.b, base + i);
    pf_store_sums(dk + t.head * depth, t.dk, i, lines, depth, t.job.scale);
    pf_store_sums(dv + t.head * width, t.dv, i, lines, width, 1);
  }
}

/* One iteration is one head of K and V. */
PF_KERNEL(PF_GLUE(PF_NAME, _backward)) {
  (void)uni;
  const int64_t heads = arg[PF_HEADS];
  pf_entry e;
  pf_kernel_begin();
  for (int64_t head = begin; head < end; head++) {
    pf_enter(&e, buf, arg, head / heads);
    pf_back(&e, PF_SUM_QUERIES | PF_SUM_KEYS, head % heads, 0, 1, 0, arg[PF_STORED], worker);
  }
  pf_kernel_end();
}

/* One iteration is some of the queries that share a head. */
PF_KERNEL(PF_GLUE(PF_NAME, _rows)) {
  (void)uni;
  const int64_t splits = arg[PF_SPLITS], heads = arg[PF_HEADS];
  pf_entry e;
  pf_kernel_begin();
  for (int64_t task = begin; task < end; task++) {
    pf_enter(&e, buf, arg, task / splits / heads);
    pf_back(&e, PF_SUM_QUERIES, task / splits % heads, task % splits, splits, 0, arg[PF_STORED], worker);
  }
  pf_kernel_end();
}

/* One iteration is a block of the keys of a head. */
PF_KERNEL(PF_GLUE(PF_NAME, _keys)) {
  (void)uni;
  const int64_t blocks = pf_div_up(arg[PF_STORED], PF_BLOCK), heads = arg[PF_HEADS];
  pf_entry e;
  pf_kernel_begin();
  for (int64_t task = begin; task < end; task++) {
    pf_enter(&e, buf, arg, task / blocks / heads);
    pf_back(&e, PF_SUM_KEYS, task / blocks % heads, 0, 1, task % blocks * PF_BLOCK, PF_BLOCK, worker);
  }
  pf_kernel_end();
}

#endif

/* ---- the tile permission of AMX builds, asked for once per process; 0: granted or not needed ---- */

int64_t PF_GLUE(PF_NAME, _permit)(void) { return pf_kernel_permit(); }
