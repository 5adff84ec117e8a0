/* pf_mma.h by NVIDIA's mma.sync (sm_80 and newer, waves of 32). Lane 4*g + t holds piece t of lines g and g + 8, of both
 * operands: a chunk is two instructions along k, which take words 0, 1 and 2, 3 of a piece, for each half of the
 * columns. Sum s of a lane: row g, or g + 8 for s % 4 >= 2; column 2*t + s % 2, and 8 more for s >= 4.
 */
#ifndef PF_MMA_NVIDIA_H
#define PF_MMA_NVIDIA_H

/* I::call(sums, a, b): adds to four sums what four words of left (lines g, g + 8, then the second k of both) and two of
 * right give. */
template <class I> struct pf_mma_sync {
  typedef I instruction;
  typedef typename I::element element;
  typedef typename I::sum sum;
  enum { STEPS = 1, TOGETHER = 8, SUMS = 8, SLOTS = 2 };
  struct fragment {
    pf_piece at[2];
  };
  typedef fragment left;
  typedef fragment right;
  struct sums {
    sum at[SUMS];
  };
  PF_FN void clear(sums &to) {
    PF_UNROLL
    for (int s = 0; s < SUMS; s++) to.at[s] = 0;
  }
  PF_FN sum get(const sums &of, int s) { return of.at[s]; }
  PF_FN int row(int s) { return pf_lane_of_wave() / 4 + s % 4 / 2 * 8; }
  PF_FN int col(int s) { return pf_lane_of_wave() % 4 * 2 + s % 2 + s / 4 * 8; }
  PF_FN int line(int n) { return pf_lane_of_wave() / 4 + 8 * n; }
  PF_FN int piece(int n, int step) { return pf_lane_of_wave() % 4; }
  PF_FN void put(fragment &to, int n, const pf_piece &given, int step) { to.at[n] = given; }
  PF_FN void load(fragment &to, const pf_piece *lines, int step) {
    /* Not a loop: of one ptxas makes kernels that spill. */
    to.at[0] = lines[pf_mma_place(line(0), piece(0, step))];
    to.at[1] = lines[pf_mma_place(line(1), piece(1, step))];
  }
  PF_FN void multiply(sums &to, const fragment &a, const fragment &b) {
    PF_UNROLL
    for (int q = 0; q < 2; q++) {
      PF_UNROLL
      for (int h = 0; h < 2; h++) I::call(to.at + 4 * h, a, b.at[h], q);
    }
  }
};
#define PF_MMA_SYNC(name, E, S, C, instruction)                                                                   \
  struct pf_sync_##name {                                                                                         \
    typedef E element;                                                                                            \
    typedef S sum;                                                                                                \
    template <class F> PF_FN void call(S *c, const F &a, const pf_piece &b, int q) {                              \
      asm("mma.sync.aligned." instruction " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"      \
          : "+" C(c[0]), "+" C(c[1]), "+" C(c[2]), "+" C(c[3])                                                    \
          : "r"(a.at[0].at[2 * q]), "r"(a.at[1].at[2 * q]), "r"(a.at[0].at[2 * q + 1]),                           \
            "r"(a.at[1].at[2 * q + 1]), "r"(b.at[2 * q]), "r"(b.at[2 * q + 1]));                                  \
    }                                                                                                             \
  };                                                                                                              \
  typedef pf_mma_sync<pf_sync_##name> pf_mma_##name;

PF_MMA_SYNC(f16, uint16_t, float, "f", "m16n8k16.row.col.f32.f16.f16.f32")
PF_MMA_SYNC(bf16, uint16_t, float, "f", "m16n8k16.row.col.f32.bf16.bf16.f32")
PF_MMA_SYNC(tf32, float, float, "f", "m16n8k8.row.col.f32.tf32.tf32.f32")
PF_MMA_SYNC(i8, int8_t, uint32_t, "r", "m16n8k32.row.col.s32.s8.s8.s32")

/* Eight rows at a time, and four k. */
struct pf_sync_f64 {
  typedef double element;
  typedef double sum;
  template <class F> PF_FN void call(double *c, const F &a, const pf_piece &b, int q) {
    PF_UNROLL
    for (int i = 0; i < 2; i++)
      asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
          : "+d"(c[2 * i]), "+d"(c[2 * i + 1])
          : "d"(pf_mma_part<double>(a.at[i], q)), "d"(pf_mma_part<double>(b, q)));
  }
};
typedef pf_mma_sync<pf_sync_f64> pf_mma_f64;

#endif
