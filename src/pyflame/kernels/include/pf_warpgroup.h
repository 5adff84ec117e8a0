/* Products of a warpgroup, four waves with 16 rows each, for kernels that keep sums in registers and make operands of
 * them (attention): NVIDIA's, sm_90. 16-bit numbers, sums in float.
 *
 *   pf_lds_lines<LINES, PANELS>   lines in LDS, copied there asynchronously; wgmma takes them as its right operand
 *                            both ways: rows^T along the lines (scores), and columns of them (weights times)
 *   pf_part                  a lane's share of 16 rows and 16 k as a left operand; held(..) takes it from memory
 *   pf_warpgroup<E, T>       multiply(sums, left operand, lines), a group of instructions; wait<N>(sums): the sums of
 *                            all groups but the last N may be used
 * Lane 4 g + t of a wave has, of 16x16 sums, rows g and g + 8 and columns 2 t, 2 t + 1 and those 8 further: row(s), col(s).
 * Rounded to 16 bits, they are its part of a left operand.
 */
#ifndef PF_WARPGROUP_H
#define PF_WARPGROUP_H
#include "pf_mma_async.h"
#include "pf_mma_own.h"

struct pf_part {
  uint32_t at[4];
};
struct pf_group_sums {
  float at[8];
};

/* Barriers in LDS, eight bytes each: pf_mbarrier_wait waits for the phase of this parity to end, which takes as many
 * arrivals as pf_mbarrier_begin said. pf_registers_fewer, _more: what a warpgroup keeps of its registers, or gets.
 * The host has none of them: see PF_ROLES. */
#if defined(PF_EMULATE)
enum { PF_ROLES = 0 };
PF_FN void pf_mbarrier_begin(uint64_t *, int) {}
PF_FN void pf_mbarrier_arrive(uint64_t *) {}
PF_FN int pf_mbarrier_ended(uint64_t *, int) { return 1; }
PF_FN void pf_mbarrier_wait(uint64_t *, int) {}
PF_FN void pf_named_sync(int, int) {}
PF_FN void pf_named_arrive(int, int) {}
template <int N> PF_FN void pf_registers_fewer() {}
template <int N> PF_FN void pf_registers_more() {}
#else
enum { PF_ROLES = 1 };
PF_FN void pf_mbarrier_begin(uint64_t *at, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(pf_lds_address(at)), "r"(count) : "memory");
}
PF_FN void pf_mbarrier_arrive(uint64_t *at) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(pf_lds_address(at)) : "memory");
}
PF_FN int pf_mbarrier_ended(uint64_t *at, int parity) {
  int ended;
  asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2; selp.b32 %0, 1, 0, p; }"
               : "=r"(ended)
               : "r"(pf_lds_address(at)), "r"(parity)
               : "memory");
  return ended;
}
PF_FN void pf_mbarrier_wait(uint64_t *at, int parity) {
  asm volatile(
      "{ .reg .pred p;\n"
      "again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
      "@!p bra again; }" ::"r"(pf_lds_address(at)),
      "r"(parity)
      : "memory");
}
PF_FN void pf_named_sync(int id, int threads) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory"); }
PF_FN void pf_named_arrive(int id, int threads) { asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory"); }
template <int N> PF_FN void pf_registers_fewer() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N)); }
template <int N> PF_FN void pf_registers_more() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N)); }
#endif

/* As pf_panels along k: panels of 64 numbers, lines of 128 bytes in them, whose pieces are exchanged by the line's number. */
template <int LINES_, int PANELS> struct pf_lds_lines {
  enum {
    LINES = LINES_,
    TILES = 4 * PANELS, /* of 16 columns */
    PIECES = 8 * PANELS * LINES,
    STEP = 128 / 8, /* lines that a warpgroup copies at once */
  };
  PF_FN int place(int line, int number) {
    const int piece = (number / 64 * LINES + line) * 8 + number % 64 / 8;
    return piece ^ (piece >> 3 & 7);
  }
  /* By one warpgroup: lines from `first` on, of which there are `lines`, with `numbers` each; zeros beyond. `stride`: bytes. */
  template <class S>
  PF_FN void copy(pf_piece *to, const S *from, int first, int lines, int stride, int numbers) {
    const int row = pf_thread() % 128 / 8, piece = pf_thread() % 8;
    pf_piece *there = to + row * 8 + (piece ^ (row & 7));
    PF_UNROLL
    for (int panel = 0; panel < PANELS; panel++) {
      const int number = panel * 64 + piece * 8;
      const char *source = (const char *)(from + number) + (int64_t)(first + row) * stride;
      PF_UNROLL
      for (int line = 0; line < LINES; line += STEP) {
        pf_copy_async(there + (panel * LINES + line) * 8, source, first + row + line < lines && number < numbers);
        source += STEP * stride;
      }
    }
  }
};

/* Left operands. Rows of a wave, held in registers; `ROWS` rows in LDS, of which a warpgroup has 64. */
struct pf_held {
  const pf_part *at;
};
template <class L> struct pf_kept {
  const pf_piece *at;
  int group;
};

template <class E, class T> struct pf_warpgroup {
  typedef pf_group_sums sums;
  PF_FN int row(int s) { return pf_lane_of_wave() / 4 + s % 4 / 2 * 8; }
  PF_FN int col(int s) { return pf_lane_of_wave() % 4 * 2 + fixed(s); }
  PF_FN int fixed(int s) { return s % 2 + s / 4 * 8; }

  /* Sums of 16 columns as a part of a left operand. */
  PF_FN void round(pf_part &to, const sums &from) {
    PF_UNROLL
    for (int w = 0; w < 4; w++) to.at[w] = pf_pair<E>::of(from.at[2 * w], from.at[2 * w + 1]);
  }
  /* Sixteen rows of a wave from `first` on as left operands: words of two numbers, zeros beyond `rows` and `numbers`. */
  template <int SLICES, class S>
  PF_FN void hold(pf_part (&to)[SLICES], const S *from, int first, int rows, int stride, int numbers) {
    PF_UNROLL
    for (int n = 0; n < SLICES * 4; n++) {
      const int s = n % 4 * 2, line = first + row(s), number = n / 4 * 16 + col(s), has = line < rows && number < numbers;
      const uint32_t word = *(const uint32_t *)((const char *)(from + (has ? number : 0)) + (int64_t)(has ? line : 0) * stride);
      to[n / 4].at[n % 4] = has ? word : 0;
    }
  }

#if defined(PF_EMULATE)
  PF_FN float number(const pf_piece *lines, int place, int e) { return E::load(((const typename E::stored *)(lines + place))[e]); }
  /* k 16 slice .. of the lane's rows */
  PF_FN void left(float (&a)[2][16], const pf_held &from, int slice) {
    for (int n = 0; n < 32; n++) {
      const int r = n / 16, k = n % 16, lane = pf_lane_of_wave() / 4 * 4 + k % 8 / 2;
      const uint32_t word = pf_shuffle(from.at[slice].at[k / 8 * 2 + r], lane);
      a[r][k] = E::load((typename E::stored)(word >> k % 2 * 16));
    }
  }
  template <class L> PF_FN void left(float (&a)[2][16], const pf_kept<L> &from, int slice) {
    for (int n = 0; n < 32; n++) {
      const int line = from.group * 64 + pf_thread() / PF_WAVE % 4 * 16 + row(n / 16 * 2), k = slice * 16 + n % 16;
      a[n / 16][n % 16] = number(from.at, L::place(line, k), k % 8);
    }
  }
  template <class L, int SLICES, int ACROSS, int ADD, int TILES, class A>
  PF_FN void multiply(sums (&to)[TILES], const A &a, const pf_piece *b) {
    for (int n = 0; n < TILES * 8 && !ADD; n++) to[n / 8].at[n % 8] = 0.0f;
    for (int slice = 0; slice < SLICES; slice++) {
      float rows[2][16];
      left(rows, a, slice);
      for (int n = 0; n < TILES * 8 * 16; n++) {
        const int j = n / 128, s = n / 16 % 8, k = slice * 16 + n % 16, column = j * 16 + col(s);
        const int line = ACROSS ? k : column, along = ACROSS ? column : k;
        to[j].at[s] = pf_mul_add(rows[s % 4 / 2][n % 16], number(b, L::place(line, along), along % 8), to[j].at[s]);
      }
    }
  }
  PF_FN void begin() {}
  PF_FN void end() {}
  PF_FN void publish() {}
  template <int TILES> PF_FN void settle(sums (&)[TILES]) {}
  template <int N, int TILES> PF_FN void wait(sums (&)[TILES]) {}
#else
  template <class L, int SLICES, int ACROSS, int ADD, int TILES>
  PF_FN void multiply(sums (&to)[TILES], const pf_held &a, const pf_piece *b) {
    const uint64_t at = pf_wgmma_place<L::LINES>(b);
    PF_UNROLL
    for (int slice = 0; slice < SLICES; slice++) {
      if (slice || ADD)
        pf_wgmma<T, TILES>::template call_held<ACROSS, 1>(to, a.at[slice].at, at + slice_at<L, ACROSS>(slice));
      else
        pf_wgmma<T, TILES>::template call_held<ACROSS, 0>(to, a.at[slice].at, at);
    }
  }
  template <class L, int SLICES, int ACROSS, int ADD, int TILES, class K>
  PF_FN void multiply(sums (&to)[TILES], const pf_kept<K> &a, const pf_piece *b) {
    const uint64_t at = pf_wgmma_place<L::LINES>(b), rows = pf_wgmma_place<K::LINES>(a.at + a.group * 64 * 8);
    PF_UNROLL
    for (int slice = 0; slice < SLICES; slice++) {
      if (slice || ADD)
        pf_wgmma<T, TILES>::template call<0, ACROSS, 1>(to, rows + slice_at<K, 0>(slice), at + slice_at<L, ACROSS>(slice));
      else
        pf_wgmma<T, TILES>::template call<0, ACROSS, 0>(to, rows, at);
    }
  }
  /* From the first slice of k to another, in units of 16 bytes. */
  template <class L, int ACROSS> PF_FN int slice_at(int slice) {
    return ACROSS ? slice * 16 * 8 : slice / 4 * (L::LINES * 8) + slice % 4 * 2;
  }
  PF_FN void begin() { pf_wgmma_begin(); }
  PF_FN void end() { pf_wgmma_end(); }
  PF_FN void publish() { pf_wgmma_publish(); }
  /* What is computed before is, and nothing of what comes after: the compiler knows not which instructions wait, nor that
   * sums are not ready where theirs stand. */
  template <int TILES> PF_FN void settle(sums (&of)[TILES]) {
    PF_UNROLL
    for (int n = 0; n < TILES * 8; n++) asm volatile("" : "+f"(of[n / 8].at[n % 8])::"memory");
  }
  template <int N, int TILES> PF_FN void wait(sums (&of)[TILES]) {
    pf_wgmma_wait<N>();
    settle(of);
  }
#endif
};

#endif
