/* Attention and its gradient of 16-bit numbers by Hopper's wgmma (pf_warpgroup.h): what attention_mma.hip computes, for
 * lines that lie in aligned pieces of 16 bytes.
 *
 * A block has a tile of 128 lines of its own in LDS. One warpgroup copies: the own lines, and OTHERS lines of the other side a
 * turn, x and y, into STAGES places that go round. Two warpgroups compute, for 64 of the own lines each; they wait for what is
 * copied and say when they are done with it (mbarriers), but not for each other.
 *
 *   way                 own        x   y    a turn
 *   PF_MIX              Q          K   V    S = Q K^T, softmax, O += P V
 *   PF_SLOPES           Q, dO      K   V    S = Q K^T, dP = dO V^T, dS = P (dP - sum(dO O)) * scale, dQ += dS K
 *   PF_SLOPES turned    K, V       Q   dO   S^T and dP^T likewise, dV += P^T dO, dK += dS^T Q
 *
 * A compute unit runs one block. Where tiles have few turns a block takes MANY tiles, one after the other, and copies lines of
 * the next, O among them, while it ends the one before. Turns are counted through all its tiles.
 *
 * Sums stay in registers, and weights become a left operand where they are. x and y are taken along their lines and across
 * from the same place in LDS. While a warpgroup makes weights of scores, wgmma is at its product of the turn before, and at
 * what the other warpgroup gave it.
 *
 * dQ's launch needs no sums of weights: as the forward pass it divides by them in the end, and leaves log2 of them and
 * sum(dO O) of each query in scratch for the turned launch. That is 7 products where one launch with atomics would take 6;
 * in return nothing is added by two blocks, and results have the same bits in every run.
 *
 *   128 own lines and a turn of 128: 8 Mflop for 64 KB from L2, 128 flops a byte. From LDS a turn takes 160 KB, of the 256 KB
 *   that LDS gives in the 2048 clocks of its products.
 */
#ifndef PF_ATTENTION_ASYNC_HIP
#define PF_ATTENTION_ASYNC_HIP
#include "pf_attend.h"
#include "pf_warpgroup.h"

/* One launch. DEPTH, INNER: numbers of lines of Q and of V in slices of 16. */
template <class Element, class Tile, int D, int I, int OTHERS_, int STAGES_, int WAY_, int TURNED_, int MASK_, int SPANS_, int MANY_>
struct pf_attention_async_of {
  typedef Element E;
  typedef Tile mma;
  enum {
    DEPTH = D, INNER = I, OTHERS = OTHERS_, STAGES = STAGES_, WAY = WAY_, TURNED = TURNED_, MASK = MASK_,
    SPANS = SPANS_, /* PF_WHOLE or, forward, PF_LIMITED */
    MANY = MANY_,   /* tiles for a block */
  };
};

/* Where the lines of a head lie: bytes from one to the next, how many there are, and their numbers. */
template <class S> struct pf_head_lines {
  const S *at;
  int stride, lines, numbers;
};
template <class S>
PF_FN pf_head_lines<S> pf_head_of(const S *at, pf_late_args strides, int batch, int head, int lines, int numbers) {
  return {pf_head(at, strides, batch, head), (int)(strides[2] * (int)sizeof(S)), lines, numbers};
}

enum {
  PF_ATT_GROUPS = 2, /* warpgroups that compute, */
  PF_ATT_OWN = 128,  /* and the lines they have */
};
#define PF_ATT_LOG2 1.44269504f /* weights are powers of 2 */

/* Neighbours to memory, as one where they lie aligned. */
template <class T, int N> PF_FN void pf_put_row(T *at, const pf_vector<T, N> &row) {
  if ((uint64_t)at % sizeof(row) == 0) {
    *(pf_vector<T, N> *)at = row;
  } else {
    PF_UNROLL
    for (int e = 0; e < N; e++) at[e] = row.at[e];
  }
}

/* Of a query: log2 of the sum of its weights, and sum(dO O) * scale. A head has whole blocks of them in scratch. */
typedef pf_vector<float, 2> pf_query_known;
typedef pf_vector<float, 4> pf_known_pair;
PF_FN int64_t pf_known_of(int64_t head, int queries) {
  return head * ((queries + PF_ATT_OWN - 1) / PF_ATT_OWN * PF_ATT_OWN);
}

template <class C> struct pf_attending_async {
  typedef typename C::E E;
  typedef typename E::stored S;
  typedef pf_warpgroup<E, typename C::mma> W;
  typedef pf_group_sums sums;
  enum {
    WAY = C::WAY, TURNED = C::TURNED, OTHERS = C::OTHERS, STAGES = C::STAGES, MASK = C::MASK, MANY = C::MANY,
    SLOPES = WAY == PF_SLOPES,
    DOTS = SLOPES && !TURNED,        /* needs sum(dO O), */
    OWNS2 = SLOPES + (DOTS && MANY), /* of many tiles by O in LDS */
    X_PANELS = C::DEPTH <= 4 ? 1 : C::DEPTH <= 8 ? 2 : 4,
    Y_PANELS = C::INNER <= 4 ? 1 : C::INNER <= 8 ? 2 : 4,
    TILES = OTHERS / 16,
    LATE = !SLOPES,                  /* y is needed one turn after x */
    KNOWN = TURNED ? OTHERS / 2 : 0, /* pieces */
    EARLY = MASK && !SLOPES,         /* registers hold a mask beside scores */
    MORE = TURNED ? 240 : 232,       /* registers of lanes that compute, */
    FEWER = TURNED ? 24 : 40,        /* and of those that copy: 168 of each that a block begins with */
  };
  typedef pf_lds_lines<OTHERS, X_PANELS> X;
  typedef pf_lds_lines<OTHERS, Y_PANELS> Y;
  typedef pf_lds_lines<PF_ATT_OWN, X_PANELS> OWN;
  typedef pf_lds_lines<PF_ATT_OWN, Y_PANELS> OWN2;
  enum {
    X_AT = OWN::PIECES + OWNS2 * OWN2::PIECES,
    Y_AT = X_AT + STAGES * X::PIECES,
    KNOWN_AT = Y_AT + STAGES * Y::PIECES,
    BARRIERS_AT = KNOWN_AT + STAGES * KNOWN,
    LDS_PIECES = BARRIERS_AT + 2 * STAGES + MANY,
    RESULT = SLOPES ? X::TILES : Y::TILES,
    RESULT2 = TURNED ? Y::TILES : 1,
  };

  /* the block's place */
  pf_piece *lds;
  pf_late_args arg;
  const S *x_from, *y_from;
  const pf_query_known *known;
  const int *spans;
  int rows, cols, heads, times, group;
  int taken; /* tiles so far */
  int low, high, batch, head, first, begin, per, before, end; /* of its tile; turns are those from `before` to `end` */
#if defined(PF_EMULATE)
  int emptied[2] = {0, 0};
#endif
  float scale, by; /* by: from scores to powers of 2 */
  /* a lane's numbers */
  pf_part weights[TILES], slope_weights[TURNED ? TILES : 1];
  sums scores[TILES], slopes[SLOPES ? TILES : 1], result[RESULT], result2[RESULT2], added[EARLY ? TILES : 1];
  float top[2], total[2], dot[2]; /* dot: sum(dO O) * scale */

  PF_MEMBER void find(pf_piece *room, pf_late_args args, const S *b, const S *y, const char *scratch, const int *given) {
    lds = room, arg = args, x_from = b, y_from = y, known = (const pf_query_known *)scratch, spans = given;
    rows = (int)arg[PF_ATT_ROWS], cols = (int)arg[PF_ATT_COLS], heads = (int)arg[PF_ATT_HEADS];
    times = (int)arg[PF_ATT_TIMES], taken = end = 0;
    group = pf_shuffle(pf_thread() / 128, 0); /* of which the compiler knows that all lanes have the same */
    scale = pf_from_bits_f32((uint32_t)arg[PF_ATT_SCALE]);
    by = MASK ? 1.0f : scale * PF_ATT_LOG2;
  }
  /* Whether there is another tile for this block, and which: of many, one or two neighbours at a time. */
  PF_MEMBER int take() {
    const int tiles = (rows + PF_ATT_OWN - 1) / PF_ATT_OWN, together = MANY ? (int)arg[PF_ATT_TOGETHER] : 1;
    const int round = taken >> (together - 1), which = taken & (together - 1);
    const int at = MANY ? (round * (int)arg[PF_ATT_BLOCKS] + pf_block()) * together + which : pf_block();
    if (MANY && at >= (int)arg[PF_ATT_TILES]) return 0;
    const int entry = at / tiles, nth = at - entry * tiles;
    batch = entry / heads, head = entry - batch * heads;
    low = (int)arg[PF_ATT_LOW], high = (int)arg[PF_ATT_HIGH];
    if (C::SPANS) {
      const int *const span = spans + batch * PF_SPAN;
      low += span[PF_SPAN_OFFSET], high += span[PF_SPAN_OFFSET], cols = span[PF_SPAN_LIVE];
    }
    /* where causal, those with most to see begin, or those with much and with little take turns */
    const int order = together == 1 ? nth : nth % 2 ? tiles - 1 - nth / 2 : nth / 2;
    first = (TURNED ? order : tiles - 1 - order) * PF_ATT_OWN;
    begin = first + low > 0 ? (first + low) / OTHERS * OTHERS : 0;
    const int seen = pf_least(cols, first + PF_ATT_OWN + high) - begin;
    per = same(seen > 0 ? (seen + OTHERS - 1) / OTHERS : 0);
    taken++, before = same(end), end = before + per * times;
    return 1;
  }
  PF_FN int same(int n) { return MANY ? pf_shuffle(n, 0) : n; } /* as `group` */

  PF_MEMBER int own_first() const { return first + pf_thread() / PF_WAVE * 16; }
  PF_MEMBER int own_row(int r) const { return own_first() + W::row(2 * r); }
  PF_MEMBER int query_head(int turn) const { return TURNED ? head * times + (times > 1 ? (turn - before) / per : 0) : head; }
  PF_MEMBER int left_of(int turn) const {
    return begin + (TURNED && times > 1 ? (turn - before) % per : turn - before) * OTHERS;
  }
  PF_MEMBER pf_piece *x_at(int turn) const { return lds + X_AT + turn % STAGES * X::PIECES; }
  PF_MEMBER pf_piece *y_at(int turn) const { return lds + Y_AT + turn % STAGES * Y::PIECES; }
  /* The second own lines, and O's. */
  PF_MEMBER pf_head_lines<S> own2(const S *from, int out) const {
    return pf_head_of(from, arg + (out ? PF_ATT_RIGHT : PF_ATT_A2), batch, head, rows, (int)arg[PF_ATT_INNER]);
  }
  PF_MEMBER pf_piece *known_at(int turn) const { return lds + KNOWN_AT + turn % STAGES * KNOWN; }

  /* Of each place in LDS for x and for y: whether it is full, and whether it is empty again; of own lines, which come with the
   * first x, the latter. Every lane arrives for itself: one for its wave is no faster, and compute-sanitizer's racecheck
   * would take what the others did for races. */
  PF_MEMBER uint64_t *full(int y, int turn) const { return (uint64_t *)(lds + BARRIERS_AT + y * STAGES + turn % STAGES); }
  PF_MEMBER uint64_t *empty(int y, int turn) const { return full(y, turn) + 1; }
  PF_MEMBER uint64_t *own_empty() const { return (uint64_t *)(lds + BARRIERS_AT + 2 * STAGES) + 1; }
  PF_MEMBER void begin_barriers() const {
    if (pf_thread() < 2 * STAGES + MANY) {
      pf_mbarrier_begin(full(0, 0) + 2 * pf_thread(), 128);
      pf_mbarrier_begin(empty(0, 0) + 2 * pf_thread(), 128 * PF_ATT_GROUPS);
    }
    pf_barrier();
  }

  /* ---- the warpgroup that copies ----------------------------------------------------------------------------- */

  PF_MEMBER void copy_own(const S *a, const S *a2, const S *was) const {
    const pf_head_lines<S> one = pf_head_of(a, arg + PF_ATT_A, batch, head, rows, (int)arg[PF_ATT_DEPTH]);
    OWN::copy(lds, one.at, first, one.lines, one.stride, one.numbers);
    PF_UNROLL
    for (int n = 0; n < OWNS2; n++) {
      const pf_head_lines<S> more = own2(n ? was : a2, n);
      OWN2::copy(lds + OWN::PIECES + n * OWN2::PIECES, more.at, first, more.lines, more.stride, more.numbers);
    }
  }
  PF_MEMBER void copy(int y, int turn) const {
    const int of = query_head(turn), across = TURNED ? of : of / (int)arg[PF_ATT_SHARED], left = left_of(turn);
    if (y) {
      const pf_late_args strides = arg + (SLOPES ? PF_ATT_B2 : PF_ATT_RIGHT);
      const pf_head_lines<S> from = pf_head_of(y_from, strides, batch, across, cols, (int)arg[PF_ATT_INNER]);
      Y::copy(y_at(turn), from.at, left, from.lines, from.stride, from.numbers);
      return;
    }
    const pf_head_lines<S> from = pf_head_of(x_from, arg + PF_ATT_B, batch, across, cols, (int)arg[PF_ATT_DEPTH]);
    X::copy(x_at(turn), from.at, left, from.lines, from.stride, from.numbers);
    const int piece = pf_thread() % 128;
    if (piece < KNOWN)
      pf_copy_async(known_at(turn) + piece, known + pf_known_of(batch * heads * times + of, cols) + left + 2 * piece,
                    1);
  }
  /* All but the LEFT latest copies are there: say so of the one before, where there was one. */
  template <int LEFT> PF_FN void tell(uint64_t *&last, uint64_t *next) {
    pf_copies_wait<LEFT>();
    W::publish();
    if (last) pf_mbarrier_arrive(last);
    last = next;
  }
  /* Waits until a place that was filled so often has been emptied as often, and tells of all copies before. */
  PF_FN void need_empty(uint64_t *at, int filled, uint64_t *&last) {
    if (!filled || pf_mbarrier_ended(at, filled % 2 ^ 1)) return;
    tell<0>(last, 0);
    pf_mbarrier_wait(at, filled % 2 ^ 1);
  }
  PF_MEMBER void copy_turns(uint64_t *&last) const {
    _Pragma("unroll 1")
    for (int n = 2 * before; n < 2 * (end + LATE); n++) {
      const int y = n % 2, turn = n / 2 - y * LATE;
      if (turn < before || turn >= end) continue;
      need_empty(empty(y, turn), turn / STAGES, last);
      copy(y, turn);
      pf_copies_end();
      tell<1>(last, full(y, turn));
    }
  }
  PF_MEMBER void copy_all(const S *a, const S *a2, const S *was) {
    uint64_t *last = 0;
    int filled = 0;
    _Pragma("unroll 1")
    do {
      if (!take()) break;
      if (before == end) continue; /* all the others are before or behind what these lines see */
      if constexpr (MANY) need_empty(own_empty(), filled++, last);
      copy_own(a, a2, was);
      copy_turns(last);
    } while (MANY);
    tell<0>(last, 0);
  }

  /* ---- those that compute ------------------------------------------------------------------------------------ */

  PF_MEMBER void need(int y, int turn) const {
    if constexpr (PF_ROLES) {
      pf_mbarrier_wait(full(y, turn), turn / STAGES % 2);
    } else { /* on the host everybody computes */
#if defined(PF_EMULATE)
      if (turn >= end) __builtin_trap(); /* a GPU would wait for ever */
#endif
      pf_barrier();
      if (group == PF_ATT_GROUPS) copy(y, turn);
      pf_barrier();
    }
  }
  PF_MEMBER void done(int y, int turn) {
    if constexpr (PF_ROLES) pf_mbarrier_arrive(empty(y, turn));
#if defined(PF_EMULATE)
    if (turn != emptied[y]++) __builtin_trap(); /* or the copies */
#endif
  }
  PF_MEMBER void done_own(int turn) const {
    if constexpr (PF_ROLES && MANY) {
      if (turn + 1 == end) pf_mbarrier_arrive(own_empty());
    }
  }
  /* They give wgmma their products in turn, so that one makes weights while the other's are multiplied. */
  PF_MEMBER void order_first() const {
    if (group == 1) pf_named_arrive(1, 256);
  }
  PF_MEMBER void order_wait() const { pf_named_sync(1 + group, 256); }
  PF_MEMBER void order_next() const { pf_named_arrive(2 - group, 256); }

  PF_MEMBER void score(int turn) {
    need(0, turn);
    W::begin();
    W::template multiply<X, C::DEPTH, 0, 0>(scores, pf_kept<OWN>{lds, group}, x_at(turn));
    W::end();
  }
  PF_MEMBER void score_slopes(int turn) {
    need(1, turn);
    W::begin();
    W::template multiply<Y, C::INNER, 0, 0>(slopes, pf_kept<OWN2>{lds + OWN::PIECES, group}, y_at(turn));
    W::end();
  }

  PF_MEMBER void add_dots(int r, uint32_t one, uint32_t other) {
    PF_UNROLL
    for (int shift = 0; shift < 32; shift += 16)
      dot[r] = pf_mul_add(E::load((S)(one >> shift)), E::load((S)(other >> shift)), dot[r]);
  }
  /* sum(dO O) of the lane's rows, of each of which four lanes have a fourth: pieces in LDS, or words in memory, as the only
   * tile of a block does not wait for copies. */
  PF_MEMBER void take_dots(const S *a2, const S *was) {
    dot[0] = dot[1] = 0.0f;
    if constexpr (MANY) {
      if (before == end) return;
      need(0, before);
      PF_UNROLL
      for (int n = 0; n < Y_PANELS * 4; n++) {
        const int at = OWN::PIECES + OWN2::place(own_row(n % 2) - first, (n / 2 * 4 + pf_lane_of_wave() % 4) * 8);
        const pf_piece one = lds[at], other = lds[at + OWN2::PIECES];
        PF_UNROLL
        for (int w = 0; w < 4; w++) add_dots(n % 2, one.at[w], other.at[w]);
      }
    } else {
      const pf_head_lines<S> d_out = own2(a2, 0), out = own2(was, 1);
      pf_part one[C::INNER], other[C::INNER];
      W::hold(one, d_out.at, own_first(), d_out.lines, d_out.stride, d_out.numbers);
      W::hold(other, out.at, own_first(), out.lines, out.stride, out.numbers);
      PF_UNROLL
      for (int n = 0; n < C::INNER * 4; n++) add_dots(n % 2, one[n / 4].at[n % 4], other[n / 4].at[n % 4]);
    }
    PF_UNROLL
    for (int r = 0; r < 2; r++) {
      dot[r] += pf_shuffle_xor(dot[r], 1);
      dot[r] = (dot[r] + pf_shuffle_xor(dot[r], 2)) * scale;
    }
  }

  /* f(tile, sum, row, other, whether the row may see it) of each score; others are counted from the lane's first. */
  template <class F> PF_MEMBER void each(int turn, const F &f) {
    const int before = left_of(turn) + W::col(0);
    PF_UNROLL
    for (int n = 0; n < TILES * 8; n++) {
      const int r = n % 2, s = n % 8 / 4 * 4 + r * 2 + n % 4 / 2, other = n / 8 * 16 + W::fixed(s), row = own_row(r);
      f(n / 8, s, row, other, other >= row + low - before && other < pf_least(cols, row + high + 1) - before);
    }
  }
  /* The mask, added to scores that are powers of 2. Every lane reads somewhere: with branches loads would wait for each other. */
  template <class M> PF_MEMBER void take_mask(sums *to, const M *mask, int turn) {
    const M *const masked = pf_head(mask, arg + PF_ATT_MASK, batch, query_head(turn));
    const int before = left_of(turn) + W::col(0);
    const int line_step = (int)arg[PF_ATT_MASK + 2] * (int)sizeof(M), step = (int)arg[PF_ATT_MASK + 3] * (int)sizeof(M);
    each(turn, [&](int j, int s, int row, int other, int seen) {
      const int line = pf_least(row, rows - 1), column = pf_least(before + other, cols - 1);
      const M given = *(const M *)((const char *)masked + (int64_t)line * line_step + (int64_t)column * step);
      const float sum = pf_mul_add(to[j].at[s], scale * PF_ATT_LOG2, MASK == 2 ? given * PF_ATT_LOG2 : 0.0f);
      to[j].at[s] = seen && (MASK == 2 || given != 0) ? sum : -PF_INF;
    });
  }
  /* -inf for what is not seen. The mask comes while scores are multiplied, where there are registers for it. */
  template <class M> PF_MEMBER void before_scores(const M *mask, int turn) {
    if constexpr (EARLY) {
      PF_UNROLL
      for (int n = 0; n < TILES * 8; n++) added[n / 8].at[n % 8] = 0.0f;
      take_mask(added, mask, turn);
      W::settle(added);
    }
  }
  template <class M> PF_MEMBER void hide(const M *mask, int turn) {
    const int left = left_of(turn);
    if constexpr (EARLY) {
      PF_UNROLL
      for (int n = 0; n < TILES * 8; n++) {
        const float more = added[n / 8].at[n % 8], sum = pf_mul_add(scores[n / 8].at[n % 8], scale * PF_ATT_LOG2, more);
        scores[n / 8].at[n % 8] = MASK == 1 && more == -PF_INF ? more : sum; /* whatever a hidden score is */
      }
    } else if constexpr (MASK) {
      take_mask(scores, mask, turn);
    } else if (left + OTHERS > cols || left < first + PF_ATT_OWN - 1 + low || left + OTHERS - 1 > first + high) {
      each(turn, [&](int j, int s, int, int, int seen) { scores[j].at[s] = seen ? scores[j].at[s] : -PF_INF; });
    }
  }

  /* Scores become weights; less: by how much those before shrink as the maximum grows. */
  PF_MEMBER void grow(float (&less)[2]) {
    float base[2];
    PF_UNROLL
    for (int r = 0; r < 2; r++) {
      float most = top[r];
      PF_UNROLL
      for (int n = 0; n < TILES * 4; n++) most = pf_max_f32(most, scores[n / 4].at[n % 4 / 2 * 4 + r * 2 + n % 2]);
      most = pf_max_f32(most, pf_shuffle_xor(most, 1));
      most = pf_max_f32(most, pf_shuffle_xor(most, 2));
      base[r] = pf_base(most) * by;
      less[r] = pf_weight(pf_mul_add(top[r], by, -base[r]));
      top[r] = most;
      total[r] *= less[r];
    }
    PF_UNROLL
    for (int n = 0; n < TILES * 8; n++) {
      float &score = scores[n / 8].at[n % 8];
      score = pf_weight(pf_mul_add(score, by, -base[n % 4 / 2]));
      total[n % 4 / 2] += score;
    }
    W::settle(scores);
  }
  template <int COUNT> PF_FN void multiply_rows(sums (&of)[COUNT], const float *factor) {
    PF_UNROLL
    for (int n = 0; n < COUNT * 8; n++) of[n / 8].at[n % 8] *= factor[n % 4 / 2];
  }
  PF_FN void round(pf_part (&to)[TILES], const sums (&from)[TILES]) {
    PF_UNROLL
    for (int j = 0; j < TILES; j++) W::round(to[j], from[j]);
  }

  /* A turn of the forward pass and of dQ. What weights add to the result comes one turn late: see above. */
  template <int FIRST, class M> PF_MEMBER void step(const M *mask, int turn) {
    order_wait();
    score(turn);
    if constexpr (SLOPES) score_slopes(turn);
    if constexpr (!FIRST) add(turn - 1);
    order_next();
    before_scores(mask, turn);
    W::template wait<SLOPES + !FIRST>(scores);
    if constexpr (!SLOPES) {
      done(0, turn);
      done_own(turn);
    }
    hide(mask, turn);
    float less[2];
    grow(less);
    if constexpr (SLOPES) {
      W::template wait<!FIRST>(slopes);
      done(1, turn);
      done_own(turn);
      PF_UNROLL
      for (int n = 0; n < TILES * 8; n++)
        scores[n / 8].at[n % 8] *= pf_mul_add(slopes[n / 8].at[n % 8], scale, -dot[n % 4 / 2]);
      W::settle(scores);
    }
    W::template wait<0>(result);
    if constexpr (!FIRST) {
      done(!SLOPES, turn - 1);
      multiply_rows(result, less);
    }
    round(weights, scores);
  }
  PF_MEMBER void add(int turn) {
    if constexpr (!SLOPES) need(1, turn);
    W::begin();
    if constexpr (SLOPES)
      W::template multiply<X, TILES, 1, 1>(result, pf_held{weights}, x_at(turn));
    else
      W::template multiply<Y, TILES, 1, 1>(result, pf_held{weights}, y_at(turn));
    W::end();
  }
  template <class M> PF_MEMBER void run(const M *mask) {
    if (before == end) return;
    step<1>(mask, before);
    _Pragma("unroll 1")
    for (int turn = before + 1; turn < end; turn++) step<0>(mask, turn);
    add(end - 1);
    W::template wait<0>(result);
    if constexpr (MANY || !PF_ROLES) done(!SLOPES, end - 1);
  }

  /* A turn of dK and dV. Two results leave no registers for weights of two turns: the other warpgroup fills the gap. */
  template <class M> PF_MEMBER void step_turned(const M *mask, int turn) {
    score(turn);
    score_slopes(turn);
    W::template wait<1>(scores);
    hide(mask, turn);
    /* two queries in a piece, of which a lane has those of its columns */
    const pf_known_pair *of = (const pf_known_pair *)known_at(turn) + pf_lane_of_wave() % 4;
    PF_UNROLL
    for (int n = 0; n < TILES * 8; n++) {
      float &score = scores[n / 8].at[n % 8];
      score = pf_weight(pf_mul_add(score, by, -of[n / 4 * 4].at[n % 2 * 2]));
    }
    round(weights, scores);
    W::begin();
    W::template multiply<Y, TILES, 1, 1>(result2, pf_held{weights}, y_at(turn));
    W::end();
    W::template wait<1>(slopes);
    done_own(turn);
    PF_UNROLL
    for (int n = 0; n < TILES * 8; n++) {
      float &slope = slopes[n / 8].at[n % 8];
      slope = scores[n / 8].at[n % 8] * pf_mul_add(slope, scale, -of[n / 4 * 4].at[n % 2 * 2 + 1]);
    }
    round(slope_weights, slopes);
    W::begin();
    W::template multiply<X, TILES, 1, 1>(result, pf_held{slope_weights}, x_at(turn));
    W::end();
    W::template wait<0>(result2);
    W::settle(result);
    done(0, turn);
    done(1, turn);
  }
  template <class M> PF_MEMBER void run_turned(const M *mask) {
    _Pragma("unroll 1")
    for (int turn = before; turn < end; turn++) step_turned(mask, turn);
  }

  /* By the sums of weights of a lane's rows, which dQ's launch leaves in scratch. */
  PF_MEMBER void divide(char *scratch) {
    float inverse[2];
    PF_UNROLL
    for (int r = 0; r < 2; r++) {
      total[r] += pf_shuffle_xor(total[r], 1);
      total[r] += pf_shuffle_xor(total[r], 2);
      inverse[r] = pf_inverse(total[r]);
      if (SLOPES && group < PF_ATT_GROUPS && pf_lane_of_wave() % 4 == 0) {
        const pf_query_known found = {{total[r] == 0.0f ? 0.0f : pf_base(top[r]) * by + pf_log2(total[r]), dot[r]}};
        ((pf_query_known *)scratch)[pf_known_of(batch * heads + head, rows) + own_row(r)] = found;
      }
    }
    multiply_rows(result, inverse);
  }
  template <int COUNT> PF_MEMBER void store(const sums (&of)[COUNT], S *out, pf_late_args to, int width) const {
    S *const at = out + to[0] + batch * to[1] + head * to[2];
    PF_UNROLL
    for (int n = 0; n < COUNT * 4; n++) {
      const int s = n % 4 * 2, row = own_row(n % 2), column = n / 4 * 16 + W::col(s);
      const pf_vector<S, 2> two = {{E::store(of[n / 4].at[s]), E::store(of[n / 4].at[s + 1])}};
      if (group < PF_ATT_GROUPS && row < rows && column < width) pf_put_row(at + row * to[3] + column, two);
    }
  }
  PF_MEMBER void clear() {
    PF_UNROLL
    for (int r = 0; r < 2; r++) top[r] = -PF_INF, total[r] = 0.0f;
    PF_UNROLL
    for (int n = 0; n < RESULT * 8; n++) result[n / 8].at[n % 8] = 0.0f;
    PF_UNROLL
    for (int n = 0; n < RESULT2 * 8; n++) result2[n / 8].at[n % 8] = 0.0f;
  }
  template <class M> PF_MEMBER void compute(const S *a2, const S *was, const M *mask, char *scratch, S *out) {
    if constexpr (DOTS) take_dots(a2, was);
    clear();
    if constexpr (TURNED) {
      run_turned(mask);
      store(result2, out, arg + PF_ATT_OUT2, (int)arg[PF_ATT_INNER]);
    } else {
      run(mask);
      divide(scratch);
    }
    store(result, out, arg + PF_ATT_OUT, (int)arg[PF_ATT_WIDTH]);
  }
  template <class M> PF_MEMBER void compute_all(const S *a, const S *a2, const S *was, const M *mask, char *scratch, S *out) {
    if constexpr (!TURNED) order_first();
    _Pragma("unroll 1")
    do {
      if (!take()) break;
      if constexpr (!PF_ROLES) {
        pf_barrier();
        if (group == PF_ATT_GROUPS) copy_own(a, a2, was);
      }
      compute(a2, was, mask, scratch, out);
    } while (MANY);
#if defined(PF_EMULATE)
    if (emptied[0] != end || emptied[1] != end) __builtin_trap();
#endif
  }
};

/* a, b, a2, b2, right: as in attention.hip; PF_SLOPES that is not turned gets O as `right`. */
template <class C, class S, class M>
PF_FN void pf_attend_async(const S *a, const S *b, const S *a2, const S *b2, const S *right, const M *mask, char *scratch,
                           S *out, pf_late_args arg, const int *spans = 0) {
  typedef pf_attending_async<C> A;
  PF_DYNAMIC_LDS(pf_piece, lds, A::LDS_PIECES);
  A at;
  at.find(lds, arg, b, C::WAY == PF_MIX ? right : b2, scratch, spans);
  at.begin_barriers();
  if (PF_ROLES && at.group == PF_ATT_GROUPS) {
    pf_registers_fewer<A::FEWER>();
    at.copy_all(a, a2, right);
  } else {
    pf_registers_more<A::MORE>();
    at.compute_all(a, a2, right, mask, scratch, out);
  }
}

#endif
