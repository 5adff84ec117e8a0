/* pf_mma.h by MFMA (CDNA, waves of 64). Lane 16*g + l holds piece g of line l, of both operands: all of a chunk's 64
 * bytes, for 1 to 4 instructions. Of the sums it holds column l; rows 4*g .. 4*g + 3, of float64 g, g + 4, g + 8, g + 12.
 *
 * gfx90a's instructions for float16 and bfloat16 take denormals for zero. Of bfloat16, whose exponents are float32's,
 * that is what float32 sums would lose as well; float16 goes as float32 there (kernels/matrix_cores.py).
 */
#ifndef PF_MMA_MFMA_H
#define PF_MMA_MFMA_H

typedef float pf_f32x4 __attribute__((ext_vector_type(4)));
typedef double pf_f64x4 __attribute__((ext_vector_type(4)));
typedef int pf_i32x4 __attribute__((ext_vector_type(4)));
typedef short pf_i16x2 __attribute__((ext_vector_type(2)));
typedef short pf_i16x4 __attribute__((ext_vector_type(4)));
typedef _Float16 pf_f16x4 __attribute__((ext_vector_type(4)));

/* I::call(a, b, c) multiplies parts of type I::part. */
template <class I> struct pf_mfma {
  typedef typename I::element element;
  typedef typename I::sum sum;
  typedef pf_piece left;
  typedef pf_piece right;
  typedef typename I::sums sums;
  enum { STEPS = 1, TOGETHER = 8, SUMS = 4, SLOTS = 1 };
  PF_FN void clear(sums &to) { to = (sums)0; }
  PF_FN sum get(const sums &of, int s) { return (sum)of[s]; }
  PF_FN int row(int s) {
    const int group = pf_lane_of_wave() / 16;
    return sizeof(sum) == 8 ? 4 * s + group : 4 * group + s;
  }
  PF_FN int col(int s) { return pf_lane_of_wave() % 16; }
  PF_FN int line(int n) { return pf_lane_of_wave() % 16; }
  PF_FN int piece(int n, int step) { return pf_lane_of_wave() / 16; }
  PF_FN void put(pf_piece &to, int n, const pf_piece &given, int step) { to = given; }
  PF_FN void load(pf_piece &to, const pf_piece *lines, int step) { to = lines[pf_mma_place(line(0), piece(0, step))]; }
  PF_FN void multiply(sums &to, const pf_piece &a, const pf_piece &b) {
    typedef typename I::part part;
    PF_UNROLL
    for (int q = 0; q < PF_MMA_PIECE / (int)sizeof(part); q++)
      to = I::call(pf_mma_part<part>(a, q), pf_mma_part<part>(b, q), to);
  }
};
#define PF_MFMA(name, E, S, V, P, instruction)                                                        \
  struct pf_mfma_##name {                                                                             \
    typedef E element;                                                                                \
    typedef S sum;                                                                                    \
    typedef V sums;                                                                                   \
    typedef P part;                                                                                   \
    PF_FN V call(P a, P b, V c) { return __builtin_amdgcn_mfma_##instruction(a, b, c, 0, 0, 0); }     \
  };                                                                                                  \
  typedef pf_mfma<pf_mfma_##name> pf_mma_##name;

PF_MFMA(f32, float, float, pf_f32x4, float, f32_16x16x4f32)
#if !defined(__gfx908__)
PF_MFMA(f64, double, double, pf_f64x4, double, f64_16x16x4f64)
#endif
#if defined(__gfx950__)
typedef _Float16 pf_f16x8 __attribute__((ext_vector_type(8)));
typedef __bf16 pf_bf16x8 __attribute__((ext_vector_type(8)));
PF_MFMA(f16, uint16_t, float, pf_f32x4, pf_f16x8, f32_16x16x32_f16)
PF_MFMA(bf16, uint16_t, float, pf_f32x4, pf_bf16x8, f32_16x16x32_bf16)
PF_MFMA(i8, int8_t, uint32_t, pf_i32x4, pf_i32x4, i32_16x16x64_i8)
#else
PF_MFMA(f16, uint16_t, float, pf_f32x4, pf_f16x4, f32_16x16x16f16)
#if defined(__gfx908__)
PF_MFMA(bf16, uint16_t, float, pf_f32x4, pf_i16x2, f32_16x16x8bf16)
#else
PF_MFMA(bf16, uint16_t, float, pf_f32x4, pf_i16x4, f32_16x16x16bf16_1k)
#endif
#if defined(__gfx908__) || defined(__gfx90a__)
PF_MFMA(i8, int8_t, uint32_t, pf_i32x4, int, i32_16x16x16i8)
#else
PF_MFMA(i8, int8_t, uint32_t, pf_i32x4, long, i32_16x16x32_i8)
#endif
#endif

#endif
