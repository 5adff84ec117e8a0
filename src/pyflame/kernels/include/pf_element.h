/* Element types of hand-written GPU kernels as template parameters: how one is stored and what it is computed in.
 *
 *   E::stored, E::wide        the type in memory, the type of a register          E::load(s), E::store(w)
 *   pf_of<T>                  numbers that are computed as they are stored: float, double, integers
 *   pf_bool, pf_f16, pf_bf16, pf_f8e4m3fn, pf_f8e4m3fnuz, pf_f8e5m2
 * Further what such kernels share:
 *   pf_pair<E>::of(low, high) two numbers of 16 bits in a word
 *   pf_quotient(n, d, magic)  n / d, for an int by multiplication with codegen's magic
 *   pf_lane_scan<LANES>       inclusive scan over neighbouring lanes
 *   pf_block_sum<THREADS>     combines one value of each thread; all get the result
 */
#ifndef PF_ELEMENT_H
#define PF_ELEMENT_H

#include "pf_gpu.h"

template <class T> struct pf_of {
  typedef T stored;
  typedef T wide;
  PF_FN T load(T x) { return x; }
  template <class W> PF_FN T store(W x) { return (T)x; }
};
struct pf_bool {
  typedef uint8_t stored;
  typedef uint8_t wide;
  PF_FN uint8_t load(uint8_t x) { return x; }
  template <class W> PF_FN uint8_t store(W x) { return x != 0; }
};
#define PF_SMALL_FLOAT(name, T)                                   \
  struct pf_##name {                                              \
    typedef T stored;                                             \
    typedef float wide;                                           \
    PF_FN float load(T x) { return pf_##name##_to_f32(x); }       \
    PF_FN T store(float x) { return pf_f32_to_##name(x); }        \
    PF_FN T store(double x) { return pf_f32_to_##name((float)x); } \
  };
PF_SMALL_FLOAT(f16, uint16_t)
PF_SMALL_FLOAT(bf16, uint16_t)
PF_SMALL_FLOAT(f8e4m3fn, uint8_t)
PF_SMALL_FLOAT(f8e4m3fnuz, uint8_t)
PF_SMALL_FLOAT(f8e5m2, uint8_t)

/* Two numbers in a word, the first in its low half. */
template <class E> struct pf_pair {
  PF_FN uint32_t of(float low, float high) { return E::store(low) | (uint32_t)E::store(high) << 16; }
};
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define PF_PAIR(name, type)                                                               \
  template <> struct pf_pair<pf_##name> {                                                 \
    PF_FN uint32_t of(float low, float high) {                                            \
      uint32_t out;                                                                       \
      asm("cvt.rn." type ".f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));           \
      return out;                                                                         \
    }                                                                                     \
  };
PF_PAIR(f16, "f16x2")
PF_PAIR(bf16, "bf16x2")
#endif

PF_FN int pf_quotient(int n, int64_t d, int64_t magic) { return pf_divide(n, magic); }
PF_FN int64_t pf_quotient(int64_t n, int64_t d, int64_t magic) { return n / d; }

/* member: the lane's number among the LANES that belong together. */
template <int LANES, class T, class F> PF_FN T pf_lane_scan(T x, int member, F f) {
  const int lane = pf_thread() % PF_WAVE;
  PF_UNROLL
  for (int w = 1; w < LANES; w *= 2) {
    const T before = pf_shuffle(x, member >= w ? lane - w : lane);
    x = member >= w ? f(before, x) : x;
  }
  return x;
}

/* `room`: LDS for one value per wave. There must be a barrier between two uses of it. */
template <int THREADS, class T, class F> PF_FN T pf_block_sum(T x, T *room, F f) {
  PF_UNROLL
  for (int w = 1; w < PF_WAVE; w *= 2) x = f(x, pf_shuffle_xor(x, w));
  constexpr int waves = THREADS / PF_WAVE;
  if (waves > 1) {
    if (pf_thread() % PF_WAVE == 0) room[pf_thread() / PF_WAVE] = x;
    pf_barrier();
    x = room[0];
    PF_UNROLL
    for (int w = 1; w < waves; w++) x = f(x, room[w]);
  }
  return x;
}

#endif
