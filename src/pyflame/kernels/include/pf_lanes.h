/* How many lines a vector of sums has, by instruction set: encoded.c and what it includes. */
#ifndef PF_LANES_H
#define PF_LANES_H

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VNNI__) && defined(__AVX512VL__)
#define PF_VNNI 1
#define PF_LANES 16
#define PF_NV 2
#elif defined(__AVX2__) && defined(__FMA__)
#define PF_MADD 1
#define PF_LANES 8
#define PF_NV 1
#elif defined(__ARM_FEATURE_DOTPROD)
#define PF_SDOT 1
#define PF_LANES 4
#define PF_NV 2
#else
#define PF_LANES 4
#define PF_NV 2
#endif

#ifndef PF_VNNI
#define PF_VNNI 0
#endif
#ifndef PF_SDOT
#define PF_SDOT 0
#endif

typedef int32_t pf_ints __attribute__((vector_size(PF_LANES * 4), aligned(4), may_alias));
typedef float pf_floats __attribute__((vector_size(PF_LANES * 4), aligned(4), may_alias));

#endif
