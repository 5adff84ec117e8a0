/* pf_mma.h without matrix instructions: multiply-adds of single numbers, or of four bytes where there is such a one.
 *
 * Eight lanes down, PF_WAVE/8 across: a lane has the sums of 2 rows and 4 (wave of 32) or 2 columns. A part of a chunk
 * is half a piece, 8 bytes of each of those lines in registers, one part after the other: what numbers of 16 bits are
 * widened to takes registers too. It is also what tests on the host run for all targets.
 */
#ifndef PF_MMA_PLAIN_H
#define PF_MMA_PLAIN_H

enum { PF_PLAIN_DOWN = 8, PF_PLAIN_ACROSS = PF_WAVE / PF_PLAIN_DOWN };

/* E: how a number lies in LDS and is read (pf_element.h); S: type of the sums. */
template <class E, class S> struct pf_plain {
  typedef typename E::stored element;
  typedef S sum;
  enum { STEPS = 8, TOGETHER = 1, HIGH = 16 / PF_PLAIN_DOWN, WIDE = 16 / PF_PLAIN_ACROSS, SUMS = HIGH * WIDE, SLOTS = WIDE };
  typedef pf_vector<uint32_t, 2> part;
  struct left {
    part at[HIGH];
  };
  struct right {
    part at[WIDE];
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
  PF_FN part part_of(const pf_piece *lines, int line, int step) {
    return ((const part *)(lines + pf_mma_place(line, step / 2)))[step % 2];
  }
  PF_FN void load(left &to, const pf_piece *lines, int step) {
    PF_UNROLL
    for (int i = 0; i < HIGH; i++) to.at[i] = part_of(lines, row(i * WIDE), step);
  }
  PF_FN int line(int n) { return col(n); }
  PF_FN int piece(int n, int step) { return step / 2; }
  PF_FN void put(right &to, int n, const pf_piece &given, int step) { to.at[n] = pf_mma_part<part>(given, step % 2); }
  PF_FN void load(right &to, const pf_piece *lines, int step) {
    PF_UNROLL
    for (int j = 0; j < WIDE; j++) to.at[j] = part_of(lines, line(j), step);
  }
  PF_FN S dot(const part &a, const part &b, S sum) {
#if defined(__gfx906__) || defined(__gfx1030__)
    if constexpr (sizeof(element) == 1) {
      PF_UNROLL
      for (int e = 0; e < 2; e++) sum = (S)__builtin_amdgcn_sdot4((int)a.at[e], (int)b.at[e], (int)sum, false);
      return sum;
    }
#endif
    PF_UNROLL
    for (int e = 0; e < (int)(sizeof(part) / sizeof(element)); e++)
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
