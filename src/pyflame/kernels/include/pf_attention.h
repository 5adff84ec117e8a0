/* The products of attention.c and the forms in which they want their operands: one engine for vectors, one for AMX.
 *
 *   pf_by_rows   C[key][query]  = X[key][depth] * right[depth][query]        S^T = K Q^T, dP^T = V dO^T
 *   pf_by_cols   C[depth][query] += X^T[depth][key] * right[key][query]      O^T = V^T P^T, dQ^T = K^T dS^T
 *   pf_cross     C[key][depth] += left[key][query] * X[query][depth]         dV = P^T dO, dK = dS^T Q
 *
 * Right operands are panels [word][PF_NR] as in pf_gemm.h. A panel of scores, [key][PF_NR] floats, is one as it stands
 * where words are floats, and one of PF_NR-long rows of a left operand too; for AMX pf_raise and pf_slopes store their
 * results as bf16 in both forms at once. Every product is a chain of multiply-adds in order of its inner index.
 *
 * Vectors: PF_MR x PF_NR accumulators in registers; a step reads PF_NR + PF_MR floats for PF_MR * PF_NR multiply-adds.
 */
#ifndef PF_ATTENTION_H
#define PF_ATTENTION_H

#define PF_OWN_PANELS 1 /* its panels are of floats, or of AMX's tiles */
#include "pf_gemm.h"

enum { PF_BLOCK = PF_BACKWARD ? 128 : 256, PF_PANELS = 4 }; /* keys of a block; panels of queries taken together */

typedef struct {
  pf_word_t *rows, *cols; /* K or V of a head as left operand of pf_by_rows and of pf_by_cols; NULL: not wanted */
  int64_t lines, depth;
} pf_side;

PF_ALWAYS_INLINE pf_vec *pf_at(const float *x, int64_t i, int v) { return (pf_vec *)(x + i * PF_NR + v * PF_LANES); }

/* ---- elements ---- */

typedef int32_t pf_ints __attribute__((vector_size(PF_VECTOR_BYTES), aligned(4), may_alias));

PF_ALWAYS_INLINE pf_vec pf_select(pf_ints keep, pf_vec a, pf_vec b) {
  return (pf_vec)(((pf_ints)a & keep) | ((pf_ints)b & ~keep));
}

/* a > b ? a : b, so a NaN in b stays */
PF_ALWAYS_INLINE pf_vec pf_larger(pf_vec a, pf_vec b) {
#if PF_AVX512
  return (pf_vec)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__) && defined(__FMA__)
  return (pf_vec)_mm256_max_ps((__m256)a, (__m256)b);
#else
  return pf_select(a > b, a, b);
#endif
}

/* 2^x for x <= 0, to 2 ulp; 0 below -126.5, where the exponent field becomes 0. */
PF_ALWAYS_INLINE pf_vec pf_exp2_vec(pf_vec x) {
  const float round = 12582912.0f; /* 1.5 * 2^23: adding it leaves the nearest integer in the low bits */
  x = pf_larger((pf_vec){0} - 127.0f, x);
  const pf_vec shifted = x + round, r = x - (shifted - round);
  pf_vec y = r * 0.00132764718f + 0.00967554133f;
  y = y * r + 0.0555071327f;
  y = y * r + 0.240221197f;
  y = y * r + 0.693146967f;
  y = y * r + 1.0f;
  return y * (pf_vec)((pf_ints)shifted * (1 << 23) + (127 << 23));
}

/* s[keys][PF_NR] = 2^(s - top), added to total. */
PF_UNUSED static void pf_raise_in_place(float *s, int64_t keys, const float *top, float *total) {
  pf_vec high[PF_NV], sum[PF_NV];
  for (int v = 0; v < PF_NV; v++) high[v] = *pf_at(top, 0, v), sum[v] = *pf_at(total, 0, v);
  for (int64_t k = 0; k < keys; k++)
#pragma GCC unroll 2
    for (int v = 0; v < PF_NV; v++) sum[v] += *pf_at(s, k, v) = pf_exp2_vec(*pf_at(s, k, v) - high[v]);
  for (int v = 0; v < PF_NV; v++) *pf_at(total, 0, v) = sum[v];
}

#if !PF_AMX

/* ---- vectors: K, V, Q and dO as floats in slabs of PF_LINE columns, [slab][line][PF_PITCH] ----
 * The pitch is a constant, so that the rows of a tile are one address and fixed displacements, and odd in cache lines,
 * so that they fall into different sets. Slabs of K, V, dK and dV have PF_MR spare lines: a tile may be too tall. */

enum { PF_LINE = 64, PF_PITCH = PF_LINE + 16 };
enum { PF_MID = PF_MR > 8 ? 8 : 4, PF_LOW = PF_MR > 8 ? 4 : 2 }; /* the other heights of a tile */
enum { PF_SCORES = (PF_BLOCK + PF_MR) * PF_NR };                 /* of one panel */

PF_ALWAYS_INLINE int64_t pf_slab(int64_t d, int64_t room) { return d / PF_LINE * room * PF_PITCH + d % PF_LINE; }
PF_ALWAYS_INLINE int64_t pf_cross_words(int64_t rows, int64_t depth) {
  return pf_div_up(depth, PF_LINE) * rows * PF_PITCH;
}
PF_ALWAYS_INLINE int64_t pf_rows_words(int64_t lines, int64_t depth) { return pf_cross_words(lines + PF_MR, depth); }
PF_ALWAYS_INLINE int64_t pf_cols_words(int64_t lines, int64_t depth) { return pf_rows_words(lines, depth); }
PF_ALWAYS_INLINE int64_t pf_sums_words(int64_t lines, int64_t depth) { return pf_rows_words(lines, depth); }
PF_ALWAYS_INLINE int64_t pf_sum_lines(int64_t depth) { return depth + PF_MR; } /* that pf_by_cols may write */
PF_ALWAYS_INLINE int64_t pf_right_words(void) { return 0; }

/* C[lines][PF_NR] (+)= sum over panels and words of a[line * a_line + word * a_word] * b[word * b_word ..] */
PF_ALWAYS_INLINE void pf_tile(const int lines, const int64_t a_line, const int64_t a_word, const int64_t b_word,
                              const int64_t c_line, int64_t words, int64_t panels, int64_t a_panel, int64_t b_panel,
                              const float *a, const float *b, float *c, int resume) {
  pf_vec acc[PF_MR][PF_NV];
#pragma GCC unroll 16
  for (int r = 0; r < lines; r++)
#pragma GCC unroll 2
    for (int v = 0; v < PF_NV; v++) acc[r][v] = resume ? *(pf_vec *)(c + r * c_line + v * PF_LANES) : (pf_vec){0};
  for (int64_t p = 0; p < panels; p++, a += a_panel, b += b_panel) {
    const float *left = a, *right = b;
    for (int64_t w = 0; w < words; w++, left += a_word, right += b_word) {
      pf_vec column[PF_NV];
#pragma GCC unroll 2
      for (int v = 0; v < PF_NV; v++) column[v] = *(const pf_vec *)(right + v * PF_LANES);
#pragma GCC unroll 16
      for (int r = 0; r < lines; r++)
#pragma GCC unroll 2
        for (int v = 0; v < PF_NV; v++) acc[r][v] += left[r * a_line] * column[v];
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < lines; r++)
#pragma GCC unroll 2
    for (int v = 0; v < PF_NV; v++) *(pf_vec *)(c + r * c_line + v * PF_LANES) = acc[r][v];
}

/* A tile of the lowest height that takes what is left; gives the height. */
#define PF_TILES(left, ...)                                                                                    \
  ((left) > PF_MID   ? (pf_tile(PF_MR, __VA_ARGS__), PF_MR)                                                    \
   : (left) > PF_LOW ? (pf_tile(PF_MID, __VA_ARGS__), PF_MID)                                                  \
                     : (pf_tile(PF_LOW, __VA_ARGS__), PF_LOW))

/* Slabs of x[lines][depth] with zeros around it; room: lines of a slab. */
static void pf_pack_slabs(float *to, int64_t room, const pf_a_t *x, int64_t lines, int64_t depth, int64_t stride,
                          int64_t step) {
  for (int64_t first = 0; first < depth; first += PF_LINE)
    for (int64_t line = 0; line < room; line++, to += PF_PITCH) {
      const pf_a_t *from = x + line * stride + first * step;
      const int64_t count = line < lines ? pf_min(PF_LINE, depth - first) : 0;
      for (int i = 0; i < 4; i++) __builtin_prefetch((const char *)(from + 8 * stride) + 64 * i); /* strides hide it */
      int64_t i = 0;
      if (step == 1)
        for (; i + PF_LANES <= count; i += PF_LANES) *(pf_vec *)(to + i) = pf_vector_a(from + i);
      for (; i < count; i++) to[i] = PF_LOAD_A(from + i * step);
      for (; i < PF_PITCH; i++) to[i] = 0;
    }
}

/* Slabs serve both ways. */
static void pf_pack_side(pf_side *side, const pf_a_t *x, int64_t stride, int64_t step) {
  if (side->rows)
    side->cols = side->rows;
  else
    side->rows = side->cols;
  pf_pack_slabs(side->rows, side->lines + PF_MR, x, side->lines, side->depth, stride, step);
}

static void pf_by_rows(const pf_side *x, int64_t first, int64_t keys, const float *right, float *c) {
  for (int64_t i = 0, tall = 0; i < keys; i += tall)
    for (int64_t d = 0; d < x->depth; d += PF_LINE)
      tall = PF_TILES(keys - i, PF_PITCH, 1, PF_NR, PF_NR, pf_min(PF_LINE, x->depth - d), 1, 0, 0,
                      x->rows + pf_slab(d, x->lines + PF_MR) + (first + i) * PF_PITCH, right + d * PF_NR, c + i * PF_NR,
                      d > 0);
}

static void pf_by_cols(const pf_side *x, int64_t first, int64_t keys, const float *right, float *c) {
  for (int64_t d = 0; d < x->depth;) {
    const int64_t left = pf_min(PF_LINE - d % PF_LINE, x->depth - d);
    const float *a = x->cols + pf_slab(d, x->lines + PF_MR) + first * PF_PITCH;
    d += pf_min(left, PF_TILES(left, 1, PF_PITCH, PF_NR, PF_NR, keys, 1, 0, 0, a, right, c + d * PF_NR, 1));
  }
}

PF_UNUSED static const float *pf_raise(float *s, int64_t keys, const float *top, float *total, pf_word_t *right) {
  (void)right;
  pf_raise_in_place(s, keys, top, total);
  return s;
}

#if PF_BACKWARD

static void pf_pack_cross(float *to, const pf_a_t *x, int64_t rows, int64_t depth, int64_t stride, int64_t step) {
  pf_pack_slabs(to, pf_round_up(rows, PF_NR), x, rows, depth, stride, step);
}

/* Key i of the block is seen from query i + ahead on; panels that end before it are left out. */
static void pf_cross(const float *left, int64_t keys, int64_t ahead, int64_t panels, const float *x, int64_t depth,
                     float *c, int64_t first, int64_t lines) {
  for (int64_t i = 0, tall = 0; i < keys; i += tall) {
    const int64_t begin = pf_max(0, i + ahead) / PF_NR;
    for (int64_t d = 0; d < depth; d += PF_NR)
      tall = PF_TILES(keys - i, PF_NR, 1, PF_PITCH, PF_PITCH, PF_NR, panels - begin, PF_SCORES, PF_NR * PF_PITCH,
                      left + begin * PF_SCORES + i * PF_NR, x + pf_slab(d, panels * PF_NR) + begin * PF_NR * PF_PITCH,
                      c + pf_slab(d, lines + PF_MR) + (first + i) * PF_PITCH, 1);
  }
}

/* Where element d of a line of sums lies, and in how many neighbours the line goes on. */
static const float *pf_sums_at(const float *c, int64_t line, int64_t d, int64_t lines, int64_t depth, int64_t *run) {
  *run = pf_min(PF_LINE - d % PF_LINE, depth - d);
  return c + pf_slab(d, lines + PF_MR) + line * PF_PITCH;
}

/* P = e / sum and dS = P (dP - delta) of one panel; keys from `seen` to `keys` count for nothing. Gives dS as right. */
static const float *pf_slopes(const float *e, const float *dp, int64_t seen, int64_t keys, int64_t panel,
                              const float *inverse, const float *delta, float *p, float *ds, pf_word_t *right) {
  (void)right;
  p += panel * PF_SCORES, ds += panel * PF_SCORES;
  for (int64_t k = 0; k < seen; k++)
#pragma GCC unroll 2
    for (int v = 0; v < PF_NV; v++) {
      const pf_vec x = *pf_at(e, k, v) * *pf_at(inverse, 0, v);
      *pf_at(p, k, v) = x;
      *pf_at(ds, k, v) = x * (*pf_at(dp, k, v) - *pf_at(delta, 0, v));
    }
  for (int64_t i = seen * PF_NR; i < (keys + PF_MR) * PF_NR; i++) p[i] = ds[i] = 0;
  return ds;
}

#endif

#else

/* ---- AMX: K and V as tiles, 32 lines high; where elements are the lines, block of keys after block of keys ---- */

enum { PF_SCORES = PF_BLOCK * PF_NR / 2 }; /* of one panel; [32 keys][panel][32 keys][PF_NR bf16] */

PF_ALWAYS_INLINE int64_t pf_cross_words(int64_t rows, int64_t depth) { return pf_words(rows) * pf_width(depth); }
PF_ALWAYS_INLINE int64_t pf_rows_words(int64_t lines, int64_t depth) {
  return pf_round_up(lines, PF_MR) * pf_words(depth);
}
PF_ALWAYS_INLINE int64_t pf_cols_words(int64_t lines, int64_t depth) { return pf_words(lines) * pf_height(depth); }
PF_ALWAYS_INLINE int64_t pf_sums_words(int64_t lines, int64_t depth) {
  return pf_round_up(lines, PF_MR) * pf_width(depth);
}
PF_ALWAYS_INLINE int64_t pf_sum_lines(int64_t depth) { return pf_height(depth); }
PF_ALWAYS_INLINE int64_t pf_right_words(void) { return pf_words(PF_BLOCK) * PF_NR; }

static void pf_pack_side(pf_side *side, const pf_a_t *x, int64_t stride, int64_t step) {
  const int64_t lines = side->lines, depth = side->depth;
  if (side->rows)
    for (int64_t i = 0; i < lines; i += PF_MR) {
      const int64_t count = pf_min(PF_MR, lines - i);
      pf_pack_left(side->rows + i * pf_words(depth), PF_MR, x + i * stride, count, depth, stride, step);
    }
  if (side->cols)
    for (int64_t j = 0; j < lines; j += PF_BLOCK)
      for (int64_t d = 0; d < depth; d += PF_MR) {
        const int64_t keys = pf_min(PF_BLOCK, lines - j), count = pf_min(PF_MR, depth - d);
        pf_word_t *to = side->cols + j / 2 * pf_height(depth) + d * pf_words(keys);
        pf_pack_left(to, pf_height(count), x + j * stride + d * step, count, keys, step, stride);
      }
}

static void pf_by_rows(const pf_side *x, int64_t first, int64_t keys, const pf_word_t *right, float *c) {
  const int64_t words = pf_words(x->depth);
  for (int64_t i = 0; i < keys; i += PF_MR)
    pf_micro(PF_MR, PF_NR, words, x->rows + (first + i) * words, right, c + i * PF_NR, PF_NR, 0);
}

static void pf_by_cols(const pf_side *x, int64_t first, int64_t keys, const pf_word_t *right, float *c) {
  const int64_t block = pf_words(pf_min(PF_BLOCK, x->lines - first));
  const pf_word_t *a = x->cols + first / 2 * pf_height(x->depth);
  for (int64_t d = 0; d < x->depth; d += PF_MR) {
    const int64_t height = pf_height(pf_min(PF_MR, x->depth - d));
    pf_micro(height, PF_NR, pf_words(keys), a + d * block, right, c + d * PF_NR, PF_NR, 1);
  }
}

/* low and then high as bf16, rounded to nearest even */
PF_ALWAYS_INLINE __m512i pf_narrow(pf_vec low, pf_vec high) {
#ifdef __AVX512BF16__
  return (__m512i)_mm512_cvtne2ps_pbh((__m512)high, (__m512)low);
#else
  const pf_ints a = (pf_ints)low, b = (pf_ints)high;
  const __m512i x = (__m512i)(a + 0x7fff + (a >> 16 & 1)), y = (__m512i)(b + 0x7fff + (b >> 16 & 1));
  const __m256i lower = _mm512_cvtepi32_epi16(_mm512_srli_epi32(x, 16));
  return _mm512_inserti64x4(_mm512_castsi256_si512(lower), _mm512_cvtepi32_epi16(_mm512_srli_epi32(y, 16)), 1);
#endif
}

/* Two keys of PF_LANES queries as words of a right operand. */
PF_ALWAYS_INLINE void pf_pair(pf_word_t *to, pf_vec even, pf_vec odd) {
  const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21,
                                         5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  _mm512_storeu_si512(to, _mm512_permutexvar_epi16(order, pf_narrow(even, odd)));
}

/* One key of PF_NR queries as a row of a left operand. */
PF_ALWAYS_INLINE void pf_row(pf_word_t *to, const pf_vec *x) {
  _mm512_storeu_si512(to, pf_narrow(x[0], x[1]));
}

PF_UNUSED static const pf_word_t *pf_raise(float *s, int64_t keys, const float *top, float *total, pf_word_t *right) {
  pf_vec high[PF_NV], sum[PF_NV];
  for (int v = 0; v < PF_NV; v++) high[v] = *pf_at(top, 0, v), sum[v] = *pf_at(total, 0, v);
  if (keys & 1)
    for (int v = 0; v < PF_NV; v++) *pf_at(s, keys, v) = (pf_vec){0} - __builtin_inff();
  for (int64_t k = 0; k < keys; k += 2)
#pragma GCC unroll 2
    for (int v = 0; v < PF_NV; v++) {
      const pf_vec even = pf_exp2_vec(*pf_at(s, k, v) - high[v]), odd = pf_exp2_vec(*pf_at(s, k + 1, v) - high[v]);
      sum[v] = sum[v] + even + odd;
      pf_pair(right + k / 2 * PF_NR + v * PF_LANES, even, odd);
    }
  for (int64_t i = (keys + 1) / 2 * PF_NR; i < pf_words(keys) * PF_NR; i++) right[i] = 0;
  for (int v = 0; v < PF_NV; v++) *pf_at(total, 0, v) = sum[v];
  return right;
}

#if PF_BACKWARD

static void pf_pack_cross(pf_word_t *to, const pf_a_t *x, int64_t rows, int64_t depth, int64_t stride, int64_t step) {
  for (int64_t d = 0; d < depth; d += PF_NR) {
    const int64_t count = pf_min(PF_NR, depth - d);
    pf_pack_right(to + d * pf_words(rows), pf_width(count), x + d * step, count, rows, step, stride);
  }
}

static void pf_cross(const pf_word_t *left, int64_t keys, int64_t ahead, int64_t panels, const pf_word_t *x,
                     int64_t depth, float *c, int64_t first, int64_t lines) {
  (void)lines;
  const int64_t panel = pf_words(PF_NR), ldc = pf_width(depth);
  for (int64_t i = 0; i < keys; i += PF_MR)
    for (int64_t d = 0; d < depth; d += PF_NR) {
      const int64_t begin = pf_max(0, i + ahead) / PF_NR, width = pf_width(pf_min(PF_NR, depth - d));
      pf_micro(PF_MR, width, (panels - begin) * panel, left + (i * PF_PANELS + begin * PF_MR) * panel,
               x + (d * panels + begin * width) * panel, c + (first + i) * ldc + d, ldc, 1);
    }
}

static const float *pf_sums_at(const float *c, int64_t line, int64_t d, int64_t lines, int64_t depth, int64_t *run) {
  (void)lines;
  *run = depth - d;
  return c + line * pf_width(depth) + d;
}

static const pf_word_t *pf_slopes(float *e, const float *dp, int64_t seen, int64_t keys, int64_t panel,
                                  const float *inverse, const float *delta, pf_word_t *p, pf_word_t *ds,
                                  pf_word_t *right) {
  const int64_t words = pf_words(PF_NR);
  if (seen & 1)
    for (int v = 0; v < PF_NV; v++) *pf_at(e, seen, v) = (pf_vec){0};
  for (int64_t k = 0; k < pf_round_up(keys, PF_MR); k += 2) {
    const int64_t to = ((k / PF_MR * PF_PANELS + panel) * PF_MR + k % PF_MR) * words;
    pf_vec x[2][PF_NV] = {{{0}}}, y[2][PF_NV] = {{{0}}};
    if (k < seen) {
#pragma GCC unroll 2
      for (int i = 0; i < 2; i++)
#pragma GCC unroll 2
        for (int v = 0; v < PF_NV; v++) {
          x[i][v] = *pf_at(e, k + i, v) * *pf_at(inverse, 0, v);
          y[i][v] = x[i][v] * (*pf_at(dp, k + i, v) - *pf_at(delta, 0, v));
        }
    }
    pf_row(p + to, x[0]), pf_row(p + to + words, x[1]);
    pf_row(ds + to, y[0]), pf_row(ds + to + words, y[1]);
    pf_pair(right + k / 2 * PF_NR, y[0][0], y[1][0]), pf_pair(right + k / 2 * PF_NR + PF_LANES, y[0][1], y[1][1]);
  }
  return right;
}

#endif
#endif
#endif
