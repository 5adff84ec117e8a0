/* What attention.hip, attention_mma.hip and attention_decode.hip share: the ways, the arguments of a launch, reading. */
#ifndef PF_ATTEND_H
#define PF_ATTEND_H
#include "pf_tile.h"

enum { PF_MIX, PF_TOTALS, PF_SLOPES, PF_WEIGHTS };

enum {
  PF_ATT_ROWS, PF_ATT_COLS,    /* lines there are */
  PF_ATT_HEADS,                /* of the rows */
  PF_ATT_SHARED, PF_ATT_TIMES, /* heads of rows that share one of columns, and the other way round */
  PF_ATT_DEPTH, PF_ATT_INNER, PF_ATT_WIDTH, /* of Q, of dO, of the result */
  PF_ATT_LOW, PF_ATT_HIGH,     /* the least and greatest column - row that is seen: causal, windows, offsets */
  PF_ATT_SCALE, PF_ATT_CAP,    /* their bits */
  /* strides of batch, head, line and number: the scores' operands, those of dO V^T (PF_TOTALS: dO and O), what weights
   * are multiplied with, the mask with the rows first */
  PF_ATT_A, PF_ATT_B = PF_ATT_A + 4, PF_ATT_A2 = PF_ATT_B + 4, PF_ATT_B2 = PF_ATT_A2 + 4, PF_ATT_RIGHT = PF_ATT_B2 + 4,
  PF_ATT_MASK = PF_ATT_RIGHT + 4,
  PF_ATT_OUT = PF_ATT_MASK + 4, /* start, and strides of batch, head and line */
};

template <class T> PF_FN const T *pf_head(const T *base, pf_late_args strides, int batch, int head) {
  return base + batch * strides[0] + head * strides[1];
}

/* A matrix where it lies: lines that are there, numbers of a line, and the strides of both. */
template <class S> struct pf_matrix {
  const S *at;
  int lines, depth;
  int64_t line_step, step;
};
template <class S>
PF_FN pf_matrix<S> pf_matrix_of(const S *at, pf_late_args strides, int batch, int head, int lines, int depth) {
  return {pf_head(at, strides, batch, head), lines, depth, strides[2], strides[3]};
}

/* `COUNT` neighbours of a line from number k on, and 0 where there are none. What lies outside is read at the start
 * instead: no lane waits for a branch. */
template <int COUNT, int VECTOR, class S>
PF_FN pf_vector<S, COUNT> pf_read(const pf_matrix<S> &from, int line, int k) {
  typedef pf_vector<S, COUNT> vector;
  const int inside = line < from.lines ? from.depth - k : 0;
  const S *at = from.at + pf_least(line, from.lines - 1) * from.line_step + (k < from.depth ? k : 0) * from.step;
  vector got;
  if (VECTOR) {
    got = *(const vector *)at;
    PF_UNROLL
    for (int e = 0; e < COUNT; e++) got.at[e] = inside > 0 ? got.at[e] : 0;
  } else {
    PF_UNROLL
    for (int e = 0; e < COUNT; e++) {
      const S number = at[e < inside ? e * from.step : 0];
      got.at[e] = e < inside ? number : 0;
    }
  }
  return got;
}

/* What is subtracted from a row's scores: its maximum, or where nothing is seen any number. */
PF_FN float pf_base(float top) { return top == -PF_INF ? 0.0f : top; }
PF_FN float pf_inverse(float total) { return total == 0.0f ? 1.0f : 1.0f / total; }

#endif
