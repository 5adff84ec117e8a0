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
 * Short contexts take as long as instructions behind each other do, not as memory. So on NVIDIA's GPUs with clusters a
 * cluster has the splits of few rows, and its blocks meet in each other's LDS: no launch joins them. Over pages lines are
 * asked for (EARLY) while the launches before this one end.
 *
 * S (D + E) numbers are read and 4 T S H D flops done: 2 ROWS flops a number.
 */
#ifndef PF_ATTENTION_DECODE_HIP
#define PF_ATTENTION_DECODE_HIP
#include "pf_attend_lines.h"
#if defined(__CUDACC__) || defined(PF_EMULATE)
#include "pf_mma_async.h"
#else /* never called, without clusters */
enum { PF_CLUSTERS = 0 };
PF_FN void pf_meeting_send(uint64_t *at, pf_words *to, int rank, const pf_words &x);
PF_FN void pf_meeting_wait(uint64_t *at);
#endif

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
template <int STEP, class I>
PF_FN pf_few_keys pf_few_keys_of(pf_late_args arg, int splits, I *live, I *offsets, int step, int batch) {
  const int queries = (int)arg[PF_ATT_ROWS];
  const int keys = live ? pf_least(live[batch * step], (int)arg[PF_ATT_COLS]) : (int)arg[PF_ATT_COLS];
  const int offset = !live ? 0 : offsets ? offsets[batch * step] : keys - queries;
  pf_few_keys seen;
  seen.low = (int)arg[PF_ATT_LOW] + offset, seen.high = (int)arg[PF_ATT_HIGH] + offset;
  seen.from = seen.low > 0 ? seen.low : 0, seen.to = pf_least(keys, queries + seen.high);
  seen.part = seen.to > seen.from ? ((seen.to - seen.from + splits - 1) / splits + STEP - 1) / STEP * STEP : 0;
  return seen;
}

PF_FN int pf_head_of(int row, int queries) { return queries == 1 ? row : row / queries; }

/* What a block has: ROWS from `first` on of those that share a head, and some of the keys that they see. */
struct pf_few_place {
  int first, split, splits, batch, shared, low, high, begin, end;
  PF_MEMBER int idle() const { return split && begin >= end; }
};
template <class FEW> PF_FN pf_few_place pf_few_place_of(pf_late_args arg) {
  const int queries = (int)arg[PF_ATT_ROWS], share = (int)arg[PF_ATT_SHARED], shares = (int)arg[PF_ATT_HEADS] / share;
  const int groups = (share * queries + FEW::ROWS - 1) / FEW::ROWS;
  const int splits = FEW::CLUSTER > 1 ? FEW::CLUSTER : (int)arg[PF_DEC_SPLITS];
  const int entry = pf_block() / splits, part = entry / groups;
  pf_few_place at;
  at.split = FEW::TOGETHER ? 0 : pf_block() - entry * splits, at.splits = FEW::TOGETHER ? 1 : splits;
  at.first = (entry - part * groups) * FEW::ROWS;
  at.batch = part / shares, at.shared = part - at.batch * shares;
  return at;
}
template <class FEW, class I> PF_FN void pf_few_see(pf_few_place &at, pf_late_args arg, I *live, I *offsets, int step) {
  const pf_few_keys seen = pf_few_keys_of<FEW::PART>(arg, at.splits, live, offsets, step, at.batch);
  at.low = seen.low, at.high = seen.high;
  at.begin = seen.from + at.split * seen.part, at.end = pf_least(seen.to, at.begin + seen.part);
}

/* What N parts of a row have become together. at(n, i): of part n its maximum, its sum, and then results. */
struct pf_few_sum {
  float best, all, sum;
};
template <int N, class F> PF_FN pf_few_sum pf_few_meet(int e, const F &at) {
  float top[N], total[N], some[N];
  pf_few_sum met = {-PF_INF, 0.0f, 0.0f};
  PF_UNROLL
  for (int n = 0; n < N; n++) top[n] = at(n, 0), total[n] = at(n, 1), some[n] = at(n, 2 + e);
  PF_UNROLL
  for (int n = 0; n < N; n++) met.best = pf_max_f32(met.best, top[n]);
  PF_UNROLL
  for (int n = 0; n < N; n++) {
    const float by = pf_weight(top[n] - pf_base(met.best));
    met.all = pf_mul_add(total[n], by, met.all);
    met.sum = pf_mul_add(some[n], by, met.sum);
  }
  return met;
}

#if defined(__CUDACC__) || defined(PF_EMULATE)
/* Blocks of a cluster, one for each split, share the results of their rows out, and send each other a piece for each. */
template <class FEW> struct pf_few_meeting {
  enum { MOST = (FEW::ROWS * FEW::LINE + FEW::CLUSTER - 1) / FEW::CLUSTER };
  int share, count; /* results of a block, and of this one */
  pf_words *slots;
  uint64_t *at;
  PF_MEMBER pf_few_meeting(float *lds, const pf_few_place &here, int width) {
    share = (FEW::ROWS * width + FEW::CLUSTER - 1) / FEW::CLUSTER;
    count = pf_least(share, FEW::ROWS * width - here.split * share);
    slots = (pf_words *)(lds + FEW::WAVES * FEW::ROWS * (FEW::LINE + 2));
    at = (uint64_t *)(slots + FEW::CLUSTER * MOST);
  }
  PF_MEMBER pf_words *slot(int from, int n) const { return slots + from * share + n; }
};
#else
template <class FEW> struct pf_few_meeting;
#endif

/* Of ROWS rows each wave has put its maximum, its sum and LINE sums of results into LDS: they become the result, or with
 * more splits than one a part of it. */
template <class E, class FEW>
PF_FN void pf_few_store(float *lds, const pf_few_place &at, char *scratch, typename E::stored *out, pf_late_args arg) {
  enum { ROWS = FEW::ROWS, WAVES = FEW::WAVES, LINE = FEW::LINE + 2, CLUSTER = FEW::CLUSTER };
  const int queries = (int)arg[PF_ATT_ROWS], heads = (int)arg[PF_ATT_HEADS], share = (int)arg[PF_ATT_SHARED];
  const int width = FEW::KNOWN ? FEW::KNOWN : (int)arg[PF_ATT_WIDTH];
  const auto give = [&](int r, int e, const pf_few_sum &met) {
    const int which = at.first + r, of_share = pf_head_of(which, queries), line = which - of_share * queries;
    const int head = at.shared * share + of_share;
    if (which >= share * queries) return;
    if (CLUSTER == 1 && at.splits > 1) {
      float *const to_part =
          pf_part_of(scratch, ((int64_t)at.batch * heads + head) * queries + line, at.split, at.splits, width);
      to_part[2 + e] = met.sum;
      if (e == 0) to_part[0] = met.best, to_part[1] = met.all;
    } else {
      pf_late_args place = arg + PF_ATT_OUT;
      out[place[0] + at.batch * place[1] + head * place[2] + line * place[3] + e] = E::store(met.sum * pf_inverse(met.all));
    }
  };
  for (int n = pf_thread(); n < ROWS * width; n += WAVES * PF_WAVE) {
    const int r = n / width, e = n - r * width;
    const pf_few_sum met = pf_few_meet<WAVES>(e, [&](int w, int i) { return lds[(w * ROWS + r) * LINE + i]; });
    if constexpr (CLUSTER > 1) {
      const pf_few_meeting<FEW> meeting(lds, at, width);
      const int rank = n / meeting.share;
      const pf_words sent = {{pf_bits_f32(met.best), pf_bits_f32(met.all), pf_bits_f32(met.sum), 0}};
      pf_meeting_send(meeting.at, meeting.slot(at.split, n - rank * meeting.share), rank, sent);
    } else {
      give(r, e, met);
    }
  }
  if constexpr (CLUSTER > 1) {
    const pf_few_meeting<FEW> meeting(lds, at, width);
    if (pf_thread() < meeting.count) pf_meeting_wait(meeting.at);
    for (int n = pf_thread(); n < meeting.count; n += WAVES * PF_WAVE) {
      const int which = at.split * meeting.share + n, r = which / width;
      const auto sent = [&](int c, int i) { return ((const float *)meeting.slot(c, n))[i]; };
      give(r, which - r * width, pf_few_meet<CLUSTER>(0, sent));
    }
  }
}

/* E: the element of queries and results; K: that of keys and values. */
template <class E, class K, int LANES, int PIECES, int ROWS_, int THREADS_, int CLUSTER_, int VECTOR_, int MASK, int CAP> struct pf_few {
  typedef typename E::stored S;
  typedef float unit; /* of LDS */
  enum {
    ROWS = ROWS_,
    VECTOR = VECTOR_,
    THREADS = THREADS_,
    CLUSTER = PF_CLUSTERS ? CLUSTER_ : 1,
    TOGETHER = CLUSTER_ > CLUSTER, /* the host has no clusters: each block of one does all of it */
    PIECE = 16 / sizeof(typename K::stored),
    NUMBERS = PIECES * PIECE, /* of a line in a lane */
    GROUPS = THREADS / LANES,
    WAVES = THREADS / PF_WAVE,
    DEEP = PIECES == 4 || ROWS == 8 ? 2 : 4, /* keys of a lane at a time, as registers allow */
    STEP = GROUPS * DEEP,                    /* and of a block */
    PART = CLUSTER_ > 1 ? GROUPS : STEP,     /* a split has some of them */
    LINE = LANES * NUMBERS,
    KNOWN = VECTOR == 2 ? LINE : 0, /* numbers of a value, if known */
    LDS = WAVES * ROWS * (LINE + 2) + (CLUSTER > 1) * 4 * (ROWS * LINE + CLUSTER), /* pf_few_meeting */
    OWN = 16 / sizeof(S),  /* numbers in a piece of a query */
    EACH = PIECE / OWN,    /* such pieces for one of a key; none: numbers are read one by one */
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

    /* What waits for memory is asked for at once: queries, and where keys lie, a turn before they are read. */
    const auto row_of = [&](int r) { return pf_least(first + r, rows - 1); };
    const auto head_of = [&](int row) { return shared * share + pf_head_of(row, queries); };
    const auto line_of = [&](int row) { return row - pf_head_of(row, queries) * queries; };
    const auto query_of = [&](int row) { return pf_matrix_of(q, arg + PF_ATT_A, batch, head_of(row), queries, depth); };
    enum { ASKED = PIECES * EACH };
    pf_words asked[ROWS][ASKED + !ASKED];
    if constexpr (ASKED > 0)
      PF_UNROLL
      for (int n = 0; n < ROWS * ASKED; n++) {
        const int row = row_of(n / ASKED), k = (n % ASKED / EACH * LANES + lane) * PIECE + n % EACH * OWN;
        asked[n / ASKED][n % ASKED] = pf_read_words<VECTOR>(query_of(row), line_of(row), k);
      }
    typename L::place places[DEEP];
    pf_pieces pieces[DEEP];
    const auto find = [&](int left) {
      PF_UNROLL
      for (int u = 0; u < DEEP; u++) {
        const int j = left + u * GROUPS + group;
        places[u] = lines.find(VECTOR == 2 ? pf_least(j, at.end - 1) : j);
        if constexpr (VECTOR == 2) pieces[u] = lines.pieces(places[u]);
      }
    };
    if (at.begin < at.end) find(at.begin);
    float query[ROWS][NUMBERS], sums[ROWS][NUMBERS];
    PF_UNROLL
    for (int n = 0; n < ROWS * NUMBERS; n++) {
      const int r = n / NUMBERS, p = n % NUMBERS / PIECE, e = n % PIECE;
      float number;
      if constexpr (EACH > 0)
        number = pf_number(E(), asked[r][p * EACH + e / OWN], e % OWN);
      else
        number = E::load(pf_read<1, 0>(query_of(row_of(r)), line_of(row_of(r)), (p * LANES + lane) * PIECE + e).at[0]);
      query[r][p * PIECE + e] = number * (CAP ? scale / cap : scale * two);
      sums[r][p * PIECE + e] = 0.0f;
    }
    const int mine = lane / (LANES / ROWS), row = row_of(mine), head = head_of(row), place = line_of(row);
    const M *masked = MASK ? pf_head(mask, arg + PF_ATT_MASK, batch, head) : mask;
    float top = -PF_INF, total = 0.0f;
    if (sinks && split == 0 && group == 0) top = sinks[head * arg[PF_PAGE_SINKS]] * two, total = 1.0f;
    for (int left = at.begin; left < at.end; left += STEP) {
      pf_words key[DEEP][PIECES], value[DEEP][PIECES];
      float by_key[DEEP], by_value[DEEP];
      PF_UNROLL
      for (int u = 0; u < DEEP; u++) {
        PF_UNROLL
        for (int p = 0; p < PIECES; p++) {
          if constexpr (VECTOR == 2) { /* beyond the end the last line is read, for nothing */
            key[u][p] = pf_piece_at(lines.keys, pieces[u].key + p * LANES + lane);
            value[u][p] = pf_piece_at(lines.values, pieces[u].value + p * LANES + lane);
          } else {
            key[u][p] = lines.key(places[u], (p * LANES + lane) * PIECE);
            value[u][p] = lines.value(places[u], (p * LANES + lane) * PIECE);
          }
        }
        if constexpr (L::SCALED) by_key[u] = lines.key_scale(places[u]), by_value[u] = lines.value_scale(places[u]);
      }
      if (left + STEP < at.end) find(left + STEP);
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
        int seen = j < at.end && j - place >= at.low && j - place <= at.high;
        if (MASK && seen) {
          const M given = masked[place * arg[PF_ATT_MASK + 2] + j * arg[PF_ATT_MASK + 3]];
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
    pf_few_store<E, pf_few>(lds, at, scratch, out, arg);
  }

};

#if defined(__CUDACC__) || defined(PF_EMULATE)
template <class FEW> PF_FN void pf_few_begin(float *lds, const pf_few_place &at, pf_late_args arg) {
  const pf_few_meeting<FEW> meeting(lds, at, (int)arg[PF_ATT_WIDTH]);
  pf_meeting_begin(meeting.at, FEW::CLUSTER * (meeting.count > 0 ? meeting.count : 0));
}
/* Ask L2 for what a block will read, while launches before this one still write lengths, tables and the latest lines:
 * whatever is there now is looked up, and at worst the wrong lines are asked for. */
template <class FEW, int EARLY, class N>
PF_FN void pf_few_ask(pf_few_place at, const N *k, const N *v, const int *table, const int *lengths, pf_late_args arg) {
  typedef const volatile int changing;
  pf_few_see<FEW>(at, arg, (changing *)lengths, (changing *)0, (int)arg[PF_PAGE_LENGTHS]);
  const int shift = (int)arg[PF_PAGE_SHIFT], depth = (int)arg[PF_ATT_DEPTH], width = (int)arg[PF_ATT_WIDTH];
  const pf_matrix<N> keys = pf_matrix_of(k, arg + PF_ATT_B, 0, at.shared, 0, depth);
  const pf_matrix<N> values = pf_matrix_of(v, arg + PF_ATT_RIGHT, 0, at.shared, 0, width);
  changing *const pages = table + at.batch * arg[PF_PAGE_TABLE];
  for (int n = at.begin + pf_thread(); n < pf_least(at.end, at.begin + EARLY); n += FEW::THREADS) {
    const int page = pages[(n >> shift) * arg[PF_PAGE_COLUMN]], line = n & ((1 << shift) - 1);
    if ((unsigned)page >= (unsigned)arg[PF_PAGE_COUNT]) continue;
    const N *const key = keys.at + page * arg[PF_PAGE_KEY] + line * keys.line_step;
    const N *const value = values.at + page * arg[PF_PAGE_VALUE] + line * values.line_step;
    for (int e = 0; e < depth; e += 128 / sizeof(N)) pf_prefetch(key + e);
    for (int e = 0; e < width; e += 128 / sizeof(N)) pf_prefetch(value + e);
  }
}
#else
template <class FEW> PF_FN void pf_few_begin(float *lds, const pf_few_place &at, pf_late_args arg);
template <class FEW, int EARLY, class N>
PF_FN void pf_few_ask(pf_few_place at, const N *k, const N *v, const int *table, const int *lengths, pf_late_args arg);
#endif
/* FEW: what attends, pf_few or pf_few_mma. */
template <class FEW, int SPANS, class S, class M>
PF_FN void pf_few_whole(const S *q, const S *k, const S *v, const M *mask, typename FEW::unit *lds, char *scratch, S *out,
                        pf_late_args arg, const int *spans) {
  const int *const live = SPANS ? spans + PF_SPAN_LIVE : 0, *const offsets = SPANS ? spans + PF_SPAN_OFFSET : 0;
  pf_few_place at = pf_few_place_of<FEW>(arg);
  if constexpr (FEW::CLUSTER > 1) pf_few_begin<FEW>(lds, at, arg);
  pf_few_see<FEW>(at, arg, live, offsets, PF_SPAN);
  if (FEW::CLUSTER == 1 && at.idle()) return;
  /* of values, those beyond the end are 0: weight 0 of what is no number is none */
  const pf_lines_whole<S, FEW::VECTOR> lines = {
      pf_matrix_of(k, arg + PF_ATT_B, at.batch, at.shared, at.end, (int)arg[PF_ATT_DEPTH]),
      pf_matrix_of(v, arg + PF_ATT_RIGHT, at.batch, at.shared, at.end, (int)arg[PF_ATT_WIDTH])};
  FEW::attend(q, lines, at, mask, (const float *)0, lds, scratch, out, arg);
}
/* C: whether numbers have a scale, and its element. EARLY: of a block's keys, those that are asked for before other
 * launches end. */
template <class FEW, int EARLY, class C, class S, class N>
PF_FN void pf_few_paged(const S *q, const N *k, const N *v, const int *table, const int *lengths,
                        const typename C::E::stored *key_scale, const typename C::E::stored *value_scale,
                        const float *sinks, typename FEW::unit *lds, char *scratch, S *out, int64_t *err, pf_late_args arg) {
  pf_few_place at = pf_few_place_of<FEW>(arg);
  if constexpr (FEW::CLUSTER > 1) pf_few_begin<FEW>(lds, at, arg);
  if constexpr (EARLY > 0) {
    pf_few_ask<FEW, EARLY>(at, k, v, table, lengths, arg);
    pf_await();
  }
  pf_few_see<FEW>(at, arg, lengths, (const int *)0, (int)arg[PF_PAGE_LENGTHS]);
  if (FEW::CLUSTER == 1 && at.idle()) return;
  const pf_lines_paged<N, FEW::VECTOR, C> lines = {
      pf_matrix_of(k, arg + PF_ATT_B, 0, at.shared, at.end, (int)arg[PF_ATT_DEPTH]),
      pf_matrix_of(v, arg + PF_ATT_RIGHT, 0, at.shared, at.end, (int)arg[PF_ATT_WIDTH]),
      table + at.batch * arg[PF_PAGE_TABLE], key_scale, value_scale, arg, err, at.shared};
  FEW::attend(q, lines, at, (const char *)0, sinks, lds, scratch, out, arg);
}

template <class E, int LANES, int PIECES, int ROWS, int THREADS, int CLUSTER, int VECTOR, int MASK, int CAP, int SPANS, class M>
PF_FN void pf_attend_few(const typename E::stored *q, const typename E::stored *k, const typename E::stored *v,
                         const M *mask, char *scratch, typename E::stored *out, pf_late_args arg,
                         const int *spans = 0) {
  typedef pf_few<E, E, LANES, PIECES, ROWS, THREADS, CLUSTER, VECTOR, MASK, CAP> few;
  alignas(16) PF_SHARED float lds[few::LDS];
  pf_few_whole<few, SPANS>(q, k, v, mask, lds, scratch, out, arg, spans);
}
template <class E, class K, class C, int LANES, int PIECES, int ROWS, int THREADS, int CLUSTER, int VECTOR, int CAP, int EARLY>
PF_FN void pf_attend_pages(const typename E::stored *q, const typename K::stored *k, const typename K::stored *v,
                           const int *table, const int *lengths, const typename C::E::stored *key_scale,
                           const typename C::E::stored *value_scale, const float *sinks, char *scratch,
                           typename E::stored *out, int64_t *err, pf_late_args arg) {
  typedef pf_few<E, K, LANES, PIECES, ROWS, THREADS, CLUSTER, VECTOR, 0, CAP> few;
  alignas(16) PF_SHARED float lds[few::LDS];
  pf_few_paged<few, EARLY, C>(q, k, v, table, lengths, key_scale, value_scale, sinks, lds, scratch, out, err, arg);
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
  const int used = pf_few_keys_of<STEP>(arg, splits, live, offsets, live_step, batch).used();
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
