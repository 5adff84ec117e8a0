/* What GPU kernels are written against: one text for AMD (clang, hiprtc) and NVIDIA (NVRTC), with no system header.
 *
 * The functions of pf_math.h, pf_half.h and pf_philox.h are the CPU's own text, but for what the hardware does (2^x,
 * reciprocals, conversions to 16 bits on NVIDIA); here they get C++ overloads for their generic names. Besides those:
 *   PF_GLOBAL(threads) name(...)   a kernel with at most that many threads per block      PF_SHARED   LDS
 *   PF_GLOBAL_ALONE(threads)       the same on NVIDIA, with all registers for one block, which may share them out anew
 *   pf_thread(), pf_block()        position in the one-dimensional block and grid         pf_barrier()
 *   pf_await()                     every kernel's beginning: behind it is done what was launched before
 *   pf_read_now(at)                16 bytes, read here and not behind a pf_await that follows
 *   pf_shuffle_xor(x, mask)        x of the lane whose number differs by mask, any type of 1, 2, 4 or 8 bytes
 *   pf_shuffle(x, lane)            x of that lane
 *   pf_ballot(p)                   a bit for each lane of the wave: whether p holds there
 *   pf_wave_sync()                 what lanes of the wave wrote to LDS before is seen by its other lanes after
 *   pf_atomic_add, pf_atomic_max   on integers of 4 and 8 bytes, in memory or LDS, with no order among them
 *   pf_atomic_load                 4 or 8 bytes as one: a plain copy may be made of bytes that others change meanwhile
 *   pf_atomic_store                4 bytes where other threads may store at the same time
 *   pf_atomic_update(at, f)        *at = f(*at), for any type of 1, 2, 4 or 8 bytes; what another changes meanwhile counts
 *   pf_vector<T, N>                N neighbours that are loaded and stored as one
 *   pf_put_f8e4m3fn(to, x)         a vector of 8-bit floats from floats, and pf_f8e4m3fn_at(x, k) back: pf_float8.h
 *   pf_divide(n, magic)            0 <= n < 2^31 divided by what core/shape.py made the magic of
 *   pf_checked(i, size, err, no)   an index, wrapped once; outside of the axis it is reported in err and read as 0
 *   pf_bad_index(err, no, i, size) the report: the first one of a plan stays
 *   pf_line(index, key, keys, size, err, no)  the line that is written for a key of an index, -1: none
 *   pf_put, pf_get                 partial results in scratch, 8 bytes each
 * PF_WAVE, the lanes of a wave, comes from the compiler's command line. All threads of a block are full waves.
 * A test on the host defines PF_EMULATE and brings thread, block, barrier, shuffles and atomics itself.
 */
#ifndef PF_GPU_H
#define PF_GPU_H

#ifndef PF_WAVE
#error "PF_WAVE must be defined: the target's wave size"
#endif

typedef signed char pf_i8;
typedef unsigned char pf_u8;
typedef short pf_i16;
typedef unsigned short pf_u16;
typedef int pf_i32;
typedef unsigned int pf_u32;
typedef long long pf_i64;
typedef unsigned long long pf_u64;
/* Macros, since a compiler may have typedefs of these names already, and int64_t is long for some. */
#define int8_t pf_i8
#define uint8_t pf_u8
#define int16_t pf_i16
#define uint16_t pf_u16
#define int32_t pf_i32
#define uint32_t pf_u32
#define int64_t pf_i64
#define uint64_t pf_u64
#ifndef INT8_MIN
#define INT8_MIN (-128)
#define INT8_MAX 127
#define INT16_MIN (-32768)
#define INT16_MAX 32767
#define INT32_MIN (-2147483647 - 1)
#define INT32_MAX 2147483647
#define INT64_MIN (-9223372036854775807ll - 1)
#define INT64_MAX 9223372036854775807ll
#endif
#ifndef INFINITY
#define INFINITY PF_INF
#define NAN PF_NAN
#endif
#ifndef M_PI
#define M_PI 3.14159265358979323846
#endif

typedef union {
  double f;
  pf_i64 i;
} pf_word;

#define PF_RESTRICT __restrict__
#define PF_HAS_FMA 1
#define PF_TRIG_LIMIT 0x1p47f

/* ---- what differs between compilers ------------------------------------------------------------------------ */

#if defined(PF_EMULATE)
#define PF_FN static inline __attribute__((always_inline, unused))
#define PF_UNROLL
#define PF_OWN_LIBM 1
#define PF_HIDE(word) (void)0
PF_FN void pf_await() {}
PF_FN pf_word pf_uniform_at(const pf_word *uni, pf_i64 n) { return uni[n]; }
#elif defined(__CUDACC__)
#define PF_FN static __device__ __forceinline__
#define PF_GLOBAL(threads) extern "C" __global__ void __launch_bounds__(threads)
#define PF_GLOBAL_ALONE(threads) extern "C" __global__ void __launch_bounds__(threads, 1)
#define PF_CLUSTER(blocks) __cluster_dims__(blocks, 1, 1)
#define PF_SHARED __shared__
#define PF_UNROLL _Pragma("unroll")
#define PF_OWN_LIBM 0
#define PF_HIDE(word) asm("" : "+r"(word))
PF_FN pf_word pf_uniform_at(const pf_word *uni, pf_i64 n) { return uni[n]; }
#define __builtin_memcpy memcpy
#define __builtin_fmaf fmaf
#define __builtin_fma fma
#define __builtin_sqrtf sqrtf
#define __builtin_sqrt sqrt
#define __builtin_floorf floorf
#define __builtin_floor floor
#define __builtin_ceilf ceilf
#define __builtin_ceil ceil
#define __builtin_rintf rintf
#define __builtin_rint rint
#define __builtin_truncf truncf
#define __builtin_trunc trunc
#define __builtin_fabsf fabsf
#define __builtin_fabs fabs
#define __builtin_copysignf copysignf
#define __builtin_copysign copysign
#define __builtin_inff() __int_as_float(0x7f800000)
#define __builtin_nanf(text) __int_as_float(0x7fc00000)
PF_FN int pf_thread() { return threadIdx.x; }
PF_FN int pf_block() { return blockIdx.x; }
PF_FN void pf_barrier() { __syncthreads(); }
/* A graph's launch may begin when all blocks of the one before it have (sm_90 and newer), and so may the next one. */
#if __CUDA_ARCH__ >= 900
PF_FN void pf_await() {
  pf_u32 threads;
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  asm volatile("griddepcontrol.wait;" ::: "memory");
  /* Never so, but not known to be: the compiler moves loads of what nobody writes, as it thinks, over the wait, and
   * not over what may end the program. */
  asm volatile("mov.u32 %0, %%ntid.x;" : "=r"(threads));
  if (!threads) __trap();
}
#else
PF_FN void pf_await() {}
#endif
PF_FN int pf_shuffle_xor_word(int x, int mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }
PF_FN int pf_shuffle_word(int x, int lane) { return __shfl_sync(0xffffffffu, x, lane); }
PF_FN pf_u64 pf_ballot(int p) { return __ballot_sync(0xffffffffu, p); }
PF_FN void pf_wave_sync() { __syncwarp(); }
PF_FN int pf_count_bits(pf_u64 x) { return __popcll(x); }
PF_FN pf_u32 pf_atomic_load(const pf_u32 *at) { return *(const volatile pf_u32 *)at; }
PF_FN pf_u64 pf_atomic_load(const pf_u64 *at) { return *(const volatile pf_u64 *)at; }
PF_FN void pf_atomic_store(pf_u32 *at, pf_u32 x) { *(volatile pf_u32 *)at = x; }
PF_FN pf_u32 pf_atomic_add(pf_u32 *at, pf_u32 x) { return atomicAdd(at, x); }
PF_FN pf_u64 pf_atomic_add(pf_u64 *at, pf_u64 x) { return atomicAdd(at, x); }
PF_FN pf_u32 pf_atomic_max(pf_u32 *at, pf_u32 x) { return atomicMax(at, x); }
PF_FN pf_u32 pf_atomic_swap_if(pf_u32 *at, pf_u32 old, pf_u32 x) { return atomicCAS(at, old, x); }
PF_FN pf_u64 pf_atomic_swap_if(pf_u64 *at, pf_u64 old, pf_u64 x) { return atomicCAS(at, old, x); }
PF_FN pf_u32 pf_mul_high(pf_u32 a, pf_u32 b) { return __umulhi(a, b); }
#define PF_HARDWARE_EXP(x) expf(x)
#define PF_HARDWARE_EXP2(x) pf_hardware_exp2(x)
#define PF_HARDWARE_RECIPROCAL(x) pf_hardware_reciprocal(x)
PF_FN float pf_hardware_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
PF_FN float pf_hardware_reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
PF_FN int pf_first(pf_i64 *record, pf_i64 value) {
  return atomicCAS((pf_u64 *)record, 0ull, (pf_u64)value) == 0ull;
}
#else
#define PF_FN static inline __attribute__((device, always_inline, unused))
/* Not launch_bounds: clang takes that for NVIDIA only, and would keep registers free for blocks of 1024 threads. */
#define PF_GLOBAL(threads) extern "C" __attribute__((global, amdgpu_flat_work_group_size(1, threads))) void
#define PF_SHARED static __attribute__((shared))
#define PF_UNROLL _Pragma("unroll")
#define PF_OWN_LIBM 1
#define PF_HIDE(word) asm("" : "+v"(word))
/* Uniforms are copied from the host just before a graph is replayed, and its kernels may begin without the invalidation
 * of the scalar cache (ROCm/hip issue 3902): a vector load goes around it. */
PF_FN pf_word pf_uniform_at(const pf_word *uni, pf_i64 n) {
  pf_u32 zero = 0;
  PF_HIDE(zero);
  return uni[n + zero];
}
PF_FN int pf_thread() { return (int)__builtin_amdgcn_workitem_id_x(); }
PF_FN int pf_block() { return (int)__builtin_amdgcn_workgroup_id_x(); }
PF_FN void pf_await() {}
PF_FN void pf_barrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
/* What crosses lanes inside the vector unit takes a few cycles, and often none, as part of the next instruction; LDS
 * takes some sixty. Rows are 16 lanes; a rotation by 8 is a xor, and so is a mirror of 8 lanes with one of 4 in it. */
#define PF_DPP(x, control) __builtin_amdgcn_update_dpp(0, x, control, 0xf, 0xf, true)
PF_FN int pf_shuffle_xor_word(int x, int mask) {
  if (__builtin_constant_p(mask)) switch (mask) {
    case 1: return PF_DPP(x, 0xb1); /* quad_perm 1 0 3 2 */
    case 2: return PF_DPP(x, 0x4e); /* quad_perm 2 3 0 1 */
    case 8: return PF_DPP(x, 0x128); /* row_ror 8 */
#if PF_WAVE == 32
    case 4: return PF_DPP(x, 0x164); /* row_xmask 4 */
    case 16: return __builtin_amdgcn_permlanex16(x, x, 0x76543210, 0xfedcba98, false, false);
#else
    case 4: return PF_DPP(PF_DPP(x, 0x141), 0x1b); /* row_half_mirror, quad_perm 3 2 1 0 */
    case 16: return __builtin_amdgcn_ds_swizzle(x, 0x401f); /* needs no register for the lanes */
#endif
    }
  return __builtin_amdgcn_ds_bpermute(((pf_thread() % PF_WAVE) ^ mask) << 2, x);
}
PF_FN int pf_shuffle_word(int x, int lane) { return __builtin_amdgcn_ds_bpermute(lane << 2, x); }
#if !__has_builtin(__builtin_amdgcn_ballot_w64) && !__has_builtin(__builtin_amdgcn_ballot_w32)
PF_FN pf_u64 pf_ballot(int p) { return __builtin_amdgcn_uicmp((pf_u32)(p != 0), 0u, 33); } /* old hiprtc; 33: differ */
#elif PF_WAVE == 64
PF_FN pf_u64 pf_ballot(int p) { return __builtin_amdgcn_ballot_w64(p != 0); }
#else
PF_FN pf_u64 pf_ballot(int p) { return __builtin_amdgcn_ballot_w32(p != 0); }
#endif
PF_FN void pf_wave_sync() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
  __builtin_amdgcn_wave_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}
PF_FN int pf_count_bits(pf_u64 x) { return __builtin_popcountll(x); }
#define PF_ATOMIC(name, what, T) \
  PF_FN T name(T *at, T x) { return __hip_atomic_##what(at, x, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT); }
PF_ATOMIC(pf_atomic_add, fetch_add, pf_u32)
PF_ATOMIC(pf_atomic_add, fetch_add, pf_u64)
PF_ATOMIC(pf_atomic_max, fetch_max, pf_u32)
PF_FN pf_u32 pf_atomic_load(const pf_u32 *at) { return __hip_atomic_load(at, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT); }
PF_FN pf_u64 pf_atomic_load(const pf_u64 *at) { return __hip_atomic_load(at, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT); }
PF_FN void pf_atomic_store(pf_u32 *at, pf_u32 x) { __hip_atomic_store(at, x, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT); }
#define PF_SWAP_IF(T)                                                                                                \
  PF_FN T pf_atomic_swap_if(T *at, T old, T x) {                                                                     \
    __hip_atomic_compare_exchange_strong(at, &old, x, __ATOMIC_RELAXED, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT); \
    return old;                                                                                                      \
  }
PF_SWAP_IF(pf_u32)
PF_SWAP_IF(pf_u64)
PF_FN pf_u32 pf_mul_high(pf_u32 a, pf_u32 b) { return (pf_u32)(((pf_u64)a * b) >> 32); }
#if __has_builtin(__builtin_amdgcn_exp2f)
#define PF_HARDWARE_EXP(x) pf_hardware_exp(x)
#define PF_HARDWARE_EXP2(x) __builtin_amdgcn_exp2f(x)
#define PF_HARDWARE_RECIPROCAL(x) __builtin_amdgcn_rcpf(x)
/* x = n ln2 + r as in pf_math_f32.h; the instruction for 2^x knows no denormals, the one that scales does. */
PF_FN float pf_hardware_exp(float x) {
  const float shifted = __builtin_fmaf(x, 1.44269504f, 12582912.0f), n = shifted - 12582912.0f;
  float r = __builtin_fmaf(n, -0.693145752f, x);
  r = __builtin_fmaf(n, -1.42860677e-06f, r);
  int power;
  __builtin_memcpy(&power, &shifted, 4);
  float y = __builtin_amdgcn_ldexpf(__builtin_amdgcn_exp2f(r * 1.44269504f), power - 0x4b400000);
  y = x < -104.0f ? 0.0f : y;
  return x > 89.0f ? __builtin_inff() : y;
}
#endif
/* The record lies in the device's own memory: an atomic over the bus needs a root complex that knows them. */
PF_FN int pf_first(pf_i64 *record, pf_i64 value) {
  pf_i64 none = 0;
  return __hip_atomic_compare_exchange_strong(record, &none, value, __ATOMIC_RELAXED, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
#endif

/* ---- functions: the CPU's text, libm aside ----------------------------------------------------------------- */

#define PF_FMA(a, b, c) __builtin_fmaf(a, b, c)
#define PF_FMAD(a, b, c) __builtin_fma(a, b, c)
#if PF_OWN_LIBM
#define fabsf(x) __builtin_fabsf(x)
#define fabs(x) __builtin_fabs(x)
#define floor(x) __builtin_floor(x)
#define copysign(x, y) __builtin_copysign(x, y)
#define fmod(x, y) pf_libm_fmod(x, y)
#define fmodf(x, y) (float)pf_libm_fmod(x, y)
#define exp(x) pf_libm_exp(x)
#define exp2(x) pf_libm_exp2(x)
#define expm1(x) pf_libm_expm1(x)
#define log(x) pf_libm_log(x)
#define log2(x) pf_libm_log2(x)
#define log10(x) pf_libm_log10(x)
#define log1p(x) pf_libm_log1p(x)
#define sin(x) pf_libm_sin(x)
#define cos(x) pf_libm_cos(x)
#define tan(x) pf_libm_tan(x)
#define asin(x) pf_libm_asin(x)
#define acos(x) pf_libm_acos(x)
#define atan(x) pf_libm_atan(x)
#define atan2(y, x) pf_libm_atan2(y, x)
#define sinh(x) pf_libm_sinh(x)
#define cosh(x) pf_libm_cosh(x)
#define tanh(x) pf_libm_tanh(x)
#define asinh(x) pf_libm_asinh(x)
#define acosh(x) pf_libm_acosh(x)
#define atanh(x) pf_libm_atanh(x)
#define erf(x) pf_libm_erf(x)
#define erfc(x) pf_libm_erfc(x)
#define pow(x, y) pf_libm_pow(x, y)
#define lgamma_r(x, sign) pf_libm_lgamma_r(x, sign)
#include "pf_math_f32.h"
#include "pf_gpu_f64.h"
#else
PF_FN double pf_cuda_lgamma_r(double x, int *sign) {
  *sign = 1;
  return lgamma(x);
}
#define lgamma_r(x, sign) pf_cuda_lgamma_r(x, sign)
#endif
#include "pf_math.h"
#include "pf_half.h"
#include "pf_philox.h"

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800 /* one instruction that keeps a NaN */
PF_FN float pf_hardware_max(float a, float b) {
  float y;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}
#define pf_max_f32(a, b) pf_hardware_max(a, b)
#endif

/* ---- generic names ----------------------------------------------------------------------------------------- */

#define PF_UNARY(name, R32, R64)                          \
  PF_FN R32 pf_##name(float x) { return pf_##name##_f32(x); } \
  PF_FN R64 pf_##name(double x) { return pf_##name##_f64(x); }
#define PF_UNARY_FLOAT(name) PF_UNARY(name, float, double)
PF_UNARY_FLOAT(exp)
PF_UNARY_FLOAT(exp_near)
PF_UNARY_FLOAT(exp2)
PF_UNARY_FLOAT(expm1)
PF_UNARY_FLOAT(log)
PF_UNARY_FLOAT(log2)
PF_UNARY_FLOAT(log10)
PF_UNARY_FLOAT(log1p)
PF_UNARY_FLOAT(sin)
PF_UNARY_FLOAT(cos)
PF_UNARY_FLOAT(tan)
PF_UNARY_FLOAT(asin)
PF_UNARY_FLOAT(acos)
PF_UNARY_FLOAT(atan)
PF_UNARY_FLOAT(sinh)
PF_UNARY_FLOAT(cosh)
PF_UNARY_FLOAT(tanh)
PF_UNARY_FLOAT(asinh)
PF_UNARY_FLOAT(acosh)
PF_UNARY_FLOAT(atanh)
PF_UNARY_FLOAT(erf)
PF_UNARY_FLOAT(erfc)
PF_UNARY_FLOAT(erfinv)
PF_UNARY_FLOAT(lgamma)
PF_UNARY_FLOAT(digamma)
PF_UNARY_FLOAT(i0)
PF_UNARY_FLOAT(i0e)
PF_UNARY_FLOAT(i1)
PF_UNARY_FLOAT(i1e)
PF_UNARY_FLOAT(sigmoid)
PF_UNARY_FLOAT(silu)
PF_UNARY_FLOAT(gelu)
PF_UNARY_FLOAT(gelu_slope)
PF_UNARY_FLOAT(gelu_tanh)
PF_UNARY_FLOAT(gelu_tanh_slope)
PF_UNARY_FLOAT(softplus)
PF_UNARY_FLOAT(sqrt)
PF_UNARY_FLOAT(rsqrt)
PF_UNARY_FLOAT(floor)
PF_UNARY_FLOAT(ceil)
PF_UNARY_FLOAT(round)
PF_UNARY_FLOAT(trunc)
PF_UNARY_FLOAT(mantissa)
PF_UNARY_FLOAT(exponent)
PF_UNARY(isnan, int, int)
PF_UNARY(isinf, int, int)
PF_UNARY(isfinite, int, int)
#define PF_INTEGERS(name)                                       \
  PF_FN int32_t pf_##name(int32_t x) { return pf_##name##_i32(x); } \
  PF_FN uint32_t pf_##name(uint32_t x) { return pf_##name##_u32(x); } \
  PF_FN int64_t pf_##name(int64_t x) { return pf_##name##_i64(x); } \
  PF_FN uint64_t pf_##name(uint64_t x) { return pf_##name##_u64(x); }
PF_UNARY_FLOAT(abs)
PF_UNARY_FLOAT(sign)
PF_INTEGERS(abs)
PF_INTEGERS(sign)

/* Two arguments meet in the type of their sum, as in C. */
#define PF_TWO_OF(name, T, S) \
  PF_FN T pf_##name##_of(T a, T b) { return pf_##name##_##S(a, b); }
#define PF_TWO(name)                                                                                              \
  template <class A, class B> PF_FN auto pf_##name(A a, B b) -> decltype(a + b) {                                 \
    return pf_##name##_of((decltype(a + b))a, (decltype(a + b))b);                                                \
  }
#define PF_TWO_FLOAT(name)     \
  PF_TWO_OF(name, float, f32)  \
  PF_TWO_OF(name, double, f64)
#define PF_TWO_NUMBER(name)       \
  PF_TWO_FLOAT(name)              \
  PF_TWO_OF(name, int32_t, i32)   \
  PF_TWO_OF(name, uint32_t, u32)  \
  PF_TWO_OF(name, int64_t, i64)   \
  PF_TWO_OF(name, uint64_t, u64)  \
  PF_TWO(name)
PF_TWO_FLOAT(pow)
PF_TWO(pow)
PF_TWO_FLOAT(atan2)
PF_TWO(atan2)
PF_TWO_FLOAT(fmod)
PF_TWO(fmod)
PF_TWO_FLOAT(copysign)
PF_TWO(copysign)
PF_TWO_FLOAT(nextafter)
PF_TWO(nextafter)
PF_TWO_FLOAT(zeta)
PF_TWO(zeta)
PF_TWO_FLOAT(igamma)
PF_TWO(igamma)
PF_TWO_FLOAT(igammac)
PF_TWO(igammac)
PF_TWO_FLOAT(chebyshev_polynomial_t)
PF_TWO(chebyshev_polynomial_t)
PF_TWO_FLOAT(chebyshev_polynomial_u)
PF_TWO(chebyshev_polynomial_u)
PF_TWO_FLOAT(chebyshev_polynomial_v)
PF_TWO(chebyshev_polynomial_v)
PF_TWO_FLOAT(chebyshev_polynomial_w)
PF_TWO(chebyshev_polynomial_w)
PF_TWO_FLOAT(hermite_polynomial_h)
PF_TWO(hermite_polynomial_h)
PF_TWO_FLOAT(hermite_polynomial_he)
PF_TWO(hermite_polynomial_he)
PF_TWO_FLOAT(laguerre_polynomial_l)
PF_TWO(laguerre_polynomial_l)
PF_TWO_FLOAT(legendre_polynomial_p)
PF_TWO(legendre_polynomial_p)
PF_TWO_NUMBER(max)
PF_TWO_NUMBER(min)
PF_TWO_NUMBER(mod)
PF_TWO_NUMBER(floordiv)
#define pf_clamp(x, low, high) pf_min(pf_max(x, low), high)
PF_TWO_OF(gcd, int32_t, i32)
PF_TWO_OF(gcd, int64_t, i64)
PF_TWO_OF(gcd, uint32_t, u32)
PF_TWO_OF(gcd, uint64_t, u64)
PF_TWO(gcd)
PF_TWO_OF(lcm, int32_t, i32)
PF_TWO_OF(lcm, int64_t, i64)
PF_TWO_OF(lcm, uint32_t, u32)
PF_TWO_OF(lcm, uint64_t, u64)
PF_TWO(lcm)
PF_FN uint64_t pf_ipow_of(uint64_t a, uint64_t b) { return pf_ipow_u64(a, b); }
PF_FN int64_t pf_ipow_of(int64_t a, int64_t b) { return pf_ipow_i64(a, b); }
PF_FN int64_t pf_ipow_of(int32_t a, int32_t b) { return pf_ipow_i64(a, b); }
PF_FN int64_t pf_ipow_of(uint32_t a, uint32_t b) { return pf_ipow_i64(a, b); }
template <class A, class B> PF_FN auto pf_ipow(A a, B b) -> decltype(pf_ipow_of(a + b, a + b)) {
  return pf_ipow_of((decltype(a + b))a, (decltype(a + b))b);
}

#define PF_CAST(T, S)                                           \
  PF_FN T pf_to_##S(float x) { return pf_to_##S##_f32(x); }     \
  PF_FN T pf_to_##S(double x) { return pf_to_##S##_f64(x); }    \
  template <class A> PF_FN T pf_to_##S(A x) { return pf_to_##S##_int((int64_t)x); }
PF_CAST(int8_t, i8)
PF_CAST(uint8_t, u8)
PF_CAST(int16_t, i16)
PF_CAST(uint16_t, u16)
PF_CAST(int32_t, i32)
PF_CAST(uint32_t, u32)
PF_CAST(int64_t, i64)
PF_CAST(uint64_t, u64)
PF_CAST(uint8_t, bool)

/* ---- threads and memory ------------------------------------------------------------------------------------ */

template <class T, int N> struct alignas(sizeof(T) * N) pf_vector {
  T at[N];
};

template <class V> PF_FN V pf_read_now(const V *at) {
  static_assert(sizeof(V) == 16, "a piece of 16 bytes");
#if defined(__CUDACC__)
  pf_u32 words[4];
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "l"(at));
  V piece;
  __builtin_memcpy(&piece, words, 16);
  return piece;
#else
  return *at;
#endif
}

template <int BYTES> struct pf_unsigned {
  typedef pf_u32 type;
};
template <> struct pf_unsigned<8> {
  typedef pf_u64 type;
};

#define PF_SHUFFLE(name)                                                                          \
  template <class T> PF_FN T name(T x, int which) {                                              \
    int words[sizeof(T) > 4 ? 2 : 1] = {0};                                                      \
    __builtin_memcpy(words, &x, sizeof(T));                                                      \
    PF_UNROLL                                                                                    \
    for (int n = 0; n < (sizeof(T) > 4 ? 2 : 1); n++) words[n] = name##_word(words[n], which);   \
    __builtin_memcpy(&x, words, sizeof(T));                                                      \
    return x;                                                                                    \
  }
PF_SHUFFLE(pf_shuffle_xor)
PF_SHUFFLE(pf_shuffle)

template <class T, class F> PF_FN void pf_atomic_update(T *at, F f) {
  if constexpr (sizeof(T) >= 4) {
    typedef typename pf_unsigned<sizeof(T)>::type U;
    U seen, now = pf_atomic_load((const U *)at); /* a guess that is whole: the exchange says whether it was right */
    do {
      T x;
      seen = now;
      __builtin_memcpy(&x, &seen, sizeof(T));
      x = f(x);
      U next;
      __builtin_memcpy(&next, &x, sizeof(T));
      now = next == seen ? seen : pf_atomic_swap_if((U *)at, seen, next);
    } while (now != seen);
  } else { /* by way of the aligned word around it */
    const pf_u64 address = (pf_u64)at;
    pf_u32 *word = (pf_u32 *)(address & ~3ull), seen, now = pf_atomic_load(word);
    const int shift = 8 * (int)(address & 3);
    const pf_u32 mask = (sizeof(T) == 1 ? 0xffu : 0xffffu) << shift;
    do {
      seen = now;
      const pf_u32 next = (seen & ~mask) | ((pf_u32)f((T)(seen >> shift)) << shift & mask);
      now = next == seen ? seen : pf_atomic_swap_if(word, seen, next);
    } while (now != seen);
  }
}

/* An element of a vector of bf16: the upper half of a word is a float already, but for the other half below it. */
template <int N> PF_FN float pf_bf16_at(const uint16_t (&x)[N], int k) {
  pf_u32 word;
  __builtin_memcpy(&word, &x[k & ~1], 4);
  return pf_from_bits_f32(k & 1 ? word & 0xffff0000u : word << 16);
}

#include "pf_float8.h"

/* The same vector, but to a compiler another one: what is made of it is made again, instead of kept in registers. */
template <class T, int N> PF_FN pf_vector<T, N> pf_hidden(pf_vector<T, N> x) {
  pf_u32 words[sizeof(x) / 4];
  __builtin_memcpy(words, &x, sizeof(x));
  PF_UNROLL
  for (int n = 0; n < (int)(sizeof(x) / 4); n++) PF_HIDE(words[n]);
  __builtin_memcpy(&x, words, sizeof(x));
  return x;
}

/* A maximum m and the sum s of exp(. - m) over some numbers, and the same of others. m begins with a number, not with
 * -inf: then differences are none of two infinities, until pf_online_end gives what two passes would have given. */
PF_FN void pf_online(float &m, float &s, float other_m, float other_s) {
  const float d = other_m - m, e = pf_exp_near_f32(-fabsf(d));
  s = d > 0.0f ? PF_FMA(s, e, other_s) : PF_FMA(other_s, e, s);
  m = pf_max(m, other_m);
}
PF_FN void pf_online_end(float &m, float &s) {
  m = s == 0.0f ? -PF_INF : m;
  s = fabsf(m) == PF_INF ? PF_NAN : s;
}

PF_FN int pf_divide(int n, int64_t magic) {
  return (int)((pf_mul_high((uint32_t)magic, (uint32_t)n) + (uint32_t)n) >> (int)(magic >> 32));
}

#include "pf_index.h"

template <class T> PF_FN void pf_put(char *scratch, int64_t slot, T x) { *(T *)(scratch + 8 * slot) = x; }
template <class T> PF_FN T pf_get(const char *scratch, int64_t slot) { return *(const T *)(scratch + 8 * slot); }

#endif
