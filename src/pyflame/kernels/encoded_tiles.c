/* Many rows of numbers times encoded weights on AMX, in bfloat16: for prompts.
 *
 *   y[i, j] = sum_k x[i, k] * weight[j, k]  (+ bias[j])
 *
 * A number is the sum of one or two pieces, each a bfloat16: its rounding, and that of what is left. One keeps 8 bits, an
 * error of 2^-9 at most, two keep 16. Pieces are multiplied with each other but for the two last ones, and summed in
 * float32. x is not rounded in groups, as it is for integers (encoded.c): tiles would be left after each group to apply
 * its scale, which takes longer than to multiply.
 *
 * Memory policy. `round` makes pieces of x, rows that tiles are loaded from as they lie. A task is a block of rows by a
 * block of lines. Of PF_LINES lines at a time PF_DEPTH elements are decoded into a panel for each piece, 16 KB, and
 * multiplied with all rows; so are those of the block's other lines, while what they need of x stays in L2 with the sums.
 * 2 * rows * lines * k flops for each pair of pieces read (rows + lines) * k * 2 bytes from L2.
 *
 * Each output is summed in one order, whatever the blocks and the number of workers.
 *
 * Before including this file define PF_NAME, PF_X_T and PF_LOAD_X, PF_BIAS and PF_EXPERTS (whether there are, see
 * pf_encoded.h), PF_EPILOGUE, PF_X_PIECES and PF_W_PIECES (1 or 2), and what weights are, by one of
 *   PF_ENCODING        a format of pf_codes.h, with what that asks for and PF_INTERLEAVED: lines that lie interleaved, or 0
 *   PF_DECODE          a decoder, with PF_BLOCK, PF_BLOCK_BYTES and PF_DECODED, the elements that it decodes
 *   PF_HALF            1: they are float16; 0: bfloat16
 */
#include "pf_abi.h"

#include <immintrin.h>

#define PF_GLUE2(a, b) a##b
#define PF_GLUE(a, b) PF_GLUE2(a, b)
#define PF_ALWAYS_INLINE static inline __attribute__((always_inline))
#define PF_DOT _tile_dpbf16ps

#include "pf_amx.h"
#include "pf_transpose_16.h"
#ifdef PF_ENCODING
#include "pf_lanes.h"
#include "pf_codes.h"
#if PF_INTERLEAVED
#include "pf_lane_codes.h"
#endif
#endif

enum {
  PF_M, PF_N, PF_K, PF_ROW_BYTES,
  PF_ROWS, PF_COLS,                                             /* block of a task */
  PF_PIECE_BYTES,                                               /* of one piece of a row of x */
  PF_WORKER_AT, PF_WORKER_BYTES, PF_ENCODED_ARGS /* byte offsets in scratch; rows of x are at 0 */
};
#include "pf_encoded.h"

enum {
  PF_LINES = 32,  /* of a panel */
  PF_DEPTH = 256, /* elements of a line in a panel */
  PF_CHUNK = 128, /* elements of a line that are decoded at once */
  PF_PANEL_WORDS = PF_DEPTH / 2 * PF_LINES,
  PF_SKEW = 16 /* words between rows of sums, which would share cache sets */
};

/* ---- pieces: two neighbours along k are a word ---- */

typedef struct {
  __m512i piece[2];
} pf_pieces;

/* Of 32 floats that follow each other. */
PF_ALWAYS_INLINE pf_pieces pf_pieces_of(const int count, __m512 first, __m512 second) {
  pf_pieces out;
  out.piece[0] = (__m512i)_mm512_cvtne2ps_pbh(second, first);
  if (count > 1) {
    first -= (__m512)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_castsi512_si256(out.piece[0])), 16);
    second -= (__m512)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(out.piece[0], 1)), 16);
    out.piece[1] = (__m512i)_mm512_cvtne2ps_pbh(second, first);
  }
  return out;
}

/* Words of elements [k, k + PF_DEPTH), with zeros that fill up the last tile. */
PF_ALWAYS_INLINE int64_t pf_words(const int64_t *arg, int64_t k) { return (pf_up_to(PF_DEPTH, arg[PF_K] - k) + 31) / 32 * 16; }

/* Bytes from one row to the next, whose loads would meet in few cache sets if that were a power of two. */
PF_ALWAYS_INLINE int64_t pf_pitch(const int64_t *arg, int64_t k) { return 4 * pf_words(arg, k) + 64; }

/* A piece of elements [k, k + PF_DEPTH) of row i: what a panel is multiplied with lies together. */
PF_ALWAYS_INLINE char *pf_rounded_row(char *const *buf, const int64_t *arg, int piece, int64_t k, int64_t i) {
  const int64_t rows = arg[PF_M] + 15; /* those behind the last fill up its tile */
  return buf[PF_SCRATCH] + rows * (piece * arg[PF_PIECE_BYTES] + k / PF_DEPTH * (2 * PF_DEPTH + 64)) + i * pf_pitch(arg, k);
}

/* One iteration is a row. */
PF_KERNEL(PF_GLUE(PF_NAME, _round)) {
  (void)uni, (void)worker;
  for (int64_t i = begin; i < end; i++) {
    const PF_X_T *x = pf_row_of(buf, arg, i < arg[PF_M] ? i : 0);
    for (int64_t k = 0; k < arg[PF_K]; k += 32) {
      float value[32] = {0};
      const int64_t count = i < arg[PF_M] ? arg[PF_K] - k : 0;
      if (count >= 32)
        for (int e = 0; e < 32; e++) value[e] = PF_LOAD_X(x[k + e]);
      else
        for (int64_t e = 0; e < count; e++) value[e] = PF_LOAD_X(x[k + e]);
      const pf_pieces p = pf_pieces_of(PF_X_PIECES, _mm512_loadu_ps(value), _mm512_loadu_ps(value + 16));
      for (int n = 0; n < PF_X_PIECES; n++)
        _mm512_storeu_si512(pf_rounded_row(buf, arg, n, k / PF_DEPTH * PF_DEPTH, i) + k % PF_DEPTH * 2, p.piece[n]);
    }
  }
}

/* ---- panels: [piece][word][PF_LINES], words of all lines behind each other ---- */

#if defined(PF_ENCODING) && PF_INTERLEAVED

/* Elements 4 i + at of 16 lines, from their words of codes. */
PF_ALWAYS_INLINE __m512 pf_lane_numbers(pf_codes16 codes, const int at, pf_floats scale, pf_floats least) {
  const __m512i word = (__m512i)codes;
  const __m512i code = PF_SIGNED ? _mm512_srai_epi32(_mm512_slli_epi32(word, 24 - 8 * at), 24)
                                 : _mm512_and_epi32(_mm512_srli_epi32(word, 8 * at), _mm512_set1_epi32(255));
  return _mm512_cvtepi32_ps(code) * (__m512)scale + (__m512)least;
}

/* Words of 16 lines, `to` the first line's. */
PF_ALWAYS_INLINE void pf_store_words(uint32_t *to, __m512 even, __m512 odd) {
  static const uint16_t by_turns[32] = {0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23,
                                        8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  const pf_pieces p = pf_pieces_of(PF_W_PIECES, even, odd);
  for (int n = 0; n < PF_W_PIECES; n++)
    _mm512_storeu_si512(to + n * PF_PANEL_WORDS, _mm512_permutexvar_epi16(_mm512_loadu_si512(by_turns), p.piece[n]));
}

/* Elements [k, end), of whole blocks, of a set of lines, as columns c to c + PF_LANES of the panel. */
static void pf_unpack_set(const uint8_t *b, int64_t k, int64_t end, uint32_t *panel) {
  for (b += k / PF_BLOCK * PF_BLOCK_BYTES * PF_LANES; k < end; k += PF_BLOCK, b += PF_BLOCK_BYTES * PF_LANES) {
    const pf_lane_head head = pf_lane_head_of(b);
#pragma GCC unroll 16
    for (int s = 0; s < PF_BLOCK / PF_GROUP; s++, panel += PF_GROUP / 2 * PF_LINES) {
      pf_codes16 codes[PF_GROUP / 4];
      pf_floats scale, least = {0};
      pf_lane_codes(b, s, codes);
      pf_lane_scales(&head, s, &scale, &least);
      if (PF_OFFSET) least -= scale * PF_OFFSET;
#pragma GCC unroll 8
      for (int i = 0; i < PF_GROUP / 4; i++) {
        uint32_t *to = panel + 2 * i * PF_LINES;
        pf_store_words(to, pf_lane_numbers(codes[i], 0, scale, least), pf_lane_numbers(codes[i], 1, scale, least));
        pf_store_words(to + PF_LINES, pf_lane_numbers(codes[i], 2, scale, least), pf_lane_numbers(codes[i], 3, scale, least));
      }
    }
  }
}

#else

#if defined(PF_ENCODING)

/* `count` groups of a line, from g on. */
PF_ALWAYS_INLINE void pf_group_numbers(const int count, const uint8_t *line, int64_t g, float *to) {
  pf_float4 scale, least = {0};
  pf_scales(count, line, g, &scale, &least);
  if (PF_OFFSET) least -= scale * PF_OFFSET;
#pragma GCC unroll 4
  for (int j = 0; j < count; j++) {
    pf_codes16 codes[PF_VECS];
    pf_codes(line, g + j, codes);
#pragma GCC unroll 2
    for (int v = 0; v < PF_VECS; v++, to += 16) {
      const __m128i bytes = (__m128i)codes[v];
      const __m512 code = _mm512_cvtepi32_ps(PF_SIGNED ? _mm512_cvtepi8_epi32(bytes) : _mm512_cvtepu8_epi32(bytes));
      _mm512_storeu_ps(to, code * scale[j] + least[j]);
    }
  }
}

#endif

/* Elements [k, k + count) of a line, at most PF_CHUNK; zeros up to a multiple of 32. */
PF_ALWAYS_INLINE void pf_numbers(const uint8_t *line, int64_t k, int64_t count, float *to) {
#if defined(PF_ENCODING)
  int64_t g = k / PF_GROUP;
  const int64_t end = g + count / PF_GROUP;
  for (; g + 4 <= end; g += 4, to += 4 * PF_GROUP) pf_group_numbers(4, line, g, to);
#if !PF_SUPER
  for (; g < end; g++, to += PF_GROUP) pf_group_numbers(1, line, g, to);
#endif
#elif defined(PF_DECODE)
  for (int64_t at = 0; at < count; at += PF_DECODED)
    PF_DECODE(line + (k + at) / PF_BLOCK * PF_BLOCK_BYTES, (int)((k + at) % PF_BLOCK / PF_DECODED), to + at);
#else
  const uint16_t *numbers = (const uint16_t *)line + k;
  for (int64_t at = 0; at < count; at += 16) {
    const __mmask16 kept = (__mmask16)((UINT32_C(1) << pf_up_to(16, count - at)) - 1);
    const __m256i some = _mm256_maskz_loadu_epi16(kept, numbers + at);
    _mm512_storeu_ps(to + at, PF_HALF ? _mm512_cvtph_ps(some) : (__m512)_mm512_slli_epi32(_mm512_cvtepu16_epi32(some), 16));
  }
  if (count % 32 && count % 32 <= 16) _mm512_storeu_ps(to + count / 32 * 32 + 16, _mm512_setzero_ps());
#endif
}

/* Elements [k, end) of up to 16 lines, as columns of the panel. */
static void pf_unpack_lines(const uint8_t *line, int64_t stride, int64_t lines, int64_t k, int64_t end, uint32_t *panel) {
  for (; k < end; k += PF_CHUNK, panel += PF_CHUNK / 2 * PF_LINES) {
    const int64_t count = pf_up_to(PF_CHUNK, end - k);
    uint32_t words[PF_W_PIECES][16][PF_CHUNK / 2];
    for (int64_t l = 0; l < lines; l++) {
      float number[PF_CHUNK];
      pf_numbers(line + l * stride, k, count, number);
      for (int64_t at = 0; at < count; at += 32) {
        const pf_pieces p = pf_pieces_of(PF_W_PIECES, _mm512_loadu_ps(number + at), _mm512_loadu_ps(number + at + 16));
        for (int n = 0; n < PF_W_PIECES; n++) _mm512_storeu_si512(words[n][l] + at / 2, p.piece[n]);
      }
    }
    for (int n = 0; n < PF_W_PIECES; n++)
      for (int64_t at = 0; at < count; at += 32)
        pf_transpose_16(panel + n * PF_PANEL_WORDS + at / 2 * PF_LINES, PF_LINES, (const char *)(words[n][0] + at / 2),
                        sizeof words[n][0], lines);
  }
}

#endif

/* ---- products ---- */

/* Lines [j, j + PF_LINES) of a part, elements [k, end), as a panel. What it has behind the last line goes to sums that
 * nobody reads. */
PF_ALWAYS_INLINE void pf_unpack(pf_part part, int64_t j, int64_t stride, int64_t k, int64_t end, uint32_t *panel) {
  for (int64_t c = 0; c < PF_LINES && j + c < part.width; c += 16) {
    const uint8_t *line = part.weights + (j + c) * stride;
#if defined(PF_ENCODING) && PF_INTERLEAVED
    pf_unpack_set(line, k, end, panel + c);
#else
    pf_unpack_lines(line, stride, pf_up_to(16, part.width - j - c), k, end, panel + c);
#endif
  }
}

/* One iteration is PF_ROWS x PF_COLS outputs. */
PF_KERNEL(PF_GLUE(PF_NAME, _mul)) {
  const int64_t k = arg[PF_K], stride = arg[PF_ROW_BYTES], out_ld = arg[PF_COLS] + PF_SKEW;
  uint32_t *panel = (uint32_t *)(buf[PF_SCRATCH] + arg[PF_WORKER_AT] + worker * arg[PF_WORKER_BYTES]);
  float *out = (float *)(panel + PF_W_PIECES * PF_PANEL_WORDS);
  pf_kernel_begin();
  for (int64_t task = begin; task < end; task++) {
    const pf_part part = pf_part_of(buf, arg, task);
    if (part.height == 0) continue;
    for (int64_t at = 0; at == 0 || at < k; at += PF_DEPTH)
      for (int64_t j = 0, words = pf_words(arg, at); j < part.width; j += PF_LINES) {
        pf_unpack(part, j, stride, at, pf_up_to(at + PF_DEPTH, k), panel);
        for (int64_t i = 0; i < part.height; i += 32) {
          pf_tile_pair pairs[3];
          int count = 0;
          for (int a = 0; a < PF_X_PIECES; a++)
            for (int b = 0; b < PF_W_PIECES && a + b < 2; b++)
              pairs[count++] = (pf_tile_pair){pf_rounded_row(buf, arg, a, at, part.i + i), panel + b * PF_PANEL_WORDS};
          pf_tiles(part.height - i, part.width - j, words, count, pairs, pf_pitch(arg, at), 64, 4 * PF_LINES, out + i * out_ld + j, out_ld,
                   at > 0);
        }
      }
    pf_finish(buf, arg, uni, part, out, out_ld);
  }
  pf_kernel_end();
}

/* ---- the permission to use tiles, asked for once per process; 0: granted ---- */

int64_t PF_GLUE(PF_NAME, _permit)(void) { return pf_kernel_permit(); }
