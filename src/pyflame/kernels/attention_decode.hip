/* Attention of few queries over many keys, as when a language model decodes: O = softmax(Q K^T * scale + mask) V.
 *
 * Memory's speed is the limit, so keys and values are read once, 16 bytes a lane, straight into registers, and many
 * reads are on their way at a time. A block has ROWS of the queries that share a head of keys (those of all its query
 * heads), and one of SPLITS parts of the keys that they see; where there are more rows than registers hold, the blocks
 * of the others run beside it and find the keys in L2.
 *
 *   LANES lanes have a line: PIECES pieces of 16 bytes each. A wave takes PF_WAVE / LANES keys at once, DEEP times.
 *   The products of ROWS queries with a key are added over lanes by halves: each exchange halves the rows that a lane
 *   still adds, so that in the end each has the score of one row. It keeps that row's maximum and sum, and hands the
 *   weight to all lanes, which add weight times value to their part of the result.
 *
 * Then maxima, sums and results of lanes meet by exchanges, those of waves in LDS, and those of blocks in scratch:
 * pf_attend_join adds them up by their maxima. With one split the result is stored at once, by one launch.
 *
 * S (D + E) numbers are read and 4 T S H D flops done: 2 ROWS flops a number.
 */
#ifndef PF_ATTENTION_DECODE_HIP
#define PF_ATTENTION_DECODE_HIP
#include "pf_attend.h"
#include "pf_element.h"

enum {
  PF_DEC_THREADS = 128,
  PF_DEC_MOST_SPLITS = 64,
  PF_DEC_SPLITS = PF_ATT_SPANS + 1,
  /* pages: how many, 2^shift lines each; steps from one to the next; strides of table, lengths, sinks and scales */
  PF_PAGE_COUNT, PF_PAGE_SHIFT, PF_PAGE_CHECK, PF_PAGE_KEY, PF_PAGE_VALUE, PF_PAGE_TABLE,
  PF_PAGE_COLUMN, PF_PAGE_LENGTHS, PF_PAGE_SINKS, PF_PAGE_KEY_SCALE, PF_PAGE_VALUE_SCALE = PF_PAGE_KEY_SCALE + 3,
};
template <class T, int GIVEN> struct pf_page_scale {
  enum { SCALED = GIVEN };
  typedef T E;
};

typedef pf_vector<uint32_t, 4> pf_words; /* a piece; as numbers of 16 bits the compiler would take its load apart */

PF_FN uint32_t pf_bits_of(float x) { return pf_bits_f32(x); } PF_FN uint32_t pf_bits_of(uint16_t x) { return x; }
PF_FN uint32_t pf_bits_of(uint8_t x) { return x; } PF_FN uint32_t pf_bits_of(int8_t x) { return (uint8_t)x; }

/* A piece of a line from number k on, and 0 where there is none. */
template <int VECTOR, class S> PF_FN pf_words pf_read_words(const pf_matrix<S> &from, int line, int k) {
  enum { PIECE = 16 / sizeof(S), EACH = 4 / sizeof(S) };
  pf_words got;
  if (VECTOR) {
    const int inside = line < from.lines && k < from.depth;
    got = *(const pf_words *)(from.at + pf_least(line, from.lines - 1) * from.line_step + (k < from.depth ? k : 0));
    PF_UNROLL
    for (int w = 0; w < 4; w++) got.at[w] = inside ? got.at[w] : 0;
  } else {
    const pf_vector<S, PIECE> numbers = pf_read<PIECE, 0>(from, line, k);
    PF_UNROLL
    for (int w = 0; w < 4; w++) got.at[w] = 0;
    PF_UNROLL
    for (int n = 0; n < PIECE; n++) got.at[n / EACH] |= pf_bits_of(numbers.at[n]) << 32 / EACH * (n % EACH);
  }
  return got;
}
/* Number n of a piece. */
PF_FN float pf_number(pf_of<float>, const pf_words &piece, int n) { return pf_from_bits_f32(piece.at[n]); }
template <class E> PF_FN float pf_number(E, const pf_words &piece, int n) {
  enum { EACH = 4 / sizeof(typename E::stored) };
  return (float)E::load((typename E::stored)(piece.at[n / EACH] >> 32 / EACH * (n % EACH)));
}
#define PF_FLOAT8_NUMBER(name)                                               \
  PF_FN float pf_number(pf_##name, const pf_words &piece, int n) {           \
    uint8_t four[4];                                                         \
    __builtin_memcpy(four, &piece.at[n / 4], 4);                             \
    return pf_##name##_at(four, n % 4);                                      \
  }
PF_FLOAT8_NUMBER(f8e4m3fn)
PF_FLOAT8_NUMBER(f8e4m3fnuz)
PF_FLOAT8_NUMBER(f8e5m2)

/* x[0] becomes the sum over LANES neighbouring lanes of the row that this lane is for; of each row, LANES / ROWS are. */
template <int LANES, int ROWS> PF_FN float pf_rows_sum(float *x) {
  int count = ROWS;
  PF_UNROLL
  for (int w = LANES / 2; w > 0; w /= 2) {
    if (count > 1) {
      count /= 2;
      const int upper = pf_thread() & w;
      PF_UNROLL
      for (int i = 0; i < ROWS / 2; i++) {
        if (i >= count) continue;
        const float kept = upper ? x[i + count] : x[i], sent = upper ? x[i] : x[i + count];
        x[i] = kept + pf_shuffle_xor(sent, w);
      }
    } else {
      x[0] += pf_shuffle_xor(x[0], w);
    }
  }
  return x[0];
}

/* Keys and values as they lie: in lines behind each other, or in pages of 2^PF_PAGE_SHIFT lines that a table names.
 * key_at, value_at: where a line begins, if its strides are below 2^31. */
template <class S, int VECTOR> struct pf_lines_whole {
  enum { PAGED = 0, SCALED = 0 };
  pf_matrix<S> keys, values;
  PF_MEMBER int find(int line) const { return line; }
  PF_MEMBER pf_words key(int line, int k) const { return pf_read_words<VECTOR>(keys, line, k); }
  PF_MEMBER pf_words value(int line, int k) const { return pf_read_words<VECTOR>(values, line, k); }
#if defined(__CUDACC__) || defined(PF_EMULATE)
  PF_MEMBER const S *key_at(int line) const { return keys.at + (int64_t)line * (int)keys.line_step; }
  PF_MEMBER const S *value_at(int line) const { return values.at + (int64_t)line * (int)values.line_step; }
#endif
};
struct pf_place_of_line {
  int inside, line, page;
};
template <class S, int VECTOR, class C> struct pf_lines_paged {
  enum { PAGED = 1, SCALED = C::SCALED };
  pf_matrix<S> keys, values; /* of page 0 */
  const int *table;
  const typename C::E::stored *scales, *value_scales;
  pf_late_args arg;
  int64_t *err;
  int head;
  PF_MEMBER pf_place_of_line find(int line) const {
    const int shift = (int)arg[PF_PAGE_SHIFT], inside = line < keys.lines;
    const int page = table[(pf_least(line, keys.lines - 1) >> shift) * arg[PF_PAGE_COLUMN]];
    const int bad = (unsigned)page >= (unsigned)arg[PF_PAGE_COUNT];
    if (bad) pf_bad_index(err, arg[PF_PAGE_CHECK], page, arg[PF_PAGE_COUNT]);
    return {inside, line & ((1 << shift) - 1), bad ? 0 : page};
  }
  PF_MEMBER int pack(int line) const {
    const pf_place_of_line at = find(line);
    return at.page << arg[PF_PAGE_SHIFT] | at.line;
  }
  PF_MEMBER pf_place_of_line unpack(int packed, int inside) const {
    const int shift = (int)arg[PF_PAGE_SHIFT];
    return {inside, packed & ((1 << shift) - 1), packed >> shift};
  }
  PF_MEMBER pf_matrix<S> line_of(pf_matrix<S> from, const pf_place_of_line &p, int page_step) const {
    from.at += p.page * arg[page_step] + p.line * from.line_step, from.lines = p.inside, from.line_step = 0;
    return from;
  }
  PF_MEMBER pf_words key(const pf_place_of_line &p, int k) const { return pf_read_words<VECTOR>(line_of(keys, p, PF_PAGE_KEY), 0, k); }
  PF_MEMBER pf_words value(const pf_place_of_line &p, int k) const { return pf_read_words<VECTOR>(line_of(values, p, PF_PAGE_VALUE), 0, k); }
#if defined(__CUDACC__) || defined(PF_EMULATE)
  PF_MEMBER const S *line_at(const pf_matrix<S> &from, const pf_place_of_line &p, int page_step) const {
    return from.at + (int64_t)p.page * (int)arg[page_step] + p.line * (int)from.line_step;
  }
  PF_MEMBER const S *key_at(const pf_place_of_line &p) const { return line_at(keys, p, PF_PAGE_KEY); }
  PF_MEMBER const S *value_at(const pf_place_of_line &p) const { return line_at(values, p, PF_PAGE_VALUE); }
#endif
  PF_MEMBER float scale(const typename C::E::stored *of, const pf_place_of_line &p, int strides) const {
    return C::E::load(of[p.page * arg[strides] + p.line * arg[strides + 1] + head * arg[strides + 2]]);
  }
  PF_MEMBER float key_scale(const pf_place_of_line &p) const { return scale(scales, p, PF_PAGE_KEY_SCALE); }
  PF_MEMBER float value_scale(const pf_place_of_line &p) const { return scale(value_scales, p, PF_PAGE_VALUE_SCALE); }
};

/* Where the maximum and the sum of split `n` of a row lie, and the sums of its results. */
PF_FN float *pf_part_of(char *scratch, int64_t row, int split, int splits, int width) {
  return (float *)scratch + (row * splits + split) * (width + 2);
}

/* The keys [from, to) that any query of a batch sees, and how many of them a split has. A query at i sees those from
 * i + low to i + high: of `keys` there are, where the first query stands at key `offset`. */
struct pf_few_keys {
  int low, high, from, to, part;
  PF_MEMBER int used() const { return part ? (to - from + part - 1) / part : 1; } /* splits: the first one always */
};
template <int STEP>
PF_FN pf_few_keys pf_few_keys_of(pf_late_args arg, const int *live, const int *offsets, int step, int batch) {
  const int queries = (int)arg[PF_ATT_ROWS], splits = (int)arg[PF_DEC_SPLITS];
  const int keys = live ? pf_least(live[batch * step], (int)arg[PF_ATT_COLS]) : (int)arg[PF_ATT_COLS];
  const int offset = !live ? 0 : offsets ? offsets[batch * step] : keys - queries;
  pf_few_keys seen;
  seen.low = (int)arg[PF_ATT_LOW] + offset, seen.high = (int)arg[PF_ATT_HIGH] + offset;
  seen.from = seen.low > 0 ? seen.low : 0, seen.to = pf_least(keys, queries + seen.high);
  seen.part = seen.to > seen.from ? ((seen.to - seen.from + splits - 1) / splits + STEP - 1) / STEP * STEP : 0;
  return seen;
}

/* What a block has: ROWS from `first` on of those that share a head, and some of the keys that they see. */
struct pf_few_place {
  int first, split, batch, shared, low, high, begin, end;
  PF_MEMBER int idle() const { return split && begin >= end; }
};
template <int ROWS, int STEP>
PF_FN pf_few_place pf_few_place_of(pf_late_args arg, const int *live, const int *offsets, int step) {
  const int queries = (int)arg[PF_ATT_ROWS], heads = (int)arg[PF_ATT_HEADS], share = (int)arg[PF_ATT_SHARED];
  const int groups = (share * queries + ROWS - 1) / ROWS, splits = (int)arg[PF_DEC_SPLITS], part = pf_block() / groups;
  pf_few_place at;
  at.first = pf_block() % groups * ROWS, at.split = part % splits;
  at.batch = part / splits / (heads / share), at.shared = part / splits - at.batch * (heads / share);
  const pf_few_keys seen = pf_few_keys_of<STEP>(arg, live, offsets, step, at.batch);
  at.low = seen.low, at.high = seen.high;
  at.begin = seen.from + at.split * seen.part, at.end = pf_least(seen.to, at.begin + seen.part);
  return at;
}

/* Of ROWS rows each of WAVES waves has put its maximum, its sum and LINE sums of results into LDS: they become the
 * result, or with more splits than one a part of it. */
template <class E, int WAVES, int ROWS, int LINE>
PF_FN void pf_few_store(const float *lds, const pf_few_place &at, char *scratch, typename E::stored *out, pf_late_args arg) {
  const int queries = (int)arg[PF_ATT_ROWS], heads = (int)arg[PF_ATT_HEADS], share = (int)arg[PF_ATT_SHARED];
  const int splits = (int)arg[PF_DEC_SPLITS], width = (int)arg[PF_ATT_WIDTH];
  for (int n = pf_thread(); n < ROWS * width; n += WAVES * PF_WAVE) {
    const int r = n / width, e = n - r * width, which = at.first + r;
    float best = -PF_INF, all = 0.0f, sum = 0.0f;
    PF_UNROLL
    for (int w = 0; w < WAVES; w++) best = pf_max_f32(best, lds[(w * ROWS + r) * (LINE + 2)]);
    PF_UNROLL
    for (int w = 0; w < WAVES; w++) {
      const float *const part_of = lds + (w * ROWS + r) * (LINE + 2);
      const float by = pf_exp2(part_of[0] - pf_base(best));
      all = pf_mul_add(part_of[1], by, all);
      sum = pf_mul_add(part_of[2 + e], by, sum);
    }
    if (which >= share * queries) continue;
    const int head = at.shared * share + which / queries, line = which % queries;
    if (splits > 1) {
      float *const to_part = pf_part_of(scratch, ((int64_t)at.batch * heads + head) * queries + line, at.split, splits, width);
      to_part[2 + e] = sum;
      if (e == 0) to_part[0] = best, to_part[1] = all;
    } else {
      pf_late_args place = arg + PF_ATT_OUT;
      out[place[0] + at.batch * place[1] + head * place[2] + line * place[3] + e] = E::store(sum * pf_inverse(all));
    }
  }
}

/* E: the element of queries and results; K: that of keys and values. */
template <class E, class K, int LANES, int PIECES, int ROWS_, int VECTOR_, int MASK, int CAP> struct pf_few {
  typedef typename E::stored S;
  typedef float unit; /* of LDS */
  enum {
    ROWS = ROWS_,
    VECTOR = VECTOR_,
    PIECE = 16 / sizeof(typename K::stored),
    NUMBERS = PIECES * PIECE, /* of a line in a lane */
    GROUPS = PF_DEC_THREADS / LANES,
    WAVES = PF_DEC_THREADS / PF_WAVE,
    DEEP = PIECES == 4 || ROWS == 8 ? 2 : 4, /* keys of a lane at a time, as registers allow */
    STEP = GROUPS * DEEP,                    /* and of a block */
    LINE = LANES * NUMBERS,
    LDS = WAVES * ROWS * (LINE + 2),
    LIKE = sizeof(typename K::stored) == sizeof(S), /* a piece of a query has as many numbers */
  };

  template <class L, class M>
  PF_FN void attend(const S *q, const L &lines, const pf_few_place &at, const M *mask, const float *sinks, float *lds,
                    char *scratch, S *out, pf_late_args arg) {
    const int queries = (int)arg[PF_ATT_ROWS], share = (int)arg[PF_ATT_SHARED], rows = share * queries;
    const int depth = (int)arg[PF_ATT_DEPTH];
    const int first = at.first, split = at.split, batch = at.batch, shared = at.shared;
    const int lane = pf_thread() % LANES, group = pf_thread() / LANES;
    const float scale = pf_from_bits_f32((uint32_t)arg[PF_ATT_SCALE]), cap = pf_from_bits_f32((uint32_t)arg[PF_ATT_CAP]);
    const float two = 1.44269504f; /* weights are powers of 2 */

    float query[ROWS][NUMBERS], sums[ROWS][NUMBERS];
    PF_UNROLL
    for (int r = 0; r < ROWS; r++) {
      const int row = pf_least(first + r, rows - 1), head = shared * share + row / queries;
      const pf_matrix<S> from_q = pf_matrix_of(q, arg + PF_ATT_A, batch, head, queries, depth);
      PF_UNROLL
      for (int p = 0; p < PIECES; p++) {
        const int from_k = (p * LANES + lane) * PIECE;
        pf_words got;
        if constexpr (LIKE) got = pf_read_words<VECTOR>(from_q, row % queries, from_k);
        PF_UNROLL
        for (int e = 0; e < PIECE; e++) {
          const float number = LIKE ? pf_number(E(), got, e) : E::load(pf_read<1, 0>(from_q, row % queries, from_k + e).at[0]);
          query[r][p * PIECE + e] = number * (CAP ? scale / cap : scale * two);
          sums[r][p * PIECE + e] = 0.0f;
        }
      }
    }
    const int mine = lane / (LANES / ROWS), row = pf_least(first + mine, rows - 1), query_of = row % queries;
    const M *masked = MASK ? pf_head(mask, arg + PF_ATT_MASK, batch, shared * share + row / queries) : mask;
    float top = -PF_INF, total = 0.0f;
    if (sinks && split == 0 && group == 0) top = sinks[(shared * share + row / queries) * arg[PF_PAGE_SINKS]] * two, total = 1.0f;
    for (int left = at.begin; left < at.end; left += STEP) {
      pf_words key[DEEP][PIECES], value[DEEP][PIECES];
      float by_key[DEEP], by_value[DEEP];
      PF_UNROLL
      for (int u = 0; u < DEEP; u++) {
        const auto line = lines.find(left + u * GROUPS + group);
        PF_UNROLL
        for (int p = 0; p < PIECES; p++) {
          key[u][p] = lines.key(line, (p * LANES + lane) * PIECE);
          value[u][p] = lines.value(line, (p * LANES + lane) * PIECE);
        }
        if constexpr (L::SCALED) by_key[u] = lines.key_scale(line), by_value[u] = lines.value_scale(line);
      }
      float weight[DEEP], most = top;
      PF_UNROLL
      for (int u = 0; u < DEEP; u++) {
        float score[ROWS];
        PF_UNROLL
        for (int r = 0; r < ROWS; r++) {
          score[r] = 0.0f;
          PF_UNROLL
          for (int n = 0; n < NUMBERS; n++)
            score[r] = pf_mul_add(query[r][n], pf_number(K(), key[u][n / PIECE], n % PIECE), score[r]);
        }
        float x = pf_rows_sum<LANES, ROWS>(score);
        if (L::SCALED) x *= by_key[u];
        if (CAP) x = pf_tanh(x) * (cap * two);
        const int j = left + u * GROUPS + group;
        int seen = j < at.end && j - query_of >= at.low && j - query_of <= at.high;
        if (MASK && seen) {
          const M given = masked[query_of * arg[PF_ATT_MASK + 2] + j * arg[PF_ATT_MASK + 3]];
          if (MASK == 1)
            seen = given != 0;
          else
            x += given * two;
        }
        weight[u] = seen ? x : -PF_INF;
        most = pf_max_f32(most, weight[u]);
      }
      const float less = pf_exp2(top - pf_base(most));
      top = most;
      total *= less;
      PF_UNROLL
      for (int u = 0; u < DEEP; u++) {
        weight[u] = pf_exp2(weight[u] - pf_base(most));
        total += weight[u];
      }
      PF_UNROLL
      for (int r = 0; r < ROWS; r++) {
        const int owner = pf_thread() % PF_WAVE - lane + r * (LANES / ROWS);
        const float shrink = pf_shuffle(less, owner);
        PF_UNROLL
        for (int n = 0; n < NUMBERS; n++) sums[r][n] *= shrink;
        PF_UNROLL
        for (int u = 0; u < DEEP; u++) {
          const float by = L::SCALED ? pf_shuffle(weight[u], owner) * by_value[u] : pf_shuffle(weight[u], owner);
          PF_UNROLL
          for (int n = 0; n < NUMBERS; n++)
            sums[r][n] = pf_mul_add(by, pf_number(K(), value[u][n / PIECE], n % PIECE), sums[r][n]);
        }
      }
    }

    /* The lanes of a wave that have the same numbers, then waves. */
    float most = top;
    PF_UNROLL
    for (int w = LANES; w < PF_WAVE; w *= 2) most = pf_max_f32(most, pf_shuffle_xor(most, w));
    const float less = pf_exp2(top - pf_base(most));
    total *= less;
    PF_UNROLL
    for (int w = LANES; w < PF_WAVE; w *= 2) total += pf_shuffle_xor(total, w);
    const int wave = pf_thread() / PF_WAVE, leads = pf_thread() % PF_WAVE < LANES;
    PF_UNROLL
    for (int r = 0; r < ROWS; r++) {
      float *const to_lds = lds + (wave * ROWS + r) * (LINE + 2);
      const float shrink = pf_shuffle(less, pf_thread() % PF_WAVE - lane + r * (LANES / ROWS));
      PF_UNROLL
      for (int n = 0; n < NUMBERS; n++) {
        float x = sums[r][n] * shrink;
        PF_UNROLL
        for (int w = LANES; w < PF_WAVE; w *= 2) x += pf_shuffle_xor(x, w);
        if (leads) to_lds[2 + (n / PIECE * LANES + lane) * PIECE + n % PIECE] = x;
      }
      if (leads && lane == r * (LANES / ROWS)) to_lds[0] = most, to_lds[1] = total;
    }
    pf_barrier();
    pf_few_store<E, WAVES, ROWS, LINE>(lds, at, scratch, out, arg);
  }

};

/* FEW: what attends, pf_few or pf_few_mma. */
template <class FEW, int SPANS, class S, class M>
PF_FN void pf_few_whole(const S *q, const S *k, const S *v, const M *mask, typename FEW::unit *lds, char *scratch, S *out,
                        pf_late_args arg, const int *spans) {
  const int *const live = SPANS ? spans + PF_SPAN_LIVE : 0, *const offsets = SPANS ? spans + PF_SPAN_OFFSET : 0;
  const pf_few_place at = pf_few_place_of<FEW::ROWS, FEW::STEP>(arg, live, offsets, PF_SPAN);
  if (at.idle()) return;
  /* of values, those beyond the end are 0: weight 0 of what is no number is none */
  const pf_lines_whole<S, FEW::VECTOR> lines = {
      pf_matrix_of(k, arg + PF_ATT_B, at.batch, at.shared, at.end, (int)arg[PF_ATT_DEPTH]),
      pf_matrix_of(v, arg + PF_ATT_RIGHT, at.batch, at.shared, at.end, (int)arg[PF_ATT_WIDTH])};
  FEW::attend(q, lines, at, mask, (const float *)0, lds, scratch, out, arg);
}
/* C: whether numbers have a scale, and its element. */
template <class FEW, class C, class S, class N>
PF_FN void pf_few_paged(const S *q, const N *k, const N *v, const int *table, const int *lengths,
                        const typename C::E::stored *key_scale, const typename C::E::stored *value_scale,
                        const float *sinks, typename FEW::unit *lds, char *scratch, S *out, int64_t *err, pf_late_args arg) {
  const pf_few_place at = pf_few_place_of<FEW::ROWS, FEW::STEP>(arg, lengths, (const int *)0, (int)arg[PF_PAGE_LENGTHS]);
  if (at.idle()) return;
  const pf_lines_paged<N, FEW::VECTOR, C> lines = {
      pf_matrix_of(k, arg + PF_ATT_B, 0, at.shared, at.end, (int)arg[PF_ATT_DEPTH]),
      pf_matrix_of(v, arg + PF_ATT_RIGHT, 0, at.shared, at.end, (int)arg[PF_ATT_WIDTH]),
      table + at.batch * arg[PF_PAGE_TABLE], key_scale, value_scale, arg, err, at.shared};
  FEW::attend(q, lines, at, (const char *)0, sinks, lds, scratch, out, arg);
}

template <class E, int LANES, int PIECES, int ROWS, int VECTOR, int MASK, int CAP, int SPANS, class M>
PF_FN void pf_attend_few(const typename E::stored *q, const typename E::stored *k, const typename E::stored *v,
                         const M *mask, char *scratch, typename E::stored *out, pf_late_args arg,
                         const int *spans = 0) {
  typedef pf_few<E, E, LANES, PIECES, ROWS, VECTOR, MASK, CAP> few;
  PF_SHARED float lds[few::LDS];
  pf_few_whole<few, SPANS>(q, k, v, mask, lds, scratch, out, arg, spans);
}
template <class E, class K, class C, int LANES, int PIECES, int ROWS, int VECTOR, int CAP>
PF_FN void pf_attend_pages(const typename E::stored *q, const typename K::stored *k, const typename K::stored *v,
                           const int *table, const int *lengths, const typename C::E::stored *key_scale,
                           const typename C::E::stored *value_scale, const float *sinks, char *scratch,
                           typename E::stored *out, int64_t *err, pf_late_args arg) {
  typedef pf_few<E, K, LANES, PIECES, ROWS, VECTOR, 0, CAP> few;
  PF_SHARED float lds[few::LDS];
  pf_few_paged<few, C>(q, k, v, table, lengths, key_scale, value_scale, sinks, lds, scratch, out, err, arg);
}

/* One block for a row: the sum of its splits, each less by how far its maximum is below the highest. What waits for
 * memory is asked for at once: every wave has all maxima, and groups of `width` threads share the splits out. */
template <class E, int STEP, int THREADS>
PF_FN void pf_attend_join(char *scratch, typename E::stored *out, pf_late_args arg, const int *live = 0,
                          const int *offsets = 0, int live_step = 0) {
  enum { KEPT = PF_DEC_MOST_SPLITS / PF_WAVE, DEEP = 8 };
  const int queries = (int)arg[PF_ATT_ROWS], heads = (int)arg[PF_ATT_HEADS], width = (int)arg[PF_ATT_WIDTH];
  const int splits = (int)arg[PF_DEC_SPLITS], line = pf_block() % queries, entry = pf_block() / queries;
  const int batch = entry / heads, head = entry - batch * heads, step = width + 2;
  const int groups = THREADS / width, group = pf_thread() / width, e = pf_thread() - group * width;
  const int used = pf_few_keys_of<STEP>(arg, live, offsets, live_step, batch).used();
  PF_SHARED float met[THREADS];
  const float *const parts = pf_part_of(scratch, pf_block(), 0, splits, width);
  float top[KEPT], weight[KEPT], some[DEEP], best = -PF_INF, all = 0.0f, sum = 0.0f;
  PF_UNROLL
  for (int s = 0; s < KEPT; s++) {
    const int n = pf_thread() % PF_WAVE + s * PF_WAVE;
    top[s] = n < used ? parts[n * step] : -PF_INF;
    weight[s] = n < used ? parts[n * step + 1] : 0.0f;
  }
  for (int first = group; first - group < used; first += DEEP * groups) {
    PF_UNROLL
    for (int u = 0; u < DEEP; u++) {
      const int n = first + u * groups;
      some[u] = n < used ? parts[n * step + 2 + e] : 0.0f;
    }
    if (first == group) {
      PF_UNROLL
      for (int s = 0; s < KEPT; s++) best = pf_max_f32(best, top[s]);
      PF_UNROLL
      for (int w = 1; w < PF_WAVE; w *= 2) best = pf_max_f32(best, pf_shuffle_xor(best, w));
      PF_UNROLL
      for (int s = 0; s < KEPT; s++) {
        const float by = pf_exp2(top[s] - pf_base(best));
        all = pf_mul_add(weight[s], by, all);
        weight[s] = by;
      }
      PF_UNROLL
      for (int w = 1; w < PF_WAVE; w *= 2) all += pf_shuffle_xor(all, w);
    }
    PF_UNROLL
    for (int u = 0; u < DEEP; u++) {
      const int n = first + u * groups;
      float by = 0.0f;
      PF_UNROLL
      for (int s = 0; s < KEPT; s++) {
        const float given = pf_shuffle(weight[s], n % PF_WAVE);
        by = n / PF_WAVE == s ? given : by;
      }
      if (by != 0.0f) sum = pf_mul_add(some[u], by, sum); /* of no weight may be what is no number */
    }
  }
  met[pf_thread()] = sum;
  pf_barrier();
  if (group) return;
  for (int g = 1; g < groups; g++) sum += met[g * width + e];
  pf_late_args place = arg + PF_ATT_OUT;
  out[place[0] + batch * place[1] + head * place[2] + line * place[3] + e] = E::store(sum * pf_inverse(all));
}

#endif
