/* Attention and its gradient on any GPU, without matrix cores and without a matrix of scores in memory.
 *
 *   S = Q K^T * scale + mask      P = softmax(S)      O = P V
 *   dS = P (dO V^T - sum(dO O)) * scale      dQ = dS K      dK = dS^T Q      dV = P^T dO
 *   CAP: S = c tanh(Q K^T * scale / c) + mask, and dS times 1 - tanh^2
 *
 * All five are one loop. A block has a tile of 64 lines (queries or keys) and walks over tiles of the other side: the
 * product of both gives 64 x 64 scores in registers (pf_tile.h), they become weights, and the weights times the other
 * side's lines are added to the result, which stays in registers.
 *
 *   way                rows      columns   weights   times
 *   PF_MIX             queries   keys      P         V        the forward pass: maximum and sum of a row grow with it
 *   PF_TOTALS          queries   keys      -         -        each row's maximum, 1 / sum and sum(dO O), to scratch
 *   PF_SLOPES          queries   keys      dS        K        dQ
 *   PF_SLOPES turned   keys      queries   dS^T      Q        dK
 *   PF_WEIGHTS turned  keys      queries   P^T       dO       dV
 *
 * 2 T S (D + E) flops forward and 2 T S (5 D + 4 E) backward, half of it where causal and as much as a window is wide:
 * tiles that nobody sees are left out. Of dQ, dK and dV each has its own launch and recomputes the scores: nothing is added by two blocks, so results
 * have the same bits in every run.
 *
 * Memory policy. A block reads its own lines and all others once per tile of columns: T S / 64 * (2 D + E) numbers,
 * mostly from L2, 16 bytes per lane (8 of 16-bit numbers) where alignment allows it, else number by number. Numbers lie
 * in LDS as float. The weights of a tile lie there as [column][row], and the stages of both products around them: those
 * of the scores are done with when weights are written. T x S numbers are never in memory.
 */
#ifndef PF_ATTENTION_HIP
#define PF_ATTENTION_HIP
#include "matmul.hip"
#include "pf_attend.h"
#include "pf_element.h"

enum {
  PF_ATT_LINES = 64,               /* of a tile; a thread has 4 x 4 scores */
  PF_ATT_LANES = PF_ATT_LINES / 4, /* that share 4 rows */
  PF_ATT_THREADS = PF_ATT_LANES * PF_ATT_LANES,
  PF_ATT_PITCH = PF_ATT_LANES + 1, /* of a column of weights in LDS, in vectors */
};

typedef pf_vector<float, 4> pf_floats;

/* The tile of scores, for pf_tile.h. */
template <class E, int VECTOR> struct pf_scores : E {
  typedef float sum;
  enum {
    ROWS = PF_ATT_LINES, COLS = PF_ATT_LINES, DEPTH = 16, HIGH = 4, WIDE = 4, WIDTH = 4, THREADS = PF_ATT_THREADS,
    A_ALONG_K = 1, B_ALONG_K = 1, A_VECTOR = VECTOR, B_VECTOR = VECTOR,
  };
};

/* The tile of results: a thread has the rows that it has of the scores. */
template <class E, int RESULT> struct pf_result : E {
  typedef float sum;
  enum {
    ROWS = PF_ATT_LINES, COLS = RESULT, DEPTH = 1024 / RESULT, HIGH = 4, WIDE = RESULT / PF_ATT_LANES, WIDTH = 4,
    THREADS = PF_ATT_THREADS,
    STAGE = DEPTH * (RESULT + 4) / 4, /* of the right side, in vectors */
  };
};

/* sums = lines of a from `first` on times lines of b from `left` on */
template <class S, class T>
PF_FN void pf_score(pf_tile<S> &sums, pf_floats *lds, const T *a, pf_late_args a_step, int first, int rows, const T *b,
                    pf_late_args b_step, int left, int cols, int depth) {
  pf_gemm_in<S> in;
  in.a.begin(a, first, rows, a_step[2], a_step[3], 0);
  in.b.begin(b, left, cols, b_step[2], b_step[3], 0);
  sums.clear();
  sums.add(lds, in, 0, depth);
}

/* sums += weights^T times `count` lines of the right side from `left` on; `stage`: two steps of it */
template <class R, int VECTOR, class T>
PF_FN void pf_mix(pf_tile<R> &sums, const pf_floats *weights, pf_floats *stage, const T *right, pf_late_args step,
                  int width, int left, int count) {
  pf_lines<R, R::COLS, 0, VECTOR> lines;
  lines.begin(right, 0, width, step[3], step[2], left);
  lines.template fetch<1>(count);
  lines.put((float *)stage);
  pf_barrier();
  for (int k = 0, half = 0; k < count; k += R::DEPTH, half ^= 1) {
    const int more = k + R::DEPTH < count;
    if (more) lines.template fetch<1>(count - k - R::DEPTH);
    sums.multiply(weights + k * PF_ATT_PITCH, stage + half * R::STAGE);
    if (more) lines.put((float *)(stage + (half ^ 1) * R::STAGE));
    pf_barrier();
  }
}

/* The largest of neighbouring lanes' numbers; each gets it. */
template <int LANES> PF_FN float pf_lanes_max(float x) {
  PF_UNROLL
  for (int w = 1; w < LANES; w *= 2) {
    const float other = pf_shuffle_xor(x, w);
    x = other > x ? other : x;
  }
  return x;
}

template <class E> struct pf_attended {
  typename E::stored *at;
  int64_t step;
  PF_MEMBER void operator()(int i, int j, float x) const { at[i * step + j] = E::store(x); }
};

template <class E, int RESULT, int VECTOR, int WAY, int TURNED, int MASK, int CAP, int SPANS, class M>
PF_FN void pf_attend(const typename E::stored *a, const typename E::stored *b, const typename E::stored *a2,
                     const typename E::stored *b2, const typename E::stored *right, const M *mask, char *scratch,
                     typename E::stored *out, pf_late_args arg, const int *spans = 0) {
  typedef pf_scores<E, VECTOR> S;
  typedef pf_result<E, RESULT> R;
  enum {
    LINES = PF_ATT_LINES,
    LANES = PF_ATT_LANES,
    SCORES = 2 * pf_tile<S>::SIZE / 4,
    WEIGHTS = LINES * PF_ATT_PITCH,
    MIXED = WAY == PF_TOTALS ? 0 : WEIGHTS + 2 * R::STAGE,
  };
  PF_SHARED pf_floats lds[SCORES > MIXED ? SCORES : MIXED];
  pf_place at;
  if (!pf_place_of<SPANS, TURNED, LINES>(at, spans, arg)) return;
  const int rows = at.rows, cols = at.cols, first = at.first, batch = at.batch, head = at.head, low = at.low, high = at.high;
  const int heads = (int)arg[PF_ATT_HEADS], times = (int)arg[PF_ATT_TIMES];
  const int x = pf_thread() % LANES, y = pf_thread() / LANES, own = first + 4 * y;
  const int queries = (int)arg[TURNED ? PF_ATT_COLS : PF_ATT_ROWS], seen_queries = TURNED ? cols : rows;
  const float scale = pf_from_bits_f32((uint32_t)arg[PF_ATT_SCALE]), cap = pf_from_bits_f32((uint32_t)arg[PF_ATT_CAP]);
  const int begin = first + low > 0 ? first + low : 0, end = pf_least(cols, first + LINES + high);
  float top[4], total[4];
  PF_UNROLL
  for (int r = 0; r < 4; r++) top[r] = -PF_INF, total[r] = 0.0f;
  pf_tile<R> sums;
  sums.clear();
  for (int time = 0; time < times; time++) {
    const int query_head = head * times + time, other = query_head / (int)arg[PF_ATT_SHARED];
    const M *masked = MASK ? pf_head(mask, arg + PF_ATT_MASK, batch, query_head) : mask;
    const pf_floats *known = (const pf_floats *)scratch + ((int64_t)batch * heads * times + query_head) * queries +
                             (TURNED ? at.across : at.start);
    for (int left = begin; left < end; left += LINES) {
      pf_tile<S> scores, bent; /* bent: where capped, what a change of the product changes scores by */
      PF_AGAIN(arg);
      pf_score(scores, lds, pf_head(a, arg + PF_ATT_A, batch, head, at.start), arg + PF_ATT_A, first, rows,
               pf_head(b, arg + PF_ATT_B, batch, other, at.across), arg + PF_ATT_B, left, cols, (int)arg[PF_ATT_DEPTH]);
      PF_UNROLL
      for (int r = 0; r < 4; r++) {
        PF_UNROLL
        for (int c = 0; c < 4; c++) {
          const int i = own + r, j = left + 4 * x + c;
          int seen = i < at.live && j < cols && j - i >= low && j - i <= high;
          float score = scores.at[r][c] * scale;
          if (CAP) {
            const float tanh = pf_tanh(score / cap);
            score = tanh * cap;
            bent.at[r][c] = 1.0f - tanh * tanh;
          }
          if (MASK && seen) {
            const M given = masked[i * arg[PF_ATT_MASK + 2] + j * arg[PF_ATT_MASK + 3]];
            if (MASK == 1)
              seen = given != 0;
            else
              score += given;
          }
          scores.at[r][c] = seen ? score : -PF_INF;
        }
      }
      if (WAY == PF_MIX || WAY == PF_TOTALS) {
        PF_UNROLL
        for (int r = 0; r < 4; r++) {
          float most = scores.at[r][0];
          PF_UNROLL
          for (int c = 1; c < 4; c++) most = scores.at[r][c] > most ? scores.at[r][c] : most;
          most = pf_lanes_max<LANES>(most);
          most = most > top[r] ? most : top[r];
          const float less = pf_exp(top[r] - pf_base(most));
          top[r] = most;
          total[r] *= less;
          PF_UNROLL
          for (int c = 0; c < 4; c++) {
            scores.at[r][c] = pf_exp(scores.at[r][c] - pf_base(most));
            total[r] += scores.at[r][c];
          }
          if (WAY == PF_MIX) {
            PF_UNROLL
            for (int c = 0; c < R::WIDE; c++) sums.at[r][c] *= less;
          }
        }
      } else {
        pf_floats of[4]; /* maximum, 1 / sum and sum(dO O) of queries */
        PF_UNROLL
        for (int n = 0; n < 4; n++) of[n] = known[pf_least((TURNED ? left + 4 * x : own) + n, seen_queries - 1)];
        PF_UNROLL
        for (int r = 0; r < 4; r++) {
          PF_UNROLL
          for (int c = 0; c < 4; c++) {
            const pf_floats &query = of[TURNED ? c : r];
            scores.at[r][c] = pf_exp(scores.at[r][c] - query.at[0]) * query.at[1];
          }
        }
        if (WAY == PF_SLOPES) {
          pf_tile<S> slopes;
          PF_AGAIN(arg);
          pf_score(slopes, lds, pf_head(a2, arg + PF_ATT_A2, batch, head, at.start), arg + PF_ATT_A2, first, rows,
                   pf_head(b2, arg + PF_ATT_B2, batch, other, at.across), arg + PF_ATT_B2, left, cols, (int)arg[PF_ATT_INNER]);
          PF_UNROLL
          for (int r = 0; r < 4; r++) {
            PF_UNROLL
            for (int c = 0; c < 4; c++)
              scores.at[r][c] *= (slopes.at[r][c] - of[TURNED ? c : r].at[2]) * (CAP ? bent.at[r][c] * scale : scale);
          }
        }
      }
      if (WAY == PF_TOTALS) continue;
      PF_UNROLL
      for (int c = 0; c < 4; c++) {
        pf_floats column;
        PF_UNROLL
        for (int r = 0; r < 4; r++) column.at[r] = scores.at[r][c];
        lds[(4 * x + c) * PF_ATT_PITCH + y] = column;
      }
      PF_AGAIN(arg);
      pf_mix<R, VECTOR>(sums, lds, lds + WEIGHTS, pf_head(right, arg + PF_ATT_RIGHT, batch, other, at.across),
                        arg + PF_ATT_RIGHT, (int)arg[PF_ATT_WIDTH], left, pf_least(LINES, end - left));
    }
  }
  if (WAY == PF_MIX || WAY == PF_TOTALS) pf_lanes_sum<LANES>(total, 4);
  if (WAY == PF_TOTALS) {
    const typename E::stored *d_out = pf_head(a2, arg + PF_ATT_A2, batch, head, at.start);
    const typename E::stored *was = pf_head(b2, arg + PF_ATT_B2, batch, head, at.start);
    PF_UNROLL
    for (int r = 0; r < 4; r++) {
      const int i = pf_least(own + r, rows - 1);
      float dot = 0.0f;
      for (int e = x; e < (int)arg[PF_ATT_INNER]; e += LANES)
        dot = pf_mul_add(E::load(d_out[i * arg[PF_ATT_A2 + 2] + e * arg[PF_ATT_A2 + 3]]),
                         E::load(was[i * arg[PF_ATT_B2 + 2] + e * arg[PF_ATT_B2 + 3]]), dot);
      pf_lanes_sum<LANES>(&dot, 1);
      const pf_floats found = {{pf_base(top[r]), pf_inverse(total[r]), dot, 0.0f}};
      if (x == 0 && own + r < rows) ((pf_floats *)scratch)[((int64_t)batch * heads + head) * queries + at.start + i] = found;
    }
    return;
  }
  if (WAY == PF_MIX) {
    PF_UNROLL
    for (int r = 0; r < 4; r++) {
      const float inverse = pf_inverse(total[r]);
      PF_UNROLL
      for (int c = 0; c < R::WIDE; c++) sums.at[r][c] *= inverse;
    }
  }
  pf_late_args to = arg + PF_ATT_OUT;
  const pf_attended<E> result = {out + to[0] + batch * to[1] + head * to[2] + at.start * to[3], to[3]};
  sums.store(first, 0, rows, (int)arg[PF_ATT_WIDTH], result);
}

#endif
