/* Pooling over windows of up to three axes, and its gradient, on a GPU.
 *
 *   PF_MAX           out[p] = max of x over window p; NaN wins
 *   PF_INDICES       out[p] = position in its plane of that maximum: the first one, or the last NaN, as torch has it
 *   PF_AVG           out[p] = sum of x over window p / count of p
 *   max backward     out[s] = sum of g[p] over the windows p whose maximum lies at s
 *   avg backward     out[s] = sum of g[p] / count of p over the windows p that hold s
 *
 * Forward: MEMBERS lanes share an output, one where windows are small; neighbours take neighbouring outputs, so what
 * windows share comes from the cache. Gradients are gathered: a thread owns an element of x and goes through the windows
 * that hold it in order, so there are no atomics and every run gives the same bits. The gradient of a maximum first
 * writes down where the maxima are, 4 bytes for each output.
 *
 * Where the last axis is only carried along, as channels are that lie innermost, a thread has VECTOR neighbours of it,
 * which share their windows: pf_pool_lines and pf_pool_lines_backward.
 *
 * Bytes: x, g and out once; 8 more per output in the gradient of a maximum.
 *
 * Arguments: planes, then for each axis PF_AXIS words: size, out, their magics, kernel (0: windows share the axis
 * evenly), stride, padding, dilation; then include_pad, the divisor (0: the count of the window), and vectors in a line
 * of the last axis with their magic.
 */
#ifndef PF_POOL_HIP
#define PF_POOL_HIP

#include "pf_element.h"

namespace pf_pooling {

enum { PF_MAX, PF_INDICES, PF_AVG };
enum { PF_POOL_BLOCK = 256, PF_POOL_AXIS = 8, PF_POOL_INCLUDE_PAD = 1 + 3 * PF_POOL_AXIS, PF_POOL_DIVISOR, PF_POOL_LINES };

struct pf_window {
  int first, end, count;
};

/* EVEN: whether some windows share their axis evenly, 2 where that takes numbers of 64 bits. */
template <int EVEN> struct pf_even {
  typedef int number;
};
template <> struct pf_even<2> {
  typedef int64_t number;
};

struct pf_axis {
  int size, out;
  int64_t size_magic, out_magic;
  int kernel, stride, pad, dilation;

  PF_FN pf_axis of(const int64_t *arg, int axis) {
    const int64_t *a = arg + 1 + axis * PF_POOL_AXIS;
    return {(int)a[0], (int)a[2], a[1], a[3], (int)a[4], (int)a[5], (int)a[6], (int)a[7]};
  }
};

/* Where window p of an axis lies; see core/window.py. */
template <int EVEN> PF_FN pf_window pf_window_at(const pf_axis &axis, int p) {
  typedef typename pf_even<EVEN>::number N;
  if (EVEN && !axis.kernel) {
    const int first = (int)((N)p * axis.size / axis.out), end = (int)(((N)(p + 1) * axis.size + axis.out - 1) / axis.out);
    return {first, end, end - first};
  }
  const int start = p * axis.stride - axis.pad, reach = start + (axis.kernel - 1) * axis.dilation + 1;
  const int skipped = start < 0 ? (axis.dilation - 1 - start) / axis.dilation * axis.dilation : 0;
  const int counted = start + axis.kernel, room = axis.size + axis.pad;
  return {start + skipped, reach < axis.size ? reach : axis.size, (counted < room ? counted : room) - start};
}

/* The windows of an axis that may hold element s: first and last. Whether one does, with a dilation, pf_holds tells. */
template <int EVEN> PF_FN pf_window pf_windows_of(const pf_axis &axis, int s) {
  typedef typename pf_even<EVEN>::number N;
  if (EVEN && !axis.kernel)
    return {(int)((N)s * axis.out / axis.size), (int)(((N)(s + 1) * axis.out - 1) / axis.size) + 1, 0};
  const int at = s + axis.pad, before = at - (axis.kernel - 1) * axis.dilation;
  const int first = before > 0 ? (before + axis.stride - 1) / axis.stride : 0, last = at / axis.stride;
  return {first, last < axis.out ? last + 1 : axis.out, 0};
}
PF_FN int pf_holds(const pf_axis &axis, int p, int s) {
  return axis.dilation == 1 || (s + axis.pad - p * axis.stride) % axis.dilation == 0;
}

template <class W> struct pf_best {
  W value;
  int at;
};
/* Of two elements the greater, of equals the first; a NaN before all, and of those the last. */
template <class W> PF_FN pf_best<W> pf_better(pf_best<W> a, pf_best<W> b) {
  const int nan = (b.value != b.value) & ((a.value == a.value) | (b.at > a.at));
  const int take = nan | (b.value > a.value) | ((b.value == a.value) & (b.at < a.at));
  return {take ? b.value : a.value, take ? b.at : a.at};
}

/* Lanes of a window: the flat number of a task as output and member. Gives whether there is such an output. */
template <class I> struct pf_output {
  I plane;
  int p[3];
};
template <class I> PF_FN pf_output<I> pf_place(I flat, const int64_t *arg, int word) {
  pf_output<I> o;
  PF_UNROLL
  for (int axis = 2; axis >= 0; axis--) {
    const int64_t *a = arg + 1 + axis * PF_POOL_AXIS + word;
    const I rest = pf_quotient(flat, a[0], a[1]);
    o.p[axis] = (int)(flat - rest * (I)a[0]);
    flat = rest;
  }
  o.plane = flat;
  return o;
}

template <class W> PF_FN W pf_window_count(const int64_t *arg, const pf_window *w) {
  if (arg[PF_POOL_DIVISOR]) return (W)arg[PF_POOL_DIVISOR];
  int64_t count = 1;
  PF_UNROLL
  for (int axis = 0; axis < 3; axis++)
    count *= arg[PF_POOL_INCLUDE_PAD] ? w[axis].count : w[axis].end - w[axis].first;
  return (W)count;
}

/* Every output of x. out: E::stored, or OUT = int64_t or int32_t for positions. */
template <class E, int MODE, int EVEN, int MEMBERS, class I, class OUT>
PF_FN void pf_pool(const typename E::stored *x, OUT *out, const int64_t *arg) {
  typedef typename E::wide W;
  const pf_axis axes[3] = {pf_axis::of(arg, 0), pf_axis::of(arg, 1), pf_axis::of(arg, 2)};
  const I outputs = (I)arg[0] * axes[0].out * axes[1].out * axes[2].out;
  const I task = (I)pf_block() * (PF_POOL_BLOCK / MEMBERS) + pf_thread() / MEMBERS;
  const int member = pf_thread() % MEMBERS, live = task < outputs;
  const pf_output<I> o = pf_place(live ? task : outputs - 1, arg, 2);
  pf_window w[3];
  PF_UNROLL
  for (int axis = 0; axis < 3; axis++) w[axis] = pf_window_at<EVEN>(axes[axis], o.p[axis]);
  const typename E::stored *plane = x + (int64_t)o.plane * axes[0].size * axes[1].size * axes[2].size;
  const int n2 = axes[2].size, n1 = axes[1].size;
  /* The first element of the window starts the search; every window of a maximum has one. */
  const int start = (w[0].first * n1 + w[1].first) * n2 + w[2].first;
  pf_best<W> best = {MODE == PF_AVG ? (W)0 : E::load(plane[start]), start};
  for (int s0 = w[0].first; s0 < w[0].end; s0 += axes[0].dilation)
    for (int s1 = w[1].first; s1 < w[1].end; s1 += axes[1].dilation)
      for (int s2 = w[2].first + member * axes[2].dilation; s2 < w[2].end; s2 += MEMBERS * axes[2].dilation) {
        const int at = (s0 * n1 + s1) * n2 + s2;
        const W v = E::load(plane[at]);
        if (MODE == PF_AVG)
          best.value += v;
        else if (MODE == PF_MAX)
          best.value = pf_max(best.value, v);
        else
          best = pf_better(best, {v, at});
      }
  PF_UNROLL
  for (int lanes = 1; lanes < MEMBERS; lanes *= 2) {
    const pf_best<W> other = {pf_shuffle_xor(best.value, lanes), MODE == PF_INDICES ? pf_shuffle_xor(best.at, lanes) : 0};
    if (MODE == PF_AVG)
      best.value += other.value;
    else if (MODE == PF_MAX)
      best.value = pf_max(best.value, other.value);
    else
      best = pf_better(best, other);
  }
  if (member != 0 || !live) return;
  if constexpr (MODE == PF_INDICES)
    out[task] = best.at;
  else
    out[task] = E::store(MODE == PF_AVG ? best.value / pf_window_count<W>(arg, w) : best.value);
}

/* Every element of out, in the shape of x. positions: of the maxima in their planes, or 0 for averages. */
template <class E, int AVERAGE, int EVEN, class I>
PF_FN void pf_pool_backward(const typename E::stored *g, const int *positions, typename E::stored *out, const int64_t *arg) {
  typedef typename E::wide W;
  const pf_axis axes[3] = {pf_axis::of(arg, 0), pf_axis::of(arg, 1), pf_axis::of(arg, 2)};
  const I task = (I)pf_block() * PF_POOL_BLOCK + pf_thread();
  if (task >= (I)arg[0] * axes[0].size * axes[1].size * axes[2].size) return;
  const pf_output<I> o = pf_place(task, arg, 0);
  const int me = (o.p[0] * axes[1].size + o.p[1]) * axes[2].size + o.p[2];
  pf_window range[3], w[3];
  PF_UNROLL
  for (int axis = 0; axis < 3; axis++) range[axis] = pf_windows_of<EVEN>(axes[axis], o.p[axis]);
  W sum = 0;
  for (int p0 = range[0].first; p0 < range[0].end; p0++) {
    if (!pf_holds(axes[0], p0, o.p[0])) continue;
    w[0] = pf_window_at<EVEN>(axes[0], p0);
    for (int p1 = range[1].first; p1 < range[1].end; p1++) {
      if (!pf_holds(axes[1], p1, o.p[1])) continue;
      w[1] = pf_window_at<EVEN>(axes[1], p1);
      const I row = (((I)o.plane * axes[0].out + p0) * axes[1].out + p1) * axes[2].out;
      for (int p2 = range[2].first; p2 < range[2].end; p2++) {
        if (AVERAGE) {
          if (!pf_holds(axes[2], p2, o.p[2])) continue;
          w[2] = pf_window_at<EVEN>(axes[2], p2);
          sum += E::load(g[row + p2]) / pf_window_count<W>(arg, w);
        } else if (positions[row + p2] == me) {
          sum += E::load(g[row + p2]);
        }
      }
    }
  }
  out[task] = E::store(sum);
}

/* Vector number task of lines that lie as axes 0 and 1 say; word: 0 for the sizes of x, 2 for those of outputs. */
template <class I> PF_FN pf_output<I> pf_place_line(I task, const int64_t *arg, int word) {
  const I line = pf_quotient(task, arg[PF_POOL_LINES], arg[PF_POOL_LINES + 1]);
  const int64_t *a0 = arg + 1 + word, *a1 = a0 + PF_POOL_AXIS;
  const I rest = pf_quotient(line, a1[0], a1[1]), plane = pf_quotient(rest, a0[0], a0[1]);
  return {plane, {(int)(rest - plane * (I)a0[0]), (int)(line - rest * (I)a1[0]), (int)(task - line * (I)arg[PF_POOL_LINES])}};
}
/* VECTOR numbers, 16 bytes at a time. */
template <int VECTOR, class T> PF_FN void pf_copy_line(T *to, const T *from) {
  enum { PIECE = 16 / sizeof(T) < VECTOR ? 16 / sizeof(T) : VECTOR };
  PF_UNROLL
  for (int k = 0; k < VECTOR; k += PIECE) *(pf_vector<T, PIECE> *)(to + k) = *(const pf_vector<T, PIECE> *)(from + k);
}

template <class E, int MODE, int EVEN, int VECTOR, class I, class OUT>
PF_FN void pf_pool_lines(const typename E::stored *x, OUT *out, const int64_t *arg) {
  typedef typename E::wide W;
  const pf_axis axes[2] = {pf_axis::of(arg, 0), pf_axis::of(arg, 1)};
  const I task = (I)pf_block() * PF_POOL_BLOCK + pf_thread();
  if (task >= (I)arg[0] * axes[0].out * axes[1].out * (I)arg[PF_POOL_LINES]) return;
  const pf_output<I> o = pf_place_line(task, arg, 2);
  const pf_window w[3] = {pf_window_at<EVEN>(axes[0], o.p[0]), pf_window_at<EVEN>(axes[1], o.p[1]), {0, 1, 1}};
  const int n1 = axes[1].size, n2 = (int)arg[PF_POOL_LINES] * VECTOR, column = o.p[2] * VECTOR;
  const typename E::stored *plane = x + (int64_t)o.plane * axes[0].size * n1 * n2;
  pf_best<W> best[VECTOR];
  int first = 1;
  for (int s0 = w[0].first; s0 < w[0].end; s0 += axes[0].dilation)
    for (int s1 = w[1].first; s1 < w[1].end; s1 += axes[1].dilation) {
      const int at = (s0 * n1 + s1) * n2 + column;
      alignas(16) typename E::stored line[VECTOR];
      pf_copy_line<VECTOR>(line, plane + at);
      PF_UNROLL
      for (int k = 0; k < VECTOR; k++) {
        const pf_best<W> other = {E::load(line[k]), at + k};
        if (first)
          best[k] = other;
        else if (MODE == PF_AVG)
          best[k].value += other.value;
        else if (MODE == PF_MAX)
          best[k].value = pf_max(best[k].value, other.value);
        else
          best[k] = pf_better(best[k], other);
      }
      first = 0;
    }
  alignas(16) OUT result[VECTOR];
  PF_UNROLL
  for (int k = 0; k < VECTOR; k++) {
    if constexpr (MODE == PF_INDICES)
      result[k] = best[k].at;
    else
      result[k] = E::store(first ? (W)0 : MODE == PF_AVG ? best[k].value / pf_window_count<W>(arg, w) : best[k].value);
  }
  pf_copy_line<VECTOR>(out + (int64_t)task * VECTOR, result);
}

template <class E, int AVERAGE, int EVEN, int VECTOR, class I>
PF_FN void pf_pool_lines_backward(const typename E::stored *g, const int *positions, typename E::stored *out, const int64_t *arg) {
  typedef typename E::wide W;
  const pf_axis axes[2] = {pf_axis::of(arg, 0), pf_axis::of(arg, 1)};
  const I task = (I)pf_block() * PF_POOL_BLOCK + pf_thread();
  if (task >= (I)arg[0] * axes[0].size * axes[1].size * (I)arg[PF_POOL_LINES]) return;
  const pf_output<I> o = pf_place_line(task, arg, 0);
  const int n2 = (int)arg[PF_POOL_LINES] * VECTOR, column = o.p[2] * VECTOR;
  const int me = (o.p[0] * axes[1].size + o.p[1]) * n2 + column;
  const pf_window rows = pf_windows_of<EVEN>(axes[0], o.p[0]), columns = pf_windows_of<EVEN>(axes[1], o.p[1]);
  pf_window w[3] = {rows, columns, {0, 1, 1}};
  W sums[VECTOR] = {};
  for (int p0 = rows.first; p0 < rows.end; p0++) {
    if (!pf_holds(axes[0], p0, o.p[0])) continue;
    w[0] = pf_window_at<EVEN>(axes[0], p0);
    for (int p1 = columns.first; p1 < columns.end; p1++) {
      if (!pf_holds(axes[1], p1, o.p[1])) continue;
      w[1] = pf_window_at<EVEN>(axes[1], p1);
      const int64_t at = (((int64_t)o.plane * axes[0].out + p0) * axes[1].out + p1) * n2 + column;
      alignas(16) typename E::stored line[VECTOR];
      alignas(16) int found[VECTOR];
      pf_copy_line<VECTOR>(line, g + at);
      if (!AVERAGE) pf_copy_line<VECTOR>(found, positions + at);
      PF_UNROLL
      for (int k = 0; k < VECTOR; k++) {
        if (AVERAGE)
          sums[k] += E::load(line[k]) / pf_window_count<W>(arg, w);
        else
          sums[k] += found[k] == me + k ? E::load(line[k]) : (W)0;
      }
    }
  }
  alignas(16) typename E::stored result[VECTOR];
  PF_UNROLL
  for (int k = 0; k < VECTOR; k++) result[k] = E::store(sums[k]);
  pf_copy_line<VECTOR>(out + (int64_t)task * VECTOR, result);
}

}  // namespace pf_pooling

#endif
