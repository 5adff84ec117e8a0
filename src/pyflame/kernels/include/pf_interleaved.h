/* Interleaved lines: what encoded.c does with weights of ops/interleaved.py.
 *
 * A set is PF_LANES neighbouring lines. Their blocks lie together, and in these the words of 4 bytes (of float16 numbers,
 * 2 bytes) at one place, one of each line: what a line's block has at `offset` begins at offset * PF_LANES. A vector then
 * holds four codes of every line and its sums one of every line, so that x is loaded once for all lines, no sums over lanes
 * are left, and memory is one stream.
 *
 * Vector instructions of a Neoverse N1, which starts two in a cycle, for 32 weights of four lines and one plane of x: 8 to
 * decode 4-bit codes, 8 SDOT, 2 for FCVTL, 3 for floats; a second plane adds 8 + 2, or 8 + 1 where planes are joined as
 * integers. That is 2.6 cycles for 32 weights of a line (18 bytes of q4_0), 3.8 with two planes; `python -m
 * benchmarks.neoverse` says what LLVM's model of it makes of the whole loop. q8_0 (34 bytes) waits for memory.
 */
#ifndef PF_INTERLEAVED_H
#define PF_INTERLEAVED_H

#include "pf_dot.h"
#include "pf_lane_codes.h"

#if PF_VNNI
#define PF_LANE_SHIFT (PF_SIGNED ? 128 : 0) /* what `few` adds to codes, since VPDPBUSD wants unsigned ones */
#else
#define PF_LANE_SHIFT 0
#endif
#if PF_SDOT
#define PF_SPREAD PF_LANES /* copies of a start in memory: to spread one over a vector takes the vector units */
#else
#define PF_SPREAD 1
#endif

#if PF_FEW

/* Bytes: hardware reads ahead to the end of a page of memory only. Where blocks are 8 bytes longer than cache lines,
 * one line in 8 blocks is left to hardware, but of codes of 8 bits, which wait for memory. */
#ifdef __x86_64__
enum { PF_AHEAD = 4096 };
#else
enum { PF_AHEAD = 16384 };
#endif
enum { PF_UNASKED = PF_SIGNED ? 0 : 8 };

/* ---- few rows. What a group of all of them needs lies together: planes of each, what the sums of each plane begin with,
 * and d and s of all, in whole vectors of four. ---- */

enum {
  PF_STARTS_AT = PF_FEW * PF_SPAN,
  PF_STEPS_AT = PF_STARTS_AT + PF_FEW * PF_PLANES * PF_SPREAD * 4,
  PF_STEP_VECS = (2 * PF_FEW + 3) / 4,
  PF_RECORD = PF_STEPS_AT + PF_STEP_VECS * 16
};

PF_ALWAYS_INLINE int32_t *pf_starts_of(char *records, int64_t t) {
  return (int32_t *)(records + PF_STARTS_AT) + t * PF_PLANES * PF_SPREAD;
}

/* Row t of the first record. */
PF_ALWAYS_INLINE pf_rounded_row pf_lane_row_of(char *records, int64_t t) {
  float *d = (float *)(records + PF_STEPS_AT) + t;
  return (pf_rounded_row){(int8_t *)records + t * PF_SPAN, d, d + PF_FEW, PF_RECORD, PF_RECORD};
}

/* Offsets are taken off here: for a sum of codes - o times x, one of codes times x begins with -o times the sum of x.
 * Joined sums begin with one number: the high plane with what of it is above the shift, which keeps the bits below. */
PF_ALWAYS_INLINE void pf_start_sums(int32_t *start, int32_t high, int32_t low) {
  const int offset = PF_OFFSET + PF_LANE_SHIFT;
  for (int plane = 0; plane < PF_PLANES; plane++)
    for (int i = 0; i < PF_SPREAD; i++)
      if (PF_SDOT && PF_JOINED)
        *start++ = (PF_START - offset * (128 * high + low)) >> (plane ? 0 : 7);
      else
        *start++ = PF_START - offset * (plane ? low : high);
}

PF_ALWAYS_INLINE pf_ints pf_spread(const int32_t *start) {
#if PF_SDOT
  return *(const pf_ints *)start;
#else
  return *start - (pf_ints){0};
#endif
}

#if PF_SDOT
/* In assembly for the order, and since gcc 12 copies sums. */
#define PF_WORD(i) "sdot %[s].4s, %[c" #i "].16b, %[x].4b[" #i "]\n"
#define PF_CODES [c0] "w"(codes[0]), [c1] "w"(codes[1]), [c2] "w"(codes[2]), [c3] "w"(codes[3])

/* sum += four words of a plane by four words of codes. */
PF_ALWAYS_INLINE void pf_plane_dots(pf_ints *sum, const pf_codes16 *codes, const int8_t *x) {
  __asm__(PF_WORD(0) PF_WORD(1) PF_WORD(2) PF_WORD(3) : [s] "+w"(*sum) : PF_CODES, [x] "w"(vld1q_s8(x)));
}

/* The same of both planes, by turns, since an SDOT waits for the one before on the same sum. */
PF_ALWAYS_INLINE void pf_both_dots(pf_ints *sum, const pf_codes16 *codes, const int8_t *x) {
#define PF_BOTH(i) PF_WORD(i) "sdot %[t].4s, %[c" #i "].16b, %[y].4b[" #i "]\n"
  __asm__(PF_BOTH(0) PF_BOTH(1) PF_BOTH(2) PF_BOTH(3)
          : [s] "+w"(sum[0]), [t] "+w"(sum[1])
          : PF_CODES, [x] "w"(vld1q_s8(x)), [y] "w"(vld1q_s8(x + PF_GROUP)));
#undef PF_BOTH
}
#undef PF_WORD
#undef PF_CODES
#endif

/* sum[plane] += four words of every plane by four words of codes. */
PF_ALWAYS_INLINE void pf_lane_dots(pf_ints *sum, const pf_codes16 *codes, const int8_t *x) {
#if PF_SDOT && PF_PLANES == 2
  pf_both_dots(sum, codes, x);
#elif PF_SDOT
  pf_plane_dots(sum, codes, x);
#else
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++)
#pragma GCC unroll 2
    for (int p = 0; p < PF_PLANES; p++) {
      int32_t word;
      __builtin_memcpy(&word, x + p * PF_GROUP + 4 * i, 4);
#if PF_VNNI
      sum[p] = (pf_ints)_mm512_dpbusd_epi32((__m512i)sum[p], (__m512i)(codes[i] + PF_LANE_SHIFT), _mm512_set1_epi32(word));
#elif PF_MADD
      sum[p] = (pf_ints)pf_products((__m256i)sum[p], (__m256i)codes[i], _mm256_set1_epi32(word));
#else
      for (int l = 0; l < 4 * PF_LANES; l++) sum[p][l / 4] += (int8_t)codes[i][l] * x[p * PF_GROUP + 4 * i + l % 4];
#endif
    }
#endif
}

/* A group by one of a row, all planes. */
PF_ALWAYS_INLINE pf_floats pf_lane_sum(const pf_codes16 *codes, const int8_t *x, const int32_t *start) {
  pf_ints dots[PF_PLANES];
#pragma GCC unroll 2
  for (int p = 0; p < PF_PLANES; p++) dots[p] = pf_spread(start + p * PF_SPREAD);
#if PF_SDOT && PF_JOINED
#pragma GCC unroll 2
  for (int v = 0; v < PF_VECS; v++) pf_plane_dots(dots, codes + 4 * v, x + 16 * v);
  dots[1] = (pf_ints)vsliq_n_s32((int32x4_t)dots[1], (int32x4_t)dots[0], 7);
#pragma GCC unroll 2
  for (int v = 0; v < PF_VECS; v++) pf_plane_dots(dots + 1, codes + 4 * v, x + PF_GROUP + 16 * v);
  return pf_as_floats(dots[1]);
#else
#pragma GCC unroll 2
  for (int v = 0; v < PF_VECS; v++) pf_lane_dots(dots, codes + 4 * v, x + 16 * v);
  pf_floats sum = pf_as_floats(dots[0]);
  if (PF_PLANES == 2) sum = sum * 128 + pf_as_floats(dots[PF_PLANES - 1]);
  return sum;
#endif
}

/* acc[t] += group s of a block by that of row t, in the order of pf_tile. */
PF_ALWAYS_INLINE void pf_lane_group(const uint8_t *b, const int s, pf_floats scale, pf_floats least, const char *record,
                                    pf_floats *acc) {
  pf_codes16 codes[PF_GROUP / 4];
  pf_float4 step[PF_STEP_VECS];
  pf_lane_codes(b, s, codes);
#pragma GCC unroll 4
  for (int i = 0; i < PF_STEP_VECS; i++) step[i] = *(const pf_float4 *)(record + PF_STEPS_AT + 16 * i);
#pragma GCC unroll 8
  for (int t = 0; t < PF_FEW; t++) {
    const int8_t *x = (const int8_t *)record + t * PF_SPAN;
    const int32_t *start = (const int32_t *)(record + PF_STARTS_AT) + t * PF_PLANES * PF_SPREAD;
    const pf_floats sum = pf_lane_sum(codes, x, start);
    acc[t] += sum * (scale * step[t / 4][t % 4]);
    if (PF_LEAST) acc[t] += least * step[(PF_FEW + t) / 4][(PF_FEW + t) % 4];
  }
}

/* Where a block has many groups gcc would load codes of all of them before it needs them, and then has no registers. */
#if PF_SUPER
#define PF_FENCE() __asm__ volatile("" : : : "memory")
#else
#define PF_FENCE() (void)0
#endif

/* Sets that are read at once: two streams come faster from memory than one, and x is loaded for both. */
#if PF_VNNI ? PF_FEW <= 2 : PF_SDOT && !PF_SUPER && PF_FEW * PF_PLANES <= 2
enum { PF_SETS = 2 };
#else
enum { PF_SETS = 1 };
#endif

/* acc[set][t] += `blocks` blocks of sets that lie `stride` bytes apart, by PF_FEW rows; `ahead` bytes behind is prefetched. */
PF_ALWAYS_INLINE void pf_dot_blocks(const int sets, const uint8_t *b, int64_t stride, int64_t ahead, int64_t blocks,
                                    const char *record, pf_floats (*acc)[PF_FEW]) {
  for (const uint8_t *end = b + blocks * PF_BLOCK_BYTES * PF_LANES; b < end; b += PF_BLOCK_BYTES * PF_LANES) {
    pf_lane_head head[PF_SETS];
#pragma GCC unroll 2
    for (int set = 0; set < sets; set++) {
#pragma GCC unroll 64
      for (int at = 0; at < PF_BLOCK_BYTES * PF_LANES - PF_UNASKED; at += 64) __builtin_prefetch(b + set * stride + ahead + at);
      head[set] = pf_lane_head_of(b + set * stride);
    }
#pragma GCC unroll 16
    for (int s = 0; s < PF_BLOCK / PF_GROUP; s++, record += PF_RECORD) {
      if (s % 2 == 0) PF_FENCE();
#pragma GCC unroll 2
      for (int set = 0; set < sets; set++) {
        pf_floats scale, least;
        pf_lane_scales(head + set, s, &scale, &least);
        pf_lane_group(b + set * stride, s, scale, least, record, acc[set]);
      }
    }
  }
}

/* `sets` sets of lines, which lie behind each other, by PF_FEW rows. Behind each of two comes one of the next two. */
PF_ALWAYS_INLINE void pf_dot_sets(const int sets, const uint8_t *b, int64_t stride, const char *record, int64_t k, float *out,
                                  int64_t out_ld) {
  const int64_t blocks = k / PF_BLOCK, bytes = PF_BLOCK_BYTES * PF_LANES, records = PF_BLOCK / PF_GROUP * PF_RECORD;
  const int64_t own = sets == 1 ? blocks : stride > PF_AHEAD ? (stride - PF_AHEAD) / bytes : 0;
  pf_floats acc[PF_SETS][PF_FEW] = {{{0}}};
  pf_dot_blocks(sets, b, stride, PF_AHEAD, own, record, acc);
  record += own * records;
  if (sets > 1) pf_dot_blocks(sets, b + own * bytes, stride, PF_AHEAD + stride, blocks - own, record, acc);
  for (int set = 0; set < sets; set++)
    for (int t = 0; t < PF_FEW; t++) *(pf_floats *)(out + t * out_ld + set * PF_LANES) = acc[set][t];
}

#else

/* Groups [g, end), of whole blocks, of a set of lines, as columns c to c + PF_LANES of the panel. */
static void pf_unpack_set(const uint8_t *b, int64_t g, int64_t end, int c, char *panel) {
  for (b += g * PF_GROUP / PF_BLOCK * PF_BLOCK_BYTES * PF_LANES; g < end; g += PF_BLOCK / PF_GROUP, b += PF_BLOCK_BYTES * PF_LANES) {
    const pf_lane_head head = pf_lane_head_of(b);
#pragma GCC unroll 16
    for (int s = 0; s < PF_BLOCK / PF_GROUP; s++, panel += PF_PANEL_BYTES) {
      pf_codes16 codes[PF_GROUP / 4];
      pf_floats scale, least;
      pf_lane_codes(b, s, codes);
      pf_lane_scales(&head, s, &scale, &least);
      *(pf_floats *)((float *)panel + c) = scale;
      if (PF_LEAST) *(pf_floats *)((float *)panel + PF_NR + c) = least;
#pragma GCC unroll 8
      for (int i = 0; i < PF_GROUP / 4; i++)
        *(pf_codes16 *)(panel + PF_PANEL_HEAD + 4 * (i * PF_NR + c)) = codes[i] + (uint8_t)PF_SHIFT;
    }
  }
}

#endif

#endif
