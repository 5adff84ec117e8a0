/* Running sums and products along one axis of a contiguous tensor seen as (outer, length, inner), on a GPU:
 *
 *   y[o, j, i] = x[o, 0, i] op x[o, 1, i] op ... op x[o, j, i]        (from the far end with `reverse`)
 *
 * Rows along memory (inner 1): MEMBERS threads share a row, or a chunk of it, and go through it in tiles of
 * MEMBERS * PF_EACH elements. A tile passes through LDS, so that memory is read and written in order while each thread
 * scans neighbouring elements; the threads' totals are scanned by shuffles and, between waves, in LDS.
 * Columns (inner > 1): a thread walks down a column, its neighbours down the columns beside it.
 * Where there are few rows or columns but long ones each is cut into chunks: `total` reduces each chunk, then every
 * chunk starts from the totals before it. Chunks follow from shape and target, so every run gives the same bits.
 *
 * Bytes: x once (twice when chunked) and y once. Floats are accumulated in double, as on the CPU; integers wrap.
 */
#ifndef PF_CUMULATIVE_HIP
#define PF_CUMULATIVE_HIP

#include "pf_element.h"

namespace pf_scanning {

enum { PF_SCAN_BLOCK = 256, PF_EACH = 8 };
enum { PF_ROWS, PF_LENGTH, PF_CHUNK, PF_CHUNKS, PF_CHUNKS_MAGIC, PF_REVERSE, PF_INNER, PF_INNER_MAGIC };

struct pf_sum {
  static constexpr int one = 0;
  PF_FN double of(double a, double b) { return a + b; }
  PF_FN int64_t of(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }
};
struct pf_product {
  static constexpr int one = 1;
  PF_FN double of(double a, double b) { return a * b; }
  PF_FN int64_t of(int64_t a, int64_t b) { return (int64_t)((uint64_t)a * (uint64_t)b); }
};

PF_FN double pf_accumulator(float) { return 0; }
PF_FN double pf_accumulator(double) { return 0; }
template <class T> PF_FN int64_t pf_accumulator(T) { return 0; }
#define PF_ACCUMULATOR(E) decltype(pf_accumulator((typename E::wide)0))

/* Between an element's place in LDS and the next PF_EACH-th lies one free word, so that lanes use different banks. */
PF_FN int pf_padded(int i) { return i + i / PF_EACH; }
enum { PF_SCAN_ROOM = PF_SCAN_BLOCK * PF_EACH + PF_SCAN_BLOCK };

/* The part of a row that MEMBERS threads work on: elements [from, to) in the order of the scan. */
template <class I> struct pf_stretch {
  I row;
  int64_t from, to;
};
template <class I> PF_FN pf_stretch<I> pf_chunk_of(I task, const int64_t *arg) {
  const I row = pf_quotient(task, arg[PF_CHUNKS], arg[PF_CHUNKS_MAGIC]);
  const int64_t from = (int64_t)(task - row * (I)arg[PF_CHUNKS]) * arg[PF_CHUNK], to = from + arg[PF_CHUNK];
  return {row, from, to < arg[PF_LENGTH] ? to : arg[PF_LENGTH]};
}

/* totals[task] of each chunk. A block takes one. */
template <class E, class OP, class I> PF_FN void pf_row_totals(const typename E::stored *x, char *scratch, const int64_t *arg) {
  typedef PF_ACCUMULATOR(E) A;
  PF_SHARED A room[PF_SCAN_BLOCK / PF_WAVE];
  const pf_stretch<I> part = pf_chunk_of((I)pf_block(), arg);
  const typename E::stored *row = x + (int64_t)part.row * arg[PF_LENGTH];
  A total = OP::one;
  for (int64_t j = part.from + pf_thread(); j < part.to; j += PF_SCAN_BLOCK)
    total = OP::of(total, (A)E::load(row[arg[PF_REVERSE] ? arg[PF_LENGTH] - 1 - j : j]));
  total = pf_block_sum<PF_SCAN_BLOCK>(total, room, [](A a, A b) { return OP::of(a, b); });
  if (pf_thread() == 0) pf_put(scratch, pf_block(), total);
}

template <class E, class OP, int MEMBERS, int CHUNKED, class I>
PF_FN void pf_scan_rows(const typename E::stored *x, typename E::stored *y, const char *scratch, const int64_t *arg) {
  typedef PF_ACCUMULATOR(E) A;
  typedef typename E::stored T;
  constexpr int tile = MEMBERS * PF_EACH, lanes = MEMBERS < PF_WAVE ? MEMBERS : PF_WAVE, waves = MEMBERS / lanes;
  PF_SHARED T room[PF_SCAN_ROOM];
  PF_SHARED A totals[PF_SCAN_BLOCK / PF_WAVE];
  const auto combine = [](A a, A b) { return OP::of(a, b); };
  const int member = pf_thread() % MEMBERS, group = pf_thread() / MEMBERS, wave = pf_thread() / PF_WAVE;
  const I tasks = (I)arg[PF_ROWS] * (I)arg[PF_CHUNKS];
  const I own = (I)pf_block() * (PF_SCAN_BLOCK / MEMBERS) + group;
  const int live = own < tasks; /* others work along, so that all meet at barriers, but store nothing */
  const pf_stretch<I> part = pf_chunk_of(live ? own : tasks - 1, arg);
  const int64_t length = arg[PF_LENGTH], start = (int64_t)part.row * length, reverse = arg[PF_REVERSE];
  T *mine = room + pf_padded(group * tile);
  A carry = OP::one;
  if (CHUNKED) {
    const int64_t first = (int64_t)part.row * arg[PF_CHUNKS];
    for (int64_t c = first + pf_thread(); c < own; c += PF_SCAN_BLOCK) carry = OP::of(carry, pf_get<A>(scratch, c));
    carry = pf_block_sum<PF_SCAN_BLOCK>(carry, totals, combine);
  }
  for (int64_t at = part.from; at < part.to; at += tile) {
    pf_barrier();
    PF_UNROLL
    for (int k = 0; k < PF_EACH; k++) {
      const int i = k * MEMBERS + member;
      const int64_t j = at + i;
      if (j < part.to) mine[pf_padded(i)] = x[start + (reverse ? length - 1 - j : j)];
    }
    pf_barrier();
    A sums[PF_EACH], sum = OP::one;
    PF_UNROLL
    for (int k = 0; k < PF_EACH; k++) {
      const int i = member * PF_EACH + k;
      sum = at + i < part.to ? OP::of(sum, (A)E::load(mine[pf_padded(i)])) : sum;
      sums[k] = sum;
    }
    /* What lies before this thread in the tile, and the tile's total. */
    A upto = pf_lane_scan<lanes>(sum, member % lanes, combine);
    A before = pf_shuffle(upto, member % lanes ? pf_thread() % PF_WAVE - 1 : pf_thread() % PF_WAVE);
    before = member % lanes ? before : (A)OP::one;
    A whole = pf_shuffle(upto, (pf_thread() % PF_WAVE) | (lanes - 1));
    if (waves > 1) {
      if (pf_thread() % PF_WAVE == PF_WAVE - 1) totals[wave] = upto;
      pf_barrier();
      A earlier = OP::one;
      whole = OP::one;
      PF_UNROLL
      for (int w = 0; w < waves; w++) {
        earlier = w == wave % waves ? whole : earlier;
        whole = OP::of(whole, totals[wave / waves * waves + w]);
      }
      before = OP::of(earlier, before);
    }
    const A base = OP::of(carry, before);
    PF_UNROLL
    for (int k = 0; k < PF_EACH; k++) mine[pf_padded(member * PF_EACH + k)] = E::store(OP::of(base, sums[k]));
    carry = OP::of(carry, whole);
    pf_barrier();
    PF_UNROLL
    for (int k = 0; k < PF_EACH; k++) {
      const int i = k * MEMBERS + member;
      const int64_t j = at + i;
      if (j < part.to && live) y[start + (reverse ? length - 1 - j : j)] = mine[pf_padded(i)];
    }
  }
}

/* A thread's chunk of a column: tasks run over (outer, chunk, inner). */
template <class E, class OP, int TOTALS, class I>
PF_FN void pf_scan_columns(const typename E::stored *x, typename E::stored *y, char *scratch, const int64_t *arg) {
  typedef PF_ACCUMULATOR(E) A;
  const I task = (I)pf_block() * PF_SCAN_BLOCK + pf_thread();
  if (task >= (I)arg[PF_ROWS] * (I)arg[PF_CHUNKS] * (I)arg[PF_INNER]) return;
  const I line = pf_quotient(task, arg[PF_INNER], arg[PF_INNER_MAGIC]);
  const int64_t inner = arg[PF_INNER], column = task - line * (I)inner;
  const pf_stretch<I> part = pf_chunk_of(line, arg);
  const int64_t start = (int64_t)part.row * arg[PF_LENGTH] * inner + column;
  const int64_t step = arg[PF_REVERSE] ? -inner : inner;
  int64_t at = start + (arg[PF_REVERSE] ? arg[PF_LENGTH] - 1 - part.from : part.from) * inner;
  A sum = OP::one;
  if (!TOTALS)
    for (int64_t c = (int64_t)part.row * arg[PF_CHUNKS]; c < line; c++) sum = OP::of(sum, pf_get<A>(scratch, c * inner + column));
  for (int64_t j = part.from; j < part.to; j++, at += step) {
    sum = OP::of(sum, (A)E::load(x[at]));
    if (!TOTALS) y[at] = E::store(sum);
  }
  if (TOTALS) pf_put(scratch, task, sum);
}

}  // namespace pf_scanning

#endif
