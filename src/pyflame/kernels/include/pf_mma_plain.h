/* pf_mma.h without matrix instructions: multiply-adds of single numbers, or of four bytes where there is such a one.
 *
 * Eight lanes down, PF_WAVE/8 across: a lane has the sums of 2 rows and 4 (wave of 32) or 2 columns. A part of a chunk
 * is a piece: 16 bytes of each of those lines in registers. It is also what tests on the host run for all targets.
 */
#ifndef PF_MMA_PLAIN_H
#define PF_MMA_PLAIN_H

enum { PF_PLAIN_DOWN = 8, PF_PLAIN_ACROSS = PF_WAVE / PF_PLAIN_DOWN };

/* E: how a number lies in LDS and is read (pf_element.h); S: type of the sums. */
template <class E, class S> struct pf_plain {
  typedef typename E::stored element;
  typedef S sum;
  enum { STEPS = 4, HIGH = 16 / PF_PLAIN_DOWN, WIDE = 16 / PF_PLAIN_ACROSS, SUMS = HIGH * WIDE };
  struct left {
    pf_piece at[HIGH];
  };
  struct right {
    pf_piece at[WIDE];
  };
  struct sums {
    S at[SUMS];
  };
  PF_FN void clear(sums &to) {
    PF_UNROLL
    for (int s = 0; s < SUMS; s++) to.at[s] = 0;
  }
  PF_FN S get(const sums &of, int s) { return of.at[s]; }
  PF_FN int row(int s) { return pf_lane_of_wave() / PF_PLAIN_ACROSS + s / WIDE * PF_PLAIN_DOWN; }
  PF_FN int col(int s) { return pf_lane_of_wave() % PF_PLAIN_ACROSS + s % WIDE * PF_PLAIN_ACROSS; }
  PF_FN void load(left &to, const pf_piece *lines, int step) {
    PF_UNROLL
    for (int i = 0; i < HIGH; i++) to.at[i] = lines[pf_mma_place(row(i * WIDE), step)];
  }
  PF_FN void load(right &to, const pf_piece *lines, int step) {
    PF_UNROLL
    for (int j = 0; j < WIDE; j++) to.at[j] = lines[pf_mma_place(col(j), step)];
  }
  PF_FN S dot(const pf_piece &a, const pf_piece &b, S sum) {
#if defined(__gfx906__) || defined(__gfx1030__)
    if constexpr (sizeof(element) == 1) {
      PF_UNROLL
      for (int e = 0; e < 4; e++) sum = (S)__builtin_amdgcn_sdot4((int)a.at[e], (int)b.at[e], (int)sum, false);
      return sum;
    }
#endif
    PF_UNROLL
    for (int e = 0; e < PF_MMA_PIECE / (int)sizeof(element); e++)
      sum = pf_mul_add((S)E::load(pf_mma_part<element>(a, e)), (S)E::load(pf_mma_part<element>(b, e)), sum);
    return sum;
  }
  PF_FN void multiply(sums &to, const left &a, const right &b) {
    PF_UNROLL
    for (int s = 0; s < SUMS; s++) to.at[s] = dot(a.at[s / WIDE], b.at[s % WIDE], to.at[s]);
  }
};
typedef pf_plain<pf_f16, float> pf_plain_f16;
typedef pf_plain<pf_bf16, float> pf_plain_bf16;
typedef pf_plain<pf_of<int8_t>, uint32_t> pf_plain_i8;
typedef pf_plain<pf_of<float>, float> pf_plain_f32;
typedef pf_plain<pf_of<double>, double> pf_plain_f64;

#endif
