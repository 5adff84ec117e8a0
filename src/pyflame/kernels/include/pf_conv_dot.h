/* A convolution with very few outputs and a long reduction, as the gradient of a depthwise weight is (conv.c includes this).
 *
 * Vectors run along the taps. Per image, x and w are copied into padded planes of one pitch, so each (o, n, p) is one
 * contiguous dot product over all taps. Outputs are o x column, column = n * |P| + p; while a partial sum grows each
 * output is a whole vector, which `finish` adds up. One unit of the reduction is (c, k0, up to PF_DEEP rows of taps);
 * arg[PF_ROWS] units are copied at a time and stay in L2. A fixed number of partial sums, added in order, so threads do
 * not change the result.
 */
#include <string.h>

/* ---- dot: one iteration is one partial sum of one group ---- */

enum { PF_DOT_ROWS = PF_VECTOR_BYTES == 64 ? 4 : 2, PF_DOT_COLS = PF_VECTOR_BYTES == 64 ? 6 : 4 };

typedef __typeof__((pf_vec){0} == (pf_vec){0}) pf_bits __attribute__((aligned(sizeof(PF_ACC_T)), may_alias));

typedef struct {
  int64_t units, length;           /* length is a whole number of vectors */
  int64_t x_unit, w_unit, w_row;   /* distances in the copies */
  int64_t real;                    /* where bits of a unit are that tell real taps */
  int64_t sum_row;                 /* distance of two rows of sums */
} pf_dot_shape;

/* sums[r][c] += w_r . window_c over all units. */
PF_ALWAYS_INLINE void pf_dots(const int rows, const int cols, const pf_dot_shape *shape, const PF_ACC_T *w,
                              const PF_ACC_T *real, const PF_ACC_T *const *window, PF_ACC_T *sums) {
  pf_vec acc[PF_DOT_ROWS][PF_DOT_COLS];
#pragma GCC unroll 4
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 6
    for (int c = 0; c < cols; c++) acc[r][c] = *(pf_vec *)(sums + r * shape->sum_row + c * PF_LANES);
  for (int64_t unit = 0; unit < shape->units; unit++, w += shape->w_unit, real += shape->w_unit)
    for (int64_t at = 0; at < shape->length; at += PF_LANES) {
      pf_vec left[PF_DOT_ROWS];
#pragma GCC unroll 4
      for (int r = 0; r < rows; r++) left[r] = *(const pf_vec *)(w + r * shape->w_row + at);
      const pf_bits wanted = *(const pf_bits *)(real + at); /* infinity times a zero that fills up would be nan */
#pragma GCC unroll 6
      for (int c = 0; c < cols; c++) {
        const pf_vec right = (pf_vec)(*(const pf_bits *)(window[c] + unit * shape->x_unit + at) & wanted);
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) acc[r][c] += left[r] * right;
      }
    }
#pragma GCC unroll 4
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 6
    for (int c = 0; c < cols; c++) *(pf_vec *)(sums + r * shape->sum_row + c * PF_LANES) = acc[r][c];
}

/* dst[row * pitch + k2] = w at tap (row, k2), zeros elsewhere up to size. */
static void pf_fill_weights(PF_ACC_T *dst, int64_t size, const pf_a_t *w, const int64_t *arg, int64_t rows, int64_t pitch) {
  const int64_t taps = arg[PF_TAPS + 2], stride = arg[PF_W_K + 2];
  for (int64_t i = 0; i < size; i++) dst[i] = 0;
  for (int64_t row = 0; row < rows; row++, dst += pitch, w += arg[PF_W_K + 1])
    if (stride == 1)
      for (int64_t k2 = 0; k2 < taps; k2++) dst[k2] = PF_LOAD_A(w + k2);
    else
      for (int64_t k2 = 0; k2 < taps; k2++) dst[k2] = PF_LOAD_A(w + k2 * stride);
}

/* All bits where a tap is, none where a zero fills up. */
static void pf_fill_bits(PF_ACC_T *dst, int64_t size, int64_t rows, int64_t taps, int64_t pitch) {
  memset(dst, 0, (size_t)size * sizeof *dst);
  for (int64_t row = 0; row < rows; row++) memset(dst + row * pitch, 0xff, (size_t)taps * sizeof *dst);
}

PF_KERNEL(PF_GLUE(PF_NAME, _dot)) {
  (void)uni;
  const int64_t *out = arg + PF_OUT, *taps = arg + PF_TAPS, *stride = arg + PF_STRIDE, *rhs = arg + PF_RHS, *pad = arg + PF_PAD;
  const int64_t rows = arg[PF_O], pixels = pf_volume(out), columns = arg[PF_N] * pixels, deep = arg[PF_DEEP];
  const int64_t chunks = pf_div_up(taps[1], deep), units = arg[PF_C] * taps[0] * chunks, parts = arg[PF_PARTS];
  /* Steps of k are neighbours in the plane, so a run over (k1, k2) is contiguous; w takes the same pitch. */
  const int64_t pitch = (out[2] - 1) * stride[2] / rhs[2] + taps[2];
  const pf_plane plane = {{rhs[1], rhs[2]}, {(out[1] - 1) * stride[1] / rhs[1] + deep, pitch}, pitch + PF_LANES};
  const int64_t plane_size = pf_plane_size(&plane), w_size = pf_round_up(deep * pitch, PF_LANES);
  pf_dot_shape shape = {0, w_size, arg[PF_N] * out[0] * plane_size, (rows + 1) * w_size, w_size, rows * w_size, columns * PF_LANES};
  PF_ACC_T *x_planes = (PF_ACC_T *)(buf[2] + arg[PF_WORKER_AT] + worker * arg[PF_WORKER_BYTES]);
  PF_ACC_T *w_planes = x_planes + arg[PF_ROWS] * shape.x_unit;
  pf_b_t *line = (pf_b_t *)(w_planes + arg[PF_ROWS] * shape.w_unit);
  for (int64_t task = begin; task < end; task++) {
    const int64_t part = task % parts, g = task / parts, end_unit = units * (part + 1) / parts;
    PF_ACC_T *sums = (PF_ACC_T *)buf[2] + task * rows * columns * PF_LANES;
    for (int64_t i = 0; i < rows * columns * PF_LANES; i++) sums[i] = 0;
    for (int64_t first = units * part / parts; first < end_unit; first += shape.units) {
      shape.units = pf_min(arg[PF_ROWS], end_unit - first);
      for (int64_t i = 0; i < shape.units; i++) {
        const int64_t unit = first + i, c = unit / (taps[0] * chunks), k0 = unit / chunks % taps[0], k1 = unit % chunks * deep;
        for (int64_t image = 0; image < arg[PF_N] * out[0]; image++)
          pf_fill_plane(x_planes + i * shape.x_unit + image * plane_size, &plane, pf_x_at(buf, arg, image / out[0], g, c), arg,
                        image % out[0] * stride[0] + k0 * rhs[0] - pad[0], k1 * rhs[1] - pad[1], -pad[2], line);
        PF_ACC_T *w = w_planes + i * shape.w_unit;
        const int64_t here = pf_min(deep, taps[1] - k1);
        for (int64_t o = 0; o < rows; o++)
          pf_fill_weights(w + o * w_size, w_size, pf_w_at(buf, arg, g, o, c) + k0 * arg[PF_W_K] + k1 * arg[PF_W_K + 1], arg, here, pitch);
        pf_fill_bits(w + shape.real, w_size, here, taps[2], pitch);
      }
      for (int64_t column = 0; column < columns; column += PF_DOT_COLS) {
        const int64_t count = pf_min(PF_DOT_COLS, columns - column), whole = rows / PF_DOT_ROWS * PF_DOT_ROWS;
        const PF_ACC_T *windows[PF_DOT_COLS];
        for (int64_t i = 0; i < count; i++) {
          const int64_t n = (column + i) / pixels, p = (column + i) % pixels;
          windows[i] = x_planes + (n * out[0] + p / (out[1] * out[2])) * plane_size +
                       pf_plane_at(&plane, p / out[2] % out[1] * stride[1], p % out[2] * stride[2]);
        }
        PF_ACC_T *sum = sums + column * PF_LANES;
        for (int64_t o = 0; o < whole; o += PF_DOT_ROWS)
          if (count == PF_DOT_COLS)
            pf_dots(PF_DOT_ROWS, PF_DOT_COLS, &shape, w_planes + o * w_size, w_planes + shape.real, windows, sum + o * shape.sum_row);
          else
            for (int64_t i = 0; i < count; i++)
              pf_dots(PF_DOT_ROWS, 1, &shape, w_planes + o * w_size, w_planes + shape.real, windows + i, sum + o * shape.sum_row + i * PF_LANES);
        for (int64_t o = whole; o < rows; o++)
          if (count == PF_DOT_COLS)
            pf_dots(1, PF_DOT_COLS, &shape, w_planes + o * w_size, w_planes + shape.real, windows, sum + o * shape.sum_row);
          else
            for (int64_t i = 0; i < count; i++)
              pf_dots(1, 1, &shape, w_planes + o * w_size, w_planes + shape.real, windows + i, sum + o * shape.sum_row + i * PF_LANES);
      }
    }
  }
}

/* ---- finish: one iteration is one row of one image: adds the lanes and the partial sums, in order ---- */

PF_KERNEL(PF_GLUE(PF_NAME, _finish)) {
  (void)worker;
  const int64_t rows = arg[PF_O], pixels = pf_volume(arg + PF_OUT), columns = arg[PF_N] * pixels, parts = arg[PF_PARTS];
  enum { chunk = 64 };
  for (int64_t item = begin; item < end; item++) {
    const int64_t o = item % rows, g = item / rows % arg[PF_G], n = item / (rows * arg[PF_G]);
    for (int64_t p = 0; p < pixels; p += chunk) {
      const int64_t count = pf_min(chunk, pixels - p);
      PF_ACC_T total[chunk];
      for (int64_t i = 0; i < count; i++) {
        pf_vec lanes = {0};
        for (int64_t part = 0; part < parts; part++)
          lanes += *(const pf_vec *)((PF_ACC_T *)buf[2] + (((g * parts + part) * rows + o) * columns + n * pixels + p + i) * PF_LANES);
        total[i] = 0;
        for (int64_t lane = 0; lane < PF_LANES; lane++) total[i] += lanes[lane];
      }
      PF_EPILOGUE(buf, arg, uni, n * arg[PF_G] + g, o, p, count, total);
    }
  }
}
