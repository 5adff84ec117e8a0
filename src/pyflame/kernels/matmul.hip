/* Batched matrix multiplication on any GPU.
 *
 *   out(b, i, j) <- sum_k A[b, i, k] * B[b, k, j]
 *
 * 2*M*N*K flops. Four ways, each reading operands of any strides where they lie:
 *
 *   mma      pf_mma_loop.h, matrix tiles: 16-bit floats and bytes, and what else a target has instructions for. A fifth
 *            way of NVIDIA's own is in matmul_async.hip.
 *   tile     pf_tile.h, single numbers: all else.
 *   dots     up to eight rows (or columns), the other operand contiguous along k: lanes run along a line of it and
 *            meet by shuffles. The matrix is read once, 16 bytes per lane, and that is all that takes time.
 *   columns  the same where it is contiguous across lines: a thread takes 16 bytes of neighbouring lines for every
 *            Y-th k, and the Y threads of a line meet in LDS.
 *
 * Blocks of the first two fetch an operand along k or along its lines, whichever is contiguous, 16 bytes per lane (less of
 * numbers that are turned or widened) where alignment allows it, else number by number. Lines beyond the edge repeat the
 * last one and are not stored; beyond k there are zeros. Blocks that run together walk over 8 rows of tiles before the
 * next column: operands come from L2 mostly, and from memory about once.
 *
 * Few outputs of a long k are cut into parts: partial sums go to scratch and `pf_finish` adds them in order.
 *
 * The epilogue. A kernel's text defines, before its kernels (codegen/gpu_epilogue.py),
 *     PF_FN void PF_KEY_epilogue(B0 *b0, .., const pf_word *uni, int64_t a0, .., int64_t batch, int64_t i, int64_t j,
 *                                V value)
 * in which b0.. are all buffers of the launch, uni its uniforms, a0.. the epilogue's own arguments (they follow the
 * kernel's in every phase that stores) and V is float, double, int32_t or int64_t. It is called once for each output
 * or, where results lie side by side and a multiple of OUT_WIDTH of them, PF_KEY_epilogues once for so many, with the
 * place in the result (`batch` counts all batch axes as one; where the batch was joined with the rows it is
 * 0) and stores what it makes of it: a plain store, or bias, residual and activation read at the same place. It is
 * inlined; its buffers are then the kernel's own restrict pointers.
 */
#ifndef PF_MATMUL_HIP
#define PF_MATMUL_HIP
#include "pf_mma_loop.h"
#include "pf_strips.h"
#include "pf_tile.h"

enum {
  PF_GEMM_M, PF_GEMM_N, PF_GEMM_K,
  PF_GEMM_A_ROW, PF_GEMM_A_COL, PF_GEMM_B_ROW, PF_GEMM_B_COL, /* strides in elements */
  PF_GEMM_SPLIT, PF_GEMM_BATCHES, /* k of one part; batch entries */
  PF_GEMM_AXES,                   /* extent, A's stride and B's stride of each of the K::AXES batch axes */
  PF_GEMM_SWIZZLE = 8,            /* rows of tiles that are walked together */
};

/* Where operands of a batch entry begin. */
template <int AXES> PF_FN void pf_gemm_offsets(const int64_t *axes, int batch, int64_t &a, int64_t &b) {
  a = b = 0;
  PF_UNROLL
  for (int d = AXES - 1; d >= 0; d--) {
    const int extent = (int)axes[3 * d], rest = batch / extent, at = batch - rest * extent;
    a += at * axes[3 * d + 1];
    b += at * axes[3 * d + 2];
    batch = rest;
  }
}

/* ---- tile ------------------------------------------------------------------------------------------------------ */

/* How the threads of a block share a step of LINES lines out: vectors of WIDTH along k or across lines. */
template <class K, int LINES, int ALONG_K> struct pf_lines_map {
  enum {
    WIDTH = K::WIDTH,
    DEPTH = K::DEPTH,
    COUNT = LINES * DEPTH / (K::THREADS * WIDTH),
    SAME = ALONG_K ? 1 : COUNT,
    FAST = (ALONG_K ? DEPTH : LINES) / WIDTH, /* vectors side by side */
    ROUND = K::THREADS / FAST,                /* lines, or k, from a thread's vector to its next */
  };
  static_assert(K::THREADS % FAST == 0, "a thread's vectors differ in one direction only");
  PF_FN int has(int) { return 1; }
  PF_FN int fast() { return pf_thread() % FAST * WIDTH; }
  PF_FN int slow(int s) { return pf_thread() / FAST + s * ROUND; }
  PF_FN int line_of(int s) { return ALONG_K ? slow(s) : fast(); }
  PF_FN int k_of(int s) { return ALONG_K ? fast() : slow(s); }
};

/* One operand's share of a step, for pf_tile.h: `Strips` fetches it. */
template <class K, int LINES, int ALONG_K, int VECTOR,
          class Strips = pf_strips<K, pf_lines_map<K, LINES, ALONG_K>, ALONG_K, VECTOR>>
struct pf_lines : Strips {
  typedef pf_lines_map<K, LINES, ALONG_K> map;
  typedef typename K::sum sum;
  enum { WIDTH = K::WIDTH, GROUP = pf_tile<K>::GROUP, PITCH = LINES + GROUP };

  PF_MEMBER void put(sum *to) const {
    PF_UNROLL
    for (int s = 0; s < map::COUNT; s++) {
      const int k = map::k_of(s), line = map::line_of(s);
      if (!ALONG_K && WIDTH % GROUP == 0) {
        pf_vector<sum, GROUP> *at = (pf_vector<sum, GROUP> *)(to + k * PITCH + line);
        PF_UNROLL
        for (int g = 0; g < WIDTH / GROUP; g++) {
          pf_vector<sum, GROUP> group;
          PF_UNROLL
          for (int e = 0; e < GROUP; e++) group.at[e] = K::load(this->number(s, g * GROUP + e));
          at[g] = group;
        }
      } else {
        PF_UNROLL
        for (int e = 0; e < WIDTH; e++)
          to[(k + (ALONG_K ? e : 0)) * PITCH + line + (ALONG_K ? 0 : e)] = K::load(this->number(s, e));
      }
    }
  }
};

/* Both operands of a step; B lies B_AT behind A in LDS. */
template <class A, class B, int DEPTH, int B_AT> struct pf_operands {
  enum { PREPARES = 0 };
  A a;
  B b;

  PF_MEMBER void prepare(int, int, int) {}
  PF_MEMBER void fetch(int k, int end, int) {
    if (end - k >= DEPTH) {
      a.template fetch<0>(end - k);
      b.template fetch<0>(end - k);
    } else {
      a.template fetch<1>(end - k);
      b.template fetch<1>(end - k);
    }
  }
  template <class P> PF_MEMBER void put(P *to) const {
    a.put(to);
    b.put(to + B_AT);
  }
};
template <class K>
struct pf_gemm_in : pf_operands<pf_lines<K, K::ROWS, K::A_ALONG_K, K::A_VECTOR>,
                                pf_lines<K, K::COLS, K::B_ALONG_K, K::B_VECTOR>, K::DEPTH, pf_tile<K>::B_AT> {};

/* Results of one batch entry, and of one of its rows. */
template <class Out> struct pf_gemm_row {
  const Out &out;
  int batch, i;
  template <class S, int N> PF_MEMBER void several(int j, const S (&sums)[N]) const { out.several(batch, i, j, sums); }
};
template <class Out> struct pf_gemm_entry {
  const Out &out;
  int batch;
  PF_MEMBER pf_gemm_row<Out> row(int i) const { return {out, batch, i}; }
  template <class S> PF_MEMBER void operator()(int i, int j, S sum) const { out(batch, i, j, sum); }
  template <class S, int N> PF_MEMBER void several(int i, int j, const S (&sums)[N]) const { row(i).several(j, sums); }
};

/* What a block works on: a tile, for one part of k and one batch entry. */
template <class K> struct pf_gemm_place {
  int m, n, first, left, from, to, entry;
  int64_t a_offset, b_offset;

  PF_MEMBER void find(const int64_t *arg, int block) {
    m = (int)arg[PF_GEMM_M], n = (int)arg[PF_GEMM_N];
    const int split = (int)arg[PF_GEMM_SPLIT], batches = (int)arg[PF_GEMM_BATCHES];
    const int down = (m + K::ROWS - 1) / K::ROWS, across = (n + K::COLS - 1) / K::COLS;
    entry = block / (down * across);
    const int tile = block - entry * (down * across), part = entry / batches;
    const int strip = tile / (PF_GEMM_SWIZZLE * across), top = strip * PF_GEMM_SWIZZLE;
    const int rows = pf_least(PF_GEMM_SWIZZLE, down - top), within = tile - top * across, column = within / rows;
    first = (top + within - column * rows) * K::ROWS, left = column * K::COLS;
    from = part * split, to = pf_least(from + split, (int)arg[PF_GEMM_K]);
    pf_gemm_offsets<K::AXES>(arg + PF_GEMM_AXES, entry - part * batches, a_offset, b_offset);
  }
  template <class In, class B>
  PF_MEMBER void begin(In &in, const typename K::stored *a, const B *b, const int64_t *arg) const {
    in.a.begin(a + a_offset, first, m, arg[PF_GEMM_A_ROW], arg[PF_GEMM_A_COL], from);
    in.b.begin(b + b_offset, left, n, arg[PF_GEMM_B_COL], arg[PF_GEMM_B_ROW], from);
  }
};

template <class K, class Out>
PF_FN void pf_gemm_tile(const typename K::stored *a, const typename K::stored *b, const int64_t *arg, const Out &out) {
  pf_gemm_place<K> place;
  place.find(arg, pf_block());
  pf_gemm_in<K> in;
  place.begin(in, a, b, arg);
  pf_tile<K> sums;
  sums.run(in, place.from, place.to);
  const pf_gemm_entry<Out> result = {out, place.entry};
  sums.store(place.first, place.left, place.m, place.n, result);
}

/* ---- matrix tiles ---------------------------------------------------------------------------------------------- */

/* `Lines` brings B; in encoded_gemm.hip it decodes it. */
template <class K, class Lines = pf_mma_lines<K, K::COLS, K::B_ALONG_K, K::B_VECTOR>>
struct pf_mma_in : pf_operands<pf_mma_lines<K, K::ROWS, K::A_ALONG_K, K::A_VECTOR>, Lines, pf_mma_loop<K>::DEPTH,
                               pf_mma_loop<K>::B_AT> {};

template <class K, class In = pf_mma_in<K>, class B, class Out>
PF_FN void pf_gemm_mma(const typename K::stored *a, const B *b, const int64_t *arg, const Out &out) {
  typedef pf_mma_loop<K> loop;
  PF_SHARED pf_piece lds[loop::LDS_PIECES];
  pf_gemm_place<K> place;
  place.find(arg, pf_block());
  In in;
  place.begin(in, a, b, arg);
  loop sums;
  sums.run(lds, in, place.from, place.to);
  const pf_gemm_entry<Out> result = {out, place.entry};
  sums.store(lds, place.first, place.left, place.m, place.n, result);
}

/* ---- few rows or columns: K::FEW lines `few` against the many lines of `matrix` ------------------------------- */

enum {
  PF_THIN_LINES, PF_THIN_K, PF_THIN_LINE, PF_THIN_ALONG, PF_THIN_FEW, PF_THIN_FEW_ALONG, /* strides: matrix, then few */
  PF_THIN_SPLIT, PF_THIN_BATCHES,
  PF_THIN_AXES, /* extent, few's stride and the matrix's stride of each batch axis */
  PF_THIN_EPS = PF_THIN_AXES, /* of a norm, whose products have no batch */
};

template <class K> struct pf_thin {
  typedef typename K::stored stored;
  const stored *few, *matrix;
  int lines, first, entry, from, to;
  int64_t line_step, along, few_step, few_along;

  /* What this block works on: a strip of `per` lines, for one part of k and one batch entry. */
  PF_MEMBER void begin(const stored *few_base, const stored *matrix_base, const int64_t *arg, int per) {
    lines = (int)arg[PF_THIN_LINES];
    line_step = arg[PF_THIN_LINE], along = arg[PF_THIN_ALONG];
    few_step = arg[PF_THIN_FEW], few_along = arg[PF_THIN_FEW_ALONG];
    const int strips = (lines + per - 1) / per, batches = (int)arg[PF_THIN_BATCHES];
    entry = pf_block() / strips;
    first = (pf_block() - entry * strips) * per;
    const int part = entry / batches, split = (int)arg[PF_THIN_SPLIT];
    from = part * split, to = pf_least(from + split, (int)arg[PF_THIN_K]);
    int64_t few_offset, matrix_offset;
    pf_gemm_offsets<K::AXES>(arg + PF_THIN_AXES, entry - part * batches, few_offset, matrix_offset);
    few = few_base + few_offset;
    matrix = matrix_base + matrix_offset;
  }
  template <class Out> PF_MEMBER void store(int t, int line, typename K::sum sum, const Out &out) const {
    if (K::FEW_ROWS)
      out(entry, t, line, sum);
    else
      out(entry, line, t, sum);
  }
};

/* LANES lanes, or whole waves of them, share EACH lines and run along k, TOGETHER times WIDTH numbers at a time.
 *
 * NORMED: what is multiplied is x scale / sqrt(mean(x^2) + eps) for a line x of `few`. Since all of it comes by here, the
 * squares are added up as one line more, and the results are divided in the end. */
template <class K> struct pf_dots {
  typedef typename K::sum sum;
  typedef typename K::stored stored;
  typedef pf_vector<stored, K::WIDTH> vector;
  enum { LINES = K::EACH + K::NORMED, APART = K::LANES * K::WIDTH };
  sum sums[LINES][K::FEW];
  const stored *line[K::EACH], *scale;

  PF_MEMBER void begin(const pf_thin<K> &thin, int first, const stored *scales) {
    scale = scales;
    PF_UNROLL
    for (int r = 0; r < LINES; r++) {
      if (r < K::EACH) line[r] = thin.matrix + pf_least(first + r, thin.lines - 1) * thin.line_step;
      PF_UNROLL
      for (int t = 0; t < K::FEW; t++) sums[r][t] = 0;
    }
  }
  template <int COUNT> PF_MEMBER void step(const pf_thin<K> &thin, int k) {
    vector values[COUNT][K::EACH];
    PF_UNROLL
    for (int c = 0; c < COUNT; c++) {
      PF_UNROLL
      for (int r = 0; r < K::EACH; r++) values[c][r] = *(const vector *)(line[r] + (K::WIDTH > 1 ? k + c * APART : (k + c * APART) * thin.along));
    }
    multiply<COUNT>(thin, k, values);
  }
  /* The same, and between: wait for launches before this one, which may not have written `few` yet. */
  PF_MEMBER void first_step(const pf_thin<K> &thin, int k) {
    vector values[K::TOGETHER][K::EACH];
    PF_UNROLL
    for (int c = 0; c < K::TOGETHER; c++) {
      PF_UNROLL
      for (int r = 0; r < K::EACH; r++) values[c][r] = pf_read_now((const vector *)(line[r] + k + c * APART));
    }
    pf_await();
    multiply<K::TOGETHER>(thin, k, values);
  }
  template <int COUNT> PF_MEMBER void multiply(const pf_thin<K> &thin, int k, const vector (&values)[COUNT][K::EACH]) {
    PF_UNROLL
    for (int c = 0; c < COUNT; c++) {
      PF_UNROLL
      for (int t = 0; t < K::FEW; t++) {
        vector by;
        const stored *from = thin.few + t * thin.few_step + (K::FEW_VECTOR ? k + c * APART : (k + c * APART) * thin.few_along);
        if (K::FEW_VECTOR) {
          by = *(const vector *)from;
        } else {
          PF_UNROLL
          for (int e = 0; e < K::WIDTH; e++) by.at[e] = from[e * thin.few_along];
        }
        sum times[K::WIDTH];
        PF_UNROLL
        for (int e = 0; e < K::WIDTH; e++) times[e] = K::load(by.at[e]);
        if constexpr (K::NORMED) {
          const vector scales = *(const vector *)(scale + k + c * APART);
          PF_UNROLL
          for (int e = 0; e < K::WIDTH; e++) {
            sums[K::EACH][t] = pf_mul_add(times[e], times[e], sums[K::EACH][t]);
            times[e] *= K::load(scales.at[e]);
          }
        }
        PF_UNROLL
        for (int r = 0; r < K::EACH; r++) {
          PF_UNROLL
          for (int e = 0; e < K::WIDTH; e++) sums[r][t] = pf_mul_add(K::load(values[c][r].at[e]), times[e], sums[r][t]);
        }
      }
    }
  }
  PF_MEMBER void divide(int64_t k, float eps) {
    if constexpr (K::NORMED) {
      PF_UNROLL
      for (int t = 0; t < K::FEW; t++) {
        const float by = pf_rsqrt_f32(sums[K::EACH][t] / (float)k + eps);
        PF_UNROLL
        for (int r = 0; r < K::EACH; r++) sums[r][t] *= by;
      }
    }
  }
};

template <class K, class Out, class stored>
PF_FN void pf_gemm_dots(const stored *few, const stored *matrix, const int64_t *arg, const Out &out,
                        const stored *scale = 0) {
  typedef typename K::sum sum;
  enum { APART = K::LANES * K::WIDTH, WAVES = K::LANES > PF_WAVE ? K::LANES / PF_WAVE : 1, LINES = pf_dots<K>::LINES };
  PF_SHARED sum met[WAVES > 1 ? K::THREADS / PF_WAVE * LINES * K::FEW : 1];
  pf_thin<K> thin;
  thin.begin(few, matrix, arg, K::THREADS / K::LANES * K::EACH);
  const int lane = pf_thread() % K::LANES, first = thin.first + pf_thread() / K::LANES * K::EACH;
  pf_dots<K> own;
  own.begin(thin, first, scale);
  int k = thin.from + lane * K::WIDTH;
  if constexpr (K::EARLY) own.first_step(thin, k), k += K::TOGETHER * APART;
  if (K::TOGETHER > 1)
    for (; k + (K::TOGETHER - 1) * APART < thin.to; k += K::TOGETHER * APART) own.template step<K::TOGETHER>(thin, k);
  for (; k < thin.to; k += APART) own.template step<1>(thin, k);
  PF_UNROLL
  for (int r = 0; r < LINES; r++) pf_lanes_sum<(WAVES > 1 ? PF_WAVE : K::LANES)>(own.sums[r], K::FEW);
  if (WAVES > 1) {
    sum *mine = met + pf_thread() / PF_WAVE * (LINES * K::FEW);
    PF_UNROLL
    for (int r = 0; r < LINES; r++) {
      PF_UNROLL
      for (int t = 0; t < K::FEW; t++)
        if (pf_thread() % PF_WAVE == 0) mine[r * K::FEW + t] = own.sums[r][t];
    }
    pf_barrier();
    PF_UNROLL
    for (int w = 1; w < WAVES; w++) {
      PF_UNROLL
      for (int r = 0; r < LINES; r++) {
        PF_UNROLL
        for (int t = 0; t < K::FEW; t++)
          if (lane == 0) own.sums[r][t] += mine[w * (LINES * K::FEW) + r * K::FEW + t];
      }
    }
  }
  own.divide(thin.to, K::NORMED ? pf_from_bits_f32((uint32_t)arg[PF_THIN_EPS]) : 0.0f);
  PF_UNROLL
  for (int r = 0; r < K::EACH; r++) {
    if (lane == 0 && first + r < thin.lines) {
      PF_UNROLL
      for (int t = 0; t < K::FEW; t++) thin.store(t, first + r, own.sums[r][t], out);
    }
  }
}

/* X threads across lines, WIDTH lines each, by Y threads along k. */
template <class K, class Out, class stored>
PF_FN void pf_gemm_columns(const stored *few, const stored *matrix, const int64_t *arg, const Out &out) {
  typedef typename K::sum sum;
  typedef pf_vector<stored, K::WIDTH> vector;
  enum { X = K::ACROSS, Y = K::THREADS / K::ACROSS, TOGETHER = 4 };
  PF_SHARED sum met[K::THREADS * K::WIDTH];
  pf_thin<K> thin;
  thin.begin(few, matrix, arg, X * K::WIDTH);
  const int x = pf_thread() % X, y = pf_thread() / X, line = thin.first + x * K::WIDTH;
  const stored *at = thin.matrix + pf_least(line, thin.lines - K::WIDTH) * thin.line_step;
  sum sums[K::FEW][K::WIDTH];
  PF_UNROLL
  for (int t = 0; t < K::FEW; t++) {
    PF_UNROLL
    for (int e = 0; e < K::WIDTH; e++) sums[t][e] = 0;
  }
  int k = thin.from + y;
  for (; k + (TOGETHER - 1) * Y < thin.to; k += TOGETHER * Y) {
    vector values[TOGETHER];
    PF_UNROLL
    for (int s = 0; s < TOGETHER; s++) values[s] = *(const vector *)(at + (k + s * Y) * thin.along);
    PF_UNROLL
    for (int s = 0; s < TOGETHER; s++) {
      PF_UNROLL
      for (int t = 0; t < K::FEW; t++) {
        const sum by = K::load(thin.few[t * thin.few_step + (k + s * Y) * thin.few_along]);
        PF_UNROLL
        for (int e = 0; e < K::WIDTH; e++) sums[t][e] = pf_mul_add(K::load(values[s].at[e]), by, sums[t][e]);
      }
    }
  }
  for (; k < thin.to; k += Y) {
    const vector values = *(const vector *)(at + k * thin.along);
    PF_UNROLL
    for (int t = 0; t < K::FEW; t++) {
      const sum by = K::load(thin.few[t * thin.few_step + k * thin.few_along]);
      PF_UNROLL
      for (int e = 0; e < K::WIDTH; e++) sums[t][e] = pf_mul_add(K::load(values.at[e]), by, sums[t][e]);
    }
  }
  PF_UNROLL
  for (int t = 0; t < K::FEW; t++) {
    PF_UNROLL
    for (int e = 0; e < K::WIDTH; e++) met[pf_thread() + e * K::THREADS] = sums[t][e];
    pf_barrier();
    /* Each thread adds up some of the lines. */
    for (int c = pf_thread(); c < X * K::WIDTH; c += K::THREADS) {
      sum total = met[c / X * K::THREADS + c % X];
      for (int other = 1; other < Y; other++) total += met[c / X * K::THREADS + other * X + c % X];
      const int at_line = thin.first + c % X * K::WIDTH + c / X;
      if (at_line < thin.lines) thin.store(t, at_line, total, out);
    }
    pf_barrier();
  }
}

#endif
