/* Convolutions of 16-bit floats on NVIDIA's GPUs, sm_80 and newer: conv.hip's implicit GEMM, arguments and epilogue over
 * pf_mma_async.h, where both operands lie in aligned vectors of 16 bytes: eight channels, which are of one tap.
 *
 * Here rows are pixels and columns output channels, which then are handed over as they lie in memory. A piece that no pixel
 * meets is written as zeros by the copy itself. Pixels are worked out once per thread and tile. Where a step lies in one tap
 * (IN_TAP: channels are multiples of a step, or there is one tap) that is all: 14x14 with 256 channels went from 394 to 559
 * Tflop/s by it on an H200. Else the taps of a step are worked out once per block, one step before they are copied: a thread
 * then reads few of them, since most of its pieces are of the same k, and has an addition and a bit to look at for each piece.
 */
#ifndef PF_CONV_ASYNC_HIP
#define PF_CONV_ASYNC_HIP
#include "conv.hip"
#include "pf_mma_async.h"

/* The pieces of one operand that a thread copies; `Side` as in pf_conv_strips. */
template <class K, int LINES, int ALONG_K, class Side> struct pf_conv_panels : pf_panels<K, LINES, ALONG_K> {
  typedef pf_panels<K, LINES, ALONG_K> panels;
  typedef typename K::stored stored;
  enum {
    COUNT = (panels::PARTS + K::THREADS - 1) / K::THREADS,
    WHOLE = panels::PARTS % K::THREADS == 0,
    ROW = K::THREADS / panels::FAST, /* rows of LDS that all threads copy at once */
    EVEN = panels::FAST == 8 && (ALONG_K ? LINES : (int)panels::PANEL) % ROW == 0,
  };
  const stored *base;
  typename Side::line line[COUNT];

  PF_FN int number(int s) { return pf_thread() + s * K::THREADS; }
  /* EVEN: what s adds is known to the compiler, which then sees that pieces are of the same k. */
  PF_FN int k_of(int s) {
    return EVEN ? panels::k_of(pf_thread()) + panels::k_of(s * K::THREADS) : panels::k_of(number(s));
  }
  PF_MEMBER void begin(pf_late_args arg, const stored *from, int first, int lines) {
    base = from;
    PF_UNROLL
    for (int s = 0; s < COUNT; s++) {
      const int last = lines - (ALONG_K ? 1 : (int)panels::EACH);
      line[s] = Side::line_of(arg, pf_least(first + panels::line_of(number(s)), last));
    }
  }
  PF_MEMBER void copy(pf_late_args arg, pf_piece *to, const pf_tap<K> *taps, int rest) const {
    typename K::pos at[COUNT];
    int found[COUNT];
    PF_UNROLL
    for (int s = 0; s < COUNT; s++) { /* before the first copy, across which the compiler would not keep what it has read */
      const int k = k_of(s);
      if (WHOLE || number(s) < panels::PARTS) found[s] = Side::meets(arg, line[s], taps[k], at[s]) & (k < rest);
    }
    PF_UNROLL
    for (int s = 0; s < COUNT; s++)
      if (WHOLE || number(s) < panels::PARTS)
        /* Of what is not found nothing is read. */
        pf_copy_async(to + panels::place(pf_thread()) + s * K::THREADS, base + at[s], found[s]);
  }
};

template <class K> struct pf_conv_async_in {
  typedef pf_conv_panels<K, K::ROWS, K::A_ALONG_K, pf_conv_x<K>> x_panels;
  enum {
    PREPARES = 1,
    DEPTH = x_panels::DEPTH,
    /* Steps whose taps are worked out together, by all threads where that takes long. */
    SPAN = K::MASK == PF_MASK_OF_PIXELS && K::THREADS > DEPTH ? K::THREADS / DEPTH : 1,
  };
  pf_late_args arg;
  pf_tap<K> (*taps)[SPAN * DEPTH]; /* of two spans */
  int from;                        /* the first k */
  x_panels x;
  pf_conv_panels<K, K::COLS, K::B_ALONG_K, pf_conv_w<K>> w;

  PF_MEMBER void from_k(int k) { from = k; }
  PF_MEMBER void prepare(int k, int end, int) {
    const uint32_t step = (uint32_t)(k - from) / DEPTH;
    if (step % SPAN == 0) pf_conv_taps<K, SPAN * DEPTH>(arg, taps[step / SPAN % 2], k, end);
  }
  PF_MEMBER void copy(pf_piece *to, int k, int end, int) const {
    const uint32_t step = (uint32_t)(k - from) / DEPTH;
    const pf_tap<K> *of = taps[step / SPAN % 2] + step % SPAN * DEPTH;
    x.copy(arg, to, of, end - k);
    w.copy(arg, to + x_panels::PARTS, of, end - k);
  }
};

/* The same where a step lies in one tap, which then is the same for all threads: a piece lies so much further on, and a bit
 * says whether its line meets that tap. */
template <class K, int LINES, int ALONG_K, class Side> struct pf_conv_lines : pf_panels<K, LINES, ALONG_K> {
  typedef pf_conv_panels<K, LINES, ALONG_K, Side> base;
  enum { COUNT = base::COUNT, WHOLE = base::WHOLE, DEPTH = base::DEPTH };
  const typename K::stored *at[COUNT]; /* at the first tap and channel */
  uint32_t met[COUNT];                 /* bits of taps */

  PF_MEMBER void begin(pf_late_args arg, const typename K::stored *all, int first, int lines) {
    PF_UNROLL
    for (int s = 0; s < COUNT; s++) {
      const int line = first + base::line_of(base::number(s)), k = base::k_of(s);
      typename K::pos place;
      met[s] = Side::taps_met(arg, pf_least(line, lines - 1), place);
      if (line >= lines) met[s] = 0;
      at[s] = all + place + (typename K::pos)k * Side::channel(arg);
    }
  }
  PF_MEMBER void copy(pf_piece *to, typename K::pos further, int tap, int rest) const {
    PF_UNROLL
    for (int s = 0; s < COUNT; s++)
      if (WHOLE || base::number(s) < base::PARTS)
        pf_copy_async(to + base::place(pf_thread()) + s * K::THREADS, at[s] + further,
                      met[s] >> tap & (base::k_of(s) < rest));
  }
};

template <class K> struct pf_conv_in_tap {
  typedef pf_conv_lines<K, K::ROWS, K::A_ALONG_K, pf_conv_x<K>> x_lines;
  enum { PREPARES = 0 };
  pf_late_args arg;
  pf_tap<K> tap; /* of the next step */
  int number, left; /* of it, and of its channels */
  x_lines x;
  pf_conv_lines<K, K::COLS, K::B_ALONG_K, pf_conv_w<K>> w;

  PF_MEMBER void from_k(int k) {
    tap = pf_conv<K>::tap_of(arg, k);
    number = K::MASK == PF_MASK_OF_TAPS ? tap.along[0] : 0;
    left = (number + 1) * (int)arg[pf_conv<K>::CHANNELS + PF_TAP_EXTENT] - k;
  }
  PF_MEMBER void prepare(int, int, int) {}
  PF_MEMBER void copy(pf_piece *to, int k, int end, int) {
    enum { DEPTH = x_lines::DEPTH };
    x.copy(to, tap.x, number, end - k);
    w.copy(to + x_lines::PARTS, tap.w, 0, end - k);
    tap.x += DEPTH * pf_conv_x<K>::channel(arg), tap.w += DEPTH * pf_conv_w<K>::channel(arg), left -= DEPTH;
    if (left <= 0 && k + DEPTH < end) from_k(k + DEPTH);
  }
};

/* Results whose rows are pixels. */
template <class Result> struct pf_conv_turned {
  Result result;
  PF_MEMBER auto row(int i) const { return result.column(i); }
  template <class S> PF_MEMBER void operator()(int i, int j, S sum) const { result(j, i, sum); }
  template <class S, int N> PF_MEMBER void several(int i, int j, const S (&sums)[N]) const { result.several(j, i, sums); }
};

/* Adds partial sums of results that lie along pixels, as in a weight's gradient, where the sums lie along channels: a block
 * takes a square of them, WIDTH at once, and turns it in LDS. */
template <class K, int THREADS, int EDGE, int WIDTH, class Out>
PF_FN void pf_conv_finish_turned(const char *scratch, pf_late_args arg, const Out &out) {
  typedef pf_vector<typename K::sum, WIDTH> several;
  enum { LANES = EDGE / WIDTH };
  PF_SHARED typename K::sum met[EDGE][EDGE + 1];
  const int rows = (int)arg[PF_CONV_O], columns = (int)arg[PF_CONV_COLUMNS];
  const int down = (rows + EDGE - 1) / EDGE, across = (columns + EDGE - 1) / EDGE, group = pf_block() / (down * across);
  const int tile = pf_block() - group * (down * across), first = tile / across * EDGE, left = tile % across * EDGE;
  const int64_t outputs = (int64_t)rows * columns * arg[PF_CONV_GROUPS];
  const int row = pf_thread() % LANES * WIDTH;
  PF_UNROLL
  for (int column = pf_thread() / LANES; column < EDGE; column += THREADS / LANES) {
    const typename K::sum *partial =
        (const typename K::sum *)scratch + ((int64_t)group * columns + left + column) * rows + first + row;
    several sum = {};
    if (first + row < rows && left + column < columns) {
      PF_UNROLL_FEW
      for (int part = 0; part < (int)arg[PF_CONV_PARTS]; part++) {
        const several more = *(const several *)(partial + part * outputs);
        PF_UNROLL
        for (int e = 0; e < WIDTH; e++) sum.at[e] += more.at[e];
      }
    }
    PF_UNROLL
    for (int e = 0; e < WIDTH; e++) met[column][row + e] = sum.at[e];
  }
  pf_barrier();
  const pf_conv_entry<K, Out> result = {out, arg, group};
  const int column = pf_thread() % EDGE;
  PF_UNROLL
  for (int y = pf_thread() / EDGE; y < EDGE; y += THREADS / EDGE)
    if (first + y < rows && left + column < columns) result(first + y, left + column, met[column][y]);
}

/* Blocks of half the channels, which take the last pixels where whole ones would leave compute units idle. */
template <class K> struct pf_conv_halves : K {
  enum { COLS = K::COLS / 2 };
};

/* What pf_async_loop wants to know of tiles. `left`: the first pixel of tile 0. */
template <class K, class Out> struct pf_conv_tiles {
  typedef pf_conv_block<K, K::COLS, K::ROWS> block;
  const typename K::stored *x, *w;
  pf_late_args arg;
  const Out &out;
  int left;

  template <class In> PF_MEMBER block begin(In &in, int number) const {
    block place;
    place.find(arg, number);
    place.left += left;
    place.begin(in, x, w, arg);
    in.from_k(place.from);
    return place;
  }
  PF_MEMBER void store(const pf_async_loop<K> &sums, pf_piece *lds, const block &place) const {
    const auto result = place.result(arg, out);
    const pf_conv_turned<decltype(place.result(arg, out))> turned = {result};
    sums.store(lds, place.left, place.first, place.columns, place.rows, turned);
  }
};

/* `count`, `step`: pf_async_loop's, with MANY. */
template <class K, class Out>
PF_FN void pf_conv_async(const typename K::stored *x, const typename K::stored *w, pf_late_args arg, int number,
                         const Out &out, int count = 0, int step = 0, int left = 0) {
  PF_DYNAMIC_LDS(pf_piece, lds, pf_async_loop<K>::LDS_PIECES);
  const pf_conv_tiles<K, Out> tiles = {x, w, arg, out, left};
  pf_async_loop<K> sums;
  if constexpr (K::IN_TAP) {
    pf_conv_in_tap<K> in;
    sums.run(lds, in, tiles, number, count, step);
  } else {
    PF_SHARED pf_tap<K> taps[2][pf_conv_async_in<K>::SPAN * pf_conv_async_in<K>::DEPTH];
    pf_conv_async_in<K> in;
    in.taps = taps;
    sums.run(lds, in, tiles, number, count, step);
  }
}

#endif
