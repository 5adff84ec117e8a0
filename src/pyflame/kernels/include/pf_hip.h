/* What a kernel of a user may say: the usual names of HIP and CUDA, where the compiler does not bring them itself.
 *
 * NVRTC and hiprtc know them; a plain clang with the AMDGPU target knows none, and there are no device libraries to call.
 *   __global__ __device__ __shared__ __constant__ __forceinline__ __launch_bounds__(threads[, waves])
 *   threadIdx blockIdx blockDim gridDim warpSize     __syncthreads __syncwarp __threadfence
 *   __shfl __shfl_xor __shfl_up __shfl_down, also with _sync; __ballot __any __all, __popc __clz __ffs
 *   atomicAdd Sub Min Max And Or Xor Exch CAS        min max abs, float2 .. uint4 with make_float2 ..
 *   exp log sin tanh pow sqrt fma ..., for double and float, also with the f of C: expf; __expf and its like
 * On top of it everything of pf_gpu.h. An emulation on the host (PF_EMULATE) brings pf_thread_index() and its like.
 */
#ifndef PF_HIP_H
#define PF_HIP_H

#include "pf_gpu.h"

/* pf_gpu.h has these mean what the CPU's text needs; here they are the compiler's own, or those below. */
#undef fabsf
#undef fabs
#undef floor
#undef copysign
#undef fmod
#undef fmodf
#undef exp
#undef exp2
#undef expm1
#undef log
#undef log2
#undef log10
#undef log1p
#undef sin
#undef cos
#undef tan
#undef asin
#undef acos
#undef atan
#undef atan2
#undef sinh
#undef cosh
#undef tanh
#undef asinh
#undef acosh
#undef atanh
#undef erf
#undef erfc
#undef pow
#undef lgamma_r

#if defined(__CUDACC__) /* HIP's names of what CUDA has with a mask */
#define PF_ALL_LANES 0xffffffffu
#define __shfl(...) __shfl_sync(PF_ALL_LANES, __VA_ARGS__)
#define __shfl_xor(...) __shfl_xor_sync(PF_ALL_LANES, __VA_ARGS__)
#define __shfl_up(...) __shfl_up_sync(PF_ALL_LANES, __VA_ARGS__)
#define __shfl_down(...) __shfl_down_sync(PF_ALL_LANES, __VA_ARGS__)
#define __ballot(p) __ballot_sync(PF_ALL_LANES, p)
#define __any(p) __any_sync(PF_ALL_LANES, p)
#define __all(p) __all_sync(PF_ALL_LANES, p)
#elif !defined(__HIPCC_RTC__)

#if defined(PF_EMULATE)
#define __global__
#define __device__
#define __constant__
#define __shared__ static
#define __launch_bounds__(...)
PF_FN int pf_lane() { return pf_thread() % PF_WAVE; }
#define PF_HIP_ATOMIC(name, what, change) \
  template <class T> PF_FN T name(T *at, typename pf_plain<T>::type x) { \
    const T old = *at; \
    *at = change; \
    return old; \
  }
#else
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __host__ __attribute__((host))
#define __constant__ __attribute__((constant))
#define __shared__ __attribute__((shared))
/* As HIP has it: the second number means waves per SIMD, not blocks. */
#define PF_BOUNDS_1(threads) __attribute__((amdgpu_flat_work_group_size(1, threads)))
#define PF_BOUNDS_2(threads, waves) \
  __attribute__((amdgpu_flat_work_group_size(1, threads), amdgpu_waves_per_eu(waves)))
#define PF_BOUNDS(a, b, which, ...) which
#define __launch_bounds__(...) PF_BOUNDS(__VA_ARGS__, PF_BOUNDS_2, PF_BOUNDS_1, )(__VA_ARGS__)
struct pf_index {
  unsigned x, y, z;
};
PF_FN pf_index pf_thread_index() {
  return {__builtin_amdgcn_workitem_id_x(), __builtin_amdgcn_workitem_id_y(), __builtin_amdgcn_workitem_id_z()};
}
PF_FN pf_index pf_block_index() {
  return {__builtin_amdgcn_workgroup_id_x(), __builtin_amdgcn_workgroup_id_y(), __builtin_amdgcn_workgroup_id_z()};
}
PF_FN pf_index pf_block_size() {
  return {__builtin_amdgcn_workgroup_size_x(), __builtin_amdgcn_workgroup_size_y(), __builtin_amdgcn_workgroup_size_z()};
}
PF_FN pf_index pf_grid_size() { /* the hardware counts threads; grids are whole blocks */
  const pf_index block = pf_block_size();
  return {__builtin_amdgcn_grid_size_x() / block.x, __builtin_amdgcn_grid_size_y() / block.y,
          __builtin_amdgcn_grid_size_z() / block.z};
}
PF_FN int pf_lane() { return (int)__builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0u)); }
#define PF_HIP_ATOMIC(name, what, change)                                            \
  template <class T> PF_FN T name(T *at, typename pf_plain<T>::type x) {             \
    return __hip_atomic_##what(at, x, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT); \
  }
typedef __SIZE_TYPE__ size_t;
#endif

#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define threadIdx (pf_thread_index())
#define blockIdx (pf_block_index())
#define blockDim (pf_block_size())
#define gridDim (pf_grid_size())
#define warpSize PF_WAVE
#define HIP_DYNAMIC_SHARED(type, name) extern __shared__ type name[];

PF_FN void __syncthreads() { pf_barrier(); }
PF_FN void __syncwarp(pf_u64 mask = ~0ull) { pf_wave_sync(); }
#if defined(PF_EMULATE)
PF_FN void __threadfence() {}
PF_FN void __threadfence_block() {}
#else
PF_FN void __threadfence() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent"); }
PF_FN void __threadfence_block() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "workgroup"); }
#endif

/* ---- waves ------------------------------------------------------------------------------------------------- */

/* A lane outside of the `width` neighbours gives the own value back. */
#define PF_HIP_SHUFFLE(name, K, which)                                                                                \
  template <class T> PF_FN T name(T x, K by, int width = PF_WAVE) {                                                   \
    const int me = pf_lane(), first = me & ~(width - 1), other = which;                                              \
    return pf_shuffle(x, other >= first && other < first + width ? other : me);                                      \
  }                                                                                                                   \
  template <class T> PF_FN T name##_sync(pf_u64 mask, T x, K by, int width = PF_WAVE) { return name(x, by, width); }
PF_HIP_SHUFFLE(__shfl, int, first + (by & (width - 1)))
PF_HIP_SHUFFLE(__shfl_xor, int, me ^ by)
PF_HIP_SHUFFLE(__shfl_up, unsigned, me - (int)by)
PF_HIP_SHUFFLE(__shfl_down, unsigned, me + (int)by)
PF_FN pf_u64 __ballot(int p) { return pf_ballot(p); }
PF_FN pf_u64 __ballot_sync(pf_u64 mask, int p) { return pf_ballot(p) & mask; }
PF_FN int __any(int p) { return pf_ballot(p) != 0; }
PF_FN int __all(int p) { return pf_ballot(!p) == 0; }
PF_FN int __any_sync(pf_u64 mask, int p) { return (pf_ballot(p) & mask) != 0; }
PF_FN int __all_sync(pf_u64 mask, int p) { return (pf_ballot(!p) & mask) == 0; }
PF_FN int __popc(unsigned x) { return __builtin_popcount(x); }
PF_FN int __popcll(pf_u64 x) { return __builtin_popcountll(x); }
PF_FN int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
PF_FN int __clzll(pf_i64 x) { return x ? __builtin_clzll((pf_u64)x) : 64; }
PF_FN int __ffs(int x) { return __builtin_ffs(x); }
PF_FN int __ffsll(pf_i64 x) { return __builtin_ffsll(x); }
PF_FN unsigned __float_as_uint(float x) { return pf_bits_f32(x); }
PF_FN int __float_as_int(float x) { return (int)pf_bits_f32(x); }
PF_FN float __uint_as_float(unsigned x) { return pf_from_bits_f32(x); }
PF_FN float __int_as_float(int x) { return pf_from_bits_f32((unsigned)x); }

/* ---- atomics ----------------------------------------------------------------------------------------------- */

template <class T> struct pf_plain { /* an argument of this type takes no part in finding T */
  typedef T type;
};
PF_HIP_ATOMIC(atomicAdd, fetch_add, old + x)
PF_HIP_ATOMIC(atomicMin, fetch_min, old < x ? old : x)
PF_HIP_ATOMIC(atomicMax, fetch_max, old > x ? old : x)
PF_HIP_ATOMIC(atomicAnd, fetch_and, old & x)
PF_HIP_ATOMIC(atomicOr, fetch_or, old | x)
PF_HIP_ATOMIC(atomicXor, fetch_xor, old ^ x)
PF_HIP_ATOMIC(atomicExch, exchange, x)
template <class T> PF_FN T atomicSub(T *at, typename pf_plain<T>::type x) { return atomicAdd(at, (T)-x); }
template <class T> PF_FN T atomicCAS(T *at, typename pf_plain<T>::type old, typename pf_plain<T>::type x) {
  typedef typename pf_unsigned<sizeof(T)>::type U;
  U seen, next;
  __builtin_memcpy(&seen, &old, sizeof(T));
  __builtin_memcpy(&next, &x, sizeof(T));
  seen = pf_atomic_swap_if((U *)at, seen, next);
  __builtin_memcpy(&old, &seen, sizeof(T));
  return old;
}

/* ---- functions --------------------------------------------------------------------------------------------- */

#define PF_HIP_MATH(X) \
  X(exp) X(exp2) X(expm1) X(log) X(log2) X(log10) X(log1p) X(sin) X(cos) X(tan) X(asin) X(acos) X(atan) X(sinh) X(cosh) \
  X(tanh) X(asinh) X(acosh) X(atanh) X(erf) X(erfc) X(lgamma)
#if defined(PF_EMULATE)
#include <math.h>
#else
#define PF_HIP_FUNCTION(name)                              \
  PF_FN float name(float x) { return pf_##name##_f32(x); } \
  PF_FN double name(double x) { return pf_##name##_f64(x); } \
  PF_FN float name##f(float x) { return pf_##name##_f32(x); }
PF_HIP_MATH(PF_HIP_FUNCTION)
#define PF_HIP_BUILTIN(name)                                  \
  PF_FN float name(float x) { return __builtin_##name##f(x); } \
  PF_FN double name(double x) { return __builtin_##name(x); }  \
  PF_FN float name##f(float x) { return __builtin_##name##f(x); }
PF_HIP_BUILTIN(sqrt)
PF_HIP_BUILTIN(fabs)
PF_HIP_BUILTIN(floor)
PF_HIP_BUILTIN(ceil)
PF_HIP_BUILTIN(trunc)
PF_HIP_BUILTIN(round)
PF_HIP_BUILTIN(rint)
#define PF_HIP_TWO(name, call32, call64)                                  \
  PF_FN float name(float x, float y) { return call32(x, y); }             \
  PF_FN double name(double x, double y) { return call64(x, y); }          \
  PF_FN float name##f(float x, float y) { return call32(x, y); }
PF_HIP_TWO(pow, pf_pow_f32, pf_pow_f64)
PF_HIP_TWO(atan2, pf_atan2_f32, pf_atan2_f64)
PF_HIP_TWO(fmod, pf_fmod_f32, pf_fmod_f64)
PF_HIP_TWO(copysign, __builtin_copysignf, __builtin_copysign)
PF_HIP_TWO(fmin, __builtin_fminf, __builtin_fmin)
PF_HIP_TWO(fmax, __builtin_fmaxf, __builtin_fmax)
PF_FN float fma(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
PF_FN double fma(double x, double y, double z) { return __builtin_fma(x, y, z); }
PF_FN float fmaf(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
PF_FN int abs(int x) { return x < 0 ? -x : x; }
PF_FN pf_i64 abs(pf_i64 x) { return x < 0 ? -x : x; }
PF_FN float abs(float x) { return __builtin_fabsf(x); }
PF_FN double abs(double x) { return __builtin_fabs(x); }
PF_FN bool isnan(double x) { return x != x; }
PF_FN bool isinf(double x) { return __builtin_fabs(x) == (double)INFINITY; }
PF_FN bool isfinite(double x) { return __builtin_fabs(x) < (double)INFINITY; }
#endif
PF_FN float rsqrt(float x) { return pf_rsqrt_f32(x); }
PF_FN double rsqrt(double x) { return pf_rsqrt_f64(x); }
PF_FN float rsqrtf(float x) { return pf_rsqrt_f32(x); }
#define __expf(x) expf(x)
#define __logf(x) logf(x)
#define __sinf(x) sinf(x)
#define __cosf(x) cosf(x)
#define __powf(x, y) powf(x, y)
#define __fdividef(x, y) ((float)(x) / (float)(y))
template <class A, class B> PF_FN auto min(A a, B b) -> decltype(a + b) { return pf_min(a, b); }
template <class A, class B> PF_FN auto max(A a, B b) -> decltype(a + b) { return pf_max(a, b); }

/* ---- neighbours that are loaded as one --------------------------------------------------------------------- */

#define PF_HIP_VECTOR(T, name)                                                             \
  struct alignas(2 * sizeof(T)) name##2 {                                                  \
    T x, y;                                                                                \
  };                                                                                       \
  struct name##3 {                                                                         \
    T x, y, z;                                                                             \
  };                                                                                       \
  struct alignas(4 * sizeof(T)) name##4 {                                                  \
    T x, y, z, w;                                                                          \
  };                                                                                       \
  PF_FN name##2 make_##name##2(T x, T y) { return {x, y}; }                                \
  PF_FN name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }                        \
  PF_FN name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
PF_HIP_VECTOR(float, float)
PF_HIP_VECTOR(int, int)
PF_HIP_VECTOR(unsigned, uint)
struct alignas(16) double2 {
  double x, y;
};
PF_FN double2 make_double2(double x, double y) { return {x, y}; }

#endif
#endif
