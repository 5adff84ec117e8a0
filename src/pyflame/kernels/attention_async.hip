/* Attention and its gradient of 16-bit numbers by Hopper's wgmma (pf_warpgroup.h): what attention_mma.hip computes, for
 * lines that lie in aligned pieces of 16 bytes.
 *
 * A warpgroup has 64 lines of its own, a block GROUPS of them, and all walk over OTHERS lines of the other side at a
 * time: x, whose products with the own lines are scores, and y. Both are copied to LDS STAGES - 1 turns ahead at most.
 *
 *   way                 own        x   y    a turn
 *   PF_MIX              Q          K   V    S = Q K^T, softmax, O += P V of the turn before
 *   PF_SLOPES           Q, dO      K   V    S = Q K^T, dP = dO V^T, dS = P (dP - sum(dO O)) * scale, dQ += dS K
 *   PF_SLOPES turned    K, V       Q   dO   S^T and dP^T likewise, dV += P^T dO, dK += dS^T Q
 *
 * Weights become a left operand in the registers where they are. x and y are taken along their lines and across from the same
 * place in LDS. While a warpgroup makes weights of scores, wgmma works on the product before (PF_MIX) or on dP, and on what
 * other warpgroups gave it.
 *
 * dQ's pass needs no sums of weights: as the forward pass it divides by them in the end, and leaves log2 of them and
 * sum(dO O) of each query in scratch for the turned pass. 7 products of 5 that one pass with atomics would take, in return
 * nothing is added by two blocks: results have the same bits in every run.
 *
 *   128 own lines and a turn of 128: 8 Mflop for 64 KB from L2, 128 flops a byte.
 */
#ifndef PF_ATTENTION_ASYNC_HIP
#define PF_ATTENTION_ASYNC_HIP
#include "pf_attend.h"
#include "pf_warpgroup.h"

/* One launch. DEPTH, INNER: numbers of lines of Q and of V in slices of 16; HELD: own lines in registers, else in LDS. */
template <class Element, class Tile, int D, int I, int GROUPS_, int OTHERS_, int STAGES_, int HELD_, int WAY_, int TURNED_,
          int MASK_>
struct pf_attention_async_of {
  typedef Element E;
  typedef Tile mma;
  enum {
    DEPTH = D, INNER = I, GROUPS = GROUPS_, OTHERS = OTHERS_, STAGES = STAGES_, HELD = HELD_, WAY = WAY_, TURNED = TURNED_,
    MASK = MASK_,
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

typedef pf_vector<float, 2> pf_query_known; /* log2 of the sum of its weights, and sum(dO O) * scale */
typedef pf_vector<float, 4> pf_known_pair;
enum { PF_ATT_KNOWN = 384 }; /* a head's queries in scratch are a multiple of that many: of all blocks' lines */
PF_FN int64_t pf_known_of(int64_t head, int queries) {
  return head * ((queries + PF_ATT_KNOWN - 1) / PF_ATT_KNOWN * PF_ATT_KNOWN);
}
#define PF_ATT_LOG2 1.44269504f /* weights are powers of 2 */

template <class C> struct pf_attending_async {
  typedef typename C::E E;
  typedef typename E::stored S;
  typedef pf_warpgroup<E, typename C::mma> W;
  typedef pf_group_sums sums;
  enum {
    WAY = C::WAY, TURNED = C::TURNED, OTHERS = C::OTHERS, STAGES = C::STAGES,
    SLOPES = WAY == PF_SLOPES,
    THREADS = C::GROUPS * 128,
    ROWS = C::GROUPS * 64,
    X_PANELS = C::DEPTH <= 4 ? 1 : C::DEPTH <= 8 ? 2 : 4,
    Y_PANELS = C::INNER <= 4 ? 1 : C::INNER <= 8 ? 2 : 4,
    TILES = OTHERS / 16,
    LATE = !SLOPES,                 /* y is needed one turn after x */
    AHEAD = STAGES - 1 - SLOPES,    /* turns that x is copied ahead: products of the turn before may still read theirs */
    KNOWN = TURNED ? OTHERS / 2 : 0, /* pieces */
  };
  typedef pf_lds_lines<OTHERS, X_PANELS, THREADS> X;
  typedef pf_lds_lines<OTHERS, Y_PANELS, THREADS> Y;
  typedef pf_lds_lines<ROWS, X_PANELS, THREADS> OWN;
  typedef pf_lds_lines<ROWS, Y_PANELS, THREADS> OWN2;
  enum {
    X_AT = C::HELD ? 0 : OWN::PIECES + SLOPES * OWN2::PIECES,
    Y_AT = X_AT + STAGES * X::PIECES,
    KNOWN_AT = Y_AT + STAGES * Y::PIECES,
    LDS_PIECES = KNOWN_AT + STAGES * KNOWN,
    RESULT = WAY == PF_MIX ? Y::TILES : X::TILES,
    RESULT2 = TURNED ? Y::TILES : 1,
  };

  /* the block's place */
  pf_piece *lds;
  pf_late_args arg;
  const S *x_from, *y_from;
  const pf_query_known *known;
  int rows, cols, heads, times, causal, batch, head, first, begin, per, turns, group;
  float scale, by; /* by: from scores to powers of 2 */
  /* a lane's numbers */
  pf_part own[C::HELD ? C::DEPTH : 1], own2[C::HELD && SLOPES ? C::INNER : 1], weights[TILES], slope_weights[TURNED ? TILES : 1];
  sums scores[TILES], slopes[SLOPES ? TILES : 1], result[RESULT], result2[RESULT2];
  float top[2], total[2], dot[2]; /* dot: sum(dO O) * scale */

  PF_MEMBER void find(pf_piece *room, pf_late_args args, const S *b, const S *y, const char *scratch) {
    lds = room, arg = args, x_from = b, y_from = y, known = (const pf_query_known *)scratch;
    rows = (int)arg[PF_ATT_ROWS], cols = (int)arg[PF_ATT_COLS], heads = (int)arg[PF_ATT_HEADS];
    times = (int)arg[PF_ATT_TIMES], causal = (int)arg[PF_ATT_CAUSAL];
    const int tiles = (rows + ROWS - 1) / ROWS, entry = pf_block() / tiles, tile = pf_block() - entry * tiles;
    batch = entry / heads, head = entry - batch * heads;
    first = (TURNED ? tile : tiles - 1 - tile) * ROWS; /* where causal, those with most to see begin */
    begin = TURNED && causal ? first / OTHERS * OTHERS : 0;
    const int end = !TURNED && causal ? pf_least(cols, first + ROWS) : cols;
    per = end > begin ? (end - begin + OTHERS - 1) / OTHERS : 0, turns = per * times;
    group = pf_shuffle(pf_thread() / 128, 0); /* of which the compiler knows that all lanes have the same */
    scale = pf_from_bits_f32((uint32_t)arg[PF_ATT_SCALE]);
    by = C::MASK == 2 ? 1.0f : scale * PF_ATT_LOG2;
    PF_UNROLL
    for (int r = 0; r < 2; r++) top[r] = -PF_INF, total[r] = 0.0f, dot[r] = 0.0f;
    PF_UNROLL
    for (int n = 0; n < RESULT * 8; n++) result[n / 8].at[n % 8] = 0.0f;
    PF_UNROLL
    for (int n = 0; n < RESULT2 * 8; n++) result2[n / 8].at[n % 8] = 0.0f;
  }

  PF_MEMBER int own_row(int r) const { return first + pf_thread() / PF_WAVE * 16 + W::row(2 * r); }
  PF_MEMBER int own_first() const { return first + pf_thread() / PF_WAVE * 16; }
  PF_MEMBER int query_head(int turn) const { return TURNED ? head * times + (times > 1 ? turn / per : 0) : head; }
  PF_MEMBER int left_of(int turn) const { return begin + (TURNED && times > 1 ? turn % per : turn) * OTHERS; }
  PF_MEMBER pf_piece *x_at(int turn) const { return lds + X_AT + turn % STAGES * X::PIECES; }
  PF_MEMBER pf_piece *y_at(int turn) const { return lds + Y_AT + turn % STAGES * Y::PIECES; }

  /* What turn `x` needs of x, and turn `y` of y. */
  PF_MEMBER void copy(int x, int y) const {
    if (x < turns) {
      const int of = query_head(x), across = TURNED ? of : of / (int)arg[PF_ATT_SHARED], left = left_of(x);
      const pf_head_lines<S> from = pf_head_of(x_from, arg + PF_ATT_B, batch, across, cols, (int)arg[PF_ATT_DEPTH]);
      X::copy(x_at(x), from.at, left, cols, from.stride, from.numbers);
      if (TURNED && pf_thread() < KNOWN) {
        const pf_query_known *at = known + pf_known_of(batch * heads * times + of, cols) + left + 2 * pf_thread();
        pf_copy_async(lds + KNOWN_AT + x % STAGES * KNOWN + pf_thread(), at, 1);
      }
    }
    if (y >= 0 && y < turns) {
      const int of = query_head(y), across = TURNED ? of : of / (int)arg[PF_ATT_SHARED];
      const pf_late_args strides = arg + (WAY == PF_MIX ? PF_ATT_RIGHT : PF_ATT_B2);
      const pf_head_lines<S> from = pf_head_of(y_from, strides, batch, across, cols, (int)arg[PF_ATT_INNER]);
      Y::copy(y_at(y), from.at, left_of(y), cols, from.stride, from.numbers);
    }
    pf_copies_end();
  }

  /* The block's own lines, and the first turns of the others. */
  PF_MEMBER void take(const S *a, const S *a2) {
    const pf_head_lines<S> one = pf_head_of(a, arg + PF_ATT_A, batch, head, rows, (int)arg[PF_ATT_DEPTH]);
    const pf_head_lines<S> two = pf_head_of(a2, arg + PF_ATT_A2, batch, head, rows, (int)arg[PF_ATT_INNER]);
    if constexpr (!C::HELD) {
      OWN::copy(lds, one.at, first, rows, one.stride, one.numbers);
      if constexpr (SLOPES) OWN2::copy(lds + OWN::PIECES, two.at, first, rows, two.stride, two.numbers);
    }
    PF_UNROLL
    for (int n = 0; n < AHEAD; n++) copy(n, n - LATE);
    if constexpr (C::HELD) {
      W::hold(own, one.at, own_first(), rows, one.stride, one.numbers);
      if constexpr (SLOPES) W::hold(own2, two.at, own_first(), rows, two.stride, two.numbers);
    }
  }
  /* sum(dO O) of the lane's rows. */
  PF_MEMBER void take_dots(const S *a2, const S *out) {
    const pf_head_lines<S> d_out = pf_head_of(a2, arg + PF_ATT_A2, batch, head, rows, (int)arg[PF_ATT_INNER]);
    const pf_head_lines<S> was = pf_head_of(out, arg + PF_ATT_RIGHT, batch, head, rows, (int)arg[PF_ATT_INNER]);
    pf_part one[C::INNER], other[C::INNER];
    W::hold(one, d_out.at, own_first(), rows, d_out.stride, d_out.numbers);
    W::hold(other, was.at, own_first(), rows, was.stride, was.numbers);
    PF_UNROLL
    for (int n = 0; n < C::INNER * 8; n++) {
      const int w = n % 8 / 2, shift = n % 2 * 16;
      dot[w % 2] = pf_mul_add(E::load((S)(one[n / 8].at[w] >> shift)), E::load((S)(other[n / 8].at[w] >> shift)), dot[w % 2]);
    }
    PF_UNROLL
    for (int r = 0; r < 2; r++) {
      dot[r] += pf_shuffle_xor(dot[r], 1);
      dot[r] = (dot[r] + pf_shuffle_xor(dot[r], 2)) * scale;
    }
  }

  /* Until what this turn reads is in LDS for everybody, and nobody reads what is copied next. */
  template <int LEFT> PF_FN void meet() {
    pf_copies_wait<LEFT>();
    W::publish();
    pf_barrier();
  }
  PF_MEMBER void score(int turn) {
    if constexpr (C::HELD)
      W::template multiply<X, C::DEPTH, 0, 0>(scores, pf_held{own}, x_at(turn));
    else
      W::template multiply<X, C::DEPTH, 0, 0>(scores, pf_kept<OWN>{lds, group}, x_at(turn));
    W::end();
  }
  PF_MEMBER void score_slopes(int turn) {
    if constexpr (C::HELD)
      W::template multiply<Y, C::INNER, 0, 0>(slopes, pf_held{own2}, y_at(turn));
    else
      W::template multiply<Y, C::INNER, 0, 0>(slopes, pf_kept<OWN2>{lds + OWN::PIECES, group}, y_at(turn));
    W::end();
  }

  /* -inf for what is not seen, and the mask added. */
  template <class M> PF_MEMBER void hide(const M *mask, int turn) {
    const int left = left_of(turn), shift = W::col(0);
    const int edge = !TURNED && left + OTHERS > cols, crosses = causal && (TURNED ? left < first + ROWS : left + OTHERS > first);
    if (!C::MASK && !edge && !crosses) return;
    const M *const masked = C::MASK ? pf_head(mask, arg + PF_ATT_MASK, batch, query_head(turn)) : mask;
    PF_UNROLL
    for (int r = 0; r < 2; r++) {
      const int row = own_row(r), low = TURNED && causal ? row - left - shift : 0;
      const int high = (!TURNED && causal ? pf_least(cols, row + 1) : cols) - left - shift;
      PF_UNROLL
      for (int n = 0; n < TILES * 4; n++) {
        const int s = n % 4 / 2 * 4 + r * 2 + n % 2, other = n / 4 * 16 + W::fixed(s);
        float &score = scores[n / 4].at[s];
        int seen = other >= low && (other < high || (TURNED && !C::MASK));
        if constexpr (C::MASK != 0) {
          seen = seen && row < rows;
          const M given = seen ? masked[row * arg[PF_ATT_MASK + 2] + (left + shift + other) * arg[PF_ATT_MASK + 3]] : 0;
          if (C::MASK == 1)
            seen = seen && given != 0;
          else
            score = pf_mul_add(score, scale * PF_ATT_LOG2, given * PF_ATT_LOG2);
        }
        score = seen ? score : -PF_INF;
      }
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
      const int r = n % 4 / 2;
      float &score = scores[n / 8].at[n % 8];
      score = pf_weight(pf_mul_add(score, by, -base[r]));
      total[r] += score;
    }
  }
  template <int COUNT> PF_FN void multiply_rows(sums (&of)[COUNT], const float *factor) {
    PF_UNROLL
    for (int n = 0; n < COUNT * 8; n++) of[n / 8].at[n % 8] *= factor[n % 4 / 2];
  }
  PF_FN void round(pf_part (&to)[TILES], const sums (&from)[TILES]) {
    PF_UNROLL
    for (int j = 0; j < TILES; j++) W::round(to[j], from[j]);
  }

  /* A turn of each way. Products with weights come one turn late: wgmma is at them while the next weights are made. */
  template <int FIRST, class M> PF_MEMBER void turn_mix(const M *mask, int turn) {
    W::begin();
    score(turn);
    copy(turn + AHEAD, turn + AHEAD - LATE);
    W::begin();
    if constexpr (!FIRST) add(turn - 1);
    W::template wait<!FIRST>(scores);
    hide(mask, turn);
    float less[2];
    grow(less);
    W::template wait<0>(result);
    if constexpr (!FIRST) multiply_rows(result, less);
    round(weights, scores);
  }
  template <int FIRST, class M> PF_MEMBER void turn_slopes(const M *mask, int turn) {
    W::begin();
    score(turn);
    copy(turn + AHEAD, turn + AHEAD);
    W::begin();
    score_slopes(turn);
    if constexpr (!FIRST) add(turn - 1);
    W::template wait<1 + !FIRST>(scores);
    hide(mask, turn);
    float less[2];
    grow(less);
    W::template wait<!FIRST>(slopes);
    PF_UNROLL
    for (int n = 0; n < TILES * 8; n++)
      scores[n / 8].at[n % 8] *= pf_mul_add(slopes[n / 8].at[n % 8], scale, -dot[n % 4 / 2]);
    W::template wait<0>(result);
    if constexpr (!FIRST) multiply_rows(result, less);
    round(weights, scores);
  }
  template <int FIRST, class M> PF_MEMBER void turn_turned(const M *mask, int turn) {
    W::begin();
    score(turn);
    copy(turn + AHEAD, turn + AHEAD);
    W::begin();
    score_slopes(turn);
    if constexpr (!FIRST) add(turn - 1);
    W::template wait<1 + 2 * !FIRST>(scores);
    hide(mask, turn);
    /* two queries in a piece, of which a lane has those of its columns */
    const pf_known_pair *of = (const pf_known_pair *)(lds + KNOWN_AT + turn % STAGES * KNOWN) + pf_lane_of_wave() % 4;
    PF_UNROLL
    for (int n = 0; n < TILES * 8; n++) {
      float &score = scores[n / 8].at[n % 8];
      score = pf_weight(pf_mul_add(score, by, -of[n / 4 * 4].at[n % 2 * 2]));
    }
    W::template wait<2 * !FIRST>(slopes);
    PF_UNROLL
    for (int n = 0; n < TILES * 8; n++) {
      float &slope = slopes[n / 8].at[n % 8];
      slope = scores[n / 8].at[n % 8] * pf_mul_add(slope, scale, -of[n / 4 * 4].at[n % 2 * 2 + 1]);
    }
    W::template wait<0>(result);
    round(weights, scores);
    round(slope_weights, slopes);
  }
  /* What a turn's weights add to the results. */
  PF_MEMBER void add(int turn) {
    if constexpr (TURNED) {
      W::template multiply<Y, TILES, 1, 1>(result2, pf_held{weights}, y_at(turn));
      W::end();
      W::template multiply<X, TILES, 1, 1>(result, pf_held{slope_weights}, x_at(turn));
    } else if constexpr (SLOPES) {
      W::template multiply<X, TILES, 1, 1>(result, pf_held{weights}, x_at(turn));
    } else {
      W::template multiply<Y, TILES, 1, 1>(result, pf_held{weights}, y_at(turn));
    }
    W::end();
  }
  template <int FIRST, class M> PF_MEMBER void step(const M *mask, int turn) {
    meet<AHEAD - 1>();
    if constexpr (TURNED)
      turn_turned<FIRST>(mask, turn);
    else if constexpr (SLOPES)
      turn_slopes<FIRST>(mask, turn);
    else
      turn_mix<FIRST>(mask, turn);
  }
  template <class M> PF_MEMBER void run(const M *mask) {
    step<1>(mask, 0);
    _Pragma("unroll 1")
    for (int turn = 1; turn < turns; turn++) step<0>(mask, turn);
    meet<0>();
    W::begin();
    add(turns - 1);
    W::template wait<0>(result);
    W::template wait<0>(result2);
  }

  /* The sums of weights of a lane's rows; `known` gets them for the turned pass. */
  PF_MEMBER void divide(char *scratch) {
    float inverse[2];
    PF_UNROLL
    for (int r = 0; r < 2; r++) {
      total[r] += pf_shuffle_xor(total[r], 1);
      total[r] += pf_shuffle_xor(total[r], 2);
      inverse[r] = pf_inverse(total[r]);
      if (SLOPES && pf_lane_of_wave() % 4 == 0) {
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
      if (row < rows && column < width) pf_put_row(at + row * to[3] + column, two);
    }
  }
};

/* a, b, a2, b2, right: as in attention.hip; PF_SLOPES that is not turned gets O as `right`. */
template <class C, class S, class M>
PF_FN void pf_attend_async(const S *a, const S *b, const S *a2, const S *b2, const S *right, const M *mask, char *scratch,
                           S *out, pf_late_args arg) {
  typedef pf_attending_async<C> A;
  PF_DYNAMIC_LDS(pf_piece, lds, A::LDS_PIECES);
  A at;
  at.find(lds, arg, b, C::WAY == PF_MIX ? right : b2, scratch);
  at.take(a, a2);
  if constexpr (C::WAY == PF_SLOPES && !C::TURNED) at.take_dots(a2, right);
  if (at.turns > 0) at.run(mask); /* where causal, some keys are seen by nobody */
  if constexpr (!C::TURNED) at.divide(scratch);
  at.store(at.result, out, arg + PF_ATT_OUT, (int)arg[PF_ATT_WIDTH]);
  if constexpr (C::TURNED) at.store(at.result2, out, arg + PF_ATT_OUT2, (int)arg[PF_ATT_INNER]);
}

#endif
