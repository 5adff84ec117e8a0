/* y = x W^T + bias with W of scaled integers, W = d (q - offset) + least, for few rows of x, by integer dots.
 *
 * Each 16 neighbours of x become integers of 16 bits, by their largest: x = s (256 h + l), h and l bytes, an error of
 * 2^-16 of that largest. They lie in LDS, a CHUNK of each row at a time. A wave has EACH rows of W; a lane takes two groups
 * of 16 numbers that lie in the same bytes, and asks for its next ones before it multiplies these:
 *
 *   y += d s (256 sum(q h) + sum(q l) - offset sum(x / s)) + least s sum(x / s)
 *
 * with sums of four products an instruction, of bytes that nobody takes apart. Integers add without rounding.
 * For 32 numbers of Q4_0 and a row of x a lane executes about 50 instructions, a third of what it takes to make floats
 * of them. Bytes: W once, which is nearly all; x once for every 8 EACH rows of W, from L2.
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
struct pf_about {
  float scale;
  int sum;
};
/* 16 numbers of W: y is as above. */
struct pf_numbers {
  pf_words q;
  float d, least;
  int offset;
};

/* Groups in LDS, so that lanes that take every second one, or two of four, meet in no bank. */
PF_FN int pf_group_at(int g) { return g ^ (g >> 3 & 1) * 3; }

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

/* With a scale, of x times that; gives the sum of squares of x. */
template <class E, int VECTOR, int SCALED>
PF_FN float pf_round_group(const typename E::stored *x, const typename E::stored *scale, pf_words &high, pf_words &low,
                           pf_about &about) {
  typedef pf_vector<typename E::stored, VECTOR> V;
  float v[PF_GROUP], squares = 0.0f;
  uint32_t most = 0; /* as bits: NaN is more than infinity, and that more than any number */
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
  PF_UNROLL
  for (int i = 0; i < PF_GROUP; i++) {
    const uint32_t bits = pf_bits_f32(v[i]) & 0x7fffffff;
    most = bits > most ? bits : most;
  }
  const float largest = pf_from_bits_f32(most);
  const int number = most < 0x7f800000;
  const float inverse = number && largest > 0x1p-100f ? PF_LARGEST / largest : 0.0f;
  int highs = 0, lows = 0;
  PF_UNROLL
  for (int w = 0; w < 4; w++) {
    /* To the nearest: 1.5 * 2^23 leaves whole numbers q in the low bits. With 128 more, their second bytes are h, and the
     * first ones l + 128. */
    uint32_t q[4];
    PF_UNROLL
    for (int k = 0; k < 4; k++) q[k] = number ? pf_bits_f32(PF_FMA(v[4 * w + k], inverse, 0x1.8001p23f)) : 128;
    high.at[w] = pf_bytes_of<1>(q), low.at[w] = pf_bytes_of<0>(q) ^ 0x80808080;
    highs = pf_dot4((int)high.at[w], 0x01010101, highs), lows = pf_dot4((int)low.at[w], 0x01010101, lows);
  }
  about.sum = 256 * highs + lows;
  about.scale = !number ? PF_NAN : inverse > 0.0f ? largest / PF_LARGEST : 0.0f;
  return squares;
}

/* Two groups of 16 that lie in the same bytes: where they are, and what they are in EACH rows of W. */
template <class D, int EACH> struct pf_pair {
  enum { PAIRS = D::BLOCK / (2 * PF_GROUP) }; /* of a block */
  pf_numbers of[EACH][2];
  PF_FN int inside(int p) { return p % PAIRS / D::PAIR * (2 * D::PAIR) + p % PAIRS % D::PAIR; }
  PF_FN int first(int p) { return p / PAIRS * (2 * PAIRS) + inside(p); }
  PF_MEMBER void fetch(const uint8_t *const *rows, int p) {
    PF_UNROLL
    for (int j = 0; j < EACH; j++) {
      const uint8_t *block = (const uint8_t *)__builtin_assume_aligned(rows[j] + (int64_t)(p / PAIRS) * D::NBYTES, D::ALIGN);
      PF_UNROLL
      for (int half = 0; half < 2; half++) {
        pf_numbers &n = of[j][half];
        const pf_sixteen q = D::codes(block, inside(p) + half * D::PAIR, n.d, n.offset, n.least);
        __builtin_memcpy(&n.q, &q, 16);
      }
    }
  }
};

/* The pairs of a wave's rows, turn by turn. Without stages a lane has its next one in registers. */
template <class D, int EACH, int STAGES> struct pf_wave_rows;
template <class D, int EACH> struct pf_wave_rows<D, EACH, 0> {
  enum { LDS_PIECES = 1 };
  const uint8_t *rows[EACH];
  pf_pair<D, EACH> next;
  int pieces, lane;
  PF_MEMBER void begin(pf_piece *) { take(-1); }
  PF_MEMBER pf_pair<D, EACH> take(int turn) {
    const pf_pair<D, EACH> now = next;
    const int p = (turn + 1) * PF_WAVE + lane;
    if (p < pieces) next.fetch(rows, p);
    return now;
  }
};
#if defined(__CUDACC__) || defined(PF_EMULATE)
template <int UNIT> PF_FN void pf_copy_some(uint8_t *to, const uint8_t *from) {
  if constexpr (UNIT == 16) {
    pf_copy_async((pf_piece *)to, from, 1);
  } else {
#if defined(PF_EMULATE)
    __builtin_memcpy(to, from, UNIT);
#else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(pf_lds_address(to)), "l"(from), "n"(UNIT) : "memory");
#endif
  }
}
/* With stages bytes are copied to LDS as they lie, STAGES - 1 turns ahead. NVIDIA's cache gives 128 bytes of a line a
 * clock, and lanes that read words 18 bytes apart have few of them: from memory that was the limit. */
template <class D, int EACH, int STAGES> struct pf_wave_rows {
  enum {
    BYTES = PF_WAVE / pf_pair<D, EACH>::PAIRS * D::NBYTES, /* of a row in a turn */
    UNIT = BYTES % 16 ? 8 : 16,                            /* bytes that are copied at once */
    COUNT = BYTES / UNIT,
    STAGE = EACH * BYTES,
    LDS_PIECES = (STAGES * STAGE + 15) / 16,                         /* of a wave */
    EVERY = (EACH * COUNT + PF_WAVE - 1) / PF_WAVE, /* copies of a lane in a turn */
  };
  const uint8_t *rows[EACH], *from[EVERY];
  uint8_t *lds;
  int pieces, lane, left[EVERY], full, empty; /* left: bytes of the row; full and empty: stages to read and to fill next */
  PF_MEMBER void begin(pf_piece *room) {
    lds = (uint8_t *)room, full = empty = 0;
    PF_UNROLL
    for (int e = 0; e < EVERY; e++) {
      const int n = lane + e * PF_WAVE, row = n < EACH * COUNT ? n / COUNT : 0, at = (n - row * COUNT) * UNIT;
      from[e] = rows[0];
      PF_UNROLL
      for (int j = 1; j < EACH; j++) from[e] = row == j ? rows[j] : from[e];
      from[e] += at, left[e] = n < EACH * COUNT ? pieces / pf_pair<D, EACH>::PAIRS * D::NBYTES - at : 0;
    }
    PF_UNROLL
    for (int n = 0; n < STAGES - 1; n++) copy();
  }
  PF_FN int after(int stage) { return stage == STAGES - 1 ? 0 : stage + 1; }
  PF_MEMBER void copy() {
    PF_UNROLL
    for (int e = 0; e < EVERY; e++) {
      if (left[e] > 0) pf_copy_some<UNIT>(lds + empty * STAGE + (e * PF_WAVE + lane) * UNIT, from[e]);
      from[e] += BYTES, left[e] -= BYTES;
    }
    pf_copies_end();
    empty = after(empty);
  }
  PF_MEMBER pf_pair<D, EACH> take(int) {
    pf_copies_wait<STAGES - 2>();
    pf_wave_sync();
    copy(); /* to where all lanes have read */
    const uint8_t *here[EACH];
    PF_UNROLL
    for (int j = 0; j < EACH; j++) here[j] = lds + full * STAGE + j * BYTES;
    full = after(full);
    pf_pair<D, EACH> now;
    now.fetch(here, lane);
    return now;
  }
};
#endif

/* NORMED: of x scale / sqrt(mean(x^2) + eps). The squares are added up as one line more, and results divided in the end.
 * EARLY: no launch before this one writes W, so it is asked for while they run. */
template <class E, class D, int ROWS, int EACH, int CHUNK, int STAGES, int VECTOR, int BIASED, int NORMED, int EARLY, int THREADS, class Out>
PF_FN void pf_encoded_linear(const typename E::stored *x, const uint8_t *data, const typename E::stored *bias,
                             const int64_t *arg, const Out &give, const typename E::stored *scale = 0) {
  typedef pf_wave_rows<D, EACH, STAGES> W;
  enum { GROUPS = CHUNK / PF_GROUP, WAVES = THREADS / PF_WAVE };
  PF_SHARED pf_words high[ROWS][GROUPS], low[ROWS][GROUPS];
  PF_SHARED pf_about about[ROWS][GROUPS];
  PF_SHARED float squares[NORMED ? ROWS : 1][NORMED ? GROUPS : 1];
  PF_SHARED pf_piece staged[STAGES ? WAVES * W::LDS_PIECES : 1];
  const int lane = pf_thread() % PF_WAVE, wave = pf_thread() / PF_WAVE;
  const int rows = (int)arg[PF_ROWS], out = (int)arg[PF_OUT], width = (int)arg[PF_WIDTH];
  const int first = (pf_block() * WAVES + wave) * EACH;
  W weights;
  weights.pieces = width / (2 * PF_GROUP), weights.lane = lane;
  PF_UNROLL
  for (int j = 0; j < EACH; j++) weights.rows[j] = data + (first + j < out ? first + j : out - 1) * arg[PF_ROW_BYTES];
  weights.begin(staged + (STAGES ? wave * W::LDS_PIECES : 0)); /* on its way while x is rounded */
  if (EARLY) pf_await();
  float sums[EACH + NORMED][ROWS] = {};
  for (int begin = 0; begin < width; begin += CHUNK) {
    const int groups = (width - begin < CHUNK ? width - begin : CHUNK) / PF_GROUP;
    if (begin) pf_barrier();
    for (int n = pf_thread(); n < ROWS * groups; n += THREADS) {
      const int r = n / groups, g = n - r * groups, at = pf_group_at(g);
      const typename E::stored *from = x + (int64_t)(r < rows ? r : rows - 1) * width + begin + g * PF_GROUP;
      const float square =
          pf_round_group<E, VECTOR, NORMED>(from, scale + begin + g * PF_GROUP, high[r][at], low[r][at], about[r][at]);
      if constexpr (NORMED) squares[r][at] = square;
    }
    pf_barrier();
    for (int turn = 0; turn * PF_WAVE < groups / 2; turn++) {
      const pf_pair<D, EACH> now = weights.take(begin / (2 * PF_GROUP * PF_WAVE) + turn);
      const int p = turn * PF_WAVE + lane;
      if (p >= groups / 2) continue;
      PF_UNROLL
      for (int half = 0; half < 2; half++) {
        const int at = pf_group_at(now.first(p) + half * D::PAIR);
        PF_UNROLL
        for (int r = 0; r < ROWS; r++) {
          const pf_words h = high[r][at], l = low[r][at];
          const pf_about of = about[r][at];
          if constexpr (NORMED) sums[EACH][r] += squares[r][at];
          PF_UNROLL
          for (int j = 0; j < EACH; j++) {
            const pf_numbers &w = now.of[j][half];
            int upper = 0, lower = D::OFFSET ? -w.offset * of.sum : 0;
            PF_UNROLL
            for (int k = 0; k < 4; k++) {
              upper = pf_dot4((int)w.q.at[k], (int)h.at[k], upper);
              lower = pf_dot4((int)w.q.at[k], (int)l.at[k], lower);
            }
            sums[j][r] = PF_FMA((float)(upper * 256 + lower), w.d * of.scale, sums[j][r]);
            if (D::LEAST) sums[j][r] = PF_FMA(w.least * of.scale, (float)of.sum, sums[j][r]);
          }
        }
      }
    }
  }
  PF_UNROLL
  for (int j = EACH + NORMED - 1; j >= 0; j--)
    PF_UNROLL
    for (int r = 0; r < ROWS; r++) {
      float &sum = sums[j][r];
      PF_UNROLL
      for (int step = 1; step < PF_WAVE; step *= 2) sum += pf_shuffle_xor(sum, step);
      if (j == EACH) {
        sum = pf_rsqrt_f32(sum / (float)width + pf_from_bits_f32((uint32_t)arg[PF_EPS]));
      } else if (lane == (j * ROWS + r) % PF_WAVE && r < rows && first + j < out) {
        if constexpr (NORMED) sum *= sums[EACH][r];
        if (BIASED) sum += E::load(bias[first + j]);
        give(0, r, first + j, sum);
      }
    }
}

}  // namespace pf_encoded_dots

#endif
