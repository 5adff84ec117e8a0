/* What attention.hip, attention_mma.hip and attention_async.hip share: the ways, and the arguments of a launch. */
#ifndef PF_ATTEND_H
#define PF_ATTEND_H
#include "pf_tile.h"

enum { PF_MIX, PF_TOTALS, PF_SLOPES, PF_WEIGHTS };

enum {
  PF_ATT_ROWS, PF_ATT_COLS,    /* lines there are */
  PF_ATT_HEADS,                /* of the rows */
  PF_ATT_SHARED, PF_ATT_TIMES, /* heads of rows that share one of columns, and the other way round */
  PF_ATT_DEPTH, PF_ATT_INNER, PF_ATT_WIDTH, /* of Q, of dO, of the result */
  PF_ATT_CAUSAL, PF_ATT_SCALE, /* its bits */
  /* strides of batch, head, line and number: the scores' operands, those of dO V^T (PF_TOTALS: dO and O), what weights
   * are multiplied with, the mask with the rows first */
  PF_ATT_A, PF_ATT_B = PF_ATT_A + 4, PF_ATT_A2 = PF_ATT_B + 4, PF_ATT_B2 = PF_ATT_A2 + 4, PF_ATT_RIGHT = PF_ATT_B2 + 4,
  PF_ATT_MASK = PF_ATT_RIGHT + 4,
  PF_ATT_OUT = PF_ATT_MASK + 4, /* start, and strides of batch, head and line */
  PF_ATT_OUT2 = PF_ATT_OUT + 4, /* of a second result */
};

template <class T> PF_FN const T *pf_head(const T *base, pf_late_args strides, int batch, int head) {
  return base + batch * strides[0] + head * strides[1];
}

/* What is subtracted from a row's scores: its maximum, or where nothing is seen any number. */
PF_FN float pf_base(float top) { return top == -PF_INF ? 0.0f : top; }
#if defined(PF_HARDWARE_EXP2)
PF_FN float pf_weight(float x) { return PF_HARDWARE_EXP2(x); }
#else
PF_FN float pf_weight(float x) { return pf_exp2(x); }
#endif
PF_FN float pf_inverse(float total) { return total == 0.0f ? 1.0f : 1.0f / total; }

#endif
