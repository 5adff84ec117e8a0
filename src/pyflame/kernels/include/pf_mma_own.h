/* Sums of one product as an operand of the next (attention: scores, once weights, times values), without LDS.
 *
 * A wave has lines of its own, and takes the other side's 16 at a time. Which of both is the left operand is chosen so
 * that a lane's sums of two tiles, rounded to 16 bits, are its part of a chunk of the own lines: FLIP says that the own
 * ones are the right operand. Only the order of the chunk's 32 numbers is another, so what they are multiplied with
 * lies in that order too. For a tile type T of pf_mma.h pf_own<T> says
 *   own, other               its fragments of own lines and of others
 *   LINES, slot(s), line(r)  own lines of a lane, which of them sum s belongs to, and which of the 16 it is
 *   FROM, TO                 lanes whose numbers differ in the bits FROM .. TO / 2 have sums of the same lines
 *   shift(), fixed(s)        which of the 16 others sum s belongs to: the sum of both, of which one is the same for all s
 *   number(piece, e)         which of 32 is number e of a piece
 *   take<E>(own, a, b, step) the part `step` of a chunk, of the sums of two tiles side by side, stored as E
 */
#ifndef PF_MMA_OWN_H
#define PF_MMA_OWN_H
#include "pf_mma.h"

/* Own lines are rows of the sums, which are numbers of a struct. */
template <class T> struct pf_own_rows {
  typedef typename T::left own;
  typedef typename T::right other;
  typedef typename T::sums sums;
  enum { FLIP = 0 };
  PF_FN int shift() { return T::col(0); }
  PF_FN void set(sums &to, int s, float x) { to.at[s] = x; }
};
/* They are columns: a lane has one of them. The sums are a vector of the compiler's. */
template <class T> struct pf_own_columns {
  typedef typename T::right own;
  typedef typename T::left other;
  typedef typename T::sums sums;
  enum { FLIP = 1, LINES = 1, FROM = 16, TO = PF_WAVE };
  PF_FN int slot(int s) { return 0; }
  PF_FN int line(int r) { return T::col(0); }
  PF_FN int shift() { return T::row(0); }
  PF_FN void set(sums &to, int s, float x) { to[s] = x; }
};

/* Without matrix instructions, by shuffles. */
template <class T> struct pf_own : pf_own_rows<T> {
  typedef typename T::left own;
  typedef typename T::sums sums;
  enum { LINES = T::HIGH, FROM = 1, TO = PF_PLAIN_ACROSS, PAIRS = 16 / T::STEPS };
  PF_FN int slot(int s) { return s / T::WIDE; }
  PF_FN int line(int r) { return T::row(r * T::WIDE); }
  PF_FN int fixed(int s) { return s % T::WIDE * PF_PLAIN_ACROSS; }
  PF_FN int number(int piece, int e) { return 8 * piece + e; }
  template <class E> PF_FN void take(own &to, const sums &a, const sums &b, int step) {
    const int lane = pf_lane_of_wave(), first = lane - lane % PF_PLAIN_ACROSS;
    PF_UNROLL
    for (int i = 0; i < LINES; i++) {
      PF_UNROLL
      for (int w = 0; w < PAIRS; w++) {
        float got[2];
        PF_UNROLL
        for (int e = 0; e < 2; e++) {
          const int n = 2 * (PAIRS * step + w) + e, column = n % 16;
          const float mine = (n < 16 ? a : b).at[i * T::WIDE + column / PF_PLAIN_ACROSS];
          got[e] = pf_shuffle(mine, first + column % PF_PLAIN_ACROSS);
        }
        to.at[i].at[w] = pf_pair<E>::of(got[0], got[1]);
      }
    }
  }
};

#if defined(PF_EMULATE)
#elif defined(__CUDACC__)
template <class I> struct pf_own<pf_mma_sync<I>> : pf_own_rows<pf_mma_sync<I>> {
  typedef pf_mma_sync<I> T;
  typedef typename T::left own;
  typedef typename T::sums sums;
  enum { LINES = 2, FROM = 1, TO = 4 };
  PF_FN int slot(int s) { return s % 4 / 2; }
  PF_FN int line(int r) { return T::row(2 * r); }
  PF_FN int fixed(int s) { return s % 2 + s / 4 * 8; }
  PF_FN int number(int piece, int e) { return e / 4 * 16 + e / 2 % 2 * 8 + 2 * piece + e % 2; }
  template <class E> PF_FN void take(own &to, const sums &a, const sums &b, int step) {
    PF_UNROLL
    for (int r = 0; r < 2; r++) {
      PF_UNROLL
      for (int w = 0; w < 4; w++) {
        const sums &from = w < 2 ? a : b;
        to.at[r].at[w] = pf_pair<E>::of(from.at[w % 2 * 4 + 2 * r], from.at[w % 2 * 4 + 2 * r + 1]);
      }
    }
  }
};
#elif defined(PF_MMA_MFMA_H)
template <class I> struct pf_own<pf_mfma<I>> : pf_own_columns<pf_mfma<I>> {
  typedef pf_mfma<I> T;
  typedef typename T::right own;
  typedef typename T::sums sums;
  PF_FN int fixed(int s) { return s; }
  PF_FN int number(int piece, int e) { return e / 4 * 16 + 4 * piece + e % 4; }
  template <class E> PF_FN void take(own &to, const sums &a, const sums &b, int step) {
    PF_UNROLL
    for (int w = 0; w < 4; w++) {
      const sums &from = w < 2 ? a : b;
      to.at[w] = pf_pair<E>::of(from[w % 2 * 2], from[w % 2 * 2 + 1]);
    }
  }
};
#elif defined(PF_MMA_WMMA_H)
template <class I> struct pf_own<pf_wmma<I>> : pf_own_columns<pf_wmma<I>> {
  typedef pf_wmma<I> T;
  typedef typename T::right own;
  typedef typename T::sums sums;
#if defined(__GFX12__)
  PF_FN int fixed(int s) { return s; }
  PF_FN int number(int piece, int e) { return 8 * piece + e; }
#else
  PF_FN int fixed(int s) { return 2 * s; }
  /* A half of the wave has every second sum of a tile, and gets the others' from the other half. */
  PF_FN int number(int piece, int e) { return piece / 2 * 16 + 2 * e + piece % 2; }
#endif
  template <class E> PF_FN void take(own &to, const sums &a, const sums &b, int step) {
    const sums &from = step ? b : a;
    PF_UNROLL
    for (int w = 0; w < 4; w++) {
      const uint32_t mine = pf_pair<E>::of(from[2 * w], from[2 * w + 1]);
#if defined(__GFX12__)
      to.at[0].at[w] = mine;
#else
      const uint32_t across = pf_shuffle_xor(mine, 16);
      const int upper = pf_lane_of_wave() / 16;
      to.at[0].at[w] = upper ? across : mine;
      to.at[1].at[w] = upper ? mine : across;
#endif
    }
  }
};
#endif

#endif
