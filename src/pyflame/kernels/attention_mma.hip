/* Attention and its gradient on matrix tiles (pf_mma.h), for 16-bit numbers. The ways, arguments and launches are those
 * of attention.hip; scores and sums are float32, weights are rounded to 16 bits before they are multiplied.
 *
 * WAVES waves have DOWN x 16 lines of their own each, as fragments in registers (HELD) or in LDS, and walk over OTHERS
 * lines of the other side at a time, which all of them read from LDS. Of one turn a wave makes DOWN x OTHERS/16 tiles of
 * scores, which become weights where they are: pf_mma_own.h takes them as an operand.
 *
 *   LDS   b, and for slopes b2: OTHERS lines along the depth; right: its columns as lines along the others, turned on
 *         the way from memory in squares of 8 x 4 numbers, in the order that pf_own asks for
 *   16 OTHERS (2 D + 2 E) flops of a turn for each own line, OTHERS (2 D + 2 E) bytes from L2 for 64 DOWN own lines:
 *   64 DOWN flops a byte. From LDS 1 / (16 DOWN) of that many flops in bytes: DOWN of 2 halves what waits for LDS.
 * Blocks beside each other hide the way to memory: 24 to 48 KB of LDS and below 256 registers leave room for some.
 */
#ifndef PF_ATTENTION_MMA_HIP
#define PF_ATTENTION_MMA_HIP
#include "pf_attend.h"
#include "pf_mma_own.h"

typedef pf_vector<float, 4> pf_known; /* of a query: base of its weights, 1 / sum of them, sum(dO O) */

/* tanh from a power of 2: its error of 1e-7 is far below what 16 bits tell apart, also times a cap. */
PF_FN float pf_bend(float x) { return 1.0f - 2.0f / (1.0f + pf_weight(x * (2 * 1.44269504f))); }

/* The compiler leaves what is before and after apart: it would read all of LDS first, and spill it. */
#if defined(PF_EMULATE) || defined(__CUDACC__)
#define PF_IN_ORDER
#else
#define PF_IN_ORDER __builtin_amdgcn_sched_barrier(0);
#endif

#define PF_UNROLL_NOT _Pragma("unroll 1")

template <int THREADS, int LINES, int CHUNKS, int VECTOR, class S>
PF_FN void pf_put_lines(pf_piece *to, const pf_matrix<S> &from, int first) {
  typedef pf_vector<S, 8> piece;
  PF_UNROLL_FEW
  for (int n = pf_thread(); n < LINES * CHUNKS * PF_MMA_PIECES; n += THREADS) {
    const int p = n % PF_MMA_PIECES, line = n / PF_MMA_PIECES % LINES, chunk = n / (PF_MMA_PIECES * LINES);
    *(piece *)(to + chunk * LINES * PF_MMA_PIECES + pf_mma_place(line, p)) =
        pf_read<8, VECTOR>(from, first + line, 8 * (chunk * PF_MMA_PIECES + p));
  }
}

/* The columns of OTHERS lines, as COLUMNS lines. */
template <class O, int THREADS, int OTHERS, int COLUMNS, int VECTOR, class S>
PF_FN void pf_put_turned(pf_piece *to, const pf_matrix<S> &from, int first) {
  typedef pf_vector<S, 8> piece;
  PF_UNROLL_NOT
  for (int n = pf_thread(); n < OTHERS / 32 * COLUMNS; n += THREADS) {
    const int p = n % PF_MMA_PIECES, column = n / PF_MMA_PIECES % (COLUMNS / 4) * 4, chunk = n / COLUMNS;
    pf_vector<S, 4> got[8];
    PF_UNROLL
    for (int e = 0; e < 8; e++) got[e] = pf_read<4, VECTOR>(from, first + chunk * 32 + O::number(p, e), column);
    PF_UNROLL
    for (int i = 0; i < 4; i++) {
      piece line;
      PF_UNROLL
      for (int e = 0; e < 8; e++) line.at[e] = got[e].at[i];
      *(piece *)(to + chunk * COLUMNS * PF_MMA_PIECES + pf_mma_place(column + i, p)) = line;
    }
  }
}

/* One launch: types, DEPTH and INNER in chunks, WIDTH of the result in tiles, and what is said above. */
template <class Element, class Tile, int D, int I, int W, int WAVES_, int DOWN_, int OTHERS_, int HELD_, int VECTOR_, int WAY_,
          int TURNED_, int MASK_, int CAP_, int SPANS_>
struct pf_attention_of {
  typedef Element E;
  typedef Tile mma;
  enum {
    DEPTH = D, INNER = I, WIDTH = W, WAVES = WAVES_, DOWN = DOWN_, OTHERS = OTHERS_, HELD = HELD_, VECTOR = VECTOR_, WAY = WAY_,
    TURNED = TURNED_, MASK = MASK_, CAP = CAP_, SPANS = SPANS_,
  };
};

/* What a wave has. C: pf_attention_of. */
template <class C> struct pf_attending {
  typedef typename C::E E;
  typedef typename C::mma T;
  typedef pf_own<T> O;
  typedef typename O::own own;
  typedef typename O::other other;
  typedef typename T::sums sums;
  enum {
    THREADS = C::WAVES * PF_WAVE,
    ROWS = C::WAVES * C::DOWN * 16,
    TILES = C::OTHERS / 16,
    FIRST = C::DEPTH * C::OTHERS * PF_MMA_PIECES, /* pieces of b, b2 and right in LDS */
    SECOND = C::WAY == PF_SLOPES ? C::INNER * C::OTHERS * PF_MMA_PIECES : 0,
    RIGHT = C::WAY == PF_TOTALS ? 0 : C::OTHERS / 32 * C::WIDTH * 16 * PF_MMA_PIECES,
    KNOWN = C::TURNED ? C::OTHERS : 0,
    TURN = FIRST + SECOND + RIGHT + KNOWN,
    OWN = C::DEPTH * ROWS * PF_MMA_PIECES, /* own lines: there for good, or at the start only */
    OWN2 = SECOND ? C::INNER * ROWS * PF_MMA_PIECES : 0,
    STAGE = OWN > OWN2 ? OWN : OWN2,
    LDS_PIECES = C::HELD ? (TURN > STAGE ? TURN : STAGE) : TURN + OWN + OWN2,
  };
  own mine[C::DOWN][C::HELD ? C::DEPTH * T::STEPS : 1], mine2[C::DOWN][C::HELD && SECOND ? C::INNER * T::STEPS : 1];
  sums scores[C::DOWN][TILES], result[C::DOWN][C::WIDTH];
  float top[C::DOWN][O::LINES], total[C::DOWN][O::LINES];

  PF_FN int begins(int i) { return (pf_thread() / PF_WAVE * C::DOWN + i) * 16; } /* own tile i of the wave, in the block */
  PF_FN void multiply(sums &to, const own &a, const other &b) {
    if constexpr (O::FLIP)
      T::multiply(to, b, a);
    else
      T::multiply(to, a, b);
  }

  PF_FN void load_own(own &to, const pf_piece *lines, int i, int part) {
    T::load(to, lines + (part / T::STEPS * ROWS + begins(i)) * PF_MMA_PIECES, part % T::STEPS);
  }

  template <int CHUNKS, class F, class M> PF_FN void take_lines(F &to, pf_piece *lds, const M &from, int first) {
    pf_put_lines<THREADS, ROWS, CHUNKS, C::VECTOR>(lds, from, first);
    if (!C::HELD) return;
    pf_barrier();
    PF_UNROLL
    for (int i = 0; i < C::DOWN; i++) {
      PF_UNROLL
      for (int part = 0; part < CHUNKS * T::STEPS; part++) load_own(to[i][C::HELD ? part : 0], lds, i, part);
    }
    pf_barrier();
  }

  /* Own lines, from registers or from `kept`, times those that lie at `lines`. */
  template <int CHUNKS, class F>
  PF_FN void product(sums (&to)[C::DOWN][TILES], const F &a, const pf_piece *kept, const pf_piece *lines) {
    PF_UNROLL
    for (int n = 0; n < C::DOWN * TILES; n++) T::clear(to[n / TILES][n % TILES]);
    PF_UNROLL
    for (int part = 0; part < CHUNKS * T::STEPS; part++) {
      own rows[C::DOWN];
      PF_UNROLL
      for (int i = 0; i < C::DOWN; i++) {
        if (C::HELD)
          rows[i] = a[i][C::HELD ? part : 0];
        else
          load_own(rows[i], kept, i, part);
      }
      PF_UNROLL
      for (int j = 0; j < TILES; j++) {
        other b;
        T::load(b, lines + (part / T::STEPS * C::OTHERS + j * 16) * PF_MMA_PIECES, part % T::STEPS);
        PF_UNROLL
        for (int i = 0; i < C::DOWN; i++) multiply(to[i][j], rows[i], b);
      }
      PF_IN_ORDER
    }
  }

  /* f(i, j, s, own line of the lane, other of the turn less the lane's shift) for every score of the lane */
  template <class F> PF_FN void each(const F &f) {
    PF_UNROLL
    for (int i = 0; i < C::DOWN; i++) {
      PF_UNROLL
      for (int j = 0; j < TILES; j++) {
        PF_UNROLL
        for (int s = 0; s < T::SUMS; s++) f(i, j, s, O::slot(s), j * 16 + O::fixed(s));
      }
    }
  }

  /* Scores become weights, and the sums so far shrink as the maximum grows. */
  PF_MEMBER void grow() {
    PF_UNROLL
    for (int i = 0; i < C::DOWN; i++) {
      float less[O::LINES];
      PF_UNROLL
      for (int r = 0; r < O::LINES; r++) {
        float most = -PF_INF;
        PF_UNROLL
        for (int n = 0; n < TILES * T::SUMS; n++) {
          const float score = T::get(scores[i][n / T::SUMS], n % T::SUMS);
          if (O::slot(n % T::SUMS) == r) most = pf_max_f32(most, score);
        }
        PF_UNROLL
        for (int w = O::FROM; w < O::TO; w *= 2) most = pf_max_f32(most, pf_shuffle_xor(most, w));
        most = pf_max_f32(most, top[i][r]);
        less[r] = pf_weight(top[i][r] - pf_base(most));
        top[i][r] = most;
        total[i][r] *= less[r];
      }
      PF_UNROLL
      for (int n = 0; n < TILES * T::SUMS; n++) {
        const int j = n / T::SUMS, s = n % T::SUMS, r = O::slot(s);
        const float weight = pf_weight(T::get(scores[i][j], s) - pf_base(top[i][r]));
        O::set(scores[i][j], s, weight);
        total[i][r] += weight;
      }
      if constexpr (C::WAY == PF_MIX) scale(i, less);
    }
  }

  PF_MEMBER void scale(int i, const float *by) {
    PF_UNROLL
    for (int n = 0; n < C::WIDTH * T::SUMS; n++) {
      const int j = n / T::SUMS, s = n % T::SUMS;
      O::set(result[i][j], s, T::get(result[i][j], s) * by[O::slot(s)]);
    }
  }

  /* result += weights times what lies in LDS */
  PF_MEMBER void mix(const pf_piece *right) {
    PF_UNROLL
    for (int c = 0; c < C::OTHERS / 32; c++) {
      PF_UNROLL
      for (int step = 0; step < T::STEPS; step++) {
        own weights[C::DOWN];
        PF_UNROLL
        for (int i = 0; i < C::DOWN; i++) O::template take<E>(weights[i], scores[i][2 * c], scores[i][2 * c + 1], step);
        PF_UNROLL
        for (int j = 0; j < C::WIDTH; j++) {
          other columns;
          T::load(columns, right + (c * C::WIDTH + j) * 16 * PF_MMA_PIECES, step);
          PF_UNROLL
          for (int i = 0; i < C::DOWN; i++) multiply(result[i][j], weights[i], columns);
          PF_IN_ORDER
        }
      }
    }
  }
};

template <class C, class S, class M>
PF_FN void pf_attend_mma(const S *a, const S *b, const S *a2, const S *b2, const S *right, const M *mask, char *scratch,
                         S *out, pf_late_args arg, const int *spans = 0) {
  typedef pf_attending<C> A;
  typedef typename A::T T;
  typedef typename A::O O;
  enum { ROWS = A::ROWS, OTHERS = C::OTHERS, TURNED = C::TURNED, WAY = C::WAY, BENT = C::CAP && C::WAY == PF_SLOPES };
  PF_SHARED pf_piece lds[A::LDS_PIECES];
  pf_place place;
  if (!pf_place_of<C::SPANS, TURNED, ROWS>(place, spans, arg)) return;
  const int rows = place.rows, cols = place.cols, first = place.first, batch = place.batch, head = place.head;
  const int low = place.low, high = place.high, start = place.start, beyond = place.across;
  const int heads = (int)arg[PF_ATT_HEADS], times = (int)arg[PF_ATT_TIMES];
  const int depth = (int)arg[PF_ATT_DEPTH], inner = (int)arg[PF_ATT_INNER], width = (int)arg[PF_ATT_WIDTH];
  const float scale = pf_from_bits_f32((uint32_t)arg[PF_ATT_SCALE]), two = 1.44269504f; /* weights are powers of 2 */
  const float cap = pf_from_bits_f32((uint32_t)arg[PF_ATT_CAP]);
  const int begin = first + low > 0 ? first + low : 0, end = pf_least(cols, first + ROWS + high);
  pf_piece *const second = lds + A::FIRST, *const turned = second + A::SECOND;
  pf_known *const staged = (pf_known *)(turned + A::RIGHT);
  pf_piece *const kept = C::HELD ? lds : lds + A::TURN, *const kept2 = C::HELD ? lds : kept + A::OWN;
  const auto rows_of = [&](int i, int r) { return first + A::begins(i) + O::line(r); }; /* a lane's own lines */
  A own;
  own.template take_lines<C::DEPTH>(own.mine, kept, pf_matrix_of(a, arg + PF_ATT_A, batch, head, rows, depth, start), first);
  if constexpr (WAY == PF_SLOPES)
    own.template take_lines<C::INNER>(own.mine2, kept2, pf_matrix_of(a2, arg + PF_ATT_A2, batch, head, rows, inner, start), first);
  PF_UNROLL
  for (int i = 0; i < C::DOWN; i++) {
    PF_UNROLL
    for (int r = 0; r < O::LINES; r++) own.top[i][r] = -PF_INF, own.total[i][r] = 0.0f;
    PF_UNROLL
    for (int j = 0; j < C::WIDTH; j++) T::clear(own.result[i][j]);
  }
  for (int time = 0; time < times; time++) {
    const int query_head = head * times + time, across = query_head / (int)arg[PF_ATT_SHARED];
    const M *masked = C::MASK ? pf_head(mask, arg + PF_ATT_MASK, batch, query_head) : mask;
    const pf_known *known = (const pf_known *)scratch +
                            ((int64_t)batch * heads * times + query_head) * arg[TURNED ? PF_ATT_COLS : PF_ATT_ROWS] +
                            (TURNED ? beyond : start);
    pf_known of[C::DOWN][O::LINES]; /* the lane's own queries */
    if constexpr (!TURNED && WAY == PF_SLOPES) {
      PF_UNROLL
      for (int n = 0; n < C::DOWN * O::LINES; n++)
        of[n / O::LINES][n % O::LINES] = known[pf_least(rows_of(n / O::LINES, n % O::LINES), rows - 1)];
    }
    for (int left = begin; left < end; left += OTHERS) {
      PF_AGAIN(arg);
      pf_put_lines<A::THREADS, OTHERS, C::DEPTH, C::VECTOR>(lds, pf_matrix_of(b, arg + PF_ATT_B, batch, across, cols, depth, beyond), left);
      if constexpr (WAY == PF_SLOPES)
        pf_put_lines<A::THREADS, OTHERS, C::INNER, C::VECTOR>(second, pf_matrix_of(b2, arg + PF_ATT_B2, batch, across, cols, inner, beyond), left);
      if constexpr (WAY != PF_TOTALS)
        pf_put_turned<O, A::THREADS, OTHERS, C::WIDTH * 16, C::VECTOR>(
            turned, pf_matrix_of(right, arg + PF_ATT_RIGHT, batch, across, cols, width, beyond), left);
      if (TURNED && pf_thread() < OTHERS) staged[pf_thread()] = known[pf_least(left + pf_thread(), cols - 1)];
      pf_barrier();
      own.template product<C::DEPTH>(own.scores, own.mine, kept, lds);
      float bent[C::DOWN][BENT ? A::TILES * T::SUMS : 1]; /* what a change of the product changes scores by */
      A::each([&](int i, int j, int s, int r, int n) {
        float factor = scale * two;
        if (C::CAP) {
          const float tanh = pf_bend(T::get(own.scores[i][j], s) * (scale / cap));
          O::set(own.scores[i][j], s, tanh);
          if (BENT) bent[i][BENT ? j * T::SUMS + s : 0] = 1.0f - tanh * tanh;
          factor = cap * two;
        }
        O::set(own.scores[i][j], s, T::get(own.scores[i][j], s) * factor);
      });
      if (C::MASK || left + OTHERS > cols || left - low < first + ROWS - 1 || left - high + OTHERS - 1 > first) {
        const int from = left + O::shift();
        A::each([&](int i, int j, int s, int r, int n) {
          const int row = rows_of(i, r); /* of the turn's others it sees n from the first number on to the second */
          int seen = n >= row + low - from && n <= pf_least(cols - 1, row + high) - from;
          float score = T::get(own.scores[i][j], s);
          if (C::MASK && seen && row < rows) {
            const M given = masked[row * arg[PF_ATT_MASK + 2] + (from + n) * arg[PF_ATT_MASK + 3]];
            if (C::MASK == 1)
              seen = given != 0;
            else
              score += given * two;
          }
          O::set(own.scores[i][j], s, seen ? score : -PF_INF);
        });
      }
      if constexpr (WAY == PF_MIX || WAY == PF_TOTALS) {
        own.grow();
      } else {
        const pf_known *beside = staged + O::shift();
        A::each([&](int i, int j, int s, int r, int n) {
          const pf_known &query = TURNED ? beside[n] : of[i][r];
          O::set(own.scores[i][j], s, pf_weight(T::get(own.scores[i][j], s) - query.at[0]) * query.at[1]);
        });
        if constexpr (WAY == PF_SLOPES) {
          typename A::sums slopes[C::DOWN][A::TILES];
          own.template product<C::INNER>(slopes, own.mine2, kept2, second);
          A::each([&](int i, int j, int s, int r, int n) {
            const float slope = (T::get(slopes[i][j], s) - (TURNED ? beside[n] : of[i][r]).at[2]) * scale;
            O::set(own.scores[i][j], s,
                   T::get(own.scores[i][j], s) * (BENT ? slope * bent[i][BENT ? j * T::SUMS + s : 0] : slope));
          });
        }
      }
      if constexpr (WAY != PF_TOTALS) own.mix(turned);
      pf_barrier();
    }
  }
  PF_UNROLL
  for (int i = 0; i < C::DOWN; i++) {
    PF_UNROLL
    for (int r = 0; r < O::LINES; r++) {
      if constexpr (WAY == PF_MIX || WAY == PF_TOTALS) {
        PF_UNROLL
        for (int w = O::FROM; w < O::TO; w *= 2) own.total[i][r] += pf_shuffle_xor(own.total[i][r], w);
        own.total[i][r] = pf_inverse(own.total[i][r]);
      }
      if constexpr (WAY == PF_TOTALS) {
        const int row = rows_of(i, r), member = pf_lane_of_wave() / O::FROM % (O::TO / O::FROM);
        const pf_matrix<S> d_out = pf_matrix_of(a2, arg + PF_ATT_A2, batch, head, rows, inner, start);
        const pf_matrix<S> was = pf_matrix_of(b2, arg + PF_ATT_B2, batch, head, rows, inner, start);
        float dot = 0.0f;
        for (int e = member; row < rows && e < inner; e += O::TO / O::FROM)
          dot = pf_mul_add(C::E::load(d_out.at[row * d_out.line_step + e * d_out.step]),
                           C::E::load(was.at[row * was.line_step + e * was.step]), dot);
        PF_UNROLL
        for (int w = O::FROM; w < O::TO; w *= 2) dot += pf_shuffle_xor(dot, w);
        const pf_known found = {{pf_base(own.top[i][r]), own.total[i][r], dot, 0.0f}};
        if (member == 0 && row < rows)
          ((pf_known *)scratch)[((int64_t)batch * heads + head) * arg[PF_ATT_ROWS] + start + row] = found;
      }
    }
    if constexpr (WAY == PF_MIX) own.scale(i, own.total[i]);
  }
  if constexpr (WAY != PF_TOTALS) {
    pf_late_args to = arg + PF_ATT_OUT;
    S *const at = out + to[0] + batch * to[1] + head * to[2] + start * to[3];
    PF_UNROLL
    for (int i = 0; i < C::DOWN; i++) {
      PF_UNROLL
      for (int n = 0; n < C::WIDTH * T::SUMS; n++) {
        const int j = n / T::SUMS, s = n % T::SUMS, row = rows_of(i, O::slot(s));
        const int column = j * 16 + O::fixed(s) + O::shift();
        /* lines that do not count were multiplied as others are: rows do not mix */
        const float x = C::SPANS && row >= place.live ? 0.0f : T::get(own.result[i][j], s);
        if (row < rows && column < width) at[row * to[3] + column] = C::E::store(x);
      }
    }
  }
}

#endif
