/* y[l] = W[ids[l]] x[l / share] with W a stack of matrices, encoded or plain: the experts of a mixture.
 *
 *   y[l, o] = sum_k x[l / share, k] * W[ids[l], o, k]      2 * lines * out * width flops
 *
 * few    up to 64 lines. A block has some rows of one matrix, as in encoded.hip. The first line with a matrix takes the
 *        next ones with the same matrix along, ROWS in all. Bytes: the matrices that are named, once for each ROWS lines.
 * tiles  more lines. `sort` orders them by matrix, in one block: parts of up to K::ROWS lines of one matrix, then the
 *        order. How many parts there are is data; blocks beyond the last have nothing to do. A block is a part by K::COLS
 *        rows of its matrix: pf_mma_loop.h, or pf_tile.h without matrix instructions, where x is gathered line by line
 *        and weights are decoded on the way to LDS. Bytes: a matrix once for each of its parts, from L2 where those run
 *        together; x once for each K::COLS rows of weights.
 *
 * Rows are whole pieces of PF_PIECE numbers. Decoded weights are rounded to x's dtype in `tiles`, as dequantize does it.
 * An id out of range is reported, and read as 0.
 */
#ifndef PF_EXPERTS_HIP
#define PF_EXPERTS_HIP
#include "encoded.hip"
#include "matmul.hip"
#include "pf_decode_lines.h"

namespace pf_experts {

enum { PF_LINES, PF_OUT, PF_WIDTH, PF_ROW_BYTES, PF_SHARE, PF_MATRICES, PF_CHECK, PF_PARTS };

PF_FN int pf_matrix_of(const int64_t *ids, int line, int64_t *err, const int64_t *arg) {
  return (int)pf_checked(ids[line], arg[PF_MATRICES], err, arg[PF_CHECK]);
}

/* ---- few ------------------------------------------------------------------------------------------------------- */

/* Lines of one matrix; those that are not there repeat the first one. */
template <int ROWS> struct pf_some_lines {
  int count, lines[ROWS], rows[ROWS];
  PF_MEMBER int row(int r) const { return rows[r]; }
  PF_MEMBER int line(int r) const { return lines[r]; }
  PF_MEMBER void begin(int line, int share) {
    count = 1;
    PF_UNROLL
    for (int r = 0; r < ROWS; r++) lines[r] = line, rows[r] = line / share;
  }
  PF_MEMBER void add(int line, int share) {
    PF_UNROLL
    for (int r = 1; r < ROWS; r++) /* no position that is data: the array stays in registers */
      if (r == count) lines[r] = line, rows[r] = line / share;
    count++;
  }
};

template <class E, class D, int ROWS, int EACH, int LANES, int VECTOR, int THREADS, class Out>
PF_FN void pf_few_experts(const typename E::stored *x, const uint8_t *data, const int64_t *ids, int64_t *err,
                          const int64_t *arg, const Out &out) {
  const int lines = (int)arg[PF_LINES], n = (int)arg[PF_OUT], share = (int)arg[PF_SHARE], per = THREADS / LANES * EACH;
  const int blocks = (n + per - 1) / per, line = pf_block() / blocks, matrix = pf_matrix_of(ids, line, err, arg);
  pf_some_lines<ROWS> rows;
  rows.begin(line, share);
  if (ROWS > 1) {
    int before = 0;
    for (int other = 0; other < line; other++) before += pf_matrix_of(ids, other, err, arg) == matrix;
    if (before % ROWS) return; /* another block has this line */
    for (int other = line + 1; other < lines && rows.count < ROWS; other++)
      if (pf_matrix_of(ids, other, err, arg) == matrix) rows.add(other, share);
  }
  const int first = (pf_block() - line * blocks) * per + pf_thread() / LANES * EACH;
  const int64_t row_bytes = arg[PF_ROW_BYTES];
  pf_encoded::pf_encoded_rows<E, D, ROWS, EACH, LANES, VECTOR, 0>(x, data + matrix * (n * row_bytes), x, first, n,
                                                                  (int)arg[PF_WIDTH], row_bytes, rows, out);
}

/* ---- sort ------------------------------------------------------------------------------------------------------ */

struct pf_part {
  int first, count, matrix; /* the first of its lines in the order */
};

PF_FN pf_part *pf_parts(char *scratch) { return (pf_part *)scratch; }
PF_FN int *pf_order(char *scratch, const int64_t *arg) { return (int *)(pf_parts(scratch) + arg[PF_PARTS]); }

/* One block; there are no more matrices than threads. Lines of a matrix come in any order: none depends on its place. */
template <int ROWS, int THREADS>
PF_FN void pf_sort_lines(const int64_t *ids, char *scratch, int64_t *err, const int64_t *arg) {
  PF_SHARED uint32_t next[THREADS], met_lines[THREADS], met_parts[THREADS];
  const int t = pf_thread(), lines = (int)arg[PF_LINES];
  next[t] = 0;
  pf_barrier();
  for (int l = t; l < lines; l += THREADS) pf_atomic_add(next + pf_matrix_of(ids, l, err, arg), 1u);
  pf_barrier();
  const uint32_t own = next[t], own_parts = (own + ROWS - 1) / ROWS;
  uint32_t to = own, parts = own_parts; /* sums up to this matrix */
  for (int step = 1; step < THREADS; step *= 2) {
    met_lines[t] = to, met_parts[t] = parts;
    pf_barrier();
    if (t >= step) to += met_lines[t - step], parts += met_parts[t - step];
    pf_barrier();
  }
  const uint32_t from = to - own;
  pf_part *part = pf_parts(scratch) + (parts - own_parts);
  for (uint32_t r = 0; r < own; r += ROWS, part++)
    part->first = (int)(from + r), part->count = pf_least(ROWS, (int)(own - r)), part->matrix = t;
  next[t] = from;
  if (t == THREADS - 1) met_parts[0] = parts;
  pf_barrier();
  for (int p = (int)met_parts[0] + t; p < (int)arg[PF_PARTS]; p += THREADS)
    pf_parts(scratch)[p] = {0, 0, 0};
  int *order = pf_order(scratch, arg);
  for (int l = t; l < lines; l += THREADS) order[pf_atomic_add(next + pf_matrix_of(ids, l, err, arg), 1u)] = l;
}

/* ---- tiles ----------------------------------------------------------------------------------------------------- */

/* The lines of a part, gathered: `Lines` fetches them along k. */
template <class K, class Lines> struct pf_gathered_lines : Lines {
  PF_MEMBER void begin(const typename K::stored *x, const int *order, int count, const int64_t *arg) {
    typedef typename Lines::map map;
    this->line_step = 0, this->k_step = 1;
    PF_UNROLL
    for (int s = 0; s < (int)Lines::COUNT; s++) {
      const int line = order[pf_least(map::line_of(s), count - 1)];
      this->beyond[s] = 0;
      this->at[s] = x + line / (int)arg[PF_SHARE] * arg[PF_WIDTH] + map::k_of(s);
    }
  }
};

/* As pf_decoded_lines (pf_decode_lines.h), for pf_tile.h. */
template <class K> struct pf_tile_rows {
  typedef typename K::decoder decoder;
  enum {
    FAST = K::DEPTH / PF_PIECE,
    PIECES = K::COLS * FAST,
    COUNT = (PIECES + K::THREADS - 1) / K::THREADS,
    WHOLE = PIECES % K::THREADS == 0,
  };
  const uint8_t *line[COUNT];
  int at; /* k of the next step */
  float held[COUNT][PF_PIECE];

  PF_FN int piece(int s) { return pf_thread() + s * K::THREADS; }
  PF_FN int has(int s) { return WHOLE || piece(s) < PIECES; }
  PF_FN int line_of(int s) { return piece(s) / FAST; }
  PF_FN int k_of(int s) { return piece(s) % FAST * PF_PIECE; }

  PF_MEMBER void begin(const uint8_t *data, int first, int lines, int64_t stride, int64_t, int k) {
    at = k;
    PF_UNROLL
    for (int s = 0; s < COUNT; s++)
      line[s] = data + pf_least(first + line_of(s), lines - 1) * (stride / decoder::BLOCK * decoder::NBYTES);
  }
  template <int EDGE> PF_MEMBER void fetch(int rest) {
    PF_UNROLL
    for (int s = 0; s < COUNT; s++)
      if (has(s)) pf_decode_piece<decoder>(line[s], (uint32_t)(at + k_of(s)), EDGE ? rest - k_of(s) : PF_PIECE, held[s]);
    at += K::DEPTH;
  }
  PF_MEMBER void put(typename K::sum *to) const {
    PF_UNROLL
    for (int s = 0; s < COUNT; s++) {
      if (!has(s)) continue;
      PF_UNROLL
      for (int e = 0; e < PF_PIECE; e++)
        to[(k_of(s) + e) * pf_tile<K>::B_PITCH + line_of(s)] = K::load(K::number::store(held[s][e]));
    }
  }
};

/* What a block works on, and results of its part. */
template <class K, class Out> struct pf_expert_place {
  const Out &out;
  pf_part part;
  const int *order;
  int left;
  PF_MEMBER pf_expert_place(const Out &to, char *scratch, const int64_t *arg) : out(to) {
    const int parts = (int)arg[PF_PARTS], column = pf_block() / parts;
    part = pf_parts(scratch)[pf_block() - column * parts];
    order = pf_order(scratch, arg) + part.first;
    left = column * K::COLS;
  }
  template <class In>
  PF_MEMBER void begin(In &in, const typename K::stored *x, const uint8_t *data, const int64_t *arg) const {
    const uint8_t *matrix = data + part.matrix * (arg[PF_OUT] * arg[PF_ROW_BYTES]);
    in.a.begin(x, order, part.count, arg);
    in.b.begin(matrix, left, (int)arg[PF_OUT], arg[PF_WIDTH], 1, 0);
  }
  template <class S> PF_MEMBER void operator()(int i, int j, S sum) const { out(0, order[i], j, sum); }
  template <class S, int N> PF_MEMBER void several(int i, int j, const S (&sums)[N]) const {
    out.several(0, order[i], j, sums);
  }
};

template <class K, class Out>
PF_FN void pf_experts_mma(const typename K::stored *x, const uint8_t *data, char *scratch, const int64_t *arg, const Out &out) {
  typedef pf_mma_loop<K> loop;
  typedef pf_gathered_lines<K, pf_mma_lines<K, K::ROWS, 1, K::A_VECTOR>> lines;
  PF_SHARED pf_piece lds[loop::LDS_PIECES];
  const pf_expert_place<K, Out> place(out, scratch, arg);
  if (place.part.count == 0) return;
  pf_operands<lines, pf_decoded_lines<K, K::COLS>, loop::DEPTH, loop::B_AT> in;
  place.begin(in, x, data, arg);
  loop sums;
  sums.run(lds, in, 0, (int)arg[PF_WIDTH]);
  sums.store(lds, 0, place.left, place.part.count, (int)arg[PF_OUT], place);
}

template <class K, class Out>
PF_FN void pf_experts_tile(const typename K::stored *x, const uint8_t *data, char *scratch, const int64_t *arg, const Out &out) {
  typedef pf_gathered_lines<K, pf_lines<K, K::ROWS, 1, K::A_VECTOR>> lines;
  const pf_expert_place<K, Out> place(out, scratch, arg);
  if (place.part.count == 0) return;
  pf_operands<lines, pf_tile_rows<K>, K::DEPTH, pf_tile<K>::B_AT> in;
  place.begin(in, x, data, arg);
  pf_tile<K> sums;
  sums.run(in, 0, (int)arg[PF_WIDTH]);
  sums.store(0, place.left, place.part.count, (int)arg[PF_OUT], place);
}

}  // namespace pf_experts

#endif
