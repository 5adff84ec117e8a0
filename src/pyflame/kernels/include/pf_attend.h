/* What attention.hip, attention_mma.hip, attention_async.hip and attention_decode.hip share: the ways, the arguments of a
 * launch, reading. */
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
  PF_ATT_OUT = PF_ATT_MASK + 4,   /* start, and strides of batch, head and line */
  PF_ATT_SPANS = PF_ATT_OUT + 4,  /* how many there are, where sequences are packed */
  /* attention_async.hip's: tiles of rows, blocks, tiles that a block takes together; a second result, as the first */
  PF_ATT_TILES = PF_ATT_SPANS + 1, PF_ATT_BLOCKS, PF_ATT_TOGETHER, PF_ATT_OUT2,
};

/* Which lines there are: all, of each batch entry as a span says, or sequence after sequence (ops/attention_spans.py) */
enum { PF_WHOLE, PF_LIMITED, PF_PACKED };
enum { PF_SPAN_FIRST, PF_SPAN_QUERIES, PF_SPAN_START, PF_SPAN_KEYS, PF_SPAN_LIVE, PF_SPAN_OFFSET, PF_SPAN };

/* What a block has: rows from `first` on. */
struct pf_place {
  int batch, head, first;
  int start, rows, live; /* own lines: where they begin, how many there are, how many count */
  int across, cols;      /* the others: where they begin, how many count */
  int low, high;
};

/* Whether there is anything for this block, and what. */
template <int SPANS, int TURNED, int LINES>
PF_FN int pf_place_of(pf_place &at, const int *spans, pf_late_args arg) {
  const int rows = (int)arg[PF_ATT_ROWS], heads = (int)arg[PF_ATT_HEADS], count = (int)arg[PF_ATT_SPANS];
  int tiles = (rows + LINES - 1) / LINES, tile;
  at.start = at.across = 0, at.rows = at.live = rows, at.cols = (int)arg[PF_ATT_COLS];
  at.low = (int)arg[PF_ATT_LOW], at.high = (int)arg[PF_ATT_HIGH];
  if (SPANS == PF_PACKED) {
    const int each = rows / LINES + count; /* blocks of a head: more tiles there are not, if sequences do not overlap */
    at.batch = 0, at.head = pf_block() / each, tile = pf_block() - at.head * each;
    int n = 0;
    for (; n < count; n++, spans += PF_SPAN, tile -= tiles) {
      tiles = (spans[TURNED ? PF_SPAN_KEYS : PF_SPAN_QUERIES] + LINES - 1) / LINES;
      if (tile < tiles) break;
    }
    if (n == count) return 0;
  } else {
    const int entry = pf_block() / tiles;
    tile = pf_block() - entry * tiles, at.batch = entry / heads, at.head = entry - at.batch * heads;
    if (SPANS) spans += at.batch * PF_SPAN;
  }
  if (SPANS) {
    const int offset = TURNED ? -spans[PF_SPAN_OFFSET] : spans[PF_SPAN_OFFSET];
    at.low += offset, at.high += offset;
    at.start = spans[TURNED ? PF_SPAN_START : PF_SPAN_FIRST], at.across = spans[TURNED ? PF_SPAN_FIRST : PF_SPAN_START];
    at.rows = spans[TURNED ? PF_SPAN_KEYS : PF_SPAN_QUERIES], at.live = TURNED ? spans[PF_SPAN_LIVE] : at.rows;
    at.cols = spans[TURNED ? PF_SPAN_QUERIES : PF_SPAN_LIVE];
  }
  at.first = (TURNED ? tile : tiles - 1 - tile) * LINES; /* where causal, those with most to see begin */
  return 1;
}

template <class T> PF_FN const T *pf_head(const T *base, pf_late_args strides, int batch, int head, int line = 0) {
  return base + batch * strides[0] + head * strides[1] + line * strides[2];
}

/* A matrix where it lies: lines that are there, numbers of a line, and the strides of both. */
template <class S> struct pf_matrix {
  const S *at;
  int lines, depth;
  int64_t line_step, step;
};
template <class S>
PF_FN pf_matrix<S> pf_matrix_of(const S *at, pf_late_args strides, int batch, int head, int lines, int depth,
                                int first = 0) {
  return {pf_head(at, strides, batch, head, first), lines, depth, strides[2], strides[3]};
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
#if defined(PF_HARDWARE_EXP2)
PF_FN float pf_weight(float x) { return PF_HARDWARE_EXP2(x); }
#else
PF_FN float pf_weight(float x) { return pf_exp2(x); }
#endif
PF_FN float pf_inverse(float total) { return total == 0.0f ? 1.0f : 1.0f / total; }

#endif
