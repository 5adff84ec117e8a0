/* Micro-kernels and panel geometry shared by matmul.c and conv.c.
 *
 *   C[rows, cols] (+)= sum_w  A_panel[w, rows] * B_panel[w, cols]
 *
 * Packed form. A "word" is what one multiply step eats: one element in the accumulator's type for the vector
 * kernel, or PF_GROUP neighbours along k: 4 bytes (2 bf16 or 4 int8) for AMX and the dot products of NEON and SVE,
 * 8 bytes (4 bf16 or 8 int8) for their matrix products.
 *   B panel: [word][width], width = PF_NR, the last one rounded up to whole vectors.
 *   A panel: [word][height], height = PF_MR, the last one exact; for AMX [16-word step][height][16 words].
 * Everything a panel is rounded up by holds zeros, so no kernel needs masks.
 *
 * Registers. PF_MR x (PF_NV vectors) accumulators live in registers for the whole k loop: each step loads
 * PF_NV vectors of B and broadcasts PF_MR scalars of A for PF_MR * PF_NV multiply-adds (14 x 2 on AVX-512: 16
 * loads feed 28 FMAs; 12 x 2 on NEON: 5 loads feed 24, on SVE 14; so the two FMA ports are the limit). AMX holds 2 x 2 tiles of
 * 16 x 16.
 * 2*rows*cols*k flops read (rows + cols) * k words, from L1 (A) and L2 (B).
 */
#ifndef PF_GEMM_H
#define PF_GEMM_H

#include "pf_abi.h"

#define PF_GLUE2(a, b) a##b
#define PF_GLUE(a, b) PF_GLUE2(a, b)
#define PF_ALWAYS_INLINE static inline __attribute__((always_inline))
#define PF_UNUSED __attribute__((unused))

/* ---- element types: PF_A_T and PF_B_T are dtype names; each has a tag number, a storage type and a load ---- */

#define PF_TAG_float32 1
#define PF_TAG_float64 2
#define PF_TAG_float16 3
#define PF_TAG_bfloat16 4
#define PF_TAG_int8 5
#define PF_TAG_uint8 6
#define PF_TAG_int16 7
#define PF_TAG_int32 8
#define PF_TAG_int64 9
#define PF_TAG_bool_ 10

typedef float pf_store_float32;
typedef double pf_store_float64;
typedef uint16_t pf_store_float16;
typedef uint16_t pf_store_bfloat16;
typedef int8_t pf_store_int8;
typedef uint8_t pf_store_uint8;
typedef int16_t pf_store_int16;
typedef int32_t pf_store_int32;
typedef int64_t pf_store_int64;
typedef uint8_t pf_store_bool_;

PF_ALWAYS_INLINE float pf_load_float16(const uint16_t *p) {
#ifdef __FLT16_MAX__
  _Float16 half;
  __builtin_memcpy(&half, p, 2);
  return (float)half;
#else
  /* Shift the half's exponent into place, then let one multiplication rebias it: subnormals come out right. */
  uint32_t bits = ((uint32_t)*p & 0x7fff) << 13;
  float magnitude;
  __builtin_memcpy(&magnitude, &bits, 4);
  magnitude *= 0x1p112f;
  __builtin_memcpy(&bits, &magnitude, 4);
  if ((*p & 0x7c00) == 0x7c00) bits |= 0x7f800000;
  bits |= ((uint32_t)*p & 0x8000) << 16;
  __builtin_memcpy(&magnitude, &bits, 4);
  return magnitude;
#endif
}

PF_ALWAYS_INLINE float pf_load_bfloat16(const uint16_t *p) {
  uint32_t bits = (uint32_t)*p << 16;
  float value;
  __builtin_memcpy(&value, &bits, 4);
  return value;
}

#define pf_load_float32(p) (*(p))
#define pf_load_float64(p) (*(p))
#define pf_load_int8(p) (*(p))
#define pf_load_uint8(p) (*(p))
#define pf_load_int16(p) (*(p))
#define pf_load_int32(p) (*(p))
#define pf_load_int64(p) (*(p))
#define pf_load_bool_(p) (*(p))

typedef PF_GLUE(pf_store_, PF_A_T) pf_a_t;
typedef PF_GLUE(pf_store_, PF_B_T) pf_b_t;
#define PF_LOAD_A(p) ((PF_ACC_T)PF_GLUE(pf_load_, PF_A_T)(p))
#define PF_LOAD_B(p) ((PF_ACC_T)PF_GLUE(pf_load_, PF_B_T)(p))
/* Elements that are accumulators as they stand; conversions are left out. */
#define PF_B_PLAIN __builtin_types_compatible_p(pf_b_t, PF_ACC_T)
#define PF_A_TAG PF_GLUE(PF_TAG_, PF_A_T)
#define PF_B_TAG PF_GLUE(PF_TAG_, PF_B_T)
#define PF_IS_BYTE(tag) ((tag) == PF_TAG_int8 || (tag) == PF_TAG_uint8)

/* SVE of a length that the compiler was told (-msve-vector-bits): vectors of that many bytes are its registers. */
#if defined(__ARM_FEATURE_SVE_BITS) && __ARM_FEATURE_SVE_BITS
#define PF_SVE 1
#else
#define PF_SVE 0
#endif

/* NEON's header takes gcc a quarter of a second, and float32 and float64 need none of it. */
#ifdef __x86_64__
#include <immintrin.h>
#elif defined(__aarch64__) && (PF_A_TAG > PF_TAG_float64 || PF_B_TAG > PF_TAG_float64)
#include <arm_neon.h>
#if PF_SVE
#include <arm_sve.h>
/* What lies between a vector in C and an operand of an intrinsic. */
typedef svfloat32_t pf_sve_f32 __attribute__((arm_sve_vector_bits(__ARM_FEATURE_SVE_BITS)));
typedef svint32_t pf_sve_s32 __attribute__((arm_sve_vector_bits(__ARM_FEATURE_SVE_BITS)));
typedef svuint32_t pf_sve_u32 __attribute__((arm_sve_vector_bits(__ARM_FEATURE_SVE_BITS)));
typedef svuint64_t pf_sve_u64 __attribute__((arm_sve_vector_bits(__ARM_FEATURE_SVE_BITS)));
#endif
#endif

/* ---- geometry ---- */

/* NEON's and SVE's words of several elements: of one type, and not where a file lays out panels itself (PF_OWN_PANELS). */
#if defined(__aarch64__) && PF_A_TAG == PF_B_TAG && !defined(PF_OWN_PANELS)
#define PF_ARM_WORDS 1
#else
#define PF_ARM_WORDS 0
#endif
#if defined(__ARM_FEATURE_MATMUL_INT8) && defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
#define PF_HAS_MMLA 1
#else
#define PF_HAS_MMLA 0
#endif

#if defined(__AMX_BF16__) && defined(__AVX512F__) && PF_A_TAG == PF_TAG_bfloat16 && PF_B_TAG == PF_TAG_bfloat16
#define PF_AMX 1
#define PF_GROUP 2
#elif defined(__AMX_INT8__) && defined(__AVX512F__) && PF_IS_BYTE(PF_A_TAG) && PF_IS_BYTE(PF_B_TAG)
#define PF_AMX 1
#define PF_GROUP 4
#elif PF_ARM_WORDS && PF_HAS_MMLA && PF_IS_BYTE(PF_A_TAG)
#define PF_MMLA 1
#define PF_GROUP 8
#elif PF_ARM_WORDS && PF_HAS_MMLA && PF_A_TAG == PF_TAG_bfloat16
#define PF_MMLA 1
#define PF_GROUP 4
#elif PF_ARM_WORDS && (defined(__ARM_FEATURE_DOTPROD) || PF_SVE) && PF_IS_BYTE(PF_A_TAG)
#define PF_GROUP 4
#else
#define PF_GROUP 1
#endif
#ifndef PF_AMX
#define PF_AMX 0
#endif
#ifndef PF_MMLA
#define PF_MMLA 0
#endif

#if defined(__AVX512F__)
#define PF_VECTOR_BYTES 64
#elif defined(__AVX2__) && defined(__FMA__)
#define PF_VECTOR_BYTES 32
#elif PF_SVE
#define PF_VECTOR_BYTES (__ARM_FEATURE_SVE_BITS / 8)
#else
#define PF_VECTOR_BYTES 16
#endif
#ifdef __aarch64__
#define PF_ARM 1
#else
#define PF_ARM 0
#endif
#define PF_NEON (PF_ARM && !PF_SVE)
#ifdef __AVX512F__
#define PF_AVX512 1
#else
#define PF_AVX512 0
#endif

#define PF_LANES (PF_VECTOR_BYTES / (int64_t)sizeof(PF_ACC_T))
_Static_assert(!(PF_IS_BYTE(PF_A_TAG) || PF_IS_BYTE(PF_B_TAG)) || sizeof(PF_ACC_T) == 4, "bytes are summed in int32_t");
#define PF_NV 2
#define PF_NR (PF_NV * PF_LANES)
#if PF_AMX
#define PF_MR 32
#define PF_ROW_STEP 16 /* heights are whole tiles */
#define PF_WORD_STEP 16 /* words of one tile row */
typedef uint32_t pf_word_t;
#else
#if PF_AVX512
#define PF_MR 14
#elif PF_ARM
#define PF_MR 12
#else
#define PF_MR 6
#endif
#define PF_ROW_STEP (PF_MMLA ? 2 : 1) /* heights are whole tiles */
#define PF_WORD_STEP 1
#if PF_MMLA
typedef uint64_t pf_word_t;
#elif PF_GROUP > 1
typedef uint32_t pf_word_t;
#else
typedef PF_ACC_T pf_word_t;
#endif
#endif

/* The element alignment lets one type serve packed panels and user memory; may_alias lets it read words. */
typedef PF_ACC_T pf_vec __attribute__((vector_size(PF_VECTOR_BYTES), aligned(sizeof(PF_ACC_T)), may_alias));

/* The sum of a vector of floats. In order it would be a chain of additions, each with a shuffle before. */
PF_ALWAYS_INLINE float pf_sum_of_lanes(pf_vec v) {
#if PF_AVX512
  return _mm512_reduce_add_ps((__m512)v);
#else
  float sum = 0.0f;
  for (int64_t lane = 0; lane < PF_LANES; lane++) sum += v[lane];
  return sum;
#endif
}

PF_ALWAYS_INLINE int64_t pf_min(int64_t a, int64_t b) { return a < b ? a : b; }
PF_ALWAYS_INLINE int64_t pf_max(int64_t a, int64_t b) { return a > b ? a : b; }
PF_ALWAYS_INLINE int64_t pf_round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }
PF_ALWAYS_INLINE int64_t pf_div_up(int64_t n, int64_t by) { return (n + by - 1) / by; }
/* Words that a run of k elements takes in a panel. */
PF_ALWAYS_INLINE int64_t pf_words(int64_t k) { return pf_round_up(k, PF_GROUP * PF_WORD_STEP) / PF_GROUP; }
PF_ALWAYS_INLINE int64_t pf_height(int64_t rows) { return pf_round_up(rows, PF_ROW_STEP); }
PF_ALWAYS_INLINE int64_t pf_width(int64_t cols) { return pf_round_up(cols, PF_LANES); }

/* Words of B to ask for ahead: of a panel, and where it lies. There rows may all come into one set of L1, which holds
 * eight lines: asking for more throws out what is not yet read. */
enum { PF_WORDS_AHEAD = 24, PF_WORDS_AHEAD_IN_PLACE = 6 };

/* ---- micro-kernels: C[height, width] at row stride ldc; resume adds to what C holds. Of two panels, or (`_at`; vectors of
 * elements as they are) of a panel and of B where it lies, its words b_step apart ---- */

/* Row r of A in a step: a broadcast of a scalar from memory, or a lane of a vector where multiply-adds take one. */
enum { PF_LEFT_VECS = PF_NEON ? 12 / PF_LANES : 1 };
#define PF_LEFT(r)                                                                                             \
  ((PF_ACC_T)(PF_NEON && (r) < rows / PF_LANES * PF_LANES ? left[(r) / PF_LANES][(r) % PF_LANES] : a[r]))

/* acc[r][v] += row r of A by vector v of B, for one k, in the accumulator's type. */
PF_ALWAYS_INLINE void pf_vector_step(const int rows, const int vecs, const PF_ACC_T *a, const PF_ACC_T *b, pf_vec (*acc)[PF_NV]) {
  pf_vec column[PF_NV], left[PF_LEFT_VECS];
#pragma GCC unroll 8
  for (int r = 0; PF_NEON && r < rows / PF_LANES; r++) left[r] = *(const pf_vec *)(a + r * PF_LANES);
#pragma GCC unroll 2
  for (int v = 0; v < vecs; v++) column[v] = *(const pf_vec *)(b + v * PF_LANES);
#pragma GCC unroll 16
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
    for (int v = 0; v < vecs; v++) acc[r][v] += PF_LEFT(r) * column[v];
}

#if PF_AMX

#if PF_GROUP == 2
#define PF_DOT _tile_dpbf16ps
#elif PF_A_TAG == PF_TAG_int8
#if PF_B_TAG == PF_TAG_int8
#define PF_DOT _tile_dpbssd
#else
#define PF_DOT _tile_dpbsud
#endif
#elif PF_B_TAG == PF_TAG_int8
#define PF_DOT _tile_dpbusd
#else
#define PF_DOT _tile_dpbuud
#endif

#include "pf_amx.h"

PF_UNUSED static void pf_micro(int64_t height, int64_t width, int64_t words, const pf_word_t *a, const pf_word_t *b,
                     PF_ACC_T *c, int64_t ldc, int resume) {
  const pf_tile_pair pair = {a, b};
  pf_tiles(height, width, words, 1, &pair, 64, height > 16 ? 2048 : 1024, width > 16 ? 128 : 64, c, ldc, resume);
}

#else

PF_ALWAYS_INLINE void pf_kernel_begin(void) {}
PF_ALWAYS_INLINE void pf_kernel_end(void) {}
PF_ALWAYS_INLINE int64_t pf_kernel_permit(void) { return 0; }

#if PF_GROUP > 1
#include "pf_neon.h"
#else

#define pf_step pf_vector_step

#endif
#if !PF_MMLA
#define pf_turn(rows, vecs, acc, back) ((void)0)
#endif

PF_ALWAYS_INLINE void pf_block(const int rows, const int vecs, int64_t words, const pf_word_t *a, const pf_word_t *b,
                               int64_t b_step, int64_t ahead, PF_ACC_T *c, int64_t ldc, int resume) {
  pf_vec acc[PF_MR][PF_NV];
#pragma GCC unroll 16
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
    for (int v = 0; v < vecs; v++) acc[r][v] = resume ? *(pf_vec *)(c + r * ldc + v * PF_LANES) : (pf_vec){0};
  pf_turn(rows, vecs, acc, 0);
  for (; words > 0; words--, a += rows, b += b_step) {
    /* B comes from L2: ask for it ahead (a prefetch past the panel's end is harmless). */
#pragma GCC unroll 2
    for (int v = 0; v < vecs; v++) __builtin_prefetch(b + ahead + v * PF_LANES);
    pf_step(rows, vecs, a, b, acc);
  }
  pf_turn(rows, vecs, acc, 1);
#pragma GCC unroll 16
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
    for (int v = 0; v < vecs; v++) *(pf_vec *)(c + r * ldc + v * PF_LANES) = acc[r][v];
}

#define PF_ROWS(n)                                                                                             \
  case n:                                                                                                      \
    if (width > PF_LANES)                                                                                      \
      pf_block(n, 2, words, a, b, PF_STEP(2), c, ldc, resume);                                                 \
    else                                                                                                       \
      pf_block(n, 1, words, a, b, PF_STEP(1), c, ldc, resume);                                                 \
    break;
#if PF_MMLA
#define PF_HEIGHTS PF_ROWS(2) PF_ROWS(4) PF_ROWS(6) PF_ROWS(8) PF_ROWS(10) PF_ROWS(12)
#else
#define PF_SIX_HEIGHTS PF_ROWS(1) PF_ROWS(2) PF_ROWS(3) PF_ROWS(4) PF_ROWS(5) PF_ROWS(6)
#define PF_TWELVE_HEIGHTS PF_SIX_HEIGHTS PF_ROWS(7) PF_ROWS(8) PF_ROWS(9) PF_ROWS(10) PF_ROWS(11) PF_ROWS(12)
#if PF_MR == 6
#define PF_HEIGHTS PF_SIX_HEIGHTS
#elif PF_MR == 12
#define PF_HEIGHTS PF_TWELVE_HEIGHTS
#else
#define PF_HEIGHTS PF_TWELVE_HEIGHTS PF_ROWS(13) PF_ROWS(14)
#endif
#endif

PF_UNUSED static void pf_micro(int64_t height, int64_t width, int64_t words, const pf_word_t *a, const pf_word_t *b,
                     PF_ACC_T *c, int64_t ldc, int resume) {
#define PF_STEP(vecs) vecs * PF_LANES, PF_WORDS_AHEAD * vecs * PF_LANES
  switch (height) { PF_HEIGHTS }
#undef PF_STEP
}

PF_UNUSED static void pf_micro_at(int64_t height, int64_t width, int64_t words, const pf_word_t *a, const pf_word_t *b,
                     int64_t b_step, PF_ACC_T *c, int64_t ldc, int resume) {
#define PF_STEP(vecs) b_step, PF_WORDS_AHEAD_IN_PLACE * b_step
  switch (height) { PF_HEIGHTS }
#undef PF_STEP
}

#undef PF_ROWS
#undef PF_HEIGHTS

#endif

/* One A panel against a row of B panels: C[height, cols]. */
PF_ALWAYS_INLINE void pf_strip(int64_t height, int64_t cols, int64_t words, const pf_word_t *a, const pf_word_t *b,
                               PF_ACC_T *c, int64_t ldc, int resume) {
  for (int64_t j = 0; j < cols; j += PF_NR)
    pf_micro(height, pf_width(pf_min(PF_NR, cols - j)), words, a, b + j * words, c + j, ldc, resume);
}

/* ---- transposition: the part of packing that needs registers ---- */

#include "pf_transpose.h"
#if PF_AVX512
#include "pf_pack_avx512.h"
#endif

/* dst[w * dst_stride + r] = word w of the row at src + r * src_bytes, for rows >= 4 and words >= 4. The last
 * square of each direction overlaps its neighbour instead of having a scalar tail. */
PF_ALWAYS_INLINE void pf_transpose(uint32_t *dst, int64_t dst_stride, const char *src, int64_t src_bytes, int64_t rows,
                                   int64_t words) {
  int64_t line = 0;
#if PF_AVX512
  for (int64_t r = 0; r < rows; r += 16)
    for (line = 0; line + 16 <= words; line += 16)
      pf_transpose_16(dst + line * dst_stride + r, dst_stride, src + r * src_bytes + line * 4, src_bytes, pf_min(16, rows - r));
#endif
  for (; line < words; line += 16) {
    const int64_t line_end = pf_min(words, line + 16);
    for (int64_t r0 = 0; r0 < rows; r0 += 4) {
      const int64_t r = pf_min(r0, rows - 4);
      for (int64_t w0 = line; w0 < line_end; w0 += 4) {
        const int64_t w = pf_min(w0, words - 4);
        pf_transpose_4x4(dst + w * dst_stride + r, dst_stride, src + r * src_bytes + w * 4, src_bytes);
      }
    }
  }
}

#if PF_AMX
#define pf_pack_left pf_pack_tiles_a
#else
#define pf_pack_left pf_pack_columns_a
#endif
#define pf_pack_right pf_pack_columns_b

#define PF_PACK_SIDE a
#define PF_PACK_PANEL pf_pack_left
#define PF_PACK_AS_TILES PF_AMX
#define PF_PACK_STEP PF_MR
#define PF_PACK_UNIT PF_ROW_STEP
#define PF_PACK_T pf_a_t
#define PF_PACK_TAG PF_A_TAG
#define PF_PACK_LOAD PF_LOAD_A
#include "pf_pack.h"
#define PF_PACK_SIDE b
#define PF_PACK_PANEL pf_pack_right
#define PF_PACK_AS_TILES 0
#define PF_PACK_STEP PF_NR
#define PF_PACK_UNIT PF_LANES
#define PF_PACK_T pf_b_t
#define PF_PACK_TAG PF_B_TAG
#define PF_PACK_LOAD PF_LOAD_B
#include "pf_pack.h"

#endif
