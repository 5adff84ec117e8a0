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
  PF_DEC_SPLITS = PF_ATT_SPANS + 1,
};

typedef pf_vector<uint32_t, 4> pf_words; /* a piece; as numbers of 16 bits the compiler would take its load apart */

PF_FN uint32_t pf_word_of(float x, float) { return pf_bits_f32(x); }
PF_FN uint32_t pf_word_of(uint16_t low, uint16_t high) { return low | (uint32_t)high << 16; }

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
    for (int w = 0; w < 4; w++) got.at[w] = pf_word_of(numbers.at[w * EACH], numbers.at[w * EACH + EACH - 1]);
  }
  return got;
}
/* Number n of a piece. */
PF_FN float pf_number(pf_of<float>, const pf_words &piece, int n) { return pf_from_bits_f32(piece.at[n]); }
template <class E> PF_FN float pf_number(E, const pf_words &piece, int n) {
  return E::load((uint16_t)(piece.at[n / 2] >> 16 * (n % 2)));
}

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

template <class E, int LANES, int PIECES, int ROWS, int VECTOR, int MASK, int CAP, int SPANS, class M>
PF_FN void pf_attend_few(const typename E::stored *q, const typename E::stored *k, const typename E::stored *v,
                         const M *mask, char *scratch, typename E::stored *out, pf_late_args arg,
                         const int *spans = 0) {
  typedef typename E::stored S;
  enum {
    PIECE = 16 / sizeof(S),
    NUMBERS = PIECES * PIECE, /* of a line in a lane */
    GROUPS = PF_DEC_THREADS / LANES,
    WAVES = PF_DEC_THREADS / PF_WAVE,
    DEEP = PIECES == 4 || ROWS == 8 ? 2 : 4, /* keys of a lane at a time: as registers allow */
    STEP = GROUPS * DEEP,
    LINE = LANES * NUMBERS,
  };
  PF_SHARED float lds[WAVES * ROWS * (LINE + 2)];
  const int queries = (int)arg[PF_ATT_ROWS], heads = (int)arg[PF_ATT_HEADS];
  const int share = (int)arg[PF_ATT_SHARED], splits = (int)arg[PF_DEC_SPLITS], rows = share * queries;
  const int depth = (int)arg[PF_ATT_DEPTH], width = (int)arg[PF_ATT_WIDTH];
  const int groups = (rows + ROWS - 1) / ROWS, first = pf_block() % groups * ROWS, part = pf_block() / groups;
  const int split = part % splits, entry = part / splits, batch = entry / (heads / share);
  const int shared = entry - batch * (heads / share), offset = SPANS ? spans[batch * PF_SPAN + PF_SPAN_OFFSET] : 0;
  const int keys = SPANS ? spans[batch * PF_SPAN + PF_SPAN_LIVE] : (int)arg[PF_ATT_COLS];
  const int low = (int)arg[PF_ATT_LOW] + offset, high = (int)arg[PF_ATT_HIGH] + offset;
  const int lane = pf_thread() % LANES, group = pf_thread() / LANES;
  const float scale = pf_from_bits_f32((uint32_t)arg[PF_ATT_SCALE]), cap = pf_from_bits_f32((uint32_t)arg[PF_ATT_CAP]);
  const float two = 1.44269504f; /* weights are powers of 2 */
  /* the keys that any query sees, and this block's part of them */
  const int from = low > 0 ? low : 0, to = pf_least(keys, queries + high);
  const int part_keys = to > from ? ((to - from + splits - 1) / splits + STEP - 1) / STEP * STEP : 0;
  const int begin = from + split * part_keys, end = pf_least(to, begin + part_keys);

  float query[ROWS][NUMBERS], sums[ROWS][NUMBERS];
  PF_UNROLL
  for (int r = 0; r < ROWS; r++) {
    const int row = pf_least(first + r, rows - 1), head = shared * share + row / queries;
    const pf_matrix<S> from_q = pf_matrix_of(q, arg + PF_ATT_A, batch, head, queries, depth);
    PF_UNROLL
    for (int p = 0; p < PIECES; p++) {
      const pf_words got = pf_read_words<VECTOR>(from_q, row % queries, (p * LANES + lane) * PIECE);
      PF_UNROLL
      for (int e = 0; e < PIECE; e++) {
        query[r][p * PIECE + e] = pf_number(E(), got, e) * (CAP ? scale / cap : scale * two);
        sums[r][p * PIECE + e] = 0.0f;
      }
    }
  }
  const int mine = lane / (LANES / ROWS), row = pf_least(first + mine, rows - 1), query_of = row % queries;
  const M *masked = MASK ? pf_head(mask, arg + PF_ATT_MASK, batch, shared * share + row / queries) : mask;
  const pf_matrix<S> from_k = pf_matrix_of(k, arg + PF_ATT_B, batch, shared, end, depth);
  const pf_matrix<S> from_v = pf_matrix_of(v, arg + PF_ATT_RIGHT, batch, shared, end, width); /* weight 0 of what is no number is none */
  float top = -PF_INF, total = 0.0f;
  for (int at = begin; at < end; at += STEP) {
    pf_words key[DEEP][PIECES], value[DEEP][PIECES];
    PF_UNROLL
    for (int n = 0; n < DEEP * PIECES; n++) {
      const int u = n / PIECES, p = n % PIECES;
      key[u][p] = pf_read_words<VECTOR>(from_k, at + u * GROUPS + group, (p * LANES + lane) * PIECE);
      value[u][p] = pf_read_words<VECTOR>(from_v, at + u * GROUPS + group, (p * LANES + lane) * PIECE);
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
          score[r] = pf_mul_add(query[r][n], pf_number(E(), key[u][n / PIECE], n % PIECE), score[r]);
      }
      float x = pf_rows_sum<LANES, ROWS>(score);
      if (CAP) x = pf_tanh(x) * (cap * two);
      const int j = at + u * GROUPS + group;
      int seen = j < end && j - query_of >= low && j - query_of <= high;
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
        const float by = pf_shuffle(weight[u], owner);
        PF_UNROLL
        for (int n = 0; n < NUMBERS; n++)
          sums[r][n] = pf_mul_add(by, pf_number(E(), value[u][n / PIECE], n % PIECE), sums[r][n]);
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
  for (int n = pf_thread(); n < ROWS * width; n += PF_DEC_THREADS) {
    const int r = n / width, e = n - r * width, which = first + r;
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
    if (which >= rows) continue;
    const int head = shared * share + which / queries, line = which % queries;
    if (splits > 1) {
      float *const to_part = pf_part_of(scratch, ((int64_t)batch * heads + head) * queries + line, split, splits, width);
      to_part[2 + e] = sum;
      if (e == 0) to_part[0] = best, to_part[1] = all;
    } else {
      pf_late_args place = arg + PF_ATT_OUT;
      out[place[0] + batch * place[1] + head * place[2] + line * place[3] + e] = E::store(sum * pf_inverse(all));
    }
  }
}

/* One block for a row: the sum of its splits, each less by how far its maximum is below the highest. */
template <class E> PF_FN void pf_attend_join(char *scratch, typename E::stored *out, pf_late_args arg) {
  const int queries = (int)arg[PF_ATT_ROWS], heads = (int)arg[PF_ATT_HEADS], width = (int)arg[PF_ATT_WIDTH];
  const int splits = (int)arg[PF_DEC_SPLITS], line = pf_block() % queries, entry = pf_block() / queries;
  const int batch = entry / heads, head = entry - batch * heads;
  float best = -PF_INF, all = 0.0f;
  for (int n = 0; n < splits; n++) best = pf_max_f32(best, pf_part_of(scratch, pf_block(), n, splits, width)[0]);
  for (int n = 0; n < splits; n++) {
    const float *const part = pf_part_of(scratch, pf_block(), n, splits, width);
    all = pf_mul_add(part[1], pf_exp2(part[0] - pf_base(best)), all);
  }
  for (int e = pf_thread(); e < width; e += PF_DEC_THREADS) {
    float sum = 0.0f;
    for (int n = 0; n < splits; n++) {
      const float *const part = pf_part_of(scratch, pf_block(), n, splits, width);
      sum = pf_mul_add(part[2 + e], pf_exp2(part[0] - pf_base(best)), sum);
    }
    pf_late_args place = arg + PF_ATT_OUT;
    out[place[0] + batch * place[1] + head * place[2] + line * place[3] + e] = E::store(sum * pf_inverse(all));
  }
}

#endif
