/* y = x W^T + bias with W of scaled integers, W = d (q - offset) + least, for few rows of x, by integer dots.
 *
 * Each 16 neighbours of x become integers of 16 bits, by their largest: x = s (256 h + l), h and l bytes, an error of
 * 2^-16 of that largest. A block rounds a chunk of x once, by all of its threads; then each lane of DEEP waves keeps PER pairs
 * of such groups in registers, those that W has in the same bytes, and lines of W pass by, EACH at a turn:
 *
 *   y += d s (256 sum(q h) + sum(q l) - offset sum(x / s)) + least s sum(x / s)
 *
 * with sums of four products an instruction, of bytes that nobody takes apart. Integers add without rounding. Waves leave
 * their sums in LDS, where the block adds them up in the end, so inside of the loop no wave waits for another. LDS gives
 * no bytes but those of W there: x from LDS, as it was, takes four times as many. For 32 numbers of Q4_0 and a row of x a
 * lane executes about 60 instructions, of Q4_K 90.
 * Bytes: W once, which is nearly all; x once for every block, one for each compute unit where there are copies ahead.
 */
#ifndef PF_ENCODED_DOTS_HIP
#define PF_ENCODED_DOTS_HIP

#include "pf_decode.h"
#include "pf_dot4.h"
#include "pf_mma.h"
#include "pf_tile.h"
#if defined(__CUDACC__) || defined(PF_EMULATE)
#include "pf_mma_async.h"
#endif

namespace pf_encoded_dots {

enum { PF_ROWS, PF_OUT, PF_WIDTH, PF_ROW_BYTES, PF_EPS, PF_GROUP = 16, PF_LARGEST = 127 * 256 + 127 };

typedef pf_vector<uint32_t, 4> pf_words;
/* 16 numbers of W: y is as above. */
struct pf_numbers {
  pf_words q;
  float d, least;
  int offset;
};
/* A pair of groups of x. products: s sum(x / s). */
struct pf_rounded {
  pf_words high[2], low[2];
  int sum[2];
  float scale[2], products[2];
};

/* Byte N of each of four words. */
template <int N> PF_FN uint32_t pf_bytes_of(const uint32_t *words) {
#if defined(__CUDACC__)
  enum { TWO = N | (N + 4) << 4 };
  return __byte_perm(__byte_perm(words[0], words[1], TWO), __byte_perm(words[2], words[3], TWO), 0x5410);
#else
  uint32_t out = 0;
  PF_UNROLL
  for (int k = 0; k < 4; k++) out |= (words[k] >> 8 * N & 255) << 8 * k;
  return out;
#endif
}

/* With a scale, of x times that; gives the sum of squares of x. A group with NaN or infinity gets `by`, its s, of NaN, and any
 * integers. */
template <class E, int VECTOR, int SCALED>
PF_FN float pf_round_group(const typename E::stored *x, const typename E::stored *scale, pf_words &high, pf_words &low,
                           float &by) {
  typedef pf_vector<typename E::stored, VECTOR> V;
  float v[PF_GROUP], squares = 0.0f;
  PF_UNROLL
  for (int i = 0; i < PF_GROUP; i += VECTOR) {
    const V part = *(const V *)(x + i);
    PF_UNROLL
    for (int k = 0; k < VECTOR; k++) v[i + k] = E::load(part.at[k]);
    if constexpr (SCALED) {
      const V scales = *(const V *)(scale + i);
      PF_UNROLL
      for (int k = 0; k < VECTOR; k++) {
        squares = PF_FMA(v[i + k], v[i + k], squares);
        v[i + k] *= E::load(scales.at[k]);
      }
    }
  }
  uint32_t most = 0; /* as bits: NaN is more than infinity, and that more than any number */
  PF_UNROLL
  for (int i = 0; i < PF_GROUP; i++) {
    const uint32_t bits = pf_bits_f32(v[i]) & 0x7fffffff;
    most = bits > most ? bits : most;
  }
  const float largest = pf_from_bits_f32(most);
  const int number = most < 0x7f800000;
  const float inverse = number && largest > 0x1p-100f ? PF_LARGEST / largest : 0.0f;
  PF_UNROLL
  for (int w = 0; w < 4; w++) {
    /* To the nearest: 1.5 * 2^23 leaves whole numbers q in the low bits. With 128 more, their second bytes are h, and the
     * first ones l + 128. */
    uint32_t q[4];
    PF_UNROLL
    for (int k = 0; k < 4; k++) q[k] = pf_bits_f32(PF_FMA(v[4 * w + k], inverse, 0x1.8001p23f));
    high.at[w] = pf_bytes_of<1>(q), low.at[w] = pf_bytes_of<0>(q) ^ 0x80808080;
  }
  by = !number ? PF_NAN : inverse > 0.0f ? largest / PF_LARGEST : 0.0f;
  return squares;
}

/* Two groups of 16 that lie in the same bytes. */
template <class D> struct pf_pair {
  enum {
    PAIRS = D::BLOCK / (2 * PF_GROUP), /* of a block */
    ONE = PAIRS == 1,
  };
  pf_numbers of[2];
  PF_FN uint32_t inside(uint32_t p) { return p % PAIRS / D::PAIR * (2 * D::PAIR) + p % PAIRS % D::PAIR; }
  PF_FN uint32_t first(uint32_t p) { return p / PAIRS * (2 * PAIRS) + inside(p); }
  /* Pair p + n of a line, where p is a multiple of a power of two above n: both in one block, or in blocks of their own. */
  template <int ALIGN = D::ALIGN> PF_MEMBER void fetch(const uint8_t *line, uint32_t p, uint32_t n) {
    const uint8_t *block = line + (int64_t)(ONE ? p + n : p / PAIRS) * D::NBYTES;
    if (ALIGN == D::ALIGN) block = (const uint8_t *)__builtin_assume_aligned(block, ALIGN);
    const int g = (int)(inside(p % PAIRS) | inside(n));
    PF_UNROLL
    for (int half = 0; half < 2; half++) {
      const pf_sixteen q = D::template codes<ALIGN>(block, g + half * D::PAIR, of[half].d, of[half].offset, of[half].least);
      __builtin_memcpy(&of[half].q, &q, 16);
    }
  }
  PF_MEMBER float dot(const pf_rounded &x, float y) const {
    PF_UNROLL
    for (int half = 0; half < 2; half++) {
      const pf_numbers &w = of[half];
      int upper = 0, lower = D::OFFSET ? -w.offset * x.sum[half] : 0;
      PF_UNROLL
      for (int k = 0; k < 4; k++) {
        upper = pf_dot4((int)w.q.at[k], (int)x.high[half].at[k], upper);
        lower = pf_dot4((int)w.q.at[k], (int)x.low[half].at[k], lower);
      }
      y = PF_FMA((float)(upper * 256 + lower), w.d * x.scale[half], y);
      if (D::LEAST) y = PF_FMA(w.least, x.products[half], y);
    }
    return y;
  }
};

/* Where the pairs lie that a wave has in a turn: of the first of its lines, PER for every lane. */
template <class D, int PER> struct pf_wave_pairs {
  enum { COUNT = PF_WAVE * PER, BYTES = COUNT / pf_pair<D>::PAIRS * D::NBYTES }; /* of a line */
  const uint8_t *data;
  int64_t row_bytes;
  int line, lines, step;  /* the first line, all lines, those from turn to turn */
  int pair, pairs, chunk; /* the same of pairs, and from chunk to chunk */
  int turns, end, lane;   /* turns of a chunk, and all */
  PF_MEMBER int line_of(int turn) const { return line + turn % turns * step; }
  PF_MEMBER int pair_of(int turn) const { return pair + turn / turns * chunk; }
};
/* They, turn by turn. Without stages a lane has its next ones in registers. */
template <class D, int PER, int EACH, int STAGES> struct pf_stream;
template <class D, int PER, int EACH> struct pf_stream<D, PER, EACH, 0> {
  enum { LDS_PIECES = 1 };
  pf_wave_pairs<D, PER> in;
  pf_pair<D> now[EACH][PER], next[EACH][PER];
  PF_MEMBER void begin(pf_piece *) { fetch(0); }
  PF_MEMBER void fetch(int turn) {
    PF_UNROLL
    for (int j = 0; j < EACH; j++) {
      const int line = in.line_of(turn) + j;
      PF_UNROLL
      for (int n = 0; n < PER; n++) {
        const int p = in.pair_of(turn) + in.lane * PER, has = p + n < in.pairs;
        next[j][n].fetch(in.data + (line < in.lines ? line : in.lines - 1) * in.row_bytes, has ? p : 0, has ? n : 0);
        PF_UNROLL
        for (int half = 0; half < 2; half++) {
          pf_numbers &w = next[j][n].of[half];
          if (!has) w.d = w.least = 0.0f;
          PF_UNROLL
          for (int k = 0; k < 4; k++) PF_HIDE(w.q.at[k]); /* or clang has a register for each byte until the next turn */
        }
      }
    }
  }
  PF_MEMBER void take(int turn) {
    PF_UNROLL
    for (int n = 0; n < EACH * PER; n++) now[n / PER][n % PER] = next[n / PER][n % PER];
    if (turn + 1 < in.end) fetch(turn + 1);
  }
  PF_MEMBER void line(int j, pf_pair<D> *to) const {
    PF_UNROLL
    for (int n = 0; n < PER; n++) to[n] = now[j][n];
  }
};
#if defined(__CUDACC__) || defined(PF_EMULATE)
/* Or zeros. */
template <int UNIT> PF_FN void pf_copy_some(uint8_t *to, const uint8_t *from, int has) {
  if constexpr (UNIT == 16) {
    pf_copy_async((pf_piece *)to, from, has);
  } else {
#if defined(PF_EMULATE)
    const uint64_t none = 0;
    __builtin_memcpy(to, has ? from : (const uint8_t *)&none, UNIT);
#else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(pf_lds_address(to)), "l"(from), "n"(UNIT),
                 "r"(has ? UNIT : 0)
                 : "memory");
#endif
  }
}
/* The upper half of a word and the lower one of the next; as such, or nvcc takes codes of both apart. */
PF_FN uint32_t pf_middle(uint32_t low, uint32_t high) {
#if defined(PF_EMULATE)
  return high << 16 | low >> 16;
#else
  return __byte_perm(low, high, 0x5432);
#endif
}
/* A block that begins at a multiple of 2 in LDS, in registers: words are read once, and those of codes lie as words. */
template <int NBYTES> struct pf_own_block {
  enum { COUNT = (NBYTES + 5) / 4 };
  alignas(16) uint32_t words[COUNT];
  /* `off`: 0, or 2 where the block begins in the midst of a word. */
  PF_MEMBER void load(const uint8_t *at, int off) {
    const uint32_t *from = (const uint32_t *)(at - off);
    uint32_t before = 0;
    PF_UNROLL
    for (int k = 0; k < COUNT; k++) {
      const uint32_t word = from[k];
      words[k] = off ? word : pf_middle(before, word);
      before = word;
    }
  }
};
/* With stages bytes are copied to LDS as they lie, STAGES - 1 turns ahead. NVIDIA's cache gives 128 bytes of a line a
 * clock, and lanes that read words 18 bytes apart have few of them: from memory that was the limit. */
template <class D, int PER, int EACH, int STAGES> struct pf_stream {
  typedef pf_wave_pairs<D, PER> pairs;
  enum {
    UNIT = pairs::BYTES % 16 ? 8 : 16, /* bytes that are copied at once */
    STAGE = EACH * pairs::BYTES,
    LDS_PIECES = (STAGES * STAGE + 15) / 16, /* of a wave */
  };
  pairs in;
  uint8_t *lds;
  int full, empty; /* stages to read and to fill next */
  PF_MEMBER void begin(pf_piece *room) {
    lds = (uint8_t *)room, full = -1, empty = 0;
    PF_UNROLL
    for (int n = 0; n < STAGES - 1; n++) copy(n);
  }
  PF_FN int after(int stage) { return stage == STAGES - 1 ? 0 : stage + 1; }
  PF_MEMBER void copy(int turn) {
    const int at = in.pair_of(turn) / pf_pair<D>::PAIRS * D::NBYTES, line = in.line_of(turn);
    const int left = (int)in.row_bytes - at - in.lane * UNIT;
    const uint8_t *from = in.data + line * in.row_bytes + at + in.lane * UNIT;
    uint8_t *to = lds + empty * STAGE + in.lane * UNIT;
    if (turn < in.end)
      PF_UNROLL
      for (int j = 0; j < EACH; j++, from += in.row_bytes, to += pairs::BYTES)
        PF_UNROLL
        for (int n = 0; n < pairs::BYTES; n += PF_WAVE * UNIT)
          if (n + in.lane * UNIT < pairs::BYTES)
            pf_copy_some<UNIT>(to + n, from + n, line + j < in.lines && n < left);
    pf_copies_end();
    empty = after(empty);
  }
  PF_MEMBER void take(int turn) {
    pf_copies_wait<STAGES - 2>();
    pf_wave_sync();
    copy(turn + STAGES - 1); /* to where all lanes have read */
    full = after(full);
  }
  PF_MEMBER void line(int j, pf_pair<D> *to) const {
    const uint8_t *from = lds + full * STAGE + j * pairs::BYTES;
    if constexpr (pf_pair<D>::ONE && D::ALIGN == 2) {
      const uint8_t *own = from + in.lane * PER * D::NBYTES;
      const int off = PER * D::NBYTES % 4 ? in.lane % 2 * 2 : 0;
      PF_UNROLL
      for (int n = 0; n < PER; n++) {
        pf_own_block<D::NBYTES> block;
        block.load(own + n * D::NBYTES, (off + n * D::NBYTES) % 4);
        to[n].template fetch<4>((const uint8_t *)block.words + 2, 0, 0);
      }
    } else {
      PF_UNROLL
      for (int n = 0; n < PER; n++) to[n].fetch(from, in.lane * PER, n);
    }
  }
};
#endif

/* A power of two of values of every lane: their sums over a wave, number `lane` % COUNT of them. */
template <int COUNT, int STEP = 1> PF_FN float pf_wave_sums(float *v, int lane) {
  if constexpr (STEP == PF_WAVE) {
    return v[0];
  } else {
    PF_UNROLL
    for (int k = 0; k < COUNT / (2 * STEP); k++) {
      const float even = v[2 * k], odd = v[2 * k + 1];
      v[k] = (lane & STEP ? odd : even) + pf_shuffle_xor(lane & STEP ? even : odd, STEP);
    }
    if (STEP >= COUNT) v[0] += pf_shuffle_xor(v[0], STEP);
    return pf_wave_sums<COUNT, 2 * STEP>(v, lane);
  }
}

/* A chunk of x on its way from the threads that round it to the lanes that keep it: COUNT of them, PER pairs each. What
 * lanes have in one place lies in a line, which is one longer, so that neither writers nor readers meet in a bank. */
template <int ROWS, int PER, int COUNT> struct pf_chunk {
  pf_words planes[ROWS][4 * PER][COUNT + 1];
  float scales[ROWS][2 * PER][COUNT];

  /* Pairs from number `first` on, of all `pairs`; squares += those of what the thread rounds. */
  template <class E, class D, int VECTOR, int NORMED, int THREADS>
  PF_MEMBER void round(const typename E::stored *x, const typename E::stored *scale, int first, int pairs, int rows,
                       float *squares) {
    const int64_t width = (int64_t)pairs * 2 * PF_GROUP;
    PF_UNROLL
    for (int r = 0; r < ROWS; r++)
      PF_UNROLL
      for (int n = pf_thread(); n < (2 * PER * COUNT + THREADS - 1) / THREADS * THREADS; n += THREADS) {
        const int half = n % 2, own = n / 2, p = first + own, has = own < PER * COUNT && p < pairs;
        const int at = ((int)pf_pair<D>::first(has ? p : 0) + half * D::PAIR) * PF_GROUP;
        pf_words high, low;
        float by;
        const float square = pf_round_group<E, VECTOR, NORMED>(x + (r < rows ? r : rows - 1) * width + at, scale + at, high,
                                                               low, by);
        if (!has) high = low = {}, by = 0.0f;
        if (has) squares[r] += square;
        if (own >= PER * COUNT) continue;
        const int slot = own / PER, k = own % PER * 2 + half;
        planes[r][2 * k][slot] = high, planes[r][2 * k + 1][slot] = low, scales[r][k][slot] = by;
      }
  }
  PF_MEMBER pf_rounded at(int r, int n, int slot) const {
    pf_rounded out;
    PF_UNROLL
    for (int half = 0; half < 2; half++) {
      const int k = 2 * n + half;
      out.high[half] = planes[r][2 * k][slot], out.low[half] = planes[r][2 * k + 1][slot];
      int highs = 0, lows = 0;
      PF_UNROLL
      for (int w = 0; w < 4; w++) {
        highs = pf_dot4((int)out.high[half].at[w], 0x01010101, highs);
        lows = pf_dot4((int)out.low[half].at[w], 0x01010101, lows);
      }
      out.sum[half] = 256 * highs + lows, out.scale[half] = scales[r][k][slot];
      out.products[half] = out.scale[half] * (float)out.sum[half];
    }
    return out;
  }
};

/* Blocks take STEP lines of W by turns, so that all read what lies together.
 * NORMED: of x scale / sqrt(mean(x^2) + eps). The squares are added up beside, and results divided in the end.
 * EARLY: no launch before this one writes W, so it is asked for while they run. */
template <class E, class D, int ROWS, int PER, int DEEP, int EACH, int TURNS, int STAGES, int VECTOR, int BIASED, int NORMED, int EARLY, int THREADS, class Out>
PF_FN void pf_encoded_linear(const typename E::stored *x, const uint8_t *data, const typename E::stored *bias,
                             const int64_t *arg, const Out &give, const typename E::stored *scale = 0) {
  typedef pf_stream<D, PER, EACH, STAGES> stream;
  enum { WAVES = THREADS / PF_WAVE, STEP = WAVES / DEEP * EACH, LINES = TURNS * STEP, LANES = DEEP * PF_WAVE };
  PF_SHARED float parts[DEEP][LINES * ROWS], squares[WAVES][ROWS];
  PF_SHARED pf_chunk<ROWS, PER, LANES> chunk;
#if defined(__CUDACC__) || defined(PF_EMULATE)
  PF_DYNAMIC_LDS(pf_piece, staged, STAGES ? WAVES *stream::LDS_PIECES : 1);
#else
  pf_piece *staged = 0;
#endif
  const int lane = pf_thread() % PF_WAVE, wave = pf_thread() / PF_WAVE, deep = wave % DEEP, begin = wave / DEEP * EACH;
  const int rows = (int)arg[PF_ROWS], out = (int)arg[PF_OUT], pairs = (int)arg[PF_WIDTH] / (2 * PF_GROUP);
  const int blocks = (out + LINES - 1) / LINES, first = pf_block() * STEP;
  const int chunks = (pairs + LANES * PER - 1) / (LANES * PER);
  stream weights;
  weights.in = {data,  arg[PF_ROW_BYTES], first + begin, out, blocks * STEP, deep * PF_WAVE * PER, pairs, LANES * PER,
                TURNS, chunks * TURNS,    lane};
  weights.begin(staged + wave * stream::LDS_PIECES); /* on its way while x is rounded */
  if (EARLY) pf_await();
  float total[ROWS] = {};
  _Pragma("unroll 1")
  for (int turn = 0; turn < weights.in.end;) {
    if (turn) pf_barrier();
    chunk.template round<E, D, VECTOR, NORMED, THREADS>(x, scale, turn / TURNS * LANES * PER, pairs, rows, total);
    pf_barrier();
    pf_rounded of[PER][ROWS];
    PF_UNROLL
    for (int n = 0; n < PER * ROWS; n++) of[n / ROWS][n % ROWS] = chunk.at(n % ROWS, n / ROWS, deep * PF_WAVE + lane);
    _Pragma("unroll 1")
    for (int t = 0; t < TURNS; t++, turn++) {
      weights.take(turn);
      float sums[EACH * ROWS] = {};
      PF_UNROLL
      for (int j = 0; j < EACH; j++) {
        pf_pair<D> now[PER];
        weights.line(j, now);
        PF_UNROLL
        for (int n = 0; n < PER; n++)
          PF_UNROLL
          for (int r = 0; r < ROWS; r++) sums[j * ROWS + r] = now[n].dot(of[n][r], sums[j * ROWS + r]);
      }
      const float sum = pf_wave_sums<EACH * ROWS>(sums, lane);
      float &there = parts[deep][(t * STEP + begin) * ROWS + lane % (EACH * ROWS)];
      if (lane < EACH * ROWS) there = turn < TURNS ? sum : there + sum;
    }
  }
  if constexpr (NORMED) {
    const float sum = pf_wave_sums<ROWS>(total, lane);
    if (lane < ROWS) squares[wave][lane] = sum;
  }
  pf_barrier();
  for (int n = pf_thread(); n < LINES * ROWS; n += THREADS) {
    const int r = n % ROWS, l = n / ROWS, line = l / STEP * (blocks * STEP) + first + l % STEP;
    if (r >= rows || line >= out) continue;
    float sum = 0.0f;
    PF_UNROLL
    for (int k = 0; k < DEEP; k++) sum += parts[k][n];
    if constexpr (NORMED) {
      float square = 0.0f;
      PF_UNROLL
      for (int k = 0; k < WAVES; k++) square += squares[k][r];
      sum *= pf_rsqrt_f32(square / (float)arg[PF_WIDTH] + pf_from_bits_f32((uint32_t)arg[PF_EPS]));
    }
    if (BIASED) sum += E::load(bias[line]);
    give(0, r, line, sum);
  }
}

}  // namespace pf_encoded_dots

#endif
