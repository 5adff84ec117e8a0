/* Grouped convolution in 1, 2 or 3 dimensions, with a generated epilogue (XLA's conv_general_dilated).
 *
 *   acc[n, g, o, p] = sum_{c, k} x[n, g, c, (p * stride + k * rhs_dilation - pad_lo) / lhs_dilation] * w[g, o, c, k]
 *   PF_EPILOGUE(batch = n * G + g, i = o, j = flat pixel p.., acc)
 *
 * Forward, backward-data, backward-weight and transposed convolution are this one sum under other strides. 2*N*G*O*C*
 * |P|*|K| flops; x, w and the output are each read or written about once from memory. PF_ALGORITHM picks one of four:
 *
 *   0 gemm    w packed once as A panels; the patches of a block of output pixels (of all images: columns are n * |P| + p)
 *             are packed into B panels by the task that needs them, stay in L2 and meet every row of w there.
 *   1 batch   few outputs, long reduction (backward-weight): for each output pixel a product of x, images side by side, by
 *             w, output channels side by side (pf_conv_batch.h).
 *   2 dot     very few outputs, long reduction (backward-weight of a depthwise one): vectors run along taps (pf_conv_dot.h).
 *   3 direct  C == 1 (depthwise): vectors run along output pixels over a padded plane; |K| multiply-adds per load pair.
 *
 * Before including this file define PF_NAME, PF_X_T, PF_W_T, PF_ACC_T, PF_EPILOGUE and PF_ALGORITHM; conv.py plans.
 */
#include "pf_conv.h"

#if PF_ALGORITHM == 0

/* Tap (c, k0, k1, k2) that reduction index kk stands for. */
typedef struct {
  int64_t c, k[3];
} pf_tap;

static pf_tap pf_tap_of(const int64_t *arg, int64_t kk) {
  const int64_t *taps = arg + PF_TAPS, k1 = pf_div(kk, taps[2]), k0 = pf_div(k1, taps[1]), c = pf_div(k0, taps[0]);
  return (pf_tap){c, {k0 - c * taps[0], k1 - k0 * taps[1], kk - k1 * taps[2]}};
}

/* ---- pack: one iteration is one panel of w for one k block ---- */

PF_KERNEL(PF_GLUE(PF_NAME, _pack)) {
  (void)uni, (void)worker;
  const int64_t total = arg[PF_C] * pf_volume(arg + PF_TAPS), depth = arg[PF_DEPTH], rows = arg[PF_O];
  const int64_t blocks = pf_div_up(total, depth), panels = pf_div_up(rows, PF_MR);
  for (int64_t unit = begin; unit < end; unit++) {
    const int64_t o = unit % panels * PF_MR, kk0 = unit / panels % blocks * depth, g = unit / (panels * blocks);
    const int64_t count = pf_min(PF_MR, rows - o), height = pf_height(count), kc = pf_min(depth, total - kk0);
    pf_word_t *dst = (pf_word_t *)buf[2] + pf_height(rows) * (g * pf_words(total) + pf_words(kk0)) + o * pf_words(kc);
    enum { step = PF_GROUP * PF_WORD_STEP };
    for (int64_t at = 0; at < kc; at += step) {
      pf_a_t square[PF_MR][step]; /* the taps of one step, made contiguous */
      const int64_t here = pf_min(step, kc - at);
      for (int64_t i = 0; i < here; i++) {
        const pf_tap tap = pf_tap_of(arg, kk0 + at + i);
        const pf_a_t *w = pf_w_at(buf, arg, g, o, tap.c) + tap.k[0] * arg[PF_W_K] + tap.k[1] * arg[PF_W_K + 1] + tap.k[2] * arg[PF_W_K + 2];
        for (int64_t r = 0; r < count; r++) square[r][i] = w[r * arg[PF_W_O]];
      }
      pf_pack_left(dst + at / PF_GROUP * height, height, &square[0][0], count, here, step, 1);
    }
  }
}

/* ---- mul: one iteration is a block of output channels x output pixels of one group ---- */

/* Reads one run of neighbouring columns for one tap after another. What the innermost axis contributes is the same for
 * all channels and outer taps, so it is worked out once per run, for the first PF_PLANNED innermost taps. */
enum { PF_PLANNED = 16 };

typedef struct {
  int64_t first; /* offset of the first element read */
  uint32_t lanes; /* which of the columns are not zero */
  uint32_t apart[2]; /* the same where every other element is read: bit 2i for column i, of 16 columns each */
} pf_tap_read;

typedef struct {
  enum { PF_READ_SLOWLY, PF_READ_NEIGHBOURS, PF_READ_SPREAD, PF_READ_EVERY_OTHER, PF_READ_GATHER } how;
  int64_t hop; /* distance between two elements that are read */
  pf_tap_read tap[PF_PLANNED];
} pf_run;

/* Which of positions start, start + step, .. (up to 32) lie on an axis. */
static uint32_t pf_inside(int64_t start, int64_t step, int64_t extent, int64_t count) {
  const int64_t last = start + (count - 1) * step;
  const int64_t low = start < 0 ? pf_min(count, pf_div(step - 1 - start, step)) : 0;
  const int64_t high = last < extent ? count : extent <= start ? 0 : pf_div(extent - start + step - 1, step);
  return high > low ? (uint32_t)((1ull << high) - (1ull << low)) : 0;
}

/* Bit i of 16 goes to bit 2i. */
PF_ALWAYS_INLINE uint32_t pf_spread_bits(uint32_t bits) {
  bits = (bits | bits << 8) & 0x00ff00ff;
  bits = (bits | bits << 4) & 0x0f0f0f0f;
  bits = (bits | bits << 2) & 0x33333333;
  return (bits | bits << 1) & 0x55555555;
}

static void pf_plan_run(pf_run *run, const int64_t *arg, int64_t u, int64_t count) {
  const int64_t step = arg[PF_STRIDE + 2], lhs = arg[PF_LHS + 2], extent = arg[PF_IN + 2], x_stride = arg[PF_X_S + 2];
  run->how = PF_READ_SLOWLY;
  if (!(PF_ARM || (PF_AVX512 && sizeof(pf_b_t) == 4)) || count > 32 || arg[PF_TAPS + 2] > PF_PLANNED) return;
  run->hop = step * x_stride;
  if (lhs == 1)
    run->how = run->hop == 1 ? PF_READ_NEIGHBOURS : run->hop == 2 ? PF_READ_EVERY_OTHER : PF_READ_GATHER;
  else if (step == 1 && x_stride == 1 && !PF_ARM)
    run->how = PF_READ_SPREAD;
  if (run->hop > INT32_MAX / 32 || run->hop < INT32_MIN / 32) run->how = PF_READ_SLOWLY;
  if (run->how == PF_READ_SLOWLY) return;
  for (int64_t k = 0; k < arg[PF_TAPS + 2]; k++) {
    pf_tap_read *tap = run->tap + k;
    const int64_t start = u + k * arg[PF_RHS + 2];
    tap->first = start * x_stride, tap->lanes = 0;
    if (lhs == 1) {
      tap->lanes = pf_inside(start, step, extent, count);
      for (int half = 0; half < 2; half++) tap->apart[half] = pf_spread_bits(tap->lanes >> 16 * half & 0xffff);
      continue;
    }
    for (int64_t i = count - 1; i >= 0; i--) {
      const int64_t at = pf_source(start + i * step, lhs, extent);
      tap->lanes = tap->lanes << 1 | (at >= 0);
      if (at >= 0 && run->how == PF_READ_SPREAD) tap->first = at;
    }
  }
}

#if PF_AVX512
/* Elements 0, 2, .. of src: those of 16 lanes, zero where a bit is not set. A gather takes five times as long. */
PF_ALWAYS_INLINE __m512i pf_every_other(const pf_b_t *src, uint32_t read) {
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  return _mm512_permutex2var_epi32(_mm512_maskz_loadu_epi32(read, src), even, _mm512_maskz_loadu_epi32(read >> 16, src + 16));
}

PF_ALWAYS_INLINE void pf_write_run(pf_b_t *dst, __m512i low, __m512i high, int64_t count) {
  const uint32_t keep = count >= 32 ? ~0u : (1u << count) - 1;
  _mm512_mask_storeu_epi32(dst, keep, low);
  if (count > 16) _mm512_mask_storeu_epi32(dst + 16, keep >> 16, high);
}

/* What is rare; a function of its own, so that the loops over the others stay small. */
__attribute__((noinline)) static void pf_read_apart(pf_b_t *dst, const pf_b_t *src, const pf_run *run, uint32_t lanes, int64_t count) {
  __m512i low, high;
  if (run->how == PF_READ_SPREAD) {
    low = _mm512_maskz_expandloadu_epi32(lanes, src);
    high = _mm512_maskz_expandloadu_epi32(lanes >> 16, src + __builtin_popcount(lanes & 0xffff));
  } else {
    const __m512i each = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i at = _mm512_mullo_epi32(each, _mm512_set1_epi32((int)run->hop));
    low = _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), lanes, at, src, 4);
    high = _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), lanes >> 16, at, src + 16 * run->hop, 4);
  }
  pf_write_run(dst, low, high, count);
}

PF_ALWAYS_INLINE void pf_read_run(const int how, pf_b_t *dst, const pf_b_t *line, const pf_run *run, int64_t k, int64_t count) {
  const uint32_t lanes = run->tap[k].lanes, *apart = run->tap[k].apart;
  const pf_b_t *src = line + run->tap[k].first;
  if (how == PF_READ_EVERY_OTHER) {
    const __m512i low = pf_every_other(src, apart[0]);
    pf_write_run(dst, low, count > 16 ? pf_every_other(src + 32, apart[1]) : low, count);
  } else if (how == PF_READ_NEIGHBOURS)
    pf_write_run(dst, _mm512_maskz_loadu_epi32(lanes, src), _mm512_maskz_loadu_epi32(lanes >> 16, src + 16), count);
  else
    pf_read_apart(dst, src, run, lanes, count);
}
#elif PF_ARM
PF_ALWAYS_INLINE void pf_read_run(const int how, pf_b_t *dst, const pf_b_t *line, const pf_run *run, int64_t k, int64_t count) {
  const uint32_t lanes = run->tap[k].lanes;
  const pf_b_t *src = line + run->tap[k].first;
  if (PF_NR > 32 || lanes != ~0u >> (32 - PF_NR & 31))
    for (int64_t i = 0; i < count; i++) dst[i] = lanes >> i & 1 ? src[i * run->hop] : 0;
  else if (how == PF_READ_NEIGHBOURS)
    __builtin_memcpy(dst, src, PF_NR * sizeof(pf_b_t));
  else
    for (int i = 0; i < PF_NR; i++) dst[i] = src[i * run->hop];
}
#else
PF_ALWAYS_INLINE void pf_read_run(const int how, pf_b_t *dst, const pf_b_t *line, const pf_run *run, int64_t k, int64_t count) {
  (void)how, (void)dst, (void)line, (void)run, (void)k, (void)count;
}
#endif

/* Patches of columns [q, q + count) for taps [kk0, kk0 + kc): dst[kk * pitch + column], raw elements. */
static void pf_patches(pf_b_t *dst, int64_t pitch, char *const *buf, const int64_t *arg, int64_t g, int64_t q, int64_t count,
                       int64_t kk0, int64_t kc) {
  const int64_t *out = arg + PF_OUT, *taps = arg + PF_TAPS, pixels = pf_volume(out);
  const pf_tap start = pf_tap_of(arg, kk0);
  int64_t n = pf_div(q, pixels), p1 = pf_div(q - n * pixels, out[2]), p0 = pf_div(p1, out[1]);
  int64_t p[3] = {p0, p1 - p0 * out[1], q - n * pixels - p1 * out[2]};
  for (int64_t column = 0, length; column < count; column += length) {
    length = pf_min(count - column, out[2] - p[2]);
    int64_t u[3];
    for (int d = 0; d < 3; d++) u[d] = p[d] * arg[PF_STRIDE + d] - arg[PF_PAD + d];
    pf_run run;
    pf_plan_run(&run, arg, u[2], length);
    const pf_b_t *x = pf_x_at(buf, arg, n, g, 0);
    pf_tap tap = start;
    pf_b_t *to = dst + column;
    for (int64_t left = kc; left > 0;) {
      const int64_t i0 = pf_source(u[0] + tap.k[0] * arg[PF_RHS], arg[PF_LHS], arg[PF_IN]);
      const int64_t i1 = pf_source(u[1] + tap.k[1] * arg[PF_RHS + 1], arg[PF_LHS + 1], arg[PF_IN + 1]);
      const pf_b_t *line = x + tap.c * arg[PF_X_C] + i0 * arg[PF_X_S] + i1 * arg[PF_X_S + 1];
      const int64_t last = pf_min(taps[2], tap.k[2] + left);
      left -= last - tap.k[2];
      if (i0 < 0 || i1 < 0)
        for (; tap.k[2] < last; tap.k[2]++, to += pitch)
          for (int64_t i = 0; i < length; i++) to[i] = 0;
      else if (run.how == PF_READ_NEIGHBOURS) /* the common cases, as loops of their own */
        for (; tap.k[2] < last; tap.k[2]++, to += pitch) pf_read_run(PF_READ_NEIGHBOURS, to, line, &run, tap.k[2], length);
      else if (run.how == PF_READ_EVERY_OTHER)
        for (; tap.k[2] < last; tap.k[2]++, to += pitch) pf_read_run(PF_READ_EVERY_OTHER, to, line, &run, tap.k[2], length);
      else if (run.how != PF_READ_SLOWLY)
        for (; tap.k[2] < last; tap.k[2]++, to += pitch) pf_read_run(PF_READ_GATHER, to, line, &run, tap.k[2], length);
      else
        for (; tap.k[2] < last; tap.k[2]++, to += pitch)
          pf_read_line(to, line, length, u[2] + tap.k[2] * arg[PF_RHS + 2], arg[PF_STRIDE + 2], arg[PF_LHS + 2], arg[PF_IN + 2],
                       arg[PF_X_S + 2]);
      tap.k[2] = 0;
      if (++tap.k[1] == taps[1]) {
        tap.k[1] = 0;
        if (++tap.k[0] == taps[0]) tap.k[0] = 0, tap.c++;
      }
    }
    p[2] += length;
    for (int d = 2; d > 0 && p[d] == out[d]; d--) p[d] = 0, p[d - 1]++;
    if (p[0] == out[0]) p[0] = 0, n++;
  }
}

PF_KERNEL(PF_GLUE(PF_NAME, _mul)) {
  const int64_t rows = arg[PF_O], pixels = pf_volume(arg + PF_OUT), columns = arg[PF_N] * pixels;
  const int64_t total = arg[PF_C] * pf_volume(arg + PF_TAPS), depth = arg[PF_DEPTH];
  const int64_t row_blocks = pf_div_up(rows, arg[PF_ROWS]), col_blocks = pf_div_up(columns, arg[PF_COLS]);
  char *scratch = buf[2] + arg[PF_WORKER_AT] + worker * arg[PF_WORKER_BYTES];
  pf_b_t *raw = (pf_b_t *)scratch;
  pf_word_t *b_panels = (pf_word_t *)(scratch + pf_round_up(PF_NR * depth * (int64_t)sizeof(pf_b_t), 64));
  PF_ACC_T *c = (PF_ACC_T *)(b_panels + arg[PF_COLS] * pf_words(depth));
  const int64_t ldc = arg[PF_COLS] + 64 / (int64_t)sizeof(PF_ACC_T), strip_stride = total > depth ? PF_MR * ldc : 0;
  pf_kernel_begin();
  for (int64_t task = begin; task < end; task++) {
    const int64_t o0 = task % row_blocks * arg[PF_ROWS], height = pf_min(arg[PF_ROWS], rows - o0);
    const int64_t q0 = task / row_blocks % col_blocks * arg[PF_COLS], cols = pf_min(arg[PF_COLS], columns - q0);
    const int64_t g = task / (row_blocks * col_blocks);
    int64_t kk0 = 0;
    do { /* runs once for an empty sum, which gives zeros */
      const int64_t kc = pf_min(depth, total - kk0), words = pf_words(kc);
      for (int64_t j = 0; j < cols; j += PF_NR) {
        const int64_t count = pf_min(PF_NR, cols - j);
        pf_word_t *panel = b_panels + j * words;
        if (PF_B_PLAIN && count == PF_NR) { /* the raw patches are the panel */
          pf_patches((pf_b_t *)panel, PF_NR, buf, arg, g, q0 + j, count, kk0, kc);
        } else {
          pf_patches(raw, PF_NR, buf, arg, g, q0 + j, count, kk0, kc);
          pf_pack_right(panel, pf_width(count), raw, count, kc, 1, PF_NR);
        }
      }
      const pf_word_t *a_panels = (pf_word_t *)buf[2] + pf_height(rows) * (g * pf_words(total) + pf_words(kk0));
      for (int64_t o = 0; o < height; o += PF_MR) {
        const int64_t count = pf_min(PF_MR, height - o);
        PF_ACC_T *strip = c + o / PF_MR * strip_stride;
        pf_strip(pf_height(count), cols, words, a_panels + (o0 + o) * words, b_panels, strip, ldc, kk0 > 0);
        if (kk0 + kc < total) continue;
        for (int64_t r = 0; r < count; r++)
          for (int64_t j = 0, run; j < cols; j += run) { /* columns of one image at a time */
            const int64_t n = (q0 + j) / pixels, p = (q0 + j) % pixels;
            run = pf_min(cols - j, pixels - p);
            PF_EPILOGUE(buf, arg, uni, n * arg[PF_G] + g, o0 + o + r, p, run, strip + r * ldc + j);
          }
      }
      kk0 += depth;
    } while (kk0 < total);
  }
  pf_kernel_end();
}

#elif PF_ALGORITHM == 1

#include "pf_conv_batch.h"

#elif PF_ALGORITHM == 2

#include "pf_conv_dot.h"

#else

/* ---- direct: C == 1; one iteration is the block of arg[PF_ROWS] output rows of one image and group ---- */

PF_KERNEL(PF_GLUE(PF_NAME, _direct)) {
  const int64_t *out = arg + PF_OUT, *taps = arg + PF_TAPS, *stride = arg + PF_STRIDE, *rhs = arg + PF_RHS, *pad = arg + PF_PAD;
  const int64_t rows = arg[PF_ROWS], blocks = pf_div_up(out[1], rows), volume = pf_volume(taps);
  const int64_t pitch = (taps[2] - 1) * rhs[2] / stride[2] + out[2];
  enum { width = 4 * PF_LANES };
  const pf_plane plane = {{stride[1], stride[2]}, {(taps[1] - 1) * rhs[1] / stride[1] + rows, pitch}, pitch + width};
  const int64_t plane_size = pf_plane_size(&plane), length = pf_round_up(rows * pitch, width);
  int64_t *shift = (int64_t *)(buf[2] + arg[PF_WORKER_AT] + worker * arg[PF_WORKER_BYTES]);
  PF_ACC_T *planes = (PF_ACC_T *)(shift + volume), *sums = planes + taps[0] * plane_size, *weights = sums + length;
  pf_b_t *line = (pf_b_t *)(weights + volume);
  for (int64_t k = 0; k < volume; k++)
    shift[k] = k / (taps[1] * taps[2]) * plane_size + pf_plane_at(&plane, k / taps[2] % taps[1] * rhs[1], k % taps[2] * rhs[2]);
  for (int64_t item = begin; item < end; item++) {
    const int64_t p1 = item % blocks * rows, count = pf_min(rows, out[1] - p1), p0 = item / blocks % out[0];
    const int64_t g = item / (blocks * out[0]) % arg[PF_G], n = item / (blocks * out[0] * arg[PF_G]);
    for (int64_t k0 = 0; k0 < taps[0]; k0++)
      pf_fill_plane(planes + k0 * plane_size, &plane, pf_x_at(buf, arg, n, g, 0), arg, p0 * stride[0] + k0 * rhs[0] - pad[0],
                    p1 * stride[1] - pad[1], -pad[2], line);
    for (int64_t o = 0; o < arg[PF_O]; o++) {
      PF_ACC_T *weight = weights;
      for (int64_t k0 = 0; k0 < taps[0]; k0++)
        for (int64_t k1 = 0; k1 < taps[1]; k1++)
          for (int64_t k2 = 0; k2 < taps[2]; k2++)
            *weight++ = PF_LOAD_A(pf_w_at(buf, arg, g, o, 0) + k0 * arg[PF_W_K] + k1 * arg[PF_W_K + 1] + k2 * arg[PF_W_K + 2]);
      for (int64_t at = 0; at < count * pitch; at += width) {
        pf_vec acc[4] = {{0}};
        for (int64_t k = 0; k < volume; k++) {
          const PF_ACC_T *window = planes + shift[k] + at;
#pragma GCC unroll 4
          for (int v = 0; v < 4; v++) acc[v] += weights[k] * *(const pf_vec *)(window + v * PF_LANES);
        }
#pragma GCC unroll 4
        for (int v = 0; v < 4; v++) *(pf_vec *)(sums + at + v * PF_LANES) = acc[v];
      }
      /* Close the gaps between rows in place, front to back, then hand over the block as one run of pixels. */
      for (int64_t row = 1; row < count && pitch > out[2]; row++)
        for (int64_t i = 0; i < out[2]; i++) sums[row * out[2] + i] = sums[row * pitch + i];
      PF_EPILOGUE(buf, arg, uni, n * arg[PF_G] + g, o, (p0 * out[1] + p1) * out[2], count * out[2], sums);
    }
  }
}

#endif

/* ---- the tile permission of AMX builds, asked for once per process; 0: granted or not needed ---- */

int64_t PF_GLUE(PF_NAME, _permit)(void) { return pf_kernel_permit(); }
