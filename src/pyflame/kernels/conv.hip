/* Grouped convolution in 1, 2 or 3 dimensions on any GPU (XLA's conv_general_dilated).
 *
 *   out(n * G + g, o, p) <- sum_{c, t} x[n, g, c, (p * stride + t * rhs_dilation - pad) / lhs_dilation] * w[g, o, c, t]
 *
 * Forward, backward-data, backward-weight and transposed convolution are this one sum under other strides. Four ways:
 *
 *   mma     an implicit GEMM per group over matrix tiles (pf_mma_loop.h), for the dtypes of matmul.hip's: rows are
 *           output channels, columns the pixels of all images, k runs over channels and taps. Nothing is unrolled in
 *           memory: where a number of x lies is the sum of what its pixel and what its tap contribute. Pixels are worked
 *           out once per thread; the taps of a step once per block, a step ahead, by DEPTH threads, into LDS. x is
 *           fetched along pixels or along k, whichever is contiguous, 16 bytes per lane (less of numbers that are turned)
 *           where channels lie side by side: a vector then is of one tap. A fifth way, of NVIDIA's own, is the same over
 *           asynchronous copies, in conv_async.hip.
 *   tile    the same by pf_tile.h, number by number: all other dtypes.
 *   direct  few output channels per group (depthwise: one): a thread has a pixel and all its channels and walks over
 *           the taps; neighbouring threads read neighbouring pixels, taps that overlap come from the cache.
 *   dot     the same with a long k (backward-weight of depthwise): a block has a pixel; its threads run along k and
 *           meet by shuffles, then in LDS.
 *
 * A dilated x has zeros between its numbers, which are not multiplied: every lhs_dilation-th pixel meets the same taps, every
 * lhs_dilation-th of them, so tile and mma take each such phase as a convolution of its own, in blocks of one launch. A
 * phase may meet no tap at all, and then has zeros for results.
 *
 * What it must do: 2*N*G*O*C*|P|*|T| flops, and bring x, w and the result once to or from memory. Taps that overlap and
 * blocks that share pixels or channels find x and w in L2, from which a block of 128x128 takes a byte for 64 flops.
 * ResNet-50's layers, 128 images in bfloat16, on a GPU with 4 TB/s and 600 Tflop/s:
 *
 *   56x56, 3x3, 64 to 64 channels     30 Gflop   50 us    103 MB  26 us    28x28, 3x3, 128 to 128   the same   51 MB  13 us
 *   14x14, 3x3, 256 to 256            the same   50 us     27 MB   7 us    7x7, 3x3, 512 to 512     the same   18 MB   4 us
 *   56x56, 1x1, 64 to 256 (a product) 13 Gflop   22 us    257 MB  64 us    224x224, 7x7, 3 to 64    30 Gflop  244 MB  61 us
 *
 * So 3x3 is bound by products and all else by memory, and what is done for each result counts as much as what is done
 * for each product: pf_mma_loop.h hands results over in vectors. Of a weight's gradient the columns are few (taps and
 * channels) and k is long (pixels of all images): it is cut into parts, enough for all compute units. Each part writes
 * its sums as a block has them, side by side, and pf_conv_finish adds the parts in order: the result does not depend on
 * who came first. Partial sums of 128x128x3x3 in 24 parts are 14 MB, beside 51 MB of images and gradients.
 *
 * The epilogue is matmul.hip's: `batch` is n * G + g, `i` the output channel inside of the group, `j` the flat pixel. K
 * says: RANK, the spatial axes (others have size 1); DILATED, whether x is (lhs_dilation); C_LAST, whether channels are
 * the fastest axis of k rather than the slowest; X_ALONG_K, W_ALONG_K, X_VECTOR and W_VECTOR; O_LAST, whether output
 * channels lie side by side in the result; OUT_WIDTH (pf_mma_loop.h); N_LAST and G_LAST, whether columns of a tile are
 * numbered with the image fastest, and places of direct with the group, because those lie side by side in x (channels do
 * when they are last, and in a weight's gradient they are the images); FEW, the output channels of direct and dot; `pos`,
 * what holds a position: int or int64_t; PHASES, of which each has arguments of its own; MASK, how it is found whether a pixel meets x at a tap. The axes are not looked at
 * for each product where bits say it: of up to 32 taps in what is known of a pixel, or of up to 32 pixels (a weight's
 * gradient has few) in what is known of a tap.
 */
#ifndef PF_CONV_HIP
#define PF_CONV_HIP
#include "matmul.hip"

enum {
  PF_CONV_O, PF_CONV_COLUMNS, PF_CONV_K,    /* channels of a group, pixels of all images, channels x taps */
  PF_CONV_PIXELS, PF_CONV_PIXELS_MAGIC,     /* of one image */
  PF_CONV_GROUPS, PF_CONV_GROUPS_MAGIC, PF_CONV_SPLIT, PF_CONV_ENTRIES, /* k of one part; images x groups */
  PF_CONV_IMAGES, PF_CONV_IMAGES_MAGIC, PF_CONV_O_MAGIC, PF_CONV_COLUMNS_MAGIC, PF_CONV_PARTS,
  PF_CONV_X_N, PF_CONV_X_G, PF_CONV_W_G, PF_CONV_W_O,                   /* strides in elements */
  PF_CONV_TAPS, /* RANK + 1 axes of k, slowest first: */
  PF_TAP_EXTENT = 0, PF_TAP_MAGIC, PF_TAP_X, PF_TAP_W, PF_TAP_WORDS, /* steps of x and w */
  PF_AXIS_OUT = 0, PF_AXIS_MAGIC, PF_AXIS_STRIDE, PF_AXIS_PAD, PF_AXIS_SIZE, PF_AXIS_RHS, /* RANK spatial axes */
  PF_AXIS_X, PF_AXIS_LHS, PF_AXIS_LHS_MAGIC,
  PF_AXIS_BITS, /* of all places along it, and the first ones along the axes behind it */
  PF_AXIS_WORDS,
  /* With PHASES, of each: its blocks, where its taps of w and its pixels begin, and steps between those along RANK axes. */
  PF_PHASE_BLOCKS = 0, PF_PHASE_W, PF_PHASE_OUT, PF_PHASE_STEPS,
};

/* Before what a block does for its phase: its arguments and its number there. AMD's arguments are memory, but what NVIDIA's
 * compiler finds in its constant bank must have a number that it knows: there each phase has code of its own. */
#if defined(__CUDACC__)
#define PF_CONV_PHASE(K, arg, block)                                                                       \
  PF_UNROLL                                                                                                \
  for (int phase = 0; phase < K::PHASES; block -= (int)arg[pf_conv<K>::PHASE], arg += pf_conv<K>::WORDS, phase++) \
    if (block >= 0 && block < (int)arg[pf_conv<K>::PHASE])
#else
#define PF_CONV_PHASE(K, arg, block) \
  for (; block >= (int)arg[pf_conv<K>::PHASE]; arg += pf_conv<K>::WORDS) block -= (int)arg[pf_conv<K>::PHASE];
#endif

enum { PF_MASK_NONE, PF_MASK_OF_TAPS, PF_MASK_OF_PIXELS };

/* What an index of k contributes: to the position in x and in w, and to the place along each spatial axis; with a mask
 * the number of the tap, or the bits of all pixels. LDS gives it in vectors. */
template <class K> struct alignas(16) pf_tap {
  typename K::pos x, w;
  int along[K::MASK ? 1 : K::RANK];
};

/* What a pixel contributes, and where its window begins; with a mask the bits of all taps, or the number of the pixel. */
template <class K> struct pf_pixel {
  typename K::pos x;
  int along[K::MASK ? 1 : K::RANK];
};

template <class K> struct pf_conv {
  typedef typename K::pos pos;
  enum {
    CHANNELS = PF_CONV_TAPS + (K::C_LAST ? K::RANK : 0) * PF_TAP_WORDS,
    AXES = PF_CONV_TAPS + (K::RANK + 1) * PF_TAP_WORDS,
    PHASE = AXES + K::RANK * PF_AXIS_WORDS,
    WORDS = PHASE + PF_PHASE_STEPS + K::RANK, /* of a phase */
  };

  PF_FN pf_tap<K> tap_of(pf_late_args arg, int k) {
    pf_tap<K> tap;
    tap.x = tap.w = 0;
    int number = 0, taps = 1, pixels = 1;
    uint32_t in = 1;
    PF_UNROLL
    for (int n = K::RANK; n >= 0; n--) {
      pf_late_args axis = arg + PF_CONV_TAPS + n * PF_TAP_WORDS;
      const int rest = n ? pf_divide(k, axis[PF_TAP_MAGIC]) : 0, at = k - rest * (int)axis[PF_TAP_EXTENT];
      tap.x += (pos)at * (pos)axis[PF_TAP_X];
      tap.w += (pos)at * (pos)axis[PF_TAP_W];
      const int spatial = K::C_LAST ? n : n - 1;
      if (spatial >= 0 && spatial < K::RANK) {
        pf_late_args place = arg + AXES + spatial * PF_AXIS_WORDS;
        const int along = at * (int)place[PF_AXIS_RHS];
        if (K::MASK == PF_MASK_NONE) tap.along[spatial] = along;
        if (K::MASK == PF_MASK_OF_TAPS) number += at * taps, taps *= (int)axis[PF_TAP_EXTENT];
        if (K::MASK == PF_MASK_OF_PIXELS)
          in = meeting(place, in, pixels, along - (int)place[PF_AXIS_PAD], (int)place[PF_AXIS_STRIDE],
                       (int)place[PF_AXIS_OUT]);
      }
      k = rest;
    }
    if (K::MASK) tap.along[0] = K::MASK == PF_MASK_OF_TAPS ? number : (int)in;
    return tap;
  }

  /* Bits of all taps or pixels along one more axis, of `places` that lie `so_far` bits apart: of those found so far, for
   * each place first + n * by inside of x. These are neighbours, from `low` up to `high`. */
  PF_FN uint32_t meeting(pf_late_args axis, uint32_t bits, int &so_far, int first, int by, int places) {
    int low = first < 0 ? -first : 0, high = (int)axis[PF_AXIS_SIZE] - first;
    high = high < 0 ? 0 : high;
    if (by != 1) low = (low + by - 1) / by, high = (high + by - 1) / by;
    low *= so_far, high = pf_least(high, places) * so_far;
    so_far *= places;
    return low < high ? bits * ((uint32_t)axis[PF_AXIS_BITS] & ~0u << low & ~0u >> (32 - high)) : 0;
  }

  PF_FN pf_pixel<K> pixel_of(pf_late_args arg, int image, int p) {
    pf_pixel<K> pixel;
    pixel.x = (pos)image * (pos)arg[PF_CONV_X_N];
    const int number = p;
    int taps = 1;
    uint32_t in = 1;
    PF_UNROLL
    for (int d = K::RANK - 1; d >= 0; d--) {
      pf_late_args axis = arg + AXES + d * PF_AXIS_WORDS;
      const int rest = d ? pf_divide(p, axis[PF_AXIS_MAGIC]) : 0, at = p - rest * (int)axis[PF_AXIS_OUT];
      const int along = at * (int)axis[PF_AXIS_STRIDE] - (int)axis[PF_AXIS_PAD];
      if (K::MASK == PF_MASK_NONE) pixel.along[d] = along;
      if (K::MASK == PF_MASK_OF_TAPS)
        in = meeting(axis, in, taps, along, (int)axis[PF_AXIS_RHS],
                     (int)arg[PF_CONV_TAPS + (K::C_LAST ? d : d + 1) * PF_TAP_WORDS + PF_TAP_EXTENT]);
      if (!K::DILATED) pixel.x += (pos)along * (pos)axis[PF_AXIS_X];
      p = rest;
    }
    if (K::MASK) pixel.along[0] = K::MASK == PF_MASK_OF_TAPS ? (int)in : number;
    return pixel;
  }

  /* The image of a column, and the pixel in it. */
  PF_FN int image_of(pf_late_args arg, int column, int &p) {
    const int slow = pf_divide(column, arg[K::N_LAST ? PF_CONV_IMAGES_MAGIC : PF_CONV_PIXELS_MAGIC]);
    const int fast = column - slow * (int)arg[K::N_LAST ? PF_CONV_IMAGES : PF_CONV_PIXELS];
    p = K::N_LAST ? slow : fast;
    return K::N_LAST ? fast : slow;
  }

  /* The pixel of the result that is pixel p of a phase. */
  PF_FN int place_of(pf_late_args arg, int p) {
    if (K::PHASES == 1) return p;
    int place = (int)arg[PHASE + PF_PHASE_OUT];
    PF_UNROLL
    for (int d = K::RANK - 1; d >= 0; d--) {
      pf_late_args axis = arg + AXES + d * PF_AXIS_WORDS;
      const int rest = d ? pf_divide(p, axis[PF_AXIS_MAGIC]) : 0;
      place += (p - rest * (int)axis[PF_AXIS_OUT]) * (int)arg[PHASE + PF_PHASE_STEPS + d];
      p = rest;
    }
    return place;
  }

  /* Whether a pixel meets a number of x at this tap, and where, which means nothing where it does not. */
  PF_FN int meets(pf_late_args arg, const pf_pixel<K> &pixel, const pf_tap<K> &tap, pos &at) {
    int in = 1;
    at = pixel.x + tap.x;
    if (K::MASK == PF_MASK_OF_TAPS) in = (uint32_t)pixel.along[0] >> (tap.along[0] & 31) & 1;
    if (K::MASK == PF_MASK_OF_PIXELS) in = (uint32_t)tap.along[0] >> (pixel.along[0] & 31) & 1;
    PF_UNROLL
    for (int d = 0; !K::MASK && d < K::RANK; d++) {
      pf_late_args axis = arg + AXES + d * PF_AXIS_WORDS;
      int u = pixel.along[d] + tap.along[d];
      if (K::DILATED) {
        const int whole = pf_divide(u < 0 ? 0 : u, axis[PF_AXIS_LHS_MAGIC]);
        in &= whole * (int)axis[PF_AXIS_LHS] == u;
        u = whole;
        at += (pos)whole * (pos)axis[PF_AXIS_X];
      }
      in &= (uint32_t)u < (uint32_t)axis[PF_AXIS_SIZE];
    }
    return in;
  }
};

/* ---- tile, mma ------------------------------------------------------------------------------------------------- */

/* Columns of x: the pixels of all images. */
template <class K> struct pf_conv_x {
  typedef pf_pixel<K> line;
  PF_FN line line_of(pf_late_args arg, int column) {
    int p;
    const int image = pf_conv<K>::image_of(arg, column, p);
    return pf_conv<K>::pixel_of(arg, image, p);
  }
  PF_FN int meets(pf_late_args arg, const line &pixel, const pf_tap<K> &tap, typename K::pos &at) {
    return pf_conv<K>::meets(arg, pixel, tap, at);
  }
  /* Bits of the taps that a column meets, of several with PF_MASK_OF_TAPS; where it lies at the first tap and channel. */
  PF_FN uint32_t taps_met(pf_late_args arg, int column, typename K::pos &at) {
    const line pixel = line_of(arg, column);
    const int first = meets(arg, pixel, pf_conv<K>::tap_of(arg, 0), at);
    return K::MASK == PF_MASK_OF_TAPS ? (uint32_t)pixel.along[0] : (uint32_t)first;
  }
  PF_FN typename K::pos channel(pf_late_args arg) { return (typename K::pos)arg[pf_conv<K>::CHANNELS + PF_TAP_X]; }
};

/* Rows of w: output channels. */
template <class K> struct pf_conv_w {
  typedef typename K::pos line;
  PF_FN line line_of(pf_late_args arg, int row) { return (line)row * (line)arg[PF_CONV_W_O]; }
  PF_FN int meets(pf_late_args, const line &row, const pf_tap<K> &tap, typename K::pos &at) {
    at = row + tap.w;
    return 1;
  }
  PF_FN uint32_t taps_met(pf_late_args arg, int row, typename K::pos &at) {
    at = line_of(arg, row);
    return 1; /* whose taps are not looked at */
  }
  PF_FN typename K::pos channel(pf_late_args arg) { return (typename K::pos)arg[pf_conv<K>::CHANNELS + PF_TAP_W]; }
};

/* What a thread fetches of one operand's lines for a step, as pf_strips does. `Side` says where a line begins and what a
 * tap adds to that. VECTOR: neighbours lie in memory as aligned vectors, and all of one count or none. */
template <class K, class Map, int ALONG_K, int VECTOR, class Side> struct pf_conv_strips {
  typedef typename K::stored stored;
  typedef typename K::pos pos;
  enum {
    WIDTH = Map::WIDTH, COUNT = Map::COUNT, SAME = Map::SAME,
    EACH = VECTOR || ALONG_K ? 1 : WIDTH, /* lines of a vector */
  };
  static_assert(COUNT <= 32, "a bit for each vector");
  typedef pf_vector<stored, WIDTH> vector;
  typedef pf_vector<uint32_t, ((int)sizeof(vector) + 3) / 4> words;
  const stored *base;
  typename Side::line line[COUNT / SAME][EACH];
  words held[COUNT];
  uint32_t in; /* bits: which vectors count. Looked at late: a step is multiplied while they are on their way. */

  PF_MEMBER words whole(int s) const {
    words out = held[s];
    PF_UNROLL
    for (int n = 0; VECTOR && n < (int)(sizeof(words) / 4); n++) out.at[n] = in >> s & 1 ? out.at[n] : 0;
    return out;
  }
  PF_MEMBER stored number(int s, int e) const { return pf_number_in<stored>(whole(s), e); }

  PF_MEMBER void begin(pf_late_args arg, const stored *from, int first, int lines) {
    base = from;
    PF_UNROLL
    for (int t = 0; t < COUNT / SAME; t++) {
      PF_UNROLL
      for (int e = 0; e < EACH; e++) {
        const int last = VECTOR && !ALONG_K ? lines - WIDTH : lines - 1;
        line[t][e] = Side::line_of(arg, pf_least(first + Map::line_of(t * SAME) + e, last));
      }
    }
  }
  /* Vector s, or number e of it, at k of the step. */
  PF_MEMBER int finds(pf_late_args arg, const pf_tap<K> *taps, int rest, int s, int e, int k, pos &at) const {
    const int found = Side::meets(arg, line[s / SAME][EACH == 1 ? 0 : e], taps[k], at) & (Map::has(s) && k < rest);
    at = found ? at : 0;
    return found;
  }
  PF_MEMBER void fetch(pf_late_args arg, const pf_tap<K> *taps, int rest) {
    in = 0;
    PF_UNROLL
    for (int s = 0; s < COUNT; s++) {
      const int k = Map::k_of(s);
      pos at;
      if constexpr (VECTOR) {
        in |= (uint32_t)finds(arg, taps, rest, s, 0, k, at) << s;
        if constexpr (sizeof(vector) >= 4)
          held[s] = *(const words *)(base + at);
        else
          held[s].at[0] = (uint32_t)base[at];
      } else {
        vector found;
        PF_UNROLL
        for (int e = 0; e < WIDTH; e++) {
          const int counts = finds(arg, taps, rest, s, e, k + (ALONG_K ? e : 0), at);
          const stored x = base[at];
          found.at[e] = counts ? x : (stored)0;
        }
        __builtin_memcpy(&held[s], &found, sizeof(found));
      }
    }
  }
};

/* All taps of a step, also those beyond the end: fetches look at each before they know which count. */
template <class K, int DEPTH> PF_FN void pf_conv_taps(pf_late_args arg, pf_tap<K> *taps, int k, int end) {
  PF_UNROLL
  for (int t = 0; t < DEPTH; t += K::THREADS) {
    const int at = t + pf_thread();
    if (k < end && at < DEPTH) taps[at] = pf_conv<K>::tap_of(arg, k + at);
  }
}

/* Both operands of a step; x lies X_AT behind w in LDS. */
template <class K, class W, class X, int DEPTH, int X_AT> struct pf_conv_in {
  enum { PREPARES = 1 };
  pf_late_args arg;
  pf_tap<K> (*taps)[DEPTH];
  W w;
  X x;

  PF_MEMBER void prepare(int k, int end, int half) { pf_conv_taps<K, DEPTH>(arg, taps[half], k, end); }
  PF_MEMBER void fetch(int k, int end, int half) {
    w.fetch(arg, taps[half], end - k);
    x.fetch(arg, taps[half], end - k);
  }
  template <class P> PF_MEMBER void put(P *to) const {
    w.put(to);
    x.put(to + X_AT);
  }
};

/* Results of one group and part, whose batch entries begin at `first` and lie `groups` apart: columns are pixels of all
 * images; and those of one column. */
template <class Out> struct pf_conv_column {
  const Out &out;
  int64_t entry;
  int p;
  template <class S> PF_MEMBER void operator()(int i, S sum) const { out(entry, i, p, sum); }
  template <class S, int N> PF_MEMBER void several(int i, const S (&sums)[N]) const { out.several(entry, i, p, sums); }
};
template <class K, class Out> struct pf_conv_entry {
  const Out &out;
  pf_late_args arg;
  int64_t first;
  PF_MEMBER pf_conv_column<Out> column(int j) const {
    int p;
    const int image = pf_conv<K>::image_of(arg, j, p);
    return {out, first + image * arg[PF_CONV_GROUPS], pf_conv<K>::place_of(arg, p)};
  }
  template <class S> PF_MEMBER void operator()(int i, int j, S sum) const { column(j)(i, sum); }
  template <class S, int N> PF_MEMBER void several(int i, int j, const S (&sums)[N]) const { column(j).several(i, sums); }
};

/* Partial sums, [part][group][row][column] or with O_LAST [part][group][column][row], as the blocks have them:
 * neighbouring lanes write side by side. */
template <class S> struct pf_conv_parts {
  S *at;
};
template <class S> struct pf_conv_part_column {
  S *at;
  template <int N> PF_MEMBER void several(int i, const S (&sums)[N]) const { pf_put_several(at + i, sums); }
};
template <class K, class S> struct pf_conv_part {
  S *at;
  int64_t rows, columns;
  PF_MEMBER pf_conv_part_column<S> column(int j) const { return {place(0, j)}; } /* with O_LAST */
  PF_MEMBER S *place(int i, int j) const { return at + (K::O_LAST ? j * rows + i : i * columns + j); }
  PF_MEMBER void operator()(int i, int j, S sum) const { *place(i, j) = sum; }
  template <int N> PF_MEMBER void several(int i, int j, const S (&sums)[N]) const { pf_put_several(place(i, j), sums); }
};

/* What a block works on: a tile of so many channels and pixels, for one part of k and one group. */
template <class K, int CHANNELS = K::ROWS, int PIXELS = K::COLS> struct pf_conv_block {
  int rows, columns, first, left, from, to, entry, group;

  PF_MEMBER void find(pf_late_args arg, int block) {
    rows = (int)arg[PF_CONV_O], columns = (int)arg[PF_CONV_COLUMNS];
    const int split = (int)arg[PF_CONV_SPLIT], groups = (int)arg[PF_CONV_GROUPS];
    const int down = (rows + CHANNELS - 1) / CHANNELS, across = (columns + PIXELS - 1) / PIXELS;
    /* Neighbouring blocks share the pixels, which are dearer than w. */
    entry = block / (down * across);
    const int tile = block - entry * (down * across), column = tile / down, part = entry / groups;
    group = entry - part * groups;
    first = (tile - column * down) * CHANNELS, left = column * PIXELS;
    from = part * split, to = pf_least(from + split, (int)arg[PF_CONV_K]);
  }
  template <class In> PF_MEMBER void begin(In &in, const typename K::stored *x, const typename K::stored *w,
                                           pf_late_args arg) const {
    in.arg = arg;
    if (K::PHASES > 1) w += arg[pf_conv<K>::PHASE + PF_PHASE_W];
    in.w.begin(arg, w + group * arg[PF_CONV_W_G], first, rows);
    in.x.begin(arg, x + group * arg[PF_CONV_X_G], left, columns);
  }
  template <class Out> PF_MEMBER pf_conv_entry<K, Out> result(pf_late_args arg, const Out &out) const {
    return {out, arg, group};
  }
  template <class S> PF_MEMBER pf_conv_part<K, S> result(pf_late_args, const pf_conv_parts<S> &out) const {
    return {out.at + (int64_t)entry * rows * columns, rows, columns};
  }
};

/* Adds partial sums in order. */
template <class K, int THREADS, int SHARE, class Out>
PF_FN void pf_conv_finish(const char *scratch, pf_late_args arg, const Out &out) {
  typedef pf_parts<typename K::sum, THREADS, SHARE> of;
  const int at = of::output(), rows = (int)arg[PF_CONV_O], columns = (int)arg[PF_CONV_COLUMNS];
  typename K::sum sum;
  if (!of::add(scratch, (int64_t)rows * columns * arg[PF_CONV_GROUPS], (int)arg[PF_CONV_PARTS], sum)) return;
  const int slow = pf_divide(at, arg[K::O_LAST ? PF_CONV_O_MAGIC : PF_CONV_COLUMNS_MAGIC]);
  const int group = pf_divide(slow, arg[K::O_LAST ? PF_CONV_COLUMNS_MAGIC : PF_CONV_O_MAGIC]);
  const int fast = at - slow * (K::O_LAST ? rows : columns), rest = slow - group * (K::O_LAST ? columns : rows);
  const pf_conv_entry<K, Out> result = {out, arg, group};
  result(K::O_LAST ? fast : rest, K::O_LAST ? rest : fast, sum);
}

template <class K, class Out>
PF_FN void pf_conv_tile(const typename K::stored *x, const typename K::stored *w, pf_late_args arg, int number,
                        const Out &out) {
  typedef pf_lines_map<K, K::ROWS, K::W_ALONG_K> w_map;
  typedef pf_lines_map<K, K::COLS, K::X_ALONG_K> x_map;
  typedef pf_conv_strips<K, w_map, K::W_ALONG_K, 1, pf_conv_w<K>> w_strips;
  typedef pf_conv_strips<K, x_map, K::X_ALONG_K, 1, pf_conv_x<K>> x_strips;
  PF_SHARED pf_tap<K> taps[2][K::DEPTH];
  pf_conv_block<K> block;
  block.find(arg, number);
  pf_conv_in<K, pf_lines<K, K::ROWS, K::W_ALONG_K, 1, w_strips>, pf_lines<K, K::COLS, K::X_ALONG_K, 1, x_strips>,
             K::DEPTH, pf_tile<K>::B_AT> in;
  in.taps = taps;
  block.begin(in, x, w, arg);
  pf_tile<K> sums;
  sums.run(in, block.from, block.to);
  sums.store(block.first, block.left, block.rows, block.columns, block.result(arg, out));
}

/* The same over matrix tiles. */
template <class K, class Out>
PF_FN void pf_conv_mma(const typename K::stored *x, const typename K::stored *w, pf_late_args arg, int number,
                       const Out &out) {
  typedef pf_mma_loop<K> loop;
  typedef pf_mma_map<K, K::ROWS, K::W_ALONG_K> w_map;
  typedef pf_mma_map<K, K::COLS, K::X_ALONG_K> x_map;
  typedef pf_conv_strips<K, w_map, K::W_ALONG_K, K::W_VECTOR, pf_conv_w<K>> w_strips;
  typedef pf_conv_strips<K, x_map, K::X_ALONG_K, K::X_VECTOR, pf_conv_x<K>> x_strips;
  PF_SHARED pf_tap<K> taps[2][loop::DEPTH];
  PF_SHARED pf_piece lds[loop::LDS_PIECES];
  pf_conv_block<K> block;
  block.find(arg, number);
  pf_conv_in<K, pf_mma_lines<K, K::ROWS, K::W_ALONG_K, K::W_VECTOR, w_strips>,
             pf_mma_lines<K, K::COLS, K::X_ALONG_K, K::X_VECTOR, x_strips>, loop::DEPTH, loop::B_AT> in;
  in.taps = taps;
  block.begin(in, x, w, arg);
  loop sums;
  sums.run(lds, in, block.from, block.to);
  sums.template store<K::O_LAST>(lds, block.first, block.left, block.rows, block.columns, block.result(arg, out));
}

/* ---- few output channels per group ------------------------------------------------------------------------------ */

/* One pixel of one group, numbered (image, group, pixel) with the pixel fastest, or (image, pixel, group). */
template <class K> struct pf_conv_place {
  typedef typename K::stored stored;
  const stored *x, *w;
  pf_pixel<K> pixel;
  int entry, p;

  PF_MEMBER void begin(const stored *x_base, const stored *w_base, pf_late_args arg, int number) {
    const int groups = (int)arg[PF_CONV_GROUPS], pixels = (int)arg[PF_CONV_PIXELS];
    const int slow = pf_divide(number, arg[K::G_LAST ? PF_CONV_GROUPS_MAGIC : PF_CONV_PIXELS_MAGIC]);
    const int fast = number - slow * (K::G_LAST ? groups : pixels);
    const int image = pf_divide(slow, arg[K::G_LAST ? PF_CONV_PIXELS_MAGIC : PF_CONV_GROUPS_MAGIC]);
    const int group = K::G_LAST ? fast : slow - image * groups;
    p = K::G_LAST ? slow - image * pixels : fast;
    entry = image * groups + group;
    x = x_base + group * arg[PF_CONV_X_G], w = w_base + group * arg[PF_CONV_W_G];
    pixel = pf_conv<K>::pixel_of(arg, image, p);
  }
  PF_MEMBER void add(pf_late_args arg, const pf_tap<K> &tap, typename K::sum *sums) const {
    typename K::pos at;
    const int in = pf_conv<K>::meets(arg, pixel, tap, at);
    const typename K::sum value = in ? K::load(x[in ? at : 0]) : (typename K::sum)0;
    PF_UNROLL
    for (int o = 0; o < K::FEW; o++)
      sums[o] = pf_mul_add(value, K::load(w[(typename K::pos)o * (typename K::pos)arg[PF_CONV_W_O] + tap.w]), sums[o]);
  }
};

template <class K, class Out>
PF_FN void pf_conv_direct(const typename K::stored *x, const typename K::stored *w, pf_late_args arg, const Out &out) {
  const int number = pf_block() * K::THREADS + pf_thread();
  if (number >= arg[PF_CONV_ENTRIES] * arg[PF_CONV_PIXELS]) return;
  pf_conv_place<K> place;
  place.begin(x, w, arg, number);
  typename K::sum sums[K::FEW];
  PF_UNROLL
  for (int o = 0; o < K::FEW; o++) sums[o] = 0;
  /* Channels are the slowest axis of k here, so a row of taps is one stretch of it. */
  pf_late_args axis = arg + PF_CONV_TAPS + K::RANK * PF_TAP_WORDS;
  const int row = (int)axis[PF_TAP_EXTENT];
  for (int k = 0; k < (int)arg[PF_CONV_K]; k += row) {
    pf_tap<K> tap = pf_conv<K>::tap_of(arg, k);
    for (int t = 0; t < row; t++) {
      place.add(arg, tap, sums);
      tap.x += (typename K::pos)axis[PF_TAP_X];
      tap.w += (typename K::pos)axis[PF_TAP_W];
      tap.along[K::RANK - 1] += (int)arg[pf_conv<K>::AXES + (K::RANK - 1) * PF_AXIS_WORDS + PF_AXIS_RHS];
    }
  }
  PF_UNROLL
  for (int o = 0; o < K::FEW; o++) out(place.entry, o, place.p, sums[o]);
}

template <class K, class Out>
PF_FN void pf_conv_dot(const typename K::stored *x, const typename K::stored *w, pf_late_args arg, const Out &out) {
  enum { WAVES = K::THREADS / PF_WAVE };
  PF_SHARED typename K::sum met[WAVES][K::FEW];
  const int places = (int)(arg[PF_CONV_ENTRIES] * arg[PF_CONV_PIXELS]), split = (int)arg[PF_CONV_SPLIT];
  const int part = pf_block() / places, from = part * split, to = pf_least(from + split, (int)arg[PF_CONV_K]);
  pf_conv_place<K> place;
  place.begin(x, w, arg, pf_block() - part * places);
  typename K::sum sums[K::FEW];
  PF_UNROLL
  for (int o = 0; o < K::FEW; o++) sums[o] = 0;
  for (int k = from + pf_thread(); k < to; k += K::THREADS) place.add(arg, pf_conv<K>::tap_of(arg, k), sums);
  pf_lanes_sum<PF_WAVE>(sums, K::FEW);
  if (pf_thread() % PF_WAVE == 0) {
    PF_UNROLL
    for (int o = 0; o < K::FEW; o++) met[pf_thread() / PF_WAVE][o] = sums[o];
  }
  pf_barrier();
  if (pf_thread() < K::FEW) {
    typename K::sum total = met[0][pf_thread()];
    for (int wave = 1; wave < WAVES; wave++) total += met[wave][pf_thread()];
    out(part * arg[PF_CONV_ENTRIES] + place.entry, pf_thread(), place.p, total);
  }
}

#endif
