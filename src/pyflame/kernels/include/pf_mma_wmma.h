/* pf_mma.h by WMMA (RDNA 3 and 4, waves of 32).
 *
 *   gfx11  both halves of a wave hold the same: lane l and l + 16 line l, 16 numbers of it for an instruction. Of the
 *          sums a lane holds column l, rows h, h + 2, .. h + 14 in half h.
 *   gfx12  half h of the wave holds piece 2*step + h of line l; rows 8*h .. 8*h + 7 of the sums.
 * Sums of 16-bit numbers are rounded after every two products on gfx11, and bfloat16 denormals count as zero.
 */
#ifndef PF_MMA_WMMA_H
#define PF_MMA_WMMA_H

typedef float pf_f32x8 __attribute__((ext_vector_type(8)));
typedef int pf_i32x8 __attribute__((ext_vector_type(8)));

#if defined(__GFX12__)
#define PF_WMMA_CALL(name) __builtin_amdgcn_wmma_##name##_w32_gfx12
typedef _Float16 pf_wmma_f16x __attribute__((ext_vector_type(8)));
typedef short pf_wmma_bf16x __attribute__((ext_vector_type(8)));
typedef int pf_wmma_i8x __attribute__((ext_vector_type(2)));
#else
#define PF_WMMA_CALL(name) __builtin_amdgcn_wmma_##name##_w32
typedef _Float16 pf_wmma_f16x __attribute__((ext_vector_type(16)));
typedef short pf_wmma_bf16x __attribute__((ext_vector_type(16)));
typedef int pf_wmma_i8x __attribute__((ext_vector_type(4)));
#endif

template <class I> struct pf_wmma {
  typedef typename I::element element;
  typedef typename I::sum sum;
  typedef typename I::part part;
  typedef typename I::sums sums;
#if defined(__GFX12__)
  enum { PIECES = 1, STEPS = 2, TOGETHER = 8, SUMS = 8, SLOTS = PIECES };
#else
  enum { PIECES = ((int)sizeof(part) + 15) / 16, STEPS = PF_MMA_PIECES / PIECES, TOGETHER = 8, SUMS = 8, SLOTS = PIECES };
#endif
  struct fragment {
    pf_piece at[PIECES];
  };
  typedef fragment left;
  typedef fragment right;
  PF_FN void clear(sums &to) { to = (sums)0; }
  PF_FN sum get(const sums &of, int s) { return (sum)of[s]; }
  PF_FN int row(int s) {
#if defined(__GFX12__)
    return s + 8 * (pf_lane_of_wave() / 16);
#else
    return 2 * s + pf_lane_of_wave() / 16;
#endif
  }
  PF_FN int col(int s) { return pf_lane_of_wave() % 16; }
  PF_FN int line(int n) { return pf_lane_of_wave() % 16; }
  PF_FN int piece(int n, int step) {
#if defined(__GFX12__)
    return 2 * step + pf_lane_of_wave() / 16;
#else
    return step * PIECES + n;
#endif
  }
  PF_FN void put(fragment &to, int n, const pf_piece &given, int step) { to.at[n] = given; }
  PF_FN void load(fragment &to, const pf_piece *lines, int step) {
    PF_UNROLL
    for (int n = 0; n < SLOTS; n++) to.at[n] = lines[pf_mma_place(line(n), piece(n, step))];
  }
  PF_FN void multiply(sums &to, const fragment &a, const fragment &b) {
    PF_UNROLL
    for (int q = 0; q < (int)(sizeof(fragment) / sizeof(part)); q++) {
      part x, y;
      __builtin_memcpy(&x, (const char *)a.at + q * (int)sizeof(part), sizeof(part));
      __builtin_memcpy(&y, (const char *)b.at + q * (int)sizeof(part), sizeof(part));
      to = I::call(x, y, to);
    }
  }
};
#define PF_WMMA(name, E, S, V, expression)                              \
  struct pf_wmma_##name {                                               \
    typedef E element;                                                  \
    typedef S sum;                                                      \
    typedef V sums;                                                     \
    typedef pf_wmma_##name##x part;                                     \
    PF_FN V call(part a, part b, V c) { return expression; }            \
  };                                                                    \
  typedef pf_wmma<pf_wmma_##name> pf_mma_##name;

PF_WMMA(f16, uint16_t, float, pf_f32x8, PF_WMMA_CALL(f32_16x16x16_f16)(a, b, c))
PF_WMMA(bf16, uint16_t, float, pf_f32x8, PF_WMMA_CALL(f32_16x16x16_bf16)(a, b, c))
PF_WMMA(i8, int8_t, uint32_t, pf_i32x8, PF_WMMA_CALL(i32_16x16x16_iu8)(true, a, true, b, c, false))

#endif
